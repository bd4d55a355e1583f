//! Keys over a real socket, from a real process: what is kept, what is refused, and what a kill or damage leaves.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod beside;
mod caches;
mod damage;
mod kills;
mod large_file;
mod memory;
mod no_room;
mod redis_clients;
mod redis_kills;
mod refusals;
mod rows;
mod rules;
mod sockets;
mod versions;

use std::net::SocketAddr;
use std::path::Path;

use millstream_testkit::{Answer, Process, ask, runs_on_kafka};

/// `true` if the log has no files that a test could damage, fill or back up: it is on Apache Kafka.
fn log_has_no_files() -> bool {
    runs_on_kafka()
}

/// Starts a server whose expired keys are removed often.
fn start(dir: &Path) -> Process {
    Process::start_on(dir, &["--set", "store.expiry_interval_ms=300"])
}

/// Makes bucket `name` with these settings.
fn make(process: &Process, name: &str, settings: &str) {
    let made = ask(process.applications, "PUT", &format!("/buckets/{name}"), &[], settings.as_bytes());
    assert!(matches!(made.status, 200 | 201), "{}", made.text());
}

fn put(to: SocketAddr, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
    ask(to, "PUT", path, headers, body)
}

/// The entity tag of an answer.
fn tag(answer: &Answer) -> String {
    answer.header("etag").unwrap_or_else(|| panic!("no ETag: {} {}", answer.status, answer.text())).to_owned()
}
