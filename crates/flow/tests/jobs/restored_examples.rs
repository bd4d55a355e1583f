//! The examples with an epoch after every two records, killed and restored in the middle at another parallelism.
//!
//! The records of a test come by a topic, as a list is read again after a restart, and results go to topics, as those of other sinks
//! may be repeated. What is committed must be what the tests in the files expect.

use std::time::Duration;

use millstream_flow::{FlowConfig, Functions, Hooks, StopMode, TestCase, TestRunner};
use millstream_types::Record;
use serde_json::{Value, json};

use crate::lives::{Lives, NAME, Then};
use crate::test_runs::examples;

/// 2026-01-01T00:00:00Z, the time of records that name none.
const START_MS: i64 = 1_767_225_600_000;

/// The topic that a source reads.
fn topic_for(source: &str) -> String {
    format!("for-{source}")
}

/// The topic with what a node has sent.
fn topic_of(node: &str) -> String {
    format!("of-{node}")
}

/// `true` for what a run in real time can give: nothing waits for the clock, and each node that gets records is a source.
fn can_run(document: &Value, test: &TestCase) -> bool {
    let has_lookup = document["transforms"].as_object().unwrap().values().any(|node| node["type"] == "lookup");
    let is_source = |node: &String| document["sources"].get(node).is_some();
    test.tick == Duration::ZERO && !has_lookup && test.inject.keys().all(is_source)
}

/// The records of the sources, with their topics.
fn records(document: &Value, test: &TestCase) -> Vec<(String, Vec<Value>)> {
    let of_source = |(name, source): (&String, &Value)| {
        let injected = test.inject.get(name).cloned();
        let listed = || source["config"]["records"].as_array().cloned().unwrap_or_default();
        (topic_for(name), injected.unwrap_or_else(listed))
    };
    document["sources"].as_object().unwrap().iter().map(of_source).collect()
}

/// The document over topics, with an epoch after every two records, and so many instances of each transform that does not say how many.
fn over_topics(document: &Value, test: &TestCase, batch: u32, parallelism: u32) -> Value {
    let mut job = document.clone();
    job.as_object_mut().unwrap().remove("id");
    job.as_object_mut().unwrap().remove("mode");
    job.as_object_mut().unwrap().remove("tests");
    job.as_object_mut().unwrap().remove("resume_from");
    job["name"] = NAME.into();
    job["delivery"] = "exactly_once".into();
    job["checkpoint"] = json!({"interval": "1h"});
    for (name, source) in job["sources"].as_object_mut().unwrap() {
        source["type"] = "stream".into();
        source["config"] = json!({"topic": topic_for(name)});
        source["batch"] = json!({"size": batch});
        source["max_in_flight"] = 2.into();
        source["event_time"]["idle_timeout"] = "1d".into();
    }
    for node in job["transforms"].as_object_mut().unwrap().values_mut() {
        node["batch"] = json!({"size": batch});
        if node["parallelism"].is_null() {
            node["parallelism"] = parallelism.into();
        }
    }
    for (name, sink) in job["sinks"].as_object_mut().unwrap() {
        sink["type"] = "stream".into();
        sink["config"] = json!({"topic": topic_of(name)});
    }
    // Transforms of which the test expects something have a sink beside the others.
    for name in expected_transforms(document, test) {
        job["sinks"][format!("beside-{name}")] =
            json!({"type": "stream", "inputs": [name], "config": {"topic": topic_of(name)}});
    }
    job
}

/// Those whose records go nowhere else by routes.
fn expected_transforms<'t>(document: &Value, test: &'t TestCase) -> Vec<&'t String> {
    let has_routes = document["routes"].is_array();
    let is_transform = |name: &&String| document["transforms"].get(name).is_some() && !has_routes;
    test.expect.keys().filter(is_transform).collect()
}

fn append(lives: &mut Lives, topic: &str, record: &Value) {
    let mut payload = record.clone();
    let mut take = |name: &str| payload.as_object_mut().unwrap().shift_remove(name);
    let (key, time) = (take("$key"), take("$timestamp"));
    let key = key.map(|key| key.as_str().map_or_else(|| key.to_string(), str::to_owned));
    let timestamp_ms = match time {
        Some(Value::String(text)) => text.parse::<jiff::Timestamp>().unwrap().as_millisecond(),
        Some(number) => number.as_i64().unwrap(),
        None => START_MS,
    };
    let payload = payload.to_string();
    let key = key.as_deref().map(str::as_bytes);
    lives.append(topic, &Record { timestamp_ms, key, value: Some(payload.as_bytes()), ..Record::default() });
}

/// `true` if a record, or a part of it, has the members that are expected. A null is a missing one, and 25 is 25.0.
fn has(found: &Value, expected: &Value) -> bool {
    match (found, expected) {
        (Value::Number(found), Value::Number(expected)) => found.as_f64() == expected.as_f64(),
        (_, Value::Object(members)) => members
            .iter()
            .all(|(name, value)| name == "$key" || found.get(name).map_or(value.is_null(), |found| has(found, value))),
        (Value::Array(found), Value::Array(expected)) => {
            found.len() == expected.len() && found.iter().zip(expected).all(|(found, expected)| has(found, expected))
        }
        _ => found == expected,
    }
}

/// `true` if each expected record has one that holds its members, and no other record is there.
fn are_those(found: &[Value], expected: &[Value]) -> bool {
    let mut left: Vec<&Value> = found.iter().collect();
    let all_are_there = expected.iter().all(|expected| {
        let at = left.iter().position(|found| has(found, expected));
        at.map(|at| left.swap_remove(at)).is_some()
    });
    all_are_there && left.is_empty()
}

/// Runs the test; `number` decides how.
fn check(name: &str, document: &Value, test: &TestCase, number: usize) {
    let batch = [1, 2, 7, 1000][number % 4];
    let config = FlowConfig { params: test.params.clone(), ..FlowConfig::default() };
    let job = |parallelism| over_topics(document, test, batch, parallelism);
    let records = records(document, test);
    let sinks = document["sinks"].as_object().unwrap().keys().chain(expected_transforms(document, test));
    let outputs: Vec<String> = sinks.map(|sink| topic_of(sink)).collect();
    let topics = records.iter().map(|(topic, _)| topic.as_str()).chain(outputs.iter().map(String::as_str));
    let topics: Vec<_> = topics.map(|topic| (topic, 1)).collect();

    let mut lives = Lives::begin(&config, &topics, &job(1));
    let middle = |records: &Vec<Value>| records.len().div_ceil(2);
    for (topic, records) in &records {
        records[..middle(records)].iter().for_each(|record| append(&mut lives, topic, record));
    }
    lives = lives.go_on(&Then::Kill(1 + (number as u64 * 37) % 150), job);
    lives = lives.go_on(&[Then::Resume(StopMode::Immediate, 3), Then::Replace(3)][number % 2], job);
    for (topic, records) in &records {
        records[middle(records)..].iter().for_each(|record| append(&mut lives, topic, record));
    }
    lives.pause();
    lives = lives.go_on(&Then::Kill(1 + (number as u64 * 53) % 150), job);
    let node = lives.complete(&Then::Replace(2), job);
    for (of, expected) in test.expect.iter().filter(|(of, _)| outputs.contains(&topic_of(of))) {
        let mut found: Vec<Value> = node.read(&topic_of(of)).into_iter().map(|(_, value)| value).collect();
        if document["transforms"].to_string().contains("\"interval\"") {
            // The clock may send a window more than once.
            let later: Vec<Value> = found.iter().map(|record| record["start"].clone()).collect();
            let mut at = 0;
            found.retain(|record| {
                at += 1;
                !later[at..].contains(&record["start"])
            });
        }
        assert!(are_those(&found, expected), "{name}, batches of {batch}, of {of}: {found:#?}");
    }
    node.close();
}

#[test]
fn every_example_gives_the_same_killed_and_restored_at_another_parallelism() {
    let reader = TestRunner::new(Functions::default(), Hooks::default(), &FlowConfig::default());
    let mut number = 0;
    for (file, text) in examples() {
        let document = reader.read(&text).unwrap();
        for test in document.tests.iter().filter(|test| can_run(&document.json, test)) {
            println!("{file}, {}", test.name);
            check(&format!("{file}, {}", test.name), &document.json, test, number);
            number += 1;
        }
    }
    assert!(number > 30, "{number} tests of examples");
}
