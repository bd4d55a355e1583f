//! The events of jobs, in the topic `_job_events`.

use std::time::Duration;

use millstream_flow::{EVENT_TENANT_HEADER, Error, ParallelismChange, StopMode};
use millstream_log::UpTo;
use millstream_testkit::eventually;
use millstream_types::{StateTopic, TopicName, TopicPartition};
use serde_json::{Value, json};

use crate::node::Node;
use crate::replacing::copy;
use crate::resuming::{counts, open, readings};

const TIME: Duration = Duration::from_secs(30);

/// The events of a job, in order.
fn events(node: &Node, id: &str) -> Vec<Value> {
    all(node).into_iter().filter(|event| event["job"] == id).collect()
}

/// All events, in order.
pub(crate) fn all(node: &Node) -> Vec<Value> {
    let partition = TopicPartition::new(TopicName::internal(StateTopic::JobEvents), 0);
    let partition = node.log.partition(&partition).unwrap();
    let (mut found, mut next) = (Vec::new(), partition.offsets().first);
    loop {
        let batches = partition.read(next, 1 << 20, UpTo::Stable).unwrap();
        let Some(last) = batches.last() else { return found };
        next = last.next_offset();
        for record in batches.iter().flat_map(|batch| batch.records()).map(Result::unwrap) {
            let event: Value = serde_json::from_slice(record.value.unwrap()).unwrap();
            let tenant = record.headers().find(|header| header.key == EVENT_TENANT_HEADER).unwrap();
            assert_eq!(tenant.value, Some(node.tenant.as_str().as_bytes()));
            assert_eq!(record.key, Some(event["job"].as_str().unwrap().as_bytes()));
            assert!(record.timestamp_ms > 0);
            found.push(event);
        }
    }
}

pub(crate) fn names(node: &Node, id: &str) -> Vec<String> {
    events(node, id).iter().map(|event| event["event"].as_str().unwrap().to_owned()).collect()
}

/// Waits until the last event of a job is the one of this name.
fn wait_for(node: &Node, id: &str, last: &str) {
    eventually(last, || names(node, id).last().is_some_and(|name| name == last));
}

#[test]
fn each_step_of_a_jobs_life_is_told_once_and_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let node = open(&dir);
    let document = counts("counts", "exactly_once", 2);
    let first = node.run(&document);
    wait_for(&node, &first, "started");
    node.append("readings", &readings(0..10));
    node.rescale(&first, ParallelismChange::All(json!(3)), TIME).unwrap();
    eventually("it is started again", || names(&node, &first).len() == 4);
    let second = node.replace(&document, TIME).unwrap().id;
    wait_for(&node, &second, "started");
    let told = events(&node, &first);
    let hash = &node.job(&first)["hash"];
    let of = |event: &str, more: Value| {
        let mut told = json!({"event": event, "job": first, "name": "counts"});
        told.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        told
    };
    let expected = [
        of("submitted", json!({"by": "test", "hash": hash})),
        of("started", json!({"restarts": 0})),
        of("rescaled", json!({"parallelism": {"counts": 3, "in": 3}})),
        of("started", json!({"restarts": 0})),
        of("stopped", json!({"replaced_by": second})),
    ];
    assert_eq!(told, expected);
    assert_eq!(events(&node, &second)[0]["resumed_from"], json!(first));
    node.close();

    // A restart of the process starts it again, and tells nothing of the others.
    let node = Node::open(dir.path());
    eventually("it is started again", || names(&node, &second) == ["submitted", "started", "started"]);
    node.stop(&second, StopMode::Checkpoint);
    node.ended(&second);
    assert_eq!(names(&node, &second)[3..], ["stopping", "stopped"]);
    assert_eq!(events(&node, &second)[3]["to"], "stopped");
    assert_eq!(events(&node, &first), expected);
    node.close();
}

#[test]
fn failures_are_told_with_their_reasons_and_a_refused_submission_is_none() {
    let dir = tempfile::tempdir().unwrap();
    let node = open(&dir);
    let mut document = copy("in");
    document["restart"] = json!({"max_attempts": 1, "backoff": "0ms"});
    document["sinks"]["out"]["where"] = json!("1 / n > 0");
    let id = node.run(&document);
    assert!(matches!(node.submit(&document), Err(Error::NameTaken { .. })));
    wait_for(&node, &id, "started");
    node.append("readings", &readings(0..1));
    node.ended(&id);
    assert_eq!(names(&node, &id), ["submitted", "started", "restarting", "started", "failed"]);
    for number in [2, 4] {
        let event = &events(&node, &id)[number];
        assert!(event["node"] == "out" && event["reason"].as_str().unwrap().contains("1 / n"), "{event:#}");
    }

    let mut list = copy("in");
    list["mode"] = json!("batch");
    list["sources"]["in"] = json!({"type": "list", "config": {"records": [{"n": 1}]}});
    let id = node.run(&list);
    node.ended(&id);
    assert_eq!(names(&node, &id), ["submitted", "started", "completed"]);

    let id = node.run(&copy("in"));
    wait_for(&node, &id, "started");
    node.kill(&id).unwrap();
    node.ended(&id);
    assert_eq!(names(&node, &id), ["submitted", "started", "stopping", "killed"]);
    node.close();
}
