//! `millstream serve` as a process of its own: this very binary, its default configuration, a fresh directory.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, bail};

use super::process;
use crate::config::ENVIRONMENT_PREFIX;

/// A running server; ended when dropped.
#[derive(Debug)]
pub(crate) struct Served {
    child: Child,
    pub(crate) applications_url: String,
    pub(crate) devices_url: String,
}

impl Served {
    /// Starts a server on free ports; it listens when this returns.
    pub(crate) fn start(dir: &Path) -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("cannot tell where this program lies")?;
        let mut command = Command::new(&program);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with(ENVIRONMENT_PREFIX) {
                command.env_remove(name);
            }
        }
        // In a directory without a configuration file.
        command.current_dir(dir).arg("serve").arg("--data-dir").arg(dir.join("data"));
        command.args(["--listen-applications", "127.0.0.1:0", "--listen-devices-http", "127.0.0.1:0"]);
        command.args(["--listen-kafka", "127.0.0.1:0", "--listen-devices-mqtt", "127.0.0.1:0"]);
        let child = command.stdout(Stdio::piped()).spawn();
        let mut child = child.with_context(|| format!("cannot start {}", program.display()))?;
        let output = child.stdout.take().context("the server has no standard output")?;
        // Dropped, and thereby ended, if it does not come up.
        let mut served = Self { child, applications_url: String::new(), devices_url: String::new() };
        for line in BufReader::new(output).lines() {
            match line?.strip_prefix("listening ").and_then(|rest| rest.split_once(' ')) {
                Some(("applications", url)) => url.clone_into(&mut served.applications_url),
                Some(("devices-http", url)) => url.clone_into(&mut served.devices_url),
                _ => {}
            }
            if !served.applications_url.is_empty() && !served.devices_url.is_empty() {
                return Ok(served);
            }
        }
        bail!("the server has ended before it listened; what it said stands above")
    }

    /// Seconds of CPU time that it has used.
    pub(crate) fn cpu_s(&self) -> anyhow::Result<f64> {
        process::cpu_s(self.child.id())
    }

    /// Its resident memory in MiB.
    pub(crate) fn rss_mib(&self) -> anyhow::Result<f64> {
        process::rss_mib(self.child.id())
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // It may have ended by itself.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
