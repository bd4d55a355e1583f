//! The journal: the files that take the batches of every partition first, so that one sync serves all of them.
//!
//! ```text
//!   free ──take──► current (appender writes) ──full──► used ──all of it in segments──► free
//! ```
//!
//! Before use a file gets its full length: zeros are written and synced. To overwrite it later costs a fraction of a
//! sync that grows a file. A file is reused once its last frame has reached the segments.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::frame::{FRAME_ALIGN, FRAME_HEADER_BYTES, FrameBuilder, FrameStamp};
use crate::host::Host;
use crate::layout::{FILE_HEADER_BYTES, FileKind, Layout, journal_slot};
use crate::meta::JournalPlace;
use crate::wire::WireReader;
use crate::{Error, File, Files, LogConfig, SeededScheduler};

pub(crate) const FIRST_FRAME_AT: u64 = FRAME_ALIGN;
/// The slot of the only journal file of an image.
pub(crate) const IMAGE_SLOT: u64 = 1;
/// A longer round is split into several frames.
const FRAME_BYTES: u64 = 4 << 20;
const ZEROS_BYTES: usize = 1 << 20;
/// Retry interval on a full disk, if no file becomes free before.
const TRY_AGAIN: Duration = Duration::from_millis(100);

pub(crate) struct JournalFile {
    pub(crate) slot: u64,
    pub(crate) path: PathBuf,
    pub(crate) file: Arc<dyn File>,
    pub(crate) size_bytes: u64,
    /// Sequence of its last frame; `u64::MAX` while it is being written.
    last_sequence: AtomicU64,
}

/// The journal files. The appender takes them, the writeback thread frees them.
pub(crate) struct Journal {
    files: Arc<dyn Files>,
    layout: Layout,
    file_bytes: u64,
    files_max: usize,
    pool: Mutex<FilePool>,
    freed: Condvar,
    scheduler: Option<Arc<SeededScheduler>>,
}

#[derive(Default)]
struct FilePool {
    free: Vec<Arc<JournalFile>>,
    used: VecDeque<Arc<JournalFile>>,
    next_slot: u64,
    /// Number of files being created.
    coming: usize,
}

impl FilePool {
    fn count(&self) -> usize {
        self.free.len() + self.used.len() + self.coming
    }
}

impl Journal {
    /// The journal in `layout`'s directory. No file is in use before [`Journal::adopt`] or [`Journal::take`].
    pub(crate) fn new(host: &Host, layout: Layout, config: &LogConfig) -> Self {
        let file_bytes = config.journal_file_bytes;
        let files_max = usize::try_from(config.journal_max_bytes / file_bytes).unwrap_or(usize::MAX);
        let (files, scheduler) = (Arc::clone(&host.files), host.scheduler.clone());
        Self { files, layout, file_bytes, files_max, pool: Mutex::default(), freed: Condvar::new(), scheduler }
    }

    /// Opens the existing files and checks their headers; removes incomplete ones.
    pub(crate) fn existing(&self) -> Result<Vec<Arc<JournalFile>>, Error> {
        let dir = self.layout.journal_dir();
        // A killed process may have left names that are not durable; files written now would be lost with them.
        self.files.sync_dir(&dir).map_err(|e| Error::io("sync", &dir, e))?;
        let mut found = Vec::new();
        for name in self.files.list(&dir).map_err(|e| Error::io("list", &dir, e))? {
            let path = dir.join(&name);
            let Some(slot) = journal_slot(&name) else {
                self.files.remove(&path).map_err(|e| Error::io("remove", &path, e))?;
                continue;
            };
            found.push(Arc::new(journal_file(&*self.files, path, slot)?));
        }
        Ok(found)
    }

    /// Reuses files whose frames are obsolete; removes files of another size than configured.
    pub(crate) fn adopt(&self, existing: Vec<Arc<JournalFile>>) -> Result<(), Error> {
        let mut pool = self.pool.lock();
        for file in existing {
            pool.next_slot = pool.next_slot.max(file.slot);
            if file.size_bytes == self.file_bytes && pool.count() < self.files_max {
                pool.free.push(file);
            } else {
                self.files.remove(&file.path).map_err(|e| Error::io("remove", &file.path, e))?;
            }
        }
        Ok(())
    }

    /// Takes a free file; waits for one. `None` if `give_up` returns
    /// `true`. Calls `woken` after each wait, without a lock.
    fn take(&self, give_up: impl Fn() -> bool, mut woken: impl FnMut()) -> Result<Option<Arc<JournalFile>>, Error> {
        let mut pool = self.pool.lock();
        loop {
            if give_up() {
                return Ok(None);
            }
            if let Some(file) = pool.free.pop() {
                file.last_sequence.store(u64::MAX, Ordering::Release);
                pool.used.push_back(file.clone());
                return Ok(Some(file));
            }
            if pool.count() < self.files_max && pool.coming == 0 {
                drop(pool);
                let ensured = self.ensure_free();
                pool = self.pool.lock();
                match ensured {
                    Err(full) if full.is_disk_full() && !pool.used.is_empty() => {
                        self.wait_for_free(&mut pool, Some(TRY_AGAIN));
                    }
                    other => other?,
                }
            } else {
                self.wait_for_free(&mut pool, None);
            }
            MutexGuard::unlocked(&mut pool, &mut woken);
        }
    }

    /// Waits for a file that is freed, or for a wake-up.
    fn wait_for_free(&self, pool: &mut MutexGuard<'_, FilePool>, at_most: Option<Duration>) {
        match (&self.scheduler, at_most) {
            (Some(scheduler), _) => {
                MutexGuard::unlocked(pool, || scheduler.turn());
            }
            (None, Some(time)) => drop(self.freed.wait_for(pool, time)),
            (None, None) => self.freed.wait(pool),
        }
    }

    /// Creates a file if none is free and the limit allows one, so that the appender need not wait. A failed attempt
    /// leaves nothing on a full disk.
    pub(crate) fn ensure_free(&self) -> Result<(), Error> {
        let slot = {
            let mut pool = self.pool.lock();
            if !pool.free.is_empty() || pool.coming > 0 || pool.count() >= self.files_max {
                return Ok(());
            }
            pool.coming += 1;
            pool.next_slot += 1;
            pool.next_slot
        };
        let created = self.create(slot);
        let mut pool = self.pool.lock();
        pool.coming -= 1;
        pool.free.push(Arc::new(created?));
        debug_assert!(pool.count() <= self.files_max, "the journal keeps to its limit");
        drop(pool);
        self.freed.notify_all();
        Ok(())
    }

    fn create(&self, slot: u64) -> Result<JournalFile, Error> {
        let path = self.layout.journal(slot);
        let new = path.with_extension("new");
        self.create_as(slot, &path, &new).inspect_err(|_| {
            // The next start removes the file if this fails.
            drop(self.files.remove(&new));
        })
    }

    fn create_as(&self, slot: u64, path: &Path, new: &Path) -> Result<JournalFile, Error> {
        let file = self.files.create(new).map_err(|e| Error::io("create", new, e))?;
        let zeros = vec![0; ZEROS_BYTES];
        let mut at = 0;
        while at < self.file_bytes {
            let length = (self.file_bytes - at).min(ZEROS_BYTES as u64);
            let part = IoSlice::new(&zeros[..length as usize]);
            file.write_at(&[part], at).map_err(|e| Error::io("write", new, e))?;
            at += length;
        }
        let header = FileKind::Journal.header(&slot.to_le_bytes());
        file.write_at(&[IoSlice::new(&header)], 0).map_err(|e| Error::io("write", new, e))?;
        file.sync().map_err(|e| Error::io("sync", new, e))?;
        self.files.rename(new, path).map_err(|e| Error::io("rename", new, e))?;
        let dir = self.layout.journal_dir();
        self.files.sync_dir(&dir).map_err(|e| Error::io("sync", &dir, e))?;
        Ok(JournalFile {
            slot,
            path: path.to_owned(),
            file,
            size_bytes: self.file_bytes,
            last_sequence: AtomicU64::new(0),
        })
    }

    /// Frees the full files whose frames up to `sequence` have reached the segments.
    pub(crate) fn free_up_to(&self, sequence: u64) {
        let mut pool = self.pool.lock();
        let last = |file: &Arc<JournalFile>| file.last_sequence.load(Ordering::Acquire);
        debug_assert!(pool.used.iter().map(last).is_sorted(), "files are filled one after the other");
        let done = |file: &Arc<JournalFile>| last(file) <= sequence;
        while pool.used.front().is_some_and(done) {
            let file = pool.used.pop_front();
            pool.free.extend(file);
        }
        drop(pool);
        self.freed.notify_all();
    }

    /// The files in use, the oldest first.
    pub(crate) fn in_use(&self) -> Vec<Arc<JournalFile>> {
        self.pool.lock().used.iter().cloned().collect()
    }

    /// Wakes the appender if it waits for a file, so that it checks whether it still should.
    pub(crate) fn wake(&self) {
        let _pool = self.pool.lock();
        self.freed.notify_all();
    }

    /// Size of all files in use.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.pool.lock().used.len() as u64 * self.file_bytes
    }

    /// `true` if a file is full and not free again: the segments should catch up, as memory holds the same records.
    pub(crate) fn has_full(&self) -> bool {
        self.pool.lock().used.len() > 1
    }
}

/// A frame that is written and not synced.
pub(crate) struct WrittenFrame {
    /// Position of the next frame.
    pub(crate) place: JournalPlace,
    pub(crate) bytes: u64,
    pub(crate) file: Arc<JournalFile>,
}

/// Writes frames; owned by the appender.
pub(crate) struct JournalWriter {
    journal: Arc<Journal>,
    current: Option<Arc<JournalFile>>,
    at: u64,
    frame: FrameBuilder,
}

impl JournalWriter {
    pub(crate) fn new(journal: Arc<Journal>, salt: u64) -> Self {
        Self { journal, current: None, at: 0, frame: FrameBuilder::new(salt) }
    }

    pub(crate) fn frame(&mut self) -> &mut FrameBuilder {
        &mut self.frame
    }

    /// `true` if `bytes` more fit into the frame under construction.
    pub(crate) fn fits(&self, bytes: u64) -> bool {
        let padded = (self.frame.padded_bytes() + bytes).next_multiple_of(FRAME_ALIGN);
        self.frame.is_empty() || padded <= FRAME_BYTES.min(self.left())
    }

    /// `true` if a new frame of `bytes` fits into the current file.
    pub(crate) fn has_room(&self, bytes: u64) -> bool {
        new_frame_bytes(bytes) <= self.left()
    }

    /// Switches to the next file for a frame of `bytes`; waits for a free one. `false` if `give_up` returns `true`.
    /// Calls `woken` after each wait.
    pub(crate) fn next_file(
        &mut self,
        bytes: u64,
        next_sequence: u64,
        give_up: impl Fn() -> bool,
        woken: impl FnMut(),
    ) -> Result<bool, Error> {
        if let Some(full) = self.current.take() {
            full.last_sequence.store(next_sequence - 1, Ordering::Release);
        }
        let Some(next) = self.journal.take(give_up, woken)? else { return Ok(false) };
        assert!(FIRST_FRAME_AT + new_frame_bytes(bytes) <= next.size_bytes, "an append fits a journal file");
        self.at = FIRST_FRAME_AT;
        self.current = Some(next);
        Ok(true)
    }

    /// Writes the frame under construction.
    pub(crate) fn write(&mut self, stamp: &FrameStamp) -> Result<WrittenFrame, Error> {
        let current = self.current.as_ref().expect("there is room for what was begun");
        let bytes = self.frame.finish(stamp);
        let part = IoSlice::new(bytes);
        current.file.write_at(&[part], self.at).map_err(|e| Error::io("write", &current.path, e))?;
        self.at += bytes.len() as u64;
        debug_assert!(self.at <= current.size_bytes, "a frame ends within its file");
        let bytes = bytes.len() as u64;
        self.frame.clear();
        let place = JournalPlace { sequence: stamp.sequence, slot: current.slot, at: self.at };
        Ok(WrittenFrame { place, bytes, file: current.clone() })
    }

    fn left(&self) -> u64 {
        self.current.as_ref().map_or(0, |file| file.size_bytes - self.at)
    }
}

fn new_frame_bytes(bytes: u64) -> u64 {
    (FRAME_HEADER_BYTES as u64 + bytes).next_multiple_of(FRAME_ALIGN)
}

const _: () = assert!(FILE_HEADER_BYTES as u64 <= FIRST_FRAME_AT);
/// Opens the journal file at `path` and checks its header.
pub(crate) fn journal_file(files: &dyn Files, path: PathBuf, slot: u64) -> Result<JournalFile, Error> {
    let file = files.open(&path).map_err(|e| Error::io("open", &path, e))?;
    let own = FileKind::Journal.read_header(&*file, &path)?;
    if WireReader::new(&own).u64() != Some(slot) {
        return Err(Error::CorruptFile { path, at: 0, what: "its header names another slot" });
    }
    let size_bytes = file.size().map_err(|e| Error::io("read the size of", &path, e))?;
    Ok(JournalFile { slot, path, file, size_bytes, last_sequence: AtomicU64::new(0) })
}
