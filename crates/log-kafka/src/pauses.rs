//! Times in which another process may have taken over, as this one stood still or was cut off.
//!
//! - A pause between two answers of any broker is in doubt until a look at the claims that began after it.
//! - Others count the time since the last beat of this process that they see. So a beat confirms the claim from the moment at which it
//!   was sent, once it is stored and a look that began afterwards has found nobody else. That the other brokers answer is not enough.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

/// The time of the last answer, the doubts that pauses between two answers have raised, and the last confirmation of the claim.
#[derive(Debug)]
pub(crate) struct Pauses {
    /// A shorter pause leaves others no time to take over.
    limit: Duration,
    opened_at: Instant,
    /// Milliseconds since `opened_at` of the last answer; 0 before this process works.
    answered_at_ms: AtomicU64,
    raised: AtomicU64,
    settled: AtomicU64,
    /// Milliseconds since `opened_at` at which the newest beat that is stored was sent.
    beat_at_ms: AtomicU64,
    /// The same of the newest beat that confirms the claim; 0 before this process works.
    confirmed_at_ms: AtomicU64,
    /// Rings when a doubt is raised, and when a beat is stored.
    pub(crate) doubted: Notify,
}

impl Pauses {
    pub(crate) fn new(limit: Duration) -> Self {
        let none = || AtomicU64::new(0);
        let (answered_at_ms, raised, settled, beat_at_ms, confirmed_at_ms) = (none(), none(), none(), none(), none());
        let (opened_at, doubted) = (Instant::now(), Notify::new());
        Self { limit, opened_at, answered_at_ms, raised, settled, beat_at_ms, confirmed_at_ms, doubted }
    }

    fn now_ms(&self) -> u64 {
        self.ms_of(Instant::now())
    }

    fn ms_of(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.opened_at).as_millis()).unwrap_or(u64::MAX).max(1)
    }

    /// Begins to count. The claim was sent after `claimed_at`.
    pub(crate) fn begin(&self, claimed_at: Instant) {
        let claimed_at_ms = self.ms_of(claimed_at);
        self.beat_at_ms.store(claimed_at_ms, Ordering::Release);
        self.confirmed_at_ms.store(claimed_at_ms, Ordering::Release);
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
            self.answered_at_ms.store(self.now_ms(), Ordering::Release);
        }
    }

    /// `true` after a long pause, until it is settled that nobody has taken over.
    pub(crate) fn in_doubt(&self) -> bool {
        self.has_paused() || self.raised.load(Ordering::Acquire) != self.settled.load(Ordering::Acquire)
    }

    /// A beat that was sent at this time is stored.
    pub(crate) fn beat(&self, sent_at: Instant) {
        self.beat_at_ms.fetch_max(self.ms_of(sent_at), Ordering::AcqRel);
        self.doubted.notify_one();
    }

    /// The time since the claim was confirmed, if others may have taken over since.
    pub(crate) fn unconfirmed(&self) -> Option<Duration> {
        match self.confirmed_at_ms.load(Ordering::Acquire) {
            0 => None,
            confirmed_at_ms => Some(Duration::from_millis(self.now_ms().saturating_sub(confirmed_at_ms))),
        }
        .filter(|time| *time >= self.limit)
    }

    /// The doubts and the beat that a look which begins now settles, if it finds nobody else.
    pub(crate) fn open(&self) -> Unsettled {
        let [doubts, beat_at_ms] = [&self.raised, &self.beat_at_ms].map(|known| known.load(Ordering::Acquire));
        Unsettled { doubts, beat_at_ms }
    }

    /// Nobody has taken over up to a look that began after this.
    pub(crate) fn settle(&self, Unsettled { doubts, beat_at_ms }: Unsettled) {
        self.settled.fetch_max(doubts, Ordering::AcqRel);
        self.confirmed_at_ms.fetch_max(beat_at_ms, Ordering::AcqRel);
    }
}

/// The doubts, and the last beat, at the beginning of a look.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Unsettled {
    doubts: u64,
    beat_at_ms: u64,
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
        pauses.begin(Instant::now());
        assert!(!pauses.in_doubt());
        pauses.opened_at -= Duration::from_secs(60);
        assert!(pauses.in_doubt());
        let before = pauses.open();
        pauses.answered();
        assert!(pauses.in_doubt());
        pauses.settle(before);
        assert!(pauses.in_doubt());
        pauses.settle(pauses.open());
        assert!(!pauses.in_doubt());
        pauses.opened_at -= Duration::from_secs(59);
        pauses.answered();
        assert!(!pauses.in_doubt());
    }

    #[test]
    fn a_claim_is_confirmed_by_a_look_after_a_beat_from_the_moment_at_which_that_was_sent() {
        let mut pauses = Pauses::new(Duration::from_secs(60));
        assert_eq!(pauses.unconfirmed(), None, "nothing counts before the beginning");
        pauses.begin(Instant::now());
        pauses.opened_at -= Duration::from_secs(61);
        let sent_at = Instant::now();
        pauses.settle(pauses.open());
        assert!(pauses.unconfirmed().is_some(), "a look alone does not show that others see this process");
        let before = pauses.open();
        pauses.beat(sent_at);
        pauses.settle(before);
        assert!(pauses.unconfirmed().is_some(), "another one may have claimed before the beat");
        pauses.settle(pauses.open());
        assert_eq!(pauses.unconfirmed(), None);
        pauses.opened_at -= Duration::from_secs(61);
        assert!(pauses.unconfirmed().is_some());
    }
}
