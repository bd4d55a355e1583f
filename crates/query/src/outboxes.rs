//! What outboxes have in common: all of an engine, and those of one tenant.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use millstream_types::{MemoryBudget, TenantId};
use parking_lot::Mutex;

use crate::live::Clocks;
use crate::rate::{Given, Rates};
use crate::{Config, Trouble};

/// Tenants without queries are let go before there would be more than twice as many as have some.
const SWEPT_FROM: usize = 64;

/// What the outboxes of one tenant have in common.
pub(crate) struct Common {
    pub(crate) clocks: Arc<Clocks>,
    pub(crate) queue_max_bytes: usize,
    /// Of what has been sent to one client.
    pub(crate) sent_max_bytes: usize,
    /// Of each query.
    pub(crate) rates: Rates,
    /// Of all together.
    tenant_rates: Rates,
    given: Mutex<Given>,
    /// What waits for all clients of all tenants draws on it.
    pub(crate) memory: MemoryBudget,
}

impl Common {
    /// Whether rows may come as fast as they like.
    pub(crate) fn are_rates_unbounded(&self) -> bool {
        self.rates.are_unbounded() && self.tenant_rates.are_unbounded()
    }

    /// Counts what a query is to give, unless the tenant's queries give too much by that.
    pub(crate) fn add(&self, rows: u64, bytes: u64, now: Duration) -> Result<(), Trouble> {
        if self.tenant_rates.are_unbounded() {
            return Ok(());
        }
        self.given.lock().add(self.tenant_rates, rows, bytes, now)
    }
}

/// The outboxes of an engine.
pub(crate) struct Outboxes {
    clocks: Arc<Clocks>,
    queue_max_bytes: usize,
    sent_max_bytes: usize,
    rates: Rates,
    tenant_rates: Rates,
    memory: MemoryBudget,
    tenants: Mutex<Tenants>,
}

/// Those who have queries, and those who had some a second ago: who asks again and again has one rate all the same.
struct Tenants {
    known: HashMap<TenantId, Arc<Common>>,
    sweep_at: usize,
}

impl Outboxes {
    pub(crate) fn new(config: &Config, clocks: Arc<Clocks>, memory: &MemoryBudget) -> Self {
        Self {
            clocks,
            queue_max_bytes: config.queue_max_bytes,
            sent_max_bytes: config.kept_sent_max_bytes,
            rates: Rates::of_query(config),
            tenant_rates: Rates::of_tenant(config),
            memory: memory.share("query.queues_max_bytes", config.queues_max_bytes as u64),
            tenants: Mutex::new(Tenants { known: HashMap::new(), sweep_at: SWEPT_FROM }),
        }
    }

    /// What those of a tenant have in common.
    pub(crate) fn of(&self, tenant: &TenantId) -> Arc<Common> {
        let mut tenants = self.tenants.lock();
        if let Some(known) = tenants.known.get(tenant) {
            return known.clone();
        }
        if tenants.known.len() >= tenants.sweep_at {
            let now = self.clocks.monotonic.now();
            tenants.known.retain(|_, common| Arc::strong_count(common) > 1 || !common.given.lock().is_over(now));
            tenants.sweep_at = SWEPT_FROM.max(2 * tenants.known.len());
        }
        let common = Arc::new(Common {
            clocks: self.clocks.clone(),
            queue_max_bytes: self.queue_max_bytes,
            sent_max_bytes: self.sent_max_bytes,
            rates: self.rates,
            tenant_rates: self.tenant_rates,
            given: Mutex::default(),
            memory: self.memory.clone(),
        });
        tenants.known.insert(tenant.clone(), common.clone());
        common
    }
}
