//! The figures of jobs for metrics.

use crate::document::{NodeId, Role};
use crate::runtime::{NodeMetrics, Run};

/// The figures of one node of a running job.
#[derive(Debug, Clone, PartialEq)]
pub struct JobFigure {
    /// The tenant of the job.
    pub tenant: String,
    /// The name of the job.
    pub job: String,
    /// The name of the node.
    pub node: String,
    /// Records that have entered the node.
    pub records_in: u64,
    /// Records that it has made, or written if it is a sink.
    pub records_out: u64,
    /// Batches that have entered the node.
    pub batches_in: u64,
    /// Batches of records that it has made or written.
    pub batches_out: u64,
    /// Records on which it has failed, by code.
    pub errors: Vec<(&'static str, u64)>,
    /// Records that no route took; `None` for a sink, from which no route leads.
    pub unrouted: Option<u64>,
    /// The time of the node for a batch, over the last one to two minutes, milliseconds; `None` without a batch.
    pub latency_p50_ms: Option<f64>,
    /// The time that 1 % of these batches exceed.
    pub latency_p99_ms: Option<f64>,
    /// The used share of the queue in front of the node, 0 to 1; `None` without a queue.
    pub queue_fill: Option<f64>,
    /// The finished offsets of a source's partitions, summed; `None` for other nodes.
    pub source_offset: Option<u64>,
    /// Records of a source's topic that are not finished.
    pub source_lag: Option<u64>,
}

impl JobFigure {
    /// The figures of all nodes of a run, in the order of the document.
    pub(super) fn of_run(run: &Run) -> Vec<Self> {
        let figure = |(number, node): (usize, &NodeMetrics)| {
            let (counts, id) = (node.counters.counts(), NodeId(number));
            let read = run.progress.read_up_to(id);
            Self {
                tenant: run.tenant.to_string(),
                job: run.job.clone(),
                node: node.name.clone(),
                records_in: counts.records_in,
                records_out: counts.records_out,
                batches_in: counts.batches_in,
                batches_out: counts.batches_out,
                errors: counts.errors_by_code.into_iter().collect(),
                unrouted: (node.role != Role::Sink).then_some(counts.unrouted),
                latency_p50_ms: counts.latency_p50_ms,
                latency_p99_ms: counts.latency_p99_ms,
                queue_fill: run.queue(id).map(|queue| queue.used as f64 / queue.bound as f64),
                source_offset: read.map(|read| read.offset),
                source_lag: read.map(|read| read.lag),
            }
        };
        run.metrics.nodes.iter().enumerate().map(figure).collect()
    }
}
