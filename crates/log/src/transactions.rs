//! The transactions of a partition: the open ones, and the aborted ones.
//!
//! ```text
//!   batch of p ── opens ──► p is open from its first offset ── marker ──► committed: p is forgotten
//!                                                                 └──────► aborted: (p, first, marker) is kept
//! ```
//!
//! Both producer tables of a partition have such a table, so that it is never ahead of the records. Invariants
//! - A producer has at most one open transaction in a partition.
//! - Aborted transactions are ordered by their markers.
//! - An aborted transaction is kept as long as a record of it can be read.

use std::collections::BTreeMap;
use std::sync::Arc;

use millstream_types::{Marker, Offset, RecordBatch};

/// A transaction that is open in a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenTransaction {
    /// Id of the idempotent producer.
    pub producer_id: i64,
    /// The producer epoch that began it.
    pub producer_epoch: i16,
    /// Offset of its first record.
    pub first: Offset,
    /// Append time of that record: milliseconds since 1970-01-01T00:00:00Z.
    pub since_ms: i64,
}

/// A transaction that was aborted; its records are void.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AbortedTransaction {
    /// Id of the idempotent producer.
    pub producer_id: i64,
    /// Offset of its first record.
    pub first: Offset,
}

/// An open transaction in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OpenedTransaction {
    pub(crate) epoch: i16,
    pub(crate) first: u64,
    /// Append time of its first record, ms since 1970.
    pub(crate) since_ms: i64,
}

/// An aborted transaction in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Aborted {
    pub(crate) producer: i64,
    pub(crate) first: u64,
    pub(crate) marker: u64,
}

/// The transactions of one partition.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Transactions {
    open: BTreeMap<i64, OpenedTransaction>,
    aborted: AbortedIndex,
}

impl Transactions {
    pub(crate) fn new(open: impl IntoIterator<Item = (i64, OpenedTransaction)>, aborted: Vec<Aborted>) -> Self {
        Self { open: open.into_iter().collect(), aborted: AbortedIndex(Arc::new(aborted)) }
    }

    pub(crate) fn open(&self) -> impl ExactSizeIterator<Item = (i64, &OpenedTransaction)> {
        self.open.iter().map(|(producer, open)| (*producer, open))
    }

    pub(crate) fn of(&self, producer: i64) -> Option<&OpenedTransaction> {
        self.open.get(&producer)
    }

    pub(crate) fn aborted(&self) -> &AbortedIndex {
        &self.aborted
    }

    /// The open transactions, the oldest first.
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

    /// The first record of the oldest open transaction.
    pub(crate) fn open_from(&self) -> Option<u64> {
        self.open.values().map(|open| open.first).min()
    }

    /// Records an accepted or recovered batch of a transaction.
    pub(crate) fn observe(&mut self, batch: &RecordBatch, appended_ms: i64) {
        let Some(producer) = batch.producer().filter(|_| batch.is_transactional()) else { return };
        if let Some(marker) = batch.marker() {
            self.end(&marker, batch.base_offset().0);
        } else if !batch.is_control() {
            let (epoch, first) = (producer.epoch, batch.base_offset().0);
            self.open.entry(producer.id).or_insert(OpenedTransaction { epoch, first, since_ms: appended_ms });
        }
    }

    fn end(&mut self, marker: &Marker, at: u64) {
        let Some(open) = self.open.remove(&marker.producer_id) else { return };
        if !marker.committed {
            let ended = Aborted { producer: marker.producer_id, first: open.first, marker: at };
            debug_assert!(
                self.aborted.0.last().is_none_or(|last| last.marker < at),
                "aborted transactions are ordered by their markers"
            );
            Arc::make_mut(&mut self.aborted.0).push(ended);
        }
    }

    /// Forgets aborted transactions that end below `from`; none of their records is left.
    pub(crate) fn trim(&mut self, from: u64) {
        if self.aborted.0.first().is_some_and(|oldest| oldest.marker < from) {
            Arc::make_mut(&mut self.aborted.0).retain(|aborted| aborted.marker >= from);
        }
    }
}

/// The aborted transactions at one moment, by marker. A clone shares the list.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct AbortedIndex(Arc<Vec<Aborted>>);

impl AbortedIndex {
    /// An index of these, in any order.
    pub(crate) fn of(mut aborted: Vec<Aborted>) -> Self {
        aborted.sort_by_key(|aborted| aborted.marker);
        Self(Arc::new(aborted))
    }

    pub(crate) fn entries(&self) -> &[Aborted] {
        &self.0
    }

    /// `true` if an aborted transaction has its marker at `offset`.
    pub(crate) fn ends_at(&self, offset: u64) -> bool {
        self.0.binary_search_by_key(&offset, |aborted| aborted.marker).is_ok()
    }

    /// The aborted transactions that overlap `from..end`, marker included, by first record.
    pub(crate) fn within(&self, from: u64, end: u64) -> AbortedOverlap {
        let begin = self.0.partition_point(|aborted| aborted.marker < from);
        let mut found: Vec<_> = self.0[begin..].iter().filter(|aborted| aborted.first < end).copied().collect();
        found.sort_by_key(|aborted| (aborted.first, aborted.producer));
        AbortedOverlap(found)
    }
}

/// Aborted transactions that overlap a range of offsets.
pub(crate) struct AbortedOverlap(Vec<Aborted>);

impl AbortedOverlap {
    /// `true` if `batch`, which lies in the range, belongs to one of them.
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

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use millstream_types::{BatchBuilder, Compression, Epoch, Producer, Record};
    use proptest::prelude::*;

    use super::*;

    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum HistoryStep {
        Send,
        Commit,
        Abort,
    }

    fn batch(id: i64, at: u64) -> RecordBatch {
        let mut builder = BatchBuilder::default();
        builder.push(&Record::default());
        builder.set_producer(Producer { id, epoch: 0, base_sequence: 0 });
        builder.set_transactional();
        builder.seal(Offset(at), Epoch(1), Compression::None)
    }

    fn marker(producer_id: i64, committed: bool, at: u64) -> RecordBatch {
        let marker = Marker { producer_id, producer_epoch: 0, committed, coordinator_epoch: 1, timestamp_ms: 0 };
        marker.seal(Offset(at), Epoch(1))
    }

    fn steps() -> impl Strategy<Value = Vec<(i64, HistoryStep)>> {
        let step =
            prop_oneof![4 => Just(HistoryStep::Send), 1 => Just(HistoryStep::Commit), 1 => Just(HistoryStep::Abort)];
        prop::collection::vec((0_i64..4, step), 1..60)
    }

    /// `true` if the next marker of the batch's producer aborts it.
    fn is_aborted(history: &[(i64, HistoryStep)], at: usize) -> bool {
        let (producer, _) = history[at];
        let ends = history[at..].iter().find(|(id, step)| *id == producer && *step != HistoryStep::Send);
        ends.is_some_and(|(_, step)| *step == HistoryStep::Abort)
    }

    /// The records that a Kafka client hides, given the batches and the list sent with them.
    fn hidden_from_a_client(batches: &[RecordBatch], listed: &[AbortedTransaction]) -> Vec<u64> {
        let (mut hidden, mut aborting, mut ahead) = (Vec::new(), HashSet::new(), listed.iter().peekable());
        for batch in batches {
            while let Some(begun) = ahead.next_if(|begun| begun.first <= batch.last_offset()) {
                aborting.insert(begun.producer_id);
            }
            match batch.marker() {
                Some(marker) if !marker.committed => drop(aborting.remove(&marker.producer_id)),
                Some(_) => {}
                None if aborting.contains(&batch.producer().unwrap().id) => hidden.push(batch.base_offset().0),
                None => {}
            }
        }
        hidden
    }

    proptest! {
        #[test]
        fn the_transaction_table_agrees_with_the_whole_history(history in steps(), cut in 0_usize..60, trimmed in 0_u64..60) {
            let batches: Vec<_> = (0..)
                .zip(&history)
                .map(|(at, (producer, step))| match step {
                    HistoryStep::Send => batch(*producer, at),
                    step => marker(*producer, *step == HistoryStep::Commit, at),
                })
                .collect();
            let mut table = Transactions::default();
            batches.iter().for_each(|batch| table.observe(batch, 0));
            table.trim(trimmed);

            let from = cut.min(batches.len()).max((trimmed as usize).min(batches.len()));
            let overlap = table.aborted().within(from as u64, batches.len() as u64);
            let sent = (from..batches.len()).filter(|at| history[*at].1 == HistoryStep::Send);
            let expected: Vec<_> = sent.filter(|at| is_aborted(&history, *at)).map(|at| at as u64).collect();
            let held = batches[from..].iter().filter(|batch| !batch.is_control() && overlap.holds(batch));
            prop_assert_eq!(held.map(|batch| batch.base_offset().0).collect::<Vec<_>>(), &expected[..]);
            prop_assert_eq!(hidden_from_a_client(&batches[from..], &overlap.listed()), expected);

            let open = |producer: i64| {
                let last_end = history.iter().rposition(|(id, step)| *id == producer && *step != HistoryStep::Send);
                let begin = last_end.map_or(0, |end| end + 1);
                (begin..history.len()).find(|at| history[*at].0 == producer)
            };
            let mut firsts: Vec<_> = (0..4).filter_map(open).map(|at| Offset(at as u64)).collect();
            firsts.sort();
            prop_assert_eq!(table.listed().iter().map(|open| open.first).collect::<Vec<_>>(), &firsts[..]);
            prop_assert_eq!(table.open_from(), firsts.first().map(|first| first.0));
        }
    }
}
