//! Positions of sources: each source has its own, they are stored before the first record, and follow their topic.

use std::collections::BTreeSet;

use millstream_flow::{Error, StopMode};
use millstream_testkit::eventually;
use millstream_types::{Offset, TopicName, TopicPartition, partition_of_key};
use serde_json::{Value, json};

use crate::node::Node;

fn copy(source: &Value) -> Value {
    json!({
        "version": 1, "kind": "Job", "name": "copy",
        "sources": {"in": {"type": "stream", "config": source, "batch": {"size": 7}}},
        "sinks": {"out": {"type": "stream", "inputs": ["in"], "config": {"topic": "copies"}}},
    })
}

fn records(range: std::ops::Range<u64>) -> Vec<(String, String)> {
    range.map(|n| (format!("k{n}"), json!({ "n": n }).to_string())).collect()
}

fn numbers(node: &Node, topic: &str) -> Vec<u64> {
    let mut found: Vec<u64> = node.read(topic).iter().map(|(_, value)| value["n"].as_u64().unwrap()).collect();
    found.sort_unstable();
    found
}

fn topic(node: &Node, name: &str) -> TopicName {
    TopicName::user(name, &node.tenant).unwrap()
}

/// Waits until the source `in` of the job `copy` has stored where it begins.
fn until_the_start_is_stored(node: &Node) {
    let is_stored = || !node.log.positions("job:default:copy:in").unwrap().is_empty();
    eventually("the place where the job begins is stored", is_stored);
}

#[test]
fn two_sources_over_one_topic_each_read_all_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::open(dir.path());
    node.create("numbers", 2);
    node.create("quick", 1);
    node.append("numbers", &records(0..60));
    let source = json!({"type": "stream", "config": {"topic": "numbers"}});
    let sink = |input: &str, topic: &str| json!({"type": "stream", "inputs": [input], "config": {"topic": topic}});
    let job = json!({
        "version": 1, "kind": "Job", "name": "two",
        "sources": {"first": source, "second": source},
        "sinks": {"out": sink("first", "quick"), "late": sink("second", "slow")},
    });
    let id = node.run(&job);
    // The second source waits for the topic of its sink.
    eventually("the first source is finished", || {
        numbers(&node, "quick").len() == 60 && node.job(&id)["nodes"][0]["lag"] == 0
    });
    node.stop(&id, StopMode::Immediate);
    node.ended(&id);
    node.create("slow", 1);
    node.run(&job);
    eventually("the second source has all records, too", || numbers(&node, "slow") == (0..60).collect::<Vec<_>>());
    assert_eq!(numbers(&node, "quick").len(), 60, "the first repeats nothing");
    node.close();
}

#[test]
fn records_that_arrive_after_a_start_at_the_latest_place_survive_an_early_end() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::open(dir.path());
    node.create("numbers", 2);
    node.append("numbers", &records(0..10));
    // Without the sink's topic nothing is ever finished.
    node.run(&copy(&json!({"topic": "numbers", "start": "latest"})));
    until_the_start_is_stored(&node);
    node.append("numbers", &records(10..30));
    node.close();

    let node = Node::open(dir.path());
    node.create("copies", 1);
    eventually("the records behind the start are there", || numbers(&node, "copies") == (10..30).collect::<Vec<_>>());
    node.close();
}

#[test]
fn partitions_that_are_added_are_read_from_their_first_record_and_written_by_key() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::open(dir.path());
    node.create("numbers", 1);
    node.create("copies", 1);
    let mut job = copy(&json!({"topic": "numbers", "start": "latest"}));
    job["sources"]["in"]["parallelism"] = 2.into();
    let id = node.run(&job);
    eventually("the job runs", || node.job(&id)["state"] == "running");
    node.append("numbers", &records(0..10));
    eventually("the first records are there", || numbers(&node, "copies").len() == 10);
    node.log.add_partitions(&topic(&node, "copies"), 4).unwrap();
    node.log.add_partitions(&topic(&node, "numbers"), 3).unwrap();
    node.append("numbers", &records(10..40));
    eventually("the records of all partitions are there", || numbers(&node, "copies") == (0..40).collect::<Vec<_>>());
    let copies = topic(&node, "copies");
    for number in 0..4 {
        let partition = node.log.partition(&TopicPartition::new(copies.clone(), number)).unwrap();
        let batches = partition.read(partition.offsets().first, 1 << 20, millstream_log::UpTo::Stable).unwrap();
        for record in batches.iter().flat_map(|batch| batch.records()) {
            let record = record.unwrap();
            let value: Value = serde_json::from_slice(record.value.unwrap()).unwrap();
            let wanted = partition_of_key(record.key.unwrap(), 4).0;
            assert!(value["n"].as_u64().unwrap() < 10 || wanted == number, "{value} is in {number}, not {wanted}");
        }
    }
    let lag = || node.job(&id)["nodes"][0]["lag"].clone();
    eventually("the lag counts all partitions", || lag() == 0);
    node.close();
}

#[test]
fn a_topic_that_is_deleted_and_made_again_is_read_from_its_first_record() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::open(dir.path());
    node.create("numbers", 2);
    node.create("copies", 1);
    let id = node.run(&copy(&json!({"topic": "numbers", "start": "latest"})));
    eventually("the job runs", || node.job(&id)["state"] == "running");
    node.append("numbers", &records(0..10));
    eventually("the records of the first topic are there", || numbers(&node, "copies").len() == 10);
    node.log.delete_topic(&topic(&node, "numbers")).unwrap();
    let waits = || {
        let job = node.job(&id);
        job["reason"].as_str().is_some_and(|reason| reason.contains("'numbers', which does not exist"))
    };
    eventually("the job says that the topic is gone", waits);
    node.create("numbers", 3);
    node.append("numbers", &records(10..40));
    eventually("the records of the second topic are there", || numbers(&node, "copies") == (0..40).collect::<Vec<_>>());
    let job = node.running(&id);
    assert_eq!((&job["restarts"], &job["reason"]), (&json!(0), &Value::Null));
    node.close();

    let node = Node::open(dir.path());
    node.append("numbers", &records(40..50));
    eventually("the job goes on in the second topic", || numbers(&node, "copies") == (0..50).collect::<Vec<_>>());
    node.close();
}

#[test]
fn the_status_tells_how_many_records_were_removed_before_the_job_read_them() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::open(dir.path());
    node.create("numbers", 1);
    node.append("numbers", &records(0..20));
    let id = node.run(&copy(&json!({"topic": "numbers"})));
    until_the_start_is_stored(&node);
    node.close();

    let node = Node::open(dir.path());
    let partition = node.log.partition(&TopicPartition::new(topic(&node, "numbers"), 0)).unwrap();
    partition.trim(Offset(15)).unwrap();
    node.create("copies", 1);
    eventually("the records that are left are there", || numbers(&node, "copies").contains(&19));
    let left: BTreeSet<u64> = numbers(&node, "copies").into_iter().collect();
    let job = node.job(&id);
    assert_eq!(job["nodes"][0]["trimmed"].as_u64().unwrap(), 20 - left.len() as u64, "{job:#}");
    node.close();
}

#[test]
fn a_job_whose_source_would_share_the_position_of_a_running_one_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::open(dir.path());
    for topic in ["numbers", "others", "copies"] {
        node.create(topic, 1);
    }
    let named = |name: &str, source: &Value| {
        let mut job = copy(source);
        job["name"] = name.into();
        job
    };
    let own = node.run(&copy(&json!({"topic": "numbers"})));
    let grouped = node.run(&named("grouped", &json!({"topic": "numbers", "group": "g"})));
    for (group, holder) in [("g", &grouped), ("copy:in", &own)] {
        let refused = node.submit(&named("other", &json!({"topic": "numbers", "group": group})));
        let Err(Error::GroupTaken { id, topic, group: taken, .. }) = refused else { panic!("{group}: {refused:?}") };
        assert_eq!((&id, topic.as_str()), (holder, "numbers"));
        assert_eq!(taken, format!("job:default:{group}"));
    }
    // A position is that of a group in one topic, and is free once its job has ended.
    let other = node.run(&named("other", &json!({"topic": "others", "group": "g"})));
    node.stop(&grouped, StopMode::Immediate);
    node.ended(&grouped);
    let next = node.run(&named("next", &json!({"topic": "numbers", "group": "g"})));
    for id in [own, other, next] {
        node.stop(&id, StopMode::Immediate);
        node.ended(&id);
    }
    node.close();
}
