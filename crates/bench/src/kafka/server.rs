//! The two servers under test, and their CPU time and memory during a client run.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context as _;
use millstream_load::kafka::KafkaClient;

use super::brokers::KafkaBroker;
use super::client_result::ClientResult;
use super::workload::PARTITIONS;
use crate::process;
use crate::server_process::{self, ServerProcess};

/// Time after the last response in which CPU time still counts. It covers Millstream's move of records
/// from the journal to segments.
pub(super) const SETTLE: Duration = Duration::from_millis(2_500);
const KAFKA: &str = "Apache Kafka 4.1, one broker, defaults, 350 MiB heap";

#[derive(Debug)]
pub(super) struct ServerUnderTest {
    pub(super) described: String,
    pub(super) bootstrap: String,
    pub(super) address: SocketAddr,
    pid: u32,
    /// Millstream's applications listener, which sets the level of topics.
    applications_url: Option<String>,
}

/// A server under test with one of its topics.
#[derive(Debug)]
pub(super) struct Contestant<'a> {
    pub(super) name: &'static str,
    pub(super) side: &'a ServerUnderTest,
    pub(super) topic: String,
}

/// A client result with the CPU time and memory of the server.
#[derive(Debug, Clone)]
pub(super) struct ServerRun {
    pub(super) figures: ClientResult,
    pub(super) cpu_s_per_million: f64,
    pub(super) rss_mib: f64,
}

impl ServerUnderTest {
    pub(super) fn of_millstream(served: &ServerProcess) -> anyhow::Result<Self> {
        Ok(Self {
            described: "millstream serve, default configuration".to_owned(),
            bootstrap: served.kafka.clone(),
            address: served.kafka.parse().with_context(|| format!("{} is no address", served.kafka))?,
            pid: served.pid(),
            applications_url: Some(served.applications_url.clone()),
        })
    }

    pub(super) fn of_kafka(broker: &KafkaBroker) -> anyhow::Result<Self> {
        Ok(Self {
            described: KAFKA.to_owned(),
            bootstrap: broker.address.clone(),
            address: broker.address.parse().with_context(|| format!("{} is no address", broker.address))?,
            pid: broker.pid,
            applications_url: None,
        })
    }

    /// Creates a topic and returns the contestant. Only Millstream has a `level`.
    pub(super) fn with_topic(&self, name: &'static str, topic: &str, level: &str) -> anyhow::Result<Contestant<'_>> {
        let topic = format!("{topic}-{level}");
        match &self.applications_url {
            None => KafkaClient::connect(self.address)?.create_topic(&topic, PARTITIONS)?,
            Some(url) => server_process::create_topic(url, &topic, PARTITIONS, level)?,
        }
        Ok(Contestant { name, side: self, topic })
    }

    /// Runs `run` and measures the server meanwhile.
    pub(super) fn observe(&self, run: impl FnOnce() -> anyhow::Result<ClientResult>) -> anyhow::Result<ServerRun> {
        process::forget_peak(self.pid)?;
        let cpu_s = process::cpu_s(self.pid)?;
        let figures = run()?;
        std::thread::sleep(SETTLE);
        let cpu_s = process::cpu_s(self.pid)? - cpu_s;
        Ok(ServerRun {
            cpu_s_per_million: cpu_s / figures.records.max(1) as f64 * 1e6,
            rss_mib: process::rss_peak_mib(self.pid)?,
            figures,
        })
    }
}
