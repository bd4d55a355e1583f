//! Counters and status of a subscription.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::change::ChangePosition;
use super::subscription::Status;

/// Counters and times of one subscription. Only its owner changes them, so they are exact.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct SubscriptionProgress {
    pub(crate) status: Status,
    pub(crate) times_sent: u64,
    pub(crate) last_notification_ms: Option<i64>,
    pub(crate) last_success_ms: Option<i64>,
    /// HTTP only, like the reason below.
    pub(crate) last_success_code: Option<u16>,
    pub(crate) last_failure_ms: Option<i64>,
    pub(crate) last_failure_reason: Option<String>,
    /// Consecutive failed notifications.
    pub(crate) fails: u64,
    /// Notifications that were dropped: the queue was full, or the subscription became inactive.
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) dropped: u64,
    /// The ends of its notifications; `None` for subscriptions that are older than these counters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ended: Option<EndedCounts>,
    /// Positions up to which notifications of a durable queue have failed, one for each partition of a change topic:
    /// after a restart they do not count again.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) failed: BTreeSet<ChangePosition>,
}

/// Notifications that are over, without the dropped ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct EndedCounts {
    pub(crate) delivered: u64,
    pub(crate) given_up: u64,
}

impl SubscriptionProgress {
    /// The state of a new subscription.
    pub(crate) fn new(status: Status) -> Self {
        Self { status, ended: Some(EndedCounts::default()), ..Self::default() }
    }

    /// Counts a failed notification. `waits` if it continues after a restart.
    pub(crate) fn fail(&mut self, place: ChangePosition, waits: bool, at_ms: i64, reason: Option<String>) {
        self.fails += 1;
        self.last_failure_ms = Some(at_ms);
        self.last_failure_reason = reason;
        if waits && !self.has_failed(place) {
            self.failed.retain(|known| !known.is_beside(place));
            self.failed.insert(place);
        }
    }

    /// The failure of a stored notification was counted before the start.
    pub(crate) fn has_failed(&self, place: ChangePosition) -> bool {
        self.failed.iter().any(|known| known.is_beside(place) && known.offset >= place.offset)
    }

    pub(crate) fn deliver(&mut self, at_ms: i64, code: Option<u16>) {
        self.fails = 0;
        self.last_success_ms = Some(at_ms);
        self.last_success_code = code;
        if let Some(ended) = &mut self.ended {
            ended.delivered += 1;
        }
    }

    pub(crate) fn give_up(&mut self) {
        if let Some(ended) = &mut self.ended {
            ended.given_up += 1;
        }
    }

    pub(crate) fn is_at_work(&self) -> bool {
        self.status != Status::Inactive
    }
}

/// Zero is left out of records, like in versions without the counter.
fn is_zero(count: &u64) -> bool {
    *count == 0
}
