//! Rules that also record messages of the private space as telemetry or events.

use std::sync::Arc;

use millstream_connect::{ConnectConfig, MqttConfig};
use millstream_log::{LogConfig, SystemFiles};
use millstream_testkit::TestLog;
use millstream_testkit::found_async;
use millstream_testkit::mqtt::{Hello, Mqtt, Will, publish, text};
use millstream_types::{StateTopic, TopicKind, TopicName, header};
use serde_json::{Value, json};

use crate::gate::{GatedFiles, log_has_no_files};
use crate::world::{Kept, World, log_knows_consumers, quick};

const BOTH: [u8; 2] = [4, 5];
/// Session expiry of an hour.
const HOUR: [u8; 5] = [0x11, 0, 0, 0x0E, 0x10];

/// A tenant with two devices; `d` publishes, `e` listens.
async fn world(dir: &std::path::Path) -> World {
    let world = World::open(dir).await;
    world.register("T", "d").await;
    world.register("T", "e").await;
    world
}

/// Stores these rules and further members in the tenant.
pub(crate) async fn rules(world: &World, rules: Value, more: Value) {
    let mut tenant = json!({"ext": {"mqtt-mapping": rules}});
    for (name, value) in more.as_object().unwrap() {
        match value.as_object().filter(|_| name == "ext") {
            Some(ext) => tenant["ext"].as_object_mut().unwrap().extend(ext.clone()),
            None => tenant[name] = value.clone(),
        }
    }
    world.do_registry("PUT /v1/tenants/T", &tenant.to_string(), 204).await;
}

fn tele() -> Value {
    json!([{"topic": "tele/#", "to": "telemetry"}])
}

pub(crate) fn retained(is_retained: bool, mut packet: Vec<u8>) -> Vec<u8> {
    packet[0] |= u8::from(is_retained);
    packet
}

/// Publishes a message, waits for the acknowledgement and returns its code.
pub(crate) async fn send(client: &mut Mqtt, packet: &[u8]) -> u8 {
    client.send(packet).await;
    let qos = packet[0] >> 1 & 3;
    if qos == 0 {
        return 0;
    }
    let (first_byte, body) = client.next().await;
    assert_eq!(first_byte, if qos == 2 { 0x50 } else { 0x40 });
    let code = body.get(2).copied().unwrap_or(0);
    if qos == 2 && code < 0x80 {
        release(client, &body[..2]).await;
    }
    code
}

async fn release(client: &mut Mqtt, id: &[u8]) {
    client.send(&[0x62, 2, id[0], id[1]]).await;
    assert_eq!(client.next().await, (0x70, id.to_vec()));
}

/// Waits until the server has handled everything sent before.
pub(crate) async fn ping(client: &mut Mqtt) {
    client.send(&[0xC0, 0]).await;
    assert_eq!(client.next().await.0, 0xD0);
}

pub(crate) fn with_payload(world: &World, kind: TopicKind, payload: &str) -> Vec<Kept> {
    let all = world.records(kind, "T").into_iter();
    all.filter(|record| record.value == payload.as_bytes()).collect()
}

pub(crate) async fn one(world: &World, kind: TopicKind, payload: &str) -> Kept {
    let found = found_async(payload, || with_payload(world, kind, payload).into_iter().next()).await;
    assert_eq!(with_payload(world, kind, payload).len(), 1, "{payload}");
    found
}

/// The headers of a record, without the values that may differ between two records.
fn headers(record: &Kept) -> Vec<(String, String)> {
    let differs = [header::ORIG_ADDRESS, header::CREATION_TIME];
    let value =
        |(name, value): &(String, String)| if differs.contains(&&**name) { String::new() } else { value.clone() };
    record.headers.iter().map(|field| (field.0.clone(), value(field))).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_a_mapped_message_is_recorded_as_on_hono_s_topics_and_published_as_before() {
    let dir = tempfile::tempdir().unwrap();
    let world = world(dir.path()).await;
    let mapping = json!([{"topic": "alarm/+/door", "to": "event"}, {"topic": "tele/#", "to": "telemetry"}]);
    let more = json!({"defaults": {"content-type": "text/plain", "ttl": 60, "unit": "C"}, "tracing": {"sampling-mode": "none"}});
    rules(&world, mapping, more).await;
    world.do_registry("PUT /v1/devices/T/d", r#"{"defaults":{"room":"7","ttl":50}}"#, 204).await;
    let mut count = 0;
    for level in BOTH {
        let mut watcher = Mqtt::log_in(world.mqtt(), level, "e@T").await;
        assert_eq!(watcher.subscribe(&format!("+/{level}/#"), 0).await, 0);
        let mut sender = Mqtt::log_in(world.mqtt(), level, "d@T").await;
        let (tele, alarm) = (format!("tele/{level}/SENSOR"), format!("alarm/{level}/door"));
        for qos in [0, 1, 2] {
            for (topic, word, kind) in
                [(&*tele, "telemetry", TopicKind::Telemetry), (&*alarm, "event", TopicKind::Event)]
            {
                for is_retained in [false, true] {
                    count += 1;
                    let properties =
                        if level == 5 { [&[0x03][..], &text("application/json")].concat() } else { vec![] };
                    let (payload, alike) = (format!("mapped {count}"), format!("alike {count}"));
                    let packet = publish(level, qos, 1, topic, &properties, payload.as_bytes());
                    assert_eq!(send(&mut sender, &retained(is_retained, packet)).await, 0);
                    assert_eq!(watcher.message().await.text(), (topic, &*payload));
                    let qos = if kind == TopicKind::Event { 1 } else { qos.min(1) };
                    let packet = publish(level, qos, 1, word, &properties, alike.as_bytes());
                    assert_eq!(send(&mut sender, &retained(is_retained, packet)).await, 0);
                    let (mapped, alike) = (one(&world, kind, &payload).await, one(&world, kind, &alike).await);
                    assert_eq!((&mapped.key, headers(&mapped)), (&alike.key, headers(&alike)), "{payload}");
                    assert_eq!(mapped.header(header::ORIG_ADDRESS), Some(topic));
                    assert_eq!(mapped.header(header::ORIG_ADAPTER), Some("hono-mqtt"));
                    assert_eq!(mapped.header("room"), Some("7"));
                }
            }
        }
        // What is retained is there for later ones.
        let mut late = Mqtt::log_in(world.mqtt(), level, "e@T").await;
        assert_eq!(late.subscribe(&alarm, 0).await, 0);
        assert!(late.message().await.retain);
    }
    let private = world.records(TopicKind::Mqtt, "T");
    assert_eq!(private.len(), count);
    assert!(private.iter().all(|record| record.header("mqtt_mapped") == Some("1")), "{private:?}");
    let metrics = world.metrics_text();
    let lines = metrics.lines().filter(|line| {
        line.starts_with("hono_telemetry_payload_bytes_count") && line.contains(r#"status="forwarded",tenant="T""#)
    });
    let counted: usize = lines.map(|line| line.rsplit(' ').next().unwrap().parse::<usize>().unwrap()).sum();
    assert_eq!(counted, 2 * count, "each is counted once: {metrics}");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_the_first_rule_wins_and_a_message_without_a_rule_stays_in_the_private_space() {
    let dir = tempfile::tempdir().unwrap();
    let world = world(dir.path()).await;
    let mapping = json!([{"topic": "tele/door/+", "to": "event"}, {"topic": "tele/#", "to": "telemetry"}]);
    rules(&world, mapping, json!({})).await;
    let mut sender = Mqtt::log_in(world.mqtt(), 5, "d@T").await;
    // In one piece, and at one quality: they are answered in order.
    let topics = ["tele/door/a", "tele/lamp/a", "other", "tele/lamp/a", "tele/door/a", "$tele/a", "tele"];
    let sent = (1..).zip(topics).map(|(id, topic)| publish(5, 1, id, topic, &[], id.to_string().as_bytes()));
    sender.send(&sent.collect::<Vec<_>>().concat()).await;
    for id in 1..=7 {
        assert_eq!(sender.next().await, (0x40, vec![0, id]));
    }
    let payloads = |kind| -> Vec<String> {
        world.records(kind, "T").into_iter().map(|record| String::from_utf8(record.value).unwrap()).collect()
    };
    assert_eq!(payloads(TopicKind::Mqtt), ["1", "2", "3", "4", "5", "6", "7"]);
    assert_eq!(
        (payloads(TopicKind::Event), payloads(TopicKind::Telemetry)),
        (vec!["1".into(), "5".into()], vec!["2".into(), "4".into(), "7".into()])
    );
    // What is retained is cleared by a message that says nothing; one with a type says that its device is there.
    for (payload, properties) in [
        (&b"kept"[..], vec![]),
        (b"", vec![]),
        (b"", [&[0x03][..], &text("application/vnd.eclipse-hono-empty-notification")].concat()),
    ] {
        let packet = publish(5, 1, 1, "tele/lamp/r", &properties, payload);
        assert_eq!(send(&mut sender, &retained(true, packet)).await, 0);
    }
    assert_eq!(payloads(TopicKind::Telemetry)[3..], ["kept", ""]);
    assert_eq!(payloads(TopicKind::Mqtt)[7..], ["kept", "", ""]);
    // A change of the rules acts at once.
    rules(&world, json!([]), json!({})).await;
    assert_eq!(send(&mut sender, &publish(5, 1, 1, "tele/lamp/a", &[], b"no more")).await, 0);
    assert_eq!(payloads(TopicKind::Telemetry).len(), 5);
    assert_eq!(world.records(TopicKind::Mqtt, "T").pop().unwrap().header("mqtt_mapped"), None);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_a_level_names_the_device_if_the_publisher_is_its_gateway() {
    let dir = tempfile::tempdir().unwrap();
    let world = world(dir.path()).await;
    world.register("T", "g").await;
    world.do_registry("PUT /v1/devices/T/g", r#"{"memberOf":["lights"]}"#, 204).await;
    for (device, body) in [
        ("lamp", r#"{"via":["g"],"defaults":{"room":"7"}}"#),
        ("bulb", r#"{"viaGroups":["lights"]}"#),
        ("other", r#"{"via":["d"]}"#),
        ("off", r#"{"via":["g"],"enabled":false}"#),
    ] {
        world.do_registry(&format!("POST /v1/devices/T/{device}"), body, 201).await;
    }
    let mapping = json!([
        {"topic": "z/+/set", "to": "event", "device-level": 2},
        {"topic": "z/#", "to": "telemetry", "device-level": 2},
    ]);
    rules(&world, mapping, json!({})).await;
    let mut watcher = Mqtt::log_in(world.mqtt(), 5, "e@T").await;
    assert_eq!(watcher.subscribe("z/#", 0).await, 0);
    for level in BOTH {
        let mut gateway = Mqtt::log_in(world.mqtt(), level, "g@T").await;
        for (topic, device, kind) in [
            ("z/lamp", "lamp", TopicKind::Telemetry),
            ("z/bulb/state", "bulb", TopicKind::Telemetry),
            ("z/lamp/set", "lamp", TopicKind::Event),
            ("z/g", "g", TopicKind::Telemetry),
        ] {
            for (qos, is_retained) in [(0, false), (1, false), (2, false), (1, true)] {
                let payload = format!("{level} {topic} {qos} {is_retained}");
                let packet = publish(level, qos, 1, topic, &[], payload.as_bytes());
                assert_eq!(send(&mut gateway, &retained(is_retained, packet)).await, 0);
                assert_eq!(watcher.message().await.text(), (topic, &*payload));
                let record = one(&world, kind, &payload).await;
                assert_eq!((&*record.key, record.header(header::DEVICE_ID)), (device, Some(device)));
                assert_eq!(record.header(header::ORIG_ADDRESS), Some(topic));
                assert_eq!(record.header("room"), (device == "lamp").then_some("7"));
            }
        }
        // Not behind it, unknown, disabled: neither here nor there.
        for device in ["other", "nobody", "off"] {
            let topic = format!("z/{device}/state");
            gateway.publish(0, 0, &topic, b"refused").await;
            ping(&mut gateway).await;
            for (qos, is_retained) in [(1, false), (2, false), (1, true)] {
                let packet = retained(is_retained, publish(level, qos, 9, &topic, &[], b"refused"));
                if level == 5 {
                    assert_eq!(send(&mut gateway, &packet).await, 0x87, "{topic}");
                    continue;
                }
                gateway.send(&packet).await;
                assert_eq!(gateway.expect_end().await, None, "{topic}");
                gateway = Mqtt::log_in(world.mqtt(), level, "g@T").await;
            }
        }
        // A topic without the level is no rule's.
        let alone = format!("{level} alone");
        assert_eq!(send(&mut gateway, &publish(level, 1, 1, "z", &[], alone.as_bytes())).await, 0);
        assert_eq!(watcher.message().await.text(), ("z", &*alone), "and none of what was refused");
        assert!(with_payload(&world, TopicKind::Telemetry, &alone).is_empty());
    }
    for kind in [TopicKind::Mqtt, TopicKind::Telemetry, TopicKind::Event] {
        assert!(with_payload(&world, kind, "refused").is_empty());
    }
    // Who is no gateway may send for itself only.
    let mut device = Mqtt::log_in(world.mqtt(), 5, "e@T").await;
    assert_eq!(send(&mut device, &publish(5, 1, 1, "z/lamp", &[], b"refused")).await, 0x87);
    assert_eq!(send(&mut device, &publish(5, 1, 1, "z/e", &[], b"own")).await, 0);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_a_mapped_message_is_refused_for_the_same_reasons_as_telemetry() {
    let dir = tempfile::tempdir().unwrap();
    let world = world(dir.path()).await;
    let notification = [&[0x03][..], &text("application/vnd.eclipse-hono-empty-notification")].concat();
    let nothing = json!({});
    let small = json!({"adapters": [{"type": "hono-mqtt", "enabled": true, "ext": {"max-payload-bytes": 3}}]});
    let (much, little) = (vec![b'x'; 2_049], b"0123".to_vec());
    for (what, more, device, properties, payload, code, ends) in [
        ("volume", json!({"resource-limits": {"data-volume": {"max-bytes": 3}}}), "{}", &[][..], &little, 0x97, false),
        ("rate", nothing.clone(), r#"{"ext":{"max-messages-per-second":0}}"#, &[], &little, 0x97, false),
        ("type", nothing.clone(), "{}", &notification, &little, 0x83, false),
        // Of these no acknowledgement has a word.
        ("payload of all", nothing.clone(), "{}", &[], &much, 0x95, true),
        ("payload of the tenant", small, "{}", &[], &little, 0x95, true),
        ("no consumer", json!({"ext": {"telemetry-without-consumer": "refused"}}), "{}", &[], &little, 0x89, true),
    ] {
        if what == "no consumer" && !log_knows_consumers() {
            continue;
        }
        rules(&world, tele(), more).await;
        world.do_registry("PUT /v1/devices/T/d", device, 204).await;
        let mut on_hono_s = Mqtt::log_in(world.mqtt(), 5, "d@T").await;
        on_hono_s.send(&publish(5, 1, 1, "telemetry", properties, payload)).await;
        assert_eq!(on_hono_s.expect_end().await, Some(code), "{what}");
        for level in BOTH.into_iter().filter(|level| *level == 5 || properties.is_empty()) {
            let mut client = Mqtt::log_in(world.mqtt(), level, "d@T").await;
            client.send(&publish(level, 0, 0, "tele/x", properties, payload)).await;
            ping(&mut client).await;
            for (qos, is_retained) in [(1, false), (2, false), (1, true)] {
                let packet = retained(is_retained, publish(level, qos, 1, "tele/x", properties, payload));
                if level == 5 && !ends {
                    assert_eq!(send(&mut client, &packet).await, code, "{what} {qos}");
                    continue;
                }
                client.send(&packet).await;
                assert_eq!(client.expect_end().await, (level == 5).then_some(code), "{what} {level} {qos}");
                client = Mqtt::log_in(world.mqtt(), level, "d@T").await;
            }
        }
    }
    // A disabled device is told so in the answer, or by the end of its connection if that comes first.
    rules(&world, tele(), nothing).await;
    world.do_registry("PUT /v1/devices/T/d", "{}", 204).await;
    let mut client = Mqtt::log_in(world.mqtt(), 5, "d@T").await;
    world.do_registry("PUT /v1/devices/T/d", r#"{"enabled":false}"#, 204).await;
    client.publish(1, 1, "tele/x", b"refused").await;
    while let Some((first_byte, body)) = client.next_or_end().await {
        assert!((first_byte, body.last()) == (0x40, Some(&0x87)) || (first_byte, body[0]) == (0xE0, 0x87), "{body:?}");
    }
    for kind in [TopicKind::Mqtt, TopicKind::Telemetry] {
        assert_eq!(world.records(kind, "T"), []);
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_a_repeated_message_of_quality_2_is_recorded_once_also_over_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let mut world = world(dir.path()).await;
    let mapping = json!([{"topic": "tele/#", "to": "telemetry"}, {"topic": "alarm", "to": "event"}]);
    rules(&world, mapping, json!({})).await;
    for level in BOTH {
        for (topic, kind) in [("tele/x", TopicKind::Telemetry), ("alarm", TopicKind::Event)] {
            for is_kept in [false, true] {
                let properties: &[u8] = if level == 5 && is_kept { &HOUR } else { &[] };
                let login = Some(("d@T", "pw"));
                let client = format!("{level} {topic} {is_kept}");
                let hello =
                    Hello { level, keep_alive_s: 60, client: &client, clean: !is_kept, login, properties, will: None };
                let (mut sender, _) = Mqtt::connect(world.mqtt(), &hello).await;
                let first = publish(level, 2, 7, topic, &[], client.as_bytes());
                let again = [&[first[0] | 8], &first[1..]].concat();
                for packet in [&first, &again] {
                    sender.send(packet).await;
                    assert_eq!(sender.next().await, (0x50, vec![0, 7]), "{client}");
                }
                if is_kept {
                    drop(sender);
                    world.stop().await;
                    world = World::open(dir.path()).await;
                    let answer;
                    (sender, answer) = Mqtt::connect(world.mqtt(), &hello).await;
                    assert_eq!(answer[..2], [1, 0]);
                    sender.send(&again).await;
                    assert_eq!(sender.next().await, (0x50, vec![0, 7]), "{client}");
                }
                one(&world, kind, &client).await;
                one(&world, TopicKind::Mqtt, &client).await;
                release(&mut sender, &[0, 7]).await;
                let next = format!("{client} next");
                assert_eq!(send(&mut sender, &publish(level, 2, 7, topic, &[], next.as_bytes())).await, 0);
                one(&world, kind, &next).await;
            }
        }
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_an_acknowledgement_waits_for_the_log() {
    if log_has_no_files() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let files = GatedFiles::default();
    let mqtt = MqttConfig { send_timeout_ms: 60_000, ..quick().mqtt };
    let config = ConnectConfig { mqtt, ..quick() };
    let world = World::open_on(dir.path(), config, LogConfig::default(), files.clone()).await;
    world.register("T", "d").await;
    rules(&world, json!([{"topic": "tele/#", "to": "telemetry"}, {"topic": "alarm", "to": "event"}]), json!({})).await;
    let mut client = Mqtt::log_in(world.mqtt(), 5, "d@T").await;
    for (topic, qos, is_retained) in
        [("tele/x", 1, false), ("tele/x", 2, false), ("alarm", 1, false), ("alarm", 2, false), ("alarm", 1, true)]
    {
        files.shut();
        client.send(&retained(is_retained, publish(5, qos, 1, topic, &[], b"x"))).await;
        ping(&mut client).await;
        files.open_again();
        let (first_byte, body) = client.next().await;
        assert_eq!((first_byte, &body[..2]), (if qos == 2 { 0x50 } else { 0x40 }, &[0, 1][..]));
        if qos == 2 {
            release(&mut client, &body[..2]).await;
        }
    }
    client.finish().await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_a_will_on_a_mapped_topic_is_recorded_if_its_device_may_send_it() {
    let dir = tempfile::tempdir().unwrap();
    let world = world(dir.path()).await;
    world.do_registry("POST /v1/devices/T/lamp", r#"{"via":["d"]}"#, 201).await;
    world.do_registry("POST /v1/devices/T/other", "{}", 201).await;
    let mapping = json!([
        {"topic": "tele/+/LWT", "to": "event"},
        {"topic": "z/#", "to": "telemetry", "device-level": 2},
    ]);
    rules(&world, mapping, json!({})).await;
    let mut watcher = Mqtt::log_in(world.mqtt(), 5, "e@T").await;
    assert_eq!(watcher.subscribe("#", 0).await, 0);
    for level in BOTH {
        let leave = async |topic: &str, payload: &[u8], qos, retain| {
            let will = Some(Will { topic, payload, qos, retain, properties: &[] });
            let login = Some(("d@T", "pw"));
            let hello = Hello { level, keep_alive_s: 60, client: "c", clean: true, login, properties: &[], will };
            drop(Mqtt::connect(world.mqtt(), &hello).await);
        };
        let refused = async |count: usize| {
            let line = r#"status="unprocessable",tenant="T",ttd="none",type="telemetry"} "#;
            let count = format!("{line}{count}");
            let is_counted =
                |line: &str| line.starts_with("hono_telemetry_payload_bytes_count") && line.ends_with(&count);
            found_async("the refusal", || world.metrics_text().lines().any(is_counted).then_some(())).await;
        };
        for (topic, kind, device, retain) in [
            ("tele/d/LWT", TopicKind::Event, "d", true),
            ("tele/d/LWT", TopicKind::Event, "d", false),
            ("z/lamp", TopicKind::Telemetry, "lamp", false),
        ] {
            let payload = format!("{level} {topic} {retain}");
            leave(topic, payload.as_bytes(), 1, retain).await;
            assert_eq!(watcher.message().await.text(), (topic, &*payload));
            let record = one(&world, kind, &payload).await;
            assert_eq!((&*record.key, record.header(header::ORIG_ADDRESS)), (device, Some(topic)));
            assert_eq!(
                (record.header(header::QOS), record.header("x-opt-retain")),
                (Some("1"), retain.then_some("true"))
            );
            assert_eq!(one(&world, TopicKind::Mqtt, &payload).await.header("mqtt_mapped"), Some("1"));
        }
        // Not behind it; larger than telemetry may be.
        leave("z/other", b"refused", 1, false).await;
        refused(if level == 4 { 1 } else { 3 }).await;
        leave("z/lamp", &[b'x'; 2_049], 1, false).await;
        refused(if level == 4 { 2 } else { 4 }).await;
        // One that is none of the rules' business.
        leave("free", b"free", 1, false).await;
        assert_eq!(watcher.message().await.text(), ("free", "free"));
    }
    assert_eq!(world.records(TopicKind::Telemetry, "T").len(), 2);
    world.stop().await;
}

/// Removes the stored notes of tenants' usage, as if the server had stopped before it wrote any.
async fn forget_notes(dir: &std::path::Path) {
    let dir = dir.join("log");
    let forget = move || {
        let config = LogConfig { dir, ..LogConfig::default() };
        let log = TestLog::open(config, Arc::new(SystemFiles)).unwrap();
        log.delete_topic(&TopicName::internal(StateTopic::Usage)).unwrap();
        log.close().unwrap();
    };
    tokio::task::spawn_blocking(forget).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_a_mapped_message_counts_once_and_so_it_does_when_the_log_is_counted_after_a_crash() {
    let dir = tempfile::tempdir().unwrap();
    let mut world = world(dir.path()).await;
    let volume = |bytes: u64| json!({"resource-limits": {"data-volume": {"max-bytes": bytes, "period": {"mode": "days", "no-of-days": 3_000}}}});
    rules(&world, tele(), volume(40)).await;
    let mut client = Mqtt::log_in(world.mqtt(), 5, "d@T").await;
    for (topic, is_retained) in [("tele/x", false), ("tele/x", true), ("other", false)] {
        let packet = publish(5, 1, 1, topic, &[], b"0123456789");
        assert_eq!(send(&mut client, &retained(is_retained, packet)).await, 0);
    }
    for is_counted_anew in [false, true] {
        if is_counted_anew {
            client.finish().await;
            world.stop().await;
            forget_notes(dir.path()).await;
            world = World::open(dir.path()).await;
            rules(&world, tele(), volume(40)).await;
            client = Mqtt::log_in(world.mqtt(), 5, "d@T").await;
        }
        assert_eq!(
            send(&mut client, &publish(5, 1, 1, "tele/x", &[], b"01234567890")).await,
            0x97,
            "30 bytes are used"
        );
    }
    assert_eq!(send(&mut client, &publish(5, 1, 1, "tele/x", &[], b"0123456789")).await, 0);
    client.finish().await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rules_are_kept_as_they_were_written_and_refused_with_value_rule_and_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let world = world(dir.path()).await;
    let right = json!([
        {"topic": "tele/+/SENSOR", "to": "telemetry"},
        {"topic": "zigbee2mqtt/#", "to": "event", "device-level": 2},
    ]);
    rules(&world, right.clone(), json!({})).await;
    let many = Value::from(vec![json!({"topic": "a", "to": "event"}); 65]);
    for (wrong, value, rule) in [
        (json!({"topic": "a"}), "topic", "is a list of rules"),
        (json!([{"topic": "a", "to": "telemetry"}, {"topic": "a#", "to": "event"}]), "a#", "+ stands alone"),
        (json!([{"topic": "t/#", "to": "event"}]), "t/#", "first level is none of"),
        (json!([{"topic": "$share/g/a", "to": "event"}]), "$share/g/a", "are reserved"),
        (json!([{"topic": "a", "to": "command"}]), "command", "\"telemetry\" or \"event\""),
        (json!([{"topic": "a/b", "to": "event", "device-level": 3}]), "3", "whole number of 1 to 2"),
        (
            json!([{"topic": "a/b", "to": "event", "device": 2}]),
            "device",
            "topic, to and perhaps device-level and unknown",
        ),
        (
            json!([{"topic": "a/+", "to": "event", "device-level": 2, "unknown": "keep"}]),
            "keep",
            "unknown is \"refuse\" or \"publish\"",
        ),
        (json!([{"topic": "a/+", "to": "event", "unknown": "publish"}]), "publish", "goes with device-level"),
        (many, "65 rules", "at most 64"),
    ] {
        let body = json!({"ext": {"mqtt-mapping": wrong}}).to_string();
        for line in ["PUT /v1/tenants/T", "POST /v1/tenants/new"] {
            world.registry(line, &[], &body).await.expect_refusal(line, &body, 400, value, rule);
        }
    }
    let stored = world.do_registry("GET /v1/tenants/T", "", 200).await;
    assert_eq!(stored.json()["ext"]["mqtt-mapping"], right, "nothing was changed");
    world.stop().await;
}
