//! The compacted topics that hold the state of entities and subscriptions.

use millstream_log::{Cleanup, Log, TopicConfig, Writers};
use millstream_types::{Compression, TopicName};

use crate::Error;

/// Record size limit of the state and change topics. The largest entity and the names of its attributes fit.
pub(crate) const RECORD_MAX_BYTES: usize = 3 << 20;

/// Creates the compacted topic `name`. The view does not create it, because an entity may be larger than
/// a topic's default record limit.
pub(crate) fn create_state_topic(name: &TopicName, partitions: u32, log: &dyn Log) -> Result<(), Error> {
    if log.topic(name).is_none() {
        let config = TopicConfig {
            partitions,
            cleanup: Cleanup::Compact,
            writers: Writers::OwnersOnly,
            retention: None,
            record_max_bytes: RECORD_MAX_BYTES,
            compression: Compression::Zstd,
            ..TopicConfig::default()
        };
        log.create_topic(name, &config)?;
    }
    Ok(())
}
