//! A flipped bit in a sealed segment: reads of its keys tell the place, other keys are served, and the removal of
//! expired keys goes on around it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use millstream_log::{AckLevel, Files};
use millstream_store::Value;
use millstream_testkit::sim::SimFiles;
use millstream_testkit::small_log::new_disk;
use millstream_types::WallClock as _;

use crate::world::{Wall, World};

const KEYS: usize = 200;

fn key(number: usize) -> Vec<u8> {
    format!("key-{number}").into_bytes()
}

fn value(number: usize) -> Vec<u8> {
    format!("value of {number} {}", "x".repeat(200)).into_bytes()
}

/// The first bit of these bytes in a sealed segment, if it has them.
fn place(files: &SimFiles, path: &Path, bytes: &[u8]) -> Option<u64> {
    let file = files.open(path).unwrap();
    let mut all = vec![0; file.size().unwrap() as usize];
    file.read_at(&mut all, 0).unwrap();
    all.windows(bytes.len()).position(|window| window == bytes).map(|at| at as u64 * 8)
}

#[test]
fn a_flipped_bit_is_told_with_its_place_and_everything_else_goes_on() {
    let (files, wall, dir) = (new_disk(), Arc::new(Wall::default()), tempfile::tempdir().unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let world = World::open(&files, dir.path(), &wall).unwrap();
    let expires_ms = wall.now_ms() + 1_000;
    for number in 0..KEYS {
        let expires_ms = (number % 2 == 0).then_some(expires_ms);
        let value = Value { bytes: value(number).into(), expires_ms, attributes: None };
        runtime.block_on(world.bucket.put(&key(number), value, Some(AckLevel::Synced))).unwrap();
    }
    let partition = world.bucket.partition_of(&key(1));
    world.end();

    let segments = files.files().into_iter().map(|(path, _)| path);
    let segments: Vec<PathBuf> = segments.filter(|path| path.extension().is_some_and(|is| is == "segment")).collect();
    // A key that stays and one that expires.
    let paths = [1, 0].map(|number| {
        let found = segments.iter().find_map(|path| Some((path, place(&files, path, &value(number))?)));
        let (path, bit) = found.expect("the value is in a segment");
        assert!(segments.iter().any(|other| other > path && other.parent() == path.parent()), "which is sealed");
        files.flip_bit(path, bit).unwrap();
        path
    });

    let world = World::open(&files, dir.path(), &wall).unwrap();
    let read = |number: usize| runtime.block_on(world.bucket.read(&key(number)));
    let told = read(1).unwrap_err().to_string();
    for part in [&*paths[0].display().to_string(), &format!("kv.things.default/{partition}, offset ")] {
        assert!(told.contains(part), "{part} in {told}");
    }
    let served = (0..KEYS).filter(|number| read(*number).is_ok_and(|found| found.is_some())).count();
    // A segment has 4 KiB, some fifteen of these values.
    assert!((KEYS - 40..KEYS - 1).contains(&served), "{served} keys are served");

    wall.jump(2_000);
    let mut removed = 0;
    for turn in 0..world.bucket.expiry_turns() {
        removed += runtime.block_on(world.bucket.remove_expired(turn, KEYS)).unwrap();
    }
    assert!((KEYS / 2 - 40..KEYS / 2).contains(&removed), "{removed} are removed, all but those that cannot be read");
    assert_eq!(world.bucket.totals().keys, (KEYS - removed) as u64);
    assert!((0..KEYS).step_by(2).all(|number| read(number).unwrap().is_none()), "all of them are gone");
    world.end();
}
