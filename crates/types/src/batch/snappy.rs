//! Snappy as Kafka's clients frame it: either blocks with their lengths behind a header (the Java client, and
//! Millstream), or one bare block (librdkafka).

use std::io;

use snap::raw::{Decoder, Encoder, decompress_len, max_compress_len};

use super::{BatchError, BatchLimits};

/// Magic, version, and the oldest version that can read it.
const HEADER: [u8; 16] = *b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01";
const MAGIC_BYTES: usize = 8;
/// Uncompressed bytes per block, as in the Java client.
const BLOCK_BYTES: usize = 32 << 10;
const LENGTH_BYTES: usize = 4;
/// Three bytes of a block expand to at most 64.
const EXPANSION_MAX: usize = 22;

/// Writes the compressed `records` into `out`; `None` if they cannot be compressed.
pub(super) fn compress(records: &[u8], out: &mut Vec<u8>) -> Option<()> {
    out.clear();
    out.extend_from_slice(&HEADER);
    let mut encoder = Encoder::new();
    for block in records.chunks(BLOCK_BYTES) {
        let at = out.len() + LENGTH_BYTES;
        out.resize(at + max_compress_len(block.len()), 0);
        let size = encoder.compress(block, &mut out[at..]).ok()?;
        out[at - LENGTH_BYTES..at].copy_from_slice(&u32::try_from(size).ok()?.to_be_bytes());
        out.truncate(at + size);
    }
    Some(())
}

/// Appends the inflated `records` to `inflated`.
pub(super) fn inflate(
    records: &[u8],
    inflated: &mut Vec<u8>,
    limits: &BatchLimits,
    failed: impl Fn(io::Error) -> BatchError,
) -> Result<(), BatchError> {
    if !records.starts_with(&HEADER[..MAGIC_BYTES]) {
        return inflate_block(records, inflated, limits, &failed);
    }
    let cut = || failed(io::ErrorKind::UnexpectedEof.into());
    let mut rest = records.get(HEADER.len()..).ok_or_else(cut)?;
    while let Some((length, blocks)) = rest.split_first_chunk() {
        let length = u32::from_be_bytes(*length) as usize;
        let (block, behind) = blocks.split_at_checked(length).ok_or_else(cut)?;
        inflate_block(block, inflated, limits, &failed)?;
        rest = behind;
    }
    if rest.is_empty() { Ok(()) } else { Err(cut()) }
}

fn inflate_block(
    block: &[u8],
    inflated: &mut Vec<u8>,
    limits: &BatchLimits,
    failed: &impl Fn(io::Error) -> BatchError,
) -> Result<(), BatchError> {
    let size_bytes = decompress_len(block).map_err(|e| failed(e.into()))?;
    let limit_bytes = limits.inflated_max_bytes;
    if size_bytes > limit_bytes.saturating_sub(inflated.len()) {
        return Err(BatchError::InflatedTooLarge { limit_bytes });
    }
    if size_bytes > block.len().saturating_mul(EXPANSION_MAX) {
        return Err(failed(io::Error::other("a block claims more than it can hold")));
    }
    let at = inflated.len();
    inflated.resize(at + size_bytes, 0);
    Decoder::new().decompress(block, &mut inflated[at..]).map_err(|e| failed(e.into()))?;
    Ok(())
}
