//! Latency histograms: recorded in microseconds with three significant digits, reported in milliseconds.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Largest recorded latency; a longer one counts as this.
const LATENCY_MAX: Duration = Duration::from_secs(3600);

/// A histogram of latencies that yields percentiles.
#[derive(Debug, Clone)]
pub struct Latencies {
    histogram: Histogram<u64>,
}

impl Default for Latencies {
    fn default() -> Self {
        let histogram = Histogram::new_with_max(LATENCY_MAX.as_micros() as u64, 3);
        Self { histogram: histogram.expect("an hour in microseconds with three digits is a legal range") }
    }
}

impl Latencies {
    /// Adds one latency to the histogram.
    pub fn record(&mut self, latency: Duration) {
        self.histogram.saturating_record(latency.as_micros() as u64);
    }

    /// Adds all latencies of another histogram.
    pub fn add(&mut self, other: &Self) {
        self.histogram.add(&other.histogram).expect("all latency histograms have the same range");
    }

    /// Returns the number of recorded latencies.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// Returns the percentiles so far; zeros for an empty histogram.
    pub fn summary(&self) -> LatencyMs {
        let at = |quantile: f64| self.histogram.value_at_quantile(quantile) as f64 / 1000.0;
        LatencyMs {
            p50: at(0.5),
            p90: Some(at(0.9)),
            p98: Some(at(0.98)),
            p99: at(0.99),
            p99_9: at(0.999),
            max: self.histogram.max() as f64 / 1000.0,
        }
    }
}

/// Percentiles of a latency in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct LatencyMs {
    /// Median of all recorded latencies.
    pub p50: f64,
    /// 90th percentile; absent if the client of a peer does not report it.
    pub p90: Option<f64>,
    /// 98th percentile; absent if the client of a peer does not report it.
    pub p98: Option<f64>,
    /// 99th percentile of all recorded latencies.
    pub p99: f64,
    /// 99.9th percentile of all recorded latencies.
    pub p99_9: f64,
    /// Largest of all recorded latencies.
    pub max: f64,
}

impl LatencyMs {
    /// Returns names and values in the order of the tables.
    pub fn columns(&self) -> [(&'static str, Option<f64>); 6] {
        let Self { p50, p90, p98, p99, p99_9, max } = *self;
        [("p50", Some(p50)), ("p90", p90), ("p98", p98), ("p99", Some(p99)), ("p99.9", Some(p99_9)), ("max", Some(max))]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(actual: f64, expected: f64) -> bool {
        (actual - expected).abs() <= expected * 0.001
    }

    #[test]
    fn percentiles_of_one_to_ten_thousand_microseconds_are_within_a_thousandth() {
        let mut latencies = Latencies::default();
        (1..=10_000).for_each(|us| latencies.record(Duration::from_micros(us)));
        let LatencyMs { p50, p90, p98, p99, p99_9, max } = latencies.summary();
        let (p90, p98) = (p90.unwrap(), p98.unwrap());
        for (actual, expected) in [(p50, 5.0), (p90, 9.0), (p98, 9.8), (p99, 9.9), (p99_9, 9.99), (max, 10.0)] {
            assert!(near(actual, expected), "{actual} is not {expected}");
        }
    }

    #[test]
    fn two_halves_added_are_the_whole() {
        let (mut even, mut odd, mut all) = (Latencies::default(), Latencies::default(), Latencies::default());
        for us in 0..1000 {
            if us % 2 == 0 { &mut even } else { &mut odd }.record(Duration::from_micros(us));
            all.record(Duration::from_micros(us));
        }
        even.add(&odd);
        assert_eq!((even.count(), even.summary()), (1000, all.summary()));
    }

    #[test]
    fn nothing_counted_is_all_zeros_and_more_than_an_hour_counts_as_an_hour() {
        let mut latencies = Latencies::default();
        assert_eq!(latencies.summary(), LatencyMs { p90: Some(0.0), p98: Some(0.0), ..LatencyMs::default() });
        latencies.record(Duration::from_secs(7200));
        assert!(near(latencies.summary().max, 3_600_000.0));
    }
}
