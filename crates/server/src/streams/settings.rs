//! Converts a topic's configuration from and to JSON.

use millstream_http::Problem;
use millstream_log::{AckLevel, Cleanup, Storage, Topic, TopicConfig, Writers};
use millstream_types::{Compression, TopicKind};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use super::units;

/// Default bytes per partition of a topic in memory.
const RING_BYTES: usize = 16 << 20;
const LEVELS: [(&str, AckLevel); 3] =
    [("memory", AckLevel::Memory), ("written", AckLevel::Written), ("synced", AckLevel::Synced)];

/// The settings in a request; absent ones stay unchanged.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TopicSettings {
    partitions: Option<u32>,
    storage: Option<String>,
    storage_bytes: Option<Value>,
    level: Option<String>,
    cleanup: Option<String>,
    /// `null` keeps records for ever.
    #[serde(default, deserialize_with = "given")]
    retention: Option<Value>,
    /// `null` removes the limit.
    #[serde(default, deserialize_with = "given")]
    retention_bytes: Option<Value>,
    segment_bytes: Option<Value>,
    segment_age: Option<Value>,
    compression: Option<String>,
    record_max_bytes: Option<Value>,
    hold_max_bytes: Option<Value>,
}

/// Distinguishes `null` from an absent member.
fn given<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

impl TopicSettings {
    /// Applies the request to `config`.
    pub(super) fn apply(self, mut config: TopicConfig) -> Result<TopicConfig, Problem> {
        config.partitions = self.partitions.unwrap_or(config.partitions);
        if let Some(storage) = &self.storage {
            config.storage = match (storage.as_str(), config.storage) {
                ("disk", _) => Storage::Disk,
                ("memory", Storage::Memory { max_bytes }) => Storage::Memory { max_bytes },
                ("memory", Storage::Disk) => Storage::Memory { max_bytes: RING_BYTES },
                _ => return Err(refused("storage", storage, "use disk or memory")),
            };
        }
        if let Some(size) = &self.storage_bytes {
            let Storage::Memory { max_bytes } = &mut config.storage else {
                return Err(refused("storage_bytes", size, "it bounds a topic with storage = memory; set that, too"));
            };
            *max_bytes = to_usize(bytes("storage_bytes", size)?);
        }
        if let Some(name) = &self.level {
            config.level = level(name).ok_or_else(|| refused("level", name, "use memory, written or synced"))?;
        }
        if let Some(cleanup) = &self.cleanup {
            let rule = "use delete, compact, or compact,delete";
            config.cleanup = Cleanup::from_name(cleanup).ok_or_else(|| refused("cleanup", cleanup, rule))?;
        }
        if let Some(name) = &self.compression {
            let rule = "use none, gzip, snappy, lz4 or zstd";
            config.compression = Compression::from_name(name).ok_or_else(|| refused("compression", name, rule))?;
        }
        self.apply_bounds(&mut config)?;
        Ok(config)
    }

    fn apply_bounds(&self, config: &mut TopicConfig) -> Result<(), Problem> {
        if let Some(age) = &self.retention {
            config.retention = if is_none(age) { None } else { Some(duration("retention", age)?) };
        }
        if let Some(size) = &self.retention_bytes {
            config.retention_bytes = if is_none(size) { None } else { Some(bytes("retention_bytes", size)?) };
        }
        if let Some(size) = &self.segment_bytes {
            config.segment_bytes = bytes("segment_bytes", size)?;
        }
        if let Some(age) = &self.segment_age {
            config.segment_age = duration("segment_age", age)?;
        }
        if let Some(size) = &self.record_max_bytes {
            config.record_max_bytes = to_usize(bytes("record_max_bytes", size)?);
        }
        if let Some(size) = &self.hold_max_bytes {
            config.hold_max_bytes = bytes("hold_max_bytes", size)?;
        }
        Ok(())
    }
}

/// Returns the level with this name.
pub(super) fn level(name: &str) -> Option<AckLevel> {
    LEVELS.iter().find(|(known, _)| *known == name).map(|(_, level)| *level)
}

/// Returns the name of a level.
pub(super) fn level_name(level: AckLevel) -> &'static str {
    LEVELS.iter().find(|(_, known)| *known == level).map_or("synced", |(name, _)| *name)
}

/// Renders the configuration in request form, plus the permitted writers.
pub(super) fn show(topic: &Topic) -> Value {
    let config = &topic.config;
    let (storage, storage_bytes) = match config.storage {
        Storage::Disk => ("disk", None),
        Storage::Memory { max_bytes } => ("memory", Some(max_bytes)),
    };
    json!({
        "partitions": config.partitions,
        "storage": storage,
        "storage_bytes": storage_bytes,
        "level": level_name(config.level),
        "cleanup": config.cleanup.as_str(),
        "writers": writers_name(topic),
        "retention": config.retention.map(millstream_types::format_duration),
        "retention_bytes": config.retention_bytes,
        "segment_bytes": config.segment_bytes,
        "segment_age": millstream_types::format_duration(config.segment_age),
        "compression": config.compression.as_str(),
        "record_max_bytes": config.record_max_bytes,
        "hold_max_bytes": config.hold_max_bytes,
    })
}

fn writers_name(topic: &Topic) -> &'static str {
    match (topic.config.writers, topic.name.kind()) {
        (Writers::Anyone, _) => "anyone",
        (Writers::OwnersOnly, TopicKind::User) => "admins",
        (Writers::OwnersOnly, _) => "owners",
    }
}

fn is_none(given: &Value) -> bool {
    given.is_null() || given == "none"
}

fn duration(setting: &'static str, given: &Value) -> Result<std::time::Duration, Problem> {
    units::duration(given).map_err(|rule| refused(setting, given, rule))
}

fn bytes(setting: &'static str, given: &Value) -> Result<u64, Problem> {
    units::bytes(given).map_err(|rule| refused(setting, given, rule))
}

fn to_usize(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

fn refused(setting: &'static str, given: impl std::fmt::Display, rule: &'static str) -> Problem {
    Problem::invalid(format!("setting '{setting}' cannot be taken")).value(given).rule(rule)
}
