//! State of a job that is damaged on the disk, and lost in a repair of the log: the job says so, and makes no wrong results.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use millstream_flow::StopMode;
use millstream_log::SystemFiles;
use millstream_testkit::eventually;
use serde_json::{Value, json};

use crate::node::{Node, Setup};

/// A node whose log's files can be damaged.
fn open(dir: &Path) -> Node {
    Node::open_as(dir, Setup { in_files: true, ..Setup::default() })
}

/// A job that passes each message once, and knows those that it has passed.
fn once() -> Value {
    json!({
        "version": 1, "kind": "Job", "name": "once", "delivery": "exactly_once", "checkpoint": {"interval": "5ms"},
        "sources": {"in": {"type": "stream", "config": {"topic": "messages"}}},
        "transforms": {"once": {"type": "deduplicate", "inputs": ["in"], "key_by": ["id"], "config": {"ttl": "1h"}}},
        "sinks": {"out": {"type": "stream", "inputs": ["once"], "config": {"topic": "results"}}},
    })
}

fn messages(ids: std::ops::Range<u64>) -> Vec<(String, String)> {
    ids.map(|id| ("k".to_owned(), json!({"id": format!("{id:0>400}")}).to_string())).collect()
}

fn results(node: &Node) -> Vec<u64> {
    node.read("results").iter().map(|(_, value)| value["id"].as_str().unwrap().parse().unwrap()).collect()
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        match entry.path().is_dir() {
            true => copy(&entry.path(), &to.join(entry.file_name())),
            false => drop(fs::copy(entry.path(), to.join(entry.file_name())).unwrap()),
        }
    }
}

/// Messages of a round.
const ROUND: u64 = 300;
const ROUNDS: u64 = 6;
const ALL: u64 = ROUND * ROUNDS;

/// A directory in which a job has passed all messages in several epochs, the job, and the file with its state.
fn with_state(dir: &Path) -> (String, PathBuf) {
    let node = open(dir);
    node.create("messages", 1);
    node.create("results", 1);
    let id = node.run(&once());
    for round in 0..ROUNDS {
        node.append("messages", &messages(ROUND * round..ROUND * (round + 1)));
        eventually("they are passed", || results(&node).len() as u64 == ROUND * (round + 1));
    }
    let topic = node.log.topics().iter().find(|topic| topic.name.is_job_state()).map(|topic| topic.id).unwrap();
    node.close();
    let segments = dir.join(format!("log/topics/{topic}/0"));
    let segment = fs::read_dir(segments).unwrap().map(|entry| entry.unwrap().path());
    let segment = segment.filter(|path| path.extension().is_some_and(|name| name == "segment")).max().unwrap();
    (id, segment.strip_prefix(dir).unwrap().to_owned())
}

#[test]
fn a_job_whose_state_was_lost_in_a_repair_says_so_and_repeats_nothing() {
    let origin = tempfile::tempdir().unwrap();
    let (id, segment) = with_state(origin.path());
    let length = fs::metadata(origin.path().join(&segment)).unwrap().len();
    let mut reasons = BTreeSet::new();
    for part in 0..8 {
        let dir = tempfile::tempdir().unwrap();
        copy(origin.path(), dir.path());
        let mut bytes = fs::read(dir.path().join(&segment)).unwrap();
        let at = 64 + (length - 65) * part / 7;
        bytes[at as usize] ^= 0x55;
        fs::write(dir.path().join(&segment), &bytes).unwrap();
        millstream_log::repair(&SystemFiles, &dir.path().join("log")).unwrap();

        let node = open(dir.path());
        node.append("messages", &messages(0..ALL));
        node.append("messages", &messages(10_000..10_001));
        let reason = || node.job(&id)["reason"].as_str().unwrap_or_default().to_owned();
        let is_refused = || reason().contains("lost");
        eventually("it goes on, or says why not", || is_refused() || results(&node).last() == Some(&10_000));
        let results = results(&node);
        assert_eq!(results.iter().collect::<BTreeSet<_>>().len(), results.len(), "at byte {at}: one is there twice");
        if is_refused() {
            reasons.insert(if reason().contains("values of node 'once' are lost") { "values" } else { "the epoch" });
            assert!(reason().contains("submit the job anew"), "{}", reason());
            assert_eq!(results.len() as u64, ALL, "at byte {at}: nothing is made of what is left");
        }
        node.close();
    }
    assert!(reasons.contains("values"), "some damage leaves the epoch, and not its values: {reasons:?}");
}

#[test]
fn a_job_that_was_stopped_before_its_first_epoch_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let node = open(dir.path());
    node.create("messages", 1);
    node.create("results", 1);
    let id = node.run(&once());
    node.close();
    let node = open(dir.path());
    node.append("messages", &messages(0..3));
    eventually("they are passed", || results(&node) == [0, 1, 2]);
    node.stop(&id, StopMode::Graceful);
    node.close();
}
