//! The transactions of a partition: which are open, and which were aborted.
//!
//! ```text
//!   batch of p ── opens ──► p is open from its first offset ── marker ──► committed: nothing is kept of it
//!                                                                └──────► aborted: (p, first, marker) is kept
//! ```
//!
//! It stands beside what is known of the producers, in both tables of a partition, so that it is never ahead of the
//! records.
//! Invariants
//! - A producer has at most one open transaction in a partition.
//! - Markers ascend: the aborted transactions are ordered by where they end.
//! - An aborted transaction is kept as long as a record of it can be read.

use std::collections::BTreeMap;
use std::sync::Arc;

use millstream_types::{Marker, Offset, RecordBatch};

use crate::{AbortedTransaction, OpenTransaction};

/// A transaction whose end has not been appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Open {
    pub(crate) epoch: i16,
    /// Its first record.
    pub(crate) first: u64,
    /// When that was appended, ms since 1970.
    pub(crate) since_ms: i64,
}

/// A transaction that does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Aborted {
    pub(crate) producer: i64,
    /// Its first record.
    pub(crate) first: u64,
    /// Where its marker stands.
    pub(crate) marker: u64,
}

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Transactions {
    open: BTreeMap<i64, Open>,
    aborted: AbortedIndex,
}

impl Transactions {
    pub(crate) fn new(open: impl IntoIterator<Item = (i64, Open)>, aborted: Vec<Aborted>) -> Self {
        Self { open: open.into_iter().collect(), aborted: AbortedIndex(Arc::new(aborted)) }
    }

    pub(crate) fn open(&self) -> impl ExactSizeIterator<Item = (i64, &Open)> {
        self.open.iter().map(|(producer, open)| (*producer, open))
    }

    pub(crate) fn of(&self, producer: i64) -> Option<&Open> {
        self.open.get(&producer)
    }

    pub(crate) fn aborted(&self) -> &AbortedIndex {
        &self.aborted
    }

    /// Those that are open, the oldest first.
    pub(crate) fn listed(&self) -> Vec<OpenTransaction> {
        let list = self.open.iter().map(|(producer, open)| OpenTransaction {
            producer_id: *producer,
            producer_epoch: open.epoch,
            first: Offset(open.first),
            since_ms: open.since_ms,
        });
        let mut list: Vec<_> = list.collect();
        list.sort_by_key(|open| open.first);
        list
    }

    /// The first record of the oldest open one.
    pub(crate) fn open_from(&self) -> Option<u64> {
        self.open.values().map(|open| open.first).min()
    }

    /// Takes note of a batch of a transaction that was taken, or that a start finds taken.
    pub(crate) fn observe(&mut self, batch: &RecordBatch, appended_ms: i64) {
        let Some(producer) = batch.producer().filter(|_| batch.is_transactional()) else { return };
        if let Some(marker) = batch.marker() {
            self.end(&marker, batch.base_offset().0);
        } else if !batch.is_control() {
            let (epoch, first) = (producer.epoch, batch.base_offset().0);
            self.open.entry(producer.id).or_insert(Open { epoch, first, since_ms: appended_ms });
        }
    }

    fn end(&mut self, marker: &Marker, at: u64) {
        let Some(open) = self.open.remove(&marker.producer_id) else { return };
        if !marker.committed {
            let ended = Aborted { producer: marker.producer_id, first: open.first, marker: at };
            Arc::make_mut(&mut self.aborted.0).push(ended);
        }
    }

    /// Forgets aborted transactions that end below `from`, where no record of them is left.
    pub(crate) fn trim(&mut self, from: u64) {
        if self.aborted.0.first().is_some_and(|oldest| oldest.marker < from) {
            Arc::make_mut(&mut self.aborted.0).retain(|aborted| aborted.marker >= from);
        }
    }
}

/// The aborted transactions at one moment, by where they end. A clone shares them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct AbortedIndex(Arc<Vec<Aborted>>);

impl AbortedIndex {
    pub(crate) fn entries(&self) -> &[Aborted] {
        &self.0
    }

    /// Those of which a record or the marker lies from `from` to below `end`, by their first records.
    pub(crate) fn within(&self, from: u64, end: u64) -> Overlap {
        let begin = self.0.partition_point(|aborted| aborted.marker < from);
        let mut found: Vec<_> = self.0[begin..].iter().filter(|aborted| aborted.first < end).copied().collect();
        found.sort_by_key(|aborted| (aborted.first, aborted.producer));
        Overlap(found)
    }
}

/// Aborted transactions that reach into a range of offsets.
pub(crate) struct Overlap(Vec<Aborted>);

impl Overlap {
    /// Whether the records of `batch`, which lies in the range, do not count.
    pub(crate) fn holds(&self, batch: &RecordBatch) -> bool {
        let Some(producer) = batch.producer().filter(|_| batch.is_transactional()) else { return false };
        let base = batch.base_offset().0;
        let begun = self.0.partition_point(|aborted| aborted.first <= base);
        self.0[..begun].iter().any(|aborted| aborted.producer == producer.id && base <= aborted.marker)
    }

    pub(crate) fn listed(&self) -> Vec<AbortedTransaction> {
        let list = self
            .0
            .iter()
            .map(|aborted| AbortedTransaction { producer_id: aborted.producer, first: Offset(aborted.first) });
        list.collect()
    }
}
