//! The time of a cache: exact where a key may have expired, coarse where uses are only noted.
//!
//! Reading the clock takes as long as a lookup. A transaction reads it once, and only if it meets a key that expires.
//! When a key was used is noted in *ticks*, which any transaction that reads the clock sets, as do the sweep and every
//! 64th use in a shard.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use millstream_types::WallClock;

/// Milliseconds of a tick; ticks wrap around after two years.
const TICK_MS: i64 = 16;
const TICKS_A_MINUTE: u32 = 60_000 / TICK_MS as u32;

/// The wall clock, and the tick that it showed last.
pub(super) struct Clock {
    wall: Arc<dyn WallClock>,
    started_ms: i64,
    tick: AtomicU32,
}

impl Clock {
    pub(super) fn new(wall: Arc<dyn WallClock>) -> Self {
        let started_ms = wall.now_ms();
        Self { wall, started_ms, tick: AtomicU32::new(0) }
    }

    #[inline]
    pub(super) fn moment(&self) -> TransactionTime<'_> {
        TransactionTime { clock: self, ms: Cell::new(None) }
    }

    fn read(&self) -> i64 {
        let now_ms = self.wall.now_ms();
        let tick = ((now_ms - self.started_ms) / TICK_MS) as u32;
        // Others read the tick all the time: it is written only when it changes.
        if self.tick.load(Ordering::Relaxed) != tick {
            self.tick.store(tick, Ordering::Relaxed);
        }
        now_ms
    }
}

/// The time of one transaction, the same from its first look at the clock to its end.
pub(super) struct TransactionTime<'a> {
    clock: &'a Clock,
    ms: Cell<Option<i64>>,
}

impl TransactionTime<'_> {
    /// Reads the clock on the first call; milliseconds since 1970-01-01T00:00:00Z.
    #[inline]
    pub(super) fn ms(&self) -> i64 {
        let now_ms = self.ms.get().unwrap_or_else(|| self.clock.read());
        self.ms.set(Some(now_ms));
        now_ms
    }

    /// True if an expiry has passed.
    #[inline]
    pub(super) fn has_passed(&self, expires_ms: Option<i64>) -> bool {
        expires_ms.is_some_and(|expires_ms| expires_ms <= self.ms())
    }

    /// The tick that the clock showed last.
    #[inline]
    pub(super) fn tick(&self) -> Tick {
        Tick(self.clock.tick.load(Ordering::Relaxed))
    }
}

/// Time since the start of the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tick(pub(super) u32);

impl Tick {
    /// Ticks from `earlier` to this one; none if the clock was set back.
    pub(super) fn since(self, earlier: Self) -> u32 {
        let ticks = self.0.wrapping_sub(earlier.0);
        if ticks > u32::MAX / 2 { 0 } else { ticks }
    }

    /// Milliseconds from `earlier` to this one.
    pub(super) fn ms_since(self, earlier: Self) -> u64 {
        u64::from(self.since(earlier)) * TICK_MS as u64
    }

    /// Whole minutes since the start of the cache, modulo 2^16.
    pub(super) fn minute(self) -> u16 {
        (self.0 / TICKS_A_MINUTE) as u16
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use millstream_types::ManualClock;

    use super::*;

    #[test]
    fn a_moment_stands_still_and_reading_it_moves_the_tick() {
        let wall = Arc::new(ManualClock::at(1_000));
        let clock = Clock::new(wall.clone());
        let moment = clock.moment();
        assert_eq!((moment.ms(), moment.tick()), (1_000, Tick(0)));
        wall.advance(Duration::from_millis(161));
        assert_eq!((moment.ms(), clock.moment().tick()), (1_000, Tick(0)));
        assert_eq!((clock.moment().ms(), clock.moment().tick()), (1_161, Tick(10)));
        assert_eq!(clock.moment().tick().ms_since(Tick(0)), 160);
        assert!(clock.moment().has_passed(Some(1_161)) && !clock.moment().has_passed(Some(1_162)));
    }

    #[test]
    fn a_clock_that_is_set_back_makes_nothing_old() {
        assert_eq!([Tick(5).since(Tick(3)), Tick(3).since(Tick(5)), Tick(1).since(Tick(u32::MAX))], [2, 0, 2]);
    }
}
