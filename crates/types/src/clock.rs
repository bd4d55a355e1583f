//! The two clocks. Code that needs time takes a clock as a parameter and never reads the system's clock.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Time that never goes back: for timeouts, rates and latencies.
pub trait MonotonicClock: Send + Sync + 'static {
    /// Time since an arbitrary fixed start.
    fn now(&self) -> Duration;
}

/// Civil time, for people and other systems. It may jump when an operator sets the clock.
pub trait WallClock: Send + Sync + 'static {
    /// Returns the milliseconds since 1970-01-01T00:00:00Z.
    fn now_ms(&self) -> i64;
}

/// Both clocks of the operating system.
#[derive(Debug, Clone)]
pub struct SystemClock {
    start: Instant,
}

impl Default for SystemClock {
    fn default() -> Self {
        Self { start: Instant::now() }
    }
}

impl MonotonicClock for SystemClock {
    fn now(&self) -> Duration {
        self.start.elapsed()
    }
}

impl WallClock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the one place where the system's clock is read")]
    fn now_ms(&self) -> i64 {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX)
    }
}

/// Both clocks for tests; they stand still until they are moved.
#[derive(Debug, Default)]
pub struct ManualClock {
    monotonic_ns: AtomicU64,
    wall_ms: AtomicI64,
}

impl ManualClock {
    /// A clock whose wall time is `wall_ms` and whose monotonic time is zero.
    pub fn at(wall_ms: i64) -> Self {
        Self { monotonic_ns: AtomicU64::new(0), wall_ms: AtomicI64::new(wall_ms) }
    }

    /// Moves both clocks forward by `step`.
    pub fn advance(&self, step: Duration) {
        self.monotonic_ns.fetch_add(step.as_nanos() as u64, Ordering::SeqCst);
        self.wall_ms.fetch_add(step.as_millis() as i64, Ordering::SeqCst);
    }
}

impl MonotonicClock for ManualClock {
    fn now(&self) -> Duration {
        Duration::from_nanos(self.monotonic_ns.load(Ordering::SeqCst))
    }
}

impl WallClock for ManualClock {
    fn now_ms(&self) -> i64 {
        self.wall_ms.load(Ordering::SeqCst)
    }
}

/// A wall clock that never goes back: after its wall clock is set back, it goes on from where it was.
pub struct SteadyClock {
    wall: std::sync::Arc<dyn WallClock>,
    monotonic: std::sync::Arc<dyn MonotonicClock>,
    /// The most that the wall clock was ahead of the monotonic one, in milliseconds.
    ahead_ms: AtomicI64,
}

impl SteadyClock {
    /// A clock that follows `wall`.
    pub fn new(wall: std::sync::Arc<dyn WallClock>, monotonic: std::sync::Arc<dyn MonotonicClock>) -> Self {
        Self { wall, monotonic, ahead_ms: AtomicI64::new(i64::MIN) }
    }
}

impl std::fmt::Debug for SteadyClock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SteadyClock({})", self.now_ms())
    }
}

impl WallClock for SteadyClock {
    fn now_ms(&self) -> i64 {
        let since_start_ms = self.monotonic.now().as_millis() as i64;
        let ahead_ms = self.wall.now_ms() - since_start_ms;
        since_start_ms + self.ahead_ms.fetch_max(ahead_ms, Ordering::SeqCst).max(ahead_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manual_clock_stands_still_until_it_is_moved() {
        let clock = ManualClock::at(1_000);
        assert_eq!((MonotonicClock::now(&clock), clock.now_ms()), (Duration::ZERO, 1_000));
        clock.advance(Duration::from_millis(250));
        assert_eq!((MonotonicClock::now(&clock), clock.now_ms()), (Duration::from_millis(250), 1_250));
    }

    #[test]
    fn the_systems_monotonic_clock_never_goes_back() {
        let clock = SystemClock::default();
        let mut last = Duration::ZERO;
        for _ in 0..1_000 {
            let now = clock.now();
            assert!(now >= last);
            last = now;
        }
        // 2020-09-13, a time before this test was written.
        assert!(clock.now_ms() > 1_600_000_000_000);
    }

    #[test]
    fn a_steady_clock_goes_on_when_its_wall_clock_is_set_back() {
        use std::sync::Arc;
        let (wall, monotonic) = (Arc::new(ManualClock::at(10_000)), Arc::new(ManualClock::at(0)));
        let steady = SteadyClock::new(wall.clone(), monotonic.clone());
        assert_eq!(steady.now_ms(), 10_000);
        wall.wall_ms.store(13_600, Ordering::SeqCst);
        assert_eq!(steady.now_ms(), 13_600);
        wall.wall_ms.store(1_000, Ordering::SeqCst);
        assert_eq!(steady.now_ms(), 13_600);
        monotonic.advance(Duration::from_millis(5));
        assert_eq!(steady.now_ms(), 13_605);
        wall.wall_ms.store(20_000, Ordering::SeqCst);
        assert_eq!(steady.now_ms(), 20_000);
    }
}
