//! What has been counted of a subscription, and whether it is at work.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::change::Place;
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
    /// Those of a durable queue among them that wait for another attempt: each counts once, however often the server starts.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) failed: BTreeSet<Place>,
}

impl Progress {
    /// A subscription's first state.
    pub(crate) fn new(status: Status) -> Self {
        Self { status, ..Self::default() }
    }

    /// Counts a notification of which the first attempt has failed; whether it had not been counted. `waits` where a
    /// restart goes on with it.
    pub(crate) fn fail(&mut self, place: Place, waits: bool, at_ms: i64, reason: Option<String>) -> bool {
        if waits && !self.failed.insert(place) {
            return false;
        }
        self.fails += 1;
        self.last_failure_ms = Some(at_ms);
        self.last_failure_reason = reason;
        true
    }

    /// Whether changes make it fire.
    pub(crate) fn is_at_work(&self) -> bool {
        self.status != Status::Inactive
    }
}
