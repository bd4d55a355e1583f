//! Bounded jobs over lists: what each sink gets, however the input is cut into batches and spread over instances.

use std::collections::BTreeMap;

use millstream_flow::{FlowConfig, FunctionOutput, Functions, NativeFunction};
use millstream_testkit::eventually;
use serde_json::{Value, json};

use crate::node::Node;

/// A document with the sinks that its expectations name.
fn document(name: &str, records: &Value, transforms: &Value, sinks: &Value, routes: &Value) -> Value {
    json!({
        "version": 1, "kind": "Job", "name": name, "mode": "batch",
        "sources": {"in": {"type": "list", "config": {"records": records}}},
        "transforms": transforms, "sinks": sinks, "routes": routes,
    })
}

fn numbers(range: std::ops::RangeInclusive<i64>) -> Value {
    range.map(|n| json!({ "n": n })).collect()
}

/// The documents, each with the expected records by sink in any order.
fn rows() -> Vec<(Value, BTreeMap<&'static str, Value>)> {
    let map = |select: &str| json!({"type": "map", "inputs": ["in"], "select": select});
    let collect = |input: &str| json!({"type": "collect", "inputs": [input]});
    let n = |values: &[i64]| values.iter().map(|n| json!({ "n": n })).collect::<Value>();
    let none = json!([]);
    let dead_letter = json!({"type": "map", "inputs": ["in"], "select": "10 / n AS q"});
    vec![
        (
            document(
                "linear",
                &numbers(0..=5),
                &json!({"inc": map("n + 1 AS n")}),
                &json!({"out": collect("inc")}),
                &none,
            ),
            BTreeMap::from([("out", n(&[1, 2, 3, 4, 5, 6]))]),
        ),
        (
            document(
                "branches",
                &numbers(0..=5),
                &json!({"inc": map("n + 1 AS n"), "dec": map("n - 1 AS n")}),
                &json!({"up": collect("inc"), "down": collect("dec")}),
                &none,
            ),
            BTreeMap::from([("up", n(&[1, 2, 3, 4, 5, 6])), ("down", n(&[-1, 0, 1, 2, 3, 4]))]),
        ),
        (
            document(
                "drop-fields",
                &(0..=5).map(|n| json!({"n": n, "keep_me": 1, "drop_me": 2})).collect(),
                &json!({"add": map("*, n + 5 AS n")}),
                &json!({"out": collect("add")}),
                &json!([{"from": "add", "to": ["out"], "drop_fields": ["drop_me"]}]),
            ),
            BTreeMap::from([("out", (5..=10).map(|n| json!({"keep_me": 1, "n": n})).collect())]),
        ),
        (
            document(
                "composite",
                &numbers(-3..=9),
                &json!({"same": map("*")}),
                &json!({"out": collect("same")}),
                &json!([
                    {"from": "same", "when": "(n = 7 OR n = 9) AND n > 0", "to": ["out"], "stop": true},
                    {"from": "same", "when": "n % 2 = 0", "to": ["out"]},
                    {"from": "same", "when": "n % 2 = 0 AND n % 4 = 0", "to": ["out"]},
                ]),
            ),
            BTreeMap::from([("out", n(&[-2, 0, 2, 4, 6, 7, 8, 9]))]),
        ),
        (
            document(
                "dead-letters",
                &numbers(0..=2),
                &json!({ "div": dead_letter }),
                &json!({"out": collect("div"), "dead": collect("div")}),
                &json!([{
                    "from": "div", "on_error": true, "to": ["dead"], "stop": true,
                    "select": "error.code AS code, error.node AS node, input AS record, input.n AS n",
                }]),
            ),
            BTreeMap::from([
                ("out", json!([{"q": 10}, {"q": 5}])),
                ("dead", json!([{"code": "division_by_zero", "node": "div", "record": "{\"n\":0}", "n": 0}])),
            ]),
        ),
        (
            document(
                "failing-condition",
                &numbers(0..=2),
                &json!({"same": map("*")}),
                &json!({"out": collect("same"), "odd": collect("same")}),
                &json!([{"from": "same", "when": "10 / n = 5", "to": ["out"], "predicate_errors_to": "odd"}]),
            ),
            BTreeMap::from([
                ("out", n(&[2])),
                (
                    "odd",
                    json!([{
                        "error": {"code": "division_by_zero", "message": "'10 / n = 5' has no value: it divides by zero; n is 0", "node": "same"},
                        "input": "{\"n\":0}", "output": "{\"n\":0}",
                    }]),
                ),
            ]),
        ),
        (
            document(
                "nested-fields-lost",
                &json!([{"card": {"number": 1, "holder": "a"}, "n": 1}, {"card": 5, "n": 2}]),
                &json!({"same": map("*")}),
                &json!({"out": collect("same")}),
                &json!([{"from": "same", "to": ["out"], "drop_fields": ["card.number"]}]),
            ),
            BTreeMap::from([("out", json!([{"card": {"holder": "a"}, "n": 1}, {"card": 5, "n": 2}]))]),
        ),
        (
            document(
                "explode-nested",
                &json!([{"o": {"l": [1, 2], "k": "a"}}, {"o": {"k": "b"}}, {"o": 1}]),
                &json!({
                    "each": {"type": "explode", "inputs": ["in"], "config": {"field": "o.l"}},
                    "named": {"type": "explode", "inputs": ["in"], "config": {"field": "o.l", "as": "e"}},
                }),
                &json!({"out": collect("each"), "named_out": collect("named")}),
                &none,
            ),
            BTreeMap::from([
                ("out", json!([{"o": {"l": 1, "k": "a"}}, {"o": {"l": 2, "k": "a"}}])),
                ("named_out", json!([{"o": {"k": "a"}, "e": 1}, {"o": {"k": "a"}, "e": 2}])),
            ]),
        ),
        (
            document(
                "explode",
                &json!([{"id": 1, "tags": ["a", "b"]}, {"id": 2, "tags": []}, {"id": 3}]),
                &json!({"each": {"type": "explode", "inputs": ["in"], "config": {"field": "tags", "as": "tag"}}}),
                &json!({"out": collect("each")}),
                &none,
            ),
            BTreeMap::from([("out", json!([{"id": 1, "tag": "a"}, {"id": 1, "tag": "b"}]))]),
        ),
        (
            document(
                "panic",
                &numbers(0..=3),
                &json!({"fn": {"type": "function", "inputs": ["in"], "fn": "test.no_two"}}),
                &json!({"out": collect("fn"), "dead": collect("fn")}),
                &json!([{
                    "from": "fn", "on_error": true, "to": ["dead"], "stop": true, "select": "error.code AS code, input.n AS n",
                }]),
            ),
            BTreeMap::from([("out", n(&[0, 1, 3])), ("dead", json!([{"code": "panic", "n": 2}]))]),
        ),
        (
            document(
                "parameters",
                &numbers(0..=3),
                &json!({"some": {
                    "type": "filter", "inputs": ["in"], "where": "n >= :least", "params": {"least": 2},
                }}),
                &json!({"out": collect("some")}),
                &none,
            ),
            BTreeMap::from([("out", n(&[2, 3]))]),
        ),
        (
            document(
                "keys",
                &numbers(0..=5),
                &json!({"inc": {"type": "map", "inputs": ["in"], "select": "n + 1 AS n", "key_by": ["n % 2"]}}),
                &json!({"out": collect("inc")}),
                &none,
            ),
            BTreeMap::from([("out", n(&[1, 2, 3, 4, 5, 6]))]),
        ),
    ]
}

/// Passes records on, and panics on a batch with the number 2.
fn no_two(batch: &millstream_flow::Batch, _: &millstream_flow::Params) -> FunctionOutput {
    let has_two = (0..batch.len()).any(|row| batch.payload(row) == Some(b"{\"n\":2}"));
    assert!(!has_two, "the test's function panics on 2");
    FunctionOutput { batch: batch.clone(), inputs: (0..batch.len() as u32).collect(), failed: Vec::new() }
}

pub(crate) fn sorted(mut records: Vec<Value>) -> Vec<Value> {
    records.sort_by_key(ToString::to_string);
    records
}

/// Changes every node of the document.
pub(crate) fn with_nodes(document: &Value, change: impl Fn(&str, &mut Value)) -> Value {
    let mut changed = document.clone();
    for part in ["sources", "transforms", "sinks"] {
        for node in changed[part].as_object_mut().unwrap().values_mut() {
            change(part, node);
        }
    }
    changed
}

#[test]
fn every_job_gives_the_same_however_it_is_cut_and_spread() {
    let dir = tempfile::tempdir().unwrap();
    let function = NativeFunction { name: "test.no_two", doc: "Panics on 2.", call: no_two };
    let node = Node::open_with(dir.path(), FlowConfig::default(), Functions::default().with(function));
    for (document, expected) in rows() {
        let sized = [1, 2, 7, 1000].map(|size| {
            (format!("batches of {size}"), with_nodes(&document, |_, node| node["batch"] = json!({ "size": size })))
        });
        let spread = with_nodes(&document, |part, node| {
            if part == "transforms" {
                node["parallelism"] = 3.into();
            }
        });
        let mut queued = document.clone();
        queued["exchange"] = "queue".into();
        let others = [("parallelism 3".to_owned(), spread), ("queues".to_owned(), queued)];
        for (variant, document) in sized.into_iter().chain(others) {
            let name = &document["name"];
            let id = node.run(&document);
            let job = node.ended(&id);
            assert_eq!(job["state"], "completed", "{name}, {variant}: {job:#}");
            for (sink, records) in &expected {
                let wanted = sorted(records.as_array().unwrap().clone());
                assert_eq!(sorted(node.collected(&id, sink)), wanted, "{name}, {variant}, sink {sink}");
            }
        }
    }
    node.close();
}

#[test]
fn what_no_route_takes_is_counted() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::open(dir.path());
    let mut job = document(
        "unrouted",
        &numbers(0..=5),
        &json!({"same": {"type": "map", "inputs": ["in"], "select": "*"}}),
        &json!({"out": {"type": "collect", "inputs": ["same"]}}),
        &json!([{"from": "same", "when": "n > 3", "to": ["out"]}]),
    );
    job["mode"] = "streaming".into();
    let id = node.run(&job);
    eventually("two records are there", || node.collected(&id, "out").len() == 2);
    let same = node.job(&id)["nodes"].as_array().unwrap().iter().find(|node| node["name"] == "same").cloned().unwrap();
    let figures = ["records_in", "records_out", "unrouted", "errors"].map(|key| same[key].as_u64().unwrap());
    assert_eq!(figures, [6, 6, 4, 0]);
    node.close();
}

#[test]
fn a_route_that_drops_fields_fails_on_a_payload_that_is_no_object() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::open(dir.path());
    node.create("mixed", 1);
    let records = [("a", r#"{"n": 1, "secret": 2}"#), ("b", "[1, 2]"), ("c", "not json")];
    node.append("mixed", &records.map(|(key, value)| (key.to_owned(), value.to_owned())));
    let job = json!({
        "version": 1, "kind": "Job", "name": "mixed", "mode": "batch",
        "sources": {"in": {"type": "stream", "config": {"topic": "mixed", "stop_at": "end"}}},
        "sinks": {"out": {"type": "collect", "inputs": ["in"]}, "dead": {"type": "collect", "inputs": ["in"]}},
        "routes": [
            {"from": "in", "on_error": true, "to": ["dead"], "stop": true, "select": "error.code AS code, $key AS key"},
            {"from": "in", "to": ["out"], "drop_fields": ["secret"]},
        ],
    });
    let id = node.run(&job);
    assert_eq!(node.ended(&id)["state"], "completed");
    assert_eq!(node.collected(&id, "out"), [json!({"n": 1})]);
    let dead = ["b", "c"].map(|key| json!({"code": "invalid_json", "key": key}));
    assert_eq!(node.collected(&id, "dead"), dead);
    node.close();
}
