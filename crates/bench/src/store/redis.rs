//! A cache and durable keys over the Redis protocol, driven by redis-benchmark, beside Redis.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use millstream_load::report::Peer;
use serde_json::{Value, json};

use super::redis_benchmark::{CLIENTS, KEYS, RedisBenchmark, RedisLoad, RedisLoadResult};
use super::server::StoreServer;
use super::{StoreBench, StorePeer, median};
use crate::cores::Cores;
use crate::findings::{Findings, at_least};
use crate::peer_process::{PeerProcess, find, free_address};
use crate::process;

/// The database that is a cache bucket.
const CACHE: u32 = 1;
const CACHE_VALUE_BYTES: usize = 64;
/// The database that is a durable bucket.
const DURABLE: u32 = 2;
/// Aims, as shares of Redis's rate: a cache with one and with 16 requests in flight, and durable writes.
const CACHE_AIMS: [f64; 2] = [0.9, 1.0];
const DURABLE_AIM: f64 = 1.5;
/// Published: requests a second for values of at most 100 bytes, on 16 cores.
const PUBLISHED_PER_S: f64 = 220_000.0;
const PUBLISHED_CORES: f64 = 16.0;

/// The programs of Redis that the cases need.
pub(super) struct RedisPrograms {
    client: RedisBenchmark,
    /// The peer, if it is asked for.
    server: Option<PathBuf>,
}

/// A redis-server; ended when dropped.
struct Redis {
    process: PeerProcess,
    address: SocketAddr,
}

impl Redis {
    /// Starts a server without persistence, or one that syncs each group of writes.
    fn start(program: &Path, dir: &Path, cores: &Cores, is_durable: bool) -> anyhow::Result<Self> {
        let address = free_address()?;
        let mut command = cores.server_command(program);
        command.current_dir(dir).args(["--bind", "127.0.0.1", "--port", &address.port().to_string(), "--save", ""]);
        command.args(["--appendonly", if is_durable { "yes" } else { "no" }, "--appendfsync", "always"]);
        let version =
            std::process::Command::new(program).arg("--version").output().context("cannot ask its version")?;
        let version = version_of(&String::from_utf8_lossy(&version.stdout)).to_owned();
        Ok(Self { process: PeerProcess::start(command, format!("redis {version}"), address)?, address })
    }
}

/// The version in `Redis server v=7.0.15 sha=…`; empty if there is none.
fn version_of(said: &str) -> &str {
    said.split_ascii_whitespace().find_map(|word| word.strip_prefix("v=")).unwrap_or_default()
}

/// A load on one server with what it took.
struct RedisRun {
    result: RedisLoadResult,
    cpu_s: f64,
    rss_mib: f64,
}

/// A round: ours, then that of the peer.
struct RedisRound {
    ours: RedisRun,
    theirs: Option<RedisRun>,
}

impl RedisRound {
    fn ratio(&self) -> Option<f64> {
        Some(self.ours.result.rate_per_s / self.theirs.as_ref()?.result.rate_per_s)
    }
}

/// Both servers and their client.
struct RedisPair<'a> {
    client: &'a RedisBenchmark,
    cores: &'a Cores,
    server: StoreServer,
    peer: Option<Redis>,
    _dir: tempfile::TempDir,
}

impl<'a> RedisPair<'a> {
    fn open(programs: &'a RedisPrograms, cores: &'a Cores, is_durable: bool) -> anyhow::Result<Self> {
        let dir = tempfile::tempdir().context("cannot make a temporary directory")?;
        let RedisPrograms { client, server: peer } = programs;
        let server = StoreServer::open(dir.path(), cores)?;
        server.put_bucket(&format!("db{CACHE}"), &json!({ "kind": "cache", "partitions": 1 }))?;
        server.put_bucket(&format!("db{DURABLE}"), &json!({ "partitions": 1, "ack": "synced" }))?;
        let peer = peer.as_ref().map(|peer| Redis::start(peer, dir.path(), cores, is_durable)).transpose()?;
        Ok(Self { client, cores, server, peer, _dir: dir })
    }

    fn run_on(&self, pid: u32, address: SocketAddr, load: RedisLoad) -> anyhow::Result<RedisRun> {
        let cpu_s = process::cpu_s(pid)?;
        let result = self.client.run(address, load)?;
        Ok(RedisRun { result, cpu_s: process::cpu_s(pid)? - cpu_s, rss_mib: process::rss_mib(pid)? })
    }

    /// Runs a load on our server and then on the peer.
    fn run(&self, load: RedisLoad) -> anyhow::Result<RedisRound> {
        let ours = self.run_on(self.server.process.pid(), self.server.redis, load)?;
        let theirs = self.peer.as_ref().map(|peer| self.run_on(peer.process.pid(), peer.address, load)).transpose()?;
        Ok(RedisRound { ours, theirs })
    }
}

impl StoreBench {
    /// Finds the programs. Without redis-benchmark the cases are left out, unless the peer is asked for.
    pub(super) fn redis_programs(&self, findings: &mut Findings) -> anyhow::Result<Option<RedisPrograms>> {
        match (RedisBenchmark::find(), self.peer) {
            (Ok(client), None) => Ok(Some(RedisPrograms { client, server: None })),
            (client, Some(StorePeer::Redis)) => {
                Ok(Some(RedisPrograms { client: client?, server: Some(find("redis-server", "redis-server")?) }))
            }
            (Err(error), None) => {
                findings.notes.push(format!("The cases over the Redis protocol are left out: {error}."));
                Ok(None)
            }
        }
    }

    /// GET and SET of small values on a cache bucket.
    pub(super) fn measure_cache(
        &self,
        programs: &RedisPrograms,
        cores: &Cores,
        findings: &mut Findings,
    ) -> anyhow::Result<()> {
        let pair = RedisPair::open(programs, cores, false)?;
        // Nearly all keys are there before one is read.
        pair.run(RedisLoad {
            command: "set",
            database: CACHE,
            depth: 16,
            value_bytes: CACHE_VALUE_BYTES,
            requests: 3 * KEYS,
        })?;
        let mut here = Vec::new();
        for ((depth, requests), aim) in self.plan.cache_requests.into_iter().zip(CACHE_AIMS) {
            for command in ["set", "get"] {
                let load = RedisLoad { command, database: CACHE, depth, value_bytes: CACHE_VALUE_BYTES, requests };
                let name = format!("{}, cache, {CACHE_VALUE_BYTES} B, depth {depth}", command.to_uppercase());
                let ratio_aim = format!("{name}, of Redis's rate");
                let rate_per_s = self.measure_pair(&pair, name, load, &ratio_aim, aim, findings)?;
                here.push(format!("{} at depth {depth} {rate_per_s:.0}/s", command.to_uppercase()));
            }
        }
        findings.notes.push(format!(
            "Published for the older system, values of at most 100 bytes, one client machine to one server of 16 cores: \
             {PUBLISHED_PER_S:.0} requests/s, {:.0} a core; here, on one core: {}.",
            PUBLISHED_PER_S / PUBLISHED_CORES,
            here.join("; "),
        ));
        Ok(())
    }

    /// SET of larger values on a durable bucket at `synced`, beside Redis with `appendfsync always`.
    pub(super) fn measure_durable(
        &self,
        programs: &RedisPrograms,
        cores: &Cores,
        findings: &mut Findings,
    ) -> anyhow::Result<()> {
        let pair = RedisPair::open(programs, cores, true)?;
        for &value_bytes in self.plan.durable_bytes {
            let requests = self.plan.durable_requests;
            let load = RedisLoad { command: "set", database: DURABLE, depth: 1, value_bytes, requests };
            let name = format!("SET, durable, synced, {value_bytes} B");
            let ratio_aim = format!("{name}, of the rate of Redis with appendfsync always");
            self.measure_pair(&pair, name, load, &ratio_aim, DURABLE_AIM, findings)?;
        }
        Ok(())
    }

    /// Measures a load in all rounds and returns our rate.
    fn measure_pair(
        &self,
        pair: &RedisPair<'_>,
        name: String,
        load: RedisLoad,
        ratio_aim: &str,
        aim: f64,
        findings: &mut Findings,
    ) -> anyhow::Result<f64> {
        let mut rounds = Vec::new();
        for round in 0..self.plan.rounds {
            eprintln!("{name}, round {} of {}", round + 1, self.plan.rounds);
            rounds.push(pair.run(load)?);
        }
        let by = |round: &RedisRound| round.ratio().unwrap_or(round.ours.result.rate_per_s);
        let round = median(rounds, by).context("there is at least one round")?;
        let RedisRound { ours, theirs } = &round;
        let theirs = theirs.as_ref().zip(pair.peer.as_ref());
        let million = load.requests as f64 / 1e6;
        let latency_of_peer = theirs.map_or(Value::Null, |(run, _)| run.result.latency_ms.clone());
        let own = json!({
            "server": "millstream serve, a process of its own, default configuration",
            "cores_of": pair.cores.to_string(),
            "generator": "redis-benchmark", "connections": CLIENTS, "depth": load.depth, "requests": load.requests,
            "keys": KEYS, "value_bytes": load.value_bytes, "rounds": self.plan.rounds,
            "latency_ms_by_redis_benchmark": ours.result.latency_ms,
            "peer_latency_ms_by_redis_benchmark": latency_of_peer,
        });
        let mut case = self.case(name, own);
        case.rate_per_s = ours.result.rate_per_s;
        case.per_core_per_s = (ours.cpu_s > 0.0).then(|| load.requests as f64 / ours.cpu_s);
        case.rss_mib = Some(ours.rss_mib);
        case.cpu_s_per_million = Some(ours.cpu_s / million);
        case.peer = theirs.map(|(run, peer)| Peer {
            name: peer.process.name.clone(),
            rate_per_s: run.result.rate_per_s,
            rss_mib: Some(run.rss_mib),
            cpu_s_per_million: Some(run.cpu_s / million),
            ..Peer::default()
        });
        case.ratio = round.ratio();
        if let Some(ratio) = case.ratio {
            findings.aim(at_least(ratio_aim, ratio, aim));
        }
        findings.cases.push(case);
        Ok(ours.result.rate_per_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_what_redis_says() {
        assert_eq!(version_of("Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64"), "7.0.15");
        assert_eq!(version_of("something else"), "");
    }
}
