//! The idempotent producers of a partition: the last batches of each, to recognise a batch that is
//! sent again, and their transactions.
//!
//! Sequence numbers count a producer's records in one partition from 0 to 2³¹−1 and then again from 0, as in Kafka.
//! Each partition has two tables. The current one is asked before a batch is accepted. The other one matches the
//! segments, and `meta` keeps it: a table ahead of the records would, after a crash, call a lost batch a duplicate.

use std::collections::BTreeMap;

use millstream_types::{Offset, Producer, RecordBatch};

use crate::transactions::{OpenedTransaction, Transactions};
use crate::{Appended, KnownProducer};

/// A producer may have this many batches in flight; the offsets of as many are kept.
pub(crate) const BATCHES_KEPT: usize = 5;
const SEQUENCE_MASK: u32 = i32::MAX as u32;
/// A number less than this far behind the next one is in the past; all others are ahead.
const PAST_MAX: u32 = 1 << 30;

#[derive(Debug, Clone, Copy)]
pub(crate) struct ProducerLimits {
    /// Most producers; beyond it the one longest idle is forgotten.
    pub(crate) count_max: usize,
    /// Idle time after which a producer is forgotten.
    pub(crate) expiry_ms: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TakenBatch {
    pub(crate) first_sequence: u32,
    pub(crate) appended: Appended,
}

impl TakenBatch {
    fn records(&self) -> u64 {
        self.appended.last.0 - self.appended.first.0 + 1
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProducerState {
    pub(crate) epoch: i16,
    /// This many sequence numbers up to the last one are known to be used, as far as they count as past.
    pub(crate) taken: u32,
    /// Time of its last append, ms since 1970.
    pub(crate) last_ms: i64,
    /// The last batches, oldest first; empty if a marker began the epoch.
    pub(crate) batches: Vec<TakenBatch>,
}

impl ProducerState {
    fn next(&self) -> u32 {
        self.batches.last().map_or(0, |last| after(last.first_sequence, last.records()))
    }

    fn oldest(&self) -> Option<&TakenBatch> {
        self.batches.first()
    }
}

/// The result of checking a batch against its producer's sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SequenceCheck {
    Accept,
    /// The batch was accepted before, at these offsets.
    Duplicate(Appended),
    /// The batch was accepted before these offsets; its own are forgotten.
    Forgotten(Appended),
    /// Another sequence number is expected.
    OutOfOrder {
        expected: i32,
    },
    /// The producer has begun a later epoch.
    Fenced {
        current: i16,
    },
    /// The producer's transaction in this partition must end first.
    InTransaction(OpenedTransaction),
}

/// The producers of one partition. A producer with an open transaction is never forgotten.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Producers {
    known: BTreeMap<i64, ProducerState>,
    pub(crate) transactions: Transactions,
}

impl Producers {
    pub(crate) fn from_entries(
        entries: impl IntoIterator<Item = (i64, ProducerState)>,
        transactions: Transactions,
    ) -> Self {
        Self { known: entries.into_iter().collect(), transactions }
    }

    pub(crate) fn entries(&self) -> impl ExactSizeIterator<Item = (i64, &ProducerState)> {
        self.known.iter().map(|(id, state)| (*id, state))
    }

    /// The known producers, by id.
    pub(crate) fn listed(&self) -> Vec<KnownProducer> {
        let list = self.known.iter().map(|(&id, state)| KnownProducer {
            id,
            epoch: state.epoch,
            last_sequence: (!state.batches.is_empty())
                .then(|| state.next().wrapping_sub(1) & SEQUENCE_MASK)
                .map(u32::cast_signed),
            last_ms: state.last_ms,
            transaction: self.transactions.of(id).map(|open| Offset(open.first)),
        });
        list.collect()
    }

    /// The latest epoch of `producer`, if it is known.
    pub(crate) fn epoch_of(&self, producer: i64) -> Option<i16> {
        self.known.get(&producer).map(|state| state.epoch)
    }

    /// The sequence number that follows the producer's last record; 0 for an unknown producer.
    pub(crate) fn next_sequence(&self, producer: i64) -> i32 {
        self.known.get(&producer).map_or(0, |state| state.next().cast_signed())
    }

    /// Checks a batch of `records` sequence numbers from `producer`. An unknown producer may begin with any number:
    /// it may have been forgotten.
    pub(crate) fn judge(
        &self,
        producer: Producer,
        is_transactional: bool,
        records: u64,
        now_ms: i64,
        limits: ProducerLimits,
    ) -> SequenceCheck {
        let open = self.transactions.of(producer.id);
        let known = self.known.get(&producer.id);
        let known = known.filter(|state| open.is_some() || !is_expired(state, now_ms, limits));
        let Some(state) = known else { return SequenceCheck::Accept };
        if producer.epoch < state.epoch {
            return SequenceCheck::Fenced { current: state.epoch };
        }
        if let Some(open) = open.filter(|open| !is_transactional || producer.epoch > open.epoch) {
            return SequenceCheck::InTransaction(*open);
        }
        let first = producer.base_sequence.cast_unsigned();
        if producer.epoch > state.epoch {
            return if first == 0 { SequenceCheck::Accept } else { SequenceCheck::OutOfOrder { expected: 0 } };
        }
        let next = state.next();
        if first == next {
            return SequenceCheck::Accept;
        }
        let same = |batch: &&TakenBatch| batch.first_sequence == first && batch.records() == records;
        if let Some(batch) = state.batches.iter().rev().find(same) {
            return SequenceCheck::Duplicate(batch.appended);
        }
        match state.oldest() {
            Some(oldest) if is_before(state, oldest.first_sequence, first, records) => {
                SequenceCheck::Forgotten(oldest.appended)
            }
            _ => SequenceCheck::OutOfOrder { expected: next.cast_signed() },
        }
    }

    /// Records an accepted or recovered batch; ignores batches without an idempotent producer.
    pub(crate) fn observe(&mut self, batch: &RecordBatch, appended_ms: i64, limits: ProducerLimits) {
        let Some(producer) = batch.producer() else { return };
        if batch.is_control() {
            self.observe_epoch(producer, appended_ms, limits);
        } else {
            self.observe_records(producer, batch, appended_ms, limits);
        }
        self.transactions.observe(batch, appended_ms);
    }

    /// A marker begins the producer's epoch if it is later than the current one.
    fn observe_epoch(&mut self, producer: Producer, appended_ms: i64, limits: ProducerLimits) {
        match self.known.get_mut(&producer.id) {
            Some(state) if state.epoch >= producer.epoch => state.last_ms = appended_ms,
            known => {
                if known.is_none() {
                    self.make_room(appended_ms, limits);
                }
                let (epoch, batches) = (producer.epoch, Vec::new());
                self.known.insert(producer.id, ProducerState { epoch, taken: 0, last_ms: appended_ms, batches });
            }
        }
    }

    fn observe_records(&mut self, producer: Producer, batch: &RecordBatch, appended_ms: i64, limits: ProducerLimits) {
        let appended = Appended { first: batch.base_offset(), last: batch.last_offset(), epoch: batch.epoch() };
        let first_sequence = producer.base_sequence.cast_unsigned() & SEQUENCE_MASK;
        let taken = TakenBatch { first_sequence, appended };
        match self.known.get_mut(&producer.id) {
            Some(state) if state.epoch == producer.epoch && state.next() == first_sequence => {
                if state.batches.len() == BATCHES_KEPT {
                    state.batches.remove(0);
                }
                state.batches.push(taken);
                state.taken = capped(u64::from(state.taken) + taken.records());
                state.last_ms = appended_ms;
            }
            known => {
                if known.is_none() {
                    self.make_room(appended_ms, limits);
                }
                let mut batches = Vec::with_capacity(BATCHES_KEPT);
                batches.push(taken);
                let (epoch, taken) = (producer.epoch, capped(taken.records()));
                self.known.insert(producer.id, ProducerState { epoch, taken, last_ms: appended_ms, batches });
            }
        }
    }

    /// Forgets producers that have been idle for too long.
    pub(crate) fn expire(&mut self, now_ms: i64, limits: ProducerLimits) {
        let open = &self.transactions;
        self.known.retain(|id, state| open.of(*id).is_some() || !is_expired(state, now_ms, limits));
    }

    fn make_room(&mut self, now_ms: i64, limits: ProducerLimits) {
        if self.known.len() < limits.count_max {
            return;
        }
        self.expire(now_ms, limits);
        while self.known.len() >= limits.count_max {
            let idle = self.known.iter().filter(|(id, _)| self.transactions.of(**id).is_none());
            let longest_unused = idle.min_by_key(|(_, state)| (state.last_ms, last_offset(state)));
            let Some(id) = longest_unused.map(|(id, _)| *id) else { return };
            self.known.remove(&id);
        }
    }
}

/// The sequence number `records` after `sequence`.
fn after(sequence: u32, records: u64) -> u32 {
    // The cast keeps the lower bits; no others matter.
    sequence.wrapping_add(records as u32) & SEQUENCE_MASK
}

/// Distance from `sequence` to `next`.
fn behind(next: u32, sequence: u32) -> u32 {
    next.wrapping_sub(sequence) & SEQUENCE_MASK
}

fn capped(taken: u64) -> u32 {
    u32::try_from(taken).unwrap_or(PAST_MAX).min(PAST_MAX)
}

/// `true` if all the batch's numbers are known to be used and precede `oldest`.
fn is_before(state: &ProducerState, oldest: u32, first: u32, records: u64) -> bool {
    let next = state.next();
    let (first, oldest) = (u64::from(behind(next, first)), u64::from(behind(next, oldest)));
    first <= u64::from(state.taken) && first >= oldest + records
}

fn is_expired(state: &ProducerState, now_ms: i64, limits: ProducerLimits) -> bool {
    let unused_ms = u64::try_from(now_ms.saturating_sub(state.last_ms)).unwrap_or(0);
    unused_ms > limits.expiry_ms
}

fn last_offset(state: &ProducerState) -> Offset {
    state.batches.last().map_or(Offset(0), |last| last.appended.last)
}

#[cfg(test)]
mod tests {
    use millstream_types::{BatchBuilder, Compression, Epoch, Record};
    use proptest::prelude::*;

    use super::*;

    const LIMITS: ProducerLimits = ProducerLimits { count_max: 3, expiry_ms: 1_000 };
    const LAST: i64 = i32::MAX as i64;

    fn producer(id: i64, epoch: i16, sequence: i64) -> Producer {
        Producer { id, epoch, base_sequence: (sequence % (LAST + 1)) as i32 }
    }

    fn batch(producer: Producer, records: u64, first: u64) -> RecordBatch {
        let mut builder = BatchBuilder::default();
        (0..records).for_each(|_| builder.push(&Record::default()));
        builder.set_producer(producer);
        builder.seal(Offset(first), Epoch(1), Compression::None)
    }

    fn appended(first: u64, records: u64) -> Appended {
        Appended { first: Offset(first), last: Offset(first + records - 1), epoch: Epoch(1) }
    }

    /// A table and the next offset.
    #[derive(Default)]
    struct TestTable {
        producers: Producers,
        next: u64,
    }

    impl TestTable {
        fn send(&mut self, producer: Producer, records: u64, now_ms: i64) -> SequenceCheck {
            let verdict = self.producers.judge(producer, false, records, now_ms, LIMITS);
            if verdict == SequenceCheck::Accept {
                self.producers.observe(&batch(producer, records, self.next), now_ms, LIMITS);
                self.next += records;
            }
            verdict
        }
    }

    #[test]
    fn sequence_numbers_begin_again_behind_the_largest() {
        for (begin, records) in [(LAST - 2, 3), (LAST, 1), (LAST - 1, 7)] {
            let mut table = TestTable::default();
            assert_eq!(table.send(producer(1, 0, begin), records, 0), SequenceCheck::Accept);
            let next = begin + records as i64;
            let gap = table.send(producer(1, 0, next + 1), 2, 0);
            assert_eq!(gap, SequenceCheck::OutOfOrder { expected: (next % (LAST + 1)) as i32 });
            assert_eq!(table.send(producer(1, 0, next), 2, 0), SequenceCheck::Accept);
            assert_eq!(table.send(producer(1, 0, begin), records, 0), SequenceCheck::Duplicate(appended(0, records)));
            assert_eq!(table.send(producer(1, 0, next), 2, 0), SequenceCheck::Duplicate(appended(records, 2)));
        }
    }

    #[test]
    fn a_batch_older_than_those_kept_was_taken_if_its_numbers_were() {
        let mut table = TestTable::default();
        for sequence in 0..BATCHES_KEPT as i64 + 2 {
            assert_eq!(table.send(producer(1, 0, LAST - 1 + sequence * 2), 2, 0), SequenceCheck::Accept);
        }
        assert_eq!(table.send(producer(1, 0, LAST - 1), 2, 0), SequenceCheck::Forgotten(appended(4, 2)));
        assert_eq!(table.send(producer(1, 0, LAST + 1), 2, 0), SequenceCheck::Forgotten(appended(4, 2)));
        let expected = SequenceCheck::OutOfOrder { expected: 12 };
        assert_eq!(table.send(producer(1, 0, LAST - 3), 2, 0), expected, "nobody knows of it");
        assert_eq!(table.send(producer(1, 0, LAST + 2), 2, 0), expected, "it overlaps a batch that is kept");
        assert_eq!(table.send(producer(1, 0, 4), 1, 0), expected, "it is a part of a batch that is kept");
    }

    #[test]
    fn a_later_epoch_begins_with_0_and_ends_the_earlier_one() {
        let mut table = TestTable::default();
        assert_eq!(table.send(producer(1, 3, 70), 1, 0), SequenceCheck::Accept, "an unknown producer begins anywhere");
        assert_eq!(table.send(producer(1, 4, 71), 1, 0), SequenceCheck::OutOfOrder { expected: 0 });
        assert_eq!(table.send(producer(1, 4, 0), 1, 0), SequenceCheck::Accept);
        assert_eq!(table.send(producer(1, 3, 71), 1, 0), SequenceCheck::Fenced { current: 4 });
        assert_eq!(table.send(producer(1, 4, 70), 1, 0), SequenceCheck::OutOfOrder { expected: 1 });
    }

    #[test]
    fn the_producer_longest_unused_makes_room_and_one_unused_for_too_long_is_forgotten() {
        let mut table = TestTable::default();
        for (id, now_ms) in [(1, 0), (2, 1), (3, 2), (1, 3)] {
            let sequence = if now_ms == 3 { 1 } else { 0 };
            assert_eq!(table.send(producer(id, 0, sequence), 1, now_ms), SequenceCheck::Accept);
        }
        assert_eq!(table.send(producer(4, 0, 0), 1, 4), SequenceCheck::Accept);
        assert_eq!(table.producers.entries().map(|(id, _)| id).collect::<Vec<_>>(), [1, 3, 4]);
        assert_eq!(table.send(producer(3, 0, 9), 1, 1_002), SequenceCheck::OutOfOrder { expected: 1 });
        assert_eq!(table.send(producer(3, 0, 9), 1, 1_003), SequenceCheck::Accept);
        table.producers.expire(1_005, LIMITS);
        assert_eq!(table.producers.entries().map(|(id, _)| id).collect::<Vec<_>>(), [3]);
    }

    /// The model: all batches that one producer has ever sent, numbered without wrapping.
    #[derive(Default)]
    struct Model {
        epoch: i16,
        sent: Vec<(i64, u64, u64)>,
    }

    impl Model {
        fn next(&self) -> i64 {
            self.sent.last().map_or(0, |(sequence, records, _)| sequence + *records as i64)
        }

        fn judge(&self, epoch: i16, sequence: i64, records: u64) -> SequenceCheck {
            let Some(begin) = self.sent.first().map(|(sequence, ..)| *sequence) else { return SequenceCheck::Accept };
            let expected = SequenceCheck::OutOfOrder { expected: (self.next() % (LAST + 1)) as i32 };
            let kept = &self.sent[self.sent.len().saturating_sub(BATCHES_KEPT)..];
            let same = |sent: &&(i64, u64, u64)| (sent.0, sent.1) == (sequence, records);
            match epoch.cmp(&self.epoch) {
                std::cmp::Ordering::Less => SequenceCheck::Fenced { current: self.epoch },
                std::cmp::Ordering::Greater if sequence % (LAST + 1) == 0 => SequenceCheck::Accept,
                std::cmp::Ordering::Greater => SequenceCheck::OutOfOrder { expected: 0 },
                std::cmp::Ordering::Equal if sequence == self.next() => SequenceCheck::Accept,
                std::cmp::Ordering::Equal => match kept.iter().find(same) {
                    Some((_, records, first)) => SequenceCheck::Duplicate(appended(*first, *records)),
                    None if sequence >= begin && sequence + records as i64 <= kept[0].0 => {
                        SequenceCheck::Forgotten(appended(kept[0].2, kept[0].1))
                    }
                    None => expected,
                },
            }
        }
    }

    #[derive(Debug, Clone)]
    struct SendStep {
        id: usize,
        epoch_change: i16,
        from_next: i64,
        records: u64,
    }

    fn steps() -> impl Strategy<Value = Vec<SendStep>> {
        let from_next = prop_oneof![6 => Just(0), 3 => -20i64..0, 1 => 1i64..4];
        let epoch_change = prop_oneof![20 => Just(0i16), 1 => Just(-1), 1 => Just(1)];
        let step = (0usize..3, epoch_change, from_next, 1u64..4);
        let step =
            step.prop_map(|(id, epoch_change, from_next, records)| SendStep { id, epoch_change, from_next, records });
        prop::collection::vec(step, 1..200)
    }

    proptest! {
        #[test]
        fn the_producer_table_agrees_with_the_whole_history(begin in LAST - 60..LAST + 3, steps in steps()) {
            let mut table = TestTable::default();
            let mut models: [Model; 3] = Default::default();
            for step in steps {
                let model = &mut models[step.id];
                let epoch = model.epoch + step.epoch_change;
                if epoch < 0 {
                    continue;
                }
                let from = if model.sent.is_empty() { begin } else { model.next() };
                let sequence = if step.epoch_change > 0 { step.from_next.abs() } else { from + step.from_next };
                if sequence < 0 {
                    continue;
                }
                let expected = model.judge(epoch, sequence, step.records);
                let first = table.next;
                let verdict = table.send(producer(step.id as i64, epoch, sequence), step.records, 0);
                prop_assert_eq!(verdict, expected, "{:?}", step);
                if verdict == SequenceCheck::Accept {
                    if epoch != model.epoch {
                        *model = Model { epoch, sent: Vec::new() };
                    }
                    model.sent.push((sequence, step.records, first));
                }
            }
        }
    }
}
