//! Suite `connect`: devices with passwords send over HTTP to `millstream serve`, as fast as it answers.

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use clap::Parser as _;
use millstream_load::report::BenchCase;
use millstream_load::sim::{self, SimArgs, SimReport};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::Report;
use super::child::Served;
use super::machine::Machine;

/// How long each case is measured with `--quick` and with `--full`.
pub(super) const QUICK: Duration = Duration::from_secs(5);
pub(super) const FULL: Duration = Duration::from_secs(30);

const DEVICES: u64 = 2_000;
const CONNECTIONS: u64 = 500;
const PAYLOAD_BYTES: u64 = 64;
/// Sent and answered before a case is measured: connections are open then, and every device has logged in before.
const WARM_UP: Duration = Duration::from_secs(1);

/// What is sent: the case's name and the simulator's options for it.
const CASES: [(&str, &[&str]); 3] = [
    ("PUT telemetry, QoS 0", &["--kind", "telemetry", "--qos", "0"]),
    ("PUT telemetry, QoS 1", &["--kind", "telemetry", "--qos", "1"]),
    ("PUT event", &["--kind", "event"]),
];

/// The simulator's options as its own command takes them.
#[derive(Debug, clap::Parser)]
struct Simulated {
    #[command(flatten)]
    args: SimArgs,
}

/// Runs the suite, each case for `case_time`.
pub(super) fn measure(case_time: Duration) -> anyhow::Result<Report> {
    let dir = tempfile::tempdir().context("cannot make a temporary directory")?;
    let machine = Machine::with_files_in(dir.path());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let cases = runtime.block_on(measure_all(&machine, dir.path(), case_time))?;
    Ok(Report { heading: heading(&machine, case_time), cases, notes: machine.warning().into_iter().collect() })
}

async fn measure_all(machine: &Machine, dir: &Path, case_time: Duration) -> anyhow::Result<Vec<BenchCase>> {
    let server = Served::start(dir)?;
    let stop = CancellationToken::new();
    sim::register(&simulated(&server, case_time, &[])?, &stop, |_| {}).await.context("cannot register the devices")?;
    // Twice as many messages as devices: each logs in once, at least.
    let logins = SimArgs { count: Some(2 * DEVICES), duration: None, ..simulated(&server, case_time, &[])? };
    sim::measure(&SimArgs { warm_up: Duration::ZERO, ..logins }, &stop, |_| {}).await?;
    let mut cases = Vec::new();
    for (name, options) in CASES {
        cases.push(measure_one(machine, &server, name, &simulated(&server, case_time, options)?).await?);
    }
    Ok(cases)
}

fn simulated(server: &Served, case_time: Duration, options: &[&str]) -> anyhow::Result<SimArgs> {
    let fixed = ["sim", "--method", "put", "--loop", "closed", "--period", "0", "--secret", "sha-512"];
    let Simulated { args } = Simulated::try_parse_from(fixed.iter().chain(options))?;
    Ok(SimArgs {
        devices_url: Some(server.devices_url.clone()),
        registry_url: server.applications_url.clone(),
        devices: DEVICES,
        connections: Some(CONNECTIONS),
        payload_bytes: PAYLOAD_BYTES,
        warm_up: WARM_UP,
        duration: Some(case_time),
        ..args
    })
}

/// Where the figures begin: the server's CPU time at the first look after the warm-up, and what was accepted by then.
#[derive(Debug, Clone, Copy)]
struct Begin {
    cpu_s: f64,
    accepted: u64,
}

async fn measure_one(machine: &Machine, server: &Served, name: &str, args: &SimArgs) -> anyhow::Result<BenchCase> {
    let mut begin = None;
    let look = |progress: sim::Progress| {
        if begin.is_none() && progress.elapsed >= args.warm_up {
            begin = Some(server.cpu_s().map(|cpu_s| Begin { cpu_s, accepted: progress.accepted }));
        }
    };
    let report = sim::measure(args, &CancellationToken::new(), look).await?;
    let end_cpu_s = server.cpu_s()?;
    let begin = begin.context("the run was over before its warm-up")??;
    let accepted = report.accepted.saturating_sub(begin.accepted) as f64;
    let cpu_s = end_cpu_s - begin.cpu_s;
    let known = cpu_s > 0.0 && accepted > 0.0;
    Ok(BenchCase {
        suite: "connect".to_owned(),
        case: name.to_owned(),
        conditions: conditions(machine, &report),
        rate_per_s: report.rate_per_s,
        per_core_per_s: known.then(|| accepted / cpu_s),
        latency_ms: Some(report.latency_ms),
        errors: report.failed(),
        rss_mib: Some(server.rss_mib()?),
        cpu_s_per_million: known.then(|| cpu_s / accepted * 1e6),
        peer: None,
        ratio: None,
        generator_bottleneck: report.generator.bottleneck,
    })
}

fn conditions(machine: &Machine, report: &SimReport) -> serde_json::Map<String, serde_json::Value> {
    let mut conditions = machine.conditions();
    let own = [
        ("server", json!("millstream serve, a process of its own, default configuration")),
        ("simulated", json!(report.conditions)),
        ("credentials", json!("sha-512 with salt, logged in before")),
        ("took_s", json!(report.elapsed_s)),
        ("failures", json!(report.failures)),
        ("generator", json!(report.generator)),
    ];
    conditions.extend(own.map(|(name, value)| (name.to_owned(), value)));
    conditions
}

fn heading(machine: &Machine, case_time: Duration) -> String {
    format!(
        "Over sockets: {DEVICES} devices with passwords (sha-512 with salt, logged in before) share {CONNECTIONS} \
         keep-alive connections to a server process of its own with its default configuration; PUT of {PAYLOAD_BYTES} \
         bytes, closed loop without a pause, one generator thread on the same machine.\n\
         {machine}.\n\
         {:.0} s a case after {:.0} s of warm-up. CPU time and memory are the server's.",
        case_time.as_secs_f64(),
        WARM_UP.as_secs_f64()
    )
}
