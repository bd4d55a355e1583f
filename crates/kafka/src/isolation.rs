//! What a reader wants to see of transactions.

use millstream_log::{Offsets, UpTo};
use millstream_types::Offset;

/// What a reader wants to see of transactions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Isolation {
    /// Records of all of them, as they come.
    Uncommitted,
    /// Records up to the first that is open, and which of them were aborted.
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
