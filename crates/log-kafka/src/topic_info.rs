//! A topic of the cluster: its name, its id and its configuration.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use millstream_log::{Error, Topic, TopicConfig};
use millstream_types::{TopicId, TopicName};
use parking_lot::RwLock;
use uuid::Uuid;

/// A topic, shared by the handles on its partitions.
#[derive(Debug)]
pub(crate) struct TopicInfo {
    /// Its name in the cluster.
    pub(crate) kafka_name: String,
    pub(crate) id: Uuid,
    topic: RwLock<Arc<Topic>>,
    is_deleted: AtomicBool,
}

impl TopicInfo {
    pub(crate) fn new(kafka_name: String, id: Uuid, name: TopicName, config: TopicConfig) -> Self {
        let topic = Arc::new(Topic { id: TopicId(id.as_u128()), name, config });
        Self { kafka_name, id, topic: RwLock::new(topic), is_deleted: AtomicBool::new(false) }
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

    /// Notes that the topic is gone.
    pub(crate) fn delete(&self) {
        self.is_deleted.store(true, Ordering::Release);
    }

    /// Checks that the topic exists.
    ///
    /// # Errors
    /// [`Error::UnknownTopic`].
    pub(crate) fn check_exists(&self) -> Result<(), Error> {
        match self.is_deleted.load(Ordering::Acquire) {
            true => Err(Error::UnknownTopic { topic: self.name() }),
            false => Ok(()),
        }
    }
}
