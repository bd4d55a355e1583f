//! One partition of the embedded engine: where records are accepted, kept near the tail, and read.
//!
//! One short lock per partition guards what is accepted and what is in memory. It is never held over a disk access.
//! Invariants
//! - `first <= stable <= high <= tail`, and none of them moves back.
//! - `written` and `synced` are ends of rounds: whatever lies below them is in the journal, or durable.
//! - At most [`UNSYNCED_MAX_RECORDS`] offsets are handed out beyond `synced`; that is what a start after a crash skips.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use millstream_types::{BatchBuilder, Epoch, Offset, Position, Record, RecordBatch, TopicId, TopicPartition};
use parking_lot::{Mutex, MutexGuard, RwLock};

use crate::epochs::Epochs;
use crate::holds::Holds;
use crate::meta::PartitionRecord;
use crate::producers::{ProducerLimits, Producers};
use crate::recent::{Recent, Stored};
use crate::round::Waiter;
use crate::segment::{Segment, SegmentPlace};
use crate::shared::Shared;
use crate::undecided::Undecided;
use crate::watchers::Watchers;
use crate::{
    AckLevel, Appended, Bell, Done, Error, Hold, KnownProducer, Located, Offsets, OpenTransaction, Partition, Storage,
    Topic, UpTo, contract,
};

/// Most records of one partition that may be accepted and not yet synced. A start after a crash continues this far
/// above what it recovered, and so above every offset that was ever handed out.
pub(crate) const UNSYNCED_MAX_RECORDS: u64 = 1 << 20;
/// The same for a memory topic, of which nothing is recovered: the most records of one partition in one life.
pub(crate) const MEMORY_MAX_RECORDS: u64 = 1 << 40;

/// What the partitions of a topic share.
pub(crate) struct TopicState {
    pub(crate) id: TopicId,
    pub(crate) is_memory: bool,
    current: RwLock<Arc<Topic>>,
    deleted: AtomicBool,
}

impl TopicState {
    pub(crate) fn new(topic: Topic) -> Self {
        let is_memory = matches!(topic.config.storage, Storage::Memory { .. });
        let (id, deleted) = (topic.id, AtomicBool::new(false));
        Self { id, is_memory, current: RwLock::new(Arc::new(topic)), deleted }
    }

    pub(crate) fn current(&self) -> Arc<Topic> {
        self.current.read().clone()
    }

    pub(crate) fn replace(&self, topic: Topic) {
        *self.current.write() = Arc::new(topic);
    }

    /// From now on appends and reads are refused.
    pub(crate) fn delete(&self) {
        self.deleted.store(true, Ordering::Release);
    }

    pub(crate) fn check_exists(&self) -> Result<(), Error> {
        if self.deleted.load(Ordering::Acquire) {
            return Err(Error::UnknownTopic { topic: self.current.read().name.clone() });
        }
        Ok(())
    }
}

/// See the module.
pub(crate) struct PartitionLog {
    me: Weak<Self>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) topic: Arc<TopicState>,
    pub(crate) id: TopicPartition,
    pub(crate) watchers: Watchers,
    pub(crate) holds: Arc<Holds>,
    accept: Mutex<Accept>,
    first: AtomicU64,
    tail: AtomicU64,
    written: AtomicU64,
    synced: AtomicU64,
    /// The end of the records that this start has found, and the first offset that it hands out: behind it, with nothing in
    /// between, if the last start ended in a crash.
    found_to: AtomicU64,
    begins_at: AtomicU64,
    /// What an earlier level of the topic protects.
    high_floor: AtomicU64,
    pub(crate) undecided: Undecided,
    /// The producers as of the last record in the segments: what `meta` keeps.
    flushed_producers: Mutex<Producers>,
    /// Tombstones below it may be gone.
    horizon: AtomicU64,
}

/// What the lock guards.
pub(crate) struct Accept {
    /// First offset not handed out.
    pub(crate) next: u64,
    /// Records that are accepted and not sealed, from `open_from` on.
    pub(crate) builder: BatchBuilder,
    pub(crate) open_from: u64,
    pub(crate) recent: Recent,
    /// Sealed batches that the appender has not taken, with their places in the order.
    pub(crate) unwritten: Vec<(u64, RecordBatch)>,
    pub(crate) waiters: Vec<Waiter>,
    pub(crate) pending_bytes: usize,
    /// Whether the appender knows that there is something to take.
    pub(crate) dirty: bool,
    pub(crate) segments: Vec<Arc<Segment>>,
    pub(crate) epochs: Epochs,
    /// The producers as of `next`.
    pub(crate) producers: Producers,
    /// Below it, compaction has left each key one record.
    pub(crate) clean_to: u64,
    /// Compaction has met damage: nothing is compacted before a restart.
    pub(crate) is_damaged: bool,
}

impl Accept {
    /// Bytes of all segments.
    pub(crate) fn segment_bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.size_bytes()).sum()
    }
}

impl PartitionLog {
    /// A partition as `record` describes it; `begin` it before anything is appended.
    pub(crate) fn new(
        shared: &Arc<Shared>,
        topic: &Arc<TopicState>,
        id: TopicPartition,
        record: PartitionRecord,
    ) -> Arc<Self> {
        let place = SegmentPlace {
            files: &shared.files,
            buffers: &shared.buffers,
            layout: &shared.layout,
            topic: topic.id,
            partition: &id,
        };
        let segments: Vec<_> =
            record.segments.iter().map(|segment| Arc::new(Segment::known(&place, segment))).collect();
        // What was trimmed may not have reached a segment: `first` does not tell how far these go.
        let flushed = segments.last().map_or(record.tail, |last| last.end());
        let end = flushed.max(record.tail).max(record.epochs.start());
        let accept = Accept {
            next: end,
            builder: BatchBuilder::default(),
            open_from: end,
            recent: Recent::new(flushed),
            unwritten: Vec::new(),
            waiters: Vec::new(),
            pending_bytes: 0,
            dirty: false,
            segments,
            epochs: record.epochs,
            producers: record.producers.clone(),
            clean_to: record.clean_to,
            is_damaged: false,
        };
        Arc::new_cyclic(|me| Self {
            me: me.clone(),
            shared: shared.clone(),
            topic: topic.clone(),
            id,
            watchers: Watchers::default(),
            holds: Arc::default(),
            accept: Mutex::new(accept),
            first: AtomicU64::new(record.first),
            tail: AtomicU64::new(end),
            written: AtomicU64::new(end),
            synced: AtomicU64::new(end),
            found_to: AtomicU64::new(end),
            begins_at: AtomicU64::new(end),
            high_floor: AtomicU64::new(0),
            undecided: Undecided::default(),
            flushed_producers: Mutex::new(record.producers),
            horizon: AtomicU64::new(record.horizon),
        })
    }

    /// Puts back a batch that the journal held; `false` if it is not above what is there.
    pub(crate) fn replay(&self, batch: RecordBatch, appended_ms: i64) -> bool {
        let mut accept = self.accept.lock();
        let stored = Stored::new(batch, appended_ms);
        if stored.end <= accept.recent.begins() {
            return true;
        }
        if stored.first < accept.next {
            return false;
        }
        accept.next = stored.end;
        accept.producers.observe(&stored.batch, appended_ms, self.producer_limits());
        accept.recent.push(stored);
        true
    }

    /// Begins this start's epoch at `start`, or right behind what is there. Nothing of it is handed out before `meta`
    /// says so durably.
    pub(crate) fn begin(&self, skip: u64) {
        let mut accept = self.accept.lock();
        let end = accept.next;
        let start = end + skip;
        let first = if self.topic.is_memory { start } else { self.first() };
        accept.epochs.begin(self.shared.epoch, start, end, first);
        accept.next = start;
        accept.open_from = start;
        accept.producers.transactions.open().for_each(|(producer, open)| self.undecided.begin(producer, open.first));
        if self.topic.is_memory {
            accept.recent = Recent::new(start);
        }
        self.first.store(first, Ordering::Release);
        // Where there is no record, readers have nothing to get to behind the first offset.
        let has_records = !accept.segments.is_empty() || accept.recent.end() > accept.recent.begins();
        let found_to = if has_records { accept.recent.end().max(first) } else { first };
        self.found_to.store(found_to, Ordering::Release);
        self.begins_at.store(start, Ordering::Release);
        for end in [&self.tail, &self.written, &self.synced] {
            end.store(start, Ordering::Release);
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Accept> {
        self.accept.lock()
    }

    /// The partition itself, for the queues of the threads.
    pub(crate) fn shared_self(&self) -> Option<Arc<Self>> {
        self.me.upgrade()
    }

    pub(crate) fn place(&self) -> SegmentPlace<'_> {
        SegmentPlace {
            files: &self.shared.files,
            buffers: &self.shared.buffers,
            layout: &self.shared.layout,
            topic: self.topic.id,
            partition: &self.id,
        }
    }

    pub(crate) fn first(&self) -> u64 {
        self.first.load(Ordering::Acquire)
    }

    /// A reader of a state that has not come this far may have missed deletions.
    pub(crate) fn horizon(&self) -> u64 {
        self.horizon.load(Ordering::Acquire)
    }

    pub(crate) fn set_horizon(&self, horizon: u64) {
        self.horizon.fetch_max(horizon, Ordering::AcqRel);
    }

    /// Records below `first` are gone.
    pub(crate) fn set_first(&self, first: u64) {
        self.first.fetch_max(first, Ordering::AcqRel);
    }

    pub(crate) fn set_tail(&self, tail: u64) {
        self.tail.store(tail, Ordering::Release);
    }

    pub(crate) fn set_written(&self, end: u64) {
        self.written.fetch_max(end, Ordering::AcqRel);
    }

    pub(crate) fn synced(&self) -> u64 {
        self.synced.load(Ordering::Acquire)
    }

    /// Whether half of the records up to `end` that may be unsynced are.
    pub(crate) fn is_far_ahead(&self, end: u64) -> bool {
        !self.topic.is_memory && end.saturating_sub(self.synced()) > UNSYNCED_MAX_RECORDS / 2
    }

    pub(crate) fn set_synced(&self, end: u64) {
        self.synced.fetch_max(end, Ordering::AcqRel);
    }

    /// The first offset that nobody may act on yet. Retention takes the oldest records, of open transactions, too.
    pub(crate) fn stable(&self) -> u64 {
        // In this order: what is below `high` has told `undecided` of its transaction.
        let high = self.high();
        self.undecided.bound(high).max(self.first())
    }

    /// The first offset that the topic's level does not protect. While this start has protected nothing, that is the end of
    /// what it has found: whoever reads up to there must get there.
    pub(crate) fn high(&self) -> u64 {
        let level = if self.topic.is_memory { AckLevel::Memory } else { self.level() };
        let end = match level {
            AckLevel::Memory => &self.tail,
            AckLevel::Written => &self.written,
            AckLevel::Synced => &self.synced,
        };
        let end = end.load(Ordering::Acquire).max(self.high_floor.load(Ordering::Acquire));
        if end == self.begins_at.load(Ordering::Acquire) { self.found_to.load(Ordering::Acquire) } else { end }
    }

    /// What is protected now stays so, whatever the topic's level becomes.
    pub(crate) fn keep_high(&self) {
        self.high_floor.fetch_max(self.high(), Ordering::AcqRel);
    }

    /// What everything before `end` has reached.
    pub(crate) fn has(&self, end: u64, level: AckLevel) -> bool {
        match level {
            AckLevel::Memory => true,
            AckLevel::Written => self.written.load(Ordering::Acquire) >= end,
            AckLevel::Synced => self.synced() >= end,
        }
    }

    pub(crate) fn producer_limits(&self) -> ProducerLimits {
        let config = &self.shared.config;
        ProducerLimits { count_max: config.producers_max, expiry_ms: config.producer_expiry_ms }
    }

    /// `batches`, the next after those before, have reached their segments.
    pub(crate) fn flushed(&self, batches: &[Stored]) {
        self.lock().recent.mark_flushed(batches.len());
        let limits = self.producer_limits();
        let mut producers = self.flushed_producers.lock();
        batches.iter().for_each(|stored| producers.observe(&stored.batch, stored.appended_ms, limits));
    }

    /// The producers as of the last record in the segments.
    pub(crate) fn flushed_producers(&self) -> Producers {
        self.flushed_producers.lock().clone()
    }

    /// Forgets aborted transactions of which no record can be read any more: retention has taken them or, where
    /// compaction has been, they are neither in the segments nor in memory.
    pub(crate) fn trim_aborted(&self) {
        let mut accept = self.lock();
        let from = accept.clean_to.min(accept.recent.begins()).max(self.first());
        accept.producers.transactions.trim(from);
        drop(accept);
        self.flushed_producers.lock().transactions.trim(from);
    }

    /// Forgets producers that have sent nothing for too long.
    pub(crate) fn expire_producers(&self, now_ms: i64) {
        let limits = self.producer_limits();
        self.lock().producers.expire(now_ms, limits);
        self.flushed_producers.lock().expire(now_ms, limits);
    }

    pub(crate) fn level(&self) -> AckLevel {
        self.topic.current.read().config.level
    }
}

impl Partition for PartitionLog {
    fn id(&self) -> &TopicPartition {
        &self.id
    }

    fn topic(&self) -> Arc<Topic> {
        self.topic.current()
    }

    fn append(&self, records: &[Record<'_>], level: AckLevel, done: Done<Appended>) -> Result<(), Error> {
        self.accept_records(records, level, done)
    }

    fn append_batch(&self, batch: RecordBatch, level: AckLevel, done: Done<Appended>) -> Result<(), Error> {
        self.accept_batch(batch, level, done)
    }

    fn read(&self, from: Offset, max_bytes: usize, up_to: UpTo) -> Result<Vec<RecordBatch>, Error> {
        self.read_visible(from.0, max_bytes, up_to)
    }

    fn read_stored(&self, from: Offset, max_bytes: usize, up_to: UpTo) -> Result<contract::Stored, Error> {
        self.read_marked(from.0, max_bytes, up_to)
    }

    fn locate(&self, from: Offset, max_bytes: usize, up_to: UpTo) -> Result<Option<Located>, Error> {
        self.locate_stored(from.0, max_bytes, up_to)
    }

    fn transactions(&self) -> Vec<OpenTransaction> {
        self.lock().producers.transactions.listed()
    }

    fn producers(&self) -> Vec<KnownProducer> {
        self.lock().producers.listed()
    }

    fn size_bytes(&self) -> u64 {
        let accept = self.lock();
        match self.topic.current.read().config.storage {
            Storage::Disk => accept.segment_bytes(),
            Storage::Memory { .. } => accept.recent.size_bytes() as u64,
        }
    }

    fn reads_from_memory(&self, from: Offset) -> bool {
        self.lock().recent.begins() <= from.0
    }

    fn offsets(&self) -> Offsets {
        // In this order: each only grows, so a later one read later cannot be below an earlier one.
        let first = Offset(self.first());
        let stable = Offset(self.stable());
        let high = Offset(self.high());
        let tail = Offset(self.tail.load(Ordering::Acquire));
        Offsets { first, stable, high, tail, epoch: self.shared.epoch }
    }

    fn offset_at(&self, timestamp_ms: i64) -> Result<Option<Offset>, Error> {
        self.find_time(timestamp_ms)
    }

    fn resume(&self, position: Position) -> Result<Offset, Error> {
        self.topic.check_exists()?;
        let first = Offset(self.first());
        let lost = |why, restart| Err(Error::PositionLost { partition: self.id.clone(), position, why, restart });
        if position.topic != self.topic.id {
            return lost("it belongs to another topic of this name", first);
        }
        if position.offset < first {
            return Err(Error::Trimmed { partition: self.id.clone(), wanted: position.offset, oldest: first });
        }
        if position.offset > first && position.offset.0 < self.horizon() {
            return lost("deletions above it have been compacted away", first);
        }
        let accept = self.accept.lock();
        match accept.epochs.end_of(position.epoch, accept.next) {
            None => lost("this log has not reached that epoch", Offset(accept.next)),
            Some(end) if position.offset.0 > end => {
                lost("its epoch ended below it: those records were lost", Offset(end).max(first))
            }
            Some(_) => Ok(position.offset),
        }
    }

    fn trim(&self, before: Offset) -> Result<Offset, Error> {
        self.trim_below(before.0).map(Offset)
    }

    fn watch(&self, bell: &Arc<Bell>) {
        self.watchers.add(bell);
    }

    fn has_consumer(&self) -> bool {
        self.watchers.have_consumer()
    }

    fn hold(&self, reader: &str, from: Offset) -> Box<dyn Hold> {
        self.holds.add(reader, from)
    }
}

/// The epochs of a partition that is created under `epoch`.
pub(crate) fn new_partition_record(epoch: Epoch) -> PartitionRecord {
    let mut epochs = Epochs::default();
    epochs.begin(epoch, 0, 0, 0);
    let producers = Producers::default();
    PartitionRecord { first: 0, tail: 0, epochs, segments: Vec::new(), producers, clean_to: 0, horizon: 0 }
}
