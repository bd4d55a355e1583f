//! Commands over MQTT: the matching rows of the reference's tables.

use std::time::Duration;

use millstream_connect::{ConnectConfig, MqttConfig};
use millstream_testkit::found_async;
use millstream_testkit::mqtt::{Hello, Message, Mqtt, publish, subscribe, text};
use millstream_types::{TopicKind, header};

use crate::world::{World, basic, quick};

const BOTH: [u8; 2] = [4, 5];

async fn world(dir: &std::path::Path) -> World {
    let world = World::open(dir).await;
    for device in ["d", "g", "behind", "stranger"] {
        world.register("T", device).await;
    }
    world.do_registry("PUT /v1/devices/T/behind", r#"{"via":["g"]}"#, 204).await;
    world
}

/// A PUBACK for packet id `id`.
fn ack(id: u16) -> Vec<u8> {
    let [high, low] = id.to_be_bytes();
    vec![0x40, 2, high, low]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_a_commands_topic_mirrors_the_filter_and_its_answer_reaches_the_application() {
    let dir = tempfile::tempdir().unwrap();
    let world = world(dir.path()).await;
    let mut count = 0;
    for level in BOTH {
        for (who, filter, target, begin, response, qos) in [
            ("d", "c///q/#", "d", "c///q/", "c///s/{}/200", 1),
            ("d", "command///req/#", "d", "command///req/", "command///res/{}/200", 0),
            ("d", "c/T/d/q/#", "d", "c/T/d/q/", "c/T/d/s/{}/200", 1),
            ("d", "c/T//q/#", "d", "c/T//q/", "c/T//s/{}/200", 1),
            ("d", "command/T//req/#", "d", "command/T//req/", "command/T//res/{}/200", 0),
            ("g", "c//+/q/#", "behind", "c//behind/q/", "c//behind/s/{}/200", 1),
            ("g", "command/T/+/req/#", "behind", "command/T/behind/req/", "command/T/behind/res/{}/200", 0),
            ("g", "c//behind/q/#", "behind", "c//behind/q/", "c//behind/s/{}/200", 1),
            ("g", "c//+/q/#", "g", "c//g/q/", "c///s/{}/200", 1),
        ] {
            count += 1;
            let mut client = Mqtt::log_in(world.mqtt(), level, &format!("{who}@T")).await;
            assert_eq!(client.subscribe(filter, qos).await, qos, "{filter}");
            let name = format!("on-{count}");
            let headers = [
                ("subject", name.as_str()),
                ("correlation-id", &name),
                ("response-required", "true"),
                ("content-type", "text/c"),
            ];
            world.command("T", target, &headers, b"input").await;
            let message = client.message().await;
            assert_eq!((message.qos, message.dup, message.retain), (qos, false, false), "{filter}");
            assert_eq!(message.payload, b"input");
            let rest = message.topic.strip_prefix(begin).unwrap_or_else(|| panic!("{filter}: {}", message.topic));
            let (id, told) = rest.split_once('/').unwrap();
            assert_eq!(told, name);
            let typed = if level == 5 { [&[0x03][..], &text("text/c")].concat() } else { Vec::new() };
            assert_eq!(message.properties, typed, "{filter}");
            if qos == 1 {
                client.send(&ack(message.id)).await;
            }
            let topic = response.replace("{}", id) + "/?content-type=text%2Fr";
            client.publish(qos, 7, &topic, b"output").await;
            if qos == 1 {
                assert_eq!(client.next().await, (0x40, vec![0, 7]), "{topic}");
            }
            let records = world.answers("T", count).await;
            let record = records.iter().find(|record| record.header("correlation-id") == Some(&name)).unwrap();
            assert_eq!((record.key.as_str(), &*record.value), (target, &b"output"[..]));
            for (header, value) in [
                (header::DEVICE_ID, target),
                ("tenant_id", "T"),
                ("status", "200"),
                (header::CONTENT_TYPE, "text/r"),
                (header::ORIG_ADAPTER, "hono-mqtt"),
                (header::QOS, ["0", "1"][usize::from(qos)]),
            ] {
                assert_eq!(record.header(header), Some(value), "{header}");
            }
        }
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_bad_filters_qos_2_and_devices_of_others_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let world = world(dir.path()).await;
    for level in BOTH {
        let mut client = Mqtt::log_in(world.mqtt(), level, "g@T").await;
        for (filter, qos, code) in [
            ("c/#", 0, 0x8F),
            ("command///q", 0, 0x8F),
            ("c/other//q/#", 0, 0x8F),
            ("c///s/#", 0, 0x8F),
            ("c//b+/q/#", 0, 0x8F),
            ("c///q/#", 2, 0x83),
            ("c//stranger/q/#", 1, 0x87),
            ("c//nobody/q/#", 1, 0x87),
            ("c///q/#", 1, 1),
        ] {
            let code = if level == 4 && code >= 0x80 { 0x80 } else { code };
            assert_eq!(client.subscribe(filter, qos).await, code, "{filter}, level {level}");
        }
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_one_way_has_an_empty_request_id_and_needs_a_live_subscription() {
    let dir = tempfile::tempdir().unwrap();
    let world = world(dir.path()).await;
    for level in BOTH {
        let mut client = Mqtt::log_in(world.mqtt(), level, "d@T").await;
        client.subscribe("c///q/#", 0).await;
        world.command("T", "d", &[("subject", "beep")], b"1").await;
        assert_eq!(client.message().await.text(), ("c///q//beep", "1"));
        client.unsubscribe("c///q/#").await;
        let gone = format!("unsubscribed-{level}");
        world.ask_device("T", "d", &gone, b"").await;
        assert_eq!(world.notice("T", &gone).await, ("503".to_owned(), "released".to_owned()));
        client.subscribe("c///q/#", 0).await;
        client.send(&[0xE0, 0]).await;
        client.expect_end().await;
        let gone = format!("disconnected-{level}");
        world.ask_device("T", "d", &gone, b"").await;
        assert_eq!(world.notice("T", &gone).await.0, "503");
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_without_puback_in_time_a_command_is_released_and_not_delivered_again() {
    let dir = tempfile::tempdir().unwrap();
    let mqtt = MqttConfig { command_ack_timeout_ms: 50, ..quick().mqtt };
    let world = World::open_with(dir.path(), ConnectConfig { mqtt, ..quick() }).await;
    world.register("T", "d").await;
    for level in BOTH {
        // A session that is kept.
        let login = Some(("d@T", "pw"));
        let expiry = if level == 5 { &[0x11, 0, 0, 1, 0][..] } else { &[] };
        let client = format!("kept-{level}");
        let hello =
            Hello { level, keep_alive_s: 60, client: &client, clean: false, login, properties: expiry, will: None };
        let (mut device, _) = Mqtt::connect(world.mqtt(), &hello).await;
        device.subscribe("c///q/#", 1).await;
        let name = format!("on-{level}");
        world.ask_device("T", "d", &name, b"").await;
        let message = device.message().await;
        assert_eq!(world.notice("T", &name).await, ("503".to_owned(), "released".to_owned()));
        // The id is in use until the client has acknowledged it, however late.
        device.subscribe("own/#", 1).await;
        device.publish(1, 9, "own/x", b"1").await;
        let (mut own, mut acknowledged) = (None, false);
        while own.is_none() || !acknowledged {
            let (first_byte, body) = device.next().await;
            match first_byte >> 4 {
                3 => own = Some(Message::read(first_byte, &body, level)),
                _ => acknowledged = true,
            }
        }
        let own = own.unwrap().id;
        assert_ne!(own, message.id);
        for id in [own, message.id] {
            device.send(&ack(id)).await;
        }
        device.send(&[0xC0, 0]).await;
        assert_eq!(device.next().await.0, 0xD0);
        drop(device);
        let (mut device, body) = Mqtt::connect(world.mqtt(), &hello).await;
        assert_eq!(body[0], 1, "the session is there");
        device.subscribe("c///q/#", 1).await;
        let name = format!("next-{level}");
        world.ask_device("T", "d", &name, b"").await;
        let message = device.message().await;
        assert!(message.topic.ends_with(&name), "{}", message.topic);
        device.send(&ack(message.id)).await;
    }
    world.stop().await;
}

/// §4 and §5, a session that is kept keeps its subscriptions to commands and errors, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_a_kept_session_listens_for_commands_and_errors_again_without_subscribing() {
    let dir = tempfile::tempdir().unwrap();
    let mut world = world(dir.path()).await;
    for level in BOTH {
        let client = format!("kept-{level}");
        let (login, properties) = (Some(("g@T", "pw")), &[0x11, 0, 0, 1, 0]);
        let hello = Hello { level, keep_alive_s: 60, client: &client, clean: false, login, properties, will: None };
        let (mut gateway, _) = Mqtt::connect(world.mqtt(), &hello).await;
        for (filter, qos) in [("c///q/#", 0), ("c//behind/q/#", 1), ("e//+/#", 0)] {
            assert_eq!(gateway.subscribe(filter, qos).await, qos, "{filter}");
        }
        gateway.send(&[0xE0, 0]).await;
        gateway.expect_end().await;
        for round in ["again", "after a restart"] {
            if round == "after a restart" {
                world.stop().await;
                world = World::open(dir.path()).await;
            }
            let (mut gateway, answer) = Mqtt::connect(world.mqtt(), &hello).await;
            assert_eq!(answer[..2], [1, 0], "{round}");
            for (device, qos, begin) in [("g", 0, "c///q/"), ("behind", 1, "c//behind/q/")] {
                world.ask_device("T", device, "on", b"").await;
                let message = gateway.message().await;
                assert!(message.topic.starts_with(begin) && message.qos == qos, "{round}: {message:?}");
                if qos == 1 {
                    gateway.send(&ack(message.id)).await;
                }
            }
            gateway.publish(1, 5, "e//stranger", b"x").await;
            assert_eq!(gateway.message().await.topic, "e//stranger/event/5/403", "{round}");
            assert_eq!(gateway.next().await, (0x40, vec![0, 5]));
            gateway.send(&[0xE0, 0]).await;
            gateway.expect_end().await;
        }
        // What is unsubscribed from, and what the device may have no longer, is not taken up again.
        let (mut gateway, _) = Mqtt::connect(world.mqtt(), &hello).await;
        gateway.unsubscribe("c///q/#").await;
        world.do_registry("PUT /v1/devices/T/behind", "{}", 204).await;
        gateway.send(&[0xE0, 0]).await;
        gateway.expect_end().await;
        let (_gateway, answer) = Mqtt::connect(world.mqtt(), &hello).await;
        assert_eq!(answer[..2], [1, 0]);
        for (device, name) in [("g", format!("off-{level}")), ("behind", format!("gone-{level}"))] {
            world.ask_device("T", device, &name, b"").await;
            assert_eq!(world.notice("T", &name).await.1, "released", "{device}");
        }
        world.do_registry("PUT /v1/devices/T/behind", r#"{"via":["g"]}"#, 204).await;
    }
    world.stop().await;
}

/// §5, the client's maximum packet size holds for commands to the byte.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_a_command_is_delivered_if_it_fits_the_device_s_packets_to_the_byte() {
    let dir = tempfile::tempdir().unwrap();
    let world = world(dir.path()).await;
    let (login, properties) = (Some(("d@T", "pw")), &[0x27, 0, 0, 0, 100]);
    let hello = Hello { level: 5, keep_alive_s: 60, client: "c", clean: true, login, properties, will: None };
    let (mut device, _) = Mqtt::connect(world.mqtt(), &hello).await;
    // First byte, length, that of the topic and the topic, at QoS 1 the id, length of the properties.
    for (qos, head) in [(0, 14), (1, 16)] {
        assert_eq!(device.subscribe("c///q/#", qos).await, qos);
        let fits = 100 - head;
        let name = format!("large-{qos}");
        world.command("T", "d", &[("subject", "on"), ("correlation-id", &name)], &vec![b'x'; fits + 1]).await;
        assert_eq!(world.notice("T", &name).await, ("413".to_owned(), "rejected".to_owned()));
        world.command("T", "d", &[("subject", "on")], &vec![b'x'; fits]).await;
        let message = device.message().await;
        assert_eq!((&*message.topic, message.payload.len(), message.qos), ("c///q//on", fits, qos));
        if qos == 1 {
            device.send(&ack(message.id)).await;
        }
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_with_a_time_to_live_waits_for_a_sleeping_device_and_comes_when_it_subscribes() {
    let dir = tempfile::tempdir().unwrap();
    let world = world(dir.path()).await;
    for name in ["one", "two"] {
        world.command("T", "d", &[("subject", name), ("ttl", "600000")], name.as_bytes()).await;
    }
    let mut client = Mqtt::log_in(world.mqtt(), 5, "d@T").await;
    client.send(&subscribe(5, 77, "c///q/#", 1)).await;
    let mut got = Vec::new();
    while got.len() < 2 {
        let (first_byte, body) = client.next().await;
        if first_byte >> 4 == 3 {
            let message = Message::read(first_byte, &body, 5);
            client.send(&ack(message.id)).await;
            got.push(message.text().1.to_owned());
        }
    }
    assert_eq!(got, ["one", "two"]);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_is_taken_over_takes_no_command_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let world = world(dir.path()).await;
    let login = Some(("d@T", "pw"));
    let hello = Hello { level: 5, keep_alive_s: 60, client: "c", clean: true, login, properties: &[], will: None };
    let (mut first, _) = Mqtt::connect(world.mqtt(), &hello).await;
    first.subscribe("c///q/#", 1).await;
    let (mut second, _) = Mqtt::connect(world.mqtt(), &hello).await;
    assert_eq!(first.expect_end().await, Some(0x8E));
    world.ask_device("T", "d", "gone", b"").await;
    assert_eq!(world.notice("T", "gone").await.0, "503");
    second.subscribe("c///q/#", 0).await;
    world.ask_device("T", "d", "here", b"").await;
    assert!(second.message().await.topic.ends_with("/here"));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_invalid_response_is_reported_on_the_error_topic_or_ends_the_connection() {
    let dir = tempfile::tempdir().unwrap();
    let world = world(dir.path()).await;
    let login = basic("behind@T", "pw");
    let of_another = world.request_id("T", "behind", &[("authorization", &login)]).await;
    for level in BOTH {
        for (topic, status, word) in [
            ("c///s/2AAAAAGM/302", 400, "200 to 299 or 400 to 599"),
            ("c///s/nonsense/200", 400, "the id with which it was delivered"),
            ("c///s/2AAAAAGM/200", 503, "nobody waits for this command response"),
            (&format!("c///s/{of_another}/200"), 503, "delivered to device 'd'"),
        ] {
            let mut client = Mqtt::log_in(world.mqtt(), level, "d@T").await;
            assert_eq!(client.subscribe("error///#", 0).await, 0);
            client.send(&publish(level, 1, 3, topic, &[], b"x")).await;
            let message = client.message().await;
            assert_eq!(message.topic, format!("error///command-response/3/{status}"));
            assert!(message.text().1.contains(word), "{}", message.text().1);
            assert_eq!(client.next().await, (0x40, vec![0, 3]));
            let mut client = Mqtt::log_in(world.mqtt(), level, "d@T").await;
            client.send(&publish(level, 1, 3, topic, &[], b"x")).await;
            assert_eq!(client.expect_end().await, (level == 5).then_some(0x83));
        }
        let mut client = Mqtt::log_in(world.mqtt(), level, "d@T").await;
        client.send(&publish(level, 2, 3, "c///s/2AAAAAGM/200", &[], b"x")).await;
        assert_eq!(client.expect_end().await, (level == 5).then_some(0x9B), "QoS 2");
    }
    let mut gateway = Mqtt::log_in(world.mqtt(), 5, "g@T").await;
    for id in [1, 2] {
        gateway.send(&publish(5, 1, id, "c//behind/s/2AAAAAGM/200", &[], b"x")).await;
        assert_eq!(gateway.next().await.1[..3], [0, id as u8, 0x83], "the gateway's other devices stay connected");
    }
    assert!(world.records(TopicKind::CommandResponse, "T").is_empty());
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_newest_connection_of_a_device_gets_its_commands_and_a_disabled_device_none() {
    let dir = tempfile::tempdir().unwrap();
    let world = world(dir.path()).await;
    let mut older = Mqtt::log_in(world.mqtt(), 4, "d@T").await;
    older.subscribe("c///q/#", 0).await;
    let mut newer = Mqtt::log_in(world.mqtt(), 4, "d@T").await;
    newer.subscribe("command///req/#", 0).await;
    world.command("T", "d", &[("subject", "a")], b"").await;
    assert_eq!(newer.message().await.topic, "command///req//a");
    drop(newer);
    found_async("the older one's turn", || {
        let text = world.metrics.text();
        text.lines()
            .any(|line| line.starts_with("hono_connections_authenticated{") && line.ends_with(" 1"))
            .then_some(())
    })
    .await;
    world.command("T", "d", &[("subject", "b")], b"").await;
    assert_eq!(older.message().await.topic, "c///q//b");
    world.do_registry("PUT /v1/devices/T/d", r#"{"enabled":false}"#, 204).await;
    older.expect_end().await;
    world.ask_device("T", "d", "c", b"").await;
    let (status, outcome) = world.notice("T", "c").await;
    assert_eq!((status.as_str(), outcome.as_str()), ("404", "rejected"));
    tokio::time::timeout(Duration::from_secs(60), world.stop()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_private_space_commands_come_one_after_the_other_too() {
    let dir = tempfile::tempdir().unwrap();
    let world = world(dir.path()).await;
    world.do_registry("PUT /v1/tenants/T", r#"{"ext":{"mqtt-broker":"off"}}"#, 204).await;
    for level in BOTH {
        let mut client = Mqtt::log_in(world.mqtt(), level, "d@T").await;
        assert_eq!(client.subscribe("c///q/#", 1).await, 1);
        for name in ["one", "two", "three"] {
            world.command("T", "d", &[("subject", name)], name.as_bytes()).await;
            let message = client.message().await;
            assert_eq!((message.text(), message.qos), ((format!("c///q//{name}").as_str(), name), 1));
            assert_ne!(message.id, 0);
            client.send(&ack(message.id)).await;
        }
    }
    found_async("six of them counted", || {
        let text = world.metrics_text();
        let is_it = |line: &str| {
            line.starts_with("hono_command_payload_bytes_count")
                && line.contains("direction=\"one-way\",host=\"HERE\",status=\"forwarded\"")
                && line.ends_with(" 6")
        };
        text.lines().any(is_it).then_some(())
    })
    .await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_is_given_three_times_is_one_record_and_each_is_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let world = world(dir.path()).await;
    for (round, level) in BOTH.into_iter().enumerate() {
        let mut client = Mqtt::log_in(world.mqtt(), level, "g@T").await;
        assert_eq!(client.subscribe("c///q/#", 0).await, 0);
        // A command may have the correlation id of an earlier one; the answer to it is another record.
        for command in 0..2 {
            let before = round * 6 + command * 3;
            world.ask_device("T", "g", "again", b"").await;
            let message = client.message().await;
            let request_id = message.topic.rsplit('/').nth(1).unwrap();
            let answer = |id: u16, status: &str, payload: &[u8]| {
                publish(level, 1, id, &format!("c///s/{request_id}/{status}"), &[], payload)
            };
            // All in one write, so that the repeats come before the log has the first.
            let all: Vec<u8> = (1..=3).flat_map(|id| answer(id, "200", b"done")).collect();
            client.send(&all).await;
            for id in 1..=3 {
                assert_eq!(client.next().await.1[..2], [0, id]);
            }
            client.send(&answer(4, "200", b"done")).await;
            assert_eq!(client.next().await.1[..2], [0, 4]);
            client.send(&answer(5, "200", b"done otherwise")).await;
            client.send(&answer(6, "500", b"done")).await;
            for id in 5..=6 {
                assert_eq!(client.next().await.1[..2], [0, id]);
            }
            let answers = world.answers("T", before + 3).await;
            let told: Vec<_> =
                answers[before..].iter().map(|record| (record.header("status").unwrap(), &*record.value)).collect();
            assert_eq!(told, [("200", &b"done"[..]), ("200", b"done otherwise"), ("500", b"done")], "{request_id}");
        }
        client.finish().await;
    }
    world.stop().await;
}
