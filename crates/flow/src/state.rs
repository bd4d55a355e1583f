//! The state of keyed operators.
//!
//! ```text
//!  KeyedState: the values of one operator in one instance ── changes of an epoch ──► StateChanges ──► the job's state topic
//!       ▲                                                                                                  │
//!       └──────────────────────────────────── restored values, by key group ◄──────────────────────────────┘
//! ```
//!
//! Always true
//! - A value belongs to the key group of its key, and a group to one instance. So values can be restored by any number of
//!   instances.
//! - The changes between two epochs are handed over once, each key with its last value.

mod keyed;
mod memory;
mod record;

pub(crate) use self::keyed::{KeyedState, StateValue, TellChange, digest_of};
pub(crate) use self::memory::{JobStateMemory, StateBudget, StateMemory};
pub(crate) use self::record::{EpochRecord, StateChanges, StateEntry, TopicPositions};
