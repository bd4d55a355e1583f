//! Bullet's paths: what its clients send and get.

use std::io::{BufRead as _, Read as _};
use std::thread;

use millstream_testkit::{Process, Server, ask, eventually, open};
use serde_json::{Value, json};

const TEXT: &[(&str, &str)] = &[("content-type", "text/plain")];
const JSON: &[(&str, &str)] = &[("content-type", "application/json")];

#[test]
fn bullets_paths_answer_in_the_shape_that_its_clients_know() {
    let server = crate::tenant();
    let to = server.applications();
    let post = |path: &str, body: &str| ask(to, "POST", path, TEXT, body.as_bytes());
    let created = ask(to, "PUT", "/api/streams/orders", JSON, b"{\"partitions\": 1, \"level\": \"memory\"}");
    assert!((200..300).contains(&created.status), "{}", created.text());

    for path in ["/api/bullet/queries/http-query", "/drpc/bullet"] {
        let answer = thread::scope(|scope| {
            let query = r#"SELECT item, count * 2 AS twice FROM "orders" WHERE item != 'nut' LIMIT 2"#;
            let asked = scope.spawn(move || post(path, query));
            eventually("the query lives", || !server.get_json("/api/queries").as_array().unwrap().is_empty());
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
        assert!(result["meta"].get("errors").is_none(), "{result}");
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
        let error = result["meta"]["errors"][0]["error"].as_str().unwrap();
        assert!(error.contains("did you mean"), "{result}");
        assert!(error.starts_with(if query.starts_with('{') { "1:2: " } else { "1:10: " }), "{result}");
    }
}

#[test]
fn rows_tell_when_they_were_received_and_members_of_the_meta_have_configured_names() {
    let dir = tempfile::tempdir().unwrap();
    let settings = [
        "query.bullet.stream=orders",
        "query.bullet.receive_timestamp=true",
        "query.bullet.meta_names={cause=\"End\",number=\"Number\",id=\"Query ID\"}",
    ];
    let settings: Vec<&str> = settings.iter().flat_map(|setting| ["--set", setting]).collect();
    let process = Process::start_on(dir.path(), &settings);
    let to = process.applications;
    assert_eq!(ask(to, "PUT", "/api/streams/orders", JSON, b"{\"partitions\": 1}").status, 201);
    let asked = |query: &'static str| {
        thread::spawn(move || ask(to, "POST", "/api/bullet/queries/http-query", TEXT, query.as_bytes()).json())
    };
    for query in ["{\"aggregation\": {\"size\": 3}}", "SELECT n FROM STREAM() LIMIT 3"] {
        let answer = asked(query);
        until_one_lives(&process);
        append(&process, r#"[{"value": {"n": 1}}, {"value": {}}, {"value": {"n": null }}]"#);
        let answer = answer.join().unwrap();
        let records = answer["records"].as_array().unwrap();
        let [received, finished] = ["received_ms", "finished_ms"].map(|name| answer["meta"][name].as_i64().unwrap());
        for record in records {
            let at = record["__receive_timestamp"].as_i64().unwrap();
            assert!((received..=finished).contains(&at), "{received} {at} {finished}");
        }
        assert_eq!((records.len(), &records[0]["n"], &answer["meta"]["End"]), (3, &json!(1), &json!("size")));
        assert!(answer["meta"]["Query ID"].is_string() && answer["meta"].get("cause").is_none(), "{answer}");
        // Nothing of the kind elsewhere.
        let native = json!({"query": "SELECT * FROM \"orders\"", "from": "earliest", "limit": 1}).to_string();
        let native = ask(to, "POST", "/api/queries", JSON, native.as_bytes()).json();
        assert_eq!((&native["records"], &native["meta"]["cause"]), (&json!([{"n": 1}]), &json!("size")));
    }
    let windows = b"SELECT COUNT(*) AS c FROM STREAM() WINDOWING TUMBLING(1, RECORD)";
    let (_, _, mut events) = open(to, "POST", "/api/bullet/queries/sse-query", TEXT, windows);
    until_one_lives(&process);
    append(&process, r#"[{"value": {"n": 1}}]"#);
    let mut line = String::new();
    // The first tells the query's id.
    for _ in 0..2 {
        line.clear();
        while !line.starts_with("data: ") {
            line.clear();
            assert!(events.read_line(&mut line).unwrap() > 0);
        }
    }
    let window: Value = serde_json::from_str(&line["data: ".len()..]).unwrap();
    assert_eq!((&window["records"], &window["meta"]["window"]["Number"]), (&json!([{"c": 1}]), &json!(1)));
    drop(events);
    process.stop();
}

fn append(server: &impl Server, records: &str) {
    let path = "/api/streams/orders/records";
    let appended = ask(server.applications(), "POST", path, JSON, records.as_bytes());
    assert_eq!(appended.status, 200, "{}", appended.text());
}

fn until_one_lives(server: &impl Server) {
    eventually("the query lives", || {
        server.get_json("/api/queries").as_array().is_some_and(|queries| queries.len() == 1)
    });
}

#[test]
fn q1_one_record_is_answered_at_once_and_none_when_the_time_is_over() {
    let dir = tempfile::tempdir().unwrap();
    let settings = ["--set", "query.bullet.stream=orders", "--set", "query.bullet.group_values_as_text=true"];
    let process = Process::start_on(dir.path(), &settings);
    let to = process.applications;
    assert_eq!(ask(to, "PUT", "/api/streams/orders", JSON, b"{\"partitions\": 2}").status, 201);
    let path = "/api/bullet/queries/http-query";
    let asked = |query: Value| thread::spawn(move || ask(to, "POST", path, TEXT, query.to_string().as_bytes()));

    let one = asked(json!({"aggregation": {"type": "RAW", "size": 1}}));
    until_one_lives(&process);
    append(&process, r#"[{"value": {"n": 1}}, {"value": {"n": 1}}]"#);
    let result = one.join().unwrap().json();
    assert_eq!((&result["records"], &result["meta"]["cause"]), (&json!([{"n": 1}]), &json!("size")));

    let none = json!({"duration": 30, "aggregation": {"type": "RAW", "size": 1}});
    let result = asked(none).join().unwrap().json();
    assert_eq!((&result["records"], &result["meta"]["cause"]), (&json!([]), &json!("duration")));

    // A sum has its groups as texts, as this operator wants it.
    let grouped = json!({"duration": 60_000, "aggregation": {"type": "GROUP", "fields": {"n": "n"},
        "attributes": {"operations": [{"type": "COUNT", "newName": "c"}]}}});
    let grouped = asked(grouped);
    until_one_lives(&process);
    append(&process, r#"[{"value": {"n": 2}}, {"value": {"n": 2}}, {"value": {"n": null}}]"#);
    let id = process.get_json("/api/queries")[0]["id"].as_str().unwrap().to_owned();
    eventually("all are seen", || process.get_json(&format!("/api/queries/{id}"))["matched"] == 3);
    assert_eq!(ask(to, "DELETE", &format!("/api/queries/{id}"), &[], b"").status, 204);
    let result = grouped.join().unwrap().json();
    assert_eq!(result["records"], json!([{"n": "null", "c": 1}, {"n": "2", "c": 2}]));
    assert_eq!(result["meta"]["cause"], "killed");
    process.stop();
}

#[test]
fn events_carry_results_and_missing_features_say_so() {
    let server = crate::tenant();
    let to = server.applications();
    assert_eq!(ask(to, "PUT", "/api/streams/orders", JSON, b"{\"partitions\": 1}").status, 201);
    let query = br#"SELECT COUNT(*) AS c, SUM(n) AS s FROM "orders" WINDOWING TUMBLING(2, RECORD)"#;
    let (status, headers, mut events) = open(to, "POST", "/api/bullet/queries/sse-query", TEXT, query);
    let content_type = headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("content-type"));
    assert_eq!((status, &*content_type.unwrap().1), (200, "text/event-stream"));
    until_one_lives(&server);
    append(&server, r#"[{"value": {"n": 1}}, {"value": {"n": 2}}, {"value": {"n": 3}}]"#);
    let mut result = || loop {
        let mut line = String::new();
        assert!(events.read_line(&mut line).unwrap() > 0, "the events have ended");
        if let Some(data) = line.strip_prefix("data: ") {
            return serde_json::from_str::<Value>(data).unwrap();
        }
    };
    let opening = result();
    let id = server.get_json("/api/queries")[0]["id"].clone();
    assert_eq!((&opening["records"], &opening["meta"]["id"]), (&json!([]), &id), "its client can end it from now on");
    let first = result();
    assert_eq!(first["records"], json!([{"c": 2, "s": 3}]));
    assert_eq!((&first["meta"]["window"]["number"], &first["meta"]["window"]["size"]), (&json!(1), &json!(2)));
    let id = id.as_str().unwrap();
    assert_eq!(ask(to, "DELETE", &format!("/api/queries/{id}"), &[], b"").status, 204);
    assert_eq!(result()["records"], json!([{"c": 1, "s": 3}]));
    let end = result();
    assert_eq!((&end["records"], &end["meta"]["cause"]), (&json!([]), &json!("killed")));
    let mut rest = Vec::new();
    events.read_to_end(&mut rest).unwrap();

    for (method, path, says) in [
        ("GET", "/api/bullet/queries/ws-query", "STOMP over a WebSocket is not there yet"),
        ("POST", "/api/bullet/queries/async-query", "an asynchronous query is not there yet"),
    ] {
        let refused = ask(to, method, path, TEXT, b"");
        assert_eq!(refused.status, 501, "{path}: {}", refused.text());
        assert!(refused.json()["meta"]["errors"][0]["error"].as_str().unwrap().starts_with(says), "{}", refused.text());
    }
    assert_eq!(ask(to, "PATCH", "/api/bullet/admin/replay", &[], b"").status, 202);
}

#[test]
fn pages_of_the_origin_that_the_operator_names_may_call_bullets_paths() {
    let dir = tempfile::tempdir().unwrap();
    let setting = ["--set", "query.bullet.cors_origin=https://ui.example:8443"];
    let process = Process::start_on(dir.path(), &setting);
    let path = "/api/bullet/queries/validate-query";
    for (origin, allowed) in [("https://ui.example:8443", true), ("https://other.example", false)] {
        let asks = [("Origin", origin), ("Access-Control-Request-Method", "POST")];
        let answer = ask(process.applications, "OPTIONS", path, &asks, b"");
        assert_eq!(answer.header("access-control-allow-origin"), Some(origin).filter(|_| allowed), "{answer:?}");
        assert_eq!(answer.header("access-control-allow-credentials"), Some("true").filter(|_| allowed));
        assert_eq!(
            answer.header("access-control-allow-headers").is_some_and(|names| names.contains("Content-Type")),
            allowed
        );
        let answer = ask(process.applications, "POST", path, &[("Origin", origin)], b"SELECT * FROM STREAM()");
        assert_eq!(answer.status, if allowed { 204 } else { 403 }, "{}", answer.text());
        assert_eq!(answer.header("access-control-allow-credentials"), Some("true").filter(|_| allowed));
        assert_eq!(answer.header("access-control-allow-origin"), Some(origin).filter(|_| allowed));
    }
    let native = ask(process.applications, "GET", "/api/queries", &[("Origin", "https://ui.example:8443")], b"");
    assert_eq!(native.header("access-control-allow-origin"), None);
    process.stop();
}

#[test]
fn each_kind_of_client_sees_the_schema_of_a_stream() {
    let server = crate::tenant();
    let to = server.applications();
    let created = ask(to, "PUT", "/api/streams/orders", JSON, b"{\"partitions\": 2}");
    assert!((200..300).contains(&created.status), "{}", created.text());
    let records = br#"[{"key": "a", "value": {"item": "bolt", "size": {"mm": 8}}}, {"value": {"item": null}}]"#;
    assert_eq!(ask(to, "POST", "/api/streams/orders/records", JSON, records).status, 200);

    let schema = server.get_json("/api/streams/orders/schema");
    assert_eq!((&schema["stream"], &schema["records"]), (&"orders".into(), &2.into()));
    let paths: Vec<&str> = schema["fields"].as_array().unwrap().iter().map(|f| f["path"].as_str().unwrap()).collect();
    assert_eq!(paths, ["$key", "item", "size", "size.mm"]);
    assert_eq!(
        schema["fields"][3],
        serde_json::json!(
        {"path": "size.mm", "types": {"LONG": 1}, "present": 0.5, "examples": [8]})
    );
    assert_eq!(server.get_json("/api/queries/columns?stream=orders"), schema);

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
}
