//! The state a partition's owner keeps: commands in, changes out, snapshots to read.
//!
//! Whatever a plane knows is a [`View`]: state that follows from the records of a *state topic* and can be rebuilt from
//! it at any time. A plane says how a command is decided and how a change is applied; [`Views`] does the rest: one
//! owner per partition, many commands per append, several appends in flight, snapshots, checkpoints, restart.
//!
//! ```text
//!  command ─► inbox ─► owner: decide on state *with changes in flight* ─► one atomic append ─► log
//!                        ▲                                                     │ answered at the topic's level
//!  answer  ◄─────────────┼───────────── publish snapshot ◄─────────────────────┘
//!  reader  ◄── snapshot  └── checkpoint, written behind (deleting it is always safe)
//! ```
//!
//! Not here: what commands and changes mean (the planes), where records are kept (`log`).

mod checkpoint;
mod dirty;
mod error;
mod failure;
mod follow;
mod gathered;
mod handle;
mod intact;
mod load;
mod owner;
mod shard;
mod source;
mod state_record;
#[cfg(test)]
mod tally;
mod view;

pub use checkpoint::Checkpoints;
pub use error::{DecodeError, Error};
pub use failure::{FailedPart, Failure};
pub use follow::{Follow, Follower, FollowerConfig};
pub use handle::{Answer, Ground, Views, ViewsConfig};
pub use shard::Shards;
pub use source::{Source, Sources};
pub use view::{Draft, Encoded, Publish, Snapshot, View};
