//! A disk in memory from which tests take the power: the file layer for tests, of this crate and of those above it.
//!
//! ```text
//!   write_at, set_size ──► seen by readers ──sync──► on the medium ──crash──► what a new start finds
//!   create, rename, remove ► seen by readers ──sync_dir──► on the medium ──crash──► …
//! ```
//!
//! The model promises what [`Files`] promises and not a byte more. A sync covers the changes that were
//! made before it was called. What was not synced may be lost, or arrive in part: cut at a byte, or sector by sector in
//! any order; a name that was not synced may be there or not, whatever its file's contents.
//!
//! Not here: what an engine owes its callers after a crash; the suites that use this say it.

mod contents;
mod disk;
mod names;
mod rng;

use std::fmt;
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use self::disk::{Disk, Operation};
pub use self::rng::Rng;
use crate::{File, Files, Lock};

/// What a crash of the machine does to changes that were not synced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PowerLoss {
    /// All of them are gone.
    DropAll,
    /// Some are there, whole or torn, in any order.
    Torn,
}

/// A simulated disk. Clones share it.
#[derive(Clone, Default)]
pub struct SimFiles {
    disk: Arc<Mutex<Disk>>,
}

impl SimFiles {
    /// An empty disk.
    pub fn new() -> Self {
        Self::default()
    }

    /// Switches the machine off, now at the latest, and returns the disk as it is after a restart.
    #[must_use = "the disk after the crash is a new one"]
    pub fn crash(&self, seed: u64, loss: PowerLoss) -> Self {
        let mut disk = self.disk.lock();
        disk.switch_off();
        Self::from(disk.after_power_loss(loss, &mut Rng::new(seed)))
    }

    /// Ends the process as `kill -9` does: what it has written stays, synced or not, and it writes nothing more.
    #[must_use = "the disk of the next process is a new one"]
    pub fn kill(&self) -> Self {
        let mut disk = self.disk.lock();
        disk.switch_off();
        Self::from(disk.after_kill())
    }

    /// Lets the power go during the `operations`-th change from now (1 is the next one). That change may reach the
    /// medium or not; it and every later one fail.
    pub fn crash_after(&self, operations: u64) {
        self.disk.lock().switch_off_after(operations);
    }

    /// Lets the next sync fail, and the changes that it was to make durable be forgotten: they can still be read, and
    /// later syncs succeed without them. This is what an operating system may do.
    pub fn fail_next_sync(&self) {
        self.disk.lock().fail_next_sync();
    }

    /// Lets `percent` of a hundred file syncs succeed and do nothing, as a medium without protection from power loss
    /// does. No engine can live with it; a suite must notice it.
    pub fn forget_syncs(&self, seed: u64, percent: u64) {
        self.forget_syncs_of(seed, percent, |_| true);
    }

    /// The same for the files whose path fits.
    pub fn forget_syncs_of(&self, seed: u64, percent: u64, of: fn(&Path) -> bool) {
        self.disk.lock().forget_syncs(seed, percent, of);
    }

    /// Lets files grow by `bytes` more; the write that goes beyond is cut short and fails.
    pub fn disk_full_after(&self, bytes: u64) {
        self.disk.lock().set_free_bytes(bytes);
    }

    /// Says from now on that the disk takes `bytes` more, whatever it really takes.
    pub fn tell_free(&self, bytes: u64) {
        self.disk.lock().tell_free(bytes);
    }

    /// Flips one bit of a file, counted from its beginning; nothing happens beyond its end.
    ///
    /// # Errors
    /// If there is no such file.
    pub fn flip_bit(&self, path: &Path, bit: u64) -> io::Result<()> {
        self.disk.lock().flip_bit(path, bit)
    }

    /// Whether the power has gone.
    pub fn is_off(&self) -> bool {
        self.disk.lock().is_off()
    }

    /// Changes and syncs so far: what [`SimFiles::crash_after`] counts.
    pub fn operations(&self) -> u64 {
        self.disk.lock().operations()
    }

    /// Bytes read so far.
    pub fn bytes_read(&self) -> u64 {
        self.disk.lock().bytes_read()
    }

    /// Bytes written to files so far.
    pub fn bytes_written(&self) -> u64 {
        self.disk.lock().bytes_written()
    }

    /// Every file with its size in bytes, by path.
    pub fn files(&self) -> Vec<(PathBuf, u64)> {
        self.disk.lock().files()
    }

    /// Makes a change, unless the power is off; reports failure if it goes during the change.
    fn change<T>(&self, change: impl FnOnce(&mut Disk) -> io::Result<T>) -> io::Result<T> {
        let mut disk = self.disk.lock();
        let operation = disk.begin()?;
        let changed = change(&mut disk);
        match operation {
            Operation::Whole => changed,
            Operation::Last => Err(disk::power_is_off()),
        }
    }

    fn file(&self, node: usize) -> Arc<dyn File> {
        Arc::new(SimFile { files: self.clone(), node })
    }
}

impl From<Disk> for SimFiles {
    fn from(disk: Disk) -> Self {
        Self { disk: Arc::new(Mutex::new(disk)) }
    }
}

impl fmt::Debug for SimFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimFiles({} files, {} operations)", self.files().len(), self.operations())
    }
}

impl Files for SimFiles {
    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.change(|disk| disk.create_dir_all(dir))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.disk.lock().list(dir)
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        let node = self.disk.lock().file_node(path)?;
        Ok(self.file(node))
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        self.change(|disk| disk.create(path)).map(|node| self.file(node))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.change(|disk| disk.rename(from, to))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.change(|disk| disk.remove(path))
    }

    fn remove_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.change(|disk| disk.remove_dir_all(dir))
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let mut disk = self.disk.lock();
        match disk.begin()? {
            Operation::Whole => disk.sync_dir(dir),
            Operation::Last => Err(disk::power_is_off()),
        }
    }

    fn free_bytes(&self, _dir: &Path) -> io::Result<u64> {
        Ok(self.disk.lock().told_free_bytes())
    }

    fn lock(&self, path: &Path) -> io::Result<Lock> {
        let taken = self.change(|disk| disk.lock(path))?;
        Ok(match taken {
            Some(node) => Lock::Held(Box::new(SimLock { files: self.clone(), node })),
            None => Lock::Taken { by: "simulated".to_owned() },
        })
    }
}

/// Gives its lock free when dropped.
struct SimLock {
    files: SimFiles,
    node: usize,
}

impl Drop for SimLock {
    fn drop(&mut self) {
        self.files.disk.lock().unlock(self.node);
    }
}

struct SimFile {
    files: SimFiles,
    node: usize,
}

impl File for SimFile {
    fn read_at(&self, buf: &mut [u8], at: u64) -> io::Result<usize> {
        self.files.disk.lock().read(self.node, buf, at)
    }

    fn write_at(&self, parts: &[IoSlice<'_>], at: u64) -> io::Result<()> {
        let bytes = parts.iter().flat_map(|part| part.iter().copied()).collect();
        self.files.change(|disk| disk.write(self.node, at, bytes))
    }

    fn sync(&self) -> io::Result<()> {
        let mut disk = self.files.disk.lock();
        let operation = disk.begin()?;
        let moment = disk.sync_begins();
        drop(disk);
        // Others may write while the medium works; an engine that counts those writes as synced is caught.
        std::thread::yield_now();
        let mut disk = self.files.disk.lock();
        match operation {
            Operation::Whole => disk.sync_ends(self.node, moment),
            Operation::Last => Err(disk::power_is_off()),
        }
    }

    fn size(&self) -> io::Result<u64> {
        self.files.disk.lock().size(self.node)
    }

    fn set_size(&self, bytes: u64) -> io::Result<()> {
        self.files.change(|disk| disk.set_size(self.node, bytes))
    }
}

#[cfg(test)]
mod tests;
