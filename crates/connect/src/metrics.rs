//! Message metrics under Hono's names, with underscores in place of dots.

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use millstream_http::{Histogram, Metrics};
use millstream_types::{LatencyHistogram, TenantId};
use parking_lot::Mutex;

use crate::stream::{Delivery, Stream};
use crate::tenant_counter::{LABELLED_TENANTS_MAX, OTHERS};

const DURATION_BOUNDS_S: [f64; 12] =
    [0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.1, 0.25, 0.5, 1.0];
/// Number of variants of [`Delivery`], without command responses. The next three constants are those of
/// [`ProcessingOutcome`], [`TtdStatus`] and [`Direction`], in this order.
const KINDS: usize = 3;
const OUTCOMES: usize = 3;
const WAITS: usize = 3;
const DIRECTIONS: usize = 3;
const PAYLOAD_BOUNDS_BYTES: [f64; 6] = [64.0, 256.0, 1_024.0, 2_048.0, 8_192.0, 65_536.0];

/// The metrics of all tenants of one adapter. A tenant that is deleted and created again continues its counts.
pub(crate) struct AdapterMetrics {
    metrics: Metrics,
    adapter: &'static str,
    known: Mutex<HashMap<TenantId, Arc<TenantMetrics>>>,
    /// Shared metrics of the tenants without labels of their own.
    others: OnceLock<Arc<TenantMetrics>>,
}

#[derive(Debug, Default)]
pub(crate) struct Totals {
    /// Latency of accepted messages; its total is their number.
    pub(crate) accept_latency: LatencyHistogram,
    pub(crate) rejected: AtomicU64,
}

/// The metrics of one tenant; its labels are resolved on first use.
pub(crate) struct TenantMetrics {
    metrics: Metrics,
    adapter: &'static str,
    tenant: Box<str>,
    cells: [OnceLock<Cell>; KINDS * OUTCOMES * WAITS],
    /// Cells of commands and command responses.
    commands: [OnceLock<Cell>; DIRECTIONS * OUTCOMES],
}

struct Cell {
    payload: Histogram,
    duration: Histogram,
}

/// The outcome of processing a message, as Hono's metrics tag it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProcessingOutcome {
    /// The message was appended to the log.
    Forwarded,
    /// The message was refused because of the device's request.
    Unprocessable,
    /// The message failed because of the server.
    Undeliverable,
}

impl ProcessingOutcome {
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

/// The direction of a command message, as Hono's metrics tag it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    /// A command that requires no response.
    OneWay,
    /// A command that requires a response.
    Request,
    Response,
}

impl Direction {
    /// The direction of a command.
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

/// The result of a device's wait for a command (`hono-ttd`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TtdStatus {
    /// The device did not wait.
    No,
    /// A command arrived in time.
    Command,
    /// The wait ended without a command.
    Expired,
}

impl AdapterMetrics {
    /// Creates the metrics of an adapter.
    pub(crate) fn new(metrics: &Metrics, adapter: &'static str) -> Self {
        Self { metrics: metrics.clone(), adapter, known: Mutex::new(HashMap::new()), others: OnceLock::new() }
    }

    fn meter(&self, tenant: &str) -> Arc<TenantMetrics> {
        let (metrics, adapter) = (self.metrics.clone(), self.adapter);
        Arc::new(TenantMetrics {
            metrics,
            adapter,
            tenant: tenant.into(),
            cells: [const { OnceLock::new() }; _],
            commands: Default::default(),
        })
    }

    pub(crate) fn of(&self, tenant: &TenantId) -> Arc<TenantMetrics> {
        let mut known = self.known.lock();
        if !known.contains_key(tenant) && known.len() >= LABELLED_TENANTS_MAX {
            return self.others.get_or_init(|| self.meter(OTHERS)).clone();
        }
        known.entry(tenant.clone()).or_insert_with(|| self.meter(tenant.as_str())).clone()
    }
}

impl TenantMetrics {
    pub(crate) fn count(&self, delivery: Delivery, outcome: ProcessingOutcome, payload_bytes: usize, took: Duration) {
        self.count_waited(delivery, outcome, TtdStatus::No, payload_bytes, took);
    }

    /// Counts a message whose device may have waited for a command.
    pub(crate) fn count_waited(
        &self,
        delivery: Delivery,
        outcome: ProcessingOutcome,
        waited: TtdStatus,
        payload_bytes: usize,
        took: Duration,
    ) {
        if delivery.stream() == Stream::CommandResponse {
            return self.count_command(Direction::Response, outcome, payload_bytes, took);
        }
        let at = (delivery as usize * OUTCOMES + outcome as usize) * WAITS + waited as usize;
        self.cells[at].get_or_init(|| self.cell(delivery, outcome, waited)).observe(payload_bytes, took);
    }

    /// Counts a delivered command or a command response; `took` is its time in transit.
    pub(crate) fn count_command(
        &self,
        direction: Direction,
        outcome: ProcessingOutcome,
        payload_bytes: usize,
        took: Duration,
    ) {
        let cell = &self.commands[direction as usize * OUTCOMES + outcome as usize];
        cell.get_or_init(|| self.command_cell(direction, outcome)).observe(payload_bytes, took);
    }

    fn command_cell(&self, direction: Direction, outcome: ProcessingOutcome) -> Cell {
        let [host, kind, name] = component(self.adapter);
        let labels =
            [host, kind, name, ("tenant", &*self.tenant), ("status", outcome.name()), ("direction", direction.name())];
        let payload_help = "Payload of commands and of answers to them.";
        let duration_help = "Time that a command or an answer to one took.";
        Cell {
            payload: self.payload("hono_command_payload_bytes", payload_help, &labels),
            duration: self.duration("hono_command_processing_duration_seconds", duration_help, &labels),
        }
    }

    fn cell(&self, delivery: Delivery, outcome: ProcessingOutcome, waited: TtdStatus) -> Cell {
        let ttd = match waited {
            TtdStatus::No => "none",
            TtdStatus::Command => "command",
            TtdStatus::Expired => "expired",
        };
        let [host, kind, name] = component(self.adapter);
        let labels = [
            host,
            kind,
            name,
            ("tenant", &*self.tenant),
            ("status", outcome.name()),
            ("type", if delivery == Delivery::Event { "event" } else { "telemetry" }),
            ("ttd", ttd),
            ("qos", if delivery == Delivery::AtMostOnce { "AT_MOST_ONCE" } else { "AT_LEAST_ONCE" }),
        ];
        let payload_help = "Payload of messages of devices.";
        let duration_help = "Time from a message's arrival to its answer, a wait for a command aside.";
        Cell {
            payload: self.payload("hono_telemetry_payload_bytes", payload_help, &labels),
            duration: self.duration("hono_telemetry_processing_duration_seconds", duration_help, &labels),
        }
    }

    fn payload(&self, name: &'static str, help: &'static str, labels: &[(&str, &str)]) -> Histogram {
        self.metrics.histogram(name, help, labels, &PAYLOAD_BOUNDS_BYTES)
    }

    fn duration(&self, name: &'static str, help: &'static str, labels: &[(&str, &str)]) -> Histogram {
        self.metrics.histogram(name, help, labels, &DURATION_BOUNDS_S)
    }
}
/// The labels of the reporting component, as Hono's adapters set them.
pub(crate) fn component(adapter: &'static str) -> [(&'static str, &'static str); 3] {
    static HOST: OnceLock<String> = OnceLock::new();
    let host = HOST.get_or_init(|| {
        let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        if name.trim().is_empty() { "localhost".to_owned() } else { name.trim().to_owned() }
    });
    [("host", host), ("component_type", "adapter"), ("component_name", adapter)]
}
