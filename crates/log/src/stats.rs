//! What the engine counts.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use millstream_types::{Offset, TopicPartition};

use crate::Offsets;

/// Upper ends of the buckets of [`LogStats::sync_buckets`], in microseconds; one more bucket holds what is slower.
pub const SYNC_BUCKETS_US: [u64; 12] =
    [100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 500_000, 1_000_000];

/// Counts since the log was opened, and what is there now.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogStats {
    /// Appends that were taken.
    pub appends: u64,
    /// Records in them.
    pub records: u64,
    /// Bytes of the batches that they were sealed into.
    pub bytes: u64,
    /// Frames written to the journal.
    pub frames: u64,
    /// Syncs of the journal.
    pub syncs: u64,
    /// Time that they took together, in microseconds.
    pub sync_us: u64,
    /// How many syncs took at most as long as [`SYNC_BUCKETS_US`] says (each counted once), then the slower ones.
    pub sync_buckets: [u64; SYNC_BUCKETS_US.len() + 1],
    /// Bytes accepted and not yet written.
    pub pending_bytes: u64,
    /// Bytes of the journal files in use.
    pub journal_bytes: u64,
    /// Each partition.
    pub partitions: Vec<PartitionStats>,
}

/// One partition.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PartitionStats {
    /// Which one.
    pub partition: TopicPartition,
    /// Its ends.
    pub offsets: Offsets,
    /// Bytes in its segments.
    pub segment_bytes: u64,
    /// Number of its segments.
    pub segments: u64,
    /// Bytes of its batches in memory, those included that are in segments too.
    pub memory_bytes: u64,
    /// Bytes of all its batches, each counted once.
    pub record_bytes: u64,
    /// Transactions that have begun and not ended.
    pub open_transactions: u64,
    /// Aborted transactions that are remembered.
    pub aborted_transactions: u64,
}

/// How far a group has read one partition.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupLag {
    /// The group.
    pub group: String,
    /// The partition.
    pub partition: TopicPartition,
    /// The next offset that the group will read, as it was committed last.
    pub position: Offset,
    /// Offsets from there to the stable one: at most so many records are still to be read.
    pub lag: u64,
}

/// The counters behind [`LogStats`].
#[derive(Debug, Default)]
pub(crate) struct Counters {
    appends: AtomicU64,
    records: AtomicU64,
    bytes: AtomicU64,
    frames: AtomicU64,
    syncs: AtomicU64,
    sync_us: AtomicU64,
    sync_buckets: [AtomicU64; SYNC_BUCKETS_US.len() + 1],
}

impl Counters {
    pub(crate) fn appended(&self, records: u64) {
        self.appends.fetch_add(1, Ordering::Relaxed);
        self.records.fetch_add(records, Ordering::Relaxed);
    }

    pub(crate) fn sealed(&self, bytes: usize) {
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn frame_written(&self) {
        self.frames.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn synced(&self, took: Duration) {
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.syncs.fetch_add(1, Ordering::Relaxed);
        self.sync_us.fetch_add(us, Ordering::Relaxed);
        let bucket = SYNC_BUCKETS_US.partition_point(|&end| end < us);
        self.sync_buckets[bucket].fetch_add(1, Ordering::Relaxed);
    }

    /// The counts; what is there now is the caller's to add.
    pub(crate) fn stats(&self) -> LogStats {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        LogStats {
            appends: load(&self.appends),
            records: load(&self.records),
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
