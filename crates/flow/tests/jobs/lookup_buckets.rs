//! Records that are joined with the values of a bucket.

use std::collections::BTreeMap;

use millstream_flow::Error;
use millstream_log::{AckLevel, Cleanup, TopicConfig, reply};
use millstream_testkit::eventually;
use millstream_types::{Header, Record, TenantId, TopicName, TopicPartition, header};
use serde_json::{Value, json};

use crate::node::Node;

/// A job that adds the state of its device to each reading.
fn known(table: &Value, missing: &str) -> Value {
    let mut config = json!({"key": "device", "as": "state", "missing": missing});
    config.as_object_mut().unwrap().extend(table.as_object().unwrap().clone());
    json!({
        "version": 1, "kind": "Job", "name": "known", "restart": {"policy": "never"},
        "sources": {"readings": {"type": "stream", "config": {"topic": "readings"}}},
        "transforms": {"known": {"type": "lookup", "inputs": ["readings"], "parallelism": 2, "config": config}},
        "sinks": {
            "out": {"type": "stream", "inputs": ["known"], "config": {"topic": "results"}},
            "dead": {"type": "stream", "inputs": ["known"], "config": {"topic": "results"}},
        },
        "routes": [
            {"from": "known", "on_error": true, "to": ["dead"], "select": "input.n AS n, error.code AS state, error.message AS why", "stop": true},
            {"from": "known", "to": ["out"]},
        ],
    })
}

fn open(dir: &tempfile::TempDir) -> Node {
    let node = Node::open(dir.path());
    node.create("readings", 2);
    node.create("results", 2);
    node
}

fn bucket(tenant: &TenantId) -> TopicName {
    TopicName::bucket("state", tenant).unwrap()
}

fn create_bucket(node: &Node, tenant: &TenantId) {
    let config = TopicConfig { partitions: 1, cleanup: Cleanup::Compact, ..TopicConfig::default() };
    node.log.create_topic(&bucket(tenant), &config).unwrap();
}

/// Appends a record as the store writes it.
fn put(node: &Node, tenant: &TenantId, key: &str, value: Option<&str>, headers: &[(&str, &str)]) {
    let partition = node.log.partition(&TopicPartition::new(bucket(tenant), 0)).unwrap();
    let headers: Vec<Header<'_>> =
        headers.iter().map(|(key, value)| Header { key, value: Some(value.as_bytes()) }).collect();
    let (key, value) = (Some(key.as_bytes()), value.map(str::as_bytes));
    let (done, answer) = reply();
    partition
        .append(&[Record { key, value, headers: &headers, ..Record::default() }], AckLevel::Written, done)
        .unwrap();
    answer.wait().unwrap();
}

fn send(node: &Node, n: u64, device: &str) {
    node.append("readings", &[(format!("r{n}"), json!({"n": n, "device": device}).to_string())]);
}

fn states(node: &Node) -> BTreeMap<u64, Value> {
    let results = node.read("results").into_iter();
    results.map(|(_, record)| (record["n"].as_u64().unwrap(), record["state"].clone())).collect()
}

#[test]
fn a_record_gets_the_value_of_its_key_unless_it_has_expired_or_lies_in_parts() {
    let dir = tempfile::tempdir().unwrap();
    let node = open(&dir);
    let (own, other) = (node.tenant.clone(), TenantId::new("other").unwrap());
    create_bucket(&node, &own);
    create_bucket(&node, &other);
    put(&node, &other, "foreign", Some("1"), &[]);
    put(&node, &own, "json", Some(r#"{"on": true}"#), &[(header::CONTENT_TYPE, "application/json")]);
    put(&node, &own, "text", Some("half full"), &[]);
    put(&node, &own, "expired", Some("1"), &[(header::KEY_EXPIRES, "1000")]);
    put(&node, &own, "kept", Some("1"), &[(header::KEY_EXPIRES, "99999999999999")]);
    put(&node, &own, "large", Some("a list of parts"), &[(header::VALUE_SIZE, "9000000")]);
    put(&node, &own, "deleted", Some("1"), &[]);
    put(&node, &own, "deleted", None, &[]);
    put(&node, &own, "\0upload", Some("1"), &[]);
    let id = node.run(&known(&json!({"bucket": "state"}), "null"));
    for (n, device) in (1..).zip(["json", "text", "expired", "kept", "large", "deleted", "foreign", "\0upload"]) {
        send(&node, n, device);
    }
    let null = || Value::Null;
    let expected =
        [json!({"on": true}), json!("half full"), null(), json!(1), json!("lookup_too_large"), null(), null(), null()];
    eventually("all are there", || states(&node) == (1..).zip(expected.clone()).collect());
    assert_eq!(node.job(&id)["nodes"][1]["keys"], 5);
    let results = node.read("results");
    let (_, large) = results.iter().find(|(_, record)| record["n"] == 5).unwrap();
    let why = "'state' has a value in parts for the key 'large', and a lookup reads none; store it in at most 512 KiB";
    assert_eq!(large["why"], why);
    // A change counts for later records.
    put(&node, &own, "text", Some("full"), &[]);
    let mut n = 8;
    eventually("the change counts", || {
        n += 1;
        send(&node, n, "text");
        eventually("the record is there", || states(&node).contains_key(&n));
        states(&node)[&n] == "full"
    });
    node.close();
}

#[test]
fn a_job_waits_for_a_bucket_and_fails_once_it_is_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let node = open(&dir);
    let id = node.run(&known(&json!({"bucket": "state"}), "error"));
    send(&node, 1, "a");
    let reason = || node.job(&id)["reason"].as_str().unwrap_or_default().to_owned();
    let expected =
        "waits for bucket 'state', which does not exist or is a cache; PUT /buckets/state makes a durable one";
    eventually("the job waits", || reason().contains(expected));
    create_bucket(&node, &node.tenant);
    eventually("the record fails", || states(&node) == BTreeMap::from([(1, json!("lookup_missing"))]));
    node.log.delete_topic(&bucket(&node.tenant)).unwrap();
    let job = node.ended(&id);
    assert_eq!(job["state"], "failed", "{job:#}");
    assert!(
        job["reason"].as_str().unwrap().contains("bucket 'state', its table, was deleted while the job ran"),
        "{job:#}"
    );
    node.close();
}

#[test]
fn a_name_that_no_bucket_can_have_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let node = open(&dir);
    for name in ["", "_state", "state.other", "kv state"] {
        let Err(Error::Invalid { findings }) = node.submit(&known(&json!({ "bucket": name }), "null")) else {
            panic!("'{name}' is accepted");
        };
        assert_eq!(findings[0].path, "transforms.known.config.bucket", "{name}: {findings:?}");
    }
    node.close();
}
