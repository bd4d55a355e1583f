//! The event times of records, and the watermark in front of each.

use super::Batch;

/// The event time of a record that has none.
pub(crate) const NO_TIME: i64 = i64::MIN;

/// Event times of the records of an origin, milliseconds since 1970-01-01T00:00:00Z. A batch of some of these records has
/// them from the number of its first record on.
#[derive(Debug, Default)]
pub(crate) struct EventTimes {
    first_record: u32,
    /// [`NO_TIME`] for a record without one.
    times: Vec<i64>,
    /// Nothing older than this is expected behind the records before each.
    watermarks: Vec<i64>,
}

impl EventTimes {
    /// Times from the record with this number on.
    pub(super) fn from_record(first_record: u32) -> Self {
        Self { first_record, ..Self::default() }
    }

    /// Adds the next record.
    pub(super) fn push(&mut self, time_ms: i64, watermark_ms: i64) {
        self.times.push(time_ms);
        self.watermarks.push(watermark_ms);
    }

    fn at(&self, of: &[i64], record: u32) -> Option<i64> {
        of.get(record.checked_sub(self.first_record)? as usize).copied()
    }

    pub(super) fn time_ms(&self, record: u32) -> Option<i64> {
        self.at(&self.times, record)
    }

    pub(super) fn watermark_ms(&self, record: u32) -> Option<i64> {
        self.at(&self.watermarks, record)
    }
}

impl Batch {
    /// The same rows with event times: `time` gives that of each row, and the watermark in front of it. The rows are in the order of
    /// their records.
    pub(crate) fn with_times(mut self, mut time: impl FnMut(usize) -> RowTime) -> Self {
        if self.is_empty() {
            return self;
        }
        let mut times = EventTimes::from_record(self.record_number(0));
        for row in 0..self.len() {
            let RowTime { time_ms, watermark_ms } = time(row);
            // Records between two rows are not of this batch.
            let before = self.record_number(row).saturating_sub(times.first_record) as usize;
            while times.times.len() < before {
                times.push(NO_TIME, watermark_ms);
            }
            times.push(time_ms, watermark_ms);
        }
        self.times = Some(times.into());
        self
    }

    /// The event time of the row, that of its record if the job has no event times; [`NO_TIME`] for a record without one.
    pub(crate) fn time_ms(&self, row: usize) -> i64 {
        let time = self.times.as_ref().and_then(|times| times.time_ms(self.record_number(row)));
        time.unwrap_or_else(|| self.timestamp_ms(row))
    }

    /// The watermark in front of the row.
    pub(crate) fn watermark_ms(&self, row: usize) -> i64 {
        let watermark = self.times.as_ref().and_then(|times| times.watermark_ms(self.record_number(row)));
        watermark.map_or(NO_TIME, |watermark| watermark.min(self.others_ms))
    }

    /// The same rows beside others that are still to come, in front of which the watermark is this.
    pub(crate) fn beside(mut self, others_ms: i64) -> Self {
        self.others_ms = self.others_ms.min(others_ms);
        self
    }
}

/// The event time of a row, and the watermark in front of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RowTime {
    pub(crate) time_ms: i64,
    pub(crate) watermark_ms: i64,
}

#[cfg(test)]
mod tests {
    use crate::batch::{RowTime, SourceBatch};

    #[test]
    fn rows_keep_the_times_of_their_records() {
        let mut source = SourceBatch::default();
        (0..6).for_each(|number| source.push(number, None, 100, |out| out.extend_from_slice(b"{}")));
        let batch = source.finish();
        assert_eq!((batch.time_ms(3), batch.watermark_ms(3)), (100, i64::MIN));
        let part = batch.select([2, 4, 5]);
        let timed = part.with_times(|row| RowTime { time_ms: row as i64, watermark_ms: 10 * row as i64 });
        let last = timed.select([2, 0]);
        let seen: Vec<_> = (0..2).map(|row| (last.time_ms(row), last.watermark_ms(row))).collect();
        assert_eq!(seen, [(2, 20), (0, 0)]);
        assert_eq!(last.clone().beside(7).watermark_ms(0), 7);
        assert_eq!(last.clone().beside(7).beside(9).watermark_ms(0), 7, "those of an earlier queue still count");
        let made = last.rewrite();
        assert_eq!(made.finish().len(), 0);
    }
}
