//! Rules for further attempts after a failed one.

use std::time::Duration;

use millstream_outgoing::{Failed, FailureKind};

use super::subscription::Retry;
use crate::config::NotificationsConfig;

/// Classifies an attempt: a status of "not now" proves that the receiver has not taken it; with
/// `Retry::Always` any failure is retried.
pub(crate) fn judged(attempt: Result<Option<u16>, Failed>, retry: Retry) -> Result<Option<u16>, Failed> {
    match attempt {
        Ok(Some(code @ (429 | 503))) if retry != Retry::Never => Err(Failed::refused(format!("status {code}"))),
        Ok(Some(code @ 500..)) if retry == Retry::Always => Err(Failed::unknown(format!("status {code}"))),
        other => other,
    }
}

pub(crate) fn may_retry(failed: &Failed, retry: Retry) -> bool {
    match retry {
        Retry::Never => false,
        Retry::Safe => failed.kind != FailureKind::Unknown,
        Retry::Always => true,
    }
}

/// Growing pauses between attempts of one lane.
pub(crate) struct Pause {
    first_ms: u64,
    longest_ms: u64,
    next_ms: u64,
}

impl Pause {
    pub(crate) fn new(config: &NotificationsConfig) -> Self {
        let (first_ms, longest_ms) = (config.retry_first_ms, config.retry_longest_ms);
        Self { first_ms, longest_ms, next_ms: first_ms }
    }

    pub(crate) fn reset(&mut self) {
        self.next_ms = self.first_ms;
    }

    /// Waits; only a wait that was not cancelled makes the next one longer. Part of the pause is random, so that
    /// retries spread.
    pub(crate) async fn wait(&mut self) {
        let half_ms = self.next_ms / 2;
        tokio::time::sleep(Duration::from_millis(half_ms + fastrand::u64(..=half_ms.max(1)))).await;
        self.next_ms = (self.next_ms * 2).min(self.longest_ms);
    }
}
