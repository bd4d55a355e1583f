//! The record batch, version 2: one format for memory, disk and wire.
//!
//! ```text
//!  0        8        12      16    17    21     23      27       35      43        51       57       61
//!  │ base   │ length │ leader│magic│ CRC │attri-│ last  │ base   │ max   │ producer│ prod.  │ record │ records …
//!  │ offset │ of rest│ epoch │  2  │ 32C │butes │ delta │ time   │ time  │ id      │ epoch, │ count  │ (perhaps
//!  │        │        │       │     │     │      │       │        │       │         │ first #│        │ compressed)
//!                                  the CRC covers ▲ from here to the end
//! ```
//!
//! Invariants of a [`RecordBatch`]
//! - Its bytes are exactly one batch: a whole header, a known codec, and the length that the header declares.
//! - `base_offset <= last_offset`, and there are at most as many records as offsets.
//! - The CRC does not cover base offset and epoch, so a batch can be moved without touching its records.
//!
//! Only [`RecordBatch::records`] checks that each record is well formed. The CRC only proves that
//! the bytes are the sender's.
//!
//! Source: the section "Record Batch" of Apache Kafka's message format.

mod build;
mod codec;
mod decode;
mod error;
mod header;
mod limits;
mod marker;
mod snappy;
mod stored_record;
mod varint;

use bytes::{Bytes, BytesMut};

pub use build::BatchBuilder;
pub use decode::{HeaderIter, RecordCursor, RecordIter};
pub use error::{BatchError, RecordFault};
pub use header::{BATCH_HEADER_BYTES, Producer};
pub use limits::BatchLimits;
pub use marker::Marker;
pub use stored_record::StoredRecord;

use crate::{Compression, Epoch, Offset};
use header::at;

/// One sealed batch, with the same bytes on disk and on the wire. Clones share the bytes.
///
/// A `RecordBatch` is a slice of the buffer that it was read from, and keeps that buffer alive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordBatch {
    bytes: Bytes,
}

impl RecordBatch {
    /// Takes one batch from the start of `bytes` without a copy and drops the bytes after it. Checks the header and
    /// the CRC, but not the records: see [`RecordBatch::records`].
    ///
    /// # Errors
    /// [`BatchError::Truncated`] if more bytes must be read first; otherwise the reason why Millstream refuses the
    /// batch, except errors of records and of inflating.
    pub fn parse(bytes: Bytes, limits: &BatchLimits) -> Result<Self, BatchError> {
        let batch = Self::parse_trusted(bytes, limits)?;
        let (stored, computed) = (batch.stored_crc(), header::crc_of(&batch.bytes));
        if stored != computed {
            return Err(BatchError::Checksum { stored, computed });
        }
        Ok(batch)
    }

    /// Like [`RecordBatch::parse`] without the check of the CRC: only for bytes that this process has verified or
    /// built. The header is still checked, so wrong bytes give an error or wrong records, never a panic.
    ///
    /// # Errors
    /// Those of [`RecordBatch::parse`], except [`BatchError::Checksum`].
    pub fn parse_trusted(mut bytes: Bytes, limits: &BatchLimits) -> Result<Self, BatchError> {
        let size_bytes = header::check(&bytes, limits)?;
        bytes.truncate(size_bytes);
        Ok(Self { bytes })
    }

    /// The consecutive batches of one buffer, each a slice of it. The iterator ends after the first error; a batch
    /// that is cut short at the end of the buffer is [`BatchError::Truncated`].
    pub fn split(bytes: Bytes, limits: &BatchLimits) -> BatchIter {
        BatchIter { rest: bytes, limits: *limits }
    }

    /// The bytes of the whole batch.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Size of the batch in bytes, header included.
    pub fn size_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Offset of the first record. In a compacted batch that record may be gone.
    pub fn base_offset(&self) -> Offset {
        Offset(header::u64_at(&self.bytes, at::BASE_OFFSET))
    }

    /// Offset of the last record. In a compacted batch that record may be gone.
    pub fn last_offset(&self) -> Offset {
        self.base_offset().advance(u64::from(self.last_offset_delta()))
    }

    /// The offset after the last one: the earliest start of the next batch.
    pub fn next_offset(&self) -> Offset {
        self.last_offset().next()
    }

    /// Leader epoch under which the offsets were handed out; zero in a batch fresh from a producer.
    pub fn epoch(&self) -> Epoch {
        Epoch(header::i32_at(&self.bytes, at::LEADER_EPOCH).max(0).unsigned_abs())
    }

    /// Number of records; zero if compaction kept only the header.
    pub fn record_count(&self) -> u32 {
        header::u32_at(&self.bytes, at::RECORD_COUNT)
    }

    /// Timestamp of the first record; the others are relative to it.
    pub fn base_timestamp_ms(&self) -> i64 {
        header::i64_at(&self.bytes, at::BASE_TIMESTAMP)
    }

    /// Largest timestamp of the records, as stated by the builder of the batch.
    pub fn max_timestamp_ms(&self) -> i64 {
        header::i64_at(&self.bytes, at::MAX_TIMESTAMP)
    }

    /// The codec of the compressed records.
    pub fn compression(&self) -> Compression {
        // `header::check` refuses unknown codecs.
        header::codec_of(self.attributes()).unwrap_or_default()
    }

    /// The idempotent producer of the batch, if it has one.
    pub fn producer(&self) -> Option<Producer> {
        Producer::read(&self.bytes)
    }

    /// `true` if the batch belongs to a transaction.
    pub fn is_transactional(&self) -> bool {
        self.attributes() & header::TRANSACTIONAL != 0
    }

    /// `true` if the records are transaction markers, which no reader is shown.
    pub fn is_control(&self) -> bool {
        self.attributes() & header::CONTROL != 0
    }

    /// The end of a transaction, if the batch is a marker.
    pub fn marker(&self) -> Option<Marker> {
        Marker::read(self)
    }

    /// `true` if all records carry their append time, which is [`RecordBatch::max_timestamp_ms`].
    pub fn has_append_time(&self) -> bool {
        self.attributes() & header::APPEND_TIME != 0
    }

    /// The same records at another offset and epoch. Copies the bytes once.
    ///
    /// # Panics
    /// For the same reasons as [`RecordBatch::into_restamped`].
    #[must_use]
    pub fn restamped(&self, base_offset: Offset, epoch: Epoch) -> Self {
        let mut bytes = BytesMut::from(&self.bytes[..]);
        header::stamp(&mut bytes, base_offset, epoch);
        Self { bytes: bytes.freeze() }
    }

    /// The same records at another offset and epoch. Copies the bytes only if a clone or slice shares the buffer.
    ///
    /// # Panics
    /// If an offset of the batch would pass 2⁶³−1 or `epoch` 2³¹−1: more than an engine can ever hand out.
    #[must_use]
    pub fn into_restamped(self, base_offset: Offset, epoch: Epoch) -> Self {
        let mut bytes = self.bytes.try_into_mut().unwrap_or_else(|shared| BytesMut::from(&shared[..]));
        header::stamp(&mut bytes, base_offset, epoch);
        Self { bytes: bytes.freeze() }
    }

    /// The same records with a common append time. Copies the bytes only if a clone or slice shares the buffer.
    #[must_use]
    pub fn into_append_timed(self, at_ms: i64) -> Self {
        let mut bytes = self.bytes.try_into_mut().unwrap_or_else(|shared| BytesMut::from(&shared[..]));
        header::mark_append_time(&mut bytes, at_ms);
        Self { bytes: bytes.freeze() }
    }

    /// The same records with the times that their producer gave them, which stay in a batch that was given an append time. That is
    /// still told as the largest of them. Copies the bytes only if a clone or slice shares the buffer.
    #[must_use]
    pub fn into_own_timed(self) -> Self {
        let mut bytes = self.bytes.try_into_mut().unwrap_or_else(|shared| BytesMut::from(&shared[..]));
        header::mark_own_times(&mut bytes);
        Self { bytes: bytes.freeze() }
    }

    /// The same records from another idempotent producer. Copies the bytes only if a clone or slice shares the buffer.
    #[must_use]
    pub fn into_produced_by(self, producer: Producer) -> Self {
        let mut bytes = self.bytes.try_into_mut().unwrap_or_else(|shared| BytesMut::from(&shared[..]));
        header::mark_producer(&mut bytes, producer);
        Self { bytes: bytes.freeze() }
    }

    /// The batch with uncompressed records; a clone if they are not compressed. Beside the result, inflating takes up
    /// to 13 MiB (LZ4: blocks), or the larger of 8 MiB and `inflated_max_bytes` (Zstandard: window of a frame that
    /// does not state its size).
    ///
    /// # Errors
    /// [`BatchError::InflatedTooLarge`], [`BatchError::Inflate`] or [`BatchError::RecordCount`], if
    /// the records do not inflate.
    pub fn inflated(&self, limits: &BatchLimits) -> Result<Self, BatchError> {
        match self.compression() {
            Compression::None => Ok(self.clone()),
            codec => Ok(Self { bytes: codec::inflate(&self.bytes, codec, limits)? }),
        }
    }

    /// Iterates over the records of an uncompressed batch in the order of their offsets, without allocating. Checks
    /// every length, and the number of records in the header; ends after the first error.
    ///
    /// A compressed batch yields one [`BatchError::Compressed`]: inflate it first, once for all readers.
    pub fn records(&self) -> RecordIter<'_> {
        RecordIter::new(self)
    }

    /// As [`RecordBatch::records`], from the place on at which another iterator of this batch stood.
    pub fn records_from(&self, cursor: RecordCursor) -> RecordIter<'_> {
        RecordIter::new(self).continued(cursor)
    }

    /// The batch without its records, for a reader that may not see them but must get past them.
    #[must_use]
    pub fn without_records(&self) -> Self {
        let mut bytes = BytesMut::from(&self.bytes[..BATCH_HEADER_BYTES]);
        header::mark_empty(&mut bytes);
        Self { bytes: bytes.freeze() }
    }

    fn attributes(&self) -> u16 {
        header::u16_at(&self.bytes, at::ATTRIBUTES)
    }

    fn last_offset_delta(&self) -> u32 {
        header::u32_at(&self.bytes, at::LAST_OFFSET_DELTA)
    }

    fn stored_crc(&self) -> u32 {
        header::u32_at(&self.bytes, at::CRC)
    }
}

/// The consecutive batches of one buffer; see [`RecordBatch::split`].
#[derive(Debug)]
pub struct BatchIter {
    rest: Bytes,
    limits: BatchLimits,
}

impl Iterator for BatchIter {
    type Item = Result<RecordBatch, BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let batch = RecordBatch::parse(self.rest.clone(), &self.limits);
        self.rest = match &batch {
            Ok(batch) => self.rest.slice(batch.size_bytes()..),
            Err(_) => Bytes::new(),
        };
        Some(batch)
    }
}
