//! Batches as they were written when the format was new, healthy and damaged: read for ever.

use std::path::PathBuf;

use bytes::Bytes;
use millstream_types::{
    BatchBuilder, BatchError, BatchLimits, Compression, Epoch, Header, Offset, Producer, Record, RecordBatch,
};

use crate::support::CODECS;

fn fixture(name: &str) -> Bytes {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display())).into()
}

/// The batch in the fixtures. They were sealed by this very code, but gzip by Python, and snappy as one bare block of
/// literals.
fn sealed(codec: Compression) -> RecordBatch {
    let mut builder = BatchBuilder::default();
    builder.set_producer(Producer { id: 4711, epoch: 2, base_sequence: 30 });
    for n in 0..20_u32 {
        let value = format!("{{\"temperature\":{n}.5,\"station\":\"JFK\"}}");
        let headers = [Header { key: "device_id", value: Some(b"JFK") }, Header { key: "void", value: None }];
        let record = Record {
            timestamp_ms: 1_357_000_000_000 + i64::from(n) * 3_600_000,
            key: (n != 3).then_some(b"JFK"),
            value: (n != 4).then_some(value.as_bytes()),
            headers: &headers[..n as usize % 3],
        };
        builder.push_at(n * 2 + 1, &record);
    }
    builder.seal(Offset(1_000), Epoch(9), codec)
}

#[test]
fn batches_written_by_the_first_version_are_read() {
    for codec in CODECS {
        let batch =
            RecordBatch::parse(fixture(&format!("batch-v2-{}.bin", codec.as_str())), &BatchLimits::default()).unwrap();
        let expected = sealed(Compression::None);
        assert_eq!(batch.compression(), codec);
        assert_eq!(batch.inflated(&BatchLimits::default()).unwrap(), expected);
        assert_eq!((batch.base_offset(), batch.last_offset(), batch.epoch()), (Offset(1_000), Offset(1_039), Epoch(9)));
        assert_eq!(expected.records().count(), 20);
    }
}

#[test]
fn a_batch_damaged_at_rest_is_detected() {
    let damaged = RecordBatch::parse(fixture("batch-v2-damaged.bin"), &BatchLimits::default());
    assert!(matches!(damaged, Err(BatchError::Checksum { .. })), "{damaged:?}");
}
