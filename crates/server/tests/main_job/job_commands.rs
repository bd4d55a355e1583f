//! `millstream job new`, `run`, `graph` and `tap` beside a real server.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use millstream_testkit::{Process, Server, eventually, millstream};
use serde_json::{Value, json};

use crate::jobs::{append, command, create_topics, document, printed, submit};

fn with_server(server: &impl Server, dir: &Path, arguments: &[&str]) -> Command {
    let mut command = millstream();
    command.arg("job").args(arguments).args(["--server", &server.applications_url(), "--tenant", server.tenant()]);
    command.current_dir(dir);
    command
}

fn interrupt(child: &Child) {
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn write(dir: &Path, name: &str, document: &Value) {
    std::fs::write(dir.join(name), document.to_string()).unwrap();
}

fn batch(select: &str) -> Value {
    json!({
        "version": 1, "kind": "Job", "name": "batch", "mode": "batch", "restart": {"policy": "never"},
        "sources": {"in": {"type": "list", "config": {"records": [{"n": 0}, {"n": 1}]}}},
        "transforms": {"div": {"type": "map", "inputs": ["in"], "select": select}},
        "sinks": {"out": {"type": "blackhole", "inputs": ["div"]}},
    })
}

#[test]
fn the_starter_keeps_all_rules_passes_its_tests_and_runs() {
    let dir = tempfile::tempdir().unwrap();
    let alone = |arguments: &[&str]| -> Output {
        millstream().arg("job").args(arguments).current_dir(dir.path()).output().unwrap()
    };
    let starter = printed(&alone(&["new", "weather"]));
    assert!(starter.contains("\nname: weather\n") && starter.contains("# "), "{starter}");
    std::fs::write(dir.path().join("weather.yaml"), &starter).unwrap();
    let tested = printed(&alone(&["test", "weather.yaml"]));
    assert_eq!(tested.matches("  ok  ").count(), 2, "{tested}");
    let nobody = ["--server", "http://127.0.0.1:1"];
    let checked = printed(&alone(&[&["validate", "weather.yaml"], &nobody[..]].concat()));
    assert!(checked.starts_with("weather is valid; hash ") && checked.contains("no server answered"), "{checked}");
    let faulty = starter.replace("version: 1", "version: 1\nsorces: {}\nlabls: {}");
    std::fs::write(dir.path().join("wrong.yaml"), faulty).unwrap();
    let wrong = alone(&[&["validate", "wrong.yaml"], &nobody[..]].concat());
    let told = text(&wrong.stderr);
    assert!(!wrong.status.success() && told.contains("sorces") && told.contains("labls"), "all faults at once: {told}");
    let refused = alone(&["new", "two words"]);
    assert!(!refused.status.success() && text(&refused.stderr).contains("name"), "{}", text(&refused.stderr));

    let server = crate::tenant();
    let checked = printed(&command(&server, dir.path(), &["validate", "weather.yaml"]));
    assert!(checked.starts_with("weather is valid"), "{checked}");
}

#[test]
fn jobs_are_listed_by_state_and_label() {
    let dir = tempfile::tempdir().unwrap();
    let server = crate::tenant();
    for team in ["weather", "traffic"] {
        let mut document = batch("n + 1 AS n");
        (document["name"], document["labels"]) = (json!(team), json!({"team": team}));
        write(dir.path(), "job.json", &document);
        printed(&command(&server, dir.path(), &["run", "job.json"]));
    }
    let listed = |filter: &[&str]| printed(&command(&server, dir.path(), &[&["list"], filter].concat()));
    let weather = listed(&["--state", "completed", "--label", "team=weather"]);
    assert!(weather.lines().count() == 2 && weather.contains("  weather  "), "{weather}");
    assert_eq!(listed(&["--state", "failed"]).lines().count(), 1);
    let odd = command(&server, dir.path(), &["list", "--state", "done"]);
    assert!(!odd.status.success() && text(&odd.stderr).contains("completed"), "{odd:?}");
}

#[test]
fn run_follows_a_batch_job_and_its_exit_status_says_how_it_ended() {
    let dir = tempfile::tempdir().unwrap();
    let server = crate::tenant();
    write(dir.path(), "good.json", &batch("n + 1 AS n"));
    let shown = printed(&command(&server, dir.path(), &["run", "good.json"]));
    assert!(shown.lines().last().is_some_and(|line| line.starts_with("completed  in 2 ")), "{shown}");
    write(dir.path(), "bad.json", &batch("1 / n AS n"));
    let failed = command(&server, dir.path(), &["run", "bad.json"]);
    assert_eq!(failed.status.code(), Some(1));
    assert!(text(&failed.stderr).contains("is failed: ") && text(&failed.stderr).contains("zero"), "{failed:?}");
    write(dir.path(), "wrong.json", &json!({"version": 1, "kind": "Job", "name": "x", "sorces": {}}));
    let refused = command(&server, dir.path(), &["run", "wrong.json"]);
    assert!(refused.status.code() == Some(1) && text(&refused.stderr).contains("sources"), "{refused:?}");
    let lines = printed(&command(&server, dir.path(), &["--json", "run", "good.json"]));
    let last: Value = serde_json::from_str(lines.lines().last().unwrap()).unwrap();
    assert_eq!((&last["state"], &last["records_out"]), (&json!("completed"), &json!(2)), "{last:#}");
}

#[test]
fn run_stops_its_job_when_it_is_interrupted() {
    let dir = tempfile::tempdir().unwrap();
    let server = crate::tenant();
    create_topics(&server);
    append(&server, 0..100);
    write(dir.path(), "job.json", &document());
    let mut running = with_server(&server, dir.path(), &["run", "job.json"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(running.stdout.take().unwrap()).lines();
    let mut next = || lines.next().map(Result::unwrap);
    let first = next().unwrap();
    assert!(first.starts_with("job ") && first.ends_with(" called doubling"), "{first}");
    while !next().unwrap().starts_with("running  in 100 ") {}
    interrupt(&running);
    let last = std::iter::from_fn(next).last().unwrap();
    assert!(last.starts_with("stopped  in 100 "), "{last}");
    assert!(running.wait().unwrap().success());
    assert_eq!(server.get_json("/api/jobs")[0]["state"], "stopped");
}

#[test]
fn graph_shows_a_tree_and_tap_prints_records() {
    let dir = tempfile::tempdir().unwrap();
    let process = Process::start(dir.path());
    create_topics(&process);
    assert_eq!(submit(&process, &document()).status, 201);
    let mut tap = with_server(&process, dir.path(), &["tap", "doubling", "some,twice", "--rate", "100"]);
    let mut tap = tap.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(tap.stdout.take().unwrap()).lines();
    // The tap opens at some moment, and shows what comes then.
    let shown = std::sync::OnceLock::new();
    std::thread::scope(|scope| {
        scope.spawn(|| shown.set(lines.next().unwrap().unwrap()).unwrap());
        let mut n = 1;
        eventually("the tap shows a record", || {
            append(&process, n..n + 1);
            n += 4;
            shown.get().is_some()
        });
    });
    let record: Value = serde_json::from_str(shown.get().unwrap()).unwrap();
    assert!(record["value"]["n"].is_u64() && record["key"].is_string(), "{record:#}");
    interrupt(&tap);
    assert!(tap.wait().unwrap().success(), "Ctrl-C ends a tap in order");

    let graph = printed(&command(&process, dir.path(), &["graph", "doubling"]));
    let width = graph.lines().nth(2).and_then(|head| head.find("TYPE")).unwrap();
    let name = |line: &str| line.chars().take(width).collect::<String>().trim_end().to_owned();
    let nodes: Vec<String> = graph.lines().skip(3).map(name).collect();
    assert!(graph.starts_with("doubling (") && graph.contains(" is running at "), "{graph}");
    assert_eq!(nodes, ["in", "└ some", "  └ twice", "    └ out"], "{graph}");
    let told = printed(&command(&process, dir.path(), &["--json", "graph", "doubling"]));
    assert_eq!(serde_json::from_str::<Value>(&told).unwrap()["edges"].as_array().unwrap().len(), 3);
    let refused = command(&process, dir.path(), &["tap", "doubling", "in,out"]);
    assert!(!refused.status.success() && text(&refused.stderr).contains("in,some"), "{refused:?}");

    let open_taps = |count: u64| {
        let line = format!("millstream_job_taps {count}");
        eventually("the taps are as many", || process.get("/metrics").text().lines().any(|found| found == line));
    };
    open_taps(0);
    let ended =
        with_server(&process, dir.path(), &["tap", "doubling", "in,some"]).stderr(Stdio::piped()).spawn().unwrap();
    open_taps(1);
    printed(&command(&process, dir.path(), &["stop", "doubling"]));
    let ended = ended.wait_with_output().unwrap();
    assert!(ended.status.success() && text(&ended.stderr).contains("the job is stopped: "), "{ended:?}");
    process.stop();
}
