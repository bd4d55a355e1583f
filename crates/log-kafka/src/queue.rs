//! The appends of one partition that Kafka has not acknowledged.
//!
//! ```text
//!   append ──► open batches ──seal──► the batch in flight ──► acknowledged, in order
//! ```
//!
//! Always true
//! - One batch is in flight, so a repeated one is always the newest that the broker knows of its producer: it is stored once,
//!   and the order is that of the appends.
//! - Records that are appended while a batch is in flight go out together afterwards.

use std::collections::VecDeque;
use std::time::Instant;

use millstream_log::{Appended, Done, Error};
use millstream_types::{BatchBuilder, Compression, Epoch, Offset, Producer, Record, RecordBatch};

/// An idempotent producer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProducerId {
    pub(crate) id: i64,
    pub(crate) epoch: i16,
}

#[derive(Debug, Default)]
pub(crate) struct AppendQueue {
    /// The batches are part of the producer's transaction.
    is_transactional: bool,
    open: VecDeque<OpenBatch>,
    in_flight: Option<InFlight>,
    /// The producer of the last batch, and the sequence number of the next record.
    sequence: Option<(ProducerId, i32)>,
    /// First offset of an append whose records go on in the next batch.
    begun: Option<Offset>,
}

#[derive(Debug)]
struct OpenBatch {
    /// The time of its first append.
    since: Instant,
    builder: BatchBuilder,
    ends: Vec<AppendEnd>,
    /// The first record of an append that ends in a later batch.
    begins: Option<u32>,
    accepted_bytes: usize,
}

impl OpenBatch {
    fn new() -> Self {
        Self {
            since: Instant::now(),
            builder: BatchBuilder::default(),
            ends: Vec::new(),
            begins: None,
            accepted_bytes: 0,
        }
    }
}

/// The end of an append.
#[derive(Debug)]
struct AppendEnd {
    /// Its first record in the batch; `None` if it began in an earlier one.
    first: Option<u32>,
    last: u32,
    /// Number of its records, also of those in earlier batches.
    records: u64,
    done: Done<Appended>,
}

/// A sealed batch that is on its way.
#[derive(Debug)]
struct InFlight {
    batch: RecordBatch,
    ends: Vec<AppendEnd>,
    begins: Option<u32>,
    accepted_bytes: usize,
    /// The time of its first append.
    since: Instant,
    /// A request with it has left, and nothing is known of its answer.
    is_sent: bool,
    /// A request with it was not answered, so it may be stored already.
    may_be_stored: bool,
}

/// Appends that have ended, to be answered outside the lock.
#[derive(Debug, Default)]
#[must_use]
pub(crate) struct Ended {
    answers: Vec<(Done<Appended>, Result<Appended, Error>)>,
    /// Bytes that no longer wait.
    pub(crate) accepted_bytes: usize,
    /// Records that have failed, and for whose outcome nobody waits.
    pub(crate) records_lost: u64,
}

impl Ended {
    pub(crate) fn answer(self) {
        self.answers.into_iter().for_each(|(done, result)| done.finish(result));
    }
}

impl AppendQueue {
    /// The appends of one transaction.
    pub(crate) fn of_transaction() -> Self {
        Self { is_transactional: true, ..Self::default() }
    }

    /// `true` if nothing waits and nothing is in flight.
    pub(crate) fn is_empty(&self) -> bool {
        self.in_flight.is_none() && self.open.is_empty()
    }

    /// Adds an append. `accepted_bytes` is what it counts for until it has ended.
    pub(crate) fn push(
        &mut self,
        records: &[Record<'_>],
        batch_max_bytes: usize,
        accepted_bytes: usize,
        done: Done<Appended>,
    ) {
        let mut first = None;
        for (index, record) in records.iter().enumerate() {
            let fits = self.open.back().is_some_and(|open| {
                open.builder.size_bytes() + record.batch_max_bytes() <= batch_max_bytes || open.builder.is_empty()
            });
            if !fits {
                if let Some(full) = self.open.back_mut().filter(|_| index > 0) {
                    full.begins = first.take().or(full.begins);
                }
                self.open.push_back(OpenBatch::new());
            }
            let Some(open) = self.open.back_mut() else { continue };
            if index == 0 {
                first = Some(open.builder.record_count());
            }
            open.builder.push(record);
        }
        if let Some(open) = self.open.back_mut() {
            open.accepted_bytes += accepted_bytes;
            open.ends.push(AppendEnd {
                first,
                last: open.builder.record_count() - 1,
                records: records.len() as u64,
                done,
            });
        }
    }

    /// `true` if a batch waits and none is in flight.
    pub(crate) fn is_ready(&self) -> bool {
        self.in_flight.is_none() && !self.open.is_empty()
    }

    /// The batch to send now: the one that is to be sent again, or the next one, which gets `producer`. `None` while a request with
    /// one is on its way.
    pub(crate) fn take(&mut self, producer: ProducerId, compression: Compression) -> Option<RecordBatch> {
        if self.in_flight.is_none() {
            let mut open = self.open.pop_front()?;
            let base_sequence = match self.sequence {
                Some((known, next)) if known == producer => next,
                _ => 0,
            };
            let count = open.builder.record_count().cast_signed();
            self.sequence = Some((producer, following(base_sequence, count)));
            open.builder.set_producer(Producer { id: producer.id, epoch: producer.epoch, base_sequence });
            let OpenBatch { since, mut builder, ends, begins, accepted_bytes } = open;
            if self.is_transactional {
                builder.set_transactional();
            }
            let batch = builder.seal(Offset::ZERO, Epoch(0), compression);
            self.in_flight =
                Some(InFlight { batch, ends, begins, accepted_bytes, since, is_sent: false, may_be_stored: false });
        } else if let (None, Some(in_flight)) = (self.sequence, &mut self.in_flight) {
            let begun = Producer { id: producer.id, epoch: producer.epoch, base_sequence: 0 };
            in_flight.batch = in_flight.batch.clone().into_produced_by(begun);
            self.sequence = Some((producer, in_flight.batch.record_count().cast_signed()));
        }
        let in_flight = self.in_flight.as_mut().filter(|in_flight| !in_flight.is_sent)?;
        in_flight.is_sent = true;
        Some(in_flight.batch.clone())
    }

    /// Notes that the batch in flight is to be sent again: its request has ended.
    pub(crate) fn again(&mut self) {
        if let Some(in_flight) = &mut self.in_flight {
            in_flight.is_sent = false;
        }
    }

    /// Notes that the batch in flight was sent and not answered.
    pub(crate) fn unanswered(&mut self) {
        if let Some(in_flight) = &mut self.in_flight {
            in_flight.may_be_stored = true;
        }
    }

    /// The time since which the oldest append waits, and whether it may be stored; `None` if none waits.
    pub(crate) fn oldest(&self) -> Option<(Instant, bool)> {
        let in_flight = self.in_flight.as_ref().map(|in_flight| (in_flight.since, in_flight.may_be_stored));
        in_flight.or_else(|| self.open.front().map(|open| (open.since, false)))
    }

    /// Has the next batch begin under another producer: also the one in flight, which the broker has certainly not stored.
    pub(crate) fn forget_producer(&mut self) {
        self.sequence = None;
    }

    /// Takes the acknowledgement of the batch in flight, whose first record is at `base`. Returns the offset of its last record, too.
    pub(crate) fn acknowledged(&mut self, base: Offset, epoch: Epoch) -> Option<(Offset, Ended)> {
        let InFlight { batch, ends, begins, accepted_bytes, .. } = self.in_flight.take()?;
        let at = |delta: u32| base.advance(u64::from(delta));
        let mut ended = Ended { answers: Vec::with_capacity(ends.len()), accepted_bytes, records_lost: 0 };
        for AppendEnd { first, last, done, .. } in ends {
            let first = first.map(at).or_else(|| self.begun.take()).unwrap_or(base);
            ended.answers.push((done, Ok(Appended { first, last: at(last), epoch })));
        }
        self.begun = begins.map(at).or(self.begun.take());
        Some((at(batch.record_count() - 1), ended))
    }

    /// Ends everything that waits with `error`. The next batch begins under another producer.
    pub(crate) fn fail(&mut self, error: &Error) -> Ended {
        let mut ended = Ended::default();
        let in_flight = self.in_flight.take().map(|in_flight| (in_flight.ends, in_flight.accepted_bytes));
        let open = self.open.drain(..).map(|open| (open.ends, open.accepted_bytes));
        for (ends, accepted_bytes) in in_flight.into_iter().chain(open) {
            ended.accepted_bytes += accepted_bytes;
            let unawaited = ends.iter().filter(|end| end.done.is_ignored());
            ended.records_lost += unawaited.map(|end| end.records).sum::<u64>();
            ended.answers.extend(ends.into_iter().map(|end| (end.done, Err(error.clone()))));
        }
        (self.sequence, self.begun) = (None, None);
        ended
    }
}

/// The sequence number that follows after `count` records; it begins again after 2³¹−1.
fn following(sequence: i32, count: i32) -> i32 {
    (i64::from(sequence) + i64::from(count)).rem_euclid(1 << 31) as i32
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use millstream_types::BatchLimits;

    use super::*;

    const PRODUCER: ProducerId = ProducerId { id: 7, epoch: 0 };

    fn push(
        queue: &mut AppendQueue,
        values: &[&str],
        batch_max_bytes: usize,
    ) -> mpsc::Receiver<Result<Appended, Error>> {
        let (sender, answers) = mpsc::channel();
        let records: Vec<_> =
            values.iter().map(|value| Record { value: Some(value.as_bytes()), ..Record::default() }).collect();
        queue.push(&records, batch_max_bytes, 10, Done::call(move |result| drop(sender.send(result))));
        answers
    }

    fn take(queue: &mut AppendQueue) -> RecordBatch {
        queue.take(PRODUCER, Compression::None).unwrap()
    }

    fn offsets(answers: &mpsc::Receiver<Result<Appended, Error>>) -> (u64, u64) {
        let appended = answers.try_recv().unwrap().unwrap();
        (appended.first.0, appended.last.0)
    }

    #[test]
    fn appends_beside_a_batch_in_flight_go_out_together() {
        let mut queue = AppendQueue::default();
        let first = push(&mut queue, &["a"], 1 << 20);
        let batch = take(&mut queue);
        let (second, third) = (push(&mut queue, &["b", "c"], 1 << 20), push(&mut queue, &["d"], 1 << 20));
        assert!(!queue.is_ready());
        assert_eq!(queue.take(PRODUCER, Compression::None), None, "one request at a time");
        queue.again();
        assert_eq!(take(&mut queue), batch, "a repeated batch is the same");
        let (last, ended) = queue.acknowledged(Offset(10), Epoch(3)).unwrap();
        ended.answer();
        assert_eq!((last, offsets(&first)), (Offset(10), (10, 10)));
        let batch = take(&mut queue);
        assert_eq!((batch.record_count(), batch.producer().unwrap().base_sequence), (3, 1));
        queue.acknowledged(Offset(20), Epoch(3)).unwrap().1.answer();
        assert_eq!((offsets(&second), offsets(&third)), ((20, 21), (22, 22)));
        assert!(queue.acknowledged(Offset(30), Epoch(3)).is_none());
    }

    #[test]
    fn an_append_over_several_batches_is_answered_with_its_last() {
        let mut queue = AppendQueue::default();
        let before = push(&mut queue, &["x"], 100);
        let large = push(&mut queue, &["1", "2", "3", "4", "5"], 100);
        let after = push(&mut queue, &["y"], 100);
        let (mut next, mut batches) = (0, 0);
        while queue.is_ready() {
            let batch = take(&mut queue);
            assert_eq!(batch.producer().unwrap().base_sequence as u64, next);
            queue.acknowledged(Offset(next), Epoch(0)).unwrap().1.answer();
            (next, batches) = (next + u64::from(batch.record_count()), batches + 1);
        }
        assert!(batches > 2 && next == 7, "{batches} batches, {next} records");
        assert_eq!((offsets(&before), offsets(&large), offsets(&after)), ((0, 0), (1, 5), (6, 6)));
    }

    #[test]
    fn a_failure_takes_everything_behind_it() {
        let mut queue = AppendQueue::default();
        let answers = [push(&mut queue, &["a"], 1 << 20), push(&mut queue, &["b"], 1 << 20)];
        take(&mut queue);
        let behind = push(&mut queue, &["c"], 1 << 20);
        let ended = queue.fail(&Error::Stopped);
        assert_eq!(ended.accepted_bytes, 30);
        ended.answer();
        for answer in answers.iter().chain([&behind]) {
            assert!(matches!(answer.try_recv().unwrap(), Err(Error::Stopped)));
        }
        push(&mut queue, &["d"], 1 << 20);
        assert_eq!(take(&mut queue).producer().unwrap().base_sequence, 0);
    }

    #[test]
    fn records_that_fail_and_whose_outcome_nobody_awaits_are_lost() {
        let mut queue = AppendQueue::default();
        let value = [b'v'; 60];
        let record = Record { value: Some(&value), ..Record::default() };
        queue.push(&[record], 1 << 20, 10, Done::ignore());
        take(&mut queue);
        // Its records are in three batches.
        queue.push(&[record; 3], 100, 10, Done::ignore());
        push(&mut queue, &["awaited", "too"], 1 << 20);
        assert_eq!(queue.fail(&Error::Stopped).records_lost, 4);
        queue.push(&[record], 1 << 20, 10, Done::ignore());
        take(&mut queue);
        assert_eq!(queue.acknowledged(Offset(10), Epoch(3)).unwrap().1.records_lost, 0);
    }

    #[test]
    fn a_batch_that_was_not_stored_goes_out_under_another_producer() {
        let mut queue = AppendQueue::default();
        push(&mut queue, &["a"], 1 << 20);
        take(&mut queue);
        queue.acknowledged(Offset(0), Epoch(0)).unwrap().1.answer();
        push(&mut queue, &["b", "c"], 1 << 20);
        assert_eq!(take(&mut queue).producer().unwrap().base_sequence, 1);
        queue.forget_producer();
        queue.again();
        let other = ProducerId { id: 8, epoch: 0 };
        let again = queue.take(other, Compression::None).unwrap();
        assert_eq!(again.producer(), Some(Producer { id: 8, epoch: 0, base_sequence: 0 }));
        assert_eq!(RecordBatch::parse(again.bytes().clone(), &BatchLimits::default()), Ok(again));
        queue.acknowledged(Offset(1), Epoch(0)).unwrap().1.answer();
        push(&mut queue, &["d"], 1 << 20);
        assert_eq!(queue.take(other, Compression::None).unwrap().producer().unwrap().base_sequence, 2);
    }

    #[test]
    fn sequence_numbers_begin_again_at_0() {
        assert_eq!((following(5, 3), following(i32::MAX, 1), following(i32::MAX - 1, 4)), (8, 0, 2));
    }
}
