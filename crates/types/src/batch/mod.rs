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
//! Always true of a [`RecordBatch`]
//! - Its bytes are exactly one batch: whole header, known codec, as long as its length says.
//! - `base_offset <= last_offset`, and there are at most as many records as offsets.
//! - Base offset and epoch lie before the CRC's reach: a batch gets another place without touching its records.
//!
//! What is *not* known before [`RecordBatch::records`] has walked it: whether each record is well formed. The CRC only
//! says that the bytes are what their sender meant.
//!
//! Source: the section "Record Batch" of Apache Kafka's message format.

mod build;
mod codec;
mod decode;
mod error;
mod header;
mod marker;
mod snappy;
mod varint;

use bytes::{Bytes, BytesMut};

pub use build::BatchBuilder;
pub use decode::{HeaderIter, RecordIter};
pub use error::{BatchError, RecordFault};
pub use header::{BATCH_HEADER_BYTES, Producer};
pub use marker::Marker;

use crate::{Compression, Epoch, Offset};
use header::at;

/// What a decoder accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchLimits {
    /// Largest batch as it lies. Default 16 MiB.
    pub batch_max_bytes: usize,
    /// Largest batch once inflated. Default 64 MiB.
    pub inflated_max_bytes: usize,
}

impl Default for BatchLimits {
    fn default() -> Self {
        Self { batch_max_bytes: 16 << 20, inflated_max_bytes: 64 << 20 }
    }
}

/// One sealed batch, exactly as it lies on disk and travels. Cloning shares the bytes.
///
/// A `RecordBatch` is a slice of the buffer it was read from and keeps all of that buffer alive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordBatch {
    bytes: Bytes,
}

impl RecordBatch {
    /// Takes the one batch at the start of `bytes`, without copying; what follows it is let go. Its header and CRC are
    /// checked, its records are not: see [`RecordBatch::records`].
    ///
    /// # Errors
    /// [`BatchError::Truncated`] if more bytes must be read first; every other variant but those of records and of
    /// inflating if this is no batch that Millstream takes.
    pub fn parse(bytes: Bytes, limits: &BatchLimits) -> Result<Self, BatchError> {
        let batch = Self::parse_trusted(bytes, limits)?;
        let (stored, computed) = (batch.stored_crc(), header::crc_of(&batch.bytes));
        if stored != computed {
            return Err(BatchError::Checksum { stored, computed });
        }
        Ok(batch)
    }

    /// As [`RecordBatch::parse`], but believes the CRC: only for bytes that this process has verified or built itself.
    /// The header is still checked, so that wrong bytes are an error or wrong records, never a panic.
    ///
    /// # Errors
    /// As [`RecordBatch::parse`], except [`BatchError::Checksum`].
    pub fn parse_trusted(mut bytes: Bytes, limits: &BatchLimits) -> Result<Self, BatchError> {
        let size_bytes = header::check(&bytes, limits)?;
        bytes.truncate(size_bytes);
        Ok(Self { bytes })
    }

    /// The consecutive batches of one buffer, each a slice of it. Ends after the first error; a batch that is cut
    /// short at the end of the buffer is [`BatchError::Truncated`].
    pub fn split(bytes: Bytes, limits: &BatchLimits) -> BatchIter {
        BatchIter { rest: bytes, limits: *limits }
    }

    /// The batch as it lies.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Its size as it lies, header included.
    pub fn size_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Offset of the first record; in a compacted batch, of the first record that there was.
    pub fn base_offset(&self) -> Offset {
        Offset(header::u64_at(&self.bytes, at::BASE_OFFSET))
    }

    /// Offset of the last record; in a compacted batch, of the last record that there was.
    pub fn last_offset(&self) -> Offset {
        self.base_offset().advance(u64::from(self.last_offset_delta()))
    }

    /// The offset after the last one: where the next batch may begin.
    pub fn next_offset(&self) -> Offset {
        self.last_offset().next()
    }

    /// Leader epoch under which the offsets were handed out. A batch fresh from a producer has none and says zero.
    pub fn epoch(&self) -> Epoch {
        Epoch(header::i32_at(&self.bytes, at::LEADER_EPOCH).max(0).unsigned_abs())
    }

    /// Number of records; zero if compaction kept only the batch's header.
    pub fn record_count(&self) -> u32 {
        header::u32_at(&self.bytes, at::RECORD_COUNT)
    }

    /// Timestamp of the first record, to which the others are relative.
    pub fn base_timestamp_ms(&self) -> i64 {
        header::i64_at(&self.bytes, at::BASE_TIMESTAMP)
    }

    /// Largest timestamp of its records, as the batch's builder stated it.
    pub fn max_timestamp_ms(&self) -> i64 {
        header::i64_at(&self.bytes, at::MAX_TIMESTAMP)
    }

    /// How the records are compressed.
    pub fn compression(&self) -> Compression {
        // An unknown codec did not pass `header::check`.
        header::codec_of(self.attributes()).unwrap_or_default()
    }

    /// The idempotent producer that built the batch, if one did.
    pub fn producer(&self) -> Option<Producer> {
        Producer::read(&self.bytes)
    }

    /// Whether the batch belongs to a transaction.
    pub fn is_transactional(&self) -> bool {
        self.attributes() & header::TRANSACTIONAL != 0
    }

    /// Whether its records are markers of a transaction's end, which no reader is shown.
    pub fn is_control(&self) -> bool {
        self.attributes() & header::CONTROL != 0
    }

    /// How a transaction has ended, if that is what the batch says.
    pub fn marker(&self) -> Option<Marker> {
        Marker::read(self)
    }

    /// Whether all records carry the time at which a log took them, which is [`RecordBatch::max_timestamp_ms`].
    pub fn has_append_time(&self) -> bool {
        self.attributes() & header::APPEND_TIME != 0
    }

    /// The same records at another place. Copies the bytes once.
    ///
    /// # Panics
    /// As [`RecordBatch::into_restamped`].
    #[must_use]
    pub fn restamped(&self, base_offset: Offset, epoch: Epoch) -> Self {
        let mut bytes = BytesMut::from(&self.bytes[..]);
        header::stamp(&mut bytes, base_offset, epoch);
        Self { bytes: bytes.freeze() }
    }

    /// The same records at another place. Copies nothing if no other clone or slice shares the buffer, else once.
    ///
    /// # Panics
    /// If an offset of the batch would pass 2⁶³−1 or `epoch` 2³¹−1: more than an engine can ever hand out.
    #[must_use]
    pub fn into_restamped(self, base_offset: Offset, epoch: Epoch) -> Self {
        let mut bytes = self.bytes.try_into_mut().unwrap_or_else(|shared| BytesMut::from(&shared[..]));
        header::stamp(&mut bytes, base_offset, epoch);
        Self { bytes: bytes.freeze() }
    }

    /// The same records, not compressed; itself if it is not. While it runs, inflating takes besides the
    /// result up to 13 MiB (LZ4: blocks) or the larger of 8 MiB and `inflated_max_bytes` (Zstandard: window of a
    /// frame that does not state its size).
    ///
    /// # Errors
    /// [`BatchError::InflatedTooLarge`], [`BatchError::Inflate`], [`BatchError::RecordCount`].
    pub fn inflated(&self, limits: &BatchLimits) -> Result<Self, BatchError> {
        match self.compression() {
            Compression::None => Ok(self.clone()),
            codec => Ok(Self { bytes: codec::inflate(&self.bytes, codec, limits)? }),
        }
    }

    /// Walks the records of an uncompressed batch, in the order of their offsets, without allocating. Every length
    /// is checked, and that there are exactly as many records as the header says; ends after the first error.
    ///
    /// A compressed batch yields one [`BatchError::Compressed`]: inflate it first, once for all its readers.
    pub fn records(&self) -> RecordIter<'_> {
        RecordIter::new(self)
    }

    /// The batch without its records: for a reader that may not see them, and must get past them.
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

/// The consecutive batches of one buffer: [`RecordBatch::split`].
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
