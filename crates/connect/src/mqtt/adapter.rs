//! The state that all connections share: the registry, the log's topics, the limits and the connected clients.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use millstream_http::{Metrics, Problem};
use millstream_log::Log;
use millstream_types::{MemoryBudget, Principal, TenantId};
use parking_lot::Mutex;
use tokio::sync::watch;

use super::broker::{Brokers, BrokersParts, Counts};
use super::session_store::SessionStore;
use super::signals::Signals;
use super::{ADAPTER, MqttConfig};
use crate::adapter::UNAUTHENTICATED;
use crate::connection_table::ConnectionTable;
use crate::connections::Connections;
use crate::login::DeviceLogins;
use crate::presence::Presence;
use crate::refusal::{login_needed, unknown_tenant};
use crate::registry::Registry;
use crate::sender::DeviceAddress;
use crate::uplink::Uplink;

/// Interval at which live connections learn that the registry has changed.
const CHANGES_INTERVAL: Duration = Duration::from_millis(200);
/// Least rest between two looks for sessions and messages that have lost their device or tenant.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// The state that all connections share.
pub(crate) struct MqttAdapter {
    pub(crate) registry: Registry,
    pub(crate) logins: DeviceLogins,
    pub(super) uplink: Arc<Uplink>,
    pub(crate) presence: Arc<Presence>,
    pub(crate) config: MqttConfig,
    /// Room for packets that have arrived in part.
    pub(super) buffers: MemoryBudget,
    pub(super) brokers: Brokers,
    pub(super) counts: Arc<Counts>,
    pub(super) connections: Arc<Connections>,
    pub(super) connection_table: Arc<ConnectionTable>,
    connected: Mutex<HashMap<TenantId, usize>>,
}

/// A connection's place among those of its tenant; given up when dropped.
pub(super) struct ConnectionSlot {
    adapter: Arc<MqttAdapter>,
    tenant: TenantId,
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let mut connected = self.adapter.connected.lock();
        if let Some(count) = connected.get_mut(&self.tenant) {
            *count -= 1;
            if *count == 0 {
                connected.remove(&self.tenant);
            }
        }
    }
}

/// The dependencies from which [`MqttAdapter`] is built.
#[derive(Clone)]
pub(crate) struct MqttParts {
    pub(crate) registry: Registry,
    pub(crate) logins: DeviceLogins,
    pub(crate) uplink: Arc<Uplink>,
    pub(crate) presence: Arc<Presence>,
    pub(crate) config: MqttConfig,
    pub(crate) log: Arc<dyn Log>,
    pub(crate) store: SessionStore,
    pub(crate) connections: Arc<Connections>,
    pub(crate) connection_table: Arc<ConnectionTable>,
}

impl MqttAdapter {
    pub(crate) fn new(parts: MqttParts, memory: &MemoryBudget, metrics: &Metrics) -> Arc<Self> {
        let MqttParts { registry, logins, uplink, presence, config, log, store, connections, connection_table } = parts;
        let counts = Arc::new(Counts::new(metrics));
        let (broker, clocks) = (config.broker.clone(), (uplink.wall.clone(), uplink.monotonic.clone()));
        let parts =
            BrokersParts { log, store, config: broker, counts: counts.clone(), wall: clocks.0, monotonic: clocks.1 };
        let brokers = Brokers::new(parts, memory);
        let buffers = memory.share("connect.mqtt.buffers_max_bytes", config.buffers_max_bytes as u64);
        let connected = Mutex::default();
        Arc::new(Self {
            registry,
            logins,
            uplink,
            presence,
            config,
            buffers,
            brokers,
            counts,
            connections,
            connection_table,
            connected,
        })
    }

    /// Checks that a device with login may stay connected; for one without, that its tenant allows such devices.
    pub(super) fn check(&self, who: &Principal) -> Result<(), Problem> {
        let tenant = &who.tenant;
        let snapshot = self.registry.snapshot(tenant);
        let known = snapshot.state.tenant(tenant);
        if who.name == UNAUTHENTICATED {
            let stored = known.and_then(|known| known.tenant.as_deref());
            let is_open = stored.is_some_and(|stored| stored.value.allows_without_login(ADAPTER));
            return if is_open { Ok(()) } else { Err(login_needed(tenant, ADAPTER)) };
        }
        self.uplink.ingest.sender(known.ok_or_else(|| unknown_tenant(tenant))?, DeviceAddress::Caller, who).map(drop)
    }

    /// A place among the tenant's connections; `None` if it has as many as it may. A client that takes over from itself
    /// needs none of its own: the connection before gives up the one that it has.
    pub(super) fn admit(self: &Arc<Self>, who: &Principal, client: &str) -> Option<ConnectionSlot> {
        let tenant = &who.tenant;
        let limit = {
            let snapshot = self.registry.snapshot(tenant);
            let stored = snapshot.state.tenant(tenant)?.tenant.as_deref()?;
            stored.value.resource_limits.connections_max()
        };
        let takes_over = || self.brokers.running(tenant).is_some_and(|broker| broker.is_connected(client, &who.name));
        let limit = limit.filter(|_| !takes_over());
        let mut connected = self.connected.lock();
        let count = connected.entry(tenant.clone()).or_default();
        if limit.is_some_and(|limit| *count >= limit) {
            return None;
        }
        *count += 1;
        Some(ConnectionSlot { adapter: Arc::clone(self), tenant: tenant.clone() })
    }

    /// Tells `changed` of every change of the registry, until nobody listens.
    pub(super) async fn watch_registry(self: Arc<Self>, changed: watch::Sender<u64>) {
        let mut ticks = tokio::time::interval(CHANGES_INTERVAL);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut seen = self.registry.applied();
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                () = changed.closed() => return,
            }
            let now = self.registry.applied();
            if now != seen {
                seen = now;
                changed.send_modify(|turn| *turn += 1);
            }
        }
    }

    /// Removes sessions and messages whose device or tenant is gone. It does so now and after every change of the
    /// registry, until the listener stops.
    pub(super) async fn sweep(self: Arc<Self>, mut signals: Signals) {
        let is_over = signals.shutdown.clone().begun();
        let sweep = async {
            loop {
                self.brokers.end_orphans(&self.registry).await;
                tokio::time::sleep(SWEEP_INTERVAL).await;
                if signals.registry.changed().await.is_err() {
                    return;
                }
            }
        };
        tokio::select! {
            () = sweep => {}
            () = is_over => {}
        }
    }
}
