//! Expressions over values that are easily lost: records without a value, texts among numbers, large numbers.

use millstream_flow::StopMode;
use millstream_log::{AckLevel, reply};
use millstream_testkit::eventually;
use millstream_types::{Record, TopicName, TopicPartition};
use serde_json::{Value, json};

use crate::node::Node;

fn append_null(node: &Node, topic: &str, key: &str) {
    let name = TopicName::user(topic, &node.tenant).unwrap();
    let partition = node.log.partition(&TopicPartition::new(name, 0)).unwrap();
    let record = Record { key: Some(key.as_bytes()), value: None, ..Record::default() };
    let (done, answer) = reply();
    partition.append(&[record], AckLevel::Written, done).unwrap();
    answer.wait().unwrap();
}

/// A document from the topic `in` to the topic `out` through these transforms, one after the other.
fn line(transforms: &[Value], routes: &Value) -> Value {
    let mut document = json!({
        "version": 1, "kind": "Job", "name": "line", "restart": {"policy": "never"}, "transforms": {},
        "sources": {"in": {"type": "stream", "config": {"topic": "in"}}}, "routes": routes,
    });
    let mut input = "in".to_owned();
    for (number, transform) in transforms.iter().enumerate() {
        let name = format!("t{number}");
        document["transforms"][&name] = transform.clone();
        document["transforms"][&name]["inputs"] = json!([input]);
        input = name;
    }
    document["sinks"] = json!({"out": {"type": "stream", "inputs": [input], "config": {"topic": "out"}}});
    document
}

#[test]
fn a_record_without_a_value_stays_one_without_a_value() {
    let map = |select: &str| json!({"type": "map", "select": select});
    let drop = json!([{"from": "t0", "to": ["out"], "drop_fields": ["y"]}]);
    let rows = [
        (vec![map("*, 1 AS x")], json!([]), json!({"n": 1, "x": 1})),
        (vec![map("n, 1 AS x")], json!([]), json!({"n": 1, "x": 1})),
        (vec![map("*, 1 AS x"), map("*, x + 1 AS y")], json!([]), json!({"n": 1, "x": 1, "y": 2})),
        (
            vec![map("*, 1 AS x"), json!({"type": "filter", "where": "x IS NULL OR x = 1"}), map("x + 1 AS y")],
            json!([]),
            json!({"y": 2}),
        ),
        (vec![map("*, 2 AS y")], drop, json!({"n": 1})),
    ];
    for (transforms, routes, expected) in rows {
        let dir = tempfile::tempdir().unwrap();
        let node = Node::open(dir.path());
        node.create("in", 1);
        node.create("out", 1);
        node.append("in", &[("a".to_owned(), json!({"n": 1}).to_string())]);
        append_null(&node, "in", "a");
        node.append("in", &[("b".to_owned(), json!({"n": 1}).to_string())]);
        let id = node.run(&line(&transforms, &routes));
        eventually("three records", || node.read("out").len() == 3);
        let own = |key: &str, value: &Value| (key.to_owned(), value.clone());
        assert_eq!(node.read("out"), [own("a", &expected), own("a", &Value::Null), own("b", &expected)]);
        node.stop(&id, StopMode::Graceful);
        node.close();
    }
}

#[test]
fn arithmetic_on_a_text_is_an_error_of_its_record_that_names_expression_field_and_value() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::open(dir.path());
    let long = "x".repeat(200);
    let id = node.run(&json!({
        "version": 1, "kind": "Job", "name": "texts", "mode": "batch",
        "sources": {"in": {"type": "list", "config": {"records": [
            {"temp": 50}, {"temp": "hot"}, {"other": 1}, {"temp": true}, {"temp": long},
        ]}}},
        "transforms": {"celsius": {"type": "map", "inputs": ["in"], "select": "1 AS one, (temp - 32) * 5 / 9 AS celsius"}},
        "sinks": {
            "out": {"type": "collect", "inputs": ["celsius"]},
            "dead": {"type": "collect", "inputs": ["celsius"]},
        },
        "routes": [{"from": "celsius", "on_error": true, "to": ["dead"], "stop": true}],
    }));
    node.ended(&id);
    assert_eq!(node.collected(&id, "out"), [json!({"one": 1, "celsius": 10}), json!({"one": 1, "celsius": null})]);
    let dead = node.collected(&id, "dead");
    assert!(dead.iter().all(|letter| letter["error"]["code"] == "not_a_number"), "{dead:#?}");
    let why = "'(temp - 32) * 5 / 9' has no value: it calculates with a value that is no number; CAST it, or test it \
               with TYPEOF";
    let shown = ["\"hot\"", "true", &format!("\"{}…", "x".repeat(63))];
    let expected: Vec<String> = shown.iter().map(|value| format!("{why}; temp is {value}")).collect();
    let messages: Vec<&str> = dead.iter().map(|letter| letter["error"]["message"].as_str().unwrap()).collect();
    assert_eq!(messages, expected);
    node.close();
}

#[test]
fn whole_numbers_beyond_64_bits_keep_their_digits() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::open(dir.path());
    node.create("in", 1);
    node.create("out", 1);
    let records = ["18446744073709551615", "9007199254740993", "-98765432109876543210987654321", "1.5"];
    let payloads: Vec<_> = records.iter().map(|n| ("k".to_owned(), format!("{{\"n\":{n}}}"))).collect();
    node.append("in", &payloads);
    let maps = [json!({"type": "map", "select": "n AS a"}), json!({"type": "map", "select": "*, a AS b"})];
    let id = node.run(&line(&maps, &json!([])));
    eventually("all records", || node.read("out").len() == records.len());
    let name = TopicName::user("out", &node.tenant).unwrap();
    let partition = node.log.partition(&TopicPartition::new(name, 0)).unwrap();
    let batches = partition.read(partition.offsets().first, 1 << 20, millstream_log::UpTo::Stable).unwrap();
    let written =
        batches.iter().flat_map(|batch| batch.records()).map(|record| record.unwrap().value.unwrap().to_vec());
    let written: Vec<String> = written.map(|value| String::from_utf8(value).unwrap()).collect();
    let expected: Vec<String> = records.iter().map(|n| format!("{{\"a\":{n},\"b\":{n}}}")).collect();
    assert_eq!(written, expected);
    node.stop(&id, StopMode::Graceful);
    node.close();
}
