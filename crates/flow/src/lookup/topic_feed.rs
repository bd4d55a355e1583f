//! A table of the latest value of each key of a topic, which may be that of a bucket.
//!
//! Each partition is read from its first record to the end that it has at the start, and followed from there on. Bells of the
//! log wake the feed, so an idle topic costs nothing. The feed waits for a topic that does not exist. The run fails once the topic is
//! deleted, also if it is made again: the next one has no rows of the former.
//!
//! A bucket is a compacted topic. Its records tell in headers when a key expires and that a value lies in parts; keys that begin
//! with a zero byte are the store's own.

use std::sync::Arc;

use millstream_log::{Error as LogError, Topic};
use millstream_types::{
    BatchLimits, Offset, Position, RecordBatch, RecordView, TopicKind, TopicName, TopicPartition, header,
};
use serde_json::Value;

use super::feed::{FeedContext, FeedStep, TableFeed};
use super::table::{LookupTable, TableRows};
use crate::Error;
use crate::connector::{HungBell, PartitionReader, Services, StreamProgress, Waker, topic_name};

/// The first byte of the store's own keys.
const OWN: u8 = 0;
/// Bytes of records that a step takes, and the batch that goes beyond.
const STEP_BYTES: usize = 1 << 20;

pub(super) struct TopicFeed {
    node: String,
    name: TopicName,
    /// The bucket of the topic, if the lookup names one.
    bucket: Option<String>,
    /// `None` before it exists.
    topic: Option<Arc<Topic>>,
    table: Arc<LookupTable>,
    services: Services,
    waker: Waker,
    partitions: Vec<TablePartition>,
    progress: StreamProgress,
    /// The partition that is read next.
    turn: usize,
    is_loaded: bool,
    /// Wakes the task when topics change.
    _topics_bell: HungBell,
}

/// A partition of the topic, and the records that were in it when it was opened.
struct TablePartition {
    reader: PartitionReader,
    first: Offset,
    end: Offset,
}

impl TopicFeed {
    pub(super) fn open(context: FeedContext<'_>) -> Result<Self, Error> {
        let FeedContext { services, tenant, node, table, memory, waker } = context;
        let bucket = node.config.get("bucket").and_then(Value::as_str).map(str::to_owned);
        let name = match &bucket {
            Some(bucket) => TopicName::bucket(bucket, tenant)
                .map_err(|error| Error::plan(&node.name, "config.bucket", error.to_string()))?,
            None => topic_name(node, tenant)?,
        };
        let topics_bell = services.bells.hang(Arc::clone(&waker));
        services.log.watch_topics(&topics_bell.bell);
        let mut feed = Self {
            node: node.name.clone(),
            topic: None,
            name,
            bucket,
            table: Arc::clone(table),
            services: services.clone(),
            waker,
            partitions: Vec::new(),
            progress: StreamProgress::default(),
            turn: 0,
            is_loaded: false,
            _topics_bell: topics_bell,
        };
        table.begin(memory, String::new());
        feed.follow()?;
        table.set_waits(Some(feed.loading()));
        Ok(feed)
    }

    fn failed(&self, error: &LogError) -> Error {
        Error::connector(&self.node, format!("cannot read {}: {error}", self.source()))
    }

    /// The topic or bucket, for messages.
    fn source(&self) -> String {
        self.bucket.as_ref().map_or_else(|| format!("topic '{}'", self.name), |bucket| format!("bucket '{bucket}'"))
    }

    /// The progress before the table is loaded, in words.
    fn loading(&self) -> String {
        let name = self.bucket.clone().unwrap_or_else(|| self.name.to_string());
        if self.topic.is_none() {
            let source = self.source();
            return match &self.bucket {
                Some(_) => {
                    format!(
                        "waits for {source}, which does not exist or is a cache; PUT /buckets/{name} makes a durable one"
                    )
                }
                None => format!(
                    "waits for {source}, which does not exist; 'millstream topic create {name} --cleanup compact' makes it"
                ),
            };
        }
        let count = |of: fn(&TablePartition) -> u64| self.partitions.iter().map(of).sum::<u64>();
        let read = count(|known| known.reader.next.min(known.end).0.saturating_sub(known.first.0));
        let all = count(|known| known.end.0.saturating_sub(known.first.0));
        format!("loads {read} of {all} records of {name}")
    }

    /// Opens the partitions that are not open yet.
    fn open_partitions(&mut self, topic: &Topic) -> Result<(), LogError> {
        for number in self.partitions.len() as u32..topic.config.partitions {
            let id = TopicPartition::new(self.name.clone(), number);
            let offsets = self.services.log.partition(&id)?.offsets();
            let position = Position { topic: topic.id, epoch: offsets.epoch, offset: offsets.first };
            let reader = PartitionReader::open(&id, position, None, &self.services, &self.waker, &self.progress)?;
            self.partitions.push(TablePartition { reader, first: offsets.first, end: offsets.stable });
        }
        Ok(())
    }

    /// Looks for changes of the topic.
    fn follow(&mut self) -> Result<(), Error> {
        let found = self.services.log.topic(&self.name);
        match (found, &self.topic) {
            (Some(found), Some(known)) if Arc::ptr_eq(&found, known) => Ok(()),
            (None, None) => Ok(()),
            (Some(found), known) if known.as_ref().is_none_or(|known| known.id == found.id) => {
                self.open_partitions(&found).map_err(|error| self.failed(&error))?;
                self.topic = Some(found);
                Ok(())
            }
            _ => {
                let message = format!("{}, its table, was deleted while the job ran", self.source());
                Err(Error::connector(&self.node, message))
            }
        }
    }

    /// Takes the next records of the partitions; `false` if none of them has any now.
    fn read(&mut self) -> Result<bool, Error> {
        let mut size_bytes = 0;
        for _ in 0..self.partitions.len() {
            if size_bytes >= STEP_BYTES {
                break;
            }
            let index = self.turn % self.partitions.len();
            self.turn = self.turn.wrapping_add(1);
            while size_bytes < STEP_BYTES {
                let reader = &mut self.partitions[index].reader;
                let read = match reader.read(&self.services, &self.waker, &self.progress) {
                    // The next step finds that the topic is gone.
                    Err(LogError::UnknownTopic { .. }) => None,
                    read => read.map_err(|error| self.failed(&error))?,
                };
                let Some(batch) = read else { break };
                size_bytes += batch.size_bytes();
                self.take(index, &batch)?;
            }
        }
        Ok(size_bytes > 0)
    }

    fn take(&mut self, index: usize, batch: &RecordBatch) -> Result<(), Error> {
        let reader = &mut self.partitions[index].reader;
        let from = reader.next;
        reader.next = batch.next_offset();
        let partition = reader.partition.id().clone();
        let broken = |source| self.failed(&LogError::Batch { partition: partition.clone(), source });
        let batch = batch.inflated(&BatchLimits::default()).map_err(broken)?;
        let is_bucket = self.name.kind() == TopicKind::Kv;
        self.table.change(|table| {
            for record in batch.records() {
                let record = record.map_err(broken)?;
                match (record.key.filter(|_| record.offset >= from), record.value) {
                    (Some(key), _) if is_bucket && key.first() == Some(&OWN) => {}
                    (Some(key), Some(value)) if is_bucket => take_of_bucket(table, &record, key, value)?,
                    (Some(key), Some(value)) => table.set(key, value)?,
                    (Some(key), None) => table.remove(key),
                    (None, _) => {}
                }
            }
            Ok(())
        })
    }
}

/// Sets the value of a bucket's key. A time that is no number is taken as none.
fn take_of_bucket(table: &mut TableRows, record: &RecordView<'_>, key: &[u8], value: &[u8]) -> Result<(), Error> {
    let (mut expires_ms, mut is_in_parts) = (None, false);
    for header in record.headers() {
        match header.key {
            header::KEY_EXPIRES => {
                expires_ms = header.value.and_then(|time| std::str::from_utf8(time).ok()?.parse().ok())
            }
            header::VALUE_SIZE => is_in_parts = true,
            _ => {}
        }
    }
    table.set_of_bucket(key, Some(value).filter(|_| !is_in_parts), expires_ms)
}

impl TableFeed for TopicFeed {
    fn step(&mut self) -> Result<FeedStep, Error> {
        self.follow()?;
        let has_read = self.read()?;
        if !self.is_loaded {
            self.is_loaded = self.topic.is_some() && self.partitions.iter().all(|known| known.reader.next >= known.end);
            self.table.set_waits((!self.is_loaded).then(|| self.loading()));
            if self.is_loaded {
                return Ok(FeedStep::Loaded);
            }
        }
        Ok(if has_read { FeedStep::Again } else { FeedStep::Wait })
    }
}
