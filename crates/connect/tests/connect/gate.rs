//! The system's files behind a gate: writers wait while it is shut.

use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};

use millstream_log::{File, Files, Lock, SystemFiles};
use millstream_testkit::runs_on_kafka;

/// `true` if a test cannot hold up the writing of the log: on Apache Kafka, the log has no files of its own.
pub(crate) fn log_has_no_files() -> bool {
    runs_on_kafka()
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    Open,
    Shut,
    Broken,
}

/// Files whose writing can be held up, or made to fail.
#[derive(Clone)]
pub(crate) struct GatedFiles {
    system: Arc<SystemFiles>,
    gate: Arc<(Mutex<State>, Condvar)>,
}

impl Default for GatedFiles {
    fn default() -> Self {
        Self { system: Arc::new(SystemFiles), gate: Arc::new((Mutex::new(State::Open), Condvar::new())) }
    }
}

impl GatedFiles {
    /// Lets writers wait until [`GatedFiles::open`] or [`GatedFiles::break_down`].
    pub(crate) fn shut(&self) {
        self.set(State::Shut);
    }

    /// Lets the waiting writers go on.
    pub(crate) fn open_again(&self) {
        self.set(State::Open);
    }

    /// Lets every further write fail.
    pub(crate) fn break_down(&self) {
        self.set(State::Broken);
    }

    fn set(&self, state: State) {
        *self.gate.0.lock().unwrap() = state;
        self.gate.1.notify_all();
    }

    fn gated(&self, file: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(GatedFile { file, gate: self.gate.clone() })
    }
}

impl Files for GatedFiles {
    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.system.create_dir_all(dir)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.system.list(dir)
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        self.system.open(path).map(|file| self.gated(file))
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        self.system.create(path).map(|file| self.gated(file))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.system.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.system.remove(path)
    }

    fn remove_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.system.remove_dir_all(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.system.sync_dir(dir)
    }

    fn lock(&self, path: &Path) -> io::Result<Lock> {
        self.system.lock(path)
    }
}

struct GatedFile {
    file: Arc<dyn File>,
    gate: Arc<(Mutex<State>, Condvar)>,
}

impl File for GatedFile {
    fn read_at(&self, buf: &mut [u8], at: u64) -> io::Result<usize> {
        self.file.read_at(buf, at)
    }

    fn write_at(&self, parts: &[IoSlice<'_>], at: u64) -> io::Result<()> {
        let state = self.gate.1.wait_while(self.gate.0.lock().unwrap(), |state| *state == State::Shut).unwrap();
        match *state {
            State::Broken => Err(io::Error::other("the disk is broken")),
            _ => {
                drop(state);
                self.file.write_at(parts, at)
            }
        }
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }

    fn size(&self) -> io::Result<u64> {
        self.file.size()
    }

    fn set_size(&self, bytes: u64) -> io::Result<()> {
        self.file.set_size(bytes)
    }
}
