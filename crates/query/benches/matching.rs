//! A kernel, not a system: records of 1.8 KiB with 40 fields in memory, matched on one thread against live queries.
//!
//! No log, no socket, no client; a batch is what a partition's read gives. The queried field is the last of its record,
//! as that is the worst place; no record matches unless said. Beside it, over the same bytes: reading each byte once,
//! and what a matcher without an index would do (each record parsed once by serde_json, then each query asked).

use std::hint::black_box;
use std::sync::Arc;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use millstream_query::{Compiled, Limits, Matcher, parse};
use millstream_types::{BatchBuilder, Compression, Epoch, Offset, PartitionId, Record, RecordBatch};

const RECORDS: usize = 1024;
/// As many records as a read of 256 KiB gives are a batch.
const BATCH: usize = 128;

/// 27 texts, 5 integers, 2 doubles, 2 booleans, 3 maps of 4, 1 list of 2 maps: 1,843 bytes, about.
fn payload(random: &mut fastrand::Rng) -> String {
    let mut text = |length: usize| -> String { (0..length).map(|_| random.alphanumeric()).collect() };
    let mut members: Vec<String> = (0..26).map(|i| format!("\"text_{i:02}\":\"{}\"", text(31))).collect();
    for name in ["map_a", "map_b", "map_c"] {
        let inner: Vec<String> = (0..4).map(|i| format!("\"key_{i}\":\"{}\"", text(18))).collect();
        members.push(format!("\"{name}\":{{{}}}", inner.join(",")));
    }
    members.push(format!("\"list\":[{{\"x\":\"{}\"}},{{\"x\":\"{}\"}}]", text(10), text(10)));
    members.extend((0..5).map(|i| format!("\"long_{i}\":{}", random.u32(..))));
    members.extend((0..2).map(|i| format!("\"double_{i}\":{:.6}", random.f64() * 1000.0)));
    members.extend((0..2).map(|i| format!("\"flag_{i}\":{}", random.bool())));
    members.push(format!("\"id\":\"{:010x}\"", random.u64(..) >> 24));
    format!("{{{}}}", members.join(","))
}

fn payloads() -> Vec<String> {
    let mut random = fastrand::Rng::with_seed(1);
    (0..RECORDS).map(|_| payload(&mut random)).collect()
}

fn batches(payloads: &[String]) -> Vec<RecordBatch> {
    let sealed = payloads.chunks(BATCH).map(|chunk| {
        let mut builder = BatchBuilder::default();
        for payload in chunk {
            builder.push(&Record { value: Some(payload.as_bytes()), ..Record::default() });
        }
        builder.seal(Offset(0), Epoch(0), Compression::None)
    });
    sealed.collect()
}

fn matcher(filters: impl Iterator<Item = String>) -> Matcher<()> {
    let mut matcher = Matcher::default();
    for filter in filters {
        let plan = parse(&format!("SELECT * FROM STREAM() WHERE {filter}"), &Limits::default());
        matcher.insert(Arc::new(Compiled::new(&plan.expect("the bench's own query"))), ());
    }
    matcher
}

/// Not a hexadecimal digit in it, so that no record has it.
fn foreign_id(i: usize) -> String {
    format!("q{i:09}")
}

/// The mix of test B6 of the reference: 80 % one equality, 10 % two, 5 % range, 3 % OR of three, 1 % NOT, 1 % RLIKE.
fn mixed(i: usize) -> String {
    let id = foreign_id(i);
    match i % 100 {
        0..80 => format!("id = '{id}'"),
        80..90 => format!("flag_0 = TRUE AND id = '{id}'"),
        90..95 => format!("long_1 >= {} AND long_1 < {}", i * 40_000, i * 40_000 + 100),
        95..98 => format!("id = '{id}' OR text_03 = '{id}' OR text_20 = '{id}'"),
        98 => format!("id = '{id}' AND NOT flag_1"),
        _ => format!("text_10 RLIKE '.*{id}.*'"),
    }
}

fn run(matcher: &mut Matcher<()>, batches: &[RecordBatch]) -> u64 {
    let mut rows = 0;
    for batch in batches {
        matcher.run(batch, PartitionId(0), Offset(0), 0).expect("the bench's own batch");
        matcher.drain(|_, (), yielded| rows += yielded.rows.row_count() as u64);
    }
    rows
}

fn matching(criterion: &mut Criterion) {
    let payloads = payloads();
    let batches = batches(&payloads);
    let mut group = criterion.benchmark_group("records of 1.8 KiB");
    group.throughput(Throughput::Elements(RECORDS as u64));
    group.bench_function("baseline: each byte read once", |bench| {
        bench.iter(|| {
            payloads.iter().map(|payload| memchr::memchr(0, payload.as_bytes())).filter(Option::is_some).count()
        });
    });
    group.bench_function("baseline: 735 equalities one by one", |bench| {
        let ids: Vec<String> = (0..735).map(foreign_id).collect();
        bench.iter(|| {
            let matches = payloads.iter().map(|payload| {
                let record: serde_json::Value = serde_json::from_str(payload).expect("the bench's own record");
                ids.iter().filter(|id| record.get("id").and_then(|value| value.as_str()) == Some(id)).count()
            });
            matches.sum::<usize>()
        });
    });
    for queries in [1, 1_000, 100_000, 1_000_000] {
        let mut equalities = matcher((0..queries).map(|i| format!("id = '{}'", foreign_id(i))));
        group.bench_function(BenchmarkId::new("one equality each", queries), |bench| {
            bench.iter(|| run(&mut equalities, &batches));
        });
    }
    let mut mixed = matcher((0..100_000).map(mixed));
    group.bench_function(BenchmarkId::new("mixed", 100_000), |bench| bench.iter(|| run(&mut mixed, &batches)));
    let mut all = matcher((0..1_000).map(|i| format!("long_0 != {i}")).take(1));
    group.bench_function("each record a row", |bench| bench.iter(|| black_box(run(&mut all, &batches))));
    let mut unindexed = matcher((0..1_000).map(|i| format!("(long_0 = {i}) IS NULL")));
    group.bench_function(BenchmarkId::new("without place in the index", 1_000), |bench| {
        bench.iter(|| run(&mut unindexed, &batches));
    });
    group.finish();
}

criterion_group!(benches, matching);
criterion_main!(benches);
