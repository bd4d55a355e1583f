//! `millstream serve` as a child process: this binary, the default configuration, an empty directory.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};

use anyhow::{Context as _, bail};
use millstream_load::JsonClient;
use serde_json::json;

use super::cores::Cores;
use super::process;

/// Prefix of environment variables that are hidden from the server.
const ENVIRONMENT_PREFIX: &str = "MILLSTREAM_";

/// A running server; ended when dropped.
#[derive(Debug)]
pub(crate) struct ServerProcess {
    child: Child,
    pub(crate) applications_url: String,
    pub(crate) devices_url: String,
    /// Address HOST:PORT for Kafka clients; empty if the log is in Apache Kafka.
    pub(crate) kafka: String,
    pub(crate) mqtt_url: String,
    /// Address HOST:PORT for clients of the Redis protocol.
    pub(crate) redis: String,
    /// URL of the devices' HTTP listener over TLS; empty without TLS.
    pub(crate) devices_tls_url: String,
    /// URL of the devices' MQTT listener over TLS; empty without TLS.
    pub(crate) mqtt_tls_url: String,
}

impl ServerProcess {
    /// Starts a server on free ports; it listens when this returns.
    pub(crate) fn start(dir: &Path) -> anyhow::Result<Self> {
        Self::start_on(dir, &Cores::shared())
    }

    /// Starts a server on the server core of `cores`.
    pub(crate) fn start_on(dir: &Path, cores: &Cores) -> anyhow::Result<Self> {
        Self::start_with(dir, cores, &[])
    }

    /// Starts a server that devices also reach over TLS, with this certificate and key.
    pub(crate) fn start_with_tls(dir: &Path, cores: &Cores, certificate: &Path, key: &Path) -> anyhow::Result<Self> {
        let listeners = ["--listen-devices-http-tls", "127.0.0.1:0", "--listen-devices-mqtt-tls", "127.0.0.1:0"];
        let arguments = listeners.map(OsStr::new).into_iter().chain([
            OsStr::new("--tls-certificate"),
            certificate.as_os_str(),
            OsStr::new("--tls-key"),
            key.as_os_str(),
            // openssl resets each connection as soon as it has shaken hands, of which the log tells.
            OsStr::new("--set"),
            OsStr::new("logging.level=error"),
        ]);
        Self::start_with(dir, cores, &arguments.collect::<Vec<_>>())
    }

    /// Starts a server whose log is in Apache Kafka.
    pub(crate) fn start_on_kafka(dir: &Path, cores: &Cores, brokers: &[&str]) -> anyhow::Result<Self> {
        let brokers = format!("log.kafka.brokers={}", json!(brokers));
        Self::start_with(dir, cores, &["--set", "log.engine=kafka", "--set", &brokers].map(OsStr::new))
    }

    fn start_with(dir: &Path, cores: &Cores, arguments: &[&OsStr]) -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("cannot tell where this program lies")?;
        let mut command = cores.server_command(&program);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with(ENVIRONMENT_PREFIX) {
                command.env_remove(name);
            }
        }
        // This directory has no configuration file.
        command.current_dir(dir).arg("serve").arg("--data-dir").arg(dir.join("data"));
        command.args(["--listen-applications", "127.0.0.1:0", "--listen-devices-http", "127.0.0.1:0"]);
        command.args(["--listen-kafka", "127.0.0.1:0", "--listen-devices-mqtt", "127.0.0.1:0"]);
        command.args(["--listen-redis", "127.0.0.1:0"]).args(arguments);
        let child = command.stdout(Stdio::piped()).spawn();
        let mut child = child.with_context(|| format!("cannot start {}", program.display()))?;
        let output = child.stdout.take().context("the server has no standard output")?;
        // Dropping it ends the process if it does not start.
        let [applications_url, devices_url, kafka, mqtt_url, redis] = Default::default();
        let [devices_tls_url, mqtt_tls_url] = Default::default();
        let mut server =
            Self { child, applications_url, devices_url, kafka, mqtt_url, redis, devices_tls_url, mqtt_tls_url };
        for line in BufReader::new(output).lines() {
            match line?.strip_prefix("listening ").and_then(|rest| rest.split_once(' ')) {
                Some(("applications", url)) => url.clone_into(&mut server.applications_url),
                Some(("devices-http", url)) => url.clone_into(&mut server.devices_url),
                Some(("kafka", address)) => address.clone_into(&mut server.kafka),
                Some(("devices-mqtt", url)) => url.clone_into(&mut server.mqtt_url),
                // They come before that of Redis.
                Some(("devices-http-tls", url)) => url.clone_into(&mut server.devices_tls_url),
                Some(("devices-mqtt-tls", url)) => url.clone_into(&mut server.mqtt_tls_url),
                Some(("redis", url)) => url.trim_start_matches("redis://").clone_into(&mut server.redis),
                _ => {}
            }
            // The listener for Kafka's clients, which not every server has, comes before that of Redis, which is the last.
            let Self { applications_url, devices_url, mqtt_url, redis, .. } = &server;
            let known = [applications_url, devices_url, mqtt_url, redis];
            if known.iter().all(|known| !known.is_empty()) {
                return Ok(server);
            }
        }
        bail!("the server ended before it listened; see its output above")
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

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the CPU time of the server in seconds.
    pub(crate) fn cpu_s(&self) -> anyhow::Result<f64> {
        process::cpu_s(self.child.id())
    }

    /// Returns the resident memory of the server in MiB.
    pub(crate) fn rss_mib(&self) -> anyhow::Result<f64> {
        process::rss_mib(self.child.id())
    }
}

/// Creates a topic of this level in the server whose applications listener is at `url`.
pub(crate) fn create_topic(url: &str, topic: &str, partitions: u32, level: &str) -> anyhow::Result<()> {
    put_topic(url, topic, &json!({ "partitions": partitions, "level": level }))
}

fn put_topic(url: &str, topic: &str, settings: &serde_json::Value) -> anyhow::Result<()> {
    let address = url.trim_start_matches("http://").parse().with_context(|| format!("{url} is no address"))?;
    JsonClient::connect(address)?.send("PUT", &format!("/api/streams/{topic}"), settings)?;
    Ok(())
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // The process may have ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
