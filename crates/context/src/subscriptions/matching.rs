//! The full check of a subscription's condition against a change.

use super::change::{Alteration, ChangeRecord};
use super::subscription::{Subscription, SubscriptionCondition};

impl Subscription {
    /// The change fires the subscription.
    pub(crate) fn fires(&self, change: &ChangeRecord<'_>, now_ms: i64) -> bool {
        let place = change.place;
        !self.is_expired(now_ms)
            && !self.since.is_after(place.topic, place.partition, place.offset)
            && self.paths.have(&change.key.path)
            && self.entities.iter().any(|selector| selector.has(&change.key))
            && self.condition.allows(change)
    }
}

impl SubscriptionCondition {
    fn allows(&self, change: &ChangeRecord<'_>) -> bool {
        let wanted = self.alterations;
        let named = |name: &str| self.attrs.is_empty() || self.attrs.iter().any(|attribute| attribute == name);
        let differs =
            || change.changed(self.ignores_metadata).any(named) || change.details.is_forced && self.attrs.is_empty();
        let fires = match change.alteration {
            Alteration::Delete => wanted.delete,
            Alteration::Create => wanted.create && (self.attrs.is_empty() || differs()),
            Alteration::Update | Alteration::Change => {
                let is_update = || self.attrs.is_empty() || change.touched().any(named);
                wanted.change && differs() || wanted.update && is_update()
            }
        };
        let holds = || match &self.expression {
            None => true,
            Some(expression) => change.entity().is_some_and(|entity| expression.matches(entity)),
        };
        fires && holds()
    }
}
