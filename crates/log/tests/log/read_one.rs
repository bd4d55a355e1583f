//! Reads of single records: they find what a reader of all gets, read no more than they need, and serve nothing damaged.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use millstream_log::{
    AckLevel, AtomicAppend, CachedRead, Cleanup, Embedded, Error, Log, LogConfig, Partition, SystemFiles, TopicConfig,
    UpTo, reply,
};
use millstream_testkit::conformance::read_one::read_each;
use millstream_testkit::conformance::{ReadRecord, append_and_wait, read_all};
use millstream_testkit::sim::{Rng, SimFiles};
use millstream_types::{Compression, Offset, Record};
use proptest::prelude::*;

use crate::support::compaction::{Bench, compacted};
use crate::support::{append_atomic, clock, create, new_disk, open, partitions, small_config};

/// Appends records with these keys as one batch; each value tells its own offset and is `padding` bytes longer.
fn put_all(partition: &dyn Partition, keys: &[u8], padding: usize) {
    let first = partition.offsets().tail.0;
    let values: Vec<_> = (first..).zip(keys).map(|(offset, _)| format!("{offset} {}", "x".repeat(padding))).collect();
    let record =
        |(key, value)| Record { key: Some(std::slice::from_ref(key)), value: Some(value), ..Record::default() };
    let records: Vec<_> = keys.iter().zip(values.iter().map(String::as_bytes)).map(record).collect();
    append_and_wait(partition, &records, AckLevel::Synced).unwrap();
}

/// The offset that the value of a record of [`put_all`] tells.
fn told_offset(value: &[u8]) -> u64 {
    let text = std::str::from_utf8(value).unwrap();
    text.split(' ').next().unwrap().parse().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_record_read_alone_is_the_one_that_a_reader_of_all_gets(
        steps in prop::collection::vec((prop::collection::vec(0_u8..12, 1..8), 0_usize..300, 0_u8..20), 1..120),
        compression in prop::sample::select(vec![Compression::None, Compression::Lz4]),
        cleanup in prop::sample::select(vec![Cleanup::Compact, Cleanup::CompactDelete, Cleanup::Delete]),
        compaction_live_percent in prop::option::of(1_u8..=100),
    ) {
        let config = TopicConfig { compression, cleanup, compaction_live_percent, ..compacted() };
        let bench = Bench::new(config);
        for (keys, padding, chance) in steps {
            put_all(&*bench.partition, &keys, padding);
            if chance < 6 {
                bench.log.flush().unwrap();
            }
            if chance == 7 && cleanup.expires() {
                let stable = bench.partition.offsets().stable.0;
                bench.partition.trim(Offset(stable - stable / 4)).unwrap();
            }
            if chance == 8 {
                bench.check_single_reads();
            }
        }
        bench.check_single_reads();
        bench.log.close().unwrap();
        let log = open(&bench.files, &bench.clock).unwrap();
        let bench = Bench { partition: partitions(&log, "t").swap_remove(0), log, ..bench };
        bench.check_single_reads();
        bench.log.close().unwrap();
    }
}

/// Ends readers even if the test panics.
struct SetWhenDropped<'a>(&'a AtomicBool);

impl Drop for SetWhenDropped<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

#[test]
fn records_are_read_alone_while_their_segments_are_replaced_and_removed() {
    for cleanup in [Cleanup::Compact, Cleanup::CompactDelete] {
        let bench = Bench::new(TopicConfig { cleanup, ..compacted() });
        put_all(&*bench.partition, b"L", 10);
        let done = AtomicBool::new(false);
        thread::scope(|threads| {
            let readers: Vec<_> = (0..2)
                .map(|seed| {
                    let (bench, done) = (&bench, &done);
                    threads.spawn(move || {
                        let (mut rng, mut found) = (Rng::new(seed), 0);
                        while !done.load(Ordering::Acquire) {
                            let offset = Offset(rng.below(bench.partition.offsets().tail.0));
                            if let Some(record) = bench.partition.read_one(offset, UpTo::Stable).unwrap() {
                                assert_eq!(told_offset(record.value.as_ref().unwrap()), offset.0);
                                found += 1;
                            }
                            let lonely = bench.partition.read_one(Offset(0), UpTo::Stable).unwrap();
                            assert!(lonely.is_some() || bench.partition.offsets().first > Offset(0));
                        }
                        found
                    })
                })
                .collect();
            let end = SetWhenDropped(&done);
            for round in 0..150 {
                put_all(&*bench.partition, b"abcde", 100);
                bench.log.flush().unwrap();
                // Often while a pass reads what is removed; compaction goes on all the same.
                if round > 0 && cleanup.expires() {
                    bench.partition.trim(Offset(round * 3)).unwrap();
                }
            }
            bench.until("few records", || bench.read().len() < 100);
            drop(end);
            assert!(readers.into_iter().all(|reader| reader.join().unwrap() > 0));
        });
        bench.log.close().unwrap();
    }
}

/// A hundred batches of three records in segments, of which none is in memory, and the records.
fn settled() -> (SimFiles, Arc<Embedded>, Arc<dyn Partition>, Vec<ReadRecord>) {
    let (files, clock) = (new_disk(), clock());
    let config = LogConfig { cache_bytes: 0, ..small_config() };
    let log = Embedded::open(config, Arc::new(files.clone()), clock.clone(), clock).unwrap();
    let topic = TopicConfig { partitions: 1, segment_bytes: 16 << 10, ..TopicConfig::default() };
    let partition = create(&log, "t", &topic).swap_remove(0);
    (0..100).for_each(|_| put_all(&*partition, b"abc", 100));
    log.flush().unwrap();
    assert_eq!(partition.read_from_memory(Offset(299), 0, UpTo::Stable).unwrap(), None);
    let records = read_all(&*partition, Offset(0), UpTo::Stable).unwrap();
    (files, log, partition, records)
}

#[test]
fn a_read_in_a_block_that_was_met_reads_one_batch() {
    let (files, log, partition, records) = settled();
    let batch = partition.read(Offset(0), 0, UpTo::Stable).unwrap().swap_remove(0);
    assert_eq!(read_each(&*partition, UpTo::Stable).unwrap(), records);
    let before = files.bytes_read();
    for record in &records {
        partition.read_one(record.offset, UpTo::Stable).unwrap().unwrap();
    }
    let each = (files.bytes_read() - before) / records.len() as u64;
    let batch_bytes = batch.size_bytes() as u64;
    assert!((batch_bytes..batch_bytes + 10).contains(&each), "{each} bytes for a record in a batch of {batch_bytes}");
    log.close().unwrap();
}

#[test]
fn a_read_without_the_disk_reads_a_batch_of_a_block_that_was_met_and_nothing_else() {
    let (files, log, partition, records) = settled();
    let read_cached = |record: &ReadRecord| partition.read_one_cached(record.offset, UpTo::Stable).unwrap();
    let before = files.bytes_read();
    assert!(records.iter().all(|record| read_cached(record) == CachedRead::OnDisk));
    assert_eq!(files.bytes_read(), before);
    read_each(&*partition, UpTo::Stable).unwrap();
    for record in &records {
        assert_eq!(ReadRecord::from(read_cached(record).into_record().unwrap().view()), *record);
    }
    log.close().unwrap();
}

#[test]
fn the_batches_of_a_topic_whose_records_are_read_one_by_one_are_small() {
    let (files, clock) = (new_disk(), clock());
    let config = LogConfig { dir: PathBuf::from("/data/log"), ..LogConfig::default() };
    let log = Embedded::open(config, Arc::new(files), clock.clone(), clock).unwrap();
    let longest = |compaction_live_percent: Option<u8>| {
        let cleanup = Cleanup::Compact;
        let topic = TopicConfig { partitions: 1, cleanup, compaction_live_percent, ..TopicConfig::default() };
        let name = format!("t-{}", compaction_live_percent.unwrap_or_default());
        let partition = create(&log, &name, &topic).swap_remove(0);
        let keys: Vec<_> = (0..100_u32).map(u32::to_be_bytes).collect();
        let value = [b'x'; 1_000];
        let records: Vec<_> =
            keys.iter().map(|key| Record { key: Some(key), value: Some(&value), ..Record::default() }).collect();
        append_and_wait(&*partition, &records, AckLevel::Written).unwrap();
        let append = AtomicAppend { records: vec![(partition.id().clone(), records)], positions: Vec::new() };
        let (done, answer) = reply();
        append_atomic(&*log, &append, AckLevel::Written, done).unwrap();
        assert_eq!(answer.wait().unwrap()[0].last, Offset(199));
        let batches = partition.read(Offset(0), 1 << 20, UpTo::Tail).unwrap();
        assert_eq!(batches.last().unwrap().next_offset(), Offset(200));
        batches.iter().map(|batch| batch.size_bytes()).max().unwrap()
    };
    assert!(longest(None) > 64 << 10);
    assert!(longest(Some(50)) <= 4 << 10);
    log.close().unwrap();
}

/// Reads each record alone with one bit of `path` flipped. Returns the offsets at which damage was told, each with the
/// offset that the error names.
fn damaged(partition: &dyn Partition, records: &[ReadRecord], path: &Path, bit: u64) -> Vec<(Offset, Offset)> {
    let mut damaged = Vec::new();
    for record in records {
        match partition.read_one(record.offset, UpTo::Stable) {
            Ok(found) => assert_eq!(ReadRecord::from(found.unwrap().view()), *record, "{path:?}, bit {bit}"),
            Err(Error::Corrupt { partition: of, offset, path: at, .. }) => {
                assert_eq!((&of, &*at), (partition.id(), path));
                damaged.push((record.offset, offset));
            }
            Err(other) => panic!("{path:?}, bit {bit}: {other}"),
        }
    }
    damaged
}

fn a_segment_and_a_bit(files: &SimFiles, rng: &mut Rng) -> (PathBuf, u64) {
    let is_segment = |path: &Path| path.extension().is_some_and(|kind| kind == "segment");
    let segments: Vec<_> = files.files().into_iter().filter(|(path, _)| is_segment(path)).collect();
    let (path, size) = rng.pick(&segments).unwrap();
    (path.clone(), rng.below(size * 8))
}

#[test]
fn a_flipped_bit_is_told_with_partition_offset_and_file_by_the_first_read_in_a_block() {
    let (files, log, _, records) = settled();
    log.close().unwrap();
    let mut rng = Rng::new(7);
    for _ in 0..100 {
        let files = files.kill();
        let (path, bit) = a_segment_and_a_bit(&files, &mut rng);
        files.flip_bit(&path, bit).unwrap();
        let log = open(&files, &clock()).unwrap();
        let partition = partitions(&log, "t").swap_remove(0);
        let damaged = damaged(&*partition, &records, &path, bit);
        assert!(!damaged.is_empty(), "{path:?}, bit {bit}: served from a damaged block");
        log.close().unwrap();
    }
}

#[test]
fn a_flipped_bit_in_a_block_that_was_met_is_told_by_reads_of_its_batch() {
    let (files, log, partition, records) = settled();
    assert_eq!(read_each(&*partition, UpTo::Stable).unwrap(), records);
    let (mut rng, mut told) = (Rng::new(8), 0);
    for _ in 0..300 {
        let (path, bit) = a_segment_and_a_bit(&files, &mut rng);
        files.flip_bit(&path, bit).unwrap();
        let damaged = damaged(&*partition, &records, &path, bit);
        assert!(damaged.iter().all(|(asked, first)| (first.0..first.0 + 3).contains(&asked.0)), "{damaged:?}");
        // The epoch of a batch and the headers of blocks and files are not read: nothing of them is served.
        assert!(matches!(damaged.len(), 0 | 3), "{damaged:?}");
        told += usize::from(!damaged.is_empty());
        files.flip_bit(&path, bit).unwrap();
    }
    assert!(told > 250, "{told} of 300 flips were told");
    assert_eq!(read_each(&*partition, UpTo::Stable).unwrap(), records, "undamaged again");
    log.close().unwrap();
}

/// Segment files below `dir` that this process has open although they were removed.
fn removed_and_open(dir: &Path) -> usize {
    let open = fs::read_dir("/proc/self/fd").unwrap().filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    open.filter(|file| file.starts_with(dir) && file.to_string_lossy().ends_with(".segment (deleted)")).count()
}

#[test]
fn no_file_stays_open_for_reads_once_its_segment_or_topic_is_removed() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), clock());
    let config = LogConfig { dir: dir.path().join("log"), cache_bytes: 0, ..small_config() };
    let log = Embedded::open(config, Arc::new(SystemFiles), clock.clone(), clock).unwrap();
    let partition = create(&log, "t", &compacted()).swap_remove(0);
    let hold = partition.hold("test", Offset(0));
    for _ in 0..60 {
        put_all(&*partition, b"abcde", 100);
    }
    log.flush().unwrap();
    let until = |what: &str, reached: &dyn Fn() -> bool| {
        let reached = (0..100_000).any(|_| {
            log.flush().unwrap();
            reached()
        });
        assert!(reached, "not reached: {what}");
    };
    assert_eq!(read_each(&*partition, UpTo::Stable).unwrap().len(), 300);
    drop(hold);
    until("compacted", &|| read_all(&*partition, Offset(0), UpTo::Stable).unwrap().len() < 50);
    until("the files of replaced segments are closed", &|| removed_and_open(dir.path()) == 0);
    assert!(!read_each(&*partition, UpTo::Stable).unwrap().is_empty());
    log.delete_topic(&partition.id().topic).unwrap();
    until("the files of the deleted topic are closed", &|| removed_and_open(dir.path()) == 0);
    log.close().unwrap();
}
