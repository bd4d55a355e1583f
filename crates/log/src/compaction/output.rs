//! Writes the segments that a pass produces.

use std::path::Path;
use std::sync::Arc;

use crate::block::BLOCK_BYTES;
use crate::partition::PartitionLog;
use crate::segment::Segment;
use crate::tail_cache::CachedBatch;
use crate::{Error, Files};

/// Collects batches into blocks and writes them. It always keeps one block back: the last block of a segment must
/// carry the end offset of the segment.
pub(super) struct SegmentOutput<'a> {
    partition: &'a PartitionLog,
    generation: u64,
    /// Batches of different time windows do not share a block, so that tombstones keep their age.
    window_ms: i64,
    current: Option<Arc<Segment>>,
    block: Vec<CachedBatch>,
    block_bytes: usize,
    finished: Vec<Arc<Segment>>,
}

impl<'a> SegmentOutput<'a> {
    pub(super) fn new(partition: &'a PartitionLog, generation: u64, window_ms: i64) -> Self {
        let (current, block, finished) = (None, Vec::new(), Vec::new());
        Self { partition, generation, window_ms, current, block, block_bytes: 0, finished }
    }

    /// Adds a batch to the current segment, or to a new one that begins at `base`. Returns the bytes written.
    pub(super) fn push(&mut self, base: u64, batch: CachedBatch) -> Result<u64, Error> {
        if self.current.is_none() {
            let segment = Segment::create(&self.partition.place(), base, self.generation)?;
            self.current = Some(Arc::new(segment));
        }
        let window = |batch: &CachedBatch| batch.appended_ms.div_euclid(self.window_ms);
        let bytes = batch.batch.size_bytes();
        let fits = self.block_bytes + bytes <= BLOCK_BYTES
            && self.block.first().is_none_or(|first| window(first) == window(&batch));
        let written = match self.block.last().map(|last| last.end) {
            Some(end) if !fits => self.write_block(end)?,
            _ => 0,
        };
        self.block_bytes += bytes;
        self.block.push(batch);
        Ok(written)
    }

    /// Completes the current segment, which covers all offsets up to `end`, and syncs it.
    pub(super) fn finish(&mut self, end: u64) -> Result<Option<Arc<Segment>>, Error> {
        if self.current.is_some() {
            self.write_block(end)?;
        }
        let Some(segment) = self.current.take() else { return Ok(None) };
        self.finished.push(segment.clone());
        segment.sync()?;
        segment.close()?;
        Ok(Some(segment))
    }

    fn write_block(&mut self, end: u64) -> Result<u64, Error> {
        if let Some(segment) = &self.current {
            // Date the block by its youngest batch: `append_cleaned` uses the time of the last one.
            let youngest_ms = self.block.iter().map(|batch| batch.appended_ms).max();
            if let (Some(last), Some(youngest_ms)) = (self.block.last_mut(), youngest_ms) {
                last.appended_ms = youngest_ms;
            }
            segment.append_cleaned(&self.block, end)?;
        }
        self.block.clear();
        Ok(std::mem::take(&mut self.block_bytes) as u64)
    }

    /// Removes the files of a failed pass. The next start removes those that cannot be removed now.
    pub(super) fn discard(&mut self, files: &dyn Files) {
        for segment in self.finished.drain(..).chain(self.current.take()) {
            let remove = |path: &Path| {
                if let Err(error) = files.remove(path)
                    && error.kind() != std::io::ErrorKind::NotFound
                {
                    tracing::warn!(path = %path.display(), %error, "cannot remove a file of a failed compaction; the next start removes it");
                }
            };
            remove(segment.path());
            remove(segment.index_path());
        }
    }
}
