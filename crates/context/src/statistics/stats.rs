//! Counters of the context plane.

use millstream_http::{Counter, Histogram, Metrics};
use millstream_types::{LatencyCounts, LatencyHistogram};
use std::time::Duration;

/// Upper bounds of the latency histogram, seconds.
const LATENCY_BOUNDS_S: [f64; 12] = [0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0];

pub(crate) struct ContextCounters {
    /// Creates, updates and deletes by clients that took effect.
    pub(crate) updates: Counter,
    /// Telemetry records that became a version of an entity.
    pub(crate) measurements: Counter,
    /// Telemetry records without an entity: no JSON object, no device, no id.
    pub(crate) unmapped: Counter,
    /// Attributes left out: NGSI forbids their name or text, or their expression failed.
    pub(crate) skipped: Counter,
    /// Measurements that would have made their entity too large.
    pub(crate) too_large: Counter,
    /// Updates from records of `context_update.<tenant>` that took effect.
    pub(crate) topic_updates: Counter,
    /// Records of `context_update.<tenant>` that cannot be read, and updates in them that were refused.
    pub(crate) topic_updates_refused: Counter,
    latency_s: Histogram,
    latency: LatencyHistogram,
}

/// Statistics of the context plane. Counts are since the start of the process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContextStats {
    /// Number of entities of all tenants.
    pub entities: u64,
    /// Creates, updates and deletes by clients that took effect.
    pub updates: u64,
    /// Measurements that became a version of an entity, durable or on its way.
    pub measurements: u64,
    /// Measurements without an entity: no JSON object, no device, no id.
    pub unmapped_measurements: u64,
    /// Attributes left out, because NGSI forbids their name or text, or their expression failed.
    pub skipped_attributes: u64,
    /// Measurements that would have made their entity larger than `context.measured_entity_max_bytes`.
    pub too_large_measurements: u64,
    /// Updates from records of `context_update.<tenant>` that took effect, durable or on their way.
    pub topic_updates: u64,
    /// Records of `context_update.<tenant>` that cannot be read, and updates in them that were refused.
    pub refused_topic_updates: u64,
    /// Time from a client's update until it is durable.
    pub update_latency: LatencyCounts,
}

impl ContextCounters {
    pub(crate) fn new(metrics: &Metrics) -> Self {
        let counter = |name, help| metrics.counter(name, help, &[]);
        Self {
            updates: counter("millstream_context_updates_total", "Changes of entities that clients made."),
            measurements: counter("millstream_context_measurements_total", "Measurements applied to entities."),
            unmapped: counter(
                "millstream_context_unmapped_total",
                "Measurements that their mapping makes no entity of.",
            ),
            skipped: counter(
                "millstream_context_skipped_attributes_total",
                "Attributes left out: forbidden, or failed.",
            ),
            too_large: counter(
                "millstream_context_too_large_total",
                "Measurements that would make an entity too large.",
            ),
            topic_updates: counter(
                "millstream_context_topic_updates_total",
                "Updates of entities from context_update topics that took effect.",
            ),
            topic_updates_refused: counter(
                "millstream_context_topic_updates_refused_total",
                "Records of context_update topics that cannot be read, and updates in them that were refused.",
            ),
            latency_s: metrics.histogram(
                "millstream_context_update_seconds",
                "Time from a client's update to its being durable.",
                &[],
                &LATENCY_BOUNDS_S,
            ),
            latency: LatencyHistogram::default(),
        }
    }

    pub(crate) fn updated(&self, took: Duration) {
        self.updates.inc();
        self.latency_s.observe(took.as_secs_f64());
        self.latency.record(took);
    }

    pub(crate) fn stats(&self, entities: usize) -> ContextStats {
        ContextStats {
            entities: entities as u64,
            updates: self.updates.get(),
            measurements: self.measurements.get(),
            unmapped_measurements: self.unmapped.get(),
            skipped_attributes: self.skipped.get(),
            too_large_measurements: self.too_large.get(),
            topic_updates: self.topic_updates.get(),
            refused_topic_updates: self.topic_updates_refused.get(),
            update_latency: self.latency.counts(),
        }
    }
}
