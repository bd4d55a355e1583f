//! Loads a state from the checkpoint and the log.
//!
//! The checkpoint is used only if it is readable and the log confirms its position. Otherwise the state is rebuilt
//! from the log alone and the damaged copy is removed.

use millstream_log::{Log, Partition, UpTo};
use millstream_types::{BatchLimits, Epoch, MemoryBudget, Offset, Position, TopicId, TopicPartition};

use crate::checkpoint::{Checkpoint, NOT_WRITTEN, Reflected, has_room};
use crate::dirty::{Behind, Dirty, memory_bytes};
use crate::state_record::{replay, restore};
use crate::view::{Snapshot, StateRecord, View};
use crate::{DecodeError, Error, Sources};

/// Bytes per read of the state topic.
const REPLAY_READ_BYTES: usize = 1 << 20;

/// The inputs of loading one partition.
pub(crate) struct Loading<'a> {
    pub(crate) id: &'a TopicPartition,
    pub(crate) topic: TopicId,
    pub(crate) log: &'a dyn Log,
    pub(crate) partition: &'a dyn Partition,
    pub(crate) checkpoint: &'a Checkpoint,
    /// Bytes of changes after which loading writes the checkpoint.
    pub(crate) dirty_max_bytes: usize,
    pub(crate) dirty_memory: &'a MemoryBudget,
}

impl Loading<'_> {
    /// Loads the state up to the stable end of the log, and the changes that the checkpoint lacks.
    pub(crate) fn run<V: View>(&self) -> Result<(Snapshot<V>, Dirty), Error> {
        // Hold the records: a deletion must not be compacted away between reading the deleted record and the
        // deletion.
        let _hold = self.partition.hold(V::NAME, self.partition.offsets().first);
        let mut dirty = Dirty::default();
        let mut snapshot = match self.copied::<V>() {
            Some(snapshot) => snapshot,
            None => {
                if let Err(damage) = self.checkpoint.clear(self.id.partition) {
                    tracing::warn!(partition = %self.id, error = %damage, "checkpoint cannot be cleared; the next start begins a new one");
                    self.checkpoint.condemn();
                    dirty.fall_behind(Behind::ForGood);
                }
                empty(self.partition.offsets().first)
            }
        };
        self.replay(&mut snapshot, &mut dirty)?;
        Ok((snapshot, dirty))
    }

    /// The state in the checkpoint; `None` if it cannot be used.
    fn copied<V: View>(&self) -> Option<Snapshot<V>> {
        let next = self.resume()?;
        let mut snapshot = empty(next);
        let read = self.checkpoint.load(self.id.partition, |key, value| {
            restore(&mut snapshot, key, value).map_err(|e| self.state_record(next, e))
        });
        match read {
            Ok(()) => Some(snapshot),
            Err(damage) => {
                tracing::warn!(partition = %self.id, error = %damage, "checkpoint is damaged; rebuilding from the log");
                None
            }
        }
    }

    /// The offset at which the log continues after the checkpoint; `None` if it cannot be used.
    fn resume(&self) -> Option<Offset> {
        let reflected = match self.checkpoint.reflected(self.id.partition) {
            Ok(reflected) => reflected?,
            Err(damage) => {
                tracing::warn!(partition = %self.id, error = %damage, "checkpoint is unreadable; rebuilding from the log");
                return None;
            }
        };
        let position = Position { topic: reflected.topic, epoch: reflected.epoch, offset: reflected.next };
        match self.partition.resume(position) {
            Ok(next) if reflected.topic == self.topic => Some(next),
            Ok(_) => None,
            Err(why) => {
                tracing::warn!(partition = %self.id, error = %why, "checkpoint does not fit the log; rebuilding from the log");
                None
            }
        }
    }

    fn replay<V: View>(&self, snapshot: &mut Snapshot<V>, dirty: &mut Dirty) -> Result<(), Error> {
        loop {
            let is_end = self.read(snapshot, |records, epoch, next| {
                let memory = self.dirty_memory.take(memory_bytes(&records));
                dirty.take(records, epoch, next);
                match memory {
                    Some(memory) => dirty.hold(memory),
                    None => self.write_checkpoint(dirty),
                }
                Ok(())
            })?;
            if is_end {
                return Ok(());
            }
            if dirty.held_bytes() > self.dirty_max_bytes {
                self.write_checkpoint(dirty);
            }
        }
    }

    /// Reads some of what follows `snapshot` into it, and passes on the records of each batch; `true` at the end.
    fn read<V: View>(
        &self,
        snapshot: &mut Snapshot<V>,
        mut taken: impl FnMut(Vec<StateRecord>, Epoch, Offset) -> Result<(), Error>,
    ) -> Result<bool, Error> {
        let batches = self.partition.read(snapshot.next, REPLAY_READ_BYTES, UpTo::Stable)?;
        let is_end = batches.is_empty();
        for batch in batches {
            let batch = batch
                .inflated(&BatchLimits::default())
                .map_err(|source| millstream_log::Error::Batch { partition: self.id.clone(), source })?;
            let mut records: Vec<StateRecord> = Vec::new();
            for record in batch.records() {
                let record = record.map_err(|source| {
                    Error::from(millstream_log::Error::Batch { partition: self.id.clone(), source })
                })?;
                if record.offset < snapshot.next {
                    continue;
                }
                records.push(replay(snapshot, &record).map_err(|e| self.state_record(record.offset, e))?);
            }
            snapshot.next = snapshot.next.max(batch.last_offset().next());
            taken(records, batch.epoch(), snapshot.next)?;
        }
        Ok(is_end)
    }

    /// Writes to the checkpoint what it lacks of the log up to `end` at least, as long as there is room; `false` if there
    /// is none.
    pub(crate) fn catch_up<V: View>(&self, end: Offset) -> Result<bool, Error> {
        let _hold = self.partition.hold(V::NAME, self.partition.offsets().first);
        let mut next = match self.resume() {
            Some(next) => next,
            None => {
                self.checkpoint.clear(self.id.partition)?;
                self.partition.offsets().first
            }
        };
        while next < end {
            if !has_room(self.log, REPLAY_READ_BYTES) {
                return Ok(false);
            }
            // Only its records are wanted.
            let mut passing = empty::<V>(next);
            let is_end = self.read(&mut passing, |records, epoch, next| {
                let reflected = Reflected { topic: self.topic, epoch, next };
                self.checkpoint.write(self.id.partition, records.iter().map(|(key, value)| (key, value)), reflected)
            })?;
            next = passing.next;
            if is_end {
                break;
            }
        }
        Ok(true)
    }

    fn write_checkpoint(&self, dirty: &mut Dirty) {
        if !has_room(self.log, dirty.held_bytes()) {
            dirty.fall_behind(Behind::UntilRoom);
            return;
        }
        let drained = dirty.drain();
        if let Err(e) = self.checkpoint.write_dirty(self.id.partition, self.topic, &drained) {
            tracing::error!(partition = %self.id, error = &e as &dyn std::error::Error, "{NOT_WRITTEN}");
            dirty.fall_behind(Behind::ForGood);
        }
        drop(drained);
        dirty.written();
    }

    fn state_record(&self, offset: Offset, source: DecodeError) -> Error {
        Error::StateRecord { partition: self.id.clone(), offset, source }
    }
}

fn empty<V: View>(next: Offset) -> Snapshot<V> {
    Snapshot { state: V::State::default(), sources: Sources::new(), next }
}
