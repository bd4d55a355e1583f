//! Event time as one instance sees it.

use std::collections::BTreeMap;
use std::time::Duration;

use super::event_time::TimeMark;
use crate::document::NodeId;
use crate::operator::KeyedNode;

/// The shortest wait for silence.
const WAIT_MIN: Duration = Duration::from_millis(1);

/// The event time that has come to an instance, by its sources or its inbox.
pub(super) struct InstanceTime {
    mark: TimeMark,
}

impl InstanceTime {
    /// The time of an instance before the first record.
    pub(super) fn new() -> Self {
        Self { mark: TimeMark::START }
    }

    /// Takes over the progress; what it is then, if it has changed.
    pub(super) fn come_to(&mut self, mark: TimeMark) -> Option<TimeMark> {
        let watermark_ms = self.mark.watermark_ms.max(mark.watermark_ms);
        let mark = TimeMark { watermark_ms, ..mark };
        (std::mem::replace(&mut self.mark, mark) != mark).then_some(mark)
    }

    /// The time of the instance with this progress of its sources; `None` if it stays as it is.
    pub(super) fn news(&self, mark: TimeMark) -> Option<TimeMark> {
        let mark = TimeMark { watermark_ms: mark.watermark_ms.max(self.mark.watermark_ms), ..mark };
        (mark != self.mark).then_some(mark)
    }

    /// The watermark to which the instance has come.
    pub(super) fn watermark_ms(&self) -> i64 {
        self.mark.watermark_ms
    }

    /// The time to which an operator may come: the watermark, or for one that watches silence what the clock adds to it.
    pub(super) fn time_ms(&self, keyed: &KeyedNode, wall_ms: i64) -> i64 {
        if keyed.operator.watches_silence() { self.mark.time_ms(wall_ms) } else { self.mark.watermark_ms }
    }

    /// `true` if an operator has something to do by now that no record brings.
    pub(super) fn is_due(&self, keyed: &BTreeMap<NodeId, KeyedNode>, wall_ms: i64) -> bool {
        self.next_ms(keyed).is_some_and(|next_ms| next_ms <= self.mark.time_ms(wall_ms))
    }

    /// The time until an operator has something to do that no record brings.
    pub(super) fn time_to_due(&self, keyed: &BTreeMap<NodeId, KeyedNode>, wall_ms: i64) -> Option<Duration> {
        let left_ms = self.next_ms(keyed)?.saturating_sub(self.mark.time_ms(wall_ms));
        Some(Duration::from_millis(u64::try_from(left_ms).unwrap_or_default()).max(WAIT_MIN))
    }

    fn next_ms(&self, keyed: &BTreeMap<NodeId, KeyedNode>) -> Option<i64> {
        self.mark.quiet_since_ms?;
        let watching = keyed.values().filter(|keyed| keyed.operator.watches_silence());
        watching.filter_map(|keyed| keyed.operator.next_time_ms()).min()
    }
}

/// `true` if an operator has something to do by the clock.
pub(super) fn is_tick_due(keyed: &mut BTreeMap<NodeId, KeyedNode>, wall_ms: i64) -> bool {
    next_tick_ms(keyed, wall_ms).is_some_and(|next_ms| next_ms <= wall_ms)
}

/// The time until an operator has something to do by the clock.
pub(super) fn time_to_tick(keyed: &mut BTreeMap<NodeId, KeyedNode>, wall_ms: i64) -> Option<Duration> {
    let left_ms = next_tick_ms(keyed, wall_ms)?.saturating_sub(wall_ms);
    Some(Duration::from_millis(u64::try_from(left_ms).unwrap_or_default()).max(WAIT_MIN))
}

fn next_tick_ms(keyed: &mut BTreeMap<NodeId, KeyedNode>, wall_ms: i64) -> Option<i64> {
    keyed.values_mut().filter_map(|keyed| keyed.operator.next_tick_ms(wall_ms)).min()
}
