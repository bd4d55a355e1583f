//! Files that have been replaced: they are removed, unless a hold keeps all files in place for a while.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use millstream_log::Files;
use parking_lot::Mutex;

/// Removes replaced files, at once or when the last hold is gone.
pub(crate) struct ReplacedFiles {
    files: Arc<dyn Files>,
    held: Mutex<HeldBack>,
}

#[derive(Default)]
struct HeldBack {
    holds: usize,
    waiting: Vec<PathBuf>,
}

/// Keeps replaced files in place until it is dropped.
pub(crate) struct Hold(Arc<ReplacedFiles>);

impl ReplacedFiles {
    pub(crate) fn new(files: Arc<dyn Files>) -> Arc<Self> {
        Arc::new(Self { files, held: Mutex::default() })
    }

    pub(crate) fn files(&self) -> &dyn Files {
        &*self.files
    }

    /// Removes the file at `path`, unless a hold keeps it for now.
    pub(crate) fn remove(&self, path: PathBuf) {
        let mut held = self.held.lock();
        if held.holds > 0 {
            held.waiting.push(path);
            return;
        }
        drop(held);
        self.remove_now(&path);
    }

    pub(crate) fn hold(self: &Arc<Self>) -> Hold {
        self.held.lock().holds += 1;
        Hold(self.clone())
    }

    fn remove_now(&self, path: &Path) {
        if let Err(error) = self.files.remove(path)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(path = %path.display(), %error, "cannot remove a history file; the next start removes it");
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut held = self.0.held.lock();
        held.holds -= 1;
        let free = if held.holds == 0 { std::mem::take(&mut held.waiting) } else { Vec::new() };
        drop(held);
        free.iter().for_each(|path| self.0.remove_now(path));
    }
}
