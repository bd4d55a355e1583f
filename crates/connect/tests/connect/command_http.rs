//! Commands over HTTP: the matching rows of the reference's tables.

use std::sync::Arc;

use millstream_connect::{ConnectConfig, HttpAdapterConfig};
use millstream_testkit::found_async;
use millstream_types::{TopicKind, header};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::world::Answer;
use crate::world::{World, basic, quick};

/// Longer than any test takes.
const LONG: (&str, &str) = ("hono-ttd", "55");

/// Tenant `T` with device `d`, gateways `g` and `h`, and `behind` either.
async fn world(dir: &std::path::Path) -> Arc<World> {
    let world = World::open(dir).await;
    for device in ["d", "g", "h", "behind"] {
        world.register("T", device).await;
    }
    world.do_registry("PUT /v1/devices/T/behind", r#"{"via":["g","h"]}"#, 204).await;
    Arc::new(world)
}

async fn end(world: Arc<World>) {
    Arc::into_inner(world).unwrap().stop().await;
}

type Request = tokio::task::JoinHandle<Answer>;

/// Starts a request that waits for a command. It does not wait until the server has received the request.
fn begin(world: &Arc<World>, who: &str, line: &str, headers: &[(&'static str, &'static str)]) -> Request {
    let (world, line, login) = (Arc::clone(world), line.to_owned(), basic(&format!("{who}@T"), "pw"));
    let headers = headers.to_vec();
    tokio::spawn(async move {
        let mut headers = headers;
        headers.push(("qos-level", "1"));
        let mut all: Vec<(&str, &str)> = headers;
        all.push(("authorization", &login));
        world.device(&line, &all, b"x").await
    })
}

/// As [`begin`]; returns once applications see the message: then the device listens.
async fn listen(world: &Arc<World>, who: &str, line: &str) -> Request {
    let before = world.records(TopicKind::Telemetry, "T").len();
    let request = begin(world, who, line, &[LONG]);
    found_async("the message", || (world.records(TopicKind::Telemetry, "T").len() > before).then_some(())).await;
    request
}

fn sent(who: &str) -> String {
    basic(&format!("{who}@T"), "pw")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_ttd_holds_the_answer_for_a_command_and_the_response_reaches_the_application() {
    let dir = tempfile::tempdir().unwrap();
    let world = world(dir.path()).await;
    for (number, (line, name)) in
        [("POST /telemetry", "on"), ("PUT /telemetry/T/d", "off"), ("POST /telemetry?hono-ttd=50", "dim")]
            .iter()
            .enumerate()
    {
        // Whoever reacts to the message at once finds the device listening.
        let request = listen(&world, "d", line).await;
        let headers =
            [("subject", *name), ("correlation-id", *name), ("response-required", "true"), ("content-type", "text/c")];
        world.command("T", "d", &headers, b"input").await;
        let answer = request.await.unwrap();
        assert_eq!((answer.status, answer.body.as_str()), (200, "input"), "{line}: {answer:?}");
        assert_eq!(answer.header("hono-command"), Some(*name));
        assert_eq!(answer.header("content-type"), Some("text/c"));
        assert_eq!(answer.header("hono-cmd-target-device"), None);
        let id = answer.header("hono-cmd-req-id").unwrap();
        let path = [format!("POST /command/res/{id}"), format!("PUT /command/res/T/d/{id}")][number % 2].clone();
        let login = sent("d");
        let headers = [("authorization", login.as_str()), ("content-type", "text/r"), ("hono-cmd-status", "207")];
        let replied = world.device(&path, &headers, b"output").await;
        assert_eq!((replied.status, replied.body.as_str()), (202, ""), "{replied:?}");
        let records = world.answers("T", number + 1).await;
        let record = records.iter().find(|record| record.header("correlation-id") == Some(name)).unwrap();
        assert_eq!((record.key.as_str(), &*record.value), ("d", &b"output"[..]));
        for (header, value) in [
            (header::DEVICE_ID, "d"),
            ("tenant_id", "T"),
            ("status", "207"),
            (header::CONTENT_TYPE, "text/r"),
            (header::ORIG_ADAPTER, "hono-http"),
            (header::QOS, "1"),
        ] {
            assert_eq!(record.header(header), Some(value), "{header}");
        }
    }
    end(world).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_a_limit_refuses_does_not_end_the_wait_of_an_earlier_one() {
    let dir = tempfile::tempdir().unwrap();
    let world = world(dir.path()).await;
    let waiting = listen(&world, "d", "POST /telemetry").await;
    world.do_registry("PUT /v1/devices/T/d", r#"{"ext":{"max-messages-per-second":0}}"#, 204).await;
    let refused = begin(&world, "d", "POST /telemetry", &[LONG]).await.unwrap();
    refused.expect_problem(429, "d", "max-messages-per-second of the device");
    world.command("T", "d", &[("subject", "beep")], b"").await;
    let answer = waiting.await.unwrap();
    assert_eq!((answer.status, answer.header("hono-command")), (200, Some("beep")), "{answer:?}");
    end(world).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_one_way_has_no_request_id_and_ttd_that_runs_out_is_202() {
    let dir = tempfile::tempdir().unwrap();
    let world = world(dir.path()).await;
    let request = listen(&world, "d", "POST /telemetry").await;
    world.command("T", "d", &[("subject", "beep")], b"").await;
    let answer = request.await.unwrap();
    assert_eq!(
        (answer.status, answer.header("hono-command"), answer.header("hono-cmd-req-id")),
        (200, Some("beep"), None)
    );
    // Longer than a request may take without.
    let short = begin(&world, "d", "POST /telemetry", &[("hono-ttd", "1")]).await.unwrap();
    assert_eq!((short.status, short.body.as_str(), short.header("hono-command")), (202, "", None));
    let none = begin(&world, "d", "POST /telemetry", &[("hono-ttd", "-1")]).await.unwrap();
    assert_eq!(none.status, 202);
    world.ask_device("T", "d", "late", b"").await;
    assert_eq!(world.notice("T", "late").await, ("503".to_owned(), "released".to_owned()));
    let text = world.metrics.text();
    for (ttd, count) in [("command", 1), ("expired", 1), ("none", 1)] {
        let line = format!(
            "qos=\"AT_LEAST_ONCE\",status=\"forwarded\",tenant=\"T\",ttd=\"{ttd}\",type=\"telemetry\"}} {count}"
        );
        assert!(text.contains(&line), "{line} in {text}");
    }
    end(world).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_waits_may_take_longer_than_others() {
    let dir = tempfile::tempdir().unwrap();
    let http = HttpAdapterConfig { request_timeout_ms: 3_000, ..quick().http };
    let world = World::open_with(dir.path(), ConnectConfig { http, ..quick() }).await;
    world.register("T", "d").await;
    let world = Arc::new(world);
    let request = listen(&world, "d", "POST /telemetry").await;
    let begun = std::time::Instant::now();
    found_async("the time of other requests to be over", || (begun.elapsed().as_millis() > 3_000).then_some(())).await;
    world.ask_device("T", "d", "on", b"").await;
    let waited = request.await.unwrap();
    assert_eq!((waited.status, waited.header("hono-command")), (200, Some("on")), "{waited:?}");
    end(world).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_several_ttd_requests_of_a_device_the_latest_gets_the_command_the_others_end_with_202() {
    let dir = tempfile::tempdir().unwrap();
    let world = world(dir.path()).await;
    let mut requests = Vec::new();
    for _ in 0..3 {
        requests.push(listen(&world, "d", "POST /telemetry").await);
    }
    world.ask_device("T", "d", "on", b"1").await;
    let mut answers = Vec::new();
    for request in requests {
        answers.push(request.await.unwrap().status);
    }
    assert_eq!(answers, [202, 202, 200]);
    end(world).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_gateways_a_request_for_the_device_precedes_one_for_any_device() {
    let dir = tempfile::tempdir().unwrap();
    let world = world(dir.path()).await;
    let any = listen(&world, "g", "POST /telemetry").await;
    let exact = listen(&world, "h", "PUT /telemetry//behind").await;
    for (request, who, name) in [(exact, "h", "first"), (any, "g", "second")] {
        world.ask_device("T", "behind", name, b"").await;
        let answer = request.await.unwrap();
        assert_eq!((answer.status, answer.header("hono-command")), (200, Some(name)), "{answer:?}");
        assert_eq!(answer.header("hono-cmd-target-device"), Some("behind"));
        let id = answer.header("hono-cmd-req-id").unwrap();
        let login = sent(who);
        let headers = [("authorization", login.as_str())];
        let replied = world.device(&format!("PUT /command/res//behind/{id}?hono-cmd-status=200"), &headers, b"").await;
        assert_eq!(replied.status, 202, "{replied:?}");
    }
    let records = world.answers("T", 2).await;
    assert!(
        records.iter().all(|record| record.key == "behind" && record.header("status") == Some("200")),
        "{records:?}"
    );
    // The gateway's own commands come to its own request, and those of others' devices do not.
    let own = listen(&world, "g", "POST /telemetry").await;
    world.ask_device("T", "d", "stray", b"").await;
    assert_eq!(world.notice("T", "stray").await.0, "503");
    world.ask_device("T", "g", "own", b"").await;
    let answer = own.await.unwrap();
    assert_eq!((answer.header("hono-command"), answer.header("hono-cmd-target-device")), (Some("own"), None));
    end(world).await;
}

/// A connection whose request waits for a command to `d`.
async fn listening_socket(world: &World) -> TcpStream {
    let mut socket = TcpStream::connect(world.devices()).await.unwrap();
    let login = sent("d");
    let request = format!(
        "POST /telemetry HTTP/1.1\r\nhost: localhost\r\nauthorization: {login}\r\nhono-ttd: 55\r\ncontent-length: 1\r\n\r\nx"
    );
    socket.write_all(request.as_bytes()).await.unwrap();
    found_async("the message", || (!world.records(TopicKind::Telemetry, "T").is_empty()).then_some(())).await;
    socket
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_requests_are_answered_at_once_when_the_server_stops() {
    let dir = tempfile::tempdir().unwrap();
    let world = world(dir.path()).await;
    let mut socket = listening_socket(&world).await;
    end(world).await;
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 202 "), "{answer}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_goes_away_while_it_waits_swallows_no_command() {
    let dir = tempfile::tempdir().unwrap();
    let world = world(dir.path()).await;
    let socket = listening_socket(&world).await;
    drop(socket);
    // It waits for the next request, as the one that was there has gone.
    let left = "ttd=\"expired\",type=\"telemetry\"} 1";
    found_async("the end of the request", || world.metrics.text().contains(left).then_some(())).await;
    let headers = [("subject", "on"), ("ttl", "60000")];
    world.command("T", "d", &headers, b"kept").await;
    let answer = begin(&world, "d", "POST /telemetry", &[LONG]).await.unwrap();
    assert_eq!((answer.status, answer.body.as_str()), (200, "kept"));
    end(world).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_of_command_responses_routes_request_parts_and_status_codes() {
    let dir = tempfile::tempdir().unwrap();
    let world = world(dir.path()).await;
    for (line, body) in [
        ("POST /v1/devices/T/off", json!({"enabled": false, "via": ["g"]})),
        (
            "POST /v1/tenants/open",
            json!({"adapters": [{"type": "hono-http", "enabled": true, "device-authentication-required": false}]}),
        ),
        ("POST /v1/devices/open/d", json!({})),
    ] {
        world.do_registry(line, &body.to_string(), 201).await;
    }
    let (d_login, g_login) = (sent("d"), sent("g"));
    let id = world.request_id("T", "d", &[("authorization", &d_login)]).await;
    let behind_id = world.request_id("T", "behind", &[("authorization", &g_login)]).await;
    let open_id = world.request_id("open", "d", &[]).await;
    let (d, g, none) = (Some("d"), Some("g"), None);
    let post = |rest: &str| format!("POST /command/res/{id}{rest}");
    let put_id = |path: &str, id: &str| format!("PUT /command/res/{path}/{id}?hono-cmd-status=200");
    let put = |path: &str| put_id(path, &id);
    for (row, who, line, status) in [
        ("POST, the device itself", d, post("?hono-cmd-status=200"), 202),
        ("POST needs a login", none, post("?hono-cmd-status=200"), 401),
        ("PUT, a device for itself", d, put("T/d"), 202),
        ("PUT, a gateway", g, put_id("T/behind", &behind_id), 202),
        ("an empty tenant segment is the own tenant", g, put_id("/behind", &behind_id), 202),
        ("PUT without login where the adapter entry allows it", none, put_id("open/d", &open_id), 202),
        ("PUT without login elsewhere", none, put("T/d"), 401),
        ("hono-cmd-status missing", d, post(""), 400),
        ("hono-cmd-status 199", d, post("?hono-cmd-status=199"), 400),
        ("hono-cmd-status 3xx", d, post("?hono-cmd-status=302"), 400),
        ("hono-cmd-status 599", d, post("?hono-cmd-status=599"), 202),
        ("hono-cmd-status 600", d, post("?hono-cmd-status=600"), 400),
        ("hono-cmd-status, no number", d, post("?hono-cmd-status=2x0"), 400),
        ("a request id that was not given", d, "POST /command/res/nonsense?hono-cmd-status=200".to_owned(), 400),
        ("503 a command that never was", d, put_id("T/d", "2AAAAAGM"), 503),
        ("503 the command of another device", d, put_id("T/d", &behind_id), 503),
        ("503 the command of a gateway's other device", g, put("/behind"), 503),
        ("503 the command of another tenant", d, put_id("T/d", &open_id), 503),
        ("503 the command of another tenant, without login", none, put("open/d"), 503),
        ("403 not in via", g, put("/d"), 403),
        ("403 another tenant", d, put("open/d"), 403),
        ("404 unknown", g, put("/nobody"), 404),
        ("404 disabled", g, put("/off"), 404),
    ] {
        let login = who.map(sent);
        let mut headers: Vec<_> = login.iter().map(|login| ("authorization", login.as_str())).collect();
        let answer = world.device(&line, &headers, b"x").await;
        assert_eq!(answer.status, status, "{row}: {answer:?}");
        assert!(status == 202 || answer.json()["error"].is_string(), "{row}: {answer:?}");
        // hyper reads a request whose client asks whether to send the body.
        headers.push(("expect", "100-continue"));
        let other = world.device(&line, &headers, b"x").await;
        assert_eq!((other.status, &other.body), (answer.status, &answer.body), "{row}");
    }
    let login = sent("d");
    let headers = [("authorization", login.as_str())];
    let large = world.device(&post("?hono-cmd-status=200"), &headers, &[b'x'; 2_049]).await;
    assert_eq!(large.status, 413);
    let refused = world.device(&post("?hono-cmd-status=302"), &headers, b"x").await;
    refused.expect_problem(400, "302", "200 to 299 or 400 to 599");
    let refused = world.device(&put_id("T/d", &behind_id), &headers, b"x").await;
    let told = refused.json()["error"].as_str().unwrap().to_owned();
    assert!(told.contains("nobody waits for this command response") && told.contains(&behind_id), "{told}");
    assert_eq!(refused.header("retry-after"), None, "sending it again does not help");
    let text = world.metrics_text();
    let line = "direction=\"response\",host=\"HERE\",status=\"forwarded\",tenant=\"T\"} ";
    assert!(
        text.lines().any(|known| known.starts_with("hono_command_payload_bytes_count") && known.contains(line)),
        "{text}"
    );
    end(world).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_of_preflights_of_command_responses_and_of_exposed_headers() {
    let dir = tempfile::tempdir().unwrap();
    let world = world(dir.path()).await;
    for (path, method) in [("/command/res/1", "POST"), ("/command/res/T/d/1", "PUT"), ("/command/res//d/1", "PUT")] {
        let asked = [("origin", "http://page"), ("access-control-request-method", method)];
        let answer = world.device(&format!("OPTIONS {path}"), &asked, b"").await;
        assert_eq!(answer.status, 204, "{path}: {answer:?}");
        let allowed = answer.header("access-control-allow-headers");
        assert_eq!(allowed, Some("authorization, content-type, hono-cmd-status"), "{path}");
        assert!(answer.header("access-control-allow-methods").unwrap().contains(method));
    }
    let login = sent("d");
    let headers = [("authorization", login.as_str()), ("origin", "http://page")];
    let answer = world.device("POST /telemetry", &headers, b"x").await;
    let exposed = answer.header("access-control-expose-headers");
    assert_eq!(exposed, Some("hono-command, hono-cmd-req-id, hono-cmd-target-device"));
    end(world).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn responses_count_as_volume_and_as_messages_a_second_and_go_on_doing_so_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path()).await;
    world.register("T", "d").await;
    let limits = r#"{"resource-limits":{"data-volume":{"max-bytes":10,"period":{"mode":"days","no-of-days":1}}}}"#;
    world.do_registry("PUT /v1/tenants/T", limits, 204).await;
    let login = sent("d");
    let headers = [("authorization", login.as_str()), ("hono-cmd-status", "200")];
    let line = &format!("POST /command/res/{}", world.request_id("T", "d", &headers[..1]).await);
    assert_eq!(world.device(line, &headers, b"sixteen bytes ..").await.status, 429);
    assert_eq!(world.device(line, &headers, b"8 bytes.").await.status, 202);
    assert_eq!(world.device(line, &headers, b"3 b").await.status, 429);
    world.stop().await;
    let world = World::open(dir.path()).await;
    assert_eq!(world.device(line, &headers, b"3 b").await.status, 429);
    assert_eq!(world.device(line, &headers, b"2b").await.status, 202);
    world.stop().await;
}
