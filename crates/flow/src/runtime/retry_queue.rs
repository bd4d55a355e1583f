//! Source records that wait to be read again after an error, longer from time to time.

use std::time::Duration;

use crate::batch::Batch;

/// The pause before the first time; it doubles up to [`PAUSE_MAX`].
const PAUSE_FIRST: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(30);

#[derive(Default)]
pub(super) struct RetryQueue {
    /// Records, and the times at which they are read again.
    waiting: Vec<(Duration, Batch)>,
}

impl RetryQueue {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Keeps records until they are read again; the time until then.
    pub(super) fn add(&mut self, roots: Batch, now: Duration) -> Duration {
        let pause = pause(roots.attempts());
        self.waiting.push((now + pause, roots));
        pause
    }

    /// The records whose pause is over.
    pub(super) fn take_due(&mut self, now: Duration) -> Vec<Batch> {
        self.waiting.extract_if(.., |(at, _)| *at <= now).map(|(_, roots)| roots).collect()
    }

    /// The time until the next records are read again.
    pub(super) fn time_to_next(&self, now: Duration) -> Option<Duration> {
        let next = self.waiting.iter().map(|(at, _)| *at).min()?;
        Some(next.saturating_sub(now))
    }
}

/// The pause before records are read again for this time.
fn pause(attempt: u32) -> Duration {
    (PAUSE_FIRST * (1 << attempt.saturating_sub(1).min(20))).min(PAUSE_MAX)
}
