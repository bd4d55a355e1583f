//! The log under a plane's tests: the built-in engine, or Apache Kafka if the environment asks for it.
//!
//! `MILLSTREAM_TEST_ENGINE=kafka` gives each directory topics of its own in one cluster, which starts with the first of them and
//! ends with the test program. A directory that is opened again has its topics again; once it is gone, they are deleted. The
//! cluster has one broker, or `MILLSTREAM_TEST_BROKERS`: then all of them have every record, and two at least before it is
//! acknowledged.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use millstream_log::{Embedded, Error, Files, Log, LogConfig, LogFigures};
use millstream_log_kafka::OnKafka;
use millstream_types::SystemClock;
use parking_lot::Mutex;

use crate::RealKafka;

/// The variable that tells a child process the brokers and the prefix of its parent's topics.
const OF_PARENT: &str = "MILLSTREAM_TEST_TOPICS";

/// A log in a directory.
pub struct TestLog {
    figures: Arc<dyn LogFigures>,
    engine: TestEngine,
}

enum TestEngine {
    Embedded(Arc<Embedded>),
    OnKafka(Arc<OnKafka>),
}

/// `true` if tests run on Apache Kafka.
pub fn runs_on_kafka() -> bool {
    std::env::var("MILLSTREAM_TEST_ENGINE").is_ok_and(|engine| engine == "kafka")
}

/// `true` if servers have a listener for Kafka's clients. Where Kafka keeps the log, these speak to its brokers.
pub fn has_kafka_listener() -> bool {
    !runs_on_kafka()
}

impl TestLog {
    /// Opens the log in `config.dir`, by the clock of the machine.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn open(config: LogConfig, files: Arc<dyn Files>) -> Result<Self, Error> {
        if runs_on_kafka() {
            let config = match std::env::var(OF_PARENT) {
                Ok(place) => of_parent(config, &place),
                Err(_) => {
                    let prefix = prefix_of(&config.dir);
                    on_shared_cluster(config, prefix)
                }
            };
            let log = OnKafka::open(config)?;
            return Ok(Self { figures: log.clone(), engine: TestEngine::OnKafka(log) });
        }
        let clock = Arc::new(SystemClock::default());
        let log = Embedded::open(config, files, clock.clone(), clock)?;
        Ok(Self { figures: log.clone(), engine: TestEngine::Embedded(log) })
    }

    /// The log.
    pub fn log(&self) -> Arc<dyn Log> {
        self.figures.clone()
    }

    /// The log with its figures.
    pub fn figures(&self) -> Arc<dyn LogFigures> {
        self.figures.clone()
    }

    /// Closes the log in order.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn close(&self) -> Result<(), Error> {
        match &self.engine {
            TestEngine::Embedded(log) => log.close(),
            TestEngine::OnKafka(log) => log.close(),
        }
    }
}

impl Deref for TestLog {
    type Target = dyn LogFigures;

    fn deref(&self) -> &Self::Target {
        &*self.figures
    }
}

/// The arguments of a server whose log is in the shared cluster, with the topics of a data directory.
pub fn kafka_arguments(data_dir: &Path) -> Vec<String> {
    let config = on_shared_cluster(LogConfig::default(), prefix_of(data_dir));
    let brokers = config.kafka.brokers.iter().map(|broker| format!("{broker:?}")).collect::<Vec<_>>().join(",");
    let settings = [
        "log.engine=kafka".to_owned(),
        format!("log.kafka.brokers=[{brokers}]"),
        format!("log.kafka.prefix={:?}", config.kafka.prefix),
        format!("log.kafka.replication_factor={}", config.kafka.replication_factor),
        format!("log.kafka.min_insync_replicas={}", config.kafka.min_insync_replicas),
    ];
    settings.into_iter().flat_map(|setting| ["--set".to_owned(), setting]).collect()
}

/// The variable with which a child process opens the log of a directory of this process: none on the built-in engine.
pub fn environment_of_child(dir: &Path) -> Option<(&'static str, String)> {
    let config = runs_on_kafka().then(|| on_shared_cluster(LogConfig::default(), prefix_of(dir)))?;
    Some((OF_PARENT, format!("{} {}", config.kafka.brokers.join(","), config.kafka.prefix)))
}

fn of_parent(config: LogConfig, place: &str) -> LogConfig {
    let (brokers, prefix) = place.split_once(' ').expect("it has brokers and a prefix");
    on_cluster(config, brokers.split(',').map(str::to_owned).collect(), prefix.to_owned())
}

fn on_shared_cluster(config: LogConfig, prefix: String) -> LogConfig {
    static CLUSTER: OnceLock<RealKafka> = OnceLock::new();
    let cluster = CLUSTER.get_or_init(RealKafka::of_environment);
    on_cluster(config, cluster.brokers().iter().map(|broker| broker.address.clone()).collect(), prefix)
}

fn on_cluster(mut config: LogConfig, brokers: Vec<String>, prefix: String) -> LogConfig {
    let replicas = brokers.len() as u16;
    (config.kafka.brokers, config.kafka.prefix) = (brokers, prefix);
    (config.kafka.replication_factor, config.kafka.min_insync_replicas) = (replicas, replicas.min(2));
    config
}

/// The prefix of the topics of a directory; those of directories that are gone are deleted.
fn prefix_of(dir: &Path) -> String {
    static KNOWN: Mutex<Vec<(PathBuf, String)>> = Mutex::new(Vec::new());
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // A directory that is not there yet is not one that is gone.
    dir.parent().into_iter().for_each(|above| std::fs::create_dir_all(above).unwrap());
    let (prefix, gone) = {
        let mut known = KNOWN.lock();
        let gone: Vec<String> = known.extract_if(.., |(dir, _)| is_gone(dir)).map(|(_, prefix)| prefix).collect();
        let prefix = match known.iter().find(|(of, _)| of == dir) {
            Some((_, prefix)) => prefix.clone(),
            None => {
                let prefix = format!("t{}.", NEXT.fetch_add(1, Ordering::Relaxed));
                known.push((dir.to_owned(), prefix.clone()));
                prefix
            }
        };
        (prefix, gone)
    };
    if !gone.is_empty() {
        std::thread::spawn(move || gone.into_iter().for_each(delete_topics));
    }
    prefix
}

/// `true` once the directory above, which a test has for itself, is gone: the log's own may not be there at all.
fn is_gone(dir: &Path) -> bool {
    !dir.exists() && dir.parent().is_none_or(|above| !above.exists() || above == std::env::temp_dir())
}

/// Deletes the topics of a prefix. One that stays does no harm.
fn delete_topics(prefix: String) {
    let Ok(log) = OnKafka::open(on_shared_cluster(LogConfig::default(), prefix)) else { return };
    for topic in log.topics().iter().rev() {
        let _ = log.delete_topic(&topic.name);
    }
}
