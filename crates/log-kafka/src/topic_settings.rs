//! The settings of a topic in Kafka.

use std::collections::HashMap;
use std::time::Duration;

use kafka_protocol::messages::DescribeConfigsResponse;
use millstream_log::{Cleanup, Storage, TopicConfig};
use millstream_types::Compression;

/// Bytes that a record may take in its batch beside key, value and headers; many headers take more.
const OVERHEAD_BYTES: usize = 64 << 10;
/// Kafka's own limit of a batch, below which ours does not go.
const BATCH_MIN_BYTES: usize = 1 << 20;
const FOR_EVER: &str = "-1";

/// Time for which records of a topic in memory are kept: Kafka keeps it on its disks.
const MEMORY_RETENTION: Duration = Duration::from_secs(5 * 60);
/// The smallest segment that Kafka takes.
const SEGMENT_MIN_BYTES: u64 = 1 << 20;

/// The settings with Kafka's names.
pub(crate) fn to_kafka(
    config: &TopicConfig,
    min_insync_replicas: i16,
    batch_max_bytes: usize,
) -> Vec<(&'static str, String)> {
    let of_memory = match config.storage {
        Storage::Disk => None,
        Storage::Memory { max_bytes } => Some(TopicConfig {
            retention: Some(config.retention.unwrap_or(MEMORY_RETENTION).min(MEMORY_RETENTION)),
            retention_bytes: Some(max_bytes as u64),
            // Kafka removes whole segments.
            segment_bytes: max_bytes as u64 / 4,
            segment_age: MEMORY_RETENTION / 5,
            ..config.clone()
        }),
    };
    let config = of_memory.as_ref().unwrap_or(config);
    let millis = |time: Duration| time.as_millis().to_string();
    let or_ever = |value: Option<String>| value.unwrap_or_else(|| FOR_EVER.to_owned());
    let batch_bytes = batch_max_bytes.max(BATCH_MIN_BYTES).max(config.record_max_bytes) + OVERHEAD_BYTES;
    let mut settings = vec![
        ("cleanup.policy", config.cleanup.as_str().to_owned()),
        ("min.insync.replicas", min_insync_replicas.to_string()),
        ("retention.ms", or_ever(config.retention.map(millis))),
        ("retention.bytes", or_ever(config.retention_bytes.map(|bytes| bytes.to_string()))),
        ("segment.bytes", config.segment_bytes.max(SEGMENT_MIN_BYTES).to_string()),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_in_memory_is_kept_for_a_short_time() {
        const MIB: usize = 1 << 20;
        let of = |storage, retention| {
            let config = TopicConfig { storage, retention, ..TopicConfig::default() };
            let settings: HashMap<_, _> = to_kafka(&config, 2, MIB).into_iter().collect();
            ["retention.ms", "retention.bytes", "segment.bytes", "segment.ms"].map(|name| settings[name].clone())
        };
        let minute = Some(Duration::from_secs(60));
        let memory = |max_bytes| Storage::Memory { max_bytes };
        assert_eq!(of(memory(64 * MIB), None), ["300000", "67108864", "16777216", "60000"]);
        assert_eq!(of(memory(1 << 10), None), ["300000", "1024", "1048576", "60000"]);
        assert_eq!(of(memory(MIB), minute)[0], "60000");
        assert_eq!(of(Storage::Disk, minute)[..2], ["60000", "-1"]);
    }
}
