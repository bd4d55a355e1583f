//! A kernel, not a system: records of 200 bytes in memory, matched on one thread against live equality queries.
//!
//! No log, no socket, no client; a batch is what a partition's read gives. Of the thousand records as many match as
//! there are queries, one each (with 10,000 queries all of them); or none.

use std::hint::black_box;
use std::sync::Arc;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use millstream_query::{Compiled, Limits, Matcher, parse};
use millstream_types::{BatchBuilder, Compression, Epoch, Offset, PartitionId, Record, RecordBatch};

const RECORDS: usize = 1000;
const RECORD_BYTES: usize = 200;

fn batch() -> RecordBatch {
    let mut builder = BatchBuilder::default();
    for i in 0..RECORDS {
        let mut payload = format!(
            r#"{{"site":"north-{:02}","temp":{}.5,"humidity":{},"ok":true,"position":{{"lat":48.2,"lon":16.4}},"device":"device-{i}","note":""#,
            i % 100,
            i % 40,
            i % 100,
        );
        while payload.len() < RECORD_BYTES - 2 {
            payload.push('x');
        }
        payload.push_str("\"}");
        builder.push(&Record { value: Some(payload.as_bytes()), ..Record::default() });
    }
    builder.seal(Offset(0), Epoch(0), Compression::None)
}

fn matcher(queries: usize, device: impl Fn(usize) -> String) -> Matcher<usize> {
    let mut matcher = Matcher::default();
    for i in 0..queries {
        let text = format!("SELECT * FROM STREAM() WHERE device = '{}' AND temp >= 0", device(i));
        let plan = parse(&text, &Limits::default()).expect("the bench's own query");
        matcher.insert(Arc::new(Compiled::new(&plan)), i);
    }
    matcher
}

fn matching(criterion: &mut Criterion) {
    let batch = batch();
    let mut group = criterion.benchmark_group("records of 200 bytes");
    group.throughput(Throughput::Elements(RECORDS as u64));
    for queries in [1, 100, 10_000] {
        for (name, prefix) in [("each matching one", "device"), ("matching nothing", "other")] {
            let mut matcher = matcher(queries, |i| format!("{prefix}-{i}"));
            group.bench_function(BenchmarkId::new(name, queries), |bench| {
                bench.iter(|| {
                    let tally = matcher.run(&batch, PartitionId(0), Offset(0), 0).expect("the bench's own batch");
                    matcher.drain(|_, _, yielded| drop(black_box(yielded)));
                    tally
                });
            });
        }
    }
    group.finish();
}

criterion_group!(benches, matching);
criterion_main!(benches);
