//! Live queries with `keep: true`: `kill -9` and an orderly end change nothing about what they come to.

use std::collections::BTreeMap;

use millstream_load::asker;
use serde_json::{Value, json};

use crate::process::{Live, Process, ask, until};

const JSON: [(&str, &str); 1] = [("Content-Type", "application/json")];

/// Appends records of numbers, each answered before this returns.
fn append(process: &Process, numbers: std::ops::Range<u64>) {
    let record = |n: u64| json!({"key": format!("k{}", n % 11), "value": {"id": format!("g{}", n % 5), "n": n}});
    let records: Vec<Value> = numbers.map(record).collect();
    let answer =
        ask(process.applications, "POST", "/api/streams/n/records", &JSON, Value::from(records).to_string().as_bytes());
    assert_eq!(answer.status, 200, "{}", answer.text());
}

fn seen(process: &Process, id: &str, records: u64) {
    until("the records have been seen", || process.get_json(&format!("/api/queries/{id}"))["records_seen"] == records);
}

#[test]
fn a_kept_query_comes_to_the_same_whatever_kills_the_server_and_each_record_counts_once() {
    let dir = tempfile::tempdir().unwrap();
    let mut process = Process::start(dir.path());
    ask(process.applications, "PUT", "/api/streams/n", &JSON, br#"{"partitions": 4, "level": "synced"}"#);
    let grouped = "SELECT id, COUNT(*) AS c, SUM(n) AS s, COUNT(DISTINCT n) AS d FROM \"n\" GROUP BY id ORDER BY id";
    let (client, sums) = Live::ask_for(&process, &json!({"query": grouped, "deliver": "sse", "keep": true}));
    let windows = "SELECT COUNT(*) AS c FROM \"n\" WINDOWING TUMBLING(500, RECORD)";
    let (mut asker, mut hearer) = asker::open(process.applications, "/api/queries/ws").unwrap();
    asker.send([&*json!({"tag": "w", "query": windows, "keep": true}).to_string()]).unwrap();
    let counts = hearer.hear().unwrap().unwrap()["opening"]["id"].as_str().unwrap().to_owned();
    drop(client);
    asker.close();

    let mut sent = 0;
    for round in 0..5 {
        for _ in 0..8 {
            append(&process, sent..sent + 50);
            sent += 50;
        }
        // Killed while the last records are on their way into the sums; the last time there is an orderly end.
        if round < 4 {
            process.kill();
        } else {
            process.stop();
        }
        process = Process::start(dir.path());
    }
    append(&process, sent..sent + 50);
    sent += 50;
    seen(&process, &sums, sent);
    seen(&process, &counts, sent);

    assert_eq!(ask(process.applications, "DELETE", &format!("/api/queries/{sums}"), &[], b"").status, 204);
    let (rows, end) = Live::attach(&process, &sums).finish();
    let mut expected: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    for n in 0..sent {
        let (count, sum) = expected.entry(n % 5).or_default();
        (*count, *sum) = (*count + 1, *sum + n);
    }
    let expected: Vec<Value> =
        expected.iter().map(|(id, (c, s))| json!({"id": format!("g{id}"), "c": c, "s": s, "d": c})).collect();
    assert_eq!(rows, expected);
    assert_eq!((&end["cause"], &end["matched"], &end["records_seen"]), (&"killed".into(), &sent.into(), &sent.into()));
    until("it is forgotten", || process.get(&format!("/api/queries/{sums}")).status == 404);

    // The windows that nobody has read are there, in their order; the WebSocket reads them on.
    let (mut asker, mut hearer) = asker::open(process.applications, "/api/queries/ws").unwrap();
    asker.send([&*json!({"tag": "w", "attach": counts}).to_string(), r#"{"tag": "x", "attach": "?"}"#]).unwrap();
    assert_eq!(hearer.hear().unwrap().unwrap()["opening"]["id"], *counts);
    let (mut numbers, mut is_refused) = (Vec::new(), false);
    while numbers.len() < 4 || !is_refused {
        let told = hearer.hear().unwrap().unwrap();
        if told["tag"] == "x" {
            is_refused = true;
            assert!(told["problem"]["detail"].as_str().unwrap().contains("'?' is no query's id"), "{told}");
            continue;
        }
        assert_eq!(told["window"]["records"], json!([{"c": 500}]));
        numbers.push(told["window"]["meta"]["window"]["number"].as_u64().unwrap());
    }
    assert_eq!(numbers, [1, 2, 3, 4]);
    asker.send([r#"{"kill": "w"}"#]).unwrap();
    assert_eq!(hearer.hear().unwrap().unwrap()["window"]["records"], json!([{"c": 50}]));
    assert_eq!(hearer.hear().unwrap().unwrap()["end"]["matched"], sent);
    asker.close();
    process.stop();
}
