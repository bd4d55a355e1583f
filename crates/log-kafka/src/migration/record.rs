//! The records of a migration, in a topic of their own. Their form is [`MIGRATION`].

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Instant;

use kafka_protocol::ResponseError;
use millstream_log::{AckLevel, AtomicAppend, Cleanup, Error, TopicConfig, Writer as _, Writers, reply};
use millstream_types::{MIGRATION, Offset, PartitionId, Record, TopicId, TopicName, TopicPartition};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::core::Core;
use crate::fetching;
use crate::migrated::{MigratedTopic, MigratedTopics, PartitionOrigin};
use crate::partition_state::PartitionState;
use crate::topic_admin::{self, CreationRefusal};
use crate::topic_state::TopicState;
use crate::writer;

/// The name of the writer that writes the first record.
const WRITER: &str = "migration";
const STATE_KEY: &[u8] = b"state";
const OFFSETS_KEY: &[u8] = b"o";
const VERSION: u8 = MIGRATION.version.expect("its values have a version");
/// Bytes of one record with a part of the offsets of a partition.
const PIECE_BYTES: usize = 256 << 10;

/// A log that is moved, as it was at its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogSource {
    /// The id of the log.
    pub log: String,
    /// The epoch of its last start.
    pub epoch: u32,
}

/// The state of a migration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MigrationRecord {
    #[serde(flatten)]
    pub(crate) source: LogSource,
    /// All records are there, and so are their offsets.
    pub(crate) is_checked: bool,
    pub(crate) is_finished: bool,
}

impl MigrationRecord {
    /// Checks that it is a migration of this log.
    ///
    /// # Errors
    /// [`Error::Unfit`].
    pub(crate) fn check_source(&self, core: &Core, source: &LogSource) -> Result<(), Error> {
        let refuse = |value, rule: &str| Err(core.unfit(&core.names.internal(MIGRATION.name), value, rule));
        match (self.source.log == source.log, self.source.epoch == source.epoch) {
            (true, true) => Ok(()),
            (false, _) => refuse(
                "of another log",
                "one log is moved to one place; choose the data directory that it is from, or another log.kafka.prefix",
            ),
            (true, false) if self.is_finished => refuse(
                "of an earlier state of this log",
                "a server with log.engine = embedded has run since, and Kafka has nothing of that; set log.engine = kafka \
                 without it, with the log directory moved away, or move the log to another log.kafka.prefix",
            ),
            (true, false) => refuse(
                "of an earlier state of this log",
                "a server has run on the log since the migration began; delete the topics of that prefix in Kafka, or set \
                 another log.kafka.prefix, and begin anew",
            ),
        }
    }
}

/// The topic with the records of a migration.
#[derive(Debug, Clone)]
pub(crate) struct MigrationRecords {
    partition: Arc<PartitionState>,
}

pub(super) fn topic_name() -> TopicName {
    TopicName::internal(MIGRATION.name)
}

pub(super) fn config() -> TopicConfig {
    TopicConfig { partitions: 1, cleanup: Cleanup::Compact, writers: Writers::OwnersOnly, ..TopicConfig::default() }
}

fn partition_id() -> TopicPartition {
    TopicPartition::new(topic_name(), 0)
}

/// The topic, which exists.
async fn topic(core: &Core) -> Result<Arc<TopicState>, Error> {
    let kafka_name = core.names.internal(MIGRATION.name);
    let found = topic_admin::settled(core, &kafka_name, 1).await?;
    let topic = TopicState::new(kafka_name, found.topic_id, topic_name(), config());
    topic.lead(&found);
    Ok(topic)
}

impl MigrationRecords {
    /// Creates the topic, or finds it.
    pub(super) async fn open(core: &Core) -> Result<Self, Error> {
        match topic_admin::create(core, &core.names.internal(MIGRATION.name), &config()).await {
            Ok(()) | Err(CreationRefusal::Exists) => Self::known(core).await,
            Err(CreationRefusal::Error(error)) => Err(error),
        }
    }

    async fn known(core: &Core) -> Result<Self, Error> {
        Ok(Self { partition: topic(core).await?.partition(&partition_id())? })
    }

    /// Writes the first record, unless another run has written one: its record is returned then.
    pub(super) async fn claim(
        &self,
        core: &Arc<Core>,
        first: &MigrationRecord,
    ) -> Result<Option<MigrationRecord>, Error> {
        core.topics.insert(topic(core).await?);
        let value = serde_json::to_vec(first).unwrap_or_default();
        let record = Record { timestamp_ms: core.now_ms(), key: Some(STATE_KEY), value: Some(&value), headers: &[] };
        let append = AtomicAppend { records: vec![(partition_id(), vec![record])], positions: Vec::new() };
        loop {
            // The commit fails once another run has begun a writer of this name, which reads what was committed before.
            let writer = writer::begin(Arc::clone(core), Arc::default(), WRITER.to_owned()).await?;
            if let Some((_, Some(known))) = found(core).await? {
                return Ok(Some(known));
            }
            let (done, answer) = reply();
            writer.commit(&append, AckLevel::Synced, done)?;
            match answer.await {
                Ok(_) => return Ok(None),
                Err(Error::Fenced { .. }) => {}
                Err(error) => return Err(error),
            }
        }
    }

    async fn append(&self, core: &Core, key: &[u8], value: &[u8]) -> Result<(), Error> {
        let (done, answer) = reply();
        let record = Record { timestamp_ms: core.now_ms(), key: Some(key), value: Some(value), headers: &[] };
        self.partition.queue.lock().push(&[record], core.config.batch_max_bytes, 0, done);
        core.outbox.ready(Arc::clone(&self.partition));
        answer.await.map(drop)
    }

    pub(super) async fn write(&self, core: &Core, record: &MigrationRecord) -> Result<(), Error> {
        let value = serde_json::to_vec(record).unwrap_or_default();
        self.append(core, STATE_KEY, &value).await
    }

    /// Stores the id and the offsets of a topic, which has this id in Kafka.
    pub(super) async fn write_topic(&self, core: &Core, id: Uuid, topic: &MigratedTopic) -> Result<(), Error> {
        for (partition, origin) in &topic.partitions {
            let mut form = Vec::new();
            origin.encode(&mut form);
            let pieces: Vec<_> = form.chunks(PIECE_BYTES).collect();
            for (number, piece) in (0_u32..).zip(&pieces) {
                let key = [OFFSETS_KEY, id.as_bytes(), &partition.0.to_be_bytes(), &number.to_be_bytes()].concat();
                let mut value = vec![VERSION];
                value.extend_from_slice(&topic.id.0.to_be_bytes());
                value.extend_from_slice(&(pieces.len() as u32).to_be_bytes());
                value.extend_from_slice(piece);
                self.append(core, &key, &value).await?;
            }
        }
        Ok(())
    }
}

#[derive(Default)]
struct ReadRecords {
    state: Option<MigrationRecord>,
    pieces: BTreeMap<(Uuid, PartitionId), Pieces>,
}

/// The offsets of a partition, in pieces.
struct Pieces {
    topic: TopicId,
    count: u32,
    pieces: BTreeMap<u32, Vec<u8>>,
}

impl ReadRecords {
    fn take(&mut self, key: &[u8], value: Option<&[u8]>) -> Option<()> {
        let value = value?;
        if key == STATE_KEY {
            self.state = Some(serde_json::from_slice(value).ok()?);
            return Some(());
        }
        let (id, rest) = key.strip_prefix(OFFSETS_KEY)?.split_first_chunk()?;
        let (partition, number) = rest.split_first_chunk()?;
        let number = u32::from_be_bytes(number.try_into().ok()?);
        let (topic, rest) = value.strip_prefix(&[VERSION])?.split_first_chunk()?;
        let (count, piece) = rest.split_first_chunk()?;
        let (topic, count) = (TopicId(u128::from_be_bytes(*topic)), u32::from_be_bytes(*count));
        let place = (Uuid::from_bytes(*id), PartitionId(u32::from_be_bytes(*partition)));
        let known = self.pieces.entry(place).or_insert_with(|| Pieces { topic, count, pieces: BTreeMap::new() });
        (known.topic, known.count) = (topic, count);
        known.pieces.insert(number, piece.to_vec());
        Some(())
    }

    /// The topics; `None` if a piece is missing.
    fn topics(&self) -> Option<MigratedTopics> {
        let mut topics = HashMap::<Uuid, MigratedTopic>::new();
        for ((id, partition), pieces) in &self.pieces {
            let wanted = (0..pieces.count).map(|number| pieces.pieces.get(&number).map(Vec::as_slice));
            let origin = PartitionOrigin::decode(&wanted.collect::<Option<Vec<_>>>()?.concat())?;
            let new = || MigratedTopic { id: pieces.topic, partitions: BTreeMap::new() };
            topics.entry(*id).or_insert_with(new).partitions.insert(*partition, origin);
        }
        Some(topics.into_iter().map(|(id, topic)| (id, Arc::new(topic))).collect())
    }
}

/// The topics that were moved to this installation, and the state of the migration; `None` if there was none.
///
/// # Errors
/// [`Error::Unreachable`]; those of a read; [`Error::Unfit`] if offsets are missing.
pub(crate) async fn found(core: &Core) -> Result<Option<(MigratedTopics, Option<MigrationRecord>)>, Error> {
    let kafka_name = core.names.internal(MIGRATION.name);
    let deadline = Instant::now() + core.config.delivery_timeout;
    let answer = loop {
        match core.cluster.metadata_of(&kafka_name).await {
            Ok(answer) => break answer,
            Err(error) if Instant::now() > deadline => return Err(core.unreachable(&error)),
            // The next broker is asked.
            Err(_) => tokio::time::sleep(core.config.retry_backoff).await,
        }
    };
    let unknown = ResponseError::UnknownTopicOrPartition.code();
    if answer.topics.iter().any(|topic| topic.error_code == unknown) {
        return Ok(None);
    }
    let records = MigrationRecords::known(core).await?;
    let mut read = ReadRecords::default();
    let mut next = Offset::ZERO;
    fetching::new_records(core, &records.partition, &mut next, |key, value| {
        // Records of another form are none of ours.
        let _ = read.take(key, value);
    })
    .await?;
    // Before that, offsets may be there in part.
    let is_checked = read.state.as_ref().is_some_and(|state| state.is_checked);
    let topics = if is_checked { read.topics() } else { Some(HashMap::new()) };
    match topics {
        Some(topics) => Ok(Some((topics, read.state))),
        None => {
            let rule = "without them records have other offsets; restore the topic, or move the log again to another \
                        log.kafka.prefix";
            Err(core.unfit(&kafka_name, "offsets in part", rule))
        }
    }
}
