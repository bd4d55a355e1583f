//! A disk that a test makes full.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use millstream_log::{File, Files, Lock, SystemFiles};

/// A disk on which nothing can be written, or that tells of no room, while the test wants so.
#[derive(Default, Clone)]
pub(crate) struct Full {
    refuses: Arc<AtomicBool>,
    has_no_room: Arc<AtomicBool>,
}

impl Full {
    /// Fails every write from now on, or none: the log gives up at the first one.
    pub(crate) fn refuse(&self, refuses: bool) {
        self.refuses.store(refuses, Ordering::Release);
    }

    /// Tells of no room from now on, or of room: the log refuses appends meanwhile.
    pub(crate) fn fill(&self, has_no_room: bool) {
        self.has_no_room.store(has_no_room, Ordering::Release);
    }

    fn room(&self) -> io::Result<()> {
        if self.refuses.load(Ordering::Acquire) { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    fn on_it(&self, file: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(OnIt { disk: self.clone(), file })
    }
}

impl Files for Full {
    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.room().and_then(|()| SystemFiles.create_dir_all(dir))
    }
    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        SystemFiles.list(dir)
    }
    fn open(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        Ok(self.on_it(SystemFiles.open(path)?))
    }
    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        self.room()?;
        Ok(self.on_it(SystemFiles.create(path)?))
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        SystemFiles.rename(from, to)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        SystemFiles.remove(path)
    }
    fn remove_dir_all(&self, dir: &Path) -> io::Result<()> {
        SystemFiles.remove_dir_all(dir)
    }
    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        SystemFiles.sync_dir(dir)
    }
    fn free_bytes(&self, dir: &Path) -> io::Result<u64> {
        if self.has_no_room.load(Ordering::Acquire) { Ok(0) } else { SystemFiles.free_bytes(dir) }
    }
    fn lock(&self, path: &Path) -> io::Result<Lock> {
        SystemFiles.lock(path)
    }
}

struct OnIt {
    disk: Full,
    file: Arc<dyn File>,
}

impl File for OnIt {
    fn read_at(&self, buf: &mut [u8], at: u64) -> io::Result<usize> {
        self.file.read_at(buf, at)
    }
    fn write_at(&self, parts: &[io::IoSlice<'_>], at: u64) -> io::Result<()> {
        self.disk.room().and_then(|()| self.file.write_at(parts, at))
    }
    fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }
    fn size(&self) -> io::Result<u64> {
        self.file.size()
    }
    fn set_size(&self, bytes: u64) -> io::Result<()> {
        self.disk.room().and_then(|()| self.file.set_size(bytes))
    }
}
