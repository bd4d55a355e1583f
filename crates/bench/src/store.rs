//! Suite `store`: values behind keys.
//!
//! - writes of 1 to 5 KiB over HTTP, beside a loop that writes and syncs the same bytes ([`puts`]);
//! - reads by the engine in this process, beside a loop of `pread` ([`reads`]);
//! - a cache and durable keys over the Redis protocol, beside Redis ([`redis`]);
//! - updates of compressible values while compaction runs ([`updates`]);
//! - the end of the server by SIGKILL in the middle of writes ([`kill`]);
//! - a rising rate until it is too much, and 70 % of that for long ([`ramp`]).
//!
//! Rounds alternate between ours and the peer, so that what the machine does beside falls on both; the round of
//! the median ratio is shown.

mod bare_reads;
mod engine;
mod engine_puts;
mod kill;
mod puts;
mod ramp;
mod reads;
mod redis;
mod redis_benchmark;
mod server;
mod updates;
pub(crate) mod values;
mod workload;

use millstream_load::report::BenchCase;
use serde_json::{Map, Value};

use self::workload::StoreWorkload;
use super::cores::Cores;
use super::findings::Findings;
use super::machine::Machine;
use super::{Report, RunArgs};

/// Connections of the HTTP cases.
const CONNECTIONS: usize = 64;

#[derive(Debug, clap::Args)]
pub(super) struct StoreArgs {
    #[command(flatten)]
    pub(super) run: RunArgs,
    /// Runs this beside Millstream, with the same clients
    #[arg(long, value_enum)]
    peer: Option<StorePeer>,
    /// Runs only these cases, not all
    #[arg(long, value_enum)]
    only: Option<StorePart>,
}

/// A peer of the cases over the Redis protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum StorePeer {
    /// A redis-server as Debian packages it
    Redis,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum StorePart {
    /// Writes over HTTP at each ack level, and by the engine
    Puts,
    /// Reads by the engine, beside pread
    Reads,
    /// A cache over the Redis protocol
    Cache,
    /// Durable keys over the Redis protocol
    Durable,
    /// Updates of durable keys while compaction runs
    Updates,
    /// kill -9 in the middle of writes
    Kill,
    /// A rising rate, and 70 % of the highest that holds
    Ramp,
}

/// The plan, the machine and the findings of the suite.
struct StoreBench {
    plan: StoreWorkload,
    machine: Machine,
    peer: Option<StorePeer>,
}

pub(super) fn measure(arguments: &StoreArgs) -> anyhow::Result<Report> {
    let wants = |part| arguments.only.is_none_or(|only| only == part);
    let bench = StoreBench {
        plan: StoreWorkload::of(arguments.run.length()),
        machine: Machine::with_files_in(&std::env::temp_dir()),
        peer: arguments.peer,
    };
    let mut findings = Findings::default();
    let over_redis =
        if wants(StorePart::Cache) || wants(StorePart::Durable) { bench.redis_programs(&mut findings)? } else { None };
    if wants(StorePart::Puts) {
        bench.measure_puts(&mut findings)?;
        bench.measure_engine_puts(&mut findings)?;
    }
    if wants(StorePart::Reads) {
        bench.measure_reads(&mut findings)?;
    }
    if let Some(programs) = &over_redis {
        let cores = Cores::apart()?;
        if wants(StorePart::Cache) {
            bench.measure_cache(programs, &cores, &mut findings)?;
        }
        if wants(StorePart::Durable) {
            bench.measure_durable(programs, &cores, &mut findings)?;
        }
        cores.together()?;
    }
    if wants(StorePart::Updates) {
        bench.measure_updates(&mut findings)?;
    }
    if wants(StorePart::Kill) {
        bench.measure_kills(&mut findings)?;
    }
    if wants(StorePart::Ramp) {
        bench.measure_ramp(&mut findings)?;
    }
    findings.notes.extend(bench.machine.warning());
    Ok(Report { heading: bench.heading(), cases: findings.cases, notes: findings.notes })
}

impl StoreBench {
    fn heading(&self) -> String {
        format!(
            "Values behind keys. HTTP: PUT /kv/BUCKET/KEY of 1,024 to 5,120 random bytes to 16 random hexadecimal digits, \
             {CONNECTIONS} keep-alive connections with one request in flight each, to `millstream serve` in a process of its own \
             with its default configuration; the load generator runs in this process and shares all cores with the server. \
             Reads: the engine, called in this process, without a cache of its own; sockets are not counted. Redis protocol: \
             redis-benchmark, 50 connections; the server has one core and redis-benchmark another, for both in turn. Ack levels: \
             `memory` may be lost with the process, `written` survives kill -9, `synced` a loss of power. Compared with a bare \
             loop: one thread that writes the same bytes in groups of {CONNECTIONS} values, as many as are in flight, syncs each \
             group, and then brings them to as many segment files; that beside the engine makes as many writes and syncs as the engine did.\n\
             {}.\n\
             {} rounds a case, ours and the peer in turn; the round of the median is shown. CPU time and memory are the server's.",
            self.machine, self.plan.rounds,
        )
    }

    /// A case of the suite without figures.
    fn case(&self, name: impl Into<String>, own: Value) -> BenchCase {
        let mut conditions: Map<String, Value> = self.machine.conditions();
        if let Value::Object(own) = own {
            conditions.extend(own);
        }
        BenchCase {
            suite: "store".to_owned(),
            case: name.into(),
            conditions,
            rate_per_s: 0.0,
            per_core_per_s: None,
            latency_ms: None,
            errors: 0,
            rss_mib: None,
            cpu_s_per_million: None,
            peer: None,
            ratio: None,
            generator_bottleneck: false,
        }
    }
}

/// The run in the middle by `key`; of an even number the lower one.
fn median<T>(mut runs: Vec<T>, key: impl Fn(&T) -> f64) -> Option<T> {
    runs.sort_by(|one, other| key(one).total_cmp(&key(other)));
    let middle = runs.len().saturating_sub(1) / 2;
    runs.into_iter().nth(middle)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_run() {
        for (runs, expected) in [(vec![], None), (vec![3.0], Some(3.0)), (vec![5.0, 1.0, 4.0], Some(4.0))] {
            assert_eq!(median(runs, |run| *run), expected);
        }
    }
}
