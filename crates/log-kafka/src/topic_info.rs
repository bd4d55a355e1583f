//! A topic of the cluster: its name, its id and its configuration.

use std::sync::{Arc, OnceLock};

use millstream_log::{Error, Topic, TopicConfig};
use millstream_types::{Offset, PartitionId, TopicId, TopicName};
use parking_lot::RwLock;
use uuid::Uuid;

use crate::migrated::{MigratedTopic, PartitionOrigin};

/// Kafka numbers the records of each topic from 0 on, also those of a later topic of the name. Where offsets are versions, which never
/// come back, they begin at one of so many offsets, by the topic's random id. Later ones are still exact in JSON.
const FIRST_OFFSETS: u64 = 1 << 51;

/// A topic, shared by the handles on its partitions.
#[derive(Debug)]
pub(crate) struct TopicInfo {
    /// Its name in the cluster.
    pub(crate) kafka_name: String,
    pub(crate) id: Uuid,
    /// The topic as it was before it was moved to Kafka, if it was.
    migrated: Option<Arc<MigratedTopic>>,
    topic: RwLock<Arc<Topic>>,
    /// The reason why it is gone.
    gone: OnceLock<Error>,
}

impl TopicInfo {
    pub(crate) fn new(
        kafka_name: String,
        id: Uuid,
        name: TopicName,
        config: TopicConfig,
        migrated: Option<Arc<MigratedTopic>>,
    ) -> Self {
        let own = migrated.as_ref().map_or(TopicId(id.as_u128()), |migrated| migrated.id);
        let topic = Arc::new(Topic { id: own, name, config });
        Self { kafka_name, id, migrated, topic: RwLock::new(topic), gone: OnceLock::new() }
    }

    /// `true` if values are read one by one, by their offsets.
    pub(crate) fn is_read_by_offset(&self) -> bool {
        self.topic.read().config.has_versions()
    }

    /// The past of a partition before Kafka had it.
    pub(crate) fn origin(&self, partition: PartitionId) -> PartitionOrigin {
        let migrated = self.migrated.as_ref().and_then(|migrated| migrated.partitions.get(&partition));
        migrated.cloned().unwrap_or_else(|| {
            let first = if self.topic().config.has_versions() { self.id.as_u64_pair().1 % FIRST_OFFSETS } else { 0 };
            PartitionOrigin::none(Offset(first))
        })
    }

    pub(crate) fn name(&self) -> TopicName {
        self.topic.read().name.clone()
    }

    /// The topic with the configuration in force.
    pub(crate) fn topic(&self) -> Arc<Topic> {
        Arc::clone(&self.topic.read())
    }

    /// Puts another configuration in force.
    pub(crate) fn reconfigure(&self, config: TopicConfig) -> Arc<Topic> {
        let mut topic = self.topic.write();
        *topic = Arc::new(Topic { config, ..(**topic).clone() });
        Arc::clone(&topic)
    }

    /// Notes that the topic is gone: deleted, or its log closed.
    pub(crate) fn end(&self, why: Error) {
        self.gone.get_or_init(|| why);
    }

    /// Checks that the topic exists.
    ///
    /// # Errors
    /// [`Error::UnknownTopic`]; [`Error::Stopped`] once the log is closed.
    pub(crate) fn check_exists(&self) -> Result<(), Error> {
        self.gone.get().map_or(Ok(()), |why| Err(why.clone()))
    }
}
