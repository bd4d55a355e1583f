//! The subscriptions of one partition, with what waits to be delivered for those whose queue is durable.
//!
//! Each part of a subscription is a record of its own, and compaction keeps only the newest of each: they may be read
//! in any order, so a subscription counts once its definition is there.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::Arc;

use imbl::{HashMap, OrdMap, OrdSet};
use millstream_types::TenantId;

use super::change::Place;
use super::notification::Notification;
use super::progress::Progress;
use super::subscription::Subscription;
use crate::trie::{Keyed, Trie};

/// The subscriptions of some tenants.
#[derive(Debug, Clone, Default)]
pub(crate) struct State {
    tenants: HashMap<TenantId, OfTenant>,
}

/// The subscriptions of one tenant. Each notification changes what is known of one, however many others there are; their
/// order changes only when one comes or goes.
#[derive(Debug, Clone, Default)]
struct OfTenant {
    /// Of all that is known, oldest first.
    ids: OrdSet<Arc<str>>,
    known: Trie<Arc<Known>>,
    hasher: RandomState,
}

/// What is known under one id.
#[derive(Debug, Clone)]
pub(crate) struct Known {
    id: Arc<str>,
    pub(crate) subscription: Option<Arc<Subscription>>,
    pub(crate) progress: Arc<Progress>,
    /// Notifications of a durable queue, in the order of the changes.
    pub(crate) waiting: OrdMap<Place, Arc<Notification>>,
    /// What goes when the throttling's time is up.
    pub(crate) held: Option<Arc<Notification>>,
}

impl Keyed for Arc<Known> {
    type Key = str;

    fn key(&self) -> &str {
        &self.id
    }
}

impl Known {
    fn new(id: Arc<str>) -> Self {
        Self { id, subscription: None, progress: Arc::default(), waiting: OrdMap::new(), held: None }
    }

    fn is_empty(&self) -> bool {
        self.subscription.is_none()
            && *self.progress == Progress::default()
            && self.waiting.is_empty()
            && self.held.is_none()
    }

    fn defined(&self) -> Option<(&Arc<Subscription>, &Self)> {
        Some((self.subscription.as_ref()?, self))
    }
}

impl OfTenant {
    fn get(&self, id: &str) -> Option<&Arc<Known>> {
        self.known.hashed(self.hasher.hash_one(id)).find(|known| *known.id == *id)
    }

    fn all(&self) -> impl Iterator<Item = (&Arc<Subscription>, &Known)> {
        self.ids.iter().filter_map(|id| self.get(id)?.defined())
    }

    fn put(&mut self, known: Known) {
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
    /// The subscription of that id, with what belongs to it.
    pub(crate) fn get(&self, tenant: &TenantId, id: &str) -> Option<(&Arc<Subscription>, &Known)> {
        self.tenants.get(tenant)?.get(id)?.defined()
    }

    /// All subscriptions of a tenant, oldest first.
    pub(crate) fn of(&self, tenant: &TenantId) -> impl Iterator<Item = (&Arc<Subscription>, &Known)> {
        self.tenants.get(tenant).into_iter().flat_map(OfTenant::all)
    }

    /// How many subscriptions a tenant has.
    pub(crate) fn count(&self, tenant: &TenantId) -> usize {
        self.tenants.get(tenant).map_or(0, |of_tenant| of_tenant.ids.len())
    }

    /// All subscriptions of all tenants.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&Arc<Subscription>, &Known)> {
        self.tenants.values().flat_map(OfTenant::all)
    }

    /// Changes what is known under an id; what is empty then is forgotten.
    pub(crate) fn alter(&mut self, tenant: &TenantId, id: &Arc<str>, alter: impl FnOnce(&mut Known)) {
        let of_tenant = self.tenants.entry(tenant.clone()).or_default();
        let mut known = of_tenant.get(id).map_or_else(|| Known::new(id.clone()), |known| Known::clone(known));
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

    /// Whether each id has a definition, and whether something was counted of it.
    type Model = BTreeMap<Arc<str>, (bool, bool)>;

    fn any_subscription() -> Arc<Subscription> {
        let body =
            json!({"subject": {"entities": [{"id": "a"}]}, "notification": {"http": {"url": "http://localhost"}}});
        Arc::new(compile_any(body.as_object().unwrap().clone()).unwrap())
    }

    fn shown(state: &State, tenant: &TenantId) -> Model {
        let of_tenant = state.tenants.get(tenant);
        let all = of_tenant.into_iter().flat_map(|known| known.ids.iter().filter_map(|id| known.get(id)));
        let counted = |known: &Known| *known.progress != Progress::default();
        all.map(|known| (known.id.clone(), (known.subscription.is_some(), counted(known)))).collect()
    }

    proptest! {
        #[test]
        fn each_is_known_until_nothing_is_left_of_it(steps in prop::collection::vec((0..30_u8, 0..4_u8), 0..200)) {
            let (tenant, subscription) = (TenantId::default(), any_subscription());
            let (mut state, mut model, mut held) = (State::default(), Model::new(), Vec::new());
            for (step, (number, part)) in steps.into_iter().enumerate() {
                let id: Arc<str> = number.to_string().into();
                let counted = Arc::new(Progress { times_sent: u64::from(part), ..Progress::default() });
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
