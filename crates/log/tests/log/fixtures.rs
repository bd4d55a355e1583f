//! Directories that earlier versions have written are opened for ever, and damage in them is recognised.
//!
//! `tests/fixtures/v1` holds, per directory, one data directory (without its lock file); `closed-damaged-meta` holds only
//! the files in which it differs from `closed`. `v2` holds those whose `meta` knows idempotent producers; `v3` those with
//! compacted segments, trimmed partitions and added ones; `v4` those with transactions; `v5` those with compaction lags, times of
//! appends and a copy of `meta`; `v6` those with a topic that is compacted by live bytes. Each was written once, v6 by `MILLSTREAM_WRITE_FIXTURES=v6 cargo test -p millstream-log --test log fixtures`; a format that is released is never written
//! again, a new one gets a directory of its own. Damage to what a version has in common with v1 is tried on v1.

use std::collections::BTreeMap;
use std::fs;
use std::io::IoSlice;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use millstream_log::{
    AckLevel, Appended, AtomicAppend, Cleanup, Embedded, EndTransaction, Error, Files, KafkaLog, Log, LogConfig,
    Partition, PositionCommit, Storage, TopicConfig, UpTo, reply,
};
use millstream_testkit::conformance::read_all;
use millstream_testkit::sim::SimFiles;
use millstream_types::{BatchBuilder, Compression, Epoch, ManualClock, Offset, Position, Producer, Record};

use crate::support::{append, append_atomic, clock, create, name, partitions};

/// Records in each partition of the topics on disk: some in segments, some in the journal.
const RECORDS: u64 = 24;
/// Of these, so many were brought to segments.
const FLUSHED: u64 = 18;
const GROUP: &str = "readers";

fn config() -> LogConfig {
    LogConfig {
        dir: PathBuf::from("/log"),
        journal_file_bytes: 20 << 10,
        journal_max_bytes: 60 << 10,
        append_max_bytes: 4 << 10,
        pending_max_bytes: 64 << 10,
        batch_max_bytes: 1 << 10,
        // Readers see what segments hold.
        cache_bytes: 1 << 10,
        ..LogConfig::default()
    }
}

fn topics() -> [(&'static str, TopicConfig); 3] {
    let base = TopicConfig { partitions: 2, retention: None, segment_bytes: 1 << 10, ..TopicConfig::default() };
    [
        ("plain", base.clone()),
        ("packed", TopicConfig { compression: Compression::Zstd, level: AckLevel::Written, ..base.clone() }),
        ("live", TopicConfig { storage: Storage::Memory { max_bytes: 4 << 10 }, ..base }),
    ]
}

fn timed() -> TopicConfig {
    TopicConfig {
        partitions: 1,
        cleanup: Cleanup::Compact,
        append_time: true,
        compaction_lag_min: Duration::from_secs(3_600),
        compaction_lag_max: Some(Duration::from_secs(7_200)),
        ..TopicConfig::default()
    }
}

/// The topic of v6 that is compacted by live bytes.
fn bucket() -> TopicConfig {
    TopicConfig { compaction_live_percent: Some(50), ..compacted() }
}

fn value(number: u64) -> String {
    format!("record {number} {}", "fixture ".repeat(number as usize))
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

fn open(files: &SimFiles) -> Result<Arc<Embedded>, Error> {
    let clock = clock();
    Embedded::open(config(), Arc::new(files.clone()), clock.clone(), clock)
}

/// The undamaged directory that a damaged one differs from.
fn base_of(fixture: &str) -> &str {
    fixture.split('-').next().unwrap()
}

/// The stored directory as a disk.
fn load(fixture: &str) -> SimFiles {
    let files = SimFiles::new();
    let base = base_of(fixture);
    copy(base, &files);
    copy(fixture, &files);
    files
}

fn copy(fixture: &str, files: &SimFiles) {
    let from = root().join(fixture);
    let mut ahead = vec![from.clone()];
    while let Some(dir) = ahead.pop() {
        let to = config().dir.join(dir.strip_prefix(&from).unwrap());
        files.create_dir_all(&to).unwrap();
        for entry in fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                ahead.push(path);
            } else {
                let file = files.create(&to.join(path.file_name().unwrap())).unwrap();
                file.write_at(&[IoSlice::new(&fs::read(&path).unwrap())], 0).unwrap();
            }
        }
    }
}

/// Everything is there, and the log can be written to and opened again.
fn check_healthy(files: &SimFiles, records: impl Fn(&str, u32) -> u64) {
    for round in 0..2 {
        let log = open(files).unwrap();
        for (topic, config) in topics() {
            assert_eq!(log.topic(&name(topic)).unwrap().config, config);
        }
        for topic in ["plain", "packed"] {
            for (number, partition) in (0..).zip(partitions(&log, topic)) {
                let stored = read_all(&*partition, Offset::ZERO, UpTo::Stable).unwrap();
                let mut expected: Vec<_> = (0..records(topic, number)).map(value).collect();
                expected.resize(expected.len() + round, "after".to_owned());
                let found: Vec<_> =
                    stored.into_iter().map(|record| String::from_utf8(record.value.unwrap()).unwrap()).collect();
                assert_eq!(found, expected, "{topic}/{number}");
                append(&*partition, b"after", AckLevel::Synced).unwrap();
            }
        }
        let source = partitions(&log, "plain").swap_remove(0);
        let position = log.committed(GROUP, source.id()).unwrap().unwrap();
        assert_eq!(position.offset, Offset(FLUSHED));
        assert_eq!(source.resume(position).unwrap(), Offset(FLUSHED));
        let all = log.positions(GROUP).unwrap();
        assert_eq!(all.len(), 1);
        assert_eq!((all[0].position, all[0].metadata.as_str()), (position, ""));
        assert!(all[0].committed_ms > 0, "version 1 did not store when: it is taken from what stands around it");
        log.close().unwrap();
    }
}

#[test]
fn a_log_that_version_1_has_closed_is_read() {
    check_healthy(&load("v1/closed"), |_, _| RECORDS);
}

#[test]
fn a_log_that_version_1_left_in_a_crash_is_recovered() {
    check_healthy(&load("v1/crashed"), |_, _| RECORDS);
}

#[test]
fn a_journal_that_version_1_left_torn_is_recovered_up_to_the_tear() {
    let last = |topic: &str, partition| if (topic, partition) == ("packed", 1) { RECORDS - 1 } else { RECORDS };
    check_healthy(&load("v1/crashed-torn"), last);
}

#[test]
fn a_damaged_index_of_version_1_is_rebuilt() {
    check_healthy(&load("v1/closed-damaged-index"), |_, _| RECORDS);
}

#[test]
fn a_damaged_segment_of_version_1_is_reported_with_its_place() {
    let log = open(&load("v1/closed-damaged-segment")).unwrap();
    let all: Vec<_> = ["plain", "packed"].iter().flat_map(|topic| partitions(&log, topic)).collect();
    let mut refused = all.iter().filter_map(|partition| {
        let refusal = read_all(&**partition, Offset::ZERO, UpTo::Stable).err()?;
        Some((partition.id(), refusal))
    });
    match refused.next() {
        Some((read, Error::Corrupt { partition, path, .. })) => {
            assert_eq!(&partition, read);
            assert!(path.extension().is_some_and(|extension| extension == "segment"));
        }
        other => panic!("not refused as corrupt: {other:?}"),
    }
    assert!(refused.next().is_none(), "the other partitions are read");
    log.close().unwrap();
}

#[test]
fn a_damaged_meta_or_journal_is_reported() {
    let damaged = [
        ("v1/closed-damaged-meta", "meta"),
        ("v1/crashed-damaged-journal", "journal"),
        ("v2/closed-damaged-meta", "meta"),
        ("v3/closed-damaged-meta", "meta"),
        ("v4/closed-damaged-meta", "meta"),
    ];
    for (fixture, file) in damaged {
        match open(&load(fixture)) {
            Err(Error::CorruptFile { path, .. }) => assert!(path.display().to_string().ends_with(file), "{path:?}"),
            other => panic!("{fixture} is not refused as corrupt: {:?}", other.map(drop)),
        }
    }
}

#[test]
fn a_log_that_version_2_has_left_is_read_with_its_producers() {
    for fixture in ["v2/closed", "v2/crashed"] {
        check_producer(&load(fixture));
        check_healthy(&load(fixture), |_, _| RECORDS);
    }
}

#[test]
fn a_log_that_version_3_has_left_is_read_with_its_compactions_trims_and_additions() {
    for fixture in ["v3/closed", "v3/crashed"] {
        check_changed(&load(fixture));
        check_producer(&load(fixture));
        check_healthy(&load(fixture), |_, _| RECORDS);
    }
}

/// Of each key the last record is there; who may have missed a deletion is told; what was trimmed is gone; partitions that
/// were added are there.
fn check_changed(files: &SimFiles) {
    let is_of_a_pass = |path: &Path| {
        let name = path.file_name().unwrap().to_str().unwrap();
        name.ends_with(".segment") && name.contains('-')
    };
    assert!(files.files().iter().any(|(path, _)| is_of_a_pass(path)), "nothing in it was compacted");
    for round in 0..2 {
        let log = open(files).unwrap();
        let state = partitions(&log, "state").swap_remove(0);
        assert_eq!(state.topic().config, compacted());
        let mut last: BTreeMap<_, _> = BTreeMap::new();
        for record in read_all(&*state, Offset::ZERO, UpTo::Stable).unwrap() {
            last.insert(String::from_utf8(record.key.unwrap()).unwrap(), record.value);
        }
        let expected = (0..5).map(|key| (format!("key-{key}"), Some(value(CHANGES + key).into_bytes())));
        let lonely = ("lonely".to_owned(), Some(b"value".to_vec()));
        assert_eq!(last, expected.chain([lonely]).collect());
        let missed = Position { topic: state.topic().id, epoch: Epoch(1), offset: Offset(1) };
        assert!(matches!(state.resume(missed), Err(Error::PositionLost { restart: Offset(0), .. })));

        let short = partitions(&log, "short").swap_remove(0);
        assert_eq!(short.offsets().first, Offset(6));
        assert_eq!(read_all(&*short, Offset(6), UpTo::Stable).unwrap().len(), 4 + round);
        append(&*short, b"after", AckLevel::Synced).unwrap();
        let grown: Vec<_> = partitions(&log, "grown").iter().map(|partition| held(&**partition)).collect();
        assert_eq!(grown, [1, 1, 0, 1]);
        log.close().unwrap();
    }
}

fn held(partition: &dyn Partition) -> usize {
    read_all(partition, partition.offsets().first, UpTo::Stable).unwrap().len()
}

/// Records that are sent again have the offsets that they had, and the sequence goes on.
fn check_producer(files: &SimFiles) {
    for round in 0..2 {
        let log = open(files).unwrap();
        let partition = partitions(&log, "counted").swap_remove(0);
        for number in RECORDS - 5..RECORDS {
            let appended = count(&log, number).unwrap();
            assert_eq!((appended.first.0, appended.last.0), (number * 3, number * 3 + 2));
        }
        assert!(matches!(count(&log, 3 * round), Err(Error::DuplicateSequence { .. })));
        let tail = partition.offsets().tail;
        assert!(matches!(count(&log, RECORDS + 1), Err(Error::OutOfOrderSequence { expected: 21, .. })));
        assert_eq!(partition.offsets().tail, tail);
        assert_eq!(read_all(&*partition, Offset::ZERO, UpTo::Stable).unwrap().len() as u64, RECORDS * 3);
        log.close().unwrap();
    }
    let log = open(files).unwrap();
    count(&log, RECORDS).unwrap();
    log.close().unwrap();
}

#[test]
fn a_log_that_version_4_has_left_is_read_with_its_transactions() {
    for fixture in ["v4/closed", "v4/crashed"] {
        check_producer(&load(fixture));
        check_transactions(&load(fixture));
        check_changed(&load(fixture));
        check_healthy(&load(fixture), |_, _| RECORDS);
    }
}

#[test]
fn a_log_that_version_6_has_left_is_read_with_its_compaction_by_live_bytes() {
    for fixture in ["v6/closed", "v6/crashed"] {
        check_bucket(&load(fixture));
        check_transactions(&load(fixture));
        check_changed(&load(fixture));
        check_healthy(&load(fixture), |_, _| RECORDS);
    }
}

#[test]
fn a_log_that_version_5_has_left_is_read_with_its_settings_and_by_either_copy_of_meta() {
    for fixture in ["v5/closed", "v5/crashed"] {
        let without_meta = load(fixture);
        without_meta.remove(&config().dir.join("meta")).unwrap();
        for files in [load(fixture), without_meta] {
            check_producer(&files);
            check_healthy(&files, |_, _| RECORDS);
            let log = open(&files).unwrap();
            assert_eq!(log.topic(&name("timed")).unwrap().config, timed());
            log.close().unwrap();
        }
        check_transactions(&load(fixture));
        check_changed(&load(fixture));
    }
}

/// One is open, one aborted and one committed, each in both partitions; the aborted one lies in the segments by its first
/// half.
fn check_transactions(files: &SimFiles) {
    for is_open in [true, false] {
        let log = open(files).unwrap();
        for partition in partitions(&log, "settled") {
            let listed: Vec<_> = partition.transactions().iter().map(|one| (one.producer_id, one.first)).collect();
            assert_eq!(listed, if is_open { vec![(OPEN, Offset(6))] } else { Vec::new() });
            let found = read_all(&*partition, Offset::ZERO, UpTo::Stable).unwrap();
            let found: Vec<_> = found.iter().map(|record| record.offset.0).collect();
            if is_open {
                assert_eq!(found, [0, 1]);
            } else {
                assert_eq!(
                    (&found[..3], found.len()),
                    (&[0, 1, 6][..], 4),
                    "the last one's offset is that of a later start"
                );
            }
            let stored = partition.read_stored(Offset::ZERO, usize::MAX, UpTo::High).unwrap();
            assert_eq!(
                stored.aborted.iter().map(|one| (one.producer_id, one.first.0)).collect::<Vec<_>>(),
                [(ABORTED, 2)]
            );
            if is_open {
                send_in_transaction(&log, &*partition, OPEN, 1);
            }
        }
        if is_open {
            end_transaction(&log, OPEN, true);
        }
        log.close().unwrap();
    }
}

#[test]
fn a_directory_of_a_later_version_is_refused() {
    match open(&load("v1/closed-later-version")) {
        Err(Error::UnknownVersion { version: 2, known: 1, .. }) => {}
        other => panic!("not refused as later: {:?}", other.map(drop)),
    }
}

// --- How the fixtures were written.

fn fill(log: &Embedded, numbers: std::ops::Range<u64>) {
    for number in numbers {
        for topic in ["plain", "packed"] {
            for partition in partitions(log, topic) {
                append(&*partition, value(number).as_bytes(), AckLevel::Synced).unwrap();
            }
        }
    }
}

/// Sends the batch `number` of an idempotent producer, whose sequence passes the largest number.
fn count(log: &Embedded, number: u64) -> Result<Appended, Error> {
    let mut builder = BatchBuilder::default();
    (0..3).for_each(|_| builder.push(&Record { value: Some(b"counted"), ..Record::default() }));
    let base_sequence = (i32::MAX - 50).wrapping_add(number as i32 * 3) & i32::MAX;
    builder.set_producer(Producer { id: 4711, epoch: 2, base_sequence });
    let (done, answer) = reply();
    let batch = builder.seal(Offset(0), Epoch(0), Compression::None);
    partitions(log, "counted")[0].append_batch(batch, AckLevel::Synced, done)?;
    answer.wait()
}

const COMMITTED: i64 = 1;
const ABORTED: i64 = 2;
const OPEN: i64 = 3;

fn send_in_transaction(log: &Embedded, partition: &dyn Partition, id: i64, base_sequence: i32) {
    let mut builder = BatchBuilder::default();
    builder.push(&Record { value: Some(b"settled"), ..Record::default() });
    builder.set_producer(Producer { id, epoch: 0, base_sequence });
    builder.set_transactional();
    let (done, answer) = reply();
    let batch = builder.seal(Offset(0), Epoch(0), Compression::None);
    log.kafka_partition(partition.id()).unwrap().append_batch(batch, AckLevel::Synced, done).unwrap();
    answer.wait().unwrap();
}

fn end_transaction(log: &Embedded, producer_id: i64, commit: bool) {
    let partitions = partitions(log, "settled").iter().map(|partition| partition.id().clone()).collect();
    let end = EndTransaction { producer_id, partitions, commit, ..EndTransaction::default() };
    let (done, answer) = reply();
    log.end_transaction(&end, AckLevel::Synced, done).unwrap();
    answer.wait().unwrap();
}

/// Offsets: a plain record, then `C`, `A`, the marker of `C`, `A`, the marker of `A`, `O`.
fn begin_transactions(log: &Embedded) {
    for partition in partitions(log, "settled") {
        append(&*partition, b"settled", AckLevel::Synced).unwrap();
        send_in_transaction(log, &*partition, COMMITTED, 0);
        send_in_transaction(log, &*partition, ABORTED, 0);
    }
    end_transaction(log, COMMITTED, true);
}

fn leave_transactions(log: &Embedded) {
    partitions(log, "settled").iter().for_each(|partition| send_in_transaction(log, &**partition, ABORTED, 1));
    end_transaction(log, ABORTED, false);
    partitions(log, "settled").iter().for_each(|partition| send_in_transaction(log, &**partition, OPEN, 0));
}

fn commit(log: &Embedded) {
    let partition = partitions(log, "plain").swap_remove(0);
    let position =
        Position { topic: partition.topic().id, epoch: partition.offsets().epoch, offset: partition.offsets().stable };
    let commit = PositionCommit {
        group: GROUP.to_owned(),
        partition: partition.id().clone(),
        position,
        metadata: String::new(),
    };
    let (done, answer) = reply();
    let append = AtomicAppend { records: Vec::new(), positions: vec![commit] };
    append_atomic(log, &append, AckLevel::Synced, done).unwrap();
    answer.wait().unwrap();
}

fn store(files: &SimFiles, fixture: &str) {
    let base = base_of(fixture);
    for (path, size) in files.files() {
        let inside = path.strip_prefix(config().dir).unwrap();
        if inside == Path::new("LOCK") {
            continue;
        }
        let mut bytes = vec![0; size as usize];
        files.open(&path).unwrap().read_at(&mut bytes, 0).unwrap();
        let is_as_in_base = base != fixture && fs::read(root().join(base).join(inside)).unwrap() == bytes;
        if !is_as_in_base {
            let to = root().join(fixture).join(inside);
            fs::create_dir_all(to.parent().unwrap()).unwrap();
            fs::write(to, bytes).unwrap();
        }
    }
}

/// Returns the configuration of the compacted topic in v3.
fn compacted() -> TopicConfig {
    TopicConfig {
        partitions: 1,
        cleanup: Cleanup::Compact,
        retention: None,
        segment_bytes: 1 << 10,
        delete_retention: Duration::from_secs(3600),
        ..TopicConfig::default()
    }
}

/// Changes of five keys in turn; the last ones are numbered from here on.
const CHANGES: u64 = 20;

fn put(log: &Embedded, key: &str, value: Option<&str>) {
    put_in(log, "state", key, value);
}

fn put_in(log: &Embedded, topic: &str, key: &str, value: Option<&str>) {
    let (done, answer) = reply();
    let record = Record { key: Some(key.as_bytes()), value: value.map(str::as_bytes), ..Record::default() };
    partitions(log, topic)[0].append(&[record], AckLevel::Synced, done).unwrap();
    answer.wait().unwrap();
}

/// Deletes a key, and lets compaction go on until nothing of it is left.
fn compact(log: &Embedded, clock: &ManualClock) {
    put(log, "gone", Some("value"));
    put(log, "gone", None);
    put(log, "lonely", Some("value"));
    let change = || (0..CHANGES + 5).for_each(|number| put(log, &format!("key-{}", number % 5), Some(&value(number))));
    let state = partitions(log, "state").swap_remove(0);
    let holds = |offset| read_all(&*state, Offset::ZERO, UpTo::Stable).unwrap()[0].offset <= Offset(offset);
    for gone in [0, 1] {
        change();
        while holds(gone) {
            log.flush().unwrap();
        }
        clock.advance(2 * Duration::from_secs(3600));
    }
}

/// Lets compaction remove one record that a tombstone hides, and leave another in a segment that lives on.
fn compact_bucket(log: &Embedded) {
    put_in(log, "bucket", "gone", Some("value"));
    put_in(log, "bucket", "image", Some(&"i".repeat(900)));
    put_in(log, "bucket", "fleeting", Some(&"f".repeat(900)));
    let bucket = partitions(log, "bucket").swap_remove(0);
    let is_there = |offset| bucket.read_one(Offset(offset), UpTo::Stable).unwrap().is_some();
    let change = || (0..CHANGES).for_each(|number| put_in(log, "bucket", "counter", Some(&value(number))));
    change();
    put_in(log, "bucket", "gone", None);
    put_in(log, "bucket", "fleeting", None);
    change();
    while is_there(2) {
        log.flush().unwrap();
    }
    assert!(is_there(0) && is_there(1));
}

/// Deleted keys are gone, and all others have their last values.
fn check_bucket(files: &SimFiles) {
    for _ in 0..2 {
        let log = open(files).unwrap();
        let partition = partitions(&log, "bucket").swap_remove(0);
        assert_eq!(partition.topic().config, bucket());
        let mut last: BTreeMap<_, _> = BTreeMap::new();
        for record in read_all(&*partition, Offset::ZERO, UpTo::Stable).unwrap() {
            last.insert(String::from_utf8(record.key.unwrap()).unwrap(), record.value.map(|value| value.len()));
        }
        let expected =
            [("counter", Some(value(CHANGES - 1).len())), ("fleeting", None), ("gone", None), ("image", Some(900))];
        assert_eq!(last, expected.map(|(key, length)| (key.to_owned(), length)).into());
        assert!(partition.read_one(Offset(0), UpTo::Stable).unwrap().is_some(), "left in a segment that lives on");
        log.close().unwrap();
    }
}

/// Makes changes that stay in the journal, on top of segments.
fn change_topics(log: &Embedded) {
    partitions(log, "short")[0].trim(Offset(6)).unwrap();
    log.add_partitions(&name("grown"), 4).unwrap();
    append(&*partitions(log, "grown")[3], b"new", AckLevel::Synced).unwrap();
}

#[test]
fn fixtures_are_written_when_asked_for() {
    if std::env::var_os("MILLSTREAM_WRITE_FIXTURES").is_none_or(|version| version != "v6") {
        return;
    }
    let (files, clock) = (SimFiles::new(), clock());
    let log = Embedded::open(config(), Arc::new(files.clone()), clock.clone(), clock.clone()).unwrap();
    create(&log, "state", &compacted());
    create(&log, "timed", &timed());
    create(&log, "bucket", &bucket());
    create(&log, "short", &topics()[0].1);
    create(&log, "grown", &topics()[0].1);
    (0..10).for_each(|number| {
        assert!(append(&*partitions(&log, "short")[0], value(number).as_bytes(), AckLevel::Synced).is_ok())
    });
    partitions(&log, "grown")
        .iter()
        .for_each(|partition| assert!(append(&**partition, b"old", AckLevel::Synced).is_ok()));
    compact(&log, &clock);
    compact_bucket(&log);
    topics().iter().for_each(|(topic, config)| drop(create(&log, topic, config)));
    create(&log, "counted", &topics()[0].1);
    create(&log, "settled", &topics()[0].1);
    begin_transactions(&log);
    fill(&log, 0..FLUSHED);
    (0..FLUSHED).for_each(|number| assert!(count(&log, number).is_ok()));
    log.flush().unwrap();
    commit(&log);
    leave_transactions(&log);
    fill(&log, FLUSHED..RECORDS);
    (FLUSHED..RECORDS).for_each(|number| assert!(count(&log, number).is_ok()));
    change_topics(&log);
    let crashed = files.kill();
    drop(log.close());
    let files = crashed.kill();
    open(&files).unwrap().close().unwrap();

    store(&files, "v6/closed");
    store(&crashed, "v6/crashed");
}
