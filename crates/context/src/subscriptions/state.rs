//! The subscriptions of one partition, with the waiting notifications of durable queues.
//!
//! Each part of a subscription is a separate record, and compaction keeps only the newest of each: they may be read in
//! any order, so a subscription exists once its definition is read.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::Arc;

use imbl::{HashMap, OrdMap, OrdSet};
use millstream_types::TenantId;

use super::change::ChangePosition;
use super::notification::Notification;
use super::progress::SubscriptionProgress;
use super::subscription::Subscription;
use crate::index::trie::{Keyed, Trie};

#[derive(Debug, Clone, Default)]
pub(crate) struct State {
    tenants: HashMap<TenantId, TenantSubscriptions>,
}

/// The subscriptions of one tenant. A notification changes one entry, however many there are; the order changes only
/// when a subscription is added or removed.
#[derive(Debug, Clone, Default)]
struct TenantSubscriptions {
    /// Ids of all entries, oldest first.
    ids: OrdSet<Arc<str>>,
    known: Trie<Arc<SubscriptionEntry>>,
    hasher: RandomState,
}

/// The parts of a subscription.
#[derive(Debug, Clone)]
pub(crate) struct SubscriptionEntry {
    id: Arc<str>,
    pub(crate) subscription: Option<Arc<Subscription>>,
    pub(crate) progress: Arc<SubscriptionProgress>,
    /// Notifications of a durable queue, in the order of the changes.
    pub(crate) waiting: OrdMap<ChangePosition, Arc<Notification>>,
    /// The notification to send at the end of throttling.
    pub(crate) held: Option<Arc<Notification>>,
}

impl Keyed for Arc<SubscriptionEntry> {
    type Key = str;

    fn key(&self) -> &str {
        &self.id
    }
}

impl SubscriptionEntry {
    fn new(id: Arc<str>) -> Self {
        Self { id, subscription: None, progress: Arc::default(), waiting: OrdMap::new(), held: None }
    }

    fn is_empty(&self) -> bool {
        self.subscription.is_none()
            && *self.progress == SubscriptionProgress::default()
            && self.waiting.is_empty()
            && self.held.is_none()
    }

    fn defined(&self) -> Option<(&Arc<Subscription>, &Self)> {
        Some((self.subscription.as_ref()?, self))
    }
}

impl TenantSubscriptions {
    fn get(&self, id: &str) -> Option<&Arc<SubscriptionEntry>> {
        self.known.hashed(self.hasher.hash_one(id)).find(|known| *known.id == *id)
    }

    fn all(&self) -> impl Iterator<Item = (&Arc<Subscription>, &SubscriptionEntry)> {
        self.ids.iter().filter_map(|id| self.get(id)?.defined())
    }

    fn put(&mut self, known: SubscriptionEntry) {
        let (id, hash) = (known.id.clone(), self.hasher.hash_one(&*known.id));
        if self.known.put(hash, Arc::new(known)).is_none() {
            self.ids.insert(id);
        }
    }

    fn remove(&mut self, id: &str) {
        self.known.remove(self.hasher.hash_one(id), id);
        self.ids.remove(id);
    }
}

impl State {
    /// The subscription with this id and its parts.
    pub(crate) fn get(&self, tenant: &TenantId, id: &str) -> Option<(&Arc<Subscription>, &SubscriptionEntry)> {
        self.tenants.get(tenant)?.get(id)?.defined()
    }

    /// All subscriptions of a tenant, oldest first.
    pub(crate) fn of(&self, tenant: &TenantId) -> impl Iterator<Item = (&Arc<Subscription>, &SubscriptionEntry)> {
        self.tenants.get(tenant).into_iter().flat_map(TenantSubscriptions::all)
    }

    /// The number of a tenant's subscriptions.
    pub(crate) fn count(&self, tenant: &TenantId) -> usize {
        self.tenants.get(tenant).map_or(0, |of_tenant| of_tenant.ids.len())
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = (&Arc<Subscription>, &SubscriptionEntry)> {
        self.tenants.values().flat_map(TenantSubscriptions::all)
    }

    /// Changes an entry; removes it if it becomes empty.
    pub(crate) fn alter(&mut self, tenant: &TenantId, id: &Arc<str>, alter: impl FnOnce(&mut SubscriptionEntry)) {
        let of_tenant = self.tenants.entry(tenant.clone()).or_default();
        let mut known = of_tenant
            .get(id)
            .map_or_else(|| SubscriptionEntry::new(id.clone()), |known| SubscriptionEntry::clone(known));
        alter(&mut known);
        if !known.is_empty() {
            return of_tenant.put(known);
        }
        of_tenant.remove(id);
        if of_tenant.ids.is_empty() {
            self.tenants.remove(tenant);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::subscriptions::compile_any;

    /// For each id: it has a definition, and it has counters.
    type Model = BTreeMap<Arc<str>, (bool, bool)>;

    fn any_subscription() -> Arc<Subscription> {
        let body =
            json!({"subject": {"entities": [{"id": "a"}]}, "notification": {"http": {"url": "http://localhost"}}});
        Arc::new(compile_any(body.as_object().unwrap().clone()).unwrap())
    }

    fn shown(state: &State, tenant: &TenantId) -> Model {
        let of_tenant = state.tenants.get(tenant);
        let all = of_tenant.into_iter().flat_map(|known| known.ids.iter().filter_map(|id| known.get(id)));
        let counted = |known: &SubscriptionEntry| *known.progress != SubscriptionProgress::default();
        all.map(|known| (known.id.clone(), (known.subscription.is_some(), counted(known)))).collect()
    }

    proptest! {
        #[test]
        fn a_subscription_is_known_until_its_definition_and_progress_are_gone(steps in prop::collection::vec((0..30_u8, 0..4_u8), 0..200)) {
            let (tenant, subscription) = (TenantId::default(), any_subscription());
            let (mut state, mut model, mut held) = (State::default(), Model::new(), Vec::new());
            for (step, (number, part)) in steps.into_iter().enumerate() {
                let id: Arc<str> = number.to_string().into();
                let counted = Arc::new(SubscriptionProgress { times_sent: u64::from(part), ..SubscriptionProgress::default() });
                state.alter(&tenant, &id, |known| match part {
                    0 | 1 => known.subscription = (part == 1).then(|| subscription.clone()),
                    _ => known.progress = if part == 2 { counted } else { Arc::default() },
                });
                let known = model.entry(id.clone()).or_default();
                match part {
                    0 | 1 => known.0 = part == 1,
                    _ => known.1 = part == 2,
                }
                if *known == (false, false) {
                    model.remove(&id);
                }
                prop_assert_eq!(state.get(&tenant, &id).is_some(), model.get(&id).is_some_and(|known| known.0));
                prop_assert_eq!(state.count(&tenant), model.len());
                if step % 16 == 0 {
                    held.push((state.clone(), model.clone()));
                }
            }
            let defined: Vec<_> = model.iter().filter(|(_, known)| known.0).map(|(id, _)| id.clone()).collect();
            let listed: Vec<_> = state.of(&tenant).map(|(_, known)| known.id.clone()).collect();
            prop_assert_eq!(listed, defined, "in the order of ids");
            held.push((state, model));
            for (state, model) in held {
                prop_assert_eq!(shown(&state, &tenant), model);
            }
        }
    }
}
