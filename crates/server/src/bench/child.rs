//! `millstream serve` as a process of its own: this very binary, its default configuration, a fresh directory.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};

use anyhow::{Context as _, bail};
use clap::Parser as _;
use hyper::Method;
use serde_json::json;

use super::cores::Cores;
use super::process;
use crate::client::Server;
use crate::config::ENVIRONMENT_PREFIX;

/// A running server; ended when dropped.
#[derive(Debug)]
pub(crate) struct Served {
    child: Child,
    pub(crate) applications_url: String,
    pub(crate) devices_url: String,
    /// HOST:PORT for Kafka clients.
    pub(crate) kafka: String,
    pub(crate) mqtt_url: String,
}

impl Served {
    /// Starts a server on free ports; it listens when this returns.
    pub(crate) fn start(dir: &Path) -> anyhow::Result<Self> {
        Self::start_on(dir, &Cores::shared())
    }

    /// The same on the server's core of `cores`.
    pub(crate) fn start_on(dir: &Path, cores: &Cores) -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("cannot tell where this program lies")?;
        let mut command = cores.server_command(&program);
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
        let [applications_url, devices_url, kafka, mqtt_url] = Default::default();
        let mut served = Self { child, applications_url, devices_url, kafka, mqtt_url };
        for line in BufReader::new(output).lines() {
            match line?.strip_prefix("listening ").and_then(|rest| rest.split_once(' ')) {
                Some(("applications", url)) => url.clone_into(&mut served.applications_url),
                Some(("devices-http", url)) => url.clone_into(&mut served.devices_url),
                Some(("kafka", address)) => address.clone_into(&mut served.kafka),
                Some(("devices-mqtt", url)) => url.clone_into(&mut served.mqtt_url),
                _ => {}
            }
            let known = [&served.applications_url, &served.devices_url, &served.kafka, &served.mqtt_url];
            if known.iter().all(|known| !known.is_empty()) {
                return Ok(served);
            }
        }
        bail!("the server has ended before it listened; what it said stands above")
    }

    /// Creates a topic of this level.
    pub(crate) fn create_topic(&self, topic: &str, partitions: u32, level: &str) -> anyhow::Result<()> {
        create_topic(&self.applications_url, topic, partitions, level)
    }

    /// Creates a topic in memory of this size.
    pub(crate) fn create_topic_in_memory(&self, topic: &str, partitions: u32, bytes: &str) -> anyhow::Result<()> {
        let settings =
            json!({ "partitions": partitions, "storage": "memory", "storage_bytes": bytes, "level": "memory" });
        put_topic(&self.applications_url, topic, &settings)
    }

    /// Its process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
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

#[derive(Debug, clap::Parser)]
struct Applications {
    #[command(flatten)]
    server: Server,
}

/// Creates a topic of this level in the server whose applications listener is at `url`.
pub(crate) fn create_topic(url: &str, topic: &str, partitions: u32, level: &str) -> anyhow::Result<()> {
    put_topic(url, topic, &json!({ "partitions": partitions, "level": level }))
}

fn put_topic(url: &str, topic: &str, settings: &serde_json::Value) -> anyhow::Result<()> {
    let Applications { server } = Applications::try_parse_from(["bench", "--server", url])?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let path = format!("/api/streams/{topic}");
    let answer = runtime.block_on(server.send(Method::PUT, &path, settings.to_string(), "application/json"))?;
    if !answer.status().is_success() {
        bail!("creating topic {topic} was answered with {}", answer.status());
    }
    Ok(())
}

impl Drop for Served {
    fn drop(&mut self) {
        // It may have ended by itself.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
