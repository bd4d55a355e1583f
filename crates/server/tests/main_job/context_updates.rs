//! Records of `context_update.<tenant>` become entities: each once, whatever kills the server.

use std::collections::BTreeMap;

use millstream_testkit::{Process, Server, ask, eventually};
use serde_json::{Value, json};

use crate::tokens::make;

const JSON: [(&str, &str); 1] = [("Content-Type", "application/json")];
const RECORDS: &str = "/api/streams/context_update.default/records";
const COUNTERS: u64 = 10;

/// A record that adds to three counters, which most often have several owners.
fn record(n: u64) -> Value {
    let add = |counter: u64| json!({"id": format!("c{}", counter % COUNTERS), "n": {"$inc": n}, "records": {"$inc": 1}, "last": n});
    let entities = [add(n), add(n + 1), add(n + 5)];
    json!({"key": format!("c{}", n % COUNTERS), "value": {"actionType": "append", "entities": entities}})
}

/// Appends records, each answered before this returns.
fn append(process: &Process, numbers: std::ops::Range<u64>) {
    let records: Vec<Value> = numbers.map(record).collect();
    let answer = ask(process.applications, "POST", RECORDS, &JSON, Value::from(records).to_string().as_bytes());
    assert_eq!(answer.status, 200, "{}", answer.text());
}

/// The sum, the number of records and the last record of each counter.
fn counters(process: &Process) -> BTreeMap<String, (u64, u64)> {
    let entities = process.get_json("/v2/entities?type=Thing&options=keyValues&limit=1000");
    let number = |entity: &Value, name: &str| entity[name].as_u64().unwrap();
    let entities = entities.as_array().unwrap().iter();
    entities
        .map(|entity| (entity["id"].as_str().unwrap().to_owned(), (number(entity, "records"), number(entity, "n"))))
        .collect()
}

#[test]
#[ignore = "takes long"]
fn each_record_of_updates_counts_once_whatever_kills_the_server() {
    let dir = tempfile::tempdir().unwrap();
    let start = || Process::start(dir.path());
    let mut process = start();
    let mut sent = 0;
    for _ in 0..5 {
        for _ in 0..4 {
            append(&process, sent..sent + 100);
            sent += 100;
        }
        process.kill();
        process = start();
    }
    append(&process, sent..sent + 100);
    sent += 100;
    let mut expected: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for n in 0..sent {
        for counter in [n, n + 1, n + 5] {
            let (records, sum) = expected.entry(format!("c{}", counter % COUNTERS)).or_default();
            (*records, *sum) = (*records + 1, *sum + n);
        }
    }
    let total: u64 = expected.values().map(|(records, _)| records).sum();
    eventually("every record is applied", || {
        counters(&process).values().map(|(records, _)| records).sum::<u64>() >= total
    });
    assert_eq!(counters(&process), expected);
    // A record that reaches its partition later is applied later.
    let own = process.get_json(&format!("/v2/entities/c{}?options=keyValues", (sent - 1) % COUNTERS));
    assert!(own["last"].as_u64().unwrap() >= sent - 10, "{own}");
    process.stop();
}

#[test]
fn the_topic_of_updates_comes_with_its_first_record_and_takes_those_of_writers_only() {
    let server = crate::tenant_with_logins();
    let own = server.tenant();
    let [reader, writer, admin] =
        [("reader", json!(["reader"])), ("writer", json!(["reader", "writer"])), ("admin", json!(["admin"]))].map(
            |(name, roles)| {
                make(&server, crate::ROOT, &json!({"name": format!("{name}-of-{own}"), "tenant": own, "roles": roles}))
            },
        );
    let topic = format!("/api/streams/context_update.{own}");
    let info = format!("{topic}/info");
    let records = &format!("/api/streams/context_update.{own}/records");
    let body = json!([{"key": "r", "value": {"id": "r", "type": "Room", "t": 1}}]).to_string();
    let ask_as = |token: &str, method: &str, path: &str, body: &str| {
        let bearer = format!("Bearer {token}");
        let headers = [JSON[0], ("Authorization", &*bearer)];
        ask(server.applications(), method, path, &headers, body.as_bytes())
    };
    assert_eq!(ask_as(&reader, "POST", records, &body).status, 403);
    let missing = ask_as(&reader, "GET", &info, "");
    assert_eq!(missing.status, 404, "{}", missing.text());
    assert!(missing.text().contains("created with its first record"), "{}", missing.text());
    let elsewhere = ask_as(&writer, "POST", "/api/streams/context_update.other/records", &body);
    assert_eq!(elsewhere.status, 403, "{}", elsewhere.text());
    let appended = ask_as(&writer, "POST", records, &body);
    assert_eq!(appended.status, 200, "{}", appended.text());
    eventually("the entity", || ask_as(&reader, "GET", "/v2/entities/r", "").status == 200);
    let info = ask_as(&reader, "GET", &info, "").json();
    assert_eq!((&info["kind"], &info["config"]["retention"]), (&json!("context_update"), &json!("7d")), "{info}");
    let altered = ask_as(&admin, "PATCH", &topic, r#"{"retention": "1d"}"#);
    assert_eq!(altered.status, 200, "{}", altered.text());
    assert_eq!(ask_as(&admin, "DELETE", &topic, "").status, 403);
}
