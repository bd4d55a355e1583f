//! A node with a log and jobs, on a directory of the caller.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use millstream_flow::{
    EntityReader, Error, FlowConfig, FlowRuntime, Functions, Hooks, Jobs, ParallelismChange, StopMode, Submission, Tap,
};
use millstream_log::{AckLevel, Embedded, Files, Log, LogConfig, SystemFiles, TopicConfig, UpTo, reply};
use millstream_testkit::sim::SimFiles;
use millstream_testkit::{TestLog, found};
use millstream_types::{
    AccessScope, MemoryBudget, MonotonicClock, Offset, Principal, Record, Roles, ShortLives, SystemClock, TenantId,
    TopicName, TopicPartition, WallClock,
};
use millstream_view::{Checkpoints, Shards, ViewRuntime};
use serde_json::Value;
use tokio::runtime::Runtime;

const PATIENCE: Duration = Duration::from_secs(60);
/// The time that jobs have to finish what they have read when a node closes.
const DRAIN: Duration = Duration::from_secs(2);

/// The engine of a node's log.
enum Engine {
    /// The one that the environment asks for.
    Chosen(TestLog),
    /// The built-in one, whose files a test looks at, or whose disk is simulated.
    BuiltIn(Arc<Embedded>),
}

pub(crate) struct Node {
    pub(crate) log: Arc<dyn Log>,
    engine: Engine,
    pub(crate) jobs: Arc<Jobs>,
    pub(crate) tenant: TenantId,
    runtime: Runtime,
}

/// The surroundings of jobs.
pub(crate) struct Setup {
    pub(crate) config: FlowConfig,
    pub(crate) functions: Functions,
    /// The time of jobs; the log has its own.
    pub(crate) clock: Arc<dyn MonotonicClock>,
    /// The date of jobs.
    pub(crate) wall: Arc<dyn WallClock>,
    pub(crate) memory: MemoryBudget,
    /// The starts of the last lives, if each was short.
    pub(crate) short_lives: ShortLives,
    /// Callers may be on other machines.
    pub(crate) are_remote: bool,
    /// The entities that lookups read.
    pub(crate) entities: Option<Arc<dyn EntityReader>>,
    /// The simulated disk of the log, in place of the directory.
    pub(crate) disk: Option<SimFiles>,
    /// The log is files in the directory, whatever the environment asks for.
    pub(crate) in_files: bool,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            config: FlowConfig::default(),
            functions: Functions::default(),
            clock: Arc::new(SystemClock::default()),
            wall: Arc::new(SystemClock::default()),
            memory: MemoryBudget::new("memory.budget_bytes", 1 << 30),
            short_lives: ShortLives::default(),
            are_remote: false,
            entities: None,
            disk: None,
            in_files: false,
        }
    }
}

/// The log on a simulated disk: its files are small, as they lie in memory, and it syncs often.
fn simulated_config() -> LogConfig {
    LogConfig {
        dir: PathBuf::from("/data/log"),
        journal_file_bytes: 512 << 10,
        journal_max_bytes: 2 << 20,
        append_max_bytes: 384 << 10,
        batch_max_bytes: 256 << 10,
        sync_interval_ms: 5,
        flush_interval_ms: 20,
        ..LogConfig::default()
    }
}

impl Node {
    pub(crate) fn open(dir: &Path) -> Self {
        Self::open_with(dir, FlowConfig::default(), Functions::default())
    }

    pub(crate) fn open_with(dir: &Path, config: FlowConfig, functions: Functions) -> Self {
        Self::open_as(dir, Setup { config, functions, ..Setup::default() })
    }

    pub(crate) fn open_as(dir: &Path, setup: Setup) -> Self {
        let Setup {
            config,
            functions,
            clock: jobs_clock,
            wall,
            memory,
            short_lives,
            are_remote,
            entities,
            disk,
            in_files,
        } = setup;
        let clock = Arc::new(SystemClock::default());
        let built_in = |config: LogConfig, files: Arc<dyn Files>| {
            Engine::BuiltIn(Embedded::open(config, files, clock.clone(), clock.clone()).unwrap())
        };
        let config_of_log = LogConfig { dir: dir.join("log"), ..LogConfig::default() };
        let engine = match disk {
            Some(disk) => built_in(simulated_config(), Arc::new(disk)),
            None if in_files => built_in(config_of_log, Arc::new(SystemFiles)),
            None => Engine::Chosen(TestLog::open(config_of_log, Arc::new(SystemFiles)).unwrap()),
        };
        let log: Arc<dyn Log> = match &engine {
            Engine::Chosen(log) => log.log(),
            Engine::BuiltIn(log) => log.clone(),
        };
        let views = ViewRuntime {
            log: log.clone(),
            checkpoints: Checkpoints::open(&dir.join("views")).unwrap(),
            shards: Shards::start(1).unwrap(),
            wall,
        };
        let callers = Arc::new(move || are_remote);
        let runtime = FlowRuntime { views, clock: jobs_clock, memory, short_lives, callers, entities };
        let jobs = Jobs::open(&runtime, config, functions, Hooks::default()).unwrap();
        Self { log, engine, jobs, tenant: TenantId::default(), runtime: Runtime::new().unwrap() }
    }

    pub(crate) fn close(self) {
        self.jobs.shut_down(DRAIN);
        self.close_log().unwrap();
    }

    /// Closes the log alone.
    pub(crate) fn close_log(&self) -> Result<(), millstream_log::Error> {
        match &self.engine {
            Engine::Chosen(log) => log.close(),
            Engine::BuiltIn(log) => log.close(),
        }
    }

    /// Ends the threads of a node whose disk is off.
    pub(crate) fn end(self) {
        self.jobs.shut_down(Duration::ZERO);
        drop(self.close_log());
    }

    pub(crate) fn submit(&self, document: &Value) -> Result<Submission, Error> {
        self.submit_as(Roles::APPLICATION, document)
    }

    fn caller(&self, roles: Roles) -> Principal {
        Principal { tenant: self.tenant.clone(), name: "test".to_owned(), roles, scope: AccessScope::default() }
    }

    /// Submits a document in the place of the running job of its name, which has so much time to stop.
    pub(crate) fn replace(&self, document: &Value, time: Duration) -> Result<Submission, Error> {
        let caller = self.caller(Roles::APPLICATION);
        self.runtime.block_on(self.jobs.replace(&caller, &document.to_string(), time))
    }

    /// As [`Node::replace`], without waiting for the outcome.
    pub(crate) fn begin_replacing(
        &self,
        document: &Value,
        time: Duration,
    ) -> tokio::task::JoinHandle<Result<Submission, Error>> {
        let (jobs, caller, text) = (Arc::clone(&self.jobs), self.caller(Roles::APPLICATION), document.to_string());
        self.runtime.spawn(async move { jobs.replace(&caller, &text, time).await })
    }

    /// Gives a job another parallelism; it has so much time to stop for it.
    pub(crate) fn rescale(&self, id: &str, change: ParallelismChange, time: Duration) -> Result<Value, Error> {
        self.runtime.block_on(self.jobs.set_parallelism(&self.tenant, id, change, time))
    }

    /// As [`Node::rescale`], without waiting for the outcome.
    pub(crate) fn begin_rescaling(
        &self,
        id: &str,
        change: ParallelismChange,
        time: Duration,
    ) -> tokio::task::JoinHandle<Result<Value, Error>> {
        let (jobs, tenant, id) = (Arc::clone(&self.jobs), self.tenant.clone(), id.to_owned());
        self.runtime.spawn(async move { jobs.set_parallelism(&tenant, &id, change, time).await })
    }

    pub(crate) fn submit_as(&self, roles: Roles, document: &Value) -> Result<Submission, Error> {
        let caller = self.caller(roles);
        self.runtime.block_on(self.jobs.submit(&caller, &document.to_string()))
    }

    pub(crate) fn resume(&self, id: &str) -> Result<(), Error> {
        self.runtime.block_on(self.jobs.resume(&self.tenant, id))
    }

    /// Submits a document that keeps the rules; the job's id.
    pub(crate) fn run(&self, document: &Value) -> String {
        self.submit(document).unwrap_or_else(|error| panic!("{error:?}\n{document:#}")).id
    }

    /// The job, once it has ended.
    pub(crate) fn ended(&self, id: &str) -> Value {
        let job = self.runtime.block_on(self.jobs.wait(&self.tenant, id, PATIENCE)).unwrap();
        assert_ne!(job["state"], "running", "{job:#}");
        job
    }

    pub(crate) fn stop(&self, id: &str, mode: StopMode) {
        self.runtime.block_on(self.jobs.stop(&self.tenant, id, mode)).unwrap();
    }

    pub(crate) fn kill(&self, id: &str) -> Result<(), Error> {
        self.runtime.block_on(self.jobs.kill(&self.tenant, id))
    }

    pub(crate) fn job(&self, id: &str) -> Value {
        self.jobs.get(&self.tenant, id).unwrap()
    }

    /// The job, once it counts as running: after a start its first turns come before that.
    pub(crate) fn running(&self, id: &str) -> Value {
        found("the job runs", || Some(self.job(id)).filter(|job| job["state"] == "running"))
    }

    pub(crate) fn tap(&self, id: &str, from: &str, to: &str, rate: f64) -> Result<Tap, Error> {
        self.wait(self.jobs.tap(&self.tenant, id, from, to, rate))
    }

    /// Waits for a result, with a limit.
    pub(crate) fn wait<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(async { tokio::time::timeout(PATIENCE, work).await.unwrap() })
    }

    /// The records of a `collect` sink.
    pub(crate) fn collected(&self, id: &str, sink: &str) -> Vec<Value> {
        // Before its first run a job has nothing.
        let records = self.jobs.collected(&self.tenant, id, sink).unwrap_or_default();
        records.iter().map(|record| serde_json::from_str(record).unwrap()).collect()
    }

    pub(crate) fn create(&self, topic: &str, partitions: u32) {
        let name = TopicName::user(topic, &self.tenant).unwrap();
        self.log.create_topic(&name, &TopicConfig { partitions, ..TopicConfig::default() }).unwrap();
    }

    /// Appends payloads under their keys, each to the partition of its key.
    pub(crate) fn append(&self, topic: &str, records: &[(String, String)]) {
        for (key, value) in records {
            let record = Record { key: Some(key.as_bytes()), value: Some(value.as_bytes()), ..Record::default() };
            self.append_one(topic, &record);
        }
    }

    /// Appends a record to the partition of its key; the partition, and the offset behind it.
    pub(crate) fn append_one(&self, topic: &str, record: &Record<'_>) -> (u32, Offset) {
        let name = TopicName::user(topic, &self.tenant).unwrap();
        let partitions = self.log.topic(&name).unwrap().config.partitions;
        let number = millstream_types::partition_of_key(record.key.unwrap_or_default(), partitions).0;
        let partition = self.log.partition(&TopicPartition::new(name, number)).unwrap();
        let (done, answer) = reply();
        partition.append(std::slice::from_ref(record), AckLevel::Written, done).unwrap();
        (number, answer.wait().unwrap().last.next())
    }

    /// `true` once readers see the records of a topic before these offsets.
    pub(crate) fn is_readable(&self, topic: &str, ends: &BTreeMap<u32, Offset>) -> bool {
        let name = TopicName::user(topic, &self.tenant).unwrap();
        let partition = |number| self.log.partition(&TopicPartition::new(name.clone(), number)).unwrap();
        ends.iter().all(|(number, end)| partition(*number).offsets().stable >= *end)
    }

    /// All keys and payloads of a topic, partition by partition.
    pub(crate) fn read(&self, topic: &str) -> Vec<(String, Value)> {
        let name = TopicName::user(topic, &self.tenant).unwrap();
        let mut found = Vec::new();
        for number in 0..self.log.topic(&name).unwrap().config.partitions {
            let partition = self.log.partition(&TopicPartition::new(name.clone(), number)).unwrap();
            let mut next = partition.offsets().first;
            loop {
                let batches = partition.read(next, 1 << 20, UpTo::Stable).unwrap();
                let Some(last) = batches.last() else { break };
                next = last.next_offset();
                for record in batches.iter().flat_map(|batch| batch.records()) {
                    let record = record.unwrap();
                    let key = String::from_utf8_lossy(record.key.unwrap_or_default()).into_owned();
                    found.push((key, serde_json::from_slice(record.value.unwrap_or(b"null")).unwrap()));
                }
            }
        }
        found
    }
}
