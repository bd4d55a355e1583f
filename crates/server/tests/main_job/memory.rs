//! One memory budget: what is set aside at start, what is refused when it is used up, and what is told about it.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use serde_json::json;

use crate::process::{Process, ask};

/// What the defaults of the log and the views set aside.
const SET_ASIDE_BYTES: u64 = (64 + 128 + 64 + 32 + 64 + 128 + 64) << 20;
const FREE_BYTES: u64 = 100_000;
const BODY_BYTES: usize = 60_000;

/// An entity of exactly so many bytes.
fn entity(id: &str) -> Vec<u8> {
    let with = |text: &str| json!({"id": id, "type": "Room", "note": {"value": text}}).to_string();
    with(&"n".repeat(BODY_BYTES - with("").len())).into_bytes()
}

#[test]
fn a_body_for_which_the_budget_has_no_room_is_refused_until_another_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let budget = format!("memory.budget_bytes={}", SET_ASIDE_BYTES + FREE_BYTES);
    let process = Process::start_on(dir.path(), [0, 0], &["--set", &budget]);
    let used = || process.get_json("/stats")["memory"]["used_bytes"].as_u64().unwrap();
    assert_eq!(process.get_json("/stats")["memory"]["budget_bytes"], SET_ASIDE_BYTES + FREE_BYTES);
    assert_eq!(used(), SET_ASIDE_BYTES);

    let first = entity("first");
    let mut half = TcpStream::connect(process.applications).unwrap();
    let head = "POST /v2/entities HTTP/1.1\r\nhost: t\r\nconnection: close\r\ncontent-type: application/json\r\n";
    write!(half, "{head}content-length: {BODY_BYTES}\r\n\r\n").unwrap();
    half.write_all(&first[..BODY_BYTES / 2]).unwrap();
    while used() != SET_ASIDE_BYTES + BODY_BYTES as u64 {}

    let json_type = [("Content-Type", "application/json")];
    let post = |id: &str| ask(process.applications, "POST", "/v2/entities", &json_type, &entity(id));
    let refused = post("second");
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")));
    let (budget_bytes, used_bytes) = (SET_ASIDE_BYTES + FREE_BYTES, SET_ASIDE_BYTES + BODY_BYTES as u64);
    let text = format!(
        "no memory for a body of {BODY_BYTES} bytes now: {used_bytes} of {budget_bytes} bytes are in use; \
         memory.budget_bytes = {budget_bytes}; send it again later, or raise the budget"
    );
    assert!(refused.text().contains(&text), "{}", refused.text());
    let metrics = process.get("/metrics").text();
    for line in
        [format!("millstream_memory_budget_bytes {budget_bytes}"), format!("millstream_memory_used_bytes {used_bytes}")]
    {
        assert!(metrics.lines().any(|known| known == line), "{line} in {metrics}");
    }

    half.write_all(&first[BODY_BYTES / 2..]).unwrap();
    let mut answer = String::new();
    half.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 201 "), "{answer}");
    assert_eq!(post("second").status, 201);
    assert_eq!(used(), SET_ASIDE_BYTES);
    process.stop();
}
