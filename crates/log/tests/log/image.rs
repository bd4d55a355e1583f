//! An image that is copied while the log is written, compacted and trimmed starts as the log was at one moment.

use std::io::IoSlice;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use millstream_log::{
    AckLevel, AtomicAppend, Embedded, Error, Files, Log, LogImage, Partition, PositionCommit, StoredImage, TopicConfig,
    UpTo, reply,
};
use millstream_testkit::conformance::{ReadRecord, read_all};
use millstream_testkit::eventually;
use millstream_testkit::sim::SimFiles;
use millstream_types::{Offset, Position, Record, TopicPartition};
use parking_lot::Mutex;

use crate::support::compaction::{compacted, state};
use crate::support::{append, append_atomic, clock, create, name, new_disk, open, partitions, small_config};

const GROUP: &str = "copier";
/// The rest of a writer between its appends: a copy must get ahead of the writers.
const PACE: Duration = Duration::from_millis(1);
/// Files after which a copy rests.
const FILES_AT_ONCE: usize = 20;

/// Answers that the writers have had.
#[derive(Default)]
struct Acknowledged {
    /// Offsets and values of the topic `plain`.
    plain: Mutex<Vec<(Offset, String)>>,
    /// The offset in `source` up to which `out` has a copy of each record.
    copied: Mutex<u64>,
    /// The last version of the key `k` in `state`.
    version: Mutex<u64>,
    is_over: AtomicBool,
}

impl Acknowledged {
    fn goes_on(&self) -> bool {
        !self.is_over.load(Ordering::Acquire)
    }

    /// Waits until `state` has so many more versions.
    fn until_written(&self, versions: u64) {
        let wanted = *self.version.lock() + versions;
        eventually("the writers go on", || *self.version.lock() >= wanted);
    }
}

/// Ends the writers, also when an assertion fails.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

fn write_plain(log: &Embedded, acknowledged: &Acknowledged) {
    let _ending = Ending(&acknowledged.is_over);
    let plain = partitions(log, "plain").swap_remove(0);
    for number in 0.. {
        if !acknowledged.goes_on() {
            return;
        }
        thread::sleep(PACE);
        let value = format!("{number} {}", "x".repeat(200));
        let appended = append(&*plain, value.as_bytes(), AckLevel::Written).unwrap();
        acknowledged.plain.lock().push((appended.first, value));
    }
}

/// Copies each record of `source` to both partitions of `out` and commits its position, in one append.
fn copy_source(log: &Embedded, acknowledged: &Acknowledged) {
    let _ending = Ending(&acknowledged.is_over);
    let source = partitions(log, "source").swap_remove(0);
    while acknowledged.goes_on() {
        thread::sleep(PACE);
        let appended = append(&*source, b"a record", AckLevel::Synced).unwrap();
        let value = appended.first.0.to_string();
        let record = Record { value: Some(value.as_bytes()), ..Record::default() };
        let offset = appended.first.next();
        let position = Position { topic: source.topic().id, epoch: appended.epoch, offset };
        let (done, answer) = reply();
        let copy = AtomicAppend {
            records: (0..2).map(|number| (TopicPartition::new(name("out"), number), vec![record])).collect(),
            positions: vec![PositionCommit {
                group: GROUP.to_owned(),
                partition: source.id().clone(),
                position,
                metadata: String::new(),
            }],
        };
        append_atomic(log, &copy, AckLevel::Synced, done).unwrap();
        answer.wait().unwrap();
        *acknowledged.copied.lock() = offset.0;
    }
}

/// Writes new versions of one key among others, so that compaction always has work.
fn write_state(log: &Embedded, acknowledged: &Acknowledged) {
    let _ending = Ending(&acknowledged.is_over);
    let state = partitions(log, "state").swap_remove(0);
    for version in 1_u64.. {
        if !acknowledged.goes_on() {
            return;
        }
        thread::sleep(PACE);
        let value = format!("{version} {}", "y".repeat(200));
        for key in ["k", "other", "third"] {
            let (done, answer) = reply();
            let record = Record { key: Some(key.as_bytes()), value: Some(value.as_bytes()), ..Record::default() };
            state.append(&[record], AckLevel::Synced, done).unwrap();
            answer.wait().unwrap();
        }
        *acknowledged.version.lock() = version;
    }
}

fn write_file(disk: &SimFiles, path: &Path, bytes: &[u8]) {
    disk.create_dir_all(path.parent().unwrap()).unwrap();
    disk.create(path).unwrap().write_at(&[IoSlice::new(bytes)], 0).unwrap();
}

/// Copies an image piece by piece, and now and then waits until `rest` returns.
fn copy(image: &LogImage, rest: impl Fn()) -> SimFiles {
    let disk = new_disk();
    for (number, file) in image.files().iter().enumerate() {
        let mut bytes = Vec::new();
        while (bytes.len() as u64) < file.size_bytes {
            bytes.extend_from_slice(&image.read(file, bytes.len() as u64, 3000).unwrap());
        }
        write_file(&disk, &small_config().dir.join(&file.path), &bytes);
        if number % FILES_AT_ONCE == 0 {
            rest();
        }
    }
    disk
}

fn all(partition: &dyn Partition) -> Vec<ReadRecord> {
    read_all(partition, partition.offsets().first, UpTo::Stable).unwrap()
}

fn value(record: &ReadRecord) -> String {
    String::from_utf8(record.value.clone().unwrap()).unwrap()
}

fn open_copy(disk: &SimFiles) -> Arc<Embedded> {
    let clock = clock();
    Embedded::open_copy(small_config(), Arc::new(disk.clone()), clock.clone(), clock).unwrap()
}

/// A log with the topics of the writers.
fn new_log(disk: &SimFiles) -> Arc<Embedded> {
    let log = open(disk, &clock()).unwrap();
    let one = TopicConfig { partitions: 1, segment_bytes: 4 << 10, retention: None, ..TopicConfig::default() };
    create(&log, "plain", &TopicConfig { retention_bytes: Some(64 << 10), ..one.clone() });
    create(&log, "source", &one);
    create(&log, "out", &TopicConfig { partitions: 2, ..one });
    create(&log, "state", &compacted());
    log
}

#[test]
fn an_image_that_is_copied_under_load_starts_as_one_moment_with_all_that_was_acknowledged_before() {
    let log = new_log(&new_disk());
    let acknowledged = Acknowledged::default();
    thread::scope(|threads| {
        let _ending = Ending(&acknowledged.is_over);
        threads.spawn(|| write_plain(&log, &acknowledged));
        threads.spawn(|| copy_source(&log, &acknowledged));
        threads.spawn(|| write_state(&log, &acknowledged));
        for round in 0..6 {
            // The log closes, expires and compacts segments between the images and while each of them is copied.
            acknowledged.until_written(5 * round);
            let plain = acknowledged.plain.lock().clone();
            let (copied, version) = (*acknowledged.copied.lock(), *acknowledged.version.lock());
            let image = log.image().unwrap();
            let disk = copy(&image, || acknowledged.until_written(3));
            drop(image);
            let log = open_copy(&disk);

            let found = partitions(&log, "plain").swap_remove(0);
            let first = found.offsets().first;
            let stored: std::collections::BTreeMap<Offset, String> =
                all(&*found).iter().map(|record| (record.offset, value(record))).collect();
            for (offset, value) in plain.iter().filter(|(offset, _)| *offset >= first) {
                assert_eq!(stored.get(offset), Some(value), "round {round}, offset {offset}");
            }

            let out = partitions(&log, "out").iter().map(|partition| all(&**partition)).collect::<Vec<_>>();
            let values: Vec<Vec<String>> = out.iter().map(|records| records.iter().map(value).collect()).collect();
            assert_eq!(values[0], values[1], "round {round}: an atomic append is whole or absent");
            let source = partitions(&log, "source").swap_remove(0);
            let committed = log.committed(GROUP, source.id()).unwrap();
            let expected = values[0].last().map_or(0, |last| last.parse::<u64>().unwrap() + 1);
            assert_eq!(committed.map_or(0, |position| position.offset.0), expected, "round {round}");
            assert!(expected >= copied, "round {round}: {expected} of {copied} acknowledged");
            if let Some(position) = committed {
                assert_eq!(source.resume(position).unwrap(), position.offset);
                assert!(source.offsets().stable >= position.offset);
            }

            let kept = state(&all(&*partitions(&log, "state").swap_remove(0)));
            let found = kept.get(&b"k"[..]).map_or(0, |value| {
                let text = String::from_utf8(value.clone()).unwrap();
                text.split(' ').next().unwrap().parse().unwrap()
            });
            assert!(found >= version, "round {round}: version {found} of {version}");
            log.close().unwrap();
        }
    });
    log.close().unwrap();
}

#[test]
fn files_of_an_image_stay_until_it_is_dropped_though_they_are_compacted_away_or_their_topic_is_deleted() {
    let disk = new_disk();
    let log = new_log(&disk);
    let gone = create(&log, "gone", &TopicConfig::default()).swap_remove(0);
    append(&*gone, b"a record", AckLevel::Synced).unwrap();
    let acknowledged = Acknowledged::default();
    let segments = |disk: &SimFiles| -> Vec<_> {
        let files = disk.files().into_iter().map(|(path, _)| path);
        files.filter(|path| path.extension().is_some_and(|extension| extension == "segment")).collect()
    };
    thread::scope(|threads| {
        let _ending = Ending(&acknowledged.is_over);
        threads.spawn(|| write_state(&log, &acknowledged));
        acknowledged.until_written(50);
        let image = log.image().unwrap();
        log.delete_topic(&name("gone")).unwrap();
        acknowledged.until_written(200);
        let copied = copy(&image, || {});
        acknowledged.is_over.store(true, Ordering::Release);
        let held = segments(&disk);
        let copied_paths = segments(&copied);
        assert!(copied_paths.iter().all(|path| held.contains(path)));
        let copy = open_copy(&copied);
        assert_eq!(all(&*partitions(&copy, "gone").swap_remove(0)).len(), 1);
        copy.close().unwrap();
        drop(image);
        let is_gone = || copied_paths.iter().any(|path| !segments(&disk).contains(path));
        for _ in 0..10_000 {
            if is_gone() {
                break;
            }
            log.flush().unwrap();
        }
        assert!(is_gone(), "what the image held is removed afterwards");
    });
    log.close().unwrap();
}

#[test]
fn a_copy_is_a_log_of_its_own_that_refuses_positions_beyond_it() {
    let log = new_log(&new_disk());
    let source = partitions(&log, "source").swap_remove(0);
    append(&*source, b"before", AckLevel::Synced).unwrap();
    let image = log.image().unwrap();
    let disk = copy(&image, || {});
    let after = append(&*source, b"after", AckLevel::Synced).unwrap();
    let copy = open_copy(&disk);
    let copied = partitions(&copy, "source").swap_remove(0);
    let beyond = Position { topic: source.topic().id, epoch: after.epoch, offset: after.last.next() };
    assert!(matches!(copied.resume(beyond), Err(Error::PositionLost { .. })), "{:?}", copied.resume(beyond));
    let within = Position { offset: after.first, ..beyond };
    assert_eq!(copied.resume(within).unwrap(), after.first);
    let new = append(&*copied, b"other", AckLevel::Synced).unwrap();
    assert!(new.first > after.last && new.epoch.0 > log.epoch().0 + 1_000, "{new:?}");
    assert_ne!(copy.image().unwrap().salt(), image.salt());
    copy.close().unwrap();
    log.close().unwrap();
}

#[test]
fn a_changed_bit_in_a_copy_is_found_and_told_with_what_it_holds() {
    let log = new_log(&new_disk());
    let plain = partitions(&log, "plain").swap_remove(0);
    for _ in 0..20 {
        append(&*plain, &[b'x'; 1000], AckLevel::Synced).unwrap();
    }
    log.flush().unwrap();
    append(&*plain, b"in the journal", AckLevel::Synced).unwrap();
    let disk = copy(&log.image().unwrap(), || {});
    log.close().unwrap();
    let dir = small_config().dir;
    let read = |disk: &SimFiles| StoredImage::read(disk, &dir.join(StoredImage::meta_path()));
    let image = read(&disk).unwrap();
    assert!(image.check_journal(&disk, &dir.join(StoredImage::journal_path())).is_ok());
    let segments: Vec<_> = image.segments().collect();
    assert!(segments.len() > 3);
    for segment in &segments {
        let path = dir.join(&segment.path);
        assert_eq!(image.check_segment(&disk, segment, &path).unwrap(), None);
        for byte in (0..segment.size_bytes).step_by(41) {
            disk.flip_bit(&path, byte * 8 + 3).unwrap();
            let damage = image.check_segment(&disk, segment, &path).unwrap().unwrap();
            // The blocks' and file's headers end with zeros that their checksum covers, too.
            assert!(damage.at <= byte && damage.loses.contains("of topic 'plain', partition 0"), "{byte}: {damage}");
            disk.flip_bit(&path, byte * 8 + 3).unwrap();
        }
    }
    disk.flip_bit(&dir.join(StoredImage::meta_path()), 2000).unwrap();
    assert!(matches!(read(&disk), Err(Error::CorruptFile { .. })));
}
