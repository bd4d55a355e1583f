//! A block of a segment: whole batches behind a header with checksums over itself and over the batches.
//! For the layout see `segment.rs`.

use bytes::Bytes;
use millstream_types::{BatchLimits, RecordBatch};

use crate::index::BlockEntry;
use crate::layout::BLOCK_HEADER_BYTES;
use crate::wire::{WireReader, WireWriter};

/// Target size of a block; a larger batch becomes a block of its own.
pub(crate) const BLOCK_BYTES: usize = 256 << 10;
/// Size of a block of the target size with its header.
pub(crate) const BLOCK_MAX_BYTES: usize = BLOCK_HEADER_BYTES + BLOCK_BYTES;
const BLOCK_MAGIC: u32 = u32::from_le_bytes(*b"MSBL");
/// Header bytes that the header's checksum covers.
const CHECKED_BYTES: usize = 60;

/// The header in front of a block's batches.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BlockHeader {
    pub(crate) entry: BlockEntry,
    /// Append time of the last batch, ms since 1970. In a compacted segment it is the time of the first compaction.
    pub(crate) appended_ms: i64,
    pub(crate) payload_crc: u32,
}

impl BlockHeader {
    /// Encodes the header of a block of that many batches.
    pub(crate) fn encode(&self, batches: usize) -> [u8; BLOCK_HEADER_BYTES] {
        let mut bytes = Vec::with_capacity(BLOCK_HEADER_BYTES);
        bytes.put_u32(BLOCK_MAGIC);
        bytes.put_u32(self.entry.payload_bytes);
        bytes.put_u64(self.entry.first);
        bytes.put_u64(self.entry.end);
        bytes.put_i64(self.entry.max_timestamp_ms);
        bytes.put_i64(self.appended_ms);
        bytes.put_u32(self.payload_crc);
        bytes.put_u32(u32::try_from(batches).unwrap_or(u32::MAX));
        bytes.resize(CHECKED_BYTES, 0);
        let crc = crc32c::crc32c(&bytes);
        bytes.put_u32(crc);
        let mut header = [0; BLOCK_HEADER_BYTES];
        header.copy_from_slice(&bytes);
        header
    }

    /// Decodes the header at the start of `bytes`; `at` is its position in the file. `None` if it is damaged.
    pub(crate) fn parse(bytes: &[u8], at: u64) -> Option<Self> {
        let header = bytes.get(..BLOCK_HEADER_BYTES)?;
        if crc32c::crc32c(&header[..CHECKED_BYTES]).to_le_bytes() != header[CHECKED_BYTES..] {
            return None;
        }
        let mut reader = WireReader::new(header);
        let (magic, payload_bytes) = (reader.u32()?, reader.u32()?);
        let (first, end, max_timestamp_ms, appended_ms) = (reader.u64()?, reader.u64()?, reader.i64()?, reader.i64()?);
        let payload_crc = reader.u32()?;
        let entry = BlockEntry { first, end, max_timestamp_ms, at, payload_bytes };
        (magic == BLOCK_MAGIC).then_some(Self { entry, appended_ms, payload_crc })
    }

    /// Decodes the header of the block that `entry` names. The error says what is wrong, for the operator.
    pub(crate) fn of(entry: &BlockEntry, bytes: &[u8]) -> Result<Self, &'static str> {
        match Self::parse(bytes, entry.at) {
            Some(header) if header.entry == *entry => Ok(header),
            Some(_) => Err("a block is not the one that its index names"),
            None => Err("a block header cannot be read"),
        }
    }

    /// Compares the checksum of the batches. The error says what is wrong, for the operator.
    pub(crate) fn check(&self, payload_crc: u32) -> Result<(), &'static str> {
        if payload_crc == self.payload_crc { Ok(()) } else { Err("a block's checksum does not match") }
    }
}

/// Splits a payload whose checksum has been verified into its batches.
pub(crate) fn split_batches(payload: Bytes, limits: &BatchLimits) -> Option<Vec<RecordBatch>> {
    let mut rest = payload;
    let mut batches = Vec::new();
    while !rest.is_empty() {
        let batch = RecordBatch::parse_trusted(rest.clone(), limits).ok()?;
        rest = rest.slice(batch.size_bytes()..);
        batches.push(batch);
    }
    Some(batches)
}
