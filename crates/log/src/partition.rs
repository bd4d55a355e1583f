//! One partition of the embedded engine: it accepts records, keeps the tail in memory, and serves reads.
//!
//! One short lock per partition guards the accepted records and the tail in memory. It is never
//! held during disk access. Invariants
//! - `first <= stable <= high <= tail`, and none of them moves back.
//! - `written` and `synced` are ends of rounds: everything below `written` is in the journal,
//!   everything below `synced` is durable.
//! - At most [`UNSYNCED_MAX_RECORDS`] offsets are handed out beyond `synced`; a start after a crash skips as many.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Weak};

use millstream_types::{
    BatchBuilder, Epoch, Offset, PartitionId, Position, Record, RecordBatch, StoredRecord, TopicId, TopicPartition,
};
use parking_lot::{Mutex, MutexGuard, RwLock};

use crate::ack::AckWaiter;
use crate::epochs::Epochs;
use crate::holds::Holds;
use crate::last_stable::LastStableOffset;
use crate::meta::PartitionRecord;
use crate::producers::{ProducerLimits, Producers};
use crate::segment::{ReadFrom, Segment, SegmentPlace};
use crate::shared::EngineShared;
use crate::tail_cache::{CachedBatch, TailCache};
use crate::watchers::Watchers;
use crate::{
    AckLevel, Appended, Bell, CachedRead, Done, Error, Hold, KafkaPartition, KnownProducer, Located, Offsets,
    OpenTransaction, Partition, Storage, StoredBatches, Topic, UpTo,
};

/// Most records of one partition that are accepted and not synced. A start after a crash continues this far above the
/// recovered records, hence above every offset that was handed out.
pub(crate) const UNSYNCED_MAX_RECORDS: u64 = 1 << 20;
/// The same for a memory topic, which recovers nothing: the most records of one partition in one run.
pub(crate) const MEMORY_MAX_RECORDS: u64 = 1 << 40;

/// The state that the partitions of a topic share.
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

    /// Refuses appends and reads from now on.
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

/// The engine's queues, as a partition uses them.
pub(crate) trait PartitionQueues: Send + Sync {
    /// Queues the partition for the appender. `true` if the caller must wake the appender after
    /// it has dropped its locks.
    fn push_dirty(&self, partition: Arc<PartitionLog>) -> bool;
    /// Queues a journal entry that removes the records below `first`. The receiver gets the
    /// result once it is durable.
    fn push_trim(&self, partition: &PartitionLog, first: u64) -> Receiver<Result<(), Error>>;
    /// Wakes the appender for records that nobody waits for.
    fn wake_appender(&self);
    /// Wakes the appender for records that a caller waits for.
    fn urge_appender(&self);
    /// `true` if the calling thread will have the journal written soon.
    fn prompt_writer(&self) -> bool;
    /// Requests a sync of the journal now.
    fn demand_sync(&self);
    /// Requests a turn of the writeback thread now.
    fn wake_writeback(&self);
}

/// The partitions of one atomic append, each under its lock.
pub(crate) type LockedPartitions<'a> = BTreeMap<(TopicId, PartitionId), MutexGuard<'a, Accept>>;

/// The parts of the engine that its partitions use.
#[derive(Clone)]
pub(crate) struct PartitionContext {
    pub(crate) shared: Arc<EngineShared>,
    pub(crate) queues: Arc<dyn PartitionQueues>,
}

/// A partition with its queues, offsets and locks.
pub(crate) struct PartitionLog {
    me: Weak<Self>,
    pub(crate) shared: Arc<EngineShared>,
    pub(crate) queues: Arc<dyn PartitionQueues>,
    pub(crate) topic: Arc<TopicState>,
    pub(crate) id: TopicPartition,
    pub(crate) watchers: Watchers,
    pub(crate) holds: Arc<Holds>,
    accept: Mutex<Accept>,
    first: AtomicU64,
    tail: AtomicU64,
    written: AtomicU64,
    synced: AtomicU64,
    /// The end of the recovered records, and the first offset of this start. After a crash there
    /// is a gap between them.
    found_to: AtomicU64,
    begins_at: AtomicU64,
    /// The high watermark under an earlier level of the topic.
    high_floor: AtomicU64,
    pub(crate) last_stable: LastStableOffset,
    /// The producers as of the last record in the segments, for `meta`.
    flushed_producers: Mutex<Producers>,
    /// Tombstones below it may be gone.
    horizon: AtomicU64,
    /// Reads that failed because they began at damaged records.
    pub(crate) damaged_reads: AtomicU64,
}

/// The state under the partition's lock.
pub(crate) struct Accept {
    /// First offset not handed out.
    pub(crate) next: u64,
    /// Accepted records that are not sealed, from `open_from` on.
    pub(crate) builder: BatchBuilder,
    pub(crate) open_from: u64,
    pub(crate) tail_cache: TailCache,
    /// Sealed batches that the appender has not taken, with their order.
    pub(crate) unwritten: Vec<(u64, RecordBatch)>,
    pub(crate) waiters: Vec<AckWaiter>,
    pub(crate) pending_bytes: usize,
    /// `true` while the partition is in the appender's queue.
    pub(crate) dirty: bool,
    pub(crate) segments: Vec<Arc<Segment>>,
    pub(crate) epochs: Epochs,
    pub(crate) producers: Producers,
    /// Compaction has left one record of each key below it.
    pub(crate) clean_to: u64,
    /// In this run, compaction has looked for later records of each key below it: what is superseded below it is gone,
    /// or noted with its segment. At least `clean_to`.
    pub(crate) mapped_to: u64,
    /// The end of the records that [`Partition::compact`] was asked for.
    pub(crate) asked_to: u64,
    /// The last pass has left segments that are worth a rewrite, because the disk had no room for it.
    pub(crate) is_left_for_room: bool,
    /// Compaction has met damage; the partition is not compacted before a restart.
    pub(crate) is_damaged: bool,
}

impl Accept {
    pub(crate) fn segment_bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.size_bytes()).sum()
    }

    /// Checks that sealed and open records follow one another up to the next offset.
    pub(crate) fn debug_check_chain(&self) {
        debug_assert!(self.tail_cache.end() <= self.open_from, "open records stand behind the sealed ones");
        let open = u64::from(self.builder.record_count());
        debug_assert_eq!(self.open_from + open, self.next, "each offset below the next one has its record");
    }

    /// `true` if a pass shall run although the engine's own rules do not call for one.
    pub(crate) fn wants_pass(&self) -> bool {
        self.asked_to > self.mapped_to || self.is_left_for_room
    }
}

impl PartitionLog {
    /// Restores a partition from its record in `meta`. Call `begin` before the first append.
    pub(crate) fn new(
        context: &PartitionContext,
        topic: &Arc<TopicState>,
        id: TopicPartition,
        record: PartitionRecord,
    ) -> Arc<Self> {
        let PartitionContext { shared, queues } = context.clone();
        let place = SegmentPlace {
            files: &shared.files,
            buffers: &shared.buffers,
            cache: &shared.segment_cache,
            layout: &shared.layout,
            topic: topic.id,
            partition: &id,
        };
        let segments: Vec<_> =
            record.segments.iter().map(|segment| Arc::new(Segment::known(&place, segment))).collect();
        // Trimmed records may not have reached a segment, so `first` does not tell the end of the segments.
        let flushed = segments.last().map_or(record.tail, |last| last.end());
        let end = flushed.max(record.tail).max(record.epochs.start());
        let accept = Accept {
            next: end,
            builder: BatchBuilder::default(),
            open_from: end,
            tail_cache: TailCache::new(flushed),
            unwritten: Vec::new(),
            waiters: Vec::new(),
            pending_bytes: 0,
            dirty: false,
            segments,
            epochs: record.epochs,
            producers: record.producers.clone(),
            clean_to: record.clean_to,
            mapped_to: record.clean_to,
            asked_to: 0,
            is_left_for_room: false,
            is_damaged: false,
        };
        Arc::new_cyclic(|me| Self {
            me: me.clone(),
            shared,
            queues,
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
            last_stable: LastStableOffset::default(),
            flushed_producers: Mutex::new(record.producers),
            horizon: AtomicU64::new(record.horizon),
            damaged_reads: AtomicU64::new(0),
        })
    }

    /// Adds a batch from the journal; `false` if it is not above the existing ones.
    pub(crate) fn replay(&self, batch: RecordBatch, appended_ms: i64) -> bool {
        let mut accept = self.accept.lock();
        let stored = CachedBatch::new(batch, appended_ms);
        if stored.end <= accept.tail_cache.begins() {
            return true;
        }
        if stored.first < accept.tail_cache.end() {
            return false;
        }
        // Below the next offset are batches that a repair has cut from the last segment: `meta` knows their producers.
        if stored.end > accept.next {
            accept.next = stored.end;
            accept.producers.observe(&stored.batch, appended_ms, self.producer_limits());
        }
        accept.tail_cache.push(stored);
        true
    }

    /// Begins this start's epoch, `skip` offsets above the recovered records. No offset is handed out
    /// before `meta` records that durably.
    pub(crate) fn begin(&self, skip: u64) {
        let mut accept = self.accept.lock();
        let end = accept.next;
        let start = end + skip;
        let first = if self.topic.is_memory { start } else { self.first() };
        accept.epochs.begin(self.shared.epoch, start, end, first);
        accept.next = start;
        accept.open_from = start;
        accept.producers.transactions.open().for_each(|(producer, open)| self.last_stable.begin(producer, open.first));
        if self.topic.is_memory {
            accept.tail_cache = TailCache::new(start);
        }
        self.first.store(first, Ordering::Release);
        // Without records, readers have nothing to reach behind the first offset.
        let has_records = !accept.segments.is_empty() || accept.tail_cache.end() > accept.tail_cache.begins();
        let found_to = if has_records { accept.tail_cache.end().max(first) } else { first };
        debug_assert!(found_to <= start, "{}: an epoch begins behind what was found", self.id);
        accept.debug_check_chain();
        self.found_to.store(found_to, Ordering::Release);
        self.begins_at.store(start, Ordering::Release);
        for end in [&self.tail, &self.written, &self.synced] {
            end.store(start, Ordering::Release);
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Accept> {
        self.accept.lock()
    }

    /// The partition as an `Arc`, for the queues.
    pub(crate) fn shared_self(&self) -> Option<Arc<Self>> {
        self.me.upgrade()
    }

    pub(crate) fn place(&self) -> SegmentPlace<'_> {
        SegmentPlace {
            files: &self.shared.files,
            buffers: &self.shared.buffers,
            cache: &self.shared.segment_cache,
            layout: &self.shared.layout,
            topic: self.topic.id,
            partition: &self.id,
        }
    }

    /// Topic id and number: the order in which an atomic append locks its partitions.
    pub(crate) fn key(&self) -> (TopicId, PartitionId) {
        (self.topic.id, self.id.partition)
    }

    pub(crate) fn first(&self) -> u64 {
        self.first.load(Ordering::Acquire)
    }

    /// A reader whose state is below this offset may have missed deletions.
    pub(crate) fn horizon(&self) -> u64 {
        self.horizon.load(Ordering::Acquire)
    }

    pub(crate) fn set_horizon(&self, horizon: u64) {
        self.horizon.fetch_max(horizon, Ordering::AcqRel);
    }

    /// Removes the records below `first`.
    pub(crate) fn set_first(&self, first: u64) {
        self.first.fetch_max(first, Ordering::AcqRel);
    }

    pub(crate) fn set_tail(&self, tail: u64) {
        debug_assert!(self.tail.load(Ordering::Acquire) <= tail, "{}: the tail moves back to {tail}", self.id);
        self.tail.store(tail, Ordering::Release);
    }

    pub(crate) fn set_written(&self, end: u64) {
        debug_assert!(end <= self.tail.load(Ordering::Acquire), "{}: {end} was written, not accepted", self.id);
        let before = self.written.fetch_max(end, Ordering::AcqRel);
        debug_assert!(before < end, "{}: rounds are written in order, {end} after {before}", self.id);
    }

    pub(crate) fn synced(&self) -> u64 {
        self.synced.load(Ordering::Acquire)
    }

    /// `true` if more than half of the allowed unsynced records are used up at `end`.
    pub(crate) fn is_far_ahead(&self, end: u64) -> bool {
        !self.topic.is_memory && end.saturating_sub(self.synced()) > UNSYNCED_MAX_RECORDS / 2
    }

    pub(crate) fn set_synced(&self, end: u64) {
        debug_assert!(end <= self.written.load(Ordering::Acquire), "{}: {end} was synced, not written", self.id);
        self.synced.fetch_max(end, Ordering::AcqRel);
    }

    /// The last stable offset. It is at least `first`: retention removes old records of open transactions too.
    pub(crate) fn stable(&self) -> u64 {
        // Read `high` first: records below it have registered their transactions.
        let high = self.high();
        self.last_stable.bound(high).max(self.first())
    }

    /// The high watermark: the first offset that the topic's level does not protect. Before this start protects a
    /// record it is the end of the recovered records, so that readers reach that end.
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

    /// Keeps the current high watermark as a lower bound when the topic's level changes.
    pub(crate) fn keep_high(&self) {
        self.high_floor.fetch_max(self.high(), Ordering::AcqRel);
    }

    /// `true` if everything below `end` has `level`.
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

    /// Marks the next `batches` as written to their segments.
    pub(crate) fn flushed(&self, batches: &[CachedBatch]) {
        self.lock().tail_cache.mark_flushed(batches.len());
        let limits = self.producer_limits();
        let mut producers = self.flushed_producers.lock();
        batches.iter().for_each(|stored| producers.observe(&stored.batch, stored.appended_ms, limits));
    }

    /// The producers as of the last record in the segments.
    pub(crate) fn flushed_producers(&self) -> Producers {
        self.flushed_producers.lock().clone()
    }

    /// Forgets aborted transactions without readable records: retention or compaction has removed them.
    pub(crate) fn trim_aborted(&self) {
        let mut accept = self.lock();
        let from = accept.clean_to.min(accept.tail_cache.begins()).max(self.first());
        accept.producers.transactions.trim(from);
        drop(accept);
        self.flushed_producers.lock().transactions.trim(from);
    }

    /// Forgets producers that have been idle for too long.
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

    fn read(&self, from: Offset, max_bytes: usize, up_to: UpTo) -> Result<Vec<RecordBatch>, Error> {
        self.read_visible(from.0, max_bytes, up_to).inspect_err(|error| self.count_damage(error))
    }

    fn read_from_memory(&self, from: Offset, max_bytes: usize, up_to: UpTo) -> Result<Option<Vec<RecordBatch>>, Error> {
        self.visible_in_memory(from.0, max_bytes, up_to)
    }

    fn read_one(&self, offset: Offset, up_to: UpTo) -> Result<Option<StoredRecord>, Error> {
        let read = self.read_single(offset, up_to, ReadFrom::Disk).inspect_err(|error| self.count_damage(error));
        Ok(read?.into_record())
    }

    fn read_one_cached(&self, offset: Offset, up_to: UpTo) -> Result<CachedRead, Error> {
        self.read_single(offset, up_to, ReadFrom::PageCache).inspect_err(|error| self.count_damage(error))
    }

    fn compact(&self) {
        let topic = self.topic.current();
        if topic.config.cleanup.compacts() && !self.topic.is_memory {
            let mut accept = self.lock();
            self.seal(&mut accept, &topic);
            accept.asked_to = accept.tail_cache.end();
            drop(accept);
            self.queues.wake_writeback();
        }
    }

    fn size_bytes(&self) -> u64 {
        let accept = self.lock();
        match self.topic.current.read().config.storage {
            Storage::Disk => accept.segment_bytes(),
            Storage::Memory { .. } => accept.tail_cache.size_bytes() as u64,
        }
    }

    fn offsets(&self) -> Offsets {
        // Read in this order: offsets only grow, so a later read cannot return a smaller one.
        let first = Offset(self.first());
        let stable = Offset(self.stable());
        let high = Offset(self.high());
        let tail = Offset(self.tail.load(Ordering::Acquire));
        let offsets = Offsets { first, stable, high, tail, epoch: self.shared.epoch };
        debug_assert!(first <= stable && stable <= high && high <= tail, "{}: {offsets:?} are not in order", self.id);
        offsets
    }

    fn offset_at(&self, timestamp_ms: i64) -> Result<Option<Offset>, Error> {
        self.find_time(timestamp_ms).inspect_err(|error| self.count_damage(error))
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

    fn lag(&self, position: Offset) -> u64 {
        let stable = self.stable();
        let skipped = self.accept.lock().epochs.skipped(position.0, stable);
        stable.saturating_sub(position.0).saturating_sub(skipped)
    }

    fn behind_gap(&self, offset: Offset) -> Offset {
        let (high, behind) = (self.high(), self.accept.lock().epochs.behind_gap(offset.0));
        if behind < high { Offset(behind) } else { offset }
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

impl KafkaPartition for PartitionLog {
    fn append_batch(&self, batch: RecordBatch, level: AckLevel, done: Done<Appended>) -> Result<(), Error> {
        self.accept_batch(batch, level, done)
    }

    fn read_stored(&self, from: Offset, max_bytes: usize, up_to: UpTo) -> Result<StoredBatches, Error> {
        self.read_marked(from.0, max_bytes, up_to).inspect_err(|error| self.count_damage(error))
    }

    fn reads_from_memory(&self, from: Offset) -> bool {
        self.lock().tail_cache.begins() <= from.0
    }

    fn locate(&self, from: Offset, max_bytes: usize, up_to: UpTo) -> Result<Option<Located>, Error> {
        self.locate_stored(from.0, max_bytes, up_to)
    }

    fn end_of_epoch(&self, epoch: Epoch) -> Option<(Epoch, Offset)> {
        let accept = self.lock();
        let end = accept.epochs.end_of(epoch, accept.next)?;
        Some((accept.epochs.known_up_to(epoch), Offset(end)))
    }

    fn transactions(&self) -> Vec<OpenTransaction> {
        self.lock().producers.transactions.listed()
    }

    fn producers(&self) -> Vec<KnownProducer> {
        self.lock().producers.listed()
    }
}

/// The initial record of a partition that is created under `epoch` and begins at `first`.
pub(crate) fn new_partition_record(epoch: Epoch, first: u64) -> PartitionRecord {
    let mut epochs = Epochs::default();
    epochs.begin(epoch, first, first, first);
    let producers = Producers::default();
    PartitionRecord { first, tail: first, epochs, segments: Vec::new(), producers, clean_to: 0, horizon: 0 }
}
