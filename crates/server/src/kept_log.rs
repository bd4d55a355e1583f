//! The log by the engine that the settings name: the built-in one, or Apache Kafka.

#[cfg(feature = "kafka")]
mod on_kafka;

use std::sync::Arc;

use anyhow::Context as _;
use millstream_connect::Connect;
use millstream_history::History;
use millstream_log::{Embedded, Log, LogConfig, LogEngine, LogFigures, SystemFiles};
use millstream_types::SystemClock;

#[cfg(feature = "kafka")]
use self::on_kafka::LogOnKafka;
use crate::config::Config;

/// The log of this server.
pub(crate) enum KeptLog {
    Embedded(Arc<Embedded>),
    #[cfg(feature = "kafka")]
    OnKafka(LogOnKafka),
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
            LogEngine::Kafka => Ok(Self::OnKafka(LogOnKafka::open(&config.data_dir, log)?)),
            #[cfg(not(feature = "kafka"))]
            LogEngine::Kafka => anyhow::bail!(
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
