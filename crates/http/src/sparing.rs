//! Lines of the log that a flood of requests would otherwise write by the thousand.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Lines in a period; further ones are counted.
const LINES_MAX: u32 = 10;
const PERIOD: Duration = Duration::from_secs(1);

/// Says which lines are written.
#[derive(Debug, Default)]
pub(crate) struct Sparing(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    began: Option<Instant>,
    written: u32,
    left_out: u64,
}

impl Sparing {
    /// Whether a line is to be written now, and then how many were left out before it.
    pub(crate) fn line(&self, now: Instant) -> Option<u64> {
        let mut state = self.0.lock();
        if state.began.is_none_or(|began| now.saturating_duration_since(began) >= PERIOD) {
            (state.began, state.written) = (Some(now), 0);
        }
        if state.written >= LINES_MAX {
            state.left_out += 1;
            return None;
        }
        state.written += 1;
        Some(std::mem::take(&mut state.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_writes_few_lines_and_the_next_one_says_how_many_were_left_out() {
        let (sparing, begin) = (Sparing::default(), Instant::now());
        let written = |ms| (0..1_000).filter(|_| sparing.line(begin + Duration::from_millis(ms)).is_some()).count();
        assert_eq!((written(0), written(999)), (10, 0));
        assert_eq!(sparing.line(begin + Duration::from_secs(1)), Some(1_990));
        assert_eq!(sparing.line(begin + Duration::from_secs(1)), Some(0));
        assert_eq!((written(1_500), written(2_000)), (8, 10));
    }
}
