//! Checks the blocks of one segment.

use std::ops::Range;

use crate::block::BlockHeader;
use crate::layout::{BLOCK_HEADER_BYTES, FILE_HEADER_BYTES};
use crate::segment::SegmentRecord;

/// A damaged part of a segment.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct DamagedRange {
    pub(super) at: u64,
    pub(super) what: &'static str,
    /// The offsets of the lost records; empty if only a file header is damaged.
    pub(super) offsets: Range<u64>,
}

/// The contents of a segment file.
#[derive(Debug, Default)]
pub(super) struct SegmentBlocks {
    /// Ranges of intact blocks, in order.
    pub(super) good: Vec<Range<usize>>,
    /// The offset after the last intact block.
    pub(super) end: Option<u64>,
    pub(super) holes: Vec<DamagedRange>,
}

/// Checks `bytes`, the file of the segment `record`.
pub(super) fn look(bytes: &[u8], record: &SegmentRecord) -> SegmentBlocks {
    let mut blocks = SegmentBlocks::default();
    let size = usize::try_from(record.size_bytes).unwrap_or(usize::MAX);
    let bytes = &bytes[..bytes.len().min(size)];
    let (mut at, mut expected) = (FILE_HEADER_BYTES, record.base);
    while at < bytes.len() {
        let Some(header) = header_at(bytes, at, expected, record.end) else {
            let next = (at + 1..bytes.len()).find_map(|at| Some((at, header_at(bytes, at, expected, record.end)?)));
            let (next_at, next_first) = next.map_or((bytes.len(), record.end), |(at, next)| (at, next.entry.first));
            let what = "a block header cannot be read";
            blocks.holes.push(DamagedRange { at: at as u64, what, offsets: expected..next_first });
            (at, expected) = (next_at, next_first);
            continue;
        };
        let block = at..at + header.entry.size_bytes();
        match header.check(crc32c::crc32c(&bytes[at + BLOCK_HEADER_BYTES..block.end])) {
            Ok(()) => {
                blocks.good.push(block.clone());
                blocks.end = Some(header.entry.end);
            }
            Err(what) => {
                let offsets = header.entry.first..header.entry.end;
                blocks.holes.push(DamagedRange { at: at as u64, what, offsets });
            }
        }
        (at, expected) = (block.end, header.entry.end);
    }
    if expected < record.end {
        let (at, what) = (bytes.len() as u64, "it is shorter than was synced");
        blocks.holes.push(DamagedRange { at, what, offsets: expected..record.end });
    }
    blocks
}

/// Decodes the header of a complete block at `at` with offsets from `expected` to `end`.
fn header_at(bytes: &[u8], at: usize, expected: u64, end: u64) -> Option<BlockHeader> {
    let header = BlockHeader::parse(&bytes[at..], at as u64)?;
    let is_whole = at + header.entry.size_bytes() <= bytes.len();
    (is_whole && header.entry.first >= expected && header.entry.end <= end).then_some(header)
}
