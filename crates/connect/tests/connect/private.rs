//! Messages and subscriptions of a tenant's private space: rows of the reference's table, one client against another.

use millstream_connect::{BrokerConfig, ConnectConfig, MqttConfig};
use millstream_testkit::mqtt::{Hello, Message, Mqtt, packet, publish, text};
use millstream_types::TopicKind;

use crate::world::{World, quick};

pub(crate) const BOTH: [u8; 2] = [4, 5];

pub(crate) fn with(broker: BrokerConfig) -> ConnectConfig {
    ConnectConfig { mqtt: MqttConfig { broker, ..quick().mqtt }, ..quick() }
}

pub(crate) fn hello(level: u8, client: &str) -> Hello<'_> {
    Hello { level, keep_alive_s: 60, client, clean: true, login: Some(("d@T", "pw")), properties: &[], will: None }
}

pub(crate) async fn world(dir: &std::path::Path) -> World {
    let world = World::open(dir).await;
    world.register("T", "d").await;
    world.register("T", "e").await;
    world
}

pub(crate) async fn puback(client: &mut Mqtt, message: &Message) {
    client.send(&packet(0x40, &message.id.to_be_bytes())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_subscribers_get_messages_in_order_at_the_lower_of_both_qualities() {
    let dir = tempfile::tempdir().unwrap();
    let world = world(dir.path()).await;
    for level in BOTH {
        let mut wide = Mqtt::log_in(world.mqtt(), level, "d@T").await;
        let mut narrow = Mqtt::log_in(world.mqtt(), 9 - level, "e@T").await;
        assert_eq!(wide.subscribe("house/#", 1).await, 1);
        assert_eq!(narrow.subscribe("house/+/t", 0).await, 0);
        let mut sender = Mqtt::log_in(world.mqtt(), level, "e@T").await;
        // In one write; the reserved words are none of the private space's business.
        let sent: Vec<u8> = (1..=40_u16)
            .flat_map(|n| {
                let topic = if n % 2 == 0 { "house/1/t" } else { "house/1" };
                publish(level, 1, n, topic, &[], n.to_string().as_bytes())
            })
            .chain(publish(level, 1, 41, "t", &[], b"telemetry"))
            .collect();
        sender.send(&sent).await;
        for n in 1..=41_u16 {
            assert_eq!(sender.next().await, (0x40, n.to_be_bytes().to_vec()));
        }
        for n in 1..=40_u16 {
            let message = wide.message().await;
            assert_eq!((message.qos, message.dup, message.retain), (1, false, false));
            assert_eq!(message.text().1, n.to_string());
            puback(&mut wide, &message).await;
        }
        for n in 1..=20_u16 {
            let message = narrow.message().await;
            assert_eq!((message.qos, message.text()), (0, ("house/1/t", &*(2 * n).to_string())));
        }
        // After an unsubscription nothing comes any more but what was to come before.
        let unsubscribe = [&[0, 9][..], if level == 5 { &[0][..] } else { &[] }, &text("house/#")].concat();
        wide.send(&packet(0xA2, &unsubscribe)).await;
        assert_eq!(wide.next().await.0, 0xB0);
        sender.publish(1, 1, "house/x", b"x").await;
        assert_eq!(sender.next().await.0, 0x40);
        wide.send(&[0xC0, 0]).await;
        assert_eq!(wide.next().await.0, 0xD0);
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subscription_brings_no_messages_that_were_acknowledged_before_it() {
    let dir = tempfile::tempdir().unwrap();
    let world = world(dir.path()).await;
    let mut sender = Mqtt::log_in(world.mqtt(), 5, "d@T").await;
    let mut subscriber = Mqtt::log_in(world.mqtt(), 5, "e@T").await;
    for round in 0..100_u16 {
        let topic = format!("house/{round}");
        sender.publish(1, 1, &topic, b"before").await;
        assert_eq!(sender.next().await.0, 0x40);
        assert_eq!(subscriber.subscribe(&topic, 0).await, 0);
        sender.publish(1, 2, &topic, b"after").await;
        assert_eq!(sender.next().await.0, 0x40);
        assert_eq!(subscriber.message().await.text(), (&*topic, "after"));
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_a_wildcard_never_reaches_hono_s_topics_topics_of_the_server_or_another_tenant() {
    let dir = tempfile::tempdir().unwrap();
    let world = world(dir.path()).await;
    world.register("U", "d").await;
    let mut all = Mqtt::log_in(world.mqtt(), 5, "d@T").await;
    assert_eq!(all.subscribe("#", 0).await, 0);
    assert_eq!(all.subscribe("$mine/#", 0).await, 0);
    for (filter, code) in [("telemetry/#", 0x8F), ("t", 0x8F), ("a#", 0x8F), ("a/#/b", 0x8F)] {
        assert_eq!(all.subscribe(filter, 0).await, code, "{filter}");
    }
    let mut other = Mqtt::log_in(world.mqtt(), 5, "d@U").await;
    other.publish(1, 1, "foreign", b"foreign").await;
    assert_eq!(other.next().await.0, 0x40);
    let mut sender = Mqtt::log_in(world.mqtt(), 5, "e@T").await;
    for (id, topic) in ["telemetry", "$other", "$mine/a", "last"].into_iter().enumerate() {
        sender.publish(1, id as u16 + 1, topic, topic.as_bytes()).await;
        assert_eq!(sender.next().await.0, 0x40);
    }
    assert_eq!(all.message().await.text(), ("$mine/a", "$mine/a"));
    assert_eq!(all.message().await.text(), ("last", "last"));
    assert_eq!(world.records(TopicKind::Mqtt, "T").len(), 3);
    for topic in ["$SYS/x", "$share/g/a"] {
        let mut sender = Mqtt::log_in(world.mqtt(), 5, "e@T").await;
        sender.publish(1, 1, topic, b"x").await;
        assert_eq!(sender.expect_end().await, Some(0x90), "{topic}");
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_no_local_retain_as_published_subscription_identifiers_and_overlapping_subscriptions() {
    let dir = tempfile::tempdir().unwrap();
    let world = world(dir.path()).await;
    let mut client = Mqtt::log_in(world.mqtt(), 5, "d@T").await;
    assert_eq!(client.subscribe("own/#", 0b100).await, 0);
    // Two subscriptions, one message: the higher quality, both identifiers.
    for (filter, options, identifier) in [("a/+", 0, 7), ("a/b", 0b1001, 200)] {
        let identifier: &[u8] = if identifier < 128 { &[identifier] } else { &[0xC8, 0x01] };
        let properties = [&[1 + identifier.len() as u8, 0x0B], identifier].concat();
        client.send(&packet(0x82, &[&[0, 1][..], &properties, &text(filter), &[options]].concat())).await;
        assert_eq!(client.next().await.0, 0x90);
    }
    client.publish(0, 0, "own/x", b"own").await;
    let mut retained = publish(5, 1, 1, "a/b", &[], b"both");
    retained[0] |= 1;
    client.send(&retained).await;
    let mut got = [client.next().await, client.next().await];
    got.sort_by_key(|(first_byte, _)| first_byte >> 4);
    assert_eq!(got[1].0, 0x40);
    let message = Message::read(got[0].0, &got[0].1, 5);
    assert_eq!((message.qos, message.retain, message.text()), (1, true, ("a/b", "both")));
    let mut identifiers = [&message.properties[..2], &message.properties[2..]];
    if message.properties[1] == 0xC8 {
        identifiers = [&message.properties[3..], &message.properties[..3]];
    }
    assert_eq!(identifiers, [&[0x0B, 7][..], &[0x0B, 0xC8, 0x01]]);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_properties_pass_unchanged_and_topic_aliases_and_packet_sizes_hold_both_ways() {
    let dir = tempfile::tempdir().unwrap();
    let world = world(dir.path()).await;
    // It takes packets of 100 bytes and two aliases.
    let properties = [0x27, 0, 0, 0, 100, 0x22, 0, 2];
    let (mut client, _) = Mqtt::connect(world.mqtt(), &Hello { properties: &properties, ..hello(5, "c") }).await;
    assert_eq!(client.subscribe("#", 0).await, 0);
    let mut sender = Mqtt::log_in(world.mqtt(), 5, "e@T").await;
    let passed = [&[0x01, 1, 0x08][..], &text("r/1"), &[0x09], &text("id"), &[0x26], &text("k"), &text("v")].concat();
    let passed = [&passed[..], &[0x26], &text("k"), &text("w"), &[0x03], &text("text/plain")].concat();
    // It names the topic once and the alias from then on.
    let first = [&[0x23, 0, 1][..], &passed].concat();
    sender.send(&publish(5, 1, 1, "a", &first, b"1")).await;
    sender.send(&publish(5, 1, 2, "", &[0x23, 0, 1], b"2")).await;
    sender.send(&publish(5, 1, 3, "b", &[], &[b'x'; 100])).await;
    sender.send(&publish(5, 1, 4, "b", &[], b"3")).await;
    sender.send(&publish(5, 1, 5, "b", &[], b"4")).await;
    sender.send(&publish(5, 1, 6, "z", &[], b"5")).await;
    let message = client.message().await;
    assert_eq!((message.text(), &message.properties[..]), (("a", "1"), &first[..]));
    let rest: Vec<_> = [client.message().await, client.message().await, client.message().await, client.message().await]
        .into_iter()
        .map(|message| (message.topic, String::from_utf8(message.payload).unwrap(), message.properties))
        .collect();
    let row = |topic: &str, payload: &str, alias: u8| {
        let properties = if alias == 0 { vec![] } else { vec![0x23, 0, alias] };
        (topic.to_owned(), payload.to_owned(), properties)
    };
    assert_eq!(rest, [row("", "2", 1), row("b", "3", 2), row("", "4", 2), row("z", "5", 0)]);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_a_message_is_delivered_if_it_fits_the_client_s_packets_to_the_byte() {
    let dir = tempfile::tempdir().unwrap();
    let world = world(dir.path()).await;
    let mut sender = Mqtt::log_in(world.mqtt(), 5, "e@T").await;
    for (most, aliases, head) in [(100_u8, 0, 6), (100, 2, 6), (127, 2, 6), (129, 0, 6), (200, 0, 7), (200, 2, 7)] {
        // The head: first byte, length, length of the topic and the topic, length of the properties.
        let properties = [0x27, 0, 0, 0, most, 0x22, 0, aliases];
        let (mut client, _) = Mqtt::connect(world.mqtt(), &Hello { properties: &properties, ..hello(5, "c") }).await;
        assert_eq!(client.subscribe("#", 0).await, 0);
        let fits = usize::from(most) - head;
        for (id, size) in [(1, fits + 1), (2, fits), (3, fits - 3), (4, fits)] {
            sender.send(&publish(5, 1, id, "b", &[], &vec![b'x'; size])).await;
            assert_eq!(sender.next().await, (0x40, vec![0, id as u8]));
        }
        let mut alias_of = async |size: usize| {
            let message = client.message().await;
            assert_eq!(message.payload.len(), size, "at most {most}");
            (message.topic, message.properties)
        };
        let named = ("b".to_owned(), vec![]);
        assert_eq!(alias_of(fits).await, named);
        // The first that has room for the alias, by which the client learns it.
        let learns = ("b".to_owned(), vec![0x23, 0, 1]);
        assert_eq!(alias_of(fits - 3).await, if aliases > 0 { learns } else { named.clone() });
        assert_eq!(alias_of(fits).await, named);
        client.send(&[0xE0, 0]).await;
        client.expect_end().await;
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_the_server_s_own_packets_fit_the_client_s_packet_size() {
    let dir = tempfile::tempdir().unwrap();
    let world = world(dir.path()).await;
    let properties = [0x27, 0, 0, 0, 20];
    let small = Hello { properties: &properties, ..hello(5, "c") };
    let (_, answer) = Mqtt::connect(world.mqtt(), &Hello { login: Some(("d@T", "no")), ..small }).await;
    assert_eq!(answer, [0, 0x86, 0]);
    let (_, answer) = Mqtt::connect(world.mqtt(), &Hello { properties: &[0x27, 0, 0, 0, 9], ..small }).await;
    assert_eq!(answer, [0, 0x83, 0], "no room for what it has to be told");
    let (mut client, answer) = Mqtt::connect(world.mqtt(), &small).await;
    assert_eq!(answer[..2], [0, 0]);
    assert_eq!(client.subscribe("e///#", 0).await, 0);
    // No room for what the error topic would say.
    client.publish(0, 0, "t//nobody", b"x").await;
    assert_eq!(client.next().await, (0xE0, vec![0x87, 0]));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_receive_maximum_holds_back_and_each_filter_has_its_own_reason_code() {
    let dir = tempfile::tempdir().unwrap();
    let broker = BrokerConfig { subscriptions_max: 2, filters_max: 3, live_max_messages: 4, ..BrokerConfig::default() };
    let world = World::open_with(dir.path(), with(broker)).await;
    world.register("T", "d").await;
    let properties = [0x21, 0, 2];
    let (mut client, _) = Mqtt::connect(world.mqtt(), &Hello { properties: &properties, ..hello(5, "c") }).await;
    let filters = ["a", "b", "y", "z"].map(|filter| [text(filter), vec![1]].concat()).concat();
    client.send(&packet(0x82, &[&[0, 1, 0][..], &filters].concat())).await;
    assert_eq!(client.next().await.1[3..], [1, 1, 0x97, 0x97]);
    let mut sender = Mqtt::log_in(world.mqtt(), 5, "d@T").await;
    for n in 1..=30_u16 {
        sender.publish(1, n, "a", n.to_string().as_bytes()).await;
    }
    for _ in 1..=30 {
        assert_eq!(sender.next().await.0, 0x40);
    }
    // Never more than two at a time; those that had no room in memory come from the log.
    for n in (1..=30_u16).step_by(2) {
        let pair = [client.message().await, client.message().await];
        client.send(&[0xC0, 0]).await;
        assert_eq!(client.next().await.0, 0xD0, "nothing more before it is acknowledged");
        assert_eq!(pair.each_ref().map(|message| message.text().1.to_owned()), [n, n + 1].map(|n| n.to_string()));
        for message in &pair {
            puback(&mut client, message).await;
        }
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_more_messages_exactly_once_than_the_server_s_receive_maximum_end_the_connection() {
    let dir = tempfile::tempdir().unwrap();
    let mqtt = MqttConfig { in_flight_max: 3, ..quick().mqtt };
    let world = World::open_with(dir.path(), ConnectConfig { mqtt, ..quick() }).await;
    world.register("T", "d").await;
    let hour: &[u8] = &[0x11, 0, 0, 0x0E, 0x10];
    for (level, properties) in [(5, &[][..]), (5, hour), (4, &[])] {
        let (mut client, _) = Mqtt::connect(world.mqtt(), &Hello { properties, ..hello(level, "c") }).await;
        let offer = |id: u16| publish(level, 2, id, "a", &[], b"x");
        // One after the other let go of, as many as it likes; then as many as may be open, and one of them again.
        for id in 1..=6_u16 {
            client.send(&offer(id)).await;
            assert_eq!(client.next().await, (0x50, id.to_be_bytes().to_vec()));
            client.send(&packet(0x62, &id.to_be_bytes())).await;
            assert_eq!(client.next().await, (0x70, id.to_be_bytes().to_vec()));
        }
        for id in [1, 2, 3, 3_u16] {
            client.send(&offer(id)).await;
            assert_eq!(client.next().await, (0x50, id.to_be_bytes().to_vec()));
        }
        client.send(&offer(4)).await;
        if level == 5 {
            assert_eq!(client.expect_end().await, Some(0x93));
        } else {
            // It was not told.
            assert_eq!(client.next().await, (0x50, vec![0, 4]));
        }
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_exactly_once_has_its_four_packets_each_way_and_a_repeated_message_is_taken_once() {
    let dir = tempfile::tempdir().unwrap();
    let world = world(dir.path()).await;
    for level in BOTH {
        let mut client = Mqtt::log_in(world.mqtt(), level, "d@T").await;
        assert_eq!(client.subscribe("exact", 2).await, 2);
        let mut sender = Mqtt::log_in(world.mqtt(), level, "e@T").await;
        let mut sent = publish(level, 2, 5, "exact", &[], b"1");
        sender.send(&sent).await;
        assert_eq!(sender.next().await, (0x50, vec![0, 5]));
        sent[0] |= 8;
        sender.send(&sent).await;
        assert_eq!(sender.next().await, (0x50, vec![0, 5]), "taken before");
        sender.send(&[0x62, 2, 0, 5]).await;
        assert_eq!(sender.next().await, (0x70, vec![0, 5]));
        sender.send(&publish(level, 2, 5, "exact", &[], b"2")).await;
        assert_eq!(sender.next().await, (0x50, vec![0, 5]), "the id is free again");
        let got = [client.message().await, client.message().await];
        for (message, expected) in got.into_iter().zip(["1", "2"]) {
            assert_eq!((message.qos, message.text().1), (2, expected));
            let id = message.id.to_be_bytes();
            client.send(&packet(0x50, &id)).await;
            assert_eq!(client.next().await, (0x62, id.to_vec()));
            client.send(&packet(0x70, &id)).await;
        }
        // What nobody knows of.
        client.send(&packet(0x50, &[9, 9])).await;
        assert_eq!(client.next().await, (0x62, if level == 5 { vec![9, 9, 0x92] } else { vec![9, 9] }));
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_access_lists_and_the_tenant_s_switch_refuse_forbidden_topics() {
    let dir = tempfile::tempdir().unwrap();
    let world = world(dir.path()).await;
    let body = r#"{"ext":{"mqtt-access":{"publish":["d/#"],"subscribe":["d/#","all/+"]}}}"#;
    world.do_registry("PUT /v1/devices/T/d", body, 204).await;
    for wrong in [r#"{"ext":{"mqtt-access":{"publish":["a#"]}}}"#, r#"{"ext":{"mqtt-access":[]}}"#] {
        world.do_registry("PUT /v1/devices/T/d", wrong, 400).await;
    }
    world.do_registry("PUT /v1/tenants/T", r#"{"ext":{"mqtt-broker":"no"}}"#, 400).await;
    for level in BOTH {
        let mut client = Mqtt::log_in(world.mqtt(), level, "d@T").await;
        for (filter, is_allowed) in [("d/#", true), ("all/x", true), ("all/#", false), ("#", false), ("e", false)] {
            let refused = if level == 5 && filter != "e" { 0x87 } else { 0x80 };
            let refused = if level == 5 && filter == "e" { 0x8F } else { refused };
            assert_eq!(client.subscribe(filter, 0).await, if is_allowed { 0 } else { refused }, "{filter}");
        }
        client.publish(1, 1, "d/x", b"mine").await;
        let mut got = [client.next().await.0, client.next().await.0];
        got.sort_unstable();
        assert_eq!(got, [0x30, 0x40]);
        // In version 5 the acknowledgement says so, and the connection stays; 3.1.1 has no word for it.
        for qos in [0, 1, 2] {
            let mut client = Mqtt::log_in(world.mqtt(), level, "d@T").await;
            assert_eq!(client.subscribe("d/#", 0).await, 0);
            let [before, after] = ["before", "after"].map(|text| publish(level, 0, 0, "d/x", &[], text.as_bytes()));
            let forbidden = publish(level, qos, 1, "all/x", &[], b"not mine");
            let mut watcher = Mqtt::log_in(world.mqtt(), level, "e@T").await;
            assert_eq!(watcher.subscribe("+/x", 0).await, 0);
            client.send(&[before, forbidden, after].concat()).await;
            assert_eq!(watcher.message().await.text(), ("d/x", "before"));
            if level == 4 {
                while client.next_or_end().await.is_some() {}
                continue;
            }
            assert_eq!(watcher.message().await.text(), ("d/x", "after"));
            let mut got = vec![client.next().await, client.next().await];
            if qos > 0 {
                got.push(client.next().await);
                assert!(got.contains(&(0x30 + 0x10 * qos, vec![0, 1, 0x87])), "quality {qos}: {got:?}");
            }
            assert_eq!(got.iter().filter(|(first_byte, _)| *first_byte == 0x30).count(), 2);
        }
    }
    // A connection that has what is no longer allowed ends; one without stays.
    let mut listener = Mqtt::log_in(world.mqtt(), 5, "d@T").await;
    assert_eq!(listener.subscribe("d/#", 0).await, 0);
    world.do_registry("PUT /v1/devices/T/d", r#"{"ext":{"mqtt-access":{"subscribe":[]}}}"#, 204).await;
    assert_eq!(listener.expect_end().await, Some(0x87));
    world.do_registry("PUT /v1/tenants/T", r#"{"ext":{"mqtt-broker":"off"}}"#, 204).await;
    let (mut client, answer) = Mqtt::connect(world.mqtt(), &hello(5, "x")).await;
    assert!(answer.windows(2).any(|pair| pair == [0x24, 1]), "no more than at least once: {answer:?}");
    assert_eq!(client.subscribe("d/#", 0).await, 0x87);
    client.publish(1, 1, "t", b"telemetry").await;
    assert_eq!(client.next().await.0, 0x40);
    client.publish(0, 0, "d/x", b"x").await;
    assert_eq!(client.expect_end().await, Some(0x87));
    world.stop().await;
}

/// PUBLISH with the retain flag.
fn retained(level: u8, qos: u8, id: u16, topic: &str, properties: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut bytes = publish(level, qos, id, topic, properties, payload);
    bytes[0] |= 1;
    bytes
}

/// Publishes and waits until it is acknowledged.
pub(crate) async fn told(client: &mut Mqtt, bytes: &[u8]) -> u8 {
    client.send(bytes).await;
    let (first_byte, body) = client.next().await;
    assert_eq!(first_byte, 0x40);
    body.get(2).copied().unwrap_or(0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_retained_messages_follow_retain_handling_and_an_empty_one_clears_the_topic() {
    let dir = tempfile::tempdir().unwrap();
    let broker = BrokerConfig { retained_max_bytes: 1_000, ..BrokerConfig::default() };
    let world = World::open_with(dir.path(), with(broker.clone())).await;
    world.register("T", "d").await;
    let mut sender = Mqtt::log_in(world.mqtt(), 5, "d@T").await;
    for (id, topic) in ["r/1", "r/2", "r/gone", "s"].into_iter().enumerate() {
        let bytes = retained(5, 1, id as u16 + 1, topic, &[], topic.as_bytes());
        assert_eq!(told(&mut sender, &bytes).await, 0);
    }
    assert_eq!(told(&mut sender, &retained(5, 1, 9, "r/gone", &[], b"")).await, 0);
    assert_eq!(told(&mut sender, &retained(5, 1, 9, "r/much", &[], &[0; 900])).await, 0x97);
    // An expiry of 100 s: what is left of it is told.
    assert_eq!(told(&mut sender, &retained(5, 1, 9, "x", &[0x02, 0, 0, 0, 100], b"x")).await, 0);
    world.stop().await;

    let world = World::open_with(dir.path(), with(broker)).await;
    for level in BOTH {
        let mut client = Mqtt::log_in(world.mqtt(), level, "d@T").await;
        assert_eq!(client.subscribe("r/+", 0).await, 0);
        for topic in ["r/1", "r/2"] {
            let message = client.message().await;
            assert_eq!((message.retain, message.qos, message.text()), (true, 0, (topic, topic)));
        }
        let mut sender = Mqtt::log_in(world.mqtt(), level, "d@T").await;
        assert_eq!(told(&mut sender, &retained(level, 1, 1, "r/1", &[], b"r/1")).await, 0);
        let message = client.message().await;
        assert_eq!((message.retain, message.text().0), (false, "r/1"), "it came while it was subscribed");
        // The same subscription again brings it again, in version 5 only if it says so.
        let options: &[(u8, bool)] = if level == 5 { &[(0, true), (0x10, false), (0x20, false)] } else { &[(0, true)] };
        for (options, is_sent) in options {
            for _ in 0..2 {
                assert_eq!(client.subscribe("r/1", 1 | options).await, 1);
                if *is_sent {
                    let message = client.message().await;
                    assert_eq!((message.retain, message.qos), (true, 1));
                    puback(&mut client, &message).await;
                }
            }
            client.send(&[0xC0, 0]).await;
            assert_eq!(client.next().await.0, 0xD0, "nothing more");
        }
    }
    let mut client = Mqtt::log_in(world.mqtt(), 5, "d@T").await;
    assert_eq!(client.subscribe("x", 0).await, 0);
    let left = client.message().await.properties;
    assert!(left[0] == 0x02 && left[4] <= 100 && left[4] > 0, "{left:?}");
    world.stop().await;
}
