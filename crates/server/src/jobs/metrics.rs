//! The metrics of jobs: their states, and the figures of the nodes of those that run.

use std::sync::Arc;

use millstream_flow::{JobFigure, Jobs};
use millstream_http::Metrics;

const LABELS: [&str; 3] = ["tenant", "job", "node"];

type NodeCounter = (&'static str, &'static str, fn(&JobFigure) -> Option<u64>);
type NodeGauge = (&'static str, &'static str, fn(&JobFigure) -> Option<f64>);

/// Name, help and value of what only grows while a job runs.
const NODE_COUNTERS: [NodeCounter; 5] = [
    ("millstream_job_records_in_total", "Records that have entered a node of a running job.", |figure| {
        Some(figure.records_in)
    }),
    (
        "millstream_job_records_out_total",
        "Records that a node of a running job has made, or written if it is a sink.",
        |figure| Some(figure.records_out),
    ),
    ("millstream_job_batches_in_total", "Batches that have entered a node of a running job.", |figure| {
        Some(figure.batches_in)
    }),
    (
        "millstream_job_batches_out_total",
        "Batches of records that a node of a running job has made or written.",
        |figure| Some(figure.batches_out),
    ),
    ("millstream_job_unrouted_total", "Records of a running job that no route took.", |figure| figure.unrouted),
];

/// Name, help and value of what rises and falls.
const NODE_GAUGES: [NodeGauge; 3] = [
    ("millstream_job_queue_fill", "Used share of the queue in front of a node of a running job, 0 to 1.", |figure| {
        figure.queue_fill
    }),
    (
        "millstream_job_source_offset",
        "Finished offsets of the partitions that a source of a running job reads, summed.",
        |figure| figure.source_offset.map(|offset| offset as f64),
    ),
    ("millstream_job_source_lag", "Records of its topic that a source of a running job has not finished.", |figure| {
        figure.source_lag.map(|lag| lag as f64)
    }),
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
    for (name, help, read) in NODE_COUNTERS {
        let one = move |figure: &JobFigure| read(figure).map(|value| (None, value)).into_iter().collect();
        metrics.labelled_counters_fn(name, help, &LABELS, by_node(jobs, one));
    }
    for (name, help, read) in NODE_GAUGES {
        let one = move |figure: &JobFigure| read(figure).map(|value| (None, value)).into_iter().collect();
        metrics.gauges_fn(name, help, &LABELS, by_node(jobs, one));
    }
    let [tenant, job, node] = LABELS;
    let help = "Records on which a node of a running job has failed, by code.";
    let errors = |figure: &JobFigure| figure.errors.iter().map(|(code, count)| (Some(*code), *count)).collect();
    let labels = [tenant, job, node, "code"];
    metrics.labelled_counters_fn("millstream_job_errors_total", help, &labels, by_node(jobs, errors));
    let help = "Time that a node of a running job takes for a batch, over the last one to two minutes.";
    let times = |figure: &JobFigure| {
        let percentiles = [("50", figure.latency_p50_ms), ("99", figure.latency_p99_ms)];
        percentiles.into_iter().filter_map(|(percentile, ms)| Some((Some(percentile), ms? / 1_000.0))).collect()
    };
    let labels = [tenant, job, node, "percentile"];
    metrics.gauges_fn("millstream_job_batch_seconds", help, &labels, by_node(jobs, times));
}

/// The values of one node, each with the value of a further label if there is one.
type NodeValues<T> = Vec<(Option<&'static str>, T)>;

/// Returns what reads the values of all nodes, each with the values of its labels.
fn by_node<T>(
    jobs: &Arc<Jobs>,
    read: impl Fn(&JobFigure) -> NodeValues<T> + Send + Sync + 'static,
) -> impl Fn() -> Vec<(Vec<String>, T)> + Send + Sync + 'static {
    let jobs = Arc::downgrade(jobs);
    move || {
        let mut values = Vec::new();
        for figure in jobs.upgrade().map(|jobs| jobs.figures()).unwrap_or_default() {
            let node = [&figure.tenant, &figure.job, &figure.node];
            values.extend(read(&figure).into_iter().map(|(further, value)| {
                let labels = node.into_iter().cloned().chain(further.map(str::to_owned));
                (labels.collect(), value)
            }));
        }
        values
    }
}
