//! Where what is stored takes effect: the index that changes are matched by, and the queues that notifications wait in.

use std::sync::Arc;

use millstream_types::TenantId;
use parking_lot::RwLock;

use super::delivery::Delivery;
use super::index::Index;
use super::notification::Notification;
use super::subscription::Subscription;

/// What follows from a decision, once it is durable.
#[derive(Debug)]
pub(crate) enum Effect {
    /// The subscription is at work, in place of what had its id.
    Begin(Arc<Subscription>),
    /// It is not at work any more.
    End { tenant: TenantId, id: Arc<str>, rest: Rest },
    /// A notification is to be delivered.
    Deliver(Arc<Subscription>, Arc<Notification>),
    /// Something is held back until then.
    Wait { tenant: TenantId, id: Arc<str>, due_ms: i64 },
}

/// What becomes of the queue of a subscription that is not at work any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rest {
    /// What waits is delivered.
    Delivered,
    /// What waits is not delivered either; what was counted stays, for whoever asks.
    Dropped,
    /// Nothing is left of it: the subscription is gone.
    Forgotten,
}

/// See the module.
pub(crate) struct Hub {
    pub(crate) index: RwLock<Index>,
    pub(crate) delivery: Delivery,
}

impl Hub {
    /// In the order of decisions. Waits for nothing.
    pub(crate) fn take_effect(&self, effects: &[Effect]) {
        for effect in effects {
            match effect {
                Effect::Begin(subscription) => self.index.write().put(subscription),
                Effect::End { tenant, id, rest } => {
                    self.index.write().remove(tenant, id);
                    match rest {
                        Rest::Delivered => {}
                        Rest::Dropped => self.delivery.drop_all(tenant, id),
                        Rest::Forgotten => self.delivery.forget(tenant, id),
                    }
                }
                Effect::Deliver(subscription, notification) => {
                    subscription.sends(notification.made_ms);
                    self.delivery.push(subscription, notification);
                }
                Effect::Wait { tenant, id, due_ms } => self.delivery.wait(tenant, id, *due_ms),
            }
        }
    }
}
