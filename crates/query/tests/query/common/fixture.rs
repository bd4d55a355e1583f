//! An engine on a log with one telemetry topic, on two threads, whose time stands still.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use millstream_log::{
    AckLevel, Appended, Done, Error as LogError, Log, LogConfig, Partition, Storage, SystemFiles, TopicConfig, UpTo,
};
use millstream_query::{Cause, Config, Deliver, Engine, QueryAnswer, QueryRequest, QueryRuntime, Subscription};
use millstream_testkit::{MemoryLog, TestLog, eventually_async, runs_on_kafka};
use millstream_types::{
    ManualClock, MemoryBudget, Record, RecordBatch, ShortLives, StateTopic, SystemClock, TenantId, TopicKind,
    TopicName, TopicPartition, WallClock as _, partition_of_key,
};
use parking_lot::Mutex;
use serde_json::Value;

const PARTITIONS: u32 = 4;

pub(crate) struct Fixture {
    pub(crate) engine: Arc<Engine>,
    pub(crate) log: Arc<dyn Log>,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) topic: TopicName,
    pub(crate) tenant: TenantId,
    /// The lives that a process has behind it which is started anew.
    pub(crate) short_lives: ShortLives,
    config: Config,
    budget: MemoryBudget,
    /// `None` over a log in memory.
    disk: Option<Disk>,
    /// The answers to the newest append of each partition.
    answers: Mutex<HashMap<u32, mpsc::Receiver<Result<Appended, LogError>>>>,
}

/// The engine of a log on disk.
struct Disk {
    log: TestLog,
    dir: tempfile::TempDir,
}

/// The way in which a process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The log is gone before the engine can write anything more.
    Crash,
    Clean,
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.engine.stop();
        self.disk.iter().for_each(|disk| disk.log.close().unwrap());
    }
}

pub(crate) fn disk() -> TopicConfig {
    TopicConfig { partitions: PARTITIONS, ..TopicConfig::default() }
}

/// A topic in memory.
pub(crate) fn memory() -> TopicConfig {
    TopicConfig { storage: Storage::Memory { max_bytes: 16 << 20 }, level: AckLevel::Memory, ..disk() }
}

fn budget() -> MemoryBudget {
    MemoryBudget::new("memory.budget_bytes", 1 << 30)
}

/// Over a log that is not opened again: in memory, if the topic is or the environment asks for no other.
pub(crate) fn fixture(topic: &TopicConfig, config: Config) -> Fixture {
    fixture_within(topic, config, budget())
}

pub(crate) fn fixture_within(topic: &TopicConfig, config: Config, budget: MemoryBudget) -> Fixture {
    if runs_on_kafka() && topic.storage == Storage::Disk {
        return opened(topic, config, budget);
    }
    begin(MemoryLog::open(Arc::new(SystemClock::default())), None, topic, config, budget)
}

/// Over a log on disk, which can be opened again.
pub(crate) fn fixture_on_disk(topic: &TopicConfig, config: Config) -> Fixture {
    opened(topic, config, budget())
}

fn opened(topic: &TopicConfig, config: Config, budget: MemoryBudget) -> Fixture {
    let dir = tempfile::tempdir().unwrap();
    let log = open_log(dir.path());
    begin(log.log(), Some(Disk { log, dir }), topic, config, budget)
}

fn begin(log: Arc<dyn Log>, disk: Option<Disk>, topic: &TopicConfig, config: Config, budget: MemoryBudget) -> Fixture {
    let tenant = TenantId::new("acme").unwrap();
    let name = TopicName::reserved(TopicKind::Telemetry, &tenant);
    log.create_topic(&name, topic).unwrap();
    let clock = Arc::new(ManualClock::at(1_000_000));
    let short_lives = ShortLives::default();
    let engine = start((&log, &config, &budget, &clock), &short_lives);
    let answers = Mutex::default();
    Fixture { engine, log, clock, topic: name, tenant, short_lives, config, budget, disk, answers }
}

fn start(
    (log, config, memory, clock): (&Arc<dyn Log>, &Config, &MemoryBudget, &Arc<ManualClock>),
    short_lives: &ShortLives,
) -> Arc<Engine> {
    let (log, memory, short_lives) = (log.clone(), memory.clone(), short_lives.clone());
    let runtime = QueryRuntime { log, memory, monotonic: clock.clone(), wall: clock.clone(), short_lives };
    Arc::new(Engine::start(runtime, config.clone()).unwrap())
}

fn open_log(dir: &Path) -> TestLog {
    let config = LogConfig { dir: dir.join("log"), guarded_words: vec!["queries".to_owned()], ..LogConfig::default() };
    TestLog::open(config, Arc::new(SystemFiles)).unwrap()
}

pub(crate) fn two_threads() -> Config {
    Config { threads: 2, ..Config::default() }
}

impl Fixture {
    /// Ends it and starts it anew, `down` later.
    pub(crate) fn restart(&mut self, ending: Ending, down: Duration) {
        self.restart_after(ending, down, |_| {});
    }

    /// As [`Self::restart`], with something done to the log in between.
    pub(crate) fn restart_after(&mut self, ending: Ending, down: Duration, between: impl FnOnce(&dyn Log)) {
        if ending == Ending::Clean {
            self.engine.stop();
        }
        let disk = self.disk.as_mut().expect("only a log on disk is opened again");
        disk.log.close().unwrap();
        self.engine.stop();
        disk.log = open_log(disk.dir.path());
        self.log = disk.log.log();
        between(&*self.log);
        let now_ms = self.clock.now_ms() + i64::try_from(down.as_millis()).unwrap();
        self.clock = Arc::new(ManualClock::at(now_ms));
        self.engine = start((&self.log, &self.config, &self.budget, &self.clock), &self.short_lives);
    }

    pub(crate) fn send(&self, key: &str, payloads: &[String]) {
        let number = partition_of_key(key.as_bytes(), PARTITIONS).0;
        let partition = self.log.partition(&TopicPartition::new(self.topic.clone(), number)).unwrap();
        let records: Vec<Record<'_>> = payloads
            .iter()
            .map(|payload| Record { key: Some(key.as_bytes()), value: Some(payload.as_bytes()), ..Record::default() })
            .collect();
        let (sender, answer) = mpsc::sync_channel(1);
        partition.append(&records, AckLevel::Memory, Done::call(move |stored| drop(sender.send(stored)))).unwrap();
        self.answers.lock().insert(number, answer);
    }

    /// Waits until all that was sent is there to be read.
    pub(crate) fn stored(&self) {
        let answers = std::mem::take(&mut *self.answers.lock());
        // One of a log that was closed does not come.
        answers.into_values().for_each(|answer| drop(answer.recv()));
    }

    /// Returns the state that is kept of a query now.
    pub(crate) fn kept_of(&self, id: &str) -> Value {
        let topic = self.log.partition(&TopicPartition::new(TopicName::internal(StateTopic::Queries), 0)).unwrap();
        let batches = read_all(&*topic, UpTo::Stable);
        let key = format!("q{id}");
        let records = batches.iter().flat_map(|batch| batch.records().map(Result::unwrap));
        let value = records.filter(|record| record.key == Some(key.as_bytes())).last().and_then(|record| record.value);
        value.map_or(Value::Null, |value| serde_json::from_slice(&value[1..]).unwrap())
    }

    pub(crate) async fn submit(&self, request: QueryRequest) -> Subscription {
        self.stored();
        self.engine.submit(&self.tenant, request).await.unwrap()
    }

    pub(crate) async fn live(&self, query: &str) -> Subscription {
        self.submit(QueryRequest { deliver: Deliver::Sse, ..QueryRequest::new(query) }).await
    }

    /// Waits until a query has seen so many records, all of whose matches are with it.
    pub(crate) async fn seen(&self, query: &Subscription, records: u64) {
        let meta = || self.engine.get(&self.tenant, query.id()).unwrap();
        eventually_async("the records have been seen", || meta().records_seen == records).await;
        // A thread counts the records of a batch before it hands over their matches; it does so before the next command.
        drop(self.live("SELECT * FROM STREAM() WHERE nobody").await);
    }

    /// Sends payloads, spread over all partitions.
    pub(crate) fn spread(&self, payloads: impl IntoIterator<Item = Value>) -> u64 {
        let mut by_key: [Vec<String>; 16] = Default::default();
        let mut sent = 0;
        for (i, payload) in payloads.into_iter().enumerate() {
            by_key[i % 16].push(payload.to_string());
            sent += 1;
        }
        for (key, payloads) in by_key.iter().enumerate().filter(|(_, payloads)| !payloads.is_empty()) {
            self.send(&format!("k{key}"), payloads);
        }
        sent
    }

    pub(crate) fn pass(&self, ms: u64) {
        self.clock.advance(Duration::from_millis(ms));
    }

    /// Returns the answer of `query` over `payloads` when its 1,000 ms are over.
    pub(crate) async fn answer(&self, query: &str, payloads: impl IntoIterator<Item = Value>) -> QueryAnswer {
        let subscription = self.submit(QueryRequest::new(query)).await;
        let sent = self.spread(payloads);
        self.seen(&subscription, sent).await;
        self.pass(1_000);
        let answer = subscription.answer().await;
        assert_eq!(answer.meta.cause, Some(Cause::Duration), "{query}: {:?}", answer.meta);
        answer
    }
}

/// Appends records, and waits until they are there to be read.
pub(crate) fn append(partition: &dyn Partition, records: &[Record<'_>], level: AckLevel) {
    let (sender, answer) = mpsc::sync_channel(1);
    partition.append(records, level, Done::call(move |stored| drop(sender.send(stored)))).unwrap();
    answer.recv().unwrap().unwrap();
}

/// All that a partition has, over all its segments.
pub(crate) fn read_all(partition: &dyn Partition, up_to: UpTo) -> Vec<RecordBatch> {
    let (mut next, mut all) = (partition.offsets().first, Vec::new());
    loop {
        let batches = partition.read(next, 64 << 20, up_to).unwrap();
        let Some(last) = batches.last() else { return all };
        next = last.next_offset();
        all.extend(batches);
    }
}

pub(crate) fn rows(answer: &QueryAnswer) -> Vec<String> {
    let rows = answer.batches.iter().flat_map(|batch| batch.rows());
    rows.map(|row| String::from_utf8(row.to_vec()).unwrap()).collect()
}
