//! The number of a filter within its stream.

/// The number of a filter within its stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct FilterId(pub(crate) u32);
