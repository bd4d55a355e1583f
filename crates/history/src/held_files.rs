//! The files of history, kept in place and listed: a copy of the directory takes a while.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use crate::file_table::FileTable;
use crate::layout::EXTENSION;
use crate::replaced_files::{Hold, ReplacedFiles};
use crate::state::HistoryState;

/// Keeps the files of history in place until it is dropped.
pub struct HeldFiles {
    _hold: Hold,
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
    pub(crate) fn new(replaced: &Arc<ReplacedFiles>, dir: &Path, state: &Arc<HistoryState>) -> Self {
        let hold = replaced.hold();
        Self { _hold: hold, dir: dir.to_owned(), at_begin: state.files(), state: state.clone() }
    }

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
        let hold = || HeldFiles::new(&replaced, dir.path(), &state);
        let (one, other) = (hold(), hold());
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
