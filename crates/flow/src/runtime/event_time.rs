//! Event time: how far it has come, at a source and behind several inputs.
//!
//! The watermark of a source's instance is the least of its partitions' latest times, less the disorder that the document
//! allows. A partition without news for `idle_timeout`, while there was nothing to be read, no longer counts. Once none counts, the
//! input is quiet: those who watch for silence let time go on with the clock from there.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::Error;
use crate::batch::{Batch, NO_TIME, RowTime};
use crate::connector::Source;
use crate::document::{EventTime, Node};
use crate::expression::{RecordError, TimeExpression};

/// The progress of event time on an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TimeMark {
    /// Nothing older is expected; [`NO_TIME`] before the first record.
    pub(super) watermark_ms: i64,
    /// Since when, by the wall clock, there has been nothing to read; `None` while there is.
    pub(super) quiet_since_ms: Option<i64>,
}

impl TimeMark {
    pub(super) const START: Self = Self { watermark_ms: NO_TIME, quiet_since_ms: None };

    /// The progress behind all these inputs: the least of those that are not quiet, or the latest if all are.
    pub(super) fn behind(marks: impl Iterator<Item = Self> + Clone) -> Self {
        match marks.clone().filter(|mark| mark.quiet_since_ms.is_none()).map(|mark| mark.watermark_ms).min() {
            Some(watermark_ms) => Self { watermark_ms, quiet_since_ms: None },
            None => Self {
                watermark_ms: marks.clone().map(|mark| mark.watermark_ms).max().unwrap_or(NO_TIME),
                quiet_since_ms: marks.filter_map(|mark| mark.quiet_since_ms).max(),
            },
        }
    }

    /// The watermark of all but one of these inputs.
    pub(super) fn beside(marks: impl Iterator<Item = Self>) -> i64 {
        marks.filter(|mark| mark.quiet_since_ms.is_none()).map(|mark| mark.watermark_ms).min().unwrap_or(i64::MAX)
    }

    /// The progress of records that may come so much later.
    pub(super) fn behind_by(self, delay_ms: i64) -> Self {
        Self { watermark_ms: self.watermark_ms.saturating_sub(delay_ms), ..self }
    }

    /// The time at which silence is judged.
    pub(super) fn time_ms(self, wall_ms: i64) -> i64 {
        match self.quiet_since_ms {
            Some(since_ms) if self.watermark_ms != NO_TIME => {
                self.watermark_ms.saturating_add(wall_ms.saturating_sub(since_ms).max(0))
            }
            _ => self.watermark_ms,
        }
    }
}

/// The latest event times of a source's partitions, by number.
pub(super) type PartitionTimes = BTreeMap<u32, i64>;

/// The event time of one instance of a source.
pub(super) struct SourceTime {
    setting: EventTime,
    field: Option<TimeExpression>,
    partitions: BTreeMap<u32, PartitionTime>,
    /// Times that were restored, of partitions that may be another instance's.
    restored: PartitionTimes,
    /// The watermark never goes back.
    watermark_ms: i64,
    /// When something was read last, by the wall clock.
    read_at_ms: i64,
    /// The last look at the partitions and the clock.
    now: Duration,
    /// There was nothing to be read then.
    found_nothing: bool,
}

#[derive(Debug, Clone, Copy)]
struct PartitionTime {
    latest_ms: i64,
    /// When it last had records, or some that could be read.
    news_at: Duration,
}

impl SourceTime {
    /// # Errors
    /// [`Error::Plan`] for an expression that the document's checks should have refused.
    pub(super) fn new(node: &Node, wall_ms: i64) -> Result<Self, Error> {
        let field = node.event_time.field.as_deref().map(|text| TimeExpression::parse(text, &node.params));
        let refuse = |message| Error::plan(&node.name, "event_time.field", message);
        Ok(Self {
            setting: node.event_time.clone(),
            field: field.transpose().map_err(refuse)?,
            partitions: BTreeMap::new(),
            restored: PartitionTimes::new(),
            watermark_ms: NO_TIME,
            read_at_ms: wall_ms,
            now: Duration::ZERO,
            found_nothing: false,
        })
    }

    /// Goes on from an epoch that was committed at this time by the wall clock.
    pub(super) fn restore(&mut self, times: PartitionTimes, at_ms: i64) {
        self.read_at_ms = at_ms;
        self.restored = times;
    }

    /// The latest times of all partitions that had records.
    pub(super) fn latest(&self) -> impl Iterator<Item = (u32, i64)> {
        let known = self.partitions.iter().map(|(number, partition)| (*number, partition.latest_ms));
        known.filter(|(_, latest_ms)| *latest_ms != NO_TIME)
    }

    /// Looks at the partitions of the source, and at the clock.
    pub(super) fn look(&mut self, source: &dyn Source, now: Duration, found_nothing: bool) {
        (self.now, self.found_nothing) = (now, found_nothing);
        let (partitions, restored) = (&mut self.partitions, &self.restored);
        source.partitions(&mut |number, has_more| {
            let latest_ms = || restored.get(&number).copied().unwrap_or(NO_TIME);
            let known =
                partitions.entry(number).or_insert_with(|| PartitionTime { latest_ms: latest_ms(), news_at: now });
            if has_more {
                known.news_at = now;
            }
        });
    }

    /// Gives the rows of a batch of one partition their times. Rows whose time cannot be read are added to `failed`, which is in
    /// the order of rows.
    pub(super) fn stamp(&mut self, batch: Batch, failed: &mut Vec<RecordError>, partition: u32, wall_ms: i64) -> Batch {
        let times = self.times(&batch, failed);
        self.read_at_ms = wall_ms;
        let others = self.partitions.iter().filter(|(number, known)| **number != partition && !self.is_quiet(known));
        let others_ms = others.map(|(_, known)| known.latest_ms).min().unwrap_or(i64::MAX);
        let begin = PartitionTime { latest_ms: NO_TIME, news_at: self.now };
        let mut latest_ms = self.partitions.get(&partition).unwrap_or(&begin).latest_ms;
        let mut watermark_ms = self.watermark_ms;
        let disorder_ms = self.setting.max_out_of_orderness_ms;
        let mut advance = |latest_ms: i64| {
            let least_ms = latest_ms.min(others_ms);
            if least_ms != NO_TIME {
                watermark_ms = watermark_ms.max(least_ms.saturating_sub(disorder_ms));
            }
            watermark_ms
        };
        let stamped = batch.clone().with_times(|row| {
            let watermark_ms = advance(latest_ms);
            let time_ms = times[row];
            latest_ms = latest_ms.max(time_ms);
            RowTime { time_ms, watermark_ms }
        });
        self.watermark_ms = advance(latest_ms);
        self.partitions.insert(partition, PartitionTime { latest_ms, news_at: self.now });
        stamped
    }

    fn times(&self, batch: &Batch, failed: &mut Vec<RecordError>) -> Vec<i64> {
        let Some(field) = &self.field else { return (0..batch.len()).map(|row| batch.timestamp_ms(row)).collect() };
        let mut times = Vec::with_capacity(batch.len());
        let known = failed.len();
        field.each(batch, |row, time| match time {
            Ok(time) => times.push(time.unwrap_or(NO_TIME)),
            Err(failure) => {
                times.push(NO_TIME);
                let row = row as u32;
                if failed[..known].binary_search_by_key(&row, |error| error.row).is_err() {
                    failed.push(failure.of_row(row, field.text()));
                }
            }
        });
        failed.sort_by_key(|error| error.row);
        times
    }

    fn is_quiet(&self, partition: &PartitionTime) -> bool {
        self.now.saturating_sub(partition.news_at) >= self.setting.idle_timeout
    }

    /// The progress so far.
    pub(super) fn mark(&mut self) -> TimeMark {
        let disorder_ms = self.setting.max_out_of_orderness_ms;
        let active = self.partitions.values().filter(|partition| !self.is_quiet(partition));
        let least = active.map(|partition| partition.latest_ms).min();
        let latest = self.partitions.values().map(|partition| partition.latest_ms).max();
        let reached = least.or(latest).filter(|time_ms| *time_ms != NO_TIME);
        if let Some(reached_ms) = reached {
            self.watermark_ms = self.watermark_ms.max(reached_ms.saturating_sub(disorder_ms));
        }
        let is_quiet = least.is_none() && self.found_nothing;
        TimeMark { watermark_ms: self.watermark_ms, quiet_since_ms: is_quiet.then_some(self.read_at_ms) }
    }

    /// The time until the next partition is quiet, if nothing comes.
    pub(super) fn time_to_quiet(&self) -> Option<Duration> {
        let left = |partition: &PartitionTime| {
            (partition.news_at + self.setting.idle_timeout).checked_sub(self.now).filter(|left| !left.is_zero())
        };
        self.partitions.values().filter_map(left).min()
    }
}
