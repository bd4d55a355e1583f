//! The server of the entity cases and the measurement of one load phase on it.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use millstream_load::report::BenchCase;
use millstream_load::{RequestLoad, RequestResult, StopCondition};
use serde_json::{Map, Value, json};

use super::population;
use crate::cores::Cores;
use crate::machine::Machine;
use crate::server_process::ServerProcess;
use crate::{Length, process};

pub(super) const MANY: usize = 500;

/// Sizes and times of the suite.
#[derive(Debug, Clone, Copy)]
pub(super) struct ContextWorkload {
    pub(super) few: u64,
    pub(super) many: u64,
    pub(super) subscriptions: u64,
    /// Default limit of tenants, without the default tenant.
    pub(super) tenants: u64,
    pub(super) time: Duration,
    pub(super) warm_up: Duration,
    pub(super) notified_per_s: f64,
}

impl ContextWorkload {
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

    pub(super) fn times(&self) -> LoadTime {
        LoadTime { warm_up: self.warm_up, measured: self.time }
    }
}

pub(super) struct ContextBench {
    pub(super) plan: ContextWorkload,
    pub(super) machine: Machine,
    pub(super) cores: Cores,
}

/// A server process and the address of its API.
pub(crate) struct EntityServer {
    pub(crate) server: ServerProcess,
    pub(crate) address: SocketAddr,
}

pub(crate) struct LoadPhase {
    pub(crate) requested: RequestResult,
    /// CPU time of the server until it was idle again.
    pub(crate) cpu_s: f64,
    pub(crate) rss_mib: f64,
}

/// Times of a load phase.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LoadTime {
    pub(crate) warm_up: Duration,
    pub(crate) measured: Duration,
}

impl EntityServer {
    /// Starts a server on the data in `dir`; it listens when this returns.
    pub(super) fn open(dir: &Path, cores: &Cores) -> anyhow::Result<Self> {
        Self::on(ServerProcess::start_on(dir, cores)?)
    }

    /// The API of a server that runs.
    pub(crate) fn on(server: ServerProcess) -> anyhow::Result<Self> {
        let url = server.applications_url.trim_start_matches("http://").trim_end_matches('/');
        let address = url.parse().with_context(|| format!("{url} is no address"))?;
        Ok(Self { server, address })
    }

    /// Sends `count` requests; all must succeed.
    pub(crate) fn send_all(
        &self,
        connections: usize,
        count: u64,
        write: impl Fn(u64, Instant, &mut Vec<u8>),
    ) -> anyhow::Result<RequestResult> {
        let load =
            RequestLoad { address: self.address, connections, rate_per_s: None, until: StopCondition::Count(count) };
        let requested = load.run(write)?;
        let refusal = requested.first_refusal.as_deref().unwrap_or_default();
        ensure!(requested.refused == 0, "{} of {count} requests were refused: {refusal}", requested.refused);
        Ok(requested)
    }

    /// Creates the entities from `first` to `end` and returns the bytes of their JSON.
    pub(crate) fn create_entities(&self, first: u64, end: u64, many: u64) -> anyhow::Result<u64> {
        let bytes = std::cell::Cell::new(0);
        self.send_all(population::MAKERS, (end - first).div_ceil(population::BATCH), |batch, _, request| {
            let mut body = String::from("{\"actionType\":\"append\",\"entities\":[");
            let from = first + batch * population::BATCH;
            for number in from..(from + population::BATCH).min(end) {
                if number > from {
                    body.push(',');
                }
                let before = body.len();
                population::push_entity(number, many, &mut body);
                bytes.set(bytes.get() + (body.len() - before) as u64);
            }
            body.push_str("]}");
            population::with_body("POST", "/v2/op/update", "application/json", &body, request);
        })?;
        Ok(bytes.get())
    }

    /// Gets the JSON at this target.
    pub(super) fn get(&self, target: &str) -> anyhow::Result<Value> {
        let requested = self.send_all(1, 1, |_, _, request| population::get(target, request))?;
        Ok(serde_json::from_slice(&requested.last_body)?)
    }

    /// Runs a warm-up, then a measured load phase.
    pub(crate) fn load(
        &self,
        times: LoadTime,
        connections: usize,
        rate_per_s: Option<f64>,
        write: impl Fn(u64, Instant, &mut Vec<u8>),
    ) -> anyhow::Result<LoadPhase> {
        let load =
            |time| RequestLoad { address: self.address, connections, rate_per_s, until: StopCondition::Time(time) };
        let pid = self.server.pid();
        load(times.warm_up).run(&write)?;
        process::rest(pid)?;
        let cpu_before = self.server.cpu_s()?;
        let requested = load(times.measured).run(&write)?;
        let rss_mib = self.server.rss_mib()?;
        process::rest(pid)?;
        Ok(LoadPhase { requested, cpu_s: self.server.cpu_s()? - cpu_before, rss_mib })
    }
}

impl LoadPhase {
    pub(super) fn us_each(&self) -> f64 {
        self.cpu_s / self.requested.answered.max(1) as f64 * 1e6
    }
}

impl ContextBench {
    /// A case as it is findings.
    pub(super) fn case(&self, name: impl Into<String>, phase: &LoadPhase, own: Value) -> BenchCase {
        let LoadPhase { requested, cpu_s, rss_mib } = phase;
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
