//! The clocks of brokers, compared whenever they stamp records: retention counts by these stamps.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tracing::warn;

/// The difference between clocks that is told. Clocks that are set by NTP differ by much less.
const TOLERANCE: Duration = Duration::from_secs(5 * 60);

/// The brokers whose clocks differ from this process's.
#[derive(Debug, Default)]
pub(crate) struct Clocks {
    /// By broker, milliseconds by which its clock is ahead.
    ahead_ms: Mutex<BTreeMap<i32, i64>>,
    is_any: AtomicBool,
}

impl Clocks {
    /// Compares the stamp of a record that was stored between `age` ago and now.
    pub(crate) fn stamped(&self, broker: i32, stamp_ms: i64, now_ms: i64, age: Duration) {
        let ms = |time: Duration| i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
        let ahead_ms = stamp_ms - stamp_ms.clamp(now_ms.saturating_sub(ms(age)), now_ms);
        let is_off = ahead_ms.saturating_abs() > ms(TOLERANCE);
        if !is_off && !self.is_any.load(Ordering::Acquire) {
            return;
        }
        let mut all = self.ahead_ms.lock();
        match is_off {
            true if all.insert(broker, ahead_ms).is_none() => {
                warn!(broker, ahead_ms, "the clock of a broker differs from that of this process");
            }
            true => {}
            false => drop(all.remove(&broker)),
        }
        self.is_any.store(!all.is_empty(), Ordering::Release);
    }

    /// A line for each broker whose clock differs, with the rule and the remedy.
    pub(crate) fn warnings(&self, name: impl Fn(i32) -> String) -> Vec<String> {
        let line = |(broker, ahead_ms): (&i32, &i64)| {
            let (minutes, side) = (ahead_ms.unsigned_abs() / 60_000, if *ahead_ms > 0 { "ahead of" } else { "behind" });
            format!(
                "the clock of {} is {minutes} min {side} that of this process, and at most {} min are allowed, as retention counts by it; set the clocks of all machines by NTP",
                name(*broker),
                TOLERANCE.as_secs() / 60
            )
        };
        self.ahead_ms.lock().iter().map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_differs_by_more_than_the_tolerance_is_told_until_it_is_set() {
        const NOW_MS: i64 = 1_700_000_000_000;
        const MINUTE_MS: i64 = 60_000;
        let clocks = Clocks::default();
        let (none, waited) = (Duration::ZERO, Duration::from_secs(50 * 60));
        let told = |stamp_ms, age| {
            clocks.stamped(1, stamp_ms, NOW_MS, age);
            clocks.warnings(|broker| format!("broker {broker} at b:1"))
        };
        for (stamp_ms, age, part) in [
            (NOW_MS + 61 * MINUTE_MS, none, "broker 1 at b:1 is 61 min ahead of"),
            (NOW_MS - 61 * MINUTE_MS, none, "is 61 min behind"),
            (NOW_MS - 61 * MINUTE_MS, waited, "is 11 min behind"),
        ] {
            let lines = told(stamp_ms, age);
            assert!(lines.len() == 1 && lines[0].contains(part) && lines[0].contains("NTP"), "{lines:?}");
        }
        for (stamp_ms, age) in
            [(NOW_MS + 4 * MINUTE_MS, none), (NOW_MS - 4 * MINUTE_MS, none), (NOW_MS - 54 * MINUTE_MS, waited)]
        {
            assert!(told(stamp_ms, age).is_empty());
        }
    }
}
