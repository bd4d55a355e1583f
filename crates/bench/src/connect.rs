//! Suite `connect`: authenticated devices send over HTTP and MQTT to `millstream serve`, at full rate and then at
//! 70 % of it; optionally also to peers that store nothing.
//!
//! Server and generator have one core each if the machine has two. The CPU time of a server counts until it is idle
//! again, so that deferred work counts.

mod aims;
pub(crate) mod case;
pub(super) mod many;
mod peer;
pub(super) mod scale;

use std::time::Duration;

use anyhow::Context as _;
use clap::Parser as _;
use millstream_load::report::{BenchCase, Peer};
use millstream_load::sim::{self, Protocol, SimArgs};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::cores::Cores;
use super::machine::Machine;
use super::server_process::ServerProcess;
use super::{Length, Report};
use case::{CASES, Case, CaseRun};
pub(super) use peer::ConnectPeer;
use peer::RunningPeer;

/// Devices of the HTTP cases; they share keep-alive connections.
const HTTP_DEVICES: u64 = 2_000;
const HTTP_CONNECTIONS: u64 = 500;
/// Devices of the MQTT cases; each has its own connection.
const MQTT_DEVICES: u64 = 500;
const PAYLOAD_BYTES: u64 = 64;
/// Target rate of the open loop, as a share of the full rate.
const PART_OF_RATE: f64 = 0.7;

/// Rounds and times of the suite.
#[derive(Debug, Clone, Copy)]
struct ConnectWorkload {
    rounds: usize,
    /// Measured time of a case in a round.
    time: Duration,
    /// Warm-up before a case, in which connections open.
    warm_up: Duration,
}

impl ConnectWorkload {
    fn of(length: Length) -> Self {
        let ms = Duration::from_millis;
        match length {
            Length::Quick => Self { rounds: 1, time: ms(1_300), warm_up: ms(500) },
            Length::Default => Self { rounds: 5, time: ms(2_000), warm_up: ms(700) },
            Length::Full => Self { rounds: 3, time: ms(30_000), warm_up: ms(2_000) },
        }
    }
}

/// State that all cases share.
struct ConnectBench {
    plan: ConnectWorkload,
    machine: Machine,
    cores: Cores,
    server: ServerProcess,
    nginx: Option<RunningPeer>,
    mosquitto: Option<RunningPeer>,
}

/// Runs of one case on one server.
#[derive(Default)]
struct Rounds {
    /// Runs at full rate (closed loop).
    fast: Vec<CaseRun>,
    paced: Vec<CaseRun>,
}

pub(super) fn measure(length: Length, peers: &[ConnectPeer]) -> anyhow::Result<Report> {
    let dir = tempfile::tempdir().context("cannot make a temporary directory")?;
    let machine = Machine::with_files_in(dir.path());
    let cores = Cores::apart()?;
    let peer = |peer: ConnectPeer| peers.contains(&peer).then(|| peer.start(dir.path(), &cores)).transpose();
    let suite = ConnectBench {
        plan: ConnectWorkload::of(length),
        machine,
        server: ServerProcess::start_on(dir.path(), &cores)?,
        nginx: peer(ConnectPeer::Nginx)?,
        mosquitto: peer(ConnectPeer::Mosquitto)?,
        cores,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let cases = runtime.block_on(suite.measure_all())?;
    let notes = suite.machine.warning().into_iter().chain(aims::judge(&cases)).collect();
    Ok(Report { heading: suite.heading(), cases, notes })
}

impl ConnectBench {
    async fn measure_all(&self) -> anyhow::Result<Vec<BenchCase>> {
        log_everybody_in(self.args(&CASES[0], &[])?).await?;
        let mut cases = Vec::new();
        for case in &CASES {
            let (mut ours, mut theirs) = (Rounds::default(), Rounds::default());
            for round in 0..self.plan.rounds {
                eprintln!("{}, round {} of {}", case.name, round + 1, self.plan.rounds);
                self.run_round(case, self.server.pid(), None, &mut ours).await?;
                if let Some(peer) = self.peer(case) {
                    self.run_round(case, peer.process.pid(), Some(&peer.url), &mut theirs).await?;
                }
            }
            let median =
                case::median(&ours.fast, |run| run.report.rate_per_s).context("there is at least one round")?;
            let theirs_of = |runs, key| self.peer(case).zip(case::median(runs, key));
            cases.push(self.report(case.name.to_owned(), median, theirs_of(&theirs.fast, |run| run.report.rate_per_s)));
            if let Some(median) = case::median(&ours.paced, case::p99_ms) {
                let peer = theirs_of(&theirs.paced, case::p99_ms);
                let mut paced = self.report(format!("{}{}", case.name, case::AT_PART), median, peer);
                for (name, runs) in [(case::P99_OF_ROUNDS, &ours.paced), (case::PEER_P99_OF_ROUNDS, &theirs.paced)] {
                    paced.conditions.insert(name.to_owned(), json!(runs.iter().map(case::p99_ms).collect::<Vec<_>>()));
                }
                cases.push(paced);
            }
        }
        Ok(cases)
    }

    /// Runs a case in the closed loop and then in the open loop at a share of that rate. Both run in the same round, because
    /// the speed of a machine varies within seconds. Without a URL it runs against our own server.
    async fn run_round(&self, case: &Case, pid: u32, url: Option<&str>, rounds: &mut Rounds) -> anyhow::Result<()> {
        let args = |more: &[&str]| {
            let args = self.args(case, more)?;
            anyhow::Ok(SimArgs { devices_url: url.map(str::to_owned).or(args.devices_url), ..args })
        };
        let fast = case::run(pid, &args(&[])?).await?;
        if case.is_paced {
            let args = args(&["--loop", "open"])?;
            let rate_per_s = fast.report.rate_per_s * PART_OF_RATE;
            let period = Duration::from_secs_f64(args.devices as f64 / rate_per_s.max(1.0));
            // All connections open in the first period; its delays must end before the measurement begins.
            let warm_up = self.plan.warm_up * 2;
            rounds.paced.push(case::run(pid, &SimArgs { period, warm_up, ..args }).await?);
        }
        rounds.fast.push(fast);
        Ok(())
    }

    fn peer(&self, case: &Case) -> Option<&RunningPeer> {
        match case.peer? {
            ConnectPeer::Nginx => self.nginx.as_ref(),
            ConnectPeer::Mosquitto => self.mosquitto.as_ref(),
        }
    }

    fn args(&self, case: &Case, more: &[&str]) -> anyhow::Result<SimArgs> {
        let args = sim_args(&self.server, &[case.options, more].concat())?;
        Ok(SimArgs { warm_up: self.plan.warm_up, duration: Some(self.plan.time), ..args })
    }

    fn report(&self, name: String, ours: &CaseRun, peer: Option<(&RunningPeer, &CaseRun)>) -> BenchCase {
        let mut conditions = self.machine.conditions();
        let own = json!({
            "server": "millstream serve, a process of its own, default configuration",
            "cores_of": self.cores.to_string(),
            "rounds": self.plan.rounds,
            "simulated": ours.report.conditions,
            "credentials": "sha-512 with salt, logged in before",
            "took_s": ours.report.elapsed_s,
            "failures": ours.report.failures,
            "backlog": ours.report.backlog,
            "generator": ours.report.generator,
            "peer_generator": peer.as_ref().map(|(_, theirs)| theirs.report.generator),
        });
        if let serde_json::Value::Object(own) = own {
            conditions.extend(own);
        }
        let rate_per_s = ours.report.rate_per_s;
        BenchCase {
            suite: "connect".to_owned(),
            case: name,
            conditions,
            rate_per_s,
            per_core_per_s: ours.per_core_per_s(),
            latency_ms: Some(ours.report.latency_ms),
            errors: ours.report.failed(),
            rss_mib: Some(ours.rss_mib),
            cpu_s_per_million: ours.cpu_s_per_million(),
            ratio: peer.as_ref().map(|(_, theirs)| rate_per_s / theirs.report.rate_per_s),
            peer: peer.map(|(running, theirs)| Peer {
                name: running.process.name.clone(),
                rate_per_s: theirs.report.rate_per_s,
                latency_ms: Some(theirs.report.latency_ms),
                rss_mib: Some(theirs.rss_mib),
                cpu_s_per_million: theirs.cpu_s_per_million(),
            }),
            generator_bottleneck: ours.report.generator.bottleneck,
        }
    }

    fn heading(&self) -> String {
        let ConnectWorkload { rounds, time, warm_up } = self.plan;
        format!(
            "Over sockets, to a server process of its own with its default configuration: {PAYLOAD_BYTES} bytes a message; \
             passwords (sha-512 with salt), logged in before. HTTP: {HTTP_DEVICES} devices share {HTTP_CONNECTIONS} keep-alive \
             connections, PUT. MQTT 3.1.1: {MQTT_DEVICES} devices, a connection each. As fast as answers come (closed loop), \
             then, those that send one message at a time, in the open loop at {:.0} % of that. One generator thread; {}.\n\
             {}.\n\
             {rounds} rounds of {:.1} s a case after {:.1} s of warm-up, the one with the median rate is shown, in the open loop that \
             with the median p99; each is paced by the rate of its own round, peers by their own. CPU time and \
             memory are the server's; CPU time until it is at rest again. Peers store nothing.",
            PART_OF_RATE * 100.0,
            self.cores,
            self.machine,
            time.as_secs_f64(),
            warm_up.as_secs_f64(),
        )
    }
}

/// Returns the simulator's arguments for devices of `server`.
pub(crate) fn sim_args(server: &ServerProcess, options: &[&str]) -> anyhow::Result<SimArgs> {
    let fixed = ["sim", "--method", "put", "--period", "0", "--secret", "sha-512"];
    let SimCommand { args } = SimCommand::try_parse_from(fixed.iter().chain(options))?;
    let (url, devices, connections) = match args.protocol {
        Protocol::Mqtt => (&server.mqtt_url, MQTT_DEVICES, None),
        _ => (&server.devices_url, HTTP_DEVICES, Some(HTTP_CONNECTIONS)),
    };
    Ok(SimArgs {
        devices_url: Some(url.clone()),
        registry_url: server.applications_url.clone(),
        devices,
        connections,
        payload_bytes: Some(PAYLOAD_BYTES),
        ..args
    })
}

/// Registers all devices over HTTP and lets each log in once, before the measurement.
pub(crate) async fn log_everybody_in(args: SimArgs) -> anyhow::Result<()> {
    let stop = CancellationToken::new();
    sim::register(&args, &stop, |_| {}).await.context("cannot register the devices")?;
    let (period, ramp) = (Duration::from_secs(3600), Some(Duration::ZERO));
    let once = SimArgs { period, ramp, count: Some(HTTP_DEVICES), duration: None, warm_up: Duration::ZERO, ..args };
    sim::measure(&once, &stop, |_| {}).await?;
    Ok(())
}

/// Parses the simulator's options like its own command.
#[derive(Debug, clap::Parser)]
pub(super) struct SimCommand {
    #[command(flatten)]
    pub(super) args: SimArgs,
}
