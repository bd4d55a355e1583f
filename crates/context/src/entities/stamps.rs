//! Unique creation times: entities created within one millisecond keep their order.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use millstream_types::WallClock;

use crate::model::entity::US_PER_MS;

/// Maximum lead over the clock. If the clock is set back by more, the stamps follow it.
const AHEAD_MAX_US: i64 = 1_000 * US_PER_MS;

/// Hands out times in microseconds that ascend while the clock is not set back.
pub(crate) struct Stamps {
    wall: Arc<dyn WallClock>,
    last_us: AtomicI64,
}

impl Stamps {
    pub(crate) fn new(wall: Arc<dyn WallClock>) -> Self {
        Self { wall, last_us: AtomicI64::new(i64::MIN) }
    }

    /// The current time, or one microsecond after the last stamp if that is later.
    pub(crate) fn next(&self) -> i64 {
        let now_us = self.wall.now_ms().saturating_mul(US_PER_MS);
        let after = |last_us: i64| {
            let next_us = last_us.saturating_add(1);
            if (now_us..now_us.saturating_add(AHEAD_MAX_US)).contains(&next_us) { next_us } else { now_us }
        };
        let last_us = self.last_us.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last_us| Some(after(last_us)));
        last_us.map_or(now_us, after)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use millstream_types::ManualClock;

    use super::*;

    #[test]
    fn each_stamp_is_later_than_the_one_before_and_none_is_far_from_the_clock() {
        let clock = Arc::new(ManualClock::at(5));
        let stamps = Stamps::new(clock.clone());
        assert_eq!([stamps.next(), stamps.next(), stamps.next()], [5_000, 5_001, 5_002]);
        clock.advance(Duration::from_millis(1));
        assert_eq!([stamps.next(), stamps.next()], [6_000, 6_001]);
        let many: Vec<i64> = (0..3_000).map(|_| stamps.next()).collect();
        assert!(many.is_sorted_by(|a, b| a < b) && many.last() == Some(&9_001), "more than a millisecond has room for");
        clock.advance(Duration::from_millis(1));
        assert_eq!(stamps.next(), 9_002);
    }

    #[test]
    fn a_clock_that_is_set_back_is_followed() {
        let stamps = Stamps { wall: Arc::new(ManualClock::at(5)), last_us: AtomicI64::new(3_600_000_000) };
        assert_eq!([stamps.next(), stamps.next()], [5_000, 5_001]);
    }

    #[test]
    fn threads_never_share_a_stamp() {
        let stamps = Stamps::new(Arc::new(ManualClock::at(5)));
        let handed = std::thread::scope(|threads| {
            let one = || (0..1_000).map(|_| stamps.next()).collect::<Vec<_>>();
            let threads: Vec<_> = (0..4).map(|_| threads.spawn(one)).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<std::collections::HashSet<_>>()
        });
        assert_eq!(handed.len(), 4_000);
    }
}
