//! How much the disk still takes, and what is refused before it takes nothing.
//!
//! A write that finds no room ends writing until a restart, for nobody knows what of it is there. So appends are refused
//! while there is still room for what has been accepted, and the segments wait when there is none; both go on once somebody
//! has made room.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::{Error, Files};

/// What a turn of the writeback thread may take beside batches: `meta`, indexes, directories.
const TURN_SPARE_BYTES: u64 = 4 << 20;

/// See the module.
pub(crate) struct Space {
    files: Arc<dyn Files>,
    dir: PathBuf,
    free_min_bytes: u64,
    /// As of the last look.
    free_bytes: AtomicU64,
    is_scarce: AtomicBool,
    /// The writeback thread waits for room.
    is_waited_for: AtomicBool,
}

impl Space {
    pub(crate) fn new(files: Arc<dyn Files>, dir: PathBuf, free_min_bytes: u64) -> Self {
        let (is_scarce, is_waited_for) = (AtomicBool::new(false), AtomicBool::new(false));
        let space = Self { files, dir, free_min_bytes, free_bytes: AtomicU64::new(0), is_scarce, is_waited_for };
        space.look();
        space
    }

    /// Asks the system. Where it does not tell there is room.
    fn look(&self) -> u64 {
        let free_bytes = self.files.free_bytes(&self.dir).unwrap_or(u64::MAX);
        self.free_bytes.store(free_bytes, Ordering::Relaxed);
        // A little more, or it would change with every file that goes.
        let more = if self.is_scarce.load(Ordering::Acquire) { self.free_min_bytes / 16 } else { 0 };
        let is_scarce = free_bytes < self.free_min_bytes.saturating_add(more);
        if is_scarce != self.is_scarce.swap(is_scarce, Ordering::AcqRel) {
            let (dir, free_min_bytes) = (self.dir.display(), self.free_min_bytes);
            if is_scarce {
                tracing::error!(%dir, free_bytes, log.disk_free_min_bytes = free_min_bytes, "the disk is full: nothing is appended until there is room");
            } else {
                tracing::warn!(%dir, free_bytes, "there is room on the disk again: appends are taken");
            }
        }
        free_bytes
    }

    /// Whether appends are taken, as of the last look.
    ///
    /// # Errors
    /// [`Error::DiskFull`].
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.is_scarce.load(Ordering::Acquire) { Err(self.full(self.free_min_bytes)) } else { Ok(()) }
    }

    /// The same after a look.
    ///
    /// # Errors
    /// [`Error::DiskFull`].
    pub(crate) fn look_and_check(&self) -> Result<(), Error> {
        self.look();
        self.check()
    }

    /// Looks whether `bytes` can be brought to the segments.
    ///
    /// # Errors
    /// [`Error::DiskFull`]: they have to wait.
    pub(crate) fn admit_turn(&self, bytes: u64) -> Result<(), Error> {
        let needed_bytes = bytes + TURN_SPARE_BYTES;
        let waits = self.look() < needed_bytes;
        self.is_waited_for.store(waits, Ordering::Release);
        if waits { Err(self.full(needed_bytes)) } else { Ok(()) }
    }

    /// Whether the segments wait for room.
    pub(crate) fn is_waited_for(&self) -> bool {
        self.is_waited_for.load(Ordering::Acquire)
    }

    /// Whether it is to be looked again soon.
    pub(crate) fn is_short(&self) -> bool {
        self.is_scarce.load(Ordering::Acquire) || self.is_waited_for()
    }

    /// As of the last look.
    pub(crate) fn free_bytes(&self) -> u64 {
        self.free_bytes.load(Ordering::Relaxed)
    }

    /// Whether `bytes` may be written that will become free again.
    pub(crate) fn has_spare(&self, bytes: u64) -> bool {
        self.free_bytes() >= self.free_min_bytes.saturating_add(bytes)
    }

    pub(crate) fn full(&self, limit_bytes: u64) -> Error {
        Error::DiskFull { path: self.dir.clone(), free_bytes: self.free_bytes(), limit_bytes }
    }
}
