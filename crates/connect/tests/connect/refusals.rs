//! Every status with which the adapter refuses a request, with its body.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use millstream_log::{Bell, LogConfig};
use millstream_testkit::mqtt::{Mqtt, publish};
use millstream_types::{TenantId, TopicKind, TopicName, TopicPartition};
use serde_json::json;

use crate::gate::{GatedFiles, log_has_no_files};
use crate::world::{Kept, World, basic, log_knows_consumers, quick};

/// Request, headers and body; status, value and rule of the refusal.
type Row<'a> = (&'a str, &'a [(&'a str, &'a str)], &'a [u8], u16, &'a str, &'a str);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_that_break_a_rule_are_refused_with_value_rule_and_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path()).await;
    world.register("T", "d").await;
    let presence = ("content-type", "application/vnd.eclipse-hono-empty-notification");
    let table: [Row<'_>; 12] = [
        ("POST /telemetry", &[("content-type", "text/ü")], b"x", 400, "text/ü", "a media type in ASCII"),
        ("POST /telemetry", &[("qos-level", "5")], b"x", 400, "5", "qos-level 0 (at most once) or 1"),
        ("POST /event", &[("qos-level", "0")], b"x", 400, "0", "qos-level 1 only"),
        ("POST /telemetry", &[("hono-ttd", "soon")], b"x", 400, "soon", "whole number of seconds"),
        ("POST /telemetry?hono-ttd=1.5", &[], b"x", 400, "1.5", "whole number of seconds"),
        ("POST /event", &[("hono-ttl", "x")], b"x", 400, "x", "whole number of seconds"),
        ("POST /event?hono-ttl=-1", &[], b"x", 400, "-1", "0 or more"),
        ("POST /telemetry", &[], b"", 400, "no Content-Type", "an empty body needs a Content-Type"),
        ("POST /event", &[("content-type", "")], b"", 400, "no Content-Type", "an empty body needs a Content-Type"),
        ("POST /event", &[presence], b"xyz", 400, "3 bytes", "has an empty body"),
        ("POST /telemetry", &[], &[b'B'; 2_049], 413, "2049", "connect.http.payload_max_bytes = 2048"),
        ("PUT /telemetry/U/d", &[], b"x", 403, "U", "this login is of tenant 'T'"),
    ];
    let login = basic("d@T", "pw");
    for (line, headers, body, status, value, rule) in table {
        let mut headers = headers.to_vec();
        headers.push(("authorization", &login));
        world.device(line, &headers, body).await.expect_refusal(line, "", status, value, rule);
    }
    let text = world.metrics.text();
    assert!(text.contains("status=\"unprocessable\",tenant=\"T\""), "refusals are counted: {text}");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn logins_that_are_not_right_are_refused_with_a_challenge() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path()).await;
    world.register("T", "d").await;
    let secrets = json!([
        {"type": "hashed-password", "auth-id": "off", "enabled": false, "secrets": [{"pwd-plain": "pw"}]},
        {"type": "hashed-password", "auth-id": "none"},
        {"type": "hashed-password", "auth-id": "dead", "secrets": [
            {"pwd-plain": "pw", "enabled": false},
            {"pwd-plain": "pw", "not-after": "2020-01-01T00:00:00Z"},
            {"pwd-plain": "pw", "not-before": "2999-01-01T00:00:00Z"}]},
    ]);
    world.do_registry("POST /v1/devices/T/e", "", 201).await;
    world.do_registry("PUT /v1/credentials/T/e", &secrets.to_string(), 204).await;
    let none = "enabled credential";
    for (header, value, rule) in [
        (None, "no Authorization header", "auth-id@tenant"),
        (Some("Bearer abc".to_owned()), "JWT", "typ JWT, a known alg"),
        (Some("Digest abc".to_owned()), "Digest", "neither HTTP Basic nor Bearer"),
        (Some("Basic ???".to_owned()), "Basic", "HTTP Basic"),
        (Some("Basic YWJj".to_owned()), "Basic", "base64 of auth-id@tenant:password"),
        (Some(basic("d@T", "PW")), "d@T", none),
        (Some(basic("d@T", "")), "d@T", none),
        (Some(basic("d@U", "pw")), "d@U", none),
        (Some(basic("d@/", "pw")), "d@/", none),
        (Some(basic("d", "pw")), "d@default", none),
        (Some(basic("x@T", "pw")), "x@T", none),
        (Some(basic("off@T", "pw")), "off@T", none),
        (Some(basic("none@T", "pw")), "none@T", none),
        (Some(basic("dead@T", "pw")), "dead@T", none),
    ] {
        let headers: Vec<_> = header.iter().map(|header| ("authorization", header.as_str())).collect();
        for line in ["POST /telemetry", "PUT /event/T/d", "PUT /telemetry//d"] {
            world.device(line, &headers, b"x").await.expect_refusal(line, "", 401, value, rule);
        }
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disabled_unknown_or_foreign_device_may_not_send() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path()).await;
    for device in ["d", "g"] {
        world.register("T", device).await;
    }
    world.do_registry("POST /v1/devices/T/behind", r#"{"via":["g"]}"#, 201).await;
    world.do_registry("POST /v1/devices/T/off", r#"{"via":["g"],"enabled":false}"#, 201).await;
    world.do_registry("POST /v1/devices/T/other", r#"{"via":["x"],"viaGroups":["y"]}"#, 201).await;
    let (device, gateway) = (basic("d@T", "pw"), basic("g@T", "pw"));
    let check = async |login: &str, line: &str, status: u16, value: &str, rule: &str| {
        world.device(line, &[("authorization", login)], b"x").await.expect_refusal(line, "", status, value, rule);
    };
    check(&gateway, "PUT /telemetry//unknown", 404, "unknown", "only an enabled device").await;
    check(&gateway, "PUT /event/T/off", 404, "off", "only an enabled device").await;
    check(&gateway, "PUT /event//other", 403, "other", "via of the device names 'g'").await;
    check(&device, "PUT /telemetry//behind", 403, "behind", "via of the device names 'd'").await;
    world.do_registry("PUT /v1/devices/T/d", r#"{"enabled":false}"#, 204).await;
    check(&device, "POST /telemetry", 404, "d", "only an enabled device").await;
    check(&device, "PUT /event//d", 404, "d", "only an enabled device").await;
    world.do_registry("PUT /v1/devices/T/g", r#"{"enabled":false}"#, 204).await;
    check(&gateway, "PUT /telemetry//behind", 403, "g", "an enabled device").await;
    for tenant in [
        r#"{"enabled":false}"#,
        r#"{"adapters":[{"type":"hono-mqtt","enabled":true}]}"#,
        r#"{"adapters":[{"type":"hono-http"}]}"#,
    ] {
        world.do_registry("PUT /v1/tenants/T", tenant, 204).await;
        check(&device, "POST /telemetry", 403, "T", "hono-http").await;
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_kind_of_temporary_refusal_has_its_own_text() {
    if log_has_no_files() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let files = GatedFiles::default();
    let mut config = quick();
    config.http.send_timeout_ms = 50;
    let log = LogConfig {
        journal_file_bytes: 64 << 10,
        journal_max_bytes: 256 << 10,
        append_max_bytes: 32 << 10,
        batch_max_bytes: 16 << 10,
        pending_max_bytes: 32 << 10,
        ..LogConfig::default()
    };
    let world = World::open_on(dir.path(), config, log, files.clone()).await;
    world.register("T", "d").await;
    let login = basic("d@T", "pw");
    let headers = [("authorization", login.as_str())];
    while world.device("POST /event", &headers, b"x").await.status != 202 {}
    files.shut();
    let slow = world.device("POST /telemetry", &[headers[0], ("qos-level", "1")], b"x").await;
    slow.expect_problem(503, "50 ms", "connect.http.send_timeout_ms = 50; the message may or may not be stored");
    assert!(slow.body.contains("not accepted in time"));
    world.device("POST /event", &headers, b"x").await.expect_problem(503, "50 ms", "not accepted in time");
    let mut full = None;
    for _ in 0..1_000 {
        let answer = world.device("POST /telemetry", &headers, &[b'B'; 2_000]).await;
        if answer.status != 202 {
            full = Some(answer);
            break;
        }
    }
    let full = full.expect("nothing can be written, so the queue is full some time");
    full.expect_problem(503, "log.pending_max_bytes", "nothing of this message was taken");
    assert!(full.body.contains("overloaded"));
    files.open_again();
    while world.device("POST /event", &headers, b"x").await.status != 202 {}
    files.break_down();
    let ended = world.device("POST /event", &headers, b"x").await;
    ended.expect_problem(503, "writing", "may or may not be stored");
    assert!(ended.body.contains("not accepted: the log takes no messages"));
    assert!(world.metrics.text().contains("status=\"undeliverable\",tenant=\"T\""), "counted as ours");
    world.stop_broken().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn telemetry_without_a_consumer_is_refused_where_the_tenant_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path()).await;
    world.register("T", "d").await;
    let login = basic("d@T", "pw");
    let telemetry = async |qos: &str| {
        let headers = [("authorization", login.as_str()), ("qos-level", qos)];
        // A query is not plain, so that both ways are gone.
        let plain = world.device("POST /telemetry", &headers, b"x").await;
        let other = world.device("POST /telemetry?hono-ttd=0", &headers, b"x").await;
        assert_eq!(plain.status, other.status, "{qos}: {} {}", plain.body, other.body);
        plain
    };
    let without_consumer = async |says: &str| {
        let ext = format!(r#"{{"ext":{{"telemetry-without-consumer":"{says}"}}}}"#);
        world.do_registry("PUT /v1/tenants/T", &ext, 204).await;
    };
    assert_eq!(telemetry("0").await.status, 202, "it is kept unless the tenant says otherwise");
    without_consumer("refused").await;
    if !log_knows_consumers() {
        assert_eq!((telemetry("0").await.status, telemetry("1").await.status), (202, 202), "it is kept in doubt");
        return world.stop().await;
    }
    // What the program itself reads with is no consumer.
    let topic = world.log.topic(&TopicName::reserved(TopicKind::Telemetry, &TenantId::new("T").unwrap())).unwrap();
    let partitions: Vec<_> = (0..topic.config.partitions)
        .map(|number| world.log.partition(&TopicPartition::new(topic.name.clone(), number)).unwrap())
        .collect();
    let own = Arc::new(Bell::default());
    partitions.iter().for_each(|partition| partition.watch(&own));
    for qos in ["0", "1"] {
        let refused = telemetry(qos).await;
        refused.expect_problem(503, "telemetry.T", "ext.telemetry-without-consumer of the tenant = \"refused\"");
        assert!(refused.body.contains("no consumer"), "{}", refused.body);
    }
    let mut client = Mqtt::log_in(world.mqtt(), 5, "d@T").await;
    client.send(&publish(5, 1, 7, "t", &[], b"x")).await;
    assert!(client.expect_end().await.is_some(), "as at any other error");
    assert_eq!(world.device("POST /event", &[("authorization", &login)], b"x").await.status, 202, "events are kept");
    let stored = world.records(TopicKind::Telemetry, "T").len();

    let consumer = Arc::new(Bell::of_consumer());
    partitions.iter().for_each(|partition| partition.watch(&consumer));
    assert_eq!((telemetry("0").await.status, telemetry("1").await.status), (202, 202));
    drop(consumer);
    assert_eq!(telemetry("1").await.status, 503);
    without_consumer("kept").await;
    assert_eq!(telemetry("1").await.status, 202);
    assert_eq!((stored, world.records(TopicKind::Telemetry, "T").len()), (2, 8), "nothing of what was refused");
    world.stop().await;
}

/// A server whose log is stuck and full for messages at most once, and a client that sends such messages.
async fn behind(dir: &Path, send_timeout_ms: u64) -> (World, GatedFiles, Mqtt) {
    let files = GatedFiles::default();
    let mut config = quick();
    config.mqtt.send_timeout_ms = send_timeout_ms;
    let log = LogConfig { pending_max_bytes: 2 << 20, append_max_bytes: 1 << 20, ..LogConfig::default() };
    let world = World::open_on(dir, config, log, files.clone()).await;
    world.register("T", "d").await;
    world.register("T", "other").await;
    let mut client = Mqtt::log_in(world.mqtt(), 5, "d@T").await;
    client.send(&[&publish(5, 0, 0, "t", &[], b"first")[..], &[0xc0, 0]].concat()).await;
    assert_eq!(client.next().await.0, 0xd0);
    files.shut();
    let login = basic("other@T", "pw");
    while world.device("POST /telemetry", &[("authorization", &login)], &[b'B'; 2_000]).await.status == 202 {}
    (world, files, client)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn qos_0_messages_stay_in_the_socket_while_the_log_is_behind() {
    if log_has_no_files() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (world, files, mut client) = behind(dir.path(), 600_000).await;
    let sent: Vec<u8> = (0..1_000).flat_map(|n| publish(5, 0, 0, "t", &[], format!("{n:01000}").as_bytes())).collect();
    let all = [&sent[..], &[0xc0, 0]].concat();
    let (first, rest) = all.split_at(16 << 10);
    client.send(first).await;
    let refused = tokio::time::timeout(Duration::from_millis(200), client.next_or_end()).await;
    assert!(refused.is_err(), "it is neither answered nor turned away: {refused:?}");
    // The system's buffers may be smaller than this.
    tokio::join!(client.send(rest), async { files.open_again() });
    assert_eq!(client.next().await, (0xd0, Vec::new()), "all have been taken");
    let records = world.records(TopicKind::Telemetry, "T");
    let taken: Vec<_> = records.iter().filter(|record| record.key == "d" && record.value.len() == 1_000).collect();
    assert_eq!(taken.len(), 1_000);
    let in_order = |(n, record): (usize, &&Kept)| record.value == format!("{n:01000}").as_bytes();
    assert!(taken.iter().enumerate().all(in_order));
    client.finish().await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_held_back_for_too_long_is_disconnected_as_server_busy() {
    if log_has_no_files() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (world, files, mut client) = behind(dir.path(), 50).await;
    // Who has nothing to say is not held back.
    client.send(&publish(5, 0, 0, "t", &[], b"late")).await;
    assert_eq!(client.expect_end().await, Some(0x89), "the server is busy");
    files.open_again();
    world.stop().await;
}
