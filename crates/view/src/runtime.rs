//! The services that a view runs on, and the form of its answers.

use std::sync::Arc;

use millstream_log::Log;
use millstream_types::WallClock;
use tokio::sync::oneshot;

use crate::{Checkpoints, Error, Shards, View};

/// The pending answer of a command.
pub type Answer<V> = oneshot::Receiver<Result<<V as View>::Answer, Error>>;

/// The services that a view runs on.
#[derive(Clone)]
pub struct ViewRuntime {
    /// The log that holds the state topic.
    pub log: Arc<dyn Log>,
    /// The checkpoint store of the process.
    pub checkpoints: Arc<Checkpoints>,
    /// The threads that run the owners.
    pub shards: Arc<Shards>,
    /// The wall clock for records and decisions.
    pub wall: Arc<dyn WallClock>,
}
