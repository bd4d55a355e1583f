//! Jobs that go on from earlier ones and take their places, over HTTP, from the command line, and over kills of the server.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use millstream_testkit::{Answer, Process, Server, ask, eventually, millstream, try_ask};
use serde_json::{Value, json};

use crate::jobs::{JSON, append, command, create_topics, kills, printed, submit};

/// Records that are appended at once.
const STEP: u64 = 200;

/// A job that counts the numbers of each key; `twice` is how often it doubles them.
pub(crate) fn counts(version: u64) -> Value {
    json!({
        "version": 1, "kind": "Job", "name": "counts", "delivery": "exactly_once", "checkpoint": {"interval": "20ms"},
        "sources": {"in": {"type": "stream", "config": {"topic": "numbers"}, "batch": {"size": 50}}},
        "transforms": {"counts": {
            "type": "map", "inputs": ["in"], "key_by": ["$key"], "parallelism": 1 + version % 3,
            "select": format!("n, RUNNING_COUNT(n) AS count, {version} AS version"),
        }},
        "sinks": {"out": {"type": "stream", "inputs": ["counts"], "config": {"topic": "doubled"}}},
    })
}

fn replace(server: &impl Server, document: &Value) -> Answer {
    let path = "/api/jobs?replace=true&timeout=20s";
    ask(server.applications(), "POST", path, &[JSON], document.to_string().as_bytes())
}

/// Number and count of each result by key, in their order.
pub(crate) fn counted(server: &impl Server) -> BTreeMap<String, Vec<(u64, u64)>> {
    let (mut found, mut from): (BTreeMap<String, Vec<(u64, u64)>>, _) = (BTreeMap::new(), "earliest".to_owned());
    loop {
        let page = server.get_json(&format!("/api/streams/doubled?from={from}&limit=1000"));
        let records = page["records"].as_array().unwrap();
        for record in records {
            let (key, value) = (record["key"].as_str().unwrap(), &record["value"]);
            let of = (value["n"].as_u64().unwrap(), value["count"].as_u64().unwrap());
            found.entry(key.to_owned()).or_default().push(of);
        }
        if records.is_empty() {
            return found;
        }
        page["next"].as_str().unwrap().clone_into(&mut from);
    }
}

/// Each number is counted once, in order, and with all before it.
pub(crate) fn expected(count: u64) -> BTreeMap<String, Vec<(u64, u64)>> {
    let of_key = |key: u64| (0..count).filter(|n| n % 5 == key).zip(1..).collect();
    (0..5).map(|key| (format!("k{key}"), of_key(key))).collect()
}

pub(crate) fn total(found: &BTreeMap<String, Vec<(u64, u64)>>) -> u64 {
    found.values().map(|results| results.len() as u64).sum()
}

pub(crate) fn running(server: &impl Server) -> Vec<Value> {
    let jobs = server.get_json("/api/jobs");
    let is_open = |job: &&Value| matches!(job["state"].as_str(), Some("starting" | "running" | "paused"));
    jobs.as_array().unwrap().iter().filter(is_open).cloned().collect()
}

#[test]
fn a_job_is_replaced_and_its_checkpoints_and_state_are_listed() {
    let server = crate::tenant();
    create_topics(&server);
    append(&server, 0..100);
    let first = submit(&server, &counts(1));
    assert_eq!(first.status, 201, "{}", first.text());
    eventually("all are counted", || counted(&server) == expected(100));
    let taken = submit(&server, &counts(2));
    assert_eq!((taken.status, &taken.json()["code"]), (409, &json!("job_name_taken")), "{}", taken.text());

    let mut wrong = counts(2);
    wrong["resume_from"] = json!({"job": "counts", "map": {"counts": "count"}});
    let refused = replace(&server, &wrong);
    let finding = &refused.json()["findings"][0];
    assert_eq!((refused.status, &finding["path"]), (422, &json!("resume_from.map.counts")), "{}", refused.text());
    assert_eq!(finding["nearest"], "counts");

    let second = replace(&server, &counts(2));
    assert_eq!((second.status, &second.json()["replaced"]), (201, &first.json()["id"]), "{}", second.text());
    append(&server, 100..200);
    eventually("it goes on", || counted(&server) == expected(200));
    let (first, second) = (first.json(), second.json());
    let path = |job: &Value, rest: &str| format!("/api/jobs/{}{rest}", job["id"].as_str().unwrap());
    let job = server.get_json(&path(&second, ""));
    assert_eq!(job["resumed_from"], first["id"]);
    let listed = server.get_json(&path(&second, "/checkpoints"));
    let epochs: Vec<u64> =
        listed["checkpoints"].as_array().unwrap().iter().map(|one| one["epoch"].as_u64().unwrap()).collect();
    assert!(epochs.len() > 1 && epochs.is_sorted_by(|one, next| one > next), "{listed:#}");
    assert!(listed["checkpoints"][0]["took_ms"].is_f64() && listed["checkpoints"][0]["at"].is_string(), "{listed:#}");
    let stored = server.get_json(&path(&first, "/checkpoints"));
    assert_eq!(stored["checkpoints"].as_array().unwrap().len(), 1, "an ended job has its last one: {stored:#}");
    assert_eq!((&listed["nodes"], &stored["nodes"]), (&json!(["counts"]), &json!(["counts"])));
    assert_eq!(ask(server.applications(), "GET", "/api/jobs/none/checkpoints", &[], b"").status, 404);
    let state = server.get_json(&path(&second, "/state?node=counts&limit=3"));
    let keys: Vec<&Value> = state["values"].as_array().unwrap().iter().map(|one| &one["key"]).collect();
    assert_eq!((keys, &state["more"]), (vec![&json!("k0"), &json!("k1"), &json!("k2")], &json!(true)), "{state:#}");
    assert!(state["epoch"].is_u64() && state["at"].is_string() && state["values"][0]["bytes"].as_u64() > Some(8));
    for key in ["k4", "%22k4%22"] {
        let one = server.get_json(&path(&first, &format!("/state?node=counts&key={key}")));
        assert_eq!((&one["values"][0]["key"], &one["more"]), (&json!("k4"), &json!(false)), "{one:#}");
        assert_eq!(one["values"].as_array().unwrap().len(), 1);
    }
    let unknown = ask(server.applications(), "GET", &path(&second, "/state?node=in"), &[], b"");
    assert!(unknown.status == 404 && unknown.text().contains("use one of counts"), "{}", unknown.text());
    assert_eq!(ask(server.applications(), "GET", &path(&second, "/state?node=counts&limit=0"), &[], b"").status, 400);
    let odd = ask(server.applications(), "POST", "/api/jobs?replace=true&timeout=soon", &[JSON], b"{}");
    assert_eq!(odd.status, 400, "{}", odd.text());
}

#[test]
fn submit_replaces_and_watches_a_file_and_goes_on_behind_a_refusal() {
    let dir = tempfile::tempdir().unwrap();
    let server = crate::tenant();
    create_topics(&server);
    append(&server, 0..50);
    let write = |document: &Value| std::fs::write(dir.path().join("job.json"), document.to_string()).unwrap();
    write(&counts(1));
    let first = printed(&command(&server, dir.path(), &["submit", "job.json"])).trim().to_owned();
    let second = printed(&command(&server, dir.path(), &["submit", "--replace", "job.json"])).trim().to_owned();
    assert_eq!(server.get_json(&format!("/api/jobs/{second}"))["resumed_from"], json!(first));
    let shown = printed(&command(&server, dir.path(), &["show", &second]));
    assert!(shown.contains(&format!("resumed_from  {first}")), "{shown}");

    let mut watching = millstream();
    watching.args(["job", "submit", "--watch", "job.json", "--server", &server.applications_url()]);
    watching.args(["--tenant", server.tenant()]).current_dir(dir.path());
    let mut watching = watching.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut ids = BufReader::new(watching.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut faults = BufReader::new(watching.stderr.take().unwrap()).lines().map(Result::unwrap);
    let third = ids.next().unwrap();
    let mut wrong = counts(2);
    wrong["sorces"] = json!({});
    write(&wrong);
    assert!(faults.any(|line| line.contains("sorces")));
    assert_eq!(running(&server)[0]["id"], json!(third), "the old one goes on");
    write(&counts(3));
    let fourth = ids.next().unwrap();
    assert_eq!(server.get_json(&format!("/api/jobs/{fourth}"))["resumed_from"], json!(third));
    assert!(Command::new("kill").args(["-INT", &watching.id().to_string()]).status().unwrap().success());
    watching.wait().unwrap();
    append(&server, 50..100);
    eventually("the job goes on", || counted(&server) == expected(100));
}

#[test]
fn one_of_two_jobs_runs_and_nothing_is_counted_twice_however_often_the_server_is_killed_in_a_replacement() {
    let dir = tempfile::tempdir().unwrap();
    // These deaths are not the job's.
    let start = || Process::start_on(dir.path(), &["--set=flow.crashes_max=0"]);
    let mut process = start();
    create_topics(&process);
    assert_eq!(submit(&process, &counts(0)).status, 201);
    let mut count = 0;
    for round in 0..kills() {
        append(&process, count..count + STEP);
        count += STEP;
        let applications = process.applications;
        let replacing = std::thread::spawn(move || {
            let body = counts(round + 1).to_string();
            // The server goes away meanwhile.
            try_ask(applications, "POST", "/api/jobs?replace=true", &[JSON], body.as_bytes())
                .map(|answer| answer.status)
        });
        // Moments spread over the time that a replacement takes, from before it begins to after its end.
        std::thread::sleep(Duration::from_millis(round * 23 % 150));
        process.kill();
        let answer = replacing.join().unwrap();
        process = start();
        eventually("one of the two runs", || {
            let open = running(&process);
            open.len() == 1 && open[0]["state"] == "running"
        });
        if answer == Some(201) {
            let job = &running(&process)[0];
            assert!(job["resumed_from"].is_string(), "an answer that was given holds: {job:#}");
        }
    }
    eventually("all are counted", || total(&counted(&process)) >= count);
    assert_eq!(counted(&process), expected(count));
    process.stop();
}
