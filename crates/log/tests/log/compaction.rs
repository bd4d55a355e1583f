//! Compacted topics: of each key the last record stays, whatever is deleted stays deleted, and readers notice nothing.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use millstream_log::{AckLevel, Cleanup, Embedded, Error, Files, Log, LogConfig, LogFigures, TopicConfig, UpTo, reply};
use millstream_testkit::conformance::read_all;
use millstream_testkit::sim::PowerLoss;
use millstream_types::{BatchBuilder, Compression, Epoch, Offset, Position, Producer, Record};
use proptest::prelude::*;

use crate::support::compaction::{Bench, HOUR, compacted, state};
use crate::support::{clock, create, name, new_disk, open, partitions, small_config};

#[test]
fn the_last_record_of_each_key_stays_and_the_space_of_the_others_becomes_free() {
    let bench = Bench::new(TopicConfig { compression: Compression::Lz4, ..compacted() });
    bench.put("lonely", Some("still here"));
    bench.churn(100);
    bench.until("few records", || bench.read().len() < 100);
    bench.until("few segments", || bench.log.stats().partitions[0].segments < 10);
    let records = bench.read();
    let state = state(&records);
    assert_eq!(state.len(), 6);
    assert_eq!(state[&b"lonely"[..]], b"still here");
    assert!(state[&b"churn-4"[..]].starts_with(b"99 "));
    assert_eq!(records[0].offset, Offset(0), "a record keeps its offset");
    assert!(bench.segment_bytes() < 16 << 10, "{} bytes", bench.segment_bytes());

    let crashed = bench.files.crash(1, PowerLoss::DropAll);
    drop(bench.log.close());
    let log = open(&crashed, &bench.clock).unwrap();
    let after = read_all(&*partitions(&log, "t")[0], Offset(0), UpTo::Stable).unwrap();
    assert_eq!(self::state(&after), state);
    log.close().unwrap();
}

#[test]
fn a_tombstone_stays_as_long_as_was_promised_and_nothing_comes_back_when_it_goes() {
    let bench = Bench::new(compacted());
    bench.put("gone", Some("value"));
    bench.churn(4);
    let before = bench.put("other", Some("value"));
    let behind = Position { topic: bench.partition.topic().id, epoch: before.epoch, offset: before.last };
    let tombstone = bench.put("gone", None).first;
    let has = |offset| bench.read().iter().any(|record| record.offset == offset);
    bench.churn(40);
    bench.until("the value goes", || !has(Offset(0)));
    assert!(has(tombstone), "a tombstone that nobody had time to see is gone");
    assert_eq!(bench.partition.resume(behind).unwrap(), before.last);

    bench.clock.advance(2 * HOUR);
    bench.churn(40);
    bench.until("the tombstone goes", || !has(tombstone));
    assert!(!state(&bench.read()).contains_key(&b"gone"[..]));
    // Whoever has not seen it must begin anew; that remains possible.
    match bench.partition.resume(behind) {
        Err(Error::PositionLost { restart, .. }) => assert_eq!(restart, bench.partition.offsets().first),
        other => panic!("a reader that missed a deletion goes on: {other:?}"),
    }
    let now = Position { offset: bench.partition.offsets().stable, ..behind };
    assert_eq!(bench.partition.resume(now).unwrap(), now.offset);

    let crashed = bench.files.crash(1, PowerLoss::DropAll);
    drop(bench.log.close());
    let log = open(&crashed, &bench.clock).unwrap();
    assert!(matches!(partitions(&log, "t")[0].resume(behind), Err(Error::PositionLost { .. })));
    log.close().unwrap();
}

#[test]
fn records_younger_than_the_least_compaction_lag_stay_and_older_ones_go() {
    let bench = Bench::new(TopicConfig { compaction_lag_min: 24 * HOUR, ..compacted() });
    bench.churn(40);
    bench.clock.advance(23 * HOUR);
    for _ in 0..1_000 {
        bench.log.flush().unwrap();
        thread::yield_now();
    }
    assert_eq!(bench.read().len(), 200, "a record is compacted before its time");
    bench.clock.advance(2 * HOUR);
    bench.until("those that are old enough go", || bench.read().len() < 50);
    let clean = bench.read().len();
    bench.churn(40);
    bench.clock.advance(25 * HOUR);
    bench.until("what was compacted before waits for no second day", || bench.read().len() < clean + 50);
    bench.log.close().unwrap();
}

#[test]
fn records_older_than_the_largest_compaction_lag_are_compacted_for_any_gain() {
    let bench = Bench::new(TopicConfig { compaction_lag_max: Some(HOUR), ..compacted() });
    for key in 0..100 {
        bench.put(&format!("key-{key}"), Some(&"x".repeat(100)));
    }
    bench.clock.advance(2 * HOUR);
    // At rest up to a third may be dirty, and what the open segment has.
    bench.until("clean at first", || {
        bench.churn(1);
        bench.read().len() < 120
    });
    let first = bench.put("key-0", Some("newer")).first;
    let has = |offset| bench.read().iter().any(|record| record.offset == offset);
    assert!(has(Offset(0)) && has(first));
    bench.clock.advance(2 * HOUR);
    bench.until("the only old value goes, though its successor's segment was not full", || !has(Offset(0)));
    assert!(has(first));
    bench.log.close().unwrap();
}

#[test]
fn altering_a_topic_to_compact_starts_compaction_and_altering_it_back_ends_it() {
    let bench = Bench::new(TopicConfig { cleanup: Cleanup::Delete, ..compacted() });
    bench.churn(40);
    let alter = |cleanup| bench.log.alter_topic(&name("t"), &TopicConfig { cleanup, ..compacted() }).unwrap();
    alter(Cleanup::Compact);
    bench.until("compacted", || bench.read().len() < 50);
    alter(Cleanup::Delete);
    let before = bench.read().len();
    bench.churn(40);
    for _ in 0..1_000 {
        bench.log.flush().unwrap();
        thread::yield_now();
    }
    assert!(bench.read().len() > before + 150, "{} after {before}", bench.read().len());
    bench.log.close().unwrap();
}

#[test]
fn a_tombstone_that_was_compacted_late_stays_as_long_as_any() {
    let bench = Bench::new(compacted());
    let hold = bench.partition.hold("reader", Offset(0));
    bench.put("gone", Some("value"));
    let tombstone = bench.put("gone", None).first;
    bench.churn(40);
    // By its append it is older than tombstones get; nobody who reads only what is compacted has seen it yet.
    bench.clock.advance(2 * HOUR);
    drop(hold);
    let has = |offset| bench.read().iter().any(|record| record.offset == offset);
    bench.until("the value goes", || !has(Offset(0)));
    for _ in 0..3 {
        let churned = bench.partition.offsets().stable;
        bench.churn(40);
        bench.until("a further pass", || !has(churned));
        assert!(has(tombstone), "a tombstone is gone less than an hour after its first compaction");
    }
    bench.clock.advance(2 * HOUR);
    bench.churn(40);
    bench.until("the tombstone goes", || !has(tombstone));
    bench.log.close().unwrap();
}

#[test]
fn a_reader_passes_records_that_were_compacted_from_the_end_of_a_batch() {
    let bench = Bench::new(compacted());
    let value = "x".repeat(100);
    let producer = Producer { id: 7, epoch: 3, base_sequence: 11 };
    let mut builder = BatchBuilder::default();
    builder.set_producer(producer);
    for key in ["lonely", "churn-0", "churn-1"] {
        builder.push(&Record { key: Some(key.as_bytes()), value: Some(value.as_bytes()), ..Record::default() });
    }
    // One batch, of which only the first record stays.
    let (done, answer) = reply();
    let batch = builder.seal(Offset(0), Epoch(0), Compression::None);
    bench.partition.append_batch(batch, AckLevel::Synced, done).unwrap();
    answer.wait().unwrap();
    bench.churn(40);
    let first = || bench.partition.read(Offset(0), 1, UpTo::Stable).unwrap().swap_remove(0);
    bench.until("the first batch has lost records", || first().record_count() == 1);
    assert_eq!((first().base_offset(), first().next_offset()), (Offset(0), Offset(3)));
    assert_eq!(first().producer(), Some(producer), "it is still that producer's");
    let behind = bench.partition.read(Offset(3), 1, UpTo::Stable).unwrap().swap_remove(0);
    assert!(behind.base_offset() >= Offset(3), "not the first one again");
    bench.log.close().unwrap();
}

#[test]
fn a_registered_reader_keeps_back_compaction_up_to_the_limit() {
    let bench = Bench::new(compacted());
    let hold = bench.partition.hold("reader", Offset(0));
    bench.churn(40);
    for _ in 0..100 {
        bench.log.flush().unwrap();
    }
    assert_eq!(bench.read().len(), 200);
    hold.advance(Offset(100));
    bench.until("the first half is compacted", || bench.read().len() < 120);
    assert!(bench.read().iter().filter(|record| record.offset.0 >= 100).count() == 100);
    drop(hold);
    bench.until("the second half, too", || bench.read().len() < 40);
    bench.log.close().unwrap();

    let bench = Bench::new(TopicConfig { hold_max_bytes: 4 << 10, ..compacted() });
    let _hold = bench.partition.hold("sleeper", Offset(0));
    bench.churn(40);
    bench.until("the sleeper is left behind", || bench.read().len() < 80);
    bench.log.close().unwrap();
}

#[test]
fn an_idle_topic_is_compacted_once_its_last_segment_is_old_enough() {
    let bench = Bench::new(TopicConfig { segment_bytes: 1 << 20, segment_age: HOUR, ..compacted() });
    bench.churn(10);
    assert_eq!(bench.read().len(), 50);
    bench.clock.advance(2 * HOUR);
    bench.until("only the last records are there", || bench.segment_bytes() < 2 << 10);
    assert_eq!(state(&bench.read()).len(), 5);
    bench.log.close().unwrap();
}

#[test]
fn more_keys_than_memory_holds_are_compacted_in_several_passes() {
    let (files, clock) = (new_disk(), clock());
    let config = LogConfig { compaction_map_bytes: 1024, ..small_config() };
    let log = Embedded::open(config, Arc::new(files.clone()), clock.clone(), clock.clone()).unwrap();
    let partition = create(&log, "t", &compacted()).swap_remove(0);
    let bench = Bench { files, clock, log, partition };
    for round in 0..6 {
        for key in 0..100 {
            bench.put(&format!("key-{key}"), Some(&format!("{round} {}", "x".repeat(100))));
        }
        bench.log.flush().unwrap();
    }
    bench.until("a few versions are left", || bench.read().len() < 200);
    let state = state(&bench.read());
    assert_eq!(state.len(), 100);
    assert!(state.values().all(|value| value.starts_with(b"5 ")));
    bench.log.close().unwrap();
}

#[test]
fn readers_see_every_key_and_no_error_while_segments_are_replaced() {
    let bench = Bench::new(compacted());
    bench.put("lonely", Some("still here"));
    let (done, reads) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|threads| {
        threads.spawn(|| {
            while !done.load(Ordering::Acquire) {
                assert!(state(&bench.read()).contains_key(&b"lonely"[..]));
                assert_eq!(bench.partition.offset_at(1).unwrap(), Some(Offset(0)));
                reads.fetch_add(1, Ordering::AcqRel);
            }
        });
        // Segments are replaced until the reader has read beside that.
        let begun = Instant::now();
        while reads.load(Ordering::Acquire) < 10 && begun.elapsed() < Duration::from_secs(60) {
            bench.churn(150);
            bench.until("few records", || bench.read().len() < 100);
        }
        done.store(true, Ordering::Release);
    });
    assert!(reads.load(Ordering::Acquire) >= 10);
    bench.log.close().unwrap();
}

#[test]
fn a_pass_with_nothing_to_gain_writes_nothing() {
    let bench = Bench::new(compacted());
    let hold = bench.partition.hold("test", Offset(0));
    for key in 0..100 {
        bench.put(&format!("key-{key}"), Some(&"x".repeat(100)));
    }
    bench.log.flush().unwrap();
    let (segments, written, read) =
        (bench.log.stats().partitions[0].segments, bench.files.bytes_written(), bench.files.bytes_read());
    assert!(segments > 5, "{segments}");
    drop(hold);
    bench.until("a pass has read all of it", || bench.files.bytes_read() > read + 10_000);
    (0..1_000).for_each(|_| bench.log.flush().unwrap());
    let rested = bench.files.bytes_read();
    (0..1_000).for_each(|_| bench.log.flush().unwrap());
    assert_eq!(bench.files.bytes_read(), rested, "passes do not come to rest");
    assert_eq!(bench.files.bytes_written(), written);
    assert_eq!(bench.log.stats().partitions[0].segments, segments);
    bench.log.close().unwrap();
}

#[test]
fn a_segment_that_loses_nothing_stays_as_it_is_beside_those_that_do() {
    let bench = Bench::new(compacted());
    for key in 0..100 {
        bench.put(&format!("key-{key}"), Some(&"x".repeat(100)));
    }
    bench.log.flush().unwrap();
    let dir = Path::new("/data/log/topics").join(bench.partition.topic().id.to_string()).join("0");
    let segments = || -> Vec<_> {
        let names = bench.files.list(&dir).unwrap().into_iter();
        names.filter(|name| name.ends_with(".segment") && !name.contains('-')).collect()
    };
    let before = segments();
    bench.churn(100);
    bench.until("few records", || bench.read().len() < 150);
    let kept = before.iter().filter(|name| segments().contains(name)).count();
    assert!(kept >= before.len() - 1, "{kept} of {} segments were left alone", before.len());
    assert_eq!(state(&bench.read()).len(), 105);
    bench.log.close().unwrap();
}

#[test]
fn a_damaged_segment_is_reported_and_left_as_it_is() {
    let bench = Bench::new(compacted());
    let hold = bench.partition.hold("test", Offset(0));
    bench.churn(40);
    let dir = Path::new("/data/log/topics").join(bench.partition.topic().id.to_string()).join("0");
    let mut names = bench.files.list(&dir).unwrap();
    names.sort();
    let path = dir.join(names.iter().find(|name| name.ends_with(".segment")).unwrap());
    let file = bench.files.open(&path).unwrap();
    file.write_at(&[std::io::IoSlice::new(&[0xff; 4])], 200).unwrap();
    drop(hold);
    for _ in 0..1_000 {
        bench.log.flush().unwrap();
    }
    assert!(matches!(bench.partition.read(Offset(0), 1, UpTo::Stable), Err(Error::Corrupt { .. })));
    let after = bench.files.list(&dir).unwrap();
    assert!(names.iter().all(|name| after.contains(name)), "{names:?} became {after:?}");
    bench.put("still", Some("written"));
    bench.log.close().unwrap();
}

#[test]
fn a_compacted_topic_with_retention_forgets_keys_that_are_old() {
    let config = TopicConfig { cleanup: Cleanup::CompactDelete, retention: Some(8 * HOUR), ..compacted() };
    let bench = Bench::new(config);
    bench.put("old", Some("1"));
    bench.churn(40);
    bench.until("the space of older versions is free", || bench.segment_bytes() < 8 << 10);
    let kept = state(&bench.read());
    assert_eq!((kept.len(), kept[&b"old"[..]].as_slice()), (6, &b"1"[..]), "compacted, and nothing is old");

    bench.clock.advance(7 * HOUR);
    bench.put("young", Some("2"));
    bench.churn(1);
    bench.clock.advance(2 * HOUR);
    bench.churn(40);
    bench.until("what is old has gone", || !state(&bench.read()).contains_key(&b"old"[..]));
    let kept = state(&bench.read());
    assert_eq!(kept.keys().filter(|key| key.starts_with(b"churn-")).count(), 5);
    let first = bench.partition.offsets().first;
    assert!(
        matches!(bench.partition.read(Offset(0), 1, UpTo::Stable), Err(Error::Trimmed { oldest, .. }) if oldest == first)
    );

    let files = bench.files.crash(1, PowerLoss::DropAll);
    drop(bench.log.close());
    let log = open(&files, &bench.clock).unwrap();
    let partition = &partitions(&log, "t")[0];
    assert_eq!(partition.offsets().first, first);
    assert_eq!(state(&read_all(&**partition, first, UpTo::Stable).unwrap()), kept, "and does not come back");
    let next = partition.offsets().stable;
    assert_eq!(partition.trim(next).unwrap(), next, "what may go by age may be trimmed");
    log.close().unwrap();
}

#[test]
fn a_record_without_a_key_is_refused() {
    let bench = Bench::new(compacted());
    let (done, _answer) = reply();
    let keyed = Record { key: Some(b"k"), ..Record::default() };
    match bench.partition.append(&[keyed, Record::default()], AckLevel::Synced, done) {
        Err(Error::MissingKey { index: 1, .. }) => {}
        other => panic!("{other:?}"),
    }
    let mut builder = millstream_types::BatchBuilder::default();
    builder.push(&Record::default());
    let batch = builder.seal(Offset(0), millstream_types::Epoch(0), Compression::None);
    let (done, _answer) = reply();
    assert!(matches!(
        bench.partition.append_batch(batch, AckLevel::Synced, done),
        Err(Error::MissingKey { index: 0, .. })
    ));
    assert_eq!(bench.partition.offsets().tail, Offset(0));
    bench.log.close().unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_reader_from_the_start_gets_the_last_value_of_each_key(
        steps in prop::collection::vec((0_u8..12, prop::option::weighted(0.7, 0_u16..1000), 0_u8..30), 1..250)
    ) {
        let bench = Bench::new(TopicConfig { segment_bytes: 1 << 10, delete_retention: Duration::from_secs(5), ..compacted() });
        let mut model = BTreeMap::new();
        for (key, value, chance) in steps {
            let (key, value) = (key.to_string(), value.map(|value| value.to_string()));
            bench.put(&key, value.as_deref());
            match value {
                Some(value) => drop(model.insert(key.into_bytes(), value.into_bytes())),
                None => drop(model.remove(key.as_bytes())),
            }
            if chance == 0 {
                bench.clock.advance(Duration::from_secs(4));
            }
            if chance < 4 {
                bench.log.flush().unwrap();
            }
            if chance == 9 {
                prop_assert_eq!(&state(&bench.read()), &model);
            }
        }
        bench.log.flush().unwrap();
        prop_assert_eq!(&state(&bench.read()), &model);
        bench.log.close().unwrap();
        let log = open(&bench.files, &bench.clock).unwrap();
        let found = read_all(&*partitions(&log, "t")[0], Offset(0), UpTo::Stable).unwrap();
        prop_assert_eq!(&state(&found), &model);
        prop_assert!(log.topic(&name("t")).is_some());
        log.close().unwrap();
    }
}

#[test]
fn compaction_goes_on_after_a_trim_of_what_a_pass_reads() {
    let (files, clock) = (new_disk(), clock());
    // A pass rests for a quarter of a second after each MiB.
    let config = LogConfig {
        dir: PathBuf::from("/data/log"),
        compaction_bytes_per_second: 4 << 20,
        cache_bytes: 0,
        ..LogConfig::default()
    };
    let log = Embedded::open(config, Arc::new(files.clone()), clock.clone(), clock.clone()).unwrap();
    let topic = TopicConfig { cleanup: Cleanup::CompactDelete, segment_bytes: 64 << 10, ..compacted() };
    let partition = create(&log, "t", &topic).swap_remove(0);
    let bench = Bench { files, clock, log, partition };
    let image = "i".repeat(8 << 10);
    for number in 0..384 {
        bench.put(&format!("{}", number % 128), Some(&image));
    }
    let read_bytes = bench.files.bytes_read();
    bench.until("a pass rests", || bench.files.bytes_read() > read_bytes + (1 << 20));
    bench.partition.trim(bench.partition.offsets().stable).unwrap();
    bench.until("removed segments", || bench.segment_bytes() < 128 << 10);
    let churned = bench.partition.offsets().stable;
    let is_compacted = |_| {
        bench.churn(20);
        bench.partition.read_one(churned, UpTo::Stable).unwrap().is_none()
    };
    assert!((0..500).any(is_compacted), "compaction has stopped");
    bench.log.close().unwrap();
}

#[test]
fn superseded_and_deleted_values_leave_memory_with_the_pass_that_removes_them() {
    let (files, clock) = (new_disk(), clock());
    let config = LogConfig { cache_bytes: 64 << 20, ..small_config() };
    let log = Embedded::open(config, Arc::new(files.clone()), clock.clone(), clock.clone()).unwrap();
    let partition = create(&log, "t", &compacted()).swap_remove(0);
    let bench = Bench { files, clock, log, partition };
    bench.put("old", Some("a first value"));
    bench.put("gone", Some("a deleted value"));
    bench.put("old", Some("a second value"));
    bench.put("gone", None);
    bench.churn(40);
    let values = || bench.read().into_iter().filter_map(|record| record.value).collect::<Vec<_>>();
    let has = |wanted: &str| values().iter().any(|value| value == wanted.as_bytes());
    bench.until("neither value is read", || !has("a first value") && !has("a deleted value"));
    for offset in [0, 1].map(Offset) {
        assert_eq!(bench.partition.read_one(offset, UpTo::Stable).unwrap(), None);
    }
    assert!(has("a second value"));
    bench.check_single_reads();
}
