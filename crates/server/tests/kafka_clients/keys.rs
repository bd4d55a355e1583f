//! The topic of a bucket of keys, as Kafka clients see it.

use millstream_testkit::{Process, ask};

use crate::broker::Broker;

fn write(process: &Process, method: &str, path: &str, headers: &[(&str, &str)], body: &str) {
    let answer = ask(process.applications, method, path, headers, body.as_bytes());
    assert!(answer.status < 300, "{method} {path}: {}", answer.text());
}

/// Writes of every kind to bucket `things`.
fn fill(process: &Process) {
    write(process, "PUT", "/buckets/things", &[], r#"{"partitions": 3}"#);
    for number in 0..60 {
        write(process, "PUT", &format!("/kv/things/key-{number}"), &[], &format!("value {number}"));
    }
    let headers = [
        ("Content-Type", "image/png"),
        ("X-Meta-Owner", "ann"),
        ("X-Tags", "a,b"),
        ("X-Timestamp", "2026-01-01T00:00:00Z"),
    ];
    write(process, "PUT", "/kv/things/kept?ttl=1h", &headers, "picture");
    write(process, "POST", "/kv/things/key-1?append", &[], " and more");
    write(process, "PUT", "/kv/things/key-2?offset=20", &[], "patched");
    write(process, "PUT", "/kv/things/%FF%00bytes", &[], "no text");
    write(process, "PUT", "/kv/things/empty", &[], "");
    for number in (10..60).step_by(3) {
        write(process, "DELETE", &format!("/kv/things/key-{number}"), &[], "");
    }
    write(process, "PUT", "/kv/things/key-10", &[], "again");
}

#[test]
fn librdkafka_and_kcat_build_the_map_of_a_bucket_from_its_topic_and_cannot_write_to_it() {
    let broker = Broker::start();
    let Some(process) = broker.process() else { return };
    fill(process);
    broker.script("keys.py", &["same-map", &process.applications_url(), "things"]);
    broker.script("keys.py", &["owners-only", "kv.things.default"]);
    // Nothing of the refused writes is there.
    assert_eq!(process.get("/kv/things/kept").body, b"picture");
    assert_eq!(process.get("/kv/things/forged").status, 404);
    broker.script("keys.py", &["same-map", &process.applications_url(), "things"]);

    let read = broker.kcat(&["-C", "-t", "kv.things.default", "-o", "beginning", "-e", "-f", "%k|%S|%s|%h\n"], "");
    let lines: Vec<&str> = read.lines().collect();
    assert!(lines.contains(&"key-0|7|value 0|"), "{read}");
    assert!(lines.contains(&"key-13|-1||"), "a tombstone: {read}");
    assert!(lines.iter().any(|line| line.starts_with("kept|7|picture|ms-expires=")), "{read}");
}
