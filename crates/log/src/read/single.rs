//! Reads one record: from memory near the tail, otherwise from its segment.

use std::sync::Arc;

use millstream_types::{Offset, RecordBatch, StoredRecord};

use crate::partition::PartitionLog;
use crate::segment::{BatchRead, ReadFrom, Segment};
use crate::transactions::AbortedIndex;
use crate::{CachedRead, Error, UpTo};

/// The source of a single record, chosen under the lock.
enum BatchSource {
    Batch(RecordBatch),
    Segment(Arc<Segment>),
}

impl PartitionLog {
    /// Implements [`crate::Partition::read_one`] and [`crate::Partition::read_one_cached`] for the engine.
    pub(crate) fn read_single(&self, offset: Offset, up_to: UpTo, from: ReadFrom) -> Result<CachedRead, Error> {
        loop {
            let Some((source, aborted)) = self.source_of(offset.0, up_to)? else { return Ok(CachedRead::Read(None)) };
            let read = match source {
                BatchSource::Batch(batch) => Ok(BatchRead::Found(batch)),
                BatchSource::Segment(segment) => match segment.batch_of(offset.0, &self.shared.limits, from) {
                    // Compaction has replaced the segment, or retention has removed it.
                    Err(_) if segment.is_retired() => continue,
                    read => read,
                },
            };
            return match read? {
                BatchRead::OnDisk => Ok(CachedRead::OnDisk),
                BatchRead::Found(batch) if self.is_shown(&batch, &aborted) => {
                    self.record_of(&batch, offset).map(CachedRead::Read)
                }
                BatchRead::Found(_) | BatchRead::Missing => Ok(CachedRead::Read(None)),
            };
        }
    }

    /// The batch in memory or the segment that may have a record at `offset`, and the aborted transactions.
    fn source_of(&self, offset: u64, up_to: UpTo) -> Result<Option<(BatchSource, AbortedIndex)>, Error> {
        self.topic.check_exists()?;
        let mut accept = self.lock();
        if offset < self.first() || offset >= self.visible(&accept, up_to) {
            return Ok(None);
        }
        let source = if offset < accept.tail_cache.begins() {
            let number = accept.segments.partition_point(|segment| segment.end() <= offset);
            let segment = accept.segments.get(number).filter(|segment| segment.base() <= offset);
            segment.cloned().map(BatchSource::Segment)
        } else {
            if offset >= accept.open_from {
                self.seal(&mut accept, &self.topic.current());
            }
            accept.tail_cache.batch_of(offset).map(BatchSource::Batch)
        };
        Ok(source.map(|source| (source, accept.producers.transactions.aborted().clone())))
    }

    /// `false` for markers and batches of aborted transactions.
    fn is_shown(&self, batch: &RecordBatch, aborted: &AbortedIndex) -> bool {
        let is_void = || aborted.within(batch.base_offset().0, batch.next_offset().0).holds(batch);
        if batch.is_transactional() { !batch.is_control() && !is_void() } else { !batch.is_control() }
    }

    fn record_of(&self, batch: &RecordBatch, offset: Offset) -> Result<Option<StoredRecord>, Error> {
        let refuse = |source| Error::Batch { partition: self.id.clone(), source };
        batch.inflated(&self.shared.limits).and_then(|batch| batch.record_at(offset)).map_err(refuse)
    }
}
