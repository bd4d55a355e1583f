//! A simulated disk with power loss, for the tests of the log and of the crates above it.
//!
//! ```text
//!   write_at, set_size ──► seen by readers ──sync──► on the medium ──crash──► what a new start finds
//!   create, rename, remove ► seen by readers ──sync_dir──► on the medium ──crash──► …
//! ```
//!
//! The model promises exactly as much as [`Files`]. A sync covers the changes made before it was called. An unsynced
//! change may be lost, or arrive in part: cut at a byte, or sector by sector in any order. An unsynced name may be
//! there or not, whatever the contents of its file.
//!
//! Not here: the duties of an engine after a crash; the suites that use it check them.

mod contents;
mod disk;
mod names;
mod power_loss;
mod rng;
mod seeds;

use std::fmt;
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use millstream_log::{File, Files, Lock};
use parking_lot::Mutex;

use self::disk::{Disk, DiskOperation};
pub use self::power_loss::PowerLoss;
pub use self::rng::Rng;
pub use self::seeds::{crash_seeds, is_one_seed};

/// Lets others go on.
type Pause = Arc<dyn Fn() + Send + Sync>;

/// A simulated disk. Clones share it.
#[derive(Clone, Default)]
pub struct SimFiles {
    disk: Arc<Mutex<Disk>>,
    pause: Arc<Mutex<Option<Pause>>>,
}

impl SimFiles {
    /// An empty disk, with the power on.
    pub fn new() -> Self {
        Self::default()
    }

    /// Calls `pause` before each change and in the middle of each sync, so that others can go on there. Without it a sync lets
    /// other threads run.
    pub fn pause_with(&self, pause: impl Fn() + Send + Sync + 'static) {
        *self.pause.lock() = Some(Arc::new(pause));
    }

    /// Lets others go on; `false` if nobody takes care of that.
    fn pause(&self) -> bool {
        let pause = self.pause.lock().clone();
        pause.map(|pause| pause()).is_some()
    }

    /// A number that stands for the bytes of all files, to compare two disks.
    pub fn fingerprint(&self) -> u64 {
        self.disk.lock().fingerprint()
    }

    /// Turns the power off, if it is still on, and returns the disk after a restart.
    #[must_use = "the disk after the crash is a new one"]
    pub fn crash(&self, seed: u64, loss: PowerLoss) -> Self {
        let mut disk = self.disk.lock();
        disk.switch_off();
        Self::from(disk.after_power_loss(loss, &mut Rng::new(seed)))
    }

    /// Kills the process as `kill -9` does: all that it wrote stays, synced or not, and it writes no more.
    #[must_use = "the disk of the next process is a new one"]
    pub fn kill(&self) -> Self {
        let mut disk = self.disk.lock();
        disk.switch_off();
        Self::from(disk.after_kill())
    }

    /// Turns the power off during the `operations`-th change from now (1 is the next one). That change may reach the
    /// medium or not; it and every later one fail.
    pub fn crash_after(&self, operations: u64) {
        self.disk.lock().switch_off_after(operations);
    }

    /// Makes the next sync fail and lose its changes: readers still see them, and later syncs succeed without them.
    /// Operating systems may do this.
    pub fn fail_next_sync(&self) {
        self.disk.lock().fail_next_sync();
    }

    /// Makes `percent` of all file syncs succeed without effect, like a medium without power loss protection. No
    /// engine survives that; a suite must detect it.
    pub fn forget_syncs(&self, seed: u64, percent: u64) {
        self.forget_syncs_of(seed, percent, |_| true);
    }

    /// Like [`SimFiles::forget_syncs`], for the files whose path matches.
    pub fn forget_syncs_of(&self, seed: u64, percent: u64, of: fn(&Path) -> bool) {
        self.disk.lock().forget_syncs(seed, percent, of);
    }

    /// Lets files grow by `bytes` more; the write beyond that is cut short and fails.
    pub fn disk_full_after(&self, bytes: u64) {
        self.disk.lock().set_free_bytes(bytes);
    }

    /// Reports `bytes` free from now on, independent of the real limit.
    pub fn tell_free(&self, bytes: u64) {
        self.disk.lock().tell_free(bytes);
    }

    /// Flips one bit of a file, counted from its beginning; does nothing beyond its end.
    ///
    /// # Errors
    /// `NotFound` if the file does not exist.
    pub fn flip_bit(&self, path: &Path, bit: u64) -> io::Result<()> {
        self.disk.lock().flip_bit(path, bit)
    }

    /// `true` once the power is off.
    pub fn is_off(&self) -> bool {
        self.disk.lock().is_off()
    }

    /// Changes and syncs so far, as [`SimFiles::crash_after`] counts them.
    pub fn operations(&self) -> u64 {
        self.disk.lock().operations()
    }

    /// Bytes read from all files so far.
    pub fn bytes_read(&self) -> u64 {
        self.disk.lock().bytes_read()
    }

    /// Bytes written to all files so far.
    pub fn bytes_written(&self) -> u64 {
        self.disk.lock().bytes_written()
    }

    /// All files with their sizes in bytes, by path.
    pub fn files(&self) -> Vec<(PathBuf, u64)> {
        self.disk.lock().files()
    }

    /// Makes a change if the power is on; fails if it goes during the change.
    fn change<T>(&self, change: impl FnOnce(&mut Disk) -> io::Result<T>) -> io::Result<T> {
        self.pause();
        let mut disk = self.disk.lock();
        let operation = disk.begin()?;
        let changed = change(&mut disk);
        match operation {
            DiskOperation::Whole => changed,
            DiskOperation::Last => Err(disk::power_is_off()),
        }
    }

    fn file(&self, node: usize) -> Arc<dyn File> {
        Arc::new(SimFile { files: self.clone(), node })
    }
}

impl From<Disk> for SimFiles {
    fn from(disk: Disk) -> Self {
        Self { disk: Arc::new(Mutex::new(disk)), pause: Arc::default() }
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
        self.pause();
        let mut disk = self.disk.lock();
        match disk.begin()? {
            DiskOperation::Whole => disk.sync_dir(dir),
            DiskOperation::Last => Err(disk::power_is_off()),
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

/// Unlocks its file when dropped.
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
        self.files.pause();
        let mut disk = self.files.disk.lock();
        let operation = disk.begin()?;
        let moment = disk.sync_begins();
        drop(disk);
        // Let others write during the sync: an engine that counts those writes as synced is caught.
        if !self.files.pause() {
            std::thread::yield_now();
        }
        let mut disk = self.files.disk.lock();
        match operation {
            DiskOperation::Whole => disk.sync_ends(self.node, moment),
            DiskOperation::Last => Err(disk::power_is_off()),
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
