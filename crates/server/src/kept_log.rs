//! The log by the engine that the settings name: the built-in one, or Apache Kafka.

#[cfg(feature = "kafka")]
mod on_kafka;

use std::path::PathBuf;
use std::sync::Arc;
#[cfg(feature = "kafka")]
use std::sync::{OnceLock, Weak};

use anyhow::Context as _;
use millstream_connect::Connect;
use millstream_history::History;
use millstream_log::{Embedded, Log, LogConfig, LogEngine, LogFigures, SystemFiles};
use millstream_types::{SystemClock, TopicName};
use serde::Serialize;
use tokio::sync::watch;

#[cfg(feature = "kafka")]
use self::on_kafka::{ClusterPart, LogOnKafka};
use crate::config::Config;
#[cfg(feature = "kafka")]
use millstream_log_kafka::OnKafka;

/// The engine that keeps the log, and how it is.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "name", rename_all = "snake_case")]
pub(crate) enum EngineHealth {
    /// The built-in log.
    Embedded { dir: Option<String> },
    #[cfg(feature = "kafka")]
    Kafka(ClusterPart),
}

impl EngineHealth {
    /// The line of `/readyz` that says which engine keeps the log. The built-in one has none: anybody reads it, and its
    /// directory is nobody else's business.
    pub(crate) fn line(&self) -> Option<String> {
        match self {
            Self::Embedded { .. } => None,
            #[cfg(feature = "kafka")]
            Self::Kafka(cluster) => Some(cluster.line()),
        }
    }

    /// The lines of `/readyz` for an operator. They name no topic, as anybody reads them.
    pub(crate) fn degradations(&self) -> Vec<String> {
        match self {
            Self::Embedded { .. } => Vec::new(),
            #[cfg(feature = "kafka")]
            Self::Kafka(cluster) => cluster.degradations(),
        }
    }

    /// Leaves out what a caller may not see. `is_told` says so for a topic, and for the whole server without one.
    pub(crate) fn shown_to(mut self, is_told: impl Fn(Option<&TopicName>) -> bool) -> Self {
        match &mut self {
            Self::Embedded { dir } => *dir = dir.take().filter(|_| is_told(None)),
            #[cfg(feature = "kafka")]
            Self::Kafka(cluster) => cluster.retain_troubles(is_told),
        }
        self
    }
}

/// The start of a log, for those who wait for it.
pub(crate) struct LogStart {
    /// Tells the reason for which it takes long.
    pub(crate) waits: watch::Sender<Option<String>>,
    pub(crate) claimed: ClaimedLog,
}

/// The log of a server that starts, so that a stop leaves no other process waiting for it.
#[derive(Clone, Default)]
pub(crate) struct ClaimedLog {
    #[cfg(feature = "kafka")]
    on_kafka: Arc<OnceLock<Weak<OnKafka>>>,
}

impl ClaimedLog {
    /// Lets another process take over at once. Blocks on the cluster.
    pub(crate) fn give_up(&self) {
        #[cfg(feature = "kafka")]
        if let Some(Err(error)) = self.on_kafka.get().and_then(Weak::upgrade).map(|log| log.close()) {
            tracing::warn!(%error, "the next process may wait until this one counts as gone");
        }
    }
}

/// The log of this server.
pub(crate) enum KeptLog {
    Embedded {
        log: Arc<Embedded>,
        dir: PathBuf,
    },
    #[cfg(feature = "kafka")]
    OnKafka(LogOnKafka),
}

/// The settings of the log.
pub(crate) fn log_config(config: &Config) -> LogConfig {
    LogConfig {
        dir: config.data_dir.join("log"),
        derived: [History::derived_topics(), Connect::derived_topics()].concat(),
        guarded_words: vec![config.query.requests_topic.clone()],
        ..config.log.clone()
    }
}

impl KeptLog {
    /// Opens the log. The data directory is this process's own from now on.
    pub(crate) fn open(config: &Config, clock: &Arc<SystemClock>, start: LogStart) -> anyhow::Result<Self> {
        let log = log_config(config);
        match log.engine {
            LogEngine::Embedded => {
                drop((start.waits, start.claimed));
                let dir = log.dir.clone();
                let log = Embedded::open(log, Arc::new(SystemFiles), clock.clone(), clock.clone())?;
                Ok(Self::Embedded { log, dir })
            }
            #[cfg(feature = "kafka")]
            LogEngine::Kafka => Ok(Self::OnKafka(LogOnKafka::open(&config.data_dir, log, start)?)),
            #[cfg(not(feature = "kafka"))]
            LogEngine::Kafka => anyhow::bail!(
                "log.engine = kafka: this program was built without it; build it with --features kafka, or take log.engine = embedded"
            ),
        }
    }

    pub(crate) fn log(&self) -> Arc<dyn Log> {
        match self {
            Self::Embedded { log, .. } => log.clone(),
            #[cfg(feature = "kafka")]
            Self::OnKafka(kept) => kept.log.clone(),
        }
    }

    pub(crate) fn figures(&self) -> Arc<dyn LogFigures> {
        match self {
            Self::Embedded { log, .. } => log.clone(),
            #[cfg(feature = "kafka")]
            Self::OnKafka(kept) => kept.log.clone(),
        }
    }

    /// The engine, and how it is.
    pub(crate) fn health(&self) -> EngineHealth {
        match self {
            Self::Embedded { dir, .. } => EngineHealth::Embedded { dir: Some(dir.display().to_string()) },
            #[cfg(feature = "kafka")]
            Self::OnKafka(kept) => EngineHealth::Kafka(kept.health()),
        }
    }

    /// The built-in engine, if it keeps the log.
    pub(crate) fn embedded(&self) -> Option<&Arc<Embedded>> {
        match self {
            Self::Embedded { log, .. } => Some(log),
            #[cfg(feature = "kafka")]
            Self::OnKafka(_) => None,
        }
    }

    /// Resolves once another process has taken over; this one has nothing to write any more.
    pub(crate) async fn taken_over(&self) -> String {
        match self {
            Self::Embedded { .. } => std::future::pending().await,
            #[cfg(feature = "kafka")]
            Self::OnKafka(kept) => kept.log.taken_over().await.to_string(),
        }
    }

    /// Brings everything that was accepted to where it stays.
    pub(crate) fn close(&self) -> anyhow::Result<()> {
        let closed = match self {
            Self::Embedded { log, .. } => log.close(),
            #[cfg(feature = "kafka")]
            Self::OnKafka(kept) => kept.log.close(),
        };
        closed.context("the log was not closed cleanly; the next start recovers what is durable")
    }
}
