//! Counters of the store, for statistics and metrics.
//!
//! Counting is a few relaxed additions. Reads are only sampled: one of [`SAMPLED_ONE_IN`] is timed and counts for all of
//! these, so their times, sizes and hottest keys are estimates, while their number is exact.

mod commands;
mod operations;
mod top_keys;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

pub(crate) use self::commands::CountedRoutes;
pub use self::commands::{CommandCounts, CommandFigures, DoorCounters};
pub(crate) use self::operations::{Grid, OperationCounts, SIZE_BOUNDS, TIME_BOUNDS_US};
pub(crate) use self::top_keys::TopKeys;

/// Reads for each one that is timed.
pub(crate) const SAMPLED_ONE_IN: u64 = 16;

/// The counters of one bucket.
#[derive(Debug)]
pub(crate) struct BucketCounts {
    /// Reads that were answered from memory, without the disk.
    pub(crate) read_memory: OperationCounts,
    /// Reads of a record from the disk.
    pub(crate) read_disk: OperationCounts,
    /// Transactions at the owners, each from its command to its answer.
    pub(crate) write: OperationCounts,
    /// Changes of keys that the log has taken.
    pub(crate) changes: AtomicU64,
    /// Looks for a key that is not there.
    pub(crate) missing: AtomicU64,
    /// Expired keys that were removed.
    pub(crate) expired: AtomicU64,
    pub(crate) top_keys: TopKeys,
}

impl BucketCounts {
    /// Counters whose hottest keys take at most `top_max_bytes` in each of two periods.
    pub(crate) fn new(top_max_bytes: usize) -> Self {
        Self {
            read_memory: OperationCounts::default(),
            read_disk: OperationCounts::default(),
            write: OperationCounts::default(),
            changes: AtomicU64::new(0),
            missing: AtomicU64::new(0),
            expired: AtomicU64::new(0),
            top_keys: TopKeys::new(top_max_bytes),
        }
    }

    /// Returns the moment at which a read begins, if it is one of those that are timed.
    pub(crate) fn sample() -> Option<Instant> {
        (fastrand::u64(..SAMPLED_ONE_IN) == 0).then(Instant::now)
    }

    /// Counts a read that memory answered.
    pub(crate) fn found_in_memory(&self, key: &[u8], bytes: u64, begun: Option<Instant>) {
        self.found(&self.read_memory, key, bytes, begun);
    }

    /// Counts a read from the disk.
    pub(crate) fn read_from_disk(&self, key: &[u8], bytes: u64, begun: Option<Instant>) {
        self.found(&self.read_disk, key, bytes, begun);
    }

    fn found(&self, reads: &OperationCounts, key: &[u8], bytes: u64, begun: Option<Instant>) {
        reads.successes.fetch_add(1, Ordering::Relaxed);
        if let Some(begun) = begun {
            reads.measured(begun.elapsed(), bytes, SAMPLED_ONE_IN);
            self.top_keys.used(key, bytes, SAMPLED_ONE_IN);
        }
    }
}
