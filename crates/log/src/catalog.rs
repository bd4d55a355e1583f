//! Which topics there are, and how far groups have read.
//!
//! Invariants
//! - A topic is here from the moment its creation is durable until its deletion is.
//! - Each position is kept twice: as it was committed or forgotten last, and as the last sync covers it. `meta` gets
//!   only the latter: a position must not outlive the records that it was committed with.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use millstream_types::{Epoch, Offset, PartitionId, Position, TopicId, TopicName, TopicPartition};
use parking_lot::RwLock;

use crate::meta::{PartitionRecord, PositionRecord};
use crate::partition::{PartitionLog, TopicState};
use crate::shared::Shared;
use crate::watchers::Watchers;
use crate::{Bell, CommittedPosition, Error, Topic};

/// A topic with its partitions, in order.
pub(crate) struct TopicEntry {
    pub(crate) state: Arc<TopicState>,
    pub(crate) partitions: Vec<Arc<PartitionLog>>,
}

impl TopicEntry {
    pub(crate) fn new(shared: &Arc<Shared>, topic: Topic, partitions: Vec<PartitionRecord>) -> Arc<Self> {
        let state = Arc::new(TopicState::new(topic));
        let partitions = partitions_from(shared, &state, 0, partitions);
        Arc::new(Self { state, partitions })
    }

    /// The topic with `total` partitions, those beyond its own as they are created under `epoch`.
    pub(crate) fn grown(&self, shared: &Arc<Shared>, total: u32, epoch: Epoch) -> Arc<Self> {
        let present = self.partitions.len() as u32;
        let records = (present..total).map(|_| crate::partition::new_partition_record(epoch)).collect();
        let mut partitions = self.partitions.clone();
        partitions.extend(partitions_from(shared, &self.state, present, records));
        Arc::new(Self { state: self.state.clone(), partitions })
    }
}

/// Partitions of a topic, from the number `first` on.
fn partitions_from(
    shared: &Arc<Shared>,
    state: &Arc<TopicState>,
    first: u32,
    records: Vec<PartitionRecord>,
) -> Vec<Arc<PartitionLog>> {
    let name = state.current().name.clone();
    let log = |(number, record)| PartitionLog::new(shared, state, TopicPartition::new(name.clone(), number), record);
    (first..).zip(records).map(log).collect()
}

/// What becomes true when a round is synced.
pub(crate) enum Effect {
    Created(Arc<TopicEntry>),
    Altered(Topic),
    /// With partitions added to those it had.
    Grown(Arc<TopicEntry>, Topic),
    Deleted(TopicId),
    Committed(PositionRecord),
    Forgotten {
        group: String,
        topic: TopicId,
        partition: PartitionId,
    },
    Trimmed {
        topic: TopicId,
        partition: PartitionId,
        first: Offset,
    },
}

/// See the module.
#[derive(Default)]
pub(crate) struct Catalog {
    state: RwLock<State>,
    watchers: Watchers,
}

#[derive(Default)]
struct State {
    names: BTreeMap<TopicName, TopicId>,
    topics: BTreeMap<TopicId, Arc<TopicEntry>>,
    positions: BTreeMap<(TopicId, PartitionId), BTreeMap<String, Committed>>,
    /// Directories of deleted topics, to be removed.
    garbage: Vec<PathBuf>,
}

/// `None` where there is nothing (any more).
#[derive(Default)]
struct Committed {
    current: Option<PositionRecord>,
    synced: Option<PositionRecord>,
}

impl Catalog {
    pub(crate) fn topic(&self, name: &TopicName) -> Option<Arc<TopicEntry>> {
        let state = self.state.read();
        state.topics.get(state.names.get(name)?).cloned()
    }

    pub(crate) fn topic_by_id(&self, id: TopicId) -> Option<Arc<TopicEntry>> {
        self.state.read().topics.get(&id).cloned()
    }

    /// All topics, by name.
    pub(crate) fn topics(&self) -> Vec<Arc<TopicEntry>> {
        let state = self.state.read();
        state.names.values().filter_map(|id| state.topics.get(id).cloned()).collect()
    }

    /// # Errors
    /// [`Error::UnknownTopic`], [`Error::UnknownPartition`].
    pub(crate) fn partition(&self, partition: &TopicPartition) -> Result<Arc<PartitionLog>, Error> {
        let topic =
            self.topic(&partition.topic).ok_or_else(|| Error::UnknownTopic { topic: partition.topic.clone() })?;
        topic.partitions.get(partition.partition.0 as usize).cloned().ok_or_else(|| Error::UnknownPartition {
            partition: partition.clone(),
            partitions: topic.partitions.len() as u32,
        })
    }

    pub(crate) fn committed(&self, group: &str, topic: TopicId, partition: PartitionId) -> Option<Position> {
        Some(self.state.read().positions.get(&(topic, partition))?.get(group)?.current.as_ref()?.position)
    }

    /// The groups that have positions, by name.
    pub(crate) fn groups(&self) -> Vec<String> {
        let state = self.state.read();
        let known = state.positions.iter().filter(|((topic, _), _)| state.topics.contains_key(topic));
        let current = known.flat_map(|(_, groups)| groups).filter(|(_, committed)| committed.current.is_some());
        let groups: BTreeSet<_> = current.map(|(group, _)| group).collect();
        groups.into_iter().cloned().collect()
    }

    /// All positions of a group, by topic and partition.
    pub(crate) fn positions(&self, group: &str) -> Vec<CommittedPosition> {
        let state = self.state.read();
        let mut found = Vec::new();
        for ((topic, partition), groups) in &state.positions {
            let record = groups.get(group).and_then(|committed| committed.current.as_ref());
            let log = state.topics.get(topic).and_then(|topic| topic.partitions.get(partition.0 as usize));
            if let (Some(record), Some(log)) = (record, log) {
                found.push(CommittedPosition {
                    partition: log.id.clone(),
                    position: record.position,
                    metadata: record.metadata.clone(),
                    committed_ms: record.committed_ms,
                });
            }
        }
        found.sort_by(|a, b| a.partition.cmp(&b.partition));
        found
    }

    /// What all groups have committed for the partitions of a topic, by partition and group.
    pub(crate) fn positions_in(&self, topic: TopicId) -> Vec<(PartitionId, String, Offset)> {
        let state = self.state.read();
        let partitions = state.positions.range((topic, PartitionId(0))..=(topic, PartitionId(u32::MAX)));
        let groups =
            partitions.flat_map(|((_, partition), groups)| groups.iter().map(move |group| (*partition, group)));
        let current = groups.filter_map(|(partition, (group, committed))| {
            Some((partition, group.clone(), committed.current.as_ref()?.position.offset))
        });
        current.collect()
    }

    /// A group has committed; the sync is still to come.
    pub(crate) fn commit(&self, record: &PositionRecord) {
        let mut state = self.state.write();
        let groups = state.positions.entry((record.position.topic, record.partition)).or_default();
        groups.entry(record.group.clone()).or_default().current = Some(record.clone());
    }

    /// A group's position is to go; the sync is still to come.
    pub(crate) fn forget(&self, group: &str, topic: TopicId, partition: PartitionId) {
        let mut state = self.state.write();
        if let Some(committed) = state.positions.get_mut(&(topic, partition)).and_then(|groups| groups.get_mut(group)) {
            committed.current = None;
        }
    }

    /// Makes true what a sync has made durable.
    pub(crate) fn apply(&self, shared: &Shared, effect: Effect) {
        let mut state = self.state.write();
        match effect {
            Effect::Created(topic) => {
                let name = topic.state.current().name.clone();
                state.names.insert(name, topic.state.id);
                state.topics.insert(topic.state.id, topic);
            }
            Effect::Altered(altered) => {
                if let Some(topic) = state.topics.get(&altered.id) {
                    topic.partitions.iter().for_each(|partition| partition.keep_high());
                    topic.state.replace(altered);
                }
            }
            Effect::Grown(grown, topic) => {
                if state.topics.contains_key(&topic.id) {
                    grown.state.replace(topic);
                    state.topics.insert(grown.state.id, grown);
                }
            }
            Effect::Deleted(id) => {
                if let Some(topic) = state.topics.remove(&id) {
                    topic.state.delete();
                    state.names.remove(&topic.state.current().name);
                    state.positions.retain(|(topic, _), _| *topic != id);
                    state.garbage.push(shared.layout.topic_dir(id));
                    topic.partitions.iter().for_each(|partition| partition.watchers.ring());
                }
            }
            Effect::Committed(record) => {
                if !state.topics.contains_key(&record.position.topic) {
                    return;
                }
                let groups = state.positions.entry((record.position.topic, record.partition)).or_default();
                let committed = groups.entry(record.group.clone()).or_default();
                committed.synced = Some(record);
                return;
            }
            Effect::Forgotten { group, topic, partition } => {
                let Some(groups) = state.positions.get_mut(&(topic, partition)) else { return };
                if let Some(committed) = groups.get_mut(&group) {
                    committed.synced = None;
                    if committed.current.is_none() {
                        groups.remove(&group);
                    }
                }
                return;
            }
            Effect::Trimmed { topic, partition, first } => {
                let topic = state.topics.get(&topic);
                if let Some(log) = topic.and_then(|topic| topic.partitions.get(partition.0 as usize)) {
                    log.set_first(first.0);
                }
                return;
            }
        }
        drop(state);
        self.watchers.ring();
    }

    /// What `meta` says of positions.
    pub(crate) fn synced_positions(&self) -> Vec<PositionRecord> {
        let state = self.state.read();
        state.positions.values().flat_map(BTreeMap::values).filter_map(|committed| committed.synced.clone()).collect()
    }

    /// Directories that may be removed.
    pub(crate) fn take_garbage(&self) -> Vec<PathBuf> {
        std::mem::take(&mut self.state.write().garbage)
    }

    pub(crate) fn watch(&self, bell: &Arc<Bell>) {
        self.watchers.add(bell);
    }
}

/// The topic of `config` with its partitions, as it is created under `epoch`.
pub(crate) fn new_topic(shared: &Arc<Shared>, topic: Topic, epoch: Epoch) -> Arc<TopicEntry> {
    let partitions = (0..topic.config.partitions).map(|_| crate::partition::new_partition_record(epoch)).collect();
    TopicEntry::new(shared, topic, partitions)
}
