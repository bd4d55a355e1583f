//! MQTT devices that have not logged in.

use millstream_connect::{ConnectConfig, MqttConfig};
use millstream_testkit::found_async;
use millstream_testkit::mqtt::{Hello, Mqtt, Will, connect, publish};
use millstream_types::{TenantId, TopicKind, TopicName, header};
use serde_json::{Value, json};

use crate::world::{World, quick};

const BOTH: [u8; 2] = [4, 5];

/// Tenants that let devices send without login (`A`, `B`), and others.
async fn world(dir: &std::path::Path) -> World {
    let mqtt = MqttConfig { authentication_required: false, ..quick().mqtt };
    let world = World::open_with(dir, ConnectConfig { mqtt, ..quick() }).await;
    for tenant in ["A", "B", "shut", "silent", "off", "http"] {
        world.register(tenant, "d").await;
    }
    for (tenant, body) in [
        (
            "A",
            json!({
                "adapters": open("hono-mqtt", false)["adapters"],
                "ext": {"mqtt-mapping": [{"topic": "house/#", "to": "telemetry", "device-level": 2}]},
            }),
        ),
        ("B", open("hono-mqtt", false)),
        ("shut", open("hono-mqtt", true)),
        ("off", json!({"enabled": false, "adapters": open("hono-mqtt", false)["adapters"]})),
        ("http", open("hono-http", false)),
    ] {
        world.do_registry(&format!("PUT /v1/tenants/{tenant}"), &body.to_string(), 204).await;
    }
    world
}

fn open(adapter: &str, is_login_needed: bool) -> Value {
    json!({"adapters": [{"type": adapter, "enabled": true, "device-authentication-required": is_login_needed}]})
}

/// Opens an MQTT connection without login.
async fn stranger(world: &World, level: u8) -> Mqtt {
    let mut client = Mqtt::open(world.mqtt(), level).await;
    client.send(&connect(level, 60, None)).await;
    let (first_byte, body) = client.next().await;
    assert_eq!((first_byte, &body[..2]), (0x20, &[0, 0][..]));
    client
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_without_login_each_message_names_its_tenant_and_device() {
    let dir = tempfile::tempdir().unwrap();
    let world = world(dir.path()).await;
    let mut connected = Vec::new();
    for level in BOTH {
        let mut client = stranger(&world, level).await;
        let topics = ["telemetry/A/d", "t/B/d", "event/B/d", "e/A/d", "t/A/d/?content-type=text%2Fx", "telemetry/B/d"];
        let messages = topics.iter().zip(1..).map(|(topic, id)| publish(level, 1, id, topic, &[], b"x"));
        // What comes in one piece is worked off tenant by tenant, and answered in its order.
        client.send(&messages.collect::<Vec<_>>().concat()).await;
        for id in 1..=6 {
            assert_eq!(client.next().await, (0x40, vec![0, id]), "level {level}");
        }
        client.publish(0, 0, "t/A/d", b"unwaited").await;
        client.send(&[0xC0, 0]).await;
        assert_eq!(client.next().await.0, 0xD0);
        connected.push(client);
    }
    let addresses = |kind, tenant| {
        let of = |record: &crate::world::Kept| {
            assert_eq!((record.key.as_str(), record.header(header::DEVICE_ID)), ("d", Some("d")));
            record.header(header::ORIG_ADDRESS).unwrap().to_owned()
        };
        world.records(kind, tenant).iter().map(of).collect::<Vec<_>>()
    };
    let twice = |some: &[&str]| [some, some].concat().into_iter().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(addresses(TopicKind::Telemetry, "A"), twice(&["telemetry/A/d", "t/A/d", "t/A/d"]));
    assert_eq!(addresses(TopicKind::Telemetry, "B"), twice(&["t/B/d", "telemetry/B/d"]));
    assert_eq!(
        (addresses(TopicKind::Event, "A"), addresses(TopicKind::Event, "B")),
        (twice(&["e/A/d"]), twice(&["event/B/d"]))
    );
    let metrics = world.metrics_text();
    for (name, labels, count) in [
        ("hono_connections_unauthenticated", "", 2),
        ("hono_telemetry_payload_bytes_count", r#"qos="AT_LEAST_ONCE",status="forwarded",tenant="B""#, 6),
    ] {
        let lines = metrics.lines().filter(|line| line.starts_with(name) && line.contains(labels));
        let counts = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
        assert_eq!(counts.sum::<u64>(), count, "{name}: {metrics}");
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_without_login_each_refused_message_has_its_reason() {
    let dir = tempfile::tempdir().unwrap();
    let world = world(dir.path()).await;
    let limited =
        json!({"adapters": open("hono-mqtt", false)["adapters"], "resource-limits": {"max-messages-per-second": 0}});
    world.do_registry("PUT /v1/tenants/B", &limited.to_string(), 204).await;
    let large = [b'x'; 2_049];
    for (topic, qos, payload, code) in [
        ("telemetry/shut/d", 1, &b"x"[..], 0x87),
        ("telemetry/silent/d", 1, b"x", 0x87),
        ("telemetry/http/d", 1, b"x", 0x87),
        ("telemetry/off/d", 1, b"x", 0x87),
        ("telemetry/nobody/d", 1, b"x", 0x87),
        ("telemetry/no tenant/d", 1, b"x", 0x90),
        ("command/shut/d/res/1/200", 1, b"x", 0x87),
        ("telemetry", 1, b"x", 0x90),
        ("event//d", 1, b"x", 0x90),
        ("command///res/1/200", 1, b"x", 0x90),
        ("telemetry/A", 1, b"x", 0x90),
        ("house/7", 1, b"x", 0x87),
        ("telemetry/A/nobody", 1, b"x", 0x87),
        ("event/A/d", 0, b"x", 0x83),
        ("telemetry/A/d", 1, &large, 0x95),
        ("telemetry/B/d", 1, b"x", 0x97),
    ] {
        for level in BOTH {
            let mut client = stranger(&world, level).await;
            client.publish(qos, 1, topic, payload).await;
            assert_eq!(client.expect_end().await, (level == 5).then_some(code), "{topic}, level {level}");
        }
    }
    let mut client = stranger(&world, 5).await;
    for (filter, qos, code) in [
        ("error//nobody/#", 0, 0x8F),
        ("error/A//#", 0, 0x8F),
        ("error/B/nobody/#", 0, 0),
        ("error/A/nobody/#", 0, 0),
        ("house/#", 0, 0x87),
        ("$share/g/house/#", 0, 0x87),
    ] {
        assert_eq!(client.subscribe(filter, qos).await, code, "{filter}");
    }
    client.publish(1, 9, "telemetry/A/nobody", b"x").await;
    assert_eq!(client.message().await.topic, "error/A/nobody/telemetry/9/404");
    assert_eq!(client.next().await, (0x40, vec![0, 9]), "who is told goes on");
    let name = TopicName::reserved(TopicKind::Telemetry, &TenantId::new("nobody").unwrap());
    assert!(world.log.topic(&name).is_none(), "nothing is opened for a tenant that nobody knows");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_without_login_commands_of_named_devices_come_until_their_tenant_wants_a_login() {
    let dir = tempfile::tempdir().unwrap();
    let world = world(dir.path()).await;
    for level in BOTH {
        let mut client = stranger(&world, level).await;
        for (filter, qos, code) in [
            ("c//d/q/#", 1, 0x8F),
            ("c///q/#", 1, 0x8F),
            ("c/A/+/q/#", 1, 0x87),
            ("c/A/nobody/q/#", 1, 0x87),
            ("c/shut/d/q/#", 1, 0x87),
            ("c/nobody/d/q/#", 1, 0x87),
            ("c/A/d/q/#", 2, 0x83),
            ("command/A/d/req/#", 1, 1),
            ("c/B/d/q/#", 0, 0),
        ] {
            let code = if level == 4 && code >= 0x80 { 0x80 } else { code };
            assert_eq!(client.subscribe(filter, qos).await, code, "{filter}, level {level}");
        }
        let name = format!("on-{level}");
        for (tenant, begin, answer) in [("B", "c/B/d/q/", "c/B/d/s"), ("A", "command/A/d/req/", "command/A/d/res")] {
            let listens = |ttd| {
                let is_it = move |record: &crate::world::Kept| record.header(header::TTD) == Some(ttd);
                world.records(TopicKind::Event, tenant).iter().filter(|record| is_it(record)).count()
            };
            let times = usize::from(level - 3);
            found_async("the notice that it listens", || (listens("-1") == times).then_some(())).await;
            world.ask_device(tenant, "d", &name, b"input").await;
            let message = client.message().await;
            let (id, told) = message.topic.strip_prefix(begin).unwrap().split_once('/').unwrap();
            assert_eq!((told, &*message.payload), (name.as_str(), &b"input"[..]));
            if message.qos == 1 {
                let [high, low] = message.id.to_be_bytes();
                client.send(&[0x40, 2, high, low]).await;
            }
            client.publish(1, 7, &format!("{answer}/{id}/200"), b"output").await;
            assert_eq!(client.next().await, (0x40, vec![0, 7]), "{tenant}");
            let answers = world.answers(tenant, times).await;
            let record = answers.iter().find(|record| record.header("correlation-id") == Some(&name)).unwrap();
            assert_eq!((record.header("tenant_id"), &*record.value), (Some(tenant), &b"output"[..]));
        }
        world.do_registry("PUT /v1/tenants/B", &open("hono-mqtt", true).to_string(), 204).await;
        assert_eq!(client.expect_end().await, (level == 5).then_some(0x87), "level {level}");
        world.do_registry("PUT /v1/tenants/B", &open("hono-mqtt", false).to_string(), 204).await;
        for tenant in ["A", "B"] {
            let ends = || {
                world.records(TopicKind::Event, tenant).iter().filter(|r| r.header(header::TTD) == Some("0")).count()
            };
            found_async("the notice of its end", || (ends() == usize::from(level - 3)).then_some(())).await;
        }
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_will_without_login_is_a_message_of_the_device_that_it_names() {
    let dir = tempfile::tempdir().unwrap();
    let world = world(dir.path()).await;
    for (level, topic) in [(4, "event/A/d"), (5, "event/B/d"), (5, "house/d"), (5, "event/shut/d")] {
        let will = Will { topic, payload: b"gone", qos: 1, retain: false, properties: &[] };
        let hello =
            Hello { level, keep_alive_s: 60, client: "s", clean: true, login: None, properties: &[], will: Some(will) };
        let (mut client, answer) = Mqtt::connect(world.mqtt(), &hello).await;
        assert_eq!(answer[..2], [0, 0], "{topic}");
        client.publish(1, 1, "t/A/d", b"x").await;
        assert_eq!(client.next().await.0, 0x40);
        client.finish().await;
        client.expect_end().await;
    }
    for tenant in ["A", "B"] {
        let will = found_async("the will", || world.records(TopicKind::Event, tenant).pop()).await;
        assert_eq!((will.key.as_str(), &*will.value), ("d", &b"gone"[..]), "{tenant}");
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strangers_are_no_connections_of_a_tenant_and_have_no_session() {
    let dir = tempfile::tempdir().unwrap();
    let world = world(dir.path()).await;
    let limits = json!({"adapters": open("hono-mqtt", false)["adapters"], "resource-limits": {"max-connections": 0}});
    world.do_registry("PUT /v1/tenants/A", &limits.to_string(), 204).await;
    let hour = [0x11, 0, 0, 0x0E, 0x10];
    let hello =
        Hello { level: 5, keep_alive_s: 60, client: "s", clean: false, login: None, properties: &hour, will: None };
    let (mut first, answer) = Mqtt::connect(world.mqtt(), &hello).await;
    assert!(answer.windows(5).any(|bytes| bytes == [0x11, 0, 0, 0, 0]), "no session outlives it: {answer:?}");
    let (mut second, answer) = Mqtt::connect(world.mqtt(), &hello).await;
    assert_eq!(answer[0], 0, "no session is present");
    for client in [&mut first, &mut second] {
        client.publish(1, 1, "t/A/d", b"x").await;
        assert_eq!(client.next().await, (0x40, vec![0, 1]), "both go on: their ids are no one's");
    }
    // A user name is a login, whatever the setting.
    let mut wrong = Mqtt::open(world.mqtt(), 5).await;
    wrong.send(&connect(5, 60, Some(("d@A", "no")))).await;
    assert_eq!(wrong.next().await.1[1], 0x86);
    // Topic aliases stand for topics of several tenants.
    let alias = |topic: &str, number: u8| publish(5, 1, 2, topic, &[0x23, 0, number], b"x");
    first.send(&[alias("t/A/d", 1), alias("t/B/d", 2), alias("", 1), alias("", 2)].concat()).await;
    for _ in 0..4 {
        assert_eq!(first.next().await, (0x40, vec![0, 2]));
    }
    assert_eq!(world.records(TopicKind::Telemetry, "B").len(), 2);
    world.stop().await;
}
