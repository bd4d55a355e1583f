//! The state topic of queries that outlive the process: one record for each.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use millstream_log::{
    AckLevel, Appended, Cleanup, Error as LogError, Log, Partition, Reply, TopicConfig, UpTo, Writers, reply,
};
use millstream_types::{BatchLimits, Epoch, Record, StateTopic, TopicName, TopicPartition};

use crate::checkpoint::Checkpoint;
use crate::{Error, QueryId};

/// More than any key takes.
const KEY_MAX_BYTES: usize = 256;
/// Bytes that one read returns.
const READ_MAX_BYTES: usize = 1 << 20;

/// The state topic, which is created with the first kept query.
pub(crate) struct QueryStore {
    log: Arc<dyn Log>,
    /// The largest size of a record.
    record_max_bytes: usize,
    partition: OnceLock<Arc<dyn Partition>>,
}

/// A record of it: a query, or that there is one no longer.
pub(crate) struct StoredCheckpoint {
    pub(crate) id: QueryId,
    pub(crate) value: Option<Vec<u8>>,
}

impl QueryStore {
    /// A store for queries whose states take at most `state_max_bytes`.
    pub(crate) fn new(log: Arc<dyn Log>, state_max_bytes: usize) -> Self {
        Self { log, record_max_bytes: state_max_bytes.saturating_add(KEY_MAX_BYTES), partition: OnceLock::new() }
    }

    /// The partition, of a topic that is created if it is not there.
    fn partition(&self) -> Result<&Arc<dyn Partition>, LogError> {
        if let Some(partition) = self.partition.get() {
            return Ok(partition);
        }
        let name = TopicName::internal(StateTopic::Queries);
        let config = TopicConfig {
            partitions: 1,
            cleanup: Cleanup::Compact,
            writers: Writers::OwnersOnly,
            retention: None,
            record_max_bytes: self.record_max_bytes,
            ..TopicConfig::default()
        };
        match self.log.topic(&name) {
            None => drop(self.log.create_topic(&name, &config)?),
            Some(topic) if topic.config.record_max_bytes < self.record_max_bytes => {
                drop(self.log.alter_topic(&name, &config)?);
            }
            Some(_) => {}
        }
        let partition = self.log.partition(&TopicPartition::new(name, 0))?;
        Ok(self.partition.get_or_init(|| partition))
    }

    /// The epoch of the log since its start; `None` if no query was ever stored.
    pub(crate) fn epoch(&self) -> Option<Epoch> {
        self.partition.get().map(|partition| partition.offsets().epoch)
    }

    /// All stored queries. A record that cannot be read stays in the topic, and is logged.
    pub(crate) fn read(&self) -> Result<Vec<Checkpoint>, Error> {
        let name = TopicName::internal(StateTopic::Queries);
        if self.log.topic(&name).is_none() {
            return Ok(Vec::new());
        }
        let failed = |source| Error::Log { stream: name.clone(), source: Box::new(source) };
        let broken = |source| Error::Batch { stream: name.clone(), source };
        let partition = self.partition().map_err(failed)?;
        let mut values: BTreeMap<Vec<u8>, Option<Vec<u8>>> = BTreeMap::new();
        let mut next = partition.offsets().first;
        loop {
            let batches = partition.read(next, READ_MAX_BYTES, UpTo::Stable).map_err(failed)?;
            let Some(last) = batches.last() else { break };
            next = last.next_offset();
            for batch in &batches {
                let batch = batch.inflated(&BatchLimits::default()).map_err(broken)?;
                for record in batch.records() {
                    let record = record.map_err(broken)?;
                    values.insert(record.key.unwrap_or_default().to_vec(), record.value.map(<[u8]>::to_vec));
                }
            }
        }
        let decoded = values.iter().filter_map(|(key, value)| Checkpoint::decode(key, value.as_deref()?));
        Ok(decoded.filter_map(|kept| kept.inspect_err(unreadable).ok()).collect())
    }

    /// Appends records, durable once that is answered.
    pub(crate) fn append(&self, records: &[StoredCheckpoint]) -> Result<Reply<Appended>, LogError> {
        let keys: Vec<Vec<u8>> = records.iter().map(|record| Checkpoint::key(record.id)).collect();
        let pairs = records.iter().zip(&keys);
        let records: Vec<Record<'_>> = pairs
            .map(|(record, key)| Record { key: Some(key), value: record.value.as_deref(), ..Record::default() })
            .collect();
        let (done, answer) = reply();
        self.partition()?.append(&records, AckLevel::Synced, done)?;
        Ok(answer)
    }
}

fn unreadable(why: &String) {
    tracing::error!(why, "a query that was kept cannot be read, and does not go on");
}
