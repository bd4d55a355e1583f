//! The positions of a source in its topic, kept as group positions of the log.
//!
//! Invariant: a position is stored for a partition before the partition is read for the first time, so a record that
//! arrives after the start is never left out by a later start.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use millstream_log::{AckLevel, AtomicAppend, Done, Error as LogError, Log, PositionCommit, RenewedWriter, Topic};
use millstream_types::{Epoch, Offset, PartitionId, Position, TenantId, TopicName, TopicPartition};

use super::start_at::StartAt;
use crate::connector::{Services, Waker};
use crate::delivery::SourcePosition;
use crate::document::{Node, Role};

/// The group of a source of a job. `group` is what the document gives.
pub(crate) fn group_of(tenant: &TenantId, job: &str, node: &str, group: Option<&str>) -> String {
    match group {
        Some(group) => format!("job:{tenant}:{group}"),
        None => format!("job:{tenant}:{job}:{node}"),
    }
}

/// The groups of the `stream` sources of a job.
pub(crate) fn groups_of<'n>(tenant: &TenantId, job: &str, nodes: impl Iterator<Item = &'n Node>) -> Vec<String> {
    let sources = nodes.filter(|node| node.role == Role::Source && node.kind == "stream");
    let group =
        |node: &Node| group_of(tenant, job, &node.name, node.config.get("group").and_then(serde_json::Value::as_str));
    sources.map(group).collect()
}

/// The commit that stores a position of a group in a partition of the topic `name`.
pub(crate) fn position_commit(group: &str, name: &TopicName, at: &SourcePosition) -> PositionCommit {
    PositionCommit {
        group: group.to_owned(),
        partition: TopicPartition::new(name.clone(), at.partition),
        position: Position { topic: at.topic, epoch: Epoch(at.epoch), offset: Offset(at.offset) },
        metadata: String::new(),
    }
}

pub(super) struct GroupPositions {
    log: Arc<dyn Log>,
    writer: Arc<RenewedWriter>,
    group: String,
    is_storing: Arc<AtomicBool>,
    /// Called once positions are stored, or could not be.
    waker: Waker,
}

impl GroupPositions {
    pub(super) fn new(services: &Services, group: String, waker: Waker) -> Self {
        let (log, writer) = (Arc::clone(&services.log), Arc::clone(&services.writer));
        Self { log, writer, group, is_storing: Arc::default(), waker }
    }

    /// `true` while positions are on their way to the log.
    pub(super) fn is_storing(&self) -> bool {
        self.is_storing.load(Ordering::Acquire)
    }

    /// The stored position in a partition of `topic`.
    pub(super) fn stored(&self, topic: &Topic, partition: u32) -> Result<Option<Position>, LogError> {
        let stored = self.log.committed(&self.group, &TopicPartition::new(topic.name.clone(), partition))?;
        Ok(stored.filter(|position| position.topic == topic.id))
    }

    /// The positions of partitions that have none: a new group begins at `start`, or at the first record if that is
    /// `None`; a group that has begun reads a further partition from its first record.
    pub(super) fn missing(&self, topic: &Topic, start: Option<&StartAt>) -> Result<Vec<SourcePosition>, LogError> {
        let known = self.log.positions(&self.group)?;
        let known: Vec<PartitionId> = known
            .into_iter()
            .filter(|known| known.position.topic == topic.id)
            .map(|known| known.partition.partition)
            .collect();
        let start = start.filter(|_| known.is_empty()).unwrap_or(&StartAt::Earliest);
        let missing = (0..topic.config.partitions).filter(|number| !known.contains(&PartitionId(*number)));
        missing
            .map(|number| {
                let partition = self.log.partition(&TopicPartition::new(topic.name.clone(), number))?;
                let (offset, epoch) = (start.offset(&*partition)?.0, partition.offsets().epoch.0);
                Ok(SourcePosition { topic: topic.id, partition: number, offset, epoch })
            })
            .collect()
    }

    /// The commit that stores a position in a partition of the topic `name`.
    pub(super) fn commit_of(&self, name: &TopicName, at: &SourcePosition) -> PositionCommit {
        position_commit(&self.group, name, at)
    }

    /// Stores positions in partitions of `topic`. One call at a time.
    ///
    /// # Errors
    /// The log does not take them now, or the topic is gone.
    pub(super) fn store(&self, topic: &Topic, positions: &[SourcePosition]) -> Result<(), LogError> {
        let commit = |at: &SourcePosition| self.commit_of(&topic.name, at);
        let append = AtomicAppend { records: Vec::new(), positions: positions.iter().map(commit).collect() };
        self.is_storing.store(true, Ordering::Release);
        let (is_storing, waker) = (Arc::clone(&self.is_storing), Arc::clone(&self.waker));
        let done = Done::call(move |_| {
            is_storing.store(false, Ordering::Release);
            waker();
        });
        let taken = self.writer.commit(&append, AckLevel::Written, done);
        if taken.is_err() {
            self.is_storing.store(false, Ordering::Release);
        }
        taken
    }
}
