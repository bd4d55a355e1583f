//! One record of a batch, without the lifetime of a borrow.

use bytes::Bytes;

use super::{BatchError, RecordBatch};
use crate::{Offset, RecordView};

/// One record as it is stored. Its key, value and headers are slices of the batch that it was found in.
///
/// It keeps the memory of that batch alive: copy what you keep for long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredRecord {
    /// The offset of the record in its partition.
    pub offset: Offset,
    /// Event time, milliseconds since 1970-01-01T00:00:00Z.
    pub timestamp_ms: i64,
    /// The key, if the record has one.
    pub key: Option<Bytes>,
    /// The payload; `None` is a tombstone.
    pub value: Option<Bytes>,
    encoded_headers: Bytes,
    header_count: usize,
}

impl StoredRecord {
    /// The record with borrowed parts, which also decodes the headers.
    pub fn view(&self) -> RecordView<'_> {
        RecordView {
            offset: self.offset,
            timestamp_ms: self.timestamp_ms,
            key: self.key.as_deref(),
            value: self.value.as_deref(),
            encoded_headers: &self.encoded_headers,
            header_count: self.header_count,
        }
    }
}

impl RecordBatch {
    /// The record at `offset`; `None` if the batch has none there. Checks the records up to that one.
    ///
    /// # Errors
    /// Those of [`RecordBatch::records`]; [`BatchError::Compressed`] if the batch must be inflated first.
    pub fn record_at(&self, offset: Offset) -> Result<Option<StoredRecord>, BatchError> {
        for record in self.records() {
            let record = record?;
            if record.offset >= offset {
                return Ok((record.offset == offset).then(|| self.own(&record)));
            }
        }
        Ok(None)
    }

    fn own(&self, record: &RecordView<'_>) -> StoredRecord {
        let slice = |part: &[u8]| self.bytes.slice_ref(part);
        StoredRecord {
            offset: record.offset,
            timestamp_ms: record.timestamp_ms,
            key: record.key.map(slice),
            value: record.value.map(slice),
            encoded_headers: slice(record.encoded_headers),
            header_count: record.header_count,
        }
    }
}
