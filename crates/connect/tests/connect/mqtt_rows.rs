//! More rows of the reference's sections on MQTT, streams and limits, each named by its section.

use std::time::{Duration, SystemTime};

use millstream_connect::{BrokerConfig, ConnectConfig, MqttConfig};
use millstream_log::LogConfig;
use millstream_testkit::found_async;
use millstream_testkit::mqtt::{Hello, Mqtt, Will, connect, packet, publish, text};
use millstream_types::{TopicKind, header, iso_time};
use serde_json::json;

use crate::gate::{GatedFiles, log_has_no_files};
use crate::world::{World, basic, quick};

const BOTH: [u8; 2] = [4, 5];
/// Session expiry of an hour.
const HOUR: [u8; 5] = [0x11, 0, 0, 0x0E, 0x10];

async fn world(dir: &std::path::Path) -> World {
    let world = World::open(dir).await;
    world.register("T", "d").await;
    world.register("T", "e").await;
    world
}

fn hello(level: u8, client: &str) -> Hello<'_> {
    Hello { level, keep_alive_s: 60, client, clean: true, login: Some(("d@T", "pw")), properties: &[], will: None }
}

/// §4, the server refuses CONNECT because a required part is not available.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_connect_is_refused_while_the_log_is_away() {
    if log_has_no_files() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let files = GatedFiles::default();
    let world = World::open_on(dir.path(), quick(), LogConfig::default(), files.clone()).await;
    world.register("T", "d").await;
    files.break_down();
    for (level, code) in [(4, 0x03), (5, 0x88)] {
        let mut client = Mqtt::open(world.mqtt(), level).await;
        client.send(&connect(level, 60, Some(("d@T", "pw")))).await;
        let (first_byte, body) = client.next().await;
        assert_eq!((first_byte, body[1]), (0x20, code), "level {level}");
        client.expect_end().await;
    }
    world.stop_broken().await;
}

/// §5, client ids, and the capabilities that CONNACK tells.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_of_client_ids_and_of_the_capabilities_in_connack() {
    let dir = tempfile::tempdir().unwrap();
    let world = world(dir.path()).await;
    let (_, answer) = Mqtt::connect(world.mqtt(), &hello(4, "")).await;
    assert_eq!(answer, [0, 0], "an empty id with a clean session");
    let (_, answer) = Mqtt::connect(world.mqtt(), &Hello { clean: false, ..hello(4, "") }).await;
    assert_eq!(answer[1], 0x02, "and without one");
    for clean in [true, false] {
        let (_, answer) = Mqtt::connect(world.mqtt(), &Hello { clean, ..hello(5, "") }).await;
        assert_eq!(answer[..2], [0, 0]);
        assert!(answer.windows(8).any(|bytes| bytes[0] == 0x12 && &bytes[3..] == b"auto-"), "assigned: {answer:?}");
    }
    let (_, answer) = Mqtt::connect(world.mqtt(), &hello(5, "named")).await;
    assert!(!answer.windows(6).any(|bytes| bytes == b"\x12\0\x15auto"), "its own: {answer:?}");
    let config = MqttConfig::default();
    let told = [
        [&[0x21][..], &config.in_flight_max.to_be_bytes()].concat(),
        [&[0x27][..], &(config.packet_max_bytes as u32).to_be_bytes()].concat(),
        [&[0x22][..], &config.aliases_max.to_be_bytes()].concat(),
    ];
    for property in told {
        assert!(answer.windows(property.len()).any(|bytes| bytes == property), "{property:?} in {answer:?}");
    }
    world.stop().await;
}

/// §5, wills: at the end of the keep alive, with their properties, and with a normal disconnect that asks for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_of_wills_in_the_private_space() {
    let dir = tempfile::tempdir().unwrap();
    let world = world(dir.path()).await;
    let mut watcher = Mqtt::log_in(world.mqtt(), 5, "e@T").await;
    assert_eq!(watcher.subscribe("will/#", 1).await, 1);
    let properties = [&[0x01, 1, 0x26][..], &text("k"), &text("v"), &[0x03], &text("text/x")].concat();
    let will = |topic| Some(Will { topic, payload: b"gone", qos: 0, retain: false, properties: &properties });
    let mut alive = Vec::new();
    for level in BOTH {
        let silent = Hello { keep_alive_s: 1, will: will("will/silent"), ..hello(level, "silent") };
        alive.push(Mqtt::connect(world.mqtt(), &silent).await.0);
        let message = watcher.message().await;
        assert_eq!(message.text(), ("will/silent", "gone"), "level {level}");
        let told = if level == 5 { &properties[..] } else { &[] };
        assert_eq!(message.properties, told, "level {level}");
    }
    // A good-bye takes the will along if it is a normal one, and no other.
    for (bytes, ends_with, is_published) in [
        (&[0xE0, 1, 0x04][..], None, true),
        (&[0xE0, 0], None, false),
        (&[0xE0, 1, 0x00], None, false),
        (&[0xE0, 2, 0x80, 0], None, true),
        (&[0xE0, 1, 0x93], None, true),
        (&[0xE0, 1, 0x99], None, true),
        // Of the server only, and of nobody.
        (&[0xE0, 1, 0x8B], Some(0x82), true),
        (&[0xE0, 1, 0x05], Some(0x82), true),
    ] {
        let topic = format!("will/{bytes:?}");
        let will = Some(Will { topic: &topic, payload: b"gone", qos: 0, retain: false, properties: &[] });
        let (mut orderly, _) = Mqtt::connect(world.mqtt(), &Hello { will, ..hello(5, "o") }).await;
        orderly.send(bytes).await;
        assert_eq!(orderly.expect_end().await, ends_with, "{topic}");
        if is_published {
            assert_eq!(watcher.message().await.text().0, topic);
        }
    }
    drop(alive);
    world.stop().await;
}

/// §5, the offline queue is bounded in bytes; its messages arrive with the rest of their expiry.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_of_the_offline_queue() {
    let dir = tempfile::tempdir().unwrap();
    let broker = BrokerConfig { queue_max_bytes: 2_000, ..BrokerConfig::default() };
    let config = ConnectConfig { mqtt: MqttConfig { broker, ..quick().mqtt }, ..quick() };
    let world = World::open_with(dir.path(), config).await;
    world.register("T", "d").await;
    let kept = Hello { clean: false, properties: &HOUR, ..hello(5, "kept") };
    let (mut client, _) = Mqtt::connect(world.mqtt(), &kept).await;
    assert_eq!(client.subscribe("q", 1).await, 1);
    client.send(&[0xE0, 0]).await;
    client.expect_end().await;
    let mut sender = Mqtt::log_in(world.mqtt(), 5, "d@T").await;
    for n in 1..=10_u16 {
        sender.send(&publish(5, 1, n, "q", &[0x02, 0, 0, 0, 100], &[n as u8; 500])).await;
        assert_eq!(sender.next().await.0, 0x40);
    }
    let (mut client, answer) = Mqtt::connect(world.mqtt(), &kept).await;
    assert_eq!(answer[0], 1, "the session is there");
    let mut got = Vec::new();
    while got.last() != Some(&10) {
        let message = client.message().await;
        let left = &message.properties;
        assert!(left[..4] == [0x02, 0, 0, 0] && (1..=100).contains(&left[4]), "{left:?}");
        got.push(message.payload[0]);
        client.send(&packet(0x40, &message.id.to_be_bytes())).await;
    }
    assert!((1..=4).contains(&got.len()), "2,000 bytes hold the latest of them: {got:?}");
    assert!(got.windows(2).all(|pair| pair[0] + 1 == pair[1]), "{got:?}");
    world.stop().await;
}

/// §4 and §6, an event without data announces a listener for commands (-1) and its end (0).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_of_the_notice_that_a_device_listens_for_commands() {
    let dir = tempfile::tempdir().unwrap();
    let world = world(dir.path()).await;
    let mut expected = Vec::new();
    for level in BOTH {
        let mut client = Mqtt::log_in(world.mqtt(), level, "d@T").await;
        assert_eq!(client.subscribe("c///q/#", 0).await, 0);
        client.unsubscribe("c///q/#").await;
        assert_eq!(client.subscribe("command///req/#", 1).await, 1);
        client.send(&[0xE0, 0]).await;
        client.expect_end().await;
        expected.extend(["-1", "0", "-1", "0"]);
        let told = found_async("the notices", || {
            Some(world.records(TopicKind::Event, "T")).filter(|events| events.len() >= expected.len())
        });
        for (event, ttd) in told.await.iter().zip(&expected) {
            assert_eq!((event.key.as_str(), event.value.len(), event.header(header::TTD)), ("d", 0, Some(*ttd)));
            let kind = "application/vnd.eclipse-hono-empty-notification";
            assert_eq!(event.header(header::CONTENT_TYPE), Some(kind));
        }
    }
    world.stop().await;
}

/// §4, the server closes a live connection when its credential expires.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_a_live_connection_is_closed_when_its_secret_expires() {
    let dir = tempfile::tempdir().unwrap();
    let world = world(dir.path()).await;
    let mut valid_ms = 1_500;
    let mut client = loop {
        let now_ms = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_millis() as i64;
        let secret = json!({"pwd-plain": "pw", "not-after": iso_time(now_ms + valid_ms)});
        let credentials = json!([{"type": "hashed-password", "auth-id": "d", "secrets": [secret]}]);
        world.do_registry("PUT /v1/credentials/T/d", &credentials.to_string(), 204).await;
        let mut client = Mqtt::open(world.mqtt(), 5).await;
        client.send(&connect(5, 60, Some(("d@T", "pw")))).await;
        if client.next().await.1[1] == 0 {
            break client;
        }
        // The machine was too slow for the time that it had.
        valid_ms *= 2;
    };
    assert_eq!(client.expect_end().await, Some(0x87));
    let mut again = Mqtt::open(world.mqtt(), 5).await;
    again.send(&connect(5, 60, Some(("d@T", "pw")))).await;
    assert_eq!(again.next().await.1[1], 0x86);
    world.stop().await;
}

/// §4, the end of a secret holds for a connection that was there before the end was set.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_a_live_connection_is_closed_at_the_end_that_its_secret_gets_later() {
    let dir = tempfile::tempdir().unwrap();
    let world = world(dir.path()).await;
    let all = |secret| json!([{"type": "hashed-password", "auth-id": "d", "secrets": [secret]}]).to_string();
    world.do_registry("PUT /v1/credentials/T/d", &all(json!({"pwd-plain": "pw"})), 204).await;
    let kept = world.do_registry("GET /v1/credentials/T/d", "", 200).await.json();
    let mut client = Mqtt::log_in(world.mqtt(), 5, "d@T").await;
    // Far enough for the change to be noticed while the secret is still valid.
    let end = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_millis() as i64 + 3_000;
    let ending = json!({"id": kept[0]["secrets"][0]["id"], "not-after": iso_time(end)});
    world.do_registry("PUT /v1/credentials/T/d", &all(ending), 204).await;
    assert_eq!(client.expect_end().await, Some(0x87));
    world.stop().await;
}

/// §4 and §7, a connection stays open as long as the secret of its login exists and is valid.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_of_changes_of_credentials_that_a_live_connection_outlives_or_not() {
    let dir = tempfile::tempdir().unwrap();
    let world = world(dir.path()).await;
    let hash = json!({"hash-function": "sha-256", "pwd-hash": "MMlS+rEiw/l1nwKm2Vw3WLJGtP7iOZV7LU/uRuJhcMQ="});
    let soon = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_millis() as i64 + 3_600_000;
    for (what, secrets, stays) in [
        ("nothing", json!([{"id": "ID"}]), true),
        ("one more", json!([{"pwd-plain": "next"}, {"id": "ID"}]), true),
        ("an end to come", json!([{"id": "ID", "not-after": iso_time(soon)}]), true),
        ("the end", json!([{"id": "ID", "not-after": "2020-01-01T00:00:00Z"}]), false),
        ("off", json!([{"id": "ID", "enabled": false}]), false),
        ("another password", json!([{"id": "ID", "pwd-plain": "next"}]), false),
        ("another secret", json!([{"pwd-plain": "next"}]), false),
        ("none", json!(null), false),
        ("the same hash without its id", json!([hash]), true),
    ] {
        let first = if what.starts_with("the same") { hash.clone() } else { json!({"pwd-plain": "pw"}) };
        let all = |secrets| json!([{"type": "hashed-password", "auth-id": "d", "secrets": secrets}]).to_string();
        world.do_registry("PUT /v1/credentials/T/d", &all(json!([first])), 204).await;
        let kept = world.do_registry("GET /v1/credentials/T/d", "", 200).await.json();
        let id = kept[0]["secrets"][0]["id"].as_str().unwrap();
        let mut client = Mqtt::log_in(world.mqtt(), 5, "d@T").await;
        let changed = if secrets.is_null() { "[]".to_owned() } else { all(secrets).replace("ID", id) };
        world.do_registry("PUT /v1/credentials/T/d", &changed, 204).await;
        if stays {
            // The registry's changes are noticed in order.
            let mut other = Mqtt::log_in(world.mqtt(), 5, "e@T").await;
            let line = json!([{"type": "hashed-password", "auth-id": "e", "secrets": [{"pwd-plain": "pw"}]}]);
            world.do_registry("PUT /v1/credentials/T/e", &line.to_string(), 204).await;
            assert_eq!(other.expect_end().await, Some(0x87));
            client.publish(1, 1, "t", b"still here").await;
            assert_eq!(client.next().await, (0x40, vec![0, 1]), "{what}");
        } else {
            assert_eq!(client.expect_end().await, Some(0x87), "{what}");
        }
    }
    world.stop().await;
}

/// §4, the error topic: tenant, device and the short or long spelling are those of the filter.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_of_the_error_topic_mirror_its_filter() {
    let dir = tempfile::tempdir().unwrap();
    let world = world(dir.path()).await;
    for level in BOTH {
        for (filter, topic) in [
            ("e///#", "e///event/1/400"),
            ("e/T/d/#", "e/T/d/event/1/400"),
            ("error//d/#", "error//d/event/1/400"),
            ("error/T//#", "error/T//event/1/400"),
        ] {
            let mut client = Mqtt::log_in(world.mqtt(), level, "d@T").await;
            assert_eq!(client.subscribe(filter, 0).await, 0, "{filter}");
            // Neither payload nor type.
            client.publish(1, 1, "e", b"").await;
            assert_eq!(client.message().await.topic, topic, "{filter}, level {level}");
            assert_eq!(client.next().await, (0x40, vec![0, 1]), "{filter}, level {level}");
        }
    }
    world.stop().await;
}

/// §4, PUBACK only after the log has accepted; its absence is the pressure.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_puback_waits_for_the_log() {
    if log_has_no_files() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let files = GatedFiles::default();
    let config = ConnectConfig { mqtt: MqttConfig { send_timeout_ms: 600_000, ..quick().mqtt }, ..quick() };
    let world = World::open_on(dir.path(), config, LogConfig::default(), files.clone()).await;
    world.register("T", "d").await;
    for level in BOTH {
        let mut client = Mqtt::log_in(world.mqtt(), level, "d@T").await;
        files.shut();
        for (id, topic) in [(1, "t"), (2, "e"), (3, "own/x")] {
            client.publish(1, id, topic, b"x").await;
        }
        client.send(&[0xC0, 0]).await;
        assert_eq!(client.next().await.0, 0xD0, "alive, and none of them is acknowledged");
        files.open_again();
        for id in 1..=3_u8 {
            let (first_byte, body) = client.next().await;
            assert_eq!((first_byte, &body[..2]), (0x40, &[0, id][..]));
        }
    }
    world.stop().await;
}

/// §8, max-ttl-command-response is the time to live of answers to commands.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_answers_to_commands_live_as_long_as_their_tenant_says() {
    let dir = tempfile::tempdir().unwrap();
    let world = world(dir.path()).await;
    let login = basic("d@T", "pw");
    let headers = [("authorization", login.as_str()), ("hono-cmd-status", "200")];
    let line = format!("POST /command/res/{}", world.request_id("T", "d", &headers[..1]).await);
    for (limits, ttl) in [(json!({}), None), (json!({"max-ttl-command-response": 7}), Some("7000"))] {
        let tenant = json!({"resource-limits": limits}).to_string();
        world.do_registry("PUT /v1/tenants/T", &tenant, 204).await;
        let before = world.records(TopicKind::CommandResponse, "T").len();
        // The same answer again would be no record.
        assert_eq!(world.device(&line, &headers, ttl.unwrap_or("x").as_bytes()).await.status, 202);
        let records = world.records(TopicKind::CommandResponse, "T");
        assert_eq!((records.len(), records.last().unwrap().header(header::TTL)), (before + 1, ttl));
    }
    world.stop().await;
}

/// §9, a trust anchor's name belongs to one tenant, or to several of one group.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_tenants_of_one_group_may_share_a_trust_anchor() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path()).await;
    let body = |group| format!(r#"{{"trusted-ca":[{}],"trust-anchor-group":"{group}"}}"#, crate::world::CA);
    world.do_registry("POST /v1/tenants/A", &body("g"), 201).await;
    world.do_registry("POST /v1/tenants/B", &body("g"), 201).await;
    world.do_registry("POST /v1/tenants/C", &body("h"), 409).await;
    tokio::time::timeout(Duration::from_secs(60), world.stop()).await.unwrap();
}
