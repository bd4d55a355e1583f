//! How far the records of a partition have been matched, for whoever asks on another thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use millstream_types::{Offset, PartitionId};

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
    records: AtomicU64,
    not_json: AtomicU64,
    skipped: AtomicU64,
    next: AtomicU64,
}

/// The counters at one moment.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Reading {
    pub(crate) records: u64,
    pub(crate) not_json: u64,
    pub(crate) skipped: u64,
    next: u64,
}

impl Progress {
    pub(crate) fn start(next: Offset) -> Self {
        Self { next: AtomicU64::new(next.0), ..Self::default() }
    }

    pub(crate) fn add(&self, tally: Tally, next: Offset) {
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
    partition: PartitionId,
    progress: Arc<Progress>,
    start: Reading,
}

impl Share {
    /// From now on.
    pub(crate) fn begin(partition: PartitionId, progress: &Arc<Progress>) -> Self {
        Self { partition, progress: progress.clone(), start: progress.read() }
    }

    /// What has been counted, and which offsets that covers.
    pub(crate) fn since_begin(&self) -> (Reading, Covered) {
        let now = self.progress.read();
        let counted = Reading {
            records: now.records - self.start.records,
            not_json: now.not_json - self.start.not_json,
            skipped: now.skipped - self.start.skipped,
            next: now.next,
        };
        let last = if now.next > self.start.next { Some(now.next - 1) } else { None };
        (counted, Covered { partition: self.partition.0, first: self.start.next, last })
    }
}
