//! The newest batches of one partition, in memory.

use std::collections::VecDeque;

use millstream_types::{Offset, RecordBatch};

/// All readable batches from `from` to `to`, as far as a reader sees them; those before are in Kafka only.
#[derive(Debug)]
pub(crate) struct TailCache {
    batches: VecDeque<RecordBatch>,
    size_bytes: usize,
    from: Offset,
    to: Offset,
    /// No record lies between here and `to`: ends of transactions and records of aborted ones have offsets, too.
    records_end: Offset,
}

impl TailCache {
    /// An empty cache at `at`.
    pub(crate) fn new(at: Offset) -> Self {
        Self { batches: VecDeque::new(), size_bytes: 0, from: at, to: at, records_end: at }
    }

    pub(crate) fn size_bytes(&self) -> usize {
        self.size_bytes
    }

    /// The offset at which the next batch is expected.
    pub(crate) fn to(&self) -> Offset {
        self.to
    }

    /// The offset after the last record, as far as it is known.
    pub(crate) fn records_end(&self) -> Offset {
        self.records_end
    }

    /// Notes that there is no record from `from` to `to`.
    pub(crate) fn has_none(&mut self, from: Offset, to: Offset) {
        if from < self.records_end && self.records_end <= to {
            self.records_end = from;
        }
    }

    /// Adds batches that follow; everything up to `to` is known then. Drops the oldest beyond `max_bytes`.
    pub(crate) fn extend(&mut self, batches: Vec<RecordBatch>, to: Offset, max_bytes: usize) {
        if let Some(last) = batches.iter().rfind(|batch| batch.record_count() > 0) {
            self.records_end = last.next_offset();
        }
        for batch in batches {
            self.size_bytes += batch.size_bytes();
            self.batches.push_back(batch);
        }
        self.to = to;
        self.shrink(max_bytes);
    }

    /// Drops the oldest batches beyond `max_bytes`.
    pub(crate) fn shrink(&mut self, max_bytes: usize) {
        while self.size_bytes > max_bytes
            && let Some(oldest) = self.batches.pop_front()
        {
            self.size_bytes -= oldest.size_bytes();
            self.from = oldest.next_offset();
        }
    }

    /// The batches from the one that holds `from`, at least one and others while they fit `max_bytes`; `None` if they are not
    /// known here.
    pub(crate) fn read(&self, from: Offset, max_bytes: usize) -> Option<Vec<RecordBatch>> {
        if from < self.from || from >= self.to {
            return None;
        }
        let begin = self.batches.partition_point(|batch| batch.next_offset() <= from);
        let (mut found, mut budget) = (Vec::new(), max_bytes);
        for batch in self.batches.range(begin..) {
            if !found.is_empty() && batch.size_bytes() > budget {
                break;
            }
            budget = budget.saturating_sub(batch.size_bytes());
            found.push(batch.clone());
        }
        Some(found)
    }
}
