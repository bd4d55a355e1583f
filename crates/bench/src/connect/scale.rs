//! Suite `connect --scale`: the step test that Eclipse Hono was published with, and one condition more. 2,000 devices more in
//! each step, a message a second each over 500 connections more; a step passes if fewer than 2 % of the messages fail and a
//! consumer receives at least 98 % of what the devices are to send. The first step that does not pass ends the test.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use clap::Parser as _;
use millstream_load::kafka::{KafkaError, ReadLoad};
use millstream_load::report::BenchCase;
use millstream_load::sim::{self, Pacing, SimArgs, SimReport};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::SimCommand;
use crate::cores::Cores;
use crate::machine::Machine;
use crate::page::ChartPage;
use crate::server_process::ServerProcess;
use crate::{Length, Report};

const PAGE: ChartPage = ChartPage { title: "Devices, step by step", charts: include_str!("scale/charts.js") };

/// Devices per step; the published test calls them a pod.
const STEP_DEVICES: u64 = 2_000;
const STEP_CONNECTIONS: u64 = 500;
const PERIOD: Duration = Duration::from_secs(1);
const FAILED_MAX: f64 = 0.02;
const RECEIVED_MIN: f64 = 0.98;
/// Largest number of connections; beyond it open files and ports run out.
const CONNECTIONS_MAX: u64 = 15_000;
const TOPIC: &str = "telemetry.default";
const PARTITIONS: u32 = 4;

#[derive(Debug, Clone, Copy)]
struct ScaleWorkload {
    /// Pods that a step adds, of 2,000 devices each.
    pods: u64,
    settle: Duration,
    window: Duration,
    /// No step begins after this time.
    limit: Duration,
}

impl ScaleWorkload {
    fn of(length: Length) -> Self {
        let s = Duration::from_secs;
        match length {
            Length::Quick => Self { pods: 4, settle: s(1), window: s(2), limit: s(38) },
            Length::Default => Self { pods: 1, settle: s(4), window: s(8), limit: s(540) },
            Length::Full => Self { pods: 1, settle: s(60), window: s(180), limit: s(6 * 3600) },
        }
    }
}

struct ScaleStep {
    report: SimReport,
    nominal_per_s: f64,
    received_per_s: f64,
    cpu_cores: f64,
    rss_mib: f64,
}

impl ScaleStep {
    fn failed_share(&self) -> f64 {
        self.report.failed() as f64 / self.report.sent.max(1) as f64
    }

    fn received_share(&self) -> f64 {
        self.received_per_s / self.nominal_per_s
    }

    fn passes(&self) -> bool {
        self.failed_share() < FAILED_MAX && self.received_share() >= RECEIVED_MIN
    }
}

/// Runs the suite; draws the steps into the file `html`.
pub(crate) fn measure(length: Length, html: Option<&Path>) -> anyhow::Result<Report> {
    let dir = tempfile::tempdir().context("cannot make a temporary directory")?;
    let machine = Machine::with_files_in(dir.path());
    let (cores, plan) = (Cores::apart()?, ScaleWorkload::of(length));
    let server = ServerProcess::start_on(dir.path(), &cores)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(send_one(&server))?;
    let consumer = Consumer::start(server.kafka.parse().with_context(|| format!("{} is no address", server.kafka))?)?;
    let (steps, end) = runtime.block_on(climb(plan, &server, &consumer))?;
    consumer.stop()?;
    let cases: Vec<BenchCase> = steps.iter().map(|step| case(step, plan, &machine, &cores)).collect();
    let best = steps.iter().filter(|step| step.passes()).map(|step| step.received_per_s).fold(0.0, f64::max);
    let mut notes = vec![end, format!("Most that passed: {best:.0} messages received a second.")];
    notes.extend(machine.warning());
    let heading = heading(plan, &machine, &cores);
    let report = Report { heading, cases, notes };
    if let Some(path) = html {
        PAGE.write(path, &report)?;
    }
    Ok(report)
}

/// Sends the first message, which creates the topic that the consumer reads.
async fn send_one(server: &ServerProcess) -> anyhow::Result<()> {
    let one = SimArgs { devices: 1, count: Some(1), ..args(server)? };
    sim::register(&one, &CancellationToken::new(), |_| {}).await.context("cannot register a device")?;
    let report = sim::measure(&one, &CancellationToken::new(), |_| {}).await?;
    anyhow::ensure!(report.accepted == 1, "the first message was not accepted: {:?}", report.failures);
    Ok(())
}

/// Runs steps until one fails. Returns them and the reason for the end.
async fn climb(
    plan: ScaleWorkload,
    server: &ServerProcess,
    consumer: &Consumer,
) -> anyhow::Result<(Vec<ScaleStep>, String)> {
    let begin = Instant::now();
    let mut steps = Vec::new();
    for number in 1.. {
        let pods = number * plan.pods;
        if begin.elapsed() > plan.limit {
            return Ok((steps, "The time was up before a step failed.".to_owned()));
        }
        if pods * STEP_CONNECTIONS > CONNECTIONS_MAX {
            return Ok((steps, format!("More than {CONNECTIONS_MAX} connections are not tried; no step failed.")));
        }
        register(plan, server, pods).await?;
        let step = run(plan, server, consumer, pods).await?;
        let (failed, received) = (step.failed_share() * 100.0, step.received_share() * 100.0);
        eprintln!(
            "{} devices: {:.0}/s received ({received:.1} %), {failed:.2} % failed, p99 {:.2} ms",
            pods * STEP_DEVICES,
            step.received_per_s,
            step.report.latency_ms.p99
        );
        let passes = step.passes();
        steps.push(step);
        if !passes {
            let why = format!("The step with {} devices failed: {failed:.2} % failed,", pods * STEP_DEVICES);
            return Ok((steps, format!("{why} {received:.1} % of the nominal rate received.")));
        }
    }
    Ok((steps, String::new()))
}

/// Registers the devices that this step adds.
async fn register(plan: ScaleWorkload, server: &ServerProcess, pods: u64) -> anyhow::Result<()> {
    let first_device = (pods - plan.pods) * STEP_DEVICES;
    let devices = SimArgs { first_device, devices: plan.pods * STEP_DEVICES, ..args(server)? };
    sim::register(&devices, &CancellationToken::new(), |_| {}).await.context("cannot register the devices")
}

async fn run(plan: ScaleWorkload, server: &ServerProcess, consumer: &Consumer, pods: u64) -> anyhow::Result<ScaleStep> {
    let run = SimArgs {
        devices: pods * STEP_DEVICES,
        connections: Some(pods * STEP_CONNECTIONS),
        warm_up: plan.settle,
        duration: Some(plan.window),
        ..args(server)?
    };
    let at = || (Instant::now(), consumer.records(), server.cpu_s().unwrap_or(0.0));
    let (mut begin, mut end) = (None, at());
    let look = |progress: sim::SimProgress| {
        if progress.elapsed >= plan.settle {
            begin.get_or_insert_with(at);
        }
        if progress.elapsed < plan.settle + plan.window {
            end = at();
        }
    };
    let report = sim::measure(&run, &CancellationToken::new(), look).await?;
    consumer.check()?;
    let begin = begin.context("the step was over before its window")?;
    let took_s = end.0.duration_since(begin.0).as_secs_f64().max(f64::EPSILON);
    Ok(ScaleStep {
        nominal_per_s: run.devices as f64 / PERIOD.as_secs_f64(),
        received_per_s: end.1.saturating_sub(begin.1) as f64 / took_s,
        cpu_cores: (end.2 - begin.2) / took_s,
        rss_mib: server.rss_mib()?,
        report,
    })
}

fn args(server: &ServerProcess) -> anyhow::Result<SimArgs> {
    let fixed = ["sim", "--method", "put", "--qos", "0", "--secret", "sha-512"];
    let SimCommand { args } = SimCommand::try_parse_from(fixed)?;
    Ok(SimArgs {
        devices_url: Some(server.devices_url.clone()),
        registry_url: server.applications_url.clone(),
        payload_bytes: Some(super::PAYLOAD_BYTES),
        period: PERIOD,
        pacing: Pacing::Closed,
        ..args
    })
}

/// A consumer that counts all records of the topic.
struct Consumer {
    records: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<(), KafkaError>>,
}

impl Consumer {
    fn start(address: SocketAddr) -> anyhow::Result<Self> {
        let (records, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let topic = TOPIC.to_owned();
        let read = ReadLoad { address, topic, partitions: PARTITIONS, bytes_per_s: f64::INFINITY, duration: None };
        let (count, until) = (records.clone(), stop.clone());
        let thread = std::thread::Builder::new().name("consumer".to_owned());
        let thread = thread.spawn(move || read.follow(&count, &until)).context("cannot start a thread")?;
        Ok(Self { records, stop, thread })
    }

    fn records(&self) -> u64 {
        self.records.load(Ordering::Relaxed)
    }

    fn check(&self) -> anyhow::Result<()> {
        anyhow::ensure!(!self.thread.is_finished(), "the consumer has ended early");
        Ok(())
    }

    fn stop(self) -> anyhow::Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.join().map_err(|_| anyhow!("the consumer panicked; this is a fault of the bench"))?;
        ended.context("the consumer could not read")
    }
}

fn case(step: &ScaleStep, plan: ScaleWorkload, machine: &Machine, cores: &Cores) -> BenchCase {
    let report = &step.report;
    let mut conditions = machine.conditions();
    let own = json!({
        "server": "millstream serve, a process of its own, default configuration",
        "cores_of": cores.to_string(),
        "simulated": report.conditions,
        "settle_s": plan.settle.as_secs_f64(),
        "window_s": plan.window.as_secs_f64(),
        "nominal_per_s": step.nominal_per_s,
        "received_per_s": step.received_per_s,
        "received_share": step.received_share(),
        "failed_share": step.failed_share(),
        "failures": report.failures,
        "passes": step.passes(),
        "server_cores": step.cpu_cores,
        "generator": report.generator,
    });
    if let serde_json::Value::Object(own) = own {
        conditions.extend(own);
    }
    BenchCase {
        suite: "connect".to_owned(),
        case: format!("step of {} devices", report.conditions.devices),
        conditions,
        rate_per_s: step.received_per_s,
        per_core_per_s: (step.cpu_cores > 0.0).then(|| step.received_per_s / step.cpu_cores),
        latency_ms: Some(report.latency_ms),
        errors: report.failed(),
        rss_mib: Some(step.rss_mib),
        cpu_s_per_million: (step.received_per_s > 0.0).then(|| step.cpu_cores / step.received_per_s * 1e6),
        peer: None,
        ratio: None,
        generator_bottleneck: report.generator.bottleneck,
    }
}

fn heading(plan: ScaleWorkload, machine: &Machine, cores: &Cores) -> String {
    format!(
        "The step test, over HTTP: {} devices more in each step, a PUT of {} bytes a second each at QoS 0, closed loop; {} \
         keep-alive connections more; own passwords (sha-512 with salt). A step settles for {:.0} s and is measured for {:.0} s; it \
         passes if fewer than {:.0} % of the messages fail and a consumer on the Kafka listener receives at least {:.0} % of \
         the nominal rate. {cores}; consumer and generator share theirs.\n{machine}.",
        plan.pods * STEP_DEVICES,
        super::PAYLOAD_BYTES,
        plan.pods * STEP_CONNECTIONS,
        plan.settle.as_secs_f64(),
        plan.window.as_secs_f64(),
        FAILED_MAX * 100.0,
        RECEIVED_MIN * 100.0,
    )
}
