//! The positions of groups: records of a compacted topic, written in the transactions that commit them.
//!
//! The form of a record is [`POSITIONS`]; integers are big endian.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use millstream_log::{Cleanup, CommittedPosition, Error, PositionCommit, Topic, TopicConfig, UpTo, Writers, reply};
use millstream_types::{
    BatchLimits, Epoch, Offset, POSITIONS, PartitionId, Position, Record, TopicId, TopicName, TopicPartition,
    partition_of_key,
};
use parking_lot::Mutex;

use crate::core::Core;
use crate::names::Names;
use crate::partition::KafkaPartition;
use crate::partition_state::PartitionState;
use crate::topic_admin;

const PARTITIONS: u32 = 8;
const VERSION: u8 = POSITIONS.version.expect("a position has a version");
const READ_BYTES: usize = 1 << 20;

/// The positions that are known, and how far the topic was read.
#[derive(Debug, Default)]
pub(crate) struct Positions {
    known: Mutex<KnownPositions>,
}

#[derive(Debug, Default)]
struct KnownPositions {
    by_group: HashMap<String, BTreeMap<TopicPartition, CommittedPosition>>,
    read: HashMap<PartitionId, Offset>,
}

/// A record that keeps a position.
pub(crate) struct PositionRecord {
    pub(crate) partition: Arc<PartitionState>,
    key: Vec<u8>,
    value: Vec<u8>,
    committed_ms: i64,
}

impl PositionRecord {
    /// Bytes that it counts for until it is stored.
    pub(crate) fn size_bytes(&self) -> usize {
        self.key.len() + self.value.len()
    }

    pub(crate) fn view(&self) -> Record<'_> {
        Record { timestamp_ms: self.committed_ms, key: Some(&self.key), value: Some(&self.value), headers: &[] }
    }
}

/// The records that keep these positions, if they may be committed.
///
/// # Errors
/// Those of [`millstream_log::Writer::commit`] for a position.
pub(crate) fn records(core: &Arc<Core>, commits: &[PositionCommit]) -> Result<Vec<PositionRecord>, Error> {
    if commits.is_empty() {
        return Ok(Vec::new());
    }
    let topic = core.topics.get(&TopicName::internal(POSITIONS.name))?;
    let committed_ms = core.now_ms();
    let record = |commit: &PositionCommit| {
        commit.check_text()?;
        let read = core.topics.get(&commit.partition.topic)?;
        let offsets = opened(core, read.partition(&commit.partition)?)?.state.offsets();
        commit.check_position(read.topic().id, offsets.first, offsets.high)?;
        let number = partition_of_key(commit.group.as_bytes(), PARTITIONS);
        let partition = topic.partition(&TopicPartition { topic: topic.info.name(), partition: number })?;
        let key = key_of(&commit.group, &read.info.kafka_name, commit.partition.partition);
        let value = value_of(commit.position, committed_ms, &commit.metadata);
        Ok(PositionRecord { partition, key, value, committed_ms })
    };
    commits.iter().map(record).collect()
}

/// A handle on a partition whose ends are known.
///
/// # Errors
/// Those of a look-up at its leader.
pub(crate) fn opened(core: &Arc<Core>, state: Arc<PartitionState>) -> Result<KafkaPartition, Error> {
    let (core_of_task, opened) = (Arc::clone(core), Arc::clone(&state));
    if !state.is_known() {
        core.wait(async move { crate::following::begin(&core_of_task, &opened).await })?;
    }
    Ok(KafkaPartition { core: Arc::clone(core), state })
}

/// Creates the topic, if it is missing.
///
/// # Errors
/// Those of a creation.
pub(crate) async fn create(core: &Arc<Core>) -> Result<(), Error> {
    let name = TopicName::internal(POSITIONS.name);
    if core.topics.find(&name).is_some() {
        return Ok(());
    }
    let config = TopicConfig {
        partitions: PARTITIONS,
        cleanup: Cleanup::Compact,
        writers: Writers::OwnersOnly,
        ..TopicConfig::default()
    };
    topic_admin::create_topic(Arc::clone(core), name, config).await.map(drop)
}

/// Stores positions, each of a group.
///
/// # Errors
/// Those of an append.
pub(crate) async fn keep(core: &Arc<Core>, known: Vec<(String, CommittedPosition)>) -> Result<(), Error> {
    let topic = core.topics.get(&TopicName::internal(POSITIONS.name))?;
    let mut answers = Vec::new();
    for (group, CommittedPosition { partition: read, position, metadata, committed_ms }) in known {
        let key = key_of(&group, &core.names.in_kafka(&read.topic)?, read.partition);
        let value = value_of(position, committed_ms, &metadata);
        let number = partition_of_key(group.as_bytes(), PARTITIONS);
        let partition = topic.partition(&TopicPartition { topic: topic.info.name(), partition: number })?;
        let record = Record { timestamp_ms: committed_ms, key: Some(&key), value: Some(&value), headers: &[] };
        let (done, answer) = reply();
        partition.queue.lock().push(&[record], core.config.batch_max_bytes, 0, done);
        core.outbox.ready(partition);
        answers.push(answer);
    }
    for answer in answers {
        answer.await?;
    }
    Ok(())
}

impl Positions {
    /// The positions of `group`.
    ///
    /// # Errors
    /// Those of a read.
    pub(crate) fn of(&self, core: &Arc<Core>, group: &str) -> Result<Vec<CommittedPosition>, Error> {
        let mut known = self.known.lock();
        known.catch_up(core, partition_of_key(group.as_bytes(), PARTITIONS))?;
        let all = known.by_group.get(group).into_iter().flat_map(BTreeMap::values);
        // A topic that was deleted takes its positions along.
        let is_there = |known: &&CommittedPosition| {
            core.topics.find(&known.partition.topic).is_some_and(|topic| topic.topic().id == known.position.topic)
        };
        Ok(all.filter(is_there).cloned().collect())
    }

    /// The positions of all groups in a topic, each with its group.
    ///
    /// # Errors
    /// Those of a read.
    pub(crate) fn in_topic(&self, core: &Arc<Core>, topic: &Topic) -> Result<Vec<(String, CommittedPosition)>, Error> {
        let mut known = self.known.lock();
        for number in 0..PARTITIONS {
            known.catch_up(core, PartitionId(number))?;
        }
        let of_topic =
            |known: &&CommittedPosition| known.partition.topic == topic.name && known.position.topic == topic.id;
        let groups = known.by_group.iter();
        let found = groups.flat_map(|(group, all)| {
            all.values().filter(of_topic).map(move |position| (group.clone(), position.clone()))
        });
        Ok(found.collect())
    }
}

impl KnownPositions {
    /// Reads what was committed since the last call.
    fn catch_up(&mut self, core: &Arc<Core>, number: PartitionId) -> Result<(), Error> {
        let topic = core.topics.get(&TopicName::internal(POSITIONS.name))?;
        let state = topic.partition(&TopicPartition { topic: topic.info.name(), partition: number })?;
        let partition = opened(core, state)?;
        let first = partition.state.offsets().first;
        let mut next = self.read.get(&number).copied().unwrap_or(first).max(first);
        loop {
            let batches = millstream_log::Partition::read(&partition, next, READ_BYTES, UpTo::Stable)?;
            let Some(last) = batches.last() else { break };
            let after = last.next_offset();
            let undecodable = |source| Error::Batch { partition: partition.state.id.clone(), source };
            for batch in batches {
                let batch = batch.inflated(&BatchLimits::default()).map_err(undecodable)?;
                for record in batch.records() {
                    let record = record.map_err(undecodable)?;
                    self.take(&core.names, record.key.unwrap_or_default(), record.value);
                }
            }
            next = after;
            self.read.insert(number, next);
        }
        Ok(())
    }

    fn take(&mut self, names: &Names, key: &[u8], value: Option<&[u8]>) {
        let Some((group, partition)) = read_key(names, key) else { return };
        let positions = self.by_group.entry(group).or_default();
        match value.and_then(read_value) {
            Some((position, committed_ms, metadata)) => {
                let known = CommittedPosition { partition: partition.clone(), position, metadata, committed_ms };
                positions.insert(partition, known);
            }
            None => drop(positions.remove(&partition)),
        }
    }
}

fn key_of(group: &str, kafka_name: &str, partition: PartitionId) -> Vec<u8> {
    format!("{group}\0{kafka_name}\0{partition}").into_bytes()
}

fn read_key(names: &Names, key: &[u8]) -> Option<(String, TopicPartition)> {
    let text = std::str::from_utf8(key).ok()?;
    let (rest, partition) = text.rsplit_once('\0')?;
    let (group, kafka_name) = rest.rsplit_once('\0')?;
    let partition = PartitionId(partition.parse().ok()?);
    Some((group.to_owned(), TopicPartition { topic: names.topic(kafka_name)?, partition }))
}

fn value_of(position: Position, committed_ms: i64, metadata: &str) -> Vec<u8> {
    let mut value = vec![VERSION];
    value.extend_from_slice(&position.topic.0.to_be_bytes());
    value.extend_from_slice(&position.epoch.0.to_be_bytes());
    value.extend_from_slice(&position.offset.0.to_be_bytes());
    value.extend_from_slice(&committed_ms.to_be_bytes());
    value.extend_from_slice(metadata.as_bytes());
    value
}

fn read_value(value: &[u8]) -> Option<(Position, i64, String)> {
    let rest = value.strip_prefix(&[VERSION])?;
    let (topic, rest) = rest.split_first_chunk()?;
    let (epoch, rest) = rest.split_first_chunk()?;
    let (offset, rest) = rest.split_first_chunk()?;
    let (committed_ms, metadata) = rest.split_first_chunk()?;
    let position = Position {
        topic: TopicId(u128::from_be_bytes(*topic)),
        epoch: Epoch(u32::from_be_bytes(*epoch)),
        offset: Offset(u64::from_be_bytes(*offset)),
    };
    Some((position, i64::from_be_bytes(*committed_ms), String::from_utf8(metadata.to_vec()).ok()?))
}

#[cfg(test)]
mod tests {
    use millstream_types::TenantId;

    use super::*;

    #[test]
    fn a_position_reads_back_as_it_was() {
        let names = Names::new("");
        let topic = TopicName::user("orders", &TenantId::new("acme").unwrap()).unwrap();
        let position = Position { topic: TopicId(1 << 100), epoch: Epoch(7), offset: Offset(1 << 40) };
        let key = key_of("group\u{e9}", &names.in_kafka(&topic).unwrap(), PartitionId(3));
        assert_eq!(read_key(&names, &key), Some(("group\u{e9}".to_owned(), TopicPartition::new(topic, 3))));
        let value = value_of(position, -5, "page 7, \u{e9}");
        assert_eq!(read_value(&value), Some((position, -5, "page 7, \u{e9}".to_owned())));
        for cut in 0..37 {
            assert_eq!(read_value(&value[..cut]), None);
        }
    }
}
