//! Times in which this process stood still, as after SIGSTOP or on a machine that slept: another one may have taken over.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

/// The clock of ticks, and the doubts that pauses have raised.
#[derive(Debug)]
pub(crate) struct Pauses {
    opened_at: Instant,
    /// Milliseconds since `opened_at` of the last tick; 0 before the first.
    ticked_at_ms: AtomicU64,
    raised: AtomicU64,
    settled: AtomicU64,
    /// Rings when a doubt is raised.
    pub(crate) doubted: Notify,
}

impl Pauses {
    pub(crate) fn new() -> Self {
        let none = || AtomicU64::new(0);
        let (ticked_at_ms, raised, settled) = (none(), none(), none());
        Self { opened_at: Instant::now(), ticked_at_ms, raised, settled, doubted: Notify::new() }
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.opened_at.elapsed().as_millis()).unwrap_or(u64::MAX).max(1)
    }

    /// Begins to count.
    pub(crate) fn begin(&self) {
        self.ticked_at_ms.store(self.now_ms(), Ordering::Release);
    }

    fn has_paused(&self, limit: Duration) -> bool {
        let ticked_at_ms = self.ticked_at_ms.load(Ordering::Acquire);
        ticked_at_ms > 0 && u128::from(self.now_ms().saturating_sub(ticked_at_ms)) >= limit.as_millis()
    }

    /// Notes that this process runs; after a pause of `limit` that raises a doubt.
    pub(crate) fn tick(&self, limit: Duration) {
        if self.has_paused(limit) {
            self.raised.fetch_add(1, Ordering::AcqRel);
            self.doubted.notify_one();
        }
        self.begin();
    }

    /// `true` after a pause of `limit`, until it is settled that nobody has taken over.
    pub(crate) fn in_doubt(&self, limit: Duration) -> bool {
        self.has_paused(limit) || self.raised.load(Ordering::Acquire) != self.settled.load(Ordering::Acquire)
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
        let (pauses, never) = (Pauses::new(), Duration::from_secs(3_600));
        assert!(!pauses.in_doubt(Duration::ZERO), "nothing counts before the beginning");
        pauses.begin();
        assert!(!pauses.in_doubt(never));
        assert!(pauses.in_doubt(Duration::ZERO));
        let before = pauses.doubts();
        pauses.tick(Duration::ZERO);
        assert!(pauses.in_doubt(never));
        pauses.settle(before);
        assert!(pauses.in_doubt(never));
        pauses.settle(pauses.doubts());
        assert!(!pauses.in_doubt(never));
        pauses.tick(never);
        assert!(!pauses.in_doubt(never));
    }
}
