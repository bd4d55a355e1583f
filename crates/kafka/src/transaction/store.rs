//! The store of transactional ids: `_transactions`, an internal compacted topic, which is read completely at the start.

use std::collections::HashMap;
use std::sync::Arc;

use millstream_log::{AckLevel, Appended, Cleanup, Done, Error, KafkaLog, TopicConfig, UpTo, Writers};
use millstream_types::{BatchLimits, Record, StateTopic, TenantId, TopicName, TopicPartition, partition_of_key};

use super::machine::Transaction;
use super::record::{RecordError, decode, encode};

const PARTITIONS: u32 = 4;
/// A record holds all partitions and positions of a transaction.
const RECORD_MAX_BYTES: usize = 8 << 20;
const READ_BYTES: usize = 1 << 20;

/// Why the stored transactional ids cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LoadError {
    #[error(transparent)]
    Log(#[from] Error),
    #[error("{partition}: {source}")]
    Record { partition: TopicPartition, source: RecordError },
}

/// `_transactions` in a log.
pub(crate) struct Store {
    log: Arc<dyn KafkaLog>,
    topic: TopicName,
}

impl Store {
    pub(crate) fn new(log: Arc<dyn KafkaLog>) -> Self {
        Self { log, topic: TopicName::internal(StateTopic::Transactions) }
    }

    /// Creates the topic unless it is there. Blocks on the disk.
    pub(crate) fn create(&self) -> Result<(), Error> {
        if self.log.topic(&self.topic).is_some() {
            return Ok(());
        }
        let config = TopicConfig {
            partitions: PARTITIONS,
            level: AckLevel::Synced,
            cleanup: Cleanup::Compact,
            writers: Writers::OwnersOnly,
            retention: None,
            record_max_bytes: RECORD_MAX_BYTES,
            ..TopicConfig::default()
        };
        self.log.create_topic(&self.topic, &config).map(drop)
    }

    /// All that is stored, by `<tenant>/<transactional id>`. Blocks on the disk.
    pub(crate) fn load(&self) -> Result<HashMap<String, Transaction>, LoadError> {
        let mut all = HashMap::new();
        let Some(topic) = self.log.topic(&self.topic) else { return Ok(all) };
        for number in 0..topic.config.partitions {
            self.load_partition(&TopicPartition::new(self.topic.clone(), number), &mut all)?;
        }
        Ok(all)
    }

    fn load_partition(&self, id: &TopicPartition, all: &mut HashMap<String, Transaction>) -> Result<(), LoadError> {
        let partition = self.log.partition(id)?;
        let mut from = partition.offsets().first;
        loop {
            let batches = partition.read(from, READ_BYTES, UpTo::Tail)?;
            let Some(last) = batches.last() else { return Ok(()) };
            from = last.next_offset();
            for batch in batches.iter().filter(|batch| !batch.is_control()) {
                let damaged = |source| Error::Batch { partition: id.clone(), source };
                let batch = batch.inflated(&BatchLimits::default()).map_err(damaged)?;
                for record in batch.records() {
                    let record = record.map_err(damaged)?;
                    apply(record.key, record.value, all)
                        .map_err(|source| LoadError::Record { partition: id.clone(), source })?;
                }
            }
        }
    }

    /// Stores what `key` is from now on; `None` forgets it. Synced when `done` is called.
    pub(crate) fn append(&self, key: &str, next: Option<&Transaction>, done: Done<Appended>) -> Result<(), Error> {
        let value = next.map(encode);
        let record = Record { key: Some(key.as_bytes()), value: value.as_deref(), ..Record::default() };
        self.log.partition(&self.partition_of(key))?.append(&[record], AckLevel::Synced, done)
    }

    /// The partition that holds the record of `key`.
    pub(crate) fn partition_of(&self, key: &str) -> TopicPartition {
        TopicPartition { topic: self.topic.clone(), partition: partition_of_key(key.as_bytes(), PARTITIONS) }
    }
}

fn apply(key: Option<&[u8]>, value: Option<&[u8]>, all: &mut HashMap<String, Transaction>) -> Result<(), RecordError> {
    let unreadable = |why: &str| RecordError::Content(why.to_owned());
    let key = key.and_then(|key| std::str::from_utf8(key).ok()).ok_or_else(|| unreadable("its key is not UTF-8"))?;
    let (tenant, _) = key.split_once('/').ok_or_else(|| unreadable("its key names no tenant"))?;
    let tenant = TenantId::new(tenant).map_err(|error| unreadable(&error.to_string()))?;
    match value {
        Some(value) => drop(all.insert(key.to_owned(), decode(&tenant, value)?)),
        None => drop(all.remove(key)),
    }
    Ok(())
}
