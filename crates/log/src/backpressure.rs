//! Limits the bytes that are accepted and not yet written, and wakes callers that wait for room.

use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::{AckLevel, Done, Error, LogConfig, Reply, reply};

/// Name of the limit for appends that nobody waits for.
const UNWAITED_LIMIT: &str = "log.pending_unwaited_percent of log.pending_max_bytes";

/// Counts pending bytes against the limits.
pub(crate) struct Backpressure {
    pending_bytes: AtomicUsize,
    pending_max_bytes: usize,
    unwaited_max_bytes: usize,
    /// Callers to wake once at most [`Backpressure::plenty_bytes`] are pending.
    waiters: Mutex<Vec<Done<()>>>,
}

impl Backpressure {
    pub(crate) fn of(config: &LogConfig) -> Self {
        Self {
            pending_bytes: AtomicUsize::new(0),
            pending_max_bytes: config.pending_max_bytes,
            unwaited_max_bytes: config.pending_unwaited_max_bytes(),
            waiters: Mutex::new(Vec::new()),
        }
    }

    /// Counts `bytes` as pending. Appends that nobody waits for have a lower limit, so a flood of them
    /// leaves room for the others.
    ///
    /// # Errors
    /// [`Error::Overloaded`]; then they are not counted.
    pub(crate) fn reserve(&self, bytes: usize, level: AckLevel) -> Result<(), Error> {
        let (limit, limit_bytes) = match level {
            AckLevel::Memory => (UNWAITED_LIMIT, self.unwaited_max_bytes),
            _ => ("log.pending_max_bytes", self.pending_max_bytes),
        };
        let before = self.pending_bytes.fetch_add(bytes, Ordering::AcqRel);
        if before + bytes <= limit_bytes {
            return Ok(());
        }
        self.release(bytes);
        Err(Error::Overloaded { waiting_bytes: before, limit, limit_bytes })
    }

    /// Reserves bytes whatever the limits: for the end of a transaction, which has few.
    pub(crate) fn reserve_beyond(&self, bytes: usize) {
        self.pending_bytes.fetch_add(bytes, Ordering::AcqRel);
    }

    /// Subtracts bytes that are written, or will never be.
    pub(crate) fn release(&self, bytes: usize) {
        let before = self.pending_bytes.fetch_sub(bytes, Ordering::AcqRel);
        debug_assert!(bytes <= before, "{bytes} bytes are released, {before} were reserved");
        if before - bytes > self.plenty_bytes() || before <= self.plenty_bytes() {
            return;
        }
        let waiters = std::mem::take(&mut *self.waiters.lock());
        waiters.into_iter().for_each(|waiter| waiter.finish(Ok(())));
    }

    pub(crate) fn pending_bytes(&self) -> usize {
        self.pending_bytes.load(Ordering::Acquire)
    }

    /// Returns a reply to wait for, or `None` while less than three quarters of the lower limit are pending.
    pub(crate) fn wait(&self) -> Option<Reply<()>> {
        if self.pending_bytes() <= self.unwaited_max_bytes / 4 * 3 {
            return None;
        }
        let mut waiters = self.waiters.lock();
        // A release from now on takes the lock after this push and finds the waiter.
        if self.pending_bytes() <= self.plenty_bytes() {
            return None;
        }
        let (done, reply) = reply();
        waiters.push(done);
        Some(reply)
    }

    /// Waiters are woken at this many pending bytes.
    fn plenty_bytes(&self) -> usize {
        self.unwaited_max_bytes / 2
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Waker};

    use super::*;

    fn room() -> Backpressure {
        let config = LogConfig { pending_max_bytes: 16_000, pending_unwaited_percent: 50, ..LogConfig::default() };
        Backpressure::of(&LogConfig { append_max_bytes: 1_000, ..config })
    }

    #[test]
    fn a_waiting_writer_is_woken_once_half_of_the_room_is_free() {
        let room = room();
        room.reserve(6_000, AckLevel::Memory).unwrap();
        assert!(room.wait().is_none(), "three quarters are not reached");
        room.reserve(1, AckLevel::Memory).unwrap();
        let mut waiting = room.wait().expect("they are passed");
        let mut is_told = || Pin::new(&mut waiting).poll(&mut Context::from_waker(Waker::noop())).is_ready();
        room.release(2_000);
        assert!(!is_told(), "more than half is taken");
        assert!(room.wait().is_none(), "who comes now has room");
        room.release(1);
        assert!(is_told());
    }

    #[test]
    fn a_flood_at_memory_level_leaves_room_for_awaited_writes() {
        let room = room();
        room.reserve(8_000, AckLevel::Memory).unwrap();
        assert!(matches!(room.reserve(1, AckLevel::Memory), Err(Error::Overloaded { waiting_bytes: 8_000, .. })));
        room.reserve(8_000, AckLevel::Written).unwrap();
        assert!(matches!(room.reserve(1, AckLevel::Written), Err(Error::Overloaded { waiting_bytes: 16_000, .. })));
    }

    #[test]
    fn no_waiting_writer_misses_free_room() {
        let room = std::sync::Arc::new(room());
        let writer = {
            let room = room.clone();
            std::thread::spawn(move || {
                for _ in 0..20_000 {
                    if room.reserve(7_000, AckLevel::Memory).is_ok() {
                        room.release(7_000);
                    }
                }
            })
        };
        for _ in 0..20_000 {
            if let Some(reply) = room.wait() {
                reply.wait().unwrap();
            }
        }
        writer.join().unwrap();
    }
}
