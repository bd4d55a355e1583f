//! Disks that refuse, files that nobody names, files that are gone.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use millstream_log::{File, Files, Lock, SystemFiles};

use crate::world::{NEW_YEAR_MS, World, quiet, wait_until};

/// A disk that makes no new files while it is full.
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
fn a_start_removes_what_nobody_names_and_reports_what_is_missing() {
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
