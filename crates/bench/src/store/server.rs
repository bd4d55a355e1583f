//! The server of the cases over sockets.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use millstream_load::report::BenchCase;
use millstream_load::{JsonClient, RequestLoad, RequestResult, StopCondition};
use serde_json::Value;

use crate::cores::Cores;
use crate::process;
use crate::server_process::ServerProcess;

/// A server process with its addresses.
pub(super) struct StoreServer {
    pub(super) process: ServerProcess,
    pub(super) applications: SocketAddr,
    pub(super) redis: SocketAddr,
}

/// A load over HTTP with what it took of the server.
pub(super) struct HttpRun {
    pub(super) requested: RequestResult,
    /// CPU time of the server in seconds, until the last answer.
    pub(super) cpu_s: f64,
    pub(super) rss_mib: f64,
    /// Bytes that the server has passed to calls that write.
    pub(super) written_bytes: u64,
}

impl StoreServer {
    /// Starts a server on the data in `dir`; it listens when this returns.
    pub(super) fn open(dir: &Path, cores: &Cores) -> anyhow::Result<Self> {
        let process = ServerProcess::start_on(dir, cores)?;
        let url = process.applications_url.trim_start_matches("http://").trim_end_matches('/');
        let applications = url.parse().with_context(|| format!("{url} is no address"))?;
        let redis = process.redis.parse().with_context(|| format!("{} is no address", process.redis))?;
        Ok(Self { process, applications, redis })
    }

    pub(super) fn put_bucket(&self, name: &str, settings: &Value) -> anyhow::Result<()> {
        JsonClient::connect(self.applications)?.send("PUT", &format!("/buckets/{name}"), settings)?;
        Ok(())
    }

    /// Sends requests until `until`; at least one must succeed.
    pub(super) fn load(
        &self,
        connections: usize,
        rate_per_s: Option<f64>,
        until: StopCondition,
        write: impl Fn(u64, Instant, &mut Vec<u8>),
    ) -> anyhow::Result<HttpRun> {
        let pid = self.process.pid();
        let (cpu_s, written_bytes) = (process::cpu_s(pid)?, process::written_bytes(pid)?);
        let load = RequestLoad { address: self.applications, connections, rate_per_s, until };
        let requested = load.run(write)?;
        let refusal = requested.first_refusal.as_deref().unwrap_or_default();
        ensure!(requested.answered > 0, "all {} requests were refused: {refusal}", requested.refused);
        Ok(HttpRun {
            requested,
            cpu_s: process::cpu_s(pid)? - cpu_s,
            rss_mib: process::rss_mib(pid)?,
            written_bytes: process::written_bytes(pid)? - written_bytes,
        })
    }

    /// Sends requests for `time`, as fast as they are answered.
    pub(super) fn load_for(
        &self,
        connections: usize,
        time: Duration,
        write: impl Fn(u64, Instant, &mut Vec<u8>),
    ) -> anyhow::Result<HttpRun> {
        self.load(connections, None, StopCondition::Time(time), write)
    }
}

impl HttpRun {
    /// Runs that followed each other as one; `None` if there are none.
    pub(super) fn sum(runs: Vec<Self>) -> Option<Self> {
        runs.into_iter().reduce(|mut sum, next| {
            let (into, from) = (&mut sum.requested, next.requested);
            into.answered += from.answered;
            into.refused += from.refused;
            into.first_refusal = into.first_refusal.take().or(from.first_refusal);
            into.took += from.took;
            into.cpu += from.cpu;
            into.latencies.add(&from.latencies);
            sum.cpu_s += next.cpu_s;
            sum.written_bytes += next.written_bytes;
            sum.rss_mib = next.rss_mib;
            sum
        })
    }

    /// `case` with the figures of this run.
    pub(super) fn fill(&self, case: BenchCase) -> BenchCase {
        let Self { requested, cpu_s, rss_mib, .. } = self;
        let answered = requested.answered as f64;
        let is_known = *cpu_s > 0.0;
        BenchCase {
            rate_per_s: requested.rate_per_s(),
            per_core_per_s: is_known.then(|| answered / cpu_s),
            latency_ms: Some(requested.latencies.summary()),
            errors: requested.refused,
            rss_mib: Some(*rss_mib),
            cpu_s_per_million: is_known.then(|| cpu_s / answered * 1e6),
            generator_bottleneck: requested.is_bottleneck(),
            ..case
        }
    }

    /// The latency below which 98 of 100 requests were answered.
    pub(super) fn p98_ms(&self) -> f64 {
        self.requested.latencies.summary().p98.unwrap_or_default()
    }
}
