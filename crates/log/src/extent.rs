//! Stored batches where they lie, for whoever sends them on without a look at them.

use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use crate::{AbortedTransaction, File};

/// Whole batches, one behind the other in a file of the log. They were written, or their checksum matched, within the last minute. They
/// stay readable for as long as this lives, whatever becomes of their segment.
#[derive(Clone)]
pub struct Extent {
    file: Arc<dyn File>,
    at: u64,
    size_bytes: usize,
}

impl Extent {
    /// `size_bytes` of `file` from `at` on.
    #[must_use]
    pub fn new(file: Arc<dyn File>, at: u64, size_bytes: usize) -> Self {
        Self { file, at, size_bytes }
    }

    /// The file, if it is one of the operating system's.
    #[must_use]
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.file.descriptor()
    }

    /// Where in the file they begin.
    #[must_use]
    pub fn at(&self) -> u64 {
        self.at
    }

    /// How many bytes they take.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        self.size_bytes
    }

    /// Leaves out the first `count` bytes, which were sent.
    ///
    /// # Panics
    /// If there are not so many.
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

/// Batches where they lie, and what must be known to read them.
#[derive(Debug)]
pub struct Located {
    /// The batches, those of aborted transactions and markers among them; at least one stretch.
    pub extents: Vec<Extent>,
    /// As [`crate::Stored::aborted`].
    pub aborted: Vec<AbortedTransaction>,
}
