//! The position of a follower in a source.

use std::sync::Arc;

use millstream_log::{Bell, Hold, Partition, Topic};
use millstream_types::Offset;

/// The position of the follower in one source.
pub(super) struct SourceCursor {
    pub(super) topic: Arc<Topic>,
    pub(super) partition: Arc<dyn Partition>,
    pub(super) next: Offset,
    /// The position that each owner knows; meaningless of those that are not here.
    pub(super) told: Vec<Offset>,
    /// Keeps records that some owner has not applied, if the engine supports holds.
    pub(super) hold: Option<Box<dyn Hold>>,
    /// Kept alive so that it rings.
    pub(super) _bell: Arc<Bell>,
    /// The source cannot be read any more and is skipped.
    pub(super) failed: bool,
}
