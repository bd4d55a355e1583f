//! The way in which input is cut into appends never changes the records that are read.

use std::sync::Arc;

use millstream_log::{AckLevel, AtomicAppend, Done, Embedded, KafkaPartition, Storage, TopicConfig, UpTo};
use millstream_testkit::conformance::{ReadRecord, read_all};
use millstream_types::{BatchBuilder, Compression, Epoch, Offset, Record};
use proptest::prelude::*;

use crate::support::{append, append_atomic, clock, create, new_disk, open, partitions};

/// The step for the next records of the input.
#[derive(Debug, Clone, Copy)]
enum Step {
    Append(usize),
    Batch(usize, Compression),
    /// Cut in two entries of one atomic append, with the other partition between them.
    Atomic(usize, usize),
    /// Reads everything so far, from this share of it on.
    Read(u8),
    Flush,
    Restart,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let codec = prop_oneof![Just(Compression::None), Just(Compression::Lz4), Just(Compression::Zstd)];
    let step = prop_oneof![
        6 => (1_usize..20).prop_map(Step::Append),
        3 => (1_usize..20, codec).prop_map(|(count, codec)| Step::Batch(count, codec)),
        3 => (1_usize..10, 1_usize..10).prop_map(|(first, second)| Step::Atomic(first, second)),
        3 => any::<u8>().prop_map(Step::Read),
        1 => Just(Step::Flush),
        1 => Just(Step::Restart),
    ];
    prop::collection::vec(step, 1..40)
}

/// The input: key, value and time of each record.
type Input = Vec<(Option<Vec<u8>>, Option<Vec<u8>>, i64)>;

fn input() -> impl Strategy<Value = Input> {
    let bytes = |most| prop::option::of(prop::collection::vec(any::<u8>(), 0..most));
    prop::collection::vec((bytes(8), bytes(300), 0_i64..1000), 400)
}

fn expected(input: &[Record<'_>]) -> Vec<ReadRecord> {
    (0..).zip(input).map(|(offset, record)| ReadRecord::at(Offset(offset), record)).collect()
}

fn append_step(log: &Embedded, target: &[Arc<dyn KafkaPartition>], step: Step, records: &[Record<'_>]) -> usize {
    let level = AckLevel::Memory;
    match step {
        Step::Append(count) => {
            let count = count.min(records.len());
            target[0].append(&records[..count], level, Done::ignore()).unwrap();
            count
        }
        Step::Batch(count, codec) => {
            let count = count.min(records.len());
            let mut builder = BatchBuilder::default();
            records[..count].iter().for_each(|record| builder.push(record));
            target[0].append_batch(builder.seal(Offset(9), Epoch(9), codec), level, Done::ignore()).unwrap();
            count
        }
        Step::Atomic(first, second) => {
            let (first, both) = (first.min(records.len()), (first + second).min(records.len()));
            let mut entries = vec![
                (target[0].id().clone(), records[..first].to_vec()),
                (target[1].id().clone(), records[..1].to_vec()),
                (target[0].id().clone(), records[first..both].to_vec()),
            ];
            entries.retain(|(_, records)| !records.is_empty());
            let append = AtomicAppend { records: entries, positions: Vec::new() };
            append_atomic(log, &append, level, Done::ignore()).unwrap();
            both
        }
        Step::Read(_) | Step::Flush | Step::Restart => 0,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn cutting_input_into_appends_never_changes_the_records_read(input in input(), steps in steps()) {
        let input: Vec<_> = input
            .iter()
            .map(|(key, value, timestamp_ms)| Record {
                key: key.as_deref(),
                value: value.as_deref(),
                timestamp_ms: *timestamp_ms,
                headers: &[],
            })
            .collect();
        let (files, clock) = (new_disk(), clock());
        let mut log = open(&files, &clock).unwrap();
        let config = TopicConfig { segment_bytes: 8 << 10, retention: None, ..TopicConfig::default() };
        let mut target = create(&log, "cut", &config);
        let mut appended = 0;
        for step in steps {
            let rest = &input[appended..];
            match step {
                Step::Read(share) => {
                    let from = appended * usize::from(share) / 256;
                    let read = read_all(&*target[0], Offset(from as u64), UpTo::Tail).unwrap();
                    prop_assert_eq!(&read, &expected(&input[..appended])[from..]);
                }
                Step::Flush => log.flush().unwrap(),
                Step::Restart => {
                    log.close().unwrap();
                    log = open(&files, &clock).unwrap();
                    target = partitions(&log, "cut");
                }
                _ if rest.is_empty() => {}
                step => appended += append_step(&log, &target, step, rest),
            }
        }
        log.close().unwrap();
        let log = open(&files, &clock).unwrap();
        let read = read_all(&*partitions(&log, "cut")[0], Offset::ZERO, UpTo::Stable).unwrap();
        log.close().unwrap();
        prop_assert_eq!(read, expected(&input[..appended]));
    }

    #[test]
    fn a_topic_in_memory_returns_the_newest_records(input in input(), cuts in prop::collection::vec(1_usize..30, 1..30)) {
        let input: Vec<_> = input
            .iter()
            .map(|(key, value, _)| Record { key: key.as_deref(), value: value.as_deref(), ..Record::default() })
            .collect();
        let (files, clock) = (new_disk(), clock());
        let log = open(&files, &clock).unwrap();
        let config = TopicConfig { storage: Storage::Memory { max_bytes: 16 << 10 }, ..TopicConfig::default() };
        let target = create(&log, "live", &config);
        let mut appended = 0;
        for cut in cuts {
            let end = (appended + cut).min(input.len());
            if end > appended {
                target[0].append(&input[appended..end], AckLevel::Memory, Done::ignore()).unwrap();
            }
            appended = end;
        }
        append(&*target[1], b"another partition", AckLevel::Synced).unwrap();
        let first = target[0].offsets().first;
        let read = read_all(&*target[0], first, UpTo::Tail).unwrap();
        log.close().unwrap();
        prop_assert_eq!(&read, &expected(&input[..appended])[first.0 as usize..]);
    }
}
