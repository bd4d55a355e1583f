//! Consumer groups with the classic protocol.
//!
//! ```text
//!   JoinGroup ─┐                            ┌─► answers, at once or when a rebalance is over
//!   SyncGroup ─┼─► GroupCoordinator ─► Group (a state machine per group, in memory)
//!   Heartbeat ─┤        │
//!   OffsetCommit        └─► positions, in the log
//! ```
//!
//! - Members and generations are in memory only: after a restart members learn that they are unknown and join again.
//!   Positions are in the log and survive.
//! - A group is `<tenant>/<group id>` in the log: the same id of another tenant is another group.
//! - A tenant may have so many groups, in memory or with positions only. A further one takes the place of the one that nobody has
//!   used for longest, whose positions are forgotten; if all have members it is refused.
//! - A position may be committed up to the partition's stable offset. A position between that and the tail is refused so
//!   that clients try again; one beyond the tail is out of range. A position below the first offset is accepted: the reader
//!   finds that its records are gone, and follows its reset policy.
//!
//! Not here: how requests reach these handlers and who may call them, the assignment of partitions (the leading client makes
//! it), and the protocol of KIP-848, which is not offered.

mod admin;
mod config;
mod coordinator;
mod entry;
mod errors;
mod machine;
mod member;
mod membership;
mod positions;
mod registry;
#[cfg(test)]
mod tests;

pub use config::GroupConfig;
pub use coordinator::{Caller, GroupCoordinator};
pub(crate) use errors::{is_fence, to_client};
pub(crate) use machine::MemberIdentity;
pub use registry::tenant_and_id;
