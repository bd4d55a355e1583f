//! A topic of the cluster: its name, its id and its configuration.

use std::sync::{Arc, OnceLock};

use millstream_log::{Error, Topic, TopicConfig};
use millstream_types::{Offset, RecordBatch, TopicId, TopicName};
use parking_lot::RwLock;
use uuid::Uuid;

/// Kafka numbers the records of each topic from 0 on, also those of a later topic of the name. Where offsets are versions, which never
/// come back, they begin at one of so many offsets, by the topic's random id. Later ones are still exact in JSON.
const FIRST_OFFSETS: u64 = 1 << 51;

/// A topic, shared by the handles on its partitions.
#[derive(Debug)]
pub(crate) struct TopicInfo {
    /// Its name in the cluster.
    pub(crate) kafka_name: String,
    pub(crate) id: Uuid,
    /// The offset of the record that Kafka numbers 0.
    first_offset: Offset,
    topic: RwLock<Arc<Topic>>,
    /// The reason why it is gone.
    gone: OnceLock<Error>,
}

impl TopicInfo {
    pub(crate) fn new(kafka_name: String, id: Uuid, name: TopicName, config: TopicConfig) -> Self {
        let first_offset = Offset(if config.has_versions() { id.as_u64_pair().1 % FIRST_OFFSETS } else { 0 });
        let topic = Arc::new(Topic { id: TopicId(id.as_u128()), name, config });
        Self { kafka_name, id, first_offset, topic: RwLock::new(topic), gone: OnceLock::new() }
    }

    /// `true` if values are read one by one, by their offsets.
    pub(crate) fn is_read_by_offset(&self) -> bool {
        self.first_offset != Offset::ZERO
    }

    /// The offset of the record that Kafka gives this number.
    pub(crate) fn offset(&self, kafka_offset: i64) -> Offset {
        self.first_offset.advance(kafka_offset.max(0).unsigned_abs())
    }

    /// The number that Kafka gives the record at this offset.
    pub(crate) fn kafka_offset(&self, offset: Offset) -> i64 {
        offset.0.saturating_sub(self.first_offset.0).cast_signed()
    }

    /// A batch as Kafka numbers it, at its offsets.
    pub(crate) fn at_its_offsets(&self, batch: RecordBatch) -> RecordBatch {
        if self.first_offset == Offset::ZERO {
            return batch;
        }
        let (first, epoch) = (self.offset(batch.base_offset().0.cast_signed()), batch.epoch());
        batch.into_restamped(first, epoch)
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
