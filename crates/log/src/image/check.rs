//! Reads a segment of an image block by block and checks every checksum in it.

use std::path::Path;

use bytes::Bytes;
use millstream_types::{BatchLimits, RecordBatch};

use super::CUT_SHORT;
use crate::block::BlockHeader;
use crate::index::BlockEntry;
use crate::layout::{BLOCK_HEADER_BYTES, FILE_HEADER_BYTES, FileKind};
use crate::segment::SegmentRecord;
use crate::{Error, File};

/// The first damage in a segment; everything before `at` is intact.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SegmentDamage {
    pub(super) at: u64,
    pub(super) what: &'static str,
    /// The first offset that may be lost.
    pub(super) first: u64,
    /// The offset after the records of the damaged block, or of the segment if its blocks cannot be told apart.
    pub(super) end: u64,
}

/// Returns the blocks of the segment; damage is the inner error. `own` is the specific part of its header.
pub(super) fn blocks(
    file: &dyn File,
    path: &Path,
    own: &[u8],
    segment: &SegmentRecord,
) -> Result<Result<Vec<BlockEntry>, SegmentDamage>, Error> {
    let damaged = |at, what, first, end| Ok(Err(SegmentDamage { at, what, first, end }));
    match FileKind::Segment.read_header(file, path) {
        Ok(found) if found.starts_with(own) => {}
        Ok(_) => return damaged(0, "it belongs to another partition", segment.base, segment.end),
        Err(Error::CorruptFile { what, .. }) => return damaged(0, what, segment.base, segment.end),
        Err(other) => return Err(other),
    }
    let read = |length: usize, at| -> Result<Bytes, Error> {
        let mut bytes = vec![0; length];
        let read = file.read_at(&mut bytes, at).map_err(|e| Error::io("read", path, e))?;
        bytes.truncate(read);
        Ok(bytes.into())
    };
    let (mut at, mut end) = (FILE_HEADER_BYTES as u64, segment.base);
    let mut found = Vec::new();
    while at < segment.size_bytes {
        let header = BlockHeader::parse(&read(BLOCK_HEADER_BYTES, at)?, at);
        let fits = |entry: &BlockEntry| {
            entry.first >= end && entry.end <= segment.end && entry.ends_at() <= segment.size_bytes
        };
        let Some(header) = header.filter(|header| fits(&header.entry)) else {
            return damaged(at, "a block header cannot be read", end, segment.end);
        };
        let entry = header.entry;
        let payload = read(entry.payload_bytes as usize, at + BLOCK_HEADER_BYTES as u64)?;
        if payload.len() < entry.payload_bytes as usize {
            return damaged(at, CUT_SHORT, entry.first, segment.end);
        }
        if let Err(what) = header.check(crc32c::crc32c(&payload)).and_then(|()| batches(payload)) {
            return damaged(at, what, entry.first, entry.end);
        }
        (at, end) = (entry.ends_at(), entry.end);
        found.push(entry);
    }
    if end == segment.end { Ok(Ok(found)) } else { damaged(at, CUT_SHORT, end, segment.end) }
}

/// Checks that a payload consists of batches, each with its own checksum.
fn batches(mut payload: Bytes) -> Result<(), &'static str> {
    let limits = BatchLimits { batch_max_bytes: 1 << 30, ..BatchLimits::default() };
    while !payload.is_empty() {
        let batch = RecordBatch::parse(payload.clone(), &limits).map_err(|_| "a record batch cannot be read")?;
        payload = payload.slice(batch.size_bytes()..);
    }
    Ok(())
}
