//! Times in which no broker has answered this process, as it stood still or was cut off: another one may have taken over.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

/// The time of the last answer, and the doubts that pauses between two answers have raised.
#[derive(Debug)]
pub(crate) struct Pauses {
    /// A shorter pause leaves others no time to take over.
    limit: Duration,
    opened_at: Instant,
    /// Milliseconds since `opened_at` of the last answer; 0 before this process works.
    answered_at_ms: AtomicU64,
    raised: AtomicU64,
    settled: AtomicU64,
    /// Rings when a doubt is raised.
    pub(crate) doubted: Notify,
}

impl Pauses {
    pub(crate) fn new(limit: Duration) -> Self {
        let none = || AtomicU64::new(0);
        let (answered_at_ms, raised, settled) = (none(), none(), none());
        Self { limit, opened_at: Instant::now(), answered_at_ms, raised, settled, doubted: Notify::new() }
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.opened_at.elapsed().as_millis()).unwrap_or(u64::MAX).max(1)
    }

    /// Begins to count.
    pub(crate) fn begin(&self) {
        self.answered_at_ms.store(self.now_ms(), Ordering::Release);
    }

    fn has_paused(&self) -> bool {
        let answered_at_ms = self.answered_at_ms.load(Ordering::Acquire);
        answered_at_ms > 0 && u128::from(self.now_ms().saturating_sub(answered_at_ms)) >= self.limit.as_millis()
    }

    /// Notes that a broker has answered; after a long pause that raises a doubt.
    pub(crate) fn answered(&self) {
        if self.has_paused() {
            self.raised.fetch_add(1, Ordering::AcqRel);
            self.doubted.notify_one();
        }
        if self.answered_at_ms.load(Ordering::Acquire) > 0 {
            self.begin();
        }
    }

    /// `true` after a long pause, until it is settled that nobody has taken over.
    pub(crate) fn in_doubt(&self) -> bool {
        self.has_paused() || self.raised.load(Ordering::Acquire) != self.settled.load(Ordering::Acquire)
    }

    /// The number of doubts until now, to be read before a look that settles them.
    pub(crate) fn doubts(&self) -> u64 {
        self.raised.load(Ordering::Acquire)
    }

    /// Nobody has taken over up to a look that began after these doubts.
    pub(crate) fn settle(&self, doubts: u64) {
        self.settled.fetch_max(doubts, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_in_doubt_until_a_look_that_began_after_it() {
        let mut pauses = Pauses::new(Duration::from_secs(60));
        pauses.opened_at -= Duration::from_secs(100);
        pauses.answered();
        assert!(!pauses.in_doubt(), "nothing counts before the beginning");
        pauses.begin();
        assert!(!pauses.in_doubt());
        pauses.opened_at -= Duration::from_secs(60);
        assert!(pauses.in_doubt());
        let before = pauses.doubts();
        pauses.answered();
        assert!(pauses.in_doubt());
        pauses.settle(before);
        assert!(pauses.in_doubt());
        pauses.settle(pauses.doubts());
        assert!(!pauses.in_doubt());
        pauses.opened_at -= Duration::from_secs(59);
        pauses.answered();
        assert!(!pauses.in_doubt());
    }
}
