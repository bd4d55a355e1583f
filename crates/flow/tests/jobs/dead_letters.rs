//! Records that a sink cannot write, and that go to its error route.

use millstream_flow::StopMode;
use millstream_log::TopicConfig;
use millstream_testkit::eventually;
use millstream_types::TopicName;
use serde_json::{Value, json};

use crate::node::Node;

/// A job whose sink cannot write all records, with a topic for the others.
fn job(sink: &Value) -> Value {
    let mut out = sink.clone();
    out["inputs"] = json!(["in"]);
    json!({
        "version": 1, "kind": "Job", "name": "letters", "restart": {"policy": "never"},
        "sources": {"in": {"type": "stream", "config": {"topic": "numbers"}}},
        "sinks": {
            "out": out,
            "dead": {"type": "stream", "inputs": ["out"], "config": {"topic": "dead"}},
        },
        "routes": [{"from": "out", "on_error": true, "to": ["dead"], "stop": true}],
    })
}

fn create_small(node: &Node, topic: &str) {
    let config = TopicConfig { record_max_bytes: 200, ..TopicConfig::default() };
    node.log.create_topic(&TopicName::user(topic, &node.tenant).unwrap(), &config).unwrap();
}

#[test]
fn records_that_are_too_large_for_a_topic_become_dead_letters_and_large_ones_are_cut() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::open(dir.path());
    node.create("numbers", 1);
    node.create("dead", 1);
    create_small(&node, "small");
    // As JSON in a dead letter it is twice as large.
    let quotes = "\"".repeat(450_000);
    let records: Vec<(String, String)> = (0..20)
        .map(|n| match n {
            3 => json!({"n": n, "text": "x".repeat(400)}),
            5 => json!({"n": n, "text": quotes}),
            _ => json!({"n": n}),
        })
        .map(|record| ("k".to_owned(), record.to_string()))
        .collect();
    node.append("numbers", &records);
    let id = node.run(&job(&json!({"type": "stream", "config": {"topic": "small"}})));
    eventually("all records are written", || node.job(&id)["nodes"][0]["lag"] == 0 && node.read("small").len() == 18);
    let written: Vec<u64> = node.read("small").iter().map(|(_, value)| value["n"].as_u64().unwrap()).collect();
    assert_eq!(written, (0..20).filter(|n| ![3, 5].contains(n)).collect::<Vec<u64>>(), "in order, each once");
    let dead: Vec<Value> = node.read("dead").into_iter().map(|(_, value)| value).collect();
    assert_eq!(dead.len(), 2);
    for letter in &dead {
        assert_eq!((&letter["error"]["code"], &letter["error"]["node"]), (&json!("record_too_large"), &json!("out")));
    }
    assert_eq!((dead[0]["input"].as_str().unwrap(), &dead[0]["input_cut_from_bytes"]), (&*records[3].1, &Value::Null));
    assert_eq!(dead[1]["input_cut_from_bytes"], records[5].1.len());
    assert!(records[5].1.starts_with(dead[1]["input"].as_str().unwrap()));
    node.stop(&id, StopMode::Graceful);
    assert_eq!(node.ended(&id)["state"], "stopped");
    node.close();
}

#[test]
fn an_entity_without_id_becomes_a_dead_letter() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::open(dir.path());
    node.create("numbers", 1);
    node.create("dead", 1);
    let records = [json!({"id": "a"}), json!({"n": 1}), json!({"id": "b"})];
    node.append("numbers", &records.map(|record| ("k".to_owned(), record.to_string())));
    let id = node.run(&job(&json!({"type": "entities", "config": {"id": "{id}", "type": "Station"}})));
    eventually("the dead letter is there", || node.read("dead").len() == 1);
    eventually("all records are finished", || node.job(&id)["nodes"][0]["lag"] == 0);
    let (_, letter) = node.read("dead").remove(0);
    assert_eq!((&letter["error"]["code"], &letter["input"]), (&json!("missing_field"), &json!("{\"n\":1}")));
    node.close();
}

#[test]
fn a_record_on_which_the_expression_of_a_sink_fails_becomes_a_dead_letter() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::open(dir.path());
    node.create("numbers", 1);
    node.create("dead", 1);
    node.append("numbers", &[0, 1, 2].map(|n| ("k".to_owned(), json!({ "n": n }).to_string())));
    let id = node.run(&job(&json!({"type": "collect", "where": "12 / n > 0"})));
    eventually("the dead letter is there", || node.read("dead").len() == 1);
    eventually("the others are there", || node.collected(&id, "out") == [json!({"n": 1}), json!({"n": 2})]);
    node.close();
}
