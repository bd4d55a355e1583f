//! The assumed overhead of memory allocations.

/// The overhead of one memory allocation.
pub(super) const ALLOCATION_BYTES: usize = 16;
