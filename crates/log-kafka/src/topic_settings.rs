//! The settings of a topic in Kafka.

use std::collections::HashMap;
use std::time::Duration;

use kafka_protocol::messages::DescribeConfigsResponse;
use millstream_log::{Cleanup, Error, Storage, TopicConfig};
use millstream_types::{Compression, TopicName};

/// Bytes that a record may take in its batch beside key, value and headers; many headers take more.
const OVERHEAD_BYTES: usize = 64 << 10;
/// Kafka's own limit of a batch, below which ours does not go.
const BATCH_MIN_BYTES: usize = 1 << 20;
const FOR_EVER: &str = "-1";

/// Checks that Kafka can keep a topic like this.
///
/// # Errors
/// [`Error::InvalidConfig`].
pub(crate) fn check(name: &TopicName, config: &TopicConfig) -> Result<(), Error> {
    config.validate(name)?;
    match config.storage {
        Storage::Disk => Ok(()),
        Storage::Memory { max_bytes } => Err(Error::InvalidConfig {
            topic: name.clone(),
            setting: "storage",
            value: format!("memory ({max_bytes} bytes a partition)"),
            rule: "Kafka has no topics in memory; take disk, with a short retention",
        }),
    }
}

/// The settings with Kafka's names.
pub(crate) fn to_kafka(
    config: &TopicConfig,
    min_insync_replicas: i16,
    batch_max_bytes: usize,
) -> Vec<(&'static str, String)> {
    let millis = |time: Duration| time.as_millis().to_string();
    let or_ever = |value: Option<String>| value.unwrap_or_else(|| FOR_EVER.to_owned());
    let batch_bytes = batch_max_bytes.max(BATCH_MIN_BYTES).max(config.record_max_bytes) + OVERHEAD_BYTES;
    let mut settings = vec![
        ("cleanup.policy", config.cleanup.as_str().to_owned()),
        ("min.insync.replicas", min_insync_replicas.to_string()),
        ("retention.ms", or_ever(config.retention.map(millis))),
        ("retention.bytes", or_ever(config.retention_bytes.map(|bytes| bytes.to_string()))),
        ("segment.bytes", config.segment_bytes.max(1 << 20).to_string()),
        ("segment.ms", millis(config.segment_age)),
        ("max.message.bytes", batch_bytes.to_string()),
        ("delete.retention.ms", millis(config.delete_retention)),
        ("min.compaction.lag.ms", millis(config.compaction_lag_min)),
        ("unclean.leader.election.enable", "false".to_owned()),
        ("message.timestamp.type", timestamp_type(config).to_owned()),
        // Batches are kept as they were sealed.
        ("compression.type", "producer".to_owned()),
    ];
    if let Some(lag) = config.compaction_lag_max {
        settings.push(("max.compaction.lag.ms", millis(lag)));
    }
    if config.cleanup == Cleanup::Compact {
        settings.retain(|(name, _)| !name.starts_with("retention."));
    }
    settings
}

/// The time by which Kafka removes records. Retention counts from the append, whatever time a record has; its own time stays in the
/// batch. But compaction rewrites batches and would lose it.
fn timestamp_type(config: &TopicConfig) -> &'static str {
    match config.append_time || !config.cleanup.compacts() {
        true => "LogAppendTime",
        false => "CreateTime",
    }
}

/// The settings in the answer to a question for them, by name.
pub(crate) fn of_answer(answer: DescribeConfigsResponse) -> HashMap<String, String> {
    let all = answer.results.into_iter().flat_map(|result| result.configs);
    all.filter_map(|setting| Some((setting.name.to_string(), setting.value?.to_string()))).collect()
}

/// The configuration of a topic that others have created, from Kafka's settings.
pub(crate) fn from_kafka(partitions: u32, setting: impl Fn(&str) -> Option<String>) -> TopicConfig {
    let number = |name: &str| setting(name).and_then(|text| text.parse::<u64>().ok());
    let millis = |name: &str| number(name).map(Duration::from_millis);
    let default = TopicConfig::default();
    TopicConfig {
        partitions,
        cleanup: setting("cleanup.policy").and_then(|text| Cleanup::from_name(&text)).unwrap_or(default.cleanup),
        retention: millis("retention.ms"),
        retention_bytes: number("retention.bytes"),
        segment_bytes: number("segment.bytes").unwrap_or(default.segment_bytes),
        segment_age: millis("segment.ms").unwrap_or(default.segment_age),
        compression: Compression::None,
        delete_retention: millis("delete.retention.ms").unwrap_or(default.delete_retention),
        compaction_lag_min: millis("min.compaction.lag.ms").unwrap_or(default.compaction_lag_min),
        append_time: setting("message.timestamp.type").as_deref() == Some("LogAppendTime"),
        ..default
    }
}
