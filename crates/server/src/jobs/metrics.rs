//! The metrics of jobs: their states, and the figures of the nodes of those that run.

use std::sync::Arc;

use millstream_flow::{JobFigure, Jobs};
use millstream_http::Metrics;

const LABELS: [&str; 3] = ["tenant", "job", "node"];

/// A metric with at most one value for each node.
struct NodeMetric {
    name: &'static str,
    help: &'static str,
    read: fn(&JobFigure) -> Option<f64>,
}

const NODE_METRICS: [NodeMetric; 8] = [
    NodeMetric {
        name: "millstream_job_records_in",
        help: "Records that have entered a node of a running job.",
        read: |figure| Some(figure.records_in as f64),
    },
    NodeMetric {
        name: "millstream_job_records_out",
        help: "Records that a node of a running job has made, or written if it is a sink.",
        read: |figure| Some(figure.records_out as f64),
    },
    NodeMetric {
        name: "millstream_job_batches_in",
        help: "Batches that have entered a node of a running job.",
        read: |figure| Some(figure.batches_in as f64),
    },
    NodeMetric {
        name: "millstream_job_batches_out",
        help: "Batches of records that a node of a running job has made or written.",
        read: |figure| Some(figure.batches_out as f64),
    },
    NodeMetric {
        name: "millstream_job_unrouted",
        help: "Records of a running job that no route took.",
        read: |figure| Some(figure.unrouted as f64),
    },
    NodeMetric {
        name: "millstream_job_queue_fill",
        help: "Used share of the queue in front of a node of a running job, 0 to 1.",
        read: |figure| figure.queue_fill,
    },
    NodeMetric {
        name: "millstream_job_source_offset",
        help: "Finished offsets of the partitions that a source of a running job reads, summed.",
        read: |figure| figure.source_offset.map(|offset| offset as f64),
    },
    NodeMetric {
        name: "millstream_job_source_lag",
        help: "Records of its topic that a source of a running job has not finished.",
        read: |figure| figure.source_lag.map(|lag| lag as f64),
    },
];

/// Registers the metrics of jobs.
pub(crate) fn show(jobs: &Arc<Jobs>, metrics: &Metrics) {
    let running = Arc::downgrade(jobs);
    metrics.gauge_fn("millstream_jobs_running", "Jobs that run or wait; limit flow.jobs_max.", move || {
        running.upgrade().map_or(0.0, |jobs| jobs.running_count() as f64)
    });
    let (help, counted) = ("Jobs by state; those in the state starting wait.", Arc::downgrade(jobs));
    metrics.gauges_fn("millstream_jobs", help, &["state"], move || {
        let counts = counted.upgrade().map(|jobs| jobs.state_counts()).unwrap_or_default();
        counts.into_iter().map(|(state, count)| (vec![state.to_owned()], count as f64)).collect()
    });
    let tapped = Arc::downgrade(jobs);
    metrics.gauge_fn("millstream_job_taps", "Open taps on the edges of jobs.", move || {
        tapped.upgrade().map_or(0.0, |jobs| jobs.open_taps() as f64)
    });
    for NodeMetric { name, help, read } in NODE_METRICS {
        let one = move |figure: &JobFigure| read(figure).map(|value| (None, value)).into_iter().collect::<NodeValues>();
        by_node(jobs, metrics, name, help, None, one);
    }
    let help = "Records on which a node of a running job has failed, by code.";
    by_node(jobs, metrics, "millstream_job_errors", help, Some("code"), |figure| {
        figure.errors.iter().map(|(code, count)| (Some(*code), *count as f64)).collect()
    });
    let help = "Time that a node of a running job takes for a batch, over the last one to two minutes.";
    by_node(jobs, metrics, "millstream_job_batch_seconds", help, Some("quantile"), |figure| {
        let quantiles = [("0.5", figure.latency_p50_ms), ("0.99", figure.latency_p99_ms)];
        quantiles.into_iter().filter_map(|(quantile, ms)| Some((Some(quantile), ms? / 1_000.0))).collect()
    });
}

/// The values of one node, each with the value of a further label if there is one.
type NodeValues = Vec<(Option<&'static str>, f64)>;

fn by_node(
    jobs: &Arc<Jobs>,
    metrics: &Metrics,
    name: &str,
    help: &str,
    label: Option<&str>,
    read: impl Fn(&JobFigure) -> NodeValues + Send + Sync + 'static,
) {
    let labels: Vec<&str> = LABELS.into_iter().chain(label).collect();
    let jobs = Arc::downgrade(jobs);
    metrics.gauges_fn(name, help, &labels, move || {
        let figures = jobs.upgrade().map(|jobs| jobs.figures()).unwrap_or_default();
        let of_node = |figure: &JobFigure| {
            let node = [&figure.tenant, &figure.job, &figure.node].map(Clone::clone);
            let values = read(figure).into_iter();
            values
                .map(move |(more, value)| {
                    let labels = node.iter().cloned().chain(more.map(str::to_owned));
                    (labels.collect(), value)
                })
                .collect::<Vec<_>>()
        };
        figures.iter().flat_map(of_node).collect()
    });
}
