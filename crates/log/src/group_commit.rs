//! Group commit: the appends of many callers become one journal round and one sync.

use std::sync::Arc;

use crate::AckLevel;
use crate::ack::AckWaiter;
use crate::catalog::CatalogChange;
use crate::frame::{BATCH_PART_BYTES, FrameBuilder};
use crate::journal::JournalFile;
use crate::meta::JournalPlace;
use crate::partition::PartitionLog;
use bytes::Bytes;

/// An item to write to the journal.
pub(crate) enum JournalItem {
    /// A batch of a partition; the partition's written offset becomes `end`.
    Batch { log: Arc<PartitionLog>, batch: Bytes, end: u64 },
    /// Encoded frame parts (perhaps none), and the catalog changes that apply once they are synced.
    Parts { encoded: Vec<u8>, count: u32, effects: Vec<CatalogChange> },
}

impl JournalItem {
    pub(crate) fn frame_bytes(&self) -> u64 {
        match self {
            Self::Batch { batch, .. } => (BATCH_PART_BYTES + batch.len()) as u64,
            Self::Parts { encoded, .. } => encoded.len() as u64,
        }
    }

    pub(crate) fn push_to(&self, frame: &mut FrameBuilder) {
        match self {
            Self::Batch { log, batch, .. } => frame.push_batch(log.topic.id, log.id.partition, batch),
            Self::Parts { encoded, count, .. } => frame.push_encoded(encoded, *count),
        }
    }
}

/// An item with its order. The items of one atomic append share an order, and therefore a frame.
pub(crate) struct JournalEntry {
    pub(crate) order: u64,
    pub(crate) item: JournalItem,
}

/// An entry that belongs to no single partition: a topic change or committed positions.
pub(crate) struct ControlEntry {
    pub(crate) entry: JournalEntry,
    pub(crate) waiter: Option<AckWaiter>,
    /// Pending bytes to release when the entry is written.
    pub(crate) pending_bytes: usize,
}

/// The appends of one turn of the appender.
#[derive(Default)]
pub(crate) struct TakenAppends {
    pub(crate) entries: Vec<JournalEntry>,
    pub(crate) waiters: Vec<AckWaiter>,
    /// Pending bytes to release when they are written.
    pub(crate) pending_bytes: usize,
}

impl TakenAppends {
    /// `true` if there is nothing to write and nobody to answer.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.waiters.is_empty() && self.pending_bytes == 0
    }
}

/// A journal write that is not synced yet.
#[derive(Default)]
pub(crate) struct JournalRound {
    /// The offset that each partition reaches with this round.
    pub(crate) ends: Vec<(Arc<PartitionLog>, u64)>,
    /// The catalog changes that apply once the round is synced.
    pub(crate) effects: Vec<CatalogChange>,
    pub(crate) waiters: Vec<AckWaiter>,
    /// A caller waits for the sync of this round or of a later one.
    pub(crate) is_awaited: bool,
    /// The journal files that the round wrote to.
    pub(crate) touched: Vec<Arc<JournalFile>>,
    /// The journal position after the round; `None` if it wrote nothing.
    pub(crate) place: Option<JournalPlace>,
    pub(crate) bytes: u64,
}

impl JournalRound {
    /// Notes that `item` is in a frame.
    pub(crate) fn framed(&mut self, item: JournalItem) {
        match item {
            JournalItem::Parts { effects, .. } => self.effects.extend(effects),
            JournalItem::Batch { log, end, .. } => match self.ends.last_mut() {
                Some((last, reached)) if Arc::ptr_eq(last, &log) => *reached = end,
                _ => self.ends.push((log, end)),
            },
        }
    }

    /// Answers the callers that wait for `level` or less.
    pub(crate) fn answer(&mut self, level: AckLevel) {
        for waiter in self.waiters.extract_if(.., |waiter| waiter.level <= level) {
            waiter.answer.finish(Ok(()));
        }
    }
}
