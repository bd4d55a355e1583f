//! Taps of edges, and the figures of nodes and edges.

use std::sync::atomic::{AtomicBool, Ordering};

use millstream_flow::{Batch, Error, FlowConfig, FunctionOutput, Functions, NativeFunction, Params, StopMode};
use millstream_testkit::eventually;
use serde_json::{Value, json};

use crate::node::Node;

/// Keeps the even numbers of a topic and divides 12 by them.
fn dividing(topic: &str) -> Value {
    json!({
        "version": 1, "kind": "Job", "name": "dividing",
        "restart": {"policy": "on_failure", "max_attempts": 3, "backoff": "1ms..5ms"},
        "sources": {"in": {"type": "stream", "config": {"topic": topic}}},
        "transforms": {
            "even": {"type": "filter", "inputs": ["in"], "where": "n % 2 = 0", "doc": "Even numbers."},
            "div": {"type": "map", "inputs": ["even"], "select": "12 / n AS q"},
        },
        "sinks": {"out": {"type": "collect", "inputs": ["div"]}},
    })
}

fn append(node: &Node, topic: &str, numbers: impl IntoIterator<Item = u64>) {
    let records: Vec<_> = numbers.into_iter().map(|n| (format!("k{n}"), json!({ "n": n }).to_string())).collect();
    node.append(topic, &records);
}

fn named<'a>(all: &'a Value, name: &str) -> &'a Value {
    all.as_array().unwrap().iter().find(|node| node["name"] == name).unwrap()
}

fn edge<'a>(graph: &'a Value, from: &str, to: &str) -> &'a Value {
    let mut edges = graph["edges"].as_array().unwrap().iter();
    edges.find(|edge| edge["from"] == from && edge["to"] == to).unwrap()
}

#[test]
fn a_tap_shows_the_records_of_its_edge_with_their_source_until_the_job_ends() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::open(dir.path());
    node.create("numbers", 1);
    let id = node.run(&dividing("numbers"));
    let mut behind = node.tap(&id, "even", "div", 100.0).unwrap();
    append(&node, "numbers", [1, 2, 3, 4]);
    for (offset, n) in [(1, 2), (3, 4)] {
        let record = node.wait(behind.next()).unwrap();
        assert_eq!(record.value.unwrap(), json!({ "n": n }).to_string().as_bytes());
        assert_eq!(record.key.unwrap(), format!("k{n}").as_bytes());
        assert_eq!((record.topic.as_deref(), record.partition, record.offset), (Some("numbers"), 0, offset));
        assert!(!record.is_truncated && record.headers.is_empty());
    }
    assert_eq!((behind.seen(), behind.sent(), behind.dropped()), (2, 2, 0));
    node.stop(&id, StopMode::Graceful);
    assert_eq!(node.wait(behind.next()), None);
    assert_eq!(node.ended(&id)["state"], "stopped");
    assert!(matches!(node.tap(&id, "even", "div", 1.0), Err(Error::NotRunning { state: "stopped", .. })));
    node.close();
}

#[test]
fn a_tap_survives_the_restarts_of_its_job() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::open(dir.path());
    node.create("numbers", 1);
    let id = node.run(&dividing("numbers"));
    let mut tap = node.tap(&id, "even", "div", 100.0).unwrap();
    append(&node, "numbers", [0]);
    let seen = std::iter::from_fn(|| node.wait(tap.next())).count();
    assert_eq!(seen, 4, "the first run and three restarts read the record");
    let job = node.ended(&id);
    assert_eq!((&job["state"], &job["errors"]), (&json!("failed"), &json!(4)), "{job:#}");
    let graph = node.jobs.graph(&node.tenant, &id).unwrap();
    assert_eq!(edge(&graph, "even", "div")["records"], 4, "{graph:#}");
    assert_eq!(named(&graph["nodes"], "div")["errors_by_code"], json!({"division_by_zero": 4}));
    node.close();
}

#[test]
fn taps_are_refused_with_the_edges_there_are_and_at_their_limit() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::open(dir.path());
    node.create("numbers", 1);
    let id = node.run(&dividing("numbers"));
    for (from, to) in [("in", "out"), ("in", "nothing"), ("div", "even")] {
        let refused = node.tap(&id, from, to, 1.0).unwrap_err();
        let Error::UnknownEdge { edges, .. } = &refused else { panic!("{refused}") };
        assert_eq!(*edges, ["in,even", "even,div", "div,out"]);
        assert!(refused.to_string().contains("in,even even,div div,out"), "{refused}");
    }
    let open: Vec<_> = (0..8).map(|_| node.tap(&id, "in", "even", 1.0).unwrap()).collect();
    assert!(matches!(node.tap(&id, "in", "even", 1.0), Err(Error::TapsFull { limit: 8, .. })));
    drop(open);
    assert!(node.tap(&id, "in", "even", 1.0).is_ok());
    assert!(matches!(node.tap("none", "in", "even", 1.0), Err(Error::UnknownJob { .. })));
    node.close();
}

static TAP_IS_OPEN: AtomicBool = AtomicBool::new(false);

fn wait_for_tap(batch: &Batch, _: &Params) -> FunctionOutput {
    while !TAP_IS_OPEN.load(Ordering::Acquire) {
        std::thread::yield_now();
    }
    FunctionOutput { batch: batch.clone(), inputs: (0..batch.len() as u32).collect(), failed: Vec::new() }
}

#[test]
fn a_tap_that_nobody_reads_holds_nothing_up() {
    let dir = tempfile::tempdir().unwrap();
    let function = NativeFunction { name: "test.gate", doc: "Waits until the tap is open.", call: wait_for_tap };
    let functions = Functions::default().with(function);
    let node = Node::open_with(dir.path(), FlowConfig::default(), functions);
    let id = node.run(&json!({
        "version": 1, "kind": "Job", "name": "fast", "mode": "batch",
        "sources": {"in": {"type": "generator", "config": {"record": {"n": {"sequence": true}}, "count": 50_000}}},
        "transforms": {"gate": {"type": "function", "inputs": ["in"], "fn": "test.gate"}},
        "sinks": {"out": {"type": "blackhole", "inputs": ["gate"]}},
    }));
    let mut tap = node.tap(&id, "gate", "out", 1_000.0).unwrap();
    TAP_IS_OPEN.store(true, Ordering::Release);
    let job = node.ended(&id);
    assert_eq!((&job["state"], &job["records_out"]), (&json!("completed"), &json!(50_000)), "{job:#}");
    assert_eq!(tap.seen(), 50_000);
    let read = std::iter::from_fn(|| node.wait(tap.next())).count() as u64;
    assert!(read <= 64 && read == tap.sent(), "{read} samples waited");
    node.close();
}

#[test]
fn nodes_and_edges_have_figures_and_a_source_knows_its_lag() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::open(dir.path());
    node.create("numbers", 2);
    append(&node, "numbers", 1..=40);
    let mut job = dividing("numbers");
    job["exchange"] = "queue".into();
    job["sinks"]["late"] = json!({"type": "stream", "inputs": ["even"], "config": {"topic": "late"}});
    let id = node.run(&job);
    // The source and the sink that waits are in tasks of their own.
    eventually("the job waits", || {
        let job = node.job(&id);
        job["lag"] == 40 && job["state"] == "starting" && named(&job["nodes"], "late")["waits"].is_string()
    });
    let waiting = node.job(&id);
    assert_eq!((&waiting["state"], &waiting["lag"]), (&json!("starting"), &json!(40)), "{waiting:#}");
    let waits = named(&waiting["nodes"], "late")["waits"].as_str().unwrap();
    assert!(waits.contains("topic 'late'"), "{waits}");
    assert_eq!(node.jobs.state_counts()["starting"], 1);

    node.create("late", 1);
    eventually("all records are finished", || node.job(&id)["lag"] == 0);
    let graph = node.jobs.graph(&node.tenant, &id).unwrap();
    let figures = |name: &str| named(&graph["nodes"], name);
    let counts = |name: &str| ["records_in", "records_out"].map(|key| figures(name)[key].as_u64().unwrap());
    assert_eq!([counts("in"), counts("even"), counts("div"), counts("out")], [[40, 40], [40, 20], [20, 20], [20, 20]]);
    assert_eq!(figures("in")["offset"], 40);
    assert_eq!(figures("even")["doc"], "Even numbers.");
    for name in ["in", "even", "div", "out", "late"] {
        let node = figures(name);
        assert!(node["latency_ms"]["p99"].as_f64() >= node["latency_ms"]["p50"].as_f64(), "{node:#}");
        assert!(node["latency_ms"]["p50"].is_f64() && node["batches"].as_u64() > Some(0), "{node:#}");
        let bound = node["queue"]["bound"].as_u64();
        assert_eq!(bound.is_some(), name != "in", "{node:#}");
        assert!(node.get("lag").is_some() == (name == "in") && node["errors_by_code"] == json!({}), "{node:#}");
    }
    let routed = |from, to| edge(&graph, from, to)["records"].as_u64().unwrap();
    assert_eq!([routed("in", "even"), routed("even", "div"), routed("even", "late")], [40, 20, 20]);
    assert_eq!(edge(&graph, "in", "even")["exchange"], "queue");
    assert!(graph["at"].as_str().is_some_and(|at| at.ends_with('Z')), "{graph:#}");

    let of_source = node.jobs.figures().into_iter().find(|figure| figure.node == "in").unwrap();
    assert_eq!((of_source.source_offset, of_source.source_lag, of_source.queue_fill), (Some(40), Some(0), None));
    assert_eq!((&*of_source.job, of_source.records_in, of_source.errors.len()), ("dividing", 40, 0));
    node.stop(&id, StopMode::Graceful);
    node.ended(&id);
    assert!(node.jobs.figures().is_empty(), "a job that has ended leaves the metrics");
    assert_eq!(node.jobs.state_counts()["stopped"], 1);
    let status = node.jobs.status(&node.tenant, &id).unwrap();
    assert_eq!((&status["records_out"], &status["document"]), (&json!(40), &Value::Null), "{status:#}");
    node.close();

    let node = Node::open(dir.path());
    let graph = node.jobs.graph(&node.tenant, &id).unwrap();
    assert_eq!(graph["nodes"][0], json!({"name": "in", "type": "stream", "role": "source", "instances": 1}));
    assert_eq!(graph["edges"][0], json!({"from": "in", "to": "even", "exchange": "queue"}));
    node.close();
}
