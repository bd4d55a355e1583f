//! Devices that a level of a mapped topic names and that nobody has registered.

use millstream_testkit::mqtt::{Hello, Mqtt, Will, publish};
use millstream_types::{TopicKind, header};
use serde_json::{Value, json};

use crate::mapping::{one, ping, retained, rules, send, with_payload};
use crate::provisioning::{expect_registered, world};
use crate::world::World;
use millstream_testkit::{LogLines, found_async};

const BOTH: [u8; 2] = [4, 5];

/// Rules as for Zigbee2MQTT, with what else they say of its devices.
fn zigbee(more: Value) -> Value {
    let mut rule = json!({"topic": "z/#", "to": "telemetry", "device-level": 2});
    rule.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!([{"topic": "z/+/alarm", "to": "event", "device-level": 2}, rule])
}

/// The payloads of a kind of record, in the order of their partitions.
fn payloads(world: &World, kind: TopicKind) -> Vec<String> {
    world.records(kind, "T").into_iter().map(|record| String::from_utf8(record.value).unwrap()).collect()
}

async fn is_registered(world: &World, device: &str) -> bool {
    world.registry(&format!("GET /v1/devices/T/{device}"), &[], "").await.status == 200
}

/// As §10 c of Hono's topics.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_a_gateway_with_the_authority_registers_a_device_by_its_first_message_on_a_mapped_topic() {
    let dir = tempfile::tempdir().unwrap();
    let world = world(dir.path()).await;
    rules(&world, zigbee(json!({})), json!({})).await;
    let mut watcher = Mqtt::log_in(world.mqtt(), 5, "h@T").await;
    assert_eq!(watcher.subscribe("z/#", 0).await, 0);
    for level in BOTH {
        let mut gateway = Mqtt::log_in(world.mqtt(), level, "g@T").await;
        for (qos, is_retained) in [(0, false), (1, false), (2, false), (1, true)] {
            let device = format!("lamp-{level}-{qos}-{is_retained}");
            let topic = format!("z/{device}");
            for payload in ["first", "second"] {
                let payload = format!("{payload} of {device}");
                let packet = publish(level, qos, 1, &topic, &[], payload.as_bytes());
                assert_eq!(send(&mut gateway, &retained(is_retained, packet)).await, 0);
                assert_eq!(watcher.message().await.text(), (&*topic, &*payload));
                let record = one(&world, TopicKind::Telemetry, &payload).await;
                assert_eq!((&*record.key, record.header(header::ORIG_ADDRESS)), (&*device, Some(&*topic)));
            }
            expect_registered(&world, &device).await;
        }
        // In one piece: messages before it, of it and of others behind it.
        let topics = ["z/lamp-4-0-false", "other", "z/n-1", "z/n-1", "z/n-2/state", "z/lamp-4-0-false", "z/n-3"];
        let sent = (1..).zip(topics).map(|(id, topic)| {
            let (topic, payload) = (topic.replace("n-", &format!("new-{level}-")), format!("{level} {id}"));
            publish(level, 1, id, &topic, &[], payload.as_bytes())
        });
        gateway.send(&sent.collect::<Vec<_>>().concat()).await;
        for id in 1..=7 {
            assert_eq!(gateway.next().await, (0x40, vec![0, id]));
        }
        for id in [1, 3, 4, 5, 6, 7] {
            assert_eq!(watcher.message().await.text().1, format!("{level} {id}"));
        }
        for device in 1..=3 {
            expect_registered(&world, &format!("new-{level}-{device}")).await;
        }
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_a_mapped_topic_registers_no_device_where_one_of_hono_s_would_not() {
    let dir = tempfile::tempdir().unwrap();
    let world = world(dir.path()).await;
    rules(&world, zigbee(json!({})), json!({"ext": {"mqtt-private-topics": ["z/#"]}})).await;
    let may = json!({"authorities": ["auto-provisioning-enabled"], "ext": {"mqtt-access": {"publish": ["z/+"]}}});
    world.do_registry("PUT /v1/devices/T/g", &may.to_string(), 204).await;
    let refused = async |user: &str, topic: &str, payload: &[u8], code: u8| {
        let mut client = Mqtt::log_in(world.mqtt(), 5, user).await;
        assert_eq!(send(&mut client, &publish(5, 1, 1, topic, &[], payload)).await, code, "{user} {topic}");
    };
    // Without the authority, with a name that no device may have, on a topic that it may not publish to or nobody.
    refused("h@T", "z/none-1", b"refused", 0x87).await;
    refused("g@T", "z/a b", b"refused", 0x87).await;
    refused("g@T", "z/none-2/state", b"refused", 0x87).await;
    refused("g@T", "y/none-3", b"refused", 0x90).await;
    // What only clears a retained message is of no device.
    refused("g@T", "z/none-4", b"", 0).await;
    let limit = json!({"registration-limits": {"max-devices": 2}});
    rules(&world, zigbee(json!({})), limit).await;
    refused("g@T", "z/none-5", b"refused", 0x87).await;
    for device in 1..=5 {
        assert!(!is_registered(&world, &format!("none-{device}")).await, "{device}");
    }
    assert_eq!(payloads(&world, TopicKind::Mqtt), [""]);
    assert_eq!(payloads(&world, TopicKind::Telemetry), [""; 0]);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_a_rule_has_messages_of_unknown_devices_published_only_and_the_log_tells_of_each_device_once() {
    let lines = LogLines::of_this_process();
    let dir = tempfile::tempdir().unwrap();
    let world = world(dir.path()).await;
    world.do_registry("POST /v1/devices/T/off", r#"{"via":["g","h"],"enabled":false}"#, 201).await;
    world.do_registry("POST /v1/devices/T/of-another", r#"{"via":["x"]}"#, 201).await;
    rules(&world, zigbee(json!({"unknown": "publish"})), json!({})).await;
    let mut watcher = Mqtt::log_in(world.mqtt(), 5, "h@T").await;
    assert_eq!(watcher.subscribe("z/#", 0).await, 0);
    let long = format!("z/{}", "x".repeat(300));
    for level in BOTH {
        for (user, topic) in [
            ("g@T", "z/Living room lamp"),
            ("g@T", "z/K\u{fc}che/set"),
            ("g@T", &*long),
            ("h@T", "z/never seen"),
            ("h@T", "z/stranger"),
        ] {
            let mut client = Mqtt::log_in(world.mqtt(), level, user).await;
            for (qos, is_retained) in [(0, false), (1, false), (2, false), (1, true)] {
                let payload = format!("{level} {topic} {qos} {is_retained}");
                let packet = publish(level, qos, 1, topic, &[], payload.as_bytes());
                assert_eq!(send(&mut client, &retained(is_retained, packet)).await, 0);
                assert_eq!(watcher.message().await.text(), (topic, &*payload));
                assert_eq!(one(&world, TopicKind::Mqtt, &payload).await.header("mqtt_mapped"), None);
            }
        }
        // A device that is known is refused as before.
        for device in ["off", "of-another"] {
            let mut client = Mqtt::log_in(world.mqtt(), 5, "g@T").await;
            assert_eq!(send(&mut client, &publish(5, 1, 1, &format!("z/{device}"), &[], b"refused")).await, 0x87);
        }
        // And so is an unknown one of a rule that does not say so.
        let mut client = Mqtt::log_in(world.mqtt(), 5, "h@T").await;
        assert_eq!(send(&mut client, &publish(5, 1, 1, "z/stranger/alarm", &[], b"refused")).await, 0x87);
    }
    assert_eq!(payloads(&world, TopicKind::Telemetry), [""; 0]);
    assert!(with_payload(&world, TopicKind::Mqtt, "refused").is_empty());
    assert!(!is_registered(&world, "stranger").await);
    let mut late = Mqtt::log_in(world.mqtt(), 5, "h@T").await;
    assert_eq!(late.subscribe("z/stranger", 0).await, 0);
    assert!(late.message().await.retain);
    for (device, why) in [
        ("Living room lamp", "is no device id: use 1 to 256 of the characters"),
        ("K\u{fc}che", "is no device id: use 1 to 256 of the characters"),
        ("never seen", "is no device id: use 1 to 256 of the characters"),
        ("stranger", "it is not registered, and its publisher may not register it"),
    ] {
        let device = format!("device={device:?}");
        let line = lines.with(&device).await;
        assert!(line.contains("are published and not recorded") && line.contains(why), "{line}");
        assert_eq!(lines.all_with(&device).len(), 1, "{device}");
    }
    // A gateway that may register devices does so, and what it may not register is published and told of once, too.
    let limit = json!({"registration-limits": {"max-devices": 5}});
    rules(&world, zigbee(json!({"unknown": "publish"})), limit).await;
    let mut gateway = Mqtt::log_in(world.mqtt(), 4, "g@T").await;
    for _ in 0..2 {
        for (topic, payload) in [("z/stranger", "recorded"), ("z/one-too-many", "published")] {
            assert_eq!(send(&mut gateway, &publish(4, 1, 1, topic, &[], payload.as_bytes())).await, 0);
            assert_eq!(watcher.message().await.text(), (topic, payload));
        }
    }
    expect_registered(&world, "stranger").await;
    assert_eq!(payloads(&world, TopicKind::Telemetry), ["recorded", "recorded"]);
    assert!(!is_registered(&world, "one-too-many").await);
    let line = lines.with("device=\"one-too-many\"").await;
    assert!(line.contains("limits allow"), "{line}");
    assert_eq!(lines.all_with("device=\"one-too-many\"").len(), 1);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_a_will_of_an_unknown_device_is_published_where_its_rule_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let world = world(dir.path()).await;
    rules(&world, zigbee(json!({"unknown": "publish"})), json!({})).await;
    let mut watcher = Mqtt::log_in(world.mqtt(), 5, "h@T").await;
    assert_eq!(watcher.subscribe("z/#", 0).await, 0);
    for level in BOTH {
        let leave = async |topic: &str, payload: &[u8]| {
            let will = Some(Will { topic, payload, qos: 1, retain: true, properties: &[] });
            let login = Some(("g@T", "pw"));
            let hello = Hello { level, keep_alive_s: 60, client: "c", clean: true, login, properties: &[], will };
            drop(Mqtt::connect(world.mqtt(), &hello).await);
        };
        leave("z/bridge/alarm", b"refused").await;
        leave("z/bridge/state", b"offline").await;
        assert_eq!(watcher.message().await.text(), ("z/bridge/state", "offline"));
        let refused = || world.metrics_text().contains(r#"status="unprocessable",tenant="T""#).then_some(());
        found_async("the refusal", refused).await;
    }
    assert!(!is_registered(&world, "bridge").await, "a will registers nothing");
    assert!(with_payload(&world, TopicKind::Mqtt, "refused").is_empty());
    ping(&mut watcher).await;
    world.stop().await;
}
