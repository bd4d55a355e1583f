//! Removes old records: whole closed segments, by append time, by size and after a trim, unless
//! a registered reader holds them.

use std::sync::Arc;
use std::time::Duration;

use crate::partition::PartitionLog;
use crate::segment::Segment;
use crate::{Error, TopicConfig};

/// Closes the active segment if it is older than `segment_age` or the retention time, is due for compaction or asked for
/// it, or is trimmed as a whole.
pub(crate) fn close_aged(partition: &PartitionLog, config: &TopicConfig, now_ms: i64) -> Result<(), Error> {
    let (active, asked_to) = {
        let accept = partition.lock();
        (accept.segments.last().filter(|last| !last.is_closed()).cloned(), accept.asked_to)
    };
    let Some(active) = active else { return Ok(()) };
    let record = active.record();
    let compacted = config.compaction_lag_max.filter(|_| config.cleanup.compacts());
    let ages = [config.retention, compacted];
    let age = ages.into_iter().flatten().fold(config.segment_age, Duration::min);
    let is_asked = (record.base + 1..=record.end).contains(&asked_to);
    let goes = record.end <= partition.first() || is_asked || is_older(record.first_append_ms, age, now_ms);
    if record.end > record.base && goes {
        active.close()?;
    }
    Ok(())
}

/// Takes the expired segments out of the partition. The caller removes their files once `meta` no longer names them.
pub(crate) fn expire(partition: &PartitionLog, config: &TopicConfig, now_ms: i64) -> Vec<Arc<Segment>> {
    if !config.cleanup.expires() {
        return Vec::new();
    }
    let mut accept = partition.lock();
    let count = expired_count(&accept.segments, config, now_ms);
    let held = HeldSegments::among(partition, &accept.segments[..count], config.hold_max_bytes);
    held.warn(partition, config.hold_max_bytes);
    let trimmed =
        accept.segments.iter().take_while(|segment| segment.is_closed() && segment.end() <= partition.first());
    let count = trimmed.count().max(count - held.count);
    let expired: Vec<_> = accept.segments.drain(..count).collect();
    if let Some(last) = expired.last() {
        debug_assert!(last.end() <= accept.next, "{}: what is not there is not removed", partition.id);
        partition.set_first(last.end());
    }
    expired
}

/// The offset up to which records below `before` may be removed: readers may hold at most `hold_max_bytes`.
pub(crate) fn unheld(partition: &PartitionLog, segments: &[Arc<Segment>], before: u64, hold_max_bytes: u64) -> u64 {
    let Some((lowest, _)) = partition.holds.lowest() else { return before };
    let below = segments.partition_point(|segment| segment.base() < before);
    let held = HeldSegments::among(partition, &segments[..below], hold_max_bytes);
    held.warn(partition, hold_max_bytes);
    let free = below.checked_sub(held.count + 1).map_or(0, |newest| segments[newest].end());
    before.min(lowest.max(free))
}

/// Number of the oldest segments that retention removes.
fn expired_count(segments: &[Arc<Segment>], config: &TopicConfig, now_ms: i64) -> usize {
    let mut total: u64 = segments.iter().map(|segment| segment.size_bytes()).sum();
    let mut count = 0;
    for segment in segments.iter().take_while(|segment| segment.is_closed()) {
        let is_old = config.retention.is_some_and(|age| is_older(segment.record().last_append_ms, age, now_ms));
        let is_over = config.retention_bytes.is_some_and(|max_bytes| total > max_bytes);
        if !is_old && !is_over {
            break;
        }
        total -= segment.size_bytes();
        count += 1;
    }
    count
}

/// The segments that readers hold.
pub(crate) struct HeldSegments {
    /// Number of held segments, counted from the newest, within `hold_max_bytes`.
    pub(crate) count: usize,
    /// The reader that needs more than that, and its offset.
    left_behind: Option<(u64, String)>,
}

impl HeldSegments {
    pub(crate) fn among(partition: &PartitionLog, segments: &[Arc<Segment>], hold_max_bytes: u64) -> Self {
        let Some((lowest, reader)) = partition.holds.lowest() else { return Self { count: 0, left_behind: None } };
        let needed = segments.iter().rev().take_while(|segment| segment.end() > lowest).count();
        let mut held_bytes = 0;
        let fitting = segments.iter().rev().take(needed).take_while(|segment| {
            held_bytes += segment.size_bytes();
            held_bytes <= hold_max_bytes
        });
        let count = fitting.count();
        Self { count, left_behind: (count < needed).then_some((lowest, reader)) }
    }

    fn warn(&self, partition: &PartitionLog, hold_max_bytes: u64) {
        if let Some((offset, reader)) = &self.left_behind {
            tracing::warn!(
                topic = %partition.id.topic,
                partition = %partition.id.partition,
                reader,
                offset,
                hold_max_bytes,
                "a reader is further behind than it may hold back; its records are removed"
            );
        }
    }
}

pub(crate) fn is_older(then_ms: i64, age: Duration, now_ms: i64) -> bool {
    let age_ms = i64::try_from(age.as_millis()).unwrap_or(i64::MAX);
    now_ms.saturating_sub(then_ms) > age_ms
}
