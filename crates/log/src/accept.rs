//! Accepts records: an append gets its offsets at once; the journal is written later.

mod in_transaction;

use std::sync::Arc;

use millstream_types::{BatchError, BatchLimits, Marker, Offset, Producer, Record, RecordBatch};
use parking_lot::MutexGuard;

use crate::ack::{AckReply, AckWaiter};
use crate::group_commit::{JournalEntry, JournalItem, TakenAppends};
use crate::partition::{Accept, MEMORY_MAX_RECORDS, PartitionLog, UNSYNCED_MAX_RECORDS};
use crate::producer_ids::is_writer;
use crate::producers::SequenceCheck;
use crate::record_limits::{payload_bytes, record_bytes};
use crate::space::DiskUse;
use crate::tail_cache::CachedBatch;
use crate::{AckLevel, Appended, Done, Error, Storage, Topic, Writers};

/// Memory that an append costs beside its records: its waiter and the headers around its batch.
pub(crate) const APPEND_OVERHEAD_BYTES: usize = 256;
/// With this many pending bytes the appender stops lingering and writes.
const URGENT_BYTES: usize = 256 << 10;
/// A memory topic's ring holds at least this many batches, so making room drops only a part of it.
const RING_BATCHES_MIN: usize = 8;
const BATCH_MIN_BYTES: usize = 1 << 10;
/// Largest batch of a topic with [`crate::TopicConfig::compaction_live_percent`] unless a single record is larger. Its
/// records are read one by one, each with all of its batch.
const SINGLE_READS_BATCH_BYTES: usize = 4 << 10;

/// An earlier copy of a batch that a producer sends again. If the offsets of that copy are forgotten,
/// `appended` is a later batch.
struct TakenBefore {
    appended: Appended,
    /// The error to answer with if the batch's own offsets are forgotten.
    forgotten: Option<Error>,
}

/// The bytes of an append: of its records, and together with their batches.
struct AppendSize {
    records_bytes: usize,
    size_bytes: usize,
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
        let AppendSize { records_bytes, size_bytes } = self.check_append(records, &topic)?;
        let mut accept = self.lock();
        self.admit(&accept, records.len() as u64, size_bytes, level, disk_use(records, &topic))?;
        accept.debug_check_chain();
        let first = accept.next;
        if accept.builder.size_bytes() + records_bytes > batch_max_bytes {
            self.seal(&mut accept, &topic);
        }
        accept.next += records.len() as u64;
        if records_bytes <= batch_max_bytes {
            accept.builder.push_all(records);
        } else {
            self.push_divided(&mut accept, &topic, records, self.shared.next_order());
        }
        self.accepted(accept, &topic, first, size_bytes, level, done);
        Ok(())
    }

    /// Appends records in as many batches as they need. The batches share one order, hence one journal frame, so a crash
    /// keeps the whole append or none of it.
    fn push_divided(&self, accept: &mut Accept, topic: &Topic, records: &[Record<'_>], order: u64) {
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
        let disk_use = self.check_content(&batch, &topic)?;
        // A commit must not refer to records that a crash may lose.
        let level = if batch.is_transactional() { AckLevel::Synced } else { level };
        let mut accept = self.lock();
        if let Some(producer) = batch.producer()
            && let Some(before) = self.taken_before(&accept, producer, &batch)?
        {
            self.answer_again(accept, before, level, done);
            return Ok(());
        }
        self.check_transactions(&accept, &batch)?;
        self.admit(&accept, records, size_bytes, level, disk_use)?;
        self.seal(&mut accept, &topic);
        let first = accept.next;
        accept.next += records;
        let batch = self.timed(batch, &topic).into_restamped(Offset(first), self.shared.epoch);
        self.observe(&mut accept, &batch);
        self.push_sealed(&mut accept, batch, self.shared.next_order());
        accept.open_from = accept.next;
        self.accepted(accept, &topic, first, size_bytes, level, done);
        Ok(())
    }

    /// Refuses batches that the partition never accepts: markers and malformed producer fields.
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
        if is_writer(producer.id) {
            let (producer, epoch, place) = (producer.id, producer.epoch, format!("to {}", self.id));
            let rule = "the id belongs to a writer of the log itself; ask for a producer id, and send with that";
            return Err(Error::InvalidTransaction { producer, epoch, place, rule });
        }
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

    /// Finds an earlier copy of an idempotent producer's batch; `None` if the batch is new.
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
            SequenceCheck::Accept => Ok(None),
            SequenceCheck::Duplicate(appended) => Ok(Some(TakenBefore { appended, forgotten: None })),
            SequenceCheck::Forgotten(appended) => {
                let forgotten = Error::DuplicateSequence { partition: partition(), producer: id, given };
                Ok(Some(TakenBefore { appended, forgotten: Some(forgotten) }))
            }
            SequenceCheck::OutOfOrder { expected } => {
                Err(Error::OutOfOrderSequence { partition: partition(), producer: id, epoch, expected, given })
            }
            SequenceCheck::Fenced { current } => {
                Err(Error::FencedProducer { partition: partition(), producer: id, current, given: epoch })
            }
            SequenceCheck::InTransaction(open) => Err(Error::InvalidTransaction {
                producer: id,
                epoch,
                place: format!("{} since offset {}", self.id, open.first),
                rule: "its transaction there is open under an earlier epoch, or the batch is not part of it; end that transaction first",
            }),
        }
    }

    /// Refuses a batch that would begin a transaction beyond the limits.
    fn check_transactions(&self, accept: &Accept, batch: &RecordBatch) -> Result<(), Error> {
        let producer = batch.producer().filter(|_| batch.is_transactional());
        producer.map_or(Ok(()), |producer| self.check_begins(accept, producer.id))
    }

    /// Refuses a batch of a transaction that would begin by it, beyond the limits.
    fn check_begins(&self, accept: &Accept, producer_id: i64) -> Result<(), Error> {
        let transactions = &accept.producers.transactions;
        if transactions.of(producer_id).is_some() {
            return Ok(());
        }
        let open = transactions.open().len();
        let config = &self.shared.config;
        let limits = [
            ("log.producers_max", open, config.producers_max),
            // Reserve an entry for each open transaction: an abort cannot be refused.
            ("log.aborted_max", open + transactions.aborted().entries().len(), config.aborted_max),
        ];
        match limits.into_iter().find(|(_, count, limit_count)| count >= limit_count) {
            None => Ok(()),
            Some((limit, count, limit_count)) => {
                Err(Error::TooManyTransactions { partition: self.id.clone(), count, limit, limit_count })
            }
        }
    }

    /// Updates the producer table before the batch becomes visible.
    pub(crate) fn observe(&self, accept: &mut Accept, batch: &RecordBatch) {
        accept.producers.observe(batch, self.shared.wall.now_ms(), self.producer_limits());
        let Some(producer) = batch.producer().filter(|_| batch.is_transactional()) else { return };
        let first = batch.base_offset().0;
        if batch.is_control() {
            self.last_stable.end(producer.id, first);
            // Forget decided transactions even if nobody reads.
            self.last_stable.bound(self.high());
        } else {
            self.last_stable.begin(producer.id, first);
        }
    }

    /// Answers a batch that was sent again, once the first copy has `level`. If need be, it waits
    /// for the next journal write.
    fn answer_again(
        &self,
        mut accept: MutexGuard<'_, Accept>,
        before: TakenBefore,
        level: AckLevel,
        done: Done<Appended>,
    ) {
        let end = before.appended.last.next().0;
        let answer = match before.forgotten {
            None => AckReply::One(done, before.appended),
            Some(error) => AckReply::Refused(done, error),
        };
        if self.topic.is_memory || self.has(end, level) {
            drop(accept);
            answer.finish(Ok(()));
            return;
        }
        accept.waiters.push(AckWaiter { level, answer });
        self.mark_dirty(&mut accept);
        drop(accept);
        self.queues.urge_appender();
    }

    /// Completes an append whose records start at `first`: tail, memory ring, waiter, appender.
    fn accepted(
        &self,
        mut accept: MutexGuard<'_, Accept>,
        topic: &Topic,
        first: u64,
        size_bytes: usize,
        level: AckLevel,
        done: Done<Appended>,
    ) {
        accept.debug_check_chain();
        debug_assert!(first < accept.next, "an append has records");
        let appended = Appended { first: Offset(first), last: Offset(accept.next - 1), epoch: self.shared.epoch };
        self.set_tail(accept.next);
        self.shared.counters.appended(accept.next - first);
        if let Storage::Memory { max_bytes } = topic.config.storage {
            if accept.tail_cache.trim(max_bytes) {
                self.set_first(accept.tail_cache.begins());
            }
            drop(accept);
            self.watchers.ring();
            done.finish(Ok(appended));
            return;
        }
        accept.pending_bytes += size_bytes;
        let waits = level > AckLevel::Memory && !done.is_ignored();
        // A watcher does not make the append urgent: a followed stream always has one, and waking the appender for
        // each record costs more than accepting it.
        let pending_bytes = accept.pending_bytes;
        let urgent = waits || pending_bytes > URGENT_BYTES;
        let is_first = self.mark_dirty(&mut accept);
        if waits {
            accept.waiters.push(AckWaiter { level, answer: AckReply::One(done, appended) });
            drop(accept);
        } else {
            drop(accept);
            done.finish(Ok(appended));
        }
        // The prompted thread writes soon. The appender is still woken after a while, in case that thread is delayed.
        let is_seen_to = pending_bytes <= URGENT_BYTES && waits && self.queues.prompt_writer();
        if urgent && !is_seen_to {
            self.queues.urge_appender();
        } else if is_first {
            self.queues.wake_appender();
        }
    }

    /// Appends one partition's share of an atomic append in batches of its own, at the order of the append. The caller has
    /// sealed the open batch.
    pub(crate) fn accept_part(&self, accept: &mut Accept, records: &[Record<'_>], order: u64) {
        let topic = self.topic.current();
        self.push_divided(accept, &topic, records, order);
        accept.next += records.len() as u64;
        accept.debug_check_chain();
        self.set_tail(accept.next);
        self.shared.counters.appended(records.len() as u64);
        match topic.config.storage {
            Storage::Memory { max_bytes } => {
                if accept.tail_cache.trim(max_bytes) {
                    self.set_first(accept.tail_cache.begins());
                }
            }
            Storage::Disk => {
                self.mark_dirty(accept);
            }
        }
    }

    /// Appends a transaction marker at the given order. The caller has sealed the open batch.
    pub(crate) fn accept_marker(&self, accept: &mut Accept, marker: &Marker, order: u64) {
        let batch = marker.seal(Offset(accept.next), self.shared.epoch);
        debug_assert!(accept.builder.is_empty(), "a marker stands behind all accepted records");
        accept.next += 1;
        accept.open_from = accept.next;
        self.observe(accept, &batch);
        self.push_sealed(accept, batch, order);
        accept.debug_check_chain();
        self.set_tail(accept.next);
        self.mark_dirty(accept);
    }

    /// Checks that `records` more may be accepted, and reserves `size_bytes` as pending.
    fn admit(
        &self,
        accept: &Accept,
        records: u64,
        size_bytes: usize,
        level: AckLevel,
        disk_use: DiskUse,
    ) -> Result<(), Error> {
        self.shared.check_open()?;
        self.check_room(accept, records)?;
        if self.topic.is_memory {
            return Ok(());
        }
        self.shared.space.check_for(disk_use)?;
        self.shared.backpressure.reserve(size_bytes, level)?;
        self.shared.space.promise(size_bytes);
        Ok(())
    }

    /// Checks the limit on accepted records that are not synced.
    pub(crate) fn check_room(&self, accept: &Accept, records: u64) -> Result<(), Error> {
        self.topic.check_exists()?;
        let (durable, limit_records) = if self.topic.is_memory {
            (accept.epochs.start(), MEMORY_MAX_RECORDS)
        } else {
            (self.synced(), UNSYNCED_MAX_RECORDS)
        };
        let waiting_records = accept.next + records - durable;
        if waiting_records > limit_records {
            self.queues.urge_appender();
            self.queues.demand_sync();
            return Err(Error::TooManyUnsynced { partition: self.id.clone(), waiting_records, limit_records });
        }
        Ok(())
    }

    /// Checks the records of a batch that another program built. An unreadable batch is refused, since it would stop
    /// each reader. The inflated size may reach the global batch limit. Returns what the records use the disk for.
    fn check_content(&self, batch: &RecordBatch, topic: &Topic) -> Result<DiskUse, Error> {
        if batch.is_control() {
            return Ok(DiskUse::Ordinary);
        }
        let refuse = |source| Error::Batch { partition: self.id.clone(), source };
        let inflated_max_bytes = BatchLimits::default().batch_max_bytes;
        let inflated = batch.inflated(&BatchLimits { inflated_max_bytes, ..self.shared.limits }).map_err(refuse)?;
        let limit_bytes = topic.config.record_max_bytes;
        let is_compacted = topic.config.cleanup.compacts();
        let mut disk_use = if is_compacted { DiskUse::MakesRoom } else { DiskUse::Ordinary };
        for (index, record) in inflated.records().enumerate() {
            let record = record.map_err(refuse)?;
            if record.value.is_some() {
                disk_use = DiskUse::Ordinary;
            }
            if is_compacted && record.key.is_none() {
                return Err(Error::MissingKey { partition: self.id.clone(), index });
            }
            let size_bytes = payload_bytes(record.key, record.value, record.headers());
            if size_bytes > limit_bytes {
                return Err(Error::RecordTooLarge { partition: self.id.clone(), size_bytes, limit_bytes });
            }
        }
        Ok(disk_use)
    }

    /// Checks records and their sum against the limits.
    fn check_append(&self, records: &[Record<'_>], topic: &Topic) -> Result<AppendSize, Error> {
        let records_bytes = topic.config.check_records(&self.id, records)?;
        let batches_max = records.len().min(1 + 2 * (records_bytes / self.batch_max_bytes(topic)));
        let size_bytes = records_bytes + batches_max * APPEND_OVERHEAD_BYTES;
        self.check_append_size(size_bytes)?;
        Ok(AppendSize { records_bytes, size_bytes })
    }

    fn check_append_size(&self, size_bytes: usize) -> Result<(), Error> {
        let limit_bytes = self.shared.config.append_max_bytes;
        if size_bytes > limit_bytes {
            return Err(Error::AppendTooLarge { size_bytes, limit_bytes });
        }
        Ok(())
    }

    fn batch_max_bytes(&self, topic: &Topic) -> usize {
        let batch_max_bytes = match topic.config.compaction_live_percent {
            Some(_) => self.shared.config.batch_max_bytes.min(SINGLE_READS_BATCH_BYTES),
            None => self.shared.config.batch_max_bytes,
        };
        match topic.config.storage {
            Storage::Disk => batch_max_bytes,
            Storage::Memory { max_bytes } => batch_max_bytes.min((max_bytes / RING_BATCHES_MIN).max(BATCH_MIN_BYTES)),
        }
    }

    /// Queues the partition for the appender unless it is queued. `true` if the caller must wake the appender after
    /// it has dropped its locks.
    pub(crate) fn mark_dirty(&self, accept: &mut Accept) -> bool {
        if std::mem::replace(&mut accept.dirty, true) {
            return false;
        }
        self.shared_self().is_some_and(|me| self.queues.push_dirty(me))
    }

    /// Seals the open records into a batch, if there are any.
    pub(crate) fn seal(&self, accept: &mut Accept, topic: &Topic) {
        if !accept.builder.is_empty() {
            self.seal_as(accept, topic, self.shared.next_order());
        }
    }

    /// Seals the open records into a batch with the given order.
    pub(crate) fn seal_as(&self, accept: &mut Accept, topic: &Topic, order: u64) {
        let records = u64::from(accept.builder.record_count());
        let base = Offset(accept.open_from);
        let batch = accept.builder.seal(base, self.shared.epoch, topic.config.compression);
        let batch = self.timed(batch, topic);
        accept.open_from += records;
        debug_assert_eq!(
            batch.next_offset().0,
            accept.open_from,
            "a batch has the offsets that its records were given"
        );
        self.push_sealed(accept, batch, order);
    }

    /// Stamps the batch with its append time if the topic asks for that.
    fn timed(&self, batch: RecordBatch, topic: &Topic) -> RecordBatch {
        match topic.config.append_time && !batch.has_append_time() {
            true => batch.into_append_timed(self.shared.wall.now_ms()),
            false => batch,
        }
    }

    fn push_sealed(&self, accept: &mut Accept, batch: RecordBatch, order: u64) {
        self.shared.counters.sealed(batch.size_bytes());
        debug_assert_eq!(batch.epoch(), self.shared.epoch, "a start seals batches of its epoch");
        if !self.topic.is_memory {
            let last = accept.unwritten.last();
            debug_assert!(last.is_none_or(|(last, _)| *last <= order), "batches of a partition are sealed in order");
            accept.unwritten.push((order, batch.clone()));
        }
        accept.tail_cache.push(CachedBatch::new(batch, self.shared.wall.now_ms()));
    }

    /// Moves all accepted batches and waiters into `taken`.
    pub(crate) fn drain(self: &Arc<Self>, taken: &mut TakenAppends) {
        let topic = self.topic.current();
        let mut accept = self.lock();
        accept.dirty = false;
        self.seal(&mut accept, &topic);
        debug_assert_eq!(accept.open_from, accept.next, "all accepted records are sealed");
        taken.entries.extend(accept.unwritten.drain(..).map(|(order, batch)| {
            let (end, batch) = (batch.next_offset().0, batch.bytes().clone());
            JournalEntry { order, item: JournalItem::Batch { log: self.clone(), batch, end } }
        }));
        taken.waiters.append(&mut accept.waiters);
        taken.pending_bytes += std::mem::take(&mut accept.pending_bytes);
    }
}

/// The purpose for which these records use the disk.
pub(crate) fn disk_use(records: &[Record<'_>], topic: &Topic) -> DiskUse {
    if topic.config.cleanup.compacts() && records.iter().all(|record| record.value.is_none()) {
        DiskUse::MakesRoom
    } else if topic.config.writers == Writers::OwnersOnly {
        DiskUse::Promised
    } else {
        DiskUse::Ordinary
    }
}
