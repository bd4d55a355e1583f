//! Messages of devices over TLS and without, by the same generator against the same server.

use std::path::Path;
use std::time::Duration;

use clap::Parser as _;
use millstream_load::report::{BenchCase, Peer};
use millstream_load::sim::{self, SimArgs};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::TlsBench;
use super::certificate::CertificateFiles;
use crate::connect::SimCommand;
use crate::connect::case::{self, CaseRun};
use crate::findings::{Findings, at_most};
use crate::server_process::ServerProcess;

pub(super) const PAYLOAD_BYTES: u64 = 200;
/// Rate of the open loop, as a share of the rate over TLS in the closed loop.
pub(super) const PART_OF_RATE: f64 = 0.5;
/// Devices; each has a connection of its own.
const DEVICES: u64 = 200;
/// Most CPU time of a message over TLS, of that of one without.
const OF_PLAIN_AIM: f64 = 1.5;
const CASES: [(&str, &[&str]); 2] = [
    ("MQTT telemetry, QoS 1", &["--protocol", "mqtt", "--qos", "1"]),
    ("HTTP telemetry, keep-alive, QoS 1", &["--method", "put", "--qos", "1"]),
];

/// Runs of one case, over TLS and without.
#[derive(Default)]
struct Runs {
    tls: Vec<CaseRun>,
    plain: Vec<CaseRun>,
}

pub(super) fn measure(bench: &TlsBench<'_>, findings: &mut Findings) -> anyhow::Result<()> {
    let files = CertificateFiles::of_an_authority(bench.dir)?;
    let dir = bench.dir.join("messages");
    std::fs::create_dir_all(&dir)?;
    let server = ServerProcess::start_with_tls(&dir, &bench.cores, &files.certificate, &files.key)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let comparison = MessageComparison { bench, server: &server, authority: &files.authority };
        let stop = CancellationToken::new();
        sim::register(&comparison.args(CASES[0].1, false)?, &stop, |_| {}).await?;
        for (name, options) in CASES {
            let (mut fast, mut paced) = (Runs::default(), Runs::default());
            for round in 0..bench.plan.rounds {
                eprintln!("{name}, round {} of {}", round + 1, bench.plan.rounds);
                let rate_per_s = comparison.run(options, &mut fast, None).await?;
                comparison.run(options, &mut paced, Some(rate_per_s * PART_OF_RATE)).await?;
            }
            for (name, runs) in [(name.to_owned(), &fast), (format!("{name}, at the same rate"), &paced)] {
                let case = comparison.case(name, runs);
                let theirs = case.peer.as_ref().and_then(|peer| peer.cpu_s_per_million);
                if let (Some(ours), Some(theirs)) = (case.cpu_s_per_million, theirs) {
                    let what = format!("{}, CPU time over TLS, of that without", case.case);
                    findings.aim(at_most(&what, ours / theirs, OF_PLAIN_AIM));
                }
                findings.cases.push(case);
            }
        }
        Ok(())
    })
}

struct MessageComparison<'a> {
    bench: &'a TlsBench<'a>,
    server: &'a ServerProcess,
    authority: &'a Path,
}

impl MessageComparison<'_> {
    /// Runs a case over TLS and without, at this rate or in the closed loop; the rate over TLS.
    async fn run(&self, options: &[&str], runs: &mut Runs, rate_per_s: Option<f64>) -> anyhow::Result<f64> {
        let args = |is_tls| {
            let args = self.args(options, is_tls)?;
            let Some(rate_per_s) = rate_per_s else { return anyhow::Ok(args) };
            let period = Duration::from_secs_f64(DEVICES as f64 / rate_per_s.max(1.0));
            // All connect in the first period; what they could not send meanwhile must be sent before the measurement begins.
            let warm_up = args.warm_up * 3;
            Ok(SimArgs { pacing: sim::Pacing::Open, period, warm_up, ..args })
        };
        let tls = case::run(self.server.pid(), &args(true)?).await?;
        let reached_per_s = tls.report.rate_per_s;
        runs.tls.push(tls);
        runs.plain.push(case::run(self.server.pid(), &args(false)?).await?);
        Ok(reached_per_s)
    }

    fn args(&self, options: &[&str], is_tls: bool) -> anyhow::Result<SimArgs> {
        let fixed = ["sim", "--period", "0", "--secret", "sha-512", "--timeout", "30s"];
        let SimCommand { args } = SimCommand::try_parse_from(fixed.iter().chain(options))?;
        let server = self.server;
        let url = match (args.protocol, is_tls) {
            (sim::Protocol::Mqtt, true) => &server.mqtt_tls_url,
            (sim::Protocol::Mqtt, false) => &server.mqtt_url,
            (_, true) => &server.devices_tls_url,
            (_, false) => &server.devices_url,
        };
        Ok(SimArgs {
            devices_url: Some(url.clone()),
            ca: is_tls.then(|| self.authority.to_owned()),
            registry_url: server.applications_url.clone(),
            devices: DEVICES,
            payload_bytes: Some(PAYLOAD_BYTES),
            warm_up: self.bench.plan.warm_up,
            duration: Some(self.bench.plan.time),
            ..args
        })
    }

    /// The runs over TLS as a case, those without TLS as its peer; each is the median by CPU time.
    fn case(&self, name: String, runs: &Runs) -> BenchCase {
        let (tls, plain) = (median(&runs.tls), median(&runs.plain));
        let mut conditions = self.bench.machine.conditions();
        conditions.insert("rounds".to_owned(), json!(self.bench.plan.rounds));
        conditions.insert("cores_of".to_owned(), json!(self.bench.cores.to_string()));
        conditions.insert("simulated".to_owned(), json!(tls.report.conditions));
        conditions.insert("failures".to_owned(), json!(tls.report.failures));
        let rate_per_s = tls.report.rate_per_s;
        BenchCase {
            suite: "tls".to_owned(),
            case: name,
            conditions,
            rate_per_s,
            per_core_per_s: tls.per_core_per_s(),
            latency_ms: Some(tls.report.latency_ms),
            errors: tls.report.failed() + plain.report.failed(),
            rss_mib: Some(tls.rss_mib),
            cpu_s_per_million: tls.cpu_s_per_million(),
            ratio: Some(rate_per_s / plain.report.rate_per_s),
            peer: Some(Peer {
                name: "without TLS".to_owned(),
                rate_per_s: plain.report.rate_per_s,
                latency_ms: Some(plain.report.latency_ms),
                rss_mib: Some(plain.rss_mib),
                cpu_s_per_million: plain.cpu_s_per_million(),
            }),
            generator_bottleneck: tls.report.generator.bottleneck,
        }
    }
}

fn median(runs: &[CaseRun]) -> &CaseRun {
    let mut runs: Vec<&CaseRun> = runs.iter().collect();
    let cpu = |run: &CaseRun| run.cpu_s_per_million().unwrap_or(f64::INFINITY);
    runs.sort_by(|a, b| cpu(a).total_cmp(&cpu(b)));
    runs[runs.len() / 2]
}
