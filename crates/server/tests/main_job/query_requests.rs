//! Parts of a request for a live query besides its text: its start, and the times of its results.

use millstream_testkit::{Live, Process, Server, ask};
use serde_json::{Value, json};

const JSON: [(&str, &str); 1] = [("Content-Type", "application/json")];

#[test]
fn a_query_begins_in_the_past_where_its_request_says() {
    let server = crate::tenant();
    let to = server.applications();
    assert_eq!(ask(to, "PUT", "/api/streams/n", &JSON, br#"{"partitions": 1}"#).status, 201);
    let records: Vec<Value> = (0..5).map(|n| json!({"value": {"n": n}})).collect();
    let appended = ask(to, "POST", "/api/streams/n/records", &JSON, Value::from(records).to_string().as_bytes());
    assert_eq!(appended.status, 200, "{}", appended.text());
    let post = |body: &Value| ask(to, "POST", "/api/queries", &JSON, body.to_string().as_bytes());
    for (from, limit, expected) in [
        (json!("earliest"), 2, json!([{"n": 0}, {"n": 1}])),
        (json!({"offsets": {"0": 3}}), 2, json!([{"n": 3}, {"n": 4}])),
        (json!({"time_ms": 0}), 1, json!([{"n": 0}])),
    ] {
        let answer = post(&json!({"query": "SELECT n FROM \"n\"", "from": from, "limit": limit}));
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_eq!((&answer.json()["records"], &answer.json()["meta"]["cause"]), (&expected, &json!("size")), "{from}");
    }
    for (from, says) in [
        (json!({"offsets": {"7": 3}}), "has partitions 0 to 0, not 7"),
        (json!({"offsets": {"0": 60}}), "is not there yet"),
        (json!("latest"), "latest"),
    ] {
        let refused = post(&json!({"query": "SELECT n FROM \"n\"", "from": from}));
        assert_eq!(refused.status, 400, "{}", refused.text());
        assert!(refused.text().contains(says), "{from}: {}", refused.text());
    }
}

#[test]
fn live_queries_are_listed_in_pages_and_counted_in_the_metrics() {
    let dir = tempfile::tempdir().unwrap();
    let process = Process::start(dir.path());
    let to = process.applications;
    assert_eq!(ask(to, "PUT", "/api/streams/n", &JSON, br#"{"partitions": 1}"#).status, 201);
    let asked: Vec<_> = (0..5)
        .map(|n| Live::ask_for(&process, &json!({"query": format!("SELECT {n} FROM \"n\""), "deliver": "sse"})))
        .collect();
    let ids = |path: &str| {
        let answer = process.get(path);
        assert_eq!((answer.status, answer.header("total-count")), (200, Some("5")), "{path}: {}", answer.text());
        answer.json().as_array().unwrap().iter().map(|query| query["id"].clone()).collect::<Vec<_>>()
    };
    let all: Vec<Value> = asked.iter().map(|(_, id)| json!(id)).collect();
    assert_eq!(ids("/api/queries"), all);
    assert_eq!(ids("/api/queries?limit=2"), all[..2]);
    assert_eq!(ids("/api/queries?limit=2&offset=3"), all[3..]);
    assert!(ids("/api/queries?offset=9").is_empty());
    let (_, ended) = asked.first().unwrap();
    assert_eq!(ask(to, "DELETE", &format!("/api/queries/{ended}"), &[], b"").status, 204);
    let metrics = process.get("/metrics").text();
    for line in [
        "millstream_query_live 4",
        "millstream_query_ended_total{cause=\"killed\"} 1",
        "millstream_query_records_seen_total 0",
    ] {
        assert!(metrics.lines().any(|told| told == line), "{line}: {metrics}");
    }
    for wrong in ["limit=0", "limit=1001", "limit=x", "offset=-1", "page=2"] {
        assert_eq!(process.get(&format!("/api/queries?{wrong}")).status, 400, "{wrong}");
    }
    process.stop();
}

#[test]
fn windows_are_a_member_of_the_request_as_of_the_text() {
    let server = crate::tenant();
    let to = server.applications();
    for topic in ["n", "answers"] {
        assert_eq!(ask(to, "PUT", &format!("/api/streams/{topic}"), &JSON, br#"{"partitions": 1}"#).status, 201);
    }
    let window = json!({"emit": {"type": "RECORD", "every": 2}});
    let body = json!({"query": "SELECT SUM(n) AS s FROM \"n\"", "from": "earliest", "window": window,
        "deliver": {"topic": "answers"}});
    let records = br#"[{"value": {"n": 1}}, {"value": {"n": 2}}, {"value": {"n": 3}}, {"value": {"n": 4}}]"#;
    assert_eq!(ask(to, "POST", "/api/streams/n/records", &JSON, records).status, 200);
    let told = ask(to, "POST", "/api/queries", &JSON, body.to_string().as_bytes());
    assert_eq!(told.status, 201, "{}", told.text());
    let mut sums = Vec::new();
    millstream_testkit::eventually("both windows are there", || {
        let page = server.get_json("/api/streams/answers?from=earliest");
        let rows = page["records"].as_array().unwrap().iter().filter(|record| record["headers"]["kind"] == "row");
        sums = rows.map(|record| record["value"]["s"].as_u64().unwrap()).collect();
        sums.len() == 2
    });
    assert_eq!(sums, [3, 7]);
    let refused = json!({"query": "SELECT * FROM \"n\"", "window": {"emit": 5}, "deliver": "sse"}).to_string();
    let refused = ask(to, "POST", "/api/queries", &JSON, refused.as_bytes());
    assert_eq!(refused.status, 400, "{}", refused.text());
    assert!(refused.text().contains("window.emit: an object belongs here"), "{}", refused.text());
}
