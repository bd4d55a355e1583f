//! Maps that look back at the earlier records of a key.

use std::collections::BTreeMap;
use std::time::Duration;

use millstream_testkit::eventually;
use serde_json::{Value, json};

use crate::node::Node;

/// A job that adds to each reading what came before it.
fn steps(delivery: &str, parallelism: u32) -> Value {
    json!({
        "version": 1, "kind": "Job", "name": "steps", "delivery": delivery, "checkpoint": {"interval": "20ms"},
        "sources": {"in": {"type": "stream", "config": {"topic": "readings"}, "batch": {"size": 7}, "parallelism": 2}},
        "transforms": {
            "steps": {
                "type": "map", "inputs": ["in"], "key_by": ["device"], "parallelism": parallelism, "config": {"ttl": "1d"},
                "select": "*, n - LAG(n) AS step, RUNNING_COUNT(n) AS count, RUNNING_SUM(n) AS sum, LAG(n, 3) AS third",
            },
        },
        "sinks": {"out": {"type": "stream", "inputs": ["steps"], "config": {"topic": "results"}}},
    })
}

/// The readings of ten devices with these numbers, each device in its order.
fn readings(numbers: std::ops::Range<u64>) -> Vec<(String, String)> {
    let of_number =
        |n| (0..10).map(move |device| (format!("d{device}"), json!({"device": device, "n": n}).to_string()));
    numbers.flat_map(of_number).collect()
}

/// The results of each device, by its numbers.
fn results(node: &Node) -> BTreeMap<u64, Vec<Value>> {
    let mut found: BTreeMap<u64, Vec<Value>> = BTreeMap::new();
    for (_, value) in node.read("results") {
        found.entry(value["device"].as_u64().unwrap()).or_default().push(value);
    }
    found.values_mut().for_each(|values| values.sort_by_key(|value| value["n"].as_u64()));
    found
}

fn expected(numbers: u64) -> BTreeMap<u64, Vec<Value>> {
    let result = |device: u64, n: u64| {
        json!({
            "device": device, "n": n, "step": n.checked_sub(1).map(|_| 1), "count": n + 1, "sum": n * (n + 1) / 2,
            "third": n.checked_sub(3),
        })
    };
    (0..10).map(|device| (device, (0..numbers).map(|n| result(device, n)).collect())).collect()
}

fn open(dir: &tempfile::TempDir) -> Node {
    let node = Node::open(dir.path());
    node.create("readings", 3);
    node.create("results", 2);
    node
}

#[test]
fn the_past_of_each_key_is_known_after_a_restart_with_any_number_of_instances() {
    for (delivery, parallelism) in [("at_least_once", 1), ("exactly_once", 1), ("exactly_once", 3)] {
        let dir = tempfile::tempdir().unwrap();
        let node = open(&dir);
        node.append("readings", &readings(0..20));
        let id = node.run(&steps(delivery, parallelism));
        eventually("all are there", || results(&node) == expected(20));
        eventually("all keys are committed", || {
            let job = node.job(&id);
            job["lag"] == 0 && job["checkpoint"]["epoch"].is_u64() && job["nodes"][1]["keys"] == 10
        });
        node.close();

        let node = Node::open(dir.path());
        eventually("the keys are counted before a record comes", || node.job(&id)["nodes"][1]["keys"] == 10);
        node.append("readings", &readings(20..50));
        eventually("the next ones go on from there", || results(&node) == expected(50));
        node.running(&id);
        node.close();
    }
}

#[test]
fn each_reading_is_counted_once_whenever_the_job_ends() {
    let dir = tempfile::tempdir().unwrap();
    let mut node = open(&dir);
    let id = node.run(&steps("exactly_once", 3));
    for round in 0..10_u64 {
        node.append("readings", &readings(round * 8..(round + 1) * 8));
        if round % 3 == 2 {
            eventually("some are there", || node.read("results").len() as u64 > round * 60);
        }
        node.jobs.shut_down(Duration::ZERO);
        node.close_log().unwrap();
        drop(node);
        node = Node::open(dir.path());
    }
    eventually("all are there", || results(&node) == expected(80));
    node.running(&id);
    node.close();
}

#[test]
fn a_key_is_forgotten_by_the_times_of_the_records() {
    let dir = tempfile::tempdir().unwrap();
    let node = open(&dir);
    let mut document = steps("exactly_once", 1);
    document["sources"]["in"]["event_time"] = json!({"field": "at", "idle_timeout": "50ms"});
    document["transforms"]["steps"]["config"] = json!({"ttl": "1s"});
    document["transforms"]["steps"]["select"] = json!("device, LAG(at) AS before, SINCE_CHANGE(device) AS since_ms");
    let reading = |at_ms: i64| ("d1".to_owned(), json!({"device": 1, "at": at_ms}).to_string());
    node.append("readings", &[0, 990, 1_990, 1_500].map(reading));
    let id = node.run(&document);
    let result = |before: Option<i64>, since_ms: i64| json!({"device": 1, "before": before, "since_ms": since_ms});
    // The last one is late.
    let expected = [result(None, 0), result(Some(0), 990), result(None, 0), result(Some(1_990), 0)];
    eventually("the records are there", || results(&node).get(&1).is_some_and(|found| *found == expected));
    // Time goes on without records.
    eventually("the key is forgotten", || node.job(&id)["nodes"][1]["keys"] == 0);
    node.close();
}

#[test]
fn a_job_whose_keys_outgrow_its_memory_fails_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let config = millstream_flow::FlowConfig { job_state_max_bytes: 64 << 10, ..Default::default() };
    let node = Node::open_with(dir.path(), config, millstream_flow::Functions::default());
    node.create("readings", 3);
    node.create("results", 2);
    // Few keys with long pasts.
    let text = "x".repeat(500);
    let readings: Vec<_> =
        (0..200).map(|n| (format!("d{}", n % 3), json!({"device": n % 3, "n": text}).to_string())).collect();
    node.append("readings", &readings);
    let mut document = steps("at_least_once", 1);
    document["restart"] = json!({"policy": "never"});
    document["transforms"]["steps"]["select"] = json!("LAG(n, 100) AS before");
    let id = node.run(&document);
    let job = node.ended(&id);
    assert_eq!((&job["state"], &job["error"]["node"]), (&json!("failed"), &json!("steps")), "{job:#}");
    assert!(job["reason"].as_str().unwrap().contains("flow.job_state_max_bytes = 65536"), "{job:#}");
    node.close();
}
