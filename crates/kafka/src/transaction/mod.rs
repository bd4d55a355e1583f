//! Transactions of Kafka clients: batches for several partitions and positions of groups are visible all or not at all.
//!
//! ```text
//!   InitProducerId ──────┐                              ┌─► change: a record in `_transactions`
//!   AddPartitionsToTxn ──┼─► TransactionCoordinator ─► Transaction (a state machine per transactional id)
//!   AddOffsetsToTxn ─────┤   (one change                └─► end: markers, positions and the record, one atomic append
//!   TxnOffsetCommit ─────┤    at a time)
//!   EndTxn, its timeout ─┘
//! ```
//!
//! Clients of version 2 (KIP-890, the feature `transaction.version`) send no AddPartitionsToTxn and no AddOffsetsToTxn: Produce and
//! TxnOffsetCommit add what they bring. Their EndTxn begins the next epoch.
//!
//! Always true
//! - A change is in `_transactions`, and synced, before its client is answered: a restart continues from there.
//! - A transaction ends in one atomic append of all its parts. There is no time between *decided* and *done*, so nothing has
//!   to be completed after a crash.
//! - A transactional batch is appended only while its partition belongs to its producer's open transaction, and never behind
//!   the marker that ends it.
//! - A producer that takes over a transactional id fences the producer that had it before.
//!
//! Not here: the requests of clients (`transaction_apis`); what readers may see of an open transaction, and which of its batches are aborted (`log`).

mod coordinator;
mod ids;
mod machine;
mod record;
mod store;
#[cfg(test)]
mod tests;

pub(crate) use coordinator::{TransactionCoordinator, TransitionResult};
pub(crate) use machine::{ProducerIdAndEpoch, Transaction, TransactionState, Transition};
