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
/// How many there are of [`Delivery`] but for answers to commands, of [`Fate`], of [`Waited`] and of [`Direction`].
const KINDS: usize = 3;
const FATES: usize = 3;
const WAITS: usize = 3;
const DIRECTIONS: usize = 3;
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
    cells: [OnceLock<Cell>; KINDS * FATES * WAITS],
    /// Of commands and of answers to them.
    commands: [OnceLock<Cell>; DIRECTIONS * FATES],
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
    /// Answer to a command, which its sender does not want acknowledged.
    UnconfirmedResponse,
    /// Answer to a command.
    Response,
}

impl Delivery {
    pub(crate) fn stream(self) -> Stream {
        match self {
            Self::AtMostOnce | Self::AtLeastOnce => Stream::Telemetry,
            Self::Event => Stream::Event,
            Self::UnconfirmedResponse | Self::Response => Stream::CommandResponse,
        }
    }

    /// As the record's header and the metrics say it.
    pub(crate) fn qos(self) -> &'static str {
        match self {
            Self::AtMostOnce | Self::UnconfirmedResponse => "0",
            Self::AtLeastOnce | Self::Event | Self::Response => "1",
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

impl Fate {
    fn name(self) -> &'static str {
        match self {
            Self::Forwarded => "forwarded",
            Self::Unprocessable => "unprocessable",
            Self::Undeliverable => "undeliverable",
        }
    }
}

impl Cell {
    fn observe(&self, payload_bytes: usize, took: Duration) {
        self.payload.observe(payload_bytes as f64);
        self.duration.observe(took.as_secs_f64());
    }
}

/// What a command is, or what comes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    /// A command that wants no answer.
    OneWay,
    /// A command that wants one.
    Request,
    /// The answer.
    Response,
}

impl Direction {
    /// That of a command.
    pub(crate) fn of(wants_answer: bool) -> Self {
        if wants_answer { Self::Request } else { Self::OneWay }
    }

    fn name(self) -> &'static str {
        match self {
            Self::OneWay => "one-way",
            Self::Request => "request",
            Self::Response => "response",
        }
    }
}

/// Whether the device waited for a command, and got one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waited {
    /// It did not wait.
    No,
    /// It got one.
    Command,
    /// None came in time.
    Expired,
}

impl Meters {
    /// Those of the adapter of this type.
    pub(crate) fn new(metrics: &Metrics, adapter: &'static str) -> Self {
        Self { metrics: metrics.clone(), adapter, known: Mutex::new(HashMap::new()), others: OnceLock::new() }
    }

    fn meter(&self, tenant: &str) -> Arc<Meter> {
        let (metrics, adapter) = (self.metrics.clone(), self.adapter);
        Arc::new(Meter {
            metrics,
            adapter,
            tenant: tenant.into(),
            cells: [const { OnceLock::new() }; _],
            commands: Default::default(),
        })
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
        self.count_waited(delivery, fate, Waited::No, payload_bytes, took);
    }

    /// Counts a message whose device may have waited for a command.
    pub(crate) fn count_waited(
        &self,
        delivery: Delivery,
        fate: Fate,
        waited: Waited,
        payload_bytes: usize,
        took: Duration,
    ) {
        if delivery.stream() == Stream::CommandResponse {
            return self.count_command(Direction::Response, fate, payload_bytes, took);
        }
        let at = (delivery as usize * FATES + fate as usize) * WAITS + waited as usize;
        self.cells[at].get_or_init(|| self.cell(delivery, fate, waited)).observe(payload_bytes, took);
    }

    /// Counts a command whose device was found at this adapter, or the answer to one; `took` is how long it was on its
    /// way.
    pub(crate) fn count_command(&self, direction: Direction, fate: Fate, payload_bytes: usize, took: Duration) {
        let cell = &self.commands[direction as usize * FATES + fate as usize];
        cell.get_or_init(|| self.command_cell(direction, fate)).observe(payload_bytes, took);
    }

    fn command_cell(&self, direction: Direction, fate: Fate) -> Cell {
        let [host, kind, name] = component(self.adapter);
        let labels =
            [host, kind, name, ("tenant", &*self.tenant), ("status", fate.name()), ("direction", direction.name())];
        self.histograms(
            &labels,
            ("hono_command_payload_bytes", "Payload of commands and of answers to them."),
            ("hono_command_processing_duration_seconds", "Time that a command or an answer to one took."),
        )
    }

    fn cell(&self, delivery: Delivery, fate: Fate, waited: Waited) -> Cell {
        let ttd = match waited {
            Waited::No => "none",
            Waited::Command => "command",
            Waited::Expired => "expired",
        };
        let [host, kind, name] = component(self.adapter);
        let labels = [
            host,
            kind,
            name,
            ("tenant", &*self.tenant),
            ("status", fate.name()),
            ("type", if delivery == Delivery::Event { "event" } else { "telemetry" }),
            ("ttd", ttd),
            ("qos", if delivery == Delivery::AtMostOnce { "AT_MOST_ONCE" } else { "AT_LEAST_ONCE" }),
        ];
        self.histograms(
            &labels,
            ("hono_telemetry_payload_bytes", "Payload of messages of devices."),
            (
                "hono_telemetry_processing_duration_seconds",
                "Time from a message's arrival to its answer, a wait for a command aside.",
            ),
        )
    }

    fn histograms(
        &self,
        labels: &[(&str, &str)],
        (payload, payload_help): (&'static str, &'static str),
        (duration, duration_help): (&'static str, &'static str),
    ) -> Cell {
        Cell {
            payload: self.metrics.histogram(payload, payload_help, labels, &PAYLOAD_BOUNDS_BYTES),
            duration: self.metrics.histogram(duration, duration_help, labels, &DURATION_BOUNDS_S),
        }
    }
}
/// The labels that say who has counted, as Hono's adapters have them.
pub(crate) fn component(adapter: &'static str) -> [(&'static str, &'static str); 3] {
    static HOST: OnceLock<String> = OnceLock::new();
    let host = HOST.get_or_init(|| {
        let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        if name.trim().is_empty() { "localhost".to_owned() } else { name.trim().to_owned() }
    });
    [("host", host), ("component_type", "adapter"), ("component_name", adapter)]
}
