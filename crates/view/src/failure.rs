//! Failures of a view that last until a restart, kept for health checks.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use millstream_types::{Offset, TopicPartition};
use parking_lot::Mutex;

/// The part of a view that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FailedPart {
    /// A source is not followed any more: records after `offset` do not reach the state.
    SourcePartition,
    /// An owner refused records of a source, the last of them before `offset`; they did not reach the state.
    Records,
    /// The owner of a state partition: a command panicked, or the owner has ended.
    Owner,
}

/// A failed part of a view. Each partition keeps at most one failure of each kind, the first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The name of the view.
    pub view: &'static str,
    /// The part of the view that failed.
    pub part: FailedPart,
    /// The partition of the source, or of the state topic.
    pub partition: TopicPartition,
    /// Offset of the failure in the partition.
    pub offset: Offset,
    /// The reason of the failure.
    pub reason: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { view, part, partition, offset, reason } = self;
        let what = match part {
            FailedPart::SourcePartition => "does not follow this partition any further",
            FailedPart::Records => "has passed over records before this offset",
            FailedPart::Owner => "has failed in this partition",
        };
        write!(
            f,
            "view '{view}' {what}: topic '{}', partition {}, offset {offset}: {reason}",
            partition.topic, partition.partition
        )
    }
}

/// The message of a panic.
pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no text")
}

/// The failures of one view: at most one per partition, or source, and kind.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    all: Mutex<BTreeMap<(TopicPartition, FailedPart), Failure>>,
    passed_over: AtomicU64,
}

impl Failures {
    pub(crate) fn add(&self, failure: Failure) {
        tracing::error!("{failure}");
        self.all.lock().entry((failure.partition.clone(), failure.part)).or_insert(failure);
    }

    /// Removes the failures of a source that was deleted.
    pub(crate) fn forget(&self, partition: &TopicPartition) {
        self.all.lock().retain(|(of, _), _| of != partition);
    }

    /// Counts source records that did not reach the state.
    pub(crate) fn pass_over(&self, records: u64) {
        self.passed_over.fetch_add(records, Ordering::Relaxed);
    }

    pub(crate) fn passed_over(&self) -> u64 {
        self.passed_over.load(Ordering::Relaxed)
    }

    pub(crate) fn all(&self) -> Vec<Failure> {
        self.all.lock().values().cloned().collect()
    }
}
