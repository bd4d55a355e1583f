//! The examples run as they stand, in other batches, with more instances and with queues: by the runner of tests, and as
//! jobs of a node. The expected records stand in the files.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use millstream_flow::{FlowConfig, Functions, HookAnswer, Hooks, NativeHook, TestCase, TestRunner};
use millstream_types::ManualClock;
use serde_json::{Value, json};

use crate::node::{Node, Setup};
use crate::routes::{sorted, with_nodes};

/// The only one that stays open until it is killed.
const OPEN: &str = "f3-kill";

/// The texts of the examples by file name.
pub(crate) fn examples() -> BTreeMap<String, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/jobs");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let yaml = files.filter(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    let read = |path: std::path::PathBuf| {
        (path.file_name().unwrap().to_string_lossy().into_owned(), std::fs::read_to_string(&path).unwrap())
    };
    yaml.map(read).collect()
}

/// The document as it stands, with three instances of each node, with a queue on each edge, and with both.
fn variants(document: &Value) -> Vec<(&'static str, Value)> {
    // What these do depends on the order of records, which several instances of a list do not keep.
    let needs_order = |node: &Value| {
        matches!(node["type"].as_str(), Some("alarm" | "aggregate"))
            || node["type"] == "map" && node["key_by"].is_array()
    };
    let keeps_order = document["transforms"].as_object().unwrap().values().any(needs_order);
    let spread = with_nodes(document, |part, node| {
        node["parallelism"] = if keeps_order && part == "sources" { 1.into() } else { 3.into() };
    });
    let queued = |document: &Value| {
        let mut queued = document.clone();
        queued["exchange"] = "queue".into();
        queued
    };
    vec![
        ("as it stands", document.clone()),
        ("queues", queued(document)),
        ("parallelism 3 and queues", queued(&spread)),
        ("parallelism 3", spread),
    ]
}

#[test]
fn the_tests_of_every_example_pass_however_it_is_cut_and_spread() {
    let runner = TestRunner::new(Functions::default(), Hooks::default(), &FlowConfig::default());
    for (file, text) in examples() {
        let document = runner.read(&text).unwrap_or_else(|findings| panic!("{file}: {findings:#?}"));
        assert!(!document.tests.is_empty(), "{file} has tests");
        for (variant, changed) in variants(&document.json) {
            for batch in [None, Some(1), Some(2), Some(7), Some(1000)] {
                let report = runner.run(&changed.to_string(), batch).unwrap();
                assert_eq!(report.tests.len(), document.tests.len());
                assert!(report.passed(), "{file}, {variant}, batches of {batch:?}: {report:#?}");
                assert_eq!(runner.run(&changed.to_string(), batch).unwrap(), report, "{file}: always the same");
            }
        }
    }
}

#[test]
fn every_example_gives_the_same_as_a_job() {
    for (file, text) in examples() {
        let reader = TestRunner::new(Functions::default(), Hooks::default(), &FlowConfig::default());
        let document = reader.read(&text).unwrap();
        for test in document.tests.iter().filter(|test| test.inject.is_empty()) {
            let dir = tempfile::tempdir().unwrap();
            let config = FlowConfig { params: test.params.clone(), threads: 3, ..FlowConfig::default() };
            // The jobs complete, however long that takes, before their clocks send anything.
            let clock = Arc::new(ManualClock::at(1_000_000));
            let node = Node::open_as(dir.path(), Setup { config, wall: clock.clone(), clock, ..Setup::default() });
            for (variant, changed) in variants(&document.json) {
                for size in [1, 2, 7, 1000] {
                    let mut job = with_nodes(&changed, |_, node| node["batch"] = json!({ "size": size }));
                    // Each is another job, and its name is free for the next one.
                    job.as_object_mut().unwrap().remove("id");
                    if job["name"] == OPEN {
                        job["mode"] = "batch".into();
                        job["sources"]["in"]["config"]["open"] = false.into();
                    }
                    let id = node.run(&job);
                    let ended = node.ended(&id);
                    let context = format!("{file}, {variant}, batches of {size}, {}", test.name);
                    assert_eq!(ended["state"], "completed", "{context}: {ended:#}");
                    check(&node, &id, test, &context);
                }
            }
            node.close();
        }
    }
}

/// Compares what the sinks have collected with what the test expects of them, whatever the order.
fn check(node: &Node, id: &str, test: &TestCase, context: &str) {
    for (sink, expected) in &test.expect {
        let names: BTreeSet<&String> = expected.iter().flat_map(|record| record.as_object().unwrap().keys()).collect();
        let named =
            |record: &Value| -> Value { names.iter().map(|name| ((*name).clone(), record[*name].clone())).collect() };
        let collected = node.collected(id, sink).iter().map(named).collect();
        assert_eq!(sorted(collected), sorted(expected.iter().map(named).collect()), "{context}, sink {sink}");
    }
}

/// The differences of the only test of a document, as `node: message`.
fn differences(document: &Value) -> Vec<String> {
    let runner = TestRunner::new(Functions::default(), Hooks::default(), &FlowConfig::default());
    let report = runner.run(&document.to_string(), None).unwrap_or_else(|findings| panic!("{findings:#?}"));
    let [test] = report.tests.as_slice() else { panic!("{report:#?}") };
    let told = test.differences.iter();
    told.map(|difference| format!("{}: {}", difference.node.as_deref().unwrap_or("job"), difference.message)).collect()
}

/// A job over sources that need a server, with one test.
fn job(inject: &Value, expect: &Value) -> Value {
    json!({
        "version": 1, "kind": "Job", "name": "tested",
        "sources": {"in": {"type": "stream", "config": {"topic": "numbers"}, "where": "n > 0"}},
        "transforms": {
            "half": {"type": "map", "inputs": ["in"], "select": "n, 12 / n AS part"},
            "keyed": {"type": "map", "inputs": ["half"], "select": "*", "key_by": "part", "parallelism": 3},
        },
        "sinks": {
            "out": {"type": "stream", "inputs": ["keyed"], "config": {"topic": "parts"}},
            "dead": {"type": "stdout", "inputs": ["half"]},
        },
        "routes": [
            {"from": "all", "to": "none", "when": "n = 12", "stop": true},
            {"from": "half", "on_error": true, "to": ["dead"], "stop": true},
            {"from": "half", "to": ["keyed"]},
            {"from": "in", "to": ["half"]},
            {"from": "keyed", "to": ["out"]},
        ],
        "tests": [{"name": "one", "inject": inject, "expect": expect}],
    })
}

#[test]
fn records_enter_at_any_node_and_are_seen_at_any_node() {
    // The source's own condition holds for what its connector reads.
    let read =
        job(&json!({"in": [{"n": 0}, {"n": 4}]}), &json!({"in": [{"n": 4}], "half": [{"part": 3}], "out": [{"n": 4}]}));
    assert_eq!(differences(&read), Vec::<String>::new());
    let failed =
        job(&json!({"half": [{"n": 0}]}), &json!({"dead": [{"error": {"code": "division_by_zero"}}], "out": []}));
    assert_eq!(differences(&failed), Vec::<String>::new());
    // A route from all nodes does not hold for what the test adds.
    let twelve = job(&json!({"half": [{"n": 12}]}), &json!({"in": [], "half": [{"n": 12, "part": 1}], "out": []}));
    assert_eq!(differences(&twelve), Vec::<String>::new());
    let sink = job(&json!({"out": [{"n": 1}]}), &json!({"out": [{"n": 1}], "keyed": []}));
    assert_eq!(differences(&sink), Vec::<String>::new());
}

#[test]
fn records_of_one_key_come_in_order_also_with_three_instances() {
    let records: Vec<Value> = (0..30).map(|n| json!({"part": n % 4, "n": n})).collect();
    let mut swapped = records.clone();
    swapped.swap(0, 4);
    let inject = json!({ "keyed": records });
    assert_eq!(differences(&job(&inject, &json!({ "keyed": records }))), Vec::<String>::new());
    let found = differences(&job(&inject, &json!({ "keyed": swapped })));
    let message = r#"keyed: {"part":0,"n":4} must come before {"part":0,"n":0}: they have the same key"#;
    assert_eq!(found, [message]);
}

#[test]
fn differences_tell_what_is_missing_what_is_unexpected_and_why_a_job_failed() {
    let wrong = job(&json!({"in": [{"n": 3}, {"n": 6}]}), &json!({"out": [{"n": 3, "part": 5}, {"n": 7, "part": 7}]}));
    assert_eq!(
        differences(&wrong),
        [
            r#"out: {"n":3,"part":4}: part is 4, expected 5"#,
            r#"out: {"n":7,"part":7} is missing"#,
            r#"out: {"n":6,"part":2} is not expected"#,
        ]
    );
    let mut failing = job(&json!({"half": [{"n": 0}]}), &json!({"out": []}));
    failing["routes"].as_array_mut().unwrap().remove(1);
    failing["sinks"].as_object_mut().unwrap().remove("dead");
    let found = differences(&failing);
    assert!(found[0].starts_with("half: the job failed in apply on record 0: "), "{found:?}");
    assert!(found[0].ends_with("(division_by_zero)"), "{found:?}");
}

#[test]
fn a_hook_that_is_never_ready_does_not_hold_a_test_for_ever() {
    let mut waiting = job(&json!({"in": [{"n": 1}]}), &json!({"out": []}));
    waiting["hooks"] = json!([{"task": "half", "on": "ready?", "call": "test.never"}]);
    let never = NativeHook { name: "test.never", doc: "Is never ready.", call: |_, _| HookAnswer::NotReady };
    let runner = TestRunner::new(Functions::default(), Hooks::default().with(never), &FlowConfig::default());
    let report = runner.run(&waiting.to_string(), None).unwrap();
    let message = &report.tests[0].differences[0].message;
    assert!(message.starts_with("the job does not end: half "), "{message}");
}

#[test]
fn a_record_behind_a_large_list_fails_once() {
    let list: Vec<u32> = (0..2_000).collect();
    let document = json!({
        "version": 1, "kind": "Job", "name": "large",
        "sources": {"in": {"type": "stream", "config": {"topic": "numbers"}}},
        "transforms": {"each": {"type": "explode", "inputs": ["in"], "where": "12 / n > 0", "config": {"field": "list"}}},
        "sinks": {
            "out": {"type": "blackhole", "inputs": ["each"]},
            "dead": {"type": "stdout", "inputs": ["each"]},
        },
        "routes": [
            {"from": "each", "on_error": true, "to": ["dead"], "stop": true},
            {"from": "each", "to": ["out"]},
        ],
        "tests": [{
            "name": "one",
            "inject": {"in": [{"n": 1, "list": list, "other": "x".repeat(2_000)}, {"n": 0}]},
            "expect": {"dead": [{"error": {"code": "division_by_zero"}}]},
        }],
    });
    assert_eq!(differences(&document), Vec::<String>::new());
}

#[test]
fn the_order_of_a_window_is_that_of_event_time() {
    let document = json!({
        "version": 1, "kind": "Job", "name": "ordered",
        "sources": {"in": {
            "type": "stream", "config": {"topic": "readings"}, "event_time": {"field": "at", "max_out_of_orderness": "1h"},
        }},
        "transforms": {"ends": {
            "type": "aggregate", "inputs": ["in"], "key_by": ["k"], "window": {"type": "tumbling", "size": "1h"},
            "aggregates": "FIRST(n) AS first, LAST(n) AS last, ARRAY_AGG(n ORDER BY $timestamp) AS all, MAX($timestamp) AS latest",
        }},
        "sinks": {"out": {"type": "stream", "inputs": ["ends"], "config": {"topic": "ends"}}},
        "tests": [{
            "name": "by time",
            // The times in the topic go the other way.
            "inject": {"in": [
                {"k": 1, "n": 1, "at": 3_000, "$timestamp": 10}, {"k": 1, "n": 2, "at": 1_000, "$timestamp": 40},
                {"k": 1, "n": 3, "at": 4_000, "$timestamp": 20}, {"k": 1, "n": 4, "at": 2_000, "$timestamp": 30},
            ]},
            "expect": {"out": [{"k": 1, "first": 2, "last": 3, "all": [2, 4, 1, 3], "latest": 4_000}]},
        }],
    });
    assert_eq!(differences(&document), Vec::<String>::new());
}

#[test]
fn windows_behind_sessions_and_delayed_triggers_get_their_results_in_time() {
    // The result of `a` comes with the minute 8, and time is beyond the end of its window behind by then.
    let minutes = [("a", 4), ("b", 6), ("b", 8), ("b", 30)];
    let records: Vec<Value> =
        minutes.iter().map(|(key, minute)| json!({"k": key, "at": minute * 60_000_i64})).collect();
    let first = [
        json!({"window": {"type": "session", "gap": "3m"}}),
        json!({"window": {"type": "tumbling", "size": "1m"}, "triggers": [{"on": "watermark", "delay": "3m"}]}),
    ];
    for first in first {
        let mut document = json!({
            "version": 1, "kind": "Job", "name": "behind",
            "sources": {"in": {"type": "stream", "config": {"topic": "readings"}, "event_time": {"field": "at"}}},
            "transforms": {
                "first": {"type": "aggregate", "inputs": ["in"], "key_by": ["k"], "aggregates": "COUNT(*) AS n"},
                "hours": {
                    "type": "aggregate", "inputs": ["first"], "key_by": ["k"], "window": {"type": "tumbling", "size": "5m"},
                    "aggregates": "SUM(n) AS n",
                },
            },
            "sinks": {"out": {"type": "stream", "inputs": ["hours"], "config": {"topic": "hours"}}},
            "tests": [{"name": "none is late", "inject": {"in": records}, "expect": {"out": [
                {"k": "a", "n": 1}, {"k": "b", "n": 2}, {"k": "b", "n": 1},
            ]}}],
        });
        document["transforms"]["first"].as_object_mut().unwrap().extend(first.as_object().unwrap().clone());
        assert_eq!(differences(&document), Vec::<String>::new());
    }
}
