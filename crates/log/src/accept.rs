//! Taking records: offsets are handed out at once, the journal comes later.

use std::sync::Arc;

use millstream_types::{BatchError, BatchLimits, Header, Marker, Offset, Producer, Record, RecordBatch};
use parking_lot::MutexGuard;

use crate::partition::{Accept, MEMORY_MAX_RECORDS, PartitionLog, UNSYNCED_MAX_RECORDS};
use crate::producers::Verdict;
use crate::recent::Stored;
use crate::round::{Answer, Entry, Item, Taken, Waiter};
use crate::{AckLevel, Appended, Done, Error, Storage, Topic};

/// What a record adds to its batch beyond its own bytes, at most: lengths, deltas, attributes.
const RECORD_OVERHEAD_BYTES: usize = 36;
/// The same for each of its headers.
const HEADER_OVERHEAD_BYTES: usize = 10;
/// What an append costs in memory beside its records: whoever waits for it, and the headers around its batch.
pub(crate) const APPEND_OVERHEAD_BYTES: usize = 256;
/// The appender is not left to gather more once so much is there for it.
const URGENT_BYTES: usize = 256 << 10;
/// A ring in memory consists of at least so many batches, so that making room drops only a part of it.
const RING_BATCHES_MIN: usize = 8;
const BATCH_MIN_BYTES: usize = 1 << 10;

/// Where a batch stands that was taken before: there or, if that is no longer known, before there.
struct TakenBefore {
    appended: Appended,
    /// What it ends in if its own offsets are no longer known.
    forgotten: Option<Error>,
}

impl PartitionLog {
    pub(crate) fn accept_records(
        &self,
        records: &[Record<'_>],
        level: AckLevel,
        done: Done<Appended>,
    ) -> Result<(), Error> {
        let topic = self.topic.current();
        let batch_max_bytes = self.batch_max_bytes(&topic);
        let records_bytes = self.check_records(records, &topic)?;
        let batches_max = 1 + 2 * (records_bytes / batch_max_bytes);
        let size_bytes = records_bytes + batches_max * APPEND_OVERHEAD_BYTES;
        self.check_append_size(size_bytes)?;
        let mut accept = self.lock();
        self.admit(&accept, records.len() as u64, size_bytes, level)?;
        let first = accept.next;
        if accept.builder.size_bytes() + records_bytes > batch_max_bytes {
            self.seal(&mut accept, &topic);
        }
        accept.next += records.len() as u64;
        if records_bytes <= batch_max_bytes {
            accept.builder.push_all(records);
        } else {
            self.push_divided(&mut accept, &topic, records);
        }
        self.accepted(accept, &topic, first, size_bytes, level, done);
        Ok(())
    }

    /// Records that need several batches. All of these share one place in the order, and so one frame: a crash keeps the
    /// whole append or none of it.
    fn push_divided(&self, accept: &mut Accept, topic: &Topic, records: &[Record<'_>]) {
        let order = self.shared.next_order();
        let batch_max_bytes = self.batch_max_bytes(topic);
        for record in records {
            if accept.builder.size_bytes() + record_bytes(record) > batch_max_bytes && !accept.builder.is_empty() {
                self.seal_as(accept, topic, order);
            }
            accept.builder.push(record);
        }
        self.seal_as(accept, topic, order);
    }

    pub(crate) fn accept_batch(&self, batch: RecordBatch, level: AckLevel, done: Done<Appended>) -> Result<(), Error> {
        let topic = self.topic.current();
        let records = batch.next_offset().0 - batch.base_offset().0;
        let size_bytes = batch.size_bytes() + APPEND_OVERHEAD_BYTES;
        self.check_append_size(size_bytes)?;
        self.check_batch(&batch)?;
        self.check_content(&batch, &topic)?;
        // What a transaction commits must not have been lost before.
        let level = if batch.is_transactional() { AckLevel::Synced } else { level };
        let mut accept = self.lock();
        if let Some(producer) = batch.producer()
            && let Some(before) = self.taken_before(&accept, producer, &batch)?
        {
            self.answer_again(accept, before, level, done);
            return Ok(());
        }
        self.check_transactions(&accept, &batch)?;
        self.admit(&accept, records, size_bytes, level)?;
        self.seal(&mut accept, &topic);
        let first = accept.next;
        accept.next += records;
        let batch = batch.into_restamped(Offset(first), self.shared.epoch);
        self.observe(&mut accept, &batch);
        self.push_sealed(&mut accept, batch, self.shared.next_order());
        accept.open_from = accept.next;
        self.accepted(accept, &topic, first, size_bytes, level, done);
        Ok(())
    }

    /// Whether it is a batch that may be taken at all.
    fn check_batch(&self, batch: &RecordBatch) -> Result<(), Error> {
        let partition = || self.id.clone();
        let refuse = |what| Err(Error::UnsupportedBatch { partition: partition(), what });
        if batch.is_control() {
            return refuse("is a marker, which only the log itself writes");
        }
        if batch.is_transactional() && self.topic.is_memory {
            return refuse("belongs to a transaction, and the topic is in memory only");
        }
        let Some(producer) = batch.producer() else {
            let source = BatchError::Header { field: "producer id", value: -1, rule: "zero or more in a transaction" };
            return if batch.is_transactional() {
                Err(Error::Batch { partition: partition(), source })
            } else {
                Ok(())
            };
        };
        let numbers =
            [("producer epoch", i64::from(producer.epoch)), ("base sequence", i64::from(producer.base_sequence))];
        for (field, value) in numbers {
            if value < 0 {
                let source = BatchError::Header { field, value, rule: "zero or more where there is a producer id" };
                return Err(Error::Batch { partition: partition(), source });
            }
        }
        Ok(())
    }

    /// Where the batch of an idempotent producer stands if it was taken before; `None` if it is to be taken now.
    fn taken_before(
        &self,
        accept: &Accept,
        producer: Producer,
        batch: &RecordBatch,
    ) -> Result<Option<TakenBefore>, Error> {
        self.shared.check_open()?;
        self.topic.check_exists()?;
        let partition = || self.id.clone();
        let (id, epoch, given) = (producer.id, producer.epoch, producer.base_sequence);
        let records = batch.next_offset().0 - batch.base_offset().0;
        let (now_ms, limits) = (self.shared.wall.now_ms(), self.producer_limits());
        match accept.producers.judge(producer, batch.is_transactional(), records, now_ms, limits) {
            Verdict::Accept => Ok(None),
            Verdict::Duplicate(appended) => Ok(Some(TakenBefore { appended, forgotten: None })),
            Verdict::Forgotten(appended) => {
                let forgotten = Error::DuplicateSequence { partition: partition(), producer: id, given };
                Ok(Some(TakenBefore { appended, forgotten: Some(forgotten) }))
            }
            Verdict::OutOfOrder { expected } => {
                Err(Error::OutOfOrderSequence { partition: partition(), producer: id, epoch, expected, given })
            }
            Verdict::Fenced { current } => {
                Err(Error::FencedProducer { partition: partition(), producer: id, current, given: epoch })
            }
            Verdict::InTransaction(open) => Err(Error::InvalidTransaction {
                producer: id,
                epoch,
                place: format!("{} since offset {}", self.id, open.first),
                rule: "its transaction there is open under an earlier epoch, or what it sends is not part of it; end that first",
            }),
        }
    }

    /// Whether there is room for the transaction that a batch begins, if it begins one.
    fn check_transactions(&self, accept: &Accept, batch: &RecordBatch) -> Result<(), Error> {
        let transactions = &accept.producers.transactions;
        let begins = |producer: &Producer| batch.is_transactional() && transactions.of(producer.id).is_none();
        if batch.producer().filter(begins).is_none() {
            return Ok(());
        }
        let open = transactions.open().len();
        let config = &self.shared.config;
        let limits = [
            ("log.producers_max", open, config.producers_max),
            // Room for each that is open: that it is aborted cannot be refused.
            ("log.aborted_max", open + transactions.aborted().entries().len(), config.aborted_max),
        ];
        match limits.into_iter().find(|(_, count, limit_count)| count >= limit_count) {
            None => Ok(()),
            Some((limit, count, limit_count)) => {
                Err(Error::TooManyTransactions { partition: self.id.clone(), count, limit, limit_count })
            }
        }
    }

    /// Takes note of a batch of a producer that is about to be visible.
    pub(crate) fn observe(&self, accept: &mut Accept, batch: &RecordBatch) {
        accept.producers.observe(batch, self.shared.wall.now_ms(), self.producer_limits());
        let Some(producer) = batch.producer().filter(|_| batch.is_transactional()) else { return };
        let first = batch.base_offset().0;
        if batch.is_control() {
            self.undecided.end(producer.id, first);
            // Those that have been decided meanwhile are forgotten, also where nobody reads.
            self.undecided.bound(self.high());
        } else {
            self.undecided.begin(producer.id, first);
        }
    }

    /// Answers for what was taken before, once that has `level`: with the records that are under way now, if need be.
    fn answer_again(
        &self,
        mut accept: MutexGuard<'_, Accept>,
        before: TakenBefore,
        level: AckLevel,
        done: Done<Appended>,
    ) {
        let end = before.appended.last.next().0;
        let answer = match before.forgotten {
            None => Answer::One(done, before.appended),
            Some(error) => Answer::Refused(done, error),
        };
        if self.topic.is_memory || self.has(end, level) {
            drop(accept);
            answer.finish(Ok(()));
            return;
        }
        accept.waiters.push(Waiter { level, answer });
        self.mark_dirty(&mut accept);
        drop(accept);
        self.shared.work.urge();
    }

    /// Sees to everything that follows from having taken records from `first` on.
    fn accepted(
        &self,
        mut accept: MutexGuard<'_, Accept>,
        topic: &Topic,
        first: u64,
        size_bytes: usize,
        level: AckLevel,
        done: Done<Appended>,
    ) {
        let appended = Appended { first: Offset(first), last: Offset(accept.next - 1), epoch: self.shared.epoch };
        self.set_tail(accept.next);
        self.shared.counters.appended(accept.next - first);
        if let Storage::Memory { max_bytes } = topic.config.storage {
            if accept.recent.trim(max_bytes) {
                self.set_first(accept.recent.begins());
            }
            drop(accept);
            self.watchers.ring();
            done.finish(Ok(appended));
            return;
        }
        accept.pending_bytes += size_bytes;
        let waits = level > AckLevel::Memory && !done.is_ignored();
        // Watchers are no reason to hurry: a stream that something follows has one always, and waking the appender for
        // each of its records costs more than accepting them.
        let pending_bytes = accept.pending_bytes;
        let urgent = waits || pending_bytes > URGENT_BYTES;
        let is_first = self.mark_dirty(&mut accept);
        if waits {
            accept.waiters.push(Waiter { level, answer: Answer::One(done, appended) });
            drop(accept);
        } else {
            drop(accept);
            done.finish(Ok(appended));
        }
        // Whoever is prompted writes soon. The appender looks after a while all the same: he may be held up.
        let is_seen_to = pending_bytes <= URGENT_BYTES && waits && self.shared.work.prompt();
        if urgent && !is_seen_to {
            self.shared.work.urge();
        } else if is_first {
            self.shared.work.wake();
        }
    }

    /// One partition's part of an atomic append: a batch of its own, at the append's place in the order. Nothing is open
    /// in the partition.
    pub(crate) fn accept_part(&self, accept: &mut Accept, records: &[Record<'_>], order: u64) {
        let topic = self.topic.current();
        records.iter().for_each(|record| accept.builder.push(record));
        accept.next += records.len() as u64;
        self.seal_as(accept, &topic, order);
        self.set_tail(accept.next);
        self.shared.counters.appended(records.len() as u64);
        match topic.config.storage {
            Storage::Memory { max_bytes } => {
                if accept.recent.trim(max_bytes) {
                    self.set_first(accept.recent.begins());
                }
            }
            Storage::Disk => {
                self.mark_dirty(accept);
            }
        }
    }

    /// The marker of a transaction's end, at its place in the order. Nothing is open in the partition's batch.
    pub(crate) fn accept_marker(&self, accept: &mut Accept, marker: &Marker, order: u64) {
        let batch = marker.seal(Offset(accept.next), self.shared.epoch);
        accept.next += 1;
        accept.open_from = accept.next;
        self.observe(accept, &batch);
        self.push_sealed(accept, batch, order);
        self.set_tail(accept.next);
        self.mark_dirty(accept);
    }

    /// Whether `records` more, of `size_bytes`, may be taken; counts the bytes as pending.
    fn admit(&self, accept: &Accept, records: u64, size_bytes: usize, level: AckLevel) -> Result<(), Error> {
        self.shared.check_open()?;
        self.check_room(accept, records)?;
        if self.topic.is_memory {
            return Ok(());
        }
        self.shared.space.check()?;
        self.shared.room.reserve(size_bytes, level)
    }

    /// Whether there is room for `records` more below the limit of what may be unsynced.
    pub(crate) fn check_room(&self, accept: &Accept, records: u64) -> Result<(), Error> {
        self.topic.check_exists()?;
        let (durable, limit_records) = if self.topic.is_memory {
            (accept.epochs.start(), MEMORY_MAX_RECORDS)
        } else {
            (self.synced(), UNSYNCED_MAX_RECORDS)
        };
        let waiting_records = accept.next + records - durable;
        if waiting_records > limit_records {
            self.shared.work.urge();
            self.shared.sync.demand();
            return Err(Error::TooManyUnsynced { partition: self.id.clone(), waiting_records, limit_records });
        }
        Ok(())
    }

    /// The most bytes that the records can take in a batch, each checked against the topic's limit.
    pub(crate) fn check_records(&self, records: &[Record<'_>], topic: &Topic) -> Result<usize, Error> {
        if records.is_empty() {
            return Err(Error::EmptyAppend { partition: self.id.clone() });
        }
        let limit_bytes = topic.config.record_max_bytes;
        let is_compacted = topic.config.cleanup.compacts();
        let mut total = 0;
        for (index, record) in records.iter().enumerate() {
            if is_compacted && record.key.is_none() {
                return Err(Error::MissingKey { partition: self.id.clone(), index });
            }
            let size_bytes = payload_of(record);
            if size_bytes > limit_bytes {
                return Err(Error::RecordTooLarge { partition: self.id.clone(), size_bytes, limit_bytes });
            }
            total += size_bytes + overhead_bytes(record);
        }
        Ok(total)
    }

    /// As [`PartitionLog::check_records`], of a batch that somebody else has built: what cannot be read is never taken,
    /// as each of its readers would come to its end there. Inflated it may be as large as a batch may lie anywhere.
    fn check_content(&self, batch: &RecordBatch, topic: &Topic) -> Result<(), Error> {
        if batch.is_control() {
            return Ok(());
        }
        let refuse = |source| Error::Batch { partition: self.id.clone(), source };
        let inflated_max_bytes = BatchLimits::default().batch_max_bytes;
        let inflated = batch.inflated(&BatchLimits { inflated_max_bytes, ..self.shared.limits }).map_err(refuse)?;
        let limit_bytes = topic.config.record_max_bytes;
        let is_compacted = topic.config.cleanup.compacts();
        for (index, record) in inflated.records().enumerate() {
            let record = record.map_err(refuse)?;
            if is_compacted && record.key.is_none() {
                return Err(Error::MissingKey { partition: self.id.clone(), index });
            }
            let size_bytes = payload_bytes(record.key, record.value, record.headers());
            if size_bytes > limit_bytes {
                return Err(Error::RecordTooLarge { partition: self.id.clone(), size_bytes, limit_bytes });
            }
        }
        Ok(())
    }

    fn check_append_size(&self, size_bytes: usize) -> Result<(), Error> {
        let limit_bytes = self.shared.config.append_max_bytes;
        if size_bytes > limit_bytes {
            return Err(Error::AppendTooLarge { size_bytes, limit_bytes });
        }
        Ok(())
    }

    fn batch_max_bytes(&self, topic: &Topic) -> usize {
        let batch_max_bytes = self.shared.config.batch_max_bytes;
        match topic.config.storage {
            Storage::Disk => batch_max_bytes,
            Storage::Memory { max_bytes } => batch_max_bytes.min((max_bytes / RING_BATCHES_MIN).max(BATCH_MIN_BYTES)),
        }
    }

    /// Puts down, once, that there is something for the appender to take. Whether it has to be told, as soon as no lock
    /// is held.
    pub(crate) fn mark_dirty(&self, accept: &mut Accept) -> bool {
        if std::mem::replace(&mut accept.dirty, true) {
            return false;
        }
        self.shared_self().is_some_and(|me| self.shared.work.push_dirty(me))
    }

    /// Seals the open records, if there are any, into a batch.
    pub(crate) fn seal(&self, accept: &mut Accept, topic: &Topic) {
        if !accept.builder.is_empty() {
            self.seal_as(accept, topic, self.shared.next_order());
        }
    }

    /// Seals the open records into a batch with a given place in the order.
    pub(crate) fn seal_as(&self, accept: &mut Accept, topic: &Topic, order: u64) {
        let records = u64::from(accept.builder.record_count());
        let base = Offset(accept.open_from);
        let batch = accept.builder.seal(base, self.shared.epoch, topic.config.compression);
        accept.open_from += records;
        self.push_sealed(accept, batch, order);
    }

    fn push_sealed(&self, accept: &mut Accept, batch: RecordBatch, order: u64) {
        self.shared.counters.sealed(batch.size_bytes());
        if !self.topic.is_memory {
            accept.unwritten.push((order, batch.clone()));
        }
        accept.recent.push(Stored::new(batch, self.shared.wall.now_ms()));
    }

    /// Moves all that was accepted into `taken`.
    pub(crate) fn drain(self: &Arc<Self>, taken: &mut Taken) {
        let topic = self.topic.current();
        let mut accept = self.lock();
        accept.dirty = false;
        self.seal(&mut accept, &topic);
        taken.entries.extend(accept.unwritten.drain(..).map(|(order, batch)| {
            let (end, batch) = (batch.next_offset().0, batch.bytes().clone());
            Entry { order, item: Item::Batch { log: self.clone(), batch, end } }
        }));
        taken.waiters.append(&mut accept.waiters);
        taken.pending_bytes += std::mem::take(&mut accept.pending_bytes);
    }
}

fn payload_bytes<'a>(key: Option<&[u8]>, value: Option<&[u8]>, headers: impl Iterator<Item = Header<'a>>) -> usize {
    let length = |bytes: Option<&[u8]>| bytes.map_or(0, <[u8]>::len);
    length(key) + length(value) + headers.map(|header| header.key.len() + length(header.value)).sum::<usize>()
}

fn payload_of(record: &Record<'_>) -> usize {
    payload_bytes(record.key, record.value, record.headers.iter().copied())
}

fn overhead_bytes(record: &Record<'_>) -> usize {
    RECORD_OVERHEAD_BYTES + record.headers.len() * HEADER_OVERHEAD_BYTES
}

fn record_bytes(record: &Record<'_>) -> usize {
    payload_of(record) + overhead_bytes(record)
}
