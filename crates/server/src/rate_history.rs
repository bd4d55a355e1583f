//! The last five minutes of the server's rates, one sample a second, in fixed memory: whoever opens the console sees
//! at once what was before.

use std::collections::VecDeque;

use serde::Serialize;

/// Limit of samples, and so of the seconds that they cover.
pub(crate) const HISTORY_MAX_S: u64 = 300;

/// The rates and latencies of the few seconds that end at `uptime_s`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct RateSample {
    /// Whole seconds since the start of the process.
    pub(crate) uptime_s: u64,
    pub(crate) accepted_rate_per_s: f64,
    pub(crate) append_rate_per_s: f64,
    pub(crate) updates_rate_per_s: f64,
    pub(crate) accept_p99_ms: Option<f64>,
    pub(crate) sync_p99_ms: Option<f64>,
    pub(crate) update_p99_ms: Option<f64>,
}

/// The newest [`HISTORY_MAX_S`] samples, oldest first; their times ascend.
#[derive(Debug)]
pub(crate) struct RateHistory {
    samples: VecDeque<RateSample>,
}

impl RateHistory {
    pub(crate) fn new() -> Self {
        Self { samples: VecDeque::with_capacity(HISTORY_MAX_S as usize) }
    }

    /// True if the second `uptime_s` has no sample yet.
    pub(crate) fn is_due(&self, uptime_s: u64) -> bool {
        self.samples.back().is_none_or(|last| last.uptime_s < uptime_s)
    }

    /// Keeps a sample in place of the oldest one. A second one for the same second is dropped.
    pub(crate) fn record(&mut self, sample: RateSample) {
        if !self.is_due(sample.uptime_s) {
            return;
        }
        if self.samples.len() == HISTORY_MAX_S as usize {
            self.samples.pop_front();
        }
        self.samples.push_back(sample);
    }

    /// Returns the samples of the `span_s` seconds up to `uptime_s`, oldest first.
    pub(crate) fn last(&self, span_s: u64, uptime_s: u64) -> Vec<RateSample> {
        let from = self.samples.partition_point(|sample| sample.uptime_s.saturating_add(span_s) <= uptime_s);
        self.samples.range(from..).copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(uptime_s: u64) -> RateSample {
        RateSample {
            uptime_s,
            accepted_rate_per_s: uptime_s as f64,
            append_rate_per_s: 0.0,
            updates_rate_per_s: 0.0,
            accept_p99_ms: None,
            sync_p99_ms: None,
            update_p99_ms: None,
        }
    }

    fn seconds(samples: &[RateSample]) -> Vec<u64> {
        samples.iter().map(|sample| sample.uptime_s).collect()
    }

    #[test]
    fn five_minutes_are_kept_in_fixed_memory() {
        let mut history = RateHistory::new();
        let capacity = history.samples.capacity();
        for uptime_s in 0..10 * HISTORY_MAX_S {
            history.record(sample(uptime_s));
        }
        let end = 10 * HISTORY_MAX_S - 1;
        let kept = seconds(&history.last(u64::MAX, end));
        assert_eq!(kept, (9 * HISTORY_MAX_S..=end).collect::<Vec<_>>());
        assert_eq!(history.samples.capacity(), capacity);
    }

    #[test]
    fn each_second_has_one_sample() {
        let mut history = RateHistory::new();
        for uptime_s in [1, 1, 2, 1, 5] {
            history.record(sample(uptime_s));
        }
        assert_eq!(seconds(&history.last(HISTORY_MAX_S, 5)), [1, 2, 5]);
    }

    #[test]
    fn a_span_ends_now_and_not_at_the_last_sample() {
        let mut history = RateHistory::new();
        for uptime_s in 1..=10 {
            history.record(sample(uptime_s));
        }
        for (span_s, uptime_s, expected) in
            [(3, 10, vec![8, 9, 10]), (3, 12, vec![10]), (0, 10, vec![]), (100, 10, (1..=10).collect())]
        {
            assert_eq!(seconds(&history.last(span_s, uptime_s)), expected, "{span_s} s before {uptime_s} s");
        }
    }
}
