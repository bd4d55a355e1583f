//! An orderly end of the server: clients that wait for a live query get the result so far.

use std::thread;

use millstream_load::websocket;
use millstream_testkit::{Live, Process, ask, eventually};
use serde_json::{Value, json};

const JSON: [(&str, &str); 1] = [("Content-Type", "application/json")];

#[test]
fn at_a_shutdown_every_client_gets_the_partial_result_and_the_cause() {
    let dir = tempfile::tempdir().unwrap();
    let process = Process::start(dir.path());
    let to = process.applications;
    assert_eq!(ask(to, "PUT", "/api/streams/n", &JSON, br#"{"partitions": 2}"#).status, 201);
    let query = "SELECT COUNT(*) AS c, SUM(n) AS s FROM \"n\"";
    let (events, _) = Live::ask_for(&process, &json!({"query": query, "deliver": "sse"}));
    let (mut sender, mut receiver) = websocket::open(to, "/api/queries/ws").unwrap();
    sender.send([&*json!({"tag": "a", "query": query}).to_string()]).unwrap();
    assert!(receiver.receive().unwrap().unwrap()["opening"]["id"].is_string());
    let (waiting, of_bullet) = thread::scope(|scope| {
        let body = json!({"query": query, "duration_ms": 600_000}).to_string();
        let waiting = scope.spawn(move || ask(to, "POST", "/api/queries", &JSON, body.as_bytes()));
        let path = "/api/bullet/queries/sse-query";
        let of_bullet = scope.spawn(move || ask(to, "POST", path, &[], query.as_bytes()));
        eventually("all four live", || process.get_json("/api/queries").as_array().unwrap().len() == 4);
        let records = br#"[{"key": "a", "value": {"n": 1}}, {"key": "b", "value": {"n": 2}}, {"value": {"n": 4}}]"#;
        assert_eq!(ask(to, "POST", "/api/streams/n/records", &JSON, records).status, 200);
        eventually("all have seen them", || {
            process.get_json("/api/queries").as_array().unwrap().iter().all(|query| query["matched"] == 3)
        });
        process.tell_to_stop();
        (waiting.join().unwrap(), of_bullet.join().unwrap())
    });
    let expected = json!([{"c": 3, "s": 7}]);
    assert_eq!(waiting.status, 200, "{}", waiting.text());
    assert_eq!((&waiting.json()["records"], &waiting.json()["meta"]["cause"]), (&expected, &json!("shutdown")));
    let (rows, end) = events.finish();
    assert_eq!((Value::from(rows), &end["cause"]), (expected.clone(), &json!("shutdown")));
    let told: Vec<Value> = of_bullet
        .text()
        .lines()
        .filter_map(|line| line.strip_prefix("data: ").map(|data| serde_json::from_str(data).unwrap()))
        .collect();
    assert!(told.iter().any(|told| told["records"] == expected), "{told:?}");
    assert_eq!(told.last().unwrap()["meta"]["cause"], "shutdown");
    assert_eq!(receiver.receive().unwrap().unwrap()["records"], expected);
    assert_eq!(receiver.receive().unwrap().unwrap()["end"]["cause"], "shutdown");
    assert!(receiver.receive().unwrap().is_none(), "the connection is closed after that");
    process.stop();
}
