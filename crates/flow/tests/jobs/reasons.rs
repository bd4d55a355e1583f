//! The reason that a job's status gives for what it does not do.

use std::sync::atomic::{AtomicU32, Ordering};

use millstream_flow::{Batch, FlowConfig, FunctionOutput, Functions, NativeFunction, Params, RecordError};
use millstream_testkit::eventually;
use serde_json::{Value, json};

use crate::node::Node;

fn reason(node: &Node, id: &str) -> String {
    node.job(id)["reason"].as_str().unwrap_or_default().to_owned()
}

/// A job over the topic `numbers` that fails on a record of 0.
fn dividing() -> Value {
    json!({
        "version": 1, "kind": "Job", "name": "dividing", "restart": {"policy": "never"},
        "sources": {"in": {"type": "stream", "config": {"topic": "numbers"}}},
        "transforms": {"div": {"type": "map", "inputs": ["in"], "select": "1 / n AS q"}},
        "sinks": {"out": {"type": "collect", "inputs": ["div"]}},
    })
}

fn append_zero(node: &Node) {
    node.create("numbers", 1);
    node.append("numbers", &[("k".to_owned(), "{\"n\":0}".to_owned())]);
}

#[test]
fn a_record_that_is_read_again_and_again_is_the_reason_of_its_job() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::open(dir.path());
    append_zero(&node);
    let mut job = dividing();
    job["routes"] =
        json!([{"from": "div", "on_error": true, "to": "none", "stop": true, "action": "retry", "max_attempts": 1000}]);
    let id = node.run(&job);
    eventually("the reason is there, with a longer pause", || {
        let reason = reason(&node, &id);
        reason.starts_with("div reads records again after pauses, now of 400ms, after: '1 / n'")
            && reason.contains("divides by zero")
    });
    node.running(&id);
    node.kill(&id).unwrap();
    node.close();
}

#[test]
fn an_instance_that_starts_again_and_again_is_the_reason_of_its_job() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::open(dir.path());
    append_zero(&node);
    let mut job = dividing();
    job["restart"] = json!({"policy": "on_failure", "backoff": "20ms..1h"});
    job["hooks"] = json!([{"on": "error", "task": "all", "answer": "restart"}]);
    let id = node.run(&job);
    eventually("the pause is longer", || {
        let reason = reason(&node, &id);
        reason.starts_with("in, instance 0 starts again in 320ms, restart 5, after: '1 / n'")
    });
    assert!(node.job(&id)["instance_restarts"].as_u64().unwrap() >= 5);
    node.kill(&id).unwrap();
    node.close();
}

#[test]
fn an_old_error_is_not_the_reason_of_a_job_that_runs_well() {
    static CALLS: AtomicU32 = AtomicU32::new(0);
    fn fails_once(input: &Batch, _: &Params) -> FunctionOutput {
        if CALLS.fetch_add(1, Ordering::Relaxed) > 0 {
            return FunctionOutput { batch: input.clone(), inputs: vec![0], failed: Vec::new() };
        }
        let message = "the first one fails".to_owned();
        FunctionOutput {
            batch: input.select([]),
            inputs: Vec::new(),
            failed: vec![RecordError { row: 0, code: "x", message }],
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let function = NativeFunction { name: "test.fails_once", doc: "Fails in its first call.", call: fails_once };
    let functions = Functions::default().with(function);
    let node = Node::open_with(dir.path(), FlowConfig::default(), functions);
    append_zero(&node);
    let mut job = dividing();
    job["restart"] = json!({"policy": "on_failure", "backoff": "1ms..5ms"});
    job["transforms"]["div"] = json!({"type": "function", "inputs": ["in"], "fn": "test.fails_once"});
    let id = node.run(&job);
    eventually("the second run has written", || node.collected(&id, "out").len() == 1);
    let job = node.running(&id);
    assert_eq!((&job["restarts"], &job["reason"]), (&json!(1), &Value::Null));
    assert_eq!(job["error"]["message"], "the first one fails", "it is still told, with its time: {job:#}");
    node.kill(&id).unwrap();
    node.close();
}
