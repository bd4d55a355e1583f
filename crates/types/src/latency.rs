//! A latency histogram that many threads share. Two counts can be subtracted, so the percentiles of the last
//! seconds need no second histogram.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Buckets per doubling: a percentile is at most an eighth too high.
const PER_DOUBLING: u64 = 8;
/// Doublings from 1 µs to over an hour; longer latencies count as the longest.
const DOUBLINGS: usize = 32;
const BUCKETS: usize = DOUBLINGS * PER_DOUBLING as usize;

/// Counters of latencies since the start of the process.
#[derive(Debug)]
pub struct LatencyHistogram([AtomicU64; BUCKETS]);

impl Default for LatencyHistogram {
    fn default() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl LatencyHistogram {
    /// Counts one latency of an operation.
    pub fn record(&self, latency: Duration) {
        self.0[bucket(latency.as_micros() as u64)].fetch_add(1, Ordering::Relaxed);
    }

    /// A copy of the counters at this moment.
    pub fn counts(&self) -> LatencyCounts {
        LatencyCounts(self.0.iter().map(|count| count.load(Ordering::Relaxed)).collect())
    }
}

/// Counts of latencies at one moment, or between two.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LatencyCounts(Vec<u64>);

impl LatencyCounts {
    /// The latencies counted since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let before = |bucket| earlier.0.get(bucket).copied().unwrap_or_default();
        Self(self.0.iter().enumerate().map(|(bucket, count)| count.saturating_sub(before(bucket))).collect())
    }

    /// The total number of latencies.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// The latency in milliseconds that the share `quantile` (0 to 1) does not exceed; `None` without any latency.
    pub fn quantile_ms(&self, quantile: f64) -> Option<f64> {
        let total = self.total();
        let rank = ((total as f64 * quantile).ceil() as u64).clamp(1, total.max(1));
        let mut below = 0;
        let found = self.0.iter().position(|count| {
            below += count;
            below >= rank
        });
        found.filter(|_| total > 0).map(|bucket| upper_end_us(bucket) as f64 / 1_000.0)
    }
}

fn bucket(us: u64) -> usize {
    if us < PER_DOUBLING {
        return us as usize;
    }
    let shift = u64::from(us.ilog2()) - u64::from(PER_DOUBLING.ilog2());
    let index = (shift + 1) * PER_DOUBLING + ((us >> shift) - PER_DOUBLING);
    (index as usize).min(BUCKETS - 1)
}

/// The largest latency of the bucket.
fn upper_end_us(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < PER_DOUBLING {
        return bucket;
    }
    let shift = bucket / PER_DOUBLING - 1;
    ((bucket % PER_DOUBLING + PER_DOUBLING + 1) << shift) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_latency_falls_into_a_bucket_that_ends_at_most_an_eighth_above_it() {
        for us in (0..100_000).chain([1 << 20, (1 << 30) + 12_345]) {
            let end = upper_end_us(bucket(us));
            assert!(us <= end && end as f64 <= us as f64 * 1.125, "{us} µs ends at {end}");
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn percentiles_of_the_last_seconds_ignore_earlier_latencies() {
        let histogram = LatencyHistogram::default();
        histogram.record(Duration::from_secs(5));
        let earlier = histogram.counts();
        for ms in 1..=100 {
            histogram.record(Duration::from_millis(ms));
        }
        let recent = histogram.counts().since(&earlier);
        assert_eq!(recent.total(), 100);
        let (p50, p99) = (recent.quantile_ms(0.5).unwrap(), recent.quantile_ms(0.99).unwrap());
        assert!((50.0..57.0).contains(&p50) && (99.0..112.0).contains(&p99), "{p50} {p99}");
        assert_eq!(LatencyCounts::default().quantile_ms(0.5), None);
    }
}
