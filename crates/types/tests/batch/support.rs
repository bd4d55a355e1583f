//! Records that own their parts, made by `proptest`, and how they compare with what a batch holds.

use millstream_types::{
    BatchBuilder, BatchLimits, Compression, Epoch, Header, Offset, Record, RecordBatch, RecordView,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

pub(crate) const CODECS: [Compression; 5] = Compression::ALL;

/// A record that owns its parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Owned {
    pub(crate) offset_delta: u32,
    pub(crate) timestamp_ms: i64,
    pub(crate) key: Option<Vec<u8>>,
    pub(crate) value: Option<Vec<u8>>,
    pub(crate) headers: Vec<(String, Option<Vec<u8>>)>,
}

impl Owned {
    pub(crate) fn read(base: Offset, view: &RecordView<'_>) -> Self {
        Self {
            offset_delta: u32::try_from(view.offset.0 - base.0).unwrap(),
            timestamp_ms: view.timestamp_ms,
            key: view.key.map(<[u8]>::to_vec),
            value: view.value.map(<[u8]>::to_vec),
            headers: view.headers().map(|header| (header.key.to_owned(), header.value.map(<[u8]>::to_vec))).collect(),
        }
    }

    pub(crate) fn push_to(&self, builder: &mut BatchBuilder) {
        let headers: Vec<_> = self.headers.iter().map(|(key, value)| Header { key, value: value.as_deref() }).collect();
        let record = Record {
            timestamp_ms: self.timestamp_ms,
            key: self.key.as_deref(),
            value: self.value.as_deref(),
            headers: &headers,
        };
        let (before, most) = (builder.size_bytes(), record.batch_max_bytes());
        builder.push_at(self.offset_delta, &record);
        assert!(builder.size_bytes() - before <= most - millstream_types::BATCH_HEADER_BYTES);
    }
}

pub(crate) fn built(records: &[Owned], base: Offset, codec: Compression) -> RecordBatch {
    let mut builder = BatchBuilder::default();
    for record in records {
        record.push_to(&mut builder);
    }
    builder.seal(base, Epoch(7), codec)
}

pub(crate) fn read(batch: &RecordBatch) -> Vec<Owned> {
    let inflated = batch.inflated(&BatchLimits::default()).unwrap();
    inflated.records().map(|record| Owned::read(batch.base_offset(), &record.unwrap())).collect()
}

fn bytes() -> impl Strategy<Value = Option<Vec<u8>>> {
    // Runs of one byte let the codecs bite; lengths pass the border of one-byte varints.
    option::of(prop_oneof![vec(any::<u8>(), 0..200), (any::<u8>(), 0..400_usize).prop_map(|(byte, n)| vec![byte; n])])
}

/// One to `most` records with ascending offsets; with gaps if `gap_max` is above one.
pub(crate) fn records(
    most: usize,
    gap_max: u32,
    timestamps: impl Strategy<Value = i64>,
) -> impl Strategy<Value = Vec<Owned>> {
    let record = (1..=gap_max, timestamps, bytes(), bytes(), vec((".{0,20}", bytes()), 0..4));
    vec(record, 1..=most).prop_map(|rows| {
        let mut next = 0;
        rows.into_iter()
            .map(|(step, timestamp_ms, key, value, headers)| {
                let offset_delta = next + step - 1;
                next = offset_delta + 1;
                Owned { offset_delta, timestamp_ms, key, value, headers }
            })
            .collect()
    })
}

/// Fits length and CRC to bytes that a test has changed.
pub(crate) fn reseal(batch: &mut [u8]) {
    let length = u32::try_from(batch.len() - 12).unwrap();
    batch[8..12].copy_from_slice(&length.to_be_bytes());
    let crc = crc32c::crc32c(&batch[21..]);
    batch[17..21].copy_from_slice(&crc.to_be_bytes());
}
