//! A real broker of Apache Kafka, started by `cargo xtask kafka` and ended with this program.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};

use anyhow::{Context as _, bail};

use super::tools::Tools;

/// A running broker; ended when dropped.
#[derive(Debug)]
pub(super) struct KafkaBroker {
    xtask: Child,
    pub(super) address: String,
    pub(super) pid: u32,
}

impl KafkaBroker {
    /// Starts a broker with its data under `dir`; it serves when this returns.
    pub(super) fn start(tools: &Tools, dir: &Path) -> anyhow::Result<Self> {
        let mut command = tools.xtask();
        command.args(["kafka", "--brokers", "1", "--port", "0", "--end-with-input", "--dir"]).arg(dir);
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut xtask = child.context("cannot start a Kafka")?;
        let output = xtask.stdout.take().context("the program that starts Kafka has no standard output")?;
        let mut broker = Self { xtask, address: String::new(), pid: 0 };
        for line in BufReader::new(output).lines() {
            let line = line?;
            match line.split(' ').collect::<Vec<_>>()[..] {
                ["broker", address, "pid", pid] => {
                    address.clone_into(&mut broker.address);
                    broker.pid = pid.parse().with_context(|| format!("{line:?} names no process"))?;
                }
                ["ready", _] if broker.pid != 0 => return Ok(broker),
                _ => {}
            }
        }
        bail!("Kafka has not started; see its output above")
    }
}

impl Drop for KafkaBroker {
    fn drop(&mut self) {
        // Closing its input ends it and the broker.
        drop(self.xtask.stdin.take());
        drop(self.xtask.wait());
    }
}
