//! Jobs with state that are moved to Kafka in the midst of their work: their output is that of jobs that nobody has moved.

use std::path::Path;

use millstream_testkit::{Process, eventually};
use serde_json::{Value, json};

use crate::migration::{create, done, migrate, on_kafka};

const MINUTE_MS: u64 = 60_000;
/// Orders a minute.
const RATE: u64 = 50;
/// Orders before the move, and in all.
const ORDERS: [u64; 2] = [20_000, 22_000];
const OUTPUTS: [&str; 2] = ["sums", "paid"];

fn create_topics(server: &Process) {
    for topic in ["orders", "payments", "sums", "paid"] {
        create(server, "PUT", &format!("/api/streams/{topic}"), &json!({"partitions": 1}));
    }
}

/// Windows of the orders, and the orders with their payments.
fn create_jobs(server: &Process) {
    let source = |topic: &str| {
        json!({
            "type": "stream", "config": {"topic": topic}, "batch": {"size": 5},
            "event_time": {"field": "at", "max_out_of_orderness": "1m", "idle_timeout": "1d"},
        })
    };
    let aggregate = json!({
        "type": "aggregate", "inputs": ["orders"], "key_by": ["k"], "window": {"type": "tumbling", "size": "7m"},
        "aggregates": "COUNT(*) AS n, SUM(id) AS total",
    });
    let join = json!({
        "type": "join", "inputs": ["orders", "payments"],
        "config": {
            "left": "orders", "right": "payments", "kind": "left", "within": {"before": "0s", "after": "5m"},
            "on": {"orders": "id", "payments": "bought"}, "as": {"payments": "payment"},
        },
        "select": "orders.id AS id, payment.amount AS amount",
    });
    for (name, sources, transform) in [("sums", &["orders"][..], aggregate), ("paid", &["orders", "payments"], join)] {
        let sources: serde_json::Map<String, Value> =
            sources.iter().map(|topic| ((*topic).to_owned(), source(topic))).collect();
        let job = json!({
            "version": 1, "kind": "Job", "name": name, "delivery": "exactly_once", "checkpoint": {"interval": "50ms"},
            "sources": sources, "transforms": {"made": transform},
            "sinks": {"out": {"type": "stream", "inputs": ["made"], "config": {"topic": name}}},
        });
        create(server, "POST", "/api/jobs", &job);
    }
}

/// Sends these orders, and the payments of each third one two minutes later.
fn send(server: &Process, orders: std::ops::Range<u64>) {
    let all: Vec<u64> = orders.collect();
    for part in all.chunks(2_000) {
        let at = |id: u64| id / RATE * MINUTE_MS;
        let order = |id: &u64| json!({"value": {"id": id, "k": format!("k{}", id % 7), "at": at(*id)}});
        let orders: Vec<Value> = part.iter().map(order).collect();
        create(server, "POST", "/api/streams/orders/records", &json!(orders));
        let paid = part.iter().filter(|id| *id % 3 == 0);
        let payment = |id: &u64| json!({"value": {"bought": id, "amount": id * 2, "at": at(*id) + 2 * MINUTE_MS}});
        create(server, "POST", "/api/streams/payments/records", &json!(paid.map(payment).collect::<Vec<_>>()));
    }
}

/// Brings the event time of all sources to the end of every window.
fn end_time(server: &Process) {
    let at = (ORDERS[1] / RATE + 1_000) * MINUTE_MS;
    create(server, "POST", "/api/streams/orders/records", &json!([{"value": {"id": 1_000_000, "k": "end", "at": at}}]));
    create(server, "POST", "/api/streams/payments/records", &json!([{"value": {"bought": 0, "amount": 0, "at": at}}]));
}

/// The records of a topic, in an order of their own.
fn output(server: &Process, topic: &str) -> Vec<String> {
    let (mut found, mut from) = (Vec::new(), "earliest".to_owned());
    loop {
        let page = server.get_json(&format!("/api/streams/{topic}?from={from}&limit=1000"));
        let records = page["records"].as_array().unwrap();
        if records.is_empty() {
            found.sort();
            return found;
        }
        found.extend(records.iter().map(|record| record["value"].to_string()));
        from = page["next"].as_str().unwrap().to_owned();
    }
}

/// The output of a server that is never stopped.
fn expected(dir: &Path) -> [Vec<String>; 2] {
    let server = Process::start_on(dir, &[]);
    create_topics(&server);
    send(&server, 0..ORDERS[1]);
    end_time(&server);
    create_jobs(&server);
    // Each order gives one record, but for the last one, which waits for a payment.
    eventually("all orders are joined", || output(&server, "paid").len() as u64 == ORDERS[1]);
    let windows = (ORDERS[1] / RATE).div_ceil(7) * 7;
    eventually("all windows are given", || output(&server, "sums").len() as u64 >= windows);
    OUTPUTS.map(|topic| output(&server, topic))
}

#[test]
fn jobs_that_are_moved_in_the_midst_of_windows_and_joins_give_what_others_give() {
    let installation = tempfile::tempdir().unwrap();
    let [dir, other] = ["data", "other"].map(|name| installation.path().join(name));
    for dir in [&dir, &other] {
        std::fs::create_dir(dir).unwrap();
    }
    let expected = expected(&other);

    let server = Process::start_on(&dir, &[]);
    create_topics(&server);
    send(&server, 0..ORDERS[0]);
    create_jobs(&server);
    for topic in OUTPUTS {
        eventually("the job has begun", || !output(&server, topic).is_empty());
    }
    server.kill();
    let server = Process::start_on(&dir, &[]);
    let [sums, paid] = OUTPUTS.map(|topic| output(&server, topic).len());
    server.stop();
    assert!(sums < expected[0].len() * 9 / 10 && paid < expected[1].len() * 9 / 10, "the jobs are not behind");
    done(migrate(installation.path(), &dir));

    let server = on_kafka(installation.path(), &dir);
    send(&server, ORDERS[0]..ORDERS[1]);
    // Their state outlives a crash there, too.
    server.kill();
    let server = on_kafka(installation.path(), &dir);
    end_time(&server);
    for (topic, expected) in OUTPUTS.iter().zip(&expected) {
        eventually("everything is given", || output(&server, topic).len() >= expected.len());
        assert!(output(&server, topic) == *expected, "{topic} differs");
    }
}
