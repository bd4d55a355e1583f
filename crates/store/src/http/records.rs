//! Records of a bucket's topic, as watches and iterations read them.

use bytes::Bytes;
use millstream_log::Partition;
use millstream_types::{BatchError, BatchLimits, RecordBatch, RecordView};

use crate::record::is_own;
use crate::{Error, StoredValue};

/// The batch with records that can be read; `None` for markers of transactions.
pub(super) fn readable(log: &dyn Partition, batch: &RecordBatch) -> Result<Option<RecordBatch>, Error> {
    if batch.is_control() {
        return Ok(None);
    }
    batch.inflated(&BatchLimits::default()).map(Some).map_err(|source| undecodable(log, source))
}

/// The error of a batch whose records cannot be read.
pub(super) fn undecodable(log: &dyn Partition, source: BatchError) -> Error {
    millstream_log::Error::Batch { partition: log.id().clone(), source }.into()
}

/// A key, and its new value; `None` for a delete.
pub(super) type RecordChange<'a> = (&'a [u8], Option<StoredValue>);

/// The change that a record holds; `None` for records that are the store's own.
pub(super) fn change<'a>(log: &dyn Partition, record: &RecordView<'a>) -> Result<Option<RecordChange<'a>>, Error> {
    let Some(key) = record.key.filter(|key| !is_own(key)) else { return Ok(None) };
    let Some(value) = record.value else { return Ok(Some((key, None))) };
    let stored = StoredValue::read(record, Bytes::copy_from_slice(value)).map_err(|fault| Error::Damaged {
        partition: log.id().clone(),
        offset: record.offset.0,
        what: fault.what,
    })?;
    Ok(Some((key, Some(stored))))
}
