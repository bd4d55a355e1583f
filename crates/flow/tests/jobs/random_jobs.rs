//! Random jobs over random records, cut, killed and rescaled at random places.
//!
//! Readers of committed records find what `millstream job test` computes from the same records, in one thread and one instance.
//! `MILLSTREAM_RANDOM_JOBS=1000` runs a thousand jobs.
//!
//! A result of a job may depend on how its partitions and sources interleave, and that is no fault: time is the least of all. So a job is
//! of one of three kinds, each of which has one right result:
//! - `late`: one source of one partition and one instance, whose order is that of the test; another instance without a partition holds
//!   time back until it has said so. Records may be late. The one node with state stands behind the source, as records of several
//!   instances interleave behind it.
//! - `in_time`: one source of several partitions, and up to three nodes with state. The source allows for more disorder than there is, so
//!   no record is late. All nodes have the key by which records are spread over partitions, so each sees the records of a key in
//!   their order, and nothing goes by the time of a moment.
//! - `joined`: two sources of several partitions. No record is late, and the order of the results is free.

use millstream_flow::{DifferenceKind, FlowConfig, Functions, Hooks, StopMode, TestRunner};
use millstream_types::Record;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Map, Value, json};

use crate::lives::{Lives, NAME, Then};

/// Jobs of an ordinary run.
const RANDOM_JOBS: u32 = 20;
const SECOND_MS: i64 = 1_000;
/// 2025-12-31T22:50:00Z, ten minutes before a day begins in Berlin.
const START_MS: i64 = 1_767_221_400_000;
/// The largest disorder of records that are in time, and the setting that allows for it.
const DISORDER_S: i64 = 240;
const DISORDER: &str = "4m";

/// A job without the settings that change from run to run.
#[derive(Debug, Clone)]
struct RandomJob {
    /// The topics of its sources.
    sources: &'static [&'static str],
    partitions: u32,
    max_out_of_orderness: &'static str,
    /// The transforms behind each other; the first one reads all sources.
    transforms: Vec<Value>,
    /// Records may be late.
    is_late: bool,
    /// Late records go to a sink of their own.
    has_late_sink: bool,
    /// Results of one key have an order.
    is_ordered: bool,
}

/// The settings that decide how a job is cut into batches and epochs.
#[derive(Debug, Clone)]
struct Cut {
    batch: u32,
    interval: &'static str,
    /// Records after which an epoch ends, at the latest.
    max_in_flight: Option<u32>,
    source_parallelism: u32,
}

/// The record of one source.
#[derive(Clone)]
struct Event {
    source: usize,
    key: String,
    value: Value,
}

impl std::fmt::Debug for Event {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.source, self.value)
    }
}

/// A part of the records, and the event behind it.
#[derive(Debug, Clone)]
struct Step {
    records: usize,
    /// The job has time to come to the end of the records.
    pauses: bool,
    then: Then,
}

impl RandomJob {
    fn document(&self, cut: &Cut, parallelism: u32) -> Value {
        let mut sources = Map::new();
        for topic in self.sources {
            let mut source = json!({
                "type": "stream", "config": {"topic": topic}, "batch": {"size": cut.batch},
                "parallelism": if self.is_late { 1 } else { cut.source_parallelism },
                "event_time": {
                    "field": "at", "max_out_of_orderness": self.max_out_of_orderness, "idle_timeout": "1d",
                },
            });
            if let Some(max) = cut.max_in_flight {
                source["max_in_flight"] = max.into();
            }
            sources.insert((*topic).to_owned(), source);
        }
        let mut transforms = Map::new();
        let mut inputs = json!(self.sources);
        for (number, transform) in self.transforms.iter().enumerate() {
            let name = format!("t{number}");
            let mut transform = transform.clone();
            transform["inputs"] = inputs;
            transform["parallelism"] = parallelism.into();
            transform["batch"] = json!({"size": cut.batch});
            inputs = json!([name]);
            transforms.insert(name, transform);
        }
        let mut sinks = json!({"out": {"type": "stream", "inputs": inputs, "config": {"topic": "out"}}});
        if self.has_late_sink {
            sinks["late"] = json!({"type": "stream", "config": {"topic": "late"}});
        }
        json!({
            "version": 1, "kind": "Job", "name": NAME, "delivery": "exactly_once",
            "checkpoint": {"interval": cut.interval},
            "sources": sources, "transforms": transforms, "sinks": sinks,
        })
    }

    fn sinks(&self) -> &'static [&'static str] {
        if self.has_late_sink { &["out", "late"] } else { &["out"] }
    }
}

/// Runs the job as it may happen to it; the records of its sinks.
fn run(job: &RandomJob, cut: &Cut, events: &[Event], steps: &[Step], last: &Then) -> Vec<(&'static str, Vec<Value>)> {
    let document = |parallelism| job.document(cut, parallelism);
    let topics = job.sources.iter().map(|topic| (*topic, job.partitions));
    let topics: Vec<_> = topics.chain(job.sinks().iter().map(|topic| (*topic, 2))).collect();
    let mut lives = Lives::begin(&FlowConfig::default(), &topics, &document(2));
    let append = |lives: &mut Lives, events: &[Event]| {
        for Event { source, key, value } in events {
            let value = value.to_string();
            let record = Record { key: Some(key.as_bytes()), value: Some(value.as_bytes()), ..Record::default() };
            lives.append(job.sources[*source], &record);
        }
    };
    let mut left = events;
    for step in steps {
        let (now, later) = left.split_at(step.records.min(left.len()));
        append(&mut lives, now);
        left = later;
        if step.pauses {
            lives.pause();
        }
        lives = lives.go_on(&step.then, document);
    }
    append(&mut lives, left);
    let node = lives.complete(last, document);
    let read = |sink: &&'static str| (*sink, node.read(sink).into_iter().map(|(_, value)| value).collect());
    let found = job.sinks().iter().map(read).collect();
    node.close();
    found
}

/// The differences of the records of sinks from those of one thread.
fn differences(job: &RandomJob, events: &[Event], found: &[(&'static str, Vec<Value>)]) -> Vec<String> {
    let cut = Cut { batch: 1_000, interval: "1s", max_in_flight: None, source_parallelism: 1 };
    let mut document = job.document(&cut, 1);
    let inject = job.sources.iter().enumerate().map(|(number, source)| {
        let of_source = events.iter().filter(|event| event.source == number).map(|event| {
            let mut value = event.value.clone();
            value["$key"] = event.key.clone().into();
            value
        });
        ((*source).to_owned(), of_source.collect::<Vec<_>>().into())
    });
    let inject: Map<String, Value> = inject.collect();
    let expect: Map<String, Value> =
        found.iter().map(|(sink, records)| ((*sink).to_owned(), records.clone().into())).collect();
    document["tests"] = json!([{"name": "one thread", "inject": inject, "expect": expect}]);
    let runner = TestRunner::new(Functions::default(), Hooks::default(), &FlowConfig::default());
    let report = runner.run(&document.to_string(), None).unwrap_or_else(|findings| panic!("{findings:#?}"));
    let all = report.tests.into_iter().flat_map(|test| test.differences);
    all.filter(|found| job.is_ordered || found.kind != DifferenceKind::Order).map(|found| found.message).collect()
}

// -- the documents --

/// A node without state.
fn stateless() -> impl Strategy<Value = Value> {
    select(vec![
        json!({"type": "map", "select": "*, v * 2 AS twice"}),
        json!({"type": "filter", "where": "v % 5 <> 3"}),
        json!({"type": "map", "where": "v % 3 <> 1", "select": "k, g, v"}),
    ])
}

/// A map that looks back.
fn looking_back() -> impl Strategy<Value = Value> {
    let select = "*, RUNNING_SUM(v) AS sum, RUNNING_MAX(v) AS max, LAG(v) AS before, LAG(g, 3) AS third, CHANGED(g) AS is_new, \
                  SINCE_CHANGE(g) AS since";
    Just(json!({"type": "map", "key_by": ["k"], "select": select}))
}

/// `ttl` is longer than records are late: another key may let this one be forgotten before.
fn once(ttl: &'static str) -> impl Strategy<Value = Value> {
    Just(json!({"type": "deduplicate", "key_by": ["k"], "config": {"ttl": ttl}}))
}

fn time_windows() -> impl Strategy<Value = Value> {
    select(vec![
        json!({"type": "tumbling", "size": "5m"}),
        json!({"type": "tumbling", "size": "7m", "offset": "1m"}),
        json!({"type": "tumbling", "size": "1d", "timezone": "Europe/Berlin"}),
        json!({"type": "sliding", "size": "6m", "slide": "2m"}),
        json!({"type": "session", "gap": "1m"}),
        json!({"type": "session", "gap": "4m"}),
    ])
}

fn other_windows() -> impl Strategy<Value = Value> {
    select(vec![
        json!({"type": "count", "size": 4}),
        json!({"type": "count", "size": 5, "slide": 1}),
        json!({"type": "global"}),
    ])
}

/// Triggers that records decide in the order of their key.
fn triggers_by_records() -> impl Strategy<Value = Value> {
    let mode = select(vec!["accumulating", "discarding", "retracting"]);
    let on = select(vec![json!({"on": "count", "every": 3}), json!({"on": "punctuation", "when": "v % 7 = 0"})]);
    (on, mode, any::<bool>()).prop_map(|(mut trigger, mode, all)| {
        trigger["mode"] = mode.into();
        if all {
            trigger["fire"] = "all".into();
        }
        json!([trigger])
    })
}

fn triggers_by_time() -> impl Strategy<Value = Value> {
    let mode = || select(vec!["accumulating", "discarding", "retracting"]);
    let watermark = (mode(), select(vec!["0s", "3m"]))
        .prop_map(|(mode, delay)| json!({"id": "final", "on": "watermark", "delay": delay, "mode": mode}));
    let part = (mode(), select(vec![0.0, 0.5]))
        .prop_map(|(mode, at)| json!({"id": "part", "on": "percentile", "at": at, "mode": mode}));
    let records = triggers_by_records();
    prop_oneof![
        watermark.clone().prop_map(|trigger| json!([trigger])),
        part.clone().prop_map(|trigger| json!([trigger])),
        (watermark, part).prop_map(|(watermark, part)| json!([watermark, part])),
        records,
    ]
}

fn aggregate(window: Value) -> Value {
    json!({
        "type": "aggregate", "key_by": ["k"], "window": window,
        "aggregates": "SUM(v) AS v, MIN(g) AS g, MAX(v) AS max, COUNT(*) AS n, COUNT(DISTINCT v) AS different, FIRST(v) AS first, \
                       LAST(v) AS last, ARRAY_AGG(v) AS all",
    })
}

fn alarm(times: bool) -> impl Strategy<Value = Value> {
    (any::<bool>(), any::<bool>()).prop_map(move |(clears, severe)| {
        let mut config = json!({"raise": "v > 25"});
        if clears {
            config["clear"] = "v < 15".into();
        }
        if severe {
            config["severity"] = "v / 10".into();
        }
        if times {
            for (key, time) in [("for", "1m"), ("clear_for", "2m"), ("absent_after", "5m"), ("forget_after", "20m")] {
                config[key] = time.into();
            }
        }
        json!({
            "type": "alarm", "key_by": ["k"], "config": config,
            "select": "key AS k, event, at, since, severity, record.g AS g, record.v AS v",
        })
    })
}

fn late() -> impl Strategy<Value = RandomJob> {
    let window =
        (time_windows(), select(vec!["0s", "2m", "1h"]), any::<bool>(), proptest::option::of(triggers_by_time()));
    let windows = window.prop_map(|(mut window, lateness, to, triggers)| {
        window["allowed_lateness"] = lateness.into();
        if to {
            window["late_to"] = "late".into();
        }
        let mut node = aggregate(window);
        // A session has no length of which there could be a part.
        let has_parts = |triggers: &Value| triggers.to_string().contains("percentile");
        let is_session = node["window"]["type"] == "session";
        if let Some(triggers) = triggers.filter(|triggers| !is_session || !has_parts(triggers)) {
            node["triggers"] = triggers;
        }
        node
    });
    let forgetting = looking_back().prop_map(|mut node| {
        node["config"] = json!({"ttl": "6m"});
        node
    });
    let keyed = prop_oneof![5 => windows, 1 => forgetting, 2 => alarm(true), 1 => once("31m"), 1 => other_windows().prop_map(aggregate)];
    (keyed, proptest::option::of(stateless()), select(vec!["0s", "1m"])).prop_map(|(keyed, behind, disorder)| {
        let has_late_sink = keyed["window"]["late_to"].is_string();
        let transforms = [keyed].into_iter().chain(behind).collect();
        RandomJob {
            sources: &["in"],
            partitions: 1,
            max_out_of_orderness: disorder,
            transforms,
            is_late: true,
            has_late_sink,
            is_ordered: true,
        }
    })
}

fn in_time() -> impl Strategy<Value = RandomJob> {
    let by_records = triggers_by_records().prop_map(|triggers| {
        let mut node = aggregate(json!({"type": "global"}));
        node["triggers"] = triggers;
        node
    });
    let first =
        || prop_oneof![stateless(), looking_back(), once("5m"), alarm(false), time_windows().prop_map(aggregate)];
    let last = prop_oneof![
        looking_back(),
        once("5m"),
        alarm(false),
        time_windows().prop_map(aggregate),
        other_windows().prop_map(aggregate),
        by_records
    ];
    (prop::collection::vec(first(), 0..=2), last, 1..=3_u32).prop_map(|(mut transforms, last, partitions)| {
        transforms.push(last);
        // A partition may be ahead of another one by any time, and then keys are forgotten.
        let forgets = transforms.iter().any(|node| node["type"] == "deduplicate");
        RandomJob {
            sources: &["in"],
            partitions: if forgets { 1 } else { partitions },
            max_out_of_orderness: DISORDER,
            transforms,
            is_late: false,
            has_late_sink: false,
            is_ordered: true,
        }
    })
}

fn joined() -> impl Strategy<Value = RandomJob> {
    let kind = select(vec!["inner", "left", "right", "full"]);
    let within =
        select(vec![json!("3m"), json!({"before": "0s", "after": "5m"}), json!({"before": "-1m", "after": "6m"})]);
    let behind = proptest::option::of(select(vec![
        json!({"type": "filter", "where": "v % 5 <> 3"}),
        json!({
            "type": "aggregate", "key_by": ["k"], "window": {"type": "tumbling", "size": "10m"},
            "aggregates": "SUM(v) AS v, MAX(v) AS max, COUNT(*) AS n",
        }),
    ]));
    (kind, within, behind, 1..=3_u32).prop_map(|(kind, within, behind, partitions)| {
        let join = json!({
            "type": "join",
            "config": {"left": "left", "right": "right", "on": ["k", "g"], "kind": kind, "within": within},
            "select": "COALESCE(left.k, right.k) AS k, left.at AS l, right.at AS r, \
                       COALESCE(left.v, 0) + COALESCE(right.v, 0) AS v",
        });
        RandomJob {
            sources: &["left", "right"],
            partitions,
            max_out_of_orderness: DISORDER,
            transforms: [join].into_iter().chain(behind).collect(),
            is_late: false,
            has_late_sink: false,
            is_ordered: false,
        }
    })
}

// -- the records, and the events in between --

fn events(sources: usize, late_s: i64) -> impl Strategy<Value = Vec<Event>> {
    let back = prop_oneof![3 => Just(0), 2 => 0..=DISORDER_S, 2 => 0..=late_s.max(DISORDER_S)];
    let event = (0..sources, 0..5_u8, 0..3_u8, 0..50_u8, 0..40_i64, back);
    prop::collection::vec(event, 20..160).prop_map(|events| {
        let mut now_s = 0;
        let made = events.into_iter().map(|(source, key, g, v, forward, back)| {
            now_s += forward;
            let at = START_MS + (now_s - back) * SECOND_MS;
            let key = format!("k{key}");
            Event { source, value: json!({"k": key, "g": g, "v": v, "at": at}), key }
        });
        made.collect()
    })
}

fn cuts() -> impl Strategy<Value = Cut> {
    // Epochs by the clock, or after every few records.
    let epochs =
        prop_oneof![Just(("3ms", None)), Just(("20ms", None)), (1..=30_u32).prop_map(|records| ("1h", Some(records))),];
    (select(vec![1, 2, 7, 1_000]), epochs, 1..=3_u32).prop_map(
        |(batch, (interval, max_in_flight), source_parallelism)| Cut {
            batch,
            interval,
            max_in_flight,
            source_parallelism,
        },
    )
}

fn rescales() -> impl Strategy<Value = Then> {
    prop_oneof![
        (select(vec![StopMode::Graceful, StopMode::Immediate]), 1..=3_u32).prop_map(|(mode, p)| Then::Resume(mode, p)),
        (1..=3_u32).prop_map(Then::Replace),
    ]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let then = prop_oneof![
        1 => Just(Then::GoOn),
        4 => (1..300_u64).prop_map(Then::Kill),
        1 => Just(Then::Restart),
        3 => rescales(),
    ];
    let step = (0..50_usize, any::<bool>(), then).prop_map(|(records, pauses, then)| Step { records, pauses, then });
    prop::collection::vec(step, 1..6)
}

fn jobs_with_events() -> impl Strategy<Value = (RandomJob, Vec<Event>)> {
    prop_oneof![
        2 => (late(), events(1, 1_800)),
        2 => (in_time(), events(1, 0)),
        1 => (joined(), events(2, 0)),
    ]
}

fn cases() -> u32 {
    std::env::var("MILLSTREAM_RANDOM_JOBS").map_or(RANDOM_JOBS, |jobs| jobs.parse().unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: cases(), max_shrink_iters: 40, max_shrink_time: 30_000, failure_persistence: None, ..ProptestConfig::default()
    })]

    #[test]
    fn random_jobs_give_what_one_thread_gives(
        (job, events) in jobs_with_events(), cut in cuts(), steps in steps(), last in rescales(),
    ) {
        let found = run(&job, &cut, &events, &steps, &last);
        let differences = differences(&job, &events, &found);
        prop_assert!(differences.is_empty(), "{differences:#?}\n{:#}", job.document(&cut, 2));
    }
}
