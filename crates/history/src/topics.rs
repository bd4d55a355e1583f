//! The topics of this plane, each of one partition.

use std::sync::Arc;

use millstream_log::{Cleanup, Log, Partition, TopicConfig, Writers};
use millstream_types::{Compression, StateTopic, TopicName, TopicPartition};

use crate::Error;

/// The partition of a topic of this plane, which is created if it is missing.
pub(crate) fn open_topic(
    log: &dyn Log,
    topic: StateTopic,
    compression: Compression,
) -> Result<Arc<dyn Partition>, Error> {
    let name = TopicName::internal(topic);
    if log.topic(&name).is_none() {
        let config = TopicConfig {
            partitions: 1,
            cleanup: Cleanup::Compact,
            writers: Writers::OwnersOnly,
            retention: None,
            compression,
            ..TopicConfig::default()
        };
        log.create_topic(&name, &config)?;
    }
    Ok(log.partition(&TopicPartition::new(name, 0))?)
}
