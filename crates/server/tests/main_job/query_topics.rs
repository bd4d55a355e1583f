//! Results that go into topics of a real server.

use millstream_testkit::{Process, Server, ask, eventually};
use serde_json::{Value, json};

use crate::tokens::{call, every_role, make};

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
    eventually("the row is there", || results(&process, "answers").len() == 2);
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
    let server = crate::tenant_with_logins();
    let tenant = server.tenant();
    let new = json!({"name": format!("dashboard-of-{tenant}"), "tenant": tenant, "roles": ["reader"]});
    let bearer = format!("Bearer {}", make(&server, crate::ROOT, &new));
    let headers = [JSON, ("Authorization", &*bearer)];
    let request = json!({"query": "SELECT * FROM STREAM()", "deliver": {"topic": "answers"}}).to_string();
    let refused = ask(server.applications(), "POST", "/api/queries", &headers, request.as_bytes());
    assert_eq!(refused.status, 403, "{}", refused.text());
    assert!(refused.text().contains("the roles reader and writer"), "{}", refused.text());
}

#[test]
fn administrators_of_a_whole_tenant_alone_ask_and_kill_by_records() {
    let (server, root) = (crate::tenant_with_logins(), crate::ROOT);
    let own = server.tenant();
    let named = |name: &str| format!("{name}-of-{own}");
    let asking = format!("queries.{own}");
    let boss = make(&server, root, &every_role(&named("boss"), own));
    let mut limited = every_role(&named("limited"), own);
    limited["topics"] = json!(["pub-", "queries."]);
    let limited = make(&server, root, &limited);
    let writer = json!({"name": named("writer"), "tenant": own, "roles": ["reader", "writer"]});
    let writer = make(&server, root, &writer);
    for topic in ["orders", "pub-answers", &*asking] {
        let path = format!("/api/streams/{topic}");
        assert_eq!(call(server.applications(), &boss, "PUT", &path, &json!({"partitions": 1})).status, 201);
    }
    let info = call(server.applications(), &boss, "GET", &format!("/api/streams/{asking}/info"), &Value::Null).json();
    assert_eq!(info["config"]["writers"], "admins");
    let append = |token: &str, value: Value| {
        let records = json!([{"key": "asked", "value": value}]);
        call(server.applications(), token, "POST", &format!("/api/streams/{asking}/records"), &records)
    };
    let request = json!({"query": "SELECT * FROM \"orders\"", "deliver": {"topic": "pub-answers"}});
    let asked = append(&boss, request.clone());
    assert_eq!(asked.status, 200, "{}", asked.text());
    let kinds = || {
        let path = "/api/streams/pub-answers?from=earliest";
        let page = call(server.applications(), &boss, "GET", path, &Value::Null).json();
        let records = page["records"].as_array().unwrap().iter();
        records.map(|record| record["headers"]["kind"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    eventually("the administrator's query runs", || kinds() == ["opening"]);
    let queries = call(server.applications(), &boss, "GET", "/api/queries", &Value::Null).json();
    let kill = json!({"kill": queries[0]["id"]});
    for (who, token) in [("limited", &limited), ("writer", &writer)] {
        for value in [&request, &kill] {
            let refused = append(token, value.clone());
            assert_eq!(refused.status, 403, "{who}: {}", refused.text());
            assert!(refused.text().contains("administrators alone"), "{}", refused.text());
        }
    }
    let job = json!({
        "version": 1, "kind": "Job", "name": "asking",
        "sources": {"in": {"type": "stream", "config": {"topic": "orders", "start": "earliest"}}},
        "sinks": {"out": {"type": "stream", "inputs": ["in"], "config": {"topic": asking}}},
    });
    let submitted = call(server.applications(), &writer, "POST", "/api/jobs", &job);
    assert_eq!(submitted.status, 201, "{}", submitted.text());
    let appended =
        call(server.applications(), &writer, "POST", "/api/streams/orders/records", &json!([{"value": request}]));
    assert_eq!(appended.status, 200, "{}", appended.text());
    let path = format!("/api/jobs/{}", submitted.json()["id"].as_str().unwrap());
    eventually("the job is refused its sink", || {
        call(server.applications(), &boss, "GET", &path, &Value::Null).text().contains("written by Millstream alone")
    });
    eventually("the row of the administrator's query is there", || kinds().contains(&"row".to_owned()));
    assert_eq!(kinds(), ["opening", "row"], "the query goes on, and nobody else's has begun");
    assert_eq!(append(&boss, kill).status, 200);
    eventually("it is killed", || kinds() == ["opening", "row", "end"]);
}
