//! Acknowledgement levels, and the callers that wait for them.

use std::sync::mpsc::SyncSender;

use millstream_types::{Epoch, Offset};

use crate::{Done, Error};

/// The failures that an acknowledged append survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AckLevel {
    /// Accepted in memory; a crash of the process may lose it.
    Memory,
    /// Handed to the operating system: survives `kill -9`.
    Written,
    /// On the medium: survives power loss.
    Synced,
}

/// The offsets of an append.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appended {
    /// Offset of the first record.
    pub first: Offset,
    /// Offset of the last record.
    pub last: Offset,
    /// The epoch under which both were handed out.
    pub epoch: Epoch,
}

/// The caller to tell when an append ends.
pub(crate) enum AckReply {
    One(Done<Appended>, Appended),
    /// The append ends in this error, but only once the records have the level.
    Refused(Done<Appended>, Error),
    Many(Done<Vec<Appended>>, Vec<Appended>),
    Thread(SyncSender<Result<(), Error>>),
}

impl AckReply {
    /// `true` if the caller rather fails than waits for room on the disk.
    fn fails_on_full_disk(&self) -> bool {
        match self {
            Self::One(done, _) | Self::Refused(done, _) => done.fails_on_full_disk(),
            Self::Many(done, _) => done.fails_on_full_disk(),
            Self::Thread(_) => false,
        }
    }

    pub(crate) fn finish(self, result: Result<(), Error>) {
        match self {
            Self::One(done, appended) => done.finish(result.map(|()| appended)),
            Self::Refused(done, error) => done.finish(Err(result.err().unwrap_or(error))),
            Self::Many(done, appended) => done.finish(result.map(|()| appended)),
            // A receiver that is gone needs no answer.
            Self::Thread(sender) => drop(sender.try_send(result)),
        }
    }
}

/// A reply that is due once the records have `level`.
pub(crate) struct AckWaiter {
    pub(crate) level: AckLevel,
    pub(crate) answer: AckReply,
}

/// Answers all waiters with the error.
pub(crate) fn fail(waiters: Vec<AckWaiter>, error: &Error) {
    for waiter in waiters {
        waiter.answer.finish(Err(error.clone()));
    }
}

/// Answers the waiters that do not wait for room on the disk with the error, and keeps the others.
pub(crate) fn fail_on_full_disk(waiters: &mut Vec<AckWaiter>, error: &Error) {
    for waiter in waiters.extract_if(.., |waiter| waiter.answer.fails_on_full_disk()) {
        waiter.answer.finish(Err(error.clone()));
    }
}
