//! Runs Kafka's own performance classes as processes and parses their output.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};
use millstream_load::LatencyMs;

use super::client_result::ClientResult;

/// The program that runs Kafka's classes.
#[derive(Debug)]
pub(crate) struct Tools {
    xtask: PathBuf,
}

/// Settings of a run of Kafka's producer.
#[derive(Debug, Clone)]
pub(super) struct ProducerRun<'a> {
    pub(super) bootstrap: &'a str,
    pub(super) topic: &'a str,
    pub(super) records: u64,
    pub(super) record_bytes: usize,
    pub(super) acks: &'static str,
    /// Target rate in records a second; `None` is the full rate with the producer's default linger.
    pub(super) records_per_s: Option<f64>,
}

impl Tools {
    /// Finds `xtask` in the target directory that this program lies in, where `cargo xtask` builds it.
    pub(crate) fn beside_this_program() -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("cannot tell where this program lies")?;
        // The target directory is two levels above a binary, three above a test's.
        let found =
            program.ancestors().skip(2).take(2).map(|dir| dir.join("debug/xtask")).find(|xtask| xtask.is_file());
        let Some(xtask) = found else {
            bail!(
                "Kafka's programs are not here: `cargo xtask kafka-fetch`, in a checkout of Millstream, fetches them (Java 17 \
                 and Maven are needed: `scripts/setup-clients` installs both); then run the `millstream` that lies in the same \
                 target directory. This one is {}",
                program.display()
            );
        };
        Ok(Self { xtask })
    }

    pub(crate) fn xtask(&self) -> Command {
        Command::new(&self.xtask)
    }

    pub(super) fn produce(&self, run: &ProducerRun<'_>) -> anyhow::Result<ClientResult> {
        let ProducerRun { bootstrap, topic, records, record_bytes, acks, records_per_s } = run;
        let throughput = records_per_s.map_or_else(|| "-1".to_owned(), |rate| format!("{rate:.0}"));
        let (records, record_bytes) = (records.to_string(), record_bytes.to_string());
        let mut arguments = vec!["--topic", topic, "--num-records", &records, "--record-size", &record_bytes];
        arguments.extend(["--throughput", &throughput, "--producer-props"]);
        let (servers, acks) = (format!("bootstrap.servers={bootstrap}"), format!("acks={acks}"));
        arguments.extend([&*servers, &*acks]);
        if records_per_s.is_some() {
            arguments.push("linger.ms=0");
        }
        let said = self.run("ProducerPerformance", &arguments)?;
        produced(&said).with_context(|| format!("ProducerPerformance said something else than a result:\n{said}"))
    }

    /// Runs `ConsumerPerformance` over `records` records from the start of `topic`.
    pub(super) fn consume(&self, bootstrap: &str, topic: &str, records: u64) -> anyhow::Result<ClientResult> {
        let records = records.to_string();
        let said = self.run(
            "ConsumerPerformance",
            &["--bootstrap-server", bootstrap, "--topic", topic, "--messages", &records, "--timeout", "20000"],
        )?;
        consumed(&said).with_context(|| format!("ConsumerPerformance said something else than a result:\n{said}"))
    }

    fn run(&self, class: &str, arguments: &[&str]) -> anyhow::Result<String> {
        let mut command = self.xtask();
        command.arg("kafka-tools").arg(format!("org.apache.kafka.tools.{class}")).args(arguments);
        let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output();
        let output = output.with_context(|| format!("cannot run {}", self.xtask.display()))?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        if !output.status.success() {
            bail!("{class} ended with {}:\n{said}", output.status);
        }
        Ok(said)
    }
}

/// The figures in the last line that `ProducerPerformance` prints, as in
/// `9 records sent, 4.5 records/sec (0.00 MB/sec), 2.0 ms avg latency, 7.0 ms max latency, 1 ms 50th, 2 ms 95th, …`.
fn produced(said: &str) -> Option<ClientResult> {
    let last = said.lines().rfind(|line| line.contains("99.9th"))?;
    let parts: Vec<&str> = last.split(", ").collect();
    let number = |end: &str| {
        let part = parts.iter().find(|part| part.trim_end_matches('.').ends_with(end))?;
        part.split(' ').next()?.parse::<f64>().ok()
    };
    let rate = parts.iter().find(|part| part.contains("records/sec"))?.split(' ').next()?.parse().ok()?;
    Some(ClientResult {
        records: number("records sent")? as u64,
        rate_per_s: rate,
        latency_ms: Some(LatencyMs {
            p50: number("ms 50th")?,
            p90: None,
            p98: None,
            p99: number("ms 99th")?,
            p99_9: number("ms 99.9th")?,
            max: number("ms max latency")?,
        }),
        errors: said.lines().filter(|line| line.contains("Exception: ")).count() as u64,
        generator_bottleneck: false,
    })
}

/// Parses the line under the head that `ConsumerPerformance` prints. The rate leaves out the time of the rebalance.
fn consumed(said: &str) -> Option<ClientResult> {
    let mut lines = said.lines().skip_while(|line| !line.starts_with("start.time"));
    let (head, values) = (lines.next()?, lines.next()?);
    let number = |name: &str| {
        let at = head.split(", ").position(|column| column == name)?;
        values.split(", ").nth(at)?.parse::<f64>().ok()
    };
    Some(ClientResult {
        records: number("data.consumed.in.nMsg")? as u64,
        rate_per_s: number("fetch.nMsg.sec")?,
        latency_ms: None,
        errors: 0,
        generator_bottleneck: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kafkas_producer_report_is_parsed() {
        let said = "24 records sent, 4.8 records/sec (0.46 MB/sec), 1.0 ms avg latency, 9.0 ms max latency.\n\
                    3000000 records sent, 122855.2 records/sec (11.72 MB/sec), 2072.16 ms avg latency, 3895.00 ms max \
                    latency, 1900 ms 50th, 3541 ms 95th, 3816 ms 99th, 3867 ms 99.9th.\n";
        let ClientResult { records, rate_per_s, latency_ms, errors, .. } = produced(said).unwrap();
        assert_eq!((records, rate_per_s, errors), (3_000_000, 122_855.2, 0));
        let latency = latency_ms.unwrap();
        assert_eq!((latency.p50, latency.p99, latency.p99_9, latency.max), (1900.0, 3816.0, 3867.0, 3895.0));
        assert!(produced("org.apache.kafka.common.errors.TimeoutException: no").is_none());
    }

    #[test]
    fn kafkas_consumer_report_is_parsed() {
        let said = "start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, rebalance.time.ms, \
                    fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec\n2026-01-01 00:00:00:000, 2026-01-01 00:00:09:000, 917.4, \
                    13.7, 5000117, 75126.4, 10550, 56006, 16.3, 89278.2\n";
        let figures = consumed(said).unwrap();
        assert_eq!((figures.records, figures.rate_per_s), (5_000_117, 89_278.2));
    }
}
