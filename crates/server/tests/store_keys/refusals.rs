//! Requests that are refused, one row each: the answer has value, rule and remedy, nothing is stored, and nobody else
//! notices.

use millstream_testkit::{Process, ask};
use serde_json::Value;

use crate::{make, put, start, tag};

/// A request that is refused.
struct Row {
    name: &'static str,
    method: &'static str,
    path: String,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
    status: u16,
    /// Parts of the members `value`, `rule` and `remedy`.
    told: [&'static str; 3],
}

fn row(name: &'static str, method: &'static str, path: impl Into<String>, status: u16, told: [&'static str; 3]) -> Row {
    Row { name, method, path: path.into(), headers: Vec::new(), body: b"new".to_vec(), status, told }
}

impl Row {
    fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }
}

const NUMBER: &str = "it is a number of bytes";
const SPAN: &str = "at least 1 millisecond";

/// The rows; `upload` has part 1, and `empty` no parts.
fn rows(upload: &str, empty: &str) -> Vec<Row> {
    let long = "k".repeat(1_025);
    let condition = ["", "nothing is stored unless every condition holds", "read the key again"];
    let key = ["", "store.key_max_bytes", "choose another key"];
    let beyond = ["", "a value has at most 17592186044415 bytes", "nearer to the beginning"];
    let (of_upload, of_empty) = (format!("/kv/parts/kept?upload={upload}"), format!("/kv/parts/kept?commit={empty}"));
    let part = ["", "1 to 10,000", ""];
    vec![
        row("key over its length", "PUT", format!("/kv/things/{long}"), 400, key),
        row("key over its length", "GET", format!("/kv/things/{long}"), 400, key).body(""),
        row("key with a zero first byte", "PUT", "/kv/things/%00p", 400, key),
        row("empty key", "PUT", "/kv/things/", 404, ["/kv/things/", "", ""]),
        row("key that begins with '_'", "PUT", "/kv/things/_x", 404, ["_x", "routes of the bucket", "%5Fx"]),
        row("value over the bucket's", "PUT", "/kv/small/kept", 413, ["11", "value_max_bytes is 10", "store less"])
            .body("12345678901"),
        row("append over the bucket's", "POST", "/kv/small/kept?append", 413, ["14", "value_max_bytes is 10", ""])
            .body("1234567890"),
        row(
            "unknown ack level",
            "PUT",
            "/kv/things/kept?ack=never",
            400,
            ["never", "memory, written, synced", "leave it out"],
        ),
        row("unknown ack level", "DELETE", "/kv/things/kept?ack=1", 400, ["1", "memory, written, synced", ""]).body(""),
        row("unknown parameter", "PUT", "/kv/things/kept?tll=5", 400, ["5", "this route takes ack", "/openapi.json"]),
        row("ttl of nothing", "PUT", "/kv/things/kept?ttl=0", 400, ["0", SPAN, "leave it out"]),
        row("ttl without a number", "PUT", "/kv/things/kept?ttl=soon", 400, ["soon", SPAN, "leave it out"]),
        row("ttl before now", "PUT", "/kv/things/kept?ttl=-1", 400, ["-1", SPAN, "leave it out"]),
        row("ttl in weeks", "PUT", "/kv/things/kept?ttl=2w", 400, ["2w", SPAN, "leave it out"]),
        row("offset that is none", "PUT", "/kv/things/kept?offset=x", 400, ["x", NUMBER, ""]),
        row("offset before the value", "PUT", "/kv/things/kept?offset=-1", 400, ["-1", NUMBER, ""]),
        row("offset beyond the largest value", "PUT", "/kv/things/kept?offset=4611686018427387904", 413, beyond),
        row("offset at the end of numbers", "PUT", "/kv/things/kept?offset=18446744073709551615", 413, beyond),
        row("failed If-Match", "PUT", "/kv/things/kept", 412, condition).header("If-Match", "\"999\""),
        row("failed If-Match", "DELETE", "/kv/things/kept", 412, condition).header("If-Match", "\"999\"").body(""),
        row("failed If-Match", "POST", "/kv/things/kept?append", 412, condition).header("If-Match", "\"999\""),
        row("If-Match of a missing key", "PUT", "/kv/things/missing", 412, condition).header("If-Match", "\"0\""),
        row("If-Match: * of a missing key", "PUT", "/kv/things/missing", 412, condition).header("If-Match", "*"),
        row("If-Match of no tag of ours", "PUT", "/kv/things/kept", 412, condition).header("If-Match", "\"abc\""),
        row("failed If-None-Match", "PUT", "/kv/things/kept", 412, condition).header("If-None-Match", "*"),
        row("stored later", "PUT", "/kv/things/kept", 412, condition).header("X-If-Timestamp-Before", "1000"),
        row("time that is none", "PUT", "/kv/things/kept", 400, ["noon", "ISO 8601", ""])
            .header("X-If-Timestamp-Before", "noon"),
        row("time stamp that is none", "PUT", "/kv/things/kept", 400, ["noon", "ISO 8601", ""])
            .header("X-Timestamp", "noon"),
        row("bytes over the quota", "PUT", "/kv/full/new", 507, ["", "max_bytes is 20", "max_bytes"])
            .body("0123456789012345"),
        row("bytes over the quota", "POST", "/kv/full/kept?append", 507, ["", "max_bytes is 20", "delete keys"])
            .body("0123456789012345"),
        row("keys over the quota", "PUT", "/kv/few/new", 507, ["1", "max_keys is 1", "max_keys"]),
        row(
            "unknown bucket",
            "PUT",
            "/kv/nowhere/a",
            404,
            ["nowhere", "made before it is used", "PUT /buckets/nowhere"],
        ),
        row("unknown bucket", "GET", "/kv/nowhere/a", 404, ["nowhere", "", "PUT /buckets/nowhere"]).body(""),
        row(
            "part twice with other bytes",
            "PUT",
            format!("{of_upload}&part=1"),
            409,
            [CRC_OF_NEW, "part 1 is sent once, or again with the same bytes", "another number"],
        ),
        row("part of number 0", "PUT", format!("{of_upload}&part=0"), 400, part),
        row("part beyond the last", "PUT", format!("{of_upload}&part=10001"), 400, part),
        row(
            "part of no upload",
            "PUT",
            "/kv/parts/kept?upload=abc&part=1",
            404,
            ["abc", "committed, given up", "?uploads"],
        ),
        row("commit without parts", "POST", of_empty.clone(), 400, ["", "", ""]).body(""),
        row("commit of a part that is not there", "POST", of_empty, 400, ["", "", ""]).body(r#"[{"part": 4}]"#),
        row("commit of no upload", "POST", "/kv/parts/kept?commit=abc", 404, ["abc", "", "?uploads"]).body(""),
        row(
            "range that cannot be",
            "GET",
            "/kv/things/kept",
            416,
            ["bytes=4-", "the value has 4 bytes", "the whole value"],
        )
        .header("Range", "bytes=4-")
        .body(""),
        row("bucket with a dot", "PUT", "/buckets/a.b", 400, ["a.b", "", ""]).body("{}"),
        row("key of a bucket with a dot", "PUT", "/kv/a.b/key", 404, ["a.b", "", ""]),
        row("bucket that begins with '_'", "PUT", "/buckets/_a", 400, ["_a", "", ""]).body("{}"),
        row("bucket with a space", "PUT", "/buckets/a%20b", 400, ["a b", "", ""]).body("{}"),
        row("bucket without partitions", "PUT", "/buckets/new", 400, ["new", "", ""]).body(r#"{"partitions": 0}"#),
        row("bucket with a quota of 0", "PUT", "/buckets/new", 400, ["new", "", ""]).body(r#"{"max_keys": 0}"#),
        row("unknown setting", "PUT", "/buckets/new", 400, ["", "", ""]).body(r#"{"max_key": 5}"#),
        row("settings that are no JSON", "PUT", "/buckets/new", 400, ["", "", ""]).body("{"),
        row("partitions that would change", "PUT", "/buckets/things", 409, ["things", "", ""])
            .body(r#"{"partitions": 3}"#),
        row("no such bucket", "DELETE", "/buckets/nowhere", 404, ["nowhere", "", "PUT /buckets/nowhere"]).body(""),
        row("method of no route", "PATCH", "/kv/things/kept", 405, ["PATCH", "", ""]),
        row("method of no route", "POST", "/buckets/things", 405, ["POST", "", ""]),
        row("POST that does not append", "POST", "/kv/things/kept", 400, ["", "POST appends", "?append"]),
        row("missing key", "GET", "/kv/things/missing", 404, ["missing", "until it is deleted or expires", ""])
            .body(""),
        row("missing key", "DELETE", "/kv/things/missing", 404, ["missing", "until it is deleted or expires", ""])
            .body(""),
    ]
}

/// CRC32C of `new`, which the rows send.
const CRC_OF_NEW: &str = "d743fc2e";

const BUCKETS: [(&str, &str); 4] = [
    ("things", "{}"),
    ("small", r#"{"value_max_bytes": 10}"#),
    ("full", r#"{"max_bytes": 20, "partitions": 1}"#),
    ("few", r#"{"max_keys": 1, "partitions": 1}"#),
];

/// Keys and bytes of each bucket, and the value and version of its one key.
fn stored(process: &Process) -> Vec<(u64, u64, Vec<u8>, String)> {
    let of_bucket = |(name, _): &(&str, &str)| {
        let described = process.get_json(&format!("/buckets/{name}"));
        let kept = process.get(&format!("/kv/{name}/kept"));
        assert_eq!(kept.status, 200, "{}", kept.text());
        let version = tag(&kept);
        (described["keys"].as_u64().unwrap(), described["bytes"].as_u64().unwrap(), kept.body, version)
    };
    BUCKETS.iter().map(of_bucket).collect()
}

fn check(row: &Row, body: &Value) {
    let of = |member: &str| body[member].as_str().unwrap_or_default().to_owned();
    let name = row.name;
    for (member, part) in ["value", "rule", "remedy"].iter().zip(row.told) {
        assert!(of(member).contains(part), "{name}: {part:?} in {member} of {body}");
    }
    let sentence = [of("detail"), of("rule"), of("remedy")].concat();
    assert!(sentence.len() > 20, "{name}: {body}");
    if row.status == 412 {
        // Both versions: the one that was expected and the one that is there.
        assert!(!of("expected").is_empty() && body.get("version").is_some(), "{name}: {body}");
        assert_eq!(body["version"].is_null(), row.path.contains("missing"), "{name}: {body}");
    }
}

#[test]
fn each_row_of_bad_input_is_told_with_value_rule_and_remedy_and_nothing_is_stored() {
    let dir = tempfile::tempdir().unwrap();
    let process = start(dir.path());
    for (name, settings) in BUCKETS {
        make(&process, name, settings);
        assert_eq!(put(process.applications, &format!("/kv/{name}/kept"), &[], b"kept").status, 201);
    }
    make(&process, "parts", "{}");
    let begin = || {
        let begun = ask(process.applications, "POST", "/kv/parts/kept?uploads", &[], b"");
        begun.json()["upload"].as_str().unwrap().to_owned()
    };
    let (upload, empty) = (begin(), begin());
    assert_eq!(put(process.applications, &format!("/kv/parts/kept?upload={upload}&part=1"), &[], b"part").status, 200);
    let before = stored(&process);
    for row in rows(&upload, &empty) {
        let headers: Vec<(&str, &str)> = row.headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let refused = ask(process.applications, row.method, &row.path, &headers, &row.body);
        assert_eq!(refused.status, row.status, "{}: {}", row.name, refused.text());
        check(&row, &refused.json());
        assert_eq!(stored(&process), before, "{}", row.name);
        // Another client writes as if nothing had been.
        let other = put(process.applications, "/kv/things/other", &[], row.name.as_bytes());
        assert_eq!(other.status, 201, "{}: {}", row.name, other.text());
        assert_eq!(process.get("/kv/things/other").body, row.name.as_bytes());
        assert_eq!(ask(process.applications, "DELETE", "/kv/things/other", &[], b"").status, 204);
        assert_eq!(process.get("/kv/parts/kept").status, 404, "{}: nothing shows before a commit", row.name);
    }
    let committed = ask(process.applications, "POST", &format!("/kv/parts/kept?commit={upload}"), &[], b"");
    assert_eq!((committed.status, process.get("/kv/parts/kept").body), (201, b"part".to_vec()), "{}", committed.text());
    process.stop();
}

#[test]
fn given_a_quota_when_a_write_would_pass_it_then_it_is_refused_and_deletes_still_work() {
    let dir = tempfile::tempdir().unwrap();
    let process = Process::start(dir.path());
    let to = process.applications;
    make(&process, "full", r#"{"max_bytes": 100, "max_keys": 3, "partitions": 1}"#);
    for key in ["a", "b"] {
        assert_eq!(put(to, &format!("/kv/full/{key}"), &[], &[b'x'; 40]).status, 201);
    }
    let refused = put(to, "/kv/full/c", &[], &[b'x'; 40]);
    assert_eq!((refused.status, refused.json()["value"].as_str()), (507, Some("82")), "{}", refused.text());
    assert!(refused.text().contains("max_bytes is 100"), "{}", refused.text());
    assert_eq!(put(to, "/kv/full/a", &[], &[b'y'; 50]).status, 200, "a value in place of another one counts once");
    assert_eq!(put(to, "/kv/full/a", &[], b"y").status, 200, "a shorter value always fits");
    assert_eq!(put(to, "/kv/full/c", &[], b"z").status, 201);
    let refused = put(to, "/kv/full/d", &[], b"z");
    assert!(refused.status == 507 && refused.text().contains("max_keys is 3"), "{}", refused.text());
    assert_eq!(ask(to, "DELETE", "/kv/full/b", &[], b"").status, 204);
    assert_eq!(put(to, "/kv/full/d", &[], b"z").status, 201);

    // A key that has expired takes no room, even before it is removed.
    make(&process, "short", r#"{"max_keys": 1, "partitions": 1}"#);
    assert_eq!(put(to, "/kv/short/a?ttl=1", &[], b"x").status, 201);
    millstream_testkit::eventually("the key expires", || process.get("/kv/short/a").status == 404);
    assert_eq!(put(to, "/kv/short/b", &[], b"x").status, 201);
    process.stop();
}

#[test]
fn writes_over_the_buckets_rate_are_told_when_to_come_back_and_other_buckets_are_not_slowed() {
    let dir = tempfile::tempdir().unwrap();
    let process = start(dir.path());
    let to = process.applications;
    make(&process, "slow", r#"{"writes_per_second": 2}"#);
    make(&process, "free", "{}");
    let mut stored = 0;
    let refused = (0..1_000).find_map(|number| {
        let answer = put(to, &format!("/kv/slow/{number}?ack=memory"), &[], b"x");
        stored += u64::from(answer.status == 201);
        (answer.status != 201).then_some(answer)
    });
    let refused = refused.expect("a thousand writes exceed two a second");
    assert_eq!((refused.status, refused.header("retry-after")), (429, Some("1")), "{}", refused.text());
    for part in ["writes_per_second is 2", "Retry-After"] {
        assert!(refused.text().contains(part), "{}", refused.text());
    }
    assert_eq!(process.get_json("/buckets/slow")["keys"], stored);
    assert_eq!(put(to, "/kv/free/a", &[], b"x").status, 201);
    assert_eq!(process.get("/kv/slow/0").status, 200, "reads are not counted");
    millstream_testkit::eventually("a write is admitted again", || put(to, "/kv/slow/later", &[], b"x").status == 201);
    make(&process, "slow", "{}");
    assert!((0..20).all(|number| put(to, &format!("/kv/slow/{number}?ack=memory"), &[], b"x").status < 300));
    process.stop();
}
