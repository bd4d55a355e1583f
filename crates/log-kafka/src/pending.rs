//! The appends that have not ended: their bytes, which are bounded, and those who wait for room.
//!
//! The engine owns them; appends of partitions and of transactions end here.

use std::sync::atomic::{AtomicUsize, Ordering};

use millstream_log::{Done, Error, Reply, reply};
use parking_lot::Mutex;

use crate::queue::Ended;

#[derive(Debug)]
pub(crate) struct PendingAppends {
    bytes: AtomicUsize,
    max_bytes: usize,
    /// Callers that wait until there is room for appends.
    room_waiters: Mutex<Vec<Done<()>>>,
}

impl PendingAppends {
    pub(crate) fn new(max_bytes: usize) -> Self {
        Self { bytes: AtomicUsize::new(0), max_bytes, room_waiters: Mutex::default() }
    }

    /// Counts bytes of an append, if there is room for them.
    ///
    /// # Errors
    /// [`Error::Overloaded`].
    pub(crate) fn accept(&self, bytes: usize) -> Result<(), Error> {
        let waiting_bytes = self.bytes.fetch_add(bytes, Ordering::AcqRel);
        // One append always fits.
        if waiting_bytes > 0 && waiting_bytes + bytes > self.max_bytes {
            self.bytes.fetch_sub(bytes, Ordering::AcqRel);
            let limit_bytes = self.max_bytes;
            return Err(Error::Overloaded { waiting_bytes, limit: "log.pending_max_bytes", limit_bytes });
        }
        Ok(())
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Acquire)
    }

    /// Answers appends that have ended.
    pub(crate) fn end(&self, ended: Ended) {
        self.bytes.fetch_sub(ended.accepted_bytes, Ordering::AcqRel);
        ended.answer();
        if !self.is_crowded() {
            let waiters = std::mem::take(&mut *self.room_waiters.lock());
            waiters.into_iter().for_each(|waiter| waiter.finish(Ok(())));
        }
    }

    /// `true` if appends will soon be refused.
    fn is_crowded(&self) -> bool {
        self.bytes() > self.max_bytes / 2
    }

    /// A reply to await before the next append; `None` while there is room.
    pub(crate) fn backpressure(&self) -> Option<Reply<()>> {
        let mut waiters = self.room_waiters.lock();
        if !self.is_crowded() {
            return None;
        }
        let (done, answer) = reply();
        waiters.push(done);
        Some(answer)
    }
}
