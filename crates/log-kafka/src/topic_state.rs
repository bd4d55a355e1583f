//! The topics of the cluster with their partitions.

use std::collections::BTreeMap;
use std::sync::Arc;

use millstream_log::{Error, Topic, TopicConfig, Watchers};
use millstream_types::{PartitionId, TopicName, TopicPartition};
use parking_lot::RwLock;
use uuid::Uuid;

use crate::partition_state::PartitionState;
use crate::queue::Ended;
use crate::topic_info::TopicInfo;

/// A topic with its partitions.
#[derive(Debug)]
pub(crate) struct TopicState {
    pub(crate) info: Arc<TopicInfo>,
    partitions: RwLock<Vec<Arc<PartitionState>>>,
}

impl TopicState {
    pub(crate) fn new(kafka_name: String, id: Uuid, name: TopicName, config: TopicConfig) -> Arc<Self> {
        let info = Arc::new(TopicInfo::new(kafka_name, id, name, config));
        let state = Arc::new(Self { info, partitions: RwLock::default() });
        state.grow();
        state
    }

    /// The topic with the configuration in force.
    pub(crate) fn topic(&self) -> Arc<Topic> {
        self.info.topic()
    }

    /// Puts another configuration in force, with as many partitions or more.
    pub(crate) fn reconfigure(&self, config: TopicConfig) -> Arc<Topic> {
        let topic = self.info.reconfigure(config);
        self.grow();
        topic
    }

    /// Makes the partitions that the configuration has and this state has not.
    fn grow(&self) {
        let wanted = self.topic().config.partitions;
        let mut partitions = self.partitions.write();
        for number in partitions.len() as u32..wanted {
            partitions.push(Arc::new(PartitionState::new(&self.info, PartitionId(number))));
        }
    }

    pub(crate) fn partition(&self, partition: &TopicPartition) -> Result<Arc<PartitionState>, Error> {
        let partitions = self.partitions.read();
        let known = partitions.get(partition.partition.0 as usize).cloned();
        known.ok_or_else(|| Error::UnknownPartition {
            partition: partition.clone(),
            partitions: partitions.len() as u32,
        })
    }

    pub(crate) fn partitions(&self) -> Vec<Arc<PartitionState>> {
        self.partitions.read().clone()
    }

    /// Notes that the topic is gone, and gives its partitions up.
    fn delete(&self) -> Vec<Arc<PartitionState>> {
        self.info.delete();
        std::mem::take(&mut self.partitions.write())
    }
}

/// All topics that are known.
#[derive(Debug, Default)]
pub(crate) struct Topics {
    by_name: RwLock<BTreeMap<TopicName, Arc<TopicState>>>,
    pub(crate) watchers: Watchers,
}

impl Topics {
    pub(crate) fn find(&self, name: &TopicName) -> Option<Arc<TopicState>> {
        self.by_name.read().get(name).cloned()
    }

    /// As [`Topics::find`].
    ///
    /// # Errors
    /// [`Error::UnknownTopic`].
    pub(crate) fn get(&self, name: &TopicName) -> Result<Arc<TopicState>, Error> {
        self.find(name).ok_or_else(|| Error::UnknownTopic { topic: name.clone() })
    }

    pub(crate) fn all(&self) -> Vec<Arc<TopicState>> {
        self.by_name.read().values().cloned().collect()
    }

    pub(crate) fn insert(&self, topic: Arc<TopicState>) {
        let former = self.by_name.write().insert(topic.info.name(), topic);
        former.iter().for_each(end);
        self.watchers.ring();
    }

    pub(crate) fn remove(&self, name: &TopicName) {
        let removed = self.by_name.write().remove(name);
        removed.iter().for_each(end);
        self.watchers.ring();
    }

    /// Gives all topics up.
    pub(crate) fn clear(&self) {
        let all = std::mem::take(&mut *self.by_name.write());
        all.values().for_each(end);
    }
}

/// Tells the readers and writers of a topic that it is gone.
fn end(topic: &Arc<TopicState>) {
    for partition in topic.delete() {
        let ended = partition.queue.lock().fail(&Error::UnknownTopic { topic: topic.info.name() });
        partition.take_unseen().into_iter().chain([ended]).for_each(Ended::answer);
        partition.watchers.ring();
    }
}
