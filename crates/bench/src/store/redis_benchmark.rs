//! redis-benchmark, the load generator that comes with Redis.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use crate::peer_process::find;

/// Connections that each load keeps open.
pub(super) const CLIENTS: usize = 50;
/// Different keys of 16 bytes.
pub(super) const KEYS: u64 = 100_000;

/// A load of one command.
#[derive(Debug, Clone, Copy)]
pub(super) struct RedisLoad {
    /// `set` or `get`.
    pub(super) command: &'static str,
    pub(super) database: u32,
    /// Requests in flight on a connection.
    pub(super) depth: usize,
    pub(super) value_bytes: usize,
    pub(super) requests: u64,
}

/// The result of a load, as redis-benchmark prints it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RedisLoadResult {
    pub(super) rate_per_s: f64,
    /// The latencies that it reports, in milliseconds.
    pub(super) latency_ms: Value,
}

/// The program, which has been found.
pub(super) struct RedisBenchmark {
    program: PathBuf,
}

impl RedisBenchmark {
    pub(super) fn find() -> anyhow::Result<Self> {
        Ok(Self { program: find("redis-benchmark", "redis-tools")? })
    }

    /// Runs a load; it inherits the cores of this process.
    pub(super) fn run(&self, address: SocketAddr, load: RedisLoad) -> anyhow::Result<RedisLoadResult> {
        let mut command = Command::new(&self.program);
        command.args(["-h", &address.ip().to_string(), "-p", &address.port().to_string(), "--csv"]);
        let numbers = [
            ("--dbnum", u64::from(load.database)),
            ("-c", CLIENTS as u64),
            ("-n", load.requests),
            ("-d", load.value_bytes as u64),
            ("-P", load.depth as u64),
            ("-r", KEYS),
        ];
        for (name, value) in numbers {
            command.args([name, &value.to_string()]);
        }
        let said = command.args(["-t", load.command]).output().context("cannot run redis-benchmark")?;
        let (text, complaints) = (String::from_utf8_lossy(&said.stdout), String::from_utf8_lossy(&said.stderr));
        ensure!(said.status.success(), "redis-benchmark failed ({}): {text}{complaints}", said.status);
        parse(&text).with_context(|| format!("redis-benchmark printed no figures: {text}{complaints}"))
    }
}

/// Parses the output of `--csv`: a head, then one line for the command.
fn parse(text: &str) -> Option<RedisLoadResult> {
    let rows = text.lines().filter(|line| line.starts_with('"'));
    let mut rows = rows.map(|line| line.split(',').map(|field| field.trim_matches('"')).collect::<Vec<_>>());
    let (head, row) = (rows.next()?, rows.next()?);
    let figure = |name: &str| row.get(head.iter().position(|column| *column == name)?)?.parse::<f64>().ok();
    let mut latency_ms = json!({});
    for name in ["p50", "p95", "p99", "max"] {
        latency_ms[name] = json!(figure(&format!("{name}_latency_ms"))?);
    }
    Some(RedisLoadResult { rate_per_s: figure("rps")?, latency_ms })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = r#""test","rps","avg_latency_ms","min_latency_ms","p50_latency_ms","p95_latency_ms","p99_latency_ms","max_latency_ms""#;

    #[test]
    fn rate_and_latencies_are_read_by_the_names_of_their_columns() {
        let text =
            format!("{HEAD}\n\"SET\",\"77760.50\",\"0.357\",\"0.104\",\"0.343\",\"0.471\",\"0.583\",\"1.999\"\n");
        let expected = RedisLoadResult {
            rate_per_s: 77_760.5,
            latency_ms: json!({ "p50": 0.343, "p95": 0.471, "p99": 0.583, "max": 1.999 }),
        };
        assert_eq!(parse(&format!("WARNING: something\n{text}")), Some(expected));
    }

    #[test]
    fn output_without_figures_is_not_parsed() {
        for text in ["", HEAD, "\"test\",\"rps\"\n\"SET\",\"1.0\"", "Could not connect"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
