//! Live connections of devices: let in if the tenant has volume and time left, counted, and told to applications if the
//! operator wants it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use millstream_http::{Gauge, Histogram, Metrics, Problem};
use millstream_log::{AckLevel, Done};
use millstream_types::{Header, MonotonicClock, Principal, Record, TenantId, WallClock, header};
use parking_lot::Mutex;
use serde_json::json;

use crate::login::tenant_of;
use crate::meter::component;
use crate::refusal::{unknown_device, unknown_tenant};
use crate::registry::Registry;
use crate::streams::{Stream, TenantStreams};
use crate::tenant_counter::{LABELLED_TENANTS_MAX, OTHERS, TenantCounter};
use crate::usage::{Caller, Moment};

/// The type of an event that tells of a connection.
const EVENT_TYPE: &[u8] = b"application/vnd.eclipse-hono-dc-notification+json";
/// Connections are not encrypted yet.
const CIPHER_SUITE: (&str, &str) = ("cipher_suite", "UNKNOWN");
const DURATION_BOUNDS_S: [f64; 8] = [1.0, 10.0, 60.0, 600.0, 3_600.0, 21_600.0, 86_400.0, 604_800.0];

/// The connections of one adapter.
pub(crate) struct Connections {
    pub(crate) adapter: &'static str,
    pub(crate) registry: Registry,
    pub(crate) wall: Arc<dyn WallClock>,
    pub(crate) monotonic: Arc<dyn MonotonicClock>,
    /// Whether applications hear of them.
    pub(crate) is_told: bool,
    pub(crate) attempts: TenantCounter,
    pub(crate) gauges: Gauges,
}

/// A connection; it is counted until it is dropped.
pub(crate) struct Connection {
    of: Arc<Connections>,
    streams: Arc<TenantStreams>,
    gauge: Arc<Lives>,
    device: Box<str>,
    remote_id: Box<str>,
    since: Duration,
}

/// A connection without login, of no tenant; it is counted until it is dropped.
pub(crate) struct Unauthenticated {
    gauge: Gauge,
}

/// How many are connected, by tenant, and how long they were.
pub(crate) struct Gauges {
    metrics: Metrics,
    adapter: &'static str,
    known: Mutex<HashMap<Box<str>, Arc<Lives>>>,
    unauthenticated: Gauge,
}

struct Lives {
    connected: Gauge,
    duration: Histogram,
}

impl Connections {
    /// Counts what tries to connect, under Hono's name.
    pub(crate) fn attempts(metrics: &Metrics, adapter: &'static str) -> TenantCounter {
        let [host, kind, name] = component(adapter);
        let labels = [host, kind, name, CIPHER_SUITE];
        TenantCounter::new(metrics, "hono_connections_attempts_total", "Attempts to connect.", "outcome", &labels)
    }

    /// Takes in a device that has logged in; `remote_id` is what it calls itself.
    pub(crate) fn open(
        self: &Arc<Self>,
        who: &Principal,
        streams: &Arc<TenantStreams>,
        remote_id: &str,
    ) -> Result<Connection, Problem> {
        let tenant = &who.tenant;
        let now_ms = self.wall.now_ms();
        {
            let now = Moment { wall_ms: now_ms, monotonic: self.monotonic.now() };
            let snapshot = self.registry.snapshot(tenant);
            let known = snapshot.state.tenant(tenant).ok_or_else(|| unknown_tenant(tenant))?;
            let stored = known.tenant.as_deref().ok_or_else(|| unknown_tenant(tenant))?;
            let device = known.devices.get(who.name.as_str()).ok_or_else(|| unknown_device(&who.name))?;
            let per_second_max = stored.value.resource_limits.device_connects_per_second_max(&device.value.ext);
            let admitted = streams.usage.connect(stored, Caller { device: &who.name, per_second_max }, now);
            admitted.map_err(|(limit, problem)| {
                self.attempts.count(Some(tenant), limit.exceeded());
                problem
            })?;
        }
        self.attempts.count(Some(tenant), "succeeded");
        let gauge = self.gauges.of(tenant);
        gauge.connected.inc();
        let connection = Connection {
            of: Arc::clone(self),
            streams: streams.clone(),
            gauge,
            device: who.name.as_str().into(),
            remote_id: remote_id.into(),
            since: self.monotonic.now(),
        };
        connection.tell("connected", now_ms);
        Ok(connection)
    }

    /// Takes in a client that has not logged in.
    pub(crate) fn open_unauthenticated(&self) -> Unauthenticated {
        self.attempts.count(None, "succeeded");
        let gauge = self.gauges.unauthenticated.clone();
        gauge.inc();
        Unauthenticated { gauge }
    }
}

impl Drop for Unauthenticated {
    fn drop(&mut self) {
        self.gauge.dec();
    }
}

impl Connections {
    /// Counts an attempt that has failed; `user` is the name that was given.
    pub(crate) fn refused(&self, user: Option<&str>, outcome: &'static str) {
        let tenant = user.and_then(|user| tenant_of(user).ok());
        let is_known = |tenant: &TenantId| self.registry.snapshot(tenant).state.tenant(tenant).is_some();
        self.attempts.count(tenant.filter(is_known).as_ref(), outcome);
    }
}

impl Connection {
    fn tell(&self, cause: &str, now_ms: i64) {
        if !self.of.is_told {
            return;
        }
        let body = json!({"cause": cause, "remote-id": self.remote_id, "source": self.of.adapter, "data": {}});
        let (body, created) = (body.to_string(), now_ms.to_string());
        let own = |key, value| Header { key, value: Some(value) };
        // Not a message of the device: it names no adapter, and does not count as volume.
        let headers = [
            own(header::DEVICE_ID, self.device.as_bytes()),
            own(header::CONTENT_TYPE, EVENT_TYPE),
            own(header::CREATION_TIME, created.as_bytes()),
            own(header::QOS, b"1"),
        ];
        let (key, value) = (Some(self.device.as_bytes()), Some(body.as_bytes()));
        let record = Record { timestamp_ms: now_ms, key, value, headers: &headers };
        let partition = self.streams.partition(Stream::Event, &self.device);
        if let Err(error) = partition.append(&[record], AckLevel::Synced, Done::ignore()) {
            tracing::warn!(%error, device = %self.device, cause, "applications cannot be told of a connection");
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let now_ms = self.of.wall.now_ms();
        self.streams.usage.disconnect(now_ms);
        self.gauge.connected.dec();
        let lasted = self.of.monotonic.now().saturating_sub(self.since);
        self.gauge.duration.observe(lasted.as_secs_f64());
        self.tell("disconnected", now_ms);
    }
}

impl Gauges {
    pub(crate) fn new(metrics: &Metrics, adapter: &'static str) -> Self {
        let help = "Clients that are connected without login.";
        let unauthenticated = metrics.gauge("hono_connections_unauthenticated", help, &component(adapter));
        Self { metrics: metrics.clone(), adapter, known: Mutex::default(), unauthenticated }
    }

    fn of(&self, tenant: &TenantId) -> Arc<Lives> {
        let mut known = self.known.lock();
        let mut tenant = tenant.as_str();
        if !known.contains_key(tenant) && known.len() >= LABELLED_TENANTS_MAX {
            tenant = OTHERS;
        }
        known.entry(tenant.into()).or_insert_with(|| Arc::new(self.lives(tenant))).clone()
    }

    fn lives(&self, tenant: &str) -> Lives {
        let [host, kind, name] = component(self.adapter);
        let labels = [host, kind, name, ("tenant", tenant)];
        let connected = self.metrics.gauge("hono_connections_authenticated", "Devices that are connected.", &labels);
        let help = "How long devices were connected.";
        let name = "hono_connections_authenticated_duration_seconds";
        Lives { connected, duration: self.metrics.histogram(name, help, &labels, &DURATION_BOUNDS_S) }
    }
}
