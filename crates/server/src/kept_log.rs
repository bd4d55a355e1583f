//! The log by the engine that the settings name: the built-in one, or Apache Kafka.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use millstream_connect::Connect;
use millstream_history::History;
use millstream_log::{Embedded, Files as _, Lock, Log, LogConfig, LogEngine, LogFigures, SystemFiles};
#[cfg(feature = "kafka")]
use millstream_log_kafka::{ActiveProcess, OnKafka};
use millstream_types::SystemClock;

use crate::config::Config;

/// The file by which a process owns a data directory whose log is elsewhere.
const LOCK_FILE: &str = "lock";
/// The file with the id of a data directory. Another process with this id has ended, as one process at a time has the directory.
const NODE_FILE: &str = "node";

/// The log of this server.
pub(crate) enum KeptLog {
    Embedded(Arc<Embedded>),
    #[cfg(feature = "kafka")]
    OnKafka(LogOnKafka),
}

/// A log in Kafka, and the data directory beside it.
#[cfg(feature = "kafka")]
pub(crate) struct LogOnKafka {
    log: Arc<OnKafka>,
    /// Held as long as the directory is in use.
    _data_dir: Lock,
}

impl KeptLog {
    /// Opens the log. The data directory is this process's own from now on.
    pub(crate) fn open(config: &Config, clock: &Arc<SystemClock>) -> anyhow::Result<Self> {
        let derived = [History::derived_topics(), Connect::derived_topics()].concat();
        let log = LogConfig {
            dir: config.data_dir.join("log"),
            derived,
            guarded_words: vec![config.query.requests_topic.clone()],
            ..config.log.clone()
        };
        match log.engine {
            LogEngine::Embedded => {
                let log = Embedded::open(log, Arc::new(SystemFiles), clock.clone(), clock.clone())?;
                Ok(Self::Embedded(log))
            }
            #[cfg(feature = "kafka")]
            LogEngine::Kafka => {
                if log.dir.exists() {
                    bail!(
                        "log.engine = kafka, and {} holds a log of the built-in engine; choose another --data-dir, or log.engine = embedded",
                        log.dir.display()
                    );
                }
                let data_dir = lock(&config.data_dir)?;
                let log = OnKafka::open(log)?;
                log.take_over(ActiveProcess::new(node_of(&config.data_dir)?, host()))?;
                Ok(Self::OnKafka(LogOnKafka { log, _data_dir: data_dir }))
            }
            #[cfg(not(feature = "kafka"))]
            LogEngine::Kafka => bail!(
                "log.engine = kafka: this program was built without it; build it with --features kafka, or take log.engine = embedded"
            ),
        }
    }

    pub(crate) fn log(&self) -> Arc<dyn Log> {
        match self {
            Self::Embedded(log) => log.clone(),
            #[cfg(feature = "kafka")]
            Self::OnKafka(kept) => kept.log.clone(),
        }
    }

    pub(crate) fn figures(&self) -> Arc<dyn LogFigures> {
        match self {
            Self::Embedded(log) => log.clone(),
            #[cfg(feature = "kafka")]
            Self::OnKafka(kept) => kept.log.clone(),
        }
    }

    /// The built-in engine, if it keeps the log.
    pub(crate) fn embedded(&self) -> Option<&Arc<Embedded>> {
        match self {
            Self::Embedded(log) => Some(log),
            #[cfg(feature = "kafka")]
            Self::OnKafka(_) => None,
        }
    }

    /// Resolves once another process has taken over; this one has nothing to write any more.
    pub(crate) async fn taken_over(&self) -> String {
        match self {
            Self::Embedded(_) => std::future::pending().await,
            #[cfg(feature = "kafka")]
            Self::OnKafka(kept) => kept.log.taken_over().await.to_string(),
        }
    }

    /// Brings everything that was accepted to where it stays.
    pub(crate) fn close(&self) -> anyhow::Result<()> {
        let closed = match self {
            Self::Embedded(log) => log.close(),
            #[cfg(feature = "kafka")]
            Self::OnKafka(kept) => kept.log.close(),
        };
        closed.context("the log was not closed cleanly; the next start recovers what is durable")
    }
}

/// The id of a data directory, which is made with it.
#[cfg(feature = "kafka")]
fn node_of(data_dir: &Path) -> anyhow::Result<String> {
    let file = data_dir.join(NODE_FILE);
    let unusable = || format!("cannot read {}; remove it, and another id is made", file.display());
    match std::fs::read_to_string(&file) {
        Ok(id) => Ok(id.trim().to_owned()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let id = ActiveProcess::new_node();
            std::fs::write(&file, format!("{id}\n")).with_context(|| format!("cannot write {}", file.display()))?;
            Ok(id)
        }
        Err(error) => Err(error).with_context(unusable),
    }
}

/// The name of this machine.
#[cfg(feature = "kafka")]
fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Takes a data directory for this process.
#[cfg(feature = "kafka")]
fn lock(data_dir: &Path) -> anyhow::Result<Lock> {
    std::fs::create_dir_all(data_dir).with_context(|| format!("cannot create {}", data_dir.display()))?;
    let file = data_dir.join(LOCK_FILE);
    match SystemFiles.lock(&file).with_context(|| format!("cannot lock {}", file.display()))? {
        Lock::Taken { by } => Err(millstream_log::Error::InUse { path: data_dir.to_owned(), pid: by }.into()),
        held => Ok(held),
    }
}
