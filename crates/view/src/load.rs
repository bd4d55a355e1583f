//! A state on its way from checkpoint and log into memory.
//!
//! The checkpoint is believed only as far as it reads well and the log confirms its position; else the state comes
//! from the log alone, and the damaged copy is done away with.

use bytes::Bytes;
use millstream_log::{Partition, UpTo};
use millstream_types::{BatchLimits, Offset, Position, TopicId, TopicPartition};

use crate::checkpoint::{Checkpoint, NOT_WRITTEN};
use crate::dirty::Dirty;
use crate::state_record::{StateRecord, apply};
use crate::view::{Snapshot, View};
use crate::{DecodeError, Error, Sources};

/// How many bytes one read of the state topic takes.
const REPLAY_READ_BYTES: usize = 1 << 20;

/// See the module.
pub(crate) struct Loading<'a> {
    pub(crate) id: &'a TopicPartition,
    pub(crate) topic: TopicId,
    pub(crate) partition: &'a dyn Partition,
    pub(crate) checkpoint: &'a Checkpoint,
    /// Bytes of changes after which the checkpoint is written in between.
    pub(crate) dirty_max_bytes: usize,
}

impl Loading<'_> {
    /// The state up to the stable end of the log, and what of it the checkpoint lacks.
    pub(crate) fn run<V: View>(&self) -> Result<(Snapshot<V>, Dirty), Error> {
        // A deletion must not be compacted away between reading what it deletes and getting to it.
        let _hold = self.partition.hold(V::NAME, self.partition.offsets().first);
        let mut dirty = Dirty::default();
        let mut snapshot = match self.copied::<V>() {
            Some(snapshot) => snapshot,
            None => {
                if let Err(damage) = self.checkpoint.clear(self.id.partition) {
                    tracing::warn!(partition = %self.id, error = %damage, "checkpoint cannot be cleared; the next start begins a new one");
                    self.checkpoint.condemn();
                    dirty.abandon();
                }
                empty(self.partition.offsets().first)
            }
        };
        self.replay(&mut snapshot, &mut dirty)?;
        Ok((snapshot, dirty))
    }

    /// What the checkpoint holds; `None` if there is nothing that can be used.
    fn copied<V: View>(&self) -> Option<Snapshot<V>> {
        let next = self.resume()?;
        let mut snapshot = empty(next);
        let read = self.checkpoint.load(self.id.partition, |key, value| {
            apply::<V>(&mut snapshot, key, Some(value)).map_err(|e| self.state_record(next, e))
        });
        match read {
            Ok(()) => Some(snapshot),
            Err(damage) => {
                tracing::warn!(partition = %self.id, error = %damage, "checkpoint is damaged; rebuilding from the log");
                None
            }
        }
    }

    /// Where the log goes on after the checkpoint; `None` if there is none that can be used.
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
            let batches = self.partition.read(snapshot.next, REPLAY_READ_BYTES, UpTo::Stable)?;
            if batches.is_empty() {
                return Ok(());
            }
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
                    let key = record.key.unwrap_or_default();
                    apply::<V>(snapshot, key, record.value).map_err(|e| self.state_record(record.offset, e))?;
                    records.push((Bytes::copy_from_slice(key), record.value.map(Bytes::copy_from_slice)));
                }
                snapshot.next = snapshot.next.max(batch.last_offset().next());
                dirty.take(records, batch.epoch(), snapshot.next);
            }
            if dirty.held_bytes() > self.dirty_max_bytes {
                self.write_checkpoint(dirty);
            }
        }
    }

    fn write_checkpoint(&self, dirty: &mut Dirty) {
        let drained = dirty.drain();
        if let Err(e) = self.checkpoint.write_dirty(self.id.partition, self.topic, &drained) {
            tracing::error!(partition = %self.id, error = &e as &dyn std::error::Error, "{NOT_WRITTEN}");
            dirty.abandon();
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
