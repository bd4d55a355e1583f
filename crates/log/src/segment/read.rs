//! Reads whole batches of a segment, up to the first damaged block.

use millstream_types::{BatchLimits, RecordBatch};

use super::Segment;
use crate::Error;
use crate::index::BlockEntry;

impl Segment {
    /// Reads batches from the one that contains `from` on: at least one if there is one, further
    /// ones while they fit `max_bytes`. Ends before a damaged block.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`] if no batch from `from` on can be read before the failure.
    pub(crate) fn read(&self, from: u64, max_bytes: usize, limits: &BatchLimits) -> Result<Vec<RecordBatch>, Error> {
        let (blocks, failure) = match self.with_blocks(|blocks| fitting(blocks, from, max_bytes)) {
            Ok(blocks) => (blocks, None),
            Err(failure) => (fitting(&self.blocks_before_damage(), from, max_bytes), Some(failure)),
        };
        let mut found: Vec<RecordBatch> = Vec::new();
        if !blocks.is_empty() {
            let file = self.open_checked()?;
            let mut found_bytes = 0;
            for block in blocks {
                let batches = match self.read_block(&*file, &block, from, limits) {
                    Ok(batches) => batches,
                    Err(failure) if found.is_empty() => return Err(failure),
                    // The next read begins at the failure and reports it.
                    Err(_) => return Ok(found),
                };
                for batch in batches.into_iter().filter(|batch| batch.last_offset().0 >= from) {
                    found_bytes += batch.bytes().len();
                    if !found.is_empty() && found_bytes > max_bytes {
                        return Ok(found);
                    }
                    found.push(batch);
                }
            }
        }
        match failure {
            Some(failure) if found.is_empty() => Err(failure),
            _ => Ok(found),
        }
    }

    /// The index entries before a block header that cannot be read, for a segment without an index.
    fn blocks_before_damage(&self) -> Vec<BlockEntry> {
        let mut entries = Vec::new();
        if let Ok(file) = self.open_checked() {
            // The caller has the failure already.
            let _ = self.scan(&*file, &mut entries);
        }
        entries
    }
}

/// The block that contains `from` or follows it, and further ones while they fit `max_bytes`.
fn fitting(blocks: &[BlockEntry], from: u64, max_bytes: usize) -> Vec<BlockEntry> {
    let begin = blocks.partition_point(|block| block.end <= from);
    let mut payload_bytes = 0;
    let fitting = blocks[begin..].iter().take_while(|block| {
        payload_bytes += block.payload_bytes as usize;
        payload_bytes <= max_bytes
    });
    let count = fitting.count().max(1).min(blocks.len() - begin);
    blocks[begin..begin + count].to_vec()
}
