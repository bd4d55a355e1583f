//! What travels from the partitions over the appender to the sync thread: parts, and who waits for them.

use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use crate::catalog::Effect;
use crate::frame::{BATCH_PART_BYTES, FrameBuilder};
use crate::journal::JournalFile;
use crate::meta::JournalPlace;
use crate::partition::PartitionLog;
use crate::{AckLevel, Appended, Done, Error};
use bytes::Bytes;

/// Something to be written to the journal.
pub(crate) enum Item {
    /// A batch of a partition, which gets as far as `end` by it.
    Batch { log: Arc<PartitionLog>, batch: Bytes, end: u64 },
    /// Encoded parts and their number, perhaps 0, and what becomes true when they are synced.
    Parts { encoded: Vec<u8>, count: u32, effects: Vec<Effect> },
}

impl Item {
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

/// An item and its place in the order of all. Items of an atomic append share one place, and one frame.
pub(crate) struct Entry {
    pub(crate) order: u64,
    pub(crate) item: Item,
}

/// Somebody who is told how it ended.
pub(crate) enum Answer {
    One(Done<Appended>, Appended),
    /// Ends in an error that is true only once the records have the level.
    Refused(Done<Appended>, Error),
    Many(Done<Vec<Appended>>, Vec<Appended>),
    Thread(SyncSender<Result<(), Error>>),
}

impl Answer {
    pub(crate) fn finish(self, result: Result<(), Error>) {
        match self {
            Self::One(done, appended) => done.finish(result.map(|()| appended)),
            Self::Refused(done, error) => done.finish(Err(result.err().unwrap_or(error))),
            Self::Many(done, appended) => done.finish(result.map(|()| appended)),
            // Whoever no longer listens does not mind.
            Self::Thread(sender) => drop(sender.try_send(result)),
        }
    }
}

/// An answer that is owed once its records have `level`.
pub(crate) struct Waiter {
    pub(crate) level: AckLevel,
    pub(crate) answer: Answer,
}

/// Something for the journal that is no partition's own: a change of topics, or the positions of an atomic append.
pub(crate) struct Control {
    pub(crate) entry: Entry,
    pub(crate) waiter: Option<Waiter>,
    /// Bytes that stop being pending when it is written.
    pub(crate) pending_bytes: usize,
}

/// What one turn of the appender takes.
#[derive(Default)]
pub(crate) struct Taken {
    pub(crate) entries: Vec<Entry>,
    pub(crate) waiters: Vec<Waiter>,
    /// Bytes that stop being pending when it is written.
    pub(crate) pending_bytes: usize,
}

impl Taken {
    /// Whether there is nothing to be written and nobody to be answered.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.waiters.is_empty() && self.pending_bytes == 0
    }
}

/// What the appender has written and the sync thread has still to sync.
#[derive(Default)]
pub(crate) struct Round {
    /// How far partitions get by it.
    pub(crate) ends: Vec<(Arc<PartitionLog>, u64)>,
    /// What becomes true by it.
    pub(crate) effects: Vec<Effect>,
    pub(crate) waiters: Vec<Waiter>,
    /// Somebody waits until it is synced, here or behind a later round.
    pub(crate) is_awaited: bool,
    /// The files that it was written to.
    pub(crate) touched: Vec<Arc<JournalFile>>,
    /// Where the journal stands behind it; `None` if it wrote nothing.
    pub(crate) place: Option<JournalPlace>,
    /// Bytes that it wrote.
    pub(crate) bytes: u64,
}

impl Round {
    /// `item` stands in a frame.
    pub(crate) fn framed(&mut self, item: Item) {
        match item {
            Item::Parts { effects, .. } => self.effects.extend(effects),
            Item::Batch { log, end, .. } => match self.ends.last_mut() {
                Some((last, reached)) if Arc::ptr_eq(last, &log) => *reached = end,
                _ => self.ends.push((log, end)),
            },
        }
    }

    /// Answers those who wait for `level` or less.
    pub(crate) fn answer(&mut self, level: AckLevel) {
        for waiter in self.waiters.extract_if(.., |waiter| waiter.level <= level) {
            waiter.answer.finish(Ok(()));
        }
    }
}

/// Answers everybody with the failure.
pub(crate) fn fail(waiters: Vec<Waiter>, error: &Error) {
    for waiter in waiters {
        waiter.answer.finish(Err(error.clone()));
    }
}
