//! The topics of the cluster with their partitions.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kafka_protocol::messages::metadata_response::MetadataResponseTopic;
use millstream_log::{Error, Topic, TopicConfig, Watchers};
use millstream_types::{PartitionId, TopicName, TopicPartition};
use parking_lot::RwLock;
use uuid::Uuid;

use crate::migrated::MigratedTopic;
use crate::partition_state::{PartitionState, leader_of};
use crate::pending::PendingAppends;
use crate::topic_info::TopicInfo;

/// A topic with its partitions.
#[derive(Debug)]
pub(crate) struct TopicState {
    pub(crate) info: Arc<TopicInfo>,
    partitions: RwLock<Vec<Arc<PartitionState>>>,
}

impl TopicState {
    pub(crate) fn new(kafka_name: String, id: Uuid, name: TopicName, config: TopicConfig) -> Arc<Self> {
        Self::migrated(kafka_name, id, name, config, None)
    }

    /// As [`TopicState::new`], for a topic that may have been moved to Kafka.
    pub(crate) fn migrated(
        kafka_name: String,
        id: Uuid,
        name: TopicName,
        config: TopicConfig,
        migrated: Option<Arc<MigratedTopic>>,
    ) -> Arc<Self> {
        let info = Arc::new(TopicInfo::new(kafka_name, id, name, config, migrated));
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

    /// Takes the leaders of the partitions from metadata.
    pub(crate) fn lead(&self, found: &MetadataResponseTopic) {
        for partition in self.partitions() {
            leader_of(found, partition.index()).into_iter().for_each(|leader| partition.led_by(leader));
        }
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

    /// Notes why the topic is gone, and gives its partitions up.
    fn end(&self, why: &Error) -> Vec<Arc<PartitionState>> {
        self.info.end(why.clone());
        std::mem::take(&mut self.partitions.write())
    }

    fn is_deleted(&self) -> Error {
        Error::UnknownTopic { topic: self.info.name() }
    }
}

/// Deleted topics that are remembered: many more than are deleted while a broker is behind.
const DELETED_MAX: usize = 10_000;

/// All topics that are known.
#[derive(Debug)]
pub(crate) struct Topics {
    by_name: RwLock<BTreeMap<TopicName, Arc<TopicState>>>,
    /// The log is closed: no topic comes any more.
    is_closed: AtomicBool,
    /// Topics that this process has deleted, the newest last; brokers may tell of them for a while.
    deleted: RwLock<VecDeque<Uuid>>,
    pub(crate) watchers: Watchers,
    /// The appends of topics that go end here.
    pending: Arc<PendingAppends>,
}

impl Topics {
    pub(crate) fn new(pending: Arc<PendingAppends>) -> Self {
        Self {
            by_name: RwLock::default(),
            is_closed: AtomicBool::new(false),
            deleted: RwLock::default(),
            watchers: Watchers::default(),
            pending,
        }
    }

    pub(crate) fn find(&self, name: &TopicName) -> Option<Arc<TopicState>> {
        self.by_name.read().get(name).cloned()
    }

    /// As [`Topics::find`].
    ///
    /// # Errors
    /// [`Error::UnknownTopic`]; [`Error::Stopped`] once the log is closed.
    pub(crate) fn get(&self, name: &TopicName) -> Result<Arc<TopicState>, Error> {
        self.find(name).ok_or_else(|| match self.is_closed.load(Ordering::Acquire) {
            true => Error::Stopped,
            false => Error::UnknownTopic { topic: name.clone() },
        })
    }

    pub(crate) fn all(&self) -> Vec<Arc<TopicState>> {
        self.by_name.read().values().cloned().collect()
    }

    /// Adds a topic, and returns the one that is known by now: the same one may have been added meanwhile.
    pub(crate) fn insert(&self, topic: Arc<TopicState>) -> Arc<TopicState> {
        let former = {
            let mut by_name = self.by_name.write();
            let name = topic.info.name();
            match by_name.get(&name) {
                _ if self.is_closed.load(Ordering::Acquire) => {
                    topic.info.end(Error::Stopped);
                    return topic;
                }
                Some(known) if known.info.id == topic.info.id => return Arc::clone(known),
                _ => by_name.insert(name, Arc::clone(&topic)),
            }
        };
        former.iter().for_each(|topic| self.end(topic, &topic.is_deleted()));
        self.watchers.ring();
        topic
    }

    /// `true` for a topic that this process has deleted.
    pub(crate) fn was_deleted(&self, id: Uuid) -> bool {
        self.deleted.read().contains(&id)
    }

    /// Notes that this process deletes a topic.
    pub(crate) fn delete(&self, topic: &TopicState) {
        {
            let mut deleted = self.deleted.write();
            deleted.push_back(topic.info.id);
            if deleted.len() > DELETED_MAX {
                deleted.pop_front();
            }
        }
        self.remove(&topic.info.name());
    }

    pub(crate) fn remove(&self, name: &TopicName) {
        let removed = self.by_name.write().remove(name);
        removed.iter().for_each(|topic| self.end(topic, &topic.is_deleted()));
        self.watchers.ring();
    }

    /// Gives all topics up, as the log is closed.
    pub(crate) fn close(&self) {
        let all = {
            let mut by_name = self.by_name.write();
            self.is_closed.store(true, Ordering::Release);
            std::mem::take(&mut *by_name)
        };
        all.values().for_each(|topic| self.end(topic, &Error::Stopped));
    }

    /// Tells the readers and writers of a topic why it is gone.
    fn end(&self, topic: &TopicState, why: &Error) {
        for partition in topic.end(why) {
            let ended = partition.queue.lock().fail(why);
            partition.take_unseen().into_iter().chain([ended]).for_each(|ended| self.pending.end(ended));
            partition.watchers.ring();
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use millstream_log::Done;
    use millstream_types::{Record, TenantId};

    use super::*;

    #[test]
    fn appends_to_a_topic_that_goes_are_answered_and_leave_their_room_to_others() {
        let pending = Arc::new(PendingAppends::new(100));
        let topics = Topics::new(Arc::clone(&pending));
        let name = TopicName::user("gone", &TenantId::default()).unwrap();
        for id in 0..100 {
            let config = TopicConfig { partitions: 1, ..TopicConfig::default() };
            let topic = topics.insert(TopicState::new("gone".to_owned(), Uuid::from_u128(id), name.clone(), config));
            pending.accept(60).unwrap();
            let (sender, answer) = std::sync::mpsc::channel();
            let done = Done::call(move |result| drop(sender.send(result)));
            topic.partitions()[0].queue.lock().push(&[Record::default()], 1 << 20, 60, done);
            match id % 2 {
                0 => topics.remove(&name),
                // Created anew by others.
                _ => drop(topics.insert(TopicState::new(
                    "gone".to_owned(),
                    Uuid::from_u128(1_000 + id),
                    name.clone(),
                    TopicConfig::default(),
                ))),
            }
            assert!(matches!(answer.recv().unwrap(), Err(Error::UnknownTopic { .. })));
            assert_eq!(pending.bytes(), 0);
        }
    }
}
