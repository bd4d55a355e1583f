//! The report format of all benchmarks, as JSON and as a table.
//!
//! ```
//! use millstream_load::report::{BenchCase, table};
//! let json = r#"{"suite":"log","case":"append 1 KiB, synced","conditions":{"cores":2},"rate_per_s":1000.0,
//!     "per_core_per_s":500.0,"latency_ms":null,"errors":0,"rss_mib":null,"cpu_s_per_million":null,
//!     "peer":{"name":"bare loop","rate_per_s":1250.0},"ratio":0.8,"generator_bottleneck":false}"#;
//! let case: BenchCase = serde_json::from_str(json)?;
//! assert!(table(&[case]).contains("bare loop"));
//! # Ok::<(), serde_json::Error>(())
//! ```

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::table::{grouped, measured};
use crate::{Error, LatencyMs, TextTable};

/// One measured case. A value that was not measured is `null`, never zero.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BenchCase {
    /// Name of the suite, such as `log`.
    pub suite: String,
    /// Short description of the measured case.
    pub case: String,
    /// Conditions of the result: sizes, counts, levels, cores, machine.
    pub conditions: Map<String, Value>,
    /// Successful operations per second of wall-clock time.
    pub rate_per_s: f64,
    /// Successful operations per second and busy core of the server.
    pub per_core_per_s: Option<f64>,
    /// Latency of the successful operations.
    pub latency_ms: Option<LatencyMs>,
    /// Number of operations that failed.
    pub errors: u64,
    /// Resident memory of the server at the end, in MiB.
    pub rss_mib: Option<f64>,
    /// Seconds of the server's CPU time per million successes.
    pub cpu_s_per_million: Option<f64>,
    /// Peer measured in the same run.
    pub peer: Option<Peer>,
    /// Our rate divided by the peer's.
    pub ratio: Option<f64>,
    /// True if the load generator, not the server, limited the rate: its core was more than 90 % busy.
    pub generator_bottleneck: bool,
}

/// Another system that did the same work in the same run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Peer {
    /// Name and version of the peer.
    pub name: String,
    /// Successful operations per second of the peer.
    pub rate_per_s: f64,
    /// Latency of the peer's successful operations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_ms: Option<LatencyMs>,
    /// Highest resident memory of the peer, in MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rss_mib: Option<f64>,
    /// Seconds of the peer's CPU time per million successes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_s_per_million: Option<f64>,
}

/// Renders the cases as a table for a terminal, followed by notes on single cases.
pub fn table(cases: &[BenchCase]) -> String {
    let mut table = TextTable::with_head([
        "suite",
        "case",
        "rate/s",
        "per core/s",
        "p50 ms",
        "p99 ms",
        "max ms",
        "errors",
        "RSS MiB",
        "CPU s/M",
        "peer",
        "peer/s",
        "ratio",
    ]);
    let or_dash = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), measured);
    for case in cases {
        table.row([
            case.suite.clone(),
            case.case.clone(),
            measured(case.rate_per_s),
            or_dash(case.per_core_per_s),
            or_dash(case.latency_ms.map(|latency| latency.p50)),
            or_dash(case.latency_ms.map(|latency| latency.p99)),
            or_dash(case.latency_ms.map(|latency| latency.max)),
            grouped(case.errors),
            or_dash(case.rss_mib),
            or_dash(case.cpu_s_per_million),
            case.peer.as_ref().map_or_else(|| "–".to_owned(), |peer| peer.name.clone()),
            or_dash(case.peer.as_ref().map(|peer| peer.rate_per_s)),
            or_dash(case.ratio),
        ]);
    }
    let mut text = table.to_string();
    for case in cases.iter().filter(|case| case.generator_bottleneck) {
        text +=
            &format!("{} {}: the load generator was the bottleneck; the server can do more.\n", case.suite, case.case);
    }
    text
}

/// Writes a result as JSON to `path`.
///
/// # Errors
/// [`Error::Write`] with the path of the file.
pub fn write_json(path: &Path, result: &impl Serialize) -> Result<(), Error> {
    let text = serde_json::to_string_pretty(result).map_err(std::io::Error::from);
    text.and_then(|text| fs::write(path, text + "\n")).map_err(|source| Error::Write { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn cases() -> Vec<BenchCase> {
        let measured = BenchCase {
            suite: "connect".to_owned(),
            case: "PUT telemetry QoS 0".to_owned(),
            conditions: json!({ "devices": 2000, "connections": 500, "cores": 2 }).as_object().unwrap().clone(),
            rate_per_s: 61_234.5,
            per_core_per_s: Some(60_100.0),
            latency_ms: Some(LatencyMs {
                p50: 0.42,
                p90: Some(1.5),
                p98: Some(2.0),
                p99: 3.25,
                p99_9: 11.0,
                max: 120.0,
            }),
            errors: 0,
            rss_mib: Some(48.2),
            cpu_s_per_million: Some(16.6),
            peer: Some(Peer { name: "nginx 1.26".to_owned(), rate_per_s: 119_000.0, ..Peer::default() }),
            ratio: Some(0.5146),
            generator_bottleneck: true,
        };
        let bare = BenchCase {
            case: "kernel".to_owned(),
            per_core_per_s: None,
            latency_ms: None,
            rss_mib: None,
            cpu_s_per_million: None,
            peer: None,
            ratio: None,
            generator_bottleneck: false,
            ..measured.clone()
        };
        vec![measured, bare]
    }

    #[test]
    fn the_table_shows_every_case_and_says_when_the_generator_was_the_bottleneck() {
        insta::assert_snapshot!(table(&cases()));
    }

    #[test]
    fn json_has_every_member_and_reads_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bench.json");
        write_json(&path, &cases()).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(serde_json::from_str::<Vec<BenchCase>>(&text).unwrap(), cases());
        insta::assert_snapshot!(text);
    }
}
