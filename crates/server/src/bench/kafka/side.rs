//! The two sides, and what is observed of them while a client is at work.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context as _;
use millstream_load::LatencyMs;
use millstream_load::kafka::Client;

use super::PARTITIONS;
use super::broker::Broker;
use crate::bench::child::{self, Served};
use crate::bench::process;

/// How long after the last answer a server's CPU time still counts: longer than Millstream leaves records in its journal
/// only, so that bringing them to their segments counts.
pub(super) const SETTLE: Duration = Duration::from_millis(2_500);
const KAFKA: &str = "Apache Kafka 4.1, one broker, defaults, 350 MiB heap";

/// A server under test.
#[derive(Debug)]
pub(super) struct Side {
    pub(super) described: String,
    pub(super) bootstrap: String,
    pub(super) address: SocketAddr,
    pid: u32,
    /// Millstream's applications listener, where topics get a level.
    applications_url: Option<String>,
}

/// One side with one of its topics.
#[derive(Debug)]
pub(super) struct Contestant<'a> {
    pub(super) name: &'static str,
    pub(super) side: &'a Side,
    pub(super) topic: String,
}

/// What a client tells.
#[derive(Debug, Clone)]
pub(super) struct Figures {
    pub(super) records: u64,
    pub(super) rate_per_s: f64,
    pub(super) latency_ms: Option<LatencyMs>,
    pub(super) errors: u64,
    pub(super) generator_bottleneck: bool,
}

/// The same with what the server needed for it.
#[derive(Debug, Clone)]
pub(super) struct Measured {
    pub(super) figures: Figures,
    pub(super) cpu_s_per_million: f64,
    pub(super) rss_mib: f64,
}

impl Side {
    pub(super) fn of_millstream(served: &Served) -> anyhow::Result<Self> {
        Ok(Self {
            described: "millstream serve, default configuration".to_owned(),
            bootstrap: served.kafka.clone(),
            address: served.kafka.parse().with_context(|| format!("{} is no address", served.kafka))?,
            pid: served.pid(),
            applications_url: Some(served.applications_url.clone()),
        })
    }

    pub(super) fn of_kafka(broker: &Broker) -> anyhow::Result<Self> {
        Ok(Self {
            described: KAFKA.to_owned(),
            bootstrap: broker.address.clone(),
            address: broker.address.parse().with_context(|| format!("{} is no address", broker.address))?,
            pid: broker.pid,
            applications_url: None,
        })
    }

    /// Takes part with a new topic. `level` is Millstream's; Kafka has none.
    pub(super) fn with_topic(&self, name: &'static str, topic: &str, level: &str) -> anyhow::Result<Contestant<'_>> {
        let topic = format!("{topic}-{level}");
        match &self.applications_url {
            None => Client::connect(self.address)?.create_topic(&topic, PARTITIONS)?,
            Some(url) => child::create_topic(url, &topic, PARTITIONS, level)?,
        }
        Ok(Contestant { name, side: self, topic })
    }

    /// What the server needs while `run` runs.
    pub(super) fn observe(&self, run: impl FnOnce() -> anyhow::Result<Figures>) -> anyhow::Result<Measured> {
        process::forget_peak(self.pid)?;
        let cpu_s = process::cpu_s(self.pid)?;
        let figures = run()?;
        std::thread::sleep(SETTLE);
        let cpu_s = process::cpu_s(self.pid)? - cpu_s;
        Ok(Measured {
            cpu_s_per_million: cpu_s / figures.records.max(1) as f64 * 1e6,
            rss_mib: process::rss_peak_mib(self.pid)?,
            figures,
        })
    }
}
