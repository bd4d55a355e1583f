//! The room on the disk: deletes give it back, and reads go on where there is none.

use std::path::Path;
use std::process::Command;

use millstream_testkit::resp::{Connection, command};
use millstream_testkit::{Process, ask, eventually};
use serde_json::Value;

use crate::{log_has_no_files, make, put, start};

/// Bytes of all files of the log's topics.
fn topics_bytes(dir: &Path) -> u64 {
    let entries = std::fs::read_dir(dir).map(|entries| entries.flatten().collect::<Vec<_>>()).unwrap_or_default();
    let bytes = |entry: &std::fs::DirEntry| match entry.metadata() {
        Ok(found) if found.is_dir() => topics_bytes(&entry.path()),
        Ok(found) => found.len(),
        // It was removed meanwhile.
        Err(_) => 0,
    };
    entries.iter().map(bytes).sum()
}

#[test]
fn deleted_keys_give_their_disk_back_although_nobody_writes_any_more() {
    if log_has_no_files() {
        return;
    }
    const KEYS: usize = 64;
    let dir = tempfile::tempdir().unwrap();
    let process = start(dir.path());
    make(&process, "things", r#"{"partitions": 2}"#);
    let topics = dir.path().join("log").join("topics");
    let value = vec![b'v'; 256 << 10];
    assert_eq!(put(process.applications, "/kv/things/kept", &[], b"kept").status, 201);
    for number in 0..KEYS {
        assert_eq!(put(process.applications, &format!("/kv/things/{number}"), &[], &value).status, 201);
    }
    eventually("the values to be in segments", || topics_bytes(&topics) > (KEYS * value.len()) as u64);
    let before = topics_bytes(&topics);
    for number in 0..KEYS {
        assert_eq!(ask(process.applications, "DELETE", &format!("/kv/things/{number}"), &[], b"").status, 204);
    }
    eventually("nine tenths of the disk to be given back", || topics_bytes(&topics) * 10 < before);
    assert_eq!(process.get("/kv/things/kept").body, b"kept");
    process.stop();
    let process = start(dir.path());
    assert_eq!(process.get("/kv/things/kept").body, b"kept");
    assert_eq!(process.get("/kv/things/0").status, 404);
    process.stop();
}

/// A limit of free bytes that the disk of `dir` is below by the given part of it.
fn limit_above_free(dir: &Path, eighths_free: u64) -> String {
    let told = Command::new("stat").args(["--file-system", "--format=%a %S"]).arg(dir).output().unwrap();
    let told = String::from_utf8(told.stdout).unwrap();
    let (blocks, block_bytes) = told.trim().split_once(' ').unwrap();
    let free_bytes = blocks.parse::<u64>().unwrap() * block_bytes.parse::<u64>().unwrap();
    format!("log.disk_free_min_bytes={}", free_bytes / eighths_free * 8)
}

#[test]
fn deletes_work_on_a_disk_that_is_nearly_full_and_what_is_refused_is_not_done() {
    if log_has_no_files() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let process = start(dir.path());
    let redis = |process: &Process, words: &[&str]| {
        Connection::open(&process.redis.to_string()).unwrap().ask(&command(words)).unwrap()
    };
    for bucket in ["gone", "kept"] {
        make(&process, bucket, "{}");
        for key in ["a", "b"] {
            assert_eq!(put(process.applications, &format!("/kv/{bucket}/{key}"), &[], b"value").status, 201);
        }
    }
    make(&process, "cache", r#"{"kind": "cache"}"#);
    assert!(redis(&process, &["MSET", "a", "1", "b", "2"]).is("+OK"));
    process.stop();
    let delete = |process: &Process, path: &str| ask(process.applications, "DELETE", path, &[], b"").status;

    // Nothing at all is taken: a bucket that is refused to be deleted is there, also after a restart.
    let process = Process::start_on(dir.path(), &["--set", "log.disk_free_min_bytes=1152921504606846976"]);
    eventually("the shortage is told", || put(process.applications, "/kv/kept/new", &[], b"x").status == 503);
    for path in ["/buckets/gone", "/buckets/cache", "/kv/kept/a"] {
        assert_eq!(delete(&process, path), 503, "{path}");
    }
    assert_eq!(process.get("/kv/gone/a").body, b"value");
    assert_eq!(process.get("/buckets/cache").status, 200);
    process.stop();

    let process = Process::start_on(dir.path(), &["--set", &limit_above_free(dir.path(), 7)]);
    eventually("the shortage is told", || put(process.applications, "/kv/kept/new", &[], b"x").status == 503);
    assert_eq!(process.get("/kv/gone/a").body, b"value");
    for path in ["/kv/kept/a", "/buckets/gone", "/buckets/cache"] {
        assert_eq!(delete(&process, path), 204, "{path}");
    }
    assert_eq!(redis(&process, &["DEL", "a"]).integer(), Some(1));
    assert!(redis(&process, &["SET", "c", "3"]).is_error());
    assert_eq!(put(process.applications, "/buckets/new", &[], b"{}").status, 503);
    process.stop();

    let process = start(dir.path());
    for (path, status) in [
        ("/kv/kept/a", 404),
        ("/kv/kept/b", 200),
        ("/buckets/gone", 404),
        ("/buckets/cache", 404),
        ("/buckets/new", 404),
    ] {
        assert_eq!(process.get(path).status, status, "{path}");
    }
    assert_eq!(redis(&process, &["EXISTS", "a", "b", "c"]).integer(), Some(1));
    process.stop();
}

fn bulk(process: &Process, lines: &[&str]) -> Vec<Value> {
    let body = lines.join("\n");
    let answer = ask(process.applications, "POST", "/kv/things/_bulk", &[], body.as_bytes());
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn reads_of_a_bulk_request_are_served_on_a_full_disk_and_its_writes_are_refused() {
    if log_has_no_files() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let process = start(dir.path());
    make(&process, "things", "{}");
    let keys: Vec<String> = (0..40).map(|number| format!("key-{number}")).collect();
    for key in &keys {
        assert_eq!(put(process.applications, &format!("/kv/things/{key}"), &[], key.as_bytes()).status, 201);
    }
    process.stop();

    let process = Process::start_on(dir.path(), &["--set", "log.disk_free_min_bytes=1152921504606846976"]);
    eventually("the shortage is told", || put(process.applications, "/kv/things/new", &[], b"x").status == 503);
    let gets: Vec<String> = keys.iter().map(|key| format!(r#"{{"op": "get", "key": "{key}"}}"#)).collect();
    let mut lines: Vec<&str> = gets.iter().map(String::as_str).collect();
    lines.push(r#"{"op": "get", "key": "none"}"#);
    lines.push(r#"{"op": "get", "key": "key-0", "version": 999999}"#);
    let answers = bulk(&process, &lines);
    for (key, answer) in keys.iter().zip(&answers) {
        assert_eq!((&answer["status"], answer["value"].as_str()), (&Value::from(200), Some(key.as_str())), "{answer}");
        assert!(answer["version"].is_u64() && answer["written"].is_string(), "{answer}");
    }
    assert_eq!([&answers[40]["status"], &answers[41]["status"]], [404, 412]);

    // Beside writes of the same keys, which are refused with the reason.
    let mut mixed = vec![r#"{"op": "put", "key": "key-0", "value": "other"}"#, r#"{"op": "delete", "key": "key-1"}"#];
    mixed.extend(gets.iter().map(String::as_str));
    let answers = bulk(&process, &mixed);
    for refused in &answers[..2] {
        assert_eq!(refused["status"], 503, "{refused}");
        assert!(refused["error"].as_str().unwrap().contains("disk"), "{refused}");
    }
    for (key, answer) in keys.iter().zip(&answers[2..]) {
        assert_eq!(answer["value"].as_str(), Some(key.as_str()), "{answer}");
    }
    process.stop();
}
