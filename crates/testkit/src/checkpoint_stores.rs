//! Copies of the checkpoint store, and what a crash puts in its place.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::sim::Rng;

/// Copies that are kept; the oldest make room.
const COPIES_MAX: usize = 6;

/// The state of the checkpoint store that a start finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CheckpointState {
    /// The newest copy.
    Newest,
    /// Any copy.
    Older,
    /// A copy with some of its files cut.
    Torn,
    /// The newest copy with some files of another.
    Mixed,
    /// A copy with random bytes in some of its files.
    Garbage,
    /// No store.
    Nothing,
}

/// The store in use and copies of it, oldest first, all of one history of the log.
#[derive(Debug)]
pub struct CheckpointStores {
    dir: TempDir,
    copies: Vec<PathBuf>,
    made: u64,
}

impl CheckpointStores {
    /// No store and no copies yet.
    pub fn empty() -> Self {
        Self { dir: tempfile::tempdir().unwrap(), copies: Vec::new(), made: 0 }
    }

    /// Returns the path of the store in use.
    pub fn path(&self) -> PathBuf {
        self.dir.path().join("views")
    }

    /// Keeps a copy of the store as it is, even if somebody is writing to it.
    pub fn keep_copy(&mut self) {
        let copy = self.dir.path().join(format!("copy-{}", self.made));
        self.made += 1;
        copy_dir(&self.path(), &copy);
        self.copies.push(copy);
        if self.copies.len() > COPIES_MAX {
            fs::remove_dir_all(self.copies.remove(0)).unwrap();
        }
    }

    /// Replaces the store in use and returns what is there now.
    pub fn replace(&self, rng: &mut Rng) -> CheckpointState {
        let kinds = [
            CheckpointState::Newest,
            CheckpointState::Older,
            CheckpointState::Torn,
            CheckpointState::Mixed,
            CheckpointState::Garbage,
            CheckpointState::Nothing,
        ];
        let found = *rng.pick(&kinds).unwrap();
        let Some(newest) = self.copies.last() else { return CheckpointState::Newest };
        let older = rng.pick(&self.copies).unwrap().clone();
        drop(fs::remove_dir_all(self.path()));
        match found {
            CheckpointState::Newest => copy_dir(newest, &self.path()),
            CheckpointState::Older => copy_dir(&older, &self.path()),
            CheckpointState::Torn => {
                copy_dir(&older, &self.path());
                for file in files(&self.path()) {
                    if rng.chance(50) {
                        let size = fs::metadata(&file).unwrap().len();
                        resize(&file, rng.below(size + 1));
                    }
                }
            }
            CheckpointState::Mixed => {
                copy_dir(newest, &self.path());
                for file in files(&older) {
                    let target = self.path().join(file.strip_prefix(&older).unwrap());
                    if rng.chance(50) && target.parent().is_some_and(Path::exists) {
                        fs::copy(file, target).unwrap();
                    }
                }
            }
            CheckpointState::Garbage => {
                copy_dir(&older, &self.path());
                let all = files(&self.path());
                for _ in 0..=rng.below(3) {
                    let Some(file) = rng.pick(&all) else { continue };
                    overwrite(file, rng);
                }
            }
            CheckpointState::Nothing => {}
        }
        found
    }
}

fn resize(file: &Path, size: u64) {
    fs::OpenOptions::new().write(true).open(file).unwrap().set_len(size).unwrap();
}

/// Writes random bytes over some of a file's own.
fn overwrite(file: &Path, rng: &mut Rng) {
    let mut bytes = fs::read(file).unwrap();
    // Files may be reserved ahead; what was written stands at their beginning.
    let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last as u64 + 1);
    let from = rng.below(used) as usize;
    let length = (1 + rng.below(64) as usize).min(bytes.len() - from);
    bytes[from..from + length].iter_mut().for_each(|byte| *byte = rng.bits() as u8);
    fs::write(file, bytes).unwrap();
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}

/// Copies what is there; files may come and go meanwhile.
fn copy_dir(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).into_iter().flatten().flatten() {
        let target = to.join(entry.file_name());
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => copy_dir(&entry.path(), &target),
            Ok(_) => drop(fs::copy(entry.path(), target)),
            Err(_) => {}
        }
    }
}
