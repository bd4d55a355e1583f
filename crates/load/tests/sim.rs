//! Simulated devices against a real server that answers, stalls, refuses and hangs up.

mod support;

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use clap::Parser;
use millstream_load::FailureKind;
use millstream_load::sim::{self, Backlog, SimArgs, SimReport};
use parking_lot::Mutex;
use serde_json::{Value, json};
use support::{Reaction, Seen, Server};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

const ACCEPTED: Reaction = Reaction::Answer(202, "");

fn args(server: &Server, line: &str) -> SimArgs {
    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        args: SimArgs,
    }
    let parsed = Command::parse_from(["sim"].into_iter().chain(line.split_whitespace())).args;
    SimArgs { devices_url: Some(server.url.clone()), registry_url: server.url.clone(), ..parsed }
}

async fn measure(server: &Server, line: &str) -> SimReport {
    sim::measure(&args(server, line), &CancellationToken::new(), |_| {}).await.expect("the test is set up right")
}

/// Keeps, per device, how many requests are under way and which message counts have come.
#[derive(Default)]
struct Watcher {
    under_way: HashMap<String, u64>,
    counts: HashMap<String, Vec<u64>>,
    overlaps: u64,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_never_overlaps_itself_and_keeps_its_order_in_both_loops() {
    for pacing in ["--loop closed --period 0", "--loop open --period 1ms"] {
        let watcher = Arc::new(Mutex::new(Watcher::default()));
        let connections = Arc::new(OnceLock::<Arc<AtomicU64>>::new());
        let server = Server::start({
            let (watcher, connections) = (watcher.clone(), connections.clone());
            move |seen: Seen| {
                let (watcher, connections) = (watcher.clone(), connections.clone());
                async move {
                    let payload: Value = serde_json::from_slice(&seen.body).expect("the test is set up right");
                    let count = payload["n"].as_u64().expect("the test is set up right");
                    {
                        let mut watcher = watcher.lock();
                        let under_way = watcher.under_way.entry(seen.path.clone()).or_default();
                        *under_way += 1;
                        let overlaps = *under_way > 1;
                        watcher.overlaps += u64::from(overlaps);
                        watcher.counts.entry(seen.path.clone()).or_default().push(count);
                    }
                    // Connections that are open early, and the devices of a thread that runs early, would send the whole
                    // count before the others are there.
                    while connections.get().is_none_or(|open| open.load(Ordering::Relaxed) < 4)
                        || count > 0 && watcher.lock().counts.len() < 20
                    {
                        tokio::task::yield_now().await;
                    }
                    tokio::task::yield_now().await;
                    *watcher.lock().under_way.entry(seen.path).or_default() -= 1;
                    ACCEPTED
                }
            }
        })
        .await;
        connections.set(server.connections.clone()).expect("the test is set up right");
        let line = format!("-n 20 -c 4 --threads 2 --count 2000 --template {{\"n\":${{count}}}} {pacing}");
        let report = measure(&server, &line).await;
        let watcher = watcher.lock();
        assert_eq!((report.sent, report.accepted, report.failed(), watcher.overlaps), (2000, 2000, 0, 0), "{pacing}");
        assert_eq!(server.connections.load(Ordering::Relaxed), 4, "{pacing}");
        assert_eq!(watcher.counts.len(), 20, "{pacing}");
        for (device, counts) in &watcher.counts {
            assert!(counts.iter().copied().eq(0..counts.len() as u64), "{pacing} {device}: {counts:?}");
        }
    }
}

/// Runs one device against a server that holds its first answer until `release` says so.
async fn stalled(line: &str, release: impl Fn(sim::SimProgress) -> bool) -> SimReport {
    let (go, held) = watch::channel(false);
    let server = Server::start(move |_| {
        let mut held = held.clone();
        async move {
            held.wait_for(|go| *go).await.expect("the test is set up right");
            ACCEPTED
        }
    })
    .await;
    let observe = |progress| {
        if release(progress) {
            go.send_replace(true);
        }
    };
    sim::measure(&args(&server, line), &CancellationToken::new(), observe).await.expect("the test is set up right")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_open_loop_counts_a_stall_against_every_message_that_it_held_up() {
    let line = "-n 1 --loop open --period 10ms --count 20 --timeout 1m";
    let report = stalled(line, |progress| progress.backlog >= 10).await;
    assert_eq!((report.accepted, report.backlog.at_end), (20, 0));
    assert!(report.backlog.max >= 10, "{:?}", report.backlog);
    // Ten that are due and not sent: the first of them is 90 ms late, the second 80 ms, the third 70 ms, whatever else
    // holds this test up. (The timer's own lateness, at most 2 ms, is not counted.)
    assert!(report.latency_ms.max >= 88.0 && report.latency_ms.p90 >= Some(68.0), "{:?}", report.latency_ms);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_closed_loop_sends_nothing_during_a_stall_and_has_no_backlog() {
    let line = "-n 1 --period 10ms --count 20 --timeout 1m";
    let report = stalled(line, |progress| progress.elapsed.as_millis() >= 100).await;
    assert_eq!((report.accepted, report.backlog), (20, Backlog::default()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_still_due_at_the_end_are_backlog() {
    let line = "-n 1 --loop open --period 10ms --duration 300ms --timeout 1m";
    let report = stalled(line, |progress| progress.elapsed.as_millis() >= 300).await;
    assert!(report.sent <= 1, "the server holds the first answer until the end");
    assert_eq!(report.sent + report.backlog.at_end, 30);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failures_are_counted_by_status_or_cause() {
    let reactions = [ACCEPTED, Reaction::Busy, Reaction::Answer(429, "too fast"), Reaction::Close];
    let number = Arc::new(AtomicU64::new(0));
    let server = Server::start(move |_| {
        let reaction = reactions[number.fetch_add(1, Ordering::Relaxed) as usize % 4].clone();
        async move { reaction }
    })
    .await;
    let report = measure(&server, "-n 8 --period 0 --count 400").await;
    let expected =
        BTreeMap::from([(FailureKind::Status(503), 100), (FailureKind::Status(429), 100), (FailureKind::Lost, 100)]);
    assert_eq!((report.sent, report.accepted, report.failures), (400, 100, expected));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_does_not_come_in_time_is_a_timeout() {
    let server = Server::start(|_| std::future::pending()).await;
    let report = measure(&server, "-n 3 --period 0 --count 3 --timeout 20ms").await;
    assert_eq!((report.accepted, report.failures), (0, BTreeMap::from([(FailureKind::Timeout, 3)])));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_not_there_is_a_failure_to_connect() {
    let mut gone = Server::start(|_| async { ACCEPTED }).await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("the test is set up right");
    gone.url = format!("http://{}", listener.local_addr().expect("the test is set up right"));
    drop(listener);
    let report = measure(&gone, "-n 5 --period 0 --count 5").await;
    assert_eq!((report.sent, report.failures), (5, BTreeMap::from([(FailureKind::Connect, 5)])));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelling_ends_the_run_with_the_figures_until_then() {
    let server = Server::start(|_| async { ACCEPTED }).await;
    let stop = CancellationToken::new();
    let observe = |progress: sim::SimProgress| {
        if progress.accepted >= 10 {
            stop.cancel();
        }
    };
    let report = sim::measure(&args(&server, "-n 10 --period 5ms --duration 1h"), &stop, observe)
        .await
        .expect("the test is set up right");
    assert!(report.accepted >= 10 && report.sent == report.accepted, "{report:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_warm_up_is_sent_but_not_counted() {
    let received = Arc::new(AtomicU64::new(0));
    let count = received.clone();
    let server = Server::start(move |_| {
        count.fetch_add(1, Ordering::Relaxed);
        async { ACCEPTED }
    })
    .await;
    // All of them are sent long before the warm-up is over.
    let report = measure(&server, "-n 10 --period 0 --count 50 --warm-up 1h").await;
    assert_eq!((report.sent, received.load(Ordering::Relaxed)), (0, 50));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn devices_send_json_unless_told_otherwise() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = seen.clone();
    let server = Server::start(move |request| {
        log.lock().push(request);
        async { ACCEPTED }
    })
    .await;
    measure(&server, "-n 1 --period 0 --count 2").await;
    let seen = seen.lock();
    assert_eq!(seen.len(), 2);
    for (count, request) in seen.iter().enumerate() {
        let payload: Value = serde_json::from_slice(&request.body).unwrap();
        assert_eq!((&request.headers["content-type"][..], &payload["count"]), ("application/json", &json!(count)));
        assert!(payload["temperature"].is_number(), "{payload}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_look_as_the_devices_http_interface_expects() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = seen.clone();
    let server = Server::start(move |request| {
        log.lock().push(request);
        async { ACCEPTED }
    })
    .await;
    for line in ["--tenant acme --qos 1", "--method post --kind event --qos 1", "--auth none"] {
        measure(&server, &format!("-n 1 --period 0 --count 1 --payload-bytes 3 {line}")).await;
    }
    let seen: Vec<_> = seen.lock().iter().map(describe).collect();
    insta::assert_snapshot!(seen.join("\n"), @r#"
    PUT /telemetry/acme/sim-0 b"BBB" application/octet-stream | 1 | Basic c2ltLTBAYWNtZTpzZWNyZXQ=
    POST /event b"BBB" application/octet-stream | - | Basic c2ltLTBAZGVmYXVsdDpzZWNyZXQ=
    PUT /telemetry/default/sim-0 b"BBB" application/octet-stream | - | -
    "#);
}

fn describe(seen: &Seen) -> String {
    let header = |name: &str| seen.headers.get(name).map_or("-", String::as_str);
    let headers = ["content-type", "qos-level", "authorization"].map(header).join(" | ");
    format!("{} {} {:?} {headers}", seen.method, seen.path, seen.body)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn registering_creates_tenant_devices_and_credentials_and_keeps_existing_ones() {
    let seen = Arc::new(Mutex::new(BTreeMap::new()));
    let log = seen.clone();
    let server = Server::start(move |request: Seen| {
        let status = match (request.method.as_str(), request.path.as_str()) {
            ("POST", "/v1/devices/acme/d1") => 409,
            ("POST", _) => 201,
            _ => 204,
        };
        assert_eq!(request.headers["content-type"], "application/json");
        assert_eq!(request.headers["authorization"], "Bearer token");
        let body: Value = serde_json::from_slice(&request.body).expect("the test is set up right");
        log.lock().insert(format!("{} {}", request.method, request.path), body);
        async move { Reaction::Answer(status, "") }
    })
    .await;
    let line = "-n 3 --device-prefix d --tenant acme --registry-token token --secret plain --password pw";
    let mut registered = 0;
    sim::register(&args(&server, line), &CancellationToken::new(), |done| registered = done)
        .await
        .expect("the test is set up right");
    assert_eq!(registered, 3);
    let seen = seen.lock();
    assert_eq!(seen.len(), 7);
    let credentials = json!([{ "type": "hashed-password", "auth-id": "d2", "secrets": [{ "pwd-plain": "pw" }] }]);
    assert_eq!(seen["PUT /v1/credentials/acme/d2"], credentials);
    assert_eq!((&seen["POST /v1/tenants/acme"], &seen["POST /v1/devices/acme/d0"]), (&json!({}), &json!({})));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_registry_that_refuses_is_named_with_path_status_and_answer() {
    let server = Server::start(|request: Seen| async move {
        match request.path.starts_with("/v1/credentials") {
            true => Reaction::Answer(403, r#"{"error":"not an admin"}"#),
            false => Reaction::Answer(201, ""),
        }
    })
    .await;
    let error = sim::register(&args(&server, "-n 1"), &CancellationToken::new(), |_| {}).await.unwrap_err();
    let expected = r#"PUT /v1/credentials/default/sim-0 was answered with 403: {"error":"not an admin"}"#;
    assert_eq!(error.to_string(), expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_command_writes_its_result_as_json() {
    let server =
        Server::start(
            |request: Seen| async move { Reaction::Answer(if request.method == "POST" { 201 } else { 204 }, "") },
        )
        .await;
    let folder = tempfile::tempdir().expect("the test is set up right");
    let path = folder.path().join("result.json");
    let line = format!("-n 2 --period 0 --count 10 --register --json {}", path.display());
    let report = sim::run(args(&server, &line)).await.expect("the test is set up right");
    let json: Value = serde_json::from_str(&std::fs::read_to_string(path).expect("the test is set up right"))
        .expect("the test is set up right");
    assert_eq!((report.accepted, &json["accepted"], &json["failures"]), (10, &json!(10), &json!({})));
    assert_eq!(json["conditions"]["loop"], "closed");
}
