//! Counters and sizes of an engine.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use millstream_types::{Offset, TopicName, TopicPartition};

use crate::{Log, Offsets};

/// Upper bounds of [`LogStats::sync_buckets`] in microseconds; a further bucket counts slower syncs.
pub const SYNC_BUCKETS_US: [u64; 12] =
    [100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 500_000, 1_000_000];

/// Counters since the log was opened, and current sizes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogStats {
    /// Number of appends that were accepted.
    pub appends: u64,
    /// Number of records that were accepted.
    pub records: u64,
    /// Records that were accepted for a caller that waits for no outcome, and were then given up, so that some may not be stored. 0 in the
    /// built-in engine, which accepts nothing any more after a failed write.
    pub records_lost: u64,
    /// Bytes of all sealed batches.
    pub bytes: u64,
    /// Number of frames written to the journal.
    pub frames: u64,
    /// Number of syncs of the journal.
    pub syncs: u64,
    /// Total time of the syncs, in microseconds.
    pub sync_us: u64,
    /// Syncs by duration: one count for each bound of [`SYNC_BUCKETS_US`], then the slower
    /// ones. Each sync counts once.
    pub sync_buckets: [u64; SYNC_BUCKETS_US.len() + 1],
    /// Bytes accepted and not yet written.
    pub pending_bytes: u64,
    /// Bytes of the journal files in use.
    pub journal_bytes: u64,
    /// Statistics of each partition, by topic.
    pub partitions: Vec<PartitionStats>,
}

/// The statistics of one partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionStats {
    /// Topic and number of the partition.
    pub partition: TopicPartition,
    /// Current offsets of the partition.
    pub offsets: Offsets,
    /// Bytes of all its segments.
    pub segment_bytes: u64,
    /// Number of the partition's segments.
    pub segments: u64,
    /// Bytes of its batches in memory, including those that are in segments too.
    pub memory_bytes: u64,
    /// Bytes of all its batches, each counted once.
    pub record_bytes: u64,
    /// Transactions that have begun and not ended.
    pub open_transactions: u64,
    /// Aborted transactions that the partition remembers.
    pub aborted_transactions: u64,
    /// Reads since the log was opened that failed because they began at damaged records.
    pub damaged_reads: u64,
}

/// The lag of a group in one partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupLag {
    /// Name of the consumer group.
    pub group: String,
    /// The partition that the group reads.
    pub partition: TopicPartition,
    /// The committed position: the next offset that the group will read.
    pub position: Offset,
    /// The lag of a reader at the position: [`Partition::lag`](crate::Partition::lag).
    pub lag: u64,
}

/// A log that tells its figures: to operators, and to clients that ask for a topic.
pub trait LogFigures: Log {
    /// Counters since the log was opened, and current sizes.
    fn stats(&self) -> LogStats;

    /// The partitions of one topic, in order; none if the topic does not exist.
    fn topic_stats(&self, topic: &TopicName) -> Vec<PartitionStats>;

    /// The lag of each group with a position in the topic, by partition and group.
    fn lags(&self, topic: &TopicName) -> Vec<GroupLag>;
}

/// The counters of an engine.
#[derive(Debug, Default)]
pub struct LogCounters {
    appends: AtomicU64,
    records: AtomicU64,
    records_lost: AtomicU64,
    bytes: AtomicU64,
    frames: AtomicU64,
    syncs: AtomicU64,
    sync_us: AtomicU64,
    sync_buckets: [AtomicU64; SYNC_BUCKETS_US.len() + 1],
}

impl LogCounters {
    /// An append was accepted.
    pub fn appended(&self, records: u64) {
        self.appends.fetch_add(1, Ordering::Relaxed);
        self.records.fetch_add(records, Ordering::Relaxed);
    }

    /// Records for which no caller waits were given up.
    pub fn lost(&self, records: u64) {
        self.records_lost.fetch_add(records, Ordering::Relaxed);
    }

    /// A batch was sealed.
    pub fn sealed(&self, bytes: usize) {
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// A frame was written.
    pub fn frame_written(&self) {
        self.frames.fetch_add(1, Ordering::Relaxed);
    }

    /// A sync has ended.
    pub fn synced(&self, took: Duration) {
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.syncs.fetch_add(1, Ordering::Relaxed);
        self.sync_us.fetch_add(us, Ordering::Relaxed);
        let bucket = SYNC_BUCKETS_US.partition_point(|&end| end < us);
        self.sync_buckets[bucket].fetch_add(1, Ordering::Relaxed);
    }

    /// The counters; the caller adds the current sizes.
    pub fn stats(&self) -> LogStats {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        LogStats {
            appends: load(&self.appends),
            records: load(&self.records),
            records_lost: load(&self.records_lost),
            bytes: load(&self.bytes),
            frames: load(&self.frames),
            syncs: load(&self.syncs),
            sync_us: load(&self.sync_us),
            sync_buckets: std::array::from_fn(|bucket| load(&self.sync_buckets[bucket])),
            pending_bytes: 0,
            journal_bytes: 0,
            partitions: Vec::new(),
        }
    }
}
