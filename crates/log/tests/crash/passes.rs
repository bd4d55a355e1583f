//! At which steps of a pass of compaction a life has ended, seen from the files that were there and those that a restart
//! has left.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use millstream_testkit::sim::SimFiles;

/// Ends within a pass.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Cuts {
    /// Something was written that `meta` did not name yet.
    pub(crate) before_meta: u64,
    /// `meta` named it, and not all that it replaces was removed.
    pub(crate) after_meta: u64,
}

impl Cuts {
    pub(crate) fn add(&mut self, other: Self) {
        self.before_meta += other.before_meta;
        self.after_meta += other.after_meta;
    }
}

/// A segment's file: its directory, first offset, and how often compaction has replaced what begins there.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct SegmentFile {
    dir: PathBuf,
    base: u64,
    generation: u64,
}

impl SegmentFile {
    fn of(path: &Path) -> Option<Self> {
        let stem = path.file_name()?.to_str()?.strip_suffix(".segment")?;
        let (base, generation) = stem.split_once('-').unwrap_or((stem, "0"));
        Some(Self { dir: path.parent()?.to_owned(), base: base.parse().ok()?, generation: generation.parse().ok()? })
    }

    /// Returns `true` if it may hold what `other` held.
    fn may_replace(&self, other: &Self) -> bool {
        self.dir == other.dir && self.base <= other.base && self.generation > other.generation
    }
}

pub(crate) fn is_written_by_a_pass(path: &Path) -> bool {
    SegmentFile::of(path).is_some_and(|file| file.generation > 0)
}

/// The segments on a disk.
#[derive(Debug, Default)]
pub(crate) struct Segments(HashSet<SegmentFile>);

impl Segments {
    pub(crate) fn on(files: &SimFiles) -> Self {
        Self(files.files().iter().filter_map(|(path, _)| SegmentFile::of(path)).collect())
    }

    /// Counts the passes that the end of the life cut short, given the files that the next start has kept: at most
    /// one pass is under way.
    pub(crate) fn cuts(&self, kept: &Self) -> Cuts {
        let removed: Vec<_> = self.0.iter().filter(|file| !kept.0.contains(file)).collect();
        let replaced = |file: &&&SegmentFile| kept.0.iter().any(|by| by.may_replace(file) && self.0.contains(by));
        let after_meta = removed.iter().filter(replaced).count();
        let written = removed.iter().filter(|file| file.generation > 0 && !replaced(file)).count();
        Cuts { before_meta: u64::from(written > 0), after_meta: u64::from(after_meta > 0) }
    }
}
