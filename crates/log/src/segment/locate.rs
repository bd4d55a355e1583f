//! Finds the places of whole blocks in a segment's file, to send them without a copy.

use std::time::Instant;

use super::{CUT_SHORT, Segment};
use crate::block::BlockHeader;
use crate::extent::Extent;
use crate::index::BlockEntry;
use crate::layout::BLOCK_HEADER_BYTES;
use crate::{Error, File};

/// Blocks are verified in pieces of this size: small enough to be in the processor's cache
/// when the checksum is computed.
const CHECK_BYTES: usize = 64 << 10;
/// Smaller blocks are read instead of sent from the file.
const LOCATED_MIN_BYTES: u32 = 16 << 10;

impl Segment {
    /// Places of the blocks from `from` to `limit` within `max_bytes`, and the offset after them. `None` if
    /// the next block does not fit these bounds, if it is small (a copy is cheaper than a send of its own), or
    /// if files have no descriptor. Ends before a damaged block.
    pub(crate) fn locate(&self, from: u64, limit: u64, max_bytes: usize) -> Result<Option<(Vec<Extent>, u64)>, Error> {
        let (begin, blocks) = self.with_blocks(|blocks| {
            let begin = blocks.partition_point(|block| block.end <= from);
            let mut payload_bytes = 0;
            let fitting = blocks[begin..].iter().take_while(|block| {
                payload_bytes += block.payload_bytes as usize;
                let is_worth_it = block.payload_bytes >= LOCATED_MIN_BYTES;
                is_worth_it && block.first >= from && block.end <= limit && payload_bytes <= max_bytes
            });
            (begin, fitting.copied().collect::<Vec<_>>())
        })?;
        if blocks.is_empty() {
            return Ok(None);
        }
        let file = self.open_checked()?;
        if file.descriptor().is_none() {
            return Ok(None);
        }
        let (now, mut scratch) = (Instant::now(), Vec::new());
        let (mut extents, mut end) = (Vec::with_capacity(blocks.len()), from);
        for (number, block) in (begin..).zip(&blocks) {
            if !self.checksum_cache.holds(number, now) {
                scratch.resize(CHECK_BYTES, 0);
                match self.check_block(&*file, block, &mut scratch) {
                    Ok(()) => {}
                    Err(failure) if extents.is_empty() => return Err(failure),
                    Err(_) => break,
                }
                self.checksum_cache.note(number, now);
            }
            let (at, size_bytes) = (block.at + BLOCK_HEADER_BYTES as u64, block.payload_bytes as usize);
            extents.push(Extent::new(file.clone(), at, size_bytes));
            end = block.end;
        }
        Ok(Some((extents, end)))
    }

    /// Verifies a block in the file, which also brings it into the page cache.
    fn check_block(&self, file: &dyn File, block: &BlockEntry, scratch: &mut [u8]) -> Result<(), Error> {
        let refuse = |what| self.corrupt(block.first, block.at, what);
        let (mut header, mut crc, mut checked_bytes) = (None, 0, 0);
        while checked_bytes < block.size_bytes() {
            let piece_bytes = scratch.len().min(block.size_bytes() - checked_bytes);
            let mut piece = &mut scratch[..piece_bytes];
            let read = file.read_at(piece, block.at + checked_bytes as u64);
            if read.map_err(|e| Error::io("read", &self.path, e))? < piece_bytes {
                return Err(refuse(CUT_SHORT));
            }
            if header.is_none() {
                header = Some(BlockHeader::of(block, piece).map_err(refuse)?);
                piece = &mut piece[BLOCK_HEADER_BYTES..];
            }
            crc = crc32c::crc32c_append(crc, piece);
            checked_bytes += piece_bytes;
        }
        header.map_or(Ok(()), |header| header.check(crc).map_err(refuse))
    }
}
