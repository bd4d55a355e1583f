//! The contents of one partition: sealed batches in order, and the offsets that follow from them.
//!
//! Invariants
//! - `first <= next`; the batches lie between them, in order, and none of them is of two transactions.
//! - The batches of an aborted transaction keep their offsets and have no records.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use millstream_log::{Appended, Error, Holds, LogConfig, Offsets, Storage, Topic, UpTo, Watchers};
use millstream_types::{
    BatchBuilder, BatchLimits, Epoch, Offset, Position, Record, RecordBatch, StoredRecord, TopicPartition,
};

/// The number of a transaction, never given again.
pub(super) type TransactionId = u64;

/// A memory topic's ring holds at least this many batches, so making room drops only a part of it.
const RING_BATCHES_MIN: usize = 8;
const BATCH_MIN_BYTES: usize = 1 << 10;

pub(super) struct PartitionContents {
    first: Offset,
    next: Offset,
    /// The epochs under which offsets were handed out, each with its first one.
    epochs: Vec<(Epoch, Offset)>,
    batches: VecDeque<StoredBatch>,
    size_bytes: usize,
    /// The open transactions that have records here, with the first of these.
    open: BTreeMap<TransactionId, Offset>,
    pub(super) watchers: Arc<Watchers>,
    pub(super) holds: Holds,
}

#[derive(Clone)]
struct StoredBatch {
    batch: RecordBatch,
    transaction: Option<TransactionId>,
}

impl PartitionContents {
    pub(super) fn new(epoch: Epoch, first: Offset) -> Self {
        Self {
            first,
            next: first,
            epochs: vec![(epoch, first)],
            batches: VecDeque::new(),
            size_bytes: 0,
            open: BTreeMap::new(),
            watchers: Arc::default(),
            holds: Holds::default(),
        }
    }

    /// The partition after a restart, which begins `epoch`.
    pub(super) fn next_life(&self, topic: &Topic, epoch: Epoch) -> Self {
        let mut next = Self {
            first: self.first,
            epochs: self.epochs.clone(),
            batches: self.batches.clone(),
            size_bytes: self.size_bytes,
            open: self.open.clone(),
            ..Self::new(epoch, self.next)
        };
        next.epochs.push((epoch, self.next));
        let left_open: Vec<_> = next.open.keys().copied().collect();
        left_open.into_iter().for_each(|transaction| next.abort(transaction));
        if matches!(topic.config.storage, Storage::Memory { .. }) {
            next.clear();
        }
        next
    }

    /// Removes all records.
    pub(super) fn clear(&mut self) {
        self.batches.clear();
        self.open.clear();
        (self.first, self.size_bytes) = (self.next, 0);
    }

    pub(super) fn size_bytes(&self) -> usize {
        self.size_bytes
    }

    pub(super) fn offsets(&self, epoch: Epoch) -> Offsets {
        let stable = self.limit(UpTo::Stable);
        Offsets { first: self.first, stable, high: self.next, tail: self.next, epoch }
    }

    /// The first offset that a reader does not see.
    fn limit(&self, up_to: UpTo) -> Offset {
        match up_to {
            UpTo::High => self.next,
            UpTo::Stable | UpTo::Tail => self.open.values().copied().min().unwrap_or(self.next).max(self.first),
        }
    }

    pub(super) fn append(
        &mut self,
        records: &[Record<'_>],
        topic: &Topic,
        epoch: Epoch,
        now_ms: i64,
        transaction: Option<TransactionId>,
    ) -> Appended {
        let first = self.next;
        if let Some(transaction) = transaction {
            self.open.entry(transaction).or_insert(first);
        }
        let batch_max_bytes = batch_max_bytes(topic);
        let mut builder = BatchBuilder::default();
        for record in records {
            if !builder.is_empty() && builder.size_bytes() + record.batch_max_bytes() > batch_max_bytes {
                self.seal(&mut builder, topic, epoch, now_ms, transaction);
            }
            builder.push(record);
        }
        self.seal(&mut builder, topic, epoch, now_ms, transaction);
        if let Storage::Memory { max_bytes } = topic.config.storage {
            self.shrink(max_bytes);
        }
        Appended { first, last: Offset(self.next.0 - 1), epoch }
    }

    fn seal(
        &mut self,
        builder: &mut BatchBuilder,
        topic: &Topic,
        epoch: Epoch,
        now_ms: i64,
        transaction: Option<TransactionId>,
    ) {
        let sealed = builder.seal(self.next, epoch, topic.config.compression);
        let batch = if topic.config.append_time { sealed.into_append_timed(now_ms) } else { sealed };
        self.next = batch.next_offset();
        self.size_bytes += batch.size_bytes();
        self.batches.push_back(StoredBatch { batch, transaction });
    }

    /// Drops the oldest batches of a ring while there are more than `max_bytes`, but never the newest.
    fn shrink(&mut self, max_bytes: usize) {
        while self.size_bytes > max_bytes
            && self.batches.len() > 1
            && let Some(oldest) = self.batches.pop_front()
        {
            self.size_bytes -= oldest.batch.size_bytes();
            self.first = self.first.max(oldest.batch.next_offset());
        }
    }

    /// Makes the records of a transaction visible.
    pub(super) fn commit(&mut self, transaction: TransactionId) {
        self.open.remove(&transaction);
    }

    /// Removes the records of a transaction.
    pub(super) fn abort(&mut self, transaction: TransactionId) {
        self.open.remove(&transaction);
        for stored in self.batches.iter_mut().filter(|stored| stored.transaction == Some(transaction)) {
            self.size_bytes -= stored.batch.size_bytes();
            stored.batch = stored.batch.without_records();
            self.size_bytes += stored.batch.size_bytes();
        }
    }

    /// The batches from the one that holds `offset`, or lies behind it.
    fn from(&self, offset: Offset) -> impl Iterator<Item = &RecordBatch> {
        let begin = self.batches.partition_point(|stored| stored.batch.next_offset() <= offset);
        self.batches.range(begin..).map(|stored| &stored.batch)
    }

    pub(super) fn read(
        &self,
        id: &TopicPartition,
        from: Offset,
        max_bytes: usize,
        up_to: UpTo,
    ) -> Result<Vec<RecordBatch>, Error> {
        self.check_kept(id, from)?;
        if from > self.next {
            return Err(Error::BeyondTail { partition: id.clone(), wanted: from, tail: self.next });
        }
        let limit = self.limit(up_to);
        let (mut found, mut empty, mut budget) = (Vec::new(), None, max_bytes);
        for batch in self.from(from).take_while(|batch| batch.base_offset() < limit) {
            if batch.record_count() == 0 {
                empty = Some(batch);
                continue;
            }
            if !found.is_empty() && batch.size_bytes() > budget {
                return Ok(found);
            }
            budget = budget.saturating_sub(batch.size_bytes());
            found.push(batch.clone());
            empty = None;
        }
        // The reader moves on behind the records of aborted transactions.
        found.extend(empty.cloned());
        Ok(found)
    }

    pub(super) fn read_one(
        &self,
        id: &TopicPartition,
        offset: Offset,
        up_to: UpTo,
    ) -> Result<Option<StoredRecord>, Error> {
        if offset < self.first || offset >= self.limit(up_to) {
            return Ok(None);
        }
        match self.from(offset).next() {
            Some(batch) => inflated(id, batch)?.record_at(offset).map_err(|source| undecodable(id, source)),
            None => Ok(None),
        }
    }

    pub(super) fn offset_at(&self, id: &TopicPartition, timestamp_ms: i64) -> Result<Option<Offset>, Error> {
        for batch in self.from(self.first).filter(|batch| batch.record_count() > 0) {
            for record in inflated(id, batch)?.records() {
                let record = record.map_err(|source| undecodable(id, source))?;
                if record.offset >= self.first && record.timestamp_ms >= timestamp_ms {
                    return Ok(Some(record.offset));
                }
            }
        }
        Ok(None)
    }

    pub(super) fn resume(&self, id: &TopicPartition, topic: &Topic, position: Position) -> Result<Offset, Error> {
        let lost = |why, restart| Err(Error::PositionLost { partition: id.clone(), position, why, restart });
        if position.topic != topic.id {
            return lost("it belongs to another topic of this name", self.first);
        }
        self.check_kept(id, position.offset)?;
        let present = self.epochs.last().map(|(epoch, _)| *epoch);
        if Some(position.epoch) > present {
            return lost("this log has not reached that epoch", self.next);
        }
        let later = self.epochs.iter().find(|(epoch, _)| *epoch > position.epoch);
        let end = later.map_or(self.next, |(_, start)| *start);
        if position.offset > end {
            return lost("its epoch ended below it: those records were lost", end.max(self.first));
        }
        Ok(position.offset)
    }

    pub(super) fn trim(&mut self, id: &TopicPartition, topic: &Topic, before: Offset) -> Result<Offset, Error> {
        if !topic.config.cleanup.expires() {
            return Err(Error::NotTrimmable { partition: id.clone() });
        }
        let stable = self.limit(UpTo::Stable);
        if before > stable {
            return Err(Error::BeyondStable { partition: id.clone(), wanted: before, stable });
        }
        let before = match topic.config.storage {
            Storage::Disk => self.unheld(before, topic.config.hold_max_bytes),
            Storage::Memory { .. } => before,
        };
        self.first = self.first.max(before);
        while let Some(oldest) = self.batches.front().filter(|stored| stored.batch.next_offset() <= self.first) {
            self.size_bytes -= oldest.batch.size_bytes();
            self.batches.pop_front();
        }
        Ok(self.first)
    }

    /// The offset up to which records below `before` may go: readers may hold at most `hold_max_bytes`.
    fn unheld(&self, before: Offset, hold_max_bytes: u64) -> Offset {
        let Some((held, _)) = self.holds.lowest() else { return before };
        let held = Offset(held);
        let between = self.from(held).take_while(|batch| batch.base_offset() < before);
        let held_bytes: usize = between.map(RecordBatch::size_bytes).sum();
        if held_bytes as u64 <= hold_max_bytes { held.min(before) } else { before }
    }

    fn check_kept(&self, id: &TopicPartition, wanted: Offset) -> Result<(), Error> {
        if wanted < self.first {
            return Err(Error::Trimmed { partition: id.clone(), wanted, oldest: self.first });
        }
        Ok(())
    }
}

/// Largest batch of a topic, unless a single record is larger.
fn batch_max_bytes(topic: &Topic) -> usize {
    let batch_max_bytes = LogConfig::default().batch_max_bytes;
    match topic.config.storage {
        Storage::Disk => batch_max_bytes,
        Storage::Memory { max_bytes } => batch_max_bytes.min((max_bytes / RING_BATCHES_MIN).max(BATCH_MIN_BYTES)),
    }
}

fn inflated(id: &TopicPartition, batch: &RecordBatch) -> Result<RecordBatch, Error> {
    batch.inflated(&BatchLimits::default()).map_err(|source| undecodable(id, source))
}

fn undecodable(id: &TopicPartition, source: millstream_types::BatchError) -> Error {
    Error::Batch { partition: id.clone(), source }
}
