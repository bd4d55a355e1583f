//! Reads one batch of a segment, without its block where the places of the block's batches are known.
//!
//! The first read in a block reads and verifies the whole block, and keeps the places of its batches. Later ones read
//! one batch: its own CRC covers the records, and its offset and size must be those of its place. Only the leader
//! epoch is left unchecked, which no single record shows.

use std::sync::Arc;

use bytes::Bytes;
use millstream_types::{BatchError, BatchLimits, RecordBatch};

use super::{CUT_SHORT, Segment};
use crate::index::BlockEntry;
use crate::layout::BLOCK_HEADER_BYTES;
use crate::segment_cache::{BatchPlace, places_of};
use crate::{Error, File};

/// Largest batch that is read from the page cache without a thread of its own: verifying it takes some microseconds.
const CACHED_READ_MAX_BYTES: usize = 64 << 10;

/// The source of a batch's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadFrom {
    /// Memory only: the read never waits for the disk.
    PageCache,
    Disk,
}

/// The result of a search for the batch of an offset.
pub(crate) enum BatchRead {
    Found(RecordBatch),
    Missing,
    /// The page cache does not have it.
    OnDisk,
}

impl BatchRead {
    fn of(batch: Option<RecordBatch>) -> Self {
        batch.map_or(Self::Missing, Self::Found)
    }
}

impl Segment {
    /// The batch whose offsets include `offset`, verified. A record may be gone from it.
    pub(crate) fn batch_of(&self, offset: u64, limits: &BatchLimits, from: ReadFrom) -> Result<BatchRead, Error> {
        if from == ReadFrom::PageCache && !self.has_blocks() {
            return Ok(BatchRead::OnDisk);
        }
        let block = self.with_blocks(|blocks| {
            let number = blocks.partition_point(|block| block.end <= offset);
            blocks.get(number).filter(|block| block.first <= offset).copied()
        })?;
        let Some(block) = block else { return Ok(BatchRead::Missing) };
        let kept = self.cache.file(self.number).zip(self.cache.places(self.number, block.at));
        let (file, places) = match (kept, from) {
            (Some(kept), _) => kept,
            (None, ReadFrom::PageCache) => return Ok(BatchRead::OnDisk),
            (None, ReadFrom::Disk) => {
                let batches = self.read_block(&*self.open_kept()?, &block, offset, limits)?;
                self.cache.keep_places(self.number, block.at, &places_of(&batches));
                return Ok(BatchRead::of(batches.into_iter().find(|batch| contains(batch, offset))));
            }
        };
        let behind = places.partition_point(|place| place.first <= offset);
        let Some(place) = behind.checked_sub(1).map(|number| places[number]) else { return Ok(BatchRead::Missing) };
        let ends_at = places.get(behind).map_or(block.payload_bytes, |next| next.at);
        let batch = self.read_batch(&*file, &block, place, (ends_at - place.at) as usize, limits, from)?;
        Ok(batch.map_or(BatchRead::OnDisk, |batch| BatchRead::of(Some(batch).filter(|batch| contains(batch, offset)))))
    }

    /// `None` if the bytes are to come from the page cache, and are not all there.
    fn read_batch(
        &self,
        file: &dyn File,
        block: &BlockEntry,
        place: BatchPlace,
        size_bytes: usize,
        limits: &BatchLimits,
        from: ReadFrom,
    ) -> Result<Option<RecordBatch>, Error> {
        let at = block.at + BLOCK_HEADER_BYTES as u64 + u64::from(place.at);
        let refuse = |what| self.corrupt(place.first, at, what);
        let unread = |e| Error::io("read", &self.path, e);
        let mut bytes = vec![0; size_bytes];
        match from {
            ReadFrom::PageCache if size_bytes > CACHED_READ_MAX_BYTES => return Ok(None),
            ReadFrom::PageCache if !file.read_cached_at(&mut bytes, at).map_err(unread)? => return Ok(None),
            ReadFrom::Disk if file.read_at(&mut bytes, at).map_err(unread)? < size_bytes => {
                return Err(refuse(CUT_SHORT));
            }
            _ => {}
        }
        match RecordBatch::parse(Bytes::from(bytes), limits) {
            Ok(batch) if batch.base_offset().0 == place.first && batch.size_bytes() == size_bytes => Ok(Some(batch)),
            Ok(_) => Err(refuse("a batch is not the one that its block names")),
            Err(BatchError::Checksum { .. }) => Err(refuse("a batch's checksum does not match")),
            Err(_) => Err(refuse("a batch header cannot be read")),
        }
    }

    /// The file of the segment, which stays open for later reads.
    fn open_kept(&self) -> Result<Arc<dyn File>, Error> {
        if let Some(file) = self.cache.file(self.number) {
            return Ok(file);
        }
        let file = self.open_checked()?;
        self.cache.keep_file(self.number, &file, &self.path);
        Ok(file)
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        self.cache.close(self.number);
    }
}

fn contains(batch: &RecordBatch, offset: u64) -> bool {
    (batch.base_offset().0..batch.next_offset().0).contains(&offset)
}
