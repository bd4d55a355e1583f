//! `GET /api/queries/ws`: many live queries over one WebSocket.

use std::collections::BTreeMap;

use millstream_load::websocket;
use millstream_testkit::{Process, ask, eventually};
use serde_json::{Value, json};

const JSON: [(&str, &str); 1] = [("Content-Type", "application/json")];

#[test]
fn many_queries_share_a_websocket_and_each_gets_its_own_rows() {
    let dir = tempfile::tempdir().unwrap();
    let process = Process::start(dir.path());
    ask(process.applications, "PUT", "/api/streams/n", &JSON, br#"{"partitions": 4}"#);
    let (mut sender, mut receiver) = websocket::open(process.applications, "/api/queries/ws").unwrap();
    let asked: Vec<String> = (0..300)
        .map(|i| json!({"tag": i.to_string(), "query": format!("SELECT n FROM \"n\" WHERE n = {i}")}).to_string())
        .collect();
    sender.send(asked.iter().map(String::as_str)).unwrap();
    for _ in 0..300 {
        assert!(receiver.receive().unwrap().unwrap()["opening"]["id"].is_string());
    }
    // Refusals end neither the connection nor other queries.
    sender
        .send([r#"{"tag": "0", "query": "SELECT * FROM \"n\""}"#, r#"{"tag": "x", "query": "SELCT"}"#, "no"])
        .unwrap();
    let problems: Vec<Value> = (0..3).map(|_| receiver.receive().unwrap().unwrap()).collect();
    let told = |tag: &str| problems.iter().find(|told| told["tag"] == tag).unwrap()["problem"].to_string();
    assert!(told("0").contains("tag '0' is in use"), "{}", told("0"));
    assert!(told("x").contains("did you mean SELECT?"), "{}", told("x"));
    assert!(told("").contains("a message is"), "{}", told(""));

    let records: Vec<Value> = (0..600).map(|n| json!({"key": format!("k{n}"), "value": {"n": n % 300}})).collect();
    let appended =
        ask(process.applications, "POST", "/api/streams/n/records", &JSON, Value::from(records).to_string().as_bytes());
    assert_eq!(appended.status, 200, "{}", appended.text());
    let mut got: BTreeMap<String, usize> = BTreeMap::new();
    while got.values().sum::<usize>() < 600 {
        let message = receiver.receive().unwrap().unwrap();
        let tag = message["tag"].as_str().unwrap().to_owned();
        let rows = message["records"].as_array().unwrap();
        assert!(rows.iter().all(|row| tag.parse::<u64>().is_ok_and(|n| row["n"] == n)), "{message}");
        *got.entry(tag).or_default() += rows.len();
    }
    assert!(got.len() == 300 && got.values().all(|rows| *rows == 2), "{got:?}");

    sender.send([r#"{"kill": "7"}"#]).unwrap();
    let end = receiver.receive().unwrap().unwrap();
    assert_eq!((&end["tag"], &end["end"]["cause"], &end["end"]["matched"]), (&"7".into(), &"killed".into(), &2.into()));
    sender.close();
    eventually("the queries have ended with the connection", || {
        process.get_json("/api/queries").as_array().is_some_and(Vec::is_empty)
    });
    process.stop();
}
