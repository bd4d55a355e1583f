//! The limits that outboxes share: those of an engine, and those of one tenant.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use millstream_types::{MemoryBudget, TenantId};
use parking_lot::Mutex;

use crate::clocks::Clocks;
use crate::rate::{RateCounter, RateLimits};
use crate::{Config, Trouble};

/// Number of tenants from which those without queries are removed, before twice as many would be stored as are in use.
const SWEPT_FROM: usize = 64;

/// The limits that the outboxes of one tenant share.
pub(crate) struct TenantOutboxes {
    pub(crate) clocks: Arc<Clocks>,
    pub(crate) queue_max_bytes: usize,
    /// The limit for results sent to one client.
    pub(crate) sent_max_bytes: usize,
    /// The rate limits of each query.
    pub(crate) rates: RateLimits,
    /// The rate limits of the tenant's queries together.
    tenant_rates: RateLimits,
    given: Mutex<RateCounter>,
    /// The memory budget for the waiting results of all clients.
    pub(crate) memory: MemoryBudget,
}

impl TenantOutboxes {
    /// True if there are no rate limits.
    pub(crate) fn are_rates_unbounded(&self) -> bool {
        self.rates.are_unbounded() && self.tenant_rates.are_unbounded()
    }

    /// Counts new rows of a query, unless they exceed the tenant's rate.
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
    rates: RateLimits,
    tenant_rates: RateLimits,
    memory: MemoryBudget,
    tenants: Mutex<Tenants>,
}

/// Tenants with queries, and tenants that had some a second ago: repeated queries do not reset the rate.
struct Tenants {
    known: HashMap<TenantId, Arc<TenantOutboxes>>,
    sweep_at: usize,
}

impl Outboxes {
    pub(crate) fn new(config: &Config, clocks: Arc<Clocks>, memory: &MemoryBudget) -> Self {
        Self {
            clocks,
            queue_max_bytes: config.queue_max_bytes,
            sent_max_bytes: config.kept_sent_max_bytes,
            rates: RateLimits::of_query(config),
            tenant_rates: RateLimits::of_tenant(config),
            memory: memory.share("query.queues_max_bytes", config.queues_max_bytes as u64),
            tenants: Mutex::new(Tenants { known: HashMap::new(), sweep_at: SWEPT_FROM }),
        }
    }

    /// Memory of all waiting results, in bytes.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.memory.used_bytes()
    }

    /// The shared limits of a tenant's outboxes.
    pub(crate) fn of(&self, tenant: &TenantId) -> Arc<TenantOutboxes> {
        let mut tenants = self.tenants.lock();
        if let Some(known) = tenants.known.get(tenant) {
            return known.clone();
        }
        if tenants.known.len() >= tenants.sweep_at {
            let now = self.clocks.monotonic.now();
            tenants.known.retain(|_, common| Arc::strong_count(common) > 1 || !common.given.lock().is_over(now));
            tenants.sweep_at = SWEPT_FROM.max(2 * tenants.known.len());
        }
        let common = Arc::new(TenantOutboxes {
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
