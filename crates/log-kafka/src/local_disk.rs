//! The disk of this machine, which takes checkpoints, files of history and copies while Kafka has the log.
//!
//! Appends go on when it is full. Files that grow beside the log ask here first, so that the disk is never full to the last
//! byte: the store of checkpoints, once it has met the end of a disk, accepts nothing more before a restart.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use millstream_log::{Error, Files};

/// The free space beside the log.
pub(crate) struct LocalDisk {
    files: Arc<dyn Files>,
    dir: PathBuf,
    free_min_bytes: u64,
    is_full: AtomicBool,
}

impl std::fmt::Debug for LocalDisk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LocalDisk({})", self.dir.display())
    }
}

impl LocalDisk {
    pub(crate) fn new(files: Arc<dyn Files>, dir: PathBuf, free_min_bytes: u64) -> Self {
        Self { files, dir, free_min_bytes, is_full: AtomicBool::new(false) }
    }

    /// Asks the system for the free bytes. An unknown amount counts as enough.
    fn free_bytes(&self) -> u64 {
        self.files.free_bytes(&self.dir).unwrap_or(u64::MAX)
    }

    /// # Errors
    /// [`Error::DiskFull`] if less than `log.disk_free_min_bytes` is free.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let free_bytes = self.free_bytes();
        // A margin before it counts as free again, so that it does not flip with every file.
        let more = if self.is_full.load(Ordering::Acquire) { self.free_min_bytes / 16 } else { 0 };
        let is_full = free_bytes < self.free_min_bytes.saturating_add(more);
        if is_full != self.is_full.swap(is_full, Ordering::AcqRel) {
            let (dir, free_min_bytes) = (self.dir.display(), self.free_min_bytes);
            if is_full {
                tracing::error!(%dir, free_bytes, log.disk_free_min_bytes = free_min_bytes, "the disk is full: make room; what Kafka keeps goes on, but checkpoints and files of history wait");
            } else {
                tracing::warn!(%dir, free_bytes, "there is room on the disk again: checkpoints and files of history go on");
            }
        }
        let limit_bytes = self.free_min_bytes;
        if is_full { Err(Error::DiskFull { path: self.dir.clone(), free_bytes, limit_bytes }) } else { Ok(()) }
    }

    /// Bytes that files may take: down to the limit, or to half of it once the disk is full.
    pub(crate) fn spare_bytes(&self) -> u64 {
        let is_full = self.is_full.load(Ordering::Acquire);
        let least_bytes = if is_full { self.free_min_bytes / 2 } else { self.free_min_bytes };
        self.free_bytes().saturating_sub(least_bytes)
    }
}

#[cfg(test)]
mod tests {
    use millstream_testkit::sim::SimFiles;

    use super::*;

    #[test]
    fn a_disk_is_full_below_the_limit_and_free_again_above_a_margin() {
        let files = SimFiles::new();
        let disk = LocalDisk::new(Arc::new(files.clone()), PathBuf::from("/data"), 1_600);
        // Free bytes, and bytes that files may take, if it is full and if not.
        for (free_bytes, is_full, spare_bytes) in [
            (u64::MAX, false, u64::MAX - 1_600),
            (1_600, false, 0),
            (2_000, false, 400),
            (1_599, true, 799),
            (700, true, 0),
            (1_699, true, 899),
            (1_700, false, 100),
        ] {
            files.tell_free(free_bytes);
            let checked = disk.check();
            assert_eq!((checked.is_err(), disk.spare_bytes()), (is_full, spare_bytes), "{free_bytes}");
            if let Err(full) = checked {
                let expected = format!(
                    "the disk of /data is full: {free_bytes} bytes are free and 1600 are needed \
                     (log.disk_free_min_bytes for appends); make room"
                );
                assert_eq!(full.to_string(), expected);
            }
        }
    }
}
