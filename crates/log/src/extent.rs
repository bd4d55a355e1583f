//! Places of stored batches in the log's files, to send them without a copy.

use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use crate::{AbortedTransaction, File};

/// Whole batches, one after the other, in a file of the log. They were written or verified within the last minute.
/// They stay readable for as long as this value lives, even if their segment is removed.
#[derive(Clone)]
pub struct Extent {
    file: Arc<dyn File>,
    at: u64,
    size_bytes: usize,
}

impl Extent {
    /// An extent of `size_bytes` bytes at `at` in `file`.
    #[must_use]
    pub fn new(file: Arc<dyn File>, at: u64, size_bytes: usize) -> Self {
        Self { file, at, size_bytes }
    }

    /// The descriptor of the file; `None` in a simulation.
    #[must_use]
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.file.descriptor()
    }

    /// Position of the first byte in the file.
    #[must_use]
    pub fn at(&self) -> u64 {
        self.at
    }

    /// Number of bytes in the extent.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        self.size_bytes
    }

    /// Skips the first `count` bytes, which were sent.
    ///
    /// # Panics
    /// If the extent is shorter than `count`.
    pub fn advance(&mut self, count: usize) {
        assert!(count <= self.size_bytes, "only what is there is passed over");
        self.at += count as u64;
        self.size_bytes -= count;
    }
}

impl fmt::Debug for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Extent({} bytes at {})", self.size_bytes, self.at)
    }
}

/// Places of stored batches, with the aborted transactions that a reader must know.
#[derive(Debug)]
pub struct Located {
    /// The batches, including markers and batches of aborted transactions; at least one extent.
    pub extents: Vec<Extent>,
    /// The same list as [`crate::StoredBatches::aborted`].
    pub aborted: Vec<AbortedTransaction>,
}
