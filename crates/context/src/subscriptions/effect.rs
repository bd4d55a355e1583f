//! The effects of an owner's decisions outside its state.

use std::sync::Arc;

use millstream_types::TenantId;

use super::notification::Notification;
use super::subscription::Subscription;

/// The effect of a decision, applied once it is durable.
#[derive(Debug)]
pub(crate) enum Effect {
    /// Activates a subscription in place of the one with its id.
    Begin(Arc<Subscription>),
    End {
        tenant: TenantId,
        id: Arc<str>,
        rest: QueueDisposal,
    },
    Deliver(Arc<Subscription>, Arc<Notification>),
    /// Delivers a notification that was stored before the start.
    Resume {
        subscription: Arc<Subscription>,
        notification: Arc<Notification>,
        /// Its failure is counted.
        has_failed: bool,
    },
    /// Sets a timer for a held notification.
    Wait {
        tenant: TenantId,
        id: Arc<str>,
        due_ms: i64,
    },
}

/// The fate of a deactivated subscription's queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QueueDisposal {
    Delivered,
    /// Drops the waiting notifications and keeps the counters.
    Dropped,
    /// Drops the waiting notifications and the counters: the subscription is deleted.
    Forgotten,
}

/// Applies the effects of stored decisions.
pub(crate) trait EffectSink: Send + Sync {
    /// Applies effects in the order of decisions. Does not wait.
    fn take_effect(&self, effects: &[Effect]);
}
