//! Failing disks, unnamed files and missing files.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use millstream_log::{File, Files, Lock, SystemFiles};

use crate::world::{NEW_YEAR_MS, World, quiet, wait_until};

/// A disk that refuses new files while it is full.
#[derive(Default)]
struct Full(AtomicBool);

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
        match self.0.load(Ordering::Acquire) {
            true => Err(io::ErrorKind::StorageFull.into()),
            false => SystemFiles.rename(from, to),
        }
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
    disk.0.store(true, Ordering::Release);
    for n in 0..10 {
        world.measure("room1", "t", &n.to_string(), NEW_YEAR_MS + n * 86_400_000);
    }
    wait_until("the changes are read", || world.history.stats().points == 10);
    world.clock.advance(std::time::Duration::from_millis(86_400_000));
    wait_until("the failure is seen", || !world.history.failures().is_empty());
    assert!(world.history.failures()[0].contains("writing files"), "{:?}", world.history.failures());
    assert_eq!(world.files().len(), 0, "nothing is left of what could not be finished");
    disk.0.store(false, Ordering::Release);
    wait_until("everything is written", || world.history.stats().recent_points == 0);
    wait_until("the failure is gone", || world.history.failures().is_empty());
    assert_eq!(world.history.stats().file_points, 10);
    world.close();
}

#[test]
fn a_start_removes_unnamed_files_and_reports_missing_ones() {
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
    let failures = world.history.failures();
    assert!(failures.len() == 1 && failures[0].contains(&second.display().to_string()), "{failures:?}");
    assert_eq!(world.history.stats().file_points, 1);
    world.close();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_file_fails_the_reads_that_need_it_and_is_reported() {
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
    let failures = world.history.failures();
    assert!(failures.len() == 1 && failures[0].contains(&first.display().to_string()), "{failures:?}");
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
        let failures = world.history.failures();
        assert!(failures.len() == 1 && failures[0].contains(&path.display().to_string()), "{failures:?}");
        served.stop().await;
        world.close();
    }
    std::fs::write(path, whole).unwrap();
    let world = World::open(dir.path(), &quiet());
    let served = world.serve().await;
    assert_eq!(served.get("/room0").await.status, 200, "a file that was restored is read again");
    served.stop().await;
    world.close();
}
