//! The outcome of an item.

use crate::{StoredValue, WriteRefusal};

/// The outcome of an item, as its transaction knows it.
#[derive(Debug)]
pub(super) enum ItemOutcome {
    Found {
        stored: StoredValue,
        version: Option<u64>,
        write: Option<usize>,
    },
    Missing,
    /// Stored, by the write of that number in its transaction; an expiry that has passed leaves none.
    Stored {
        is_new: bool,
        write: Option<usize>,
    },
    Deleted {
        write: Option<usize>,
    },
    /// A condition does not hold.
    Unmet {
        is_there: bool,
        version: Option<u64>,
    },
    Refused(WriteRefusal),
    /// The request has read as much as it may.
    TooMuch,
}
