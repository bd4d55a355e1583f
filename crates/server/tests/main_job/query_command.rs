//! `millstream query` against a running server.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::Stdio;

use serde_json::json;

use crate::process::{Process, ask, millstream, until};

const JSON: [(&str, &str); 1] = [("Content-Type", "application/json")];

#[test]
fn the_table_sets_windows_apart_and_a_mistyped_field_gets_a_hint() {
    let dir = tempfile::tempdir().unwrap();
    let process = Process::start(dir.path());
    let to = process.applications;
    assert_eq!(ask(to, "PUT", "/api/streams/orders", &JSON, br#"{"partitions": 1}"#).status, 201);
    let append = |items: &[&str]| {
        let records: Vec<_> = items.iter().map(|item| json!({"value": {"item": item, "count": 7}})).collect();
        let body = json!(records).to_string();
        assert_eq!(ask(to, "POST", "/api/streams/orders/records", &JSON, body.as_bytes()).status, 200);
    };
    append(&["old"]);
    let query = |arguments: &[&str]| {
        let mut command = millstream();
        command.args(["query", "--server", &process.applications_url()]).args(arguments);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };

    let windows =
        "SELECT item, COUNT(*) AS n FROM \"orders\" GROUP BY item ORDER BY item WINDOWING TUMBLING(3, RECORD)";
    let mut child = query(&["--output", "table", windows]);
    let queries = || process.get_json("/api/queries");
    until("the query lives", || queries().as_array().unwrap().len() == 1);
    append(&["bolt", "nut", "bolt", "gear", "gear", "gear", "nut"]);
    let id = queries()[0]["id"].as_str().unwrap().to_owned();
    until("all are seen", || process.get_json(&format!("/api/queries/{id}"))["matched"] == 7);
    assert_eq!(ask(to, "DELETE", &format!("/api/queries/{id}"), &[], b"").status, 204);
    let lines: Vec<String> = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap).collect();
    let expected = "item      n
── window 1: 3 records
bolt      2
nut       1
── window 2: 3 records
gear      3
── window 3: 1 record
nut       1";
    assert_eq!(lines.join("\n"), expected);
    assert!(child.wait().unwrap().success());
    let mut told = String::new();
    child.stderr.take().unwrap().read_to_string(&mut told).unwrap();
    assert_eq!(told.trim(), "ended by killed: 7 of 7 records matched, 0 dropped, 0 errors");

    let output = query(&["--for", "50ms", "SELECT itme FROM \"orders\""]).wait_with_output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{told}");
    let hint = "hint:\n  1:8 no record of 'orders' that was looked at has itme\n    SELECT itme FROM \"orders\"\n           ^^^^\n  did you mean item?";
    assert!(told.starts_with(hint) && told.contains("ended by duration"), "{told}");

    let refused = query(&["SELECT item FORM \"orders\""]).wait_with_output().unwrap();
    let told = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success() && told.contains("did you mean FROM?"), "{told}");
    let refused = query(&["--for", "soon", "SELECT 1"]).wait_with_output().unwrap();
    assert!(String::from_utf8(refused.stderr).unwrap().contains("such as 7d"));
    process.stop();
}
