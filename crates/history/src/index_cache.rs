//! The indexes of files that were read lately, so that a read does not read them again.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::Error;
use crate::catalog::KeptFile;
use crate::file_reader::OpenFile;

/// Files that are kept open at most.
const OPEN_MAX: usize = 256;

/// Remembers which files are open; when there is no room all are closed. A file that is removed is closed with it.
#[derive(Debug)]
pub(crate) struct IndexCache {
    max_bytes: usize,
    open: Mutex<Remembered>,
}

#[derive(Debug, Default)]
struct Remembered {
    files: Vec<Weak<KeptFile>>,
    bytes: usize,
}

impl IndexCache {
    pub(crate) fn new(max_bytes: usize) -> Self {
        Self { max_bytes, open: Mutex::default() }
    }

    /// The file, opened with its index.
    pub(crate) fn open(&self, file: &Arc<KeptFile>) -> Result<Arc<OpenFile>, Error> {
        if let Some(open) = file.open.lock().clone() {
            return Ok(open);
        }
        let open = file.read_index()?;
        let bytes = open.index_bytes();
        let mut remembered = self.open.lock();
        if remembered.bytes + bytes > self.max_bytes || remembered.files.len() >= OPEN_MAX {
            for file in remembered.files.drain(..).filter_map(|file| file.upgrade()) {
                *file.open.lock() = None;
            }
            remembered.bytes = 0;
        }
        if bytes <= self.max_bytes {
            remembered.bytes += bytes;
            remembered.files.push(Arc::downgrade(file));
            *file.open.lock() = Some(open.clone());
        }
        Ok(open)
    }
}
