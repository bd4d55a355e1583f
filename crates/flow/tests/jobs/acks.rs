//! Records in flight: those that are not finished in time, batches that are not full, and memory that has no room. The
//! tests move the time.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use millstream_flow::FlowConfig;
use millstream_testkit::eventually;
use millstream_types::{ManualClock, MemoryBudget};
use serde_json::{Value, json};

use crate::node::{Node, Setup};

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
    eventually("the first record is sent", || *received.lock().unwrap() == [json!({"n": 1})]);
    clock.advance(Duration::from_secs(60));
    // The topic stays quiet. The threads look at the time once something wakes them, here the records of another job.
    node.create("others", 1);
    let other = node.run(&json!({
        "version": 1, "kind": "Job", "name": "other",
        "sources": {"in": {"type": "stream", "config": {"topic": "others"}}},
        "sinks": {"out": {"type": "blackhole", "inputs": ["in"]}},
    }));
    eventually("the record is sent again", || {
        node.append("others", &record(0));
        *received.lock().unwrap() == [json!({"n": 1}), json!({"n": 1})]
    });
    node.kill(&other).unwrap();
    let job = node.running(&id);
    assert_eq!(job["restarts"], json!(1), "{job:#}");
    let error = &job["error"];
    assert_eq!((&error["code"], &error["node"]), (&json!("ack_timeout"), &json!("in")), "{error:#}");
    assert_eq!((&error["record"], &error["stage"]), (&json!("numbers/0 0"), &json!("ack")), "{error:#}");
    assert!(error["message"].as_str().unwrap().contains("60000 ms"), "{error:#}");
    node.close();
}

/// Answers a request with 204 for each message; the number of requests so far.
fn serve_when_told() -> (SocketAddr, Arc<AtomicUsize>, Sender<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let received = Arc::new(AtomicUsize::new(0));
    let (count, (told, answers)) = (Arc::clone(&received), channel());
    thread::spawn(move || {
        for socket in listener.incoming() {
            let mut socket = BufReader::new(socket.unwrap());
            let mut line = String::new();
            while socket.read_line(&mut line).unwrap() > 2 {
                line.clear();
            }
            count.fetch_add(1, Ordering::Relaxed);
            if answers.recv().is_err() {
                return;
            }
            socket.get_mut().write_all(b"HTTP/1.1 204 X\r\nconnection: close\r\n\r\n").unwrap();
        }
    });
    (address, received, told)
}

/// A job that sends the records of a batch one by one.
fn one_by_one(address: SocketAddr) -> Value {
    json!({
        "version": 1, "kind": "Job", "name": "slow", "restart": {"backoff": "0ms", "max_attempts": 2},
        "sources": {"in": {
            "type": "stream", "config": {"topic": "numbers"}, "ack_timeout": "60s", "batch": {"size": 4},
        }},
        "sinks": {"out": {
            "type": "http", "inputs": ["in"],
            "config": {"url": format!("http://{address}/"), "timeout": "1h", "per": "record"},
        }},
    })
}

#[test]
fn a_receiver_that_is_slow_but_answers_causes_no_restart() {
    let dir = tempfile::tempdir().unwrap();
    let (node, clock) = open(dir.path());
    let (address, received, answer) = serve_when_told();
    (1..=4).for_each(|n| node.append("numbers", &record(n)));
    let id = node.run(&one_by_one(address));
    for number in 1..=4 {
        eventually("the next request is there", || received.load(Ordering::Relaxed) == number);
        clock.advance(Duration::from_secs(40));
        // A turn looks at the time.
        let turns = || node.running(&id)["turns"].as_u64().unwrap();
        let before = turns();
        node.append("numbers", &record(100));
        eventually("the job takes a turn", || turns() > before);
        answer.send(()).unwrap();
    }
    let finished = || node.job(&id)["nodes"][0]["offset"].as_u64().unwrap();
    eventually("the batch is finished", || finished() >= 4);
    assert_eq!(node.job(&id)["restarts"], 0, "{:#}", node.job(&id));
    drop(answer);
    node.close();
}

#[test]
fn a_job_whose_records_are_never_finished_is_failed_after_its_restarts() {
    let dir = tempfile::tempdir().unwrap();
    let (node, clock) = open(dir.path());
    // Connections are taken, and nobody reads them.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = listener.local_addr().unwrap();
    node.append("numbers", &record(1));
    let id = node.run(&one_by_one(silent));
    let has_ended = || {
        clock.advance(Duration::from_secs(61));
        node.append("numbers", &record(2));
        node.job(&id)["state"] == "failed"
    };
    eventually("the job is failed", has_ended);
    let job = node.job(&id);
    assert_eq!((&job["restarts"], &job["error"]["code"]), (&json!(2), &json!("ack_timeout")), "{job:#}");
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
        eventually(what, || node.job(&id)["nodes"][0]["records_in"] == records);
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
    eventually("the rest is read once its time has passed", moved);
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
    eventually("the job says that it waits for memory", || {
        let job = node.job(&id);
        let reason = job["reason"].as_str().unwrap_or_default();
        job["state"] == "running" && reason.contains("memory.budget_bytes = 2000") && job["memory_waits"] == 1
    });
    assert!(node.collected(&id, "out").is_empty());
    drop(others);
    eventually("all records are read", || node.collected(&id, "out").len() == 4);
    eventually("nothing waits, and only what is collected takes memory", || {
        let job = node.job(&id);
        job["reason"] == Value::Null && job["in_flight_bytes"] == 0 && memory.used_bytes() < 200
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

#[test]
fn what_collect_keeps_is_bounded_in_bytes_and_given_back_once_other_jobs_have_ended() {
    let dir = tempfile::tempdir().unwrap();
    let memory = MemoryBudget::new("memory.budget_bytes", 1 << 30);
    let node = Node::open_as(dir.path(), Setup { memory: memory.clone(), ..Setup::default() });
    let run = |name: &str, count: usize| {
        let record = json!({"list": vec![0; count], "text": "x".repeat(900_000)});
        let id = node.run(&json!({
            "version": 1, "kind": "Job", "name": name, "mode": "batch",
            "sources": {"in": {"type": "list", "config": {"records": [record]}}},
            "transforms": {"each": {"type": "explode", "inputs": ["in"], "config": {"field": "list"}}},
            "sinks": {"out": {"type": "collect", "inputs": ["each"]}},
        }));
        assert_eq!(node.ended(&id)["state"], "completed");
        id
    };
    let large = run("large", 20);
    assert_eq!(node.collected(&large, "out").len(), 9, "8 MiB of 20 records of 900 kB");
    let kept_bytes = memory.used_bytes();
    assert!((8_000_000..=8 << 20).contains(&kept_bytes), "{kept_bytes}");
    for number in 0..5 {
        run(&format!("small-{number}"), 1);
    }
    assert!(node.collected(&large, "out").is_empty());
    eventually("its memory is given back", || memory.used_bytes() < 5_000_000);
    node.close();
}
