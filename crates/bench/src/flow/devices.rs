//! The case beside devices: their p99 while a job runs that could use all cores, and without it.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use clap::Parser as _;
use millstream_load::JsonClient;
use millstream_load::report::{BenchCase, Peer};
use millstream_load::sim::{self, Pacing, SimArgs, SimReport};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

use super::{FlowWorkload, new_case};
use crate::connect::SimCommand;
use crate::findings::{Findings, at_most};
use crate::machine::Machine;
use crate::reader::median;
use crate::server_process::ServerProcess;

const PAIRS: usize = 5;
const DEVICES: u64 = 1_000;
const CONNECTIONS: u64 = 100;
const PAYLOAD_BYTES: u64 = 64;
/// Time between two messages of a device.
const PERIOD: Duration = Duration::from_secs(1);
const WARM_UP: Duration = Duration::from_millis(1_000);
/// Largest p99 beside the job, as a multiple of that without it.
const TIMES_AIM: f64 = 2.0;

/// The devices' reports, without the job and beside it.
struct DevicesPair {
    alone: SimReport,
    beside: SimReport,
    /// Source records of the job a second.
    job_per_s: f64,
}

impl DevicesPair {
    fn times(&self) -> f64 {
        self.beside.latency_ms.p99 / self.alone.latency_ms.p99
    }
}

struct DevicesBench {
    server: ServerProcess,
    client: JsonClient,
    runtime: Runtime,
    time: Duration,
}

pub(super) fn measure(plan: FlowWorkload, machine: &Machine, findings: &mut Findings) -> anyhow::Result<()> {
    let dir = tempfile::tempdir().context("cannot make a temporary directory")?;
    let server = ServerProcess::start(dir.path())?;
    let url = server.applications_url.trim_start_matches("http://").trim_end_matches('/');
    let address: SocketAddr = url.parse().with_context(|| format!("{url} is no address"))?;
    let client = JsonClient::connect(address)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut bench = DevicesBench { server, client, runtime, time: plan.devices_time };
    bench.register()?;
    let mut pairs = Vec::new();
    for number in 0..PAIRS {
        eprintln!("devices beside a job, pair {} of {PAIRS}", number + 1);
        pairs.push(bench.pair(number % 2 == 1)?);
    }
    let case = bench.case(machine, &pairs)?;
    let times = median(pairs.iter().map(DevicesPair::times).collect());
    let what = format!("devices' p99 beside a job on all cores, multiple of that without it, median of {PAIRS} pairs");
    findings.aim(at_most(&what, times, TIMES_AIM));
    findings.cases.push(case);
    Ok(())
}

impl DevicesBench {
    /// Registers the devices and lets each log in once.
    fn register(&self) -> anyhow::Result<()> {
        let stop = CancellationToken::new();
        let once = SimArgs { count: Some(DEVICES), duration: None, warm_up: Duration::ZERO, ..self.args()? };
        self.runtime.block_on(async {
            sim::register(&once, &stop, |_| {}).await.context("cannot register the devices")?;
            let report = sim::measure(&once, &stop, |_| {}).await?;
            ensure!(report.accepted == DEVICES, "not every device could log in: {:?}", report.failures);
            Ok(())
        })
    }

    fn args(&self) -> anyhow::Result<SimArgs> {
        let SimCommand { args } = SimCommand::try_parse_from(["sim", "--qos", "1", "--secret", "sha-512"])?;
        Ok(SimArgs {
            devices_url: Some(self.server.devices_url.clone()),
            registry_url: self.server.applications_url.clone(),
            devices: DEVICES,
            connections: Some(CONNECTIONS),
            payload_bytes: Some(PAYLOAD_BYTES),
            pacing: Pacing::Open,
            period: PERIOD,
            warm_up: WARM_UP,
            duration: Some(self.time),
            ..args
        })
    }

    fn pair(&mut self, is_job_first: bool) -> anyhow::Result<DevicesPair> {
        if is_job_first {
            let (beside, job_per_s) = self.beside()?;
            return Ok(DevicesPair { alone: self.alone()?, beside, job_per_s });
        }
        let alone = self.alone()?;
        let (beside, job_per_s) = self.beside()?;
        Ok(DevicesPair { alone, beside, job_per_s })
    }

    fn alone(&self) -> anyhow::Result<SimReport> {
        let args = self.args()?;
        Ok(self.runtime.block_on(sim::measure(&args, &CancellationToken::new(), |_| {}))?)
    }

    fn beside(&mut self) -> anyhow::Result<(SimReport, f64)> {
        let job = self.client.send("POST", "/api/jobs", &document())?;
        let begin = Instant::now();
        let path = format!("/api/jobs/{}", job["id"].as_str().context("the job has no id")?);
        let report = self.alone()?;
        let seen = self.client.send("GET", &path, &Value::Null)?;
        let records = seen["records_in"].as_u64().filter(|records| *records > 0);
        let records = records.with_context(|| format!("the job has done nothing: {seen:#}"))?;
        let job_per_s = records as f64 / begin.elapsed().as_secs_f64();
        self.client.send("DELETE", &path, &Value::Null)?;
        Ok((report, job_per_s))
    }

    fn case(&self, machine: &Machine, pairs: &[DevicesPair]) -> anyhow::Result<BenchCase> {
        let each = |of: fn(&DevicesPair) -> f64| pairs.iter().map(of).collect::<Vec<_>>();
        let alone = median_report(pairs, |pair| &pair.alone)?;
        let beside = median_report(pairs, |pair| &pair.beside)?;
        let own = json!({
            "server": "millstream serve, a process of its own, default configuration",
            "job": document(),
            "job_records_per_s": each(|pair| pair.job_per_s),
            "simulated": beside.conditions,
            "pairs": pairs.len(),
            "pair_s": self.time.as_secs_f64(),
            "ratio_of": "devices' p99 beside the job and without it, the median of the pairs",
            "p99_alone_ms": each(|pair| pair.alone.latency_ms.p99),
            "p99_beside_ms": each(|pair| pair.beside.latency_ms.p99),
            "generator": beside.generator,
        });
        Ok(BenchCase {
            rate_per_s: beside.rate_per_s,
            latency_ms: Some(beside.latency_ms),
            errors: pairs.iter().map(|pair| pair.alone.failed() + pair.beside.failed()).sum(),
            rss_mib: Some(self.server.rss_mib()?),
            peer: Some(Peer {
                name: "no job".to_owned(),
                rate_per_s: alone.rate_per_s,
                latency_ms: Some(alone.latency_ms),
                ..Peer::default()
            }),
            ratio: Some(median(each(DevicesPair::times))),
            generator_bottleneck: beside.generator.bottleneck,
            ..new_case("devices, HTTP, QoS 1, beside a job on all cores: p99", machine, own)
        })
    }
}

/// A job that takes all cores that it gets.
fn document() -> Value {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let record = json!({ "n": { "random": "u32" }, "data": { "bytes": 100, "random": true } });
    json!({
        "version": 1, "kind": "Job", "name": "all-cores", "restart": { "policy": "never" },
        "sources": { "in": {
            "type": "generator", "config": { "record": record, "rate": "unlimited" }, "parallelism": cores,
        } },
        "transforms": { "compute": {
            "type": "map", "inputs": ["in"], "select": "*, n * 2 + 1 AS twice", "parallelism": cores,
        } },
        "sinks": { "out": { "type": "blackhole", "inputs": ["compute"], "parallelism": cores } },
    })
}

/// The report with the median p99.
fn median_report(pairs: &[DevicesPair], of: fn(&DevicesPair) -> &SimReport) -> anyhow::Result<&SimReport> {
    let mut reports: Vec<&SimReport> = pairs.iter().map(of).collect();
    reports.sort_by(|a, b| a.latency_ms.p99.total_cmp(&b.latency_ms.p99));
    reports.get(reports.len() / 2).copied().context("there is at least one pair")
}
