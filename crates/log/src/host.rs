//! The surroundings of a log.

use std::sync::Arc;

use millstream_types::{MonotonicClock, WallClock};

use crate::{Files, SeededScheduler};

/// The surroundings of a log: its disk, its clocks, and the thing that gives its tasks their turns.
#[derive(Clone)]
pub(crate) struct Host {
    pub(crate) files: Arc<dyn Files>,
    pub(crate) monotonic: Arc<dyn MonotonicClock>,
    pub(crate) wall: Arc<dyn WallClock>,
    /// `None` if each task has a thread.
    pub(crate) scheduler: Option<Arc<SeededScheduler>>,
}

impl Host {
    /// Random bits for names and secrets: of the seed, or of the system.
    pub(crate) fn random_bits(&self) -> u128 {
        match &self.scheduler {
            Some(scheduler) => (u128::from(scheduler.bits()) << 64) | u128::from(scheduler.bits()),
            None => uuid::Uuid::new_v4().as_u128(),
        }
    }
}
