//! The registrations of one partition, and the indexes by which requests find them.

use std::sync::Arc;

use imbl::{HashMap, OrdMap, OrdSet};
use millstream_types::TenantId;

use super::registration::Registration;
use crate::query::{NameFilter, Selector};

#[derive(Debug, Clone, Default)]
pub(crate) struct State {
    tenants: HashMap<TenantId, TenantRegistrations>,
}

/// The registrations of one tenant. Their ids ascend by creation, so that every set of ids has them in that order.
#[derive(Debug, Clone, Default)]
pub(crate) struct TenantRegistrations {
    all: OrdMap<Arc<str>, Arc<Registration>>,
    /// By an entity's id that they name.
    by_id: HashMap<Arc<str>, OrdSet<Arc<str>>>,
    /// Those for any id.
    of_any_id: OrdSet<Arc<str>>,
    /// By a type that they name; `None` for any.
    by_kind: HashMap<Option<Arc<str>>, OrdSet<Arc<str>>>,
}

impl State {
    pub(crate) fn of(&self, tenant: &TenantId) -> Option<&TenantRegistrations> {
        self.tenants.get(tenant)
    }

    pub(crate) fn put(&mut self, tenant: &TenantId, registration: &Arc<Registration>) {
        self.remove(tenant, &registration.identity.id);
        self.tenants.entry(tenant.clone()).or_default().put(registration);
    }

    pub(crate) fn remove(&mut self, tenant: &TenantId, id: &str) {
        let Some(of_tenant) = self.tenants.get_mut(tenant) else { return };
        of_tenant.remove(id);
        if of_tenant.all.is_empty() {
            self.tenants.remove(tenant);
        }
    }
}

impl TenantRegistrations {
    pub(crate) fn get(&self, id: &str) -> Option<&Arc<Registration>> {
        self.all.get(id)
    }

    /// All, oldest first.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Registration>> {
        self.all.values()
    }

    pub(crate) fn count(&self) -> usize {
        self.all.len()
    }

    /// Those that may have an entity that one of `selectors` selects, oldest first. The caller tests each.
    pub(crate) fn candidates(&self, selectors: &[Selector]) -> Vec<Arc<Registration>> {
        let mut ids = OrdSet::new();
        for selector in selectors {
            match &selector.ids {
                NameFilter::Of(names) => {
                    let named = names.iter().filter_map(|name| self.by_id.get(name.as_str()));
                    named.chain([&self.of_any_id]).for_each(|some| ids.extend(some.iter().cloned()));
                }
                NameFilter::Any | NameFilter::Like(_) => self.of_kinds(&selector.kinds, &mut ids),
            }
        }
        ids.iter().filter_map(|id| self.all.get(id)).cloned().collect()
    }

    fn of_kinds(&self, kinds: &NameFilter, ids: &mut OrdSet<Arc<str>>) {
        let mut add = |kind: Option<Arc<str>>| ids.extend(self.by_kind.get(&kind).into_iter().flatten().cloned());
        add(None);
        match kinds {
            NameFilter::Any => {}
            NameFilter::Of(names) => names.iter().for_each(|name| add(Some(name.as_str().into()))),
            NameFilter::Like(pattern) => {
                self.by_kind
                    .keys()
                    .flatten()
                    .filter(|kind| pattern.fits(kind))
                    .for_each(|kind| add(Some(kind.clone())));
            }
        }
    }

    fn put(&mut self, registration: &Arc<Registration>) {
        let id = &registration.identity.id;
        self.all.insert(id.clone(), registration.clone());
        for claim in &registration.claims {
            match &claim.id {
                Some(entity) => self.by_id.entry(entity.clone()).or_default().insert(id.clone()),
                None => self.of_any_id.insert(id.clone()),
            };
            self.by_kind.entry(claim.kind.clone()).or_default().insert(id.clone());
        }
    }

    fn remove(&mut self, id: &str) {
        let Some(registration) = self.all.remove(id) else { return };
        self.of_any_id.remove(id);
        for claim in &registration.claims {
            if let Some(entity) = &claim.id {
                without(&mut self.by_id, entity, id);
            }
            without(&mut self.by_kind, &claim.kind, id);
        }
    }
}

/// Removes `id` from the set of `key`, and the set with its last one.
fn without<K: Clone + Eq + std::hash::Hash>(sets: &mut HashMap<K, OrdSet<Arc<str>>>, key: &K, id: &str) {
    let Some(set) = sets.get_mut(key) else { return };
    set.remove(id);
    if set.is_empty() {
        sets.remove(key);
    }
}
