//! `millstream topic` as a process, against a real server.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Output, Stdio};

use millstream_testkit::{Server, ask, millstream};
use serde_json::{Value, json};

fn command(server: &impl Server, arguments: &[&str]) -> Command {
    let mut command = millstream();
    command.arg("topic").args(arguments).args(["--server", &server.applications_url(), "--tenant", server.tenant()]);
    command
}

fn run(server: &impl Server, arguments: &[&str]) -> Output {
    command(server, arguments).output().unwrap()
}

fn printed(server: &impl Server, arguments: &[&str]) -> String {
    let output = run(server, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn refused(server: &impl Server, arguments: &[&str]) -> String {
    let output = run(server, arguments);
    assert_eq!(output.status.code(), Some(1), "{arguments:?}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "");
    String::from_utf8(output.stderr).unwrap()
}

fn append(server: &impl Server, topic: &str, lines: &str) {
    let path = format!("/api/streams/{topic}/records");
    let answer =
        ask(server.applications(), "POST", &path, &[("Content-Type", "application/x-ndjson")], lines.as_bytes());
    assert_eq!(answer.status, 200, "{}", answer.text());
}

fn numbers(range: std::ops::Range<u64>) -> String {
    range.map(|n| json!({"key": format!("k{n}"), "value": {"n": n}}).to_string() + "\n").collect()
}

/// A tail that runs until it is told to stop.
fn tail<S: Server>(server: &S, arguments: &[&str]) -> (Child, impl Iterator<Item = String> + use<S>) {
    let mut child = command(server, arguments).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    (child, lines)
}

#[test]
fn a_topic_is_created_described_and_listed() {
    let server = crate::tenant();
    let settings = ["--partitions", "2", "--retention", "7d", "--retention-bytes", "1GiB", "--cleanup", "delete"];
    let more = ["--storage", "disk", "--level", "written", "--compression", "lz4"];
    let created = printed(&server, &[&["create", "orders"][..], &settings, &more].concat());
    for line in
        ["retention         7d", "retention_bytes   1 GiB", "level             written", "compression       lz4"]
    {
        assert!(created.lines().any(|shown| shown.trim() == line), "{line} in {created}");
    }
    append(&server, "orders", &numbers(0..3));
    let described = printed(&server, &["describe", "orders"]);
    assert!(
        described.starts_with("topic orders\n") && described.contains("PARTITION  FIRST  STABLE  TAIL"),
        "{described}"
    );
    let list = printed(&server, &["list"]);
    let row = list.lines().find(|line| line.starts_with("orders ")).unwrap();
    let cells: Vec<&str> = row.split_whitespace().collect();
    let offsets = (3 + crate::end_offsets()).to_string();
    assert_eq!(cells[..7], ["orders", "2", "disk", "written", "delete", "7d", &offsets]);
}

#[test]
fn a_refused_command_prints_one_line_and_fails() {
    let server = crate::tenant();
    printed(&server, &["create", "t"]);
    for (arguments, said) in [
        (&["create", "t", "--partitions", "9"][..], "topic 't' exists with another value of 'partitions'; alter that"),
        (&["create", "u", "--retention", "soon"], "setting 'retention' cannot be taken"),
        (&["create", "_registry"], "is Millstream's own"),
        (&["describe", "nope"], "'millstream topic create nope' creates it"),
        (&["tail", "nope"], "topic 'nope' does not exist"),
        (&["tail", "t", "--from", "yesterday"], "use earliest, latest, an ISO time"),
        (&["export", "a b"], "'a b' is not a topic name"),
    ] {
        let text = refused(&server, arguments);
        assert!(text.starts_with("millstream: ") && text.contains(said) && text.lines().count() == 1, "{text}");
    }
}

#[test]
fn a_tail_prints_records_as_they_arrive_and_ends_when_interrupted() {
    let server = crate::tenant();
    printed(&server, &["create", "t", "--partitions", "1"]);
    append(&server, "t", &numbers(0..2));
    let (mut child, mut lines) = tail(&server, &["tail", "t", "--from", "earliest"]);
    let first: Value = serde_json::from_str(&lines.next().unwrap()).unwrap();
    assert_eq!((&first["partition"], &first["offset"], &first["key"]), (&json!(0), &json!(0), &json!("k0")));
    lines.next().unwrap();
    append(&server, "t", &numbers(2..3));
    let later: Value = serde_json::from_str(&lines.next().unwrap()).unwrap();
    assert_eq!(later["value"], json!({"n": 2}));
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    assert!(child.wait().unwrap().success());

    append(&server, "t", "{\"value_text\":\"plain\"}\n{\"value_base64\":\"/w==\"}\n");
    let raw = run(&server, &["tail", "t", "--from", "0:2", "--limit", "3", "--raw"]);
    assert_eq!(raw.stdout, b"{\"n\":2}\nplain\n\xff\n");
    let (mut child, mut lines) = tail(&server, &["tail", "t", "--from", "earliest"]);
    lines.next().unwrap();
    drop(lines);
    while child.try_wait().unwrap().is_none() {
        append(&server, "t", &numbers(3..4));
    }
    assert!(child.wait().unwrap().success(), "whose reader has left ends in order");
}

#[test]
fn an_export_holds_all_that_was_there_and_may_be_appended_again() {
    let server = crate::tenant();
    printed(&server, &["create", "from", "--partitions", "4", "--compression", "zstd"]);
    printed(&server, &["create", "to", "--partitions", "4"]);
    append(&server, "from", &numbers(0..5_000));
    let exported = printed(&server, &["export", "from"]);
    assert_eq!(exported.lines().count(), 5_000);
    append(&server, "to", &exported);
    let sorted = |text: String| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(sorted(printed(&server, &["export", "to"])), sorted(exported));
    printed(&server, &["create", "empty"]);
    assert_eq!(printed(&server, &["export", "empty"]), "");
    let (mut child, lines) = tail(&server, &["export", "from"]);
    drop(lines);
    assert!(child.wait().unwrap().success(), "an export that nobody reads ends in order");
}

#[test]
fn a_topic_of_more_partitions_than_one_tail_reads_is_paged_and_exported_whole() {
    let server = crate::tenant();
    printed(&server, &["create", "wide", "--partitions", "200"]);
    append(&server, "wide", &numbers(0..1_000));
    let first = server.get_json("/api/streams/wide?limit=600");
    let next = first["next"].as_str().unwrap();
    let rest = server.get_json(&format!("/api/streams/wide?limit=1000&from={next}"));
    let offsets = |page: &Value| -> Vec<(Value, Value)> {
        let records = page["records"].as_array().unwrap().iter();
        records.map(|record| (record["partition"].clone(), record["offset"].clone())).collect()
    };
    assert_eq!((offsets(&first).len(), offsets(&rest).len()), (600, 400));
    let exported = printed(&server, &["export", "wide"]);
    let exported: Vec<Value> = exported.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let paged: std::collections::HashSet<_> = [offsets(&first), offsets(&rest)].concat().into_iter().collect();
    assert_eq!(paged.len(), 1_000);
    assert_eq!(offsets(&json!({"records": exported})).into_iter().collect::<std::collections::HashSet<_>>(), paged);
    let refused = refused(&server, &["tail", "wide"]);
    assert!(refused.contains("('200 partitions'); one tail reads at most 128 partitions: open several"), "{refused}");
    assert!(refused.contains("--partition 0-127"), "{refused}");
    let of_some = |partitions: &str| printed(&server, &["export", "wide", "--partition", partitions]).lines().count();
    assert_eq!(of_some("0-127") + of_some("128,129,130-199"), 1_000);
    for wrong in ["5-4", "x", "0-10000", "0-9999,0"] {
        assert_eq!(server.get(&format!("/api/streams/wide?partition={wrong}")).status, 400, "{wrong}");
    }
}

#[test]
fn the_servers_address_may_follow_the_command_and_topics_are_deleted() {
    let server = crate::tenant();
    let (url, own) = (server.applications_url(), server.tenant());
    let anywhere = |arguments: &[&str]| {
        let output = millstream().arg("topic").args(arguments).env_remove("MILLSTREAM_SERVER").output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    anywhere(&["create", "mine", "--server", &url, "--tenant", own, "--token", "none-is-needed"]);
    assert!(anywhere(&["list", "--server", &url, "--tenant", own]).contains("\nmine "));
    assert!(anywhere(&["--server", &url, "--tenant", own, "list"]).contains("\nmine "));
    assert!(!anywhere(&["list", "--server", &url, "--tenant", crate::tenant().tenant()]).contains("\nmine "));
    let deleted = anywhere(&["delete", "mine", "--tenant", own, "--server", &url]);
    assert_eq!(deleted, "topic mine and its records are deleted\n");
    assert!(!anywhere(&["list", "--server", &url, "--tenant", own]).contains("\nmine "));
    let gone = refused(&server, &["delete", "mine"]);
    assert!(gone.contains("topic 'mine' does not exist") && gone.contains("topic list"), "{gone}");
    assert!(!gone.contains("creates it"), "{gone}");
}
