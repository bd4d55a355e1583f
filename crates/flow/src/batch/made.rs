//! Batches of records that an operator has made itself, of a window or a state and not of one record.

use std::sync::Arc;

use super::times::EventTimes;
use super::{Batch, SourceBatch};

/// A record that an operator makes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MadeRecord<'a> {
    /// The row of the batch that has caused it; 0 if none has.
    pub(crate) input: u32,
    /// Empty for a record without a key.
    pub(crate) key: &'a [u8],
    pub(crate) time_ms: i64,
    /// The watermark at which it was made.
    pub(crate) watermark_ms: i64,
}

/// Builds a batch of records that an operator makes. Its rows have JSON objects as payloads.
#[derive(Debug, Default)]
pub(crate) struct MadeRows {
    source: SourceBatch,
    times: EventTimes,
    /// The input row of each.
    inputs: Vec<u32>,
}

impl MadeRows {
    /// Appends a record; `write` appends its payload, a JSON object.
    pub(crate) fn push(&mut self, record: MadeRecord<'_>, write: impl FnOnce(&mut Vec<u8>)) {
        let MadeRecord { input, key, time_ms, watermark_ms } = record;
        self.source.push(self.inputs.len() as u64, (!key.is_empty()).then_some(key), time_ms, write);
        self.times.push(time_ms, watermark_ms);
        self.inputs.push(input);
    }

    pub(crate) fn len(&self) -> usize {
        self.inputs.len()
    }

    /// The bytes of the records so far.
    pub(crate) fn size_bytes(&self) -> usize {
        self.source.size_bytes()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.inputs.is_empty()
    }

    /// The records as a batch of the node `maker`, with their input rows. They hold what the batch `from` holds.
    pub(crate) fn finish(self, maker: &Arc<str>, from: Option<&Batch>) -> (Batch, Vec<u32>) {
        let mut batch = self.source.finish_of(maker);
        if let Some(from) = from {
            (batch.ack, batch.root) = (from.ack.clone(), from.root);
        }
        batch.times = Some(self.times.into());
        (batch, self.inputs)
    }
}
