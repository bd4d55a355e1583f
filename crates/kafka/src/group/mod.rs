//! Consumer groups, as clients with the classic protocol know them.
//!
//! ```text
//!   JoinGroup ─┐                       ┌─► answers, at once or when a rebalance is over
//!   SyncGroup ─┼─► Coordinator ─► Group (a state machine per group, in memory)
//!   Heartbeat ─┤        │
//!   OffsetCommit        └─► positions, in the log
//! ```
//!
//! - Who is a member of which generation is known in memory only: after a restart members find that they are unknown and
//!   join anew. Positions are in the log and survive.
//! - A group is `<tenant>/<group id>` in the log: the same id of another tenant is another group.
//! - A position may be committed up to the partition's stable offset. One that lies between that and the tail is refused
//!   so that clients try it again; one beyond the tail as out of range. One below the first offset is taken: the reader
//!   finds that its records are gone, and does what its reset policy says.
//!
//! Not here: how requests reach these handlers and who may call them, the assignment of partitions (the leading client
//! makes it), and the protocol of KIP-848, which is not offered.

mod admin;
mod config;
mod coordinator;
mod machine;
mod member;
mod membership;
mod positions;
#[cfg(test)]
mod tests;

pub use config::GroupConfig;
pub use coordinator::{Caller, Coordinator, tenant_and_id};
pub(crate) use machine::Speaker;
pub(crate) use positions::{is_fence, to_client};
