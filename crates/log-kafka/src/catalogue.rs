//! The catalogue: a compacted topic with the configuration of each topic, as Kafka knows only a part of it.
//!
//! A record is written before its topic is created, and deleted after it: one without a topic means nothing. Its form is [`TOPICS`].

use std::collections::HashMap;
use std::sync::Arc;

use millstream_log::{Error, Topic, TopicConfig, reply};
use millstream_types::{BatchLimits, Offset, Record, TOPICS, TopicName, TopicPartition};

use crate::core::Core;
use crate::fetching::{self, Isolation};
use crate::partition_state::PartitionState;

const READ_BYTES: i32 = 4 << 20;

/// The records of the catalogue, as far as they were read.
#[derive(Debug, Default)]
pub(crate) struct Catalogue {
    configs: HashMap<String, TopicConfig>,
    next: Offset,
}

impl Catalogue {
    /// The offset up to which it was read.
    pub(crate) fn next(&self) -> Offset {
        self.next
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
        let undecodable = |source| Error::Batch { partition: catalogue.id.clone(), source };
        let ends = fetching::ends(core, &catalogue).await?;
        self.next = self.next.max(ends.first);
        while self.next < ends.stable {
            let fetched = fetching::fetch(core, &catalogue, self.next, READ_BYTES, Isolation::Committed).await?;
            let Some((visible, after)) =
                fetched.and_then(|fetched| fetched.visible.next.map(|next| (fetched.visible, next)))
            else {
                break;
            };
            for batch in visible.batches {
                let batch = batch.inflated(&BatchLimits::default()).map_err(undecodable)?;
                for record in batch.records() {
                    let record = record.map_err(undecodable)?;
                    let kafka_name = String::from_utf8_lossy(record.key.unwrap_or_default()).into_owned();
                    match record.value.and_then(Topic::decode) {
                        Some(topic) => self.configs.insert(kafka_name, topic.config),
                        None => self.configs.remove(&kafka_name),
                    };
                }
            }
            self.next = after;
        }
        Ok(())
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
