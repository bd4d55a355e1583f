//! The embedded engine as its users see it, on a simulated disk and on the system's; power loss and kills have programs of their own.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod clear_journal;
mod compaction;
mod compaction_transactions;
mod conformance;
mod corruption;
mod cuts;
mod failures;
mod fixtures;
mod guarded;
mod image;
mod live_compaction;
mod located;
mod read_one;
mod recovery;
mod retention;
mod room;
mod support;
mod turns;
mod unwaited;
