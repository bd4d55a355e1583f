//! The activity of a connection: its phase and its reads and writes, by which slow peers are found.
//!
//! ```text
//!   Idle ──first byte of a head──► Head ──head complete──► Busy ──end of the answer's body──► Idle
//! ```
//!
//! A new connection begins in `Head`: a client that sends nothing gets as much time as one that sends a slow head.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use hyper::body::Incoming;
use millstream_net::PendingLogin;
use millstream_types::{Grant, MemoryBudget};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::memory::{HEAD_FREE_BYTES, no_memory};
use crate::{ListenerLimits, Problem};

const HEAD: u8 = 0;
const BUSY: u8 = 1;
const IDLE: u8 = 2;

/// The phase of a connection and its start. Only the connection's task writes it, so relaxed stores suffice.
pub(crate) struct ConnectionActivity {
    born: Instant,
    phase: AtomicU8,
    /// Start of the phase, nanoseconds after `born`.
    since_ns: AtomicU64,
    /// The connection has written bytes since the last check.
    wrote: AtomicBool,
    /// The peer's window is full.
    write_blocked: AtomicBool,
    /// Longest time that the peer may read nothing of the answer, in nanoseconds; 0 for one check interval.
    stall_max_ns: AtomicU64,
    /// Start of the peer's stall, nanoseconds after `born`; 0 if it reads.
    stalled_since_ns: AtomicU64,
    /// Received bytes of the current head.
    head_bytes: AtomicUsize,
    /// The last request's body was dropped before its end.
    has_unread: AtomicBool,
    /// The body of which that is so.
    unread: Mutex<Option<Incoming>>,
    /// The answer is complete; the rest of the request's body is discarded.
    lingers: AtomicBool,
    /// The memory of a head over [`HEAD_FREE_BYTES`].
    head_memory: Mutex<Option<Grant>>,
    /// Before a login, only the time of a request is not counted.
    login: PendingLogin,
}

impl ConnectionActivity {
    pub(crate) fn new(login: PendingLogin) -> Self {
        Self {
            login,
            born: Instant::now(),
            phase: AtomicU8::new(HEAD),
            since_ns: AtomicU64::new(0),
            wrote: AtomicBool::new(false),
            write_blocked: AtomicBool::new(false),
            stall_max_ns: AtomicU64::new(0),
            stalled_since_ns: AtomicU64::new(0),
            head_bytes: AtomicUsize::new(0),
            has_unread: AtomicBool::new(false),
            unread: Mutex::new(None),
            lingers: AtomicBool::new(false),
            head_memory: Mutex::new(None),
        }
    }

    /// Enters `Busy` when a head is complete, and returns the time.
    pub(crate) fn begin_request(&self) -> Instant {
        self.head_bytes.store(0, Ordering::Relaxed);
        self.has_unread.store(false, Ordering::Relaxed);
        self.stall_max_ns.store(0, Ordering::Relaxed);
        self.login.heard();
        self.enter(BUSY)
    }

    /// Lets the peer read nothing of the answer for at most `stall_max`.
    pub(crate) fn allow_stall(&self, stall_max: Duration) {
        self.stall_max_ns.store(u64::try_from(stall_max.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// The time at which a stalled peer is disconnected.
    fn stall_deadline(&self, now: Instant) -> Instant {
        let now_ns = (now - self.born).as_nanos() as u64;
        let since_ns = self.stalled_since_ns.load(Ordering::Relaxed);
        let since_ns = if since_ns == 0 { now_ns } else { since_ns };
        self.stalled_since_ns.store(since_ns, Ordering::Relaxed);
        let up_ns = since_ns.saturating_add(self.stall_max_ns.load(Ordering::Relaxed));
        self.born.checked_add(Duration::from_nanos(up_ns)).unwrap_or(now)
    }

    /// Enters `Idle` when the answer's body has been sent or dropped.
    pub(crate) fn end_request(&self) {
        drop(self.head_memory.lock().take());
        self.login.restart();
        self.enter(IDLE);
    }

    /// Enters `Idle` after the answer to a request that took no memory for its head.
    pub(crate) fn rest(&self, now: Instant) {
        self.login.restart();
        self.enter_at(IDLE, now);
    }

    /// Notes that a request's body is not read to its end. If its rest has arrived already, another request may follow.
    pub(crate) fn leave_body_unread(&self, rest: Option<Incoming>) {
        self.has_unread.store(true, Ordering::Relaxed);
        *self.unread.lock() = rest;
    }

    /// Takes what a request has left unread of its body.
    pub(crate) fn take_unread_body(&self) -> Option<Incoming> {
        if self.has_unread_body() { self.unread.lock().take() } else { None }
    }

    /// The time of the first check.
    pub(crate) fn look(&self, limits: &ListenerLimits) -> Instant {
        self.born + limits.head_timeout()
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.phase.load(Ordering::Relaxed) == IDLE
    }

    pub(crate) fn is_write_blocked(&self) -> bool {
        self.write_blocked.load(Ordering::Relaxed)
    }

    /// Records the outcome of a write.
    pub(crate) fn on_write(&self, polled: &Poll<io::Result<usize>>) {
        let was_blocked = self.write_blocked.swap(polled.is_pending(), Ordering::Relaxed);
        // A peer that has just begun to block has until the check after the next one.
        if polled.is_ready() || !was_blocked {
            self.wrote.store(true, Ordering::Relaxed);
        }
    }

    /// Returns `true` once the answer is complete and the rest of the request's body is discarded.
    pub(crate) fn lingers(&self) -> bool {
        self.lingers.load(Ordering::Relaxed)
    }

    pub(crate) fn has_unread_body(&self) -> bool {
        self.has_unread.load(Ordering::Relaxed)
    }

    /// Forgets that a request's body is not read to its end.
    pub(crate) fn forget_unread_body(&self) {
        self.has_unread.store(false, Ordering::Relaxed);
    }

    /// Begins to discard the rest of the body. The peer has as much time for it as for a head.
    pub(crate) fn linger(&self) {
        self.lingers.store(true, Ordering::Relaxed);
        self.enter(HEAD);
    }

    fn enter(&self, phase: u8) -> Instant {
        let now = Instant::now();
        self.enter_at(phase, now);
        now
    }

    fn enter_at(&self, phase: u8, now: Instant) {
        self.since_ns.store((now - self.born).as_nanos() as u64, Ordering::Relaxed);
        self.phase.store(phase, Ordering::Relaxed);
    }

    /// Notes received bytes, and takes memory for a large head.
    ///
    /// # Errors
    /// A [`Problem`] if the budget has no memory for it.
    pub(crate) fn on_read(
        &self,
        bytes: usize,
        budget: Option<&MemoryBudget>,
        limits: &ListenerLimits,
    ) -> Result<(), Problem> {
        if self.phase.load(Ordering::Relaxed) == IDLE {
            self.enter(HEAD);
        }
        let before = self.head_bytes.load(Ordering::Relaxed);
        let Some(memory) = budget.filter(|_| self.phase.load(Ordering::Relaxed) == HEAD) else {
            return Ok(());
        };
        self.head_bytes.store(before + bytes, Ordering::Relaxed);
        // This read may contain the end of the head and the beginning of the body.
        if before <= HEAD_FREE_BYTES {
            return Ok(());
        }
        let mut held = self.head_memory.lock();
        if held.is_none() {
            let size = limits.buffer_max_bytes() as u64;
            *held = Some(memory.take(size).ok_or_else(|| no_memory("a head", size, memory))?);
        }
        Ok(())
    }

    /// Checks the peer at `now`. Returns the time of the next check, or `None` if the peer has timed out.
    pub(crate) fn judge(&self, now: Instant, limits: &ListenerLimits) -> Option<Instant> {
        let wrote = self.wrote.swap(false, Ordering::Relaxed);
        let stalled = self.write_blocked.load(Ordering::Relaxed) && !wrote;
        let since = self.born + Duration::from_nanos(self.since_ns.load(Ordering::Relaxed));
        let up = match self.phase.load(Ordering::Relaxed) {
            HEAD => since + limits.head_timeout(),
            // The socket's buffer may still be sending a long answer.
            IDLE if !wrote => since + limits.idle_timeout(),
            // The handler has its own deadline; a stalled peer has one check interval, or the time that the handler
            // allows.
            BUSY if stalled => self.stall_deadline(now),
            _ => now + limits.head_timeout(),
        };
        if !stalled {
            self.stalled_since_ns.store(0, Ordering::Relaxed);
        }
        let look_again = up.min(now + limits.head_timeout());
        (up > now).then_some(look_again)
    }
}
