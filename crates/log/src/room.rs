//! Bytes that have been accepted and not been written yet, what limits them, and who waits for them to become fewer.

use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::{AckLevel, Done, Error, LogConfig, Reply, reply};

/// What appends are refused by that nobody waits for.
const UNWAITED_LIMIT: &str = "log.pending_unwaited_percent of log.pending_max_bytes";

/// See the module.
pub(crate) struct Room {
    pending_bytes: AtomicUsize,
    pending_max_bytes: usize,
    unwaited_max_bytes: usize,
    /// Who is told once there are at most [`Room::plenty_bytes`].
    waiters: Mutex<Vec<Done<()>>>,
}

impl Room {
    pub(crate) fn of(config: &LogConfig) -> Self {
        Self {
            pending_bytes: AtomicUsize::new(0),
            pending_max_bytes: config.pending_max_bytes,
            unwaited_max_bytes: config.pending_unwaited_max_bytes(),
            waiters: Mutex::new(Vec::new()),
        }
    }

    /// Counts `bytes` as waiting to be written. What nobody waits for is refused first, so that a flood of it leaves
    /// room for what somebody was promised.
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

    /// They are written, or will never be.
    pub(crate) fn release(&self, bytes: usize) {
        let before = self.pending_bytes.fetch_sub(bytes, Ordering::AcqRel);
        if before - bytes > self.plenty_bytes() || before <= self.plenty_bytes() {
            return;
        }
        let waiters = std::mem::take(&mut *self.waiters.lock());
        waiters.into_iter().for_each(|waiter| waiter.finish(Ok(())));
    }

    pub(crate) fn pending_bytes(&self) -> usize {
        self.pending_bytes.load(Ordering::Acquire)
    }

    /// Nothing to wait for while three quarters of what appends may take that nobody waits for are not reached.
    pub(crate) fn wait(&self) -> Option<Reply<()>> {
        if self.pending_bytes() <= self.unwaited_max_bytes / 4 * 3 {
            return None;
        }
        let mut waiters = self.waiters.lock();
        // Whoever has released since then takes the lock after this, and finds who is here now.
        if self.pending_bytes() <= self.plenty_bytes() {
            return None;
        }
        let (done, reply) = reply();
        waiters.push(done);
        Some(reply)
    }

    /// Those who wait are told when there are no more than these.
    fn plenty_bytes(&self) -> usize {
        self.unwaited_max_bytes / 2
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Waker};

    use super::*;

    fn room() -> Room {
        let config = LogConfig { pending_max_bytes: 16_000, pending_unwaited_percent: 50, ..LogConfig::default() };
        Room::of(&LogConfig { append_max_bytes: 1_000, ..config })
    }

    #[test]
    fn who_waits_is_told_once_half_of_the_room_is_free() {
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
    fn a_flood_that_nobody_waits_for_leaves_room() {
        let room = room();
        room.reserve(8_000, AckLevel::Memory).unwrap();
        assert!(matches!(room.reserve(1, AckLevel::Memory), Err(Error::Overloaded { waiting_bytes: 8_000, .. })));
        room.reserve(8_000, AckLevel::Written).unwrap();
        assert!(matches!(room.reserve(1, AckLevel::Written), Err(Error::Overloaded { waiting_bytes: 16_000, .. })));
    }

    #[test]
    fn nobody_misses_the_moment_in_which_there_is_room() {
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
