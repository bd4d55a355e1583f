//! The records of a state topic: encoding of changes and source positions.
//!
//! | key | value |
//! | --- | --- |
//! | 0, topic id (16 bytes), partition (4 bytes, big endian) | version, next offset of that source |
//! | 1, key of the view | value of the view, which begins with its version |
//!
//! The prefixes 0 and 1 are those of [`InState`](crate::InState); a view [by reference](crate::ByReference) has others.
//! This format is fixed: the tests below have fixtures of each record.

use std::ops::Range;

use bytes::Bytes;
use millstream_types::{Offset, RecordView};

use crate::source::encode_offset;
use crate::view::{Encoded, Headers, Snapshot, StateRecord, Storage, View};
use crate::{DecodeError, SourcePartition};

/// Largest overhead of a record in an append.
const RECORD_OVERHEAD_BYTES: usize = 64;
/// Largest overhead of a header.
const HEADER_OVERHEAD_BYTES: usize = 10;

/// Encoded state records, all slices of one buffer.
#[derive(Default)]
pub(crate) struct StateRecords {
    buffer: Vec<u8>,
    spans: Vec<(Range<usize>, Option<Range<usize>>)>,
    key: Vec<u8>,
    value: Vec<u8>,
    headers: Vec<RecordHeaders>,
    headers_bytes: usize,
}

/// The headers of one record of several.
pub(crate) struct RecordHeaders {
    /// The index of the record.
    pub(crate) record: usize,
    pub(crate) headers: Headers,
    size_bytes: usize,
}

impl RecordHeaders {
    /// The headers of the record with that index.
    pub(crate) fn new(record: usize, headers: Headers) -> Self {
        let size_bytes = headers.iter().map(|(name, value)| name.len() + value.len() + HEADER_OVERHEAD_BYTES).sum();
        Self { record, headers, size_bytes }
    }
}

impl StateRecords {
    /// Encodes `change`; returns the size of its key, value and headers.
    pub(crate) fn change<V: View>(&mut self, change: &V::Change) -> usize {
        self.key.clear();
        self.value.clear();
        self.key.extend_from_slice(V::Storage::KEY_PREFIX);
        let is_value = V::encode(change, &mut self.key, &mut self.value) == Encoded::Value;
        let headers = RecordHeaders::new(self.spans.len(), V::Storage::headers(change));
        let size_bytes = headers.size_bytes;
        if !headers.headers.is_empty() {
            self.headers.push(headers);
            self.headers_bytes += size_bytes;
        }
        self.store(is_value) + size_bytes
    }

    /// Encodes the position of `source`.
    pub(crate) fn source<V: View>(&mut self, source: SourcePartition, next: Offset) {
        self.key.clear();
        self.value.clear();
        self.key.extend_from_slice(V::Storage::SOURCE_PREFIX);
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

    /// Largest size of the records in an append.
    pub(crate) fn size_bytes(&self) -> usize {
        self.buffer.len() + self.spans.len() * RECORD_OVERHEAD_BYTES + self.headers_bytes
    }

    /// Discards all but the first `records`.
    pub(crate) fn truncate(&mut self, records: usize) {
        if let Some((key, _)) = self.spans.get(records) {
            self.buffer.truncate(key.start);
            self.spans.truncate(records);
        }
        while self.headers.last().is_some_and(|last| last.record >= records) {
            self.headers_bytes -= self.headers.pop().map_or(0, |last| last.size_bytes);
        }
    }

    /// The records, and the headers of those that have some, in order.
    pub(crate) fn finish(self) -> (Vec<StateRecord>, Vec<RecordHeaders>) {
        let buffer = Bytes::from(self.buffer);
        let slices = |(key, value): (Range<usize>, Option<Range<usize>>)| {
            (buffer.slice(key), value.map(|span| buffer.slice(span)))
        };
        (self.spans.into_iter().map(slices).collect(), self.headers)
    }
}

/// The key of a state record, without the bytes that tell its kind.
pub(crate) enum RecordKey<'a> {
    /// A position in a source.
    Source(SourcePartition),
    /// A key of the view.
    View(&'a [u8]),
}

impl<'a> RecordKey<'a> {
    /// # Errors
    /// [`DecodeError`] for a key of no kind that `V` writes.
    pub(crate) fn of<V: View>(key: &'a [u8]) -> Result<Self, DecodeError> {
        if let Some(source) = key.strip_prefix(V::Storage::SOURCE_PREFIX) {
            return SourcePartition::decode_key(source).map(Self::Source);
        }
        match key.strip_prefix(V::Storage::KEY_PREFIX) {
            Some(own) if !key.is_empty() => Ok(Self::View(own)),
            _ if key.is_empty() => Err(DecodeError::new("a state record without a key")),
            _ => Err(DecodeError::new(format!("state record of kind {}", key[0]))),
        }
    }
}

/// Applies a record of the state topic to `snapshot`; returns it as the checkpoint keeps it.
pub(crate) fn replay<V: View>(snapshot: &mut Snapshot<V>, record: &RecordView<'_>) -> Result<StateRecord, DecodeError> {
    let key = record.key.unwrap_or_default();
    let kept = match RecordKey::of::<V>(key)? {
        RecordKey::Source(source) => {
            snapshot.source(source, record.value)?;
            record.value.map(Bytes::copy_from_slice)
        }
        RecordKey::View(own) => V::Storage::replay(&mut snapshot.state, own, record)?,
    };
    Ok((Bytes::copy_from_slice(key), kept))
}

/// Applies an entry of the checkpoint to `snapshot`.
pub(crate) fn restore<V: View>(snapshot: &mut Snapshot<V>, key: &[u8], entry: &[u8]) -> Result<(), DecodeError> {
    match RecordKey::of::<V>(key)? {
        RecordKey::Source(source) => snapshot.source(source, Some(entry)),
        RecordKey::View(own) => V::Storage::restore(&mut snapshot.state, own, entry),
    }
}

#[cfg(test)]
mod tests {
    use millstream_types::{BatchBuilder, Compression, Epoch, PartitionId, Record, TopicId};

    use super::*;
    use crate::tally::{Change, TallyView};
    use crate::{Snapshot, Sources};

    const SOURCE: SourcePartition = SourcePartition { topic: TopicId(0x0a), partition: PartitionId(2) };

    fn empty() -> Snapshot<TallyView> {
        Snapshot { state: imbl::OrdMap::new(), sources: Sources::new(), next: Offset::ZERO }
    }

    /// Replays a record of a batch of its own.
    fn replayed(snapshot: &mut Snapshot<TallyView>, key: &[u8], value: Option<&[u8]>) -> Result<(), DecodeError> {
        let mut builder = BatchBuilder::default();
        builder.push(&Record { timestamp_ms: 0, key: Some(key), value, headers: &[] });
        let batch = builder.seal(Offset(0), Epoch(0), Compression::None);
        let record = batch.records().next().unwrap().unwrap();
        replay(snapshot, &record).map(|kept| assert_eq!((&kept.0[..], kept.1.as_deref()), (key, value)))
    }

    fn change(name: &str, number: Option<u8>) -> Change {
        Change { name: name.to_owned(), number }
    }

    #[test]
    fn records_of_version_1_are_read_and_written_byte_for_byte() {
        let mut records = StateRecords::default();
        assert_eq!(records.change::<TallyView>(&change("bolt", Some(9))), 7);
        assert_eq!(records.change::<TallyView>(&change("nut", None)), 4);
        records.source::<TallyView>(SOURCE, Offset(5));
        let (written, headers) = records.finish();
        assert!(headers.is_empty());
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
            replayed(&mut snapshot, key, value).unwrap();
        }
        assert_eq!(snapshot.state, [("bolt".to_owned(), 9)].into_iter().collect());
        assert_eq!(snapshot.sources, [(SOURCE, Offset(5))].into_iter().collect());
        replayed(&mut snapshot, expected[2].0, None).unwrap();
        assert_eq!(snapshot.sources, Sources::new());
    }

    #[test]
    fn records_of_no_kind_are_refused() {
        for (key, value, expected) in [
            (&b""[..], &b""[..], "a state record without a key"),
            (b"\x02bolt", b"", "state record of kind 2"),
            (b"\x01bolt", b"\x02\x09", "no number: [2, 9]"),
        ] {
            assert_eq!(replayed(&mut empty(), key, Some(value)).unwrap_err().what, expected);
            assert_eq!(restore(&mut empty(), key, value).unwrap_err().what, expected);
        }
    }

    #[test]
    fn truncating_state_records_keeps_the_earlier_ones() {
        let mut records = StateRecords::default();
        records.change::<TallyView>(&change("bolt", Some(1)));
        let before = records.size_bytes();
        records.change::<TallyView>(&change("nut", Some(2)));
        records.change::<TallyView>(&change("screw", None));
        records.truncate(1);
        assert_eq!(records.size_bytes(), before);
        records.truncate(1);
        records.change::<TallyView>(&change("rivet", None));
        let keys: Vec<_> = records.finish().0.into_iter().map(|(key, _)| key).collect();
        assert_eq!(keys, [&b"\x01bolt"[..], b"\x01rivet"]);
    }
}
