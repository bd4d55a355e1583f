//! One partition of a source's topic.

use std::collections::VecDeque;
use std::sync::Arc;

use millstream_log::{Error as LogError, Partition, UpTo};
use millstream_types::{Offset, Position, RecordBatch, TopicPartition};
use parking_lot::Mutex;

use super::progress::StreamProgress;
use super::start_at::StartAt;
use crate::connector::bells::HungBell;
use crate::connector::{Services, Waker};

/// Bytes that one read returns.
const READ_MAX_BYTES: usize = 1 << 20;

type ColdRead = Arc<Mutex<Option<Result<Vec<RecordBatch>, LogError>>>>;

pub(crate) struct PartitionReader {
    pub(crate) partition: Arc<dyn Partition>,
    pub(crate) next: Offset,
    pub(super) end: Option<Offset>,
    pub(super) ready: VecDeque<RecordBatch>,
    pending: Option<ColdRead>,
    _bell: HungBell,
}

impl PartitionReader {
    /// Opens a partition at a stored position.
    pub(crate) fn open(
        id: &TopicPartition,
        position: Position,
        stop_at: Option<&StartAt>,
        services: &Services,
        waker: &Waker,
        progress: &StreamProgress,
    ) -> Result<Self, LogError> {
        let partition = services.log.partition(id)?;
        let bell = services.bells.hang(Arc::clone(waker));
        partition.watch(&bell.bell);
        let next = match partition.resume(position) {
            Ok(next) => next,
            Err(LogError::PositionLost { restart, .. }) => {
                tracing::warn!(partition = %id, %restart, "a job's position is lost");
                restart
            }
            Err(LogError::Trimmed { wanted, oldest, .. }) => {
                progress.trimmed(id, wanted, oldest);
                oldest
            }
            Err(error) => return Err(error),
        };
        let end = stop_at.map(|place| place.offset(&*partition)).transpose()?;
        Ok(Self { partition, next, end, ready: VecDeque::new(), pending: None, _bell: bell })
    }

    /// `true` once everything before the end of the source is read.
    pub(super) fn is_at_end(&self) -> bool {
        self.end.is_some_and(|end| self.next >= end)
    }

    /// `true` if there are records that can be read, or are being read.
    pub(crate) fn has_more(&self) -> bool {
        let has_stored = !self.is_at_end() && self.next < self.partition.offsets().stable;
        !self.ready.is_empty() || self.pending.is_some() || has_stored
    }

    /// The records that can be read now; `max_records` if nothing is gained by waiting for more.
    pub(super) fn records_ready(&self, max_records: usize) -> usize {
        let stable = self.partition.offsets().stable;
        // What was read lies in memory already, and behind an end nothing comes.
        if !self.ready.is_empty() || self.pending.is_some() || self.end.is_some_and(|end| end <= stable) {
            return max_records;
        }
        max_records.min(stable.0.saturating_sub(self.next.0) as usize)
    }

    /// The next batch; `None` if there is none now. `waker` is called once an old one is read.
    pub(crate) fn read(
        &mut self,
        services: &Services,
        waker: &Waker,
        progress: &StreamProgress,
    ) -> Result<Option<RecordBatch>, LogError> {
        if let Some(batch) = self.ready.pop_front() {
            return Ok(Some(batch));
        }
        if self.is_at_end() {
            return Ok(None);
        }
        let read = if let Some(pending) = &self.pending {
            let Some(read) = pending.lock().take() else { return Ok(None) };
            self.pending = None;
            read
        } else if self.next >= self.partition.offsets().stable {
            return Ok(None);
        } else if let Some(known) = self.partition.read_from_memory(self.next, READ_MAX_BYTES, UpTo::Stable).transpose()
        {
            known
        } else {
            let pending = ColdRead::default();
            self.pending = Some(Arc::clone(&pending));
            let (partition, next, waker) = (Arc::clone(&self.partition), self.next, Arc::clone(waker));
            services.blocking.run(move || {
                *pending.lock() = Some(partition.read(next, READ_MAX_BYTES, UpTo::Stable));
                waker();
            });
            return Ok(None);
        };
        match read {
            Ok(batches) => self.ready = batches.into(),
            Err(LogError::Trimmed { oldest, .. }) => {
                progress.trimmed(self.partition.id(), self.next, oldest);
                self.next = oldest;
                waker();
            }
            Err(error) => return Err(error),
        }
        Ok(self.ready.pop_front())
    }
}
