//! The rate of a bucket's writes.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

const SECOND_NS: i64 = 1_000_000_000;
/// Idle time that may be used up in a burst.
const BURST_NS: i64 = SECOND_NS;

/// The part of its rate that the writes of a bucket have used: the time at which they are paid off, at most
/// a second in the past.
#[derive(Debug)]
pub(crate) struct WriteRate {
    paid_at_ns: AtomicI64,
}

impl Default for WriteRate {
    fn default() -> Self {
        Self { paid_at_ns: AtomicI64::new(i64::MIN) }
    }
}

impl WriteRate {
    /// Admits `writes` together at `now_ms`, if a bucket of `per_second` has room for them. More than a second's worth
    /// are admitted after a second without any.
    ///
    /// # Errors
    /// The time to wait; then nothing is charged.
    pub(crate) fn admit(&self, per_second: u32, writes: u32, now_ms: i64) -> Result<(), Duration> {
        let now_ns = now_ms.saturating_mul(1_000_000);
        let cost_ns = i64::from(writes) * SECOND_NS / i64::from(per_second.max(1));
        let paid = |paid_at_ns: i64| {
            let start_ns = paid_at_ns.max(now_ns - BURST_NS);
            let latest_ns = now_ns - cost_ns.min(BURST_NS);
            if start_ns <= latest_ns { Ok(start_ns + cost_ns) } else { Err(start_ns - latest_ns) }
        };
        let charge = |paid_at_ns| paid(paid_at_ns).ok();
        let charged = self.paid_at_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, charge);
        charged.map(drop).map_err(|paid_at_ns| {
            let wait_ns = paid(paid_at_ns).err().unwrap_or_default();
            Duration::from_nanos(wait_ns.unsigned_abs())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START_MS: i64 = 1_767_225_600_000;

    fn admitted(rate: &WriteRate, per_second: u32, now_ms: i64) -> u32 {
        (0..).find(|_| rate.admit(per_second, 1, now_ms).is_err()).unwrap()
    }

    #[test]
    fn a_second_of_writes_is_admitted_at_once_and_then_the_rate() {
        let rate = WriteRate::default();
        assert_eq!(admitted(&rate, 100, START_MS), 100);
        assert_eq!(rate.admit(100, 1, START_MS), Err(Duration::from_millis(10)));
        assert_eq!(admitted(&rate, 100, START_MS + 9), 0);
        assert_eq!(admitted(&rate, 100, START_MS + 10), 1);
        assert_eq!(admitted(&rate, 100, START_MS + 510), 50);
        assert_eq!(admitted(&rate, 100, START_MS + 3_600_000), 100, "idle time saves up one second");
        assert_eq!(admitted(&rate, 100, START_MS), 0, "and a clock that is set back saves up nothing");
    }

    #[test]
    fn a_rate_of_one_waits_a_second_between_writes() {
        let rate = WriteRate::default();
        assert_eq!(admitted(&rate, 1, START_MS), 1);
        assert_eq!(rate.admit(1, 1, START_MS + 400), Err(Duration::from_millis(600)));
        assert_eq!(admitted(&rate, 1, START_MS + 1_000), 1);
    }

    #[test]
    fn more_writes_than_a_second_has_are_admitted_and_paid_off() {
        let rate = WriteRate::default();
        assert_eq!(rate.admit(10, 25, START_MS), Ok(()));
        assert_eq!(rate.admit(10, 1, START_MS + 1_500), Err(Duration::from_millis(100)));
        assert_eq!(admitted(&rate, 10, START_MS + 2_000), 5);
    }
}
