//! Transactions, as Kafka's clients know them: batches for several partitions and positions of groups, all or nothing.
//!
//! ```text
//!   InitProducerId ──────┐                         ┌─► change: a record in `_transactions`
//!   AddPartitionsToTxn ──┼─► Coordinator ─► Transaction (a state machine per transactional id)
//!   AddOffsetsToTxn ─────┤   (one change             └─► end: markers, positions and the record, one atomic append
//!   TxnOffsetCommit ─────┤    at a time)
//!   EndTxn, its timeout ─┘
//! ```
//!
//! Always true
//! - What a client was answered is in `_transactions`, and synced: a restart goes on where it stood.
//! - A transaction ends in one atomic append of all its parts. There is no time between *decided* and *done*, and so
//!   nothing to be completed after a crash.
//! - A transactional batch is appended only while its partition is part of its producer's open transaction, and never
//!   behind the marker that ends it.
//! - Whoever takes over a transactional id fences whoever had it before.
//!
//! Not here: what readers may see of an open transaction, and which of its batches are aborted (`log`).

mod coordinator;
mod describe;
mod machine;
mod offsets;
mod record;
mod requests;
mod store;
#[cfg(test)]
mod tests;

pub(crate) use coordinator::Coordinator;
pub(crate) use describe::{describe, list};
pub(crate) use machine::Producing;
pub(crate) use offsets::commit_offsets;
pub(crate) use requests::{add_offsets, add_partitions, end, init_producer_id, key};
