//! Sources: the records of other topics that a partition's state reflects.
//!
//! Positions are records of the state topic, appended together with the changes that follow from the source. As headers of
//! the state records they would vanish when compaction drops the record that carries them.

use millstream_types::{Epoch, Offset, PartitionId, TopicId};

use crate::DecodeError;

/// A partition whose records change the state of a view.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SourcePartition {
    /// Unique id of the topic. A topic that is recreated under an old name is another source.
    pub topic: TopicId,
    /// Number of the partition in the topic.
    pub partition: PartitionId,
}

/// For each source the first offset that the state does *not* reflect yet. The state topic keeps one record per
/// source, written in the same atomic append as the changes, so compaction keeps it.
pub type Sources = imbl::OrdMap<SourcePartition, Offset>;

const VERSION: u8 = 1;
pub(crate) const KEY_BYTES: usize = 20;

impl SourcePartition {
    pub(crate) fn encode_key(self, into: &mut Vec<u8>) {
        into.extend_from_slice(&self.topic.0.to_be_bytes());
        into.extend_from_slice(&self.partition.0.to_be_bytes());
    }

    pub(crate) fn decode_key(key: &[u8]) -> Result<Self, DecodeError> {
        let wrong = || DecodeError::new(format!("a source's key has {KEY_BYTES} bytes and not {}", key.len()));
        let (topic, partition) = key.split_first_chunk::<16>().ok_or_else(wrong)?;
        let partition: [u8; 4] = partition.try_into().map_err(|_| wrong())?;
        Ok(Self { topic: TopicId(u128::from_be_bytes(*topic)), partition: PartitionId(u32::from_be_bytes(partition)) })
    }
}

pub(crate) fn encode_offset(next: Offset, into: &mut Vec<u8>) {
    into.push(VERSION);
    into.extend_from_slice(&next.0.to_be_bytes());
}

pub(crate) fn decode_offset(value: &[u8]) -> Result<Offset, DecodeError> {
    match value.split_first() {
        Some((&VERSION, rest)) => rest
            .try_into()
            .map(|bytes| Offset(u64::from_be_bytes(bytes)))
            .map_err(|_| DecodeError::new(format!("a source's offset has 8 bytes and not {}", rest.len()))),
        Some((version, _)) => Err(DecodeError::new(format!("source record of version {version}"))),
        None => Err(DecodeError::new("an empty source record")),
    }
}

/// Encodes a checkpoint's position in its own state topic.
pub(crate) fn encode_position(epoch: Epoch, next: Offset, topic: TopicId) -> Vec<u8> {
    let mut bytes = vec![VERSION];
    bytes.extend_from_slice(&topic.0.to_be_bytes());
    bytes.extend_from_slice(&epoch.0.to_be_bytes());
    bytes.extend_from_slice(&next.0.to_be_bytes());
    bytes
}

pub(crate) fn decode_position(bytes: &[u8]) -> Option<(TopicId, Epoch, Offset)> {
    let rest = bytes.strip_prefix(&[VERSION])?;
    let (topic, rest) = rest.split_first_chunk::<16>()?;
    let (epoch, rest) = rest.split_first_chunk::<4>()?;
    let offset: [u8; 8] = rest.try_into().ok()?;
    Some((TopicId(u128::from_be_bytes(*topic)), Epoch(u32::from_be_bytes(*epoch)), Offset(u64::from_be_bytes(offset))))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: SourcePartition =
        SourcePartition { topic: TopicId(0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10), partition: PartitionId(7) };

    #[test]
    fn version_1_is_read_and_written_byte_for_byte() {
        let mut key = Vec::new();
        SOURCE.encode_key(&mut key);
        assert_eq!(key, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 0, 0, 0, 7]);
        assert_eq!(SourcePartition::decode_key(&key).unwrap(), SOURCE);

        let mut value = Vec::new();
        encode_offset(Offset(0x1122), &mut value);
        assert_eq!(value, [1, 0, 0, 0, 0, 0, 0, 0x11, 0x22]);
        assert_eq!(decode_offset(&value).unwrap(), Offset(0x1122));

        let position = encode_position(Epoch(3), Offset(0x1122), SOURCE.topic);
        let expected =
            [1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0x11, 0x22];
        assert_eq!(position, expected);
        assert_eq!(decode_position(&position), Some((SOURCE.topic, Epoch(3), Offset(0x1122))));
    }

    #[test]
    fn a_malformed_source_record_is_refused_with_its_fault() {
        for (key, expected) in [
            (&[0; 19][..], "a source's key has 20 bytes and not 19"),
            (&[0; 21], "a source's key has 20 bytes and not 21"),
            (&[], "a source's key has 20 bytes and not 0"),
        ] {
            assert_eq!(SourcePartition::decode_key(key).unwrap_err().what, expected);
        }
        for (value, expected) in [
            (&[][..], "an empty source record"),
            (&[2, 0, 0, 0, 0, 0, 0, 0, 0], "source record of version 2"),
            (&[1, 0, 0], "a source's offset has 8 bytes and not 2"),
        ] {
            assert_eq!(decode_offset(value).unwrap_err().what, expected);
        }
        let position = encode_position(Epoch(3), Offset(5), SOURCE.topic);
        for cut in 0..position.len() {
            assert_eq!(decode_position(&position[..cut]), None, "{cut} bytes");
        }
        assert_eq!(decode_position(&[&position[..], &[0]].concat()), None);
        assert_eq!(decode_position(&[&[2], &position[1..]].concat()), None, "a later version");
    }
}
