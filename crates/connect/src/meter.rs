//! What is counted of messages, under the names that Hono's users know (dots are underscores).

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use millstream_http::{Histogram, Metrics};
use millstream_types::{LatencyHistogram, TenantId};
use parking_lot::Mutex;

use crate::streams::Stream;
use crate::tenant_counter::{LABELLED_TENANTS_MAX, OTHERS};

const DURATION_BOUNDS_S: [f64; 12] =
    [0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.1, 0.25, 0.5, 1.0];
const PAYLOAD_BOUNDS_BYTES: [f64; 6] = [64.0, 256.0, 1_024.0, 2_048.0, 8_192.0, 65_536.0];

/// The meters of all tenants. A tenant that is deleted and made again goes on with its meter.
pub(crate) struct Meters {
    metrics: Metrics,
    adapter: &'static str,
    known: Mutex<HashMap<TenantId, Arc<Meter>>>,
    /// That of all tenants without labels of their own.
    others: OnceLock<Arc<Meter>>,
}

/// What all tenants' messages came to.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    /// How long accepted messages took; their number is its total.
    pub(crate) accept_latency: LatencyHistogram,
    /// Messages that were refused.
    pub(crate) rejected: AtomicU64,
}

/// The meter of one tenant; its labels are resolved on first use.
pub(crate) struct Meter {
    metrics: Metrics,
    adapter: &'static str,
    tenant: Box<str>,
    cells: [OnceLock<Cell>; 9],
}

struct Cell {
    payload: Histogram,
    duration: Histogram,
}

/// The kind of a message, as far as it is counted apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// Telemetry, QoS 0.
    AtMostOnce,
    /// Telemetry, QoS 1.
    AtLeastOnce,
    /// Event.
    Event,
}

impl Delivery {
    pub(crate) fn stream(self) -> Stream {
        match self {
            Self::AtMostOnce | Self::AtLeastOnce => Stream::Telemetry,
            Self::Event => Stream::Event,
        }
    }

    /// As the record's header and the metrics say it.
    pub(crate) fn qos(self) -> &'static str {
        match self {
            Self::AtMostOnce => "0",
            Self::AtLeastOnce | Self::Event => "1",
        }
    }
}

/// How a message ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The log has it.
    Forwarded,
    /// The device's fault.
    Unprocessable,
    /// Ours.
    Undeliverable,
}

impl Meters {
    /// Those of the adapter of this type.
    pub(crate) fn new(metrics: &Metrics, adapter: &'static str) -> Self {
        Self { metrics: metrics.clone(), adapter, known: Mutex::new(HashMap::new()), others: OnceLock::new() }
    }

    fn meter(&self, tenant: &str) -> Arc<Meter> {
        let (metrics, adapter) = (self.metrics.clone(), self.adapter);
        Arc::new(Meter { metrics, adapter, tenant: tenant.into(), cells: Default::default() })
    }

    pub(crate) fn of(&self, tenant: &TenantId) -> Arc<Meter> {
        let mut known = self.known.lock();
        if !known.contains_key(tenant) && known.len() >= LABELLED_TENANTS_MAX {
            return self.others.get_or_init(|| self.meter(OTHERS)).clone();
        }
        known.entry(tenant.clone()).or_insert_with(|| self.meter(tenant.as_str())).clone()
    }
}

impl Meter {
    /// Counts a message.
    pub(crate) fn count(&self, delivery: Delivery, fate: Fate, payload_bytes: usize, took: Duration) {
        let cell = self.cells[delivery as usize * 3 + fate as usize].get_or_init(|| self.cell(delivery, fate));
        cell.payload.observe(payload_bytes as f64);
        cell.duration.observe(took.as_secs_f64());
    }

    fn cell(&self, delivery: Delivery, fate: Fate) -> Cell {
        let labels = [
            ("component_type", "adapter"),
            ("component_name", self.adapter),
            ("tenant", &self.tenant),
            ("type", if delivery == Delivery::Event { "event" } else { "telemetry" }),
            (
                "status",
                match fate {
                    Fate::Forwarded => "forwarded",
                    Fate::Unprocessable => "unprocessable",
                    Fate::Undeliverable => "undeliverable",
                },
            ),
            // Nobody waits for a command yet.
            ("ttd", "none"),
            ("qos", if delivery == Delivery::AtMostOnce { "AT_MOST_ONCE" } else { "AT_LEAST_ONCE" }),
        ];
        Cell {
            payload: self.metrics.histogram(
                "hono_telemetry_payload_bytes",
                "Payload of messages of devices.",
                &labels,
                &PAYLOAD_BOUNDS_BYTES,
            ),
            duration: self.metrics.histogram(
                "hono_telemetry_processing_duration_seconds",
                "Time from a message's arrival to its answer.",
                &labels,
                &DURATION_BOUNDS_S,
            ),
        }
    }
}
