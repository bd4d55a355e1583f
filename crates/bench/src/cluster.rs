//! Suite `cluster`: a server whose log is in Apache Kafka, on three brokers of its own.
//!
//! - updates of entities, messages of devices that are acknowledged once they are stored, and reads of values that are in no
//!   memory, beside a server with the built-in log ([`beside_built_in`]);
//! - atomic appends beside a loop that does nothing but commit transactions of that size ([`atomic`]).
//!
//! The brokers share all cores, so rates say little: servers are compared by the CPU time of their processes, and a round of one is
//! followed by a round of the other.

mod atomic;
mod beside_built_in;

use std::time::Duration;

use anyhow::Context as _;
use millstream_load::LatencyMs;
use millstream_load::report::{BenchCase, Peer};
use serde_json::{Value, json};

use super::context::fixture::{EntityServer, LoadPhase, LoadTime};
use super::cores::Cores;
use super::findings::{Findings, at_least};
use super::kafka::brokers::KafkaBrokers;
use super::kafka::tools::Tools;
use super::machine::Machine;
use super::server_process::ServerProcess;
use super::{Length, Report, RunArgs};

const BROKERS: u32 = 3;

#[derive(Debug, clap::Args)]
pub(super) struct ClusterArgs {
    #[command(flatten)]
    pub(super) run: RunArgs,
    /// Runs only these cases, not all
    #[arg(long, value_enum)]
    only: Option<ClusterCase>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum ClusterCase {
    /// Updates of single entities
    Entities,
    /// Records appended all or nothing
    Atomic,
    /// Telemetry at QoS 1
    Telemetry,
    /// Values of keys, read at random
    Values,
}

#[derive(Debug, Clone, Copy)]
struct ClusterWorkload {
    rounds: usize,
    times: LoadTime,
}

impl ClusterWorkload {
    fn of(length: Length) -> Self {
        let times = |measured| LoadTime { warm_up: Duration::from_secs(1), measured: Duration::from_secs(measured) };
        match length {
            Length::Quick => Self { rounds: 1, times: times(2) },
            Length::Default => Self { rounds: 3, times: times(5) },
            Length::Full => Self { rounds: 5, times: times(20) },
        }
    }
}

/// State that all cases share.
struct ClusterBench {
    plan: ClusterWorkload,
    machine: Machine,
    cores: Cores,
    built_in: EntityServer,
    on_kafka: EntityServer,
    brokers: KafkaBrokers,
}

/// Figures of one round.
#[derive(Debug, Clone, Copy)]
struct Round {
    rate_per_s: f64,
    per_core_per_s: f64,
    latency_ms: Option<LatencyMs>,
    errors: u64,
    rss_mib: f64,
    generator_bottleneck: bool,
}

pub(super) fn measure(arguments: &ClusterArgs) -> anyhow::Result<Report> {
    let tools = Tools::beside_this_program()?;
    let dir = tempfile::tempdir().context("cannot make a temporary directory")?;
    let machine = Machine::with_files_in(dir.path());
    let brokers = KafkaBrokers::start(&tools, &dir.path().join("kafka"), BROKERS)?;
    let cores = Cores::apart()?;
    let server = |name: &str, start: &dyn Fn(&std::path::Path) -> anyhow::Result<ServerProcess>| {
        let dir = dir.path().join(name);
        std::fs::create_dir(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        EntityServer::on(start(&dir)?)
    };
    let addresses: Vec<&str> = brokers.brokers.iter().map(|broker| &*broker.address).collect();
    let suite = ClusterBench {
        plan: ClusterWorkload::of(arguments.run.length()),
        machine,
        built_in: server("built-in", &|dir| ServerProcess::start_on(dir, &cores))?,
        on_kafka: server("on-kafka", &|dir| ServerProcess::start_on_kafka(dir, &cores, &addresses))?,
        cores,
        brokers,
    };
    let mut findings = Findings::default();
    findings.notes.extend(suite.machine.warning());
    let wants = |case| arguments.only.is_none_or(|only| only == case);
    if wants(ClusterCase::Entities) {
        suite.entities(&mut findings)?;
    }
    if wants(ClusterCase::Telemetry) {
        suite.telemetry(&mut findings)?;
    }
    if wants(ClusterCase::Values) {
        suite.values(&mut findings)?;
    }
    if wants(ClusterCase::Atomic) {
        suite.atomic(&mut findings)?;
    }
    Ok(Report { heading: suite.heading(), cases: findings.cases, notes: findings.notes })
}

impl Round {
    fn of(phase: &LoadPhase) -> Self {
        let LoadPhase { requested, cpu_s, rss_mib } = phase;
        Self {
            rate_per_s: requested.rate_per_s(),
            per_core_per_s: requested.answered as f64 / cpu_s.max(f64::MIN_POSITIVE),
            latency_ms: (requested.latencies.count() > 0).then(|| requested.latencies.summary()),
            errors: requested.refused,
            rss_mib: *rss_mib,
            generator_bottleneck: requested.is_bottleneck(),
        }
    }
}

/// Returns the round that is the median by this figure.
fn median(rounds: &[Round], figure: fn(&Round) -> f64) -> anyhow::Result<Round> {
    let mut rounds = rounds.to_vec();
    rounds.sort_by(|a, b| figure(a).total_cmp(&figure(b)));
    rounds.get(rounds.len() / 2).copied().context("there is at least one round")
}

impl ClusterBench {
    /// A case beside the built-in log. Its note says the ratio of what a CPU second does, with the aim for it if there is one.
    fn compare(
        &self,
        name: &str,
        aim: Option<f64>,
        conditions: Value,
        mut run: impl FnMut(&EntityServer) -> anyhow::Result<Round>,
        findings: &mut Findings,
    ) -> anyhow::Result<()> {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for round in 0..self.plan.rounds {
            eprintln!("{name}, round {} of {}", round + 1, self.plan.rounds);
            theirs.push(run(&self.built_in)?);
            ours.push(run(&self.on_kafka)?);
        }
        let per_core = |round: &Round| round.per_core_per_s;
        let (ours, theirs) = (median(&ours, per_core)?, median(&theirs, per_core)?);
        let (what, ratio) =
            (format!("{name}, per CPU second beside the built-in log"), ours.per_core_per_s / theirs.per_core_per_s);
        findings.aim(aim.map_or_else(|| format!("{what}: {ratio:.2}."), |aim| at_least(&what, ratio, aim)));
        findings.cases.push(self.case(name, &ours, "built-in log", &theirs, conditions));
        Ok(())
    }

    fn case(&self, name: &str, ours: &Round, peer: &str, theirs: &Round, own: Value) -> BenchCase {
        let mut conditions = self.machine.conditions();
        let common = json!({ "brokers": BROKERS, "cores_of": self.cores.to_string(), "rounds": self.plan.rounds });
        for members in [common, own] {
            conditions.extend(members.as_object().cloned().unwrap_or_default());
        }
        let cpu_s_per_million = |round: &Round| (round.per_core_per_s > 0.0).then(|| 1e6 / round.per_core_per_s);
        BenchCase {
            suite: "cluster".to_owned(),
            case: name.to_owned(),
            conditions,
            rate_per_s: ours.rate_per_s,
            per_core_per_s: Some(ours.per_core_per_s),
            latency_ms: ours.latency_ms,
            errors: ours.errors,
            rss_mib: Some(ours.rss_mib),
            cpu_s_per_million: cpu_s_per_million(ours),
            peer: Some(Peer {
                name: peer.to_owned(),
                rate_per_s: theirs.rate_per_s,
                latency_ms: theirs.latency_ms,
                rss_mib: (theirs.rss_mib > 0.0).then_some(theirs.rss_mib),
                cpu_s_per_million: cpu_s_per_million(theirs),
            }),
            ratio: Some(ours.rate_per_s / theirs.rate_per_s),
            generator_bottleneck: ours.generator_bottleneck,
        }
    }

    fn heading(&self) -> String {
        let ClusterWorkload { rounds, times } = self.plan;
        format!(
            "Over sockets, to a server whose log is in Apache Kafka 4.1, {BROKERS} brokers on this machine with a heap of 350 MiB each, \
             replication 3, two in sync; beside a server with the built-in log, both with their default configuration. {}; the \
             brokers share both cores.\n{}.\n{rounds} rounds of {:.0} s a case and side, interleaved, after {:.0} s of warm-up; the one with the \
             median per CPU second of the server is shown. CPU time counts until the server is at rest again.",
            self.cores,
            self.machine,
            times.measured.as_secs_f64(),
            times.warm_up.as_secs_f64(),
        )
    }
}
