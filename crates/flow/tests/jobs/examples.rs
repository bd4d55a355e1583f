//! The examples under `examples/jobs`, run as they stand and with other batches, instances and queues. Expected records
//! stand in the files.

use std::path::Path;

use millstream_flow::{FlowConfig, Functions, TestCase};
use millstream_testkit::eventually;
use serde_json::{Value, json};

use crate::node::Node;

/// `true` if each expected record has one that holds its fields, and no other record is there. A null is a missing field.
fn are_those(found: &[Value], expected: &[Value]) -> bool {
    let holds = |record: &Value, expected: &Value| {
        expected.as_object().is_some_and(|fields| fields.iter().all(|(name, value)| record[name] == *value))
    };
    let mut left: Vec<&Value> = found.iter().collect();
    let all_are_there = expected.iter().all(|expected| {
        let at = left.iter().position(|record| holds(record, expected));
        at.map(|at| left.swap_remove(at)).is_some()
    });
    all_are_there && left.is_empty()
}

/// The document with every node's `batch` set, or with three instances of each transform behind queues.
fn variants(document: &Value) -> Vec<(String, Value)> {
    let with = |part: &[&str], key: &str, value: Value| {
        let mut changed = document.clone();
        for part in part {
            for node in changed[part].as_object_mut().into_iter().flat_map(|nodes| nodes.values_mut()) {
                node[key] = value.clone();
            }
        }
        changed
    };
    let all = ["sources", "transforms", "sinks"];
    let mut variants = vec![("as it stands".to_owned(), document.clone())];
    for size in [1, 2, 7, 1000] {
        variants.push((format!("batches of {size}"), with(&all, "batch", json!({ "size": size }))));
    }
    let mut spread = with(&["transforms"], "parallelism", 3.into());
    spread["exchange"] = "queue".into();
    variants.push(("parallelism 3 behind queues".to_owned(), spread));
    variants
}

fn check(node: &Node, name: &str, document: &Value, case: &TestCase) {
    let id = node.run(document);
    if document["mode"] == "batch" {
        assert_eq!(node.ended(&id)["state"], "completed", "{name}");
    } else {
        let count = |sink: &String| node.collected(&id, sink).len() == case.expect[sink].len();
        eventually("the records are there", || case.expect.keys().all(count));
        node.kill(&id).unwrap();
        assert_eq!(node.ended(&id)["state"], "killed", "{name}");
        assert!(!node.submit(document).unwrap().is_new, "{name}: it is not run again");
    }
    for (sink, records) in &case.expect {
        let found = node.collected(&id, sink);
        assert!(are_those(&found, records), "{name}, sink {sink}: {found:?}");
    }
    for (hook, lines) in &case.trace {
        // Instances call their last hooks after the job has ended.
        eventually(&format!("{name}: the lines of hook {hook} are {lines:?}"), || {
            let mut written = node.jobs.trace(&node.tenant, &id, hook).unwrap();
            written.dedup();
            written == *lines
        });
    }
}

#[test]
fn each_example_gives_what_its_tests_expect() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/jobs");
    for row in 1..=10 {
        let text = std::fs::read_to_string(folder.join(format!("f{row}.yaml"))).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let node = Node::open(dir.path());
        let document =
            node.jobs.validate(&node.tenant, &text).unwrap_or_else(|findings| panic!("f{row}: {findings:#?}"));
        node.close();
        for (number, case) in document.tests.iter().enumerate() {
            let config = FlowConfig { params: case.params.clone(), ..FlowConfig::default() };
            let dir = tempfile::tempdir().unwrap();
            let node = Node::open_with(dir.path(), config, Functions::default());
            // An id is run once, instances are what F4 is about, and a trace has a line for each batch.
            let is_fixed = document.id.is_some() || row == 4 || !case.trace.is_empty();
            let count = if is_fixed { 1 } else { usize::MAX };
            for (variant, changed) in variants(&document.json).into_iter().take(count) {
                check(&node, &format!("f{row}, test {number}, {variant}"), &changed, case);
            }
            node.close();
        }
    }
}
