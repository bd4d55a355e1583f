//! The batches of a partition in memory: all that have not reached a segment, and some that have.
//!
//! Invariants
//! - Every batch that ends after `begins` is here, so a reader at or after `begins` needs no disk.
//! - A batch that has not reached a segment is never dropped. Batches are dropped from the front only.

use std::collections::VecDeque;

use millstream_types::RecordBatch;

/// A batch with its most used fields.
#[derive(Debug, Clone)]
pub(crate) struct CachedBatch {
    pub(crate) first: u64,
    /// The offset after its last record.
    pub(crate) end: u64,
    /// Time when it was sealed, ms since 1970; retention uses it.
    pub(crate) appended_ms: i64,
    pub(crate) batch: RecordBatch,
}

impl CachedBatch {
    pub(crate) fn new(batch: RecordBatch, appended_ms: i64) -> Self {
        Self { first: batch.base_offset().0, end: batch.next_offset().0, appended_ms, batch }
    }
}

/// The cached batches, by offset.
#[derive(Debug)]
pub(crate) struct TailCache {
    batches: VecDeque<CachedBatch>,
    begins: u64,
    flushed: usize,
    flushed_bytes: usize,
    size_bytes: usize,
}

impl TailCache {
    /// An empty cache; `begins` is the partition's next offset, or the end of its last segment.
    pub(crate) fn new(begins: u64) -> Self {
        Self { batches: VecDeque::new(), begins, flushed: 0, flushed_bytes: 0, size_bytes: 0 }
    }

    pub(crate) fn begins(&self) -> u64 {
        self.begins
    }

    /// The offset after the last batch that has reached a segment.
    pub(crate) fn flushed_end(&self) -> u64 {
        let last = self.flushed.checked_sub(1).and_then(|last| self.batches.get(last));
        last.map_or(self.begins, |last| last.end)
    }

    pub(crate) fn end(&self) -> u64 {
        self.batches.back().map_or(self.begins, |last| last.end)
    }

    pub(crate) fn size_bytes(&self) -> usize {
        self.size_bytes
    }

    /// Bytes of the batches that are in memory only and end above `first`.
    pub(crate) fn own_bytes(&self, first: u64) -> usize {
        let own = self.batches.range(self.flushed..).filter(|stored| stored.end > first);
        own.map(|stored| stored.batch.size_bytes()).sum()
    }

    /// Bytes of the batches that have not reached a segment.
    pub(crate) fn unflushed_bytes(&self) -> usize {
        self.size_bytes - self.flushed_bytes
    }

    pub(crate) fn push(&mut self, stored: CachedBatch) {
        assert!(stored.first >= self.end(), "offsets ascend");
        self.size_bytes += stored.batch.size_bytes();
        self.batches.push_back(stored);
    }

    /// Adds batches from the one that contains `from` on, below `limit`: at least one if there is one, further
    /// ones while they fit `budget`.
    pub(crate) fn read(&self, from: u64, limit: u64, budget: &mut usize, found: &mut Vec<RecordBatch>) {
        let begin = self.batches.partition_point(|stored| stored.end <= from);
        for stored in self.batches.range(begin..) {
            let size = stored.batch.size_bytes();
            if stored.first >= limit || (!found.is_empty() && size > *budget) {
                *budget = 0;
                return;
            }
            *budget = budget.saturating_sub(size);
            found.push(stored.batch.clone());
        }
    }

    /// The batch whose offsets include `offset`.
    pub(crate) fn batch_of(&self, offset: u64) -> Option<RecordBatch> {
        let number = self.batches.partition_point(|stored| stored.end <= offset);
        self.batches.get(number).filter(|stored| stored.first <= offset).map(|stored| stored.batch.clone())
    }

    /// The first batch that may have a record at or after `timestamp_ms` and does not end at or below `from`.
    pub(crate) fn batch_at_time(&self, from: u64, timestamp_ms: i64) -> Option<RecordBatch> {
        let begin = self.batches.partition_point(|stored| stored.end <= from);
        let mut later = self.batches.range(begin..).map(|stored| &stored.batch);
        later.find(|batch| batch.max_timestamp_ms() >= timestamp_ms).cloned()
    }

    /// The batches that have not reached a segment and end at or below `limit`.
    pub(crate) fn unflushed(&self, limit: u64) -> Vec<CachedBatch> {
        self.batches.range(self.flushed..).take_while(|stored| stored.end <= limit).cloned().collect()
    }

    /// Marks the next `count` batches as written to a segment.
    pub(crate) fn mark_flushed(&mut self, count: usize) {
        debug_assert!(
            self.flushed + count <= self.batches.len(),
            "a batch that is in a segment is in memory until then"
        );
        let next = self.batches.range(self.flushed..self.flushed + count);
        self.flushed_bytes += next.map(|stored| stored.batch.size_bytes()).sum::<usize>();
        self.flushed += count;
    }

    /// Drops the batches that have reached a segment and end at or below `offset`; returns their bytes.
    pub(crate) fn evict_to(&mut self, offset: u64) -> usize {
        let before = self.flushed_bytes;
        while self.flushed > 0 && self.batches.front().is_some_and(|oldest| oldest.end <= offset) {
            self.flushed -= 1;
            self.flushed_bytes -= self.pop();
        }
        debug_assert!(self.flushed_bytes <= self.size_bytes && self.flushed <= self.batches.len());
        before - self.flushed_bytes
    }

    /// Drops the oldest batches while there are more than `max_bytes`, but never the newest.
    /// `true` if it dropped any.
    pub(crate) fn trim(&mut self, max_bytes: usize) -> bool {
        debug_assert_eq!(self.flushed, 0, "a topic in memory has no segments");
        let before = self.begins;
        while self.size_bytes > max_bytes && self.batches.len() > 1 {
            self.pop();
        }
        self.begins != before
    }

    /// Drops the batches that end at or below `offset`. Only for memory topics.
    pub(crate) fn drop_below(&mut self, offset: u64) {
        debug_assert_eq!(self.flushed, 0, "a topic in memory has no segments");
        while self.batches.front().is_some_and(|oldest| oldest.end <= offset) {
            self.pop();
        }
    }

    /// Drops the oldest batch; returns its bytes.
    fn pop(&mut self) -> usize {
        let Some(stored) = self.batches.pop_front() else { return 0 };
        let bytes = stored.batch.size_bytes();
        self.size_bytes -= bytes;
        debug_assert!(self.begins < stored.end, "batches are dropped from the front");
        self.begins = stored.end;
        bytes
    }
}

#[cfg(test)]
mod tests {
    use millstream_types::{BatchBuilder, Compression, Epoch, Offset, Record};

    use super::*;

    #[test]
    fn batches_that_have_not_reached_a_segment_are_counted_in_bytes() {
        let mut tail_cache = TailCache::new(0);
        for offset in 0..3 {
            let mut builder = BatchBuilder::default();
            builder.push(&Record { value: Some(&vec![7; 10 << offset]), ..Record::default() });
            tail_cache.push(CachedBatch::new(builder.seal(Offset(offset), Epoch(1), Compression::None), 0));
        }
        let [_, second, third] = [0, 1, 2].map(|at: usize| tail_cache.batches[at].batch.size_bytes());
        assert_eq!(tail_cache.unflushed_bytes(), tail_cache.size_bytes());
        tail_cache.mark_flushed(2);
        assert_eq!(tail_cache.unflushed_bytes(), third);
        assert_eq!([2, 3].map(|first| tail_cache.own_bytes(first)), [third, 0]);
        let first = tail_cache.size_bytes() - second - third;
        assert_eq!(tail_cache.evict_to(1), first);
        assert_eq!((tail_cache.unflushed_bytes(), tail_cache.size_bytes()), (third, second + third));
        assert_eq!(tail_cache.evict_to(3), second, "the last one is not in a segment");
        assert_eq!((tail_cache.unflushed_bytes(), tail_cache.size_bytes(), tail_cache.begins()), (third, third, 2));
    }
}
