//! Watches the free space of the disk and refuses appends before it runs out.
//!
//! A write on a full disk ends writing until a restart, since the result on disk is unknown. So appends are
//! refused while there is still room for the accepted records, and the segments wait if there is none. Both resume
//! once there is room again.
//!
//! ```text
//!   log.disk_free_min_bytes ─┬─ below it: appends are refused, but for those that make room
//!                        3/4 ┼─ owners accept no more commands that make room
//!                        5/8 ┼─ state topics take no more of the commands that owners have accepted
//!                        1/2 ┼─ no more tombstones, no compaction
//!                          0 ┴─ segments wait
//! ```

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};

use crate::{Error, Files};

/// Space that a turn of the writeback thread needs beside the batches: `meta`, indexes, directories.
const TURN_SPARE_BYTES: u64 = 4 << 20;

/// The purpose of an append, in the order of the room that it leaves to others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum DiskUse {
    /// Tombstones of a compacted topic: they may use the reserve.
    MakesRoom,
    /// Records of a state topic, whose owner refuses new commands by itself.
    Promised,
    /// Any other append, which the limit holds back.
    Ordinary,
}

/// The free space, and the callers' decisions based on it.
pub(crate) struct DiskSpace {
    files: Arc<dyn Files>,
    dir: PathBuf,
    free_min_bytes: u64,
    /// Free bytes when the system was asked last.
    seen_bytes: AtomicU64,
    /// Bytes that are accepted and that segments are yet to take.
    promised_bytes: AtomicU64,
    is_scarce: AtomicBool,
    /// Free bytes that the writeback thread waits for; 0 if it does not wait.
    waited_for_bytes: AtomicU64,
    /// Held from the question to the system to the decision, so that no decision rests on an older answer than the last one.
    /// Appends do not take it.
    looking: Mutex<()>,
}

impl DiskSpace {
    pub(crate) fn new(files: Arc<dyn Files>, dir: PathBuf, free_min_bytes: u64) -> Self {
        let [seen_bytes, promised_bytes, waited_for_bytes] = [(); 3].map(|()| AtomicU64::new(0));
        let is_scarce = AtomicBool::new(false);
        let looking = Mutex::default();
        let space =
            Self { files, dir, free_min_bytes, seen_bytes, promised_bytes, is_scarce, waited_for_bytes, looking };
        space.look(&space.looking.lock());
        space
    }

    /// Asks the system for the free bytes and returns them. An unknown amount counts as enough.
    fn look(&self, _looking: &MutexGuard<'_, ()>) -> u64 {
        let seen_bytes = self.files.free_bytes(&self.dir).unwrap_or(u64::MAX);
        self.seen_bytes.store(seen_bytes, Ordering::Relaxed);
        if seen_bytes >= self.waited_for_bytes.load(Ordering::Acquire) {
            self.waited_for_bytes.store(0, Ordering::Release);
        }
        // Add a margin before appends resume, so that the state does not flip with every removed file.
        let free_bytes = self.free_bytes();
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
        seen_bytes
    }

    /// Counts bytes of an append that is accepted.
    pub(crate) fn promise(&self, bytes: usize) {
        self.promised_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Checks the last known free space before an append. Appends are also refused while the segments wait: the
    /// journal would fill up and block its writers without an explanation.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.is_scarce.load(Ordering::Acquire) || self.free_bytes() < self.free_min_bytes {
            return Err(self.full(self.free_min_bytes));
        }
        match self.waited_for_bytes.load(Ordering::Acquire) {
            0 => Ok(()),
            needed_bytes => Err(self.waiting(needed_bytes)),
        }
    }

    /// Like [`DiskSpace::check`], for an append that may have less room than others.
    pub(crate) fn check_for(&self, disk_use: DiskUse) -> Result<(), Error> {
        match disk_use {
            DiskUse::MakesRoom => self.check_above(self.reserve_bytes()),
            DiskUse::Promised => self.check_above(self.reserve_bytes() + self.free_min_bytes / 8),
            DiskUse::Ordinary => self.check(),
        }
    }

    /// Like [`DiskSpace::check`], for an owner before it accepts a command that makes room.
    pub(crate) fn check_making_room(&self) -> Result<(), Error> {
        self.check_above(self.reserve_bytes() + self.free_min_bytes / 4)
    }

    fn check_above(&self, least_bytes: u64) -> Result<(), Error> {
        if self.is_waited_for() || self.free_bytes() < least_bytes { self.check() } else { Ok(()) }
    }

    /// Like [`DiskSpace::check`], after asking the system again.
    pub(crate) fn look_and_check(&self) -> Result<(), Error> {
        self.look(&self.looking.lock());
        self.check()
    }

    /// Checks that a turn of the writeback thread can write `bytes`, all that the segments are yet to take. If not, it waits.
    pub(crate) fn admit_turn(&self, bytes: u64) -> Result<(), Error> {
        let looking = self.looking.lock();
        self.promised_bytes.store(bytes, Ordering::Relaxed);
        let needed_bytes = bytes + TURN_SPARE_BYTES;
        let waits = self.look(&looking) < needed_bytes;
        self.waited_for_bytes.store(if waits { needed_bytes } else { 0 }, Ordering::Release);
        if waits { Err(self.waiting(needed_bytes)) } else { Ok(()) }
    }

    /// `true` if the segments wait for room.
    pub(crate) fn is_waited_for(&self) -> bool {
        self.waited_for_bytes.load(Ordering::Acquire) > 0
    }

    /// The error for accepted appends that wait in memory because the segments wait for room; `None` if they do not.
    pub(crate) fn shortage(&self) -> Option<Error> {
        let limit_bytes = self.waited_for_bytes.load(Ordering::Acquire);
        let (path, free_bytes) = (self.dir.clone(), self.seen_bytes());
        (limit_bytes > 0).then_some(Error::WaitsForDisk { path, free_bytes, limit_bytes })
    }

    /// `true` if the free space must be checked again soon.
    pub(crate) fn is_short(&self) -> bool {
        self.is_scarce.load(Ordering::Acquire) || self.is_waited_for()
    }

    /// Subtracts bytes that a turn has written to segments, from the free ones as well until the system is asked again.
    pub(crate) fn written(&self, bytes: usize) {
        let less = |counter: &AtomicU64| {
            let subtract = |counted: u64| Some(counted.saturating_sub(bytes as u64));
            counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, subtract).ok();
        };
        less(&self.seen_bytes);
        less(&self.promised_bytes);
    }

    /// Free bytes when the system was asked last, and less what was written since.
    pub(crate) fn seen_bytes(&self) -> u64 {
        self.seen_bytes.load(Ordering::Relaxed)
    }

    /// Free bytes, without those that accepted records will take.
    pub(crate) fn free_bytes(&self) -> u64 {
        self.seen_bytes().saturating_sub(self.promised_bytes.load(Ordering::Relaxed))
    }

    /// `true` if appends are refused, and compaction is to make room.
    pub(crate) fn is_scarce(&self) -> bool {
        self.is_scarce.load(Ordering::Acquire)
    }

    /// `true` if even compaction must not write.
    pub(crate) fn is_used_up(&self) -> bool {
        self.is_waited_for() || self.free_bytes() < self.reserve_bytes()
    }

    /// Bytes that compaction may write: down to the limit, or to the reserve once appends are refused.
    pub(crate) fn spare_bytes(&self) -> u64 {
        let least_bytes = if self.is_scarce() { self.reserve_bytes() } else { self.free_min_bytes };
        self.free_bytes().saturating_sub(least_bytes)
    }

    fn reserve_bytes(&self) -> u64 {
        self.free_min_bytes / 2
    }

    fn full(&self, limit_bytes: u64) -> Error {
        Error::DiskFull { path: self.dir.clone(), free_bytes: self.free_bytes(), limit_bytes }
    }

    /// The refusal while segments wait for `needed_bytes`.
    pub(crate) fn waiting(&self, needed_bytes: u64) -> Error {
        Error::DiskFull { path: self.dir.clone(), free_bytes: self.seen_bytes(), limit_bytes: needed_bytes }
    }
}
