//! A time of the monotonic clock in eight bytes: each of a hundred thousand waiting queries stores two.

use std::num::NonZeroU64;
use std::time::Duration;

/// As a duration since the clock began, in nanoseconds; the last one it can be is after 584 years.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ClockTime(NonZeroU64);

impl From<Duration> for ClockTime {
    fn from(since_begin: Duration) -> Self {
        let nanos = u64::try_from(since_begin.as_nanos()).unwrap_or(u64::MAX);
        // Counted from one, so that it takes no room not to have one.
        Self(NonZeroU64::MIN.saturating_add(nanos))
    }
}

impl From<ClockTime> for Duration {
    fn from(moment: ClockTime) -> Self {
        Self::from_nanos(moment.0.get() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_converts_back_to_its_duration() {
        for nanos in [0, 1, 999, 1_000_000_007, u64::MAX - 1] {
            let since_begin = Duration::from_nanos(nanos);
            assert_eq!(Duration::from(ClockTime::from(since_begin)), since_begin);
        }
        let last = Duration::from_nanos(u64::MAX - 1);
        assert_eq!(Duration::from(ClockTime::from(Duration::MAX)), last, "what is later is then");
        assert_eq!(size_of::<Option<ClockTime>>(), 8);
    }
}
