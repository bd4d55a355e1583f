//! A kernel, not a system: records of 1.8 KiB with 40 fields in memory, matched on one thread against live queries.
//!
//! No log, no socket, no client; a batch is what a partition's read gives. The queried field is the last of its record,
//! as that is the worst place; no record matches unless said. Beside it, over the same bytes: reading each byte once,
//! and what a matcher without an index would do (each record parsed once by serde_json, then each query asked).

use std::hint::black_box;
use std::sync::Arc;

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use millstream_query::{Compiled, Matcher, ParserLimits, parse};
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
        let plan = parse(&format!("SELECT * FROM STREAM() WHERE {filter}"), &ParserLimits::default());
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

/// A kind of filters, by number.
type Filters = (&'static str, fn(usize) -> String);

/// No index finds the records of such filters: each of 1,000 different ones is asked about every record, and holds for none.
const UNINDEXED: [Filters; 8] = [
    ("without place in the index: (x = c) IS NULL", |i| format!("(long_0 = {i}) IS NULL")),
    ("without place in the index: x > y + c", |i| format!("long_0 > long_1 + {}", i as u64 + (1 << 32))),
    ("without place in the index: x * c > y on doubles", |i| format!("double_0 * {i}.5 > double_1 + 1e9")),
    ("without place in the index: x != c AND y != d", |i| {
        format!("long_0 != {i} AND long_1 != {i} AND flag_0 != TRUE AND flag_0 != FALSE")
    }),
    ("without place in the index: text NOT IN list AND one != c", |i| {
        format!("text_10 NOT IN ('{}', 'b', 'c') AND map_a != '{i}'", foreign_id(i))
    }),
    ("without place in the index: RLIKE without a literal", |i| {
        format!("text_10 RLIKE '[0-9a-zA-Z]+[!-/]{{{}}}[:-@]{{{}}}'", 1 + i / 32, 1 + i % 32)
    }),
    ("without place in the index: ABS(x - y) < c", |i| format!("ABS(long_0 - long_1) < 0 - {i}")),
    ("without place in the index: one condition and one of its own", |i| {
        format!("text_10 RLIKE '[0-9a-z]{{31}}' AND long_0 != {i}")
    }),
];

fn run(matcher: &mut Matcher<()>, batches: &[RecordBatch]) -> u64 {
    let mut rows = 0;
    for batch in batches {
        matcher.run(batch, PartitionId(0), Offset(0), 0).expect("the bench's own batch");
        matcher.drain(|_, (), yielded| rows += yielded.rows.row_count() as u64);
    }
    rows
}

/// Matches the batches against so many filters. They are made when that begins, so that what is not asked for takes no time.
fn measure(
    group: &mut BenchmarkGroup<'_, WallTime>,
    name: BenchmarkId,
    count: usize,
    filter: impl Fn(usize) -> String,
    batches: &[RecordBatch],
) {
    let mut matcher = None;
    group.bench_function(name, |bench| {
        let matcher = matcher.get_or_insert_with(|| self::matcher((0..count).map(&filter)));
        bench.iter(|| black_box(run(matcher, batches)));
    });
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
        let equality = |i| format!("id = '{}'", foreign_id(i));
        measure(&mut group, BenchmarkId::new("one equality each", queries), queries, equality, &batches);
    }
    measure(&mut group, BenchmarkId::new("mixed", 100_000), 100_000, mixed, &batches);
    measure(&mut group, BenchmarkId::from_parameter("each record a row"), 1, |_| "long_0 != 0".to_owned(), &batches);
    for (name, filter) in UNINDEXED {
        measure(&mut group, BenchmarkId::new(name, 1_000), 1_000, filter, &batches);
    }
    group.finish();
}

criterion_group!(benches, matching);
criterion_main!(benches);
