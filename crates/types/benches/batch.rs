//! Records a second on one core, into batches and out of them, CRC included: `cargo bench -p millstream-types`.
//!
//! The baseline is the encoder and decoder of the `kafka-protocol` crate on the same records. One core of a shared 2-core
//! Xeon, uncompressed batches of 1000, an 11-byte key, no headers, million records a second, median of one run:
//!
//! | | encode 100 B | encode 1 KiB | decode 100 B | decode 1 KiB |
//! | --- | --- | --- | --- | --- |
//! | millstream | 40.4 | 13.8 | 62.4 | 17.0 |
//! | kafka-protocol 0.18 | 11.9 | 8.6 | 10.7 | 5.9 |
//!
//! Decoding here means checking the CRC and every length, and borrowing the parts; `kafka-protocol` makes a vector of
//! records that share the buffer.

use std::hint::black_box;

use bytes::{Bytes, BytesMut};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use kafka_protocol::records::{
    Compression as TheirCompression, Record as TheirRecord, RecordBatchDecoder, RecordBatchEncoder,
    RecordEncodeOptions, TimestampType,
};
use millstream_types::{BatchBuilder, BatchLimits, Compression, Epoch, Header, Offset, Record, RecordBatch};

const HEADERS: [Header<'static>; 4] = [
    Header { key: "device_id", value: Some(b"4711") },
    Header { key: "orig_adapter", value: Some(b"hono-http") },
    Header { key: "qos", value: Some(b"1") },
    Header { key: "content-type", value: Some(b"application/json") },
];

struct Case {
    name: &'static str,
    value: Vec<u8>,
    headers: &'static [Header<'static>],
    count: usize,
}

impl Case {
    fn all() -> Vec<Self> {
        let mut cases = Vec::new();
        for (name, value_bytes, headers) in
            [("100 B", 100, &[][..]), ("100 B, 4 headers", 100, &HEADERS[..]), ("1 KiB", 1024, &[][..])]
        {
            for count in [100, 1000] {
                // Text-like, so that codecs find something: digits of a counter.
                let value = (0..).flat_map(|n: u32| n.to_string().into_bytes()).take(value_bytes).collect();
                cases.push(Self { name, value, headers, count });
            }
        }
        cases
    }

    fn record(&self, n: usize) -> Record<'_> {
        Record {
            timestamp_ms: 1_700_000_000_000 + n as i64,
            key: Some(b"device-4711"),
            value: Some(&self.value),
            headers: self.headers,
        }
    }

    fn seal(&self, builder: &mut BatchBuilder, codec: Compression) -> RecordBatch {
        for n in 0..self.count {
            builder.push(black_box(&self.record(n)));
        }
        builder.seal(Offset(1), Epoch(1), codec)
    }

    fn theirs(&self) -> Vec<TheirRecord> {
        let value = Bytes::from(self.value.clone());
        let bytes = |value: Option<&'static [u8]>| value.map(Bytes::from_static);
        (0..self.count)
            .map(|n| TheirRecord {
                transactional: false,
                control: false,
                delete_horizon: false,
                partition_leader_epoch: 1,
                producer_id: -1,
                producer_epoch: -1,
                timestamp_type: TimestampType::Creation,
                offset: 1 + n as i64,
                sequence: n as i32,
                timestamp: 1_700_000_000_000 + n as i64,
                key: Some(Bytes::from_static(b"device-4711")),
                value: Some(value.clone()),
                headers: self
                    .headers
                    .iter()
                    .map(|header| (header.key.to_owned().into(), bytes(header.value)))
                    .collect(),
            })
            .collect()
    }
}

fn encode(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("encode");
    for case in Case::all() {
        group.throughput(Throughput::Elements(case.count as u64));
        let mut builder = BatchBuilder::default();
        for codec in [Compression::None, Compression::Lz4, Compression::Zstd] {
            group.bench_function(
                BenchmarkId::new(format!("millstream {}, {}", codec.as_str(), case.name), case.count),
                |b| {
                    b.iter(|| case.seal(&mut builder, codec));
                },
            );
        }
        let records = case.theirs();
        let options = RecordEncodeOptions { version: 2, compression: TheirCompression::None };
        let mut buffer = BytesMut::new();
        group.bench_function(BenchmarkId::new(format!("kafka-protocol none, {}", case.name), case.count), |b| {
            b.iter(|| {
                buffer.clear();
                RecordBatchEncoder::encode(&mut buffer, black_box(&records), &options).expect("records encode");
            });
        });
    }
    group.finish();
}

/// Touches all parts of all records.
fn walk(batch: &RecordBatch) -> usize {
    batch
        .records()
        .map(|record| {
            let record = record.expect("records are well formed");
            record.key.unwrap_or_default().len() + record.value.unwrap_or_default().len() + record.timestamp_ms as usize
        })
        .fold(0, usize::wrapping_add)
}

fn decode(criterion: &mut Criterion) {
    let limits = BatchLimits::default();
    let mut group = criterion.benchmark_group("decode");
    for case in Case::all() {
        group.throughput(Throughput::Elements(case.count as u64));
        for codec in [Compression::None, Compression::Lz4, Compression::Zstd] {
            let bytes = case.seal(&mut BatchBuilder::default(), codec).bytes().clone();
            group.bench_function(
                BenchmarkId::new(format!("millstream {}, {}", codec.as_str(), case.name), case.count),
                |b| {
                    b.iter(|| {
                        let batch = RecordBatch::parse(black_box(&bytes).clone(), &limits).expect("it is a batch");
                        walk(&batch.inflated(&limits).expect("it inflates"))
                    });
                },
            );
        }
        let bytes = case.seal(&mut BatchBuilder::default(), Compression::None).bytes().clone();
        group.bench_function(BenchmarkId::new(format!("kafka-protocol none, {}", case.name), case.count), |b| {
            b.iter(|| RecordBatchDecoder::decode(&mut black_box(&bytes).clone()).expect("it is a batch").records.len());
        });
    }
    group.finish();
}

criterion_group!(benches, encode, decode);
criterion_main!(benches);
