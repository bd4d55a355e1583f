//! Every kind of work: a stop of the server, and a user's own end of the work, take effect while its clients and
//! receivers hang.

use std::collections::BTreeSet;
use std::io::{BufRead as _, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use millstream_testkit::{Process, ask, eventually, has_kafka_listener, open};
use serde_json::{Value, json};

use crate::amqp;
use crate::downlinks::{NetworkServer, dev_eui};
use crate::work::KINDS;

/// An idle machine ends everything within two seconds; this allows for a busy one.
const END_MAX: Duration = Duration::from_secs(10);
const PATIENCE: Duration = Duration::from_secs(60);
const JSON: (&str, &str) = ("Content-Type", "application/json");
const EVENTS: (&str, &str) = ("Accept", "text/event-stream");

/// Work that runs.
struct Running {
    /// Clients and receivers, none of which lets go.
    _open: Vec<OwnedFd>,
    /// The resource that its user deletes to end it, if there is one.
    path: Option<String>,
}

impl Running {
    fn of(open: impl Into<OwnedFd>) -> Self {
        Self { _open: vec![open.into()], path: None }
    }

    fn ended_by(self, path: String) -> Self {
        Self { path: Some(path), ..self }
    }
}

/// Work of a kind.
struct Work {
    kind: &'static str,
    what: &'static str,
    /// Starts it; it runs when this returns.
    start: fn(&Process) -> Running,
}

const KAFKA_FETCH: &str = "fetch of Kafka that waits";
const WORK: [Work; 21] = [
    Work { kind: "request", what: "body that does not come", start: slow_body },
    Work { kind: "request", what: KAFKA_FETCH, start: kafka_fetch },
    Work { kind: "request", what: "wait for the end of a job", start: wait_for_job },
    Work { kind: "query", what: "query", start: query },
    Work { kind: "kept query", what: "kept query", start: kept_query },
    Work { kind: "job", what: "job whose receiver hangs", start: job },
    Work { kind: "job", what: "events of jobs", start: job_events },
    Work { kind: "subscription", what: "receiver that hangs", start: subscription },
    Work { kind: "subscription", what: "MQTT broker that hangs", start: mqtt_subscription },
    Work { kind: "registration", what: "query whose provider hangs", start: forwarded_query },
    Work { kind: "registration", what: "update whose provider hangs", start: forwarded_update },
    Work { kind: "bucket", what: "watch of keys", start: watch },
    Work { kind: "bucket", what: "value that does not come", start: slow_value },
    Work { kind: "upload", what: "part that does not come", start: slow_part },
    Work { kind: "topic", what: "tail", start: tail },
    Work { kind: "session", what: "messages without acknowledgement", start: session },
    Work { kind: "pub/sub subscriber", what: "subscriber", start: subscriber },
    Work { kind: "receiver", what: "receiver over AMQP", start: receiver },
    Work { kind: "event queue", what: "receiver of events over AMQP", start: event_queue },
    Work { kind: "sender", what: "sender over AMQP with a part of a message", start: sender },
    Work { kind: "downlink", what: "command that a network server does not answer", start: downlink },
];

/// The work that servers of this log take.
fn work() -> impl Iterator<Item = Work> {
    WORK.into_iter().filter(|work| work.what != KAFKA_FETCH || has_kafka_listener())
}

/// Kinds that are there and do nothing by themselves.
const AT_REST: [&str; 1] = ["token"];

#[test]
fn every_kind_of_work_has_an_end() {
    let ends: BTreeSet<&str> = WORK.iter().map(|work| work.kind).chain(AT_REST).collect();
    let missing: Vec<&str> = KINDS.iter().map(|kind| kind.name).filter(|name| !ends.contains(name)).collect();
    assert!(missing.is_empty(), "kinds without a row: {missing:?}");
}

#[test]
fn a_stop_takes_effect_while_all_kinds_of_work_run_and_nobody_answers() {
    stop_beside(&work().collect::<Vec<_>>());
}

#[test]
#[ignore = "takes long"]
fn a_stop_takes_effect_beside_each_kind_of_work() {
    for work in work() {
        stop_beside(&[work]);
    }
}

/// An orderly end of the server while this runs.
fn stop_beside(work: &[Work]) {
    let (_dir, process) = start();
    let running: Vec<_> = work.iter().map(|work| (work.start)(&process)).collect();
    let begun = Instant::now();
    process.stop();
    let took = begun.elapsed();
    drop(running);
    let what: Vec<_> = work.iter().map(|work| work.what).collect();
    println!("{what:?}: {took:?}");
    assert!(took < END_MAX, "{what:?}: {took:?}");
}

#[test]
fn what_a_user_ends_is_over_while_its_receiver_hangs() {
    let (_dir, process) = start();
    for work in work() {
        let running = (work.start)(&process);
        let Some(path) = &running.path else { continue };
        let ended = ask(process.applications, "DELETE", path, &[], b"");
        assert!(matches!(ended.status, 200 | 202 | 204), "{}: {} {}", work.what, ended.status, ended.text());
        // Jobs and kept queries stay there to be read.
        eventually(work.what, || {
            let left = process.get(path);
            left.status == 404 || left.text().contains("\"killed\"")
        });
    }
    process.stop();
}

/// A server with a topic, a bucket and a device.
fn start() -> (tempfile::TempDir, Process) {
    let dir = tempfile::tempdir().unwrap();
    // A request waits for a provider, and a command for a network server, this long.
    let settings = ["--set=context.registrations.timeout_ms=3600000", "--set=connect.lora.downlink_timeout_ms=60000"];
    let process = Process::start_on(dir.path(), &settings);
    send(&process, "PUT /api/streams/in", &json!({"partitions": 1}));
    send(&process, "POST /api/streams/in/records", &json!([{"value": {"n": 1}}]));
    send(&process, "PUT /buckets/things", &json!({}));
    send(&process, "POST /v1/tenants/acme", &json!({}));
    send(&process, "POST /v1/devices/acme/d", &json!({}));
    let secrets = json!([{"type": "hashed-password", "auth-id": "d", "secrets": [{"pwd-plain": "open"}]}]);
    send(&process, "PUT /v1/credentials/acme/d", &secrets);
    (dir, process)
}

/// Asks for something that succeeds; the answer's `Location` and body.
fn send(process: &Process, line: &str, body: &Value) -> (String, String) {
    let (method, path) = line.split_once(' ').unwrap();
    let answer = ask(process.applications, method, path, &[JSON], body.to_string().as_bytes());
    assert!(matches!(answer.status, 200 | 201 | 204), "{line}: {} {}", answer.status, answer.text());
    (answer.header("Location").unwrap_or_default().to_owned(), answer.text())
}

fn connect(to: SocketAddr) -> TcpStream {
    let socket = TcpStream::connect(to).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// Reads until the end of `mark`.
fn read_to(socket: &mut TcpStream, mark: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    while !bytes.ends_with(mark) {
        let mut byte = [0];
        socket.read_exact(&mut byte).unwrap();
        bytes.push(byte[0]);
    }
    bytes
}

/// A request whose body does not come, once the server waits for it.
fn without_body(process: &Process, line: &str) -> Running {
    let mut socket = connect(process.applications);
    let head = "host: localhost\r\ncontent-type: application/json\r\ncontent-length: 100\r\nexpect: 100-continue";
    write!(socket, "{line} HTTP/1.1\r\n{head}\r\n\r\n").unwrap();
    let answer = read_to(&mut socket, b"\r\n\r\n");
    assert!(answer.starts_with(b"HTTP/1.1 100"), "{line}: {}", String::from_utf8_lossy(&answer));
    Running::of(socket)
}

/// An answer of events, once one with this text has come, and that event's data.
fn events(process: &Process, line: &str, body: &Value, mark: &str) -> (Running, String) {
    let (method, path) = line.split_once(' ').unwrap();
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let (status, _, mut reader) = open(process.applications, method, path, &[JSON, EVENTS], body.as_bytes());
    assert_eq!(status, 200, "{line}");
    let mut text = String::new();
    while !text.contains(mark) {
        text.clear();
        assert_ne!(reader.read_line(&mut text).unwrap(), 0, "{line}: no event with {mark}");
    }
    (Running::of(reader.into_inner()), text)
}

/// A receiver that takes connections and what is sent, and never answers.
fn hanging_receiver() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// Takes the first connection and the first bytes that are sent by it.
fn receive(listener: TcpListener) -> Running {
    let (mut socket, _) = listener.accept().unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.read_exact(&mut [0]).unwrap();
    Running { _open: vec![socket.into(), listener.into()], path: None }
}

fn slow_body(process: &Process) -> Running {
    without_body(process, "POST /api/streams/in/records")
}

fn slow_value(process: &Process) -> Running {
    without_body(process, "PUT /kv/things/slow")
}

fn slow_part(process: &Process) -> Running {
    let (_, begun) = send(process, "POST /kv/things/large?uploads", &Value::Null);
    let upload: Value = serde_json::from_str(&begun).unwrap();
    without_body(process, &format!("PUT /kv/things/large?upload={}&part=1", upload["upload"].as_str().unwrap()))
}

/// A fetch of at least a megabyte, behind a request that is answered.
fn kafka_fetch(process: &Process) -> Running {
    let request = |key: u16, version: u16, correlation: u32, body: &[u8]| {
        let head = [&key.to_be_bytes()[..], &version.to_be_bytes(), &correlation.to_be_bytes(), &[0xFF; 2]].concat();
        let length = (head.len() + body.len()) as u32;
        [&length.to_be_bytes()[..], &head, body].concat()
    };
    let number = u32::to_be_bytes;
    let limits = [&[0xFF; 4][..], &number(600_000), &number(1 << 20), &number(8 << 20), &[0]].concat();
    let topic = [&number(1)[..], &[0, 2], b"in", &number(1), &number(0), &[0; 8], &number(1 << 20)].concat();
    let mut socket = connect(process.kafka);
    socket.write_all(&[request(18, 0, 7, &[]), request(1, 4, 8, &[limits, topic].concat())].concat()).unwrap();
    socket.read_exact(&mut [0; 8]).unwrap();
    Running::of(socket)
}

fn query(process: &Process) -> Running {
    let asked = json!({"query": "SELECT * FROM \"in\"", "deliver": "sse"});
    events(process, "POST /api/queries", &asked, "\"id\"").0
}

fn kept_query(process: &Process) -> Running {
    let asked = json!({"query": "SELECT * FROM \"in\"", "deliver": "sse", "keep": true});
    let (running, meta) = events(process, "POST /api/queries", &asked, "\"id\"");
    let meta: Value = serde_json::from_str(meta.trim_start_matches("data: ")).unwrap();
    running.ended_by(format!("/api/queries/{}", meta["id"].as_str().unwrap()))
}

fn submit(process: &Process, name: &str, sink: &Value) -> String {
    let (_, made) = send(
        process,
        "POST /api/jobs",
        &json!({
            "version": 1, "kind": "Job", "name": name,
            "sources": {"in": {"type": "stream", "config": {"topic": "in", "start": "earliest"}}},
            "sinks": {"out": sink},
        }),
    );
    let made: Value = serde_json::from_str(&made).unwrap();
    format!("/api/jobs/{}", made["id"].as_str().unwrap())
}

fn job(process: &Process) -> Running {
    let (listener, address) = hanging_receiver();
    let config = json!({"url": format!("http://{address}/"), "timeout": "10m"});
    let path = submit(process, "hangs", &json!({"type": "http", "inputs": ["in"], "config": config}));
    receive(listener).ended_by(path)
}

fn wait_for_job(process: &Process) -> Running {
    let path = submit(process, "lasts", &json!({"type": "collect", "inputs": ["in"]}));
    let mut socket = connect(process.applications);
    // The second request of a connection is read once the first is answered.
    let request = |path: &str| format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n");
    write!(socket, "{}{}", request("/healthz"), request(&format!("{path}/wait?timeout=10m"))).unwrap();
    read_to(&mut socket, b"\r\n\r\n");
    Running::of(socket).ended_by(path)
}

fn notify(process: &Process, entity: &str, receiver: &Value) -> String {
    let (path, _) = send(
        process,
        "POST /v2/subscriptions",
        &json!({"subject": {"entities": [{"id": entity}]}, "notification": receiver}),
    );
    send(process, "POST /v2/entities", &json!({"id": entity, "type": "Room", "n": {"value": 1}}));
    path
}

fn subscription(process: &Process) -> Running {
    let (listener, address) = hanging_receiver();
    let http = json!({"url": format!("http://{address}/"), "timeout": 1_800_000});
    let path = notify(process, "http", &json!({"http": http}));
    receive(listener).ended_by(path)
}

fn mqtt_subscription(process: &Process) -> Running {
    let (listener, address) = hanging_receiver();
    let path = notify(process, "mqtt", &json!({"mqtt": {"url": format!("mqtt://{address}"), "topic": "t"}}));
    receive(listener).ended_by(path)
}

/// A request that is forwarded to a provider, once it has come there.
fn forward(process: &Process, entity: &str, request: &str) -> Running {
    let (listener, address) = hanging_receiver();
    let registration = json!({
        "dataProvided": {"entities": [{"id": entity}]}, "provider": {"http": {"url": format!("http://{address}")}},
    });
    let (path, _) = send(process, "POST /v2/registrations", &registration);
    let mut socket = connect(process.applications);
    socket.write_all(request.as_bytes()).unwrap();
    let mut running = receive(listener).ended_by(path);
    running._open.push(socket.into());
    running
}

fn forwarded_query(process: &Process) -> Running {
    forward(process, "lamp", "GET /v2/entities/lamp HTTP/1.1\r\nhost: localhost\r\n\r\n")
}

fn forwarded_update(process: &Process) -> Running {
    let body = r#"{"on":{"value":true}}"#;
    let head = format!("host: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n", body.len());
    forward(process, "door", &format!("PATCH /v2/entities/door/attrs HTTP/1.1\r\n{head}\r\n{body}"))
}

fn watch(process: &Process) -> Running {
    let (status, _, reader) = open(process.applications, "GET", "/kv/things/_watch", &[EVENTS], b"");
    assert_eq!(status, 200);
    Running::of(reader.into_inner())
}

fn job_events(process: &Process) -> Running {
    let (status, _, reader) = open(process.applications, "GET", "/api/jobs/events", &[EVENTS], b"");
    assert_eq!(status, 200);
    Running::of(reader.into_inner())
}

fn tail(process: &Process) -> Running {
    events(process, "GET /api/streams/in?from=earliest", &Value::Null, "data: ").0
}

/// A client that has not acknowledged the first of several messages.
fn session(process: &Process) -> Running {
    let text = |text: &str| [&(text.len() as u16).to_be_bytes()[..], text.as_bytes()].concat();
    let packet = |kind: u8, body: &[u8]| [&[kind, body.len() as u8][..], body].concat();
    let log_in = |client: &str| {
        let login = [text("MQTT"), vec![4, 0b1100_0000, 0, 0], text(client), text("d@acme"), text("open")].concat();
        let mut socket = connect(process.mqtt);
        socket.write_all(&packet(0x10, &login)).unwrap();
        let mut connack = [0; 4];
        socket.read_exact(&mut connack).unwrap();
        assert_eq!(connack[3], 0, "{client}");
        socket
    };
    let (mut deaf, mut publisher) = (log_in("deaf"), log_in("publisher"));
    deaf.write_all(&packet(0x82, &[vec![0, 1], text("house/#"), vec![1]].concat())).unwrap();
    deaf.read_exact(&mut [0; 5]).unwrap();
    for number in 1..=20 {
        publisher.write_all(&packet(0x32, &[text("house/m"), vec![0, number], b"on".to_vec()].concat())).unwrap();
        publisher.read_exact(&mut [0; 4]).unwrap();
    }
    deaf.read_exact(&mut [0]).unwrap();
    Running { _open: vec![deaf.into(), publisher.into()], path: None }
}

fn receiver(process: &Process) -> Running {
    let (mut socket, mut wanted) = (connect(process.amqp), Vec::new());
    amqp::receive(&mut wanted, "telemetry/acme", 1);
    amqp::enter(&mut socket, &wanted, 1).unwrap();
    Running::of(socket)
}

fn event_queue(process: &Process) -> Running {
    let (mut socket, mut wanted) = (connect(process.amqp), Vec::new());
    amqp::receive_as(&mut wanted, "event/acme", 1, "own");
    amqp::enter(&mut socket, &wanted, 1).unwrap();
    Running::of(socket)
}

fn sender(process: &Process) -> Running {
    let (mut socket, mut wanted) = (connect(process.amqp), Vec::new());
    amqp::send_parts(&mut wanted, "command/acme", 1, b"part");
    amqp::enter(&mut socket, &wanted, 1).unwrap();
    Running::of(socket)
}

fn downlink(process: &Process) -> Running {
    let server = NetworkServer { process, tenant: "acme", login: &[] };
    Running::of(server.hang(&dev_eui(1), &[]).unwrap()).ended_by("/v1/devices/acme/ns".to_owned())
}

fn subscriber(process: &Process) -> Running {
    let mut socket = connect(process.redis);
    socket.write_all(b"SUBSCRIBE news\r\n").unwrap();
    read_to(&mut socket, b":1\r\n");
    Running::of(socket)
}
