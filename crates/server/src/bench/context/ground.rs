//! What all cases stand on: a server of their own, and how one stretch of load on it is measured.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use millstream_load::report::BenchCase;
use millstream_load::{RequestLoad, Requested, Until};
use serde_json::{Map, Value, json};

use super::population;
use crate::bench::child::Served;
use crate::bench::cores::Cores;
use crate::bench::machine::Machine;
use crate::bench::{Length, process};

/// Connections of many clients.
pub(super) const MANY: usize = 500;

/// How much is measured.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plan {
    /// Existing entities.
    pub(super) few: u64,
    pub(super) many: u64,
    pub(super) subscriptions: u64,
    /// As many as a server has by default, beside the one that is always there.
    pub(super) tenants: u64,
    /// Of a stretch.
    pub(super) time: Duration,
    pub(super) warm_up: Duration,
    /// Notifications a second.
    pub(super) notified_per_s: f64,
}

impl Plan {
    pub(super) fn of(length: Length) -> Self {
        let ms = Duration::from_millis;
        let long = Self {
            few: 10_000,
            many: 1_000_000,
            subscriptions: 100_000,
            tenants: 999,
            time: ms(5_000),
            warm_up: ms(1_000),
            notified_per_s: 5_000.0,
        };
        match length {
            Length::Quick => Self { many: 50_000, time: ms(600), warm_up: ms(200), ..long },
            Length::Default => long,
            Length::Full => Self { time: ms(30_000), ..long },
        }
    }
}

/// The run.
pub(super) struct Ground {
    pub(super) plan: Plan,
    pub(super) machine: Machine,
    pub(super) cores: Cores,
}

/// A server and where it keeps its files.
pub(super) struct Place {
    pub(super) server: Served,
    pub(super) address: SocketAddr,
}

/// A stretch of load.
pub(super) struct Stretch {
    pub(super) requested: Requested,
    /// The server's, until it was at rest again.
    pub(super) cpu_s: f64,
    pub(super) rss_mib: f64,
}

impl Place {
    /// Starts a server over what lies in `dir`; it listens when this returns.
    pub(super) fn open(dir: &Path, cores: &Cores) -> anyhow::Result<Self> {
        let server = Served::start_on(dir, cores)?;
        let url = server.applications_url.trim_start_matches("http://").trim_end_matches('/');
        let address = url.parse().with_context(|| format!("{url} is no address"))?;
        Ok(Self { server, address })
    }

    /// Sends so many requests and demands that all succeed.
    pub(super) fn send_all(
        &self,
        connections: usize,
        count: u64,
        write: impl Fn(u64, Instant, &mut Vec<u8>),
    ) -> anyhow::Result<Requested> {
        let load = RequestLoad { address: self.address, connections, rate_per_s: None, until: Until::Count(count) };
        let requested = load.run(write)?;
        let refusal = requested.first_refusal.as_deref().unwrap_or_default();
        ensure!(requested.refused == 0, "{} of {count} requests were refused: {refusal}", requested.refused);
        Ok(requested)
    }

    /// The JSON that a GET of this target answers.
    pub(super) fn get(&self, target: &str) -> anyhow::Result<Value> {
        let requested = self.send_all(1, 1, |_, _, request| population::get(target, request))?;
        Ok(serde_json::from_slice(&requested.last_body)?)
    }

    /// Loads the server and counts what it took, once it was warmed up.
    pub(super) fn load(
        &self,
        plan: Plan,
        (connections, rate_per_s): (usize, Option<f64>),
        write: impl Fn(u64, Instant, &mut Vec<u8>),
    ) -> anyhow::Result<Stretch> {
        let load = |time| RequestLoad { address: self.address, connections, rate_per_s, until: Until::Time(time) };
        let pid = self.server.pid();
        load(plan.warm_up).run(&write)?;
        process::rest(pid)?;
        let cpu_before = self.server.cpu_s()?;
        let requested = load(plan.time).run(&write)?;
        let rss_mib = self.server.rss_mib()?;
        process::rest(pid)?;
        Ok(Stretch { requested, cpu_s: self.server.cpu_s()? - cpu_before, rss_mib })
    }
}

impl Stretch {
    pub(super) fn us_each(&self) -> f64 {
        self.cpu_s / self.requested.answered.max(1) as f64 * 1e6
    }
}

impl Ground {
    /// A case as it is told.
    pub(super) fn case(&self, name: impl Into<String>, stretch: &Stretch, own: Value) -> BenchCase {
        let Stretch { requested, cpu_s, rss_mib } = stretch;
        let answered = requested.answered as f64;
        let is_known = *cpu_s > 0.0 && answered > 0.0;
        let mut conditions: Map<String, Value> = self.machine.conditions();
        let common = json!({
            "server": "millstream serve, a process of its own, default configuration",
            "cores_of": self.cores.to_string(),
            "took_s": requested.took.as_secs_f64(),
            "generator_cores": requested.cpu.as_secs_f64() / requested.took.as_secs_f64().max(1e-9),
            "first_refusal": requested.first_refusal,
        });
        for members in [common, own] {
            conditions.extend(members.as_object().cloned().unwrap_or_default());
        }
        BenchCase {
            suite: "context".to_owned(),
            case: name.into(),
            conditions,
            rate_per_s: requested.rate_per_s(),
            per_core_per_s: is_known.then(|| answered / cpu_s),
            latency_ms: (requested.latencies.count() > 0).then(|| requested.latencies.summary()),
            errors: requested.refused,
            rss_mib: Some(*rss_mib),
            cpu_s_per_million: is_known.then(|| cpu_s / answered * 1e6),
            peer: None,
            ratio: None,
            generator_bottleneck: requested.is_bottleneck(),
        }
    }
}
