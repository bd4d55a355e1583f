//! Commands through the real process: sent by `/api/commands` and `/api/streams`, taken by a device over HTTP, answered,
//! and none that was acknowledged lost by `kill -9`.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use millstream_testkit::{Answer, Process, Server, ask, eventually};
use serde_json::{Value, json};

/// Number of times that the server is killed meanwhile; `MILLSTREAM_KILLS` sets another number.
const KILLS: u64 = 5;
const JSON: (&str, &str) = ("Content-Type", "application/json");

fn register(server: &impl Server, device: &str) {
    let tenant = server.tenant();
    let credentials = json!([{"type": "hashed-password", "auth-id": device, "secrets": [{"pwd-plain": "pw"}]}]);
    for (method, path, body, status) in [
        ("POST", format!("/v1/devices/{tenant}/{device}"), "{}".to_owned(), 201),
        ("PUT", format!("/v1/credentials/{tenant}/{device}"), credentials.to_string(), 204),
    ] {
        assert_eq!(ask(server.applications(), method, &path, &[JSON], body.as_bytes()).status, status);
    }
}

/// A request of a device.
fn device(server: &impl Server, device: &str, path: &str, body: &[u8]) -> Answer {
    let login = format!("Basic {}", BASE64.encode(format!("{device}@{}:pw", server.tenant())));
    ask(server.devices(), "POST", path, &[("Authorization", &login), JSON], body)
}

/// A record of commands, as `/api/streams` takes it.
fn record(device: &str, id: &str, further: &Value) -> String {
    let mut headers = json!({"device_id": device, "subject": "on", "correlation-id": id});
    headers.as_object_mut().unwrap().extend(further.as_object().unwrap().clone());
    json!({"key": device, "value": {"id": id}, "headers": headers}).to_string()
}

/// The status of a request; `None` if the server is gone.
fn send(to: SocketAddr, path: &str, content_type: &str, body: &str) -> Option<u16> {
    let mut socket = TcpStream::connect(to).ok()?;
    let length = body.len();
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\n\r\n"
    );
    socket.write_all([&head, body].concat().as_bytes()).ok()?;
    let mut answer = String::new();
    socket.read_to_string(&mut answer).ok()?;
    answer.split(' ').nth(1)?.parse().ok()
}

/// Every notice in the log: the correlation id, how the command ended, and the status.
fn notices(server: &impl Server) -> Vec<(String, String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let (mut told, mut from) = (Vec::new(), "earliest".to_owned());
    loop {
        let page = server.get_json(&format!("/api/streams/command_response.{}?from={from}", server.tenant()));
        let records = page["records"].as_array().unwrap();
        if records.is_empty() {
            return told;
        }
        let notices = records.iter().filter(|record| record["value"]["outcome"].is_string());
        told.extend(notices.map(|record| {
            let headers = &record["headers"];
            (text(&headers["correlation-id"]), text(&record["value"]["outcome"]), text(&headers["status"]))
        }));
        from = text(&page["next"]);
    }
}

#[test]
fn a_command_is_sent_and_answered_and_one_without_a_listener_is_reported() {
    let server = crate::tenant();
    let to_device = |query: &str| format!("/api/commands/{}/d?{query}", server.tenant());
    register(&server, "d");
    let away = ask(server.applications(), "POST", &to_device("command=on&correlation-id=c1"), &[], b"");
    assert_eq!(away.status, 503, "{}", away.text());
    let told = away.json();
    assert_eq!((&told["outcome"], &told["correlation-id"]), (&json!("released"), &json!("c1")), "{told}");
    eventually("the notice", || notices(&server) == [("c1".to_owned(), "released".to_owned(), "503".to_owned())]);

    let waiting = to_device("command=off&one-way=true&ttl-s=600");
    let waiting = ask(server.applications(), "POST", &waiting, &[], b"");
    assert_eq!((waiting.status, &waiting.json()["outcome"]), (202, &json!("waiting")), "{}", waiting.text());
    let got = device(&server, "d", "/telemetry?hono-ttd=50", b"{}");
    assert_eq!((got.status, got.header("hono-command"), got.header("hono-cmd-req-id")), (200, Some("off"), None));

    std::thread::scope(|threads| {
        let taking = threads.spawn(|| {
            let got = device(&server, "d", "/telemetry?hono-ttd=50", b"{}");
            assert_eq!((got.status, got.text()), (200, "{\"brightness\":7}".to_owned()));
            assert_eq!((got.header("hono-command"), got.header("content-type")), (Some("set"), Some(JSON.1)));
            let id = got.header("hono-cmd-req-id").unwrap();
            let answered = device(&server, "d", &format!("/command/res/{id}?hono-cmd-status=207"), b"{\"done\":true}");
            assert_eq!(answered.status, 202, "{}", answered.text());
        });
        let set = to_device("command=set&ttl-s=600&timeout-ms=60000");
        let answer = ask(server.applications(), "POST", &set, &[JSON], b"{\"brightness\":7}");
        assert_eq!((answer.status, answer.text()), (200, "{\"done\":true}".to_owned()));
        assert_eq!(answer.header("hono-cmd-status"), Some("207"));
        taking.join().unwrap();
    });
    let silent = to_device("command=on&ttl-s=600&timeout-ms=1");
    let silent = ask(server.applications(), "POST", &silent, &[], b"");
    assert_eq!((silent.status, &silent.json()["status"]), (504, &json!(504)), "{}", silent.text());
    assert_eq!(notices(&server).len(), 1);
}

#[test]
fn an_invalid_command_is_refused_with_its_rule_and_not_sent() {
    let server = crate::tenant();
    register(&server, "d");
    let long = format!("d?command=on&correlation-id={}", "x".repeat(257));
    for (target, body, status, rule) in [
        ("nobody?command=on", "", 404, "unknown or disabled"),
        ("d", "", 400, "command"),
        ("d?command=a%2Bb", "", 400, "1 to 256 bytes"),
        ("d?command=on&correlation-id=a%20b", "", 400, "visible characters"),
        (&long, "", 400, "1 to 256 visible"),
        ("d?command=on&timeout-ms=60001", "", 400, "connect.commands.request_timeout_max_ms = 60000"),
        ("d?command=on&ttl-s=-1", "", 400, "ttl-s"),
        ("d?command=on&colour=red", "", 400, "colour"),
        ("d?command=on", &"x".repeat(65_537), 413, "connect.commands.payload_max_bytes"),
    ] {
        let answer = ask(
            server.applications(),
            "POST",
            &format!("/api/commands/{}/{target}", server.tenant()),
            &[],
            body.as_bytes(),
        );
        assert_eq!(answer.status, status, "{target}: {}", answer.text());
        assert!(answer.text().contains(rule), "{target}: {}", answer.text());
    }
    let page = server.get_json(&format!("/api/streams/command.{}?from=earliest&until=latest", server.tenant()));
    assert_eq!(page["records"], json!([]));
    for topic in ["command", "command_response"] {
        let path = format!("/api/streams/{topic}.{}", server.tenant());
        let altered = ask(server.applications(), "PATCH", &path, &[JSON], b"{\"retention\": null}");
        assert_eq!(altered.status, 200, "{topic}: {}", altered.text());
    }
}

/// The commands that were acknowledged while the server was killed again and again.
#[derive(Default)]
struct Acknowledged {
    lasting: BTreeSet<String>,
    passing: BTreeSet<String>,
}

/// Sends to a device that sleeps, with time to wait, and to one that is away, without, until the server is gone.
fn send_until_gone(to: SocketAddr, numbers: &AtomicU64) -> Acknowledged {
    const STREAM: &str = "/api/streams/command.default/records";
    let mut acknowledged = Acknowledged::default();
    loop {
        let number = numbers.fetch_add(3, Ordering::Relaxed);
        let [by_stream, by_command, passing] = [number, number + 1, number + 2].map(|number| format!("c{number}"));
        let target =
            format!("/api/commands/default/sleeper?command=on&one-way=true&ttl-s=3600&correlation-id={by_command}");
        let body = json!({"id": by_command}).to_string();
        let lasting = record("sleeper", &by_stream, &json!({"ttl": "3600000"}));
        let requests = [
            (STREAM, "application/x-ndjson", lasting, by_stream, 200),
            (&*target, JSON.1, body, by_command, 202),
            (STREAM, "application/x-ndjson", record("away", &passing, &json!({})), passing, 200),
        ];
        for (index, (path, content_type, body, id, expected)) in requests.into_iter().enumerate() {
            let Some(status) = send(to, path, content_type, &body) else { return acknowledged };
            assert_eq!(status, expected, "{id}");
            let of = if index == 2 { &mut acknowledged.passing } else { &mut acknowledged.lasting };
            of.insert(id);
        }
    }
}

#[test]
#[ignore = "takes long"]
fn no_acknowledged_command_is_lost_by_kills_and_each_has_one_end() {
    let kills = std::env::var("MILLSTREAM_KILLS").map_or(KILLS, |kills| kills.parse().unwrap());
    let dir = tempfile::tempdir().unwrap();
    let mut all = Acknowledged::default();
    let mut taken = BTreeSet::new();
    let numbers = AtomicU64::new(0);
    for round in 0..kills {
        let process = start(dir.path());
        if round == 0 {
            register(&process, "sleeper");
            register(&process, "away");
        }
        let applications = process.applications;
        let Acknowledged { lasting, passing } = std::thread::scope(|threads| {
            let sending = threads.spawn(|| send_until_gone(applications, &numbers));
            // The sleeper wakes up for some of them, and the kill comes while others are on their way.
            for _ in 0..=round % 3 {
                taken.extend(take(&process));
            }
            process.kill();
            sending.join().unwrap()
        });
        all.lasting.extend(lasting);
        all.passing.extend(passing);
    }
    let process = start(dir.path());
    eventually("every command that may wait to be taken", || {
        while let Some(id) = take(&process) {
            taken.insert(id);
        }
        all.lasting.is_subset(&taken)
    });
    eventually("the notices of the others", || {
        let told: BTreeSet<String> = notices(&process).into_iter().map(|(id, ..)| id).collect();
        all.passing.is_subset(&told)
    });
    let told = notices(&process);
    let ids: BTreeSet<&String> = told.iter().map(|(id, ..)| id).collect();
    assert_eq!(ids.len(), told.len(), "one end each");
    assert!(told.iter().all(|(_, outcome, status)| (&**outcome, &**status) == ("released", "503")), "{told:?}");
    println!(
        "{kills} kills: {} commands with and {} without time to wait acknowledged",
        all.lasting.len(),
        all.passing.len()
    );
    assert!(!all.lasting.is_empty() && !all.passing.is_empty(), "too little was sent between the kills");
    process.stop();
}

/// With room for all that is sent.
fn start(data_dir: &Path) -> Process {
    Process::start_on(data_dir, &["--set", "connect.commands.waiting_max_per_device=1000000"])
}

/// The id of the command that the sleeper gets, if it gets one.
fn take(server: &impl Server) -> Option<String> {
    let got = device(server, "sleeper", "/telemetry?hono-ttd=2", b"{}");
    (got.status == 200).then(|| got.json()["id"].as_str().unwrap().to_owned())
}
