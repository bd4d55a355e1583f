//! The position of a record: topic, partition, epoch, offset.

use std::fmt;

use crate::TopicName;

/// The position of a record in its partition. Offsets ascend, are never reused, and may have gaps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Offset(pub u64);

impl Offset {
    /// The first offset of a new partition.
    pub const ZERO: Self = Self(0);

    /// The offset right after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }

    /// The offset that is `records` higher.
    #[must_use]
    pub const fn advance(self, records: u64) -> Self {
        Self(self.0 + records)
    }
}

impl fmt::Display for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The number of a partition within its topic, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct PartitionId(pub u32);

impl fmt::Display for PartitionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The leader epoch under which an offset was handed out. Each start of the embedded engine begins a new one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Epoch(pub u32);

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The unique id of a topic. A topic that is recreated under its old name gets a new id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TopicId(pub u128);

impl fmt::Display for TopicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// A stored position: the next offset to read, and the epoch of the record before it.
///
/// An offset alone is not enough: after a crash the partition may continue elsewhere under a new epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Position {
    /// The unique id of the topic.
    pub topic: TopicId,
    /// The epoch of the last record before `offset`.
    pub epoch: Epoch,
    /// The next offset to be read.
    pub offset: Offset,
}

/// One partition of a topic.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TopicPartition {
    /// The name of the topic.
    pub topic: TopicName,
    /// Number of the partition in the topic.
    pub partition: PartitionId,
}

impl TopicPartition {
    /// Partition `partition` of the topic `topic`.
    pub fn new(topic: TopicName, partition: u32) -> Self {
        Self { topic, partition: PartitionId(partition) }
    }
}

impl fmt::Display for TopicPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.topic, self.partition)
    }
}
