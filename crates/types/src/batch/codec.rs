//! Compresses and inflates the records of a batch with the codecs of Kafka's clients.

use std::cell::RefCell;
use std::fmt;
use std::io::{Cursor, Read, Write};

use bytes::{Bytes, BytesMut};
use flate2::bufread::MultiGzDecoder;
use flate2::write::GzEncoder;
use lz4_flex::frame::{BlockMode, BlockSize, FrameDecoder, FrameEncoder, FrameInfo};
use zstd::zstd_safe;

use super::{BATCH_HEADER_BYTES, BatchError, BatchLimits, header, snappy};
use crate::Compression;

/// The default level of Zstandard.
const ZSTD_LEVEL: i32 = 3;

/// The smallest upper bound for a Zstandard window (2^23 = 8 MiB) that the format asks every decoder to support.
const ZSTD_WINDOW_LOG_MIN: u32 = 23;

thread_local! {
    /// Kept for each thread, because creating a context takes longer than inflating a small batch.
    static ZSTD: RefCell<Option<zstd::bulk::Decompressor<'static>>> = const { RefCell::new(None) };
}

/// The compressors of a builder, kept from batch to batch and created on first use.
#[derive(Default)]
pub(super) struct Compressors {
    lz4: Option<Box<FrameEncoder<Vec<u8>>>>,
    zstd: Option<zstd::bulk::Compressor<'static>>,
    /// The last output of the other codecs.
    out: Vec<u8>,
}

impl Compressors {
    /// The compressed `records`, if the codec makes them smaller.
    pub(super) fn compress(&mut self, records: &[u8], codec: Compression) -> Option<&[u8]> {
        let compressed = match codec {
            Compression::None => return None,
            Compression::Gzip => self.gzip(records)?,
            Compression::Snappy => {
                snappy::compress(records, &mut self.out)?;
                &self.out
            }
            Compression::Lz4 => self.lz4(records)?,
            Compression::Zstd => self.zstd(records)?,
        };
        (compressed.len() < records.len()).then_some(compressed)
    }

    fn gzip(&mut self, records: &[u8]) -> Option<&[u8]> {
        self.out.clear();
        let mut encoder = GzEncoder::new(&mut self.out, flate2::Compression::default());
        encoder.write_all(records).ok()?;
        encoder.finish().ok()?;
        Some(&self.out)
    }

    fn lz4(&mut self, records: &[u8]) -> Option<&[u8]> {
        let encoder = self.lz4.get_or_insert_with(|| {
            // Kafka's Java client reads only independent blocks, and writes blocks of 64 KiB.
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
        self.out.clear();
        self.out.reserve(zstd_safe::compress_bound(records.len()));
        compressor.compress_to_buffer(records, &mut self.out).ok()?;
        Some(&self.out)
    }
}

impl fmt::Debug for Compressors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compressors").finish_non_exhaustive()
    }
}

/// The bytes of `batch` with inflated records and a matching header and CRC.
pub(super) fn inflate(batch: &[u8], codec: Compression, limits: &BatchLimits) -> Result<Bytes, BatchError> {
    let failed = |error: std::io::Error| BatchError::Inflate { codec, reason: error.to_string().into() };
    let (header, records) = batch.split_at(BATCH_HEADER_BYTES);
    let mut inflated = header.to_vec();
    match codec {
        Compression::None => inflated.extend_from_slice(records),
        Compression::Gzip => read_bounded(MultiGzDecoder::new(records), &mut inflated, limits, failed)?,
        Compression::Snappy => snappy::inflate(records, &mut inflated, limits, failed)?,
        Compression::Lz4 => read_bounded(FrameDecoder::new(records), &mut inflated, limits, failed)?,
        Compression::Zstd => match stated_size(records) {
            Some(size_bytes) => inflated = inflate_stated(records, size_bytes, inflated, limits, failed)?,
            None => {
                let mut decoder = zstd::stream::read::Decoder::with_buffer(records).map_err(failed)?;
                decoder.window_log_max(window_log_max(limits)).map_err(failed)?;
                read_bounded(decoder, &mut inflated, limits, failed)?;
            }
        },
    }
    header::check_record_count(&inflated, inflated.len() - BATCH_HEADER_BYTES)?;
    header::mark_inflated(&mut inflated);
    Ok(Bytes::from(inflated))
}

/// The inflated size that a single Zstandard frame states. Compressors that have all the input state it, as ours
/// does; streaming ones do not.
fn stated_size(records: &[u8]) -> Option<u64> {
    let is_single = zstd_safe::find_frame_compressed_size(records).is_ok_and(|bytes| bytes == records.len());
    is_single.then(|| zstd_safe::get_frame_content_size(records).ok().flatten()).flatten()
}

/// Inflates a frame of known size without a streaming window: the thread's context writes directly into the result.
fn inflate_stated(
    records: &[u8],
    size_bytes: u64,
    mut inflated: Vec<u8>,
    limits: &BatchLimits,
    failed: impl Fn(std::io::Error) -> BatchError,
) -> Result<Vec<u8>, BatchError> {
    let limit_bytes = limits.inflated_max_bytes;
    let room = limit_bytes.saturating_sub(inflated.len());
    let size_bytes = usize::try_from(size_bytes).ok().filter(|&size_bytes| size_bytes <= room);
    inflated.reserve_exact(size_bytes.ok_or(BatchError::InflatedTooLarge { limit_bytes })?);
    let mut behind_header = Cursor::new(inflated);
    behind_header.set_position(BATCH_HEADER_BYTES as u64);
    ZSTD.with_borrow_mut(|decompressor| {
        let decompressor = match decompressor {
            Some(decompressor) => decompressor,
            none => none.insert(zstd::bulk::Decompressor::new()?),
        };
        decompressor.decompress_to_buffer(records, &mut behind_header)
    })
    .map_err(failed)?;
    Ok(behind_header.into_inner())
}

/// Appends the output of `decoder`; the buffer grows with the output, never ahead of it.
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

/// Joins the parts of a batch.
pub(super) fn joined(header: &[u8], records: &[u8]) -> BytesMut {
    let mut batch = BytesMut::with_capacity(header.len() + records.len());
    batch.extend_from_slice(header);
    batch.extend_from_slice(records);
    batch
}
