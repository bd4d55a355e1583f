//! A view: the state that a partition's owner keeps. Commands go in, changes come out, readers get snapshots.
//!
//! A plane keeps its knowledge in a [`View`]: state that follows from the records of a *state topic* and
//! can be rebuilt from them at any time. A plane implements the decision of a command and the effect of
//! a change. [`Views`] does the rest: one owner per partition, many commands per append, several appends
//! in flight, snapshots, checkpoints, restart. Its partitions are all in this process; those of [`Slots`] come and go.
//!
//! ```text
//!  command ─► inbox ─► owner: decide on state *with changes in flight* ─► one atomic append ─► log
//!                        ▲                                                     │ answered at the topic's level
//!  answer  ◄─────────────┼───────────── publish snapshot ◄─────────────────────┘
//!  reader  ◄── snapshot  └── checkpoint, written behind (deleting it is always safe)
//! ```
//!
//! Not here: the meaning of commands and changes (the planes), the storage of records (`log`).

mod change_batch;
mod checkpoint;
mod checkpointer;
mod config;
mod dirty;
mod error;
mod failure;
mod flight;
mod follow;
mod handle;
mod intact;
mod load;
mod merge;
mod outcome;
mod owner;
mod runtime;
mod shard;
mod slots;
mod source;
mod state_record;
#[cfg(test)]
mod tally;
mod view;
mod waiting;

pub use checkpoint::Checkpoints;
pub use config::ViewsConfig;
pub use error::{DecodeError, Error};
pub use failure::{FailedPart, Failure};
pub use follow::{Follow, Follower, FollowerConfig, SourceRecord};
pub use handle::Views;
pub use runtime::{Answer, ViewRuntime};
pub use shard::Shards;
pub use slots::{Place, Slots};
pub use source::{SourcePartition, Sources};
pub use view::{ByReference, Draft, Encoded, Headers, InState, Publish, Referenced, Snapshot, Storage, View};
