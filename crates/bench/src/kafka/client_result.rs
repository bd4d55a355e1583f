//! Results of one client run.

use millstream_load::LatencyMs;

/// The figures that a client reports.
#[derive(Debug, Clone)]
pub(super) struct ClientResult {
    pub(super) records: u64,
    pub(super) rate_per_s: f64,
    pub(super) latency_ms: Option<LatencyMs>,
    pub(super) errors: u64,
    pub(super) generator_bottleneck: bool,
}
