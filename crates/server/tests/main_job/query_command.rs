//! `millstream query` against a running server.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::Stdio;

use millstream_testkit::{Process, Server, ask, eventually, millstream};
use serde_json::json;

const JSON: [(&str, &str); 1] = [("Content-Type", "application/json")];

#[test]
fn the_query_command_separates_windows_hints_at_typos_and_prints_results_on_ctrl_c() {
    let server = crate::tenant();
    let to = server.applications();
    assert_eq!(ask(to, "PUT", "/api/streams/orders", &JSON, br#"{"partitions": 1}"#).status, 201);
    let append = |items: &[&str]| {
        let records: Vec<_> = items.iter().map(|item| json!({"value": {"item": item, "count": 7}})).collect();
        let body = json!(records).to_string();
        assert_eq!(ask(to, "POST", "/api/streams/orders/records", &JSON, body.as_bytes()).status, 200);
    };
    append(&["old"]);
    let query = |arguments: &[&str]| {
        let mut command = millstream();
        command.args(["query", "--server", &server.applications_url(), "--tenant", server.tenant()]).args(arguments);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };

    let windows =
        "SELECT item, COUNT(*) AS n FROM \"orders\" GROUP BY item ORDER BY item WINDOWING TUMBLING(3, RECORD)";
    let mut child = query(&["--output", "table", windows]);
    let queries = || server.get_json("/api/queries");
    eventually("the query lives", || queries().as_array().unwrap().len() == 1);
    append(&["bolt", "nut", "bolt", "gear", "gear", "gear", "nut"]);
    let id = queries()[0]["id"].as_str().unwrap().to_owned();
    eventually("all are seen", || server.get_json(&format!("/api/queries/{id}"))["matched"] == 7);
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

    let mut child = query(&["--output", "csv", "SELECT item, COUNT(*) AS n FROM \"orders\" GROUP BY item"]);
    eventually("the query lives", || queries().as_array().unwrap().len() == 1);
    append(&["bolt", "nut", "bolt"]);
    eventually("all are seen", || queries()[0]["matched"] == 3);
    let told = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(told.success());
    let mut printed = String::new();
    child.stdout.take().unwrap().read_to_string(&mut printed).unwrap();
    assert_eq!(printed, "item,n\nbolt,2\nnut,1\n", "Ctrl-C prints what the query has come to");
    assert!(child.wait().unwrap().success());

    let of_the_past = |from: &str, until: &str| {
        let arguments = ["--from", from, "--until", until, "SELECT COUNT(*) AS n FROM \"orders\""];
        let output = query(&arguments).wait_with_output().unwrap();
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let (printed, told) = of_the_past("earliest", "now");
    assert_eq!((printed.as_str(), told.starts_with("ended by until: 11 of 11")), ("{\"n\":11}\n", true), "{told}");
    assert_eq!(of_the_past("1h", "now").0, "{\"n\":11}\n");
    // The end of the first append takes an offset as well.
    let until = format!("0:{}", 8 + crate::end_offsets());
    assert_eq!(of_the_past("0:1", &until).0, "{\"n\":7}\n");
    assert_eq!(of_the_past("earliest", "2020-01-01T00:00:00Z").0, "{\"n\":0}\n");
    assert!(of_the_past("yesterday", "now").1.contains("use earliest, now, how long ago such as 2h"));

    let refused = query(&["SELECT item FORM \"orders\""]).wait_with_output().unwrap();
    let told = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success() && told.contains("did you mean FROM?"), "{told}");
    let refused = query(&["--for", "soon", "SELECT 1"]).wait_with_output().unwrap();
    assert!(String::from_utf8(refused.stderr).unwrap().contains("such as 7d"));
}

#[test]
fn the_query_command_tells_estimates_in_words() {
    let dir = tempfile::tempdir().unwrap();
    let process = Process::start_on(dir.path(), &["--set", "query.distinct_exact_max=32"]);
    let to = process.applications;
    assert_eq!(ask(to, "PUT", "/api/streams/orders", &JSON, br#"{"partitions": 1}"#).status, 201);
    let records: Vec<_> = (0..2_000).map(|number| json!({"value": {"id": number}})).collect();
    let body = json!(records).to_string();
    assert_eq!(ask(to, "POST", "/api/streams/orders/records", &JSON, body.as_bytes()).status, 200);
    let told = |query: &str| {
        let mut command = millstream();
        command.args(["query", "--server", &process.applications_url(), "--from", "earliest", "--until", "now", query]);
        let output = command.output().unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{told}");
        told
    };
    let estimated = "note: COUNT(DISTINCT id) is an estimate: it lies between ";
    let whole = told("SELECT COUNT(DISTINCT id) AS n FROM \"orders\"");
    let notes: Vec<&str> = whole.lines().filter(|line| line.starts_with("note: ")).collect();
    assert!(notes.len() == 1 && notes[0].starts_with(estimated), "{whole}");
    let windows = told("SELECT COUNT(DISTINCT id) AS n FROM \"orders\" WINDOWING TUMBLING(1000, RECORD)");
    assert!(windows.starts_with(estimated), "{windows}");
    let exact = told("SELECT COUNT(DISTINCT id) AS n FROM \"orders\" WHERE id < 30");
    assert!(!exact.contains("note:") && exact.starts_with("ended by until: 30 of 2000 records matched"), "{exact}");
    process.stop();
}
