//! The records of a state topic: how changes and source positions are written and read back.
//!
//! | key | value |
//! | --- | --- |
//! | 0, topic id (16 bytes), partition (4 bytes, big endian) | version, next offset of that source |
//! | 1, key of the view's own | value of the view's own, beginning with its version |
//!
//! Kept for ever: fixtures of each are in the tests below.

use std::ops::Range;

use bytes::Bytes;
use millstream_types::Offset;

use crate::source::{decode_offset, encode_offset};
use crate::view::{Encoded, Snapshot, View};
use crate::{DecodeError, Source};

/// First byte of a state record's key: what the record is about.
const KIND_SOURCE: u8 = 0;
const KIND_VIEW: u8 = 1;

/// What a record takes in an append beside its key and value, at most.
const RECORD_OVERHEAD_BYTES: usize = 64;

/// A key, and its value or tombstone.
pub(crate) type StateRecord = (Bytes, Option<Bytes>);

/// State records being written, all slices of one buffer.
#[derive(Default)]
pub(crate) struct StateRecords {
    buffer: Vec<u8>,
    spans: Vec<(Range<usize>, Option<Range<usize>>)>,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl StateRecords {
    /// Writes `change`. The bytes of its key and value.
    pub(crate) fn change<V: View>(&mut self, change: &V::Change) -> usize {
        self.key.clear();
        self.value.clear();
        self.key.push(KIND_VIEW);
        let is_value = V::encode(change, &mut self.key, &mut self.value) == Encoded::Value;
        self.store(is_value)
    }

    /// Writes how far the state reflects `source`.
    pub(crate) fn source(&mut self, source: Source, next: Offset) {
        self.key.clear();
        self.value.clear();
        self.key.push(KIND_SOURCE);
        source.encode_key(&mut self.key);
        encode_offset(next, &mut self.value);
        self.store(true);
    }

    fn store(&mut self, is_value: bool) -> usize {
        let start = self.buffer.len();
        self.buffer.extend_from_slice(&self.key);
        let middle = self.buffer.len();
        if is_value {
            self.buffer.extend_from_slice(&self.value);
        }
        let end = self.buffer.len();
        self.spans.push((start..middle, is_value.then_some(middle..end)));
        end - start
    }

    /// What they take in an append, at most.
    pub(crate) fn size_bytes(&self) -> usize {
        self.buffer.len() + self.spans.len() * RECORD_OVERHEAD_BYTES
    }

    /// Forgets all but the first `records`.
    pub(crate) fn truncate(&mut self, records: usize) {
        if let Some((key, _)) = self.spans.get(records) {
            self.buffer.truncate(key.start);
            self.spans.truncate(records);
        }
    }

    pub(crate) fn finish(self) -> Vec<StateRecord> {
        let buffer = Bytes::from(self.buffer);
        self.spans.into_iter().map(|(key, value)| (buffer.slice(key), value.map(|span| buffer.slice(span)))).collect()
    }
}

/// Changes the state as a record says.
pub(crate) fn apply<V: View>(snapshot: &mut Snapshot<V>, key: &[u8], value: Option<&[u8]>) -> Result<(), DecodeError> {
    match key.split_first() {
        Some((&KIND_VIEW, key)) => {
            V::apply(&mut snapshot.state, &V::decode(key, value)?);
            Ok(())
        }
        Some((&KIND_SOURCE, key)) => {
            let source = Source::decode_key(key)?;
            match value {
                Some(value) => drop(snapshot.sources.insert(source, decode_offset(value)?)),
                None => drop(snapshot.sources.remove(&source)),
            }
            Ok(())
        }
        Some((kind, _)) => Err(DecodeError::new(format!("state record of kind {kind}"))),
        None => Err(DecodeError::new("a state record without a key")),
    }
}

#[cfg(test)]
mod tests {
    use millstream_types::{PartitionId, TopicId};

    use super::*;
    use crate::Sources;
    use crate::tally::{Change, Tally};

    const SOURCE: Source = Source { topic: TopicId(0x0a), partition: PartitionId(2) };

    fn empty() -> Snapshot<Tally> {
        Snapshot { state: imbl::OrdMap::new(), sources: Sources::new(), next: Offset::ZERO }
    }

    fn change(name: &str, number: Option<u8>) -> Change {
        (name.to_owned(), number)
    }

    #[test]
    fn records_of_version_1_are_read_and_written_byte_for_byte() {
        let mut records = StateRecords::default();
        assert_eq!(records.change::<Tally>(&change("bolt", Some(9))), 7);
        assert_eq!(records.change::<Tally>(&change("nut", None)), 4);
        records.source(SOURCE, Offset(5));
        let written = records.finish();
        let expected: [(&[u8], Option<&[u8]>); 3] = [
            (b"\x01bolt", Some(&[1, 9])),
            (b"\x01nut", None),
            (b"\x00\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x0a\0\0\0\x02", Some(b"\x01\0\0\0\0\0\0\0\x05")),
        ];
        let written: Vec<_> = written.iter().map(|(key, value)| (&key[..], value.as_deref())).collect();
        assert_eq!(written, expected);

        let mut snapshot = empty();
        snapshot.state.insert("nut".to_owned(), 4);
        for (key, value) in expected {
            apply(&mut snapshot, key, value).unwrap();
        }
        assert_eq!(snapshot.state, [("bolt".to_owned(), 9)].into_iter().collect());
        assert_eq!(snapshot.sources, [(SOURCE, Offset(5))].into_iter().collect());
        apply(&mut snapshot, expected[2].0, None).unwrap();
        assert_eq!(snapshot.sources, Sources::new());
    }

    #[test]
    fn records_of_no_kind_are_refused() {
        for (key, value, expected) in [
            (&b""[..], &b""[..], "a state record without a key"),
            (b"\x02bolt", b"", "state record of kind 2"),
            (b"\x01bolt", b"\x02\x09", "no number: [2, 9]"),
        ] {
            assert_eq!(apply(&mut empty(), key, Some(value)).unwrap_err().what, expected);
        }
    }

    #[test]
    fn what_is_cut_off_leaves_what_was_before() {
        let mut records = StateRecords::default();
        records.change::<Tally>(&change("bolt", Some(1)));
        let before = records.size_bytes();
        records.change::<Tally>(&change("nut", Some(2)));
        records.change::<Tally>(&change("screw", None));
        records.truncate(1);
        assert_eq!(records.size_bytes(), before);
        records.truncate(1);
        records.change::<Tally>(&change("rivet", None));
        let keys: Vec<_> = records.finish().into_iter().map(|(key, _)| key).collect();
        assert_eq!(keys, [&b"\x01bolt"[..], b"\x01rivet"]);
    }
}
