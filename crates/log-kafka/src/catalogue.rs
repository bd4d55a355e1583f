//! The catalogue: a compacted topic with the configuration of each topic, as Kafka knows only a part of it.
//!
//! A record is written before its topic is created, and deleted after it: one without a topic means nothing. Its form is [`TOPICS`].

use std::collections::HashMap;
use std::sync::Arc;

use millstream_log::{Error, Topic, TopicConfig, reply};
use millstream_types::{Offset, Record, TOPICS, TopicName, TopicPartition};
use uuid::Uuid;

use crate::core::Core;
use crate::fetching;
use crate::partition_state::PartitionState;

/// The records of the catalogue, as far as they were read.
#[derive(Debug, Default)]
pub(crate) struct Catalogue {
    configs: HashMap<String, TopicConfig>,
    /// The id of the topic from which they were read.
    topic: Option<Uuid>,
    next: Offset,
}

impl Catalogue {
    /// The offset up to which it was read.
    pub(crate) fn next(&self) -> Offset {
        self.next
    }

    /// The id of the topic from which it was read.
    pub(crate) fn topic(&self) -> Option<Uuid> {
        self.topic
    }

    /// The configuration of the topic of this name in the cluster.
    pub(crate) fn config(&self, kafka_name: &str) -> Option<&TopicConfig> {
        self.configs.get(kafka_name)
    }

    /// Reads what was written since the last call.
    ///
    /// # Errors
    /// Those of a read.
    pub(crate) async fn catch_up(&mut self, core: &Arc<Core>) -> Result<(), Error> {
        let catalogue = partition(core)?;
        let Self { configs, topic, next } = self;
        *topic = Some(catalogue.topic.id);
        fetching::new_records(core, &catalogue, next, |key, value| {
            let kafka_name = String::from_utf8_lossy(key).into_owned();
            match value.and_then(Topic::decode) {
                Some(topic) => configs.insert(kafka_name, topic.config),
                None => configs.remove(&kafka_name),
            };
        })
        .await
    }
}

/// The partition of the catalogue, which a start has created.
///
/// # Errors
/// [`Error::UnknownTopic`] if somebody has deleted it.
pub(crate) fn partition(core: &Core) -> Result<Arc<PartitionState>, Error> {
    let name = TopicName::internal(TOPICS.name);
    core.topics.get(&name)?.partition(&TopicPartition::new(name, 0))
}

/// Writes the record of a topic, or deletes it.
///
/// # Errors
/// Those of an append.
pub(crate) async fn write(core: &Arc<Core>, kafka_name: &str, topic: Option<&Topic>) -> Result<(), Error> {
    let catalogue = partition(core)?;
    let value = topic.map(Topic::encode);
    let record = Record { key: Some(kafka_name.as_bytes()), value: value.as_deref(), ..Record::default() };
    let (done, answer) = reply();
    catalogue.queue.lock().push(&[record], core.config.batch_max_bytes, 0, done);
    core.outbox.ready(catalogue);
    answer.await.map(drop)
}
