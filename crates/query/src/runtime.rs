//! The services that an engine is started with.

use std::sync::Arc;

use millstream_log::Log;
use millstream_types::{MemoryBudget, MonotonicClock, ShortLives, WallClock};

/// The services that queries run on.
#[derive(Clone)]
pub struct QueryRuntime {
    /// The log with the topics that are asked.
    pub log: Arc<dyn Log>,
    /// The memory of the process, which states, and rows that wait for their client, draw on.
    pub memory: MemoryBudget,
    /// Time for windows and rates.
    pub monotonic: Arc<dyn MonotonicClock>,
    /// Time of day.
    pub wall: Arc<dyn WallClock>,
    /// The last lives of the process, if each ended within a minute and not in order.
    pub short_lives: ShortLives,
}
