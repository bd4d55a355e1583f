//! Real brokers of Apache Kafka, started by `cargo xtask kafka` and ended with this program.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};

use anyhow::{Context as _, bail};

use super::tools::Tools;

/// Running brokers of one cluster; ended when dropped.
#[derive(Debug)]
pub(crate) struct KafkaBrokers {
    xtask: Child,
    pub(crate) brokers: Vec<KafkaBroker>,
}

#[derive(Debug)]
pub(crate) struct KafkaBroker {
    /// Address HOST:PORT for clients.
    pub(crate) address: String,
    pub(crate) pid: u32,
}

impl KafkaBrokers {
    /// Starts this many brokers, one or three, with their data under `dir`; they serve when this returns.
    pub(crate) fn start(tools: &Tools, dir: &Path, count: u32) -> anyhow::Result<Self> {
        let mut command = tools.xtask();
        command.args(["kafka", "--brokers", &count.to_string(), "--port", "0", "--end-with-input", "--dir"]).arg(dir);
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut xtask = child.context("cannot start a Kafka")?;
        let output = xtask.stdout.take().context("the program that starts Kafka has no standard output")?;
        let mut cluster = Self { xtask, brokers: Vec::new() };
        for line in BufReader::new(output).lines() {
            let line = line?;
            match line.split(' ').collect::<Vec<_>>()[..] {
                ["broker", address, "pid", pid] => {
                    let pid = pid.parse().with_context(|| format!("{line:?} names no process"))?;
                    cluster.brokers.push(KafkaBroker { address: address.to_owned(), pid });
                }
                ["ready", _] if !cluster.brokers.is_empty() => return Ok(cluster),
                _ => {}
            }
        }
        bail!("Kafka has not started; see its output above")
    }
}

impl Drop for KafkaBrokers {
    fn drop(&mut self) {
        // Closing its input ends it and the brokers.
        drop(self.xtask.stdin.take());
        drop(self.xtask.wait());
    }
}
