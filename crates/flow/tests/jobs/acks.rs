//! Records in flight: those that are not finished in time, batches that are not full, and memory that has no room. The
//! tests move the time.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use millstream_flow::FlowConfig;
use millstream_types::{ManualClock, MemoryBudget};
use serde_json::{Value, json};

use crate::node::{Node, Setup, until};

fn open(dir: &std::path::Path) -> (Node, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::default());
    let node = Node::open_as(dir, Setup { clock: clock.clone(), ..Setup::default() });
    node.create("numbers", 1);
    (node, clock)
}

fn record(n: u64) -> [(String, String); 1] {
    [("k".to_owned(), json!({ "n": n }).to_string())]
}

/// Takes requests and answers 204, but never the first one.
fn serve() -> (SocketAddr, Arc<Mutex<Vec<Value>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let received = Arc::new(Mutex::new(Vec::new()));
    let bodies = Arc::clone(&received);
    thread::spawn(move || {
        let mut unanswered = None;
        for socket in listener.incoming() {
            let mut socket = BufReader::new(socket.unwrap());
            let mut length = 0;
            loop {
                let mut line = String::new();
                if socket.read_line(&mut line).unwrap_or(0) == 0 || line == "\r\n" {
                    break;
                }
                let line = line.to_ascii_lowercase();
                length = line.strip_prefix("content-length:").map_or(length, |text| text.trim().parse().unwrap());
            }
            let mut body = vec![0; length];
            socket.read_exact(&mut body).unwrap();
            bodies.lock().unwrap().push(serde_json::from_slice(&body).unwrap());
            if unanswered.is_none() {
                unanswered = Some(socket);
            } else {
                socket.get_mut().write_all(b"HTTP/1.1 204 X\r\nconnection: close\r\n\r\n").unwrap();
            }
        }
    });
    (address, received)
}

#[test]
fn records_that_a_sink_never_finishes_are_read_again_after_ack_timeout() {
    let dir = tempfile::tempdir().unwrap();
    let (node, clock) = open(dir.path());
    let (address, received) = serve();
    node.append("numbers", &record(1));
    let id = node.run(&json!({
        "version": 1, "kind": "Job", "name": "stuck", "restart": {"backoff": "0ms"},
        "sources": {"in": {
            "type": "stream", "config": {"topic": "numbers"}, "ack_timeout": "60s", "batch": {"size": 1},
        }},
        "sinks": {"out": {
            "type": "http", "inputs": ["in"],
            "config": {"url": format!("http://{address}/"), "timeout": "1h", "per": "record"},
        }},
    }));
    until("the first record is sent", || *received.lock().unwrap() == [json!({"n": 1})]);
    clock.advance(Duration::from_secs(60));
    // Time is looked at in the next turn.
    node.append("numbers", &record(2));
    let sent_again = [json!({"n": 1}), json!({"n": 1}), json!({"n": 2})];
    until("both records are sent", || *received.lock().unwrap() == sent_again);
    let job = node.job(&id);
    assert_eq!((&job["state"], &job["restarts"]), (&json!("running"), &json!(1)), "{job:#}");
    let error = &job["error"];
    assert_eq!((&error["code"], &error["node"]), (&json!("ack_timeout"), &json!("in")), "{error:#}");
    assert_eq!((&error["record"], &error["stage"]), (&json!("numbers/0 0"), &json!("ack")), "{error:#}");
    assert!(error["message"].as_str().unwrap().contains("60000 ms"), "{error:#}");
    node.close();
}

#[test]
fn a_source_waits_for_a_full_batch_until_its_timeout() {
    let dir = tempfile::tempdir().unwrap();
    let (node, clock) = open(dir.path());
    let id = node.run(&json!({
        "version": 1, "kind": "Job", "name": "gather",
        "sources": {"in": {
            "type": "stream", "config": {"topic": "numbers"}, "batch": {"size": 4, "timeout": "5ms"},
        }},
        "sinks": {"out": {"type": "collect", "inputs": ["in"]}},
    }));
    let read = |what: &str, records: u64| {
        until(what, || node.job(&id)["nodes"][0]["records_in"] == records);
        node.job(&id)["nodes"][0]["batches"].as_u64().unwrap()
    };
    // Time stands still, so nothing is read before the batch is full.
    (1..=4).for_each(|n| node.append("numbers", &record(n)));
    assert_eq!(read("a full batch is read", 4), 1);
    node.append("numbers", &record(5));
    node.append("numbers", &record(6));
    let moved = || {
        clock.advance(Duration::from_millis(5));
        node.job(&id)["nodes"][0]["records_in"] == 6
    };
    until("the rest is read once its time has passed", moved);
    let seen: Vec<u64> = node.collected(&id, "out").iter().map(|record| record["n"].as_u64().unwrap()).collect();
    assert_eq!(seen, [1, 2, 3, 4, 5, 6]);
    node.close();
}

#[test]
fn a_source_stops_reading_while_memory_has_no_room_and_the_job_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let memory = MemoryBudget::new("memory.budget_bytes", 2_000);
    let node = Node::open_as(dir.path(), Setup { memory: memory.clone(), ..Setup::default() });
    node.create("numbers", 1);
    let others = memory.take(1_950).unwrap();
    let id = node.run(&json!({
        "version": 1, "kind": "Job", "name": "hungry",
        "sources": {"in": {"type": "stream", "config": {"topic": "numbers"}, "batch": {"size": 4}}},
        "sinks": {"out": {"type": "collect", "inputs": ["in"]}},
    }));
    (1..=4).for_each(|n| node.append("numbers", &record(n)));
    until("the job says that it waits for memory", || {
        let job = node.job(&id);
        let reason = job["reason"].as_str().unwrap_or_default();
        job["state"] == "running" && reason.contains("memory.budget_bytes = 2000") && job["memory_waits"] == 1
    });
    assert!(node.collected(&id, "out").is_empty());
    drop(others);
    until("all records are read", || node.collected(&id, "out").len() == 4);
    until("nothing waits, and all memory is given back", || {
        let job = node.job(&id);
        job["reason"] == Value::Null && job["in_flight_bytes"] == 0 && memory.used_bytes() == 0
    });
    node.close();
}

#[test]
fn a_batch_that_never_fits_fails_the_job_by_the_name_of_the_limit() {
    let dir = tempfile::tempdir().unwrap();
    let config = FlowConfig { job_in_flight_max_bytes: 50, ..FlowConfig::default() };
    let node = Node::open_as(dir.path(), Setup { config, ..Setup::default() });
    let id = node.run(&json!({
        "version": 1, "kind": "Job", "name": "large", "mode": "batch", "restart": {"policy": "never"},
        "sources": {"in": {"type": "list", "config": {"records": [{"n": 1}]}}},
        "sinks": {"out": {"type": "collect", "inputs": ["in"]}},
    }));
    let ended = node.ended(&id);
    let reason = ended["reason"].as_str().unwrap();
    assert!(reason.contains("flow.job_in_flight_max_bytes = 50; lower batch.size"), "{ended:#}");
    node.close();
}
