//! Bounds the rate of what is received.

use std::time::Duration;

use tokio::time::Instant;

/// Allows a number of bytes a second, on average since the first.
pub(super) struct Pace {
    bytes_per_second: Option<u64>,
    /// The time up to which everything received is paid for.
    paid_at: Instant,
}

impl Pace {
    /// A pace in MiB a second; `None` for no limit.
    pub(super) fn new(mib_per_second: Option<u32>) -> Self {
        Self { bytes_per_second: mib_per_second.map(|mib| u64::from(mib) << 20), paid_at: Instant::now() }
    }

    /// Waits until `bytes` more fit the rate.
    pub(super) async fn spend(&mut self, bytes: u64) {
        if let Some(due) = self.due(Instant::now(), bytes) {
            tokio::time::sleep_until(due).await;
        }
    }

    /// The time at which `bytes` that have arrived at `now` are paid for.
    fn due(&mut self, now: Instant, bytes: u64) -> Option<Instant> {
        let cost = Duration::from_secs_f64(bytes as f64 / self.bytes_per_second? as f64);
        // A pause earns nothing.
        self.paid_at = self.paid_at.max(now) + cost;
        Some(self.paid_at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_take_the_time_that_their_rate_gives_them() {
        let mut pace = Pace::new(Some(2));
        let start = pace.paid_at;
        let mut at = |now: Instant| pace.due(now, 256 << 10).unwrap() - start;
        let last = (0..32).map(|_| at(start)).last().unwrap();
        assert_eq!(last.as_millis(), 4_000);
        assert_eq!(at(start + Duration::from_secs(9)).as_millis(), 9_125);
        assert_eq!(Pace::new(None).due(start, u64::MAX), None);
    }
}
