//! What has gone wrong in a view and stays wrong until somebody looks: kept here so that it is seen from outside.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use millstream_types::{Offset, TopicPartition};
use parking_lot::Mutex;

/// What of a view has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FailedPart {
    /// A source is not followed any further: what comes after `offset` does not reach the state.
    Source,
    /// Records of a source, the last of them before `offset`, were refused by an owner and did not reach the state.
    Records,
    /// The owner of a partition of the state: a command made it panic, or it has ended.
    Owner,
}

/// A part of a view that has failed, where and why. At most one of each kind is kept per partition, the first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The view's name.
    pub view: &'static str,
    /// What has failed.
    pub part: FailedPart,
    /// Of the source, or of the state topic.
    pub partition: TopicPartition,
    /// Where in it.
    pub offset: Offset,
    /// Why.
    pub reason: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { view, part, partition, offset, reason } = self;
        let what = match part {
            FailedPart::Source => "does not follow this partition any further",
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

/// What a panic says.
pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no text")
}

/// The failures of one view. As many as it has partitions and sources, times the kinds, at most.
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

    /// The source `partition` is gone, and its failures with it.
    pub(crate) fn forget(&self, partition: &TopicPartition) {
        self.all.lock().retain(|(of, _), _| of != partition);
    }

    /// Counts records of sources that did not reach the state.
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
