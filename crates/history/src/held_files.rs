//! Files that have been replaced, and holds that keep them in place: a copy of the directory takes a while.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use millstream_log::Files;
use parking_lot::Mutex;

use crate::catalog::FileTable;
use crate::layout::EXTENSION;
use crate::state::HistoryState;

/// Removes replaced files, at once or when the last hold is gone.
pub(crate) struct ReplacedFiles {
    files: Arc<dyn Files>,
    held: Mutex<HeldBack>,
}

#[derive(Default)]
struct HeldBack {
    holds: usize,
    waiting: Vec<PathBuf>,
}

impl ReplacedFiles {
    pub(crate) fn new(files: Arc<dyn Files>) -> Arc<Self> {
        Arc::new(Self { files, held: Mutex::default() })
    }

    pub(crate) fn files(&self) -> &dyn Files {
        &*self.files
    }

    /// Removes the file at `path`, unless a hold keeps it for now.
    pub(crate) fn remove(&self, path: PathBuf) {
        let mut held = self.held.lock();
        if held.holds > 0 {
            held.waiting.push(path);
            return;
        }
        drop(held);
        self.remove_now(&path);
    }

    pub(crate) fn hold(self: &Arc<Self>, dir: &Path, state: &Arc<HistoryState>) -> HeldFiles {
        self.held.lock().holds += 1;
        HeldFiles { replaced: self.clone(), dir: dir.to_owned(), at_begin: state.files(), state: state.clone() }
    }

    fn remove_now(&self, path: &Path) {
        if let Err(error) = self.files.remove(path)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(path = %path.display(), %error, "cannot remove a history file; the next start removes it");
        }
    }
}

/// Keeps the files of history in place until it is dropped.
pub struct HeldFiles {
    replaced: Arc<ReplacedFiles>,
    dir: PathBuf,
    /// The files of the catalog when the hold began.
    at_begin: FileTable,
    state: Arc<HistoryState>,
}

impl std::fmt::Debug for HeldFiles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "HeldFiles({})", self.dir.display())
    }
}

impl Drop for HeldFiles {
    fn drop(&mut self) {
        let mut held = self.replaced.held.lock();
        held.holds -= 1;
        let free = if held.holds == 0 { std::mem::take(&mut held.waiting) } else { Vec::new() };
        drop(held);
        free.iter().for_each(|path| self.replaced.remove_now(path));
    }
}

/// A complete file of history, which never changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldFile {
    /// Its path below the directory of history.
    pub path: PathBuf,
    /// Its size.
    pub size_bytes: u64,
    /// The checksums of its blocks, as the catalog has them; empty if the catalog has none. See [`crate::BlockChecksums`].
    pub checksums: Vec<u32>,
    /// The time of its last write, in nanoseconds since 1970. After a crash another file may have its path.
    pub modified_ns: u64,
}

impl HeldFiles {
    /// Lists the complete files that exist now: all that the catalog names, and perhaps some that it has named or will
    /// name.
    ///
    /// # Errors
    /// The error of the operating system.
    pub fn list(&self) -> io::Result<Vec<HeldFile>> {
        let mut found = Vec::new();
        list(&self.dir, Path::new(""), 3, &mut found)?;
        found.sort_by(|one, other| one.path.cmp(&other.path));
        let now = self.state.files();
        let named: HashMap<&Path, &[u32]> = self
            .at_begin
            .files()
            .chain(now.files())
            .filter_map(|file| Some((file.path.strip_prefix(&self.dir).ok()?, &*file.record.checksums)))
            .collect();
        for file in &mut found {
            file.checksums = named.get(&*file.path).map(|checksums| checksums.to_vec()).unwrap_or_default();
        }
        Ok(found)
    }

    /// The directory of history.
    pub fn dir(&self) -> &Path {
        &self.dir
    }
}

fn list(dir: &Path, below: &Path, depth: usize, found: &mut Vec<HeldFile>) -> io::Result<()> {
    for entry in std::fs::read_dir(dir.join(below))? {
        let entry = entry?;
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        let path = below.join(name);
        if depth > 0 && name.contains('=') {
            list(dir, &path, depth - 1, found)?;
        } else if depth == 0 && name.ends_with(EXTENSION) {
            let metadata = match entry.metadata() {
                // It was never named.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                metadata => metadata?,
            };
            let modified = metadata.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
            let modified_ns = u64::try_from(modified.as_nanos()).unwrap_or(u64::MAX);
            found.push(HeldFile { path, size_bytes: metadata.len(), checksums: Vec::new(), modified_ns });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use millstream_log::SystemFiles;

    use super::*;

    #[test]
    fn replaced_files_stay_until_the_last_hold_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let day = dir.path().join("tenant=t/type=Room/day=2026-05-01");
        std::fs::create_dir_all(&day).unwrap();
        for name in ["000000000001.parquet", "000000000002.parquet", "000000000003.parquet.part"] {
            std::fs::write(day.join(name), name).unwrap();
        }
        let replaced = ReplacedFiles::new(Arc::new(SystemFiles));
        let state = Arc::new(HistoryState::new(FileTable::default()));
        let (one, other) = (replaced.hold(dir.path(), &state), replaced.hold(dir.path(), &state));
        replaced.remove(day.join("000000000001.parquet"));
        drop(one);
        let names: Vec<_> =
            other.list().unwrap().into_iter().map(|file| file.path.file_name().unwrap().to_owned()).collect();
        assert_eq!(names, ["000000000001.parquet", "000000000002.parquet"]);
        drop(other);
        assert!(!day.join("000000000001.parquet").exists());
        replaced.remove(day.join("000000000002.parquet"));
        assert!(!day.join("000000000002.parquet").exists(), "nothing is held any more");
    }
}
