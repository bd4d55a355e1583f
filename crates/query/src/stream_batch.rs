//! A batch of a stream, decompressed for matching.

use std::sync::Arc;

use millstream_log::Partition;
use millstream_types::{BatchError, BatchLimits, Compression, RecordBatch, TopicPartition};

use crate::batch_matcher::Tally;
use crate::live::LiveQuery;
use crate::outbox::PutOutcome;
use crate::read_error::ReadError;

/// A query that has got enough, or more than its client takes.
pub(crate) type FinishedQuery = (Arc<LiveQuery>, PutOutcome);

/// Has `run` match the records of a batch of the partition, once they are laid open.
pub(crate) fn match_batch(
    partition: &dyn Partition,
    batch: &RecordBatch,
    run: impl FnOnce(&RecordBatch) -> Result<Tally, BatchError>,
) -> Result<Tally, ReadError> {
    let TopicPartition { topic, .. } = partition.id();
    let broken = |source| ReadError::Batch { stream: topic.clone(), source };
    match readable(batch).map_err(broken)? {
        Some(batch) => run(&batch).map_err(broken),
        None => Ok(Tally::default()),
    }
}

/// The batch with its records laid open; `None` if they are markers of a transaction.
pub(crate) fn readable(batch: &RecordBatch) -> Result<Option<RecordBatch>, BatchError> {
    if batch.is_control() {
        return Ok(None);
    }
    if batch.compression() == Compression::None {
        return Ok(Some(batch.clone()));
    }
    batch.inflated(&BatchLimits::default()).map(Some)
}
