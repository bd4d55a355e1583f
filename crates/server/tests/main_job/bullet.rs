//! Bullet's paths: what its clients send and get.

use std::thread;

use serde_json::Value;

use crate::process::{Process, ask, until};

const TEXT: &[(&str, &str)] = &[("content-type", "text/plain")];
const JSON: &[(&str, &str)] = &[("content-type", "application/json")];

#[test]
fn bullets_paths_answer_in_the_shape_that_its_clients_know() {
    let dir = tempfile::tempdir().unwrap();
    let process = Process::start(dir.path());
    let to = process.applications;
    let post = |path: &str, body: &str| ask(to, "POST", path, TEXT, body.as_bytes());
    let created = ask(to, "PUT", "/api/streams/orders", JSON, b"{\"partitions\": 1, \"level\": \"memory\"}");
    assert!((200..300).contains(&created.status), "{}", created.text());

    for path in ["/api/bullet/queries/http-query", "/drpc/bullet"] {
        let answer = thread::scope(|scope| {
            let query = r#"SELECT item, count * 2 AS twice FROM "orders" WHERE item != 'nut' LIMIT 2"#;
            let asked = scope.spawn(move || post(path, query));
            until("the query lives", || !process.get_json("/api/queries").as_array().unwrap().is_empty());
            let records = br#"[{"value": {"item": "bolt", "count": 7}}, {"value": {"item": "nut", "count": 9}},
                {"value": {"item": "gear", "count": 1.5}}]"#;
            let appended = ask(to, "POST", "/api/streams/orders/records", JSON, records);
            assert_eq!(appended.status, 200, "{}", appended.text());
            asked.join().unwrap()
        });
        assert_eq!(answer.status, 200, "{}", answer.text());
        let result: Value = answer.json();
        let expected = serde_json::json!([{"item": "bolt", "twice": 14}, {"item": "gear", "twice": 3.0}]);
        assert_eq!(result["records"], expected);
        assert_eq!(result["meta"]["cause"], "size");
    }

    let windowed =
        post("/api/bullet/queries/http-query", r#"SELECT COUNT(*) FROM "orders" WINDOWING TUMBLING(1000, TIME)"#);
    assert_eq!(windowed.status, 400, "{}", windowed.text());
    assert!(windowed.json()["meta"]["errors"][0]["error"].as_str().unwrap().contains("window"), "{}", windowed.text());

    for query in ["SELECT * FROM STREAM(1000, TIME) WHERE a.b > 1", r#"{"aggregation": {"type": "RAW", "size": 1}}"#] {
        assert_eq!(post("/api/bullet/queries/validate-query", query).status, 204, "{query}");
    }
    for query in ["SELECT * FORM STREAM()", r#"{"filter": []}"#] {
        let refused = post("/api/bullet/queries/validate-query", query);
        assert_eq!(refused.status, 422, "{query}");
        let result = refused.json();
        assert_eq!(result["records"], serde_json::json!([]));
        assert!(result["meta"]["errors"][0]["error"].as_str().unwrap().contains("did you mean"), "{result}");
    }
    process.stop();
}

#[test]
fn what_a_stream_holds_is_told_to_each_kind_of_client() {
    let dir = tempfile::tempdir().unwrap();
    let process = Process::start(dir.path());
    let to = process.applications;
    let created = ask(to, "PUT", "/api/streams/orders", JSON, b"{\"partitions\": 2}");
    assert!((200..300).contains(&created.status), "{}", created.text());
    let records = br#"[{"key": "a", "value": {"item": "bolt", "size": {"mm": 8}}}, {"value": {"item": null}}]"#;
    assert_eq!(ask(to, "POST", "/api/streams/orders/records", JSON, records).status, 200);

    let schema = process.get_json("/api/streams/orders/schema");
    assert_eq!((&schema["stream"], &schema["records"]), (&"orders".into(), &2.into()));
    let paths: Vec<&str> = schema["fields"].as_array().unwrap().iter().map(|f| f["path"].as_str().unwrap()).collect();
    assert_eq!(paths, ["$key", "item", "size", "size.mm"]);
    assert_eq!(
        schema["fields"][3],
        serde_json::json!(
        {"path": "size.mm", "types": {"LONG": 1}, "present": 0.5, "examples": [8]})
    );
    assert_eq!(process.get_json("/api/queries/columns?stream=orders"), schema);

    let answer = ask(to, "GET", "/api/bullet/columns?stream=orders", &[], b"");
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.header("content-type"), Some("application/vnd.api+json"));
    assert_eq!(
        answer.json()["data"][1],
        serde_json::json!({"id": "size", "type": "field", "attributes":
        {"name": "size", "subFields": [{"name": "mm"}], "type": "LONG_MAP"}})
    );
    let missing = ask(to, "GET", "/api/bullet/columns?stream=none", &[], b"");
    assert_eq!(missing.status, 404, "{}", missing.text());
    assert!(missing.json()["meta"]["errors"][0]["error"].as_str().unwrap().contains("none"));
    assert_eq!(ask(to, "GET", "/api/streams/none/schema", &[], b"").status, 404);
    process.stop();
}
