//! Reads a partition: the tail from memory, older records from the segments, without a lock during disk access.

mod single;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use millstream_types::{Offset, RecordBatch};

use crate::partition::{Accept, PartitionLog};
use crate::segment::Segment;
use crate::transactions::{AbortedIndex, AbortedOverlap};
use crate::{Error, Located, StoredBatches, UpTo};

/// The source of a read, chosen under the lock.
enum ReadSource {
    Batches(RawBatches),
    OnDisk { segments: Vec<Arc<Segment>>, visible: u64, aborted: AbortedIndex },
}

/// Batches as stored, and the aborted transactions at the moment when the limit was read.
#[derive(Default)]
struct RawBatches {
    batches: Vec<RecordBatch>,
    aborted: AbortedIndex,
}

impl RawBatches {
    /// The aborted transactions that overlap the batches.
    fn overlap(&self) -> Option<AbortedOverlap> {
        let (first, last) = (self.batches.first()?, self.batches.last()?);
        Some(self.aborted.within(first.base_offset().0, last.next_offset().0))
    }

    /// The batches without markers and aborted transactions.
    fn visible(mut self) -> Vec<RecordBatch> {
        if !self.batches.iter().any(RecordBatch::is_transactional) {
            return self.batches;
        }
        let Some(overlap) = self.overlap() else { return self.batches };
        let last = self.batches.last().cloned();
        self.batches.retain(|batch| !batch.is_control() && !overlap.holds(batch));
        let end = self.batches.last().map(RecordBatch::next_offset);
        self.batches.extend(last.filter(|last| end != Some(last.next_offset())).map(|last| last.without_records()));
        self.batches
    }
}

impl PartitionLog {
    /// Implements [`crate::Partition::read_stored`] for the engine.
    pub(crate) fn read_marked(&self, from: u64, max_bytes: usize, up_to: UpTo) -> Result<StoredBatches, Error> {
        let raw = self.read_raw(from, max_bytes, up_to)?;
        let aborted = raw.overlap().map(|overlap| overlap.listed()).unwrap_or_default();
        Ok(StoredBatches { batches: raw.batches, aborted })
    }

    /// Implements [`crate::Partition::locate`] for the engine.
    pub(crate) fn locate_stored(&self, from: u64, max_bytes: usize, up_to: UpTo) -> Result<Option<Located>, Error> {
        let ReadSource::OnDisk { segments, visible, aborted } = self.read_memory(from, max_bytes, up_to)? else {
            return Ok(None);
        };
        let Some(segment) = segments.first() else { return Ok(None) };
        // A read reports the damage, or finds the segment that replaced this one.
        let Ok(Some((extents, end))) = segment.locate(from, visible, max_bytes) else { return Ok(None) };
        Ok(Some(Located { extents, aborted: aborted.within(from, end).listed() }))
    }

    /// Implements [`crate::Partition::read`] for the engine.
    pub(crate) fn read_visible(&self, from: u64, max_bytes: usize, up_to: UpTo) -> Result<Vec<RecordBatch>, Error> {
        Ok(self.read_raw(from, max_bytes, up_to)?.visible())
    }

    /// Implements [`crate::Partition::read_from_memory`] for the engine.
    pub(crate) fn visible_in_memory(
        &self,
        from: u64,
        max_bytes: usize,
        up_to: UpTo,
    ) -> Result<Option<Vec<RecordBatch>>, Error> {
        Ok(match self.read_memory(from, max_bytes, up_to)? {
            ReadSource::Batches(raw) => Some(raw.visible()),
            ReadSource::OnDisk { .. } => None,
        })
    }

    fn read_raw(&self, from: u64, max_bytes: usize, up_to: UpTo) -> Result<RawBatches, Error> {
        let (segments, visible, aborted) = match self.read_memory(from, max_bytes, up_to)? {
            ReadSource::Batches(raw) => return Ok(raw),
            ReadSource::OnDisk { segments, visible, aborted } => (segments, visible, aborted),
        };
        let mut found = Vec::new();
        let mut budget = max_bytes;
        for segment in segments {
            let batches = match segment.read(from, budget, &self.shared.limits) {
                Ok(batches) => batches,
                // Compaction has replaced the segment: read again. If retention removed the file, the error is
                // `Trimmed`; otherwise it is damage.
                Err(_) if found.is_empty() && segment.is_retired() && self.trimmed(from).is_none() => {
                    return self.read_raw(from, max_bytes, up_to);
                }
                Err(error) if found.is_empty() => return Err(self.trimmed(from).unwrap_or(error)),
                Err(_) => break,
            };
            let bytes: usize = batches.iter().map(RecordBatch::size_bytes).sum();
            if !found.is_empty() && bytes > budget {
                break;
            }
            budget = budget.saturating_sub(bytes);
            found.extend(batches);
            if budget == 0 || found.last().is_some_and(|last| last.next_offset().0 < segment.end()) {
                break;
            }
        }
        if found.is_empty() {
            // There is only a gap up to the batches in memory.
            let begins = self.lock().tail_cache.begins();
            return if begins > from { self.read_raw(begins, max_bytes, up_to) } else { Ok(RawBatches::default()) };
        }
        found.retain(|batch: &RecordBatch| batch.base_offset().0 < visible);
        Ok(RawBatches { batches: found, aborted })
    }

    fn read_memory(&self, from: u64, max_bytes: usize, up_to: UpTo) -> Result<ReadSource, Error> {
        self.topic.check_exists()?;
        let mut accept = self.lock();
        // Check under the lock: otherwise a memory ring could drop batches after the check, and the reader would miss
        // them.
        if let Some(error) = self.trimmed(from) {
            return Err(error);
        }
        if from > accept.next {
            let tail = Offset(accept.next);
            return Err(Error::BeyondTail { partition: self.id.clone(), wanted: Offset(from), tail });
        }
        let visible = self.visible(&accept, up_to);
        if from >= visible {
            return Ok(ReadSource::Batches(RawBatches::default()));
        }
        let aborted = accept.producers.transactions.aborted().clone();
        if from < accept.tail_cache.begins() {
            let begin = accept.segments.partition_point(|segment| segment.end() <= from);
            return Ok(ReadSource::OnDisk { segments: accept.segments[begin..].to_vec(), visible, aborted });
        }
        let mut found = Vec::new();
        let mut budget = max_bytes;
        accept.tail_cache.read(from, visible, &mut budget, &mut found);
        if visible > accept.open_from && (found.is_empty() || budget > 0) {
            // Accepted records are visible: do not make the reader wait for the appender's turn.
            let open_from = accept.open_from.max(from);
            self.seal(&mut accept, &self.topic.current());
            accept.tail_cache.read(open_from, visible, &mut budget, &mut found);
        }
        Ok(ReadSource::Batches(RawBatches { batches: found, aborted }))
    }

    /// The first offset that a reader does not see.
    fn visible(&self, accept: &Accept, up_to: UpTo) -> u64 {
        match up_to {
            UpTo::Tail => accept.producers.transactions.open_from().unwrap_or(accept.next),
            UpTo::High => self.high().min(accept.next),
            UpTo::Stable => self.stable().min(accept.next),
        }
    }

    pub(crate) fn find_time(&self, timestamp_ms: i64) -> Result<Option<Offset>, Error> {
        self.topic.check_exists()?;
        let first = self.first();
        let (segments, aborted) = {
            let accept = self.lock();
            (accept.segments.clone(), accept.producers.transactions.aborted().clone())
        };
        for segment in &segments {
            let mut from = first;
            loop {
                let batch = match segment.batch_at_time(from, timestamp_ms, &self.shared.limits) {
                    Ok(Some(batch)) => batch,
                    Ok(None) => break,
                    Err(_) if segment.is_retired() => return self.find_time(timestamp_ms),
                    Err(error) => return Err(error),
                };
                if let Some(offset) = self.record_at(&batch, &aborted, first, timestamp_ms)? {
                    return Ok(Some(offset));
                }
                from = batch.next_offset().0;
            }
        }
        let mut from = segments.last().map_or(first, |last| last.end()).max(first);
        loop {
            let (found, aborted) = {
                let mut accept = self.lock();
                self.seal(&mut accept, &self.topic.current());
                let found = accept.tail_cache.batch_at_time(from, timestamp_ms);
                (found, accept.producers.transactions.aborted().clone())
            };
            let Some(batch) = found else { return Ok(None) };
            if let Some(offset) = self.record_at(&batch, &aborted, first, timestamp_ms)? {
                return Ok(Some(offset));
            }
            from = batch.next_offset().0;
        }
    }

    /// The first record of `batch` at or above `from` with an event time at or after `timestamp_ms`.
    fn record_at(
        &self,
        batch: &RecordBatch,
        aborted: &AbortedIndex,
        from: u64,
        timestamp_ms: i64,
    ) -> Result<Option<Offset>, Error> {
        let is_hidden = || aborted.within(batch.base_offset().0, batch.next_offset().0).holds(batch);
        if batch.is_control() || (batch.is_transactional() && is_hidden()) {
            return Ok(None);
        }
        let refuse = |source| Error::Batch { partition: self.id.clone(), source };
        let batch = batch.inflated(&self.shared.limits).map_err(refuse)?;
        for record in batch.records() {
            let record = record.map_err(refuse)?;
            if record.offset.0 >= from && record.timestamp_ms >= timestamp_ms {
                return Ok(Some(record.offset));
            }
        }
        Ok(None)
    }

    /// Counts a read that began at damaged records.
    pub(crate) fn count_damage(&self, error: &Error) {
        if matches!(error, Error::Corrupt { .. }) {
            self.damaged_reads.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn damaged_reads(&self) -> u64 {
        self.damaged_reads.load(Ordering::Relaxed)
    }

    fn trimmed(&self, from: u64) -> Option<Error> {
        let oldest = Offset(self.first());
        (from < oldest.0).then(|| Error::Trimmed { partition: self.id.clone(), wanted: Offset(from), oldest })
    }
}
