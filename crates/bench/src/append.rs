//! An append load of one thread: round robin over the partitions of a topic, with a bounded number in flight.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use millstream_load::Latencies;
use millstream_log::{
    AckLevel, Done, Embedded, Error, Log as _, LogFigures, LogStats, Partition, Storage, TopicConfig, reply,
};
use millstream_types::{Record, TenantId, TopicName, TopicPartition};

use super::bare_loop::LogWrites;
use super::process;

pub(crate) const PARTITIONS: u32 = 8;
const MEMORY_TOPIC_BYTES: usize = 16 << 20;
/// Bytes appended before the measurement, so that all journal files exist.
const WARM_UP_BYTES: usize = 160 << 20;
/// Pause before a refused append is repeated.
const REST: Duration = Duration::from_micros(100);
/// Sampling interval for appends of single records, because reading the clock costs a large part of an append.
const TIMED_OF_SINGLES: usize = 16;
const TIMESTAMP_MS: i64 = 1_700_000_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TopicStorage {
    Memory,
    Disk,
}

/// Settings of an append load.
#[derive(Debug, Clone)]
pub(crate) struct AppendLoad {
    pub(crate) place: TopicStorage,
    pub(crate) level: AckLevel,
    /// Bytes of a record's value; it has no key.
    pub(crate) record_bytes: usize,
    pub(crate) append_records: usize,
    /// Largest number of unanswered appends. At [`AckLevel::Memory`] an append is answered when it returns.
    pub(crate) in_flight: usize,
}

/// Results of an append load.
#[derive(Debug)]
pub(crate) struct AppendResult {
    pub(crate) took: Duration,
    pub(crate) records: u64,
    /// Appends that were answered with an error.
    pub(crate) errors: u64,
    /// Appends that were refused because the engine was behind, and made again.
    pub(crate) repeated: u64,
    pub(crate) latencies: Latencies,
    /// CPU time of this process.
    pub(crate) cpu_s: f64,
    pub(crate) writes: LogWrites,
}

/// Fills the journal once, so that later appends find its files made and empty.
pub(crate) fn warm_up(log: &Embedded) -> anyhow::Result<()> {
    let load = AppendLoad {
        place: TopicStorage::Disk,
        level: AckLevel::Written,
        record_bytes: 1024,
        append_records: 100,
        in_flight: 64,
    };
    let appends = WARM_UP_BYTES / (load.record_bytes * load.append_records);
    load.run(log, "warm-up", |number, _| number == appends).map(drop)
}

impl AppendLoad {
    /// Appends to a new topic for `time`.
    ///
    /// # Errors
    /// The log fails for good: a topic cannot be created, or a disk fails.
    pub(crate) fn run_for(&self, log: &Embedded, topic: &str, time: Duration) -> anyhow::Result<AppendResult> {
        self.run(log, topic, |_, elapsed| elapsed >= time)
    }

    /// Appends until `over` returns true for the number of appends and the elapsed time.
    fn run(&self, log: &Embedded, topic: &str, over: impl Fn(usize, Duration) -> bool) -> anyhow::Result<AppendResult> {
        let name = TopicName::user(topic, &TenantId::default())?;
        let partitions = self.create_topic(log, &name)?;
        log.flush()?;
        let (stats, cpu_s) = (log.stats(), process::cpu_s(std::process::id())?);
        let mut caller = Appender::new(self);
        let start = Instant::now();
        caller.append_until(&partitions, |number| over(number, start.elapsed()))?;
        if self.place == TopicStorage::Disk && self.level == AckLevel::Memory {
            await_written(&partitions)?;
        }
        let took = start.elapsed();
        let outcome = caller.outcome(took, process::cpu_s(std::process::id())? - cpu_s, &stats, &log.stats());
        log.delete_topic(&name)?;
        log.flush()?;
        Ok(outcome)
    }

    fn create_topic(&self, log: &Embedded, name: &TopicName) -> anyhow::Result<Vec<Arc<dyn Partition>>> {
        let storage = match self.place {
            TopicStorage::Memory => Storage::Memory { max_bytes: MEMORY_TOPIC_BYTES },
            TopicStorage::Disk => Storage::Disk,
        };
        let config = TopicConfig { partitions: PARTITIONS, storage, level: self.level, ..TopicConfig::default() };
        log.create_topic(name, &config)?;
        let partition = |number| Ok(log.partition(&TopicPartition::new(name.clone(), number))?);
        (0..PARTITIONS).map(partition).collect()
    }

    /// Returns the sampling interval of latencies.
    pub(crate) fn timed_one_in(&self) -> usize {
        if self.append_records == 1 && self.in_flight > 1 { TIMED_OF_SINGLES } else { 1 }
    }
}

/// Waits until accepted records are written: the reply to a last record covers all before it.
fn await_written(partitions: &[Arc<dyn Partition>]) -> anyhow::Result<()> {
    let record = Record { timestamp_ms: TIMESTAMP_MS, key: None, value: Some(b"end"), headers: &[] };
    let mut replies = Vec::new();
    for partition in partitions {
        loop {
            let (done, reply) = reply();
            match partition.append(&[record], AckLevel::Written, done) {
                Ok(()) => break replies.push(reply),
                Err(error) if error.is_retryable() => std::thread::park_timeout(REST),
                Err(error) => return Err(error.into()),
            }
        }
    }
    replies.into_iter().try_for_each(|reply| reply.wait().map(drop)).context("what was accepted was not written")
}

/// Reply to an append, with its latency if it was sampled.
type AppendReply = Result<Option<Duration>, Error>;

/// State of the appending thread.
struct Appender<'a> {
    load: &'a AppendLoad,
    answer: SyncSender<AppendReply>,
    answers: Receiver<AppendReply>,
    unanswered: usize,
    appends: u64,
    errors: u64,
    repeated: u64,
    latencies: Latencies,
}

impl<'a> Appender<'a> {
    fn new(load: &'a AppendLoad) -> Self {
        // Room for every pending reply, so that no engine thread blocks on this one.
        let (answer, answers) = sync_channel(load.in_flight);
        let latencies = Latencies::default();
        Self { load, answer, answers, unanswered: 0, appends: 0, errors: 0, repeated: 0, latencies }
    }

    /// Appends until `over`, which is asked whenever an append is timed, and waits for all answers.
    fn append_until(&mut self, partitions: &[Arc<dyn Partition>], over: impl Fn(usize) -> bool) -> anyhow::Result<()> {
        let value = vec![b'v'; self.load.record_bytes];
        let record = Record { timestamp_ms: TIMESTAMP_MS, key: None, value: Some(&value), headers: &[] };
        let records = vec![record; self.load.append_records];
        let timed_one_in = self.load.timed_one_in();
        for (number, partition) in partitions.iter().cycle().enumerate() {
            let timed = number % timed_one_in == 0;
            if timed && over(number) {
                break;
            }
            if self.unanswered == self.load.in_flight {
                self.hear_one()?;
            }
            self.append(&**partition, &records, timed.then(Instant::now))?;
        }
        while self.unanswered > 0 {
            self.hear_one()?;
        }
        Ok(())
    }

    /// Makes one append and repeats it while the engine refuses it.
    fn append(
        &mut self,
        partition: &dyn Partition,
        records: &[Record<'_>],
        started: Option<Instant>,
    ) -> anyhow::Result<()> {
        loop {
            let immediate = self.load.level == AckLevel::Memory;
            match partition.append(records, self.load.level, self.done(started)) {
                Ok(()) if immediate => {
                    self.count(Ok(started.map(|started| started.elapsed())));
                    return Ok(());
                }
                Ok(()) => {
                    self.unanswered += 1;
                    return Ok(());
                }
                Err(error) if error.is_retryable() => {
                    self.repeated += 1;
                    // A client would also continue after a reply or a short pause.
                    if let Ok(answer) = self.answers.recv_timeout(REST) {
                        self.unanswered -= 1;
                        self.count(answer);
                    }
                }
                Err(error) => return Err(error).context("an append was refused"),
            }
        }
    }

    fn done<T: 'static>(&self, started: Option<Instant>) -> Done<T> {
        if self.load.level == AckLevel::Memory {
            return Done::ignore();
        }
        let answer = self.answer.clone();
        Done::call(move |result: Result<T, Error>| {
            // The receiver is gone once the run has failed.
            drop(answer.send(result.map(|_| started.map(|started| started.elapsed()))));
        })
    }

    fn hear_one(&mut self) -> anyhow::Result<()> {
        let answer = self.answers.recv().context("the log has dropped an append without an answer")?;
        self.unanswered -= 1;
        self.count(answer);
        Ok(())
    }

    fn count(&mut self, answer: AppendReply) {
        match answer {
            Ok(latency) => {
                self.appends += 1;
                if let Some(latency) = latency {
                    self.latencies.record(latency);
                }
            }
            Err(_) => self.errors += 1,
        }
    }

    fn outcome(self, took: Duration, cpu_s: f64, before: &LogStats, after: &LogStats) -> AppendResult {
        let segment_bytes =
            |stats: &LogStats| stats.partitions.iter().map(|partition| partition.segment_bytes).sum::<u64>();
        AppendResult {
            took,
            records: self.appends * self.load.append_records as u64,
            errors: self.errors,
            repeated: self.repeated,
            latencies: self.latencies,
            cpu_s,
            writes: LogWrites {
                bytes: after.bytes - before.bytes,
                frames: after.frames - before.frames,
                syncs: after.syncs - before.syncs,
                segment_bytes: segment_bytes(after).saturating_sub(segment_bytes(before)),
            },
        }
    }
}
