//! Atomic appends: records for several partitions and group positions, all or nothing.
//!
//! All partitions are locked at once, in the order of their ids, so that one refusal leaves nothing behind. All
//! batches and positions share one order, hence one frame: a crash keeps all of them or none.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;

use millstream_types::{Offset, PartitionId, TopicId, TopicPartition};

use crate::accept::{APPEND_OVERHEAD_BYTES, disk_use};
use crate::acceptor::Acceptor;
use crate::ack::{AckReply, AckWaiter};
use crate::catalog::CatalogChange;
use crate::end_transaction::{MARKER_MAX_BYTES, TransactionMarkers};
use crate::fenced_writers::Fence;
use crate::frame::FramePart;
use crate::group_commit::{ControlEntry, JournalEntry, JournalItem};
use crate::meta::PositionRecord;
use crate::partition::{LockedPartitions, PartitionLog};
use crate::{AckLevel, Appended, AtomicAppend, Done, Error};

type Partitions = BTreeMap<(TopicId, PartitionId), Arc<PartitionLog>>;

impl Acceptor {
    /// Accepts an atomic append, with the markers of a transaction's end if there are any, of a writer if it has one.
    pub(crate) fn accept_atomic(
        &self,
        append: &AtomicAppend<'_>,
        markers: Option<&TransactionMarkers>,
        fence: Option<&Fence>,
        level: AckLevel,
        done: Done<Vec<Appended>>,
    ) -> Result<(), Error> {
        let targets = append.records.iter().map(|(partition, _)| self.catalog.partition(partition));
        let targets = targets.collect::<Result<Vec<_>, _>>()?;
        let read = append.positions.iter().map(|commit| self.catalog.partition(&commit.partition));
        let read = read.collect::<Result<Vec<_>, _>>()?;
        let ended = markers.map_or(&[][..], |markers| &markers.logs[..]);
        let size_bytes = self.check_size(append, &targets, ended.len())?;
        let involved = targets.iter().chain(&read).chain(ended);
        let partitions: Partitions = involved.map(|log| (log.key(), log.clone())).collect();

        let gate = self.shared.gate();
        fence.map_or(Ok(()), Fence::check)?;
        let mut locked: LockedPartitions<'_> = partitions.iter().map(|(key, log)| (*key, log.lock())).collect();
        self.check(append, &targets, &read, &mut locked)?;
        markers.map_or(Ok(()), |markers| markers.check(&mut locked))?;
        // Positions and markers need next to no space, and they allow old records to be removed.
        let on_disk = append.records.iter().zip(&targets).filter(|(_, log)| !log.topic.is_memory);
        let uses = on_disk.map(|((_, records), log)| disk_use(records, &log.topic.current()));
        uses.max().map_or(Ok(()), |disk_use| self.shared.space.check_for(disk_use))?;
        if append.records.is_empty() && append.positions.is_empty() {
            // The end of a transaction is not refused: readers would wait for its records for ever.
            self.shared.backpressure.reserve_beyond(size_bytes);
        } else {
            self.shared.backpressure.reserve(size_bytes, level)?;
        }
        self.shared.space.promise(size_bytes);
        let order = self.shared.next_order();
        let appended = self.take(append, &targets, &mut locked, order);
        if let Some(markers) = markers {
            markers.take(&mut locked, order);
        }
        drop(locked);
        let (encoded, effects) = self.commit(append, &read);
        let mut answer = Some(AckReply::Many(done, appended));
        let journals = !encoded.is_empty() || !ended.is_empty() || targets.iter().any(|log| !log.topic.is_memory);
        let waits = level > AckLevel::Memory && journals;
        let item = JournalItem::Parts { encoded, count: append.positions.len() as u32, effects };
        let waiter = waits.then(|| answer.take()).flatten().map(|answer| AckWaiter { level, answer });
        let entry = JournalEntry { order, item };
        self.queues.work.push_control(ControlEntry { entry, waiter, pending_bytes: size_bytes });
        drop(gate);
        self.queues.work.urge();

        if let Some(answer) = answer {
            answer.finish(Ok(()));
        }
        for log in targets.iter().filter(|log| log.topic.is_memory) {
            log.watchers.ring();
        }
        Ok(())
    }

    /// Deletes a group's positions in one frame; returns once the frame is durable.
    pub(crate) fn accept_forget(&self, group: &str, partitions: &[TopicPartition]) -> Result<(), Error> {
        let logs = partitions.iter().map(|partition| self.catalog.partition(partition));
        let logs = logs.collect::<Result<Vec<_>, _>>()?;
        let gate = self.shared.gate();
        self.shared.check_open()?;
        let (mut encoded, mut effects) = (Vec::new(), Vec::new());
        for log in &logs {
            let (topic, partition) = (log.topic.id, log.id.partition);
            self.catalog.forget(group, topic, partition);
            FramePart::Forgotten { group: group.to_owned(), topic, partition }.put(&mut encoded);
            effects.push(CatalogChange::Forgotten { group: group.to_owned(), topic, partition });
        }
        let (sender, receiver) = sync_channel(1);
        self.queues.work.push_control(ControlEntry {
            entry: JournalEntry {
                order: self.shared.next_order(),
                item: JournalItem::Parts { encoded, count: logs.len() as u32, effects },
            },
            waiter: Some(AckWaiter { level: AckLevel::Synced, answer: AckReply::Thread(sender) }),
            pending_bytes: 0,
        });
        drop(gate);
        self.queues.work.urge();
        self.shared.answer(&receiver)
    }

    fn check_size(
        &self,
        append: &AtomicAppend<'_>,
        targets: &[Arc<PartitionLog>],
        markers: usize,
    ) -> Result<usize, Error> {
        let mut size_bytes = APPEND_OVERHEAD_BYTES + markers * MARKER_MAX_BYTES;
        for ((_, records), log) in append.records.iter().zip(targets) {
            size_bytes += log.topic.current().config.check_records(&log.id, records)? + APPEND_OVERHEAD_BYTES;
        }
        for commit in &append.positions {
            commit.check_text()?;
            size_bytes += commit.group.len() + commit.metadata.len() + APPEND_OVERHEAD_BYTES;
        }
        let limit_bytes = self.shared.config.append_max_bytes;
        if size_bytes > limit_bytes {
            return Err(Error::AppendTooLarge { size_bytes, limit_bytes });
        }
        Ok(size_bytes)
    }

    /// Checks that every partition accepts its records and that every position may be committed.
    fn check(
        &self,
        append: &AtomicAppend<'_>,
        targets: &[Arc<PartitionLog>],
        read: &[Arc<PartitionLog>],
        locked: &mut LockedPartitions<'_>,
    ) -> Result<(), Error> {
        self.shared.check_open()?;
        let mut records = BTreeMap::new();
        for ((_, added), log) in append.records.iter().zip(targets) {
            *records.entry(log.key()).or_insert(0) += added.len() as u64;
        }
        for log in targets {
            if let Some(accept) = locked.get_mut(&log.key()) {
                log.check_room(accept, records[&log.key()])?;
                // Records accepted earlier get a lower order than this append.
                log.seal(accept, &log.topic.current());
            }
        }
        for (commit, log) in append.positions.iter().zip(read) {
            log.topic.check_exists()?;
            commit.check_position(log.topic.id, Offset(log.first()), Offset(log.high()))?;
            // A position may follow records that are accepted only: those must not come later in the journal.
            if let Some(accept) = locked.get_mut(&log.key()) {
                log.seal(accept, &log.topic.current());
            }
        }
        Ok(())
    }

    fn take(
        &self,
        append: &AtomicAppend<'_>,
        targets: &[Arc<PartitionLog>],
        locked: &mut LockedPartitions<'_>,
        order: u64,
    ) -> Vec<Appended> {
        let mut appended = Vec::with_capacity(targets.len());
        for ((_, records), log) in append.records.iter().zip(targets) {
            let Some(accept) = locked.get_mut(&log.key()) else { continue };
            let first = accept.next;
            log.accept_part(accept, records, order);
            let last = Offset(accept.next - 1);
            appended.push(Appended { first: Offset(first), last, epoch: self.shared.epoch });
        }
        appended
    }

    fn commit(&self, append: &AtomicAppend<'_>, read: &[Arc<PartitionLog>]) -> (Vec<u8>, Vec<CatalogChange>) {
        let committed_ms = self.shared.wall.now_ms();
        let mut encoded = Vec::new();
        let mut effects = Vec::with_capacity(append.positions.len());
        for (commit, log) in append.positions.iter().zip(read) {
            let record = PositionRecord {
                group: commit.group.clone(),
                partition: log.id.partition,
                position: commit.position,
                metadata: commit.metadata.clone(),
                committed_ms,
            };
            self.catalog.commit(&record);
            effects.push(CatalogChange::Committed(record.clone()));
            FramePart::Committed(record).put(&mut encoded);
        }
        (encoded, effects)
    }
}
