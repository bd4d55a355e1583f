//! Results that go into topics of a real server.

use serde_json::{Value, json};

use crate::process::{Process, ask, until};

const JSON: (&str, &str) = ("Content-Type", "application/json");

/// The kinds and values of the records in the topic.
fn results(process: &Process, topic: &str) -> Vec<(String, Value)> {
    let page = process.get_json(&format!("/api/streams/{topic}?from=earliest"));
    let of = |record: &Value| (record["headers"]["kind"].as_str().unwrap().to_owned(), record["value"].clone());
    page["records"].as_array().unwrap().iter().map(of).collect()
}

#[test]
fn a_query_goes_on_without_its_client_and_tells_its_end_when_the_server_stops() {
    let dir = tempfile::tempdir().unwrap();
    let process = Process::start(dir.path());
    for topic in ["orders", "answers"] {
        assert_eq!(ask(process.applications, "PUT", &format!("/api/streams/{topic}"), &[JSON], b"{}").status, 201);
    }
    let request = json!({"query": "SELECT n FROM \"orders\"", "deliver": {"topic": "answers"}}).to_string();
    let told = ask(process.applications, "POST", "/api/queries", &[JSON], request.as_bytes());
    assert_eq!(told.status, 201, "{}", told.text());
    let told = told.json();
    assert_eq!((&told["topic"], &told["columns"]), (&json!("answers"), &json!(["n"])));
    let appended =
        ask(process.applications, "POST", "/api/streams/orders/records", &[JSON], br#"[{"value": {"n": 1}}]"#);
    assert_eq!(appended.status, 200, "{}", appended.text());
    until("the row is there", || results(&process, "answers").len() == 2);
    process.stop();

    let process = Process::start(dir.path());
    let results = results(&process, "answers");
    let kinds: Vec<&str> = results.iter().map(|(kind, _)| &**kind).collect();
    assert_eq!(kinds, ["opening", "row", "end"]);
    assert_eq!((&results[0].1["id"], &results[1].1), (&told["id"], &json!({"n": 1})));
    assert_eq!((&results[2].1["cause"], &results[2].1["matched"]), (&json!("shutdown"), &json!(1)));
    process.stop();
}

#[test]
fn results_are_appended_to_a_topic_only_for_the_role_writer() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("settings.toml");
    let token = "[[applications.tokens]]\nname = \"dashboard\"\ntoken = \"0123456789abcdef\"\nroles = [\"reader\"]\n";
    std::fs::write(&file, token).unwrap();
    let process = Process::start_on(dir.path(), &["--config", file.to_str().unwrap()]);
    let headers = [JSON, ("Authorization", "Bearer 0123456789abcdef")];
    let request = json!({"query": "SELECT * FROM STREAM()", "deliver": {"topic": "answers"}}).to_string();
    let refused = ask(process.applications, "POST", "/api/queries", &headers, request.as_bytes());
    assert_eq!(refused.status, 403, "{}", refused.text());
    assert!(refused.text().contains("the roles reader and writer"), "{}", refused.text());
    process.stop();
}
