//! A topic as it lies in the journal and in `meta`.
//!
//! id (u128), tenant (text), rendered name (text), then the configuration in the order of [`TopicConfig`]'s fields.
//! A text is its length (u16) and its UTF-8; an optional integer is a flag (u8) and a u64; durations are milliseconds.

use std::time::Duration;

use millstream_types::{Compression, TenantId, TopicId, TopicName};

use crate::wire::{Reader, Writer};
use crate::{AckLevel, Cleanup, Storage, Topic, TopicConfig, Writers};

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
}

/// `has_delete_retention` is false for what earlier versions have written.
pub(crate) fn topic(from: &mut Reader<'_>, has_delete_retention: bool) -> Option<Topic> {
    let id = TopicId(from.u128()?);
    let tenant = TenantId::new(from.text()?).ok()?;
    let name = TopicName::parse(from.text()?, &tenant).ok()?;
    let config = TopicConfig {
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
        delete_retention: match has_delete_retention {
            true => Duration::from_millis(from.u64()?),
            false => TopicConfig::default().delete_retention,
        },
    };
    Some(Topic { id, name, config })
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
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
            (TopicName::internal("_registry"), other),
        ] {
            let expected = Topic { id: TopicId(77), name, config };
            let mut bytes = Vec::new();
            put_topic(&mut bytes, &expected);
            let mut reader = Reader::new(&bytes);
            assert_eq!(topic(&mut reader, true), Some(expected));
            assert!(reader.is_empty());
            for cut in 0..bytes.len() {
                assert_eq!(topic(&mut Reader::new(&bytes[..cut]), true), None);
            }
        }
    }
}
