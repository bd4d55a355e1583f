//! Jobs that go on from the state of an earlier one.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use millstream_flow::{Document, DocumentContext, Error, Finding, StopMode, Submission};
use millstream_testkit::eventually;
use serde_json::{Value, json};

use crate::node::Node;

/// A job that counts and adds up the readings of each device.
pub(crate) fn counts(name: &str, delivery: &str, parallelism: u32) -> Value {
    json!({
        "version": 1, "kind": "Job", "name": name, "delivery": delivery, "checkpoint": {"interval": "20ms"},
        "sources": {"in": {"type": "stream", "config": {"topic": "readings"}, "batch": {"size": 7}, "parallelism": 2}},
        "transforms": {"counts": {
            "type": "map", "inputs": ["in"], "key_by": ["device"], "parallelism": parallelism,
            "select": "device, n, RUNNING_COUNT(n) AS count, RUNNING_SUM(n) AS sum",
        }},
        "sinks": {"out": {"type": "stream", "inputs": ["counts"], "config": {"topic": "results"}}},
    })
}

/// The same with other names of its nodes, and with another expression.
fn renamed(name: &str, resume_from: &Value, parallelism: u32) -> Value {
    json!({
        "version": 1, "kind": "Job", "name": name, "delivery": "exactly_once", "checkpoint": {"interval": "20ms"},
        "resume_from": resume_from,
        "sources": {"readings": {"type": "stream", "config": {"topic": "readings"}, "batch": {"size": 5}}},
        "transforms": {"totals": {
            "type": "map", "inputs": ["readings"], "key_by": ["device"], "parallelism": parallelism,
            "select": "device, n, RUNNING_COUNT(n) AS count, RUNNING_SUM(n) AS sum, n * 2 AS twice",
        }},
        "sinks": {"out": {"type": "stream", "inputs": ["totals"], "config": {"topic": "results"}}},
    })
}

pub(crate) fn readings(numbers: std::ops::Range<u64>) -> Vec<(String, String)> {
    let of_number =
        |n| (0..10).map(move |device| (format!("d{device}"), json!({"device": device, "n": n}).to_string()));
    numbers.flat_map(of_number).collect()
}

/// Number, count and sum of each result, by device.
pub(crate) fn results(node: &Node) -> BTreeMap<u64, Vec<[u64; 3]>> {
    let mut found: BTreeMap<u64, Vec<[u64; 3]>> = BTreeMap::new();
    for (_, value) in node.read("results") {
        let of = ["n", "count", "sum"].map(|field| value[field].as_u64().unwrap());
        found.entry(value["device"].as_u64().unwrap()).or_default().push(of);
    }
    found.values_mut().for_each(|results| results.sort_unstable());
    found
}

/// Each number is counted once, and after all before it.
pub(crate) fn expected(numbers: u64) -> BTreeMap<u64, Vec<[u64; 3]>> {
    (0..10).map(|device| (device, (0..numbers).map(|n| [n, n + 1, n * (n + 1) / 2]).collect())).collect()
}

pub(crate) fn open(dir: &tempfile::TempDir) -> Node {
    let node = Node::open(dir.path());
    node.create("readings", 3);
    node.create("results", 2);
    node
}

/// Runs `document` until it has counted the readings before `numbers`, and stops it.
fn run_until(node: &Node, document: &Value, numbers: u64) -> String {
    let id = node.run(document);
    eventually("all are counted", || results(node) == expected(numbers));
    node.stop(&id, StopMode::Graceful);
    assert_eq!(node.ended(&id)["state"], "stopped", "{:#}", node.job(&id));
    id
}

fn findings(node: &Node, document: &Value) -> Vec<Finding> {
    findings_of(node.submit(document))
}

pub(crate) fn findings_of(submitted: Result<Submission, Error>) -> Vec<Finding> {
    match submitted {
        Err(Error::Invalid { findings }) => findings,
        other => panic!("{other:?}"),
    }
}

#[test]
fn counts_and_positions_go_on_in_a_job_with_other_names_another_expression_and_other_instances() {
    for (by_id, delivery, parallelism) in
        [(true, "exactly_once", 3), (false, "exactly_once", 1), (false, "at_least_once", 2)]
    {
        let dir = tempfile::tempdir().unwrap();
        let node = open(&dir);
        node.append("readings", &readings(0..20));
        let earlier = run_until(&node, &counts("counts", delivery, 2), 20);
        node.append("readings", &readings(20..30));

        let job = if by_id { earlier.as_str() } else { "counts" };
        let resume_from = json!({"job": job, "checkpoint": "latest", "map": {"totals": "counts", "readings": "in"}});
        let id = node.run(&renamed("totals", &resume_from, parallelism));
        eventually("they go on", || results(&node) == expected(30));
        assert_eq!(node.job(&id)["resumed_from"], json!(earlier));
        eventually("they are committed", || node.job(&id)["lag"] == 0);
        node.close();

        // Its own restart needs the earlier job no more.
        let node = Node::open(dir.path());
        node.append("readings", &readings(30..40));
        eventually("they go on after a restart", || results(&node) == expected(40));
        node.close();
    }
}

#[test]
fn a_stop_with_a_checkpoint_commits_an_epoch_from_which_another_job_goes_on_and_one_without_epochs_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let node = open(&dir);
    // No epoch ends by itself.
    let mut document = counts("counts", "at_least_once", 2);
    document["checkpoint"]["interval"] = json!("1h");
    let last_epoch = |id: &str| {
        node.stop(id, StopMode::Checkpoint);
        assert_eq!(node.ended(id)["state"], "stopped", "{:#}", node.job(id));
        node.jobs.checkpoints(&node.tenant, id).unwrap()["checkpoints"][0]["epoch"].as_u64()
    };
    let mut id = node.run(&document);
    for round in 0..3_u64 {
        eventually("it runs", || node.job(&id)["state"] == "running");
        node.append("readings", &readings(round * 10..(round + 1) * 10));
        if round > 0 {
            eventually("it has read them", || node.job(&id)["nodes"][0]["records_out"].as_u64() >= Some(100));
        }
        assert!(last_epoch(&id).is_some());
        document["resume_from"] = json!(id);
        id = node.run(&document);
    }
    eventually("all are counted once", || results(&node) == expected(30));

    node.create("silent", 1);
    let mut silent = counts("silent", "exactly_once", 1);
    silent["sources"]["in"]["config"]["topic"] = json!("silent");
    let silent = node.run(&silent);
    eventually("it runs", || node.job(&silent)["state"] == "running");
    assert_eq!(last_epoch(&silent), Some(1), "one that has read nothing has an epoch, too");

    let copy = node.run(&crate::replacing::copy("in"));
    let refused = node.wait(node.jobs.stop(&node.tenant, &copy, StopMode::Checkpoint));
    assert!(matches!(refused, Err(Error::NoEpochs { .. })), "{refused:?}");
    eventually("it goes on", || node.job(&copy)["state"] == "running" && node.job(&copy).get("reason").is_none());
    node.close();
}

#[test]
fn the_short_form_goes_on_from_the_newest_ended_run_of_a_name() {
    let dir = tempfile::tempdir().unwrap();
    let node = open(&dir);
    node.append("readings", &readings(0..10));
    let first = run_until(&node, &counts("counts", "exactly_once", 2), 10);
    let mut next = counts("counts", "exactly_once", 3);
    next["resume_from"] = json!("counts");
    node.append("readings", &readings(10..20));
    let second = run_until(&node, &next, 20);
    assert_eq!(node.job(&second)["resumed_from"], json!(first));
    node.append("readings", &readings(20..30));
    let third = run_until(&node, &next, 30);
    assert_eq!(node.job(&third)["resumed_from"], json!(second));
    node.close();
}

#[test]
fn a_job_goes_on_from_where_the_earlier_one_was_and_not_from_where_others_have_read_since() {
    let dir = tempfile::tempdir().unwrap();
    let node = open(&dir);
    node.append("readings", &readings(0..10));
    let first = run_until(&node, &counts("counts", "exactly_once", 2), 10);
    // Another job of the name reads on under the same groups.
    node.append("readings", &readings(10..20));
    let mut other = counts("counts", "exactly_once", 1);
    other["sinks"] = json!({"out": {"type": "blackhole", "inputs": ["counts"]}});
    let id = node.run(&other);
    eventually("it has read them", || node.job(&id)["nodes"][0]["records_out"] == 100 && node.job(&id)["lag"] == 0);
    node.stop(&id, StopMode::Graceful);
    node.ended(&id);

    let mut next = counts("counts", "exactly_once", 2);
    next["resume_from"] = json!({"job": first});
    node.run(&next);
    eventually("the second half is counted behind the first", || results(&node) == expected(20));
    node.close();
}

#[test]
fn a_submission_that_is_repeated_is_the_same_job_whatever_it_went_on_from() {
    let dir = tempfile::tempdir().unwrap();
    let node = open(&dir);
    node.append("readings", &readings(0..10));
    let first = run_until(&node, &counts("counts", "exactly_once", 2), 10);
    let mut next = counts("counts", "exactly_once", 2);
    next["id"] = json!("second");
    next["resume_from"] = json!("counts");
    assert!(node.submit(&next).unwrap().is_new);
    // The newest run of the name is now one that runs.
    assert!(!node.submit(&next).unwrap().is_new);
    assert_eq!(node.job("second")["resumed_from"], json!(first));
    node.close();
}

#[test]
fn what_cannot_be_gone_on_from_is_refused_with_the_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let node = open(&dir);
    node.append("readings", &readings(0..10));
    let mut next = counts("next", "exactly_once", 2);
    let refused = |node: &Node, document: &Value| {
        let found = findings(node, document);
        found
            .into_iter()
            .map(|finding| (finding.path, finding.rule, finding.message, finding.nearest))
            .collect::<Vec<_>>()
    };

    next["resume_from"] = json!("counts");
    let found = refused(&node, &next);
    assert!(
        matches!(&found[..], [(path, "resume_job", message, None)]
        if path == "resume_from" && message.contains("no job has the id or name 'counts'")),
        "{found:?}"
    );

    let id = node.run(&counts("counts", "exactly_once", 2));
    let found = refused(&node, &next);
    assert!(
        matches!(&found[..], [(_, "resume_job", message, None)]
        if message.contains("still runs") && message.contains("stop it first") && message.contains("replace")),
        "{found:?}"
    );
    // It may be stopped until the document is submitted.
    assert!(node.jobs.validate(&node.tenant, &next.to_string()).is_ok());
    let unmapped = renamed("next", &json!("counts"), 1);
    assert_eq!(node.jobs.validate(&node.tenant, &unmapped.to_string()).unwrap_err().len(), 2);
    eventually("it counts", || results(&node) == expected(10));
    node.stop(&id, StopMode::Graceful);
    node.ended(&id);

    let mut without_state = next.clone();
    without_state["name"] = json!("copy");
    without_state["delivery"] = json!("at_least_once");
    without_state.as_object_mut().unwrap().remove("resume_from");
    without_state["transforms"] =
        json!({"counts": {"type": "map", "inputs": ["in"], "select": "*, 1 AS count, 1 AS sum"}});
    let copy = node.run(&without_state);
    node.stop(&copy, StopMode::Graceful);
    node.ended(&copy);
    next["resume_from"] = json!({"job": "copy"});
    let found = refused(&node, &next);
    assert!(
        matches!(&found[..], [(path, "resume_job", message, None)]
        if path == "resume_from.job" && message.contains("has no state")),
        "{found:?}"
    );

    next["resume_from"] = json!({"job": "count", "checkpoint": 7});
    let found = refused(&node, &next);
    let nearest = Some("counts".to_owned());
    assert!(
        found.iter().any(|(path, rule, message, _)| path == "resume_from.checkpoint"
            && *rule == "resume_checkpoint"
            && message.contains("no earlier ones")),
        "{found:?}"
    );
    assert!(found.iter().any(|(_, rule, _, near)| *rule == "resume_job" && *near == nearest), "{found:?}");

    let other = renamed("next", &json!({"job": "counts", "map": {"totals": "count", "reading": "in"}}), 1);
    let found = refused(&node, &other);
    let is = |path: &str, rule: &str, near: Option<&str>| {
        found.iter().any(|(at, of, _, nearest)| at == path && *of == rule && nearest.as_deref() == near)
    };
    assert!(is("resume_from.map.totals", "resume_map", Some("counts")), "{found:#?}");
    assert!(is("resume_from.map.reading", "resume_map", Some("readings")), "{found:#?}");
    assert!(is("sources.readings", "resume_node", None), "{found:#?}");
    assert_eq!(found.len(), 3, "{found:#?}");
    node.close();
}

#[test]
fn nodes_that_the_earlier_job_does_not_have_begin_empty_if_the_document_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let node = open(&dir);
    node.append("readings", &readings(0..10));
    run_until(&node, &counts("counts", "exactly_once", 2), 10);
    node.append("readings", &readings(10..20));
    let resume_from = json!({"job": "counts", "map": {"readings": "in"}, "on_missing": "initialize"});
    node.run(&renamed("totals", &resume_from, 2));
    let begun = |device: u64| {
        let first = (0..10).map(|n| [n, n + 1, n * (n + 1) / 2]);
        let second = (10..20).map(|n| [n, n - 9, (10..=n).sum()]);
        (device, first.chain(second).collect())
    };
    eventually("the source goes on, and the counts begin", || results(&node) == (0..10).map(begun).collect());
    node.close();
}

#[test]
fn a_job_whose_operator_cannot_read_what_is_stored_is_refused_by_the_nodes_name_and_the_running_one_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let node = open(&dir);
    node.append("readings", &readings(0..10));
    let id = node.run(&counts("counts", "exactly_once", 2));
    eventually("it counts, and that is stored", || {
        results(&node) == expected(10) && node.job(&id)["lag"] == 0 && node.job(&id)["checkpoint"]["epoch"].is_u64()
    });
    let mut next = counts("counts", "exactly_once", 2);
    next["transforms"]["counts"]["select"] = json!("device, n, LAG(n, 3) AS third, 1 AS count, 1 AS sum");
    let is_refused = |submitted: Result<Submission, Error>| match submitted {
        Err(Error::Plan { node, message, .. }) => node == "counts" && message.contains("cannot be read"),
        other => panic!("{other:?}"),
    };
    assert!(is_refused(node.replace(&next, Duration::from_secs(30))));
    node.append("readings", &readings(10..20));
    eventually("the old one goes on", || results(&node) == expected(20));
    node.stop(&id, StopMode::Graceful);
    node.ended(&id);
    next["name"] = json!("next");
    next["resume_from"] = json!("counts");
    assert!(is_refused(node.submit(&next)));
    node.close();
}

#[test]
fn a_batch_job_with_nothing_left_to_read_comes_to_the_time_of_the_last_record() {
    let dir = tempfile::tempdir().unwrap();
    let node = open(&dir);
    let document = |disorder: &str| {
        let event_time = json!({"field": "at", "max_out_of_orderness": disorder, "idle_timeout": "1d"});
        json!({
            "version": 1, "kind": "Job", "name": "warm", "delivery": "exactly_once", "checkpoint": {"interval": "20ms"},
            "sources": {"in": {"type": "stream", "config": {"topic": "readings"}, "event_time": event_time}},
            "transforms": {"warm": {
                "type": "alarm", "inputs": ["in"], "key_by": ["device"], "config": {"raise": "n > 5", "for": "1m"},
            }},
            "sinks": {"out": {"type": "stream", "inputs": ["warm"], "config": {"topic": "results"}}},
        })
    };
    let reading = |minute: i64, n: i64| json!({"device": 1, "at": minute * 60_000, "n": n}).to_string();
    // Time comes to the end of the minute by what another device sends.
    node.append("readings", &[("d".to_owned(), reading(1, 9)), ("d".to_owned(), json!({"at": 180_000}).to_string())]);
    // No partition is without records.
    (0..10).for_each(|other| node.append("readings", &[(format!("o{other}"), json!({"at": 180_000}).to_string())]));
    let first = node.run(&document("1h"));
    eventually("all is read and committed", || {
        let job = node.job(&first);
        job["nodes"][0]["records_out"] == 12 && job["lag"] == 0 && job["checkpoint"]["epoch"].is_u64()
    });
    node.stop(&first, StopMode::Graceful);
    node.ended(&first);
    assert_eq!(node.read("results"), []);

    let mut last = document("0s");
    last["mode"] = json!("batch");
    last["sources"]["in"]["config"]["stop_at"] = json!("end");
    last["resume_from"] = json!("warm");
    let id = node.run(&last);
    assert_eq!(node.ended(&id)["state"], "completed", "{:#}", node.job(&id));
    let events: Vec<_> = node.read("results").into_iter().map(|(_, value)| value["event"].clone()).collect();
    assert_eq!(events, ["raised"]);
    node.close();
}

/// Count, total and costs of each result, by meter.
type Totals = BTreeMap<String, Vec<[Option<u64>; 3]>>;

#[test]
fn the_example_f16_goes_on_with_a_changed_expression_at_any_parallelism_and_counts_nothing_twice() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/jobs");
    let meter = |n: u64| format!("m{}", n % 4);
    let records = |numbers: Range<u64>| {
        numbers.map(|n| (meter(n), json!({"meter": meter(n), "kwh": n}).to_string())).collect::<Vec<_>>()
    };
    let totals = |node: &Node| {
        let mut found: Totals = BTreeMap::new();
        for (key, value) in node.read("meter-totals") {
            let of = ["count", "kwh", "cents"].map(|field| value[field].as_u64());
            found.entry(key).or_default().push(of);
        }
        found
    };
    // The first `changed` readings are those of the first document.
    let expected = |count: u64, changed: u64| {
        let mut wanted: Totals = BTreeMap::new();
        let mut sums: BTreeMap<String, u64> = BTreeMap::new();
        for n in 0..count {
            let results = wanted.entry(meter(n)).or_default();
            let sum = sums.entry(meter(n)).or_default();
            *sum += n;
            let is_first = n < changed;
            let count = Some(results.len() as u64 + 1);
            let of = [count, is_first.then_some(*sum), (!is_first).then_some(*sum * 30)];
            results.push(of);
        }
        wanted
    };
    for parallelism in [1, 3, 8] {
        let dir = tempfile::tempdir().unwrap();
        let node = Node::open(dir.path());
        node.create("meters", 3);
        node.create("meter-totals", 2);
        let read = |name: &str| {
            let text = std::fs::read_to_string(folder.join(name)).unwrap();
            let context = DocumentContext { catalogue: millstream_flow::catalogue(), ..DocumentContext::default() };
            Document::read(&text, &context).unwrap().json
        };
        node.append("meters", &records(0..40));
        let first = node.run(&read("f16.yaml"));
        eventually("the first are there", || totals(&node) == expected(40, 40));
        node.stop(&first, StopMode::Graceful);
        node.ended(&first);
        node.append("meters", &records(40..100));
        let mut changed = read("f16-changed.yaml");
        changed["transforms"]["costs"]["parallelism"] = json!(parallelism);
        node.run(&changed);
        eventually("counts, totals and positions go on", || totals(&node) == expected(100, 40));
        node.close();
    }
}
