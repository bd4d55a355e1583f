//! A cache of file indexes that were read lately.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::Error;
use crate::file_reader::OpenFile;
use crate::file_table::DataFile;

const OPEN_MAX: usize = 256;

/// Tracks open files and closes all of them when the limit is reached. A removed file is closed, too.
#[derive(Debug)]
pub(crate) struct IndexCache {
    max_bytes: usize,
    open: Mutex<OpenIndexes>,
}

#[derive(Debug, Default)]
struct OpenIndexes {
    files: Vec<Weak<DataFile>>,
    bytes: usize,
}

impl IndexCache {
    pub(crate) fn new(max_bytes: usize) -> Self {
        Self { max_bytes, open: Mutex::default() }
    }

    /// Returns the file with its index; opens it if needed.
    pub(crate) fn open(&self, file: &Arc<DataFile>) -> Result<Arc<OpenFile>, Error> {
        if let Some(open) = file.open.lock().clone() {
            return Ok(open);
        }
        let open = file.read_index()?;
        let bytes = open.index_bytes();
        let mut indexes = self.open.lock();
        if indexes.bytes + bytes > self.max_bytes || indexes.files.len() >= OPEN_MAX {
            for file in indexes.files.drain(..).filter_map(|file| file.upgrade()) {
                *file.open.lock() = None;
            }
            indexes.bytes = 0;
        }
        if bytes <= self.max_bytes {
            indexes.bytes += bytes;
            indexes.files.push(Arc::downgrade(file));
            *file.open.lock() = Some(open.clone());
        }
        Ok(open)
    }
}
