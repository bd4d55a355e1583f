//! The same records mean the same to the `kafka-protocol` crate, whichever side builds the batch.

use bytes::{Bytes, BytesMut};
use kafka_protocol::records::{
    Compression as Theirs, Record, RecordBatchDecoder, RecordBatchEncoder, RecordEncodeOptions, TimestampType,
};
use millstream_types::{BatchBuilder, BatchLimits, Compression, Epoch, Offset, Producer, RecordBatch};
use proptest::prelude::*;

use crate::support::{CODECS, Owned, built, read, records};

const BASE: Offset = Offset(1_000_000_000_000);

fn theirs(codec: Compression) -> Theirs {
    match codec {
        Compression::None => Theirs::None,
        Compression::Gzip => Theirs::Gzip,
        Compression::Snappy => Theirs::Snappy,
        Compression::Lz4 => Theirs::Lz4,
        Compression::Zstd => Theirs::Zstd,
    }
}

/// Their headers are a map: names do not repeat.
fn with_unique_names(records: Vec<Owned>) -> Vec<Owned> {
    let unique = |mut record: Owned| {
        let mut seen = std::collections::HashSet::new();
        record.headers.retain(|(name, _)| seen.insert(name.clone()));
        record
    };
    records.into_iter().map(unique).collect()
}

fn to_theirs(record: &Owned) -> Record {
    Record {
        transactional: true,
        control: false,
        delete_horizon: false,
        partition_leader_epoch: 7,
        producer_id: 4711,
        producer_epoch: 5,
        timestamp_type: TimestampType::Creation,
        offset: i64::try_from(BASE.0).unwrap() + i64::from(record.offset_delta),
        sequence: 30 + i32::try_from(record.offset_delta).unwrap(),
        timestamp: record.timestamp_ms,
        key: record.key.clone().map(Bytes::from),
        value: record.value.clone().map(Bytes::from),
        headers: record
            .headers
            .iter()
            .map(|(name, value)| (name.clone().into(), value.clone().map(Bytes::from)))
            .collect(),
    }
}

fn from_theirs(record: &Record) -> Owned {
    let owned = |bytes: &Option<Bytes>| bytes.as_ref().map(|bytes| bytes.to_vec());
    Owned {
        offset_delta: u32::try_from(record.offset - i64::try_from(BASE.0).unwrap()).unwrap(),
        timestamp_ms: record.timestamp,
        key: owned(&record.key),
        value: owned(&record.value),
        headers: record.headers.iter().map(|(name, value)| (name.to_string(), owned(value))).collect(),
    }
}

fn timestamps() -> std::ops::Range<i64> {
    -(1 << 45)..1 << 45
}

proptest! {
    #[test]
    fn the_kafka_protocol_crate_reads_our_batches(records in records(30, 4, timestamps()).prop_map(with_unique_names)) {
        for codec in CODECS {
            let batch = built(&records, BASE, codec);
            let set = RecordBatchDecoder::decode(&mut batch.bytes().clone()).unwrap();
            prop_assert_eq!(set.compression, theirs(batch.compression()));
            prop_assert_eq!(set.records.iter().map(from_theirs).collect::<Vec<_>>(), &records[..]);
            prop_assert!(set.records.iter().all(|r| r.partition_leader_epoch == 7 && r.producer_id == -1));
        }
    }

    #[test]
    fn batches_of_the_kafka_protocol_crate_are_read(mut records in records(30, 4, timestamps()).prop_map(with_unique_names)) {
        // Their base offset is that of the first record, ours may lie before it.
        let first = records[0].offset_delta;
        records.iter_mut().for_each(|record| record.offset_delta -= first);
        for codec in CODECS {
            let mut bytes = BytesMut::new();
            let options = RecordEncodeOptions { version: 2, compression: theirs(codec) };
            RecordBatchEncoder::encode(&mut bytes, &records.iter().map(to_theirs).collect::<Vec<_>>(), &options).unwrap();
            let batch = RecordBatch::parse(bytes.freeze(), &BatchLimits::default()).unwrap();
            prop_assert_eq!((batch.compression(), batch.epoch(), batch.base_offset()), (codec, Epoch(7), BASE));
            prop_assert_eq!(batch.producer(), Some(Producer { id: 4711, epoch: 5, base_sequence: 30 }));
            prop_assert!(batch.is_transactional() && !batch.is_control() && !batch.has_append_time());
            prop_assert_eq!(Some(batch.max_timestamp_ms()), records.iter().map(|r| r.timestamp_ms).max());
            prop_assert_eq!(read(&batch), &records[..]);
        }
    }
}

#[test]
fn the_kafka_protocol_crate_reads_large_batches_of_every_codec() {
    let mut builder = BatchBuilder::default();
    for codec in CODECS {
        for n in 0..20_000_u64 {
            let value = format!("{{\"n\":{n},\"temperature\":{}}}", n % 40);
            let record = millstream_types::Record {
                timestamp_ms: n as i64,
                value: Some(value.as_bytes()),
                ..Default::default()
            };
            builder.push(&record);
        }
        let batch = builder.seal(BASE, Epoch(7), codec);
        assert_eq!(batch.compression(), codec);
        let set = RecordBatchDecoder::decode(&mut batch.bytes().clone()).unwrap();
        let ours = batch.inflated(&BatchLimits::default()).unwrap();
        assert!(ours.records().map(|r| Owned::read(BASE, &r.unwrap())).eq(set.records.iter().map(from_theirs)));
        assert_eq!(set.records.len(), 20_000);
    }
}
