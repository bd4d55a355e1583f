//! The records of a job's state topic.
//!
//! | key | value |
//! | --- | --- |
//! | 0 | version, JSON of the epoch: the last record of each commit |
//! | 1, node, 0, key group (2), key | version, value of the operator; none if the key has no state |
//!
//! The key group is that of the records' key, which what an operator puts behind it does not change. Integers are big endian. A commit appends what has changed and the epoch, all or nothing.

use std::collections::BTreeMap;
use std::ops::Range;

use millstream_types::{JOB_STATE, KeyGroup, TopicId};
use serde::{Deserialize, Serialize};

use crate::delivery::SourcePosition;

/// First byte of a value.
const VERSION: u8 = JOB_STATE.version.expect("its values have a version");
const EPOCH: u8 = 0;
const ENTRY: u8 = 1;

/// An epoch that is committed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct EpochRecord {
    /// The number; the first of a job is 1.
    pub(crate) epoch: u64,
    /// The time of the commit, milliseconds since 1970-01-01T00:00:00Z.
    pub(crate) at_ms: i64,
    /// The records that each instance of a source without a log has read, by node.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) places: BTreeMap<String, Vec<u64>>,
    /// The positions up to which `stream` sources have read, by node.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) positions: BTreeMap<String, TopicPositions>,
    /// The latest event time that each partition of a source had, milliseconds since 1970-01-01T00:00:00Z, by node.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) times: BTreeMap<String, BTreeMap<u32, i64>>,
    /// The watermark to which the nodes with state had come, by node.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) watermarks: BTreeMap<String, i64>,
    /// The sum of [`digest_of`](super::digest_of) over all that is stored, by node.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) digests: BTreeMap<String, u64>,
}

/// The positions of a source in its topic.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TopicPositions {
    /// The id of the topic.
    topic: String,
    /// Offset and epoch of the log, by partition.
    at: BTreeMap<u32, (u64, u32)>,
}

impl TopicPositions {
    /// Moves the position of a partition. Those in another topic, which was there before, are forgotten.
    pub(crate) fn set(&mut self, at: &SourcePosition) {
        let topic = at.topic.to_string();
        if self.topic != topic {
            (self.topic, self.at) = (topic, BTreeMap::new());
        }
        self.at.insert(at.partition, (at.offset, at.epoch));
    }

    /// The position in a partition of this topic.
    pub(crate) fn get(&self, topic: TopicId, partition: u32) -> Option<SourcePosition> {
        let (offset, epoch) = *self.at.get(&partition).filter(|_| self.topic == topic.to_string())?;
        Some(SourcePosition { topic, partition, offset, epoch })
    }
}

/// The key of an entry.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct StateKey<'a> {
    pub(crate) node: &'a str,
    pub(crate) group: KeyGroup,
    pub(crate) key: &'a [u8],
}

/// A record of the topic.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum StateEntry<'a> {
    Epoch(EpochRecord),
    /// The value of a key, or its end.
    Value(StateKey<'a>, Option<&'a [u8]>),
}

impl EpochRecord {
    /// The key of every epoch's record.
    pub(crate) const KEY: &'static [u8] = &[EPOCH];

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        serde_json::to_writer(&mut out, self).expect("writing to memory cannot fail");
        out
    }
}

impl<'a> StateEntry<'a> {
    /// Reads a record of the topic.
    ///
    /// # Errors
    /// It is none of this version; the fault in words.
    pub(crate) fn decode(key: &'a [u8], value: Option<&'a [u8]>) -> Result<Self, String> {
        let value = value
            .map(|value| match value.split_first() {
                Some((&VERSION, value)) => Ok(value),
                Some((version, _)) => Err(format!("a value of version {version}, not {VERSION}")),
                None => Err("a value without a version".to_owned()),
            })
            .transpose()?;
        match (key.split_first(), value) {
            (Some((&EPOCH, [])), Some(json)) => {
                serde_json::from_slice(json).map(Self::Epoch).map_err(|error| format!("no epoch: {error}"))
            }
            (Some((&ENTRY, rest)), value) => {
                let key = || {
                    let (node, rest) = rest.split_at(rest.iter().position(|byte| *byte == 0)?);
                    let (group, key) = rest[1..].split_first_chunk()?;
                    let group = KeyGroup(u32::from(u16::from_be_bytes(*group)));
                    Some(StateKey { node: std::str::from_utf8(node).ok()?, group, key })
                };
                let key = key().ok_or_else(|| format!("no key of state: {rest:?}"))?;
                Ok(Self::Value(key, value))
            }
            _ => Err(format!("no record of state: {key:?}")),
        }
    }
}

/// The changes of an instance's state in one epoch, as records.
#[derive(Debug, Default)]
pub(crate) struct StateChanges {
    bytes: Vec<u8>,
    entries: Vec<(Range<usize>, Option<Range<usize>>)>,
}

impl StateChanges {
    /// Adds the value of a key of `node`, or its end.
    pub(crate) fn add(&mut self, node: &str, key: &[u8], value: Option<&[u8]>) {
        let start = self.bytes.len();
        self.bytes.push(ENTRY);
        self.bytes.extend_from_slice(node.as_bytes());
        self.bytes.push(0);
        self.bytes.extend_from_slice(&(KeyGroup::of(key_of_records(key)).0 as u16).to_be_bytes());
        self.bytes.extend_from_slice(key);
        let end = self.bytes.len();
        let value = value.map(|value| {
            self.bytes.push(VERSION);
            self.bytes.extend_from_slice(value);
            end..self.bytes.len()
        });
        self.entries.push((start..end, value));
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn size_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The key and value of a record.
    pub(crate) fn record(&self, index: usize) -> (&[u8], Option<&[u8]>) {
        let (key, value) = &self.entries[index];
        (&self.bytes[key.clone()], value.clone().map(|value| &self.bytes[value]))
    }
}

/// The part of a key that records have, each value with a line feed behind it. An operator may tell several values of such a key
/// apart by what follows, without a line feed.
fn key_of_records(key: &[u8]) -> &[u8] {
    key.iter().rposition(|byte| *byte == b'\n').map_or(key, |end| &key[..=end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_of_version_1_are_read_and_written_byte_for_byte() {
        let mut changes = StateChanges::default();
        changes.add("once", b"abc", Some(b"value"));
        changes.add("once", b"", None);
        // The key groups of these keys are 539 and 217.
        let stored: [(&[u8], Option<&[u8]>); 2] =
            [(b"\x01once\0\x02\x1babc", Some(b"\x01value")), (b"\x01once\0\x00\xd9", None)];
        assert_eq!((changes.record(0), changes.record(1), changes.len()), (stored[0], stored[1], 2));
        let key = |group, key| StateKey { node: "once", group: KeyGroup(group), key };
        let read = |(key, value)| StateEntry::decode(key, value).unwrap();
        assert_eq!(read(stored[0]), StateEntry::Value(key(539, b"abc"), Some(b"value")));
        assert_eq!(read(stored[1]), StateEntry::Value(key(217, b""), None));

        let group_of = |key: &[u8]| {
            let mut changes = StateChanges::default();
            changes.add("join", key, None);
            let StateEntry::Value(key, _) = StateEntry::decode(changes.record(0).0, None).unwrap() else { panic!() };
            key.group
        };
        assert_eq!(group_of(b"\"a\"\n7\nr12"), KeyGroup::of(b"\"a\"\n7\n"));

        let epoch = EpochRecord {
            epoch: 7,
            at_ms: 5,
            places: BTreeMap::from([("in".to_owned(), vec![3, 4])]),
            positions: BTreeMap::new(),
            times: BTreeMap::new(),
            watermarks: BTreeMap::new(),
            digests: BTreeMap::new(),
        };
        let stored = b"\x01{\"epoch\":7,\"at_ms\":5,\"places\":{\"in\":[3,4]}}";
        assert_eq!(epoch.encode(), stored);
        assert_eq!(StateEntry::decode(EpochRecord::KEY, Some(stored)).unwrap(), StateEntry::Epoch(epoch.clone()));

        let times = BTreeMap::from([("in".to_owned(), BTreeMap::from([(2, -7)]))]);
        let watermarks = BTreeMap::from([("sums".to_owned(), -9)]);
        let timed = EpochRecord { times, watermarks, places: BTreeMap::new(), ..epoch };
        let stored = b"\x01{\"epoch\":7,\"at_ms\":5,\"times\":{\"in\":{\"2\":-7}},\"watermarks\":{\"sums\":-9}}";
        assert_eq!(timed.encode(), stored);
        assert_eq!(StateEntry::decode(EpochRecord::KEY, Some(stored)).unwrap(), StateEntry::Epoch(timed.clone()));

        let (mut read, topic) = (TopicPositions::default(), TopicId(0xab));
        read.set(&SourcePosition { topic: TopicId(1), partition: 0, offset: 1, epoch: 1 });
        read.set(&SourcePosition { topic, partition: 2, offset: 17, epoch: 3 });
        let (positions, none) = (BTreeMap::from([("in".to_owned(), read.clone())]), BTreeMap::new());
        let summed = EpochRecord { digests: BTreeMap::from([("sums".to_owned(), 1 << 40 | 9)]), ..timed.clone() };
        let stored = b"\x01{\"epoch\":7,\"at_ms\":5,\"times\":{\"in\":{\"2\":-7}},\"watermarks\":{\"sums\":-9},\"digests\":{\"sums\":1099511627785}}";
        assert_eq!(summed.encode(), stored);
        assert_eq!(StateEntry::decode(EpochRecord::KEY, Some(stored)).unwrap(), StateEntry::Epoch(summed));
        let placed = EpochRecord { positions, times: none, watermarks: BTreeMap::new(), ..timed };
        let stored = b"\x01{\"epoch\":7,\"at_ms\":5,\"positions\":{\"in\":{\"topic\":\
            \"000000000000000000000000000000ab\",\"at\":{\"2\":[17,3]}}}}";
        assert_eq!(placed.encode(), stored);
        assert_eq!(StateEntry::decode(EpochRecord::KEY, Some(stored)).unwrap(), StateEntry::Epoch(placed));
        assert_eq!(read.get(topic, 2), Some(SourcePosition { topic, partition: 2, offset: 17, epoch: 3 }));
        assert_eq!((read.get(topic, 0), read.get(TopicId(1), 2)), (None, None));
    }

    #[test]
    fn anything_else_is_refused() {
        let none: [(&[u8], Option<&[u8]>); 8] = [
            (b"", None),
            (b"\x02", None),
            (b"\x00", None),
            (b"\x00", Some(b"")),
            (b"\x00", Some(b"\x02{}")),
            (b"\x00", Some(b"\x01[]")),
            (b"\x01node", None),
            (b"\x01node\0\x01", None),
        ];
        for (key, value) in none {
            assert!(StateEntry::decode(key, value).is_err(), "{key:?} {value:?}");
        }
    }
}
