//! Which topics there are, and how far groups have read.
//!
//! Invariants
//! - A topic is here from the moment its creation is durable until its deletion is.
//! - Each position is kept twice: as it was committed last, and as the last sync covers it. `meta` gets only the latter:
//!   a position must not outlive the records that it was committed with.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use millstream_types::{Epoch, PartitionId, Position, TopicId, TopicName, TopicPartition};
use parking_lot::RwLock;

use crate::meta::{PartitionRecord, PositionRecord};
use crate::partition::{PartitionLog, TopicState};
use crate::shared::Shared;
use crate::watchers::Watchers;
use crate::{Bell, Error, Topic};

/// A topic with its partitions, in order.
pub(crate) struct TopicEntry {
    pub(crate) state: Arc<TopicState>,
    pub(crate) partitions: Vec<Arc<PartitionLog>>,
}

impl TopicEntry {
    pub(crate) fn new(shared: &Arc<Shared>, topic: Topic, partitions: Vec<PartitionRecord>) -> Arc<Self> {
        let name = topic.name.clone();
        let state = Arc::new(TopicState::new(topic));
        let log =
            |(number, record)| PartitionLog::new(shared, &state, TopicPartition::new(name.clone(), number), record);
        let partitions = (0..).zip(partitions).map(log).collect();
        Arc::new(Self { state, partitions })
    }
}

/// What becomes true when a round is synced.
pub(crate) enum Effect {
    Created(Arc<TopicEntry>),
    Altered(Topic),
    Deleted(TopicId),
    Committed(PositionRecord),
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

#[derive(Clone, Copy)]
struct Committed {
    current: Position,
    synced: Option<Position>,
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
        Some(self.state.read().positions.get(&(topic, partition))?.get(group)?.current)
    }

    /// A group has committed; the sync is still to come.
    pub(crate) fn commit(&self, record: &PositionRecord) {
        let mut state = self.state.write();
        let groups = state.positions.entry((record.position.topic, record.partition)).or_default();
        let unsynced = Committed { current: record.position, synced: None };
        groups.entry(record.group.clone()).or_insert(unsynced).current = record.position;
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
                    topic.partitions.iter().for_each(|partition| partition.keep_stable());
                    topic.state.replace(altered);
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
                let synced = Committed { current: record.position, synced: Some(record.position) };
                groups.entry(record.group).or_insert(synced).synced = Some(record.position);
                return;
            }
        }
        drop(state);
        self.watchers.ring();
    }

    /// What `meta` says of positions.
    pub(crate) fn synced_positions(&self) -> Vec<PositionRecord> {
        let state = self.state.read();
        let mut records = Vec::new();
        for (&(_, partition), groups) in &state.positions {
            records.extend(groups.iter().filter_map(|(group, committed)| {
                Some(PositionRecord { group: group.clone(), partition, position: committed.synced? })
            }));
        }
        records
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
