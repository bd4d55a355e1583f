//! Records that were accepted for callers that wait for no outcome, such as messages of QoS 0, and were then given up.

use std::time::{Duration, Instant};

use millstream_log::Error;
use millstream_types::TopicPartition;
use parking_lot::Mutex;
use tracing::warn;

/// Least time between two lines of the log.
const PERIOD: Duration = Duration::from_secs(60);

/// Tells of lost records in the log, once a minute at most.
#[derive(Debug, Default)]
pub(crate) struct LostRecords(Mutex<Untold>);

#[derive(Debug, Default)]
struct Untold {
    told_at: Option<Instant>,
    records: u64,
}

impl LostRecords {
    /// Tells of records of a partition that were given up, or has the next line tell of them.
    pub(crate) fn tell(&self, partition: &TopicPartition, records: u64, error: &Error) {
        if let Some(records) = self.0.lock().add(records, Instant::now()) {
            warn!(records, %partition, %error, "records that were accepted without waiting are given up, the last ones in this partition");
        }
    }
}

impl Untold {
    /// Adds records, and takes all that a line is to tell of now.
    fn add(&mut self, records: u64, now: Instant) -> Option<u64> {
        self.records += records;
        if self.records == 0 || self.told_at.is_some_and(|told_at| now.duration_since(told_at) < PERIOD) {
            return None;
        }
        self.told_at = Some(now);
        Some(std::mem::take(&mut self.records))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_a_minute_tells_of_all_records() {
        let (mut untold, begun) = (Untold::default(), Instant::now());
        let mut add = |records, s| untold.add(records, begun + Duration::from_secs(s));
        assert_eq!([add(0, 0), add(3, 0), add(4, 30), add(5, 59)], [None, Some(3), None, None]);
        assert_eq!([add(1, 60), add(0, 200), add(2, 200)], [Some(10), None, Some(2)]);
    }
}
