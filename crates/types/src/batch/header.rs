//! The fixed header of a batch: positions, rules and encoding of its fields.

use super::error::BatchError;
use super::limits::{BatchLimits, MIN_RECORD_BYTES};
use crate::{Compression, Epoch, Offset};

/// Size of a batch's header, hence of an empty batch.
pub const BATCH_HEADER_BYTES: usize = 61;

/// Bytes that the length field does not count.
const LENGTH_COUNTS_FROM: usize = 12;
const MAGIC: u8 = 2;

const CODEC_BITS: u16 = 0b111;
pub(super) const APPEND_TIME: u16 = 1 << 3;
pub(super) const TRANSACTIONAL: u16 = 1 << 4;
pub(super) const CONTROL: u16 = 1 << 5;

/// Positions of the fields. All are big-endian.
pub(super) mod at {
    pub(crate) const BASE_OFFSET: usize = 0;
    pub(crate) const LENGTH: usize = 8;
    pub(crate) const LEADER_EPOCH: usize = 12;
    pub(crate) const MAGIC: usize = 16;
    pub(crate) const CRC: usize = 17;
    pub(crate) const ATTRIBUTES: usize = 21;
    pub(crate) const LAST_OFFSET_DELTA: usize = 23;
    pub(crate) const BASE_TIMESTAMP: usize = 27;
    pub(crate) const MAX_TIMESTAMP: usize = 35;
    pub(crate) const PRODUCER_ID: usize = 43;
    pub(crate) const PRODUCER_EPOCH: usize = 51;
    pub(crate) const BASE_SEQUENCE: usize = 53;
    pub(crate) const RECORD_COUNT: usize = 57;
}

/// The idempotent producer of a batch, with its sequence number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Producer {
    /// Id of the producer, never negative.
    pub id: i64,
    /// Epoch of the producer: a restart under the same id gets the next one.
    pub epoch: i16,
    /// The sequence number of the batch's first record in its partition.
    pub base_sequence: i32,
}

impl Producer {
    /// The values in a batch without an idempotent producer.
    const NONE: Self = Self { id: -1, epoch: -1, base_sequence: -1 };

    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let id = i64_at(bytes, at::PRODUCER_ID);
        (id >= 0).then(|| Self {
            id,
            epoch: u16_at(bytes, at::PRODUCER_EPOCH).cast_signed(),
            base_sequence: i32_at(bytes, at::BASE_SEQUENCE),
        })
    }
}

/// The header fields that a builder sets when it seals a batch.
#[derive(Debug)]
pub(super) struct Seal {
    pub(super) base_offset: Offset,
    pub(super) epoch: Epoch,
    pub(super) compression: Compression,
    pub(super) last_offset_delta: u32,
    pub(super) base_timestamp_ms: i64,
    pub(super) max_timestamp_ms: i64,
    pub(super) producer: Option<Producer>,
    /// A set of the bits [`APPEND_TIME`], [`TRANSACTIONAL`] and [`CONTROL`].
    pub(super) flags: u16,
    pub(super) record_count: u32,
}

impl Seal {
    /// Writes the header of `batch`, whose records are in place.
    pub(super) fn write(&self, batch: &mut [u8]) {
        let producer = self.producer.unwrap_or(Producer::NONE);
        batch[at::MAGIC] = MAGIC;
        put(batch, at::ATTRIBUTES, &(u16::from(self.compression.number()) | self.flags).to_be_bytes());
        put(batch, at::LAST_OFFSET_DELTA, &self.last_offset_delta.to_be_bytes());
        put(batch, at::BASE_TIMESTAMP, &self.base_timestamp_ms.to_be_bytes());
        put(batch, at::MAX_TIMESTAMP, &self.max_timestamp_ms.to_be_bytes());
        put_producer(batch, producer);
        put(batch, at::RECORD_COUNT, &self.record_count.to_be_bytes());
        stamp(batch, self.base_offset, self.epoch);
        put_length_and_crc(batch);
    }
}

/// Marks `batch`, whose records are in place, as uncompressed.
pub(super) fn mark_inflated(batch: &mut [u8]) {
    let attributes = u16_at(batch, at::ATTRIBUTES) & !CODEC_BITS;
    put(batch, at::ATTRIBUTES, &attributes.to_be_bytes());
    put_length_and_crc(batch);
}

/// Marks `batch`, which has only a header, as a batch without records and without a producer.
pub(super) fn mark_empty(batch: &mut [u8]) {
    put(batch, at::ATTRIBUTES, &CONTROL.to_be_bytes());
    put_producer(batch, Producer::NONE);
    put(batch, at::RECORD_COUNT, &0_u32.to_be_bytes());
    put_length_and_crc(batch);
}

/// Sets the append time of all records of `batch`, which are in place.
pub(super) fn mark_append_time(batch: &mut [u8], at_ms: i64) {
    let attributes = u16_at(batch, at::ATTRIBUTES) | APPEND_TIME;
    put(batch, at::ATTRIBUTES, &attributes.to_be_bytes());
    put(batch, at::MAX_TIMESTAMP, &at_ms.to_be_bytes());
    put_length_and_crc(batch);
}

/// Gives the records of `batch`, which are in place, their own times again.
pub(super) fn mark_own_times(batch: &mut [u8]) {
    let attributes = u16_at(batch, at::ATTRIBUTES) & !APPEND_TIME;
    put(batch, at::ATTRIBUTES, &attributes.to_be_bytes());
    put_length_and_crc(batch);
}

/// Sets the producer of `batch`, whose records are in place.
pub(super) fn mark_producer(batch: &mut [u8], producer: Producer) {
    put_producer(batch, producer);
    put_length_and_crc(batch);
}

fn put_producer(batch: &mut [u8], producer: Producer) {
    put(batch, at::PRODUCER_ID, &producer.id.to_be_bytes());
    put(batch, at::PRODUCER_EPOCH, &producer.epoch.to_be_bytes());
    put(batch, at::BASE_SEQUENCE, &producer.base_sequence.to_be_bytes());
}

/// Sets the offset and epoch of `batch`, which the CRC does not cover.
pub(super) fn stamp(batch: &mut [u8], base_offset: Offset, epoch: Epoch) {
    let last_offset = base_offset.0.checked_add(u64::from(u32_at(batch, at::LAST_OFFSET_DELTA)));
    assert!(last_offset.is_some_and(|last| last < i64::MAX as u64), "offsets fit into 63 bits");
    assert!(epoch.0 <= i32::MAX as u32, "epochs fit into 31 bits");
    put(batch, at::BASE_OFFSET, &base_offset.0.to_be_bytes());
    put(batch, at::LEADER_EPOCH, &epoch.0.to_be_bytes());
}

fn put_length_and_crc(batch: &mut [u8]) {
    let length = batch.len() - LENGTH_COUNTS_FROM;
    assert!(length <= i32::MAX as usize, "a batch of {} bytes passes 2 GiB", batch.len());
    put(batch, at::LENGTH, &(length as u32).to_be_bytes());
    let crc = crc_of(batch);
    put(batch, at::CRC, &crc.to_be_bytes());
}

/// Computes the CRC of `batch`.
pub(super) fn crc_of(batch: &[u8]) -> u32 {
    crc32c::crc32c(&batch[at::ATTRIBUTES..])
}

/// Checks the header of the batch at the start of `bytes` and returns the batch's size.
pub(super) fn check(bytes: &[u8], limits: &BatchLimits) -> Result<usize, BatchError> {
    let have = bytes.len();
    if have < BATCH_HEADER_BYTES {
        return Err(BatchError::Truncated { need: BATCH_HEADER_BYTES, have });
    }
    // Check the magic first: an older format has other fields at the other positions.
    if bytes[at::MAGIC] != MAGIC {
        return Err(BatchError::Magic { magic: bytes[at::MAGIC].cast_signed() });
    }
    let size_bytes = check_length(bytes, limits)?;
    if have < size_bytes {
        return Err(BatchError::Truncated { need: size_bytes, have });
    }
    let codec = codec_of(u16_at(bytes, at::ATTRIBUTES))?;
    check_offsets(bytes)?;
    if codec == Compression::None {
        check_record_count(bytes, size_bytes - BATCH_HEADER_BYTES)?;
    }
    Ok(size_bytes)
}

fn check_length(bytes: &[u8], limits: &BatchLimits) -> Result<usize, BatchError> {
    let length = i32_at(bytes, at::LENGTH);
    let size_bytes = usize::try_from(length).unwrap_or(0) + LENGTH_COUNTS_FROM;
    if size_bytes < BATCH_HEADER_BYTES {
        return Err(refuse("length", i64::from(length), "at least 49, the rest of the header"));
    }
    if size_bytes > limits.batch_max_bytes {
        return Err(BatchError::TooLarge { size_bytes, limit_bytes: limits.batch_max_bytes });
    }
    Ok(size_bytes)
}

fn check_offsets(bytes: &[u8]) -> Result<(), BatchError> {
    let base = i64_at(bytes, at::BASE_OFFSET);
    if base < 0 {
        return Err(refuse("base offset", base, "zero or more"));
    }
    let last_delta = i32_at(bytes, at::LAST_OFFSET_DELTA);
    if last_delta < 0 {
        return Err(refuse("last offset delta", i64::from(last_delta), "zero or more"));
    }
    // One below the largest, so that the offset after the last one is valid too.
    if base.checked_add(i64::from(last_delta)).is_none_or(|last| last == i64::MAX) {
        return Err(refuse("base offset", base, "such that all offsets are below 2^63-1"));
    }
    let count = i32_at(bytes, at::RECORD_COUNT);
    if count < 0 {
        return Err(refuse("record count", i64::from(count), "zero or more"));
    }
    if i64::from(count) > i64::from(last_delta) + 1 {
        return Err(refuse("record count", i64::from(count), "at most one more than the last offset delta"));
    }
    Ok(())
}

/// Checks that `body_bytes` of inflated records can hold the claimed number of records.
pub(super) fn check_record_count(bytes: &[u8], body_bytes: usize) -> Result<(), BatchError> {
    let count = u32_at(bytes, at::RECORD_COUNT);
    if count as usize > body_bytes / MIN_RECORD_BYTES {
        return Err(BatchError::RecordCount { count, body_bytes });
    }
    Ok(())
}

/// The codec in a batch's attributes.
pub(super) fn codec_of(attributes: u16) -> Result<Compression, BatchError> {
    let codec = attributes & CODEC_BITS;
    Compression::from_number(codec as u8).ok_or(BatchError::UnknownCodec { codec })
}

fn refuse(field: &'static str, value: i64, rule: &'static str) -> BatchError {
    BatchError::Header { field, value, rule }
}

fn put<const N: usize>(batch: &mut [u8], at: usize, value: &[u8; N]) {
    batch[at..at + N].copy_from_slice(value);
}

#[inline]
fn array_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(&bytes[at..at + N]);
    array
}

#[inline]
pub(super) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(array_at(bytes, at))
}

#[inline]
pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(array_at(bytes, at))
}

#[inline]
pub(super) fn i32_at(bytes: &[u8], at: usize) -> i32 {
    i32::from_be_bytes(array_at(bytes, at))
}

#[inline]
pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(array_at(bytes, at))
}

#[inline]
pub(super) fn i64_at(bytes: &[u8], at: usize) -> i64 {
    i64::from_be_bytes(array_at(bytes, at))
}
