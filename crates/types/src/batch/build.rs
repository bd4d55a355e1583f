//! Builds batches: records are encoded straight into the bytes that will lie on disk and travel.

use std::ops::Range;
use std::ptr;

use bytes::BytesMut;

use super::codec::{self, Compressors};
use super::header::{CONTROL, Seal, TRANSACTIONAL};
use super::varint::{self, Writer};
use super::{BATCH_HEADER_BYTES, Producer, RecordBatch};
use crate::{Compression, Epoch, Header, Offset, Record};

/// Builds batches one after the other, in one buffer that it shares with them until it is full.
///
/// ```
/// use millstream_types::{BatchBuilder, Compression, Epoch, Offset, Record};
///
/// let mut builder = BatchBuilder::default();
/// builder.push(&Record { timestamp_ms: 1_700_000_000_000, key: Some(b"4711"), value: Some(b"{}"), headers: &[] });
/// let batch = builder.seal(Offset(42), Epoch(1), Compression::None);
/// let record = batch.records().next().unwrap()?;
/// assert_eq!((record.offset, record.key), (Offset(42), Some(&b"4711"[..])));
/// # Ok::<(), millstream_types::BatchError>(())
/// ```
#[derive(Debug, Default)]
pub struct BatchBuilder {
    /// Empty between batches; else room for the header, then the records.
    buffer: BytesMut,
    record_count: u32,
    next_delta: u32,
    base_timestamp_ms: i64,
    max_timestamp_ms: i64,
    producer: Option<Producer>,
    flags: u16,
    last_size_bytes: usize,
    compressors: Compressors,
}

impl BatchBuilder {
    /// Adds a record right after the one before.
    ///
    /// # Panics
    /// If the batch would pass 2 GiB: hold it to a limit by [`BatchBuilder::size_bytes`] and
    /// [`Record::batch_max_bytes`].
    #[inline]
    pub fn push(&mut self, record: &Record<'_>) {
        self.push_at(self.next_delta, record);
    }

    /// Adds records, one right after the other. Neighbours that have one list of headers between them, not only equal ones,
    /// cost less: it is encoded once and copied.
    ///
    /// # Panics
    /// As [`BatchBuilder::push`].
    pub fn push_all(&mut self, records: &[Record<'_>]) {
        let mut known: Option<(&[Header<'_>], Range<usize>)> = None;
        for record in records {
            let headers = known.take().filter(|(list, _)| ptr::eq(*list, record.headers)).map(|(_, lies)| lies);
            known = Some((record.headers, self.add(self.next_delta, record, headers)));
        }
    }

    /// Adds a record `offset_delta` after the batch's base offset: how compaction leaves gaps.
    ///
    /// # Panics
    /// As [`BatchBuilder::push`], and if the offset does not ascend.
    #[inline]
    pub fn push_at(&mut self, offset_delta: u32, record: &Record<'_>) {
        self.add(offset_delta, record, None);
    }

    /// Adds a record whose headers lie in the buffer already if it is told where; answers where they lie now.
    #[inline]
    fn add(&mut self, offset_delta: u32, record: &Record<'_>, headers: Option<Range<usize>>) -> Range<usize> {
        assert!(offset_delta >= self.next_delta && offset_delta < i32::MAX as u32, "offsets ascend and fit the batch");
        if self.record_count == 0 {
            self.begin(record);
        }
        let timestamp_delta = record.timestamp_ms.wrapping_sub(self.base_timestamp_ms);
        let lie = encode(&mut self.buffer, record, timestamp_delta, offset_delta, headers);
        self.max_timestamp_ms = self.max_timestamp_ms.max(record.timestamp_ms);
        self.record_count += 1;
        self.next_delta = offset_delta + 1;
        lie
    }

    /// Makes the batch under construction stand for offsets up to `offset_delta`, also if its last record lies before it.
    pub fn extend_to(&mut self, offset_delta: u32) {
        self.next_delta = self.next_delta.max(offset_delta + 1);
    }

    /// Names the idempotent producer of the batch under construction.
    pub fn set_producer(&mut self, producer: Producer) {
        self.producer = Some(producer);
    }

    /// Makes the batch under construction one of its producer's transaction.
    pub fn set_transactional(&mut self) {
        self.flags |= TRANSACTIONAL;
    }

    /// Makes it a control batch: [`super::Marker`].
    pub(super) fn set_control(&mut self) {
        self.flags |= CONTROL;
    }

    /// Records so far.
    pub fn record_count(&self) -> u32 {
        self.record_count
    }

    /// Whether there is nothing to seal.
    pub fn is_empty(&self) -> bool {
        self.record_count == 0
    }

    /// Bytes so far, header included, before compression.
    pub fn size_bytes(&self) -> usize {
        self.buffer.len().max(BATCH_HEADER_BYTES)
    }

    /// Seals what was pushed and starts anew. Without compression nothing is copied. Records that the codec does not
    /// make smaller stay uncompressed.
    ///
    /// # Panics
    /// If nothing was pushed, if an offset would pass 2⁶³−1, or if `epoch` is above 2³¹−1.
    pub fn seal(&mut self, base_offset: Offset, epoch: Epoch, compression: Compression) -> RecordBatch {
        assert!(self.record_count > 0, "a batch has at least one record");
        self.last_size_bytes = self.buffer.len();
        let (header, records) = self.buffer.split_at(BATCH_HEADER_BYTES);
        let compressed = self.compressors.compress(records, compression).map(|records| codec::joined(header, records));
        let (mut bytes, compression) = match compressed {
            Some(bytes) => (bytes, compression),
            None => (self.buffer.split(), Compression::None),
        };
        Seal {
            base_offset,
            epoch,
            compression,
            last_offset_delta: self.next_delta - 1,
            base_timestamp_ms: self.base_timestamp_ms,
            max_timestamp_ms: self.max_timestamp_ms,
            producer: self.producer,
            flags: self.flags,
            record_count: self.record_count,
        }
        .write(&mut bytes);
        self.clear();
        RecordBatch { bytes: bytes.freeze() }
    }

    /// Forgets what was pushed.
    pub fn clear(&mut self) {
        self.buffer.clear();
        self.record_count = 0;
        self.next_delta = 0;
        self.producer = None;
        self.flags = 0;
    }

    #[cold]
    fn begin(&mut self, first: &Record<'_>) {
        // As much as the last batch took, so that the buffer need not grow (and be copied) while records come.
        self.buffer.reserve(self.last_size_bytes.max(first.batch_max_bytes()));
        self.buffer.resize(BATCH_HEADER_BYTES, 0);
        self.base_timestamp_ms = first.timestamp_ms;
        self.max_timestamp_ms = first.timestamp_ms;
    }
}

impl Record<'_> {
    /// The most bytes that a batch of this record alone can take, uncompressed. Further records add no more than this
    /// less [`crate::BATCH_HEADER_BYTES`] each.
    pub fn batch_max_bytes(&self) -> usize {
        // Length, attributes, and both deltas at their longest.
        const PROLOGUE: usize = varint::I32_MAX_BYTES + 1 + varint::I64_MAX_BYTES + varint::I32_MAX_BYTES;
        BATCH_HEADER_BYTES + PROLOGUE + nullable(self.key) + nullable(self.value) + self.headers_bytes()
    }

    /// Size of the headers, their number included.
    #[inline]
    fn headers_bytes(&self) -> usize {
        let headers: usize =
            self.headers.iter().map(|header| sized(header.key.as_bytes()) + nullable(header.value)).sum();
        varint::len(self.headers.len() as i64) + headers
    }
}

#[inline]
fn sized(bytes: &[u8]) -> usize {
    varint::len(bytes.len() as i64) + bytes.len()
}

#[inline]
fn nullable(bytes: Option<&[u8]>) -> usize {
    bytes.map_or(1, sized)
}

#[inline]
fn length_of(bytes: Option<&[u8]>) -> i64 {
    bytes.map_or(-1, |bytes| bytes.len() as i64)
}

/// Writes a record, with headers that lie in `buffer` already if it is told where; answers where they lie now.
#[inline]
fn encode(
    buffer: &mut BytesMut,
    record: &Record<'_>,
    timestamp_delta: i64,
    offset_delta: u32,
    headers: Option<Range<usize>>,
) -> Range<usize> {
    let offset_delta = i64::from(offset_delta);
    let headers_bytes = headers.as_ref().map_or_else(|| record.headers_bytes(), Range::len);
    let length = 1
        + varint::len(timestamp_delta)
        + varint::len(offset_delta)
        + nullable(record.key)
        + nullable(record.value)
        + headers_bytes;
    assert!(buffer.len() + length < i32::MAX as usize, "a batch stays below 2 GiB");
    let (begin, value) = (buffer.len(), record.value.unwrap_or_default());
    let size = varint::len(length as i64) + length;
    buffer.reserve(size);
    // All but the value, which may be large, is written where it lies; there it has to be set to something before.
    buffer.resize(begin + size - headers_bytes - value.len(), 0);
    let mut writer = Writer { rest: &mut buffer[begin..] };
    writer.number(length as i64);
    writer.bytes(&[0]); // attributes: none are defined
    writer.number(timestamp_delta);
    writer.number(offset_delta);
    writer.nullable(record.key);
    writer.number(length_of(record.value));
    buffer.extend_from_slice(value);
    let lie = buffer.len()..buffer.len() + headers_bytes;
    buffer.resize(lie.end, 0);
    match headers {
        Some(known) => buffer.copy_within(known, lie.start),
        None => write_headers(Writer { rest: &mut buffer[lie.clone()] }, record.headers),
    }
    lie
}

#[inline]
fn write_headers(mut writer: Writer<'_>, headers: &[Header<'_>]) {
    writer.number(headers.len() as i64);
    for header in headers {
        writer.number(header.key.len() as i64);
        writer.bytes(header.key.as_bytes());
        writer.nullable(header.value);
    }
}
