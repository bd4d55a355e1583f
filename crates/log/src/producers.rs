//! The idempotent producers of a partition: what each has sent last, so that what is sent again is not stored again, and
//! their transactions.
//!
//! Sequence numbers count a producer's records in one partition from 0 to 2³¹−1 and then from 0 again, as in Kafka. Each
//! partition has two tables. One is current: it is asked before a batch is taken. The other stands where the segments
//! stand, and is what `meta` keeps: a table ahead of the records would, after a crash, call a lost batch a duplicate.

use std::collections::BTreeMap;

use millstream_types::{Offset, Producer, RecordBatch};

use crate::transactions::{Open, Transactions};
use crate::{Appended, KnownProducer};

/// A producer may have so many batches under way; of so many the offsets are known.
pub(crate) const BATCHES_KEPT: usize = 5;
/// Bits of a sequence number.
const SEQUENCE_MASK: u32 = i32::MAX as u32;
/// Numbers less than this far behind the next one are the past, the others are ahead.
const PAST_MAX: u32 = 1 << 30;

/// The bounds of a table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ProducerLimits {
    /// Producers; beyond it the one longest unused is forgotten.
    pub(crate) count_max: usize,
    /// How long after its last batch a producer is remembered.
    pub(crate) expiry_ms: u64,
}

/// A batch that was taken.
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

/// What is known of one producer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProducerState {
    pub(crate) epoch: i16,
    /// So many sequence numbers up to the last one are known to have been taken, as far as they count as past.
    pub(crate) taken: u32,
    /// When its last batch was appended, ms since 1970.
    pub(crate) last_ms: i64,
    /// The last batches, oldest first; none if the epoch was begun by a marker.
    pub(crate) batches: Vec<TakenBatch>,
}

impl ProducerState {
    /// The sequence number that comes next.
    fn next(&self) -> u32 {
        self.batches.last().map_or(0, |last| after(last.first_sequence, last.records()))
    }

    fn oldest(&self) -> Option<&TakenBatch> {
        self.batches.first()
    }
}

/// What is to be done with a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is new.
    Accept,
    /// It was taken before, and has these offsets.
    Duplicate(Appended),
    /// It was taken before these offsets, and its own are no longer known.
    Forgotten(Appended),
    /// Another sequence number is next.
    OutOfOrder { expected: i32 },
    /// The producer has begun a later epoch.
    Fenced { current: i16 },
    /// The producer's transaction in this partition must end first.
    InTransaction(Open),
}

/// The producers of one partition. Whoever has an open transaction is not forgotten.
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

    /// Those that are known, by id.
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

    /// The epoch that `producer` has reached, if it is known.
    pub(crate) fn epoch_of(&self, producer: i64) -> Option<i16> {
        self.known.get(&producer).map(|state| state.epoch)
    }

    /// What is to be done with a batch of `records` sequence numbers from `producer`. An unknown producer may begin
    /// anywhere: it may have been forgotten.
    pub(crate) fn judge(
        &self,
        producer: Producer,
        is_transactional: bool,
        records: u64,
        now_ms: i64,
        limits: ProducerLimits,
    ) -> Verdict {
        let open = self.transactions.of(producer.id);
        let known = self.known.get(&producer.id);
        let known = known.filter(|state| open.is_some() || !is_expired(state, now_ms, limits));
        let Some(state) = known else { return Verdict::Accept };
        if producer.epoch < state.epoch {
            return Verdict::Fenced { current: state.epoch };
        }
        if let Some(open) = open.filter(|open| !is_transactional || producer.epoch > open.epoch) {
            return Verdict::InTransaction(*open);
        }
        let first = producer.base_sequence.cast_unsigned();
        if producer.epoch > state.epoch {
            return if first == 0 { Verdict::Accept } else { Verdict::OutOfOrder { expected: 0 } };
        }
        let next = state.next();
        if first == next {
            return Verdict::Accept;
        }
        let same = |batch: &&TakenBatch| batch.first_sequence == first && batch.records() == records;
        if let Some(batch) = state.batches.iter().rev().find(same) {
            return Verdict::Duplicate(batch.appended);
        }
        match state.oldest() {
            Some(oldest) if is_before(state, oldest.first_sequence, first, records) => {
                Verdict::Forgotten(oldest.appended)
            }
            _ => Verdict::OutOfOrder { expected: next.cast_signed() },
        }
    }

    /// Takes note of a batch that was taken, or that a start finds taken; nothing if no idempotent producer built it.
    pub(crate) fn observe(&mut self, batch: &RecordBatch, appended_ms: i64, limits: ProducerLimits) {
        let Some(producer) = batch.producer() else { return };
        if batch.is_control() {
            self.observe_epoch(producer, appended_ms, limits);
        } else {
            self.observe_records(producer, batch, appended_ms, limits);
        }
        self.transactions.observe(batch, appended_ms);
    }

    /// A marker begins a producer's epoch if that is later than the one before.
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

    /// Forgets those that have sent nothing for too long.
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
    // The cast keeps the lower bits, which are all that counts.
    sequence.wrapping_add(records as u32) & SEQUENCE_MASK
}

/// How far `sequence` lies behind `next`.
fn behind(next: u32, sequence: u32) -> u32 {
    next.wrapping_sub(sequence) & SEQUENCE_MASK
}

fn capped(taken: u64) -> u32 {
    u32::try_from(taken).unwrap_or(PAST_MAX).min(PAST_MAX)
}

/// Whether the numbers from `first` on are all known to have been taken, before `oldest`.
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

    /// A table and the offset that comes next.
    #[derive(Default)]
    struct Table {
        producers: Producers,
        next: u64,
    }

    impl Table {
        fn send(&mut self, producer: Producer, records: u64, now_ms: i64) -> Verdict {
            let verdict = self.producers.judge(producer, false, records, now_ms, LIMITS);
            if verdict == Verdict::Accept {
                self.producers.observe(&batch(producer, records, self.next), now_ms, LIMITS);
                self.next += records;
            }
            verdict
        }
    }

    #[test]
    fn sequence_numbers_begin_again_behind_the_largest() {
        for (begin, records) in [(LAST - 2, 3), (LAST, 1), (LAST - 1, 7)] {
            let mut table = Table::default();
            assert_eq!(table.send(producer(1, 0, begin), records, 0), Verdict::Accept);
            let next = begin + records as i64;
            let gap = table.send(producer(1, 0, next + 1), 2, 0);
            assert_eq!(gap, Verdict::OutOfOrder { expected: (next % (LAST + 1)) as i32 });
            assert_eq!(table.send(producer(1, 0, next), 2, 0), Verdict::Accept);
            assert_eq!(table.send(producer(1, 0, begin), records, 0), Verdict::Duplicate(appended(0, records)));
            assert_eq!(table.send(producer(1, 0, next), 2, 0), Verdict::Duplicate(appended(records, 2)));
        }
    }

    #[test]
    fn a_batch_older_than_those_kept_was_taken_if_its_numbers_were() {
        let mut table = Table::default();
        for sequence in 0..BATCHES_KEPT as i64 + 2 {
            assert_eq!(table.send(producer(1, 0, LAST - 1 + sequence * 2), 2, 0), Verdict::Accept);
        }
        assert_eq!(table.send(producer(1, 0, LAST - 1), 2, 0), Verdict::Forgotten(appended(4, 2)));
        assert_eq!(table.send(producer(1, 0, LAST + 1), 2, 0), Verdict::Forgotten(appended(4, 2)));
        let expected = Verdict::OutOfOrder { expected: 12 };
        assert_eq!(table.send(producer(1, 0, LAST - 3), 2, 0), expected, "nobody knows of it");
        assert_eq!(table.send(producer(1, 0, LAST + 2), 2, 0), expected, "it overlaps a batch that is kept");
        assert_eq!(table.send(producer(1, 0, 4), 1, 0), expected, "it is a part of a batch that is kept");
    }

    #[test]
    fn a_later_epoch_begins_with_0_and_ends_the_earlier_one() {
        let mut table = Table::default();
        assert_eq!(table.send(producer(1, 3, 70), 1, 0), Verdict::Accept, "an unknown producer begins anywhere");
        assert_eq!(table.send(producer(1, 4, 71), 1, 0), Verdict::OutOfOrder { expected: 0 });
        assert_eq!(table.send(producer(1, 4, 0), 1, 0), Verdict::Accept);
        assert_eq!(table.send(producer(1, 3, 71), 1, 0), Verdict::Fenced { current: 4 });
        assert_eq!(table.send(producer(1, 4, 70), 1, 0), Verdict::OutOfOrder { expected: 1 });
    }

    #[test]
    fn the_producer_longest_unused_makes_room_and_one_unused_for_too_long_is_forgotten() {
        let mut table = Table::default();
        for (id, now_ms) in [(1, 0), (2, 1), (3, 2), (1, 3)] {
            let sequence = if now_ms == 3 { 1 } else { 0 };
            assert_eq!(table.send(producer(id, 0, sequence), 1, now_ms), Verdict::Accept);
        }
        assert_eq!(table.send(producer(4, 0, 0), 1, 4), Verdict::Accept);
        assert_eq!(table.producers.entries().map(|(id, _)| id).collect::<Vec<_>>(), [1, 3, 4]);
        assert_eq!(table.send(producer(3, 0, 9), 1, 1_002), Verdict::OutOfOrder { expected: 1 });
        assert_eq!(table.send(producer(3, 0, 9), 1, 1_003), Verdict::Accept);
        table.producers.expire(1_005, LIMITS);
        assert_eq!(table.producers.entries().map(|(id, _)| id).collect::<Vec<_>>(), [3]);
    }

    /// The model: everything that one producer has ever sent, numbered without end.
    #[derive(Default)]
    struct Model {
        epoch: i16,
        sent: Vec<(i64, u64, u64)>,
    }

    impl Model {
        fn next(&self) -> i64 {
            self.sent.last().map_or(0, |(sequence, records, _)| sequence + *records as i64)
        }

        fn judge(&self, epoch: i16, sequence: i64, records: u64) -> Verdict {
            let Some(begin) = self.sent.first().map(|(sequence, ..)| *sequence) else { return Verdict::Accept };
            let expected = Verdict::OutOfOrder { expected: (self.next() % (LAST + 1)) as i32 };
            let kept = &self.sent[self.sent.len().saturating_sub(BATCHES_KEPT)..];
            let same = |sent: &&(i64, u64, u64)| (sent.0, sent.1) == (sequence, records);
            match epoch.cmp(&self.epoch) {
                std::cmp::Ordering::Less => Verdict::Fenced { current: self.epoch },
                std::cmp::Ordering::Greater if sequence % (LAST + 1) == 0 => Verdict::Accept,
                std::cmp::Ordering::Greater => Verdict::OutOfOrder { expected: 0 },
                std::cmp::Ordering::Equal if sequence == self.next() => Verdict::Accept,
                std::cmp::Ordering::Equal => match kept.iter().find(same) {
                    Some((_, records, first)) => Verdict::Duplicate(appended(*first, *records)),
                    None if sequence >= begin && sequence + records as i64 <= kept[0].0 => {
                        Verdict::Forgotten(appended(kept[0].2, kept[0].1))
                    }
                    None => expected,
                },
            }
        }
    }

    #[derive(Debug, Clone)]
    struct Step {
        id: usize,
        epoch_change: i16,
        from_next: i64,
        records: u64,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let from_next = prop_oneof![6 => Just(0), 3 => -20i64..0, 1 => 1i64..4];
        let epoch_change = prop_oneof![20 => Just(0i16), 1 => Just(-1), 1 => Just(1)];
        let step = (0usize..3, epoch_change, from_next, 1u64..4);
        let step =
            step.prop_map(|(id, epoch_change, from_next, records)| Step { id, epoch_change, from_next, records });
        prop::collection::vec(step, 1..200)
    }

    proptest! {
        #[test]
        fn the_table_says_what_the_whole_history_says(begin in LAST - 60..LAST + 3, steps in steps()) {
            let mut table = Table::default();
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
                if verdict == Verdict::Accept {
                    if epoch != model.epoch {
                        *model = Model { epoch, sent: Vec::new() };
                    }
                    model.sent.push((sequence, step.records, first));
                }
            }
        }
    }
}
