//! One partition as this process knows it: its leader, its ends, its newest batches, and the appends that wait.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kafka_protocol::messages::metadata_response::MetadataResponseTopic;
use millstream_log::{Offsets, Watchers};
use millstream_types::{Epoch, Offset, PartitionId, RecordBatch, TopicPartition};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::local_copies::Place;
use crate::migrated::PartitionOrigin;
use crate::queue::{AppendQueue, Ended};
use crate::tail::TailCache;
use crate::topic_info::TopicInfo;

/// The broker that leads a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Leader {
    pub(crate) broker: i32,
    pub(crate) epoch: i32,
}

/// The leader of a partition, if the metadata has one.
pub(crate) fn leader_of(topic: &MetadataResponseTopic, index: i32) -> Option<Leader> {
    let found = topic.partitions.iter().find(|found| found.partition_index == index)?;
    (found.leader_id.0 >= 0).then_some(Leader { broker: found.leader_id.0, epoch: found.leader_epoch })
}

/// The offsets of a partition as a broker tells them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ends {
    pub(crate) first: Offset,
    pub(crate) stable: Offset,
    pub(crate) high: Offset,
}

/// A partition, shared by its handles and the tasks of the engine.
#[derive(Debug)]
pub(crate) struct PartitionState {
    pub(crate) id: TopicPartition,
    pub(crate) topic: Arc<TopicInfo>,
    /// Its past before Kafka had it, which gives its records their offsets.
    pub(crate) origin: PartitionOrigin,
    pub(crate) watchers: Watchers,
    pub(crate) queue: Mutex<AppendQueue>,
    leader: Mutex<Option<Leader>>,
    read: Mutex<Option<KnownEnds>>,
    survey: Mutex<Survey>,
    /// Acknowledged appends that are answered once readers see them, or see that an open transaction is in front.
    unseen: Mutex<VecDeque<(Offset, Ended)>>,
    /// Rings when the stable offset moves.
    stable: Notify,
    /// `true` while the partition is followed by a task of its leader.
    is_followed: AtomicBool,
}

/// The partition as it was at the last look at all of them.
#[derive(Debug, Default)]
struct Survey {
    ends: Option<Ends>,
    size_bytes: u64,
}

/// The figures of a partition.
pub(crate) struct Figures {
    pub(crate) offsets: Offsets,
    /// Bytes of its records in Kafka, at the last look.
    pub(crate) size_bytes: u64,
    /// Bytes of its newest batches in memory.
    pub(crate) memory_bytes: u64,
}

/// The part of a partition that is known once its ends were asked for.
#[derive(Debug)]
struct KnownEnds {
    /// As the leader has told them in one answer: the tail is never ahead of the stable offset but for open transactions.
    ends: Ends,
    tail: TailCache,
}

impl PartitionState {
    pub(crate) fn new(topic: &Arc<TopicInfo>, partition: PartitionId) -> Self {
        Self {
            id: TopicPartition { topic: topic.name(), partition },
            topic: Arc::clone(topic),
            origin: topic.origin(partition),
            watchers: Watchers::default(),
            queue: Mutex::default(),
            leader: Mutex::new(None),
            read: Mutex::new(None),
            survey: Mutex::default(),
            unseen: Mutex::default(),
            stable: Notify::new(),
            is_followed: AtomicBool::new(false),
        }
    }

    /// The partition's number as Kafka's requests have it.
    pub(crate) fn index(&self) -> i32 {
        self.id.partition.0.cast_signed()
    }

    /// The place of its copies; `None` if none are kept.
    pub(crate) fn copies(&self) -> Option<Place> {
        self.topic.is_read_by_offset().then(|| (self.topic.id, self.index()))
    }

    /// The offset of the record that Kafka gives this number; of its end, the offset of the next record.
    pub(crate) fn offset(&self, kafka_offset: i64) -> Offset {
        self.origin.map.offset(kafka_offset)
    }

    /// The number that Kafka gives the record at this offset, or in a gap the next one.
    pub(crate) fn kafka_offset(&self, offset: Offset) -> i64 {
        self.origin.map.kafka_offset(offset)
    }

    pub(crate) fn leader(&self) -> Option<Leader> {
        *self.leader.lock()
    }

    /// Notes the leader, unless a later one is known.
    pub(crate) fn led_by(&self, leader: Leader) {
        let mut known = self.leader.lock();
        if known.is_none_or(|known| known.epoch <= leader.epoch) {
            *known = Some(leader);
        }
    }

    /// The epoch of the leader, 0 before one is known.
    pub(crate) fn epoch(&self) -> Epoch {
        self.origin.epoch(self.leader().map_or(0, |leader| leader.epoch))
    }

    /// `true` once the ends were asked for.
    pub(crate) fn is_known(&self) -> bool {
        self.read.lock().is_some()
    }

    /// Begins at these ends, if none are known.
    pub(crate) fn begin(&self, ends: Ends) {
        self.read.lock().get_or_insert_with(|| KnownEnds { ends, tail: TailCache::new(ends.stable) });
    }

    /// The bytes of the records were told.
    pub(crate) fn measured(&self, size_bytes: u64) {
        self.survey.lock().size_bytes = size_bytes;
    }

    /// The ends of a partition that is not followed were told.
    pub(crate) fn seen_from_afar(&self, ends: Ends) {
        self.survey.lock().ends = Some(ends);
    }

    pub(crate) fn figures(&self) -> Figures {
        let followed = self.read.lock().as_ref().map(|known| (known.ends, known.tail.size_bytes()));
        let survey = self.survey.lock();
        let (ends, memory_bytes) = followed.map_or((survey.ends, 0), |(ends, bytes)| (Some(ends), bytes));
        Figures { offsets: self.offsets_at(ends), size_bytes: survey.size_bytes, memory_bytes: memory_bytes as u64 }
    }

    pub(crate) fn offsets(&self) -> Offsets {
        let ends = self.read.lock().as_ref().map(|known| known.ends);
        self.offsets_at(ends)
    }

    fn offsets_at(&self, ends: Option<Ends>) -> Offsets {
        let epoch = self.epoch();
        let Ends { first, stable, high } =
            ends.unwrap_or(Ends { first: Offset::ZERO, stable: Offset::ZERO, high: Offset::ZERO });
        Offsets { first, stable, high, tail: high, epoch }
    }

    /// The offset from which the newest batches are fetched; `None` before the ends are known.
    pub(crate) fn next_fetch(&self) -> Option<Offset> {
        self.read.lock().as_ref().map(|known| known.tail.to())
    }

    /// Takes the answer of a fetch from [`PartitionState::next_fetch`].
    pub(crate) fn fetched(&self, ends: Ends, batches: Vec<RecordBatch>, next: Option<Offset>, tail_bytes: usize) {
        let moved = {
            let mut read = self.read.lock();
            let Some(known) = &mut *read else { return };
            if let Some(next) = next {
                known.tail.extend(batches, next, tail_bytes);
            }
            known.ends.advance(ends)
        };
        if moved {
            self.ring();
        }
    }

    /// Notes what a read from `from` up to the stable offset has found: no record lies behind the last batch that has some.
    pub(crate) fn found(&self, from: Offset, batches: &[RecordBatch]) {
        let last = batches.iter().rfind(|batch| batch.record_count() > 0);
        let records_end = last.map_or(from, |batch| batch.next_offset().max(from));
        if let (Some(known), Some(last)) = (&mut *self.read.lock(), batches.last()) {
            known.tail.has_none(records_end, last.next_offset());
        }
    }

    /// The lag of a reader whose next offset is `position`.
    pub(crate) fn lag(&self, position: Offset) -> u64 {
        let read = self.read.lock();
        // Records may have come that the tail does not have yet.
        let seen = read.as_ref().filter(|known| known.tail.to() >= known.ends.stable);
        let end = seen.map(|known| known.tail.records_end());
        drop(read);
        end.unwrap_or_else(|| self.figures().offsets.stable).0.saturating_sub(position.0)
    }

    /// Takes ends that a leader has told.
    pub(crate) fn learn(&self, ends: Ends) {
        let moved = self.read.lock().as_mut().is_some_and(|known| known.ends.advance(ends));
        if moved {
            self.ring();
        }
    }

    fn ring(&self) {
        self.stable.notify_waiters();
        self.watchers.ring();
    }

    /// Waits until records below `offset` are stable.
    pub(crate) async fn until_stable(&self, offset: Offset) {
        loop {
            let moved = self.stable.notified();
            tokio::pin!(moved);
            moved.as_mut().enable();
            if self.offsets().stable >= offset {
                return;
            }
            moved.await;
        }
    }

    /// Follows from the new first offset: the records between were removed.
    pub(crate) fn skip_to(&self, ends: Ends) {
        if let Some(known) = &mut *self.read.lock() {
            known.ends.advance(ends);
            known.tail = TailCache::new(known.tail.to().clamp(ends.first, ends.stable.max(ends.first)));
        }
        self.ring();
    }

    /// Takes the acknowledgement of records up to `last`, whose answers are given by [`PartitionState::seen`].
    pub(crate) fn acknowledged(&self, last: Offset, ended: Ended) {
        self.unseen.lock().push_back((last, ended));
    }

    /// Takes all acknowledged appends that are not answered.
    pub(crate) fn take_unseen(&self) -> Vec<Ended> {
        self.unseen.lock().drain(..).map(|(_, ended)| ended).collect()
    }

    /// Takes the acknowledged appends that may be answered, in their order.
    pub(crate) fn seen(&self) -> Vec<Ended> {
        let high = self.read.lock().as_ref().map(|known| known.ends.high);
        let mut unseen = self.unseen.lock();
        let count = match high {
            // Nobody reads here.
            None => unseen.len(),
            Some(high) => unseen.partition_point(|(last, _)| *last < high),
        };
        unseen.drain(..count).map(|(_, ended)| ended).collect()
    }

    /// The newest first offset, after records were removed.
    pub(crate) fn trimmed(&self, first: Offset) {
        if let Some(known) = &mut *self.read.lock() {
            known.ends.first = known.ends.first.max(first);
        }
        self.ring();
    }

    /// Drops the oldest of the newest batches beyond `max_bytes`.
    pub(crate) fn shrink_tail(&self, max_bytes: usize) {
        if let Some(known) = &mut *self.read.lock() {
            known.tail.shrink(max_bytes);
        }
    }

    /// Batches from memory, if they are there.
    pub(crate) fn read_cached(&self, from: Offset, max_bytes: usize) -> Option<Vec<RecordBatch>> {
        self.read.lock().as_ref().and_then(|known| known.tail.read(from, max_bytes))
    }

    /// Notes that a task follows the partition; `false` if one does already.
    pub(crate) fn follow(&self) -> bool {
        !self.is_followed.swap(true, Ordering::AcqRel)
    }
}

impl Ends {
    /// Takes later ends; an earlier one does not move anything back. `true` if something has moved.
    fn advance(&mut self, to: Self) -> bool {
        let before = *self;
        *self = Self {
            first: self.first.max(to.first),
            stable: self.stable.max(to.stable),
            high: self.high.max(to.high).max(to.stable),
        };
        *self != before
    }
}
