//! Bounds the log lines that a flood of requests or connections can cause.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Most lines in a period; further ones are only counted.
const LINES_MAX: u32 = 10;
const PERIOD: Duration = Duration::from_secs(1);

/// Admits ten log lines a second and counts those that are left out.
#[derive(Debug, Default)]
pub struct LogRateLimit(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    began: Option<Instant>,
    written: u32,
    left_out: u64,
}

impl LogRateLimit {
    /// Admits a line and returns the number of lines left out before it; `None` if the line is left out.
    pub fn admit(&self, now: Instant) -> Option<u64> {
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
        let (limit, begin) = (LogRateLimit::default(), Instant::now());
        let written = |ms| (0..1_000).filter(|_| limit.admit(begin + Duration::from_millis(ms)).is_some()).count();
        assert_eq!((written(0), written(999)), (10, 0));
        assert_eq!(limit.admit(begin + Duration::from_secs(1)), Some(1_990));
        assert_eq!(limit.admit(begin + Duration::from_secs(1)), Some(0));
        assert_eq!((written(1_500), written(2_000)), (8, 10));
    }
}
