//! The state topic of queries that outlive the process: one record for each.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock, mpsc};

use millstream_log::{
    AckLevel, Appended, Cleanup, Done, Error as LogError, Log, Partition, Reply, TopicConfig, UpTo, Writers, reply,
};
use millstream_types::{BatchLimits, Record, StateTopic, TopicName, TopicPartition};

use crate::checkpoint::{Checkpoint, VERSION};
use crate::{Error, QueryId};

/// More than any key takes.
const KEY_MAX_BYTES: usize = 256;
/// The key of the record with the number of the newest life that had stored queries.
const LIFE_KEY: &[u8] = b"life";
/// Bytes that one read returns.
const READ_MAX_BYTES: usize = 1 << 20;

/// The state topic, which is created with the first kept query.
pub(crate) struct QueryStore {
    log: Arc<dyn Log>,
    /// The largest size of a record.
    record_max_bytes: usize,
    partition: OnceLock<Arc<dyn Partition>>,
}

/// The stored queries as a life of the process begins with them.
#[derive(Default)]
pub(crate) struct StoredQueries {
    pub(crate) queries: Vec<Checkpoint>,
    /// The number of the life, higher than that of any earlier one with one of these queries.
    pub(crate) life: u32,
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

    /// Begins another life of the process: reads all stored queries. A record that cannot be read stays in the topic, and is logged.
    pub(crate) fn begin(&self) -> Result<StoredQueries, Error> {
        let name = TopicName::internal(StateTopic::Queries);
        if self.log.topic(&name).is_none() {
            return Ok(StoredQueries::default());
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
        let queries: Vec<Checkpoint> = decoded.filter_map(|kept| kept.inspect_err(unreadable).ok()).collect();
        let last = values.get(LIFE_KEY).and_then(|value| read_life(value.as_deref()?));
        let last = last.into_iter().chain(queries.iter().filter_map(Checkpoint::life)).max();
        // Older versions took the epoch of the log, which a log in files raises with each start.
        let life = last.map_or(0, |last| last.saturating_add(1)).max(partition.offsets().epoch.0);
        if !queries.is_empty() {
            self.store_life(life).map_err(failed)?;
        }
        Ok(StoredQueries { queries, life })
    }

    /// Stores the number of this life before it gives any result.
    fn store_life(&self, life: u32) -> Result<(), LogError> {
        let value = [&[VERSION], life.to_string().as_bytes()].concat();
        let record = Record { key: Some(LIFE_KEY), value: Some(&value), ..Record::default() };
        // An answer to be waited for on any thread, also one of a runtime.
        let (sender, answer) = mpsc::sync_channel(1);
        let done = Done::call(move |stored| drop(sender.send(stored)));
        self.partition()?.append(&[record], AckLevel::Synced, done)?;
        match answer.recv().unwrap_or(Err(LogError::Stopped)) {
            // The next start of a log in files is in a later epoch all the same.
            Err(LogError::DiskFull { .. }) => Ok(()),
            stored => stored.map(drop),
        }
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

fn read_life(value: &[u8]) -> Option<u32> {
    let (&VERSION, life) = value.split_first()? else { return None };
    std::str::from_utf8(life).ok()?.parse().ok()
}

fn unreadable(why: &String) {
    tracing::error!(why, "a query that was kept cannot be read, and does not go on");
}
