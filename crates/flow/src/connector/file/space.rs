//! The room for files of jobs: the free bytes of their disk, and the quota of each tenant.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use millstream_log::{Files as _, SystemFiles};
use millstream_types::MonotonicClock;
use parking_lot::Mutex;

use super::location::FILES_DIR;

/// The time after which a folder is measured again. Until then its size is what was measured and written since.
const MEASURE_EVERY: Duration = Duration::from_secs(10);

/// The directory of all files of jobs, `flow.files_dir`.
pub(crate) struct FileSpace {
    dir: PathBuf,
    free_min_bytes: u64,
    tenant_max_bytes: u64,
    clock: Arc<dyn MonotonicClock>,
    folders: Mutex<HashMap<PathBuf, FolderSize>>,
}

#[derive(Clone, Copy)]
struct FolderSize {
    bytes: u64,
    measured: Duration,
}

impl FileSpace {
    /// The room in `dir`. A quota of 0 is none.
    pub(crate) fn new(dir: &Path, free_min_bytes: u64, tenant_max_bytes: u64, clock: &Arc<dyn MonotonicClock>) -> Self {
        let (dir, clock) = (dir.to_owned(), Arc::clone(clock));
        Self { dir, free_min_bytes, tenant_max_bytes, clock, folders: Mutex::default() }
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Takes room for `bytes` in a tenant's folder. Blocks while the folder is measured.
    ///
    /// # Errors
    /// There is no room; the text names the disk and the setting.
    pub(super) fn take(&self, folder: &Path, bytes: u64) -> Result<(), String> {
        let free_bytes = SystemFiles.free_bytes(&self.dir).map_err(|error| {
            format!("the free bytes of the disk of '{}' ({FILES_DIR}) cannot be read: {error}", self.dir.display())
        })?;
        if free_bytes.saturating_sub(bytes) < self.free_min_bytes {
            return Err(format!(
                "the disk of '{}' ({FILES_DIR}) is full: {free_bytes} bytes are free, and {} stay so \
                 (flow.files_free_min_bytes); make room",
                self.dir.display(),
                self.free_min_bytes
            ));
        }
        if self.tenant_max_bytes == 0 {
            return Ok(());
        }
        let now = self.clock.now();
        let mut folders = self.folders.lock();
        let is_fresh = |size: &&FolderSize| now.saturating_sub(size.measured) < MEASURE_EVERY;
        let known = folders.get(folder).filter(is_fresh).copied();
        let size = known.unwrap_or_else(|| FolderSize { bytes: size_bytes(folder), measured: now });
        let wanted = size.bytes.saturating_add(bytes);
        let has_room = wanted <= self.tenant_max_bytes;
        folders.insert(folder.to_owned(), FolderSize { bytes: if has_room { wanted } else { size.bytes }, ..size });
        if has_room {
            return Ok(());
        }
        Err(format!(
            "the files in '{}' would have {wanted} bytes, and a tenant's may have {} (flow.files_per_tenant_max_bytes); \
             remove some, or raise it",
            folder.display(),
            self.tenant_max_bytes
        ))
    }
}

/// The bytes of all files in a folder and those inside it, without following links.
fn size_bytes(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let of_entry = |entry: fs::DirEntry| match entry.metadata() {
        Ok(found) if found.is_dir() => size_bytes(&entry.path()),
        Ok(found) if found.is_file() => found.len(),
        _ => 0,
    };
    entries.map(of_entry).sum()
}
