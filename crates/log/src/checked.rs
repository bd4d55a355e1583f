//! Which blocks of a segment were written a moment ago, or found to be as they were written.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// For how long a block counts as checked: so long that several readers who are about as far share a check, and those close
/// behind the writer need none, and so short that its bytes are still in the page cache, unless memory is scarce.
const HOLDS_FOR: Duration = Duration::from_secs(60);

/// By number of the block.
#[derive(Debug)]
pub(crate) struct Checked {
    since: Instant,
    /// Seconds after `since`, and one; 0 if never.
    times_s: Mutex<Vec<u32>>,
}

impl Checked {
    /// None yet.
    pub(crate) fn new() -> Self {
        Self { since: Instant::now(), times_s: Mutex::default() }
    }

    /// Whether block `number` need not be checked at `now`.
    pub(crate) fn holds(&self, number: usize, now: Instant) -> bool {
        let time_s = self.times_s.lock().get(number).copied().unwrap_or(0);
        time_s > 0 && self.time_s(now).saturating_sub(time_s) < HOLDS_FOR.as_secs() as u32
    }

    /// Block `number` is as it was written, at `now`.
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
        let checked = Checked::new();
        let begin = checked.since;
        assert!(!checked.holds(3, begin));
        checked.note(3, begin);
        assert!(checked.holds(3, begin) && checked.holds(3, begin + HOLDS_FOR - Duration::from_secs(1)));
        assert!(!checked.holds(2, begin) && !checked.holds(4, begin) && !checked.holds(3, begin + HOLDS_FOR));
        checked.note(3, begin + 3 * HOLDS_FOR);
        assert!(checked.holds(3, begin + 3 * HOLDS_FOR + HOLDS_FOR / 2));
    }
}
