//! Moves a log of the built-in engine to Kafka, with all offsets and ids.
//!
//! ```text
//!   record "begun" ─► topics that keep everything ─► copy ─► compare ─► offsets, "checked" ─► settings, positions ─► "finished"
//! ```
//!
//! Kafka numbers the records without the gaps of the log; the map of each partition ([`crate::offset_map`]) gives them their
//! offsets. A partition is copied in the order of its records, so the number of those that are there says where to go on.
//!
//! Invariants
//! - The log is only read.
//! - While it is not finished, no server starts on it, and Kafka removes none of its records.

mod check;
mod copy;
mod groups;
mod record;
mod stored;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use kafka_protocol::messages::metadata_response::MetadataResponseTopic;
use millstream_log::{Cleanup, ClosedLog, Error, LogConfig, Storage, Topic, TopicConfig};
use millstream_types::{MIGRATION, Offset, PartitionId, TOPICS, TopicPartition};
use tokio::runtime::Runtime;
use tokio::sync::watch;

pub use self::groups::GroupRefusal;
pub use self::record::LogSource;
pub(crate) use self::record::found;
use self::record::{MigrationRecord, MigrationRecords};
use crate::config::EngineConfig;
use crate::core::{Core, new_runtime};
use crate::migrated::{MigratedTopic, PartitionOrigin};
use crate::offset_map::{OffsetMap, OffsetMapBuilder};
use crate::partition_state::PartitionState;
use crate::topic_admin::{self, CreationRefusal, TopicChange};
use crate::topic_settings;
use crate::topic_state::TopicState;
use crate::{catalogue, fitness, positions, producing, topic_watch};

/// Partitions that are copied or compared at a time.
const WORKERS: usize = 4;
/// No time of a record is too early or too late.
const ANY_TIME: &str = "9223372036854775807";
/// Records may be larger than a topic takes now. As much as brokers take in one request by default.
const BATCH_MAX_BYTES: &str = "104857600";
/// Settings of a topic while it is copied, which it loses afterwards unless its configuration has them.
const ONLY_MEANWHILE: [&str; 4] =
    ["retention.ms", "retention.bytes", "message.timestamp.before.max.ms", "message.timestamp.after.max.ms"];

/// The progress of a migration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MigrationStep {
    /// Records were copied, or found to be there; the bytes are those of the log.
    Copied {
        /// Number of records.
        records: u64,
        /// Their bytes in the log.
        bytes: u64,
    },
    /// Records were read from Kafka and are those of the log.
    Compared {
        /// Number of records.
        records: u64,
        /// Their bytes in the log.
        bytes: u64,
    },
}

/// A cluster to which a log is moved.
#[derive(Debug)]
pub struct Migration {
    core: Arc<Core>,
    records: MigrationRecords,
    record: MigrationRecord,
    is_resumed: bool,
    /// Ends the tasks when it is dropped.
    runtime: Option<Runtime>,
}

/// A topic of the log, and its copy.
struct CopiedTopic<'a> {
    topic: &'a Topic,
    kafka_name: String,
    found: MetadataResponseTopic,
    partitions: Vec<Arc<PartitionState>>,
}

impl Migration {
    /// Connects to the cluster, and begins the migration of `log` or goes on with it.
    ///
    /// # Errors
    /// Those of [`crate::OnKafka::open`]; [`Error::Unfit`] if the cluster has topics of an installation with this prefix, or an
    /// unfinished migration of another log.
    pub fn begin(config: LogConfig, log: &ClosedLog, source: &LogSource) -> Result<Self, Error> {
        let config = EngineConfig::new(config)?;
        let runtime = new_runtime(&config)?;
        let core = Core::new(config, watch::Sender::default(), runtime.handle().clone());
        core.spawn(producing::run(Arc::clone(&core)));
        let names: Vec<String> =
            log.topics().map(|topic| core.names.in_kafka(&topic.name)).collect::<Result<_, _>>()?;
        let (core_of_task, source) = (Arc::clone(&core), source.clone());
        let (records, record, is_resumed) = core.wait(async move {
            let core = core_of_task;
            fitness::check(&core).await?;
            if let Some((_, Some(known))) = found(&core).await? {
                known.check_source(&core, &source)?;
                return Ok((MigrationRecords::open(&core).await?, known, true));
            }
            check_empty(&core, &names).await?;
            let records = MigrationRecords::open(&core).await?;
            let begun = MigrationRecord { source: source.clone(), is_checked: false, is_finished: false };
            match records.claim(&core, &begun).await? {
                Some(other) => other.check_source(&core, &source).map(|()| (records, other, true)),
                None => Ok((records, begun, false)),
            }
        })?;
        Ok(Self { core, records, record, is_resumed, runtime: Some(runtime) })
    }

    /// `true` if the whole log was moved by an earlier run.
    pub fn is_finished(&self) -> bool {
        self.record.is_finished
    }

    /// `true` if an earlier run has begun it.
    pub fn is_resumed(&self) -> bool {
        self.is_resumed
    }

    /// Moves what is left of the log. Blocks on the disk and on the cluster.
    ///
    /// `group_ids` gives a group of the log whose members speak Kafka its id there. Returns those whose positions the brokers
    /// have refused; the positions of all groups are there for Millstream's readers.
    ///
    /// # Errors
    /// Those of the log and of the cluster; [`Error::Unfit`] if records in Kafka differ from those of the log.
    pub fn run(
        mut self,
        log: &ClosedLog,
        group_ids: fn(&str) -> Option<String>,
        told: &(dyn Fn(MigrationStep) + Sync),
    ) -> Result<Vec<GroupRefusal>, Error> {
        if self.record.is_finished {
            return Ok(Vec::new());
        }
        if !self.record.is_checked {
            let core = Arc::clone(&self.core);
            self.core.wait(async move { topic_watch::create_catalogue(&core).await })?;
            let topics = log.topics().map(|topic| self.topic(topic)).collect::<Result<Vec<_>, _>>()?;
            let origins = self.copy(log, &topics, told)?;
            self.compare(log, &topics, &origins, told)?;
            self.keep_offsets(topics, origins)?;
            self.note(|record| record.is_checked = true)?;
        }
        let refused = self.finish(log, group_ids)?;
        self.note(|record| record.is_finished = true)?;
        Ok(refused)
    }

    fn note(&mut self, change: impl FnOnce(&mut MigrationRecord)) -> Result<(), Error> {
        change(&mut self.record);
        let (core, records, record) = (Arc::clone(&self.core), self.records.clone(), self.record.clone());
        self.core.wait(async move { records.write(&core, &record).await })
    }

    /// Creates the copy of a topic, or finds it.
    fn topic<'a>(&self, topic: &'a Topic) -> Result<CopiedTopic<'a>, Error> {
        let kafka_name = self.core.names.in_kafka(&topic.name)?;
        let settings = match topic.config.storage {
            Storage::Disk => keeping_everything(&topic.config, &self.core.config),
            Storage::Memory { .. } => settings(&topic.config, &self.core.config),
        };
        let (core, name, partitions) = (Arc::clone(&self.core), kafka_name.clone(), topic.config.partitions);
        let found = self.core.wait(async move {
            match topic_admin::create_with(&core, &name, partitions, settings).await {
                Ok(()) | Err(CreationRefusal::Exists) => topic_admin::settled(&core, &name, partitions).await,
                Err(CreationRefusal::Error(error)) => Err(error),
            }
        })?;
        let as_in_kafka = |number| (PartitionId(number), PartitionOrigin::none(Offset::ZERO));
        let partitions = (0..topic.config.partitions).map(as_in_kafka).collect();
        let partitions = self.states(topic, &kafka_name, &found, partitions);
        Ok(CopiedTopic { topic, kafka_name, found, partitions })
    }

    /// The partitions of a copy, whose offsets are these.
    fn states(
        &self,
        topic: &Topic,
        kafka_name: &str,
        found: &MetadataResponseTopic,
        partitions: BTreeMap<PartitionId, PartitionOrigin>,
    ) -> Vec<Arc<PartitionState>> {
        let migrated = Some(Arc::new(MigratedTopic { id: topic.id, partitions }));
        let (name, config) = (topic.name.clone(), topic.config.clone());
        let state = TopicState::migrated(kafka_name.to_owned(), found.topic_id, name, config, migrated);
        state.lead(found);
        state.partitions()
    }

    /// Copies all partitions. Returns their pasts, by topic.
    fn copy(
        &self,
        log: &ClosedLog,
        topics: &[CopiedTopic<'_>],
        told: &(dyn Fn(MigrationStep) + Sync),
    ) -> Result<Vec<BTreeMap<PartitionId, PartitionOrigin>>, Error> {
        let work = topics.iter().enumerate().flat_map(|(index, topic)| {
            topic.partitions.iter().map(move |partition| (index, topic.topic.config.storage, partition))
        });
        let work: Vec<_> = work.collect();
        let copied = in_parallel(&work, |(index, storage, partition)| {
            let closed = log.partition(&partition.id)?;
            let map = match storage {
                // A start leaves nothing of a topic in memory.
                Storage::Memory { .. } => OffsetMapBuilder::new(closed.tail).finish(closed.tail),
                Storage::Disk => copy::partition(&self.core, log, partition, told)?,
            };
            Ok((*index, partition.id.partition, PartitionOrigin::of(map, &closed)))
        })?;
        let mut origins = vec![BTreeMap::new(); topics.len()];
        for (index, partition, origin) in copied {
            origins[index].insert(partition, origin);
        }
        Ok(origins)
    }

    /// Reads all partitions as a server will read them.
    fn compare(
        &self,
        log: &ClosedLog,
        topics: &[CopiedTopic<'_>],
        origins: &[BTreeMap<PartitionId, PartitionOrigin>],
        told: &(dyn Fn(MigrationStep) + Sync),
    ) -> Result<(), Error> {
        let on_disk = topics.iter().zip(origins).filter(|(topic, _)| topic.topic.config.storage == Storage::Disk);
        let work = on_disk
            .flat_map(|(topic, origins)| self.states(topic.topic, &topic.kafka_name, &topic.found, origins.clone()));
        let work: Vec<_> = work.collect();
        in_parallel(&work, |partition| check::partition(&self.core, log, partition, told)).map(drop)
    }

    /// Stores the ids and offsets of the topics.
    fn keep_offsets(
        &self,
        topics: Vec<CopiedTopic<'_>>,
        origins: Vec<BTreeMap<PartitionId, PartitionOrigin>>,
    ) -> Result<(), Error> {
        for (topic, partitions) in topics.iter().zip(origins) {
            let migrated = MigratedTopic { id: topic.topic.id, partitions };
            let (core, records, id) = (Arc::clone(&self.core), self.records.clone(), topic.found.topic_id);
            self.core.wait(async move { records.write_topic(&core, id, &migrated).await })?;
        }
        Ok(())
    }

    /// Gives the topics their settings, and groups their positions.
    fn finish(&self, log: &ClosedLog, group_ids: fn(&str) -> Option<String>) -> Result<Vec<GroupRefusal>, Error> {
        let topics: Vec<Topic> = log.topics().cloned().collect();
        let known = log.positions();
        let core = Arc::clone(&self.core);
        self.core.wait(async move {
            topic_watch::create_catalogue(&core).await?;
            positions::create(&core).await?;
            let (migrated, _) = found(&core).await?.unwrap_or_default();
            let refused = groups::commit(&core, &known, group_ids, &migrated).await?;
            positions::keep(&core, known).await?;
            let own = Topic { id: millstream_types::TopicId(0), name: record::topic_name(), config: record::config() };
            catalogue::write(&core, &core.names.internal(MIGRATION.name), Some(&own)).await?;
            for topic in topics {
                let kafka_name = core.names.in_kafka(&topic.name)?;
                catalogue::write(&core, &kafka_name, Some(&topic)).await?;
                let wanted = settings(&topic.config, &core.config);
                let is_left = |name: &&str| !wanted.iter().any(|(wanted, _)| wanted == name);
                let left = ONLY_MEANWHILE.into_iter().filter(is_left).map(TopicChange::Reset);
                let changes = left.collect::<Vec<_>>().into_iter().chain(wanted.iter().map(TopicChange::set)).collect();
                topic_admin::change(&core, &kafka_name, changes).await?;
            }
            Ok(refused)
        })
    }
}

impl Drop for Migration {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

fn settings(config: &TopicConfig, engine: &EngineConfig) -> Vec<(&'static str, String)> {
    topic_settings::to_kafka(config, engine.min_insync_replicas, engine.batch_max_bytes)
}

/// The settings of a topic with which Kafka removes and changes nothing.
fn keeping_everything(config: &TopicConfig, engine: &EngineConfig) -> Vec<(&'static str, String)> {
    // Where records have the time of their append, that is when the built-in log took them.
    let keeping = TopicConfig {
        cleanup: Cleanup::Delete,
        retention: None,
        retention_bytes: None,
        compaction_lag_max: None,
        append_time: false,
        ..config.clone()
    };
    let mut settings = settings(&keeping, engine);
    settings.retain(|(name, _)| *name != "max.message.bytes");
    settings.push(("max.message.bytes", BATCH_MAX_BYTES.to_owned()));
    if config.append_time || config.cleanup.compacts() {
        settings.retain(|(name, _)| *name != "message.timestamp.type");
        settings.extend([
            ("message.timestamp.type", "CreateTime".to_owned()),
            ("message.timestamp.before.max.ms", ANY_TIME.to_owned()),
            ("message.timestamp.after.max.ms", ANY_TIME.to_owned()),
        ]);
    }
    settings
}

/// Checks that the cluster has no topics of an installation, and none of these.
async fn check_empty(core: &Core, names: &[String]) -> Result<(), Error> {
    let catalogue = core.names.internal(TOPICS.name);
    for found in topic_watch::all_topics(core).await? {
        let Some(name) = found.name.as_ref().map(|name| name.to_string()) else { continue };
        if name == catalogue || names.contains(&name) {
            let rule = "a log is moved to a place that no installation has used; set another log.kafka.prefix, or delete the topics \
                        there if no server needs them";
            return Err(core.unfit("a topic", name, rule));
        }
    }
    Ok(())
}

/// Does all pieces of work, several at a time. Ends with the first error.
fn in_parallel<W: Sync, T: Send>(work: &[W], task: impl Fn(&W) -> Result<T, Error> + Sync) -> Result<Vec<T>, Error> {
    let next = AtomicUsize::new(0);
    let worker = || {
        let mut done = Vec::new();
        while let Some(piece) = work.get(next.fetch_add(1, Ordering::Relaxed)) {
            match task(piece) {
                Ok(result) => done.push(result),
                Err(error) => {
                    next.store(work.len(), Ordering::Relaxed);
                    return Err(error);
                }
            }
        }
        Ok(done)
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS.min(work.len())).map(|_| scope.spawn(worker)).collect();
        // All of them have ended before the first error is told.
        let ended: Vec<_> = workers.into_iter().map(|worker| worker.join().unwrap_or(Err(Error::Stopped))).collect();
        let mut all = Vec::new();
        for done in ended {
            all.extend(done?);
        }
        Ok(all)
    })
}

/// A partition of the log as an error names it, and the remedy.
fn differs(core: &Core, partition: &TopicPartition, kafka_name: &str, offset: Offset, what: &str) -> Error {
    let rule = format!(
        "{what}, so the migration is not finished; delete the topic {kafka_name} in Kafka and run it again, and the topic is copied anew"
    );
    core.unfit(&format!("a copy of {partition}, offset {offset}"), "another record", rule)
}

impl PartitionOrigin {
    fn of(map: OffsetMap, closed: &millstream_log::ClosedPartition) -> Self {
        Self { map, epochs: closed.epochs.clone(), horizon: closed.horizon }
    }
}
