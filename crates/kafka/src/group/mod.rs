//! Consumer groups with the classic protocol and with that of KIP-848.
//!
//! ```text
//!   JoinGroup, SyncGroup ─────┐                     ┌─► answers, at once or when a classic rebalance is over
//!   Heartbeat ────────────────┼─► GroupCoordinator ─► Group (a state machine per group, in memory)
//!   ConsumerGroupHeartbeat ───┤        │
//!   OffsetCommit ─────────────┘        └─► positions, in the log
//! ```
//!
//! - Members, generations and epochs are in memory only: after a restart members learn that they are unknown and join again.
//!   Positions are in the log and survive.
//! - All members of a group speak the same protocol. A group without members takes the one of the next that joins.
//! - A group is `<tenant>/<group id>` in the log: the same id of another tenant is another group.
//! - A tenant may have so many groups, in memory or with positions only. A further one takes the place of the one that nobody has
//!   used for longest, whose positions are forgotten; if all have members it is refused.
//! - A position may be committed up to the partition's stable offset. A position between that and the tail is refused so
//!   that clients try again; one beyond the tail is out of range. A position below the first offset is accepted: the reader
//!   finds that its records are gone, and follows its reset policy.
//!
//! Not here: how requests reach these handlers and who may call them, and the assignment of partitions with the classic
//! protocol, which the leading client makes.

mod admin;
mod config;
mod consumer_group;
mod consumer_membership;
mod coordinator;
mod entry;
mod errors;
mod machine;
mod member;
mod membership;
mod positions;
mod protocol;
mod registry;
#[cfg(test)]
mod tests;

pub use config::GroupConfig;
pub(crate) use consumer_group::Assignor;
pub use coordinator::{Caller, GroupCoordinator};
pub(crate) use errors::{is_fence, to_client};
pub(crate) use machine::MemberIdentity;
pub use registry::tenant_and_id;
