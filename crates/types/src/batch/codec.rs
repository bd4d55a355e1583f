//! Compresses and inflates the records of a batch, with the codecs that Kafka's clients have.

use std::fmt;
use std::io::{Read, Write};

use bytes::{Bytes, BytesMut};
use lz4_flex::frame::{BlockMode, BlockSize, FrameDecoder, FrameEncoder, FrameInfo};

use super::{BATCH_HEADER_BYTES, BatchError, BatchLimits, header};
use crate::Compression;

/// Zstandard's own default.
const ZSTD_LEVEL: i32 = 3;

/// The smallest upper bound for a Zstandard window (2^23 = 8 MiB) that the format asks every decoder to support.
const ZSTD_WINDOW_LOG_MIN: u32 = 23;

/// A builder's compressors, kept from batch to batch; each is made when it is first asked for.
#[derive(Default)]
pub(super) struct Compressors {
    lz4: Option<Box<FrameEncoder<Vec<u8>>>>,
    zstd: Option<zstd::bulk::Compressor<'static>>,
    zstd_out: Vec<u8>,
}

impl Compressors {
    /// The compressed `records`, if the codec makes them smaller.
    pub(super) fn compress(&mut self, records: &[u8], codec: Compression) -> Option<&[u8]> {
        let compressed = match codec {
            Compression::None => return None,
            Compression::Lz4 => self.lz4(records)?,
            Compression::Zstd => self.zstd(records)?,
        };
        (compressed.len() < records.len()).then_some(compressed)
    }

    fn lz4(&mut self, records: &[u8]) -> Option<&[u8]> {
        let encoder = self.lz4.get_or_insert_with(|| {
            // Independent blocks are the only ones that Kafka's Java client reads; 64 KiB is what it writes.
            let frame = FrameInfo::new().block_mode(BlockMode::Independent).block_size(BlockSize::Max64KB);
            Box::new(FrameEncoder::with_frame_info(frame, Vec::new()))
        });
        encoder.get_mut().clear();
        encoder.write_all(records).ok()?;
        encoder.try_finish().ok()?;
        Some(encoder.get_ref())
    }

    fn zstd(&mut self, records: &[u8]) -> Option<&[u8]> {
        let compressor = match &mut self.zstd {
            Some(compressor) => compressor,
            none => none.insert(zstd::bulk::Compressor::new(ZSTD_LEVEL).ok()?),
        };
        self.zstd_out.clear();
        self.zstd_out.reserve(zstd::zstd_safe::compress_bound(records.len()));
        compressor.compress_to_buffer(records, &mut self.zstd_out).ok()?;
        Some(&self.zstd_out)
    }
}

impl fmt::Debug for Compressors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compressors").finish_non_exhaustive()
    }
}

/// The bytes of `batch` with its records inflated, header and CRC to match.
pub(super) fn inflate(batch: &[u8], codec: Compression, limits: &BatchLimits) -> Result<Bytes, BatchError> {
    let failed = |error: std::io::Error| BatchError::Inflate { codec, reason: error.to_string().into() };
    let (header, records) = batch.split_at(BATCH_HEADER_BYTES);
    let mut inflated = header.to_vec();
    match codec {
        Compression::None => inflated.extend_from_slice(records),
        Compression::Lz4 => read_bounded(FrameDecoder::new(records), &mut inflated, limits, failed)?,
        Compression::Zstd => {
            let mut decoder = zstd::stream::read::Decoder::with_buffer(records).map_err(failed)?;
            decoder.window_log_max(window_log_max(limits)).map_err(failed)?;
            read_bounded(decoder, &mut inflated, limits, failed)?;
        }
    }
    header::check_record_count(&inflated, inflated.len() - BATCH_HEADER_BYTES)?;
    header::mark_inflated(&mut inflated);
    Ok(Bytes::from(inflated))
}

/// Appends what `decoder` yields; the buffer grows with it, never ahead of it.
fn read_bounded(
    decoder: impl Read,
    inflated: &mut Vec<u8>,
    limits: &BatchLimits,
    failed: impl Fn(std::io::Error) -> BatchError,
) -> Result<(), BatchError> {
    let limit_bytes = limits.inflated_max_bytes;
    let room = limit_bytes.saturating_sub(inflated.len()) as u64;
    decoder.take(room + 1).read_to_end(inflated).map_err(failed)?;
    if inflated.len() > limit_bytes {
        return Err(BatchError::InflatedTooLarge { limit_bytes });
    }
    Ok(())
}

fn window_log_max(limits: &BatchLimits) -> u32 {
    limits.inflated_max_bytes.next_power_of_two().trailing_zeros().clamp(ZSTD_WINDOW_LOG_MIN, 30)
}

/// A batch's bytes from its parts.
pub(super) fn joined(header: &[u8], records: &[u8]) -> BytesMut {
    let mut batch = BytesMut::with_capacity(header.len() + records.len());
    batch.extend_from_slice(header);
    batch.extend_from_slice(records);
    batch
}
