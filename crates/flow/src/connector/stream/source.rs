//! The source `stream`: reads a topic from the place that its group has reached.
//!
//! Its position is a group position of the log, so `millstream topic` and Kafka's tools show the job's lag. Reads of old
//! records, which wait for a disk, run on a thread of their own; the task is woken when they are back.
//!
//! The source follows its topic: partitions that are added, and a topic that is deleted and made again, are read from
//! their first record. The first instance stores where partitions begin; the others wait until it has.

use std::sync::Arc;
use std::time::Duration;

use millstream_log::{Error as LogError, PositionCommit, Topic};
use millstream_types::{BatchLimits, Epoch, RecordBatch, TopicName, TopicPartition};
use serde_json::Value;

use super::group::{GroupPositions, group_of};
use super::partition_reader::PartitionReader;
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
    summary: "Reads a topic of the log; its position is kept under the group `job:TENANT:JOB:NODE`.",
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
            doc: "The last part of the group, in place of `JOB:NODE`. Two sources that read one topic need different ones.",
        },
        Key {
            name: "start",
            value: KeyType::Checked(check_place),
            is_required: false,
            default: Some("earliest"),
            doc: "The place for a group that has no position yet: `earliest`, `latest`, a time, or `{partition: offset}`. It is stored before the first record is read; partitions that are added later are read from their first record.",
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
    keeps_state: false,
};

fn check_place(value: &Value) -> Result<(), String> {
    StartAt::read(value).map(drop)
}

/// Pause before a position is offered to the log, or looked for, again.
const RETRY: Duration = Duration::from_millis(100);

struct StreamSource {
    node: String,
    services: Services,
    name: TopicName,
    label: Arc<str>,
    positions: GroupPositions,
    /// Epochs store the positions.
    stores_by_epoch: bool,
    start: StartAt,
    stop_at: Option<StartAt>,
    instance: u32,
    instances: u32,
    waker: Waker,
    /// The topic that the partitions belong to; `None` before the start.
    topic: Option<Arc<Topic>>,
    /// All partitions of the instance are open.
    is_open: bool,
    partitions: Vec<PartitionReader>,
    progress: Arc<StreamProgress>,
    /// The partition that is read next.
    turn: usize,
    /// Records that were read and not handed out: the rows from the number on, and their partition.
    rest: Option<(Batch, usize, usize, Epoch)>,
    unsaved: Vec<SourcePosition>,
    /// Wakes the task when topics change.
    _topics_bell: HungBell,
}

pub(in crate::connector) fn source(context: &ConnectorContext<'_>) -> Result<Box<dyn Source>, Error> {
    let config = &context.node.config;
    let place = |key: &str| {
        let read = config.get(key).map(StartAt::read).transpose();
        read.map_err(|fault| Error::plan(&context.node.name, &format!("config.{key}"), fault))
    };
    let name = topic_name(context.node, context.tenant)?;
    let services = context.services()?.clone();
    let group = config.get("group").and_then(Value::as_str);
    let group = group_of(context.tenant, context.job, &context.node.name, group);
    let topics_bell = services.bells.hang(Arc::clone(&context.waker));
    services.log.watch_topics(&topics_bell.bell);
    Ok(Box::new(StreamSource {
        node: context.node.name.clone(),
        label: name.to_string().into(),
        name,
        stores_by_epoch: context.stores_by_epoch,
        positions: GroupPositions::new(&services, group, Arc::clone(&context.waker)),
        start: place("start")?.unwrap_or(StartAt::Earliest),
        stop_at: place("stop_at")?,
        instance: context.instance,
        instances: context.instances,
        waker: Arc::clone(&context.waker),
        topic: None,
        is_open: false,
        partitions: Vec::new(),
        progress: Arc::default(),
        turn: 0,
        rest: None,
        unsaved: Vec::new(),
        _topics_bell: topics_bell,
        services,
    }))
}

impl StreamSource {
    fn failed(&self, error: &LogError) -> Error {
        Error::connector(&self.node, format!("cannot read topic '{}': {error}", self.name))
    }

    /// Opens the partitions of the topic as it is now; `is_open` tells if all of them could be opened.
    fn follow(&mut self, topic: Arc<Topic>) -> Result<(), LogError> {
        let former = self.topic.as_ref().map(|known| known.id);
        let is_remade = former.is_some_and(|former| former != topic.id);
        if is_remade {
            self.forget_topic();
        }
        if self.instance == 0 && !self.positions.is_storing() {
            // A topic that is made again while the job runs has no records that the job may leave out.
            let start = Some(&self.start).filter(|_| !is_remade);
            let missing = self.positions.missing(&topic, start)?;
            if !missing.is_empty() {
                self.positions.store(&topic, &missing)?;
            }
        }
        self.is_open = !self.positions.is_storing();
        let mine = (0..topic.config.partitions).filter(|number| number % self.instances == self.instance);
        for number in mine.filter(|_| self.is_open) {
            if self.partitions.iter().any(|reader| reader.partition.id().partition.0 == number) {
                continue;
            }
            let Some(position) = self.positions.stored(&topic, number)? else {
                self.is_open = false;
                break;
            };
            let id = TopicPartition::new(self.name.clone(), number);
            let (services, waker, stop_at) = (&self.services, &self.waker, self.stop_at.as_ref());
            let reader = PartitionReader::open(&id, position, stop_at, services, waker, &self.progress)?;
            self.progress.begin(Arc::clone(&reader.partition), reader.next, reader.end);
            self.partitions.push(reader);
        }
        // A topic that was made again stays the other one until its places are stored.
        if self.is_open || !is_remade {
            self.topic = Some(topic);
        }
        Ok(())
    }

    /// Forgets what belongs to a topic that was deleted.
    fn forget_topic(&mut self) {
        self.partitions.clear();
        self.progress.clear();
        self.rest = None;
        self.unsaved.clear();
    }

    /// Follows the topic if it has changed; the reason why the source cannot read it, if there is one.
    fn follow_changes(&mut self) -> Result<Option<String>, LogError> {
        match topic(&*self.services.log, &self.name) {
            Ok(topic) => {
                let is_known = self.topic.as_ref().is_some_and(|known| Arc::ptr_eq(known, &topic));
                if !is_known || !self.is_open {
                    self.follow(topic)?;
                }
                Ok(None)
            }
            Err(reason) => {
                self.forget_topic();
                self.is_open = false;
                Ok(Some(reason))
            }
        }
    }

    /// Hands out up to `max_records` of the records that were read.
    fn hand_out(&mut self, max_records: usize) -> Option<Polled> {
        let (batch, from, index, epoch) = self.rest.take()?;
        let reader = &mut self.partitions[index];
        let to = batch.len().min(from + max_records);
        let (partition, topic) = (reader.partition.id().partition.0, reader.partition.topic().id);
        let part = if from == 0 && to == batch.len() { batch.clone() } else { batch.slice(from as u32..to as u32) };
        let offset = if to < batch.len() { batch.offset(to - 1).next() } else { reader.next };
        if to < batch.len() {
            self.rest = Some((batch, to, index, epoch));
        }
        Some(Polled::Batch(part, SourcePosition { topic, partition, offset: offset.0, epoch: epoch.0 }))
    }

    /// Reads the next partition that has records, up to `max_records` if they are in small batches; `false` if none has.
    fn fill(&mut self, max_records: usize) -> Result<bool, LogError> {
        for _ in 0..self.partitions.len() {
            let index = self.turn % self.partitions.len();
            self.turn = self.turn.wrapping_add(1);
            let reader = &mut self.partitions[index];
            let Some(first) = reader.read(&self.services, &self.waker, &self.progress)? else { continue };
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
            let mut batch = decoded.map_err(|source| LogError::Batch { partition: id, source })?;
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
        if self.unsaved.is_empty() || self.positions.is_storing() {
            return None;
        }
        let topic = self.topic.clone()?;
        match self.positions.store(&topic, &self.unsaved) {
            Ok(()) => self.unsaved.clear(),
            // The topic is gone, and its positions with it.
            Err(LogError::UnknownTopic { .. } | LogError::PositionLost { .. }) => self.unsaved.clear(),
            Err(error) => {
                tracing::debug!(node = self.node, %error, "the job's position waits to be stored");
                return Some(RETRY);
            }
        }
        None
    }
}

impl Source for StreamSource {
    fn start(&mut self) -> Result<Started, Error> {
        match self.follow_changes() {
            Ok(None) if self.is_open => Ok(Started::Yes),
            Ok(None) => Ok(Started::NotYet("waits until the places where it begins are stored".to_owned())),
            Ok(Some(reason)) => Ok(Started::NotYet(reason)),
            Err(error) if error.is_temporary() => Ok(Started::NotYet(format!("waits for the log: {error}"))),
            Err(error) => Err(self.failed(&error)),
        }
    }

    fn records_ready(&mut self, max_records: usize) -> usize {
        if self.rest.is_some() || !self.is_open {
            return max_records;
        }
        self.partitions.iter().map(|reader| reader.records_ready(max_records)).max().unwrap_or(max_records)
    }

    fn poll(&mut self, max_records: usize) -> Result<Polled, Error> {
        let filled = match self.follow_changes() {
            Ok(None) if self.rest.is_some() => Ok(true),
            Ok(None) => self.fill(max_records),
            Ok(Some(reason)) => return Ok(Polled::Paused(reason)),
            Err(error) => Err(error),
        };
        match filled {
            Ok(true) => Ok(self.hand_out(max_records).unwrap_or(Polled::NotYet(None))),
            Ok(false) if !self.is_open => Ok(Polled::NotYet(Some(RETRY))),
            Ok(false) => {
                let has_ended = self.partitions.iter().all(PartitionReader::is_at_end) && self.stop_at.is_some();
                Ok(if has_ended { Polled::End } else { Polled::NotYet(None) })
            }
            // It was deleted a moment ago.
            Err(LogError::UnknownTopic { .. }) => Ok(Polled::NotYet(Some(RETRY))),
            Err(error) if error.is_temporary() => Ok(Polled::NotYet(Some(RETRY))),
            Err(error) => Err(self.failed(&error)),
        }
    }

    fn finished(&mut self, up_to: &[SourcePosition]) -> Option<Duration> {
        let topic = self.topic.as_ref().map(|topic| topic.id);
        let current: Vec<SourcePosition> = up_to.iter().filter(|at| Some(at.topic) == topic).copied().collect();
        self.progress.finished(&current);
        if self.stores_by_epoch {
            return None;
        }
        for position in &current {
            match self.unsaved.iter_mut().find(|known| known.partition == position.partition) {
                Some(known) => *known = *position,
                None => self.unsaved.push(*position),
            }
        }
        self.save()
    }

    fn is_settled(&self) -> bool {
        self.unsaved.is_empty() && !self.positions.is_storing()
    }

    fn partitions(&self, tell: &mut dyn FnMut(u32, bool)) {
        for (index, reader) in self.partitions.iter().enumerate() {
            let is_handed_out = self.rest.as_ref().is_none_or(|(_, _, of, _)| *of != index);
            tell(reader.partition.id().partition.0, reader.has_more() || !is_handed_out);
        }
    }

    fn commit_of(&self, at: &SourcePosition) -> Option<PositionCommit> {
        Some(self.positions.commit_of(&self.name, at))
    }

    fn progress(&self) -> Option<Arc<dyn SourceProgress>> {
        Some(Arc::clone(&self.progress) as _)
    }
}
