//! The record batch, version 2.

use bytes::Bytes;

use crate::{Compression, Epoch, Offset, Record, RecordView};

/// What a decoder accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchLimits {
    /// Largest batch as it lies. Default 16 MiB.
    pub batch_max_bytes: usize,
    /// Largest batch once inflated. Default 64 MiB.
    pub inflated_max_bytes: usize,
}

/// Why bytes are not a batch.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BatchError {
    /// Fewer bytes than announced.
    #[error("batch is cut short: {have} of {need} bytes")]
    Truncated {
        /// Bytes announced.
        need: usize,
        /// Bytes there.
        have: usize,
    },
}

/// One sealed batch, exactly as it lies on disk and travels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordBatch {
    bytes: Bytes,
}

impl RecordBatch {
    /// Checks one batch at the start of `bytes` and takes it.
    ///
    /// # Errors
    /// Whatever is wrong with it.
    pub fn parse(bytes: Bytes, limits: &BatchLimits) -> Result<Self, BatchError> {
        let _ = limits;
        Ok(Self { bytes })
    }
    /// The batch as it lies.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }
    /// Offset of the first record.
    pub fn base_offset(&self) -> Offset {
        Offset(0)
    }
    /// Offset of the last record.
    pub fn last_offset(&self) -> Offset {
        Offset(0)
    }
    /// Leader epoch.
    pub fn epoch(&self) -> Epoch {
        Epoch(0)
    }
    /// Number of records.
    pub fn record_count(&self) -> u32 {
        0
    }
    /// Largest timestamp.
    pub fn max_timestamp_ms(&self) -> i64 {
        0
    }
    /// Codec.
    pub fn compression(&self) -> Compression {
        Compression::None
    }
    /// Same records at another place.
    pub fn restamped(&self, base_offset: Offset, epoch: Epoch) -> Self {
        let _ = (base_offset, epoch);
        self.clone()
    }
    /// Same records, not compressed.
    /// # Errors
    /// Bad data.
    pub fn inflated(&self, limits: &BatchLimits) -> Result<Self, BatchError> {
        let _ = limits;
        Ok(self.clone())
    }
    /// Walks the records of an uncompressed batch.
    pub fn records(&self) -> RecordIter<'_> {
        RecordIter { _bytes: &self.bytes }
    }
}

/// Walks the records of a batch without allocating.
#[derive(Debug)]
pub struct RecordIter<'a> {
    _bytes: &'a [u8],
}
impl<'a> Iterator for RecordIter<'a> {
    type Item = Result<RecordView<'a>, BatchError>;
    fn next(&mut self) -> Option<Self::Item> {
        None
    }
}

/// Builds batches, reusing its buffers.
#[derive(Debug, Default)]
pub struct BatchBuilder {
    _n: u32,
}
impl BatchBuilder {
    /// Adds a record.
    pub fn push(&mut self, record: &Record<'_>) {
        let _ = record;
    }
    /// Records so far.
    pub fn record_count(&self) -> u32 {
        0
    }
    /// Bytes so far, header included, before compression.
    pub fn size_bytes(&self) -> usize {
        0
    }
    /// Seals what was pushed and starts anew.
    pub fn seal(&mut self, base_offset: Offset, epoch: Epoch, compression: Compression) -> RecordBatch {
        let _ = (base_offset, epoch, compression);
        RecordBatch { bytes: Bytes::new() }
    }
}
