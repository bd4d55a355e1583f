//! Jobs that look records up in what other parts of the server keep.

use millstream_testkit::{Server, TestTenant, ask, eventually};
use serde_json::{Value, json};

use crate::jobs::{JSON, submit};

fn send(server: &TestTenant, method: &str, path: &str, body: &Value, status: u16) {
    let answer = ask(server.applications(), method, path, &[JSON], body.to_string().as_bytes());
    assert_eq!(answer.status, status, "{method} {path}: {}", answer.text());
}

/// A server of a tenant with a job that adds the member `found` to its readings.
fn looking_up(config: &Value) -> TestTenant {
    let server = crate::tenant();
    for topic in ["readings", "results"] {
        send(&server, "PUT", &format!("/api/streams/{topic}"), &json!({"partitions": 1}), 201);
    }
    let mut config = config.clone();
    config["as"] = "found".into();
    let job = json!({
        "version": 1, "kind": "Job", "name": "looking-up",
        "sources": {"readings": {"type": "stream", "config": {"topic": "readings"}}},
        "transforms": {"found": {"type": "lookup", "inputs": ["readings"], "config": config}},
        "sinks": {"out": {"type": "stream", "inputs": ["found"], "config": {"topic": "results"}}},
    });
    let submitted = submit(&server, &job);
    assert_eq!(submitted.status, 201, "{}", submitted.text());
    server
}

/// Sends a reading of a device; the value that it got.
fn found(server: &TestTenant, device: &str) -> Value {
    let results = || server.get_json("/api/streams/results?from=earliest&limit=1000")["records"].clone();
    let before = results().as_array().unwrap().len();
    let reading = json!([{"key": device, "value": {"device": device}}]);
    send(server, "POST", "/api/streams/readings/records", &reading, 200);
    eventually("the reading is looked up", || results().as_array().unwrap().len() > before);
    results()[before]["value"]["found"].clone()
}

#[test]
fn a_reading_gets_the_entity_of_its_device_as_the_last_answered_update_left_it() {
    let entities = json!({"id": "urn:Pump:{device}", "type": "Pump", "attrs": ["limit", "site"]});
    let server = looking_up(&json!({ "entities": entities }));
    assert_eq!(found(&server, "7"), Value::Null);
    let pump = |kind: &str, limit: u64| json!({"id": "urn:Pump:7", "type": kind, "limit": limit, "site": {"x": 1}, "other": 2});
    send(&server, "POST", "/v2/entities?options=keyValues", &pump("Pump", 5), 201);
    send(&server, "POST", "/v2/entities?options=keyValues", &pump("Spare", 6), 201);
    let shown = |limit: u64| json!({"id": "urn:Pump:7", "type": "Pump", "limit": limit, "site": {"x": 1}});
    assert_eq!(found(&server, "7"), shown(5));
    for limit in 10..15 {
        send(
            &server,
            "PATCH",
            "/v2/entities/urn:Pump:7/attrs?type=Pump&options=keyValues",
            &json!({"limit": limit}),
            204,
        );
        assert_eq!(found(&server, "7"), shown(limit));
    }
    // That of another tenant is none.
    let other = crate::tenant();
    send(
        &other,
        "POST",
        "/v2/entities?options=keyValues",
        &json!({"id": "urn:Pump:8", "type": "Pump", "limit": 1}),
        201,
    );
    assert_eq!(found(&server, "8"), Value::Null);
    let gone = ask(server.applications(), "DELETE", "/v2/entities/urn:Pump:7?type=Pump", &[], b"");
    assert_eq!(gone.status, 204, "{}", gone.text());
    assert_eq!(found(&server, "7"), Value::Null);
}

#[test]
fn a_reading_gets_the_value_of_its_device_in_a_bucket_until_it_is_deleted_or_expires() {
    let server = looking_up(&json!({"bucket": "state", "key": "device"}));
    send(&server, "PUT", "/buckets/state", &json!({"partitions": 2}), 201);
    let eventually_found = |device: &str, expected: &Value| {
        eventually(&format!("{device} has {expected}"), || found(&server, device) == *expected);
    };
    eventually_found("a", &Value::Null);
    send(&server, "PUT", "/kv/state/a", &json!({"on": true}), 201);
    eventually_found("a", &json!({"on": true}));
    send(&server, "PUT", "/kv/state/a?ttl=200ms", &json!("soon gone"), 200);
    // A look may come too late to find it.
    eventually_found("a", &Value::Null);
    send(&server, "PUT", "/kv/state/b", &json!(5), 201);
    eventually_found("b", &json!(5));
    let gone = ask(server.applications(), "DELETE", "/kv/state/b", &[], b"");
    assert!(gone.status < 300, "{}", gone.text());
    eventually_found("b", &Value::Null);
}
