//! Failing disks, unnamed files and missing files.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use millstream_history::{BlockChecksums, HistoryConfig, LostFile};
use millstream_log::{AckLevel, Done, File, Files, Lock, Partition, SystemFiles, UpTo};
use millstream_testkit::{MemoryLog, eventually};
use millstream_types::{BatchLimits, ManualClock, Record, TopicName, TopicPartition};

use crate::world::{NEW_YEAR_MS, World, files_below, files_have_no_copies, open_log, quiet};

/// A disk that refuses new files while it is full.
#[derive(Default)]
struct Full {
    is_full: AtomicBool,
    refused: AtomicU64,
}

impl Files for Full {
    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        SystemFiles.create_dir_all(dir)
    }
    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        SystemFiles.list(dir)
    }
    fn open(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        SystemFiles.open(path)
    }
    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        SystemFiles.create(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        if self.is_full.load(Ordering::Acquire) {
            self.refused.fetch_add(1, Ordering::AcqRel);
            return Err(io::ErrorKind::StorageFull.into());
        }
        SystemFiles.rename(from, to)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        SystemFiles.remove(path)
    }
    fn remove_dir_all(&self, dir: &Path) -> io::Result<()> {
        SystemFiles.remove_dir_all(dir)
    }
    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        SystemFiles.sync_dir(dir)
    }
    fn lock(&self, path: &Path) -> io::Result<Lock> {
        SystemFiles.lock(path)
    }
}

#[test]
fn a_full_disk_is_reported_and_once_there_is_room_every_point_is_written_once() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Arc::new(Full::default());
    let world = World::open_on(dir.path(), &quiet(), disk.clone());
    disk.is_full.store(true, Ordering::Release);
    for n in 0..10 {
        world.measure("room1", "t", &n.to_string(), NEW_YEAR_MS + n * 86_400_000);
    }
    eventually("the changes are read", || world.history.stats().points == 10);
    world.clock.advance(Duration::from_millis(86_400_000));
    eventually("the failure is seen", || !world.history.failures().is_empty());
    assert!(world.history.failures()[0].contains("writing files"), "{:?}", world.history.failures());
    assert_eq!(world.files().len(), 0, "nothing is left of what could not be finished");
    disk.is_full.store(false, Ordering::Release);
    eventually("everything is written", || world.history.stats().recent_points == 0);
    eventually("the failure is gone", || world.history.failures().is_empty());
    assert_eq!(world.history.stats().file_points, 10);
    world.close();
}

/// A log elsewhere goes on, and its disk's last bytes are for others.
#[test]
fn files_take_no_room_below_the_reserve_of_the_disk_and_are_written_once_there_is_more() {
    let dir = tempfile::tempdir().unwrap();
    let log = MemoryLog::open(Arc::new(ManualClock::default()));
    let world = World::open_with(log.clone(), dir.path(), &quiet(), Arc::new(SystemFiles));
    log.tell_free(1);
    for n in 0..10 {
        world.measure("room1", "t", &n.to_string(), NEW_YEAR_MS + n * 86_400_000);
    }
    eventually("the changes are read", || world.history.stats().points == 10);
    world.clock.advance(Duration::from_millis(86_400_000));
    eventually("the failure is seen", || !world.history.failures().is_empty());
    assert!(world.history.failures()[0].contains("1 bytes are free"), "{:?}", world.history.failures());
    assert_eq!(world.files().len(), 0);
    log.tell_free(u64::MAX);
    eventually("everything is written", || world.history.stats().file_points == 10);
    eventually("the failure is gone", || world.history.failures().is_empty());
    world.close();
}

/// A follower that waits for room rings each half second.
#[test]
fn a_full_disk_is_tried_again_after_a_pause_however_many_changes_wait() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Arc::new(Full::default());
    let config = HistoryConfig { recent_max_bytes: 1 << 20, ..quiet() };
    let world = World::open_on(dir.path(), &config, disk.clone());
    disk.is_full.store(true, Ordering::Release);
    let text = format!("\"{}\"", "x".repeat(150_000));
    for n in 0..10 {
        world.measure("room1", "t", &text, NEW_YEAR_MS + n);
    }
    let refused = || disk.refused.load(Ordering::Acquire);
    eventually("the disk has refused", || refused() > 0);
    let (begun, before) = (Instant::now(), refused());
    thread::sleep(Duration::from_secs(3));
    let (seconds, attempts) = (begun.elapsed().as_secs(), refused() - before);
    assert!(attempts <= 1 + seconds / 5, "{attempts} attempts in {seconds} s");
    disk.is_full.store(false, Ordering::Release);
    eventually("the changes are read", || world.history.stats().points == 10);
    world.clock.advance(Duration::from_millis(86_400_000));
    eventually("everything is written", || world.history.stats().file_points == 10);
    world.close();
}

/// Checks that the one warning is about this file, and that the server is ready all the same.
fn tells_of(world: &World, path: &Path, why: &str) {
    let warnings = world.history.warnings();
    let is_told = warnings.len() == 1 && warnings[0].contains(&path.display().to_string());
    assert!(is_told && warnings[0].contains(why), "{warnings:?}");
    assert_eq!(world.history.failures(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_removes_unnamed_files_and_reports_missing_ones() {
    if !files_have_no_copies() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path(), &quiet());
    world.measure("room1", "t", "1", NEW_YEAR_MS);
    world.measure("room1", "t", "2", NEW_YEAR_MS + 86_400_000);
    world.flush();
    let files = world.files();
    world.close();
    let [first, second] = &files[..] else { panic!("{files:?}") };
    std::fs::copy(first, first.with_file_name("000000000099.parquet")).unwrap();
    std::fs::write(first.with_file_name("000000000100.parquet.part"), "torn").unwrap();
    let world = World::open(dir.path(), &quiet());
    assert_eq!(world.files(), files);
    assert_eq!(world.history.failures(), Vec::<String>::new());
    world.close();
    std::fs::remove_file(second).unwrap();
    let world = World::open(dir.path(), &quiet());
    tells_of(&world, second, "is missing");
    let served = world.serve().await;
    let refused = served.get("/room1").await;
    assert!(refused.status == 500 && refused.body.contains("log repair"), "{refused:?}");
    let first_day = millstream_types::iso_time(NEW_YEAR_MS + 1);
    assert_eq!(served.get(&format!("/room1?timerel=before&timeAt={first_day}")).await.status, 200);
    served.stop().await;
    world.close();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_file_fails_the_reads_that_need_it_and_is_reported() {
    if !files_have_no_copies() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path(), &quiet());
    world.measure("room1", "t", "1", NEW_YEAR_MS);
    world.measure("room2", "t", "2", NEW_YEAR_MS + 86_400_000);
    world.flush();
    let files = world.files();
    world.close();
    let [first, _] = &files[..] else { panic!("{files:?}") };
    let mut bytes = std::fs::read(first).unwrap();
    let end = bytes.len();
    bytes[end - 200..].fill(0xff);
    std::fs::write(first, bytes).unwrap();
    let world = World::open(dir.path(), &quiet());
    let served = world.serve().await;
    assert_eq!(world.history.failures(), Vec::<String>::new(), "nobody has read it");
    assert_eq!(served.get("/room2").await.status, 200);
    let refused = served.get("/room1").await;
    assert_eq!(refused.status, 500, "{refused:?}");
    tells_of(&world, first, "");
    served.stop().await;
    world.close();
}

/// The entity has points at another time; the answer is the same before and after a flush.
#[tokio::test(flavor = "multi_thread")]
async fn an_entity_without_values_in_the_asked_time_is_answered_with_none() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path(), &quiet());
    let served = world.serve().await;
    world.measure("room1", "t", "1", NEW_YEAR_MS);
    for is_flushed in [false, true] {
        if is_flushed {
            world.flush();
        }
        for query in ["before&timeAt=2020-01-01T00:00:00Z", "after&timeAt=2030-01-01T00:00:00Z"] {
            let answer = served.get(&format!("/room1?timerel={query}")).await;
            assert_eq!(answer.status, 200, "{query}, in files: {is_flushed}: {answer:?}");
            assert_eq!(answer.json(), serde_json::json!({"id": "room1", "type": "Room"}), "{query}");
            assert_eq!(served.get(&format!("/room2?timerel={query}")).await.status, 404, "{query}");
        }
    }
    served.stop().await;
    world.close();
}

/// A damaged file serves no byte: reads say so, and the operator hears of it. `MILLSTREAM_BIT_FLIPS=100` damages a hundred
/// times.
#[tokio::test(flavor = "multi_thread")]
async fn no_damage_of_a_file_changes_an_answer_in_silence() {
    if !files_have_no_copies() {
        return;
    }
    let damages = std::env::var("MILLSTREAM_BIT_FLIPS").map_or(20, |count| count.parse().unwrap());
    let seed = std::env::var("MILLSTREAM_SEED").map_or_else(|_| fastrand::u64(..), |seed| seed.parse().unwrap());
    println!("MILLSTREAM_SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path(), &quiet());
    for n in 0..300 {
        world.measure(&format!("room{}", n % 3), "t", &format!("{n}.25"), NEW_YEAR_MS + n * 1_000);
    }
    world.flush();
    let [path] = &world.files()[..] else { panic!("one file") };
    let whole = std::fs::read(path).unwrap();
    world.close();
    for number in 0..damages {
        let mut bytes = whole.clone();
        let at = random.usize(..bytes.len());
        match random.u8(..4) {
            0 => bytes.truncate(at),
            1 => bytes[at..].fill(0),
            _ => bytes[at] ^= 1 << random.u8(..8),
        }
        if bytes == whole {
            continue;
        }
        std::fs::write(path, bytes).unwrap();
        let world = World::open(dir.path(), &quiet());
        let served = world.serve().await;
        for room in 0..3 {
            let answer = served.get(&format!("/room{room}")).await;
            assert_eq!(answer.status, 500, "damage {number} at {at}: {answer:?}");
        }
        tells_of(&world, path, "");
        // A backup compares these with what it copies.
        let held = world.history.file_holds()().list().unwrap();
        let mut copied = BlockChecksums::default();
        copied.add(&std::fs::read(path).unwrap());
        assert!(held.len() == 1 && held[0].checksums != copied.all(), "damage {number} at {at}: {held:?}");
        served.stop().await;
        world.close();
        let copy = tempfile::tempdir().unwrap();
        copy_directory(dir.path(), copy.path());
        assert_eq!(repaired(copy.path()).len(), 1, "damage {number} at {at}");
    }
    std::fs::write(path, whole).unwrap();
    let world = World::open(dir.path(), &quiet());
    let served = world.serve().await;
    assert_eq!(served.get("/room0").await.status, 200, "a file that was restored is read again");
    served.stop().await;
    world.close();
}

/// Merges leave a damaged file alone, a repair takes it out, and reads go on with the rest.
#[tokio::test(flavor = "multi_thread")]
async fn a_repair_sets_damaged_and_missing_files_aside_and_names_the_points_that_are_lost() {
    if !files_have_no_copies() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path(), &quiet());
    for n in 0..7 {
        world.measure("room1", "t", &n.to_string(), NEW_YEAR_MS + n);
        world.flush();
    }
    world.measure("room1", "t", "7", NEW_YEAR_MS + 86_400_000);
    world.flush();
    let files = world.files();
    assert_eq!(files.len(), 8);
    world.close();
    let (damaged, missing) = (&files[3], &files[7]);
    let mut bytes = std::fs::read(damaged).unwrap();
    bytes[100] ^= 4;
    std::fs::write(damaged, bytes).unwrap();
    std::fs::remove_file(missing).unwrap();
    let world = World::open(dir.path(), &quiet());
    // The eighth file of the day begins a merge.
    for n in 10..20 {
        world.measure("room1", "t", &n.to_string(), NEW_YEAR_MS + n);
        world.flush();
    }
    eventually("the others are merged", || world.history.stats().merges > 0);
    let warnings = world.history.warnings();
    let names = |path: &Path| warnings.iter().any(|warning| warning.contains(&path.display().to_string()));
    assert!(warnings.len() == 2 && names(damaged) && names(missing), "{warnings:?}");
    assert_eq!(world.history.failures(), Vec::<String>::new());
    world.close();

    let lost_files = repaired(dir.path());
    let text = lost_files.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
    assert_eq!(lost_files.len(), 2, "{text}");
    assert!(text.contains("does not match its checksum") && text.contains("the file is missing"), "{text}");
    assert!(text.contains("loses 1 points of the type Room of the tenant default, observed from 2026-01-0"), "{text}");
    assert_eq!(repaired(dir.path()), [], "a second repair finds nothing");
    assert!(!damaged.exists() && dir.path().join("history/set-aside").read_dir().unwrap().count() == 1);

    let world = World::open(dir.path(), &quiet());
    assert_eq!(world.history.warnings(), Vec::<String>::new());
    let served = world.serve().await;
    let counted = served.get("/room1?options=aggregatedValues&aggrMethods=totalCount").await.json();
    assert_eq!(counted["t"]["totalCount"], serde_json::json!([[16]]));
    served.stop().await;
    world.close();
}

/// Repairs the history in a data directory; blocks, as the command does.
fn repaired(dir: &Path) -> Vec<LostFile> {
    let repair = || {
        let log = open_log(dir);
        let files: Arc<dyn Files> = Arc::new(SystemFiles);
        let lost = millstream_history::repair(&log.log(), &dir.join("history"), &files).unwrap();
        log.close().unwrap();
        lost
    };
    std::thread::scope(|threads| threads.spawn(repair).join().unwrap())
}

fn copy_directory(from: &Path, to: &Path) {
    for path in files_below(from) {
        let copy = to.join(path.strip_prefix(from).unwrap());
        std::fs::create_dir_all(copy.parent().unwrap()).unwrap();
        std::fs::copy(&path, &copy).unwrap();
    }
}

/// The record of a file as an earlier version has written it.
#[tokio::test(flavor = "multi_thread")]
async fn a_file_of_an_earlier_version_gets_checksums_in_the_background() {
    if !files_have_no_copies() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path(), &quiet());
    world.measure("room1", "t", "1", NEW_YEAR_MS);
    world.flush();
    let files = world.files();
    world.close();
    let log = open_log(dir.path());
    for name in ["_history", "_history_copy"] {
        without_checksums(&*log.partition(&TopicPartition::new(TopicName::internal(name), 0)).unwrap());
    }
    log.close().unwrap();
    let world = World::open(dir.path(), &quiet());
    eventually("the file is rewritten", || world.history.stats().merges == 1 && world.files() != files);
    let rewritten = world.files();
    world.close();
    let mut bytes = std::fs::read(&rewritten[0]).unwrap();
    bytes[100] ^= 4;
    std::fs::write(&rewritten[0], bytes).unwrap();
    let world = World::open(dir.path(), &quiet());
    let served = world.serve().await;
    assert_eq!(served.get("/room1").await.status, 500);
    tells_of(&world, &rewritten[0], "does not match its checksum");
    served.stop().await;
    world.close();
}

/// Replaces the records of files by such without the members that came later.
fn without_checksums(partition: &dyn Partition) {
    let batches = partition.read(partition.offsets().first, 1 << 20, UpTo::Stable).unwrap();
    for batch in &batches {
        let batch = batch.inflated(&BatchLimits::default()).unwrap();
        for record in batch.records() {
            let record = record.unwrap();
            let (Some(key), Some(value)) = (record.key, record.value) else { continue };
            if !key.starts_with(b"file/") {
                continue;
            }
            let mut value: serde_json::Value = serde_json::from_slice(value).unwrap();
            for member in ["checksums", "paths", "attributes"] {
                value["file"].as_object_mut().unwrap().remove(member).unwrap();
            }
            let value = value.to_string();
            let record = Record { key: Some(key), value: Some(value.as_bytes()), ..Record::default() };
            let (answer, answered) = std::sync::mpsc::channel();
            let done = Done::call(move |appended| answer.send(appended).unwrap());
            partition.append(&[record], AckLevel::Synced, done).unwrap();
            answered.recv().unwrap().unwrap();
        }
    }
}
