//! Devices over MQTT, on Hono's topics: the rows of the reference's tables.

use std::time::Duration;

use millstream_connect::{ConnectConfig, MqttConfig};
use millstream_testkit::mqtt::{Hello, Mqtt, connect, packet, publish, subscribe, text};
use millstream_types::{TopicKind, header};
use serde_json::{Value, json};

use crate::world::{World, quick};

const BOTH: [u8; 2] = [4, 5];

fn with(mqtt: MqttConfig) -> ConnectConfig {
    ConnectConfig { mqtt, ..quick() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_telemetry_arrives_in_order_at_both_qualities_and_in_both_versions_with_its_headers() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path()).await;
    world.register("T", "d").await;
    for level in BOTH {
        let mut device = Mqtt::log_in(world.mqtt(), level, "d@T").await;
        // In one write, so that the server has them in one read.
        let topics = ["t", "telemetry", "t/T/d", "telemetry//d"];
        let sent: Vec<u8> = (0..40_u16)
            .flat_map(|n| {
                publish(level, (n % 2) as u8, n + 1, topics[usize::from(n) % 4], &[], format!("{level}-{n}").as_bytes())
            })
            .collect();
        device.send(&sent).await;
        for n in (1..40_u16).step_by(2) {
            assert_eq!(device.next().await, (0x40, (n + 1).to_be_bytes().to_vec()), "acknowledged in order");
        }
    }
    let records = world.records(TopicKind::Telemetry, "T");
    let values: Vec<_> = records.iter().map(|record| String::from_utf8_lossy(&record.value).into_owned()).collect();
    let expected: Vec<_> = BOTH.iter().flat_map(|level| (0..40).map(move |n| format!("{level}-{n}"))).collect();
    assert_eq!(values, expected);
    for (n, record) in records.iter().enumerate() {
        assert_eq!(record.key, "d");
        for (name, value) in [
            (header::DEVICE_ID, "d"),
            (header::ORIG_ADAPTER, "hono-mqtt"),
            (header::ORIG_ADDRESS, ["t", "telemetry", "t/T/d", "telemetry//d"][n % 4]),
            (header::QOS, ["0", "1"][n % 2]),
            (header::CONTENT_TYPE, "application/octet-stream"),
        ] {
            assert_eq!(record.header(name), Some(value));
        }
        assert!(record.header(header::CREATION_TIME).unwrap().parse::<u64>().unwrap() > 1_600_000_000_000);
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_the_property_bag_sets_ttl_and_type_and_version_5_has_a_property_for_the_type() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path()).await;
    world.register("T", "d").await;
    let mut device = Mqtt::log_in(world.mqtt(), 5, "d@T").await;
    device.publish(1, 1, "event/?content-type=text%2Fplain&hono-ttl=30", b"a").await;
    let typed = [&[0x03][..], &text("text/csv")].concat();
    device.send(&publish(5, 1, 2, "e//d/?content-type=text%2Fplain", &typed, b"b")).await;
    // The retain flag is told and does not retain.
    let mut retained = publish(5, 1, 3, "e", &[], b"c");
    retained[0] |= 1;
    device.send(&retained).await;
    for id in 1..=3_u8 {
        assert_eq!(device.next().await, (0x40, vec![0, id]));
    }
    let records = world.records(TopicKind::Event, "T");
    let told: Vec<_> = records
        .iter()
        .map(|r| {
            [header::CONTENT_TYPE, header::TTL, header::ORIG_ADDRESS, "x-opt-retain", header::QOS].map(|h| r.header(h))
        })
        .collect();
    assert_eq!(
        told,
        [
            [Some("text/plain"), Some("30000"), Some("event"), None, Some("1")],
            [Some("text/csv"), None, Some("e//d"), None, Some("1")],
            [Some("application/octet-stream"), None, Some("e"), Some("true"), Some("1")],
        ]
    );
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_of_connect_refusals_have_their_code_in_each_version() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path()).await;
    for device in ["d", "off"] {
        world.register("T", device).await;
    }
    world.do_registry("PUT /v1/devices/T/off", r#"{"enabled":false}"#, 204).await;
    for (tenant, body) in [
        ("U", r#"{"enabled":false}"#),
        ("V", r#"{"adapters":[{"type":"hono-mqtt","enabled":false}]}"#),
        ("W", r#"{"resource-limits":{"max-connections":1}}"#),
    ] {
        world.register(tenant, "d").await;
        world.do_registry(&format!("PUT /v1/tenants/{tenant}"), body, 204).await;
    }
    let _first_of_w = Mqtt::log_in(world.mqtt(), 5, "d@W").await;
    for (row, login, code_311, code_5) in [
        ("bad credentials", Some(("d@T", "no")), 0x04, 0x86),
        ("unknown device", Some(("x@T", "pw")), 0x04, 0x86),
        ("unknown tenant", Some(("d@X", "pw")), 0x04, 0x86),
        ("no login", None, 0x04, 0x86),
        ("device disabled", Some(("off@T", "pw")), 0x05, 0x87),
        ("tenant disabled", Some(("d@U", "pw")), 0x05, 0x87),
        ("adapter disabled", Some(("d@V", "pw")), 0x05, 0x87),
        ("tenant's connection limit", Some(("d@W", "pw")), 0x05, 0x97),
    ] {
        for (level, code) in [(4, code_311), (5, code_5)] {
            let mut client = Mqtt::open(world.mqtt(), level).await;
            client.send(&connect(level, 60, login)).await;
            let (first_byte, body) = client.next().await;
            assert_eq!((first_byte, body[1]), (0x20, code), "{row}, level {level}");
            assert_eq!(client.expect_end().await, None, "{row}, level {level}");
        }
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_at_the_tenant_s_connection_limit_a_client_still_takes_over_from_itself() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path()).await;
    for device in ["d", "e"] {
        world.register("T", device).await;
    }
    world.do_registry("PUT /v1/tenants/T", r#"{"resource-limits":{"max-connections":1}}"#, 204).await;
    for level in BOTH {
        let hello = |client, user| {
            let login = Some((user, "pw"));
            Hello { level, keep_alive_s: 60, client, clean: true, login, properties: &[], will: None }
        };
        let over = if level == 5 { 0x97 } else { 0x05 };
        let (mut held, mut answer) = loop {
            let connected = Mqtt::connect(world.mqtt(), &hello("own", "d@T")).await;
            // The connection before gives up its place a moment after its end.
            if connected.1[1] != over {
                break connected;
            }
        };
        for _ in 0..3 {
            assert_eq!(answer[..2], [0, 0], "level {level}");
            for (client, user) in [("another", "d@T"), ("own", "e@T")] {
                assert_eq!(Mqtt::connect(world.mqtt(), &hello(client, user)).await.1[1], over, "{client} of {user}");
            }
            let (next, told) = Mqtt::connect(world.mqtt(), &hello("own", "d@T")).await;
            assert_eq!(held.expect_end().await, (level == 5).then_some(0x8E));
            (held, answer) = (next, told);
        }
        held.send(&[0xE0, 0]).await;
        held.expect_end().await;
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_instance_connection_limit_and_a_place_that_is_given_up() {
    let dir = tempfile::tempdir().unwrap();
    let config = with(MqttConfig { connections_max: 1, ..quick().mqtt });
    let world = World::open_with(dir.path(), config).await;
    world.register("T", "d").await;
    let first = Mqtt::log_in(world.mqtt(), 4, "d@T").await;
    for (level, code) in [(4, 0x03), (5, 0x9C)] {
        let mut client = Mqtt::open(world.mqtt(), level).await;
        client.send(&connect(level, 60, Some(("d@T", "pw")))).await;
        assert_eq!(client.next().await.1[1], code);
        client.expect_end().await;
    }
    drop(first);
    loop {
        let mut client = Mqtt::open(world.mqtt(), 4).await;
        client.send(&connect(4, 60, Some(("d@T", "pw")))).await;
        if client.next().await.1[1] == 0 {
            break;
        }
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gateways_act_for_devices_behind_them_and_for_no_others() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path()).await;
    for device in ["g", "d", "other"] {
        world.register("T", device).await;
    }
    world.do_registry("PUT /v1/devices/T/d", r#"{"via":["g"]}"#, 204).await;
    let mut gateway = Mqtt::log_in(world.mqtt(), 5, "g@T").await;
    gateway.publish(1, 1, "t//d", b"1").await;
    gateway.publish(1, 2, "event/T/d", b"2").await;
    assert_eq!(gateway.next().await.1, [0, 1]);
    assert_eq!(gateway.next().await.1, [0, 2]);
    assert_eq!(world.records(TopicKind::Telemetry, "T")[0].key, "d");
    for topic in ["t//other", "t/U/d", "t//nobody"] {
        for (level, qos, reason) in [(4, 1, None), (5, 0, Some(0x87))] {
            let mut gateway = Mqtt::log_in(world.mqtt(), level, "g@T").await;
            gateway.publish(qos, 1, topic, b"x").await;
            assert_eq!(gateway.expect_end().await, reason, "{topic}");
        }
    }
    assert_eq!(world.records(TopicKind::Telemetry, "T").len(), 1);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_message_of_one_device_does_not_end_the_connection_of_its_gateway_in_version_5() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path()).await;
    for device in ["g", "d", "off", "other"] {
        world.register("T", device).await;
    }
    world.do_registry("PUT /v1/devices/T/d", r#"{"via":["g"]}"#, 204).await;
    world.do_registry("PUT /v1/devices/T/off", r#"{"via":["g"],"enabled":false}"#, 204).await;
    let mut gateway = Mqtt::log_in(world.mqtt(), 5, "g@T").await;
    for (topic, payload, reason) in [
        ("t//other", &b"x"[..], 0x87),
        ("e//off", b"x", 0x87),
        ("event//nobody", b"x", 0x87),
        ("t/U/d", b"x", 0x87),
        ("t//d", b"", 0x83),
        ("c//d/s/no-such-request/200", b"x", 0x83),
        ("c//d/s/no-such-request/300", b"x", 0x83),
        ("t//nobody/?on-error=ignore", b"x", 0),
    ] {
        gateway.publish(1, 7, topic, payload).await;
        let answer = if reason == 0 { vec![0, 7] } else { vec![0, 7, reason] };
        assert_eq!(gateway.next().await, (0x40, answer), "{topic}");
    }
    // What stands around it is taken, in one write too.
    let run = [("t//d", 1), ("t//nobody", 2), ("t//d", 3)].map(|(topic, id)| publish(5, 1, id, topic, &[], b"x"));
    gateway.send(&run.concat()).await;
    let mut answers = [gateway.next().await.1, gateway.next().await.1, gateway.next().await.1];
    answers.sort();
    assert_eq!(answers, [vec![0, 1], vec![0, 2, 0x87], vec![0, 3]]);
    assert_eq!(world.records(TopicKind::Telemetry, "T").len(), 2);
    // Its own messages, and those whose sender asks for it, end it.
    for (topic, payload) in [("t", &b""[..]), ("t//g", b""), ("t//nobody/?on-error=disconnect", b"x")] {
        let mut gateway = Mqtt::log_in(world.mqtt(), 5, "g@T").await;
        gateway.publish(1, 1, topic, payload).await;
        assert!(matches!(gateway.expect_end().await, Some(0x83 | 0x87)), "{topic}");
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_error_topic_reports_in_place_of_closing_and_on_error_decides_otherwise() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path()).await;
    for device in ["g", "d"] {
        world.register("T", device).await;
    }
    for level in BOTH {
        let mut gateway = Mqtt::log_in(world.mqtt(), level, "g@T").await;
        for (filter, options, code) in [("error//+/#", 0, 0), ("e//d/#", 1, if level == 5 { 0x87 } else { 0x80 })] {
            gateway.send(&subscribe(level, 9, filter, options)).await;
            assert_eq!(gateway.next().await.1.last(), Some(&code), "{filter}");
        }
        for (bag, correlation) in [("", "1"), ("/?correlation-id=c7", "c7"), ("/?on-error=ignore", "1")] {
            gateway.publish(1, 1, &format!("t//d{bag}"), b"x").await;
            let (topic, told) = error(&mut gateway).await;
            assert_eq!(topic, format!("error//d/telemetry/{correlation}/403"));
            assert_eq!((told["code"].clone(), told["correlation-id"].clone()), (json!(403), json!(correlation)));
            assert!(told["message"].as_str().unwrap().contains("not behind"), "{told}");
            assert!(told["timestamp"].as_str().unwrap().ends_with('Z'), "{told}");
            assert_eq!(gateway.next().await, (0x40, vec![0, 1]));
        }
        gateway.publish(0, 0, "t//d", b"x").await;
        assert_eq!(error(&mut gateway).await.0, "error//d/telemetry/-1/403");
        gateway.publish(1, 2, "e//d/?on-error=skip-ack", b"x").await;
        assert_eq!(error(&mut gateway).await.0, "error//d/event/2/403");
        gateway.send(&[0xC0, 0]).await;
        assert_eq!(gateway.next().await, (0xD0, vec![]), "not acknowledged, and alive");
        gateway.publish(1, 3, "t//d/?on-error=disconnect", b"x").await;
        assert_eq!(error(&mut gateway).await.0, "error//d/telemetry/3/403");
        gateway.expect_end().await;
        // Without a subscription: ignored as wished, else the end.
        let mut gateway = Mqtt::log_in(world.mqtt(), level, "g@T").await;
        gateway.publish(1, 1, "t//d/?on-error=ignore", b"x").await;
        assert_eq!(gateway.next().await, (0x40, vec![0, 1]));
        gateway.publish(0, 0, "t//d", b"x").await;
        gateway.expect_end().await;
    }
    world.stop().await;
}

/// The next error message: its topic and body.
async fn error(client: &mut Mqtt) -> (String, Value) {
    let (first_byte, body) = client.next().await;
    assert_eq!(first_byte, 0x30);
    let length = usize::from(u16::from_be_bytes([body[0], body[1]]));
    let (topic, rest) = body[2..].split_at(length);
    let rest = if client.level == 5 { &rest[1..] } else { rest };
    (String::from_utf8(topic.to_vec()).unwrap(), serde_json::from_slice(rest).unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rules_of_hono_s_space_are_told_by_their_reason_and_end_only_their_connection() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path()).await;
    world.register("T", "d").await;
    let mut bystander = Mqtt::log_in(world.mqtt(), 5, "d@T").await;
    let large = vec![0; 2_049];
    let alias = [&[0x23][..], &[0, 17]].concat();
    for (rule, bytes, reason) in [
        ("quality of service 2", publish(5, 2, 1, "t", &[], b"x"), 0x9B),
        ("an event at quality of service 0", publish(5, 0, 0, "e", &[], b"x"), 0x83),
        ("no payload and no type", publish(5, 1, 1, "t", &[], b""), 0x83),
        ("a payload over the limit", publish(5, 0, 0, "t", &[], &large), 0x95),
        ("a wrong topic", publish(5, 0, 0, "t/only-tenant", &[], b"x"), 0x90),
        ("a wrong bag", publish(5, 0, 0, "e/?hono-ttl=maybe", &[], b"x"), 0x90),
        ("an alias over the limit", publish(5, 0, 0, "t", &alias, b"x"), 0x94),
        ("an unknown alias", publish(5, 0, 0, "", &[0x23, 0, 1], b"x"), 0x82),
        ("a topic with a wildcard", publish(5, 0, 0, "t/+", &[], b"x"), 0x90),
        ("a packet over the limit", vec![0x30, 0xFF, 0xFF, 0xFF, 0x7F], 0x95),
        ("a second CONNECT", connect(5, 60, None), 0x82),
        ("reserved flags", packet(0xC1, &[]), 0x81),
        ("quality of service 3", packet(0x36, &[0, 1, b't', 0, 1, 0]), 0x81),
        ("a property twice", packet(0x30, &[0, 1, b't', 4, 1, 0, 1, 0]), 0x82),
    ] {
        let mut device = Mqtt::log_in(world.mqtt(), 5, "d@T").await;
        device.send(&bytes).await;
        assert_eq!(device.expect_end().await, Some(reason), "{rule}");
    }
    bystander.publish(1, 7, "t", b"x").await;
    assert_eq!(bystander.next().await.1, [0, 7]);
    assert_eq!(world.records(TopicKind::Telemetry, "T").len(), 1);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn aliases_stand_for_topics_once_they_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path()).await;
    world.register("T", "d").await;
    let mut device = Mqtt::log_in(world.mqtt(), 5, "d@T").await;
    device.send(&publish(5, 1, 1, "t", &[0x23, 0, 16], b"1")).await;
    device.send(&publish(5, 1, 2, "", &[0x23, 0, 16], b"2")).await;
    assert_eq!((device.next().await.1, device.next().await.1), (vec![0, 1], vec![0, 2]));
    assert_eq!(world.records(TopicKind::Telemetry, "T").len(), 2);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_live_connection_is_closed_when_its_device_tenant_or_credential_goes() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path()).await;
    for (line, body, status) in [
        ("DELETE /v1/devices/T/d", "", 204),
        ("PUT /v1/devices/T/d", r#"{"enabled":false}"#, 204),
        ("PUT /v1/tenants/T", r#"{"enabled":false}"#, 204),
        ("PUT /v1/credentials/T/d", "[]", 204),
        ("DELETE /v1/tenants/T", "", 204),
    ] {
        world.register("T", "d").await;
        world.register("U", "bystander").await;
        let mut device = Mqtt::log_in(world.mqtt(), 5, "d@T").await;
        let mut bystander = Mqtt::log_in(world.mqtt(), 5, "bystander@U").await;
        world.do_registry(line, body, status).await;
        assert_eq!(device.expect_end().await, Some(0x87), "{line}");
        bystander.send(&[0xC0, 0]).await;
        assert_eq!(bystander.next().await.0, 0xD0);
        for tenant in ["T", "U"] {
            world.registry(&format!("DELETE /v1/tenants/{tenant}"), &[], "").await;
        }
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keep_alive_ends_a_silent_connection_and_connack_tells_the_longest_one_allowed() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open_with(dir.path(), with(MqttConfig { keep_alive_max_s: 1, ..quick().mqtt })).await;
    world.register("T", "d").await;
    let mut device = Mqtt::open(world.mqtt(), 5).await;
    device.send(&connect(5, 600, Some(("d@T", "pw")))).await;
    let (_, welcome) = device.next().await;
    assert!(welcome.windows(3).any(|bytes| bytes == [0x13, 0, 1]), "server keep alive 1: {welcome:?}");
    assert_eq!(device.expect_end().await, Some(0x8D));
    world.stop().await;
    // The rest of a packet never comes.
    let world = World::open_with(dir.path(), with(MqttConfig { packet_timeout_ms: 200, ..quick().mqtt })).await;
    let mut device = Mqtt::log_in(world.mqtt(), 5, "d@T").await;
    device.send(&publish(5, 0, 0, "t", &[], b"whole")[..6]).await;
    assert_eq!(device.expect_end().await, Some(0x80));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_or_foreign_client_is_disconnected() {
    let dir = tempfile::tempdir().unwrap();
    let config = with(MqttConfig { connect_timeout_ms: 100, ..quick().mqtt });
    let world = World::open_with(dir.path(), config).await;
    let mut silent = Mqtt::open(world.mqtt(), 4).await;
    assert_eq!(silent.next_or_end().await, None);
    world.stop().await;
    let world = World::open(dir.path()).await;
    for bytes in [packet(0xC0, &[]), b"\x16\x03\x01\x02\x00".to_vec(), vec![0x10, 0xFF, 0xFF, 0xFF, 0xFF]] {
        let mut client = Mqtt::open(world.mqtt(), 4).await;
        client.send(&bytes).await;
        assert_eq!(client.next_or_end().await, None, "{bytes:?}");
    }
    let mut old = Mqtt::open(world.mqtt(), 3).await;
    old.send(&packet(0x10, &[text("MQIsdp"), vec![3, 2, 0, 60], text("c")].concat())).await;
    assert_eq!(old.next().await, (0x20, vec![0, 1]));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_messages_than_may_wait_are_all_taken_and_a_good_bye_comes_after_them() {
    let dir = tempfile::tempdir().unwrap();
    let config = with(MqttConfig { in_flight_max: 3, send_timeout_ms: 60_000, ..quick().mqtt });
    let world = World::open_with(dir.path(), config).await;
    world.register("T", "d").await;
    let mut device = Mqtt::log_in(world.mqtt(), 4, "d@T").await;
    let mut sent: Vec<u8> = (1..=500).flat_map(|id| publish(4, 1, id, "e", &[], b"x")).collect();
    sent.extend([0xE0, 0]);
    device.send(&sent).await;
    for id in 1..=500_u16 {
        assert_eq!(device.next().await, (0x40, id.to_be_bytes().to_vec()));
    }
    assert_eq!(device.expect_end().await, None);
    assert_eq!(world.records(TopicKind::Event, "T").len(), 500);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_are_told_that_the_server_ends() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path()).await;
    world.register("T", "d").await;
    let mut device = Mqtt::log_in(world.mqtt(), 5, "d@T").await;
    let (_, reason) = tokio::join!(world.stop(), tokio::time::timeout(Duration::from_secs(60), device.expect_end()));
    assert_eq!(reason.unwrap(), Some(0x8B));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_will_is_a_message_of_its_device_unless_it_says_good_bye() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path()).await;
    world.register("T", "d").await;
    for (payload, good_bye, is_sent) in [
        ("abrupt", &[][..], true),
        ("orderly", &[0xE0, 0], false),
        ("with will", &[0xE0, 1, 4], true),
        ("a fault", &[0xC1, 0], true),
    ] {
        let mut device = Mqtt::open(world.mqtt(), 5).await;
        let flags = 0b1100_1110;
        let properties = [&[0x03][..], &text("text/plain")].concat();
        let parts = [
            text("MQTT"),
            vec![5, flags, 0, 60, 0],
            text("client"),
            vec![properties.len() as u8],
            properties,
            text("e"),
            text(payload),
            text("d@T"),
            text("pw"),
        ];
        device.send(&packet(0x10, &parts.concat())).await;
        assert_eq!(device.next().await.1[1], 0);
        device.send(good_bye).await;
        device.finish().await;
        device.expect_end().await;
        let records = world.records(TopicKind::Event, "T");
        let last = records.last().filter(|record| record.value == payload.as_bytes());
        assert_eq!(last.map(|record| record.header(header::CONTENT_TYPE)), is_sent.then_some(Some("text/plain")));
    }
    world.stop().await;
}
