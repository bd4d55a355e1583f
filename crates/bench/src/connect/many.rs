//! Suite `connect --many`: mostly idle connections, devices that reconnect all at once after a restart, and the rate of
//! first logins by kind of hash.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use clap::Parser as _;
use millstream_load::report::BenchCase;
use millstream_load::sim::{self, SimArgs, SimReport};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::SimCommand;
use crate::cores::Cores;
use crate::machine::Machine;
use crate::server_process::ServerProcess;
use crate::{Length, Report};

/// Number of idle connections in the aim.
const IDLE: u64 = 20_000;
/// Open files that this program and the server need for everything else.
const OTHER_FILES: u64 = 1_100;
const IDLE_AIM_MIB: f64 = 400.0;
const RETURNING: u64 = 5_000;
const RETURN_AIM_S: f64 = 3.0;
/// Name, form of the password and number of devices of each login case.
const LOGINS: [(&str, &str, u64); 4] = [
    ("sha-256 with salt", "sha-256", 3_000),
    ("sha-512 with salt", "sha-512", 3_000),
    ("argon2id, what the registry makes of a password", "plain", 150),
    ("bcrypt at cost 10", "bcrypt", 60),
];
/// Concurrent logins. They are few, so that the slowest hash does not exceed the request timeout.
const LOGIN_CONNECTIONS: u64 = 8;

#[derive(Debug, Clone, Copy)]
struct IdleWorkload {
    /// Time within which all idle devices connect.
    ramp: Duration,
    /// Time that the devices stay connected after the ramp.
    stay: Duration,
}

impl IdleWorkload {
    fn of(length: Length) -> Self {
        let s = Duration::from_secs;
        match length {
            Length::Quick => Self { ramp: s(5), stay: s(3) },
            Length::Default => Self { ramp: s(10), stay: s(30) },
            Length::Full => Self { ramp: s(10), stay: s(180) },
        }
    }
}

struct ManyDevicesBench {
    plan: IdleWorkload,
    machine: Machine,
    cores: Cores,
    /// Number of idle connections that the limits of the system allow.
    idle: u64,
}

pub(crate) fn measure(length: Length) -> anyhow::Result<Report> {
    let dir = tempfile::tempdir().context("cannot make a temporary directory")?;
    let machine = Machine::with_files_in(dir.path());
    let idle = IDLE.min(open_files_max()?.saturating_sub(OTHER_FILES));
    let suite = ManyDevicesBench { plan: IdleWorkload::of(length), machine, cores: Cores::apart()?, idle };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut cases, mut notes) = (Vec::new(), Vec::new());
    runtime.block_on(suite.measure_all(dir.path(), &mut cases, &mut notes))?;
    notes.extend(suite.machine.warning());
    if idle < IDLE {
        notes.push(format!("{idle} connections and not {IDLE}: a process may open no more files here (ulimit -n)."));
    }
    let heading = format!(
        "Over sockets, to a server process of its own with its default configuration; {}.\n{}.",
        suite.cores, suite.machine
    );
    Ok(Report { heading, cases, notes })
}

impl ManyDevicesBench {
    async fn measure_all(&self, dir: &Path, cases: &mut Vec<BenchCase>, notes: &mut Vec<String>) -> anyhow::Result<()> {
        let server = ServerProcess::start_on(dir, &self.cores)?;
        let (idle, note) = self.idle(&server).await?;
        cases.push(idle);
        notes.push(note);
        // A new server process has an empty credential cache.
        drop(server);
        let server = ServerProcess::start_on(dir, &self.cores)?;
        let (back, note) = self.all_at_once(&server).await?;
        cases.push(back);
        notes.push(note);
        for (name, secret, devices) in LOGINS {
            cases.push(self.first_logins(&server, name, secret, devices).await?);
        }
        Ok(())
    }

    /// Measures devices that connect and send one message a minute.
    async fn idle(&self, server: &ServerProcess) -> anyhow::Result<(BenchCase, String)> {
        let mqtt = ["--protocol", "mqtt", "--qos", "1", "--period", "60s", "--timeout", "30s"];
        let args = args(server, &mqtt, self.idle)?;
        eprintln!("registering {} devices", self.idle);
        let stop = CancellationToken::new();
        sim::register(&args, &stop, |_| {}).await.context("cannot register the devices")?;
        let before_mib = server.rss_mib()?;
        eprintln!("{} idle connections", self.idle);
        let time = self.plan.ramp + self.plan.stay;
        let mut highest_mib = 0_f64;
        let look = |_: sim::SimProgress| highest_mib = highest_mib.max(server.rss_mib().unwrap_or(0.0));
        let run = SimArgs { ramp: Some(self.plan.ramp), duration: Some(time), ..args };
        let report = sim::measure(&run, &stop, look).await?;
        let added_mib = highest_mib - before_mib;
        let verdict = if added_mib < IDLE_AIM_MIB && report.failed() == 0 { "met" } else { "missed" };
        let note = format!(
            "Aim, memory that {} idle MQTT connections add below {IDLE_AIM_MIB} MiB: {verdict}: {added_mib:.0} MiB, that is \
             {:.1} KiB each; {} failed.",
            self.idle,
            added_mib * 1024.0 / self.idle as f64,
            report.failed()
        );
        let more = json!({ "rss_before_mib": before_mib, "added_mib": added_mib, "connections": self.idle });
        Ok((self.case(format!("{} MQTT connections, mostly idle", self.idle), &report, highest_mib, more), note))
    }

    /// All devices connect, log in and publish one message at QoS 1 at once; the credential cache is empty.
    async fn all_at_once(&self, server: &ServerProcess) -> anyhow::Result<(BenchCase, String)> {
        eprintln!("{RETURNING} devices at once");
        let mqtt = ["--protocol", "mqtt", "--qos", "1", "--period", "1h", "--ramp", "0", "--timeout", "30s"];
        let once = SimArgs { count: Some(RETURNING), ..args(server, &mqtt, RETURNING)? };
        let report = sim::measure(&once, &CancellationToken::new(), |_| {}).await?;
        let verdict = if report.elapsed_s <= RETURN_AIM_S && report.failed() == 0 { "met" } else { "missed" };
        let note = format!(
            "Aim, {RETURNING} devices that come back at once served within {RETURN_AIM_S} s, sha-512: {verdict}: {:.2} s, {} \
             failed.",
            report.elapsed_s,
            report.failed()
        );
        let rss_mib = server.rss_mib()?;
        Ok((self.case(format!("{RETURNING} MQTT devices at once, first logins"), &report, rss_mib, Value::Null), note))
    }

    async fn first_logins(
        &self,
        server: &ServerProcess,
        name: &str,
        secret: &str,
        devices: u64,
    ) -> anyhow::Result<BenchCase> {
        eprintln!("first logins, {name}");
        let prefix = format!("{secret}-");
        let options = ["--secret", secret, "--device-prefix", &prefix, "--period", "1h", "--ramp", "0"];
        let args = args(server, &options, devices)?;
        let stop = CancellationToken::new();
        sim::register(&args, &stop, |_| {}).await.context("cannot register the devices")?;
        let once = SimArgs { count: Some(devices), connections: Some(LOGIN_CONNECTIONS), ..args };
        let report = sim::measure(&once, &stop, |_| {}).await?;
        let rss_mib = server.rss_mib()?;
        Ok(self.case(format!("first logins over HTTP, {name}"), &report, rss_mib, Value::Null))
    }

    fn case(&self, name: String, report: &SimReport, rss_mib: f64, more: Value) -> BenchCase {
        let mut conditions = self.machine.conditions();
        let own = json!({
            "server": "millstream serve, a process of its own, default configuration",
            "cores_of": self.cores.to_string(),
            "simulated": report.conditions,
            "took_s": report.elapsed_s,
            "failures": report.failures,
            "generator": report.generator,
        });
        for members in [own, more] {
            if let Value::Object(members) = members {
                conditions.extend(members);
            }
        }
        BenchCase {
            suite: "connect".to_owned(),
            case: name,
            conditions,
            rate_per_s: report.rate_per_s,
            per_core_per_s: None,
            latency_ms: Some(report.latency_ms),
            errors: report.failed(),
            rss_mib: Some(rss_mib),
            cpu_s_per_million: None,
            peer: None,
            ratio: None,
            generator_bottleneck: report.generator.bottleneck,
        }
    }
}

fn args(server: &ServerProcess, options: &[&str], devices: u64) -> anyhow::Result<SimArgs> {
    let SimCommand { args } = SimCommand::try_parse_from(["sim"].iter().chain(options))?;
    let url = match args.protocol {
        sim::Protocol::Mqtt => &server.mqtt_url,
        _ => &server.devices_url,
    };
    Ok(SimArgs {
        devices_url: Some(url.clone()),
        registry_url: server.applications_url.clone(),
        devices,
        payload_bytes: Some(super::PAYLOAD_BYTES),
        ..args
    })
}

/// Returns the limit of open files of this process.
fn open_files_max() -> anyhow::Result<u64> {
    let limits = std::fs::read_to_string("/proc/self/limits").context("cannot read /proc/self/limits")?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
    let word = line.and_then(|line| line.split_ascii_whitespace().next()).unwrap_or_default();
    ensure!(!word.is_empty(), "/proc/self/limits does not tell how many files may be open");
    Ok(word.parse().unwrap_or(u64::MAX))
}
