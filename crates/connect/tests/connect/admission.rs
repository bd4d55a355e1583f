//! The same message over HTTP and MQTT: one rule says if it is taken, and as which record.

use millstream_testkit::mqtt::Mqtt;
use millstream_types::{TopicKind, header};
use serde_json::{Value, json};

use crate::world::{Kept, World, basic};

/// The errors of all devices of the gateway.
const ERRORS: &str = "error//+/#";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_protocol_refuses_the_same_messages_in_the_same_words_and_counts_them_alike() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path()).await;
    let adapter = |name: &str| json!({"type": name, "enabled": true, "ext": {"max-payload-bytes": 100}});
    let adapters = [adapter("hono-http"), adapter("hono-mqtt")];
    world.do_registry("POST /v1/tenants/T", &json!({ "adapters": adapters }).to_string(), 201).await;
    world.register("T", "g").await;
    let presence = "application/vnd.eclipse-hono-empty-notification";
    for (device, value) in [
        ("behind", json!({"via": ["g"]})),
        ("off", json!({"via": ["g"], "enabled": false})),
        ("other", json!({"via": ["x"]})),
        ("quiet", json!({"via": ["g"], "defaults": {"content-type": presence}})),
    ] {
        world.do_registry(&format!("POST /v1/devices/T/{device}"), &value.to_string(), 201).await;
    }
    let login = basic("g@T", "pw");
    let mut gateway = Mqtt::log_in(world.mqtt(), 5, "g@T").await;
    assert_eq!(gateway.subscribe(ERRORS, 0).await, 0);
    let large = [b'x'; 101];
    let table: [(&str, &[u8], u16); 5] = [
        ("unknown", b"x", 404),
        ("off", b"x", 404),
        ("other", b"x", 403),
        ("behind", &large, 413),
        ("quiet", b"x", 400),
    ];
    for (device, payload, status) in table {
        let line = format!("PUT /event//{device}");
        let over_http = world.device(&line, &[("authorization", &login)], payload).await;
        assert_eq!(over_http.status, status, "{device}: {over_http:?}");
        gateway.publish(1, 1, &format!("e//{device}"), payload).await;
        let (topic, over_mqtt) = told(&gateway.next().await.1);
        assert_eq!(topic, format!("error//{device}/event/1/{status}"));
        assert_eq!(gateway.next().await.0, 0x40, "{device}: acknowledged, because the error was told");
        let text =
            |told: &Value| told.as_str().unwrap().replace("hono-http", "ADAPTER").replace("hono-mqtt", "ADAPTER");
        assert_eq!(text(&over_http.json()["error"]), text(&over_mqtt["message"]), "{device}");
    }
    let counts = world.metrics_text();
    for adapter in ["hono-http", "hono-mqtt"] {
        let refused = |line: &&str| line.contains(adapter) && line.contains("status=\"unprocessable\"");
        let mut lines = counts.lines().filter(|line| line.starts_with("hono_telemetry_payload_bytes_count"));
        let line = lines.find(refused).unwrap_or_else(|| panic!("{adapter} in {counts}"));
        assert!(line.ends_with(" 5"), "each counts once: {line}");
    }
    assert_eq!(world.connect.stats().rejected, 10);
    gateway.finish().await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_protocol_makes_the_same_record_of_the_same_message() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path()).await;
    let tenant = json!({"defaults": {"site": "north", "ttl": 30}, "resource-limits": {"max-ttl": 20}});
    world.do_registry("POST /v1/tenants/T", &tenant.to_string(), 201).await;
    world.register("T", "g").await;
    let device = json!({"via": ["g"], "defaults": {"content-type": "text/csv", "site": "south"}});
    world.do_registry("POST /v1/devices/T/d", &device.to_string(), 201).await;
    let login = basic("g@T", "pw");
    // Without a trace of its own, a message over HTTP begins one.
    let answer = world.device("PUT /event//d?hono-ttl=10", &[("authorization", &login)], b"1,2").await;
    assert_eq!(answer.status, 202, "{answer:?}");
    let mut gateway = Mqtt::log_in(world.mqtt(), 5, "g@T").await;
    gateway.publish(1, 1, "e//d/?hono-ttl=10", b"1,2").await;
    assert_eq!(gateway.next().await.0, 0x40);
    let records = world.records(TopicKind::Event, "T");
    let [over_http, over_mqtt] = records.iter().map(shared).collect::<Vec<_>>().try_into().unwrap();
    assert_eq!(over_http, over_mqtt);
    assert_eq!(over_http.header("site"), Some("south"), "{over_http:?}");
    assert_eq!((over_http.header(header::TTL), over_http.key.as_str()), (Some("10000"), "d"), "{over_http:?}");
    gateway.finish().await;
    world.stop().await;
}

/// A record without the headers that say how it came.
fn shared(record: &Kept) -> Kept {
    let own = [header::ORIG_ADAPTER, header::ORIG_ADDRESS, header::CREATION_TIME, header::TRACEPARENT];
    let mut record = record.clone();
    record.headers.retain(|(name, _)| !own.contains(&name.as_str()));
    record
}

/// Topic and body of a PUBLISH at quality of service 0, of MQTT 5 and without properties.
fn told(body: &[u8]) -> (String, Value) {
    let length = usize::from(u16::from_be_bytes([body[0], body[1]]));
    let (topic, rest) = body[2..].split_at(length);
    (String::from_utf8(topic.to_vec()).unwrap(), serde_json::from_slice(&rest[1..]).unwrap())
}
