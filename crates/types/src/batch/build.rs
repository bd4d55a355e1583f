//! Builds batches: records are encoded directly into the bytes that go to disk and over the wire.

use std::ops::Range;
use std::ptr;

use bytes::BytesMut;

use super::codec::{self, Compressors};
use super::header::{APPEND_TIME, CONTROL, Seal, TRANSACTIONAL};
use super::varint::{self, RecordWriter};
use super::{BATCH_HEADER_BYTES, Producer, RecordBatch};
use crate::{Compression, Epoch, Header, Offset, Record};

/// Builds one batch after the other in a buffer that it shares with them until the buffer is full.
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
    /// Empty between batches; otherwise space for the header, then the records.
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
    /// Adds a record after the previous one.
    ///
    /// # Panics
    /// If the batch would pass 2 GiB: limit it by [`BatchBuilder::size_bytes`] and [`Record::batch_max_bytes`].
    #[inline]
    pub fn push(&mut self, record: &Record<'_>) {
        self.push_at(self.next_delta, record);
    }

    /// Adds records one after the other. Neighbours that share one list of headers (the same slice, not an equal one)
    /// are cheaper: the list is encoded once and copied.
    ///
    /// # Panics
    /// For the same reasons as [`BatchBuilder::push`].
    pub fn push_all(&mut self, records: &[Record<'_>]) {
        let mut known: Option<(&[Header<'_>], Range<usize>)> = None;
        for record in records {
            let headers = known.take().filter(|(list, _)| ptr::eq(*list, record.headers)).map(|(_, lies)| lies);
            known = Some((record.headers, self.add(self.next_delta, record, headers)));
        }
    }

    /// Adds a record `offset_delta` after the batch's base offset. Compaction leaves gaps this way.
    ///
    /// # Panics
    /// For the same reasons as [`BatchBuilder::push`], and if the offset does not ascend.
    #[inline]
    pub fn push_at(&mut self, offset_delta: u32, record: &Record<'_>) {
        self.add(offset_delta, record, None);
    }

    /// Adds a record. `headers` is the place of its headers if they are in the buffer
    /// already; returns their new place.
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

    /// Extends the batch to offsets up to `offset_delta`, even if its last record has a lower one.
    pub fn extend_to(&mut self, offset_delta: u32) {
        self.next_delta = self.next_delta.max(offset_delta + 1);
    }

    /// Sets the idempotent producer of the batch.
    pub fn set_producer(&mut self, producer: Producer) {
        self.producer = Some(producer);
    }

    /// Makes the batch a part of its producer's transaction.
    pub fn set_transactional(&mut self) {
        self.flags |= TRANSACTIONAL;
    }

    /// Marks that all records of the batch carry their append time.
    pub fn set_append_time(&mut self) {
        self.flags |= APPEND_TIME;
    }

    /// Makes it a control batch: see [`super::Marker`].
    pub(super) fn set_control(&mut self) {
        self.flags |= CONTROL;
    }

    /// Number of records in the batch so far.
    pub fn record_count(&self) -> u32 {
        self.record_count
    }

    /// `true` if the batch has no records yet.
    pub fn is_empty(&self) -> bool {
        self.record_count == 0
    }

    /// Size of the batch so far, header included, before compression.
    pub fn size_bytes(&self) -> usize {
        self.buffer.len().max(BATCH_HEADER_BYTES)
    }

    /// Seals the batch and starts the next one. Without compression nothing is copied. Records that the codec does
    /// not make smaller stay uncompressed.
    ///
    /// # Panics
    /// If the batch is empty, if an offset would pass 2⁶³−1, or if `epoch` is above 2³¹−1.
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

    /// Discards the records of the batch.
    pub fn clear(&mut self) {
        self.buffer.clear();
        self.record_count = 0;
        self.next_delta = 0;
        self.producer = None;
        self.flags = 0;
    }

    #[cold]
    fn begin(&mut self, first: &Record<'_>) {
        // Reserve the size of the last batch, so that the buffer need not grow (and be copied) while records are
        // added.
        self.buffer.reserve(self.last_size_bytes.max(first.batch_max_bytes()));
        self.buffer.resize(BATCH_HEADER_BYTES, 0);
        self.base_timestamp_ms = first.timestamp_ms;
        self.max_timestamp_ms = first.timestamp_ms;
    }
}

impl Record<'_> {
    /// The largest size of a batch with only this record, uncompressed. A further record adds at
    /// most this size less [`crate::BATCH_HEADER_BYTES`].
    pub fn batch_max_bytes(&self) -> usize {
        // Length, attributes, and both deltas at their longest.
        const PROLOGUE: usize = varint::I32_MAX_BYTES + 1 + varint::I64_MAX_BYTES + varint::I32_MAX_BYTES;
        BATCH_HEADER_BYTES + PROLOGUE + nullable(self.key) + nullable(self.value) + self.headers_bytes()
    }

    /// Size of the encoded headers, their number included.
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

/// Encodes a record. `headers` is the place of its headers if they are in the buffer
/// already; returns their new place.
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
    // Everything except the value, which may be large, is written in place; so the bytes must be initialised first.
    buffer.resize(begin + size - headers_bytes - value.len(), 0);
    let mut writer = RecordWriter { rest: &mut buffer[begin..] };
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
        None => write_headers(RecordWriter { rest: &mut buffer[lie.clone()] }, record.headers),
    }
    lie
}

#[inline]
fn write_headers(mut writer: RecordWriter<'_>, headers: &[Header<'_>]) {
    writer.number(headers.len() as i64);
    for header in headers {
        writer.number(header.key.len() as i64);
        writer.bytes(header.key.as_bytes());
        writer.nullable(header.value);
    }
}
