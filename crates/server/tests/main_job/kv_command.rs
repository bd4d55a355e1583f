//! `millstream kv` as a process, against a real server.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Output, Stdio};

use millstream_testkit::{Server, millstream};
use serde_json::{Value, json};

fn command(server: &impl Server, arguments: &[&str]) -> Command {
    let mut command = millstream();
    command.arg("kv").args(arguments).args(["--server", &server.applications_url(), "--tenant", server.tenant()]);
    command
}

/// Runs with `input` as standard input.
fn run(server: &impl Server, arguments: &[&str], input: &[u8]) -> Output {
    let mut child =
        command(server, arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    std::thread::scope(|threads| {
        // A command that is refused does not read it.
        threads.spawn(move || drop(stdin.write_all(input)));
        child.wait_with_output().unwrap()
    })
}

fn printed(server: &impl Server, arguments: &[&str], input: &[u8]) -> Vec<u8> {
    let output = run(server, arguments, input);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

fn text(server: &impl Server, arguments: &[&str]) -> String {
    String::from_utf8(printed(server, arguments, b"")).unwrap()
}

fn refused(server: &impl Server, arguments: &[&str], input: &[u8]) -> String {
    let output = run(server, arguments, input);
    assert_eq!(output.status.code(), Some(1), "{arguments:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn values_are_stored_read_listed_and_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let server = crate::tenant();
    let made = text(&server, &["make", "things", "partitions=2", "max_keys=100"]);
    assert!(made.starts_with("bucket things\n"), "{made}");
    assert!(made.lines().any(|line| line.split_whitespace().eq(["max_keys", "100"])), "{made}");
    // Settings that are not given stay.
    let changed = text(&server, &["make", "things", "max_keys=none", "ttl_ms=3600000"]);
    assert!(changed.lines().any(|line| line.split_whitespace().eq(["partitions", "2"])), "{changed}");
    assert!(!changed.contains("max_keys") && changed.contains("3600000"), "{changed}");

    let binary: Vec<u8> = (0..=255).collect();
    printed(&server, &["put", "things", "a/binary"], &binary);
    assert_eq!(printed(&server, &["get", "things", "a/binary"], b""), binary);
    let (file, copy) = (dir.path().join("value"), dir.path().join("copy"));
    std::fs::write(&file, "from a file").unwrap();
    let (file, copy_text) = (file.to_str().unwrap(), copy.to_str().unwrap());
    let put = text(&server, &["put", "things", "_odd key?", file, "--create", "--ttl", "1h", "--ack", "written"]);
    assert!(put.starts_with("_odd key? has version ") && put.ends_with(", 11 bytes\n"), "{put}");
    text(&server, &["get", "things", "_odd key?", "--output", copy_text]);
    assert_eq!(std::fs::read_to_string(&copy).unwrap(), "from a file");
    let again = refused(&server, &["put", "things", "_odd key?", file, "--create"], b"");
    assert!(again.contains("If-None-Match does not hold"), "{again}");
    let other = refused(&server, &["put", "things", "a/binary", file, "--if-version", "99999"], b"");
    assert!(other.contains("If-Match does not hold"), "{other}");

    for number in 0..5 {
        printed(&server, &["put", "things", &format!("b/{number}")], b"x");
    }
    assert_eq!(text(&server, &["ls", "things"]), "_odd key?\na/binary\nb/0\nb/1\nb/2\nb/3\nb/4\n");
    assert_eq!(text(&server, &["ls", "things", "--delimiter", "/"]), "_odd key?\na/\nb/\n");
    assert_eq!(text(&server, &["ls", "things", "b/", "--start", "b/2", "--limit", "2"]), "b/2\nb/3\n");
    let long = text(&server, &["ls", "things", "--long", "a"]);
    let columns: Vec<&str> = long.split_whitespace().collect();
    assert_eq!((columns[1], columns[4]), ("256", "a/binary"), "{long}");
    let line: Value = serde_json::from_str(&text(&server, &["ls", "things", "--json", "a"])).unwrap();
    assert_eq!((&line["key"], &line["length"]), (&json!("a/binary"), &json!(256)));

    let buckets = text(&server, &["buckets"]);
    let row: Vec<&str> = buckets.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(row[..5], ["things", "durable", "2", "synced", "7"]);
    assert_eq!(text(&server, &["del", "things", "a/binary"]), "a/binary is deleted\n");
    assert!(refused(&server, &["get", "things", "a/binary"], b"").contains("there is no key 'a/binary'"));
    assert!(refused(&server, &["del", "things", "b/1", "--if-version", "99999"], b"").contains("If-Match"));
    text(&server, &["rm-bucket", "things"]);
    assert!(refused(&server, &["ls", "things"], b"").contains("'millstream kv make things' makes it"));
}

#[test]
fn an_export_is_imported_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let server = crate::tenant();
    text(&server, &["make", "one"]);
    text(&server, &["make", "two", "partitions=1"]);
    let many: String =
        (0..2_500).map(|number| json!({"key": format!("k{number:04}"), "value": "x"}).to_string() + "\n").collect();
    let stored = printed(&server, &["import", "one"], many.as_bytes());
    assert_eq!(String::from_utf8(stored).unwrap(), "2500 keys are stored in one\n");
    let attributes = json!({"key": "beside", "value": "v", "content_type": "text/plain", "tags": ["a", "b"],
        "metadata": {"owner": "ann"}, "timestamp": "2026-01-01T00:00:00.000Z", "ttl": "7d"});
    printed(&server, &["import", "one"], format!("\n{attributes}\n").as_bytes());
    printed(&server, &["put", "one", "binary"], b"\xff\0");
    printed(&server, &["put", "one", "large"], &vec![b'x'; 300 << 10]);
    let exported = printed(&server, &["export", "one"], b"");
    let file = dir.path().join("export.ndjson");
    std::fs::write(&file, &exported).unwrap();
    assert_eq!(text(&server, &["import", "two", file.to_str().unwrap()]), "2503 keys are stored in two\n");
    let without_versions = |export: &[u8]| -> Vec<Value> {
        let lines = export.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let parse = |line: &[u8]| {
            let mut line: Value = serde_json::from_slice(line).unwrap();
            let members = line.as_object_mut().unwrap();
            members.remove("version").unwrap();
            members.remove("written").unwrap();
            line
        };
        lines.map(parse).collect()
    };
    let copied = printed(&server, &["export", "two"], b"");
    assert_eq!(without_versions(&copied), without_versions(&exported));
    let beside = without_versions(&printed(&server, &["export", "two", "beside"], b""));
    let [beside] = &beside[..] else { panic!("{beside:?}") };
    for name in ["value", "content_type", "tags", "metadata", "timestamp"] {
        assert_eq!(beside[name], attributes[name], "{name}");
    }
    assert!(beside["expires"].is_string());

    let bad = format!("{}\n\n{}\n", json!({"key": "good", "value": "v"}), json!({"key": "bad", "value": 5}));
    let told = refused(&server, &["import", "two"], bad.as_bytes());
    assert!(told.contains("line 3:") && told.contains("1 keys are stored in two, 1 lines are refused"), "{told}");
    assert_eq!(printed(&server, &["get", "two", "good"], b""), b"v");
    assert!(refused(&server, &["import", "two"], b"nonsense").contains("line 1: it is no JSON object"));
    assert!(refused(&server, &["import", "three"], many.as_bytes()).contains("'millstream kv make three' makes it"));
}

#[test]
fn a_watch_prints_writes_and_deletes_with_the_position_to_go_on_from() {
    let server = crate::tenant();
    text(&server, &["make", "things", "partitions=1"]);
    printed(&server, &["put", "things", "a"], b"1");
    let mut child = command(&server, &["watch", "things", "--from", "earliest", "--values"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next = || serde_json::from_str::<Value>(&lines.next().unwrap().unwrap()).unwrap();
    let first = next();
    assert_eq!((&first["event"], &first["key"], &first["value"]), (&json!("put"), &json!("a"), &json!("1")));
    text(&server, &["del", "things", "a"]);
    let second = next();
    assert_eq!((&second["event"], &second["key"]), (&json!("delete"), &json!("a")));
    child.kill().unwrap();
    child.wait().unwrap();
    printed(&server, &["put", "things", "b"], b"2");
    let from = second["position"].as_str().unwrap();
    let on = text(&server, &["watch", "things", "--from", from, "--limit", "1"]);
    assert_eq!(serde_json::from_str::<Value>(&on).unwrap()["key"], "b");
    assert!(refused(&server, &["watch", "things", "--from", "first"], b"").contains("latest, earliest"));
}
