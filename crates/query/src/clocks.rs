//! The clocks of an engine.

use std::sync::Arc;

use millstream_types::{MonotonicClock, WallClock};

/// The monotonic clock for durations and the wall clock for time stamps.
pub(crate) struct Clocks {
    pub(crate) monotonic: Arc<dyn MonotonicClock>,
    pub(crate) wall: Arc<dyn WallClock>,
}
