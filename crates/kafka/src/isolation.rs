//! The isolation level of a reader.

use millstream_log::{Offsets, UpTo};
use millstream_types::Offset;

/// The isolation level: the transactions whose records a reader sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Isolation {
    /// All records, of open and aborted transactions too.
    Uncommitted,
    /// Records up to the first open transaction, and the list of aborted ones.
    Committed,
}

impl From<i8> for Isolation {
    fn from(level: i8) -> Self {
        if level == 1 { Self::Committed } else { Self::Uncommitted }
    }
}

impl Isolation {
    pub(crate) fn up_to(self) -> UpTo {
        match self {
            Self::Uncommitted => UpTo::High,
            Self::Committed => UpTo::Stable,
        }
    }

    /// The first offset that the reader does not see.
    pub(crate) fn end(self, ends: &Offsets) -> Offset {
        match self {
            Self::Uncommitted => ends.high,
            Self::Committed => ends.stable,
        }
    }
}
