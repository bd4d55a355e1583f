//! The waiting commands and the listeners of all tenants, sharded by tenant behind one lock a shard. No code blocks
//! while it holds a shard's lock.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use millstream_types::{TenantId, partition_of_key};
use parking_lot::Mutex;

use super::command::{Command, RecordPosition};
use super::delivery::{Notes, Verdict};
use super::listener::{Way, Whose};
use super::listeners::Devices;
use super::request_id::RequestIds;
use super::routes::{Routes, RoutingContext};

const SHARDS: u32 = 16;

pub(crate) struct Router {
    shards: Vec<Mutex<RouterShard>>,
    devices: Arc<dyn Devices>,
    notes: Arc<Notes>,
    request_ids: RequestIds,
    newest_listener: AtomicU64,
}

#[derive(Debug, Default)]
struct RouterShard {
    tenants: HashMap<TenantId, Routes>,
    expiries: BTreeMap<(i64, RecordPosition), Arc<Command>>,
}

impl Router {
    pub(crate) fn new(devices: Arc<dyn Devices>, notes: Arc<Notes>, request_ids: RequestIds) -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        Self { shards, devices, notes, request_ids, newest_listener: AtomicU64::new(0) }
    }

    fn shard(&self, tenant: &TenantId) -> &Mutex<RouterShard> {
        &self.shards[partition_of_key(tenant.as_str().as_bytes(), SHARDS).0 as usize]
    }

    fn context<'a>(&'a self, tenant: &'a TenantId, now_ms: i64) -> RoutingContext<'a> {
        RoutingContext { tenant, devices: &*self.devices, notes: &self.notes, request_ids: &self.request_ids, now_ms }
    }

    pub(crate) fn arrive(&self, command: &Arc<Command>, now_ms: i64) {
        let mut shard = self.shard(&command.tenant).lock();
        if let Some(expires_ms) = command.expires_ms {
            shard.expiries.insert((expires_ms, command.position), Arc::clone(command));
        }
        let routes = shard.tenants.entry(command.tenant.clone()).or_default();
        routes.arrive(command, &self.context(&command.tenant, now_ms));
    }

    /// Registers a listener; dropping the returned value removes it.
    pub(crate) fn listen(self: &Arc<Self>, tenant: &TenantId, whose: Whose, way: Way, now_ms: i64) -> Listening {
        let mut shard = self.shard(tenant).lock();
        let id = self.newest_listener.fetch_add(1, Ordering::Relaxed) + 1;
        let routes = shard.tenants.entry(tenant.clone()).or_default();
        routes.listeners.add(id, &whose, way);
        routes.listened(&whose, &self.context(tenant, now_ms));
        Listening { router: Arc::clone(self), tenant: tenant.clone(), whose, id }
    }

    fn unlisten(&self, tenant: &TenantId, whose: &Whose, id: u64) {
        let mut shard = self.shard(tenant).lock();
        if let Some(routes) = shard.tenants.get_mut(tenant) {
            routes.listeners.remove(id, whose);
            shard.tidy(tenant);
        }
    }

    /// Records `gateway` as the last one that has sent for `device`.
    pub(crate) fn seen_behind(&self, tenant: &TenantId, device: &str, gateway: &str) {
        let mut shard = self.shard(tenant).lock();
        if !shard.tenants.contains_key(tenant) {
            shard.tenants.insert(tenant.clone(), Routes::default());
        }
        if let Some(routes) = shard.tenants.get_mut(tenant) {
            routes.listeners.seen_behind(device, gateway);
        }
    }

    /// Applies a listener's verdict on its command.
    pub(crate) fn said(&self, command: &Command, verdict: Verdict, now_ms: i64) {
        let mut shard = self.shard(&command.tenant).lock();
        let newest = self.newest_listener.load(Ordering::Relaxed);
        if let Some(routes) = shard.tenants.get_mut(&command.tenant) {
            routes.said(command, verdict, newest, &self.context(&command.tenant, now_ms));
        }
    }

    /// Expires commands that have waited too long.
    pub(crate) fn expire(&self, now_ms: i64) {
        for shard in &self.shards {
            let shard = &mut *shard.lock();
            while let Some(first) = shard.expiries.first_entry()
                && first.key().0 <= now_ms
            {
                let command = first.remove();
                if let Some(routes) = shard.tenants.get_mut(&command.tenant) {
                    routes.expire(&command, &self.context(&command.tenant, now_ms));
                }
            }
        }
    }

    /// Offers commands again whose listener was full.
    pub(crate) fn retry(&self, now_ms: i64) {
        for shard in &self.shards {
            for (tenant, routes) in &mut shard.lock().tenants {
                routes.retry(&self.context(tenant, now_ms));
            }
        }
    }

    /// The time of the next expiry.
    pub(crate) fn next_expiry_ms(&self) -> Option<i64> {
        self.shards.iter().filter_map(|shard| Some(shard.lock().expiries.first_key_value()?.0.0)).min()
    }

    /// Removes a command whose outcome is durable.
    pub(crate) fn forget(&self, command: &Command) {
        let mut shard = self.shard(&command.tenant).lock();
        if let Some(expires_ms) = command.expires_ms {
            shard.expiries.remove(&(expires_ms, command.position));
        }
        if let Some(routes) = shard.tenants.get_mut(&command.tenant) {
            routes.forget(command);
            shard.tidy(&command.tenant);
        }
    }
}

/// A registered listener; dropping it removes the registration.
pub(crate) struct Listening {
    router: Arc<Router>,
    tenant: TenantId,
    pub(super) whose: Whose,
    pub(super) id: u64,
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.router.unlisten(&self.tenant, &self.whose, self.id);
    }
}

impl RouterShard {
    fn tidy(&mut self, tenant: &TenantId) {
        if self.tenants.get(tenant).is_some_and(Routes::is_empty) {
            self.tenants.remove(tenant);
        }
    }
}
