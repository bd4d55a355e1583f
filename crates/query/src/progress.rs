//! How far the records of a partition have been matched, for whoever asks on another thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use millstream_types::{Epoch, Offset, PartitionId};

use serde::{Deserialize, Serialize};

use crate::{Covered, Tally};

/// What all queries together have come to since the start; a record counts once, however many queries see it.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    pub(crate) records_seen: AtomicU64,
    pub(crate) matched: AtomicU64,
}

/// Counters of one partition; written by the thread that reads it, after each batch and before its rows go out.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    partition: PartitionId,
    records: AtomicU64,
    not_json: AtomicU64,
    skipped: AtomicU64,
    next: AtomicU64,
    /// The epoch of the last record before `next`.
    epoch: AtomicU32,
}

/// The counters at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Reading {
    pub(crate) records: u64,
    pub(crate) not_json: u64,
    pub(crate) skipped: u64,
    pub(crate) next: u64,
}

impl Progress {
    pub(crate) fn start(partition: PartitionId, next: Offset, epoch: Epoch) -> Self {
        Self { partition, next: AtomicU64::new(next.0), epoch: AtomicU32::new(epoch.0), ..Self::default() }
    }

    pub(crate) fn partition(&self) -> PartitionId {
        self.partition
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

    fn read(&self) -> Reading {
        Reading {
            records: self.records.load(Ordering::Relaxed),
            not_json: self.not_json.load(Ordering::Relaxed),
            skipped: self.skipped.load(Ordering::Relaxed),
            next: self.next.load(Ordering::Relaxed),
        }
    }
}

/// A query's part of a partition: what has been counted since it came.
#[derive(Debug, Clone)]
pub(crate) struct Share {
    progress: Arc<Progress>,
    start: Reading,
}

impl Share {
    /// From now on.
    pub(crate) fn begin(progress: &Arc<Progress>) -> Self {
        Self { progress: progress.clone(), start: progress.read() }
    }

    /// From now on, after what has been counted elsewhere since offset `first`.
    pub(crate) fn go_on(progress: &Arc<Progress>, first: u64, before: Reading) -> Self {
        let now = progress.read();
        // What was counted before stands in front of the beginning, which may be below zero.
        let start = Reading {
            records: now.records.wrapping_sub(before.records),
            not_json: now.not_json.wrapping_sub(before.not_json),
            skipped: now.skipped.wrapping_sub(before.skipped),
            next: first,
        };
        Self { progress: progress.clone(), start }
    }

    /// Whether it is counted there.
    pub(crate) fn is_of(&self, progress: &Arc<Progress>) -> bool {
        Arc::ptr_eq(&self.progress, progress)
    }

    pub(crate) fn partition(&self) -> PartitionId {
        self.progress.partition
    }

    /// The epoch of the last record that has been counted.
    pub(crate) fn epoch(&self) -> Epoch {
        Epoch(self.progress.epoch.load(Ordering::Relaxed))
    }

    /// What has been counted, and which offsets that covers.
    pub(crate) fn since_begin(&self) -> (Reading, Covered) {
        let now = self.progress.read();
        let counted = Reading {
            records: now.records.wrapping_sub(self.start.records),
            not_json: now.not_json.wrapping_sub(self.start.not_json),
            skipped: now.skipped.wrapping_sub(self.start.skipped),
            next: now.next,
        };
        let last = if now.next > self.start.next { Some(now.next - 1) } else { None };
        (counted, Covered { partition: self.partition().0, first: self.start.next, last })
    }
}
