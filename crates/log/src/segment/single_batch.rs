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

impl Segment {
    /// The batch whose offsets include `offset`, verified; `None` if there is none. A record may be gone from it.
    pub(crate) fn batch_of(&self, offset: u64, limits: &BatchLimits) -> Result<Option<RecordBatch>, Error> {
        let block = self.with_blocks(|blocks| {
            let number = blocks.partition_point(|block| block.end <= offset);
            blocks.get(number).filter(|block| block.first <= offset).copied()
        })?;
        let Some(block) = block else { return Ok(None) };
        let file = self.open_kept()?;
        let Some(places) = self.cache.places(self.number, block.at) else {
            let batches = self.read_block(&*file, &block, offset, limits)?;
            self.cache.keep_places(self.number, block.at, &places_of(&batches));
            return Ok(batches.into_iter().find(|batch| contains(batch, offset)));
        };
        let behind = places.partition_point(|place| place.first <= offset);
        let Some(place) = behind.checked_sub(1).map(|number| places[number]) else { return Ok(None) };
        let ends_at = places.get(behind).map_or(block.payload_bytes, |next| next.at);
        let batch = self.read_batch(&*file, &block, place, (ends_at - place.at) as usize, limits)?;
        Ok(Some(batch).filter(|batch| contains(batch, offset)))
    }

    fn read_batch(
        &self,
        file: &dyn File,
        block: &BlockEntry,
        place: BatchPlace,
        size_bytes: usize,
        limits: &BatchLimits,
    ) -> Result<RecordBatch, Error> {
        let at = block.at + BLOCK_HEADER_BYTES as u64 + u64::from(place.at);
        let refuse = |what| self.corrupt(place.first, at, what);
        let mut bytes = vec![0; size_bytes];
        let read = file.read_at(&mut bytes, at).map_err(|e| Error::io("read", &self.path, e))?;
        if read < size_bytes {
            return Err(refuse(CUT_SHORT));
        }
        match RecordBatch::parse(Bytes::from(bytes), limits) {
            Ok(batch) if batch.base_offset().0 == place.first && batch.size_bytes() == size_bytes => Ok(batch),
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
