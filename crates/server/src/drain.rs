//! The time that a stop of the server waits for others: one span for all of them, so that the process ends soon
//! whatever hangs.

use std::time::{Duration, Instant};

/// The least time of each part, for work that ends at once, after another part has used up the whole.
const LEAST: Duration = Duration::from_millis(100);

/// The time that is left to wait for clients and receivers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Drain {
    begun: Instant,
    time: Duration,
}

impl Drain {
    /// Begins now.
    pub(crate) fn begin(time: Duration) -> Self {
        Self { begun: Instant::now(), time }
    }

    /// The rest of the time, which is never quite over.
    pub(crate) fn left(self) -> Duration {
        self.time.saturating_sub(self.begun.elapsed()).max(LEAST)
    }

    /// The time since the beginning.
    pub(crate) fn elapsed(self) -> Duration {
        self.begun.elapsed()
    }
}
