//! Compaction keeps the last record of each key in a state topic and frees the space of the others.
//!
//! ```text
//!   writeback thread                          compaction thread
//!   finds a partition that is due ── job ──►  maps the keys of the dirty part, rewrites segments, syncs them
//!   replaces the segments, writes     ◄─ result
//!   `meta`, removes the old files
//! ```
//!
//! Invariants
//! - A pass touches only closed segments, from the oldest on. It skips segments that a reader holds, that contain a
//!   part of an open transaction, or that have records younger than `compaction_lag_min`.
//! - Aborted transactions are removed as a whole. Their markers stay as long as readers are told of them, and as
//!   long as a tombstone does.
//! - Each key has one record below a partition's `clean_to`, so a tombstone below it hides
//!   nothing and may be removed.
//! - A topic with `compaction_live_percent` keeps superseded records in segments that are not worth a rewrite, also
//!   below the offset up to which keys were mapped (`mapped_to`); each is noted with its segment. There a tombstone
//!   is removed only when no older record of its key is left, and stays for `delete_retention` after that.
//! - New files are whole and durable before `meta` names them; old files are removed after `meta` stops naming them.
//! - At most one pass runs, and it holds no lock while it reads or writes.

mod keys;
mod output;
mod pass;
mod plan;

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::compaction_queue::{CompactedSegments, CompactionJob};
use crate::partition::{Accept, PartitionLog};
use crate::queues::Queues;
use crate::retention::{HeldSegments, is_older};
use crate::segment::Segment;
use crate::shared::EngineShared;
use crate::{Error, TopicConfig};

/// A pass rests each time it has read and written this much.
const SLICE_BYTES: u64 = 1 << 20;
/// For each of these that is new in the partition, a pass goes as fast once more: writers must not outrun it for good.
const BACKLOG_BYTES: u64 = 1 << 30;

/// The reason why a pass has no result.
enum CompactionFailure {
    /// The log stops, the topic is deleted, or the disk is short of space.
    Cancelled,
    /// A source segment is damaged.
    Damaged(Error),
    /// The disk refused a write.
    Writing(Error),
}

/// Limits the rate of a pass.
struct Throttle<'a> {
    shared: &'a EngineShared,
    queues: &'a Queues,
    partition: &'a PartitionLog,
    bytes_per_second: u64,
    spent_bytes: u64,
    /// The end of the last rest.
    rested: Instant,
}

impl<'a> Throttle<'a> {
    fn new(shared: &'a EngineShared, queues: &'a Queues, job: &'a CompactionJob) -> Self {
        let bytes_per_second =
            shared.config.compaction_bytes_per_second.saturating_mul(1 + job.dirty_bytes / BACKLOG_BYTES);
        Self { shared, queues, partition: &job.partition, bytes_per_second, spent_bytes: 0, rested: Instant::now() }
    }

    /// Counts bytes that were read or written, and rests when due.
    fn spend(&mut self, bytes: u64) -> Result<(), CompactionFailure> {
        self.spent_bytes += bytes;
        let mut stopped = self.shared.ended().is_some() || self.partition.topic.check_exists().is_err();
        if self.spent_bytes >= SLICE_BYTES {
            let nanos = self.spent_bytes.saturating_mul(1_000_000_000) / self.bytes_per_second;
            self.spent_bytes = 0;
            let rest = Duration::from_nanos(nanos).saturating_sub(self.rested.elapsed());
            stopped |= match &self.shared.scheduler {
                Some(scheduler) => {
                    scheduler.interleave();
                    false
                }
                None => self.queues.compaction.rest(rest),
            };
            self.rested = Instant::now();
        }
        stopped |= self.shared.space.is_used_up();
        if stopped { Err(CompactionFailure::Cancelled) } else { Ok(()) }
    }
}

/// Runs one pass after the other until the queue is stopped.
pub(crate) fn run(shared: &EngineShared, queues: &Queues) {
    while let Some(job) = queues.compaction.next() {
        pass(shared, queues, &job);
    }
}

/// Runs a pass if a job waits. `true` if one did.
pub(crate) fn pass_if_due(shared: &EngineShared, queues: &Queues) -> bool {
    queues.compaction.take_now().map(|job| pass(shared, queues, &job)).is_some()
}

fn pass(shared: &EngineShared, queues: &Queues, job: &CompactionJob) {
    job.partition.lock().is_left_for_room = false;
    let outcome = pass::run(shared, queues, job);
    let partition = &job.partition;
    let outcome = match outcome {
        Ok(outcome) => Some(outcome),
        Err(CompactionFailure::Writing(error)) if error.is_disk_full() => {
            let (topic, number) = (&partition.id.topic, partition.id.partition);
            tracing::warn!(%topic, partition = %number, %error, "not compacted: the disk is full");
            None
        }
        Err(CompactionFailure::Writing(error)) if partition.topic.check_exists().is_ok() => {
            shared.end(&error);
            None
        }
        // Retention or a trim has removed a source meanwhile. The next pass begins with those that are left.
        Err(CompactionFailure::Damaged(_)) if job.sources.iter().any(|source| source.is_retired()) => None,
        Err(CompactionFailure::Damaged(error)) if partition.topic.check_exists().is_ok() => {
            let (topic, number) = (&partition.id.topic, partition.id.partition);
            tracing::error!(%topic, partition = %number, %error, "compaction stops for this partition until a restart");
            partition.lock().is_damaged = true;
            None
        }
        Err(_) => None,
    };
    let wake = outcome.is_some();
    queues.compaction.finished(outcome);
    if wake {
        queues.flush.wake();
    }
}

/// A partition is compacted to make room if this part of a full segment is new in it.
const ROOM_PARTS: u64 = 64;

/// Asks for the compaction of a partition because the disk is nearly full, if it has enough records that no pass has seen.
pub(crate) fn ask_for_room(partition: &PartitionLog) {
    let topic = partition.topic.current();
    if topic.config.cleanup.compacts() && !partition.topic.is_memory {
        let mut accept = partition.lock();
        let mapped_to = mapped_to(&accept, &topic.config);
        let unseen = accept.segments.iter().filter(|segment| segment.end() > mapped_to);
        if unseen.map(|segment| segment.size_bytes()).sum::<u64>() >= topic.config.segment_bytes / ROOM_PARTS {
            accept.asked_to = accept.segments.last().map_or(0, |last| last.end());
        }
    }
}

/// Finds the most urgent job, if one is due.
pub(crate) fn due<'a>(
    shared: &EngineShared,
    partitions: impl Iterator<Item = &'a Arc<PartitionLog>>,
    now_ms: i64,
) -> Option<CompactionJob> {
    partitions
        .filter_map(|partition| job(shared, partition, now_ms))
        .filter(|job| job.fits(shared.space.spare_bytes()))
        .max_by_key(|job| (job.is_overdue, job.dirty_bytes))
}

fn job(shared: &EngineShared, partition: &Arc<PartitionLog>, now_ms: i64) -> Option<CompactionJob> {
    let topic = partition.topic.current();
    if !topic.config.cleanup.compacts() || partition.topic.is_memory {
        return None;
    }
    let accept = partition.lock();
    if accept.is_damaged {
        return None;
    }
    let sources = eligible(partition, &accept, &topic.config, now_ms);
    let mapped_to = mapped_to(&accept, &topic.config);
    let is_dirty = |segment: &&Arc<Segment>| segment.end() > mapped_to;
    let dirty_bytes: u64 = sources.iter().filter(is_dirty).map(|segment| segment.size_bytes()).sum();
    let bytes: u64 = sources.iter().map(|segment| segment.size_bytes()).sum();
    let oldest_ms = sources.iter().find(is_dirty).map(|segment| segment.record().first_append_ms);
    let is_late = match (oldest_ms, topic.config.compaction_lag_max) {
        (Some(oldest_ms), Some(lag)) => is_older(oldest_ms, lag, now_ms),
        _ => false,
    };
    let is_asked = accept.wants_pass() && (dirty_bytes > 0 || accept.is_left_for_room) && !sources.is_empty();
    let is_overdue = is_late || is_asked;
    let is_worthwhile = dirty_bytes > 0 && dirty_bytes * 100 >= bytes * shared.config.compaction_dirty_percent;
    (is_overdue || is_worthwhile).then(|| CompactionJob {
        partition: partition.clone(),
        sources: sources.to_vec(),
        mapped_to,
        aborted: accept.producers.transactions.aborted().clone(),
        config: topic.config.clone(),
        now_ms,
        is_overdue,
        dirty_bytes,
    })
}

/// The oldest segments that may be compacted: closed, without undecided transactions, old enough, and
/// not held by a reader.
fn eligible<'a>(partition: &PartitionLog, accept: &'a Accept, config: &TopicConfig, now_ms: i64) -> &'a [Arc<Segment>] {
    let (segments, stable, lag) = (&accept.segments, partition.stable(), config.compaction_lag_min);
    let mapped_to = mapped_to(accept, config);
    // An earlier pass has gone over these segments, and may have rewritten and dated them.
    let is_ripe = |segment: &Segment| {
        lag.is_zero() || segment.base() < mapped_to || is_older(segment.record().last_append_ms, lag, now_ms)
    };
    let may_go = |segment: &&Arc<Segment>| segment.is_closed() && segment.end() <= stable && is_ripe(segment);
    let closed = segments.iter().take_while(may_go).count();
    let held = HeldSegments::among(partition, &segments[..closed], config.hold_max_bytes);
    &segments[..closed - held.count]
}

/// The offset from which the next pass maps keys. A pass for a topic that is compacted by live bytes no more begins
/// with the records that were left.
fn mapped_to(accept: &Accept, config: &TopicConfig) -> u64 {
    if config.compaction_live_percent.is_some() { accept.mapped_to } else { accept.clean_to }
}

/// The outcome of a pass that was put in place, or that came too late for that.
#[derive(Default)]
pub(crate) struct Replaced {
    /// The segments whose files go once `meta` no longer names them.
    pub(crate) segments: Vec<Arc<Segment>>,
    /// Bytes that left the memory of recent records.
    pub(crate) cached_bytes: usize,
}

/// Replaces the old segments by the new ones, unless a reader has claimed the old ones meanwhile.
pub(crate) fn put_in_place(compacted: CompactedSegments, now_ms: i64) -> Replaced {
    let config = &compacted.partition.topic.current().config;
    let mut accept = compacted.partition.lock();
    let free = eligible(&compacted.partition, &accept, config, now_ms).iter();
    let unchanged = free.zip(&compacted.sources).filter(|(now, then)| Arc::ptr_eq(now, then)).count();
    if unchanged < compacted.sources.len() {
        let segments = without(&compacted.cleaned, &compacted.sources);
        return Replaced { segments, ..Replaced::default() };
    }
    let segments = without(&compacted.sources, &compacted.cleaned);
    debug_assert!(compacted.clean_to <= compacted.mapped_to, "what is clean was looked through");
    debug_assert!(
        compacted.cleaned.iter().chain(&compacted.sources).all(|segment| segment.is_closed()),
        "a pass touches closed segments only"
    );
    // Set the horizon first: a reader that resumes from now on is told that it may miss records.
    compacted.partition.set_horizon(compacted.horizon);
    (accept.clean_to, accept.mapped_to) = (compacted.clean_to, compacted.mapped_to);
    accept.is_left_for_room = compacted.is_left_for_room;
    compacted.dated.iter().for_each(|segment| segment.date(now_ms));
    accept.segments.splice(..compacted.sources.len(), compacted.cleaned);
    debug_assert!(
        accept.segments.windows(2).all(|pair| pair[0].end() <= pair[1].base()),
        "{}: segments do not overlap",
        compacted.partition.id
    );
    // Memory holds what the pass has removed, too.
    let cached_bytes = segments.last().map_or(0, |last| accept.tail_cache.evict_to(last.end()));
    Replaced { segments, cached_bytes }
}

fn without(segments: &[Arc<Segment>], others: &[Arc<Segment>]) -> Vec<Arc<Segment>> {
    let is_other = |segment: &&Arc<Segment>| others.iter().any(|other| Arc::ptr_eq(segment, other));
    segments.iter().filter(|segment| !is_other(segment)).cloned().collect()
}
