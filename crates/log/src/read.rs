//! Reading a partition: near the tail from memory, else from the segments, without a lock while the disk works.

use std::sync::Arc;

use millstream_types::{Offset, RecordBatch};

use crate::partition::PartitionLog;
use crate::segment::Segment;
use crate::{Error, UpTo};

/// What the lock let out: batches from memory, or the segments to look into.
enum Found {
    Batches(Vec<RecordBatch>),
    OnDisk(Vec<Arc<Segment>>),
}

impl PartitionLog {
    pub(crate) fn read_batches(&self, from: u64, max_bytes: usize, up_to: UpTo) -> Result<Vec<RecordBatch>, Error> {
        let segments = match self.read_memory(from, max_bytes, up_to)? {
            Found::Batches(batches) => return Ok(batches),
            Found::OnDisk(segments) => segments,
        };
        let mut found = Vec::new();
        let mut budget = max_bytes;
        for segment in segments {
            let batches = match segment.read(from, budget, &self.shared.limits) {
                Ok(batches) => batches,
                // A removed file is missing: that is damage only if retention has not removed it.
                // Compaction has put another segment in its place.
                Err(_) if found.is_empty() && segment.is_retired() && self.trimmed(from).is_none() => {
                    return self.read_batches(from, max_bytes, up_to);
                }
                Err(error) => {
                    return if found.is_empty() { Err(self.trimmed(from).unwrap_or(error)) } else { Ok(found) };
                }
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
            // Nothing but a gap up to what is in memory.
            let begins = self.lock().recent.begins();
            return if begins > from { self.read_batches(begins, max_bytes, up_to) } else { Ok(found) };
        }
        Ok(found)
    }

    fn read_memory(&self, from: u64, max_bytes: usize, up_to: UpTo) -> Result<Found, Error> {
        self.topic.check_exists()?;
        let mut accept = self.lock();
        // Under the lock: a ring that makes room between the check and the look would leave a gap that nobody is told of.
        if let Some(error) = self.trimmed(from) {
            return Err(error);
        }
        if from > accept.next {
            let tail = Offset(accept.next);
            return Err(Error::BeyondTail { partition: self.id.clone(), wanted: Offset(from), tail });
        }
        let visible = match up_to {
            UpTo::Tail => accept.next,
            UpTo::Stable => self.stable().min(accept.next),
        };
        if from >= visible {
            return Ok(Found::Batches(Vec::new()));
        }
        if from < accept.recent.begins() {
            let begin = accept.segments.partition_point(|segment| segment.end() <= from);
            return Ok(Found::OnDisk(accept.segments[begin..].to_vec()));
        }
        let mut found = Vec::new();
        let mut budget = max_bytes;
        accept.recent.read(from, visible, &mut budget, &mut found);
        if visible > accept.open_from && (found.is_empty() || budget > 0) {
            // What is accepted is visible: the reader need not wait for the appender's turn.
            let open_from = accept.open_from.max(from);
            self.seal(&mut accept, &self.topic.current());
            accept.recent.read(open_from, visible, &mut budget, &mut found);
        }
        Ok(Found::Batches(found))
    }

    pub(crate) fn find_time(&self, timestamp_ms: i64) -> Result<Option<Offset>, Error> {
        self.topic.check_exists()?;
        let first = self.first();
        let segments = self.lock().segments.clone();
        for segment in &segments {
            let mut from = first;
            loop {
                let batch = match segment.batch_at_time(from, timestamp_ms, &self.shared.limits) {
                    Ok(Some(batch)) => batch,
                    Ok(None) => break,
                    Err(_) if segment.is_retired() => return self.find_time(timestamp_ms),
                    Err(error) => return Err(error),
                };
                if let Some(offset) = self.record_at(&batch, first, timestamp_ms)? {
                    return Ok(Some(offset));
                }
                from = batch.next_offset().0;
            }
        }
        let mut from = segments.last().map_or(first, |last| last.end()).max(first);
        loop {
            let found = {
                let mut accept = self.lock();
                self.seal(&mut accept, &self.topic.current());
                accept.recent.batch_at_time(from, timestamp_ms)
            };
            let Some(batch) = found else { return Ok(None) };
            if let Some(offset) = self.record_at(&batch, first, timestamp_ms)? {
                return Ok(Some(offset));
            }
            from = batch.next_offset().0;
        }
    }

    /// The first record of `batch` that is not below `from` and whose event time is at or after `timestamp_ms`.
    fn record_at(&self, batch: &RecordBatch, from: u64, timestamp_ms: i64) -> Result<Option<Offset>, Error> {
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

    fn trimmed(&self, from: u64) -> Option<Error> {
        let oldest = Offset(self.first());
        (from < oldest.0).then(|| Error::Trimmed { partition: self.id.clone(), wanted: Offset(from), oldest })
    }
}
