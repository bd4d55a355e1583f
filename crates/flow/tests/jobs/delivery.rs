//! Records from topic to topic: none is lost, keys keep their order, and a restart goes on.

use std::collections::BTreeMap;

use millstream_flow::StopMode;
use millstream_testkit::eventually;
use serde_json::{Value, json};

use crate::node::Node;

fn copy(name: &str) -> Value {
    json!({
        "version": 1, "kind": "Job", "name": name,
        "sources": {"in": {"type": "stream", "config": {"topic": "numbers"}, "batch": {"size": 7}}},
        "transforms": {
            "some": {"type": "filter", "inputs": ["in"], "where": "n % 3 != 0"},
            "twice": {"type": "map", "inputs": ["some"], "select": "*, n * 2 AS twice"},
        },
        "sinks": {"out": {"type": "stream", "inputs": ["twice"], "config": {"topic": "doubled"}}},
    })
}

fn records(range: std::ops::Range<u64>) -> Vec<(String, String)> {
    range.map(|n| (format!("k{}", n % 5), json!({ "n": n }).to_string())).collect()
}

/// The numbers of each key, in the order in which they were written.
fn by_key(node: &Node) -> BTreeMap<String, Vec<u64>> {
    let mut found: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for (key, value) in node.read("doubled") {
        assert_eq!(value["twice"].as_u64().unwrap(), value["n"].as_u64().unwrap() * 2);
        found.entry(key).or_default().push(value["n"].as_u64().unwrap());
    }
    found
}

fn expected(range: std::ops::Range<u64>) -> BTreeMap<String, Vec<u64>> {
    let mut wanted: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for n in range.filter(|n| n % 3 != 0) {
        wanted.entry(format!("k{}", n % 5)).or_default().push(n);
    }
    wanted
}

#[test]
fn a_job_goes_on_where_it_was_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::open(dir.path());
    node.create("numbers", 3);
    node.create("doubled", 2);
    node.append("numbers", &records(0..60));
    let id = node.run(&copy("copy"));
    eventually("the first records are there", || by_key(&node) == expected(0..60));
    node.close();

    let node = Node::open(dir.path());
    node.append("numbers", &records(60..100));
    eventually("the next records are there, and the first are not repeated", || by_key(&node) == expected(0..100));
    node.running(&id);
    node.close();
}

#[test]
fn a_stopped_job_has_finished_what_it_had_read_and_the_next_of_its_name_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::open(dir.path());
    node.create("numbers", 3);
    node.create("doubled", 2);
    node.append("numbers", &records(0..40));
    let first = node.run(&copy("copy"));
    eventually("some records are there", || !by_key(&node).is_empty());
    node.stop(&first, StopMode::Graceful);
    assert_eq!(node.ended(&first)["state"], "stopped");
    node.append("numbers", &records(40..80));
    let second = node.run(&copy("copy"));
    assert_ne!(first, second);
    eventually("all records are there, each once", || by_key(&node) == expected(0..80));
    node.close();
}

#[test]
fn a_job_waits_for_its_topics_and_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::open(dir.path());
    let id = node.run(&copy("copy"));
    eventually("the job says what it waits for", || {
        let job = node.job(&id);
        job["state"] == "starting" && job["reason"].as_str().is_some_and(|reason| reason.contains("does not exist"))
    });
    node.create("numbers", 1);
    node.create("doubled", 1);
    node.append("numbers", &records(0..10));
    eventually("the records are there", || by_key(&node) == expected(0..10));
    eventually("the job runs", || node.job(&id)["state"] == "running");
    node.close();
}

/// Seconds for which a job is watched that has nothing to do; `MILLSTREAM_IDLE_SECONDS` sets another number.
fn idle_seconds() -> u64 {
    std::env::var("MILLSTREAM_IDLE_SECONDS").map_or(2, |seconds| seconds.parse().unwrap())
}

#[test]
fn an_idle_job_takes_no_turn() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::open(dir.path());
    node.create("numbers", 2);
    node.create("doubled", 2);
    node.append("numbers", &records(0..20));
    let id = node.run(&copy("copy"));
    eventually("the records are there", || by_key(&node) == expected(0..20));
    let turns = || node.running(&id)["turns"].as_u64().unwrap();
    // The last turns store the position; a job that polls would never give two equal counts this far apart.
    let mut last = turns();
    eventually("the turns stand still", || {
        std::thread::sleep(std::time::Duration::from_millis(700));
        std::mem::replace(&mut last, turns()) == last
    });
    let (idle, seconds) = (turns(), idle_seconds());
    // Nothing is to happen, so there is nothing to wait for but the time.
    std::thread::sleep(std::time::Duration::from_secs(seconds));
    assert_eq!(turns(), idle, "after {seconds} s");
    node.append("numbers", &records(20..30));
    eventually("a record wakes it", || by_key(&node) == expected(0..30));
    assert!(turns() > idle);
    node.close();
}

#[test]
fn a_source_that_stops_at_the_end_lets_a_batch_job_complete() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::open(dir.path());
    node.create("numbers", 3);
    node.create("doubled", 2);
    node.append("numbers", &records(0..50));
    let mut job = copy("bounded");
    job["mode"] = "batch".into();
    job["sources"]["in"]["config"]["stop_at"] = "end".into();
    let id = node.run(&job);
    assert_eq!(node.ended(&id)["state"], "completed");
    assert_eq!(by_key(&node), expected(0..50));
    node.close();
}

#[test]
fn a_key_template_makes_the_keys_of_the_new_records() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::open(dir.path());
    node.create("numbers", 1);
    node.create("doubled", 2);
    node.append("numbers", &records(1..3));
    let mut job = copy("keyed");
    job["sinks"]["out"]["config"]["key"] = "n-{n}".into();
    node.run(&job);
    eventually("the records are there", || node.read("doubled").len() == 2);
    let mut keys: Vec<String> = node.read("doubled").into_iter().map(|(key, _)| key).collect();
    keys.sort();
    assert_eq!(keys, ["n-1", "n-2"]);
    node.close();
}

#[test]
fn at_most_once_stores_the_position_on_reading() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::open(dir.path());
    node.create("numbers", 3);
    node.create("doubled", 2);
    node.append("numbers", &records(0..40));
    let mut job = copy("once");
    job["delivery"] = "at_most_once".into();
    node.run(&job);
    eventually("the records are there", || by_key(&node) == expected(0..40));
    node.close();

    let node = Node::open(dir.path());
    node.append("numbers", &records(40..60));
    eventually("the job goes on", || by_key(&node) == expected(0..60));
    node.close();
}
