//! One measured run of a job, or of the loop beside it.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use millstream_load::LatencyMs;
use serde_json::Value;

use super::engine::{FlowEngine, PATIENCE};
use super::functions::SinkCounters;
use super::shapes::GeneratedJob;
use crate::process;

/// Interval at which a job's progress is looked at.
const LOOK: Duration = Duration::from_millis(5);

/// The figures of a run.
#[derive(Debug, Clone)]
pub(super) struct JobRun {
    pub(super) took: Duration,
    /// CPU time of the whole process.
    pub(super) cpu_s: f64,
    /// Source records that have reached the end of the job.
    pub(super) records: u64,
    pub(super) counts: RecordCounts,
    pub(super) latency: LatencyMs,
    pub(super) rss_mib: f64,
}

/// Records that parts of a job have taken in.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RecordCounts {
    pub(super) source: u64,
    pub(super) sink: u64,
    /// Sum over all nodes: how often a task was executed for a record.
    pub(super) tasks: u64,
    /// Bytes that the sink has checksummed.
    pub(super) sink_bytes: u64,
}

impl RecordCounts {
    fn of(job: &Value, sink: &SinkCounters) -> anyhow::Result<Self> {
        let nodes = job["nodes"].as_array().context("the job has no figures of its nodes")?;
        let records = |node: &Value| node["records_in"].as_u64().unwrap_or_default();
        let source = nodes.iter().find(|node| node["role"] == "source").map(records);
        Ok(Self {
            source: source.context("the job has no source")?,
            sink: sink.records(),
            tasks: nodes.iter().map(records).sum(),
            sink_bytes: sink.bytes(),
        })
    }

    pub(super) fn since(self, before: Self) -> Self {
        Self {
            source: self.source - before.source,
            sink: self.sink - before.sink,
            tasks: self.tasks - before.tasks,
            sink_bytes: self.sink_bytes - before.sink_bytes,
        }
    }
}

impl JobRun {
    /// Records end to end a second.
    pub(super) fn rate_per_s(&self) -> f64 {
        self.records as f64 / self.took.as_secs_f64()
    }

    /// Records end to end a second of CPU time.
    pub(super) fn per_core_per_s(&self) -> f64 {
        self.records as f64 / self.cpu_s.max(0.01)
    }

    /// Executions of a task for a record, a second of CPU time.
    pub(super) fn tasks_per_core_per_s(&self) -> f64 {
        self.counts.tasks as f64 / self.cpu_s.max(0.01)
    }
}

/// Runs a job until it is warm, measures it for `time`, and kills it.
pub(super) fn run(
    engine: &FlowEngine,
    job: &GeneratedJob,
    rate: Option<u64>,
    warm_up: Duration,
    time: Duration,
) -> anyhow::Result<JobRun> {
    let (number, sink) = SinkCounters::register();
    let id = engine.start(&job.document(number, rate))?;
    let begin = Instant::now();
    // The first records come before the job counts as running, and before it has figures.
    while engine.job(&id)?["state"] != "running" || sink.records() == 0 {
        ensure!(begin.elapsed() < PATIENCE, "no record has reached the sink within {PATIENCE:?}");
        std::thread::sleep(LOOK);
    }
    std::thread::sleep(warm_up);
    let pid = std::process::id();
    process::forget_peak(pid)?;
    sink.take_latencies();
    let before = RecordCounts::of(&engine.job(&id)?, &sink)?;
    let (begin, cpu_before) = (Instant::now(), process::cpu_s(pid)?);
    let counts = loop {
        std::thread::sleep(time);
        let counts = RecordCounts::of(&engine.job(&id)?, &sink)?.since(before);
        if counts.sink > 0 && counts.source > 0 {
            break counts;
        }
        ensure!(begin.elapsed() < PATIENCE, "no further record has reached the sink within {PATIENCE:?}");
    };
    let (took, cpu_s) = (begin.elapsed(), process::cpu_s(pid)? - cpu_before);
    let latency = sink.take_latencies().summary();
    let rss_mib = process::rss_peak_mib(pid)?;
    engine.kill(&id)?;
    // Queues may hold records that the source has counted; behind filters the source alone tells.
    let records = job.shape.copies().map_or(counts.source, |copies| counts.sink.div_ceil(copies));
    Ok(JobRun { took, cpu_s, records, counts, latency, rss_mib })
}
