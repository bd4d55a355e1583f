//! Jobs that take the place of a running one.

use std::collections::BTreeSet;
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use millstream_flow::{Error, FlowConfig, Functions, StopMode, Submission};
use millstream_testkit::eventually;
use serde_json::{Value, json};

use crate::events;
use crate::node::Node;
use crate::resuming::{counts, expected, findings_of, open, readings, results};

const TIME: Duration = Duration::from_secs(30);

/// A job that copies a topic, without state.
pub(crate) fn copy(source: &str) -> Value {
    json!({
        "version": 1, "kind": "Job", "name": "copy",
        "sources": {source: {"type": "stream", "config": {"topic": "readings"}, "batch": {"size": 7}}},
        "sinks": {"out": {"type": "stream", "inputs": [source], "config": {"topic": "results"}}},
    })
}

/// A job whose sink gets no answers.
fn stuck(listener: &TcpListener) -> Value {
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let mut document = copy("in");
    document["sinks"]["out"] = json!({"type": "http", "inputs": ["in"], "config": {"url": url, "timeout": "1h"}});
    document["sources"]["in"]["ack_timeout"] = json!("0s");
    document
}

/// Runs a job whose sink waits for the answer to its first request; its id, and the receiver with that request.
pub(crate) fn run_stuck(node: &Node) -> (String, TcpListener, TcpStream) {
    node.append("readings", &readings(0..1));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let id = node.run(&stuck(&listener));
    let request = listener.accept().unwrap().0;
    (id, listener, request)
}

fn states(node: &Node, name: &str) -> Vec<String> {
    let runs = node.jobs.by_name(&node.tenant, name).unwrap();
    let mut states: Vec<String> = runs.iter().map(|job| job["state"].as_str().unwrap().to_owned()).collect();
    states.sort();
    states
}

fn count(node: &Node) -> usize {
    node.read("results").len()
}

#[test]
fn a_changed_job_takes_the_place_of_a_running_one_and_nothing_is_counted_twice() {
    for delivery in ["exactly_once", "at_least_once"] {
        let dir = tempfile::tempdir().unwrap();
        let node = open(&dir);
        node.append("readings", &readings(0..20));
        let mut document = counts("counts", delivery, 2);
        let mut former = node.run(&document);
        assert!(matches!(node.submit(&document), Err(Error::NameTaken { .. })));
        for round in 1..6 {
            // In mid-flight: the records of the round before are not all counted.
            node.append("readings", &readings(round * 20..(round + 1) * 20));
            document["transforms"]["counts"]["parallelism"] = json!(1 + round % 3);
            document["transforms"]["counts"]["select"] =
                json!(format!("device, n, RUNNING_COUNT(n) AS count, RUNNING_SUM(n) AS sum, n * {round} AS more"));
            let Submission { id, replaced, is_new, .. } = node.replace(&document, TIME).unwrap();
            assert_eq!((replaced.as_ref(), is_new), (Some(&former), true));
            assert_eq!(node.job(&former)["state"], "stopped", "{:#}", node.job(&former));
            assert_eq!(node.job(&id)["resumed_from"], json!(former));
            former = id;
        }
        eventually("all are counted once", || results(&node) == expected(120));
        eventually("the last one runs", || node.job(&former)["state"] == "running");
        assert_eq!(states(&node, "counts"), ["running", "stopped", "stopped", "stopped", "stopped", "stopped"]);
        node.close();
    }
}

#[test]
fn a_job_that_is_replaced_before_it_has_its_state_hands_that_on() {
    let dir = tempfile::tempdir().unwrap();
    let node = open(&dir);
    let document = counts("counts", "exactly_once", 2);
    let mut resumed = document.clone();
    resumed["resume_from"] = json!("counts");
    let mut id = node.run(&document);
    for round in 1..=10 {
        node.append("readings", &readings((round - 1) * 5..round * 5));
        eventually("all are counted once", || results(&node) == expected(round * 5));
        node.stop(&id, StopMode::Graceful);
        node.ended(&id);
        node.run(&resumed);
        id = node.replace(&document, TIME).unwrap().id;
    }
    node.append("readings", &readings(50..60));
    eventually("all are counted once", || results(&node) == expected(60));
    node.close();
}

#[test]
fn jobs_that_are_replaced_before_they_have_taken_over_the_state_hand_it_on() {
    for delivery in ["exactly_once", "at_least_once"] {
        let dir = tempfile::tempdir().unwrap();
        let node = open(&dir);
        node.append("readings", &readings(0..10));
        let document = counts("counts", delivery, 2);
        let id = node.run(&document);
        eventually("it counts", || results(&node) == expected(10) && node.job(&id)["lag"] == 0);
        for _ in 0..20 {
            node.replace(&document, TIME).unwrap();
        }
        node.append("readings", &readings(10..20));
        eventually("the last one goes on from the first", || results(&node).values().all(|found| found.len() == 20));
        assert_eq!(results(&node), expected(20));
        node.close();
    }
}

#[test]
fn without_a_running_job_of_the_name_it_is_an_ordinary_submission() {
    let dir = tempfile::tempdir().unwrap();
    let node = open(&dir);
    node.append("readings", &readings(0..10));
    let submission = node.replace(&counts("counts", "exactly_once", 2), TIME).unwrap();
    assert_eq!((submission.replaced, submission.is_new), (None, true));
    eventually("it counts", || results(&node) == expected(10));
    node.close();
}

#[test]
fn a_document_that_is_refused_leaves_the_running_job_alone() {
    let dir = tempfile::tempdir().unwrap();
    let node = open(&dir);
    node.append("readings", &readings(0..10));
    let document = counts("counts", "exactly_once", 2);
    let id = node.run(&document);
    let mut next = document.clone();
    next["transforms"]["totals"] = next["transforms"]["counts"].take();
    next["transforms"].as_object_mut().unwrap().remove("counts");
    next["sinks"]["out"]["inputs"] = json!(["totals"]);
    let found = findings_of(node.replace(&next, TIME));
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!((found[0].rule, found[0].path.as_str()), ("resume_node", "transforms.totals"));
    assert!(found[0].message.contains("on_missing: initialize"), "{found:?}");

    next["resume_from"] = json!("another");
    let found = findings_of(node.replace(&next, TIME));
    assert!(
        found.iter().any(|finding| finding.rule == "resume_job" && finding.message.contains("'counts'")),
        "{found:?}"
    );
    eventually("it runs", || node.job(&id)["state"] == "running");
    node.append("readings", &readings(10..20));
    eventually("it goes on", || results(&node) == expected(20));

    next["resume_from"] = json!({"job": "counts", "map": {"totals": "counts"}});
    assert_eq!(node.replace(&next, TIME).unwrap().replaced.as_ref(), Some(&id));
    node.append("readings", &readings(20..30));
    eventually("the new one goes on under the other name", || results(&node) == expected(30));
    node.close();
}

#[test]
fn the_positions_of_a_job_without_state_go_over_also_under_another_name() {
    let dir = tempfile::tempdir().unwrap();
    let node = open(&dir);
    node.append("readings", &readings(0..10));
    let first = node.run(&copy("in"));
    eventually("it copies", || count(&node) == 100);
    let second = node.replace(&copy("in"), TIME).unwrap();
    assert_eq!(second.replaced.as_ref(), Some(&first));
    node.append("readings", &readings(10..20));
    eventually("the second goes on", || count(&node) == 200);

    let mut renamed = copy("readings");
    let found = findings_of(node.replace(&renamed, TIME));
    assert_eq!((found[0].rule, found[0].nearest.as_deref()), ("resume_node", None), "{found:?}");
    renamed["resume_from"] = json!({"job": "copy", "map": {"readings": "in"}});
    let third = node.replace(&renamed, TIME).unwrap();
    assert_eq!(third.replaced.as_ref(), Some(&second.id));
    node.append("readings", &readings(20..30));
    eventually("the third goes on", || count(&node) == 300 && node.job(&third.id)["lag"] == 0);

    // With epochs from then on, and without them again.
    renamed["delivery"] = json!("exactly_once");
    renamed.as_object_mut().unwrap().remove("resume_from");
    node.replace(&renamed, TIME).unwrap();
    node.append("readings", &readings(30..40));
    eventually("the fourth goes on", || count(&node) == 400);
    renamed["delivery"] = json!("at_least_once");
    let last = node.replace(&renamed, TIME).unwrap();
    node.append("readings", &readings(40..50));
    eventually("the last goes on", || count(&node) == 500 && node.job(&last.id)["lag"] == 0);
    let distinct: BTreeSet<String> = node.read("results").iter().map(|(_, value)| value.to_string()).collect();
    assert_eq!(distinct.len(), 500);
    node.close();
}

#[test]
fn the_places_of_sources_without_a_log_go_over() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("files/default");
    std::fs::create_dir_all(&folder).unwrap();
    let config = FlowConfig { files_dir: dir.path().join("files"), ..FlowConfig::default() };
    let node = Node::open_with(dir.path(), config, Functions::default());
    node.create("results", 2);
    let write = |name: &str, count: u64| {
        let lines: String = (0..count).map(|n| format!("{{\"n\": {n}}}\n")).collect();
        std::fs::write(folder.join(name), lines).unwrap();
    };
    write("other.jsonl", 5);
    for delivery in ["at_least_once", "exactly_once"] {
        write("in.jsonl", 10);
        let mut document = copy("in");
        document["name"] = json!(delivery);
        document["delivery"] = json!(delivery);
        document["sources"]["in"] = json!({"type": "file", "config": {"path": "in.jsonl"}});
        let before = count(&node);
        let id = node.run(&document);
        eventually("all are written", || count(&node) == before + 10 && node.job(&id)["nodes"][0]["records_out"] == 10);
        write("in.jsonl", 15);
        assert_eq!(node.replace(&document, TIME).unwrap().replaced, Some(id));
        eventually("the further ones are written", || count(&node) >= before + 15);
        assert_eq!(count(&node), before + 15, "{delivery}");

        document["sources"]["in"]["config"]["path"] = json!("other.jsonl");
        assert_eq!(findings_of(node.replace(&document, TIME))[0].rule, "resume_node");
        document["resume_from"] = json!({"job": delivery, "on_missing": "initialize"});
        node.replace(&document, TIME).unwrap();
        eventually("another file is read from its beginning", || count(&node) == before + 20);
    }
    node.close();
}

#[test]
fn a_job_that_cannot_stop_in_time_goes_on_and_the_answer_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let node = open(&dir);
    let (id, listener, _waits) = run_stuck(&node);
    let refusal = node.replace(&copy("in"), Duration::from_millis(50)).unwrap_err();
    let Error::NotReplaced { id: kept, reason } = &refusal else { panic!("{refusal:?}") };
    assert_eq!(kept, &id);
    assert!(reason.contains("within 50ms"), "{reason}");
    // The old job may have started again by now.
    assert!(events::all(&node).iter().any(|event| event["event"] == "withdrawn"));
    eventually("it runs", || states(&node, "copy") == ["running"]);
    // The request comes again.
    listener.accept().unwrap();
    node.stop(&id, StopMode::Immediate);
    node.ended(&id);
    node.close();
}

#[test]
fn after_the_end_of_the_process_in_the_middle_one_of_the_two_runs() {
    let dir = tempfile::tempdir().unwrap();
    let node = open(&dir);
    let (id, _receiver, _waits) = run_stuck(&node);
    let waiting = node.begin_replacing(&copy("in"), Duration::from_secs(600));
    eventually("the new one waits", || node.jobs.by_name(&node.tenant, "copy").unwrap().len() == 2);
    let runs = node.jobs.by_name(&node.tenant, "copy").unwrap();
    let new = runs.iter().find(|job| job["id"] != json!(id)).unwrap().clone();
    assert_eq!(new["state"], "starting", "{new:#}");
    assert!(new["reason"].as_str().unwrap().contains("take the place"), "{new:#}");
    // A third one is refused meanwhile.
    assert!(matches!(node.submit(&copy("in")), Err(Error::NameTaken { .. })));
    node.close();
    drop(waiting);

    let node = Node::open(dir.path());
    eventually("the new one runs", || count(&node) == 10);
    assert_eq!(states(&node, "copy"), ["running", "stopped"]);
    assert_eq!(node.job(&id)["state"], "stopped");
    node.close();
}

#[test]
fn a_job_that_waits_to_take_a_place_can_be_ended_and_the_other_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let node = open(&dir);
    let (id, _receiver, _waits) = run_stuck(&node);
    let waiting = node.begin_replacing(&copy("in"), Duration::from_secs(600));
    eventually("the new one waits", || node.jobs.by_name(&node.tenant, "copy").unwrap().len() == 2);
    let runs = node.jobs.by_name(&node.tenant, "copy").unwrap();
    let new = runs.iter().find(|job| job["id"] != json!(id)).unwrap()["id"].as_str().unwrap().to_owned();
    node.kill(&new).unwrap();
    assert_eq!(node.ended(&new)["state"], "killed");
    assert!(matches!(node.wait(waiting).unwrap(), Err(Error::NotReplaced { .. })));
    eventually("the other runs", || node.job(&id)["state"] == "running");
    node.close();
}
