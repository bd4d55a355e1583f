//! The batches of a fetch that a reader of committed records sees.

use std::collections::HashSet;

use bytes::Bytes;
use kafka_protocol::messages::fetch_response::AbortedTransaction;
use millstream_types::{BatchError, BatchLimits, Offset, RecordBatch};

/// The visible part of an answer.
#[derive(Debug, Default)]
pub(crate) struct Visible {
    /// Batches without markers and records of aborted transactions. If nothing else is left, the last one has no records.
    pub(crate) batches: Vec<RecordBatch>,
    /// The offset after the last batch of the answer, visible or not; `None` if it has none.
    pub(crate) next: Option<Offset>,
}

/// The times that records have for their readers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Times {
    /// Those of the records themselves.
    OfRecords,
    /// Those of their append.
    OfAppend,
}

/// Parses the batches of a fetch with `read_committed` and leaves out what belongs to aborted transactions.
///
/// # Errors
/// A [`BatchError`] of the first batch that is damaged, if no whole one comes before it.
pub(crate) fn visible(records: Bytes, aborted: &[AbortedTransaction], times: Times) -> Result<Visible, BatchError> {
    let mut begins: Vec<(i64, i64)> = aborted.iter().map(|one| (one.first_offset, one.producer_id.0)).collect();
    begins.sort_unstable();
    let mut begins = begins.into_iter().peekable();
    let mut void = HashSet::new();
    let mut found = Visible::default();
    let mut hidden = None;
    for batch in RecordBatch::split(records, &BatchLimits::default()) {
        let batch = match batch {
            Ok(batch) => batch,
            // The last batch of an answer may be cut.
            Err(BatchError::Truncated { .. }) => break,
            Err(error) if found.next.is_none() => return Err(error),
            Err(_) => break,
        };
        found.next = Some(batch.next_offset());
        while let Some((_, producer)) = begins.next_if(|(first, _)| *first <= batch.last_offset().0.cast_signed()) {
            void.insert(producer);
        }
        let producer = batch.producer().map(|producer| producer.id);
        if batch.is_control() {
            producer.filter(|_| batch.marker().is_some_and(|marker| !marker.committed)).map(|id| void.remove(&id));
            hidden = Some(batch);
        } else if batch.is_transactional() && producer.is_some_and(|id| void.contains(&id)) || batch.record_count() == 0
        {
            hidden = Some(batch);
        } else {
            found.batches.push(match times {
                Times::OfRecords if batch.has_append_time() => batch.into_own_timed(),
                _ => batch,
            });
            hidden = None;
        }
    }
    found.batches.extend(hidden.map(|batch| batch.without_records()));
    Ok(found)
}
