//! The topic of a bucket.

use millstream_log::{Cleanup, TopicConfig, Writers};
use millstream_types::TopicName;
use millstream_view::ViewRuntime;

use crate::{BucketConfig, Error};

/// Largest record of a bucket, which is as much as one append of an owner takes.
pub(super) const RECORD_MAX_BYTES: usize = 4 << 20;
/// Share of live bytes below which compaction rewrites a segment.
const LIVE_PERCENT: u8 = 50;

/// Makes the topic of a bucket, or gives it the bucket's level.
pub(super) fn ensure_topic(topic: &TopicName, config: &BucketConfig, ground: &ViewRuntime) -> Result<(), Error> {
    let wanted = TopicConfig {
        partitions: config.partitions,
        level: config.ack.into(),
        cleanup: Cleanup::Compact,
        writers: Writers::OwnersOnly,
        retention: None,
        record_max_bytes: RECORD_MAX_BYTES,
        compaction_live_percent: Some(LIVE_PERCENT),
        ..TopicConfig::default()
    };
    match ground.log.topic(topic) {
        None => drop(ground.log.create_topic(topic, &wanted)?),
        Some(existing) if existing.config.level != wanted.level => {
            let config = TopicConfig { level: wanted.level, ..existing.config.clone() };
            drop(ground.log.alter_topic(topic, &config)?);
        }
        Some(_) => {}
    }
    Ok(())
}
