//! A checkpoint so large that it has tables on disk, and what happens when these are damaged.

use std::fs;
use std::path::{Path, PathBuf};

use millstream_testkit::sim::Rng;

use crate::common::{Command, World, submit, whole};

const NAMES: usize = 40_000;

fn name(number: usize) -> String {
    format!("part-{number}-{}", "x".repeat(2_000))
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}

fn copy_dir(from: &Path, to: &Path) {
    for file in files(from) {
        let target = to.join(file.strip_prefix(from).unwrap());
        fs::create_dir_all(target.parent().unwrap()).unwrap();
        fs::copy(file, target).unwrap();
    }
}

#[test]
fn damaged_tables_of_a_checkpoint_cost_a_rebuild_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path());
    let views = world.shelf();
    let numbers: Vec<usize> = (0..NAMES).collect();
    for numbers in numbers.chunks(2_000) {
        let add = |n: &usize| submit(&views, Command::Add { name: name(*n), pieces: *n as i64 }).unwrap();
        let answers: Vec<_> = numbers.iter().map(add).collect();
        answers.into_iter().for_each(|answer| assert!(answer.blocking_recv().unwrap().is_ok()));
    }
    let expected = whole(&views);
    world.close(views);
    let (store, copy) = (dir.path().join("views"), dir.path().join("copy"));
    copy_dir(&store, &copy);
    let tables: Vec<_> = files(&copy).into_iter().filter(|file| file.to_string_lossy().contains("tables")).collect();
    let large = |file: &&PathBuf| fs::metadata(file).unwrap().len() > 1 << 20;
    assert!(tables.iter().any(|file| large(&file)), "the store has large tables: {tables:?}");

    let mut rng = Rng::new(7);
    for round in 0..4 {
        fs::remove_dir_all(&store).unwrap();
        copy_dir(&copy, &store);
        let damaged = tables.iter().filter(large).collect::<Vec<_>>()[round % tables.iter().filter(large).count()];
        let damaged = store.join(damaged.strip_prefix(&copy).unwrap());
        let mut bytes = fs::read(&damaged).unwrap();
        if round % 2 == 0 {
            let at = rng.below(bytes.len() as u64) as usize;
            bytes[at] ^= 1 << rng.below(8);
        } else {
            bytes.truncate(rng.below(bytes.len() as u64) as usize);
        }
        fs::write(&damaged, bytes).unwrap();
        for start in 0..2 {
            let world = World::open(dir.path());
            let views = world.shelf();
            assert!(whole(&views) == expected, "round {round}, start {start}, {}", damaged.display());
            world.close(views);
        }
    }
}
