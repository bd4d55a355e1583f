//! A topic of the cluster: its name, its id and its configuration.

use std::sync::{Arc, OnceLock};

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
    /// The reason why it is gone.
    gone: OnceLock<Error>,
}

impl TopicInfo {
    pub(crate) fn new(kafka_name: String, id: Uuid, name: TopicName, config: TopicConfig) -> Self {
        let topic = Arc::new(Topic { id: TopicId(id.as_u128()), name, config });
        Self { kafka_name, id, topic: RwLock::new(topic), gone: OnceLock::new() }
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
