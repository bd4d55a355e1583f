//! The cases of the suite and the measurement of one run.

use anyhow::Context as _;
use millstream_load::sim::{self, SimArgs, SimReport};
use tokio_util::sync::CancellationToken;

use super::ConnectPeer;
use crate::process;

/// Suffix of the names of open-loop cases.
pub(super) const AT_PART: &str = ", at 70 %";

/// Conditions of an open-loop case: the p99 of each round, ours and the peer's.
pub(super) const P99_OF_ROUNDS: &str = "p99_ms_of_rounds";
pub(super) const PEER_P99_OF_ROUNDS: &str = "peer_p99_ms_of_rounds";

#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) options: &'static [&'static str],
    /// Peer that runs the same case.
    pub(super) peer: Option<ConnectPeer>,
    /// True if latency is also measured in the open loop at a share of the rate. Cases with many messages in flight
    /// reach a rate that single messages do not.
    pub(super) is_paced: bool,
}

pub(super) const HTTP_0: &str = "HTTP telemetry, QoS 0";
pub(crate) const HTTP_1: &str = "HTTP telemetry, QoS 1";
pub(super) const MQTT_0: &str = "MQTT telemetry, QoS 0, 16 in flight";
pub(crate) const MQTT_1: &str = "MQTT telemetry, QoS 1";
pub(crate) const MQTT_1_16: &str = "MQTT telemetry, QoS 1, 16 in flight";

/// All cases, in the order in which they are measured.
pub(crate) const CASES: [Case; 7] = [
    Case { name: HTTP_0, options: &["--qos", "0"], peer: Some(ConnectPeer::Nginx), is_paced: true },
    Case { name: HTTP_1, options: &["--qos", "1"], peer: None, is_paced: true },
    Case { name: "HTTP event", options: &["--kind", "event"], peer: None, is_paced: true },
    Case {
        name: MQTT_0,
        options: &["--protocol", "mqtt", "--qos", "0", "--in-flight", "16"],
        peer: Some(ConnectPeer::Mosquitto),
        is_paced: false,
    },
    Case {
        name: MQTT_1,
        options: &["--protocol", "mqtt", "--qos", "1"],
        peer: Some(ConnectPeer::Mosquitto),
        is_paced: true,
    },
    Case {
        name: MQTT_1_16,
        options: &["--protocol", "mqtt", "--qos", "1", "--in-flight", "16"],
        peer: Some(ConnectPeer::Mosquitto),
        is_paced: false,
    },
    Case { name: "MQTT event", options: &["--protocol", "mqtt", "--kind", "event"], peer: None, is_paced: true },
];

/// One run: the report of the generator and the figures of the kernel.
#[derive(Debug, Clone)]
pub(crate) struct CaseRun {
    pub(crate) report: SimReport,
    /// Accepted while CPU time was counted.
    accepted: f64,
    cpu_s: f64,
    pub(crate) rss_mib: f64,
}

/// Values at the end of the warm-up: the server's CPU time and the number of accepted messages.
#[derive(Debug, Clone, Copy)]
struct Begin {
    cpu_s: f64,
    accepted: u64,
}

impl CaseRun {
    pub(crate) fn per_core_per_s(&self) -> Option<f64> {
        self.is_known().then(|| self.accepted / self.cpu_s)
    }

    pub(crate) fn cpu_s_per_million(&self) -> Option<f64> {
        self.is_known().then(|| self.cpu_s / self.accepted * 1e6)
    }

    fn is_known(&self) -> bool {
        self.cpu_s > 0.0 && self.accepted > 0.0
    }
}

/// Runs a case against the server with this process id.
pub(crate) async fn run(pid: u32, args: &SimArgs) -> anyhow::Result<CaseRun> {
    process::rest(pid)?;
    let mut begin = None;
    let look = |progress: sim::SimProgress| {
        if begin.is_none() && progress.elapsed >= args.warm_up {
            begin = Some(process::cpu_s(pid).map(|cpu_s| Begin { cpu_s, accepted: progress.accepted }));
        }
    };
    let report = sim::measure(args, &CancellationToken::new(), look).await?;
    let rss_mib = process::rss_mib(pid)?;
    process::rest(pid)?;
    let begin = begin.context("the run was over before its warm-up")??;
    let accepted = report.accepted.saturating_sub(begin.accepted) as f64;
    Ok(CaseRun { report, accepted, cpu_s: process::cpu_s(pid)? - begin.cpu_s, rss_mib })
}

/// Returns the run that is the median by this figure.
pub(super) fn median(runs: &[CaseRun], figure: fn(&CaseRun) -> f64) -> Option<&CaseRun> {
    let mut runs: Vec<&CaseRun> = runs.iter().collect();
    runs.sort_by(|a, b| figure(a).total_cmp(&figure(b)));
    runs.get(runs.len() / 2).copied()
}

pub(super) fn p99_ms(run: &CaseRun) -> f64 {
    run.report.latency_ms.p99
}
