//! The cases on generated records: the published job of six stages in both modes, and its shapes.

use millstream_load::report::{BenchCase, Peer};
use serde_json::json;

use super::engine::FlowEngine;
use super::job_run::{self, JobRun};
use super::shapes::{GeneratedJob, Shape};
use super::{FlowWorkload, function_loop, new_case};
use crate::findings::{Findings, at_least, at_most};
use crate::machine::Machine;
use crate::reader::median;

const OF_LOOP_AIM: f64 = 0.5;
const FUSED_PER_CORE_AIM: f64 = 5_000_000.0;
const QUEUED_PER_CORE_AIM: f64 = 1_000_000.0;
const P99_AIM_MS: f64 = 10.0;
/// The open loop's share of the rate before it.
const PART_OF_RATE: f64 = 0.5;
const AT_PART: &str = ", at half that rate";

/// A published run of the line. Its figures are per vCPU; it counted a record once in each of six tasks.
struct PublishedRun {
    name: &'static str,
    records_per_core: f64,
    tasks_per_core: f64,
}

const PUBLISHED: [PublishedRun; 2] = [
    PublishedRun { name: "Onyx 0.6.0", records_per_core: 4_200.0, tasks_per_core: 25_000.0 },
    PublishedRun { name: "Onyx 0.8.1", records_per_core: 6_000.0, tasks_per_core: 36_000.0 },
];

const LINE: GeneratedJob = GeneratedJob {
    name: "six stages, A, batch 1,000",
    shape: Shape::Line,
    has_queues: false,
    batch: 1_000,
    is_tracked: true,
    instances: 1,
    has_loop: false,
    is_paced: false,
};

/// All cases, in the order in which they are measured.
fn jobs() -> [GeneratedJob; 11] {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let queued = GeneratedJob { has_queues: true, ..LINE };
    [
        GeneratedJob { name: "six stages, A, batch 20", batch: 20, has_loop: true, ..LINE },
        GeneratedJob { has_loop: true, is_paced: true, ..LINE },
        GeneratedJob { name: "six stages, A, batch 1,024, the default", batch: 1_024, has_loop: true, ..LINE },
        GeneratedJob { name: "six stages, A, batch 1,000, at most once", is_tracked: false, ..LINE },
        GeneratedJob { name: "six stages, A, batch 1,000, an instance a core", instances: cores, ..LINE },
        GeneratedJob { name: "six stages, B, batch 20", batch: 20, ..queued },
        GeneratedJob { name: "six stages, B, batch 1,000", is_paced: true, ..queued },
        GeneratedJob { name: "six stages, B, batch 1,024, the default", batch: 1_024, ..queued },
        GeneratedJob { name: "fan-out to four, A, batch 1,000", shape: Shape::FanOut, ..LINE },
        GeneratedJob { name: "five filters, A, batch 1,000", shape: Shape::Filters, ..LINE },
        GeneratedJob { name: "amplifying 625 times, A, batch 20", shape: Shape::Amplifying, batch: 20, ..LINE },
    ]
}

/// The runs of one job, a run each round.
struct JobRounds {
    job: GeneratedJob,
    runs: Vec<JobRun>,
    loops: Vec<JobRun>,
    paced: Vec<JobRun>,
}

pub(super) fn measure(
    engine: &FlowEngine,
    plan: FlowWorkload,
    machine: &Machine,
    findings: &mut Findings,
) -> anyhow::Result<()> {
    let new = |job| JobRounds { job, runs: Vec::new(), loops: Vec::new(), paced: Vec::new() };
    let mut all: Vec<JobRounds> = jobs().into_iter().map(new).collect();
    for round in 1..=plan.rounds {
        for JobRounds { job, runs, loops, paced } in &mut all {
            eprintln!("{}, round {round} of {}", job.name, plan.rounds);
            let run = job_run::run(engine, job, None, plan.warm_up, plan.time)?;
            if job.is_paced {
                let rate = (run.rate_per_s() * PART_OF_RATE).max(1.0) as u64;
                paced.push(job_run::run(engine, job, Some(rate), plan.warm_up, plan.time)?);
            }
            if job.has_loop {
                loops.push(function_loop::run(job.batch, plan.warm_up, plan.time)?);
            }
            runs.push(run);
        }
    }
    for rounds in &all {
        rounds.report(machine, findings);
    }
    Ok(())
}

impl JobRounds {
    fn report(&self, machine: &Machine, findings: &mut Findings) {
        let job = &self.job;
        let Some(run) = median_run(&self.runs, JobRun::rate_per_s) else { return };
        let mut case = self.case(job.name, run, machine);
        let name = &case.case;
        if let Some(of_loop) = self.ratio_to_loop() {
            let loops = median_run(&self.loops, JobRun::rate_per_s);
            case.peer = loops.map(|run| Peer {
                name: "bare loop".to_owned(),
                rate_per_s: run.rate_per_s(),
                latency_ms: Some(run.latency),
                rss_mib: Some(run.rss_mib),
                cpu_s_per_million: Some(1e6 / run.per_core_per_s()),
            });
            case.ratio = Some(of_loop);
            let what = format!("{name}, at least once, of the bare loop by rate and CPU time");
            if job.batch == LINE.batch {
                findings.aim(at_least(&what, of_loop, OF_LOOP_AIM));
            }
        } else if job.shape == Shape::Line {
            let [_, latest] = &PUBLISHED;
            let name = format!("{}, published, per vCPU", latest.name);
            case.peer = Some(Peer { name, rate_per_s: latest.records_per_core, ..Peer::default() });
        }
        if job.shape == Shape::Line && job.is_paced {
            let aim = if job.has_queues { QUEUED_PER_CORE_AIM } else { FUSED_PER_CORE_AIM };
            findings.aim(at_least(&format!("{name}, records/s per core used"), run.per_core_per_s(), aim));
        }
        findings.notes.push(beside_published(name, job, run));
        findings.cases.push(case);
        if let Some(paced) = median_run(&self.paced, |run| run.latency.p99) {
            let case = self.case(&format!("{}{AT_PART}", job.name), paced, machine);
            findings.aim(at_most(&format!("{}, p99 in ms", case.case), paced.latency.p99, P99_AIM_MS));
            findings.cases.push(case);
        }
    }

    /// The job's figure divided by the loop's: the median over rounds of the lesser of two ratios, by rate and by CPU time.
    fn ratio_to_loop(&self) -> Option<f64> {
        let of_round = |(ours, bare): (&JobRun, &JobRun)| {
            let by_cpu_time = ours.per_core_per_s() / bare.per_core_per_s();
            (ours.rate_per_s() / bare.rate_per_s()).min(by_cpu_time)
        };
        let ratios: Vec<f64> = self.runs.iter().zip(&self.loops).map(of_round).collect();
        (!ratios.is_empty()).then(|| median(ratios))
    }

    fn case(&self, name: &str, run: &JobRun, machine: &Machine) -> BenchCase {
        let job = &self.job;
        let rates = |runs: &[JobRun]| runs.iter().map(JobRun::rate_per_s).collect::<Vec<_>>();
        let took_s = run.took.as_secs_f64();
        let own = json!({
            "engine": "in this process, default configuration",
            "mode": if job.has_queues { "B: a queue an edge" } else { "A: fused" },
            "delivery": if job.is_tracked { "at_least_once" } else { "at_most_once" },
            "batch_records": job.batch,
            "instances": job.instances,
            "record": "a random number and 100 bytes, as JSON",
            "rate_of": "source records, end to end",
            "sink_records_per_s": run.counts.sink as f64 / took_s,
            "sink_mb_per_s": run.counts.sink_bytes as f64 / took_s / 1e6,
            "task_executions_per_s": run.counts.tasks as f64 / took_s,
            "task_executions_per_core_per_s": run.tasks_per_core_per_s(),
            "cores_used": run.cpu_s / took_s,
            "took_s": took_s,
            "latency_of": "a batch, from the making of its records to the end of their checksum",
            "rates_of_rounds": rates(&self.runs),
            "loop_rates_of_rounds": rates(&self.loops),
        });
        BenchCase {
            rate_per_s: run.rate_per_s(),
            per_core_per_s: Some(run.per_core_per_s()),
            latency_ms: Some(run.latency),
            rss_mib: Some(run.rss_mib),
            cpu_s_per_million: Some(1e6 / run.per_core_per_s()),
            ..new_case(name, machine, own)
        }
    }
}

/// The run that is the median by this figure.
fn median_run(runs: &[JobRun], figure: fn(&JobRun) -> f64) -> Option<&JobRun> {
    let mut runs: Vec<&JobRun> = runs.iter().collect();
    runs.sort_by(|a, b| figure(a).total_cmp(&figure(b)));
    runs.get(runs.len() / 2).copied()
}

/// A line that says how a run stands beside the published ones.
fn beside_published(name: &str, job: &GeneratedJob, run: &JobRun) -> String {
    let (records, tasks) = (run.per_core_per_s(), run.tasks_per_core_per_s());
    let ours = format!(
        "{name}: {records:.0} records end to end and {tasks:.0} task executions a second per core used, {:.2} cores, p50 {:.3}, p99 {:.3}, \
         p99.9 {:.3} ms, {:.0} MiB.",
        run.cpu_s / run.took.as_secs_f64(),
        run.latency.p50,
        run.latency.p99,
        run.latency.p99_9,
        run.rss_mib,
    );
    let times = |published: &PublishedRun| {
        let PublishedRun { name, records_per_core, tasks_per_core } = published;
        // Shapes have other numbers of tasks: only executions compare.
        if job.shape == Shape::Line {
            format!(
                "{name} {:.1} k and {:.0} k, {:.0} and {:.0} times less",
                records_per_core / 1e3,
                tasks_per_core / 1e3,
                records / records_per_core,
                tasks / tasks_per_core
            )
        } else {
            format!("{name} {:.0} k task executions, {:.0} times less", tasks_per_core / 1e3, tasks / tasks_per_core)
        }
    };
    let published: Vec<String> = PUBLISHED.iter().map(times).collect();
    format!("{ours} Published, per vCPU: {}.", published.join("; "))
}
