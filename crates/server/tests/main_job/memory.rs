//! One memory budget: what is set aside at start, what is refused when it is used up, and what is told about it.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use millstream_testkit::{Answer, Process, ask, eventually, millstream, open};
use serde_json::{Value, json};

/// The memory that each connection counts as.
const CONNECTION_BYTES: u64 = 16 << 10;
const JSON: [(&str, &str); 1] = [("Content-Type", "application/json")];

/// Smaller shares than the defaults, so that what is not bounded would be seen.
const SMALL: [&str; 15] = [
    "log.journal_max_bytes=50331648",
    "log.pending_max_bytes=8388608",
    "log.cache_bytes=4194304",
    "log.memory_topics_max_bytes=1048576",
    "log.compaction_map_bytes=1048576",
    "connect.registry_dirty_max_bytes=4194304",
    "connect.registry_inbox_max_bytes=1048576",
    "context.dirty_max_bytes=16777216",
    "context.inbox_max_bytes=4194304",
    "store.dirty_max_bytes=16777216",
    "store.inbox_max_bytes=4194304",
    "kafka.requests_max_bytes=8388608",
    // Whoever is slow on purpose is not to be cut off meanwhile.
    "http.head_timeout_ms=600000",
    "http.idle_timeout_ms=600000",
    "context.timeout_ms=600000",
];

fn flags(settings: &[&str]) -> Vec<String> {
    settings.iter().flat_map(|setting| ["--set".to_owned(), (*setting).to_owned()]).collect()
}

/// Returns the bytes that are set aside at start, as the refusal of a budget that is too small for it says.
fn set_aside(settings: &[&str]) -> u64 {
    let mut flags = flags(&[settings, &["memory.budget_bytes=0"]].concat());
    flags.extend(crate::engine_arguments(&std::env::temp_dir()));
    let output = millstream().args(["config", "show"]).args(flags).current_dir(std::env::temp_dir()).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    let list = said.split_once('(').unwrap().1.split(')').next().unwrap();
    list.split(", ").map(|part| part.split_once(" = ").unwrap().1.parse::<u64>().unwrap()).sum()
}

fn start(dir: &std::path::Path, settings: &[&str], budget_bytes: u64) -> Process {
    let budget = format!("memory.budget_bytes={budget_bytes}");
    let flags = flags(&[settings, &[budget.as_str()]].concat());
    Process::start_on(dir, &flags.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Returns the used bytes, this request's connection included; `None` if there is no room for that one.
fn used(process: &Process) -> Option<u64> {
    let answer = process.get("/stats");
    (answer.status == 200).then(|| answer.json()["memory"]["reserved_bytes"].as_u64().unwrap())
}

/// An entity of exactly so many bytes.
fn entity(id: &str, body_bytes: usize) -> Vec<u8> {
    let with = |text: &str| json!({"id": id, "type": "Room", "note": {"value": text}}).to_string();
    with(&"n".repeat(body_bytes - with("").len())).into_bytes()
}

fn post(process: &Process, id: &str, body_bytes: usize) -> Answer {
    ask(process.applications, "POST", "/v2/entities", &JSON, &entity(id, body_bytes))
}

/// Sends the head of a create.
fn send_head(process: &Process, body_bytes: usize) -> TcpStream {
    let mut socket = TcpStream::connect(process.applications).unwrap();
    let head =
        "POST /v2/entities HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n";
    write!(socket, "{head}content-length: {body_bytes}\r\n\r\n").unwrap();
    socket
}

/// Announces a body and waits for the answer before sending it: the whole of that answer.
fn announce(process: &Process, body_bytes: usize) -> String {
    rest(send_head(process, body_bytes))
}

/// Sends the head of a create and the first half of its body.
fn send_half(process: &Process, body: &[u8]) -> TcpStream {
    let mut half = send_head(process, body.len());
    // Who is refused at once may find the connection closed.
    let _ = half.write_all(&body[..body.len() / 2]);
    half
}

#[test]
fn a_body_for_which_the_budget_has_no_room_is_refused_until_another_is_gone() {
    const BODY_BYTES: usize = 1_000_000;
    let dir = tempfile::tempdir().unwrap();
    let set_aside = set_aside(&[]);
    // Two bodies are more than a tenant may take of it; one leaves room for answers.
    let budget = set_aside + 2_200_000;
    let process = start(dir.path(), &[], budget);
    assert_eq!(process.get_json("/stats")["memory"]["budget_bytes"], budget);
    eventually("nothing to be taken but this connection", || used(&process) == Some(set_aside + CONNECTION_BYTES));

    let first = entity("first", BODY_BYTES);
    let mut half = send_half(&process, &first);
    let taken = set_aside + 2 * CONNECTION_BYTES + BODY_BYTES as u64;
    eventually("the body to be counted", || used(&process) == Some(taken));
    let refused = announce(&process, BODY_BYTES);
    for part in
        ["HTTP/1.1 503 ", "retry-after: 1\r\n", "\"ServiceUnavailable\"", "no memory for a body of 1000000 bytes now: "]
    {
        assert!(refused.contains(part), "{part} in {refused}");
    }
    assert!(refused.contains(&format!("memory.budget_bytes = {budget}")), "{refused}");
    let metrics = process.get("/metrics").text();
    let line = format!("millstream_memory_budget_bytes {budget}");
    assert!(metrics.lines().any(|known| known == line), "{line} in {metrics}");

    half.write_all(&first[BODY_BYTES / 2..]).unwrap();
    let mut answer = String::new();
    half.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 201 "), "{answer}");
    drop(half);
    assert_eq!(post(&process, "second", BODY_BYTES).status, 201);
    eventually("all of it to be given back", || used(&process) == Some(set_aside + CONNECTION_BYTES));
    process.stop();
}

#[test]
#[ignore = "takes long"]
fn tails_of_large_records_end_where_there_is_no_memory_for_them_and_go_on_later() {
    // More than the buffers of a connection take, so that each tail holds a record at least until it is read.
    const RECORDS: usize = 12;
    let dir = tempfile::tempdir().unwrap();
    let budget = set_aside(&[]) + (16 << 20);
    let process = start(dir.path(), &[], budget);
    assert_eq!(ask(process.applications, "PUT", "/api/streams/large", &JSON, b"{\"partitions\":1}").status, 201);
    let record = json!({"value_text": "x".repeat(900_000)}).to_string();
    let lines = [("Content-Type", "application/x-ndjson")];
    for _ in 0..RECORDS {
        let appended = ask(process.applications, "POST", "/api/streams/large/records", &lines, record.as_bytes());
        assert_eq!(appended.status, 200, "{}", appended.text());
    }
    let events = [("Accept", "text/event-stream")];
    let path = "/api/streams/large?from=earliest&until=latest";
    let unread: Vec<_> = (0..30).map(|_| open(process.applications, "GET", path, &events, b"")).collect();
    // All together want more than there is.
    eventually("tails to hold the memory", || used(&process).is_none_or(|used_bytes| used_bytes + (4 << 20) > budget));
    let mut failed = Vec::new();
    for (status, _, mut reader) in unread {
        let mut told = String::new();
        if status == 200 {
            reader.read_to_string(&mut told).unwrap();
        }
        failed.extend(told.find("event: failed").map(|at| told[..at].to_owned()));
    }
    assert!(!failed.is_empty(), "there is memory for all of them");
    for before in failed {
        let id = before.lines().rfind(|line| line.starts_with("id: ")).unwrap().trim_start_matches("id: ");
        let rest = ask(process.applications, "GET", path, &[events[0], ("Last-Event-ID", id)], b"").text();
        let count = |text: &str| text.matches("event: record").count();
        assert_eq!(count(&before) + count(&rest), RECORDS, "from {id}");
        assert!(rest.contains("event: end"), "from {id}");
    }
    process.stop();
}

const FREE_BYTES: u64 = 40 << 20;
/// Memory that the allocator may keep, and memory that is too small to be counted.
const SLACK_BYTES: u64 = 96 << 20;
const ROOMS: usize = 12;
const ROOM_BYTES: usize = 800_000;

/// Asks for the page of all rooms, and reads the answer's first line only.
fn ask_slowly(process: &Process) -> (TcpStream, String) {
    let mut socket = TcpStream::connect(process.applications).unwrap();
    write!(socket, "GET /v2/entities?limit=100 HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
    let mut line = [0; 12];
    socket.read_exact(&mut line).unwrap();
    (socket, String::from_utf8(line.to_vec()).unwrap())
}

fn rest(mut socket: TcpStream) -> String {
    let mut rest = Vec::new();
    socket.read_to_end(&mut rest).unwrap();
    String::from_utf8_lossy(&rest).into_owned()
}

#[test]
fn requests_beyond_the_memory_budget_are_503_and_memory_stays_near_it() {
    let dir = tempfile::tempdir().unwrap();
    let set_aside = set_aside(&SMALL);
    let budget = set_aside + FREE_BYTES;
    let process = start(dir.path(), &SMALL, budget);
    for number in 0..ROOMS {
        assert_eq!(post(&process, &format!("room-{number}"), ROOM_BYTES).status, 201);
    }
    let at_rest = || used(&process) == Some(set_aside + CONNECTION_BYTES);
    eventually("nothing to be taken but this connection", at_rest);
    let most_bytes = process.rss_bytes() + FREE_BYTES + SLACK_BYTES;
    let named = format!("memory.budget_bytes = {budget}");
    let near = |process: &Process, what: &str| {
        let rss_bytes = process.rss_bytes();
        assert!(rss_bytes <= most_bytes, "{what}: {rss_bytes} of {most_bytes}");
    };

    // Pages that nobody reads: without a bound 60 of them would take half a gigabyte.
    let pages: Vec<_> = (0..60).map(|_| ask_slowly(&process)).collect();
    near(&process, "large pages");
    let (given, refused): (Vec<_>, Vec<_>) = pages.into_iter().partition(|(_, line)| line.ends_with("200"));
    assert!(!given.is_empty() && given.len() <= FREE_BYTES as usize / (ROOMS * ROOM_BYTES), "{}", given.len());
    for (socket, line) in refused {
        let text = rest(socket);
        assert!(line.ends_with("503") && text.contains("retry-after: 1") && text.contains(&named), "{line} {text}");
    }

    // Connections that do nothing, until there is no room for one more.
    let mut idle = Vec::new();
    let refusal = loop {
        let mut socket = TcpStream::connect(process.applications).unwrap();
        // A client that is let in is answered; one that is not is told the reason.
        socket.write_all(b"GET /api/streams HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
        let mut line = [0; 12];
        socket.read_exact(&mut line).unwrap();
        if line.ends_with(b"503") {
            break rest(socket);
        }
        assert!(line.ends_with(b"200"), "{line:?}");
        idle.push(socket);
        assert!(idle.len() as u64 <= FREE_BYTES / CONNECTION_BYTES);
    };
    assert!(refusal.contains("no memory for a connection") && refusal.contains(&named), "{refusal}");
    near(&process, "connections");
    drop((given, idle));
    eventually("all of it to be given back", at_rest);

    // Bodies half sent, more than there is room for.
    let bodies: Vec<_> = (0..60).map(|number| entity(&format!("late-{number}"), 1_000_000)).collect();
    let halves: Vec<_> = bodies.iter().map(|body| send_half(&process, body)).collect();
    near(&process, "bodies");
    let mut created = 0;
    for (mut half, body) in halves.into_iter().zip(&bodies) {
        let _ = half.write_all(&body[body.len() / 2..]);
        let mut answer = Vec::new();
        let _ = half.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer).into_owned();
        match answer.starts_with("HTTP/1.1 201 ") {
            true => created += 1,
            false => {
                assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 503 ") && answer.contains(&named), "{answer}")
            }
        }
    }
    assert!((1..=FREE_BYTES as usize / 1_000_000).contains(&created), "{created}");
    eventually("all of it to be given back", at_rest);

    let count = process.get("/v2/entities?limit=1&options=count");
    assert_eq!(count.header("fiware-total-count"), Some((ROOMS + created).to_string().as_str()));
    assert_eq!(process.get_json("/v2/entities?limit=12").as_array().map(Vec::len), Some(ROOMS));
    process.stop();
}

/// Updates of one entity, all at once.
fn update_at_once(process: &Process, count: usize, value: &Value) -> Vec<Answer> {
    let update = |body: &[u8]| ask(process.applications, "PATCH", "/v2/entities/busy/attrs", &JSON, body);
    let body = json!({"note": {"value": value}}).to_string().into_bytes();
    std::thread::scope(|threads| {
        let asked: Vec<_> = (0..count).map(|_| threads.spawn(|| update(&body))).collect();
        asked.into_iter().map(|asked| asked.join().unwrap()).collect()
    })
}

#[test]
fn updates_that_wait_for_their_owner_are_bounded_by_bytes_and_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let small = "context.inbox_max_bytes=4096";
    let process = Process::start_on(dir.path(), &["--set", small]);
    assert_eq!(post(&process, "busy", 1_000).status, 201);
    let value = json!("v".repeat(100_000));
    let mut refused = 0;
    eventually("an update that finds others waiting", || {
        for answer in update_at_once(&process, 64, &value) {
            match answer.status {
                204 => {}
                503 => {
                    refused += 1;
                    assert_eq!(answer.header("retry-after"), Some("1"));
                    assert!(answer.text().contains("its part of context.inbox_max_bytes"), "{}", answer.text());
                }
                status => panic!("{status}: {}", answer.text()),
            }
        }
        refused > 0
    });
    assert_eq!(process.get_json("/v2/entities/busy?options=keyValues")["note"], value);
    process.stop();
}
