//! Appending to several partitions and committing positions, all or nothing.
//!
//! All the partitions are locked at once (in the order of their ids), so that nothing is taken if one of them refuses.
//! Their batches and the positions share one place in the order, and so one frame: a crash keeps all of it or none.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;

use millstream_types::{Offset, PartitionId, TopicId, TopicPartition};
use parking_lot::MutexGuard;

use crate::accept::APPEND_OVERHEAD_BYTES;
use crate::catalog::Effect;
use crate::end_transaction::{Ending, MARKER_MAX_BYTES};
use crate::frame::Part;
use crate::meta::PositionRecord;
use crate::partition::{Accept, PartitionLog};
use crate::round::{Answer, Control, Entry, Item, Waiter};
use crate::{AckLevel, Appended, AtomicAppend, Done, Embedded, Error, POSITION_METADATA_MAX_BYTES, PositionCommit};

/// Longest name of a consumer group.
const GROUP_MAX_BYTES: usize = 1 << 10;

type Partitions = BTreeMap<(TopicId, PartitionId), Arc<PartitionLog>>;
/// The partitions of an append, each under its lock.
pub(crate) type Locked<'a> = BTreeMap<(TopicId, PartitionId), MutexGuard<'a, Accept>>;

impl Embedded {
    /// With the markers of a transaction's end, if it is one.
    pub(crate) fn accept_atomic(
        &self,
        append: &AtomicAppend<'_>,
        ending: Option<&Ending>,
        level: AckLevel,
        done: Done<Vec<Appended>>,
    ) -> Result<(), Error> {
        let targets = append.records.iter().map(|(partition, _)| self.catalog.partition(partition));
        let targets = targets.collect::<Result<Vec<_>, _>>()?;
        let read = append.positions.iter().map(|commit| self.catalog.partition(&commit.partition));
        let read = read.collect::<Result<Vec<_>, _>>()?;
        let ended = ending.map_or(&[][..], |ending| &ending.logs[..]);
        let size_bytes = self.check_size(append, &targets, ended.len())?;
        let involved = targets.iter().chain(&read).chain(ended);
        let partitions: Partitions = involved.map(|log| (key(log), log.clone())).collect();

        let gate = self.shared.gate();
        let mut locked: Locked<'_> = partitions.iter().map(|(key, log)| (*key, log.lock())).collect();
        self.check(append, &targets, &read, &mut locked)?;
        ending.map_or(Ok(()), |ending| ending.check(&mut locked))?;
        // Positions and ends of transactions take next to nothing, and let others remove what is done with.
        if targets.iter().any(|log| !log.topic.is_memory) {
            self.shared.space.check()?;
        }
        self.shared.room.reserve(size_bytes, level)?;
        let order = self.shared.next_order();
        let appended = self.take(append, &targets, &mut locked, order);
        if let Some(ending) = ending {
            ending.take(&mut locked, order);
        }
        drop(locked);
        let (encoded, effects) = self.commit(append, &read);
        let mut answer = Some(Answer::Many(done, appended));
        let journals = !encoded.is_empty() || !ended.is_empty() || targets.iter().any(|log| !log.topic.is_memory);
        let waits = level > AckLevel::Memory && journals;
        let item = Item::Parts { encoded, count: append.positions.len() as u32, effects };
        let waiter = waits.then(|| answer.take()).flatten().map(|answer| Waiter { level, answer });
        let entry = Entry { order, item };
        self.shared.work.push_control(Control { entry, waiter, pending_bytes: size_bytes });
        drop(gate);
        self.shared.work.urge();

        if let Some(answer) = answer {
            answer.finish(Ok(()));
        }
        for log in targets.iter().filter(|log| log.topic.is_memory) {
            log.watchers.ring();
        }
        Ok(())
    }

    /// Takes a group's positions away, in one frame; returns when that is durable.
    pub(crate) fn accept_forget(&self, group: &str, partitions: &[TopicPartition]) -> Result<(), Error> {
        let logs = partitions.iter().map(|partition| self.catalog.partition(partition));
        let logs = logs.collect::<Result<Vec<_>, _>>()?;
        let gate = self.shared.gate();
        self.shared.check_open()?;
        let (mut encoded, mut effects) = (Vec::new(), Vec::new());
        for log in &logs {
            let (topic, partition) = (log.topic.id, log.id.partition);
            self.catalog.forget(group, topic, partition);
            Part::Forgotten { group: group.to_owned(), topic, partition }.put(&mut encoded);
            effects.push(Effect::Forgotten { group: group.to_owned(), topic, partition });
        }
        let (sender, receiver) = sync_channel(1);
        self.shared.work.push_control(Control {
            entry: Entry {
                order: self.shared.next_order(),
                item: Item::Parts { encoded, count: logs.len() as u32, effects },
            },
            waiter: Some(Waiter { level: AckLevel::Synced, answer: Answer::Thread(sender) }),
            pending_bytes: 0,
        });
        drop(gate);
        self.shared.work.urge();
        receiver.recv().unwrap_or(Err(Error::Stopped))
    }

    fn check_size(
        &self,
        append: &AtomicAppend<'_>,
        targets: &[Arc<PartitionLog>],
        markers: usize,
    ) -> Result<usize, Error> {
        let mut size_bytes = APPEND_OVERHEAD_BYTES + markers * MARKER_MAX_BYTES;
        for ((_, records), log) in append.records.iter().zip(targets) {
            size_bytes += log.check_records(records, &log.topic.current())? + APPEND_OVERHEAD_BYTES;
        }
        for commit in &append.positions {
            if commit.group.is_empty() || commit.group.len() > GROUP_MAX_BYTES {
                return Err(Error::InvalidGroup { group: commit.group.clone(), limit_bytes: GROUP_MAX_BYTES });
            }
            let (size, limit_bytes) = (commit.metadata.len(), POSITION_METADATA_MAX_BYTES);
            if size > limit_bytes {
                return Err(Error::MetadataTooLarge { group: commit.group.clone(), size_bytes: size, limit_bytes });
            }
            size_bytes += commit.group.len() + size + APPEND_OVERHEAD_BYTES;
        }
        let limit_bytes = self.shared.config.append_max_bytes;
        if size_bytes > limit_bytes {
            return Err(Error::AppendTooLarge { size_bytes, limit_bytes });
        }
        Ok(size_bytes)
    }

    /// Whether every partition takes its records and every position is one that may be kept.
    fn check(
        &self,
        append: &AtomicAppend<'_>,
        targets: &[Arc<PartitionLog>],
        read: &[Arc<PartitionLog>],
        locked: &mut Locked<'_>,
    ) -> Result<(), Error> {
        self.shared.check_open()?;
        let mut records = BTreeMap::new();
        for ((_, added), log) in append.records.iter().zip(targets) {
            *records.entry(key(log)).or_insert(0) += added.len() as u64;
        }
        for log in targets {
            if let Some(accept) = locked.get_mut(&key(log)) {
                log.check_room(accept, records[&key(log)])?;
                // What was accepted before gets its place in the order before this append gets its own.
                log.seal(accept, &log.topic.current());
            }
        }
        for (commit, log) in append.positions.iter().zip(read) {
            check_position(commit, log)?;
            // A position may stand behind records that are accepted only: they must not come after it in the journal.
            if let Some(accept) = locked.get_mut(&key(log)) {
                log.seal(accept, &log.topic.current());
            }
        }
        Ok(())
    }

    fn take(
        &self,
        append: &AtomicAppend<'_>,
        targets: &[Arc<PartitionLog>],
        locked: &mut Locked<'_>,
        order: u64,
    ) -> Vec<Appended> {
        let mut appended = Vec::with_capacity(targets.len());
        for ((_, records), log) in append.records.iter().zip(targets) {
            let Some(accept) = locked.get_mut(&key(log)) else { continue };
            let first = accept.next;
            log.accept_part(accept, records, order);
            let last = Offset(accept.next - 1);
            appended.push(Appended { first: Offset(first), last, epoch: self.shared.epoch });
        }
        appended
    }

    fn commit(&self, append: &AtomicAppend<'_>, read: &[Arc<PartitionLog>]) -> (Vec<u8>, Vec<Effect>) {
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
            effects.push(Effect::Committed(record.clone()));
            Part::Committed(record).put(&mut encoded);
        }
        (encoded, effects)
    }
}

pub(crate) fn key(log: &PartitionLog) -> (TopicId, PartitionId) {
    (log.topic.id, log.id.partition)
}

fn check_position(commit: &PositionCommit, log: &PartitionLog) -> Result<(), Error> {
    log.topic.check_exists()?;
    if commit.position.topic != log.topic.id {
        return Err(Error::PositionLost {
            partition: log.id.clone(),
            position: commit.position,
            why: "it belongs to another topic of this name",
            restart: Offset(log.first()),
        });
    }
    let stable = Offset(log.high());
    if commit.position.offset > stable {
        let (group, offset) = (commit.group.clone(), commit.position.offset);
        return Err(Error::PositionUnstable { group, partition: log.id.clone(), offset, stable });
    }
    Ok(())
}
