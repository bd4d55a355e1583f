//! Every kind of work: whatever of it a client asks for and does not take, the process stays within its memory budget.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};

use millstream_testkit::{Process, ask, eventually};
use serde_json::{Value, json};

use crate::amqp;
use crate::downlinks::{NetworkServer, dev_eui};
use crate::providers::{Behaviour, Provider};
use crate::work::KINDS;

/// The budget, of which less than a quarter is left to share; each press asks for several times as much.
pub(crate) const BUDGET_BYTES: u64 = 224 << 20;
/// A record or value near the limit of one.
const LARGE_BYTES: usize = 900_000;
const JSON: (&str, &str) = ("Content-Type", "application/json");
/// Smaller shares than the defaults, so that what is not bounded would be seen.
pub(crate) const SETTINGS: [&str; 20] = [
    "log.journal_max_bytes=50331648",
    "log.pending_max_bytes=8388608",
    "log.cache_bytes=4194304",
    "log.memory_topics_max_bytes=8388608",
    "log.compaction_map_bytes=1048576",
    "connect.registry_dirty_max_bytes=4194304",
    "connect.registry_inbox_max_bytes=1048576",
    "connect.usage_notes_max_bytes=1048576",
    "connect.mqtt.presence_max_bytes=1048576",
    "connect.commands.state_dirty_max_bytes=4194304",
    "connect.commands.state_inbox_max_bytes=1048576",
    "context.inbox_max_bytes=4194304",
    "context.dirty_max_bytes=16777216",
    "kafka.requests_max_bytes=8388608",
    "history.recent_max_bytes=4194304",
    "history.index_cache_bytes=4194304",
    "store.dirty_max_bytes=16777216",
    "store.inbox_max_bytes=4194304",
    "shutdown_timeout_ms=500",
    "http.head_timeout_ms=600000",
];

/// Asks for much of a kind and takes nothing; what stands open meanwhile.
type Press = fn(&Process) -> Vec<TcpStream>;

/// Each kind with its press, and whether the gate runs it.
const PRESSES: [(&str, Press, bool); 16] = [
    ("request", requests, true),
    ("query", queries, true),
    ("kept query", kept_queries, false),
    ("job", jobs, false),
    ("subscription", subscriptions, false),
    ("registration", registrations, false),
    ("bucket", buckets, false),
    ("upload", uploads, false),
    ("topic", topics, false),
    ("session", sessions, false),
    ("token", tokens, false),
    ("pub/sub subscriber", subscribers, true),
    ("receiver", receivers, true),
    ("event queue", event_queues, false),
    ("sender", senders, true),
    ("downlink", downlinks, false),
];

#[test]
fn every_kind_of_work_has_a_press() {
    assert_eq!(KINDS.map(|kind| kind.name), PRESSES.map(|(name, ..)| name));
}

#[test]
fn much_of_a_kind_of_work_stays_within_the_memory_budget() {
    check(true);
}

#[test]
#[ignore = "takes long"]
fn much_of_any_kind_of_work_stays_within_the_memory_budget() {
    check(false);
}

/// Presses the kinds whose press is short or not.
fn check(wanted: bool) {
    let pressed = PRESSES.iter().filter(|(_, _, is_short)| *is_short == wanted);
    let peaks: Vec<_> = pressed.map(|(name, press, _)| (*name, peak_bytes(*press) >> 20)).collect();
    let most = (BUDGET_BYTES + BUDGET_BYTES / 4) >> 20;
    assert!(peaks.iter().all(|(_, peak)| *peak <= most), "the budget with a quarter is {most} MiB: {peaks:?}");
    println!("of {most} MiB: {peaks:?}");
}

/// The most memory that the process has had.
fn peak_bytes(press: Press) -> u64 {
    let dir = tempfile::tempdir().unwrap();
    let budget = format!("memory.budget_bytes={BUDGET_BYTES}");
    let settings: Vec<String> = SETTINGS.into_iter().chain([&*budget]).map(|set| format!("--set={set}")).collect();
    let process = Process::start_on(dir.path(), &settings.iter().map(String::as_str).collect::<Vec<_>>());
    let open = press(&process);
    let peak = process.peak_rss_bytes();
    drop(open);
    eventually("the server to serve", || process.get("/healthz").status == 200);
    process.stop();
    peak
}

fn connect(to: SocketAddr, text: &[u8]) -> TcpStream {
    let mut socket = TcpStream::connect(to).unwrap();
    // Who is refused may find the connection closed.
    let _ = socket.write_all(text);
    socket
}

/// Connections of clients that ask so and take nothing; a refusal is as good as what they wait for.
fn many(to: SocketAddr, count: usize, text: impl Fn(usize) -> Vec<u8>) -> Vec<TcpStream> {
    (0..count).map(|number| connect(to, &text(number))).collect()
}

fn head(line: &str, length: usize) -> Vec<u8> {
    format!("{line} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n")
        .into_bytes()
}

fn put_topic(process: &Process, name: &str, settings: &Value) {
    let made =
        ask(process.applications, "PUT", &format!("/api/streams/{name}"), &[JSON], settings.to_string().as_bytes());
    assert_eq!(made.status, 201, "{}", made.text());
}

/// Appends large records; those for which there is no room may be refused.
fn append(process: &Process, topic: &str, count: usize) {
    let record = json!([{"value": {"n": "x".repeat(LARGE_BYTES)}}]).to_string();
    for _ in 0..count {
        let path = format!("/api/streams/{topic}/records");
        let answer = ask(process.applications, "POST", &path, &[JSON], record.as_bytes());
        assert!(matches!(answer.status, 200 | 429 | 503 | 507), "{}", answer.text());
    }
}

/// Waits until the process has not grown for a while.
fn settle(process: &Process) {
    let (mut last, mut same) = (0, 0);
    eventually("the process not to grow", || {
        let peak = process.peak_rss_bytes();
        same = if peak == last { same + 1 } else { 0 };
        last = peak;
        same >= 20
    });
}

fn requests(process: &Process) -> Vec<TcpStream> {
    let body = json!({"id": "r", "type": "Room", "note": {"value": "x".repeat(LARGE_BYTES)}}).to_string();
    let half = &body.as_bytes()[..body.len() * 9 / 10];
    let open = many(process.applications, 600, |_| [&head("POST /v2/entities", body.len()), half].concat());
    settle(process);
    open
}

fn asked(process: &Process, count: usize, query: &Value) -> Vec<TcpStream> {
    put_topic(process, "in", &json!({"partitions": 1}));
    let body = query.to_string().into_bytes();
    let open = many(process.applications, count, |_| [head("POST /api/queries", body.len()), body.clone()].concat());
    append(process, "in", 30);
    settle(process);
    open
}

fn queries(process: &Process) -> Vec<TcpStream> {
    asked(process, 200, &json!({"query": "SELECT * FROM \"in\"", "deliver": "sse"}))
}

fn kept_queries(process: &Process) -> Vec<TcpStream> {
    asked(process, 50, &json!({"query": "SELECT * FROM \"in\"", "deliver": "sse", "keep": true}))
}

fn jobs(process: &Process) -> Vec<TcpStream> {
    put_topic(process, "in", &json!({"partitions": 1}));
    append(process, "in", 60);
    for number in 0..20 {
        let job = json!({
            "version": 1, "kind": "Job", "name": format!("job-{number}"),
            "sources": {"in": {"type": "stream", "config": {"topic": "in", "start": "earliest"}}},
            "sinks": {"out": {"type": "collect", "inputs": ["in"]}},
        });
        let answer = ask(process.applications, "POST", "/api/jobs", &[JSON], job.to_string().as_bytes());
        assert_eq!(answer.status, 201, "{}", answer.text());
    }
    settle(process);
    Vec::new()
}

/// Receivers that accept connections and answer nothing.
fn subscriptions(process: &Process) -> Vec<TcpStream> {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", silent.local_addr().unwrap());
    for number in 0..60 {
        let body = json!({
            "subject": {"entities": [{"idPattern": ".*"}]},
            "notification": {"http": {"url": format!("{url}{number}")}},
        });
        let answer = ask(process.applications, "POST", "/v2/subscriptions", &[JSON], body.to_string().as_bytes());
        assert_eq!(answer.status, 201, "{}", answer.text());
    }
    let body = json!({"id": "e", "type": "Room", "note": {"value": "x".repeat(LARGE_BYTES)}, "n": {"value": 0}});
    let made = ask(process.applications, "POST", "/v2/entities", &[JSON], body.to_string().as_bytes());
    assert_eq!(made.status, 201, "{}", made.text());
    for number in 1..60 {
        let body = json!({"n": {"value": number}}).to_string();
        let answer = ask(process.applications, "PATCH", "/v2/entities/e/attrs", &[JSON], body.as_bytes());
        assert!(matches!(answer.status, 204 | 503), "{}", answer.text());
    }
    settle(process);
    Vec::new()
}

/// Providers that answer as much as they may, to readers that take nothing.
fn registrations(process: &Process) -> Vec<TcpStream> {
    let body = json!([{"id": "far", "type": "Room", "note": {"value": "x".repeat(LARGE_BYTES)}}]).to_string();
    let provider = Provider::start(Behaviour::Answers(body));
    for number in 0..20 {
        provider.register(process, &[], &format!("/{number}"), "far");
    }
    let open = many(process.applications, 600, |_| head("GET /v2/entities/far", 0));
    settle(process);
    open
}

fn buckets(process: &Process) -> Vec<TcpStream> {
    let put = |path: &str, body: &[u8]| ask(process.applications, "PUT", path, &[JSON], body).status;
    for (name, settings) in
        [("fast", json!({"kind": "cache", "max_bytes": 20 << 20})), ("kept", json!({"cache_bytes": 8 << 20}))]
    {
        assert_eq!(put(&format!("/buckets/{name}"), settings.to_string().as_bytes()), 201, "{name}");
        let value = vec![b'x'; LARGE_BYTES];
        for number in 0..300 {
            let status = put(&format!("/kv/{name}/{number}"), &value);
            assert!(matches!(status, 201 | 503), "{name}: {status}");
        }
    }
    assert_eq!(put("/buckets/large", b"{\"kind\": \"cache\", \"max_bytes\": 500000000}"), 507);
    let lists = many(process.applications, 100, |_| head("GET /kv/kept?values=true", 0));
    let reads = many(process.applications, 300, |number| head(&format!("GET /kv/kept/{number}"), 0));
    settle(process);
    lists.into_iter().chain(reads).collect()
}

fn uploads(process: &Process) -> Vec<TcpStream> {
    assert_eq!(ask(process.applications, "PUT", "/buckets/things", &[JSON], b"{}").status, 201);
    let part = vec![b'x'; LARGE_BYTES];
    let mut ids = Vec::new();
    for number in 0..20 {
        let begun = ask(process.applications, "POST", &format!("/kv/things/{number}?uploads"), &[], b"");
        assert_eq!(begun.status, 201, "{}", begun.text());
        ids.push(begun.json()["upload"].as_str().unwrap().to_owned());
    }
    let open = many(process.applications, 400, |number| {
        let (key, part_number) = (number % 20, 1 + number / 20);
        let line = format!("PUT /kv/things/{key}?upload={}&part={part_number}", ids[key]);
        [head(&line, 10 * LARGE_BYTES), part.clone()].concat()
    });
    settle(process);
    open
}

fn topics(process: &Process) -> Vec<TcpStream> {
    put_topic(process, "fast", &json!({"partitions": 1, "storage": "memory", "storage_bytes": 4_194_304}));
    put_topic(process, "kept", &json!({"partitions": 4}));
    append(process, "fast", 200);
    append(process, "kept", 200);
    let open = many(process.applications, 200, |_| head("GET /api/streams/kept?from=earliest&limit=1000", 0));
    settle(process);
    open
}

/// A device that is away, and one that sends to it.
fn sessions(process: &Process) -> Vec<TcpStream> {
    const PASSWORD: &str = "open sesame";
    let put = |method: &str, path: &str, body: Value| {
        let answer = ask(process.applications, method, path, &[JSON], body.to_string().as_bytes());
        assert!(matches!(answer.status, 201 | 204), "{path}: {}", answer.text());
    };
    put("POST", "/v1/tenants/acme", json!({}));
    let text = |text: &str| [&(text.len() as u16).to_be_bytes()[..], text.as_bytes()].concat();
    let packet = |kind: u8, body: Vec<u8>| {
        let (mut length, mut left) = (Vec::new(), body.len());
        loop {
            length.push((left % 128) as u8 | if left >= 128 { 128 } else { 0 });
            left /= 128;
            if left == 0 {
                return [vec![kind], length, body].concat();
            }
        }
    };
    let log_in = |client: &str, device: &str| {
        let user = format!("{device}@acme");
        let login = [text("MQTT"), vec![4, 0b1100_0000, 0, 0], text(client), text(&user), text(PASSWORD)];
        let mut socket = connect(process.mqtt, &packet(0x10, login.concat()));
        let mut connack = [0; 4];
        socket.read_exact(&mut connack).unwrap();
        assert_eq!(connack[3], 0, "{device}");
        socket.set_write_timeout(Some(std::time::Duration::from_millis(500))).unwrap();
        socket
    };
    let mut open = Vec::new();
    let message = packet(0x32, [text("house/m"), vec![0, 1], vec![b'x'; LARGE_BYTES]].concat());
    for number in 0..60 {
        let device = format!("d{number}");
        put("POST", &format!("/v1/devices/acme/{device}"), json!({}));
        let secrets = json!([{"type": "hashed-password", "auth-id": device, "secrets": [{"pwd-plain": PASSWORD}]}]);
        put("PUT", &format!("/v1/credentials/acme/{device}"), secrets);
    }
    // They do not read what the others send.
    for number in 0..200 {
        let mut socket = log_in(&format!("deaf {number}"), "d0");
        socket.write_all(&packet(0x82, [vec![0, 1], text("house/#"), vec![1]].concat())).unwrap();
        open.push(socket);
    }
    let mut publisher = log_in("publisher", "d1");
    publisher.set_write_timeout(None).unwrap();
    for _ in 0..20 {
        publisher.write_all(&message).unwrap();
        publisher.read_exact(&mut [0; 4]).unwrap();
    }
    for number in 0..60 {
        let device = format!("d{number}");
        let mut socket = log_in(&device, &device);
        let _ = socket.write_all(&packet(0x82, [vec![0, 1], text("house/#"), vec![1]].concat()));
        // A client that is not listened to any more has sent a part of a packet.
        let _ = (0..20).try_for_each(|_| socket.write_all(&message));
        open.push(socket);
    }
    // They announce a packet, and send most of it.
    for number in 0..300 {
        let mut socket = log_in(&format!("half {number}"), &format!("d{}", number % 60));
        let _ = socket.write_all(&message[..message.len() * 9 / 10]);
        open.push(socket);
    }
    settle(process);
    open
}

/// All that one tenant may have, with long descriptions, and lists of them.
fn tokens(process: &Process) -> Vec<TcpStream> {
    let make = |bearer: &str, token: Value| {
        let headers = [JSON, ("Authorization", bearer)];
        let headers = if bearer.is_empty() { &headers[..1] } else { &headers };
        ask(process.applications, "POST", "/api/tokens", headers, token.to_string().as_bytes())
    };
    let root = make("", json!({"name": "root", "roles": ["admin"]})).json()["token"].as_str().unwrap().to_owned();
    let bearer = format!("Bearer {root}");
    let prefixes: Vec<String> = (0..60).map(|number| format!("{number:0>250}")).collect();
    let answers = (0..).map(|number| {
        make(&bearer, json!({"name": format!("t{number}"), "roles": ["reader"], "topics": prefixes})).status
    });
    assert_eq!(answers.take_while(|status| *status == 201).count(), 999, "and root");
    let line = format!("GET /api/tokens HTTP/1.1\r\nhost: localhost\r\nauthorization: {bearer}\r\n\r\n");
    let open = many(process.applications, 100, |_| line.clone().into_bytes());
    settle(process);
    open
}

/// Receivers that take nothing of what comes, on as many links as they get.
fn receivers(process: &Process) -> Vec<TcpStream> {
    let put = |method: &str, path: &str, body: Value| {
        let answer = ask(process.applications, method, path, &[JSON], body.to_string().as_bytes());
        assert!(matches!(answer.status, 201 | 204), "{path}: {}", answer.text());
    };
    put("POST", "/v1/tenants/acme", json!({}));
    put("POST", "/v1/devices/acme/d", json!({}));
    let secrets = json!([{"type": "hashed-password", "auth-id": "d", "secrets": [{"pwd-plain": "open"}]}]);
    put("PUT", "/v1/credentials/acme/d", secrets);
    let open = many(process.amqp, 100, |number| {
        let mut wanted = Vec::new();
        // Every other one shares no queue.
        let subscription = if number % 2 == 0 { String::new() } else { format!("own-{number}") };
        amqp::receive_as(&mut wanted, "telemetry/acme", 200, &subscription);
        wanted
    });
    let login = ("Authorization", "Basic ZEBhY21lOm9wZW4=");
    let headers = [("Content-Type", "application/octet-stream"), login, ("qos-level", "1")];
    for _ in 0..2_000 {
        let answer = ask(process.devices, "POST", "/telemetry", &headers, &[b'x'; 2_000]);
        assert_eq!(answer.status, 202, "{}", answer.text());
    }
    settle(process);
    open
}

/// Receivers of events, each with a queue of its own, as far as there are.
fn event_queues(process: &Process) -> Vec<TcpStream> {
    ask(process.applications, "POST", "/v1/tenants/acme", &[JSON], b"{}");
    let open = many(process.amqp, 100, |number| {
        let mut wanted = Vec::new();
        amqp::receive_as(&mut wanted, "event/acme", 200, &format!("own-{number}"));
        wanted
    });
    settle(process);
    open
}

/// Senders that each begin a large command and do not end it.
fn senders(process: &Process) -> Vec<TcpStream> {
    ask(process.applications, "POST", "/v1/tenants/acme", &[JSON], b"{}");
    let open = many(process.amqp, 100, |_| {
        let mut wanted = Vec::new();
        amqp::send_parts(&mut wanted, "command/acme", 40, &[0; 64_000]);
        wanted
    });
    settle(process);
    open
}

/// Commands to many devices of a network server that answers none, with as large a body as its endpoint may give them.
fn downlinks(process: &Process) -> Vec<TcpStream> {
    let made = ask(process.applications, "POST", "/v1/tenants/acme", &[JSON], b"{}");
    assert_eq!(made.status, 201, "{}", made.text());
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let properties = json!({"payload": "{{payload}}{{payloadHex}}", "note": "x".repeat(8_000)});
    let server = NetworkServer { process, tenant: "acme", login: &[] };
    for number in 0..300 {
        let device = dev_eui(number);
        server.register(silent.local_addr().unwrap(), &properties, &device);
        let path = format!("/api/commands/acme/{device}?command=1&one-way=true&ttl-s=600&timeout-ms=1");
        let answer = ask(process.applications, "POST", &path, &[], &[b'x'; 2_000]);
        assert!(matches!(answer.status, 202 | 429 | 503 | 504), "{}", answer.text());
    }
    settle(process);
    Vec::new()
}

fn subscribers(process: &Process) -> Vec<TcpStream> {
    let open = many(process.redis, 400, |_| b"SUBSCRIBE news\r\n".to_vec());
    let message = [b"*3\r\n$7\r\nPUBLISH\r\n$4\r\nnews\r\n$500000\r\n", &[b'x'; 500_000][..], b"\r\n"].concat();
    let mut publisher = connect(process.redis, b"");
    for _ in 0..44 {
        publisher.write_all(&message).unwrap();
        let mut answer = [0; 1];
        while answer != *b"\n" {
            publisher.read_exact(&mut answer).unwrap();
        }
    }
    settle(process);
    open
}
