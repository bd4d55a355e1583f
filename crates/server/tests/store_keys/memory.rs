//! Buckets and the memory budget: who does not fit is refused, what is given up is there again, and a start always works.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::path::Path;

use millstream_testkit::{Answer, Process, ask, eventually};
use serde_json::{Value, json};

use crate::put;

const MIB: u64 = 1 << 20;
/// The memory that each connection counts as.
const CONNECTION_BYTES: u64 = 16 << 10;
/// Small shares, so that a budget that is exceeded would be seen.
const SMALL: [&str; 10] = [
    "log.journal_max_bytes=50331648",
    "log.pending_max_bytes=8388608",
    "log.cache_bytes=4194304",
    "log.memory_topics_max_bytes=1048576",
    "connect.registry_dirty_max_bytes=4194304",
    "context.dirty_max_bytes=16777216",
    "kafka.requests_max_bytes=8388608",
    "history.recent_max_bytes=4194304",
    "store.dirty_max_bytes=16777216",
    "store.inbox_max_bytes=4194304",
];

fn start(dir: &Path, budget_bytes: Option<u64>) -> Process {
    let budget = budget_bytes.map(|bytes| format!("memory.budget_bytes={bytes}"));
    let settings = SMALL.into_iter().chain(budget.as_deref());
    let flags: Vec<&str> = settings.flat_map(|setting| ["--set", setting]).collect();
    Process::start_on(dir, &flags)
}

/// The bytes of the budget that are taken, without this request's connection.
fn used(process: &Process) -> u64 {
    process.get_json("/stats")["memory"]["reserved_bytes"].as_u64().unwrap() - CONNECTION_BYTES
}

/// Waits until so much is taken: a connection counts until the server has closed it.
fn until_used(process: &Process, bytes: u64) {
    eventually("the memory to be taken or returned", || used(process) == bytes);
}

/// The bytes that the server sets aside at its start.
fn set_aside() -> u64 {
    let dir = tempfile::tempdir().unwrap();
    let process = start(dir.path(), None);
    // The first request is the only connection.
    let bytes = used(&process);
    process.stop();
    bytes
}

fn make(process: &Process, name: &str, settings: &Value) -> Answer {
    let body = settings.to_string();
    ask(process.applications, "PUT", &format!("/buckets/{name}"), &[], body.as_bytes())
}

/// The first line of the reply to a command of a Redis client.
fn redis(process: &Process, command: &str) -> String {
    let mut socket = TcpStream::connect(process.redis).unwrap();
    write!(socket, "{command}\r\n").unwrap();
    let mut line = String::new();
    BufReader::new(socket).read_line(&mut line).unwrap();
    line.trim_end().to_owned()
}

/// Most bytes of values that a bucket keeps in memory now.
fn values_max(process: &Process, name: &str) -> u64 {
    process.get_json(&format!("/buckets/{name}"))["cache"]["max_bytes"].as_u64().unwrap()
}

#[test]
fn a_bucket_that_does_not_fit_is_refused_and_not_made_and_a_deleted_one_makes_room() {
    let dir = tempfile::tempdir().unwrap();
    let set_aside = set_aside();
    let budget = set_aside + 64 * MIB;
    let process = start(dir.path(), Some(budget));
    assert_eq!(make(&process, "large", &json!({"kind": "cache", "max_bytes": 40 * MIB})).status, 201);
    until_used(&process, set_aside + 40 * MIB);
    let refused = make(&process, "more", &json!({"cache_bytes": 16 * MIB}));
    assert_eq!(refused.status, 507, "{}", refused.text());
    let told = refused.json();
    let budget_is = format!("(memory.budget_bytes = {budget})");
    for (member, parts) in [
        ("value", vec!["more"]),
        ("detail", vec!["cache_bytes = 16777216 of bucket 'more'", "8388608 are left to buckets", &budget_is]),
        ("rule", vec!["a quarter of what is not set aside"]),
        ("remedy", vec!["set cache_bytes to at most 8388608, delete a bucket, or raise memory.budget_bytes"]),
    ] {
        let text = told[member].as_str().unwrap_or_default();
        assert!(parts.iter().all(|part| text.contains(part)), "{member}: {told}");
    }
    assert_eq!(process.get("/buckets/more").status, 404);
    assert_eq!(process.get_json("/buckets").as_array().map(Vec::len), Some(1));
    let topics = process.get("/api/streams").text();
    assert!(!topics.contains("kv.more"), "{topics}");
    assert_eq!(make(&process, "rest", &json!({"cache_bytes": 7 * MIB})).status, 201);
    assert_eq!(redis(&process, "SET a b"), "-OOM command not allowed when used memory > 'maxmemory'.");
    assert_eq!(process.get("/buckets/db0").status, 404);
    assert_eq!(ask(process.applications, "DELETE", "/buckets/rest", &[], b"").status, 204);
    until_used(&process, set_aside + 40 * MIB);

    assert_eq!(make(&process, "more", &json!({"cache_bytes": MIB})).status, 201);
    assert_eq!(make(&process, "more", &json!({"cache_bytes": 16 * MIB, "ttl_ms": 5})).status, 507);
    assert_eq!(process.get_json("/buckets/more")["settings"]["ttl_ms"], Value::Null, "nothing is changed");
    assert_eq!(values_max(&process, "more"), MIB);
    until_used(&process, set_aside + 41 * MIB);
    assert_eq!(make(&process, "more", &json!({"cache_bytes": 2 * MIB})).status, 200);
    assert_eq!(values_max(&process, "more"), 2 * MIB);
    until_used(&process, set_aside + 42 * MIB);
    assert_eq!(make(&process, "more", &json!({"cache_bytes": 0})).status, 200);
    until_used(&process, set_aside + 40 * MIB);
    let invalid = make(&process, "tiny", &json!({"kind": "cache", "max_bytes": 1_000}));
    assert_eq!((invalid.status, process.get("/buckets/tiny").status), (400, 404), "{}", invalid.text());

    assert_eq!(ask(process.applications, "DELETE", "/buckets/large", &[], b"").status, 204);
    until_used(&process, set_aside);
    assert_eq!(redis(&process, "SET a b"), "+OK");
    until_used(&process, set_aside + 2 * MIB);
    process.stop();
    let process = start(dir.path(), Some(budget));
    assert_eq!(process.get("/buckets/large").status, 404);
    assert_eq!(redis(&process, "STRLEN a"), ":1");
    until_used(&process, set_aside + 2 * MIB);
    process.stop();
}

#[test]
fn a_start_with_a_budget_that_has_become_too_small_opens_every_bucket_with_its_part() {
    let dir = tempfile::tempdir().unwrap();
    let set_aside = set_aside();
    let process = start(dir.path(), Some(set_aside + 64 * MIB));
    for (name, settings) in [
        ("durable", json!({"cache_bytes": 24 * MIB})),
        ("cache", json!({"kind": "cache", "max_bytes": 8 * MIB})),
        ("bare", json!({"cache_bytes": 0})),
    ] {
        assert_eq!(make(&process, name, &settings).status, 201);
    }
    assert_eq!(put(process.applications, "/kv/durable/a", &[], b"kept").status, 201);
    process.stop();

    let process = start(dir.path(), Some(set_aside + 16 * MIB));
    assert_eq!(process.get("/kv/durable/a").body, b"kept");
    assert_eq!(put(process.applications, "/kv/cache/a", &[], b"there").status, 201);
    assert_eq!(process.get("/kv/cache/a").body, b"there");
    let parts = ["durable", "cache", "bare"].map(|name| values_max(&process, name));
    // A quarter of what is not set aside is left to others.
    assert_eq!(parts, [9 * MIB, 3 * MIB, 0]);
    assert_eq!(process.get_json("/buckets/durable")["settings"]["cache_bytes"], 24 * MIB);
    until_used(&process, set_aside + 12 * MIB);
    process.stop();

    // Nothing is left at all: data are served from the log, and the smallest cache there is.
    let process = start(dir.path(), Some(set_aside + MIB));
    assert!(values_max(&process, "durable") < MIB && values_max(&process, "cache") >= 64 << 10);
    assert_eq!(process.get("/kv/durable/a").body, b"kept");
    process.stop();

    let process = start(dir.path(), Some(set_aside + 64 * MIB));
    assert_eq!(["durable", "cache"].map(|name| values_max(&process, name)), [24 * MIB, 8 * MIB]);
    process.stop();
}

#[test]
fn writers_of_all_buckets_that_fit_stay_near_the_budget() {
    const BUCKETS: usize = 24;
    const VALUE_BYTES: usize = 256 << 10;
    const WRITES: usize = 48;
    const FREE_BYTES: u64 = 48 * MIB;
    /// Memory beside the budget: tables, checkpoints, and pages that the allocator keeps.
    const SLACK_BYTES: u64 = 96 * MIB;
    let dir = tempfile::tempdir().unwrap();
    let process = start(dir.path(), Some(set_aside() + FREE_BYTES));
    let most_bytes = process.rss_bytes() + FREE_BYTES + SLACK_BYTES;
    let value = vec![b'v'; VALUE_BYTES];
    let mut made = Vec::new();
    for number in 0..BUCKETS {
        let kind = if number % 2 == 0 { "cache" } else { "durable" };
        let (size, ack) = (if kind == "cache" { "max_bytes" } else { "cache_bytes" }, "written");
        let settings = json!({"kind": kind, "ack": ack, size: 8 * MIB});
        let name = format!("bucket{number}");
        match make(&process, &name, &settings).status {
            201 => made.push(name),
            status => assert_eq!(status, 507),
        }
    }
    assert_eq!(made.len() as u64, FREE_BYTES * 3 / 4 / (8 * MIB));
    std::thread::scope(|threads| {
        for name in &made {
            let (process, value) = (&process, &value);
            threads.spawn(move || {
                for number in 0..WRITES {
                    let path = format!("/kv/{name}/{number}");
                    // A moment without memory for a body is 503.
                    eventually("room for the value", || {
                        let status = put(process.applications, &path, &[], value).status;
                        assert!(matches!(status, 200 | 201 | 503), "{status}");
                        status != 503
                    });
                    // A value is kept once it is read.
                    let read = process.get(&path);
                    assert!(matches!(read.status, 200 | 404 | 503), "{}", read.status);
                    assert!(process.rss_bytes() <= most_bytes, "{} of {most_bytes}", process.rss_bytes());
                }
            });
        }
    });
    process.stop();
}
