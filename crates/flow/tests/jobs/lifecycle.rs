//! Submission, names, limits, ends and restarts of jobs.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use millstream_flow::{
    Batch, Error, FlowConfig, FunctionOutput, Functions, JobState, NativeFunction, Params, RecordError, StopMode,
};
use millstream_testkit::eventually;
use millstream_testkit::small_log::new_disk;
use millstream_types::{ErrorCode, Role, Roles, ShortLives, TenantId};
use serde_json::{Value, json};

use crate::events;
use crate::node::{Node, Setup};

/// A job that is idle on an open source.
fn idle(name: &str) -> Value {
    json!({
        "version": 1, "kind": "Job", "name": name,
        "sources": {"in": {"type": "stream", "config": {"topic": "numbers"}}},
        "sinks": {"out": {"type": "blackhole", "inputs": ["in"]}},
    })
}

/// A job that fails on every record.
fn failing(max_attempts: u32) -> Value {
    json!({
        "version": 1, "kind": "Job", "name": "failing", "mode": "batch",
        "restart": {"policy": "on_failure", "max_attempts": max_attempts, "backoff": "1ms..5ms"},
        "sources": {"in": {"type": "list", "config": {"records": [{"n": 0}]}}},
        "transforms": {"div": {"type": "map", "inputs": ["in"], "select": "1 / n AS q"}},
        "sinks": {"out": {"type": "blackhole", "inputs": ["div"]}},
    })
}

#[test]
fn the_same_document_under_an_id_is_run_once_even_if_it_was_killed() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::open(dir.path());
    node.create("numbers", 1);
    let mut job = idle("once");
    job["id"] = "j1".into();
    let first = node.submit(&job).unwrap();
    assert!(first.is_new && first.id == "j1" && first.hash.len() == 64);
    let again = node.submit(&job).unwrap();
    assert!(!again.is_new && again.hash == first.hash);
    node.kill("j1").unwrap();
    assert_eq!(node.ended("j1")["state"], "killed");
    let after = node.submit(&job).unwrap();
    assert!(!after.is_new && after.state == JobState::Killed);
    job["doc"] = "another".into();
    let Err(Error::HashDiffers { stored, given, .. }) = node.submit(&job) else {
        panic!("another document is refused")
    };
    assert!(stored == first.hash && given != stored);
    node.close();

    let node = Node::open(dir.path());
    assert_eq!(node.job("j1")["state"], "killed", "the end outlives the process");
    node.close();
}

#[test]
fn one_job_of_a_name_runs_at_a_time_and_the_name_has_a_history() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::open(dir.path());
    node.create("numbers", 1);
    let first = node.run(&idle("named"));
    let Err(Error::NameTaken { id, .. }) = node.submit(&idle("named")) else { panic!("the name is taken") };
    assert_eq!(id, first);
    node.stop(&first, StopMode::Immediate);
    node.ended(&first);
    let second = node.run(&idle("named"));
    let runs = node.jobs.by_name(&node.tenant, "named").unwrap();
    let seen: Vec<_> = runs.iter().map(|run| (run["id"].as_str().unwrap(), run["state"].as_str().unwrap())).collect();
    assert_eq!(seen.len(), 2);
    assert_eq!(seen[1], (&*first, "stopped"));
    assert_eq!(seen[0].0, second);
    assert!(matches!(node.jobs.by_name(&node.tenant, "other"), Err(Error::UnknownName { .. })));
    node.close();
}

#[test]
fn more_jobs_than_the_limit_are_refused_by_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let config = FlowConfig { jobs_max: 1, ..FlowConfig::default() };
    let node = Node::open_with(dir.path(), config, Functions::default());
    node.run(&idle("first"));
    let refused = node.submit(&idle("second")).unwrap_err();
    assert!(matches!(refused, Error::JobsFull { running: 1, limit: 1 }));
    assert!(refused.to_string().contains("flow.jobs_max = 1"), "{refused}");
    assert_eq!(node.jobs.list(&node.tenant).len(), 1, "nothing stays behind");
    node.close();
}

#[test]
fn more_jobs_of_a_tenant_than_its_share_are_refused_and_another_tenant_has_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let config = FlowConfig { jobs_per_tenant_max: 1, ..FlowConfig::default() };
    let mut node = Node::open_with(dir.path(), config, Functions::default());
    node.create("numbers", 1);
    node.run(&idle("first"));
    let refused = node.submit(&idle("second")).unwrap_err();
    assert!(matches!(&refused, Error::TenantJobsFull { running: 1, limit: 1, .. }), "{refused}");
    assert!(refused.to_string().contains("flow.jobs_per_tenant_max = 1"), "{refused}");
    node.tenant = TenantId::new("other").unwrap();
    node.run(&idle("first"));
    node.close();
}

#[test]
fn a_job_that_ran_whenever_the_process_went_down_comes_back_paused_and_is_resumed_or_ended() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::open(dir.path());
    node.create("numbers", 1);
    let ids = ["resumed", "stopped", "killed"].map(|name| node.run(&idle(name)));
    let before_ms = node.jobs.now_ms();
    node.close();

    let short_lives = ShortLives::new(vec![before_ms, before_ms + 1, before_ms + 2]);
    let again = || Node::open_as(dir.path(), Setup { short_lives: short_lives.clone(), ..Setup::default() });
    let node = again();
    eventually("the last of them is over", || node.jobs.now_ms() > before_ms + 2);
    let state = |node: &Node, id: &str| node.jobs.status(&node.tenant, id).unwrap()["state"].clone();
    for id in &ids {
        let status = node.jobs.status(&node.tenant, id).unwrap();
        assert_eq!(status["state"], "paused", "{status}");
        assert!(status["reason"].as_str().unwrap().contains("went down 3 times"), "{status}");
    }
    assert_eq!(node.jobs.state_counts()["paused"], 3);
    let new = node.run(&idle("new"));
    node.stop(&ids[1], StopMode::Graceful);
    node.kill(&ids[2]).unwrap();
    assert_eq!(node.ended(&ids[1])["state"], "stopped");
    assert_eq!(node.ended(&ids[2])["state"], "killed");
    assert!(matches!(node.resume(&ids[1]), Err(Error::NotPaused { .. })));
    assert!(matches!(node.resume("unknown"), Err(Error::UnknownJob { .. })));
    node.close();

    // It stays paused until it is resumed, and is not paused again for the same deaths.
    let node = again();
    assert_eq!(state(&node, &ids[0]), "paused");
    node.resume(&ids[0]).unwrap();
    node.resume(&ids[0]).unwrap();
    eventually("both run", || [&ids[0], &new].iter().all(|id| state(&node, id) == "running"));
    let told = |id: &str| events::names(&node, id).into_iter().filter(|name| name != "started").collect::<Vec<_>>();
    assert_eq!(told(&ids[0]), ["submitted", "paused", "resumed"]);
    assert_eq!(told(&ids[1]), ["submitted", "paused", "stopping", "stopped"]);
    node.close();
    let node = again();
    eventually("it runs", || state(&node, &ids[0]) == "running");
    node.close();
}

#[test]
fn topics_that_the_caller_may_not_have_are_found_at_submission() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::open(dir.path());
    let refused = |roles: Roles, topic: &str| {
        let mut job = idle("foreign");
        job["sources"]["in"]["config"]["topic"] = topic.into();
        match node.submit_as(roles, &job) {
            Err(Error::Invalid { findings }) => match findings.as_slice() {
                [finding] => (finding.path.clone(), finding.line, finding.message.clone()),
                findings => panic!("{findings:?}"),
            },
            other => panic!("{topic}: {other:?}"),
        }
    };
    let writer = Roles::NONE.with(Role::Writer);
    for (roles, topic, words) in [
        (Roles::APPLICATION, "telemetry.acme", "is of tenant 'acme', and the job of 'default'"),
        (Roles::APPLICATION, "_jobs", "is Millstream's own"),
        (writer, "numbers", "the role reader"),
    ] {
        let (path, line, message) = refused(roles, topic);
        assert_eq!((&*path, line), ("sources.in.config.topic", 1), "{message}");
        assert!(message.contains(words), "{message}");
    }
    assert!(node.jobs.list(&node.tenant).is_empty(), "nothing stays behind");
    assert!(node.jobs.validate(&node.tenant, &idle("own").to_string()).is_ok());
    node.close();
}

#[test]
fn a_job_that_keeps_failing_is_failed_after_its_restarts_and_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::open(dir.path());
    let id = node.run(&failing(3));
    let job = node.ended(&id);
    assert_eq!((&job["state"], &job["restarts"]), (&json!("failed"), &json!(3)), "{job:#}");
    let error = &job["error"];
    assert_eq!((&error["node"], &error["code"]), (&json!("div"), &json!("division_by_zero")), "{error:#}");
    assert_eq!(error["record"], "record 0");
    let errors = node.jobs.errors(&node.tenant, &id).unwrap();
    assert_eq!(&errors[0], error);
    node.close();
}

#[test]
fn a_job_between_restarts_can_be_killed() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::open(dir.path());
    let mut job = failing(9);
    job["restart"]["backoff"] = "1h..2h".into();
    let id = node.run(&job);
    eventually("the job waits for its restart", || {
        let reason = node.job(&id)["reason"].as_str().unwrap_or_default().to_owned();
        let seconds =
            reason.strip_prefix("waits ").and_then(|rest| rest.split_once(" s before restart 1 of 9, after: "));
        seconds.is_some_and(|(seconds, _)| (3500..=7200).contains(&seconds.parse().unwrap()))
    });
    node.kill(&id).unwrap();
    assert_eq!(node.ended(&id)["state"], "killed");
    node.close();
}

#[test]
fn a_stop_that_the_process_does_not_live_to_see_holds_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::open(dir.path());
    node.create("numbers", 1);
    node.append("numbers", &[("k".to_owned(), json!({"n": 1}).to_string())]);
    // It takes connections and never answers.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut job = idle("endless");
    let config = json!({"url": format!("http://{}/", silent.local_addr().unwrap()), "timeout": "1h"});
    job["sinks"]["out"] = json!({"type": "http", "inputs": ["in"], "config": config});
    let id = node.run(&job);
    silent.accept().unwrap();
    node.stop(&id, StopMode::Graceful);
    let stopping = node.job(&id);
    assert_eq!(stopping["reason"], "is about to be stopped", "{stopping:#}");
    node.close();

    let node = Node::open(dir.path());
    assert_eq!(node.ended(&id)["state"], "stopped");
    node.run(&idle("endless"));
    node.close();
}

#[test]
fn a_kill_after_the_end_of_all_jobs_is_refused_and_not_lost_in_silence() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::open(dir.path());
    node.create("numbers", 1);
    let id = node.run(&idle("late"));
    node.jobs.shut_down(Duration::ZERO);
    let refused = node.kill(&id).unwrap_err();
    assert_eq!(refused.code(), ErrorCode::Unavailable, "{refused}");
    node.close();

    let node = Node::open(dir.path());
    eventually("the job runs again", || node.job(&id)["state"] == "running");
    node.kill(&id).unwrap();
    assert_eq!(node.ended(&id)["state"], "killed");
    node.close();
}

#[test]
fn the_graph_shows_which_edges_are_queues() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::open(dir.path());
    node.create("numbers", 1);
    let mut job = idle("graph");
    job["transforms"] = json!({"keyed": {"type": "map", "inputs": ["in"], "select": "*", "key_by": ["n"]}});
    job["sinks"]["out"]["inputs"] = json!(["keyed"]);
    let id = node.run(&job);
    eventually("the job runs", || node.job(&id)["state"] == "running");
    let graph = node.jobs.graph(&node.tenant, &id).unwrap();
    let edges = json!([
        {"from": "in", "to": "keyed", "exchange": "queue", "records": 0, "batches": 0, "rate": 0.0},
        {"from": "keyed", "to": "out", "exchange": "fused", "records": 0, "batches": 0, "rate": 0.0},
    ]);
    assert_eq!(graph["edges"], edges);
    node.close();
}

#[test]
fn an_error_hook_that_answers_kill_ends_the_job_without_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::open(dir.path());
    let mut job = failing(9);
    job["hooks"] = json!([{"task": "div", "on": "error", "answer": "kill"}]);
    let id = node.run(&job);
    let ended = node.ended(&id);
    assert_eq!((&ended["state"], &ended["restarts"]), (&json!("killed"), &json!(0)), "{ended:#}");
    node.close();
}

#[test]
fn an_error_hook_restarts_one_instance_and_the_others_go_on() {
    let function = NativeFunction { name: "test.fails_alone", doc: "Fails twice on 2.", call: fails_alone };
    let dir = tempfile::tempdir().unwrap();
    let node = Node::open_with(dir.path(), FlowConfig::default(), Functions::default().with(function));
    ALONE_CALLS.store(0, Ordering::SeqCst);
    let id = node.run(&json!({
        "version": 1, "kind": "Job", "name": "alone", "mode": "batch",
        "restart": {"policy": "never", "backoff": "0ms"},
        "sources": {"in": {
            "type": "list", "parallelism": 2, "batch": {"size": 1},
            "config": {"records": [{"n": 1}, {"n": 4}, {"n": 2}, {"n": 5}, {"n": 3}, {"n": 6}]},
        }},
        "transforms": {"fn": {"type": "function", "inputs": ["in"], "fn": "test.fails_alone", "parallelism": 2}},
        "sinks": {"out": {"type": "collect", "inputs": ["fn"], "parallelism": 2}},
        "hooks": [{"task": "fn", "on": "error", "answer": "restart"}],
    }));
    let ended = node.ended(&id);
    assert_eq!((&ended["state"], &ended["restarts"]), (&json!("completed"), &json!(0)), "{ended:#}");
    let mut numbers: Vec<u64> = node.collected(&id, "out").iter().map(|record| record["n"].as_u64().unwrap()).collect();
    numbers.sort();
    // The instance with 1, 2 and 3 has read its records three times.
    assert_eq!(numbers, [1, 1, 1, 2, 3, 4, 5, 6]);
    let errors = node.jobs.errors(&node.tenant, &id).unwrap();
    let codes: Vec<&Value> = errors.as_array().unwrap().iter().map(|error| &error["code"]).collect();
    assert_eq!(codes, ["busy", "busy"]);
    node.close();
}

/// Calls of [`fails_twice`] on the record 2.
static CALLS: AtomicU32 = AtomicU32::new(0);

/// Calls of [`fails_alone`] on the record 2.
static ALONE_CALLS: AtomicU32 = AtomicU32::new(0);

fn fails_twice(batch: &Batch, _: &Params) -> FunctionOutput {
    fails_at_first(batch, &CALLS)
}

fn fails_alone(batch: &Batch, _: &Params) -> FunctionOutput {
    fails_at_first(batch, &ALONE_CALLS)
}

/// Fails on the record 2 the first two times.
fn fails_at_first(batch: &Batch, calls: &AtomicU32) -> FunctionOutput {
    let is_two = |row: &u32| batch.payload(*row as usize) == Some(b"{\"n\":2}");
    let failing = |row: &u32| is_two(row) && calls.fetch_add(1, Ordering::SeqCst) < 2;
    let (failed, inputs): (Vec<u32>, Vec<u32>) = (0..batch.len() as u32).partition(failing);
    let error = |row| RecordError { row, code: "busy", message: "not yet".to_owned() };
    FunctionOutput {
        batch: batch.select(inputs.iter().copied()),
        inputs,
        failed: failed.into_iter().map(error).collect(),
    }
}

#[test]
fn a_retry_reads_the_record_again_up_to_its_attempts() {
    let function = NativeFunction { name: "test.fails_twice", doc: "Fails twice on 2.", call: fails_twice };
    let job = |max_attempts: u32| {
        json!({
            "version": 1, "kind": "Job", "name": "retry", "mode": "batch", "restart": {"policy": "never"},
            "sources": {"in": {"type": "list", "config": {"records": [{"n": 1}, {"n": 2}, {"n": 3}]}}},
            "transforms": {"fn": {"type": "function", "inputs": ["in"], "fn": "test.fails_twice", "key_by": ["n"]}},
            "sinks": {"out": {"type": "collect", "inputs": ["fn"]}},
            "routes": [{
                "from": "fn", "on_error": true, "to": "none", "stop": true,
                "action": "retry", "max_attempts": max_attempts,
            }],
        })
    };
    for (max_attempts, state) in [(1, "failed"), (2, "completed")] {
        CALLS.store(0, Ordering::SeqCst);
        let dir = tempfile::tempdir().unwrap();
        let node = Node::open_with(dir.path(), FlowConfig::default(), Functions::default().with(function));
        let id = node.run(&job(max_attempts));
        assert_eq!(node.ended(&id)["state"], state, "{max_attempts} attempts");
        if state == "completed" {
            let mut records: Vec<String> = node.collected(&id, "out").iter().map(Value::to_string).collect();
            records.sort();
            assert_eq!(records, [r#"{"n":1}"#, r#"{"n":2}"#, r#"{"n":3}"#]);
        }
        node.close();
    }
}

static END_IS_OPEN: AtomicBool = AtomicBool::new(false);

fn wait_for_end(batch: &Batch, _: &Params) -> FunctionOutput {
    while !END_IS_OPEN.load(Ordering::Acquire) {
        std::thread::yield_now();
    }
    FunctionOutput { batch: batch.clone(), inputs: (0..batch.len() as u32).collect(), failed: Vec::new() }
}

#[test]
fn the_end_of_a_job_that_meets_a_full_disk_is_stored_once_there_is_room() {
    let (dir, disk) = (tempfile::tempdir().unwrap(), new_disk());
    let function = NativeFunction { name: "test.end", doc: "Waits until the end is open.", call: wait_for_end };
    let functions = Functions::default().with(function);
    let setup = Setup { functions, disk: Some(disk.clone()), ..Setup::default() };
    let node = Node::open_as(dir.path(), setup);
    let id = node.run(&json!({
        "version": 1, "kind": "Job", "name": "ends", "mode": "batch",
        "sources": {"in": {"type": "generator", "config": {"record": {"n": {"sequence": true}}, "count": 10}}},
        "transforms": {"gate": {"type": "function", "inputs": ["in"], "fn": "test.end"}},
        "sinks": {"out": {"type": "blackhole", "inputs": ["gate"]}},
    }));
    disk.tell_free(0);
    eventually("the log refuses changes", || node.log.check_writing().is_err());
    END_IS_OPEN.store(true, Ordering::Release);
    for _ in 0..20 {
        std::thread::sleep(Duration::from_millis(20));
        assert_ne!(node.job(&id)["state"], "completed", "what is not stored is not told");
    }
    disk.tell_free(u64::MAX);
    let job = node.ended(&id);
    assert_eq!((&job["state"], &job["records_out"]), (&json!("completed"), &json!(10)), "{job:#}");
    node.close();
}

#[test]
fn busy_jobs_get_equal_parts_of_the_time_whatever_their_number_of_instances() {
    let dir = tempfile::tempdir().unwrap();
    let config = FlowConfig { threads: 1, ..FlowConfig::default() };
    let node = Node::open_with(dir.path(), config, Functions::default());
    let busy = |name: &str, instances: u32| {
        json!({
            "version": 1, "kind": "Job", "name": name,
            "sources": {"in": {
                "type": "generator", "config": {"record": {"n": {"sequence": true}}},
                "parallelism": instances, "batch": {"size": 10},
            }},
            "sinks": {"out": {"type": "blackhole", "inputs": ["in"], "parallelism": instances}},
        })
    };
    let ids = [node.run(&busy("narrow", 1)), node.run(&busy("wide", 4))];
    let turns = || ids.each_ref().map(|id| node.job(id)["turns"].as_u64().unwrap_or_default());
    eventually("both jobs are busy", || turns().iter().all(|turns| *turns > 100));
    let before = turns();
    eventually("both have had many turns", || turns().iter().zip(before).all(|(after, before)| after - before > 3_000));
    let [narrow, wide] = [0, 1].map(|job| turns()[job] - before[job]);
    // Their turns do the same work, but not in exactly the same time.
    assert!(narrow.abs_diff(wide) < narrow / 2, "{narrow} turns against {wide}");
    node.close();
}

/// A job that makes 8,000 million records of one.
fn endless() -> Value {
    let list: Vec<u32> = (0..2_000).collect();
    json!({
        "version": 1, "kind": "Job", "name": "endless",
        "sources": {"in": {"type": "list", "config": {"records": [{"a": list, "b": list, "c": list}]}}},
        "transforms": {
            "one": {"type": "explode", "inputs": ["in"], "config": {"field": "a"}},
            "two": {"type": "explode", "inputs": ["one"], "config": {"field": "b"}},
            "three": {"type": "explode", "inputs": ["two"], "config": {"field": "c"}},
        },
        "sinks": {"out": {"type": "blackhole", "inputs": ["three"]}},
    })
}

#[test]
fn a_job_whose_work_does_not_end_leaves_turns_to_others_and_can_be_killed() {
    let dir = tempfile::tempdir().unwrap();
    let config = FlowConfig { threads: 1, ..FlowConfig::default() };
    let node = Node::open_with(dir.path(), config, Functions::default());
    let id = node.run(&endless());
    let passed = || node.job(&id)["nodes"][4]["records_in"].as_u64().unwrap_or_default();
    eventually("the job is at work", || passed() > 0);
    let other = node.run(&json!({
        "version": 1, "kind": "Job", "name": "other", "mode": "batch",
        "sources": {"in": {"type": "list", "config": {"records": [{"n": 1}]}}},
        "sinks": {"out": {"type": "blackhole", "inputs": ["in"]}},
    }));
    assert_eq!(node.ended(&other)["state"], "completed");
    let before = passed();
    eventually("the first job goes on", || passed() > before);
    node.kill(&id).unwrap();
    assert_eq!(node.ended(&id)["state"], "killed");
    // The only thread is free at the stop.
    node.close();
}
