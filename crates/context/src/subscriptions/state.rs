//! The subscriptions of one partition, with what waits to be delivered for those whose queue is durable.
//!
//! Each part of a subscription is a record of its own, and compaction keeps only the newest of each: they may be read
//! in any order, so a subscription counts once its definition is there.

use std::sync::Arc;

use imbl::{HashMap, OrdMap};
use millstream_types::TenantId;

use super::change::Place;
use super::notification::Notification;
use super::progress::Progress;
use super::subscription::Subscription;

/// The subscriptions of some tenants.
#[derive(Debug, Clone, Default)]
pub(crate) struct State {
    tenants: HashMap<TenantId, OrdMap<Arc<str>, Known>>,
}

/// What is known under one id.
#[derive(Debug, Clone, Default)]
pub(crate) struct Known {
    pub(crate) subscription: Option<Arc<Subscription>>,
    pub(crate) progress: Arc<Progress>,
    /// Notifications of a durable queue, in the order of the changes.
    pub(crate) waiting: OrdMap<Place, Arc<Notification>>,
    /// What goes when the throttling's time is up.
    pub(crate) held: Option<Arc<Notification>>,
}

impl Known {
    fn is_empty(&self) -> bool {
        self.subscription.is_none()
            && *self.progress == Progress::default()
            && self.waiting.is_empty()
            && self.held.is_none()
    }
}

impl State {
    /// The subscription of that id, with what belongs to it.
    pub(crate) fn get(&self, tenant: &TenantId, id: &str) -> Option<(&Arc<Subscription>, &Known)> {
        let known = self.tenants.get(tenant)?.get(id)?;
        Some((known.subscription.as_ref()?, known))
    }

    /// All subscriptions of a tenant, oldest first.
    pub(crate) fn of(&self, tenant: &TenantId) -> impl Iterator<Item = (&Arc<Subscription>, &Known)> {
        let all = self.tenants.get(tenant).into_iter().flat_map(OrdMap::values);
        all.filter_map(|known| Some((known.subscription.as_ref()?, known)))
    }

    /// How many subscriptions a tenant has.
    pub(crate) fn count(&self, tenant: &TenantId) -> usize {
        self.tenants.get(tenant).map_or(0, OrdMap::len)
    }

    /// All subscriptions of all tenants.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&Arc<Subscription>, &Known)> {
        let all = self.tenants.values().flat_map(OrdMap::values);
        all.filter_map(|known| Some((known.subscription.as_ref()?, known)))
    }

    /// Changes what is known under an id; what is empty then is forgotten.
    pub(crate) fn alter(&mut self, tenant: &TenantId, id: &Arc<str>, alter: impl FnOnce(&mut Known)) {
        let of_tenant = self.tenants.entry(tenant.clone()).or_default();
        let known = of_tenant.entry(id.clone()).or_default();
        alter(known);
        if known.is_empty() {
            of_tenant.remove(id);
            if of_tenant.is_empty() {
                self.tenants.remove(tenant);
            }
        }
    }
}
