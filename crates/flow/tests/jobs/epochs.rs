//! Jobs that keep state, and jobs whose results are committed with their positions.

use std::collections::BTreeMap;

use millstream_flow::{FlowConfig, Functions, StopMode};
use millstream_log::TopicConfig;
use millstream_testkit::eventually;
use millstream_types::{Record, TopicName, TopicPartition, partition_of_key};
use serde_json::{Value, json};

use crate::node::Node;

/// A job that passes each message once, in several instances.
fn once(name: &str, delivery: &str, parallelism: u32) -> Value {
    json!({
        "version": 1, "kind": "Job", "name": name, "delivery": delivery, "checkpoint": {"interval": "20ms"},
        "sources": {"in": {"type": "stream", "config": {"topic": "messages"}, "batch": {"size": 7}, "parallelism": 2}},
        "transforms": {
            "once": {
                "type": "deduplicate", "inputs": ["in"], "key_by": ["id"], "config": {"ttl": "1h"},
                "parallelism": parallelism, "select": "*, id * 2 AS twice",
            },
        },
        "sinks": {"out": {"type": "stream", "inputs": ["once"], "config": {"topic": "results"}}},
    })
}

fn messages(ids: impl IntoIterator<Item = u64>) -> Vec<(String, String)> {
    ids.into_iter().enumerate().map(|(n, id)| (format!("k{}", n % 5), json!({ "id": id }).to_string())).collect()
}

/// The number of results of each id.
fn results(node: &Node) -> BTreeMap<u64, usize> {
    let mut counts = BTreeMap::new();
    for (_, value) in node.read("results") {
        assert_eq!(value["twice"].as_u64().unwrap(), value["id"].as_u64().unwrap() * 2);
        *counts.entry(value["id"].as_u64().unwrap()).or_default() += 1;
    }
    counts
}

fn each_once(ids: std::ops::Range<u64>) -> BTreeMap<u64, usize> {
    ids.map(|id| (id, 1)).collect()
}

fn state_topics(node: &Node) -> usize {
    node.log.topics().iter().filter(|topic| topic.name.is_job_state()).count()
}

fn open(dir: &tempfile::TempDir) -> Node {
    Node::open(dir.path())
}

/// A key of the partition `number` of two.
fn key_of(number: u32) -> String {
    let keys = (0..).map(|n| format!("k{n}"));
    keys.into_iter().find(|key| partition_of_key(key.as_bytes(), 2).0 == number).unwrap()
}

#[test]
fn repetitions_are_dropped_by_event_time_though_another_partition_is_years_ahead() {
    const MINUTE_MS: u64 = 60_000;
    const DAY_MS: u64 = 24 * 60 * MINUTE_MS;
    for parallelism in [1, 3] {
        let dir = tempfile::tempdir().unwrap();
        let node = open(&dir);
        node.create("messages", 2);
        node.create("results", 1);
        let message = |key: &str, id: u64, at: u64| (key.to_owned(), json!({"id": id, "at": at}).to_string());
        let [slow, fast] = [0, 1].map(key_of);
        let mut messages = Vec::new();
        for n in 0..300 {
            messages.push(message(&slow, n, n * MINUTE_MS));
            // It comes again after half an hour, and in the other partition after two days.
            messages.extend(n.checked_sub(30).map(|id| message(&slow, id, n * MINUTE_MS)));
            messages.push(message(&fast, 1_000 + n / 2, n * 2 * DAY_MS));
        }
        node.append("messages", &messages);
        let mut job = once("once", "exactly_once", parallelism);
        job["sources"]["in"]["event_time"] = json!({"field": "at", "idle_timeout": "1h"});
        let id = node.run(&job);
        let all: BTreeMap<u64, usize> = (0..300).map(|id| (id, 1)).chain((1_000..1_150).map(|id| (id, 2))).collect();
        let is_read = || node.job(&id)["lag"] == 0 && node.job(&id)["in_flight_bytes"] == 0;
        eventually("all are read and committed", is_read);
        eventually("each message is there as often as it should be", || results(&node).len() == all.len());
        assert_eq!(results(&node), all);
        node.close();
    }
}

#[test]
fn state_is_there_after_a_restart_with_any_delivery_that_keeps_it() {
    for (delivery, parallelism) in [("at_least_once", 1), ("exactly_once", 1), ("exactly_once", 3)] {
        let dir = tempfile::tempdir().unwrap();
        let node = open(&dir);
        node.create("messages", 3);
        node.create("results", 2);
        node.append("messages", &messages((0..100).chain(0..100)));
        let id = node.run(&once("once", delivery, parallelism));
        eventually("each message is there once", || results(&node) == each_once(0..100));
        eventually("they are committed", || node.job(&id)["lag"] == 0 && node.job(&id)["checkpoint"]["epoch"].is_u64());
        node.close();

        let node = open(&dir);
        node.append("messages", &messages((50..150).chain(0..200)));
        eventually("the known ones are not repeated", || results(&node) == each_once(0..200));
        node.running(&id);
        node.close();
    }
}

#[test]
fn results_of_an_epoch_that_was_not_committed_are_never_seen_and_come_again() {
    let dir = tempfile::tempdir().unwrap();
    let node = open(&dir);
    node.create("messages", 3);
    node.create("results", 2);
    for round in 0..10_u64 {
        node.append("messages", &messages(round * 50..(round + 1) * 50));
        let id = node.run(&once("once", "exactly_once", 2));
        if round % 3 == 0 {
            eventually("some are there", || results(&node).len() as u64 > round * 50);
        }
        node.stop(&id, StopMode::Immediate);
        node.ended(&id);
    }
    node.run(&once("once", "exactly_once", 2));
    eventually("each message is there once", || results(&node) == each_once(0..500));
    node.close();
}

#[test]
fn a_job_without_state_commits_its_results_with_its_positions() {
    let dir = tempfile::tempdir().unwrap();
    let node = open(&dir);
    node.create("messages", 3);
    node.create("results", 2);
    let mut document = once("copy", "exactly_once", 1);
    document["transforms"] = json!({"twice": {"type": "map", "inputs": ["in"], "select": "*, id * 2 AS twice"}});
    document["sinks"]["out"]["inputs"] = json!(["twice"]);
    node.append("messages", &messages(0..300));
    let id = node.run(&document);
    eventually("all are there", || results(&node) == each_once(0..300));
    node.stop(&id, StopMode::Graceful);
    assert_eq!(node.ended(&id)["state"], "stopped");
    node.append("messages", &messages(300..400));
    node.run(&document);
    eventually("the next job of the name goes on", || results(&node) == each_once(0..400));
    node.close();
}

#[test]
fn a_run_whose_writer_is_fenced_commits_nothing_more() {
    let dir = tempfile::tempdir().unwrap();
    let node = open(&dir);
    node.create("messages", 3);
    node.create("results", 2);
    let id = node.run(&once("once", "exactly_once", 2));
    node.append("messages", &messages(0..100));
    eventually("the first are there", || results(&node) == each_once(0..100));
    // As a second process would that takes the job over, again and again.
    let name = format!("job/{}/{id}", node.tenant);
    for round in 1..=2_u64 {
        let taken = node.log.writer(&name).unwrap();
        node.append("messages", &messages(round * 100..(round + 1) * 100));
        eventually("the run has noticed it", || node.job(&id)["restarts"].as_u64() == Some(round));
        drop(taken);
        eventually("the next run goes on, and nothing is there twice", || {
            results(&node) == each_once(0..(round + 1) * 100)
        });
    }
    node.close();
}

#[test]
fn a_batch_job_ends_with_the_commit_of_all_it_has_read() {
    let dir = tempfile::tempdir().unwrap();
    let node = open(&dir);
    node.create("messages", 3);
    node.create("results", 2);
    node.append("messages", &messages((0..100).chain(0..50)));
    let mut document = once("batch", "exactly_once", 3);
    document["mode"] = json!("batch");
    document["checkpoint"]["interval"] = json!("1h");
    document["sources"]["in"]["config"]["stop_at"] = json!("end");
    let id = node.run(&document);
    assert_eq!(node.ended(&id)["state"], "completed", "{:#}", node.job(&id));
    assert_eq!(results(&node), each_once(0..100));
    eventually("its state is gone", || state_topics(&node) == 0);
    node.close();
}

#[test]
fn state_is_kept_for_as_long_as_its_job_is_listed() {
    let dir = tempfile::tempdir().unwrap();
    let config = || FlowConfig { ended_per_tenant_max: 2, ..FlowConfig::default() };
    let node = Node::open_with(dir.path(), config(), Functions::default());
    node.create("messages", 3);
    node.create("results", 2);
    let run = |node: &Node, name: &str| node.run(&once(name, "exactly_once", 1));
    let (runs, killed, stopped) = (run(&node, "runs"), run(&node, "killed"), run(&node, "stopped"));
    eventually("all have state", || state_topics(&node) == 3);
    node.kill(&killed).unwrap();
    assert_eq!(node.ended(&killed)["state"], "killed");
    node.stop(&stopped, StopMode::Graceful);
    assert_eq!(node.ended(&stopped)["state"], "stopped");
    node.close();

    // As if the process had ended between the end of a job's record and that of its state.
    let node = Node::open_with(dir.path(), config(), Functions::default());
    node.log.create_topic(&TopicName::job_state("0123"), &TopicConfig::default()).unwrap();
    node.close();
    let node = Node::open_with(dir.path(), config(), Functions::default());
    assert_eq!((state_topics(&node), &node.job(&runs)["id"]), (3, &json!(runs)));

    let third = run(&node, "third");
    eventually("it has state, too", || state_topics(&node) == 4);
    node.stop(&third, StopMode::Graceful);
    node.ended(&third);
    // Three jobs have ended, and two are remembered: the oldest goes with its state.
    let last = run(&node, "last");
    eventually("the first is forgotten", || node.jobs.get(&node.tenant, &killed).is_err());
    eventually("the state of four is there", || state_topics(&node) == 4);
    eventually("the last one is among them", || node.job(&last)["state"] == "running");
    node.close();
}

#[test]
fn a_commit_of_many_appends_is_one() {
    let dir = tempfile::tempdir().unwrap();
    let node = open(&dir);
    node.create("messages", 3);
    node.create("results", 2);
    // 6 MiB of keys and as much of results: some twenty appends, which take several turns.
    let padding = "x".repeat(2 << 10);
    let message = |id: u64| (format!("k{}", id % 5), json!({"id": id, "name": format!("{id}{padding}")}).to_string());
    node.append("messages", &(0..3_000).map(message).collect::<Vec<_>>());
    let mut document = once("large", "exactly_once", 2);
    document["mode"] = json!("batch");
    document["checkpoint"]["interval"] = json!("1h");
    document["sources"]["in"]["config"]["stop_at"] = json!("end");
    document["transforms"]["once"]["key_by"] = json!(["name"]);
    let id = node.run(&document);
    let job = node.ended(&id);
    assert_eq!(job["state"], "completed", "{job:#}");
    assert!(results(&node) == each_once(0..3_000));
    node.close();
}

#[test]
fn an_epoch_ends_early_for_a_source_that_may_read_no_further() {
    let dir = tempfile::tempdir().unwrap();
    let node = open(&dir);
    node.create("messages", 3);
    node.create("results", 2);
    node.append("messages", &messages(0..500));
    let mut document = once("early", "exactly_once", 1);
    document["checkpoint"]["interval"] = json!("1h");
    document["sources"]["in"]["max_in_flight"] = json!(20);
    let id = node.run(&document);
    eventually("nearly all are there", || results(&node).len() > 400);
    node.stop(&id, StopMode::Graceful);
    assert_eq!(node.ended(&id)["state"], "stopped");
    document["checkpoint"]["interval"] = json!("20ms");
    node.run(&document);
    eventually("the next job of the name has read the rest", || results(&node) == each_once(0..500));
    node.close();
}

#[test]
fn a_job_whose_state_outgrows_its_bound_fails_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let config = millstream_flow::FlowConfig { job_state_max_bytes: 64 << 10, ..Default::default() };
    let node = Node::open_with(dir.path(), config, millstream_flow::Functions::default());
    node.create("messages", 3);
    node.create("results", 2);
    node.append("messages", &messages(0..2_000));
    let mut document = once("large", "at_least_once", 1);
    document["restart"] = json!({"policy": "never"});
    let id = node.run(&document);
    let job = node.ended(&id);
    assert_eq!((&job["state"], &job["error"]["node"]), (&json!("failed"), &json!("once")), "{job:#}");
    assert!(job["reason"].as_str().unwrap().contains("flow.job_state_max_bytes = 65536"), "{job:#}");
    node.close();
}

#[test]
fn a_batch_job_ends_behind_records_that_were_never_committed() {
    let dir = tempfile::tempdir().unwrap();
    let node = open(&dir);
    node.create("messages", 1);
    node.create("results", 2);
    node.append("messages", &messages(0..10));
    // A writer that was killed in the middle of a commit, and the next one of its name.
    let topic = TopicName::user("messages", &node.tenant).unwrap();
    let id = TopicPartition::new(topic, 0);
    let writer = node.log.writer("another").unwrap();
    let value = json!({"id": 77}).to_string();
    writer.append(&id, &[Record { value: Some(value.as_bytes()), ..Record::default() }]).unwrap();
    drop(node.log.writer("another").unwrap());
    let partition = node.log.partition(&id).unwrap();
    eventually("nothing is open", || partition.offsets().stable == partition.offsets().tail);
    let mut document = once("batch", "exactly_once", 3);
    document["mode"] = json!("batch");
    document["sources"]["in"]["config"]["stop_at"] = json!("end");
    let id = node.run(&document);
    assert_eq!(node.ended(&id)["state"], "completed", "{:#}", node.job(&id));
    assert_eq!(results(&node), each_once(0..10));
    node.close();
}
