//! The JSON that clients send and get.

use millstream_query::{Cause, Deliver, Meta, OnSlow, ParserLimits, QueryRequest, parse};
use serde_json::json;

#[test]
fn a_request_needs_only_its_text_and_refuses_unknown_members() {
    let read = |request| serde_json::from_value::<QueryRequest>(request);
    let plain = QueryRequest::new("SELECT *");
    assert_eq!(read(json!({"query": "SELECT *"})).unwrap(), plain);
    assert_eq!(read(json!({"sql": "SELECT *", "from": "now", "deliver": "wait", "on_slow": "kill"})).unwrap(), plain);
    let full = json!({"query": "SELECT *", "duration_ms": 5, "limit": 6, "deliver": "sse", "on_slow": "drop_oldest"});
    let full = read(full).unwrap();
    assert_eq!((full.duration_ms, full.limit), (Some(5), Some(6)));
    assert_eq!((full.deliver, full.on_slow), (Deliver::Sse, OnSlow::DropOldest));
    for wrong in [json!({}), json!({"query": "x", "windows": 1}), json!({"query": "x", "from": "yesterday"})] {
        assert!(read(wrong).is_err());
    }
}

#[test]
fn a_refusal_carries_its_place_and_the_nearest_word() {
    let wrong = parse("SELECT * FROM STREAM()\nWEHRE a = 1", &ParserLimits::default()).unwrap_err();
    assert_eq!(
        serde_json::to_value(&wrong).unwrap(),
        json!([{
            "byte": 23,
            "line": 2,
            "column": 1,
            "message": "expected WHERE, GROUP, HAVING, ORDER, WINDOWING, LIMIT or the end of the query, found 'WEHRE'",
            "found": "WEHRE",
            "expected": ["WHERE", "GROUP", "HAVING", "ORDER", "WINDOWING", "LIMIT", "the end of the query"],
            "suggestion": "WHERE"
        }])
    );
}

#[test]
fn meta_reads_as_the_document_that_clients_know() {
    let document = json!({
        "id": "6fa3c1ee-1b4b-4b6e-9a53-5d4b1a3b9d10",
        "text": "SELECT * FROM STREAM(5, TIME)",
        "stream": "telemetry.default",
        "received_ms": 1000,
        "finished_ms": 1005,
        "elapsed_us": 5000,
        "cause": "duration",
        "records_seen": 7,
        "matched": 2,
        "dropped": 0,
        "evaluation_errors": 0,
        "not_json": 1,
        "skipped": 0,
        "clamped": [{"setting": "query.rows_max", "asked": 1000, "given": 500}],
        "positions": [{"partition": 0, "first": 3, "last": 9}, {"partition": 1, "first": 0, "last": null}],
        "errors": [{"error": "what", "resolution": "remedy"}]
    });
    let meta: Meta = serde_json::from_value(document.clone()).unwrap();
    assert_eq!(meta.cause, Some(Cause::Duration));
    assert_eq!(serde_json::to_value(&meta).unwrap(), document);
    for (cause, name) in [
        (Cause::Size, "size"),
        (Cause::Until, "until"),
        (Cause::Killed, "killed"),
        (Cause::Limit, "limit"),
        (Cause::Error, "error"),
        (Cause::Disconnected, "disconnected"),
        (Cause::Shutdown, "shutdown"),
    ] {
        assert_eq!((serde_json::to_value(cause).unwrap(), cause.as_str()), (json!(name), name));
    }
}
