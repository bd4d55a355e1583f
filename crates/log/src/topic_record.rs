//! The encoding of a topic in the journal and in `meta`.
//!
//! The record holds: id (u128), tenant (text), rendered name (text), then the configuration in the order
//! of [`TopicConfig`]'s fields. Version 2 adds the retention of tombstones, version 3 the compaction
//! lags and the append time, version 4 compaction by live bytes (u8, 0 for none). A text is its length (u16) and UTF-8; an optional integer is a flag (u8)
//! and a u64; durations are milliseconds.

use std::time::Duration;

use millstream_types::{Compression, TenantId, TopicId, TopicName};

use crate::wire::{WireReader, WireWriter};
use crate::{AckLevel, Cleanup, Storage, Topic, TopicConfig, Writers};

/// The version that [`put_topic`] writes.
pub(crate) const TOPIC_VERSION: u8 = 4;

pub(crate) fn put_topic(out: &mut Vec<u8>, topic: &Topic) {
    out.put_u128(topic.id.0);
    out.put_text(topic.name.tenant().as_str());
    out.put_text(&topic.name.to_string());
    let config = &topic.config;
    out.put_u32(config.partitions);
    out.put_optional_u64(match config.storage {
        Storage::Disk => None,
        Storage::Memory { max_bytes } => Some(max_bytes as u64),
    });
    out.put_u8(match config.level {
        AckLevel::Memory => 0,
        AckLevel::Written => 1,
        AckLevel::Synced => 2,
    });
    out.put_u8(match config.cleanup {
        Cleanup::Delete => 0,
        Cleanup::Compact => 1,
        Cleanup::CompactDelete => 2,
    });
    out.put_u8(match config.writers {
        Writers::Anyone => 0,
        Writers::OwnersOnly => 1,
    });
    out.put_optional_u64(config.retention.map(millis));
    out.put_optional_u64(config.retention_bytes);
    out.put_u64(config.segment_bytes);
    out.put_u64(millis(config.segment_age));
    out.put_u8(config.compression.number());
    out.put_u64(config.record_max_bytes as u64);
    out.put_u64(config.hold_max_bytes);
    out.put_u64(millis(config.delete_retention));
    out.put_u64(millis(config.compaction_lag_min));
    out.put_optional_u64(config.compaction_lag_max.map(millis));
    out.put_u8(u8::from(config.append_time));
    out.put_u8(config.compaction_live_percent.unwrap_or(0));
}

/// Decodes a topic; fields that an earlier version lacks get their defaults.
pub(crate) fn topic(from: &mut WireReader<'_>, version: u8) -> Option<Topic> {
    let id = TopicId(from.u128()?);
    let tenant = TenantId::new(from.text()?).ok()?;
    let name = TopicName::parse(from.text()?, &tenant).ok()?;
    let mut config = TopicConfig {
        partitions: from.u32()?,
        storage: match from.optional_u64()? {
            None => Storage::Disk,
            Some(max_bytes) => Storage::Memory { max_bytes: usize::try_from(max_bytes).ok()? },
        },
        level: [AckLevel::Memory, AckLevel::Written, AckLevel::Synced].get(usize::from(from.u8()?)).copied()?,
        cleanup: [Cleanup::Delete, Cleanup::Compact, Cleanup::CompactDelete].get(usize::from(from.u8()?)).copied()?,
        writers: [Writers::Anyone, Writers::OwnersOnly].get(usize::from(from.u8()?)).copied()?,
        retention: from.optional_u64()?.map(Duration::from_millis),
        retention_bytes: from.optional_u64()?,
        segment_bytes: from.u64()?,
        segment_age: Duration::from_millis(from.u64()?),
        compression: Compression::from_number(from.u8()?)?,
        record_max_bytes: usize::try_from(from.u64()?).ok()?,
        hold_max_bytes: from.u64()?,
        ..TopicConfig::default()
    };
    if version >= 2 {
        config.delete_retention = Duration::from_millis(from.u64()?);
    }
    if version >= 3 {
        config.compaction_lag_min = Duration::from_millis(from.u64()?);
        config.compaction_lag_max = from.optional_u64()?.map(Duration::from_millis);
        config.append_time = from.u8()? == 1;
    }
    if version >= 4 {
        config.compaction_live_percent = Some(from.u8()?).filter(|percent| *percent > 0);
    }
    Some(Topic { id, name, config })
}

impl Topic {
    /// The topic in the form in which a log keeps it: the version, then the fields.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![TOPIC_VERSION];
        put_topic(&mut bytes, self);
        bytes
    }

    /// Reads the form of [`Topic::encode`], of this version and all earlier ones; `None` if it is another one.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (version, fields) = bytes.split_first().filter(|(version, _)| (1..=TOPIC_VERSION).contains(*version))?;
        topic(&mut WireReader::new(fields), *version)
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use millstream_types::StateTopic;

    use super::*;

    #[test]
    fn a_topic_reads_back_as_it_was_and_a_cut_one_does_not() {
        let tenant = TenantId::new("acme").unwrap();
        let other = TopicConfig {
            partitions: 7,
            storage: Storage::Memory { max_bytes: 5 },
            level: AckLevel::Written,
            cleanup: Cleanup::Compact,
            writers: Writers::OwnersOnly,
            retention: None,
            retention_bytes: Some(9),
            delete_retention: Duration::from_secs(3),
            compaction_lag_min: Duration::from_secs(4),
            compaction_lag_max: Some(Duration::from_secs(5)),
            append_time: true,
            compaction_live_percent: Some(50),
            compression: Compression::Zstd,
            ..TopicConfig::default()
        };
        for (name, config) in [
            (TopicName::user("orders", &tenant).unwrap(), TopicConfig::default()),
            (TopicName::bucket("photos", &tenant).unwrap(), other.clone()),
            (
                TopicName::user("windows", &tenant).unwrap(),
                TopicConfig { cleanup: Cleanup::CompactDelete, ..TopicConfig::default() },
            ),
            (TopicName::internal(StateTopic::Registry), other),
        ] {
            let expected = Topic { id: TopicId(77), name, config };
            let mut bytes = Vec::new();
            put_topic(&mut bytes, &expected);
            let expected_bytes = expected.encode();
            let mut reader = WireReader::new(&bytes);
            assert_eq!(topic(&mut reader, TOPIC_VERSION).as_ref(), Some(&expected));
            assert!(reader.is_empty());
            assert_eq!(Topic::decode(&expected_bytes), Some(expected));
            for cut in 0..bytes.len() {
                assert_eq!(topic(&mut WireReader::new(&bytes[..cut]), TOPIC_VERSION), None);
            }
        }
    }
}
