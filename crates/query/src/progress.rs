//! The progress of matching in each partition, for other threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use millstream_types::{Epoch, Offset, PartitionId};
use parking_lot::{Mutex, MutexGuard};
use serde::{Deserialize, Serialize};

use crate::{Cause, Covered, Tally};

/// The counts of all queries since the start. A new record counts once, whatever the number of its queries, and once more
/// for each query that reads it as past.
#[derive(Debug, Default)]
pub(crate) struct EngineTotals {
    pub(crate) records_seen: AtomicU64,
    pub(crate) matched: AtomicU64,
    /// By cause, in the order of [`Cause::ALL`].
    ended: [AtomicU64; Cause::ALL.len()],
}

impl EngineTotals {
    /// Counts the end of a query.
    pub(crate) fn count_end(&self, cause: Cause) {
        if let Some(place) = Cause::ALL.iter().position(|one| *one == cause) {
            self.ended[place].fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn ended(&self) -> impl Iterator<Item = (Cause, u64)> {
        Cause::ALL.iter().zip(&self.ended).map(|(cause, ended)| (*cause, ended.load(Ordering::Relaxed)))
    }
}

/// Counters of one partition; written by the thread that reads it, after each batch and before its rows go out.
#[derive(Debug, Default)]
pub(crate) struct ReadProgress {
    partition: PartitionId,
    records: AtomicU64,
    not_json: AtomicU64,
    skipped: AtomicU64,
    next: AtomicU64,
    /// The epoch of the last record before `next`.
    epoch: AtomicU32,
    /// Locked while records are counted that are not in all results yet.
    piece: Mutex<()>,
}

/// The counters at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct ProgressCounters {
    pub(crate) records: u64,
    pub(crate) not_json: u64,
    pub(crate) skipped: u64,
    pub(crate) next: u64,
}

impl ReadProgress {
    pub(crate) fn start(partition: PartitionId, next: Offset, epoch: Epoch) -> Self {
        Self { partition, next: AtomicU64::new(next.0), epoch: AtomicU32::new(epoch.0), ..Self::default() }
    }

    pub(crate) fn partition(&self) -> PartitionId {
        self.partition
    }

    /// Held by the reading thread while it counts a piece and adds it to the results, and by a query that ends: so its
    /// results have all records that it has counted.
    pub(crate) fn piece(&self) -> MutexGuard<'_, ()> {
        self.piece.lock()
    }

    pub(crate) fn add(&self, tally: Tally, next: Offset, epoch: Epoch) {
        self.epoch.store(epoch.0, Ordering::Relaxed);
        self.records.fetch_add(tally.records, Ordering::Relaxed);
        self.not_json.fetch_add(tally.not_json, Ordering::Relaxed);
        self.next.store(next.0, Ordering::Relaxed);
    }

    pub(crate) fn skip(&self, from: Offset, to: Offset) {
        self.skipped.fetch_add(to.0.saturating_sub(from.0), Ordering::Relaxed);
        self.next.store(to.0, Ordering::Relaxed);
    }

    fn read(&self) -> ProgressCounters {
        ProgressCounters {
            records: self.records.load(Ordering::Relaxed),
            not_json: self.not_json.load(Ordering::Relaxed),
            skipped: self.skipped.load(Ordering::Relaxed),
            next: self.next.load(Ordering::Relaxed),
        }
    }
}

/// A query's share of a partition: the counts since it was added.
#[derive(Debug, Clone)]
pub(crate) struct PartitionShare {
    progress: Arc<ReadProgress>,
    start: ProgressCounters,
}

impl PartitionShare {
    /// A share that begins with the next record.
    pub(crate) fn begin(progress: &Arc<ReadProgress>) -> Self {
        Self { progress: progress.clone(), start: progress.read() }
    }

    /// A share that begins now and includes the counts of a former process from offset `first` on.
    pub(crate) fn go_on(progress: &Arc<ReadProgress>, first: u64, before: ProgressCounters) -> Self {
        let now = progress.read();
        // The earlier counts are subtracted from the start, which may become negative.
        let start = ProgressCounters {
            records: now.records.wrapping_sub(before.records),
            not_json: now.not_json.wrapping_sub(before.not_json),
            skipped: now.skipped.wrapping_sub(before.skipped),
            next: first,
        };
        Self { progress: progress.clone(), start }
    }

    pub(crate) fn progress(&self) -> &Arc<ReadProgress> {
        &self.progress
    }

    /// True if the share belongs to this partition's counters.
    pub(crate) fn is_of(&self, progress: &Arc<ReadProgress>) -> bool {
        Arc::ptr_eq(&self.progress, progress)
    }

    pub(crate) fn partition(&self) -> PartitionId {
        self.progress.partition
    }

    /// The epoch of the last record that has been counted.
    pub(crate) fn epoch(&self) -> Epoch {
        Epoch(self.progress.epoch.load(Ordering::Relaxed))
    }

    /// The counts since the beginning, and the offsets that they cover.
    pub(crate) fn since_begin(&self) -> (ProgressCounters, Covered) {
        let now = self.progress.read();
        let counted = ProgressCounters {
            records: now.records.wrapping_sub(self.start.records),
            not_json: now.not_json.wrapping_sub(self.start.not_json),
            skipped: now.skipped.wrapping_sub(self.start.skipped),
            next: now.next,
        };
        let last = if now.next > self.start.next { Some(now.next - 1) } else { None };
        (counted, Covered { partition: self.partition().0, first: self.start.next, last })
    }
}
