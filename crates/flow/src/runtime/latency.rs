//! The latency of batches over the last one to two minutes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use millstream_types::{LatencyCounts, LatencyHistogram};
use parking_lot::Mutex;

/// A histogram, and its counts at the beginning of this minute and the one before.
#[derive(Default)]
pub(crate) struct RecentLatency {
    histogram: LatencyHistogram,
    /// The minute of the latest latency.
    minute: AtomicU64,
    marks: Mutex<Marks>,
}

#[derive(Default)]
struct Marks {
    current: Mark,
    previous: Mark,
}

/// The counts before the first latency of a minute; minute 0 is none.
#[derive(Default)]
struct Mark {
    minute: u64,
    counts: LatencyCounts,
}

impl RecentLatency {
    pub(crate) fn record(&self, now: Duration, latency: Duration) {
        let minute = minute(now);
        if self.minute.load(Ordering::Relaxed) < minute {
            self.begin(minute);
        }
        self.histogram.record(latency);
    }

    #[cold]
    fn begin(&self, minute: u64) {
        let mut marks = self.marks.lock();
        if marks.current.minute < minute {
            let begun = Mark { minute, counts: self.histogram.counts() };
            marks.previous = std::mem::replace(&mut marks.current, begun);
        }
        self.minute.store(minute, Ordering::Relaxed);
    }

    /// The latencies of this minute and the one before.
    pub(crate) fn counts(&self, now: Duration) -> LatencyCounts {
        let minute = minute(now);
        let marks = self.marks.lock();
        let base = match &*marks {
            Marks { current, previous } if current.minute == minute && previous.minute + 1 == minute => previous,
            Marks { current, .. } if current.minute + 1 >= minute => current,
            _ => return LatencyCounts::default(),
        };
        self.histogram.counts().since(&base.counts)
    }
}

/// The number of the minute, from 1 on.
fn minute(now: Duration) -> u64 {
    now.as_secs() / 60 + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_are_forgotten_after_the_minute_that_follows_theirs() {
        let latency = RecentLatency::default();
        let at = Duration::from_secs;
        let totals = |seconds: &[u64]| -> Vec<u64> {
            seconds.iter().map(|second| latency.counts(at(*second)).total()).collect()
        };
        assert_eq!(totals(&[0, 59, 61]), [0, 0, 0]);
        latency.record(at(1), Duration::from_millis(1));
        latency.record(at(59), Duration::from_millis(1));
        assert_eq!(totals(&[59, 60, 119, 120]), [2, 2, 2, 0]);
        latency.record(at(61), Duration::from_millis(9));
        assert_eq!(totals(&[61, 119, 120, 179, 180]), [3, 3, 1, 1, 0]);
        latency.record(at(600), Duration::from_millis(9));
        assert_eq!(totals(&[600, 660, 720]), [1, 1, 0]);
    }
}
