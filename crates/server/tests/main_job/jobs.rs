//! Stream jobs in a real server: submitted over HTTP and from the command line, restarted, and killed.

use std::collections::HashMap;
use std::path::Path;
use std::process::Output;

use millstream_testkit::{Answer, Process, Server, ask, eventually, millstream};
use serde_json::{Value, json};

use millstream_testkit::guide::blocks;

use crate::tokens::make;

pub(crate) const JSON: (&str, &str) = ("Content-Type", "application/json");

/// Number of times that the server is killed meanwhile; `MILLSTREAM_JOB_KILLS` or `MILLSTREAM_KILLS` sets another number.
const KILLS: u64 = 8;
const KEYS: u64 = 5;
/// The first of the records that are appended in the end.
const AHEAD: u64 = 1_000_000;
/// Records that are appended at once.
const STEP: u64 = 200;

pub(crate) fn document() -> Value {
    json!({
        "version": 1, "kind": "Job", "name": "doubling", "labels": {"team": "tests"},
        "sources": {"in": {"type": "stream", "config": {"topic": "numbers"}, "batch": {"size": 50}}},
        "transforms": {
            "some": {"type": "filter", "inputs": ["in"], "where": "n % 4 != 0"},
            "twice": {"type": "map", "inputs": ["some"], "select": "n, n * 2 AS twice"},
        },
        "sinks": {"out": {"type": "stream", "inputs": ["twice"], "config": {"topic": "doubled"}}},
    })
}

pub(crate) fn create_topics(server: &impl Server) {
    for topic in ["numbers", "doubled"] {
        let created = ask(server.applications(), "PUT", &format!("/api/streams/{topic}"), &[JSON], b"{}");
        assert_eq!(created.status, 201, "{}", created.text());
    }
}

pub(crate) fn append(server: &impl Server, numbers: impl Iterator<Item = u64>) {
    let records: Value = numbers.map(|n| json!({"key": format!("k{}", n % KEYS), "value": {"n": n}})).collect();
    let body = records.to_string();
    let stored = ask(server.applications(), "POST", "/api/streams/numbers/records", &[JSON], body.as_bytes());
    assert_eq!(stored.status, 200, "{}", stored.text());
}

/// The numbers that the job wrote for each key, in their order.
fn written(server: &impl Server) -> HashMap<String, Vec<u64>> {
    let (mut found, mut from): (HashMap<String, Vec<u64>>, _) = (HashMap::new(), "earliest".to_owned());
    loop {
        let page = server.get_json(&format!("/api/streams/doubled?from={from}&limit=1000"));
        let records = page["records"].as_array().unwrap();
        for record in records {
            let (key, value) = (record["key"].as_str().unwrap(), &record["value"]);
            assert_eq!(value["twice"].as_u64().unwrap(), 2 * value["n"].as_u64().unwrap());
            found.entry(key.to_owned()).or_default().push(value["n"].as_u64().unwrap());
        }
        if records.is_empty() {
            return found;
        }
        page["next"].as_str().unwrap().clone_into(&mut from);
    }
}

/// The numbers that the job must write for a key, in order.
fn expected(key: u64, count: u64) -> Vec<u64> {
    (0..count).filter(|n| n % KEYS == key && n % 4 != 0).collect()
}

fn all_are_there(server: &impl Server, count: u64) -> bool {
    let found = written(server);
    (0..KEYS).all(|key| {
        found.get(&format!("k{key}")).and_then(|numbers| numbers.iter().max()) == expected(key, count).last()
    })
}

pub(crate) fn submit(server: &impl Server, document: &Value) -> Answer {
    ask(server.applications(), "POST", "/api/jobs", &[JSON], document.to_string().as_bytes())
}

fn resume(server: &impl Server, id: &str) -> Answer {
    ask(server.applications(), "POST", &format!("/api/jobs/{id}/resume"), &[], b"")
}

pub(crate) fn command(server: &impl Server, dir: &Path, arguments: &[&str]) -> Output {
    let to = ["--server", &server.applications_url(), "--tenant", server.tenant()];
    millstream().arg("job").args(arguments).args(to).current_dir(dir).output().unwrap()
}

pub(crate) fn printed(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_job_is_submitted_looked_at_and_stopped_over_http() {
    let server = crate::tenant();
    create_topics(&server);
    append(&server, 0..100);
    let mut job = document();
    job["id"] = "d1".into();
    let first = submit(&server, &job);
    assert_eq!(first.status, 201, "{}", first.text());
    assert_eq!(first.json()["id"], "d1");
    assert_eq!(submit(&server, &job).status, 200, "the same document again");
    eventually("the records are there", || all_are_there(&server, 100));
    let mut other = job.clone();
    other["doc"] = "other".into();
    let refused = submit(&server, &other);
    assert_eq!((refused.status, &refused.json()["code"]), (409, &json!("incorrect_job_hash")), "{}", refused.text());
    other["id"] = "d2".into();
    let refused = submit(&server, &other);
    assert_eq!((refused.status, &refused.json()["code"]), (409, &json!("job_name_taken")), "{}", refused.text());

    other["name"] = "foreign".into();
    other["sources"]["in"]["config"]["topic"] = "telemetry.acme".into();
    let refused = submit(&server, &other);
    let finding = &refused.json()["findings"][0];
    assert_eq!((refused.status, &finding["path"]), (422, &json!("sources.in.config.topic")), "{}", refused.text());
    assert_eq!((&finding["rule"], &finding["line"]), (&json!("topic_access"), &json!(1)));

    let listed = server.get_json("/api/jobs?label=team=tests&state=running");
    assert_eq!((listed.as_array().unwrap().len(), &listed[0]["records_in"]), (1, &json!(100)));
    let refused = ask(server.applications(), "GET", "/api/jobs?state=nonsense", &[], b"");
    let problem = refused.json();
    assert_eq!((refused.status, &problem["value"]), (400, &json!("nonsense")), "{problem}");
    let rule = "a state is one of: starting, running, paused, stopped, completed, killed, failed";
    assert_eq!(problem["rule"], rule, "{problem}");
    let shown = server.get_json("/api/jobs/d1");
    assert_eq!(shown["document"], job);
    let names: Vec<_> = shown["nodes"].as_array().unwrap().iter().map(|node| node["name"].clone()).collect();
    assert_eq!(names, ["in", "some", "twice", "out"]);
    assert_eq!(server.get_json("/api/jobs/d1/graph")["edges"].as_array().unwrap().len(), 3);
    assert_eq!(server.get_json("/api/jobs/d1/errors"), json!([]));

    let stopped = ask(server.applications(), "POST", "/api/jobs/d1/stop", &[JSON], b"{}");
    assert_eq!(stopped.status, 202, "{}", stopped.text());
    assert_eq!(server.get_json("/api/jobs/d1/wait?timeout=30s")["state"], "stopped");
    assert_eq!(server.get_json("/api/jobs/by-name/doubling")[0]["id"], "d1");
    assert_eq!(server.get("/api/jobs/none").status, 404);
    assert_eq!(server.get("/api/jobs/by-name/none").status, 404);
}

#[test]
fn a_job_over_the_limit_is_refused_with_a_time_to_come_again() {
    let dir = tempfile::tempdir().unwrap();
    let process = Process::start_on(dir.path(), &["--set", "flow.jobs_max=1"]);
    create_topics(&process);
    assert_eq!(submit(&process, &document()).status, 201);
    let mut other = document();
    other["name"] = "other".into();
    let refused = submit(&process, &other);
    assert_eq!(refused.status, 503, "{}", refused.text());
    assert!(refused.header("retry-after").is_some() && refused.text().contains("flow.jobs_max"), "{}", refused.text());
    assert_eq!(process.get_json("/api/jobs").as_array().unwrap().len(), 1);
    process.stop();
}

#[test]
fn a_job_that_runs_whenever_the_server_goes_down_comes_back_paused_and_the_server_is_up() {
    let dir = tempfile::tempdir().unwrap();
    let process = Process::start(dir.path());
    create_topics(&process);
    let mut job = document();
    job["id"] = "d1".into();
    assert_eq!(submit(&process, &job).status, 201);
    let state = |process: &Process| process.get_json("/api/jobs/d1/status")["state"].clone();
    let runs = |process: &Process| eventually("the job runs", || state(process) == "running");
    runs(&process);
    process.kill();
    for _ in 0..2 {
        let process = Process::start(dir.path());
        runs(&process);
        process.kill();
    }
    let process = Process::start(dir.path());
    let status = process.get_json("/api/jobs/d1/status");
    assert_eq!(status["state"], "paused", "{status}");
    assert!(status["reason"].as_str().unwrap().contains("went down 3 times in a row"), "{status}");
    assert_eq!(process.get_json("/api/jobs?state=paused").as_array().unwrap().len(), 1);
    assert_eq!(process.get("/readyz").status, 200);
    assert_eq!([resume(&process, "d1").status, resume(&process, "d1").status], [204, 204]);
    runs(&process);
    assert_eq!(resume(&process, "none").status, 404);
    process.stop();
    // An orderly end: the deaths before it do not count any more.
    let process = Process::start(dir.path());
    runs(&process);
    assert_eq!(ask(process.applications, "DELETE", "/api/jobs/d1", &[], b"").status, 204);
    let refused = resume(&process, "d1");
    assert_eq!((refused.status, refused.json()["code"].clone()), (409, json!("job_not_paused")));
    process.stop();
}

#[test]
fn a_wrong_document_is_refused_with_all_its_faults_and_nothing_stays_behind() {
    let server = crate::tenant();
    let mut job = document();
    job["transforms"]["some"]["inputs"] = json!(["inn"]);
    job["sinks"]["out"]["config"]["tpic"] = "x".into();
    for path in ["/api/jobs", "/api/jobs/validate"] {
        let refused = ask(server.applications(), "POST", path, &[JSON], job.to_string().as_bytes());
        assert_eq!(refused.status, 422, "{}", refused.text());
        let findings = refused.json()["findings"].clone();
        let found: Vec<_> = findings
            .as_array()
            .unwrap()
            .iter()
            .map(|finding| finding["nearest"].as_str().unwrap_or_default())
            .collect();
        assert!(found.contains(&"in") && found.contains(&"topic"), "{findings:#}");
    }
    assert_eq!(server.get_json("/api/jobs"), json!([]));
    assert_eq!(ask(server.applications(), "POST", "/api/jobs", &[JSON], b"\xff").status, 400);
}

#[test]
fn tests_of_a_document_run_on_a_server_and_without_one() {
    let dir = tempfile::tempdir().unwrap();
    let server = crate::tenant();
    let mut job = document();
    job["tests"] = json!([
        {"name": "odd numbers", "inject": {"in": [{"n": 1}, {"n": 4}]}, "expect": {"out": [{"twice": 2}]}},
        {"name": "wrong", "inject": {"twice": [{"n": 3}]}, "expect": {"out": [{"n": 3, "twice": 7}]}},
    ]);
    let text = job.to_string();
    let answer = ask(server.applications(), "POST", "/api/jobs/test?batch=1", &[JSON], text.as_bytes());
    assert_eq!(answer.status, 200, "{}", answer.text());
    let report = answer.json();
    let tests = report["tests"].as_array().unwrap();
    assert_eq!(
        (&report["passed"], &tests[0]["passed"], &tests[1]["passed"]),
        (&json!(false), &json!(true), &json!(false))
    );
    let message = r#"{"n":3,"twice":6}: twice is 6, expected 7"#;
    assert_eq!(tests[1]["differences"][0]["message"], message);
    assert_eq!(ask(server.applications(), "POST", "/api/jobs/test?batch=0", &[JSON], text.as_bytes()).status, 400);
    assert_eq!(ask(server.applications(), "POST", "/api/jobs/test", &[JSON], b"{}").status, 422);
    assert_eq!(server.get_json("/api/jobs"), json!([]), "a test submits nothing");

    let run = |arguments: &[&str]| {
        let output = millstream().args(["job", "test"]).args(arguments).current_dir(dir.path()).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    std::fs::write(dir.path().join("job.json"), &text).unwrap();
    let (status, shown, told) = run(&["job.json"]);
    assert_eq!(status, Some(1), "{told}");
    assert!(shown.contains("odd numbers") && shown.contains(&format!("out: {message}")), "{shown}");
    assert!(told.contains("1 of 2 tests failed"), "{told}");
    std::fs::write(dir.path().join("bad.yaml"), "version: 1\nkind: Job\nname: x\nsorces: {}\n").unwrap();
    let (status, shown, _) = run(&["bad.yaml"]);
    assert!(status == Some(1) && shown.contains("bad.yaml:4:1 ") && shown.contains("sources"), "{shown}");
    job["tests"].as_array_mut().unwrap().pop();
    std::fs::write(dir.path().join("job.json"), job.to_string()).unwrap();
    let (status, shown, told) = run(&["--json", "--batch", "7", "job.json"]);
    assert_eq!(status, Some(0), "{told}");
    assert_eq!(serde_json::from_str::<Value>(&shown).unwrap()["passed"], true);
}

#[test]
fn a_reader_looks_at_jobs_and_a_writer_submits_them() {
    let server = crate::tenant_with_logins();
    // A job that reads a topic needs both roles.
    let token = |name: &str, roles: Value| {
        let new = json!({"name": format!("{name}-of-{}", server.tenant()), "tenant": server.tenant(), "roles": roles});
        make(&server, crate::ROOT, &new)
    };
    let (reader, writer) = (&*token("reader", json!(["reader"])), &*token("writer", json!(["reader", "writer"])));
    let call = |token: &str, method: &str, path: &str, body: &[u8]| {
        let bearer = format!("Bearer {token}");
        ask(server.applications(), method, path, &[JSON, ("Authorization", &bearer)], body).status
    };
    let body = document().to_string();
    assert_eq!(call(reader, "POST", "/api/jobs", body.as_bytes()), 403);
    assert_eq!(call(writer, "POST", "/api/jobs", body.as_bytes()), 201);
    assert_eq!(call(reader, "GET", "/api/jobs", b""), 200);
    assert_eq!(call(reader, "DELETE", "/api/jobs/x", b""), 403);
}

#[test]
fn a_job_goes_on_after_a_restart_and_is_driven_from_the_command_line() {
    let dir = tempfile::tempdir().unwrap();
    let process = Process::start(dir.path());
    create_topics(&process);
    append(&process, 0..50);
    std::fs::write(dir.path().join("job.json"), document().to_string()).unwrap();
    let checked = printed(&command(&process, dir.path(), &["validate", "job.json"]));
    assert!(checked.starts_with("doubling is valid; hash "), "{checked}");
    let id = printed(&command(&process, dir.path(), &["submit", "job.json"])).trim().to_owned();
    eventually("the first records are there", || all_are_there(&process, 50));
    process.stop();

    let process = Process::start(dir.path());
    append(&process, 50..100);
    eventually("the next records are there", || all_are_there(&process, 100));
    let found = written(&process);
    for key in 0..KEYS {
        assert_eq!(found[&format!("k{key}")], expected(key, 100), "an orderly stop repeats nothing");
    }
    let listed = printed(&command(&process, dir.path(), &["list"]));
    assert!(listed.starts_with("ID") && listed.contains(&id) && listed.contains("running"), "{listed}");
    let shown = printed(&command(&process, dir.path(), &["show", "doubling"]));
    assert!(shown.contains("NODE") && shown.contains("twice"), "{shown}");
    let connectors = printed(&command(&process, dir.path(), &["connectors"]));
    assert!(connectors.contains("source stream: ") && connectors.contains("stop_at"), "{connectors}");
    printed(&command(&process, dir.path(), &["kill", &id]));
    assert_eq!(process.get_json(&format!("/api/jobs/{id}"))["state"], "killed");
    std::fs::write(dir.path().join("bad.yaml"), "version: 1\nkind: Job\nname: x\nsorces: {}\n").unwrap();
    let refused = command(&process, dir.path(), &["submit", "bad.yaml"]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("bad.yaml:4:") && said.contains("sources"), "{said}");
    process.stop();
}

/// The number of times that a server with jobs is killed.
pub(crate) fn kills() -> u64 {
    let kills = std::env::var("MILLSTREAM_JOB_KILLS").or_else(|_| std::env::var("MILLSTREAM_KILLS"));
    kills.map_or(KILLS, |kills| kills.parse().unwrap())
}

/// The records that the job has written after a number of lives, and the number that it was given.
fn written_over_kills(document: &Value) -> (HashMap<String, Vec<u64>>, u64) {
    let kills = kills();
    let dir = tempfile::tempdir().unwrap();
    // These deaths are not the job's.
    let start = || Process::start_on(dir.path(), &["--set=flow.crashes_max=0"]);
    let mut process = start();
    create_topics(&process);
    assert_eq!(submit(&process, document).status, 201);
    let mut count = 0;
    for round in 0..kills {
        append(&process, count..count + STEP);
        count += STEP;
        // Moments spread over the time in which a step passes the job; the first ones hit its start.
        let wanted = (round * 37) % STEP;
        let begun = std::time::Instant::now();
        eventually("the job is at this round's moment", || {
            let seen = process.get_json("/api/jobs")[0]["records_in"].as_u64().unwrap_or_default();
            seen >= wanted || begun.elapsed() > std::time::Duration::from_secs(5)
        });
        process.kill();
        process = start();
    }
    // They close all windows of event time, and other jobs leave them out.
    append(&process, (AHEAD..AHEAD + 4 * KEYS).step_by(4));
    eventually("all records are there", || all_are_there(&process, count));
    let found = written(&process);
    process.stop();
    (found, count)
}

#[test]
fn no_record_of_an_exactly_once_job_is_lost_or_repeated_however_often_the_server_is_killed() {
    let mut document = document();
    (document["delivery"], document["checkpoint"]) = (json!("exactly_once"), json!({"interval": "20ms"}));
    document["transforms"]["once"] =
        json!({"type": "deduplicate", "inputs": ["some"], "key_by": ["n"], "config": {"ttl": "1h"}});
    document["transforms"]["twice"]["inputs"] = json!(["once"]);
    let (found, count) = written_over_kills(&document);
    for key in 0..KEYS {
        assert_eq!(found[&format!("k{key}")], expected(key, count), "key {key}");
    }
}

#[test]
fn each_window_is_there_once_however_often_the_server_is_killed() {
    let mut document = document();
    (document["delivery"], document["checkpoint"]) = (json!("exactly_once"), json!({"interval": "20ms"}));
    // A record that was appended beside others may be read behind them.
    document["sources"]["in"]["event_time"] =
        json!({"field": "n", "max_out_of_orderness": format!("{STEP}ms"), "idle_timeout": "1s"});
    document["transforms"] = json!({
        "some": {"type": "map", "inputs": ["in"], "where": "n % 4 != 0 OR n >= 1000000", "select": "n, $key AS key"},
        "windows": {
            "type": "aggregate", "inputs": ["some"], "key_by": ["key"], "parallelism": 2,
            "window": {"type": "tumbling", "size": "40ms"}, "aggregates": "ARRAY_AGG(n ORDER BY n) AS n",
        },
        "each": {"type": "explode", "inputs": ["windows"], "config": {"field": "n"}},
        "twice": {"type": "map", "inputs": ["each"], "select": "n, n * 2 AS twice"},
    });
    let (found, count) = written_over_kills(&document);
    for key in 0..KEYS {
        assert_eq!(found[&format!("k{key}")], expected(key, count), "key {key}");
    }
}

#[test]
fn no_record_is_lost_or_out_of_order_however_often_the_server_is_killed() {
    let (found, count) = written_over_kills(&document());
    for key in 0..KEYS {
        let expected = expected(key, count);
        let mut next = 0;
        let mut previous: Option<usize> = None;
        for number in &found[&format!("k{key}")] {
            let at = expected.binary_search(number).unwrap_or_else(|_| panic!("{number} of key {key} is no result"));
            // A repeat begins at a record that was written before, and then nothing is left out.
            let goes_on = previous.is_none_or(|previous| at == previous + 1);
            assert!(goes_on || at < next, "key {key}: {number} follows out of order");
            assert!(at <= next, "key {key}: records before {number} are missing");
            (next, previous) = (next.max(at + 1), Some(at));
        }
        assert_eq!(next, expected.len(), "key {key}");
    }
}

pub(crate) fn the_guide_to_jobs(process: &Process, dir: &Path) {
    // The first block is the filter, the second the job with routes, the third its tests; further blocks are parts of
    // other jobs.
    let documents = blocks("docs/flow.md", "yaml");
    std::fs::write(dir.join("filter.yaml"), &documents[0]).unwrap();
    std::fs::write(dir.join("warm.yaml"), documents[1..3].concat()).unwrap();
    let outputs = crate::readme::pasted("docs/flow.md", process, dir);
    let [filtered, warm, replaced, routed, listed, tested, stopped, alarms] = outputs.as_slice() else {
        panic!("docs/flow.md has {} blocks", outputs.len())
    };
    assert!(alarms.starts_with("JOB"), "{alarms}");
    assert!(filtered.contains("\"count\":2"), "{filtered}");
    assert!(warm.contains("\"key\":\"d1\"") && !warm.contains("\"key\":\"d2\""), "{warm}");
    assert!(replaced.contains("warm is valid") && replaced.lines().count() == 2, "{replaced}");
    // The second job goes on where the first has stopped: it has not read the first two records again.
    assert!(routed.contains("\"celsius\":35") && !routed.contains("\"celsius\":25"), "{routed}");
    assert!(routed.contains("cast"), "{routed}");
    assert!(listed.contains("running") && listed.contains("stopped") && listed.contains("celsius"), "{listed}");
    assert!(listed.contains("└ known") && listed.contains("└ dead"), "{listed}");
    assert_eq!(stopped.matches("  stopped  ").count(), 2, "{stopped}");
    // The guide shows what is printed.
    assert_eq!(tested, &blocks("docs/flow.md", "text")[0], "{tested}");
}

#[test]
fn the_commands_of_the_guide_to_jobs_run() {
    crate::readme::alone(the_guide_to_jobs);
}

#[test]
fn the_job_of_the_page_for_users_of_onyx_passes_its_tests() {
    let dir = tempfile::tempdir().unwrap();
    let documents = blocks("docs/flow-from-onyx.md", "yaml");
    std::fs::write(dir.path().join("people.yaml"), &documents[0]).unwrap();
    let outputs = crate::readme::pasted("docs/flow-from-onyx.md", &crate::tenant(), dir.path());
    assert!(outputs[0].contains("ok") && !outputs[0].contains("FAILED"), "{outputs:?}");
}

#[test]
fn a_job_makes_entities_of_the_lines_of_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("files/default");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::create_dir(dir.path().join("data")).unwrap();
    std::fs::write(folder.join("stations.csv"), "station,temp\na,1.5\nb,two\nc,3\n").unwrap();
    let files_dir = format!("flow.files_dir={}", dir.path().join("files").display());
    let process = Process::start_on(&dir.path().join("data"), &["--set", &files_dir]);
    let document = json!({
        "version": 1, "kind": "Job", "name": "stations", "mode": "batch",
        "sources": {"in": {"type": "file", "config": {"path": "stations.csv", "types": {"temp": "number"}}}},
        "sinks": {
            "out": {"type": "entities", "inputs": ["in"], "config": {"id": "urn:{station}", "type": "Station"}},
            "bad": {"type": "blackhole", "inputs": ["in"]},
        },
        "routes": [
            {"from": "in", "on_error": true, "to": ["bad"], "stop": true},
            {"from": "in", "to": ["out"]},
        ],
    });
    let submitted = ask(process.applications, "POST", "/api/jobs", &[JSON], document.to_string().as_bytes());
    assert_eq!(submitted.status, 201, "{}", submitted.text());
    let stations = || process.get_json("/v2/entities?type=Station&options=keyValues&orderBy=id");
    eventually("the entities are there", || stations().as_array().is_some_and(|found| found.len() == 2));
    let expected =
        json!([{"id": "urn:a", "type": "Station", "temp": 1.5}, {"id": "urn:c", "type": "Station", "temp": 3}]);
    assert_eq!(stations(), expected);
    process.stop();
}
