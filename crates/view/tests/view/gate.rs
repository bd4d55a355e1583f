//! A file layer at which writes and syncs can be made to wait.

use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};

use millstream_log::{File, Files, Lock};

/// The operations that the gate holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shut {
    Nothing,
    Writes,
    Syncs,
}

/// See the module. Clones share the gate.
#[derive(Clone)]
pub(crate) struct Gate<F: Clone> {
    files: F,
    shut: Arc<(Mutex<Shut>, Condvar)>,
}

impl<F: Files + Clone> Gate<F> {
    pub(crate) fn around(files: F) -> Self {
        Self { files, shut: Arc::new((Mutex::new(Shut::Nothing), Condvar::new())) }
    }

    pub(crate) fn set(&self, shut: Shut) {
        *self.shut.0.lock().unwrap() = shut;
        self.shut.1.notify_all();
    }

    /// Opens the gate when it is dropped, so that a test that fails does not wait for ever.
    pub(crate) fn opened_at_end(&self) -> OpenedAtEnd<F> {
        OpenedAtEnd(self.clone())
    }

    fn file(&self, file: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(Gated { file, shut: Arc::clone(&self.shut) })
    }
}

/// See [`Gate::opened_at_end`].
pub(crate) struct OpenedAtEnd<F: Files + Clone>(Gate<F>);

impl<F: Files + Clone> Drop for OpenedAtEnd<F> {
    fn drop(&mut self) {
        self.0.set(Shut::Nothing);
    }
}

struct Gated {
    file: Arc<dyn File>,
    shut: Arc<(Mutex<Shut>, Condvar)>,
}

impl Gated {
    fn wait_while(&self, what: Shut) {
        let shut = self.shut.0.lock().unwrap();
        drop(self.shut.1.wait_while(shut, |shut| *shut == what).unwrap());
    }
}

impl File for Gated {
    fn read_at(&self, buf: &mut [u8], at: u64) -> io::Result<usize> {
        self.file.read_at(buf, at)
    }

    fn write_at(&self, parts: &[IoSlice<'_>], at: u64) -> io::Result<()> {
        self.wait_while(Shut::Writes);
        self.file.write_at(parts, at)
    }

    fn sync(&self) -> io::Result<()> {
        self.wait_while(Shut::Syncs);
        self.file.sync()
    }

    fn size(&self) -> io::Result<u64> {
        self.file.size()
    }

    fn set_size(&self, bytes: u64) -> io::Result<()> {
        self.file.set_size(bytes)
    }
}

impl<F: Files + Clone> Files for Gate<F> {
    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.files.create_dir_all(dir)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.files.list(dir)
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        self.files.open(path).map(|file| self.file(file))
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        self.files.create(path).map(|file| self.file(file))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.files.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.files.remove(path)
    }

    fn remove_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.files.remove_dir_all(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.files.sync_dir(dir)
    }

    fn lock(&self, path: &Path) -> io::Result<Lock> {
        self.files.lock(path)
    }
}
