//! What has been counted of a subscription, and whether it is at work.

use serde::{Deserialize, Serialize};

use super::subscription::Status;

/// Counters and times of one subscription; kept by its owner alone, so they are exact.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Progress {
    pub(crate) status: Status,
    pub(crate) times_sent: u64,
    pub(crate) last_notification_ms: Option<i64>,
    pub(crate) last_success_ms: Option<i64>,
    /// HTTP only, as is the reason below.
    pub(crate) last_success_code: Option<u16>,
    pub(crate) last_failure_ms: Option<i64>,
    pub(crate) last_failure_reason: Option<String>,
    /// Notifications in a row of which an attempt has failed.
    pub(crate) fails: u64,
}

impl Progress {
    /// A subscription's first state.
    pub(crate) fn new(status: Status) -> Self {
        Self { status, ..Self::default() }
    }

    /// Whether changes make it fire.
    pub(crate) fn is_at_work(&self) -> bool {
        self.status != Status::Inactive
    }
}
