//! Shared parts of the suites of the embedded engine.

pub(crate) mod compaction;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use millstream_log::{
    AckLevel, Appended, AtomicAppend, Done, Embedded, Error, Files, KafkaLog, KafkaPartition, Log, LogConfig,
    Partition, TopicConfig, reply,
};
use millstream_testkit::sim::SimFiles;
use millstream_types::{ManualClock, Record, TenantId, TopicName, TopicPartition};

/// Limits so small that files are recycled, closed and trimmed all the time.
pub(crate) fn small_config() -> LogConfig {
    LogConfig {
        dir: PathBuf::from("/data/log"),
        journal_file_bytes: 56 << 10,
        journal_max_bytes: 224 << 10,
        pending_max_bytes: 256 << 10,
        pending_unwaited_percent: 50,
        append_max_bytes: 40 << 10,
        batch_max_bytes: 4 << 10,
        cache_bytes: 16 << 10,
        sync_interval_ms: 5,
        flush_interval_ms: 20,
        compaction_map_bytes: 4 << 10,
        compaction_dirty_percent: 30,
        compaction_bytes_per_second: 1 << 30,
        ..LogConfig::default()
    }
}

/// A disk with the directory that an operator has made.
pub(crate) fn new_disk() -> SimFiles {
    let files = SimFiles::new();
    files.create_dir_all(Path::new("/data")).unwrap();
    files.sync_dir(Path::new("/")).unwrap();
    files
}

/// Clocks that stand still.
pub(crate) fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::at(1_700_000_000_000))
}

pub(crate) fn open(files: &SimFiles, clock: &Arc<ManualClock>) -> Result<Arc<Embedded>, Error> {
    Embedded::open(small_config(), Arc::new(files.clone()), clock.clone(), clock.clone())
}

pub(crate) fn name(name: &str) -> TopicName {
    TopicName::user(name, &TenantId::default()).unwrap()
}

/// Creates `topic` and returns the handles of its partitions.
pub(crate) fn create(log: &Embedded, topic: &str, config: &TopicConfig) -> Vec<Arc<dyn KafkaPartition>> {
    log.create_topic(&name(topic), config).unwrap();
    partitions(log, topic)
}

/// The handles of the partitions of a topic that exists.
pub(crate) fn partitions(log: &Embedded, topic: &str) -> Vec<Arc<dyn KafkaPartition>> {
    let count = log.topic(&name(topic)).unwrap().config.partitions;
    (0..count).map(|partition| log.kafka_partition(&TopicPartition::new(name(topic), partition)).unwrap()).collect()
}

/// Appends one record and waits for the answer.
pub(crate) fn append(partition: &dyn Partition, value: &[u8], level: AckLevel) -> Result<Appended, Error> {
    let (done, answer) = reply();
    partition.append(&[Record { value: Some(value), ..Record::default() }], level, done)?;
    answer.wait()
}

/// Commits an atomic append by a writer of its own.
pub(crate) fn append_atomic(
    log: &dyn Log,
    append: &AtomicAppend<'_>,
    level: AckLevel,
    done: Done<Vec<Appended>>,
) -> Result<(), Error> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    log.writer(&NEXT.fetch_add(1, Ordering::Relaxed).to_string())?.commit(append, level, done)
}
