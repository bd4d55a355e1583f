//! The sink `stream`: appends records to a topic.
//!
//! With `exactly_once` nothing is appended before the end of an epoch: then all records are handed over for its commit.
//!
//! Invariants
//! - A batch's claim is dropped once all its records have the topic's level; a failed append fails it.
//! - Records of one key keep their order: each batch is appended whole before the next one is taken.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use millstream_log::{AtomicAppend, Done, Error as LogError, Storage, Topic, TopicConfig, Writers};
use millstream_types::{PartitionId, Record, TopicName, TopicPartition, partition_of_key};
use parking_lot::Mutex;
use serde_json::Value;

use super::held::{FixedHeaders, HeldRecords, RecordHeaders};
use super::{topic, topic_name};
use crate::Error;
use crate::batch::Batch;
use crate::connector::{ConnectorContext, Preparation, Services, Sink, Started, Waker, Written, refused};
use crate::document::{Key, KeyType, NodeType, Role};
use crate::template::Template;

pub(in crate::connector) const SINK: NodeType = NodeType {
    name: "stream",
    role: Role::Sink,
    summary: "Appends each record to a topic of the log, with its key, time and headers.",
    keys: &[
        Key { name: "topic", value: KeyType::Topic, is_required: true, default: None, doc: "The topic to append to." },
        Key {
            name: "key",
            value: KeyType::Template,
            is_required: false,
            default: None,
            doc: "The key of the new records: a field, or a text with `{field}` in it. The source record's key if left out.",
        },
    ],
    can_end: false,
    keeps_state: false,
};

/// Bytes that may wait for the log.
const IN_FLIGHT_MAX_BYTES: usize = 8 << 20;
/// Bytes of one append, and the record that goes beyond.
const APPEND_MAX_BYTES: usize = 512 << 10;
/// Bytes of held records with which the sink asks for the end of the epoch.
const HELD_BYTES: usize = 4 << 20;
/// Pause before an append that the log had no room for is tried again.
const RETRY: Duration = Duration::from_millis(20);

pub(in crate::connector) struct StreamSink {
    node: String,
    services: Services,
    name: TopicName,
    key: Option<Template>,
    /// The headers of every record.
    headers: FixedHeaders,
    /// Asks for the end of the epoch; `None` if records are appended at once.
    ends_epoch: Option<Waker>,
    held: HeldRecords,
    /// The end of an epoch waits for the appends that are on their way.
    is_preparing: Arc<AtomicBool>,
    /// The topic is created if it does not exist.
    creates_topic: bool,
    is_creating: Arc<AtomicBool>,
    waker: Waker,
    /// Rows of the current batch that are appended already.
    appended: usize,
    in_flight_bytes: Arc<AtomicUsize>,
    failure: Arc<Mutex<Option<LogError>>>,
}

pub(in crate::connector) fn sink(context: &ConnectorContext<'_>) -> Result<Box<dyn Sink>, Error> {
    let key = context.node.config.get("key").and_then(Value::as_str).map(Template::read);
    Ok(Box::new(StreamSink::new(context, topic_name(context.node, context.tenant)?, key)?))
}

impl StreamSink {
    fn new(context: &ConnectorContext<'_>, name: TopicName, key: Option<Template>) -> Result<Self, Error> {
        Ok(Self {
            node: context.node.name.clone(),
            services: context.services()?.clone(),
            name,
            key,
            headers: None,
            ends_epoch: context.ends_epoch.clone(),
            held: HeldRecords::default(),
            is_preparing: Arc::default(),
            creates_topic: false,
            is_creating: Arc::default(),
            waker: Arc::clone(&context.waker),
            appended: 0,
            in_flight_bytes: Arc::default(),
            failure: Arc::default(),
        })
    }

    /// A sink that creates its topic if it does not exist, and gives every record the same headers.
    pub(in crate::connector) fn of_own_topic(
        context: &ConnectorContext<'_>,
        name: TopicName,
        key: Template,
        headers: Vec<(&'static str, String)>,
    ) -> Result<Self, Error> {
        let held = HeldRecords::new(Some(headers.clone()));
        Ok(Self { headers: Some(headers), held, creates_topic: true, ..Self::new(context, name, Some(key))? })
    }

    fn create_topic(&self) {
        if self.is_creating.swap(true, Ordering::AcqRel) {
            return;
        }
        let (log, name, waker) = (Arc::clone(&self.services.log), self.name.clone(), Arc::clone(&self.waker));
        let (is_creating, failure) = (Arc::clone(&self.is_creating), Arc::clone(&self.failure));
        self.services.blocking.run(move || {
            // Another instance may have created it meanwhile.
            if let Err(error) = log.create_topic(&name, &TopicConfig::default())
                && log.topic(&name).is_none()
            {
                *failure.lock() = Some(error);
            }
            is_creating.store(false, Ordering::Release);
            waker();
        });
    }

    fn failed(&self, error: &LogError) -> Error {
        Error::connector(&self.node, format!("cannot append to topic '{}': {error}", self.name))
    }

    /// The next row cannot be appended. The sink goes on behind it, if it is asked to write the other rows.
    fn refused(&self, batch: &Batch, error: &LogError) -> Error {
        refused(&self.node, batch, self.appended, "record_too_large", error.to_string())
    }

    /// Appends rows of `batch` from `self.appended` on, up to a number and the size of one append.
    fn append(&mut self, batch: &Batch, topic: &Topic, rows_max: usize) -> Result<usize, LogError> {
        let (mut size_bytes, mut end) = (0, self.appended);
        let last = batch.len().min(self.appended.saturating_add(rows_max));
        while end < last && (end == self.appended || size_bytes < APPEND_MAX_BYTES) {
            size_bytes += batch.payload(end).map_or(0, <[u8]>::len) + batch.key(end).map_or(0, <[u8]>::len);
            end += 1;
        }
        let rows = self.appended..end;
        let (mut keys, mut key_spans) = (String::new(), Vec::new());
        if let Some(template) = &self.key {
            key_spans.extend(rows.clone().map(|row| {
                let start = keys.len();
                let is_made = template.render_into(batch.payload(row).unwrap_or_default(), &mut keys);
                is_made.then_some(start..keys.len())
            }));
        }
        let headers = RecordHeaders::new(&self.headers, batch, rows.clone());
        let mut parts: Vec<(TopicPartition, Vec<Record<'_>>)> = Vec::new();
        for (index, row) in rows.enumerate() {
            let key = match &self.key {
                Some(_) => key_spans[index].clone().map(|span| keys[span].as_bytes()),
                None => batch.key(row),
            };
            let record = Record {
                timestamp_ms: batch.timestamp_ms(row),
                key,
                value: batch.payload(row),
                headers: headers.of(index),
            };
            let partition = self.partition(batch, key, topic.config.partitions);
            match parts.iter_mut().find(|(id, _)| id.partition == partition) {
                Some((_, records)) => records.push(record),
                None => {
                    let mut records = Vec::with_capacity(end - self.appended - index);
                    records.push(record);
                    parts.push((TopicPartition { topic: self.name.clone(), partition }, records));
                }
            }
        }
        self.in_flight_bytes.fetch_add(size_bytes, Ordering::AcqRel);
        let done = self.done(batch, size_bytes);
        let append = AtomicAppend { records: parts, positions: Vec::new() };
        let appended = self.services.writer.commit(&append, topic.config.level, done);
        if appended.is_err() {
            self.in_flight_bytes.fetch_sub(size_bytes, Ordering::AcqRel);
        }
        appended.map(|()| end)
    }

    /// Keeps the rows of `batch` from `self.appended` on until the end of the epoch.
    ///
    /// # Errors
    /// The next row is larger than the topic takes.
    fn hold(&mut self, batch: &Batch, topic: &Topic) -> Result<(), LogError> {
        let mut key_text = String::new();
        let (mut held, key_of) = (std::mem::take(&mut self.held), self.key.clone());
        let mut of_batch = held.begin();
        let mut result = Ok(());
        while self.appended < batch.len() {
            let row = self.appended;
            key_text.clear();
            let render =
                |template: &Template| template.render_into(batch.payload(row).unwrap_or_default(), &mut key_text);
            let made = key_of.as_ref().map(render).map(|is_made| is_made.then_some(key_text.as_str()));
            let key = made.map_or_else(|| batch.key(row), |made| made.map(str::as_bytes));
            let partition = self.partition(batch, key, topic.config.partitions);
            let partition = TopicPartition { topic: self.name.clone(), partition };
            let headers = batch.headers(row).map(|header| header.key.len() + header.value.map_or(0, <[u8]>::len));
            let size_bytes =
                key.map_or(0, <[u8]>::len) + batch.payload(row).map_or(0, <[u8]>::len) + headers.sum::<usize>();
            let limit_bytes = topic.config.record_max_bytes;
            if size_bytes > limit_bytes {
                result = Err(LogError::RecordTooLarge { partition, size_bytes, limit_bytes });
                break;
            }
            of_batch.push(batch, row as u32, made, &partition, size_bytes);
            self.appended += 1;
        }
        self.held = held;
        result
    }

    fn partition(&self, batch: &Batch, key: Option<&[u8]>, partitions: u32) -> PartitionId {
        match (key, batch.partition()) {
            (Some(key), _) => partition_of_key(key, partitions),
            (None, from) => PartitionId(from.unwrap_or_default().0 % partitions),
        }
    }

    fn done(&self, batch: &Batch, size_bytes: usize) -> Done<Vec<millstream_log::Appended>> {
        let (ack, waker) = (batch.ack().cloned(), Arc::clone(&self.waker));
        let (in_flight, failure) = (Arc::clone(&self.in_flight_bytes), Arc::clone(&self.failure));
        let is_preparing = Arc::clone(&self.is_preparing);
        Done::call(move |outcome| {
            if let Err(error) = outcome {
                if let Some(ack) = &ack {
                    ack.fail();
                }
                *failure.lock() = Some(error);
            }
            // One order for both, here and in `prepare`: one of the two sees what the other has done.
            let before = in_flight.fetch_sub(size_bytes, Ordering::SeqCst);
            let is_last = before == size_bytes && is_preparing.load(Ordering::SeqCst);
            if is_last || before >= IN_FLIGHT_MAX_BYTES || failure.lock().is_some() {
                waker();
            }
            drop(ack);
        })
    }
}

impl Sink for StreamSink {
    fn start(&mut self) -> Result<Started, Error> {
        let topic = match topic(&*self.services.log, &self.name) {
            Ok(topic) => topic,
            Err(_) if self.creates_topic => {
                self.create_topic();
                return Ok(Started::NotYet(format!("waits until topic '{}' is created", self.name)));
            }
            Err(reason) => return Ok(Started::NotYet(reason)),
        };
        if topic.config.writers == Writers::OwnersOnly {
            let message = format!("topic '{}' is written by Millstream alone; name one of your own", self.name);
            return Err(Error::connector(&self.node, message));
        }
        if self.ends_epoch.is_some() && matches!(topic.config.storage, Storage::Memory { .. }) {
            let message = format!(
                "topic '{}' is in memory, where nothing is committed as a whole; write delivery: at_least_once, or name a topic on disk",
                self.name
            );
            return Err(Error::connector(&self.node, message));
        }
        Ok(Started::Yes)
    }

    fn write(&mut self, batch: &Batch) -> Result<Written, Error> {
        // Its partitions may have become more, and keys go to those of now.
        let topic = topic(&*self.services.log, &self.name).map_err(|reason| Error::connector(&self.node, reason))?;
        if let Some(ends_epoch) = self.ends_epoch.clone() {
            let held = self.hold(batch, &topic);
            if self.held.size_bytes() >= HELD_BYTES {
                ends_epoch();
            }
            held.map_err(|error| self.refused(batch, &error))?;
        }
        while self.appended < batch.len() {
            if self.in_flight_bytes.load(Ordering::Acquire) >= IN_FLIGHT_MAX_BYTES {
                return Ok(Written::NotYet(Some(RETRY)));
            }
            let mut appended = self.append(batch, &topic, usize::MAX);
            if matches!(appended, Err(LogError::RecordTooLarge { .. })) {
                // The rows before the one that is too large are appended by themselves.
                appended = self.append(batch, &topic, 1);
            }
            match appended {
                Ok(end) => self.appended = end,
                Err(error @ LogError::RecordTooLarge { .. }) => return Err(self.refused(batch, &error)),
                Err(error) if error.is_temporary() => return Ok(Written::NotYet(Some(RETRY))),
                Err(error) => return Err(self.failed(&error)),
            }
        }
        self.appended = 0;
        Ok(Written::Taken)
    }

    fn prepare(&mut self) -> Result<Preparation, Error> {
        self.is_preparing.store(true, Ordering::SeqCst);
        let is_written = self.in_flight_bytes.load(Ordering::SeqCst) == 0;
        self.check()?;
        if !is_written {
            return Ok(Preparation::NotYet(None));
        }
        self.is_preparing.store(false, Ordering::SeqCst);
        let held = std::mem::replace(&mut self.held, HeldRecords::new(self.headers.clone()));
        Ok(Preparation::Done((!held.is_empty()).then(|| Box::new(held) as _)))
    }

    fn check(&mut self) -> Result<(), Error> {
        match self.failure.lock().take() {
            Some(error) => Err(self.failed(&error)),
            None => Ok(()),
        }
    }
}
