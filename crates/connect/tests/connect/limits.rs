//! Limits of a tenant and a device: volume, connections, connection time and rates, with their errors and metrics.

use millstream_log::LogConfig;
use millstream_testkit::found_async;
use millstream_testkit::mqtt::{Hello, Mqtt, Will, connect, publish};
use millstream_types::{TopicKind, header};
use serde_json::{Value, json};

use crate::gate::{GatedFiles, log_has_no_files};
use crate::world::{World, basic, quick};

async fn limit(world: &World, limits: &Value, more: &Value) {
    let mut tenant = json!({"resource-limits": limits});
    tenant.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    world.do_registry("PUT /v1/tenants/T", &tenant.to_string(), 204).await;
}

fn volume(bytes: u64) -> Value {
    json!({"data-volume": {"max-bytes": bytes, "period": {"mode": "days", "no-of-days": 3_000}}})
}

/// Sends messages of `bytes` until one is refused; returns the number accepted.
async fn send_until_refused(world: &World, bytes: usize) -> usize {
    let login = basic("d@T", "pw");
    for sent in 0..10_000 {
        let line = if sent % 2 == 0 { "POST /telemetry" } else { "POST /event" };
        let answer = world.device(line, &[("authorization", &login)], &vec![b'x'; bytes]).await;
        if answer.status != 202 {
            answer.expect_problem(429, "bytes used", "resource-limits.data-volume.max-bytes of the tenant");
            assert!(answer.header("retry-after").unwrap().parse::<u64>().unwrap() > 2_000 * 86_400, "{answer:?}");
            return sent;
        }
    }
    panic!("nothing was refused");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenants_volume_is_used_up_to_the_byte_by_http_and_mqtt_and_stays_so_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path()).await;
    world.register("T", "d").await;
    limit(&world, &volume(640), &json!({"minimum-message-size": 64})).await;
    assert_eq!(send_until_refused(&world, 65).await, 5, "65 bytes count as 128");
    world.stop().await;
    let world = World::open(dir.path()).await;
    assert_eq!(send_until_refused(&world, 1).await, 0);
    for (level, code) in [(4, 0x05), (5, 0x97)] {
        let mut client = Mqtt::open(world.mqtt(), level).await;
        client.send(&connect(level, 60, Some(("d@T", "pw")))).await;
        let (first_byte, body) = client.next().await;
        assert_eq!((first_byte, body[1]), (0x20, code), "level {level}");
    }
    limit(&world, &volume(740), &json!({})).await;
    let mut client = Mqtt::log_in(world.mqtt(), 5, "d@T").await;
    client.publish(1, 1, "telemetry", &[b'x'; 100]).await;
    assert_eq!(client.next().await.0, 0x40, "what there is may be used");
    client.publish(1, 2, "event", b"x").await;
    assert_eq!(client.expect_end().await, Some(0x97));
    let all = [TopicKind::Telemetry, TopicKind::Event].map(|kind| world.records(kind, "T").len());
    assert_eq!(all, [4, 2]);
    let text = world.metrics.text();
    assert!(text.contains(r#"millstream_connect_limit_refusals_total{limit="data-volume",tenant="T"} 4"#), "{text}");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_of_one_mqtt_write_are_accepted_up_to_the_last_that_fits_the_volume() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path()).await;
    world.register("T", "d").await;
    limit(&world, &volume(70), &json!({})).await;
    let mut client = Mqtt::log_in(world.mqtt(), 5, "d@T").await;
    let piece: Vec<u8> =
        (1..=10).flat_map(|id| publish(5, 1, id, "telemetry/?on-error=ignore", &[], b"0123456789")).collect();
    client.send(&piece).await;
    for _ in 0..10 {
        assert_eq!(client.next().await.0, 0x40);
    }
    assert_eq!(world.records(TopicKind::Telemetry, "T").len(), 7);
    client.finish().await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_of_the_private_space_count_like_all_others_and_stay_counted_after_a_restart() {
    const QUOTA: u8 = 0x97;
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path()).await;
    world.register("T", "d").await;
    limit(&world, &volume(52), &json!({})).await;
    let mut client = Mqtt::log_in(world.mqtt(), 5, "d@T").await;
    // Ten bytes each.
    let kinds: [(u8, &str, u8); 7] = [
        (0x32, "a", 0x40),
        (0x34, "a", 0x50),
        (0x33, "r/1", 0x40),
        (0x33, "r/2", 0x40),
        (0x32, "telemetry", 0x40),
        (0x32, "a", 0x40),
        (0x34, "a", 0x50),
    ];
    for (at, (first_byte, topic, answer)) in (1..).zip(kinds) {
        let (qos, retain) = ((first_byte >> 1) & 3, first_byte & 1 == 1);
        let mut packet = publish(5, qos, at, topic, &[], b"0123456789");
        packet[0] |= u8::from(retain);
        client.send(&packet).await;
        let (kind, body) = client.next().await;
        let code = body.get(2).copied().unwrap_or(0);
        assert_eq!((kind, code), (answer, if at <= 5 { 0 } else { QUOTA }), "message {at}");
    }
    client.finish().await;
    let mut client = Mqtt::log_in(world.mqtt(), 4, "d@T").await;
    client.publish(1, 1, "a", b"xyz").await;
    assert!(client.expect_end().await.is_none(), "version 3.1.1 has no word for it");
    world.stop().await;
    let world = World::open(dir.path()).await;
    limit(&world, &volume(55), &json!({})).await;
    let mut client = Mqtt::log_in(world.mqtt(), 5, "d@T").await;
    client.publish(0, 0, "a", b"123").await;
    client.publish(1, 1, "a", b"123").await;
    assert_eq!(client.next().await.1.get(2), Some(&QUOTA), "53 bytes are used");
    client.publish(1, 2, "a", b"12").await;
    assert_eq!(client.next().await.1.get(2).copied().unwrap_or(0), 0);
    world.do_registry("PUT /v1/devices/T/d", r#"{"ext":{"max-messages-per-second":0}}"#, 204).await;
    client.publish(2, 3, "a", b"").await;
    assert_eq!(client.next().await, (0x50, vec![0, 3, QUOTA]), "a rate holds here, too");
    client.finish().await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_exactly_once_that_is_sent_again_counts_once() {
    const DUP: u8 = 0b1000;
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path()).await;
    world.register("T", "d").await;
    limit(&world, &volume(25), &json!({})).await;
    let login = Some(("d@T", "pw"));
    // For a minute beyond the connection.
    let properties = [0x11, 0, 0, 0, 60];
    let kept =
        Hello { level: 5, keep_alive_s: 60, client: "c", clean: false, login, properties: &properties, will: None };
    let mut sent = publish(5, 2, 7, "a", &[], b"0123456789");
    for time in 0..5 {
        let (mut client, _) = Mqtt::connect(world.mqtt(), &kept).await;
        client.send(&sent).await;
        let (kind, body) = client.next().await;
        assert_eq!((kind, body.get(2).copied().unwrap_or(0)), (0x50, 0), "sent again {time} times");
        sent[0] |= DUP;
    }
    let (mut client, _) = Mqtt::connect(world.mqtt(), &kept).await;
    for (id, code) in [(8, 0), (9, 0x97)] {
        client.publish(2, id, "a", b"0123456789").await;
        let (kind, body) = client.next().await;
        assert_eq!((kind, body.get(2).copied().unwrap_or(0)), (0x50, code), "message {id}");
    }
    client.finish().await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_the_log_has_no_room_for_is_no_use_of_the_volume() {
    if log_has_no_files() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let files = GatedFiles::default();
    let log = LogConfig {
        journal_file_bytes: 64 << 10,
        journal_max_bytes: 256 << 10,
        append_max_bytes: 32 << 10,
        batch_max_bytes: 16 << 10,
        pending_max_bytes: 32 << 10,
        ..LogConfig::default()
    };
    let world = World::open_on(dir.path(), quick(), log, files.clone()).await;
    world.register("T", "d").await;
    world.register("other", "d").await;
    limit(&world, &volume(50), &json!({})).await;
    let other = basic("d@other", "pw");
    let headers = [("authorization", other.as_str())];
    let send_other = || world.device("POST /telemetry", &headers, b"x");
    assert_eq!(send_other().await.status, 202);
    let mut client = Mqtt::log_in(world.mqtt(), 5, "d@T").await;
    files.shut();
    while send_other().await.status == 202 {}
    // There may be room for one of them, as they are smaller. They come in one read: the next would wait for room.
    let refused = publish(5, 0, 0, "a", &[], b"0123456789").repeat(10);
    client.send(&[&refused[..], &[0xc0, 0]].concat()).await;
    assert_eq!(client.next().await, (0xd0, Vec::new()), "all have been looked at");
    files.open_again();
    // Answered once it is written, and all that waited before it: there is room again.
    let written = [("authorization", other.as_str()), ("qos-level", "1")];
    while world.device("POST /telemetry", &written, b"x").await.status != 202 {}
    for id in 1..=4 {
        client.publish(1, id, "a", b"0123456789").await;
        let (kind, answer) = client.next().await;
        assert_eq!((kind, answer.get(2).copied().unwrap_or(0)), (0x40, 0), "message {id}: {answer:?}");
    }
    client.finish().await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rates_are_kept_and_invalid_limits_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path()).await;
    world.register("T", "d").await;
    world.register("T", "slow").await;
    world.do_registry("PUT /v1/devices/T/slow", r#"{"ext":{"max-messages-per-second":0}}"#, 204).await;
    limit(&world, &json!({"max-messages-per-second-per-device": 1_000_000}), &json!({})).await;
    let (quick, slow) = (basic("d@T", "pw"), basic("slow@T", "pw"));
    assert_eq!(world.device("POST /telemetry", &[("authorization", &quick)], b"x").await.status, 202);
    let refused = world.device("POST /telemetry", &[("authorization", &slow)], b"x").await;
    refused.expect_problem(429, "slow", "max-messages-per-second of the device");
    limit(&world, &json!({"max-messages-per-second": 0}), &json!({})).await;
    let refused = world.device("POST /event", &[("authorization", &quick)], b"x").await;
    refused.expect_problem(429, "T", "resource-limits.max-messages-per-second of the tenant");

    for (line, body, value, rule) in [
        ("PUT /v1/tenants/T", json!({"resource-limits": {"max-connections": -2}}), "-2", "0 or more, or -1"),
        (
            "PUT /v1/tenants/T",
            json!({"registration-limits": {"max-devices": -5}}),
            "-5",
            "registration-limits.max-devices",
        ),
        ("PUT /v1/tenants/T", json!({"resource-limits": {"data-volume": {"max-bytes": -9}}}), "-9", "max-bytes"),
        (
            "PUT /v1/tenants/T",
            json!({"resource-limits": {"data-volume": {"period": {"mode": "days"}}}}),
            "no-of-days left out",
            "mode days has no-of-days",
        ),
        (
            "POST /v1/tenants/new",
            json!({"resource-limits": {"connection-duration": {"period": {"mode": "monthly", "no-of-days": 3}}}}),
            "no-of-days 3",
            "monthly has none",
        ),
        ("PUT /v1/devices/T/d", json!({"ext": {"max-messages-per-second": "5"}}), "5", "whole number"),
        ("PUT /v1/devices/T/d", json!({"ext": {"max-bytes-per-second": -5}}), "-5", "ext.max-bytes-per-second"),
        ("PUT /v1/devices/T/d", json!({"ext": {"max-connects-per-second": 0.5}}), "0.5", "ext.max-connects-per-second"),
        ("PUT /v1/tenants/T", json!({"resource-limits": {"max-bytes-per-second": -2}}), "-2", "max-bytes-per-second"),
        (
            "PUT /v1/tenants/T",
            json!({"resource-limits": {"max-connects-per-second-per-device": -3}}),
            "-3",
            "max-connects-per-second-per-device",
        ),
    ] {
        let answer = world.registry(line, &[], &body.to_string()).await;
        answer.expect_refusal(line, &body.to_string(), 400, value, rule);
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_rates_of_bytes_hold_for_tenant_and_device_by_http_and_mqtt() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path()).await;
    for device in ["d", "quick", "slow"] {
        world.register("T", device).await;
    }
    world.do_registry("PUT /v1/devices/T/quick", r#"{"ext":{"max-bytes-per-second":1000000000}}"#, 204).await;
    world.do_registry("PUT /v1/devices/T/slow", r#"{"ext":{"max-bytes-per-second":0}}"#, 204).await;
    limit(&world, &json!({"max-bytes-per-second-per-device": 1}), &json!({"minimum-message-size": 1_000})).await;
    let send = async |device: &str, body: &[u8]| {
        let login = basic(&format!("{device}@T"), "pw");
        world.device("POST /telemetry", &[("authorization", &login)], body).await
    };
    // More than a second's worth passes after a rest, as what it is metered, and has to be rested off.
    assert_eq!(send("d", b"x").await.status, 202);
    let refused = send("d", b"x").await;
    refused.expect_problem(429, "d", "max-bytes-per-second-per-device of its tenant's resource-limits = 1");
    assert!(refused.header("retry-after").unwrap().parse::<u64>().unwrap() > 900, "{refused:?}");
    let mut client = Mqtt::log_in(world.mqtt(), 5, "d@T").await;
    client.publish(1, 1, "telemetry", b"x").await;
    assert_eq!(client.expect_end().await, Some(0x97), "over both adapters together");
    send("slow", b"x").await.expect_problem(429, "slow", "ext.max-bytes-per-second of the device");
    for _ in 0..10 {
        assert_eq!(send("quick", b"x").await.status, 202, "its own rate goes before");
    }
    limit(&world, &json!({"max-bytes-per-second": 1}), &json!({})).await;
    assert_eq!(send("d", &[b'x'; 1_000]).await.status, 202);
    send("quick", b"x").await.expect_problem(429, "T", "resource-limits.max-bytes-per-second of the tenant = 1");
    let metrics = world.metrics_text();
    for (limit, count) in [("device-byte-rate", 3), ("tenant-byte-rate", 1)] {
        let line = format!(r#"millstream_connect_limit_refusals_total{{limit="{limit}",tenant="T"}} {count}"#);
        assert!(metrics.contains(&line), "{line}: {metrics}");
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_rates_of_connects_hold_for_tenant_and_device() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path()).await;
    for device in ["d", "slow"] {
        world.register("T", device).await;
    }
    world.do_registry("PUT /v1/devices/T/slow", r#"{"ext":{"max-connects-per-second":0}}"#, 204).await;
    let answer = async |level, device: &str| {
        let mut client = Mqtt::open(world.mqtt(), level).await;
        client.send(&connect(level, 60, Some((&format!("{device}@T"), "pw")))).await;
        client.next().await.1[1]
    };
    let rates = |of_all: i64, of_each: i64| json!({"max-connects-per-second": of_all, "max-connects-per-second-per-device": of_each});
    for (limits, device, codes) in [
        (rates(1_000, 1_000), "d", [0, 0]),
        (rates(1_000, 1_000), "slow", [0x05, 0x97]),
        (rates(-1, 0), "d", [0x05, 0x97]),
        (rates(0, -1), "d", [0x05, 0x97]),
        (rates(-1, -1), "d", [0, 0]),
    ] {
        limit(&world, &limits, &json!({})).await;
        let told = [answer(4, device).await, answer(5, device).await];
        assert_eq!(told, codes, "{device}, {limits}");
    }
    let metrics = world.metrics_text();
    for (limit, count) in [("device-connect-rate", 4), ("tenant-connect-rate", 2)] {
        let line = format!(r#"millstream_connect_limit_refusals_total{{limit="{limit}",tenant="T"}} {count}"#);
        assert!(metrics.contains(&line), "{line}: {metrics}");
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenant_over_its_connection_time_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path()).await;
    world.register("T", "d").await;
    limit(&world, &json!({"connection-duration": {"max-minutes": 0}}), &json!({})).await;
    for (level, code) in [(4, 0x05), (5, 0x97)] {
        let mut client = Mqtt::open(world.mqtt(), level).await;
        client.send(&connect(level, 60, Some(("d@T", "pw")))).await;
        let (first_byte, body) = client.next().await;
        assert_eq!((first_byte, body[1]), (0x20, code), "level {level}");
    }
    assert_eq!(world.device("POST /telemetry", &[("authorization", &basic("d@T", "pw"))], b"x").await.status, 202);
    limit(&world, &json!({"connection-duration": {"max-minutes": 1}}), &json!({})).await;
    Mqtt::log_in(world.mqtt(), 5, "d@T").await.finish().await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn applications_hear_of_connections_if_the_operator_wants_it_and_metrics_count_them() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = quick();
    config.connection_events = true;
    let world = World::open_with(dir.path(), config).await;
    world.register("T", "d").await;
    limit(&world, &volume(1), &json!({})).await;
    let hello = Hello {
        level: 5,
        keep_alive_s: 60,
        client: "my-client",
        clean: true,
        login: Some(("d@T", "pw")),
        properties: &[],
        will: None,
    };
    let (mut client, _) = Mqtt::connect(world.mqtt(), &hello).await;
    let text = world.metrics_text();
    let gauge = r#"hono_connections_authenticated{component_name="hono-mqtt",component_type="adapter",host="HERE",tenant="T"} "#;
    assert!(text.contains(&format!("{gauge}1")), "{text}");
    client.finish().await;
    while world.records(TopicKind::Event, "T").len() < 2 {
        tokio::task::yield_now().await;
    }
    let events = world.records(TopicKind::Event, "T");
    for (event, cause) in events.iter().zip(["connected", "disconnected"]) {
        assert_eq!((event.key.as_str(), event.header(header::DEVICE_ID)), ("d", Some("d")));
        let kind = "application/vnd.eclipse-hono-dc-notification+json";
        assert_eq!((event.header(header::CONTENT_TYPE), event.header(header::QOS)), (Some(kind), Some("1")));
        let body: Value = serde_json::from_slice(&event.value).unwrap();
        let expected = json!({"cause": cause, "remote-id": "my-client", "source": "hono-mqtt", "data": {}});
        assert_eq!(body, expected);
    }
    let mut wrong = Mqtt::open(world.mqtt(), 5).await;
    wrong.send(&connect(5, 60, Some(("d@T", "no")))).await;
    wrong.next().await;
    let mut nobody = Mqtt::open(world.mqtt(), 5).await;
    nobody.send(&connect(5, 60, Some(("d@nowhere", "no")))).await;
    nobody.next().await;
    let text = world.metrics_text();
    let attempts = |outcome, tenant| {
        format!(
            r#"hono_connections_attempts_total{{cipher_suite="UNKNOWN",component_name="hono-mqtt",component_type="adapter",host="HERE",outcome="{outcome}",tenant="{tenant}"}} 1"#
        )
    };
    for line in [
        format!("{gauge}0"),
        attempts("succeeded", "T"),
        attempts("unauthorized", "T"),
        attempts("unauthorized", "UNKNOWN"),
        r#"hono_authentication_attempts_total{outcome="succeeded",tenant="T"} 1"#.to_owned(),
        r#"hono_authentication_attempts_total{outcome="unauthorized",tenant="UNKNOWN"} 1"#.to_owned(),
        r#"hono_connections_authenticated_duration_seconds_count{component_name="hono-mqtt",component_type="adapter",host="HERE",tenant="T"} 1"#.to_owned(),
        "hono_tenants_total 2".to_owned(),
    ] {
        assert!(text.lines().any(|known| known == line), "{line} in {text}");
    }
    assert_eq!(world.device("POST /telemetry", &[("authorization", &basic("d@T", "pw"))], b"x").await.status, 202);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_published_will_counts_like_other_messages_also_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path()).await;
    world.register("T", "d").await;
    world.register("T", "watcher").await;
    limit(&world, &volume(10), &json!({})).await;
    let mut watcher = Mqtt::log_in(world.mqtt(), 5, "watcher@T").await;
    assert_eq!(watcher.subscribe("will/#", 0).await, 0);
    let will = |payload| Some(Will { topic: "will/d", payload, qos: 1, retain: false, properties: &[] });
    let hello = |will, login| Hello {
        level: 5,
        keep_alive_s: 60,
        client: "c",
        clean: true,
        login: Some((login, "pw")),
        properties: &[],
        will,
    };
    // What is not published is no use of the volume: one that says good-bye, then one that does not.
    let (mut orderly, _) = Mqtt::connect(world.mqtt(), &hello(will(b"8 bytes."), "d@T")).await;
    orderly.send(&[0xE0, 0]).await;
    orderly.expect_end().await;
    drop(Mqtt::connect(world.mqtt(), &hello(will(b"8 bytes."), "d@T")).await);
    assert_eq!(watcher.message().await.text(), ("will/d", "8 bytes."));
    drop(Mqtt::connect(world.mqtt(), &hello(will(b"too many"), "d@T")).await);
    let refused = r#"millstream_connect_limit_refusals_total{limit="data-volume",tenant="T"} 1"#;
    found_async("the refusal", || world.metrics.text().contains(refused).then_some(())).await;
    assert_eq!(world.records(TopicKind::Mqtt, "T").len(), 1);
    // A device that may send nothing leaves no will either.
    world.do_registry("PUT /v1/devices/T/d", r#"{"ext":{"max-messages-per-second":0}}"#, 204).await;
    drop(Mqtt::connect(world.mqtt(), &hello(will(b"x"), "d@T")).await);
    let refused = r#"millstream_connect_limit_refusals_total{limit="device-rate",tenant="T"} 1"#;
    found_async("the refusal", || world.metrics.text().contains(refused).then_some(())).await;
    watcher.finish().await;
    world.stop().await;
    let world = World::open(dir.path()).await;
    let mut client = Mqtt::log_in(world.mqtt(), 5, "watcher@T").await;
    for (id, payload, code) in [(1, &b"123"[..], 0x97), (2, b"12", 0)] {
        client.publish(1, id, "a", payload).await;
        assert_eq!(client.next().await.1.get(2).copied().unwrap_or(0), code, "8 bytes are used");
    }
    client.finish().await;
    world.stop().await;
}
