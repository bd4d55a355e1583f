//! Admits device connections within the tenant's limits, counts them and, if configured, reports them to applications.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use millstream_http::{Gauge, Histogram, Metrics, Problem};
use millstream_log::{AckLevel, Done};
use millstream_types::{Header, MonotonicClock, Principal, Record, TenantId, WallClock, header};
use parking_lot::Mutex;
use serde_json::json;

use crate::login::tenant_of;
use crate::metrics::component;
use crate::refusal::{unknown_device, unknown_tenant};
use crate::registry::Registry;
use crate::stream::Stream;
use crate::streams::TenantStreams;
use crate::tenant_counter::{LABELLED_TENANTS_MAX, OTHERS, TenantCounter};
use crate::usage::{ConnectingDevice, Moment};

/// Media type of connection events.
const EVENT_TYPE: &[u8] = b"application/vnd.eclipse-hono-dc-notification+json";
/// The label of a connection's cipher suite.
const CIPHER_SUITE: &str = "cipher_suite";
/// Its value for a connection without TLS.
const NO_CIPHER_SUITE: &str = "UNKNOWN";
const DURATION_BOUNDS_S: [f64; 8] = [1.0, 10.0, 60.0, 600.0, 3_600.0, 21_600.0, 86_400.0, 604_800.0];

/// The connections of one adapter.
pub(crate) struct Connections {
    pub(crate) adapter: &'static str,
    pub(crate) registry: Registry,
    pub(crate) wall: Arc<dyn WallClock>,
    pub(crate) monotonic: Arc<dyn MonotonicClock>,
    /// True if connection events are appended.
    pub(crate) is_told: bool,
    pub(crate) attempts: Attempts,
    pub(crate) gauges: Gauges,
    pub(crate) live: LiveDevices,
}

/// Number of connections of each device; there are at most as many entries as connections.
#[derive(Debug, Default)]
pub(crate) struct LiveDevices(Mutex<HashMap<TenantId, HashMap<Box<str>, usize>>>);

impl LiveDevices {
    fn enter(&self, tenant: &TenantId, device: &str) {
        let mut live = self.0.lock();
        *live.entry(tenant.clone()).or_default().entry(device.into()).or_default() += 1;
    }

    fn leave(&self, tenant: &TenantId, device: &str) {
        let mut live = self.0.lock();
        let Some(devices) = live.get_mut(tenant) else { return };
        if let Some(count) = devices.get_mut(device) {
            *count -= 1;
            if *count == 0 {
                devices.remove(device);
            }
        }
        if devices.is_empty() {
            live.remove(tenant);
        }
    }

    /// True while the device has a connection of its own.
    pub(crate) fn has(&self, tenant: &TenantId, device: &str) -> bool {
        self.0.lock().get(tenant).is_some_and(|devices| devices.contains_key(device))
    }
}

/// The counters of connection attempts, one for each cipher suite, under Hono's name.
pub(crate) struct Attempts {
    metrics: Metrics,
    adapter: &'static str,
    by_cipher_suite: Mutex<HashMap<&'static str, TenantCounter>>,
}

impl Attempts {
    pub(crate) fn new(metrics: &Metrics, adapter: &'static str) -> Self {
        Self { metrics: metrics.clone(), adapter, by_cipher_suite: Mutex::default() }
    }

    /// Counts an attempt. `tenant` is `None` if it is not registered, and the cipher suite if there is no TLS.
    fn count(&self, tenant: Option<&TenantId>, outcome: &'static str, cipher_suite: Option<&'static str>) {
        let cipher_suite = cipher_suite.unwrap_or(NO_CIPHER_SUITE);
        let mut known = self.by_cipher_suite.lock();
        known.entry(cipher_suite).or_insert_with(|| self.counter(cipher_suite)).count(tenant, outcome);
    }

    fn counter(&self, cipher_suite: &'static str) -> TenantCounter {
        let [host, kind, name] = component(self.adapter);
        let labels = [host, kind, name, (CIPHER_SUITE, cipher_suite)];
        TenantCounter::new(&self.metrics, "hono_connections_attempts_total", "Attempts to connect.", "outcome", &labels)
    }
}

/// A connection; it is counted until it is dropped.
pub(crate) struct DeviceConnection {
    of: Arc<Connections>,
    streams: Arc<TenantStreams>,
    gauge: Arc<Lives>,
    tenant: TenantId,
    device: Box<str>,
    remote_id: Box<str>,
    since: Duration,
}

/// A connection without login and tenant; it is counted until it is dropped.
pub(crate) struct Unauthenticated {
    gauge: Gauge,
}

/// Connection gauges by tenant, and connection durations.
pub(crate) struct Gauges {
    metrics: Metrics,
    adapter: &'static str,
    known: Mutex<HashMap<Box<str>, Arc<Lives>>>,
    /// Made for the first of them: few servers have any.
    unauthenticated: OnceLock<Gauge>,
}

struct Lives {
    connected: Gauge,
    duration: Histogram,
}

impl Connections {
    /// Admits a logged-in device, which speaks TLS if there is a cipher suite; `remote_id` is its own name for itself.
    pub(crate) fn open(
        self: &Arc<Self>,
        who: &Principal,
        streams: &Arc<TenantStreams>,
        remote_id: &str,
        cipher_suite: Option<&'static str>,
    ) -> Result<DeviceConnection, Problem> {
        let tenant = &who.tenant;
        let now_ms = self.wall.now_ms();
        {
            let now = Moment { wall_ms: now_ms, monotonic: self.monotonic.now() };
            let snapshot = self.registry.snapshot(tenant);
            let known = snapshot.state.tenant(tenant).ok_or_else(|| unknown_tenant(tenant))?;
            let stored = known.tenant.as_deref().ok_or_else(|| unknown_tenant(tenant))?;
            let device = known.devices.get(who.name.as_str()).ok_or_else(|| unknown_device(&who.name))?;
            let per_second_max = stored.value.resource_limits.device_connects_per_second_max(&device.value.ext);
            let admitted = streams.usage.connect(stored, ConnectingDevice { device: &who.name, per_second_max }, now);
            admitted.map_err(|(limit, problem)| {
                self.attempts.count(Some(tenant), limit.exceeded(), cipher_suite);
                problem
            })?;
        }
        self.attempts.count(Some(tenant), "succeeded", cipher_suite);
        let gauge = self.gauges.of(tenant);
        gauge.connected.inc();
        let connection = DeviceConnection {
            of: Arc::clone(self),
            streams: streams.clone(),
            gauge,
            tenant: tenant.clone(),
            device: who.name.as_str().into(),
            remote_id: remote_id.into(),
            since: self.monotonic.now(),
        };
        self.live.enter(tenant, &who.name);
        connection.tell("connected", now_ms);
        Ok(connection)
    }

    /// Admits a client without login.
    pub(crate) fn open_unauthenticated(&self, cipher_suite: Option<&'static str>) -> Unauthenticated {
        self.attempts.count(None, "succeeded", cipher_suite);
        let gauge = self.gauges.unauthenticated().clone();
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
    /// Counts a failed attempt; `user` is the presented user name.
    pub(crate) fn refused(&self, user: Option<&str>, outcome: &'static str, cipher_suite: Option<&'static str>) {
        let tenant = user.and_then(|user| tenant_of(user).ok());
        let is_known = |tenant: &TenantId| self.registry.snapshot(tenant).state.tenant(tenant).is_some();
        self.attempts.count(tenant.filter(is_known).as_ref(), outcome, cipher_suite);
    }
}

impl DeviceConnection {
    fn tell(&self, cause: &str, now_ms: i64) {
        if !self.of.is_told {
            return;
        }
        let body = json!({"cause": cause, "remote-id": self.remote_id, "source": self.of.adapter, "data": {}});
        let (body, created) = (body.to_string(), now_ms.to_string());
        let own = |key, value| Header { key, value: Some(value) };
        // The event is not a message of the device, so it names no adapter and does not count as volume.
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

impl Drop for DeviceConnection {
    fn drop(&mut self) {
        let now_ms = self.of.wall.now_ms();
        self.streams.usage.disconnect(now_ms);
        self.gauge.connected.dec();
        self.of.live.leave(&self.tenant, &self.device);
        let lasted = self.of.monotonic.now().saturating_sub(self.since);
        self.gauge.duration.observe(lasted.as_secs_f64());
        self.tell("disconnected", now_ms);
    }
}

impl Gauges {
    pub(crate) fn new(metrics: &Metrics, adapter: &'static str) -> Self {
        Self { metrics: metrics.clone(), adapter, known: Mutex::default(), unauthenticated: OnceLock::new() }
    }

    fn unauthenticated(&self) -> &Gauge {
        self.unauthenticated.get_or_init(|| {
            let help = "Clients that are connected without login.";
            self.metrics.gauge("hono_connections_unauthenticated", help, &component(self.adapter))
        })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_to_connect_are_told_apart_by_the_cipher_suite() {
        let metrics = Metrics::default();
        let attempts = Attempts::new(&metrics, "hono-mqtt");
        for cipher_suite in [None, Some("TLS_AES_256_GCM_SHA384"), Some("TLS_AES_256_GCM_SHA384")] {
            attempts.count(None, "succeeded", cipher_suite);
        }
        let text = metrics.text();
        for (cipher_suite, times) in [("UNKNOWN", 1), ("TLS_AES_256_GCM_SHA384", 2)] {
            let begin = format!("hono_connections_attempts_total{{cipher_suite=\"{cipher_suite}\",");
            let is_it = |line: &str| line.starts_with(&begin) && line.ends_with(&format!(" {times}"));
            assert!(text.lines().any(is_it), "{text}");
        }
    }
}
