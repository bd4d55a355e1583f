//! Source records that wait to be read again after an error, longer from time to time.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::batch::Batch;
use crate::document::NodeId;

/// The pause before the first time; it doubles up to [`PAUSE_MAX`].
const PAUSE_FIRST: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(30);

#[derive(Default)]
pub(super) struct RetryQueue {
    /// Records, and the times at which they are read again.
    waiting: Vec<(Duration, Batch)>,
    /// The nodes that have failed on them.
    nodes: BTreeSet<NodeId>,
}

impl RetryQueue {
    /// Keeps records on which a node has failed until they are read again; the time until then.
    pub(super) fn add(&mut self, node: NodeId, roots: Batch, now: Duration) -> Duration {
        let pause = pause(roots.attempts());
        self.nodes.insert(node);
        self.waiting.push((now + pause, roots));
        pause
    }

    /// The records whose pause is over.
    pub(super) fn take_due(&mut self, now: Duration) -> Vec<Batch> {
        self.waiting.extract_if(.., |(at, _)| *at <= now).map(|(_, roots)| roots).collect()
    }

    /// The nodes that have failed on records that wait.
    pub(super) fn nodes(&self) -> impl Iterator<Item = NodeId> {
        self.nodes.iter().copied()
    }

    /// The nodes that have failed on records of which none waits any more; none of them while some records wait.
    pub(super) fn take_done_nodes(&mut self) -> BTreeSet<NodeId> {
        if self.waiting.is_empty() { std::mem::take(&mut self.nodes) } else { BTreeSet::new() }
    }

    /// The time until the next records are read again.
    pub(super) fn time_to_next(&self, now: Duration) -> Option<Duration> {
        let next = self.waiting.iter().map(|(at, _)| *at).min()?;
        Some(next.saturating_sub(now))
    }
}

/// The pause before records are read again for this time.
fn pause(attempt: u32) -> Duration {
    (PAUSE_FIRST * (1 << attempt.saturating_sub(1).min(20))).min(PAUSE_MAX)
}
