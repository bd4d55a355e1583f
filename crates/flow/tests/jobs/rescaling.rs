//! Running jobs that get another parallelism.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use millstream_flow::{Error, ParallelismChange, StopMode};
use millstream_testkit::eventually;
use serde_json::{Value, json};

use crate::events;
use crate::node::Node;
use crate::replacing::{copy, run_stuck};
use crate::resuming::{counts, expected, findings_of, open, readings, results};

const TIME: Duration = Duration::from_secs(30);

fn all(value: impl Into<Value>) -> ParallelismChange {
    ParallelismChange::All(value.into())
}

fn of_nodes<const N: usize>(values: [(&str, Value); N]) -> ParallelismChange {
    ParallelismChange::Nodes(values.map(|(name, value)| (name.to_owned(), value)).into())
}

/// The instances of each node, as the graph shows them.
fn instances(node: &Node, id: &str) -> BTreeMap<String, u64> {
    let graph = node.jobs.graph(&node.tenant, id).unwrap();
    let nodes = graph["nodes"].as_array().unwrap().iter();
    nodes.map(|of| (of["name"].as_str().unwrap().to_owned(), of["instances"].as_u64().unwrap())).collect()
}

#[test]
fn counts_go_on_at_another_parallelism_and_nothing_is_lost_or_doubled() {
    for delivery in ["exactly_once", "at_least_once"] {
        let dir = tempfile::tempdir().unwrap();
        let node = open(&dir);
        node.append("readings", &readings(0..20));
        let document = counts("counts", delivery, 2);
        let id = node.run(&document);
        let hash = node.job(&id)["hash"].clone();
        for round in 1..6 {
            // In mid-flight: the records of the round before are not all counted.
            node.append("readings", &readings(round * 20..(round + 1) * 20));
            let parallelism = 1 + (round + 1) % 4;
            let told = node.rescale(&id, of_nodes([("counts", json!(parallelism))]), TIME).unwrap();
            assert_eq!(told["parallelism"], json!({"counts": parallelism}), "{told:#}");
            let of_nodes = BTreeMap::from([("in", 2), ("counts", parallelism), ("out", 1)]);
            let of_nodes = of_nodes.into_iter().map(|(name, number)| (name.to_owned(), number)).collect();
            assert_eq!(instances(&node, &id), of_nodes);
        }
        eventually("all are counted once", || results(&node) == expected(120));
        let job = node.job(&id);
        assert_eq!((&job["hash"], &job["document"]), (&hash, &document), "the document stays");
        assert_eq!((&job["nodes"][0]["records_out"], &job["restarts"]), (&json!(1200), &json!(0)), "figures go on");
        node.close();

        let node = Node::open(dir.path());
        node.append("readings", &readings(120..130));
        eventually("it goes on after a restart", || results(&node) == expected(130));
        assert_eq!(instances(&node, &id)["counts"], 3, "and keeps its parallelism");
        assert_eq!(node.rescale(&id, all(Value::Null), TIME).unwrap().get("parallelism"), None);
        eventually("null is that of the document again", || instances(&node, &id)["counts"] == 2);
        node.close();
    }
}

#[test]
fn a_run_that_is_stopped_while_it_starts_does_not_end_the_next_one() {
    let dir = tempfile::tempdir().unwrap();
    let node = open(&dir);
    node.append("readings", &readings(0..10));
    let id = node.run(&counts("counts", "at_least_once", 2));
    for round in 0..30 {
        node.rescale(&id, all(1 + round % 3), TIME).unwrap();
    }
    node.append("readings", &readings(10..20));
    eventually("all are counted once", || results(&node) == expected(20));
    let told = events::names(&node, &id);
    assert!(!told.iter().any(|event| event == "restarting"), "{:#?}", events::all(&node));
    node.close();
}

#[test]
fn a_job_without_state_goes_on_at_another_parallelism() {
    let dir = tempfile::tempdir().unwrap();
    let node = open(&dir);
    node.append("readings", &readings(0..10));
    let id = node.run(&copy("in"));
    node.rescale(&id, of_nodes([("in", json!({"min": 2, "max": 3})), ("out", json!(2))]), TIME).unwrap();
    node.append("readings", &readings(10..20));
    eventually("it goes on", || node.read("results").len() == 200);
    let of_nodes = instances(&node, &id);
    assert!((2..=3).contains(&of_nodes["in"]) && of_nodes["out"] == 2, "{of_nodes:?}");
    let distinct: BTreeSet<String> = node.read("results").iter().map(|(_, value)| value.to_string()).collect();
    assert_eq!(distinct.len(), 200);
    node.close();
}

#[test]
fn a_change_that_the_document_could_not_have_is_refused_in_the_words_of_its_rules_and_the_job_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let node = open(&dir);
    let id = node.run(&counts("counts", "exactly_once", 2));
    let refusal = node.rescale(&id, of_nodes([("cuonts", json!(3))]), TIME).unwrap_err();
    assert_eq!(refusal.to_string(), format!("job '{id}' has no node 'cuonts'; did you mean 'counts'?"));
    let refusal = node.rescale(&id, of_nodes([("x", json!(3))]), TIME).unwrap_err();
    assert_eq!(refusal.to_string(), format!("job '{id}' has no node 'x'; use one of in counts out"));
    let mut document = counts("other", "exactly_once", 2);
    for wrong in [json!(0), json!(2000), json!("two"), json!({"min": 3, "max": 2}), json!({"mix": 3})] {
        document["transforms"]["counts"]["parallelism"] = wrong.clone();
        let in_document = findings_of(node.submit(&document));
        let Err(Error::Invalid { findings }) = node.rescale(&id, of_nodes([("counts", wrong.clone())]), TIME) else {
            panic!("{wrong} is accepted")
        };
        let of = |findings: &[millstream_flow::Finding]| {
            findings.iter().map(|of| (of.path.clone(), of.rule, of.message.clone())).collect::<Vec<_>>()
        };
        assert_eq!(of(&findings), of(&in_document));
    }
    let copy = node.run(&copy("in"));
    let refusal = node.rescale(&copy, all(3), TIME).unwrap_err();
    assert!(refusal.to_string().contains("name the nodes, as in {\"in\": 2}"), "{refusal}");
    node.append("readings", &readings(0..10));
    eventually("they go on", || node.read("results").len() == 200);
    assert_eq!(node.job(&id).get("parallelism"), None);

    node.stop(&id, StopMode::Graceful);
    node.ended(&id);
    let refusal = node.rescale(&id, all(3), TIME).unwrap_err();
    assert_eq!(refusal.to_string(), format!("job '{id}' keeps its parallelism: it is stopped"));
    assert!(matches!(node.rescale("none", all(3), TIME), Err(Error::UnknownJob { .. })));
    node.close();
}

#[test]
fn a_job_that_cannot_stop_in_time_keeps_its_parallelism_and_the_answer_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let node = open(&dir);
    let (id, listener, _waits) = run_stuck(&node);
    let change = of_nodes([("in", json!(2))]);
    let refusal = node.rescale(&id, change.clone(), Duration::from_millis(50)).unwrap_err();
    assert!(matches!(&refusal, Error::NotRescaled { reason, .. } if reason.contains("within 50ms")), "{refusal}");
    // The request comes again.
    let _waits_again = listener.accept().unwrap();
    eventually("it runs", || node.job(&id)["state"] == "running");
    assert_eq!((instances(&node, &id)["in"], node.job(&id).get("parallelism")), (1, None));

    // An end that is asked for meanwhile comes first.
    let waiting = node.begin_rescaling(&id, change, Duration::from_secs(600));
    eventually("the change is stored", || node.job(&id)["parallelism"] == json!({"in": 2}));
    node.stop(&id, StopMode::Immediate);
    assert_eq!(node.ended(&id)["state"], "stopped");
    assert!(matches!(node.wait(waiting).unwrap(), Err(Error::NotRescaled { .. })));
    node.close();
}

#[test]
fn after_the_end_of_the_process_in_the_middle_the_job_has_its_new_parallelism() {
    let dir = tempfile::tempdir().unwrap();
    let node = open(&dir);
    let (id, listener, _waits) = run_stuck(&node);
    let waiting = node.begin_rescaling(&id, of_nodes([("in", json!(2))]), Duration::from_secs(600));
    eventually("the change is stored", || node.job(&id)["parallelism"] == json!({"in": 2}));
    node.close();
    assert!(matches!(tokio::runtime::Runtime::new().unwrap().block_on(waiting).unwrap(), Err(Error::Stopped)));

    let node = Node::open(dir.path());
    let _waits = listener.accept().unwrap();
    assert_eq!(instances(&node, &id)["in"], 2);
    node.stop(&id, StopMode::Immediate);
    node.close();
}
