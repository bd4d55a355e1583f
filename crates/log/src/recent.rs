//! The batches of a partition that are in memory: all that have not reached a segment, and some that have.
//!
//! Invariants
//! - Every batch that ends beyond `begins` is here: a reader from `begins` on never needs the disk.
//! - What has not reached a segment is never dropped; batches go from the front only.

use std::collections::VecDeque;

use millstream_types::RecordBatch;

/// A batch with what is asked of it most.
#[derive(Debug, Clone)]
pub(crate) struct Stored {
    /// Its first offset.
    pub(crate) first: u64,
    /// The offset behind its last record.
    pub(crate) end: u64,
    /// When it was sealed, ms since 1970: what retention counts.
    pub(crate) appended_ms: i64,
    pub(crate) batch: RecordBatch,
}

impl Stored {
    pub(crate) fn new(batch: RecordBatch, appended_ms: i64) -> Self {
        Self { first: batch.base_offset().0, end: batch.next_offset().0, appended_ms, batch }
    }
}

/// The batches in memory.
#[derive(Debug)]
pub(crate) struct Recent {
    batches: VecDeque<Stored>,
    begins: u64,
    flushed: usize,
    flushed_bytes: usize,
    size_bytes: usize,
}

impl Recent {
    /// None yet; the partition's next offset, or the end of its last segment, is `begins`.
    pub(crate) fn new(begins: u64) -> Self {
        Self { batches: VecDeque::new(), begins, flushed: 0, flushed_bytes: 0, size_bytes: 0 }
    }

    pub(crate) fn begins(&self) -> u64 {
        self.begins
    }

    /// The offset behind the last batch that has reached a segment.
    pub(crate) fn flushed_end(&self) -> u64 {
        let last = self.flushed.checked_sub(1).and_then(|last| self.batches.get(last));
        last.map_or(self.begins, |last| last.end)
    }

    /// The offset behind the last batch.
    pub(crate) fn end(&self) -> u64 {
        self.batches.back().map_or(self.begins, |last| last.end)
    }

    pub(crate) fn size_bytes(&self) -> usize {
        self.size_bytes
    }

    /// Bytes of the batches that are nowhere else, and that readers may still have.
    pub(crate) fn own_bytes(&self, first: u64) -> usize {
        let own = self.batches.range(self.flushed..).filter(|stored| stored.end > first);
        own.map(|stored| stored.batch.size_bytes()).sum()
    }

    /// Bytes of the batches that have not reached a segment.
    pub(crate) fn unflushed_bytes(&self) -> usize {
        self.size_bytes - self.flushed_bytes
    }

    pub(crate) fn push(&mut self, stored: Stored) {
        assert!(stored.first >= self.end(), "offsets ascend");
        self.size_bytes += stored.batch.size_bytes();
        self.batches.push_back(stored);
    }

    /// Batches from the one that holds `from` on that begin below `limit`: at least one if there is any, further ones
    /// while they fit what is left of `budget`.
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

    /// The first batch that may hold a record at or after `timestamp_ms`, and is not wholly below `from`.
    pub(crate) fn batch_at_time(&self, from: u64, timestamp_ms: i64) -> Option<RecordBatch> {
        let begin = self.batches.partition_point(|stored| stored.end <= from);
        let mut later = self.batches.range(begin..).map(|stored| &stored.batch);
        later.find(|batch| batch.max_timestamp_ms() >= timestamp_ms).cloned()
    }

    /// Batches that have not reached a segment and end at or below `limit`.
    pub(crate) fn unflushed(&self, limit: u64) -> Vec<Stored> {
        self.batches.range(self.flushed..).take_while(|stored| stored.end <= limit).cloned().collect()
    }

    /// The next `count` batches, which are there, have reached a segment.
    pub(crate) fn mark_flushed(&mut self, count: usize) {
        let next = self.batches.range(self.flushed..self.flushed + count);
        self.flushed_bytes += next.map(|stored| stored.batch.size_bytes()).sum::<usize>();
        self.flushed += count;
    }

    /// Drops the oldest `count` batches that have reached a segment.
    pub(crate) fn evict(&mut self, count: usize) {
        for _ in 0..count.min(self.flushed) {
            self.flushed -= 1;
            self.flushed_bytes -= self.pop();
        }
    }

    /// Drops the oldest batches while there are more than `max_bytes`, but never the newest; whether any went.
    pub(crate) fn trim(&mut self, max_bytes: usize) -> bool {
        let before = self.begins;
        while self.size_bytes > max_bytes && self.batches.len() > 1 {
            self.pop();
        }
        self.begins != before
    }

    /// Drops the batches that lie wholly below `offset`. Only where nothing reaches a segment.
    pub(crate) fn drop_below(&mut self, offset: u64) {
        while self.batches.front().is_some_and(|oldest| oldest.end <= offset) {
            self.pop();
        }
    }

    /// Drops the oldest; how many bytes that were.
    fn pop(&mut self) -> usize {
        let Some(stored) = self.batches.pop_front() else { return 0 };
        let bytes = stored.batch.size_bytes();
        self.size_bytes -= bytes;
        self.begins = stored.end;
        bytes
    }
}

#[cfg(test)]
mod tests {
    use millstream_types::{BatchBuilder, Compression, Epoch, Offset, Record};

    use super::*;

    #[test]
    fn what_has_not_reached_a_segment_is_counted_in_bytes() {
        let mut recent = Recent::new(0);
        for offset in 0..3 {
            let mut builder = BatchBuilder::default();
            builder.push(&Record { value: Some(&vec![7; 10 << offset]), ..Record::default() });
            recent.push(Stored::new(builder.seal(Offset(offset), Epoch(1), Compression::None), 0));
        }
        let [_, second, third] = [0, 1, 2].map(|at: usize| recent.batches[at].batch.size_bytes());
        assert_eq!(recent.unflushed_bytes(), recent.size_bytes());
        recent.mark_flushed(2);
        assert_eq!(recent.unflushed_bytes(), third);
        assert_eq!([2, 3].map(|first| recent.own_bytes(first)), [third, 0]);
        recent.evict(1);
        assert_eq!((recent.unflushed_bytes(), recent.size_bytes()), (third, second + third));
        recent.evict(3);
        assert_eq!((recent.unflushed_bytes(), recent.size_bytes(), recent.begins()), (third, third, 2));
    }
}
