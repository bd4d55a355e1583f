//! The state that all connections of a listener share.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering::Relaxed};

use bytes::Bytes;
use millstream_types::{MemoryBudget, TenantId};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::resp::channels::Channels;
use crate::resp::clients::Clients;
use crate::resp::closed::ClosedClients;
use crate::resp::cursors::Cursors;
use crate::resp::events::{EventClass, KeyEvent};
use crate::resp::host::Host;
use crate::resp::latency_monitor::LatencyMonitor;
use crate::resp::messages::NoMemory;
use crate::resp::settings::ProtocolSettings;
use crate::resp::slow_log::SlowLog;
use crate::resp::statistics::Statistics;

/// The state behind the connections of a listener for Redis clients.
pub struct Shared {
    pub(crate) host: Arc<dyn Host>,
    pub(crate) clients: Clients,
    /// The settings of connections that have not logged in, and those that each tenant begins with.
    pub(crate) settings: ProtocolSettings,
    pub(crate) statistics: Statistics,
    pub(crate) cursors: Cursors,
    pub(crate) closed: ClosedClients,
    tenants: Mutex<HashMap<Arc<str>, Arc<TenantState>>>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("clients", &self.clients.count()).finish_non_exhaustive()
    }
}

/// The state that the connections of one tenant share. Nothing of it reaches those of another.
#[derive(Debug)]
pub(crate) struct TenantState {
    name: Arc<str>,
    /// The memory of messages that wait for its clients.
    pub(crate) messages: MemoryBudget,
    pub(crate) settings: ProtocolSettings,
    pub(crate) channels: Channels,
    pub(crate) slow_log: SlowLog,
    pub(crate) latency: LatencyMonitor,
    pub(crate) pause: Pause,
}

impl Shared {
    /// The state of a listener that has no connections yet.
    pub fn new(host: Arc<dyn Host>) -> Arc<Self> {
        Self::with_limits(host, u64::MAX, MemoryBudget::new("memory.budget_bytes", u64::MAX))
    }

    /// As [`Shared::new`], with a bound for `proto-max-bulk-len` and a budget for messages that wait.
    pub fn with_limits(host: Arc<dyn Host>, bulk_max_bytes: u64, messages: MemoryBudget) -> Arc<Self> {
        Arc::new(Self {
            host,
            clients: Clients::new(messages),
            settings: ProtocolSettings::bounded(bulk_max_bytes),
            statistics: Statistics::default(),
            cursors: Cursors::default(),
            closed: ClosedClients::default(),
            tenants: Mutex::default(),
        })
    }

    /// `true` if events of `class` are published to clients of the tenant.
    pub fn publishes(&self, tenant: &str, class: EventClass) -> bool {
        self.tenants.lock().get(tenant).is_some_and(|state| state.settings.classes().contains(class))
    }

    /// Publishes an event of a key that no command of a session has caused, such as `expired`.
    pub fn notify(&self, tenant: &str, database: u32, event: &KeyEvent) {
        let state = self.tenants.lock().get(tenant).cloned();
        if let Some(state) = state.filter(|state| state.settings.classes().contains(event.class)) {
            self.publish(&state, database, event);
        }
    }

    pub(crate) fn publish(&self, tenant: &TenantState, database: u32, KeyEvent { name, key, .. }: &KeyEvent) {
        let classes = tenant.settings.classes().bits();
        let send = |channel: &[u8], payload: &[u8]| {
            // Nobody else would tell them that they miss an event.
            if self.send(tenant, channel, payload).is_err() {
                tenant.channels.close_listeners(channel, &self.closed);
            }
        };
        if classes & EventClass::Keyspace as u16 != 0 {
            send(&[format!("__keyspace@{database}__:").as_bytes(), key].concat(), name.as_bytes());
        }
        if classes & EventClass::Keyevent as u16 != 0 {
            send(format!("__keyevent@{database}__:{name}").as_bytes(), key);
        }
    }

    /// Sends a message to those of a tenant who listen to `channel`, and returns how many took it. If there is no memory
    /// for it, those clients of the tenant that keep most messages waiting are closed.
    pub(crate) fn send(&self, tenant: &TenantState, channel: &[u8], payload: &[u8]) -> Result<usize, NoMemory> {
        loop {
            match tenant.channels.publish(channel, payload, &tenant.messages, &self.closed) {
                Err(NoMemory) if self.clients.close_slowest(&tenant.name, &self.closed) => {}
                sent => return sent,
            }
        }
    }

    /// Closes the connections that have sent nothing for longer than the `timeout` of their tenant allows, and subscribers
    /// that have been slow for too long. As in Redis, subscribers may be silent for any time.
    pub fn close_idle_and_slow(&self) {
        self.clients.close_slow(self.host.now_ms(), &self.closed);
        let timeouts: HashMap<Arc<str>, i64> = {
            let tenants = self.tenants.lock();
            let timeout = |(name, state): (&Arc<str>, &Arc<TenantState>)| {
                Some((Arc::clone(name), state.settings.idle_timeout_ms()?))
            };
            tenants.iter().filter_map(timeout).collect()
        };
        if !timeouts.is_empty() {
            self.clients.kill_idle(&timeouts, self.host.now_ms());
        }
    }

    /// The state of a tenant, which stays: there are as many as have ever logged in here.
    pub(crate) fn tenant(&self, tenant: &Arc<str>) -> Arc<TenantState> {
        let new = || {
            Arc::new(TenantState {
                name: Arc::clone(tenant),
                messages: self.clients.messages().for_tenant(&TenantId::new(tenant).unwrap_or_default()),
                settings: ProtocolSettings::bounded(self.settings.bulk_limit_bytes()),
                channels: Channels::default(),
                slow_log: SlowLog::default(),
                latency: LatencyMonitor::default(),
                pause: Pause::default(),
            })
        };
        Arc::clone(self.tenants.lock().entry(Arc::clone(tenant)).or_insert_with(new))
    }

    /// The sums over all tenants of channels and patterns with subscribers.
    pub(crate) fn channel_counts(&self) -> (usize, usize) {
        let tenants = self.tenants.lock();
        let counts = tenants.values().map(|tenant| tenant.channels.counts());
        counts.fold((0, 0), |sum, counts| (sum.0 + counts.0, sum.1 + counts.1))
    }
}

/// A time in which commands of a tenant are held back.
#[derive(Debug, Default)]
pub(crate) struct Pause {
    /// 0 if there is none.
    all_until_ms: AtomicI64,
    writes_until_ms: AtomicI64,
    held: AtomicUsize,
    changed: Notify,
}

/// A client that a pause holds back; it goes on when this is dropped.
#[derive(Debug)]
pub(crate) struct HeldClient<'a>(&'a Pause);

impl Drop for HeldClient<'_> {
    fn drop(&mut self) {
        self.0.held.fetch_sub(1, Relaxed);
    }
}

impl Pause {
    pub(crate) fn begin(&self, until_ms: i64, only_writes: bool) {
        let until = if only_writes { &self.writes_until_ms } else { &self.all_until_ms };
        until.fetch_max(until_ms, Relaxed);
    }

    pub(crate) fn end(&self) {
        self.all_until_ms.store(0, Relaxed);
        self.writes_until_ms.store(0, Relaxed);
        self.changed.notify_waiters();
    }

    /// Counts a client as held back.
    pub(crate) fn hold(&self) -> HeldClient<'_> {
        self.held.fetch_add(1, Relaxed);
        HeldClient(self)
    }

    /// The clients that are held back.
    pub(crate) fn held(&self) -> usize {
        self.held.load(Relaxed)
    }

    /// Until when a command must wait; 0 if it need not.
    pub(crate) fn until_ms(&self, writes: bool) -> i64 {
        let all = self.all_until_ms.load(Relaxed);
        if writes { all.max(self.writes_until_ms.load(Relaxed)) } else { all }
    }

    /// Resolves when the pause has been ended early.
    pub(crate) async fn ended(&self) {
        self.changed.notified().await;
    }
}

/// A copy that holds no more memory than its own bytes, of something that is kept for long.
pub(crate) fn owned(bytes: &[u8]) -> Bytes {
    Bytes::copy_from_slice(bytes)
}
