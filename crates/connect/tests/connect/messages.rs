//! From a device's request to the record that applications read.

use millstream_connect::{ConnectConfig, HttpAdapterConfig};
use millstream_log::AckLevel;
use millstream_testkit::mqtt::{Mqtt, publish};
use millstream_types::{TenantId, TopicKind, TopicName, header};
use serde_json::json;

use crate::world::{Kept, World, basic, quick};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_messages_of_a_device_arrive_in_order_with_their_headers() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path()).await;
    world.register("T", "d").await;
    let login = basic("d@T", "pw");
    for n in 0..100 {
        let headers = [("authorization", login.as_str()), ("content-type", "text/plain")];
        let sent = world.device("POST /telemetry", &headers, n.to_string().as_bytes()).await;
        assert_eq!((sent.status, sent.body.as_str()), (202, ""));
    }
    let records = world.records(TopicKind::Telemetry, "T");
    let values: Vec<_> = records.iter().map(|record| String::from_utf8_lossy(&record.value).into_owned()).collect();
    assert_eq!(values, (0..100).map(|n| n.to_string()).collect::<Vec<_>>());
    for record in &records {
        assert_eq!(record.key, "d");
        for (name, expected) in [
            (header::DEVICE_ID, "d"),
            (header::CONTENT_TYPE, "text/plain"),
            (header::ORIG_ADAPTER, "hono-http"),
            (header::ORIG_ADDRESS, "/telemetry"),
            (header::QOS, "0"),
        ] {
            assert_eq!(record.header(name), Some(expected));
        }
        assert!(record.header(header::CREATION_TIME).unwrap().parse::<u64>().unwrap() > 1_600_000_000_000);
        assert_eq!((record.header(header::TTD), record.header(header::TTL)), (None, None));
    }
    let text = world.metrics_text();
    let forwarded = "hono_telemetry_processing_duration_seconds_count{component_name=\"hono-http\",component_type=\"adapter\",host=\"HERE\",qos=\"AT_MOST_ONCE\",status=\"forwarded\",tenant=\"T\",ttd=\"none\",type=\"telemetry\"} 100";
    assert!(text.lines().any(|line| line == forwarded), "{text}");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn accepted_qos_1_messages_and_events_survive_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path()).await;
    world.register("T", "d").await;
    let login = basic("d@T", "pw");
    for (line, qos) in [("POST /telemetry", "1"), ("PUT /telemetry/T/d", "1"), ("POST /event", "1")] {
        let headers = [("authorization", login.as_str()), ("qos-level", qos)];
        assert_eq!(world.device(line, &headers, line.as_bytes()).await.status, 202, "{line}");
    }
    let headers = [("authorization", login.as_str())];
    assert_eq!(world.device("PUT /event//d", &headers, b"PUT /event//d").await.status, 202);
    for (kind, level) in [(TopicKind::Telemetry, AckLevel::Written), (TopicKind::Event, AckLevel::Synced)] {
        let topic = world.log.topic(&TopicName::reserved(kind, &TenantId::new("T").unwrap())).unwrap();
        assert_eq!((topic.config.level, topic.config.partitions), (level, 4));
    }
    world.stop().await;
    let world = World::open(dir.path()).await;
    for (kind, expected) in [
        (TopicKind::Telemetry, [("POST /telemetry", "/telemetry"), ("PUT /telemetry/T/d", "/telemetry/T/d")]),
        (TopicKind::Event, [("POST /event", "/event"), ("PUT /event//d", "/event//d")]),
    ] {
        let records = world.records(kind, "T");
        assert_eq!(records.len(), 2);
        for (record, (payload, address)) in records.iter().zip(expected) {
            assert_eq!(record.value, payload.as_bytes());
            assert_eq!(record.header(header::ORIG_ADDRESS), Some(address));
            assert_eq!(record.header(header::QOS), Some("1"));
        }
    }
    assert_eq!(world.device("POST /event", &headers, b"x").await.status, 202, "the registry is there again, too");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_sends_for_the_devices_behind_it() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path()).await;
    world.register("T", "g").await;
    world.do_registry("PUT /v1/devices/T/g", r#"{"memberOf":["roof"]}"#, 204).await;
    world.do_registry("POST /v1/devices/T/by-name", r#"{"via":["x","g"]}"#, 201).await;
    world.do_registry("POST /v1/devices/T/by-group", r#"{"viaGroups":["cellar","roof"]}"#, 201).await;
    let login = basic("g@T", "pw");
    let headers = [("authorization", login.as_str())];
    for line in ["PUT /telemetry//by-name", "PUT /telemetry/T/by-name", "PUT /telemetry//by-group", "PUT /telemetry//g"]
    {
        assert_eq!(world.device(line, &headers, b"x").await.status, 202, "{line}");
    }
    let mut keys: Vec<_> = world.records(TopicKind::Telemetry, "T").into_iter().map(|record| record.key).collect();
    keys.sort();
    assert_eq!(keys, ["by-group", "by-name", "by-name", "g"]);
    world.stop().await;
}

/// Sends one message and returns its record.
async fn sent(world: &World, line: &str, headers: &[(&str, &str)], body: &[u8]) -> Kept {
    let login = basic("d@T", "pw");
    let mut headers = headers.to_vec();
    headers.push(("authorization", &login));
    let answer = world.device(line, &headers, body).await;
    assert_eq!(answer.status, 202, "{line} {headers:?}: {answer:?}");
    let kind = if line.contains("event") { TopicKind::Event } else { TopicKind::Telemetry };
    world.records(kind, "T").pop().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_headers_come_from_the_device_then_from_its_tenant() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path()).await;
    world.register("T", "d").await;
    assert_eq!(
        sent(&world, "POST /event", &[], b"x").await.header(header::CONTENT_TYPE),
        Some("application/octet-stream")
    );
    let tenant = json!({"defaults": {"content-type": "text/t", "ttl": 50, "site": "t", "hall": "t", "qos": "9"}});
    world.do_registry("PUT /v1/tenants/T", &tenant.to_string(), 204).await;
    let record = sent(&world, "POST /event", &[], b"x").await;
    for (name, value) in [(header::CONTENT_TYPE, "text/t"), (header::TTL, "50000"), ("site", "t"), (header::QOS, "1")] {
        assert_eq!(record.header(name), Some(value), "{name}");
    }
    let device = json!({"defaults": {"content-type": "text/d", "ttl": 20, "site": "d"}});
    world.do_registry("PUT /v1/devices/T/d", &device.to_string(), 204).await;
    let record = sent(&world, "POST /telemetry", &[], b"x").await;
    for (name, value) in [(header::CONTENT_TYPE, "text/d"), (header::TTL, "20000"), ("site", "d"), ("hall", "t")] {
        assert_eq!(record.header(name), Some(value), "{name}");
    }
    assert_eq!(record.headers.iter().filter(|(name, _)| name == "site").count(), 1);
    let record = sent(&world, "POST /event", &[("content-type", "a/b"), ("hono-ttl", "7")], b"x").await;
    assert_eq!((record.header(header::CONTENT_TYPE), record.header(header::TTL)), (Some("a/b"), Some("7000")));
    let limited = json!({"resource-limits": {"max-ttl": 5, "max-ttl-telemetry-qos0": 3, "max-ttl-telemetry-qos1": 4}});
    world.do_registry("PUT /v1/tenants/T", &limited.to_string(), 204).await;
    world.do_registry("PUT /v1/devices/T/d", "{}", 204).await;
    for (line, headers, ttl) in [
        ("POST /event", &[("hono-ttl", "7")][..], "5000"),
        ("POST /event?hono-ttl=2", &[], "2000"),
        ("POST /event", &[], "5000"),
        ("POST /telemetry", &[], "3000"),
        ("POST /telemetry", &[("qos-level", "1")], "4000"),
    ] {
        assert_eq!(sent(&world, line, headers, b"x").await.header(header::TTL), Some(ttl), "{line} {headers:?}");
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_a_body_that_is_an_empty_notification_by_default_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path()).await;
    world.register("T", "d").await;
    let defaults = json!({"defaults": {"content-type": "application/vnd.eclipse-hono-empty-notification"}}).to_string();
    let login = basic("d@T", "pw");
    let (login, typed) = (("authorization", login.as_str()), ("content-type", "text/plain"));
    for line in ["PUT /v1/tenants/T", "PUT /v1/devices/T/d"] {
        world.do_registry(line, &defaults, 204).await;
        let refused = world.device("POST /event", &[login], b"xyz").await;
        refused.expect_problem(400, "3 bytes", "an empty notification has an empty body");
        assert_eq!(world.device("POST /event", &[login, typed], b"xyz").await.status, 202);
        let mut client = Mqtt::log_in(world.mqtt(), 5, "d@T").await;
        // What is sent beside it is taken.
        let typed = publish(5, 1, 1, "e/?on-error=ignore&content-type=a/b", &[], b"x");
        let untyped = publish(5, 1, 2, "e/?on-error=skip-ack", &[], b"x");
        client.send(&[typed, untyped, vec![0xC0, 0]].concat()).await;
        let mut got = [client.next().await.0, client.next().await.0];
        got.sort_unstable();
        assert_eq!(got, [0x40, 0xD0]);
        world.do_registry(line, "{}", 204).await;
    }
    assert_eq!(world.records(TopicKind::Event, "T").len(), 4);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_time_that_a_device_waits_for_a_command_is_noted_and_limited() {
    let dir = tempfile::tempdir().unwrap();
    // The answers come when the times are over.
    let http = HttpAdapterConfig { ttd_max_s: 2, ..quick().http };
    let world = World::open_with(dir.path(), ConnectConfig { http, ..quick() }).await;
    world.register("T", "d").await;
    let ttd = |record: Kept| record.header(header::TTD).map(str::to_owned);
    for (line, given, noted) in [
        ("POST /telemetry", Some("2"), Some("2")),
        ("POST /telemetry?x=1&hono-ttd=1", None, Some("1")),
        ("POST /event", Some("1000"), Some("2")),
        ("POST /telemetry", Some("0"), None),
        ("POST /telemetry", Some("-1"), None),
    ] {
        let headers: Vec<_> = given.map(|seconds| ("hono-ttd", seconds)).into_iter().collect();
        assert_eq!(ttd(sent(&world, line, &headers, b"x").await).as_deref(), noted, "{line} {given:?}");
    }
    let tenant = r#"{"adapters":[{"type":"hono-http","enabled":true,"max-ttd":1}]}"#;
    world.do_registry("PUT /v1/tenants/T", tenant, 204).await;
    assert_eq!(ttd(sent(&world, "POST /telemetry", &[("hono-ttd", "2")], b"x").await).as_deref(), Some("1"));
    let presence = [("content-type", "application/vnd.eclipse-hono-empty-notification"), ("hono-ttd", "1")];
    let record = sent(&world, "POST /event", &presence, b"").await;
    assert_eq!((record.value.len(), record.header(header::TTD)), (0, Some("1")));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_trace_of_a_request_goes_into_its_record() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path()).await;
    world.register("T", "d").await;
    let given = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let record = sent(&world, "POST /telemetry", &[("traceparent", given)], b"x").await;
    let noted = record.header(header::TRACEPARENT).unwrap();
    assert_eq!((&noted[..36], &noted[52..]), (&given[..36], &given[52..]));
    assert_ne!(noted, given, "the record is caused by a span of the server");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_of_tracing_the_mode_of_the_tenant_or_the_auth_id_decides() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path()).await;
    for device in ["d", "e"] {
        world.register("T", device).await;
    }
    let given = |flags: &str| format!("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-{flags}");
    let of_e = |mode: &str| json!({"sampling-mode": mode, "sampling-mode-per-auth-id": {"e": "all", "x": "none"}});
    for (tracing, device, by_caller, over_mqtt) in [
        (json!({}), "d", ["00", "01"], None),
        (json!({"sampling-mode": "default"}), "d", ["00", "01"], None),
        (json!({"sampling-mode": "all"}), "d", ["01", "01"], Some("01")),
        (json!({"sampling-mode": "none"}), "d", ["00", "00"], None),
        (of_e("none"), "d", ["00", "00"], None),
        (of_e("none"), "e", ["01", "01"], Some("01")),
        (json!({"sampling-mode": "all", "sampling-mode-per-auth-id": {"e": "none"}}), "e", ["00", "00"], None),
    ] {
        world.do_registry("PUT /v1/tenants/T", &json!({"tracing": tracing}).to_string(), 204).await;
        let last = || {
            let records = world.records(TopicKind::Telemetry, "T");
            let mut of_device = records.iter().filter(|record| record.key == device);
            of_device.next_back().unwrap().header(header::TRACEPARENT).map(str::to_owned)
        };
        for (caller, noted) in ["00", "01"].into_iter().zip(by_caller) {
            let (login, trace) = (basic(&format!("{device}@T"), "pw"), given(caller));
            let headers = [("authorization", login.as_str()), ("traceparent", trace.as_str()), ("qos-level", "1")];
            assert_eq!(world.device("POST /telemetry", &headers, b"x").await.status, 202);
            let told = last().unwrap();
            assert_eq!((&told[..36], &told[53..]), (&trace[..36], noted), "{device}, {caller}: {tracing}");
        }
        let mut client = Mqtt::log_in(world.mqtt(), 5, &format!("{device}@T")).await;
        client.publish(1, 1, "telemetry", b"x").await;
        assert_eq!(client.next().await, (0x40, vec![0, 1]));
        let told = last();
        assert_eq!(told.as_ref().map(|told| &told[53..]), over_mqtt, "{device}: {tracing}");
        assert!(told.is_none_or(|told| told.len() == 55 && told[..36] != given("01")[..36]), "a trace of its own");
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn devices_send_without_login_where_their_tenant_or_else_the_adapter_allows_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = quick();
    config.http.authentication_required = false;
    let world = World::open_with(dir.path(), config).await;
    assert!(world.connect.device_authenticator().open_remedy().is_some_and(|told| told.contains("connect.http")));
    let entry = |required: bool| json!({"adapters": [{"type": "hono-http", "enabled": true, "device-authentication-required": required}]});
    for (tenant, body, status) in [("open", entry(false), 202), ("shut", entry(true), 401), ("silent", json!({}), 202)]
    {
        world.do_registry(&format!("POST /v1/tenants/{tenant}"), &body.to_string(), 201).await;
        world.do_registry(&format!("POST /v1/devices/{tenant}/d"), "", 201).await;
        let line = format!("PUT /telemetry/{tenant}/d");
        assert_eq!(world.device(&line, &[], b"x").await.status, status, "{tenant}");
    }
    assert_eq!(world.records(TopicKind::Telemetry, "open")[0].key, "d");
    world.device("PUT /telemetry/open/e", &[], b"x").await.expect_problem(404, "e", "enabled device");
    for line in ["POST /telemetry", "PUT /telemetry//d", "PUT /telemetry/unknown/d"] {
        world.device(line, &[], b"x").await.expect_problem(401, "no Authorization", "auth-id@tenant");
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_may_ask_which_headers_they_may_send() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path()).await;
    for (path, allowed) in [
        ("/telemetry", "authorization, content-type, hono-ttd, qos-level"),
        ("/telemetry/T/d", "authorization, content-type, hono-ttd, qos-level"),
        ("/event//d", "authorization, content-type, hono-ttd, hono-ttl"),
    ] {
        let headers = [("origin", "http://page"), ("access-control-request-method", "POST")];
        let answer = world.device(&format!("OPTIONS {path}"), &headers, b"").await;
        assert_eq!(answer.status, 204, "{path}");
        assert_eq!(answer.header("access-control-allow-origin"), Some("*"));
        assert_eq!(answer.header("access-control-allow-headers"), Some(allowed), "{path}");
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_that_was_deleted_is_made_again_by_the_next_message() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path()).await;
    world.register("T", "d").await;
    sent(&world, "POST /telemetry", &[], b"before").await;
    let log = world.log.log();
    let name = TopicName::reserved(TopicKind::Telemetry, &TenantId::new("T").unwrap());
    tokio::task::spawn_blocking(move || log.delete_topic(&name).unwrap()).await.unwrap();
    sent(&world, "POST /telemetry", &[], b"after").await;
    let values: Vec<_> = world.records(TopicKind::Telemetry, "T").into_iter().map(|record| record.value).collect();
    assert_eq!(values, [b"after"]);
    world.stop().await;
}
