//! Remembers which blocks of a segment were written or verified a moment ago.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// A block counts as verified for this long. The time is long enough for readers that are close together to share one
/// check, and for readers close behind the writer to need none. It is short enough for the bytes to be still in the
/// page cache, unless memory is scarce.
const HOLDS_FOR: Duration = Duration::from_secs(60);

/// Verification times by block number.
#[derive(Debug)]
pub(crate) struct ChecksumCache {
    since: Instant,
    /// Seconds after `since`, plus one; 0 if the block was never verified.
    times_s: Mutex<Vec<u32>>,
}

impl ChecksumCache {
    pub(crate) fn new() -> Self {
        Self { since: Instant::now(), times_s: Mutex::default() }
    }

    /// `true` if block `number` needs no check at `now`.
    pub(crate) fn holds(&self, number: usize, now: Instant) -> bool {
        let time_s = self.times_s.lock().get(number).copied().unwrap_or(0);
        time_s > 0 && self.time_s(now).saturating_sub(time_s) < HOLDS_FOR.as_secs() as u32
    }

    /// Notes that block `number` was written or verified at `now`.
    pub(crate) fn note(&self, number: usize, now: Instant) {
        let mut times_s = self.times_s.lock();
        if times_s.len() <= number {
            times_s.resize(number + 1, 0);
        }
        times_s[number] = self.time_s(now);
    }

    fn time_s(&self, now: Instant) -> u32 {
        let since = now.saturating_duration_since(self.since);
        u32::try_from(since.as_secs()).unwrap_or(u32::MAX).saturating_add(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_holds_for_its_own_block_and_a_minute() {
        let checked = ChecksumCache::new();
        let begin = checked.since;
        assert!(!checked.holds(3, begin));
        checked.note(3, begin);
        assert!(checked.holds(3, begin) && checked.holds(3, begin + HOLDS_FOR - Duration::from_secs(1)));
        assert!(!checked.holds(2, begin) && !checked.holds(4, begin) && !checked.holds(3, begin + HOLDS_FOR));
        checked.note(3, begin + 3 * HOLDS_FOR);
        assert!(checked.holds(3, begin + 3 * HOLDS_FOR + HOLDS_FOR / 2));
    }
}
