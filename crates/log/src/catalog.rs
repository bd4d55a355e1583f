//! The catalog of topics and of committed group positions.
//!
//! Invariants
//! - A topic is listed from the moment its creation is durable until its deletion is durable.
//! - Each position has two versions: the current one, and the one that the last sync covers. `meta` keeps only the
//!   latter: a position must not outlive the records that it was committed with.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use millstream_types::{Epoch, Offset, PartitionId, Position, TopicId, TopicName, TopicPartition};
use parking_lot::RwLock;

use crate::meta::{PartitionRecord, PositionRecord};
use crate::partition::{PartitionContext, PartitionLog, TopicState};
use crate::shared::EngineShared;
use crate::watchers::Watchers;
use crate::{Bell, CommittedPosition, Error, KnownGroup, Topic};

/// A topic with its partitions, in order.
pub(crate) struct TopicEntry {
    pub(crate) state: Arc<TopicState>,
    pub(crate) partitions: Vec<Arc<PartitionLog>>,
}

impl TopicEntry {
    pub(crate) fn new(context: &PartitionContext, topic: Topic, partitions: Vec<PartitionRecord>) -> Arc<Self> {
        let state = Arc::new(TopicState::new(topic));
        let partitions = partitions_from(context, &state, 0, partitions);
        Arc::new(Self { state, partitions })
    }

    /// A copy of the topic with `total` partitions; new ones start under `epoch`.
    pub(crate) fn grown(&self, context: &PartitionContext, total: u32, epoch: Epoch) -> Arc<Self> {
        let present = self.partitions.len() as u32;
        let records = (present..total).map(|_| crate::partition::new_partition_record(epoch, 0)).collect();
        let mut partitions = self.partitions.clone();
        partitions.extend(partitions_from(context, &self.state, present, records));
        Arc::new(Self { state: self.state.clone(), partitions })
    }
}

/// Creates the partitions of a topic, numbered from `first` on.
fn partitions_from(
    context: &PartitionContext,
    state: &Arc<TopicState>,
    first: u32,
    records: Vec<PartitionRecord>,
) -> Vec<Arc<PartitionLog>> {
    let name = state.current().name.clone();
    let log = |(number, record)| PartitionLog::new(context, state, TopicPartition::new(name.clone(), number), record);
    (first..).zip(records).map(log).collect()
}

/// A change of the catalog that takes effect when its round is synced.
pub(crate) enum CatalogChange {
    Created(Arc<TopicEntry>),
    Altered(Topic),
    /// The topic gets more partitions.
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

/// The topics and positions of the log.
#[derive(Default)]
pub(crate) struct TopicCatalog {
    state: RwLock<State>,
    watchers: Watchers,
}

#[derive(Default)]
struct State {
    names: BTreeMap<TopicName, TopicId>,
    topics: BTreeMap<TopicId, Arc<TopicEntry>>,
    positions: BTreeMap<(TopicId, PartitionId), BTreeMap<String, Committed>>,
    /// Directories of deleted topics that are still to be removed.
    garbage: Vec<PathBuf>,
}

/// A group's position; `None` if there is none, or none any more.
#[derive(Default)]
struct Committed {
    current: Option<PositionRecord>,
    synced: Option<PositionRecord>,
}

impl TopicCatalog {
    pub(crate) fn topic(&self, name: &TopicName) -> Option<Arc<TopicEntry>> {
        let state = self.state.read();
        state.topics.get(state.names.get(name)?).cloned()
    }

    pub(crate) fn topic_by_id(&self, id: TopicId) -> Option<Arc<TopicEntry>> {
        self.state.read().topics.get(&id).cloned()
    }

    pub(crate) fn topics(&self) -> Vec<Arc<TopicEntry>> {
        let state = self.state.read();
        state.names.values().filter_map(|id| state.topics.get(id).cloned()).collect()
    }

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
    pub(crate) fn groups(&self) -> Vec<KnownGroup> {
        let state = self.state.read();
        let known = state.positions.iter().filter(|((topic, _), _)| state.topics.contains_key(topic));
        let mut latest: BTreeMap<&String, i64> = BTreeMap::new();
        for (group, committed) in known.flat_map(|(_, groups)| groups) {
            let Some(current) = &committed.current else { continue };
            let committed_ms = latest.entry(group).or_insert(current.committed_ms);
            *committed_ms = current.committed_ms.max(*committed_ms);
        }
        latest.into_iter().map(|(name, committed_ms)| KnownGroup { name: name.clone(), committed_ms }).collect()
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

    /// The offsets that all groups have committed in a topic, by partition and group.
    pub(crate) fn positions_in(&self, topic: TopicId) -> Vec<(PartitionId, String, Offset)> {
        let state = self.state.read();
        let partitions = state.positions.range((topic, PartitionId(0))..=(topic, PartitionId(u32::MAX)));
        let groups =
            partitions.flat_map(|((_, partition), groups)| groups.iter().map(move |group| (*partition, group)));
        let current = groups.filter_map(|(partition, (group, committed))| {
            let offset = committed.current.as_ref()?.position.offset;
            // A client's own number is not an offset.
            (!offset.0.cast_signed().is_negative()).then(|| (partition, group.clone(), offset))
        });
        current.collect()
    }

    /// Records a commit that is not synced yet.
    pub(crate) fn commit(&self, record: &PositionRecord) {
        let mut state = self.state.write();
        let groups = state.positions.entry((record.position.topic, record.partition)).or_default();
        groups.entry(record.group.clone()).or_default().current = Some(record.clone());
    }

    /// Records the deletion of a position that is not synced yet.
    pub(crate) fn forget(&self, group: &str, topic: TopicId, partition: PartitionId) {
        let mut state = self.state.write();
        if let Some(committed) = state.positions.get_mut(&(topic, partition)).and_then(|groups| groups.get_mut(group)) {
            committed.current = None;
        }
    }

    /// Applies a change that a sync has made durable.
    pub(crate) fn apply(&self, shared: &EngineShared, effect: CatalogChange) {
        let mut state = self.state.write();
        match effect {
            CatalogChange::Created(topic) => {
                let name = topic.state.current().name.clone();
                state.names.insert(name, topic.state.id);
                state.topics.insert(topic.state.id, topic);
            }
            CatalogChange::Altered(altered) => {
                if let Some(topic) = state.topics.get(&altered.id) {
                    topic.partitions.iter().for_each(|partition| partition.keep_high());
                    topic.state.replace(altered);
                }
            }
            CatalogChange::Grown(grown, topic) => {
                if state.topics.contains_key(&topic.id) {
                    grown.state.replace(topic);
                    state.topics.insert(grown.state.id, grown);
                }
            }
            CatalogChange::Deleted(id) => {
                if let Some(topic) = state.topics.remove(&id) {
                    topic.state.delete();
                    state.names.remove(&topic.state.current().name);
                    state.positions.retain(|(topic, _), _| *topic != id);
                    state.garbage.push(shared.layout.topic_dir(id));
                    topic.partitions.iter().for_each(|partition| partition.watchers.ring());
                }
            }
            CatalogChange::Committed(record) => {
                if !state.topics.contains_key(&record.position.topic) {
                    return;
                }
                let groups = state.positions.entry((record.position.topic, record.partition)).or_default();
                let committed = groups.entry(record.group.clone()).or_default();
                committed.synced = Some(record);
                return;
            }
            CatalogChange::Forgotten { group, topic, partition } => {
                let Some(groups) = state.positions.get_mut(&(topic, partition)) else { return };
                if let Some(committed) = groups.get_mut(&group) {
                    committed.synced = None;
                    if committed.current.is_none() {
                        groups.remove(&group);
                    }
                }
                return;
            }
            CatalogChange::Trimmed { topic, partition, first } => {
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

    /// The positions that `meta` keeps.
    pub(crate) fn synced_positions(&self) -> Vec<PositionRecord> {
        let state = self.state.read();
        state.positions.values().flat_map(BTreeMap::values).filter_map(|committed| committed.synced.clone()).collect()
    }

    /// Takes the directories that may be removed.
    pub(crate) fn take_garbage(&self) -> Vec<PathBuf> {
        std::mem::take(&mut self.state.write().garbage)
    }

    pub(crate) fn watch(&self, bell: &Arc<Bell>) {
        self.watchers.add(bell);
    }
}

/// Creates a topic and its partitions under `epoch`, which begin at `first`.
pub(crate) fn new_topic(context: &PartitionContext, topic: Topic, epoch: Epoch, first: u64) -> Arc<TopicEntry> {
    let record = |_| crate::partition::new_partition_record(epoch, first);
    let partitions = (0..topic.config.partitions).map(record).collect();
    TopicEntry::new(context, topic, partitions)
}
