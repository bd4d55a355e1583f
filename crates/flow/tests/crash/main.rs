//! A job with state commits each result once, whatever power loss and `kill -9` it lives through.
//!
//! Each seed is one disk through several lives. In each, messages arrive, most of them several times, and a job of several
//! instances passes each of them once, raises an alarm for it, counts it, has a window of it, or joins it with itself; at a random change of the disk the power goes, or
//! the process is killed. What readers find must be a part of the right results at every start, and all of them at the end.
//!
//! A seed decides what is sent and when the power goes, not how threads interleave. Each run takes fresh seeds and prints
//! them. `MILLSTREAM_CRASH_POINTS=300` runs so many lives, `MILLSTREAM_CRASH_SEED=7` only those of seed 7.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use millstream_flow::{FlowConfig, FlowRuntime, Functions, Hooks, Jobs};
use millstream_log::{AckLevel, Embedded, Files, Log, TopicConfig, UpTo, reply};
use millstream_testkit::eventually;
use millstream_testkit::sim::{PowerLoss, Rng, SimFiles, crash_seeds, is_one_seed};
use millstream_testkit::small_log::{name as topic, new_disk, small_config};
use millstream_types::{
    AccessScope, MemoryBudget, Principal, Record, Roles, ShortLives, SystemClock, TenantId, TopicPartition,
};
use millstream_view::{Checkpoints, Shards, ViewRuntime};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// Lives that end by a crash in an ordinary run.
const CRASH_POINTS: u64 = 30;
const LIVES: u64 = 6;
/// A life ends at one of this many changes to the disk, if it does not end before.
const CHANGES_PER_LIFE: u64 = 700;
/// Longest life.
const LIFE: Duration = Duration::from_secs(2);
const PARTITIONS: u32 = 3;
/// The ways in which a job passes each message once.
const WAYS: u64 = 6;
const JOB: &str = "the-job";
/// 2026-01-01T00:00:00Z
const START_MS: i64 = 1_767_225_600_000;

#[derive(Debug, Default)]
struct Seen {
    cut_at_work: u64,
    kills: u64,
    starts_cut_short: u64,
    messages: usize,
    /// Results that were there at the beginnings of lives.
    results: usize,
}

/// A process on a simulated disk.
struct Process {
    log: Arc<Embedded>,
    ground: ViewRuntime,
    jobs: Arc<Jobs>,
    _views: TempDir,
}

impl Process {
    fn open(files: &SimFiles) -> Result<Self, String> {
        let clock = Arc::new(SystemClock::default());
        let files: Arc<dyn Files> = Arc::new(files.clone());
        let log =
            Embedded::open(small_config(), files, clock.clone(), clock.clone()).map_err(|error| error.to_string())?;
        let views = tempfile::tempdir().unwrap();
        let ground = ViewRuntime {
            log: log.clone(),
            checkpoints: Checkpoints::open(&views.path().join("views")).unwrap(),
            shards: Shards::start(1).unwrap(),
            wall: clock.clone(),
        };
        let opened = Self::open_jobs(&ground, clock).map_err(|error| error.to_string());
        match opened {
            Ok(jobs) => Ok(Self { log, ground, jobs, _views: views }),
            Err(why) => {
                drop(log.close());
                ground.shards.join();
                Err(why)
            }
        }
    }

    fn open_jobs(ground: &ViewRuntime, clock: Arc<SystemClock>) -> Result<Arc<Jobs>, Box<dyn std::error::Error>> {
        for name in ["messages", "results"] {
            if ground.log.topic(&topic(name)).is_none() {
                let config = TopicConfig { partitions: PARTITIONS, segment_bytes: 16 << 10, ..TopicConfig::default() };
                ground.log.create_topic(&topic(name), &config)?;
            }
        }
        let runtime = FlowRuntime {
            views: ground.clone(),
            clock,
            memory: MemoryBudget::new("memory.budget_bytes", 1 << 30),
            short_lives: ShortLives::default(),
            callers: Arc::new(|| false),
            entities: None,
        };
        Ok(Jobs::open(&runtime, FlowConfig::default(), Functions::default(), Hooks::default())?)
    }

    /// Submits the job, unless it runs since an earlier life.
    fn submit(&self, runtime: &Runtime, job: &Value) -> Result<(), millstream_flow::Error> {
        let (tenant, name, roles, scope) =
            (TenantId::default(), "test".to_owned(), Roles::APPLICATION, AccessScope::default());
        let caller = Principal { tenant, name, roles, scope };
        runtime.block_on(self.jobs.submit(&caller, &job.to_string())).map(drop)
    }

    /// Ends every thread, whatever has become of the log.
    fn end(self) {
        self.jobs.shut_down(Duration::ZERO);
        drop(self.jobs);
        drop(self.log.close());
        self.ground.shards.join();
    }

    /// The number of results of each message.
    fn results(&self) -> BTreeMap<u64, u64> {
        let mut counts = BTreeMap::new();
        for number in 0..PARTITIONS {
            let partition = self.log.partition(&TopicPartition::new(topic("results"), number)).unwrap();
            let mut next = partition.offsets().first;
            loop {
                let batches = partition.read(next, 1 << 20, UpTo::Stable).unwrap();
                let Some(last) = batches.last() else { break };
                next = last.next_offset();
                for record in batches.iter().flat_map(|batch| batch.records()) {
                    let value: Value = serde_json::from_slice(record.unwrap().value.unwrap()).unwrap();
                    *counts.entry(value["id"].as_u64().unwrap()).or_default() += 1;
                }
            }
        }
        counts
    }

    /// Appends a message; `true` once it is synced, `false` if the log has ended.
    fn append(&self, id: u64) -> bool {
        let (done, answer) = reply();
        let number = (id % u64::from(PARTITIONS)) as u32;
        let Ok(partition) = self.log.partition(&TopicPartition::new(topic("messages"), number)) else { return false };
        let (value, timestamp_ms) = (json!({ "id": id }).to_string(), START_MS + id as i64);
        let record = Record { timestamp_ms, value: Some(value.as_bytes()), ..Record::default() };
        partition.append(&[record], AckLevel::Synced, done).is_ok() && answer.wait().is_ok()
    }
}

/// A job that passes each message once, in one of these ways: as the first of its id, as the alarm that it raises for its id, as
/// the one that is counted as the first, as the first result of its window, as a window that time closes, or as the pair of the
/// first of its id on two ways.
fn document(delivery: &str, way: u64) -> Value {
    let first = || json!({"type": "deduplicate", "inputs": ["in"], "key_by": ["id"], "config": {"ttl": "1h"}});
    let once = match way % WAYS {
        0 => json!({"type": "deduplicate", "config": {"ttl": "1h"}}),
        1 => json!({"type": "alarm", "config": {"raise": "id >= 0"}, "select": "record.id AS id"}),
        2 => json!({"type": "map", "config": {"ttl": "1h"}, "select": "id, RUNNING_COUNT(id) AS count"}),
        3 => json!({
            "type": "aggregate", "window": {"type": "global"}, "aggregates": "COUNT(*) AS count",
            "triggers": [{"on": "count", "every": 1}],
        }),
        4 => json!({
            "type": "join", "inputs": ["left", "right"], "select": "left.id AS id",
            "config": {"left": "left", "right": "right", "on": "id", "within": "1h", "kind": "full"},
        }),
        _ => json!({
            "type": "aggregate", "window": {"type": "tumbling", "size": "1ms"}, "aggregates": "COUNT(*) AS records",
        }),
    };
    let mut job = json!({
        "version": 1, "kind": "Job", "name": "once", "id": JOB, "delivery": delivery,
        "checkpoint": {"interval": "3ms"}, "restart": {"max_attempts": 1000, "backoff": "5ms..10ms"},
        "sources": {"in": {"type": "stream", "config": {"topic": "messages"}, "batch": {"size": 5}, "parallelism": 2, "event_time": {"idle_timeout": "1d"}}},
        "sinks": {"out": {"type": "stream", "inputs": ["once"], "config": {"topic": "results", "key": "id"}}},
    });
    job["transforms"] = match once["type"].as_str() {
        Some("join") => json!({"left": first(), "right": first(), "once": {"parallelism": 3}}),
        _ => json!({"once": {"inputs": ["in"], "key_by": ["id"], "parallelism": 3}}),
    };
    if [2, 3].contains(&(way % WAYS)) {
        job["sinks"]["out"]["where"] = json!("count = 1");
    }
    job["transforms"]["once"].as_object_mut().unwrap().extend(once.as_object().unwrap().clone());
    job
}

struct Lives<'a> {
    rng: Rng,
    files: SimFiles,
    runtime: Runtime,
    /// Messages that the log has acknowledged as synced.
    acknowledged: BTreeSet<u64>,
    next_id: u64,
    job: Value,
    seen: &'a mut Seen,
}

impl Lives<'_> {
    fn start(&mut self) -> Process {
        loop {
            if self.rng.chance(30) {
                self.files.crash_after(1 + self.rng.below(60));
            }
            let opened = Process::open(&self.files);
            match opened {
                Ok(process) if !self.files.is_off() => {
                    self.files.crash_after(u64::MAX >> 1);
                    return process;
                }
                opened => {
                    assert!(self.files.is_off(), "does not start: {:?}", opened.err());
                    self.seen.starts_cut_short += 1;
                    let after = self.files.crash(self.rng.bits(), PowerLoss::Torn);
                    if let Ok(process) = opened {
                        process.end();
                    }
                    self.files = after;
                }
            }
        }
    }

    fn check(&mut self, process: &Process) {
        let results = process.results();
        let twice: Vec<u64> = results.iter().filter(|(_, count)| **count > 1).map(|(id, _)| *id).collect();
        assert_eq!(twice, Vec::<u64>::new(), "results that are there twice");
        self.seen.results += results.len();
    }

    fn live(&mut self) {
        let process = self.start();
        self.check(&process);
        self.files.crash_after(1 + self.rng.below(CHANGES_PER_LIFE));
        let begun = Instant::now();
        let mut works = process.submit(&self.runtime, &self.job).is_ok();
        while works && !self.files.is_off() && begun.elapsed() < LIFE {
            // Most messages come again, at once or much later.
            let id = match self.rng.chance(40) {
                true => self.rng.below(self.next_id + 1),
                false => self.next_id,
            };
            works = process.append(id);
            if works {
                // A message that may be lost is the next one again, so that none comes behind the time of later ones.
                self.next_id = self.next_id.max(id + 1);
                self.acknowledged.insert(id);
            }
        }
        self.seen.cut_at_work += u64::from(self.files.is_off());
        let after = if self.rng.chance(30) {
            self.seen.kills += 1;
            self.files.kill()
        } else {
            let loss = if self.rng.chance(40) { PowerLoss::DropAll } else { PowerLoss::Torn };
            self.files.crash(self.rng.bits(), loss)
        };
        process.end();
        self.files = after;
    }

    /// The last life: nothing happens, and everything must be there.
    fn finish(&mut self) {
        self.files.crash_after(u64::MAX >> 1);
        let process = Process::open(&self.files).unwrap();
        process.submit(&self.runtime, &self.job).unwrap();
        // One in each partition that closes the windows of all others.
        let ahead = self.next_id + 1_000;
        assert!((ahead..ahead + u64::from(PARTITIONS)).all(|id| process.append(id)));
        let missing = || {
            let results = process.results();
            self.acknowledged.iter().filter(|id| !results.contains_key(id)).count()
        };
        eventually("every message has its result", || missing() == 0);
        let results = process.results();
        assert!(results.values().all(|count| *count == 1), "{results:?}");
        self.seen.messages += self.acknowledged.len();
        process.end();
    }
}

fn run(seed: u64, delivery: &str, seen: &mut Seen) {
    let files = new_disk();
    let (rng, runtime) = (Rng::new(seed), Runtime::new().unwrap());
    let job = document(delivery, seed);
    let mut lives = Lives { rng, files, runtime, acknowledged: BTreeSet::new(), next_id: 0, job, seen };
    for _ in 0..LIVES {
        lives.live();
    }
    lives.finish();
}

#[test]
fn each_message_has_one_result_at_any_crash_point() {
    let seeds = crash_seeds(CRASH_POINTS, LIVES);
    let mut seen = Seen::default();
    for seed in seeds {
        println!("MILLSTREAM_CRASH_SEED={seed}");
        run(seed, "exactly_once", &mut seen);
    }
    println!("{seen:?}");
    assert!(
        is_one_seed() || (seen.cut_at_work > 0 && seen.messages > 0 && seen.results > 0),
        "{seen:?} tries too little"
    );
}

#[test]
fn results_that_are_repeated_are_noticed() {
    let run = |seed| run(seed, "at_least_once", &mut Seen::default());
    let is_noticed = |seed| catch_unwind(AssertUnwindSafe(|| run(seed))).is_err();
    assert!((0..10).any(is_noticed), "no seed notices results that are there twice");
}
