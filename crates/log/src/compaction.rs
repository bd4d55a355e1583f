//! Compaction: of each key in a state topic the last record stays, and what the others took becomes free.
//!
//! ```text
//!   writeback thread                          compaction thread
//!   finds a partition that is due ── job ──►  maps the keys of what is not clean, writes what changes anew, syncs it
//!   puts them in place, writes `meta`, ◄─ outcome
//!   removes the files they replace
//! ```
//!
//! Invariants
//! - Only closed segments are touched, from the oldest on, and none that a reader holds or an open transaction reaches
//!   into.
//! - What was aborted goes as a whole; its marker stays as long as readers are told of it, and as a tombstone does.
//! - Below a partition's `clean_to` each key has one record; so a tombstone below it hides nothing and may go.
//! - New files are whole and durable before `meta` names them; old ones go after it no longer does.
//! - At most one pass runs, and no lock is held while it reads or writes.

mod keys;
mod output;
mod pass;
mod plan;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use millstream_types::TopicId;
use parking_lot::{Condvar, Mutex};

use crate::layout::Layout;
use crate::partition::PartitionLog;
use crate::retention::Held;
use crate::segment::Segment;
use crate::shared::Shared;
use crate::transactions::AbortedIndex;
use crate::{Error, TopicConfig};

/// Compaction rests each time it has read and written so much.
const SLICE_BYTES: u64 = 1 << 20;

/// A partition to be compacted.
pub(crate) struct Job {
    pub(crate) partition: Arc<PartitionLog>,
    /// Its oldest segments, all closed.
    pub(crate) sources: Vec<Arc<Segment>>,
    pub(crate) clean_to: u64,
    /// The aborted transactions: of those in the sources, all.
    pub(crate) aborted: AbortedIndex,
    pub(crate) config: TopicConfig,
    pub(crate) now_ms: i64,
    dirty_bytes: u64,
}

impl Job {
    /// What it writes, at most.
    pub(crate) fn bytes(&self) -> u64 {
        self.sources.iter().map(|source| source.size_bytes()).sum()
    }
}

/// What a pass has made.
pub(crate) struct Outcome {
    partition: Arc<PartitionLog>,
    /// The partition's oldest segments, to be replaced.
    sources: Vec<Arc<Segment>>,
    /// What takes their place; some of them may be among it.
    cleaned: Vec<Arc<Segment>>,
    clean_to: u64,
    horizon: u64,
}

/// Why a pass has made nothing.
enum Failure {
    /// The log stops, the topic is gone, or others need what the disk still takes.
    Cancelled,
    /// A source does not read.
    Damaged(Error),
    /// The disk refused a write.
    Writing(Error),
}

/// What goes between the writeback thread and the compaction thread.
#[derive(Default)]
pub(crate) struct Compaction {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    job: Option<Job>,
    /// The topic whose files are being read and written.
    busy: Option<TopicId>,
    outcome: Option<Outcome>,
    stop: bool,
}

impl Compaction {
    /// Whether there is nothing under way, and nothing to be put in place.
    pub(crate) fn is_idle(&self) -> bool {
        let state = self.state.lock();
        state.busy.is_none() && state.outcome.is_none() && !state.stop
    }

    /// Whether files in a topic's directory are being read and written.
    pub(crate) fn is_busy_in(&self, layout: &Layout, dir: &Path) -> bool {
        self.state.lock().busy.is_some_and(|topic| layout.topic_dir(topic) == dir)
    }

    pub(crate) fn submit(&self, job: Job) {
        let mut state = self.state.lock();
        state.busy = Some(job.partition.topic.id);
        state.job = Some(job);
        self.changed.notify_all();
    }

    pub(crate) fn take_outcome(&self) -> Option<Outcome> {
        self.state.lock().outcome.take()
    }

    /// Gives up what is under way.
    pub(crate) fn stop(&self) {
        self.state.lock().stop = true;
        self.changed.notify_all();
    }

    fn next(&self) -> Option<Job> {
        let mut state = self.state.lock();
        loop {
            if state.stop {
                state.busy = None;
                return None;
            }
            if let Some(job) = state.job.take() {
                return Some(job);
            }
            self.changed.wait(&mut state);
        }
    }

    fn finished(&self, outcome: Option<Outcome>) {
        let mut state = self.state.lock();
        state.busy = None;
        state.outcome = outcome;
    }

    /// Waits, unless it is stopped. Whether it was.
    fn rest(&self, time: Duration) -> bool {
        let mut state = self.state.lock();
        if !state.stop {
            self.changed.wait_for(&mut state, time);
        }
        state.stop
    }
}

/// Spreads a pass over time.
struct Pace<'a> {
    shared: &'a Shared,
    partition: &'a PartitionLog,
    spent_bytes: u64,
}

impl Pace<'_> {
    /// Counts bytes that were read or written, and rests.
    fn spend(&mut self, bytes: u64) -> Result<(), Failure> {
        self.spent_bytes += bytes;
        let mut stopped = self.shared.ended().is_some() || self.partition.topic.check_exists().is_err();
        if self.spent_bytes >= SLICE_BYTES {
            let nanos = self.spent_bytes.saturating_mul(1_000_000_000) / self.shared.config.compaction_bytes_per_second;
            self.spent_bytes = 0;
            stopped |= self.shared.compaction.rest(Duration::from_nanos(nanos));
        }
        stopped |= self.shared.space.is_short();
        if stopped { Err(Failure::Cancelled) } else { Ok(()) }
    }
}

/// The compaction thread: one pass after the other until it is stopped.
pub(crate) fn run(shared: &Shared) {
    while let Some(job) = shared.compaction.next() {
        let outcome = pass::run(shared, &job);
        let partition = &job.partition;
        let outcome = match outcome {
            Ok(outcome) => Some(outcome),
            Err(Failure::Writing(error)) if error.is_disk_full() => {
                let (topic, number) = (&partition.id.topic, partition.id.partition);
                tracing::warn!(%topic, partition = %number, %error, "not compacted: the disk is full");
                None
            }
            Err(Failure::Writing(error)) if partition.topic.check_exists().is_ok() => {
                shared.end(&error);
                None
            }
            Err(Failure::Damaged(error)) if partition.topic.check_exists().is_ok() => {
                let (topic, number) = (&partition.id.topic, partition.id.partition);
                tracing::error!(%topic, partition = %number, %error, "not compacted any more before a restart");
                partition.lock().is_damaged = true;
                None
            }
            Err(_) => None,
        };
        let wake = outcome.is_some();
        shared.compaction.finished(outcome);
        if wake {
            shared.flush.wake();
        }
    }
}

/// The job that is most urgent, if any is due.
pub(crate) fn due<'a>(
    shared: &Shared,
    partitions: impl Iterator<Item = &'a Arc<PartitionLog>>,
    now_ms: i64,
) -> Option<Job> {
    partitions.filter_map(|partition| job(shared, partition, now_ms)).max_by_key(|job| job.dirty_bytes)
}

fn job(shared: &Shared, partition: &Arc<PartitionLog>, now_ms: i64) -> Option<Job> {
    let topic = partition.topic.current();
    if !topic.config.cleanup.compacts() || partition.topic.is_memory {
        return None;
    }
    let accept = partition.lock();
    if accept.is_damaged {
        return None;
    }
    let sources = eligible(partition, &accept.segments, &topic.config);
    let is_dirty = |segment: &&Arc<Segment>| segment.end() > accept.clean_to;
    let dirty_bytes: u64 = sources.iter().filter(is_dirty).map(|segment| segment.size_bytes()).sum();
    let bytes: u64 = sources.iter().map(|segment| segment.size_bytes()).sum();
    let is_due = dirty_bytes > 0 && dirty_bytes * 100 >= bytes * shared.config.compaction_dirty_percent;
    is_due.then(|| Job {
        partition: partition.clone(),
        sources: sources.to_vec(),
        clean_to: accept.clean_to,
        aborted: accept.producers.transactions.aborted().clone(),
        config: topic.config.clone(),
        now_ms,
        dirty_bytes,
    })
}

/// The oldest segments, as far as they are closed, all transactions in them are decided, and nobody holds them.
fn eligible<'a>(partition: &PartitionLog, segments: &'a [Arc<Segment>], config: &TopicConfig) -> &'a [Arc<Segment>] {
    let stable = partition.stable();
    let closed = segments.iter().take_while(|segment| segment.is_closed() && segment.end() <= stable).count();
    let held = Held::among(partition, &segments[..closed], config.hold_max_bytes);
    &segments[..closed - held.count]
}

impl Outcome {
    /// Puts the new segments in the place of the old ones, unless a reader has claimed these meanwhile. Returns those
    /// whose files are to be removed once `meta` no longer names them.
    pub(crate) fn put_in_place(self) -> Vec<Arc<Segment>> {
        let config = &self.partition.topic.current().config;
        let mut accept = self.partition.lock();
        let free = eligible(&self.partition, &accept.segments, config).iter();
        let unchanged = free.zip(&self.sources).filter(|(now, then)| Arc::ptr_eq(now, then)).count();
        if unchanged < self.sources.len() {
            return without(&self.cleaned, &self.sources);
        }
        let replaced = without(&self.sources, &self.cleaned);
        // Before a reader can miss what is gone: whoever resumes from now on is told.
        self.partition.set_horizon(self.horizon);
        accept.clean_to = self.clean_to;
        accept.segments.splice(..self.sources.len(), self.cleaned);
        replaced
    }
}

fn without(segments: &[Arc<Segment>], others: &[Arc<Segment>]) -> Vec<Arc<Segment>> {
    let is_other = |segment: &&Arc<Segment>| others.iter().any(|other| Arc::ptr_eq(segment, other));
    segments.iter().filter(|segment| !is_other(segment)).cloned().collect()
}
