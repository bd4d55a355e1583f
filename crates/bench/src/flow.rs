//! Suite `flow`: jobs on the real engine.
//!
//! - the job of six stages that Onyx was published with, and its shapes, beside a loop that calls the same functions over the
//!   same batches without the engine ([`generated`]);
//! - a topic, filtered and computed into another, beside a loop that does the same in one thread ([`topics`]);
//! - counts in windows by key, beside a loop that counts in one hash table ([`windows`]);
//! - devices beside a job that could use all cores ([`devices`]).
//!
//! The jobs run in this process, those beside devices in `millstream serve`. Rounds alternate between a job and its loop,
//! so that what the machine does beside falls on both; the median counts.

mod devices;
mod engine;
mod function_loop;
mod functions;
mod generated;
mod job_run;
mod member;
mod shapes;
mod topic_loop;
mod topics;
mod windows;

use std::path::PathBuf;
use std::time::Duration;

use millstream_load::report::BenchCase;
use serde_json::{Map, Value};

use self::engine::FlowEngine;
use super::findings::Findings;
use super::machine::Machine;
use super::page::ChartPage;
use super::{Length, Report, RunArgs};

const PAGE: ChartPage =
    ChartPage { title: "Jobs", charts: concat!(include_str!("bars.js"), include_str!("flow/charts.js")) };

#[derive(Debug, clap::Args)]
pub(super) struct FlowArgs {
    #[command(flatten)]
    pub(super) run: RunArgs,
    /// Runs only these cases, not all
    #[arg(long, value_enum)]
    only: Option<FlowPart>,
    /// Draws the figures as a page with charts
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum FlowPart {
    /// The job of six stages and its shapes, on generated records
    Stages,
    /// A topic, filtered and computed into another
    Topics,
    /// Counts in windows by key
    Windows,
    /// Devices alone and beside a job
    Devices,
}

/// Counts and times of the suite.
#[derive(Debug, Clone, Copy)]
struct FlowWorkload {
    rounds: usize,
    /// Measured time of a case in a round.
    time: Duration,
    /// Time that a job runs before it is measured.
    warm_up: Duration,
    /// Records of the topic that is computed into another.
    topic_records: u64,
    /// Measured time of the devices, alone or beside a job.
    devices_time: Duration,
}

impl FlowWorkload {
    fn of(length: Length) -> Self {
        let ms = Duration::from_millis;
        match length {
            Length::Quick => {
                Self { rounds: 3, time: ms(500), warm_up: ms(100), topic_records: 200_000, devices_time: ms(1_000) }
            }
            Length::Default => {
                Self { rounds: 5, time: ms(2_000), warm_up: ms(500), topic_records: 500_000, devices_time: ms(5_000) }
            }
            Length::Full => Self {
                rounds: 5,
                time: ms(10_000),
                warm_up: ms(2_000),
                topic_records: 1_000_000,
                devices_time: ms(20_000),
            },
        }
    }
}

pub(super) fn measure(arguments: &FlowArgs) -> anyhow::Result<Report> {
    let wants = |part| arguments.only.is_none_or(|only| only == part);
    let plan = FlowWorkload::of(arguments.run.length());
    let machine = Machine::with_files_in(&std::env::temp_dir());
    let mut findings = Findings::default();
    if [FlowPart::Stages, FlowPart::Topics, FlowPart::Windows].into_iter().any(wants) {
        let engine = FlowEngine::open()?;
        if wants(FlowPart::Stages) {
            generated::measure(&engine, plan, &machine, &mut findings)?;
        }
        if wants(FlowPart::Topics) {
            topics::measure(&engine, plan, &machine, &mut findings)?;
        }
        if wants(FlowPart::Windows) {
            windows::measure(&engine, plan, &machine, &mut findings)?;
        }
    }
    if wants(FlowPart::Devices) {
        devices::measure(plan, &machine, &mut findings)?;
    }
    findings.notes.extend(machine.warning());
    let report = Report { heading: heading(plan, &machine), cases: findings.cases, notes: findings.notes };
    if let Some(path) = &arguments.html {
        PAGE.write(path, &report)?;
    }
    Ok(report)
}

fn heading(plan: FlowWorkload, machine: &Machine) -> String {
    format!(
        "Jobs in this process, by the real engine with its default configuration, but 1 GiB for state: a generator makes records of a random number \
         and 100 bytes as JSON, four functions add 1 or do what the shape asks, and the sink checksums every byte. Mode A: edges \
         are calls; mode B: a queue on every edge. The bare loop calls the same six functions over batches of the same size, in \
         one thread. Latency is that of a batch, from the making of its records to the end of their checksum. CPU time and \
         memory are those of the whole process. Devices: `millstream serve` in a process of its own.\n{machine}.\n\
         {} rounds of {:.1} s a case, a job and its loop in turn; medians.",
        plan.rounds,
        plan.time.as_secs_f64(),
    )
}

/// A case of the suite without figures.
fn new_case(name: &str, machine: &Machine, own: Value) -> BenchCase {
    let mut conditions: Map<String, Value> = machine.conditions();
    if let Value::Object(own) = own {
        conditions.extend(own);
    }
    BenchCase {
        suite: "flow".to_owned(),
        case: name.to_owned(),
        conditions,
        rate_per_s: 0.0,
        per_core_per_s: None,
        latency_ms: None,
        errors: 0,
        rss_mib: None,
        cpu_s_per_million: None,
        peer: None,
        ratio: None,
        generator_bottleneck: false,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_shortest_run_has_every_case_of_this_process_without_errors_and_draws_a_page() {
        let plan = FlowWorkload {
            rounds: 1,
            time: Duration::from_millis(20),
            warm_up: Duration::ZERO,
            topic_records: 3_000,
            devices_time: Duration::ZERO,
        };
        let machine = Machine::with_files_in(&std::env::temp_dir());
        let (engine, mut findings) = (FlowEngine::open().unwrap(), Findings::default());
        generated::measure(&engine, plan, &machine, &mut findings).unwrap();
        topics::measure(&engine, plan, &machine, &mut findings).unwrap();
        let report = Report { heading: heading(plan, &machine), cases: findings.cases, notes: findings.notes };

        let names: BTreeSet<&str> = report.cases.iter().map(|case| &*case.case).collect();
        assert_eq!((names.len(), report.cases.len()), (14, 14), "{report}");
        for case in &report.cases {
            assert!(case.rate_per_s > 0.0 && case.per_core_per_s > Some(0.0) && case.errors == 0, "{report}");
        }
        let beside_loops =
            report.cases.iter().filter(|case| case.peer.as_ref().is_some_and(|peer| peer.name == "bare loop"));
        assert_eq!(beside_loops.filter(|case| case.ratio > Some(0.0)).count(), 4, "{report}");
        let published = report.notes.iter().filter(|note| note.contains("Onyx 0.6.0") && note.contains("Onyx 0.8.1"));
        assert_eq!(published.count(), 11, "{report}");
        assert_eq!(report.notes.iter().filter(|note| note.starts_with("Aim")).count(), 6, "{report}");

        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("flow.html");
        PAGE.write(&path, &report).unwrap();
        let page = std::fs::read_to_string(&path).unwrap();
        assert!(page.contains("<h1>Jobs</h1>") && page.contains("function bars(") && page.contains("six stages, A"));
    }
}
