//! Refusals of requests about live queries: status, place, rule and remedy, over a real socket.

use millstream_testkit::{Live, Process, ask};
use serde_json::{Value, json};

const JSON: [(&str, &str); 1] = [("Content-Type", "application/json")];

#[test]
fn every_refusal_has_its_status_and_a_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let settings = ["query.live_per_tenant_max=2", "query.residual_ns_per_record_max=25", "query.limits.list_max=3"];
    let settings: Vec<&str> = settings.iter().flat_map(|setting| ["--set", setting]).collect();
    let process = Process::start_on(dir.path(), &settings);
    let to = process.applications;
    for (topic, level) in [("n", "written"), ("volatile", "memory")] {
        let body = json!({"partitions": 1, "level": level}).to_string();
        assert_eq!(ask(to, "PUT", &format!("/api/streams/{topic}"), &JSON, body.as_bytes()).status, 201);
    }
    let post = |body: &Value| ask(to, "POST", "/api/queries", &JSON, body.to_string().as_bytes());
    let all = "SELECT * FROM \"n\"";
    let windowed = format!("{all} WINDOWING TUMBLING(5, RECORD)");
    for (body, status, says) in [
        (json!({"query": "SELECT * FORM \"n\""}), 422, "did you mean FROM?"),
        (json!({"query": format!("{all} WHERE LOWER(n) > 5")}), 422, "a text is never comparable with a number"),
        (json!({"query": format!("{all} WHERE n IN (1, 2, 3, 4)")}), 422, "query.limits.list_max = 3"),
        (json!({"query": "{\"filter\": []}"}), 422, "did you mean filters?"),
        (json!({"query": "SELECT * FROM (SELECT * FROM STREAM())"}), 422, "a query within a query"),
        (json!({"query": format!("{all} LATERAL VIEW EXPLODE(a) AS b")}), 422, "LATERAL VIEW"),
        (json!({"query": format!("{all} WINDOWING SESSION(a, 5)")}), 422, "expected a whole number from 1"),
        (json!({"query": format!("{all} WINDOWING SLIDING(1, TIME)")}), 422, "are EVERY(n, TIME, LAST, m, TIME)"),
        (json!({"query": format!("{all} WINDOWING TUMBLING(1, DAY, 'Mars/Base')")}), 422, "no time zone 'Mars/Base'"),
        (json!({"query": "SELECT EXPLODE(a) FROM STREAM()"}), 422, "EXPLODE is not there yet"),
        (json!({"query": "SELECT * FROM \"missing\""}), 404, "stream 'missing' does not exist; create its topic"),
        (json!({"query": "SELECT * FROM \"telemetry.other\""}), 403, "a tenant's queries see its own streams only"),
        (json!({"query": "SELECT * FROM \"a b\""}), 400, "not a topic name"),
        (json!({"query": windowed}), 400, "ask for events ('deliver': 'sse')"),
        (json!({"query": all, "limit": 0}), 400, "limit = 0: a query needs at least 1"),
        (json!({"query": all, "duration_ms": 0}), 400, "duration_ms = 0"),
        (json!({"query": all, "deliver": {"topic": "missing"}}), 400, "it does not exist; create it first"),
        (json!({"query": all, "deliver": {"topic": "n"}}), 400, "it is the one that the query reads"),
        (json!({"query": "SELECT * FROM \"volatile\"", "keep": true}), 400, "create its topic with level written"),
        (json!({"query": all, "limits": 5}), 400, "limits"),
        (json!({"query": all, "language": "json"}), 400, "a JSON document, which begins with '{'"),
        (json!({"query": "{}", "language": "bql"}), 400, "the query is not what 'language' says, a statement"),
        (json!({"query": all, "language": "prolog"}), 400, "prolog"),
        (json!({"query": 7}), 400, "the query is a text, or a JSON document"),
        (json!({"json": {"filter": []}, "language": "json"}), 422, "did you mean filters?"),
        (json!({"qeury": all}), 400, "qeury"),
        (json!({"query": all, "deliver": "mail"}), 400, "mail"),
    ] {
        let refused = post(&body);
        assert_eq!(refused.status, status, "{body}: {}", refused.text());
        assert_eq!(refused.header("content-type"), Some("application/problem+json"));
        assert!(refused.text().contains(&says.replace('"', "\\\"")), "{body}: {}", refused.text());
    }
    let place = post(&json!({"query": "SELECT *\n  FORM \"n\""})).json()["errors"][0].clone();
    assert_eq!([&place["line"], &place["column"], &place["length"]], [2, 3, 4]);
    assert_eq!((&place["found"], &place["suggestion"]), (&json!("FORM"), &json!("FROM")));

    let validate =
        |query: &str| ask(to, "POST", "/api/queries/validate", &JSON, json!({"query": query}).to_string().as_bytes());
    assert_eq!(validate(all).status, 204);
    let append = ask(to, "POST", "/api/streams/n/records", &JSON, br#"[{"value": {"temperature": 5}}]"#);
    assert_eq!(append.status, 200, "{}", append.text());
    assert_eq!(validate("SELECT temperature FROM \"n\"").status, 204);
    let odd = validate("SELECT temprature FROM \"n\"");
    assert_eq!(odd.status, 200, "{}", odd.text());
    let hint = odd.json()["hints"][0].clone();
    assert_eq!([&hint["line"], &hint["column"], &hint["length"]], [1, 8, 10]);
    assert_eq!(hint["suggestion"], "temperature");
    assert_eq!(validate("SELECT a FROM \"none\"").status, 204, "a stream may come");
    let refused = validate("SELECT a FROM STREAM() HAVING a > 1");
    assert_eq!((refused.status, &refused.json()["errors"][0]["column"]), (422, &json!(24)), "{}", refused.text());

    for (method, path, status, says) in [
        ("GET", "/api/queries/7", 400, "a query's id is a UUID"),
        ("GET", "/api/queries/01234567-89ab-cdef-0123-456789abcdef", 404, "does not exist or has ended"),
        ("DELETE", "/api/queries/01234567-89ab-cdef-0123-456789abcdef", 404, "does not exist or has ended"),
        ("GET", "/api/queries/01234567-89ab-cdef-0123-456789abcdef/results", 404, "does not exist or has ended"),
        ("GET", "/api/queries/ws", 400, "WebSocket"),
    ] {
        let refused = ask(to, method, path, &[], b"");
        assert_eq!(refused.status, status, "{method} {path}: {}", refused.text());
        assert!(refused.text().contains(says), "{method} {path}: {}", refused.text());
    }

    let (unindexed, id) = Live::ask_for(&process, &json!({"query": format!("{all} WHERE n != 1"), "deliver": "sse"}));
    let refused = ask(to, "GET", &format!("/api/queries/{id}/results"), &[], b"");
    assert_eq!(refused.status, 409, "{}", refused.text());
    let refused = post(&json!({"query": format!("{all} WHERE n != 2")}));
    assert_eq!(refused.status, 503, "{}", refused.text());
    assert!(refused.text().contains("query.residual_ns_per_record_max = 25"), "{}", refused.text());
    assert!(refused.text().contains("join it by AND to an equality"), "{}", refused.text());
    let second = Live::ask(&process, all);
    let refused = post(&json!({ "query": all }));
    assert_eq!(refused.status, 429, "{}", refused.text());
    assert!(refused.text().contains("query.live_per_tenant_max = 2"), "{}", refused.text());
    assert!(refused.header("retry-after").is_some());
    // Whatever was refused has left nothing behind.
    assert_eq!(process.get_json("/api/queries").as_array().unwrap().len(), 2);
    drop((unindexed, second));
    process.stop();
}
