//! Applies stored decisions to the index of subscriptions and to the delivery queues.

use parking_lot::RwLock;

use super::delivery::NotificationDelivery;
use super::effect::{Effect, EffectSink, QueueDisposal};
use super::index::SubscriptionIndex;

pub(crate) struct Hub {
    pub(crate) index: RwLock<SubscriptionIndex>,
    pub(crate) delivery: NotificationDelivery,
}

impl EffectSink for Hub {
    fn take_effect(&self, effects: &[Effect]) {
        for effect in effects {
            match effect {
                Effect::Begin(subscription) => {
                    self.index.write().put(subscription);
                    self.delivery.renew(subscription);
                }
                Effect::End { tenant, id, rest } => {
                    self.index.write().remove(tenant, id);
                    match rest {
                        QueueDisposal::Delivered => {}
                        QueueDisposal::Dropped => self.delivery.drop_all(tenant, id),
                        QueueDisposal::Forgotten => self.delivery.forget(tenant, id),
                    }
                }
                Effect::Deliver(subscription, notification) => {
                    subscription.sends(notification.made_ms);
                    self.delivery.push(subscription, notification, false);
                }
                Effect::Resume { subscription, notification, has_failed } => {
                    subscription.sends(notification.made_ms);
                    self.delivery.push(subscription, notification, *has_failed);
                }
                Effect::Wait { tenant, id, due_ms } => self.delivery.wait(tenant, id, *due_ms),
            }
        }
    }
}
