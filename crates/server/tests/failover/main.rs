//! Servers on Kafka: one works, another stands by and takes over when the first is gone; and brokers that are gone for long.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod load;
mod migrated_access;
mod migrated_jobs;
mod migration;
mod migration_faults;
mod outage;
mod rounds;
mod takeover;

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;

use millstream_testkit::{Process, Server as _, ask, eventually, kafka_arguments, millstream, own_addresses, try_ask};
use serde_json::json;

/// A server with a data directory of its own and the topics of `installation`, which listens once it works.
fn start(installation: &Path, dir: &Path) -> Process {
    std::fs::create_dir_all(dir).unwrap();
    let arguments = kafka_arguments(installation);
    // A few seconds are long for a test; a machine that stalls for as long only makes it slower.
    let quick = ["--set", "log.kafka.session_timeout_ms=3000", "--set", "history.flush_interval_ms=500"];
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).chain(quick).collect();
    Process::start_on(dir, &arguments)
}

fn stand_by(installation: &Path, dir: &Path) -> JoinHandle<Process> {
    let (installation, dir) = (installation.to_owned(), dir.to_owned());
    std::thread::spawn(move || start(&installation, &dir))
}

/// As [`stand_by`], with addresses of its own, by which it answers while it waits.
fn stand_by_at(installation: &Path, dir: &Path, addresses: [SocketAddr; 2]) -> JoinHandle<Process> {
    let (installation, dir) = (installation.to_owned(), dir.to_owned());
    std::thread::spawn(move || {
        std::fs::create_dir_all(&dir).unwrap();
        let arguments = kafka_arguments(&installation);
        let arguments: Vec<&str> =
            arguments.iter().map(String::as_str).chain(["--set", "log.kafka.session_timeout_ms=3000"]).collect();
        Process::start_at(millstream(), &dir, addresses, &arguments)
    })
}

fn signal(pid: u32, signal: &str) {
    assert!(Command::new("kill").args([signal, &pid.to_string()]).status().unwrap().success());
}

/// `true` once a process has ended with all its threads: until then it may hold its data directory.
fn has_ended(process: &Process) -> bool {
    let of_process = format!("/proc/{}", process.id());
    let is_alone = std::fs::read_dir(format!("{of_process}/task")).is_ok_and(|threads| threads.count() == 1);
    let status = std::fs::read_to_string(format!("{of_process}/status"));
    is_alone && status.is_ok_and(|status| status.lines().any(|line| line.starts_with("State:") && line.contains('Z')))
}

/// Waits until a server tells that no broker answers: it refuses everything at once from then on.
fn until_told(server: &Process) {
    eventually("it is told that no broker answers", || {
        let told = server.get("/readyz");
        told.status == 503 && told.text().contains("no broker has answered")
    });
}

/// The last value of each entity that was acknowledged.
struct Ledger {
    values: Vec<u64>,
}

impl Ledger {
    const ENTITIES: usize = 20;

    fn create(server: &Process) -> Self {
        for number in 0..Self::ENTITIES {
            let entity = json!({"id": format!("e{number}"), "type": "T", "n": {"value": 0}}).to_string();
            let created = ask(
                server.applications(),
                "POST",
                "/v2/entities",
                &[("Content-Type", "application/json")],
                entity.as_bytes(),
            );
            assert_eq!(created.status, 201, "{}", created.text());
        }
        Self { values: vec![0; Self::ENTITIES] }
    }

    /// Raises the value of every entity; each raise is acknowledged.
    fn raise(&mut self, server: &Process) {
        for (number, value) in self.values.iter_mut().enumerate() {
            let change = json!({"n": {"value": *value + 1}}).to_string();
            let path = format!("/v2/entities/e{number}/attrs");
            let answer =
                ask(server.applications(), "PATCH", &path, &[("Content-Type", "application/json")], change.as_bytes());
            assert_eq!(answer.status, 204, "{}", answer.text());
            *value += 1;
        }
    }

    fn check(&self, server: &Process) {
        for (number, value) in self.values.iter().enumerate() {
            let found = server.get_json(&format!("/v2/entities/e{number}/attrs/n/value"));
            assert_eq!(found, json!(value), "entity {number}");
        }
    }

    /// Checks that history has every value once, in files or not, and misses no file.
    fn check_history(&self, server: &Process) {
        for (number, value) in self.values.iter().enumerate() {
            let found = server.get_json(&format!("/ngsi-ld/v1/temporal/entities/e{number}?options=temporalValues"));
            let points = found["n"]["values"].as_array().unwrap();
            let values: Vec<_> = points.iter().map(|point| point[0].clone()).collect();
            assert_eq!(values, (0..=*value).map(|value| json!(value)).collect::<Vec<_>>(), "entity {number}: {found}");
        }
        let ready = server.get("/readyz").text();
        assert!(!ready.contains("degraded: history"), "{ready}");
    }
}

#[test]
fn a_server_that_stands_by_takes_over_from_one_that_is_killed_paused_or_stopped() {
    let installation = tempfile::tempdir().unwrap();
    let [one, two] = ["one", "two"].map(|name| installation.path().join(name));
    let first = start(installation.path(), &one);
    let mut ledger = Ledger::create(&first);
    ledger.raise(&first);
    let second = stand_by(installation.path(), &two);
    // It would listen within seconds if it did not wait.
    for _ in 0..50 {
        ledger.raise(&first);
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    assert!(!second.is_finished(), "two servers work at a time");
    first.kill();
    let second = second.join().unwrap();
    ledger.check(&second);
    ledger.raise(&second);
    ledger.check_history(&second);

    let third = stand_by(installation.path(), &one);
    signal(second.id(), "-STOP");
    let third = third.join().unwrap();
    ledger.check(&third);
    ledger.raise(&third);
    signal(second.id(), "-CONT");
    let change = json!({"n": {"value": "of the former one"}}).to_string();
    let headers = [("Content-Type", "application/json")];
    eventually("the former server ends", || {
        let answer = try_ask(second.applications, "PATCH", "/v2/entities/e0/attrs", &headers, change.as_bytes());
        if let Some(answer) = answer {
            assert!(answer.status >= 500, "the former server has taken a change: {}", answer.status);
        }
        has_ended(&second)
    });
    ledger.check(&third);

    let fourth = stand_by(installation.path(), &two);
    third.stop();
    let fourth = fourth.join().unwrap();
    ledger.check(&fourth);
    ledger.raise(&fourth);
    ledger.check(&fourth);
    // Files are moved to another machine while that goes on, and are read all the same.
    ledger.check_history(&fourth);
    let files = || files_below(&two.join("history")).len();
    eventually("it has files", || files() > 0);
    ledger.check_history(&fourth);
}

fn files_below(dir: &Path) -> Vec<std::path::PathBuf> {
    let Ok(entries) = std::fs::read_dir(dir) else { return Vec::new() };
    let paths = entries.map(|entry| entry.unwrap().path());
    paths.flat_map(|path| if path.is_dir() { files_below(&path) } else { vec![path] }).collect()
}

#[test]
fn a_server_alone_goes_on_after_a_pause_and_after_a_kill_without_a_wait() {
    let installation = tempfile::tempdir().unwrap();
    let dir = installation.path().join("one");
    let first = start(installation.path(), &dir);
    let mut ledger = Ledger::create(&first);
    ledger.raise(&first);
    signal(first.id(), "-STOP");
    std::thread::sleep(std::time::Duration::from_secs(5));
    signal(first.id(), "-CONT");
    ledger.raise(&first);
    eventually("it is known that nobody has taken over", || first.get("/readyz").status == 200);
    ledger.check(&first);
    first.kill();
    let again = start(installation.path(), &dir);
    ledger.check(&again);
    ledger.raise(&again);
    assert_eq!(again.get("/readyz").status, 200);
    eventually("its topics are told with their sizes", || {
        again.get("/metrics").text().lines().any(|line| line.starts_with("millstream_topic_stable_offsets"))
    });
}

#[test]
fn a_server_that_stands_by_says_for_whom_it_waits_and_refuses_the_rest() {
    let installation = tempfile::tempdir().unwrap();
    let [one, two] = ["one", "two"].map(|name| installation.path().join(name));
    let first = start(installation.path(), &one);
    let ready = first.get("/readyz");
    assert_eq!((ready.status, ready.text().as_str()), (200, "ready\nlog: Apache Kafka, 1 of 1 brokers answer\n"));
    let engine = &first.get_json("/stats")["log"]["engine"];
    assert_eq!(engine["name"], "kafka");
    assert!(engine["brokers"][0]["address"].is_string() && engine["brokers"][0]["silent_s"].is_null(), "{engine}");
    assert_eq!((&engine["troubles"], &engine["warnings"]), (&json!([]), &json!([])));
    let info = first.get_json("/stats")["log"]["topics"][0].clone();
    assert!(info["partitions"][0]["segments"].is_null(), "{info}");
    assert!(!first.get("/metrics").text().contains("millstream_topic_segments"));

    let addresses = own_addresses();
    let second = stand_by_at(installation.path(), &two, addresses);
    let waits = format!("stands by: process {} on ", first.id());
    eventually("the second one says for whom it waits", || {
        let told = try_ask(addresses[0], "GET", "/readyz", &[], b"");
        told.is_some_and(|told| told.status == 503 && told.text().starts_with(&waits))
    });
    assert_eq!(ask(addresses[0], "GET", "/healthz", &[], b"").status, 200);
    let url = format!("http://{}", addresses[0]);
    let health = millstream().args(["health", "--server", &url]).output().unwrap();
    assert_eq!(health.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&health.stderr).contains(&waits), "{health:?}");
    for (method, path) in
        [("GET", "/"), ("GET", "/v2/entities"), ("PUT", "/kv/b/k"), ("DELETE", "/a/b"), ("GET", "/metrics")]
    {
        let body: &[u8] = if method == "GET" { b"" } else { b"{}" };
        let refused = ask(addresses[0], method, path, &[("Content-Type", "application/json")], body);
        assert_eq!(refused.status, 503, "{path}: {}", refused.text());
        assert!(refused.header("retry-after").is_some(), "{path}");
    }
    let entity = br#"{"id": "e", "type": "T"}"#;
    let refused = ask(addresses[0], "POST", "/v2/entities", &[("Content-Type", "application/json")], entity);
    assert!(refused.status == 503 && refused.text().contains(&waits), "{}", refused.text());

    first.stop();
    let second = second.join().unwrap();
    assert_eq!(second.applications, addresses[0]);
    assert_eq!(second.get("/readyz").status, 200);
    assert_eq!(second.get_json("/v2/entities"), json!([]), "nothing of what was refused is there");
}

/// A process that starts and tells what it does.
fn begin(installation: &Path, dir: &Path) -> Child {
    std::fs::create_dir_all(dir).unwrap();
    let mut server = millstream();
    server.args(["serve", "--listen-kafka", "off", "--listen-applications", "127.0.0.1:0", "--data-dir"]).arg(dir);
    server.args(["--listen-devices-http", "127.0.0.1:0", "--listen-devices-mqtt", "127.0.0.1:0"]);
    server.args(["--set", "log.kafka.session_timeout_ms=600000"]).args(kafka_arguments(installation));
    server.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
}

#[test]
fn a_server_that_is_stopped_while_it_starts_leaves_nobody_waiting() {
    let installation = tempfile::tempdir().unwrap();
    for name in ["one", "two", "three"] {
        let mut starting = begin(installation.path(), &installation.path().join(name));
        let mut told = BufReader::new(starting.stderr.take().unwrap()).lines().map_while(Result::ok);
        let of_claims =
            |line: &String| line.contains("works with the log from now on") || line.contains("this one waits");
        let line = told.find(of_claims);
        signal(starting.id(), "-TERM");
        assert!(starting.wait().unwrap().success());
        assert!(line.as_ref().is_some_and(|line| line.contains("from now on")), "{name}: {line:?}");
    }
}
