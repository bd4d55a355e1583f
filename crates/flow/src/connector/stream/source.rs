//! The source `stream`: reads a topic from the place that its group has reached.
//!
//! Its position is a group position of the log, so `millstream topic` and Kafka's tools show the job's lag. Reads of old
//! records, which wait for a disk, run on a thread of their own; the task is woken when they are back.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use millstream_log::{AckLevel, AtomicAppend, Done, Error as LogError, Partition, PositionCommit, UpTo};
use millstream_types::{BatchLimits, Epoch, Offset, PartitionId, Position, RecordBatch, TopicName, TopicPartition};
use parking_lot::Mutex;
use serde_json::Value;

use super::progress::StreamProgress;
use super::start_at::StartAt;
use super::{topic, topic_name};
use crate::Error;
use crate::batch::Batch;
use crate::connector::bells::HungBell;
use crate::connector::{ConnectorContext, Polled, Services, Source, SourceProgress, Started, Waker};
use crate::delivery::SourcePosition;
use crate::document::{Key, KeyType, NodeType, Role};

pub(in crate::connector) const SOURCE: NodeType = NodeType {
    name: "stream",
    role: Role::Source,
    summary: "Reads a topic of the log; its position is kept under the group `job:TENANT:GROUP`.",
    keys: &[
        Key {
            name: "topic",
            value: KeyType::Topic,
            is_required: true,
            default: None,
            doc: "The topic to read: `telemetry`, `event`, or one of your own.",
        },
        Key {
            name: "group",
            value: KeyType::Text,
            is_required: false,
            default: None,
            doc: "The name under which the position is kept; the job's name if left out.",
        },
        Key {
            name: "start",
            value: KeyType::Checked(check_place),
            is_required: false,
            default: Some("earliest"),
            doc: "The place for a group that has no position yet: `earliest`, `latest`, a time, or `{partition: offset}`.",
        },
        Key {
            name: "stop_at",
            value: KeyType::Checked(check_place),
            is_required: false,
            default: None,
            doc: "The place at which the source ends: `end` (the end at the job's start), a time, or `{partition: offset}`. Without it, it never ends.",
        },
    ],
    can_end: true,
};

fn check_place(value: &Value) -> Result<(), String> {
    StartAt::read(value).map(drop)
}

/// Bytes that one read returns.
const READ_MAX_BYTES: usize = 1 << 20;
/// Pause before a position is offered to the log again.
const RETRY: Duration = Duration::from_millis(100);

struct StreamSource {
    node: String,
    services: Services,
    name: TopicName,
    label: Arc<str>,
    group: String,
    start: StartAt,
    stop_at: Option<StartAt>,
    instance: u32,
    instances: u32,
    waker: Waker,
    partitions: Vec<PartitionReader>,
    progress: Arc<StreamProgress>,
    /// The partition that is read next.
    turn: usize,
    /// Records that were read and not handed out: the rows from the number on, and their partition.
    rest: Option<(Batch, usize, usize, Epoch)>,
    unsaved: Vec<SourcePosition>,
    is_saving: Arc<AtomicBool>,
}

/// One partition of the topic.
struct PartitionReader {
    partition: Arc<dyn Partition>,
    next: Offset,
    end: Option<Offset>,
    ready: VecDeque<RecordBatch>,
    pending: Option<ColdRead>,
    _bell: HungBell,
}

type ColdRead = Arc<Mutex<Option<Result<Vec<RecordBatch>, LogError>>>>;

pub(in crate::connector) fn source(context: &ConnectorContext<'_>) -> Result<Box<dyn Source>, Error> {
    let config = &context.node.config;
    let place = |key: &str| {
        let read = config.get(key).map(StartAt::read).transpose();
        read.map_err(|fault| Error::plan(&context.node.name, &format!("config.{key}"), fault))
    };
    let name = topic_name(context)?;
    let group = config.get("group").and_then(Value::as_str).unwrap_or(context.job);
    Ok(Box::new(StreamSource {
        node: context.node.name.clone(),
        services: context.services()?.clone(),
        label: name.to_string().into(),
        name,
        group: format!("job:{}:{group}", context.tenant),
        start: place("start")?.unwrap_or(StartAt::Earliest),
        stop_at: place("stop_at")?,
        instance: context.instance,
        instances: context.instances,
        waker: Arc::clone(&context.waker),
        partitions: Vec::new(),
        progress: Arc::default(),
        turn: 0,
        rest: None,
        unsaved: Vec::new(),
        is_saving: Arc::default(),
    }))
}

impl StreamSource {
    fn failed(&self, error: &LogError) -> Error {
        Error::connector(&self.node, format!("cannot read topic '{}': {error}", self.name))
    }

    fn open(&self, id: &TopicPartition) -> Result<PartitionReader, LogError> {
        let partition = self.services.log.partition(id)?;
        let bell = self.services.bells.hang(Arc::clone(&self.waker));
        partition.watch(&bell.bell);
        let next = match self.services.log.committed(&self.group, id)? {
            None => self.start.offset(&*partition)?,
            Some(position) => match partition.resume(position) {
                Ok(next) => next,
                Err(LogError::PositionLost { restart, .. }) => {
                    tracing::warn!(node = self.node, partition = %id, %restart, "the job's position is lost");
                    restart
                }
                Err(LogError::Trimmed { oldest, .. }) => {
                    tracing::warn!(node = self.node, partition = %id, %oldest, "records were removed before the job read them");
                    oldest
                }
                Err(error) => return Err(error),
            },
        };
        let end = self.stop_at.as_ref().map(|place| place.offset(&*partition)).transpose()?;
        Ok(PartitionReader { partition, next, end, ready: VecDeque::new(), pending: None, _bell: bell })
    }

    /// The next batch of the partition with this index; `None` if it has none now.
    fn read(&mut self, index: usize) -> Result<Option<RecordBatch>, LogError> {
        let reader = &mut self.partitions[index];
        if let Some(batch) = reader.ready.pop_front() {
            return Ok(Some(batch));
        }
        if reader.end.is_some_and(|end| reader.next >= end) {
            return Ok(None);
        }
        let read = if let Some(pending) = &reader.pending {
            let Some(read) = pending.lock().take() else { return Ok(None) };
            reader.pending = None;
            read
        } else if reader.next >= reader.partition.offsets().stable {
            return Ok(None);
        } else if reader.partition.reads_from_memory(reader.next) {
            reader.partition.read(reader.next, READ_MAX_BYTES, UpTo::Stable)
        } else {
            let pending = ColdRead::default();
            reader.pending = Some(Arc::clone(&pending));
            let (partition, next, waker) = (Arc::clone(&reader.partition), reader.next, Arc::clone(&self.waker));
            self.services.blocking.run(move || {
                *pending.lock() = Some(partition.read(next, READ_MAX_BYTES, UpTo::Stable));
                waker();
            });
            return Ok(None);
        };
        match read {
            Ok(batches) => reader.ready = batches.into(),
            Err(LogError::Trimmed { oldest, .. }) => {
                tracing::warn!(node = self.node, partition = %reader.partition.id(), %oldest, "records were removed before the job read them");
                reader.next = oldest;
                (self.waker)();
            }
            Err(error) => return Err(error),
        }
        Ok(reader.ready.pop_front())
    }

    /// Hands out up to `max_records` of the records that were read.
    fn hand_out(&mut self, max_records: usize) -> Option<Polled> {
        let (batch, from, index, epoch) = self.rest.take()?;
        let reader = &mut self.partitions[index];
        let to = batch.len().min(from + max_records);
        let partition = reader.partition.id().partition.0;
        let part = if from == 0 && to == batch.len() { batch.clone() } else { batch.slice(from as u32..to as u32) };
        let offset = if to < batch.len() { batch.offset(to - 1).next() } else { reader.next };
        if to < batch.len() {
            self.rest = Some((batch, to, index, epoch));
        }
        Some(Polled::Batch(part, SourcePosition { partition, offset: offset.0, epoch: epoch.0 }))
    }

    /// Reads the next partition that has records, up to `max_records` if they are in small batches; `false` if none has.
    fn fill(&mut self, max_records: usize) -> Result<bool, Error> {
        for _ in 0..self.partitions.len() {
            let index = self.turn % self.partitions.len();
            self.turn = self.turn.wrapping_add(1);
            let Some(first) = self.read(index).map_err(|error| self.failed(&error))? else { continue };
            let reader = &mut self.partitions[index];
            let id = reader.partition.id().clone();
            let (mut stored, mut count) = (vec![first], 0);
            count += stored[0].record_count() as usize;
            while let Some(next) = reader.ready.pop_front_if(|next| count + next.record_count() as usize <= max_records)
            {
                count += next.record_count() as usize;
                stored.push(next);
            }
            let (Some(next), Some(epoch)) =
                (stored.last().map(RecordBatch::next_offset), stored.last().map(RecordBatch::epoch))
            else {
                continue;
            };
            let inflated = stored.iter().map(|batch| batch.inflated(&BatchLimits::default()));
            let decoded = inflated
                .collect::<Result<Vec<_>, _>>()
                .and_then(|stored| Batch::of_log(&self.label, id.partition, &stored, reader.next));
            let mut batch =
                decoded.map_err(|source| self.failed(&LogError::Batch { partition: id.clone(), source }))?;
            let reader = &mut self.partitions[index];
            reader.next = next;
            if let Some(end) = reader.end.filter(|end| *end < reader.next) {
                batch = batch.select((0..batch.len() as u32).filter(|row| batch.offset(*row as usize) < end));
                reader.next = end;
                reader.ready.clear();
            }
            if !batch.is_empty() {
                self.rest = Some((batch, 0, index, epoch));
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn save(&mut self) -> Option<Duration> {
        if self.unsaved.is_empty() || self.is_saving.load(Ordering::Acquire) {
            return None;
        }
        let topic = self.partitions.first()?.partition.topic().id;
        let commit = |at: &SourcePosition| PositionCommit {
            group: self.group.clone(),
            partition: TopicPartition { topic: self.name.clone(), partition: PartitionId(at.partition) },
            position: Position { topic, epoch: Epoch(at.epoch), offset: Offset(at.offset) },
            metadata: String::new(),
        };
        let append = AtomicAppend { records: Vec::new(), positions: self.unsaved.iter().map(commit).collect() };
        self.is_saving.store(true, Ordering::Release);
        let (is_saving, waker) = (Arc::clone(&self.is_saving), Arc::clone(&self.waker));
        let done = Done::call(move |_| {
            is_saving.store(false, Ordering::Release);
            waker();
        });
        match self.services.log.append_atomic(&append, AckLevel::Written, done) {
            Ok(()) => {
                self.unsaved.clear();
                None
            }
            Err(error) => {
                self.is_saving.store(false, Ordering::Release);
                tracing::debug!(node = self.node, %error, "the job's position waits to be stored");
                Some(RETRY)
            }
        }
    }
}

impl Source for StreamSource {
    fn start(&mut self) -> Result<Started, Error> {
        let topic = match topic(&*self.services.log, &self.name) {
            Ok(topic) => topic,
            Err(reason) => return Ok(Started::NotYet(reason)),
        };
        let mine = (0..topic.config.partitions).filter(|number| number % self.instances == self.instance);
        let readers = mine.map(|number| self.open(&TopicPartition::new(self.name.clone(), number)));
        self.partitions = readers.collect::<Result<_, _>>().map_err(|error| self.failed(&error))?;
        let begun = self.partitions.iter().map(|reader| (Arc::clone(&reader.partition), reader.next, reader.end));
        self.progress.begin(begun);
        Ok(Started::Yes)
    }

    fn records_ready(&mut self, max_records: usize) -> usize {
        if self.rest.is_some() {
            return max_records;
        }
        let ready = |reader: &PartitionReader| {
            let stable = reader.partition.offsets().stable;
            // What was read lies in memory already, and behind an end nothing comes.
            if !reader.ready.is_empty() || reader.pending.is_some() || reader.end.is_some_and(|end| end <= stable) {
                return max_records;
            }
            max_records.min(stable.0.saturating_sub(reader.next.0) as usize)
        };
        self.partitions.iter().map(ready).max().unwrap_or(max_records)
    }

    fn poll(&mut self, max_records: usize) -> Result<Polled, Error> {
        if self.rest.is_none() && !self.fill(max_records)? {
            let is_at_end = |reader: &PartitionReader| reader.end.is_some_and(|end| reader.next >= end);
            let has_ended = self.partitions.iter().all(is_at_end) && self.stop_at.is_some();
            return Ok(if has_ended { Polled::End } else { Polled::NotYet(None) });
        }
        Ok(self.hand_out(max_records).unwrap_or(Polled::NotYet(None)))
    }

    fn finished(&mut self, up_to: &[SourcePosition]) -> Option<Duration> {
        self.progress.finished(up_to);
        for position in up_to {
            match self.unsaved.iter_mut().find(|known| known.partition == position.partition) {
                Some(known) => *known = *position,
                None => self.unsaved.push(*position),
            }
        }
        self.save()
    }

    fn is_settled(&self) -> bool {
        self.unsaved.is_empty() && !self.is_saving.load(Ordering::Acquire)
    }

    fn progress(&self) -> Option<Arc<dyn SourceProgress>> {
        Some(Arc::clone(&self.progress) as _)
    }
}
