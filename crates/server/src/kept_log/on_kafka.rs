//! A log in Kafka, and the data directory beside it.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use millstream_log::{Error, Files as _, Lock, LogConfig, LogState, SystemFiles};
use millstream_log_kafka::{ActiveProcess, BrokerHealth, ClusterHealth, LogSource, OnKafka, Trouble, TroubleKind};
use millstream_types::{TopicName, TopicPartition};
use serde::Serialize;

use super::LogStart;
use crate::backups::log_id;

/// The file by which a process owns a data directory whose log is elsewhere.
const LOCK_FILE: &str = "lock";
/// The file with the id of a data directory. Another process with this id has ended, as one process at a time has the directory.
const NODE_FILE: &str = "node";

pub(crate) struct LogOnKafka {
    pub(crate) log: Arc<OnKafka>,
    /// Held as long as the directory is in use.
    _data_dir: Lock,
}

impl LogOnKafka {
    /// Opens the log, and waits until no other process works with it.
    pub(crate) fn open(data_dir: &Path, log: LogConfig, start: LogStart) -> anyhow::Result<Self> {
        let locked = lock(data_dir)?;
        let dir = log.dir.clone();
        let holds = || format!("log.engine = kafka, and {} holds a log of the built-in engine", dir.display());
        let source = match dir.exists() {
            false => None,
            true => {
                let state = LogState::of(&SystemFiles, &dir).with_context(holds)?;
                Some(LogSource { log: log_id(state.salt), epoch: state.epoch.0 })
            }
        };
        let was_moved = source.is_some();
        let log = OnKafka::open_telling(log, source, start.waits);
        let log = if was_moved { log.with_context(holds)? } else { log? };
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        start.claimed.on_kafka.get_or_init(|| Arc::downgrade(&log));
        log.take_over(ActiveProcess::new(node_of(data_dir)?, host))?;
        Ok(Self { log, _data_dir: locked })
    }

    pub(crate) fn health(&self) -> ClusterPart {
        let ClusterHealth { brokers, troubles, warnings } = self.log.health();
        ClusterPart {
            brokers: brokers.into_iter().map(BrokerPart::from).collect(),
            troubles: troubles.into_iter().map(TroublePart::from).collect(),
            warnings,
        }
    }
}

/// The cluster that keeps the log, as `/stats` shows it.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct ClusterPart {
    brokers: Vec<BrokerPart>,
    troubles: Vec<TroublePart>,
    /// Findings about the whole cluster, each with the broker, the rule and the remedy.
    warnings: Vec<String>,
}

/// A broker that belongs to the cluster.
#[derive(Debug, Clone, Serialize)]
struct BrokerPart {
    id: i32,
    /// `null` if it was away since this process began.
    address: Option<String>,
    /// Seconds for which it has not answered; `null` while it does.
    silent_s: Option<u64>,
}

/// A partition, or a writer, with which something is wrong.
#[derive(Debug, Clone, Serialize)]
struct TroublePart {
    #[serde(skip)]
    of: Option<TopicPartition>,
    /// `null` for a writer, and for partitions of the brokers' own.
    topic: Option<String>,
    partition: Option<u32>,
    kind: &'static str,
    /// The reason, and the remedy if there is one.
    why: String,
}

/// The kinds of trouble, each with its word in `/stats` and those for a number of them.
const KINDS: [(TroubleKind, &str, &str); 3] = [
    (TroubleKind::NoLeader, "no_leader", "partitions have no leader"),
    (TroubleKind::TooFewInSync, "too_few_in_sync", "partitions have too few in-sync replicas to store anything"),
    (TroubleKind::NotTaken, "not_taken", "partitions or writers take no records now"),
];

impl From<BrokerHealth> for BrokerPart {
    fn from(BrokerHealth { id, address, silence }: BrokerHealth) -> Self {
        Self { id, address, silent_s: silence.map(|silence| silence.as_secs()) }
    }
}

impl From<Trouble> for TroublePart {
    fn from(Trouble { kind, partition, why }: Trouble) -> Self {
        let kind = KINDS.iter().find(|(known, ..)| *known == kind).map_or("", |(_, word, _)| word);
        Self {
            topic: partition.as_ref().map(|partition| partition.topic.to_string()),
            partition: partition.as_ref().map(|partition| partition.partition.0),
            of: partition,
            kind,
            why,
        }
    }
}

impl ClusterPart {
    pub(super) fn line(&self) -> String {
        let answer = self.brokers.iter().filter(|broker| broker.silent_s.is_none()).count();
        format!("log: Apache Kafka, {answer} of {} brokers answer", self.brokers.len())
    }

    pub(super) fn degradations(&self) -> Vec<String> {
        let silent = self.brokers.iter().filter_map(|broker| {
            let name = broker.address.as_ref().map_or_else(String::new, |address| format!(" at {address}"));
            broker.silent_s.map(|silent_s| format!("log: broker {}{name} is silent for {silent_s} s", broker.id))
        });
        let counted = KINDS.iter().filter_map(|(_, word, of_many)| {
            let count = self.troubles.iter().filter(|trouble| trouble.kind == *word).count();
            (count > 0).then(|| format!("log: {count} {of_many}; /stats names them"))
        });
        silent.chain(counted).chain(self.warnings.iter().map(|warning| format!("log: {warning}"))).collect()
    }

    /// Keeps the troubles of topics that `is_told` allows; it is asked without a topic for those of writers.
    pub(super) fn retain_troubles(&mut self, is_told: impl Fn(Option<&TopicName>) -> bool) {
        self.troubles.retain(|trouble| is_told(trouble.of.as_ref().map(|partition| &partition.topic)));
    }
}

/// Takes a data directory for this process.
fn lock(data_dir: &Path) -> anyhow::Result<Lock> {
    std::fs::create_dir_all(data_dir).with_context(|| format!("cannot create {}", data_dir.display()))?;
    let file = data_dir.join(LOCK_FILE);
    match SystemFiles.lock(&file).with_context(|| format!("cannot lock {}", file.display()))? {
        Lock::Taken { by } => Err(Error::InUse { path: data_dir.to_owned(), pid: by }.into()),
        held => Ok(held),
    }
}

/// The id of a data directory, which is made with it.
fn node_of(data_dir: &Path) -> anyhow::Result<String> {
    let file = data_dir.join(NODE_FILE);
    match std::fs::read_to_string(&file) {
        Ok(id) if !id.trim().is_empty() => return Ok(id.trim().to_owned()),
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(error)
                .with_context(|| format!("cannot read {}; remove it, and another id is made", file.display()));
        }
        // An empty one is what a full disk or a loss of power has left.
        _ => {}
    }
    let id = ActiveProcess::new_node();
    std::fs::write(&file, format!("{id}\n")).with_context(|| format!("cannot write {}", file.display()))?;
    Ok(id)
}
