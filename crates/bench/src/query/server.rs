//! The server under test and its topic in memory.

use std::net::SocketAddr;

use anyhow::Context as _;

use crate::server_process::ServerProcess;

pub(super) const PARTITIONS: u32 = 2;
pub(super) const TOPIC: &str = "bench";
/// The memory of each partition, in which records stay.
const TOPIC_BYTES: &str = "64MiB";

/// A server process with the topic of the suite.
pub(super) struct QueryServer {
    pub(super) server: ServerProcess,
    pub(super) applications: SocketAddr,
    pub(super) kafka: SocketAddr,
    _dir: tempfile::TempDir,
}

impl QueryServer {
    pub(super) fn open() -> anyhow::Result<Self> {
        let dir = tempfile::tempdir().context("cannot make a temporary directory")?;
        let server = ServerProcess::start(dir.path())?;
        server.create_topic_in_memory(TOPIC, PARTITIONS, TOPIC_BYTES)?;
        let kafka = server.kafka.parse().with_context(|| format!("{} is no address", server.kafka))?;
        let url = server.applications_url.trim_start_matches("http://").trim_end_matches('/');
        let applications = url.parse().with_context(|| format!("{url} is no address"))?;
        Ok(Self { server, applications, kafka, _dir: dir })
    }
}
