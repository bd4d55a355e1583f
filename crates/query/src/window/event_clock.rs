//! How far event time has come in the partitions of a query.

use std::collections::BTreeMap;
use std::time::Duration;

use millstream_types::PartitionId;

/// A partition without a matching record for this long holds event time back no more.
const IDLE: Duration = Duration::from_secs(5);
/// The time of a partition without records.
const NO_TIME: i64 = i64::MIN;

/// Event time: that of the partition that is furthest behind, less a delay. Partitions without records for [`IDLE`] do not count,
/// unless they are still read up to where the others are.
#[derive(Debug)]
pub(super) struct EventClock {
    delay_ms: i64,
    partitions: BTreeMap<PartitionId, PartitionTime>,
}

#[derive(Debug, Clone, Copy)]
struct PartitionTime {
    latest_ms: i64,
    /// When it last had a matching record, by the monotonic clock.
    news_at: Duration,
    /// True while its past records are read, so that it may have earlier ones than all others.
    is_behind: bool,
}

impl EventClock {
    pub(super) fn new(delay_ms: i64) -> Self {
        Self { delay_ms, partitions: BTreeMap::new() }
    }

    /// Lets a partition hold event time back until [`Self::has_caught_up`].
    pub(super) fn is_behind(&mut self, partition: PartitionId) {
        let begin = PartitionTime { latest_ms: NO_TIME, news_at: Duration::ZERO, is_behind: true };
        self.partitions.entry(partition).or_insert(begin).is_behind = true;
    }

    /// The past records of a partition have been read.
    pub(super) fn has_caught_up(&mut self, partition: PartitionId, now: Duration) {
        let Some(time) = self.partitions.get_mut(&partition) else { return };
        (time.is_behind, time.news_at) = (false, now);
        if time.latest_ms == NO_TIME {
            self.partitions.remove(&partition);
        }
    }

    /// The partition with the earliest time among those whose past records are read.
    pub(super) fn furthest_behind(&self) -> Option<PartitionId> {
        let behind = self.partitions.iter().filter(|(_, time)| time.is_behind);
        behind.min_by_key(|(_, time)| time.latest_ms).map(|(partition, _)| *partition)
    }

    /// The time up to which the other partitions let this one go.
    pub(super) fn others_ms(&self, partition: PartitionId, now: Duration) -> i64 {
        let others = self.partitions.iter().filter(|(other, time)| **other != partition && time.counts(now));
        others.map(|(_, time)| time.latest_ms).min().unwrap_or(i64::MAX)
    }

    /// Notes the time of a record; gives event time after it.
    pub(super) fn see(&mut self, partition: PartitionId, time_ms: i64, others_ms: i64, now: Duration) -> i64 {
        let begin = PartitionTime { latest_ms: NO_TIME, news_at: now, is_behind: false };
        let time = self.partitions.entry(partition).or_insert(begin);
        (time.latest_ms, time.news_at) = (time.latest_ms.max(time_ms), now);
        let least_ms = time.latest_ms.min(others_ms);
        self.less_delay(least_ms)
    }

    /// Event time as the clock goes on: once all partitions are idle, that of the latest.
    pub(super) fn now_ms(&self, now: Duration) -> i64 {
        let counting = self.partitions.values().filter(|time| time.counts(now)).map(|time| time.latest_ms).min();
        let latest = || self.partitions.values().map(|time| time.latest_ms).max();
        self.less_delay(counting.or_else(latest).unwrap_or(NO_TIME))
    }

    fn less_delay(&self, time_ms: i64) -> i64 {
        if time_ms == NO_TIME { NO_TIME } else { time_ms.saturating_sub(self.delay_ms) }
    }

    /// The latest time of each partition that had records.
    pub(super) fn keep(&self) -> Vec<(u32, i64)> {
        let known = self.partitions.iter().filter(|(_, time)| time.latest_ms != NO_TIME);
        known.map(|(partition, time)| (partition.0, time.latest_ms)).collect()
    }

    /// Goes on from [`Self::keep`].
    pub(super) fn resume(&mut self, kept: &[(u32, i64)]) {
        for (partition, latest_ms) in kept {
            let begin = PartitionTime { latest_ms: NO_TIME, news_at: Duration::ZERO, is_behind: true };
            self.partitions.entry(PartitionId(*partition)).or_insert(begin).latest_ms = *latest_ms;
        }
    }
}

impl PartitionTime {
    /// True if it holds event time back.
    fn counts(&self, now: Duration) -> bool {
        self.is_behind || now.saturating_sub(self.news_at) < IDLE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const P0: PartitionId = PartitionId(0);
    const P1: PartitionId = PartitionId(1);

    fn see(clock: &mut EventClock, partition: PartitionId, time_ms: i64, now: Duration) -> i64 {
        let others_ms = clock.others_ms(partition, now);
        clock.see(partition, time_ms, others_ms, now)
    }

    #[test]
    fn the_partition_furthest_behind_counts_until_it_is_idle() {
        let mut clock = EventClock::new(10);
        assert_eq!(clock.now_ms(Duration::ZERO), NO_TIME);
        assert_eq!(see(&mut clock, P0, 100, Duration::ZERO), 90);
        assert_eq!(see(&mut clock, P1, 50, Duration::ZERO), 40);
        let soon = Duration::from_secs(4);
        assert_eq!(see(&mut clock, P0, 200, soon), 40);
        assert_eq!(clock.now_ms(soon), 40);
        assert_eq!(clock.now_ms(Duration::from_secs(6)), 190);
        // All are idle.
        assert_eq!(clock.now_ms(Duration::from_secs(60)), 190);
    }

    #[test]
    fn a_partition_whose_past_is_read_holds_time_back_however_long_that_takes() {
        let mut clock = EventClock::new(0);
        [P0, P1].into_iter().for_each(|partition| clock.is_behind(partition));
        assert_eq!(clock.furthest_behind(), Some(P0));
        assert_eq!(see(&mut clock, P0, 100, Duration::ZERO), NO_TIME);
        assert_eq!(clock.furthest_behind(), Some(P1));
        assert_eq!(see(&mut clock, P1, 70, Duration::from_secs(60)), 70);
        clock.has_caught_up(P1, Duration::from_secs(60));
        assert_eq!(clock.now_ms(Duration::from_secs(70)), 100);
        // Without any record it never holds back.
        let mut clock = EventClock::new(0);
        [P0, P1].into_iter().for_each(|partition| clock.is_behind(partition));
        clock.has_caught_up(P1, Duration::ZERO);
        assert_eq!(see(&mut clock, P0, 100, Duration::ZERO), 100);
    }

    #[test]
    fn the_times_that_were_kept_hold_back_after_a_restart() {
        let mut clock = EventClock::new(0);
        see(&mut clock, P0, 100, Duration::ZERO);
        see(&mut clock, P1, 50, Duration::ZERO);
        let kept = clock.keep();
        let mut resumed = EventClock::new(0);
        [P0, P1].into_iter().for_each(|partition| resumed.is_behind(partition));
        resumed.resume(&kept);
        assert_eq!(see(&mut resumed, P0, 200, Duration::from_secs(60)), 50);
    }
}
