//! `/api/streams`: append, read, resume, and every refusal.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;

use millstream_testkit::{Answer, Events, Process, Server, ask, eventually, open};
use serde_json::{Value, json};

const NDJSON: [(&str, &str); 1] = [("Content-Type", "application/x-ndjson")];
const JSON: [(&str, &str); 1] = [("Content-Type", "application/json")];

pub(super) fn started() -> (tempfile::TempDir, Process) {
    let dir = tempfile::tempdir().unwrap();
    let process = Process::start(dir.path());
    (dir, process)
}

pub(super) fn create(server: &impl Server, name: &str, config: &Value) -> Answer {
    ask(server.applications(), "PUT", &format!("/api/streams/{name}"), &JSON, config.to_string().as_bytes())
}

pub(super) fn append(server: &impl Server, path: &str, body: &str) -> Answer {
    ask(server.applications(), "POST", &format!("/api/streams/{path}"), &NDJSON, body.as_bytes())
}

/// Appends so many records that are told apart by their number, over all partitions.
fn append_numbers(server: &impl Server, name: &str, numbers: std::ops::Range<usize>) {
    let lines: Vec<String> = numbers.map(|n| json!({"key": format!("k{n}"), "value": {"n": n}}).to_string()).collect();
    let answer = append(server, &format!("{name}/records"), &lines.join("\n"));
    assert_eq!(answer.status, 200, "{}", answer.text());
}

#[test]
fn a_record_comes_back_as_it_was_sent_and_may_be_sent_again() {
    let server = crate::tenant();
    let created = create(&server, "orders", &json!({"partitions": 1, "retention": "2d", "retention_bytes": "1GiB"}));
    assert_eq!(created.status, 201, "{}", created.text());
    assert_eq!(created.json()["config"]["retention"], "2d");
    assert_eq!(created.json()["config"]["retention_bytes"], 1 << 30);
    let sent = [
        r#"{"key":"a","value":{"price":1.50,"text":"x\ny"},"timestamp":"2026-01-31T12:00:00.000Z"}"#,
        r#"{"key":null,"value":null,"timestamp":1}"#,
        r#"{"key":"b","value_text":"plain","headers":{"one":"1","two":["x",null,{"base64":"/w=="}]}}"#,
        r#"{"key_base64":"/w==","value_base64":"//8="}"#,
        r#"{"value_text":"null"}"#,
    ];
    let answer = append(&server, "orders/records?ack=written", &sent.join("\n"));
    let expected =
        json!({"count": 5, "ack": "written", "partitions": [{"partition": 0, "count": 5, "first": 0, "last": 4}]});
    assert_eq!((answer.status, answer.json()), (200, expected));
    let stable = || server.get_json("/api/streams/orders/info")["partitions"][0]["stable"].clone();
    eventually("the records to be synced, as the topic's level asks", || stable() == 5 + crate::end_offsets());
    let page = server.get_json("/api/streams/orders?until=latest");
    let records = page["records"].as_array().unwrap();
    let without_time = |mut record: Value| {
        assert!(record["timestamp"].is_string());
        record.as_object_mut().unwrap().remove("timestamp");
        record
    };
    assert_eq!(records[0]["timestamp"], "2026-01-31T12:00:00.000Z");
    assert_eq!(records[1]["timestamp"], "1970-01-01T00:00:00.001Z");
    let shown: Vec<Value> = records.iter().cloned().map(without_time).collect();
    let expected = json!([
        {"partition": 0, "offset": 0, "key": "a", "value": {"price": 1.5, "text": "x\ny"}},
        {"partition": 0, "offset": 1, "key": null, "value": null},
        {"partition": 0, "offset": 2, "key": "b", "value_text": "plain",
         "headers": {"one": "1", "two": ["x", null, {"base64": "/w=="}]}},
        {"partition": 0, "offset": 3, "key_base64": "/w==", "value_base64": "//8="},
        {"partition": 0, "offset": 4, "key": null, "value_text": "null"},
    ]);
    assert_eq!(Value::from(shown), expected);
    assert_eq!((&page["next"], &page["gaps"]), (&json!(format!("0:{}", 5 + crate::end_offsets())), &json!([])));
    assert!(server.get("/api/streams/orders").text().contains(r#"{"price":1.50,"text":"x\ny"}"#), "bytes are kept");

    let as_array = json!([{"value": 1}, {"value": 2, "partition": 0}]).to_string();
    let answer = ask(server.applications(), "POST", "/api/streams/orders/records", &JSON, as_array.as_bytes());
    assert_eq!((&answer.json()["count"], &answer.json()["ack"]), (&json!(2), &json!("synced")));
    let answer = append(&server, "orders/records?format=values", "7\n\n\"x\"\n");
    let first = 7 + 2 * crate::end_offsets();
    assert_eq!(answer.json()["partitions"][0], json!({"partition": 0, "count": 2, "first": first, "last": first + 1}));
    let rest = server.get_json(&format!("/api/streams/orders?from=0:{first}"));
    assert_eq!((&rest["records"][0]["value"], &rest["records"][1]["value"]), (&json!(7), &json!("x")));
    let found = server.get_json("/api/streams/orders?from=2026-02-01T00:00:00Z&limit=1");
    assert_eq!(found["records"][0]["offset"], 2, "the first whose time is not before it");
}

#[test]
fn keys_choose_partitions_as_kafka_does_and_records_without_key_go_round() {
    let server = crate::tenant();
    create(&server, "spread", &json!({"partitions": 4}));
    let answer = append(&server, "spread/records?format=values", &"1\n".repeat(8));
    let spread = answer.json();
    let counts: Vec<&Value> = spread["partitions"].as_array().unwrap().iter().map(|part| &part["count"]).collect();
    assert_eq!(counts, [2; 4]);
    // murmur2("foobar") = -790332482, of which 31 bits modulo 4 are 2.
    let answer = append(&server, "spread/records", r#"{"key":"foobar","value":1}"#);
    assert_eq!(answer.json()["partitions"][0]["partition"], 2);
}

#[test]
fn one_bad_line_is_named_and_nothing_of_the_request_is_stored() {
    let server = crate::tenant();
    create(&server, "strict", &json!({"partitions": 2, "record_max_bytes": 50}));
    create(&server, "kept", &json!({"partitions": 2, "cleanup": "compact"}));
    let good = r#"{"key":"a","value":1}"#;
    let large = json!({"value_text": "x".repeat(51)}).to_string();
    let table = [
        ("strict", r#"{"value":}"#, "expected value at column 10"),
        ("strict", r#"{key:1}"#, "key must be a string at column 2"),
        ("strict", r#"{"value":tru}"#, "a word that is none of true, false and null at column"),
        ("strict", r#"{"value":{"#, "it ends within an object at column 10"),
        ("strict", r#"7"#, "invalid type: integer `7`, expected an object at column 1"),
        ("strict", r#"{"value":1,"partition":-1}"#, "invalid value: integer `-1`, expected a whole number of at most"),
        ("strict", r#"{"value":1,"colour":2}"#, "unknown field `colour`"),
        ("strict", r#"{"key":"a"}"#, "it has not exactly one of value, value_text and value_base64"),
        ("strict", r#"{"value":1,"value_text":"1"}"#, "it has not exactly one of value, value_text and value_base64"),
        ("strict", r#"{"key":"a","key_base64":"YQ==","value":1}"#, "it has not exactly one of key and key_base64"),
        ("strict", r#"{"value_base64":"%"}"#, "value_base64 cannot be taken: "),
        ("strict", r#"{"value_base64":"*AAA"}"#, "value_base64 cannot be taken: character 1 is '*'"),
        ("strict", r#"{"value":1,"timestamp":"yesterday"}"#, "timestamp \"yesterday\" cannot be taken"),
        ("strict", r#"{"value":1,"headers":{"h":[["x"]]}}"#, "header 'h' cannot be taken"),
        ("strict", r#"{"value":1,"partition":2}"#, "partition 2 does not exist"),
        ("strict", &large, "a record of 51 bytes is too large"),
        ("kept", r#"{"value":1}"#, "it has no key"),
    ];
    for (topic, bad, what) in table {
        let answer = append(&server, &format!("{topic}/records"), &format!("{good}\n{bad}\n{good}\n"));
        let problem = answer.json();
        assert_eq!((answer.status, &problem["line"]), (400, &json!(2)), "{bad}: {problem}");
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.starts_with(&format!("line 2: {what}")), "{detail}");
        let shown: String = bad.chars().take(200).collect();
        assert_eq!(problem["value"], shown);
        assert!(problem["rule"].is_string() && problem["remedy"].is_string(), "{problem}");
    }
    let array = format!("[{good},{{\"value\":1,\"partition\":9}}]");
    let answer = ask(server.applications(), "POST", "/api/streams/strict/records", &JSON, array.as_bytes());
    let expected = json!({
        "type": answer.json()["type"], "title": "Malformed body", "status": 400,
        "detail": "element 2: partition 9 does not exist", "value": "{\"value\":1,\"partition\":9}",
        "rule": "the topic has partitions 0 to 1", "remedy": "choose one of them, or leave it out", "element": 2,
        "error": answer.json()["error"],
    });
    assert_eq!((answer.status, answer.json()), (400, expected));
    for topic in ["strict", "kept"] {
        let info = server.get_json(&format!("/api/streams/{topic}/info"));
        assert!(info["partitions"].as_array().unwrap().iter().all(|p| p["tail"] == 0), "{info}");
    }
}

#[test]
fn every_other_refusal_names_the_value_the_rule_and_the_remedy() {
    let server = crate::tenant();
    create(&server, "t", &json!({"partitions": 2}));
    server.get_json("/v2/entities");
    let devices = format!("/telemetry.{}", server.tenant());
    let settings = |body: &str| body.as_bytes().to_vec();
    let many = "1\n".repeat(50_001).into_bytes();
    let xml = [("Content-Type", "text/xml")];
    let gzip = [("Content-Type", "application/x-ndjson"), ("Content-Encoding", "gzip")];
    let acme = [("Content-Type", "application/json"), ("Fiware-Service", "acme")];
    type Headers<'a> = &'a [(&'a str, &'a str)];
    type Refusal<'a> = (&'a str, &'a str, Headers<'a>, Vec<u8>, u16, &'a str);
    let table: [Refusal<'_>; 34] = [
        ("POST", "/t/records", &NDJSON, vec![], 400, "the body holds no record"),
        ("POST", "/t/records", &NDJSON, b"\xff".to_vec(), 400, "the body is not UTF-8 from byte 0 on"),
        ("POST", "/t/records", &JSON, settings("{}"), 400, "the body cannot be taken: invalid type: object"),
        (
            "POST",
            "/t/records?format=values",
            &NDJSON,
            many,
            400,
            "more than 50000 records in one request ('line 50001')",
        ),
        ("POST", "/t/records", &xml, settings("1"), 415, "the body is neither NDJSON nor JSON ('text/xml')"),
        (
            "POST",
            "/t/records?ack=soon",
            &NDJSON,
            settings("1"),
            400,
            "'ack' cannot be taken ('soon'); use memory, written or synced",
        ),
        (
            "POST",
            "/t/records?format=csv",
            &NDJSON,
            settings("1"),
            400,
            "'format' cannot be taken ('csv'); use records or values",
        ),
        (
            "POST",
            "/nope/records",
            &NDJSON,
            settings("1"),
            404,
            "'PUT /api/streams/nope' or 'millstream topic create nope' creates it",
        ),
        ("POST", "/_registry/records", &NDJSON, settings("1"), 403, "topic '_registry' is Millstream's own"),
        (
            "POST",
            "/telemetry.other/records",
            &NDJSON,
            settings("1"),
            403,
            "topic 'telemetry.other' is of tenant 'other'",
        ),
        ("POST", "/t/records", &acme, settings("[]"), 404, "topic 't' does not exist"),
        ("GET", "/nope", &[], vec![], 404, "topic 'nope' does not exist"),
        ("GET", "/_registry", &[], vec![], 403, "topic '_registry' is Millstream's own"),
        ("GET", "/a%20b", &[], vec![], 400, "'a b' is not a topic name"),
        ("GET", "/t?from=soon", &[], vec![], 400, "'from' cannot be taken ('soon'); use earliest, latest, an ISO time"),
        ("GET", "/t?from=0:5", &[], vec![], 400, "partition 0 ends at 0"),
        ("GET", "/t?from=2:0", &[], vec![], 400, "topic 't' has partitions 0 to 1"),
        ("GET", "/t?partition=2", &[], vec![], 400, "topic 't' has partitions 0 to 1"),
        ("GET", "/t?limit=0", &[], vec![], 400, "'limit' cannot be taken ('0'); use a number from 1 on"),
        ("GET", "/t?limit=1001", &[], vec![], 400, "a page has at most 1000 records"),
        (
            "GET",
            "/t?colour=red",
            &[],
            vec![],
            400,
            "'colour' cannot be taken ('red'); use from, until, partition, limit, key, contains",
        ),
        ("GET", "/t?contains=", &[], vec![], 400, "'contains' cannot be taken; give a text of at least one character"),
        ("GET", "/t?limit=1&limit=2", &[], vec![], 400, "'limit' cannot be taken ('2'); give it once"),
        ("PUT", "/t", &JSON, settings(r#"{"partitions": 3}"#), 409, "exists with another value of 'partitions'"),
        (
            "PUT",
            "/u",
            &JSON,
            settings(r#"{"retention": "7 days"}"#),
            400,
            "'retention' cannot be taken ('\"7 days\"'); use milliseconds, or a number with ms, s, m, h or d",
        ),
        ("PUT", "/u", &JSON, settings(r#"{"partitions": 0}"#), 400, "partitions = 0 of topic 'u'"),
        ("PUT", &devices, &JSON, vec![], 403, "belongs to Millstream"),
        ("PATCH", "/t", &JSON, settings(r#"{"cleanup": "compress"}"#), 400, "setting 'cleanup' cannot be taken"),
        (
            "PATCH",
            "/t",
            &JSON,
            settings(r#"{"storage": "memory"}"#),
            400,
            "storage = memory (16777216 bytes a partition)",
        ),
        ("PATCH", "/t", &JSON, settings(r#"{"partitions": 8, "level": "written"}"#), 400, "send two requests"),
        ("PATCH", "/t", &JSON, settings(r#"{"partitions": 1}"#), 400, "partitions can be added and not removed"),
        (
            "PATCH",
            "/t",
            &JSON,
            settings(r#"{"partitions": "8"}"#),
            400,
            "invalid type: string \"8\", expected a whole number of at most 4294967295 at line 1 column 18",
        ),
        ("POST", "/t/records", &gzip, settings("1"), 415, "the body has a content encoding ('gzip')"),
        ("DELETE", "/nope", &[], vec![], 404, "topic 'nope' does not exist"),
    ];
    for (method, path, headers, body, status, what) in table {
        let answer = ask(server.applications(), method, &format!("/api/streams{path}"), headers, &body);
        assert_eq!(answer.status, status, "{method} {path}: {}", answer.text());
        let problem = answer.json();
        let said = problem["error"].as_str().unwrap();
        assert!(said.contains(what), "{method} {path}: {said}");
    }
}

#[test]
fn topics_are_listed_changed_and_deleted_and_state_is_not_among_them() {
    let server = crate::tenant();
    create(&server, "b", &json!({"partitions": 1, "storage": "memory", "storage_bytes": "1MiB", "level": "memory"}));
    create(&server, "a", &json!({"partitions": 2, "compression": "zstd", "retention": null}));
    append_numbers(&server, "a", 0..10);
    let list = server.get_json("/api/streams");
    let names: Vec<&str> = list.as_array().unwrap().iter().map(|topic| topic["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"a") && names.contains(&"b") && names.is_sorted(), "{names:?}");
    assert!(names.iter().all(|name| !name.starts_with('_')), "{names:?}");
    let a = server.get_json("/api/streams/a/info");
    assert_eq!((&a["config"]["retention"], &a["config"]["compression"]), (&Value::Null, &json!("zstd")));
    let stable: u64 = a["partitions"].as_array().unwrap().iter().map(|p| p["stable"].as_u64().unwrap()).sum();
    assert_eq!(stable, 10 + 2 * crate::end_offsets());
    eventually("its size is known", || server.get_json("/api/streams/a/info")["bytes"].as_u64().unwrap() > 0);
    assert_eq!(server.get_json("/api/streams/b/info")["config"]["storage_bytes"], 1 << 20);
    assert_eq!(create(&server, "a", &json!({"partitions": 2, "compression": "zstd", "retention": "none"})).status, 200);
    let patched = ask(server.applications(), "PATCH", "/api/streams/a", &JSON, br#"{"retention": "12h"}"#);
    assert_eq!((patched.status, &patched.json()["config"]["retention"]), (200, &json!("12h")));
    let grown = ask(server.applications(), "PATCH", "/api/streams/a", &JSON, br#"{"partitions": 3}"#);
    assert_eq!((grown.status, &grown.json()["config"]["partitions"]), (200, &json!(3)));
    assert_eq!(server.get_json("/api/streams/a/info")["partitions"].as_array().unwrap().len(), 3);
    assert_eq!(server.get_json("/api/streams/a?until=latest")["records"].as_array().unwrap().len(), 10);
    let updates = format!("context_update.{}", server.tenant());
    append(&server, &format!("{updates}/records"), r#"{"value": {}}"#);
    let kept = ask(server.applications(), "PATCH", &format!("/api/streams/{updates}"), &JSON, br#"{"partitions": 9}"#);
    assert!(kept.status == 403 && kept.text().contains("keeps its partitions"), "{}", kept.text());
    let patched = ask(server.applications(), "PATCH", "/api/streams/a", &JSON, br#"{"cleanup": "compact,delete"}"#);
    assert_eq!((patched.status, &patched.json()["config"]["cleanup"]), (200, &json!("compact,delete")));
    assert_eq!(ask(server.applications(), "DELETE", "/api/streams/a", &[], b"").status, 204);
    assert_eq!(server.get("/api/streams/a/info").status, 404);
}

/// The partition and the offset at which each number was seen.
type Seen = BTreeMap<u64, (u64, u64)>;

fn note(seen: &mut Seen, record: &Value) {
    let place = (record["partition"].as_u64().unwrap(), record["offset"].as_u64().unwrap());
    let again = seen.insert(record["value"]["n"].as_u64().unwrap(), place);
    assert_eq!(again, None, "{record} came twice");
}

#[test]
fn a_tail_that_is_broken_off_and_resumed_gives_every_record_once_over_four_partitions() {
    let server = crate::tenant();
    create(&server, "n", &json!({"partitions": 4}));
    append_numbers(&server, "n", 0..100);
    let (mut seen, mut id) = (Seen::new(), String::new());
    let mut appended = 100;
    while seen.len() < 400 {
        let headers = [("Accept", "text/event-stream"), ("Last-Event-ID", id.as_str())];
        let mut events = Events::get(&server, "/api/streams/n?from=earliest", &headers);
        for _ in 0..37.min(400 - seen.len()) {
            let event = events.next().unwrap();
            assert_eq!(event.name, "record");
            note(&mut seen, &event.data);
            id = event.id;
            if seen.len() + 40 > appended && appended < 400 {
                append_numbers(&server, "n", appended..appended + 100);
                appended += 100;
            }
        }
    }
    assert_eq!(seen.keys().copied().collect::<Vec<_>>(), (0..400).collect::<Vec<_>>());
    assert_eq!(seen.values().map(|(partition, _)| *partition).collect::<std::collections::BTreeSet<_>>().len(), 4);
    assert_eq!(id.split(',').count(), 4, "{id}");
    let mut rest =
        Events::get(&server, &format!("/api/streams/n?from={id}&until=latest"), &[("Accept", "text/event-stream")]);
    let end = rest.next().unwrap();
    // Ends of appends may stand behind the last records.
    assert!(end.name == "end" && (end.id == id || crate::end_offsets() > 0), "{} {}", end.name, end.id);
    assert!(rest.next().is_none());
}

#[test]
fn pages_that_follow_each_other_give_every_record_once() {
    let server = crate::tenant();
    create(&server, "n", &json!({"partitions": 4, "compression": "lz4"}));
    append_numbers(&server, "n", 0..300);
    let (mut seen, mut next) = (Seen::new(), "earliest".to_owned());
    for expected in [70, 70, 70, 70, 20, 0] {
        let page = server.get_json(&format!("/api/streams/n?from={next}&limit=70"));
        let records = page["records"].as_array().unwrap();
        assert_eq!(records.len(), expected);
        records.iter().for_each(|record| note(&mut seen, record));
        next = page["next"].as_str().unwrap().to_owned();
    }
    assert_eq!(seen.len(), 300);
    let one = server.get_json("/api/streams/n?partition=2&limit=1000");
    assert!(one["records"].as_array().unwrap().iter().all(|record| record["partition"] == 2));
    assert!(one["next"].as_str().unwrap().starts_with("2:"));
}

#[test]
fn a_tail_without_matching_records_says_how_far_it_has_come() {
    let server = crate::tenant();
    create(&server, "n", &json!({"partitions": 4}));
    append_numbers(&server, "n", 0..20_500);
    let headers = [("Accept", "text/event-stream")];
    let mut events = Events::get(&server, "/api/streams/n?from=earliest&key=x", &headers);
    let passed = events.next().unwrap();
    assert_eq!((passed.name.as_str(), &passed.data), ("position", &json!({})));
    let next: u64 = passed.id.split(',').map(|pair| pair.split_once(':').unwrap().1.parse::<u64>().unwrap()).sum();
    assert!(next >= 10_000, "{}", passed.id);
    append(&server, "n/records", r#"{"key":"x","value":1}"#);
    let found = loop {
        let event = events.next().unwrap();
        if event.name == "record" {
            break event;
        }
    };
    assert_eq!((&found.data["key"], &found.data["value"]), (&json!("x"), &json!(1)));
}

#[test]
fn a_tail_waits_for_new_records_and_ends_when_its_topic_is_deleted() {
    let server = crate::tenant();
    create(&server, "n", &json!({"partitions": 2}));
    append_numbers(&server, "n", 0..5);
    let mut events = Events::get(&server, "/api/streams/n", &[("Accept", "text/event-stream")]);
    append_numbers(&server, "n", 5..6);
    let event = events.next().unwrap();
    assert_eq!(event.data["value"], json!({"n": 5}), "a tail begins at the end");
    let mut limited = Events::get(&server, "/api/streams/n?from=earliest&limit=3", &[("Accept", "text/event-stream")]);
    let names: Vec<String> = std::iter::from_fn(|| limited.next()).map(|event| event.name).collect();
    assert_eq!(names, ["record", "record", "record", "end"]);
    ask(server.applications(), "DELETE", "/api/streams/n", &[], b"");
    let failed = events.next().unwrap();
    assert_eq!(failed.name, "failed");
    assert!(failed.data["cause"].as_str().unwrap().contains("topic 'n' does not exist"), "{failed:?}");
    assert!(events.next().is_none());
}

#[test]
fn missing_records_are_reported_as_a_gap() {
    // Kafka drops whole segments, after minutes.
    if crate::log_has_no_files() {
        return;
    }
    let server = crate::tenant();
    create(&server, "ring", &json!({"partitions": 1, "storage": "memory", "storage_bytes": 2048, "level": "memory"}));
    for n in 0..40 {
        append(&server, "ring/records", &json!({"value_text": format!("{n}{}", "x".repeat(200))}).to_string());
    }
    eventually("the ring to drop records", || server.get_json("/api/streams/ring/info")["partitions"][0]["first"] != 0);
    let page = server.get_json("/api/streams/ring?from=0:0");
    let gap = &page["gaps"][0];
    assert_eq!((&gap["partition"], &gap["wanted"]), (&json!(0), &json!(0)));
    assert_eq!(gap["oldest"], page["records"][0]["offset"]);
}

/// A WebSocket's client, as far as a test needs it.
pub(super) struct Socket(BufReader<TcpStream>);

impl Socket {
    pub(super) fn open(server: &impl Server, path: &str, more: &[(&str, &str)]) -> Result<Self, u16> {
        let mut headers = vec![
            ("Upgrade", "websocket"),
            ("Sec-WebSocket-Version", "13"),
            ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
            ("Connection", "Upgrade"),
        ];
        headers.extend(more);
        let (status, answered, reader) = open(server.applications(), "GET", path, &headers, b"");
        if status != 101 {
            return Err(status);
        }
        let accept = answered.iter().find(|(name, _)| name.eq_ignore_ascii_case("sec-websocket-accept"));
        assert_eq!(accept.unwrap().1, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=", "the answer of RFC 6455 to its own key");
        Ok(Self(reader))
    }

    /// The next message of text; `None` once the server closes.
    pub(super) fn next(&mut self) -> Option<Value> {
        loop {
            let mut head = [0; 2];
            self.0.read_exact(&mut head).unwrap();
            let mut length = usize::from(head[1]);
            if length == 126 {
                let mut long = [0; 2];
                self.0.read_exact(&mut long).unwrap();
                length = usize::from(u16::from_be_bytes(long));
            }
            let mut payload = vec![0; length];
            self.0.read_exact(&mut payload).unwrap();
            match head[0] {
                0x81 => return Some(serde_json::from_slice(&payload).unwrap()),
                0x88 => return None,
                _ => {}
            }
        }
    }

    /// Says good-bye.
    pub(super) fn close(mut self) {
        self.0.get_mut().write_all(&[0x88, 0x80, 0, 0, 0, 0]).unwrap();
        let mut rest = Vec::new();
        self.0.read_to_end(&mut rest).unwrap();
    }
}

#[test]
fn a_websocket_gives_the_same_and_a_position_with_each_message() {
    let server = crate::tenant();
    create(&server, "n", &json!({"partitions": 4}));
    append_numbers(&server, "n", 0..50);
    let mut seen = Seen::new();
    let mut socket = Socket::open(&server, "/api/streams/n?from=earliest", &[]).unwrap();
    let mut position = String::new();
    while seen.len() < 20 {
        let message = socket.next().unwrap();
        assert_eq!(message["event"], "record");
        note(&mut seen, &message);
        position = message["position"].as_str().unwrap().to_owned();
    }
    socket.close();
    append_numbers(&server, "n", 50..60);
    let mut socket = Socket::open(&server, &format!("/api/streams/n?from={position}&until=latest"), &[]).unwrap();
    loop {
        let message = socket.next().unwrap();
        if message["event"] == "end" {
            break;
        }
        note(&mut seen, &message);
    }
    assert!(socket.next().is_none());
    assert_eq!(seen.keys().copied().collect::<Vec<_>>(), (0..60).collect::<Vec<_>>());
    let mut live = Socket::open(&server, "/api/streams/n", &[("Origin", &server.applications_url())]).unwrap();
    append_numbers(&server, "n", 60..61);
    assert_eq!(live.next().unwrap()["value"], json!({"n": 60}));
    let foreign = Socket::open(&server, "/api/streams/n", &[("Origin", "http://elsewhere.example")]);
    assert_eq!(foreign.err(), Some(403));
    assert_eq!(Socket::open(&server, "/api/streams/nope", &[]).err(), Some(404));
}

#[test]
fn a_client_that_reads_nothing_holds_bounded_memory_and_delays_no_other() {
    let (_dir, process) = started();
    let used = || process.get_json("/stats")["memory"]["reserved_bytes"].as_u64().unwrap();
    let before = used();
    create(&process, "wide", &json!({"partitions": 1}));
    let line = json!({"value_text": "x".repeat(100_000)}).to_string();
    for _ in 0..10 {
        let body = [line.as_str(); 40].join("\n");
        assert_eq!(append(&process, "wide/records?ack=written", &body).status, 200);
    }
    eventually("the appends to be given back", || used() == before);
    let (status, _, slow) =
        open(process.applications, "GET", "/api/streams/wide?from=earliest", &[("Accept", "text/event-stream")], b"");
    assert_eq!(status, 200);
    let connection_and_events = (16 << 10) + 3 * (128 << 10);
    // A step goes beyond 128 KiB by a record at most; one waits, and one leaves.
    let beyond_max = 2 * 2 * 110_000;
    let is_bounded = || {
        let more = used().saturating_sub(before + connection_and_events);
        more > 0 && more <= beyond_max
    };
    eventually("a step to be taken", is_bounded);
    let (mut read, mut from) = (0, "earliest".to_owned());
    while read < 400 {
        let page = process.get_json(&format!("/api/streams/wide?from={from}"));
        read += page["records"].as_array().unwrap().len();
        from = page["next"].as_str().unwrap().to_owned();
    }
    eventually("it to take no more", is_bounded);
    drop(slow);
    eventually("the tail to be given up", || used() == before);
    process.stop();
}

#[test]
fn the_first_line_of_a_tail_is_there_before_any_record_and_a_server_that_stops_ends_it() {
    let (_dir, process) = started();
    create(&process, "silent", &json!({}));
    let (status, headers, mut reader) =
        open(process.applications, "GET", "/api/streams/silent", &[("Accept", "text/event-stream")], b"");
    assert_eq!(status, 200);
    assert!(headers.contains(&("content-type".to_owned(), "text/event-stream".to_owned())), "{headers:?}");
    let mut socket = Socket::open(&process, "/api/streams/silent", &[]).unwrap();
    process.stop();
    let mut rest = String::new();
    reader.read_line(&mut rest).unwrap();
    assert_eq!(rest.trim(), "0", "the stream ends in order when the server stops");
    assert!(socket.next().is_none(), "and so does a WebSocket");
}

#[test]
fn an_append_over_the_quota_names_the_limit_and_when_to_retry() {
    let dir = tempfile::tempdir().unwrap();
    let limit = ["--set", "quota.client_produce_bytes_per_second=1024"];
    let process = Process::start_on(dir.path(), &limit);
    assert_eq!(create(&process, "orders", &json!({"partitions": 1})).status, 201);
    let record = json!({"value": "x".repeat(100 << 10)}).to_string();
    assert_eq!(append(&process, "orders/records", &record).status, 200);
    let refused = append(&process, "orders/records", &record);
    assert_eq!(refused.status, 429, "{}", refused.text());
    assert!(refused.text().contains("quota.client_produce_bytes_per_second = 1024"), "{}", refused.text());
    let seconds: u64 = refused.header("Retry-After").unwrap().parse().unwrap();
    assert!((1..=101).contains(&seconds), "{seconds}");
    let info = process.get_json("/api/streams/orders/info");
    assert_eq!(info["partitions"][0]["stable"], 1 + crate::end_offsets(), "nothing was stored");
    assert_eq!(process.get("/api/streams/orders?from=earliest").status, 200, "reading is not limited by it");
    process.stop();
}
