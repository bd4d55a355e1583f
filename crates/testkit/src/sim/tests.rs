use super::*;

const DIR: &str = "/data";

fn disk() -> SimFiles {
    let files = SimFiles::new();
    files.create_dir_all(Path::new(DIR)).unwrap();
    files.sync_dir(Path::new("/")).unwrap();
    files
}

fn path(name: &str) -> PathBuf {
    Path::new(DIR).join(name)
}

fn write(files: &SimFiles, name: &str, bytes: &[u8]) -> Arc<dyn File> {
    let file = files.create(&path(name)).unwrap();
    file.write_at(&[IoSlice::new(bytes)], 0).unwrap();
    file
}

fn write_durably(files: &SimFiles, name: &str, bytes: &[u8]) -> Arc<dyn File> {
    let file = write(files, name, bytes);
    file.sync().unwrap();
    files.sync_dir(Path::new(DIR)).unwrap();
    file
}

fn contents(files: &SimFiles, name: &str) -> Option<Vec<u8>> {
    let file = files.open(&path(name)).ok()?;
    let mut bytes = vec![0; file.size().unwrap() as usize];
    assert_eq!(file.read_at(&mut bytes, 0).unwrap(), bytes.len());
    Some(bytes)
}

#[test]
fn a_crash_drops_unsynced_writes() {
    let files = disk();
    let file = write_durably(&files, "a", b"old old old");
    file.write_at(&[IoSlice::new(b"new")], 4).unwrap();
    write(&files, "b", b"never named").sync().unwrap();
    assert_eq!(contents(&files, "a").unwrap(), b"old new old");

    let after = files.crash(1, PowerLoss::DropAll);
    assert_eq!(contents(&after, "a").unwrap(), b"old old old");
    assert_eq!(contents(&after, "b"), None);
    assert!(file.write_at(&[IoSlice::new(b"late")], 0).is_err(), "nothing is written after the power has gone");
}

#[test]
fn renaming_and_removing_last_once_the_directory_is_synced() {
    let files = disk();
    write_durably(&files, "meta", b"one");
    write(&files, "meta.new", b"two").sync().unwrap();
    files.rename(&path("meta.new"), &path("meta")).unwrap();
    assert_eq!(contents(&files.crash(1, PowerLoss::DropAll), "meta").unwrap(), b"one");

    let files = files.kill();
    files.sync_dir(Path::new(DIR)).unwrap();
    files.remove(&path("meta")).unwrap();
    assert_eq!(files.list(Path::new(DIR)).unwrap(), Vec::<String>::new());
    assert_eq!(contents(&files.crash(1, PowerLoss::DropAll), "meta").unwrap(), b"two");
}

#[test]
fn a_torn_write_leaves_old_and_new_bytes_and_nothing_else() {
    let mut seen_part = false;
    for seed in 0..200 {
        let files = disk();
        let file = write_durably(&files, "a", &[1; 2048]);
        file.write_at(&[IoSlice::new(&[2; 1500])], 100).unwrap();
        file.write_at(&[IoSlice::new(&[3; 700])], 1800).unwrap();
        let after = contents(&files.crash(seed, PowerLoss::Torn), "a").unwrap();
        for (at, byte) in (0..).zip(&after) {
            let legal: &[u8] = match at {
                100..1600 => &[1, 2],
                1800..2048 => &[1, 3],
                2048..2500 => &[0, 3],
                _ => &[1],
            };
            assert!(legal.contains(byte), "seed {seed}: byte {at} is {byte}");
        }
        assert!(after.len() == 2048 || (2048..=2500).contains(&after.len()));
        seen_part |= after.contains(&2) && after[100..1600].contains(&1);
    }
    assert!(seen_part, "no write was ever torn");
}

#[test]
fn the_operation_at_which_the_power_goes_fails_and_all_later_ones_do() {
    let files = disk();
    let file = write_durably(&files, "a", b"safe");
    files.crash_after(2);
    file.write_at(&[IoSlice::new(b"x")], 0).unwrap();
    assert!(file.sync().is_err());
    assert!(files.is_off() && file.set_size(0).is_err() && files.sync_dir(Path::new(DIR)).is_err());
    assert_eq!(contents(&files.crash(7, PowerLoss::DropAll), "a").unwrap(), b"safe");
}

#[test]
fn a_killed_process_leaves_all_that_it_wrote_and_power_may_still_be_lost() {
    let files = disk();
    let file = write_durably(&files, "a", b"one");
    file.write_at(&[IoSlice::new(b"two")], 0).unwrap();
    let next = files.kill();
    assert_eq!(contents(&next, "a").unwrap(), b"two");
    assert_eq!(contents(&next.crash(3, PowerLoss::DropAll), "a").unwrap(), b"one");
}

#[test]
fn a_failed_sync_forgets_the_changes_and_the_next_one_succeeds_without_them() {
    let files = disk();
    let file = write_durably(&files, "a", b"one");
    file.write_at(&[IoSlice::new(b"two")], 0).unwrap();
    files.fail_next_sync();
    assert!(file.sync().is_err());
    file.sync().unwrap();
    assert_eq!(contents(&files, "a").unwrap(), b"two");
    assert_eq!(contents(&files.crash(1, PowerLoss::DropAll), "a").unwrap(), b"one");
}

#[test]
fn a_full_disk_cuts_the_write_that_does_not_fit_and_lets_files_be_overwritten() {
    let files = disk();
    let file = write_durably(&files, "a", b"1234");
    files.disk_full_after(2);
    let refusal = file.write_at(&[IoSlice::new(b"5678")], 4).unwrap_err();
    assert_eq!(refusal.kind(), io::ErrorKind::StorageFull);
    file.write_at(&[IoSlice::new(b"abcd")], 0).unwrap();
    assert_eq!(contents(&files, "a").unwrap(), b"abcd56");
}

#[test]
fn a_removed_directory_takes_everything_in_it() {
    let files = disk();
    files.create_dir_all(&path("t/0")).unwrap();
    write(&files, "t/0/segment", b"x");
    files.remove_dir_all(&path("t")).unwrap();
    assert_eq!(files.files(), []);
    assert!(files.open(&path("t/0/segment")).is_err());
}

#[test]
fn reads_are_counted_and_bits_flip() {
    let files = disk();
    write_durably(&files, "a", &[0; 16]);
    files.flip_bit(&path("a"), 17).unwrap();
    let mut byte = [0];
    assert_eq!(files.open(&path("a")).unwrap().read_at(&mut byte, 2).unwrap(), 1);
    assert_eq!((byte[0], files.bytes_read()), (2, 1));
    assert_eq!(contents(&files.crash(0, PowerLoss::DropAll), "a").unwrap()[2], 2);
}

#[test]
fn a_lock_has_one_holder_until_it_is_dropped_or_the_process_dies() {
    let files = disk();
    let lock = |files: &SimFiles| files.lock(&path("LOCK")).unwrap();
    let first = lock(&files);
    assert!(matches!((&first, lock(&files)), (Lock::Held(_), Lock::Taken { .. })));
    drop(first);
    let second = lock(&files);
    assert!(matches!((&second, lock(&files.kill())), (Lock::Held(_), Lock::Held(_))));
}
