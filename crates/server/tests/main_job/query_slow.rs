//! A client that stops reading its socket loses its own query, with the reason, and nobody else notices.

use std::time::{Duration, Instant};

use millstream_load::websocket;
use millstream_testkit::{Live, Process, ask, eventually};
use serde_json::{Value, json};

const JSON: [(&str, &str); 1] = [("Content-Type", "application/json")];
const RECORDS: u64 = 50;

/// A server whose clients may have little waiting, with a stream.
fn start(dir: &std::path::Path) -> Process {
    let process = Process::start_on(dir, &["--set", "query.queue_max_bytes=200000"]);
    ask(process.applications, "PUT", "/api/streams/n", &JSON, br#"{"partitions": 2}"#);
    process
}

fn lives(process: &Process, id: &str) -> bool {
    let queries = process.get_json("/api/queries");
    queries.as_array().unwrap().iter().any(|query| query["id"] == id)
}

/// Appends records until the query `id` is gone, far beyond what sockets hold. How many.
fn append_until_gone(process: &Process, id: &str) -> u64 {
    let mut sent = 0;
    while lives(process, id) {
        assert!(sent < 200_000, "{sent} records wait for somebody who does not read");
        sent += append(process, sent);
    }
    sent
}

/// Appends some records from this number on: how many.
fn append(process: &Process, from: u64) -> u64 {
    let record = |n: u64| json!({"key": format!("k{}", n % 7), "value": {"n": n, "text": "x".repeat(4000)}});
    let records: Vec<Value> = (from..from + RECORDS).map(record).collect();
    let body = Value::from(records).to_string();
    let appended = ask(process.applications, "POST", "/api/streams/n/records", &JSON, body.as_bytes());
    assert_eq!(appended.status, 200, "{}", appended.text());
    RECORDS
}

fn numbers(rows: &[Value]) -> Vec<u64> {
    let mut numbers: Vec<u64> = rows.iter().map(|row| row["n"].as_u64().unwrap()).collect();
    numbers.sort_unstable();
    numbers
}

/// Checks the messages to the slow client once it reads again: the rows that had reached its socket, and the reason
/// of the end.
fn assert_reason(rows: &[Value], end: &Value, sent: u64) {
    assert_eq!(end["cause"], "limit", "{end}");
    let reason = end["errors"][0]["error"].as_str().unwrap();
    assert!(reason.contains("query.queue_max_bytes"), "{reason}");
    let mut seen = numbers(rows);
    seen.dedup();
    assert!(seen.len() == rows.len() && !rows.is_empty() && (rows.len() as u64) < sent, "{} of {sent}", rows.len());
}

#[test]
fn a_client_that_does_not_read_its_events_loses_only_its_own_query() {
    let dir = tempfile::tempdir().unwrap();
    let process = start(dir.path());
    let (slow, id) = Live::ask_for(&process, &json!({"query": "SELECT * FROM \"n\"", "deliver": "sse"}));
    let (other, other_id) = Live::ask_for(&process, &json!({"query": "SELECT n FROM \"n\"", "deliver": "sse"}));
    let reader = std::thread::spawn(move || other.finish());
    let sent = append_until_gone(&process, &id);
    seen(&process, &other_id, sent);
    assert_eq!(ask(process.applications, "DELETE", &format!("/api/queries/{other_id}"), &[], b"").status, 204);
    let (rows, end) = reader.join().unwrap();
    assert_eq!(numbers(&rows), (0..sent).collect::<Vec<_>>());
    assert_eq!((&end["cause"], &end["dropped"]), (&json!("killed"), &json!(0)));
    let (rows, end) = slow.finish();
    assert_reason(&rows, &end, sent);
    process.stop();
}

#[test]
fn a_slow_client_that_drops_its_oldest_rows_goes_on_with_the_latest() {
    let dir = tempfile::tempdir().unwrap();
    let settings = ["--set", "query.queue_max_bytes=200000", "--set", "http.head_timeout_ms=2000"];
    let process = Process::start_on(dir.path(), &settings);
    ask(process.applications, "PUT", "/api/streams/n", &JSON, br#"{"partitions": 2}"#);
    let asked = json!({"query": "SELECT * FROM \"n\"", "deliver": "sse", "on_slow": "drop_oldest"});
    let (slow, id) = Live::ask_for(&process, &asked);
    let look = || process.get_json(&format!("/api/queries/{id}"));
    let mut sent = 0;
    while look()["dropped"] == 0 {
        sent += append(&process, sent);
    }
    // Longer than a connection otherwise has whose client takes nothing.
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(6) {
        sent += append(&process, sent);
    }
    seen(&process, &id, sent);
    let reader = std::thread::spawn(move || slow.finish());
    eventually("what waited has been taken", || {
        sent += append(&process, sent);
        reader.is_finished() || look()["matched"] == sent
    });
    assert_eq!(ask(process.applications, "DELETE", &format!("/api/queries/{id}"), &[], b"").status, 204);
    let (rows, end) = reader.join().unwrap();
    assert_eq!(end["cause"], "killed", "{end}");
    let rows = numbers(&rows);
    assert_eq!(rows.len() as u64 + end["dropped"].as_u64().unwrap(), sent);
    assert!(rows.last().is_some_and(|last| *last >= sent - RECORDS), "some of the last are among {} rows", rows.len());
    process.stop();
}

fn seen(process: &Process, id: &str, records: u64) {
    eventually("all records have been seen", || process.get_json(&format!("/api/queries/{id}"))["matched"] == records);
}

#[test]
fn a_client_that_does_not_read_its_websocket_loses_only_its_own_query() {
    let dir = tempfile::tempdir().unwrap();
    let process = start(dir.path());
    let open = |query: &str| {
        let (mut sender, mut receiver) = websocket::open(process.applications, "/api/queries/ws").unwrap();
        sender.send([&*json!({"tag": "q", "query": query}).to_string()]).unwrap();
        let opening = receiver.receive().unwrap().unwrap();
        (sender, receiver, opening["opening"]["id"].as_str().unwrap().to_owned())
    };
    let (slow_sender, mut slow, id) = open("SELECT * FROM \"n\"");
    let (mut other_sender, mut other, other_id) = open("SELECT n FROM \"n\"");
    let reader = std::thread::spawn(move || {
        let mut rows = Vec::new();
        loop {
            let mut told = other.receive().unwrap().unwrap();
            match told["records"].as_array_mut() {
                Some(records) => rows.append(records),
                None => return (rows, told["end"].clone()),
            }
        }
    });
    let sent = append_until_gone(&process, &id);
    seen(&process, &other_id, sent);
    other_sender.send([r#"{"kill": "q"}"#]).unwrap();
    let (rows, end) = reader.join().unwrap();
    assert_eq!(numbers(&rows), (0..sent).collect::<Vec<_>>());
    assert_eq!((&end["cause"], &end["dropped"]), (&json!("killed"), &json!(0)));

    let mut rows = Vec::new();
    let end = loop {
        let mut told =
            slow.receive().unwrap().expect("a client that reads again within half a minute still has its connection");
        match told["records"].as_array_mut() {
            Some(records) => rows.append(records),
            None => break told["end"].clone(),
        }
    };
    assert_reason(&rows, &end, sent);
    slow_sender.close();
    other_sender.close();
    process.stop();
}
