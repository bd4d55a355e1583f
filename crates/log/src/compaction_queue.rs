//! Compaction jobs and their results, between the writeback thread and the compaction thread.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use millstream_types::TopicId;
use parking_lot::{Condvar, Mutex};

use crate::TopicConfig;
use crate::layout::Layout;
use crate::partition::PartitionLog;
use crate::segment::Segment;
use crate::transactions::AbortedIndex;

pub(crate) struct CompactionJob {
    pub(crate) partition: Arc<PartitionLog>,
    /// The oldest segments of the partition, all closed.
    pub(crate) sources: Vec<Arc<Segment>>,
    /// Earlier passes have looked for later records of each key below it.
    pub(crate) mapped_to: u64,
    /// Aborted transactions; complete for the sources.
    pub(crate) aborted: AbortedIndex,
    pub(crate) config: TopicConfig,
    pub(crate) now_ms: i64,
    /// The partition has records older than `compaction_lag_max`, or somebody has asked for the pass.
    pub(crate) is_overdue: bool,
    pub(crate) dirty_bytes: u64,
}

impl CompactionJob {
    /// `true` if the disk has room for the pass. One by live bytes looks for itself which segments fit.
    pub(crate) fn fits(&self, spare_bytes: u64) -> bool {
        let most_bytes: u64 = self.sources.iter().map(|source| source.size_bytes()).sum();
        self.config.compaction_live_percent.is_some() || most_bytes <= spare_bytes
    }
}

/// The result of a pass.
pub(crate) struct CompactedSegments {
    pub(crate) partition: Arc<PartitionLog>,
    /// The segments that are replaced.
    pub(crate) sources: Vec<Arc<Segment>>,
    /// The replacement; it may contain some of the sources.
    pub(crate) cleaned: Vec<Arc<Segment>>,
    /// Each key has one record below it.
    pub(crate) clean_to: u64,
    pub(crate) mapped_to: u64,
    pub(crate) horizon: u64,
    /// Some segments that are worth a rewrite were left, because the disk had room for the others only.
    pub(crate) is_left_for_room: bool,
    /// Sources that stay, with tombstones whose age begins with the installation.
    pub(crate) dated: Vec<Arc<Segment>>,
}

/// Hands jobs to the compaction thread and results back.
#[derive(Default)]
pub(crate) struct CompactionQueue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    job: Option<CompactionJob>,
    /// The topic whose files the pass reads and writes.
    busy: Option<TopicId>,
    outcome: Option<CompactedSegments>,
    stop: bool,
}

impl CompactionQueue {
    /// `true` if there is no running pass and no result to install.
    pub(crate) fn is_idle(&self) -> bool {
        let state = self.state.lock();
        state.busy.is_none() && state.outcome.is_none() && !state.stop
    }

    /// `true` if the running pass uses files in `dir`.
    pub(crate) fn is_busy_in(&self, layout: &Layout, dir: &Path) -> bool {
        self.state.lock().busy.is_some_and(|topic| layout.topic_dir(topic) == dir)
    }

    pub(crate) fn submit(&self, job: CompactionJob) {
        let mut state = self.state.lock();
        state.busy = Some(job.partition.topic.id);
        state.job = Some(job);
        self.changed.notify_all();
    }

    pub(crate) fn take_outcome(&self) -> Option<CompactedSegments> {
        self.state.lock().outcome.take()
    }

    pub(crate) fn stop(&self) {
        self.state.lock().stop = true;
        self.changed.notify_all();
    }

    pub(crate) fn next(&self) -> Option<CompactionJob> {
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

    /// Like [`CompactionQueue::next`], for a caller that does not wait.
    pub(crate) fn take_now(&self) -> Option<CompactionJob> {
        let mut state = self.state.lock();
        if state.stop {
            state.busy = None;
            return None;
        }
        state.job.take()
    }

    pub(crate) fn finished(&self, outcome: Option<CompactedSegments>) {
        let mut state = self.state.lock();
        state.busy = None;
        state.outcome = outcome;
    }

    /// Waits for `time` or until the queue is stopped. `true` if it is stopped.
    pub(crate) fn rest(&self, time: Duration) -> bool {
        let mut state = self.state.lock();
        if !state.stop {
            self.changed.wait_for(&mut state, time);
        }
        state.stop
    }
}
