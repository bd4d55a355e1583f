//! A source as its instance reads it: in full batches, within its bounds of records and memory, and against the clock.

mod sources;

use std::sync::Arc;
use std::time::Duration;

use millstream_types::Grant;

pub(super) use self::sources::{Sources, SourcesStep};
use super::epoch_part::EpochPart;
use super::event_time::{SourceTime, TimeMark};
use super::run::Run;
use super::run_failure::RunFailure;
use crate::Error;
use crate::batch::Batch;
use crate::connector::{Polled, Source};
use crate::delivery::{OldestBatch, SourcePosition, Tracker};
use crate::document::{BatchSettings, NodeId};
use crate::expression::RecordError;
use crate::memory::NoMemory;

/// Pause before memory that others hold is asked for again.
const MEMORY_RETRY: Duration = Duration::from_millis(100);
/// Bytes of a record beside its key and payload.
const RECORD_BYTES: u64 = 100;

pub(super) struct ReadingSource {
    pub(super) node: NodeId,
    pub(super) source: Box<dyn Source>,
    pub(super) tracker: Arc<Tracker>,
    pub(super) state: SourceState,
    /// The topic of its records, for errors.
    topic: Option<Arc<str>>,
    /// When records were seen that are too few for a full batch.
    gathers_since: Option<Duration>,
    /// A batch that waits for memory.
    held: Option<(ReadBatch, SourcePosition)>,
    /// `None` in a job without event time.
    pub(super) time: Option<SourceTime>,
    /// The places after all that was read since the last call of [`ReadingSource::take_places`].
    places: Vec<SourcePosition>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum SourceState {
    Starting,
    Reading,
    /// There are no more records.
    Ended,
    /// Everything that was read is finished and stored.
    Done,
}

/// Records that a source has read.
pub(super) struct ReadBatch {
    pub(super) batch: Batch,
    /// The errors of those that cannot be read, by ascending row.
    pub(super) failed: Vec<RecordError>,
}

/// The result of an attempt to read.
pub(super) enum ReadStep {
    Read(ReadBatch),
    /// Not before the task is woken, or this time has passed.
    NotYet(Option<Duration>),
    End,
}

impl ReadingSource {
    pub(super) fn new(node: NodeId, source: Box<dyn Source>, tracker: Arc<Tracker>, time: Option<SourceTime>) -> Self {
        let state = SourceState::Starting;
        let (topic, gathers_since, held, places) = (None, None, None, Vec::new());
        Self { node, source, tracker, state, topic, gathers_since, held, time, places }
    }

    /// The next records, which are in flight from now on.
    pub(super) fn read(&mut self, run: &Run) -> Result<ReadStep, Error> {
        let node = &run.plan.nodes[self.node.0].node;
        let has_room = self.tracker.in_flight_records() < u64::from(node.max_in_flight);
        if !has_room && let Some(epochs) = &run.epochs {
            epochs.hurry();
        }
        if self.state != SourceState::Reading || run.is_stopping() || !has_room {
            return Ok(ReadStep::NotYet(None));
        }
        let is_new = self.held.is_none();
        let (read, position) = match self.held.take() {
            Some(held) => held,
            None => {
                if let Some(left) = self.gather(node.batch, run.clock.now()) {
                    return Ok(ReadStep::NotYet(Some(left)));
                }
                let polled = self.source.poll(node.batch.size as usize)?;
                if let Some(time) = &mut self.time {
                    let found_nothing = matches!(polled, Polled::NotYet(_) | Polled::Paused(_));
                    time.look(&*self.source, run.clock.now(), found_nothing);
                }
                match polled {
                    Polled::Batch(batch, position) => (ReadBatch { batch, failed: Vec::new() }, position),
                    Polled::WithErrors(batch, failed, position) => (ReadBatch { batch, failed }, position),
                    Polled::NotYet(timeout) => {
                        run.pauses.set(&node.name, None);
                        return Ok(ReadStep::NotYet(timeout));
                    }
                    Polled::Paused(reason) => {
                        run.pauses.set(&node.name, Some(reason));
                        return Ok(ReadStep::NotYet(None));
                    }
                    Polled::End => return Ok(ReadStep::End),
                }
            }
        };
        let Some(memory) = &run.memory else { return Ok(ReadStep::Read(self.begin(run, read, position, None))) };
        match memory.take(memory_bytes(&read.batch)) {
            Ok(grant) => {
                run.pauses.set(&node.name, None);
                Ok(ReadStep::Read(self.begin(run, read, position, Some(grant))))
            }
            Err(NoMemory::Never(message)) => Err(Error::connector(&node.name, message)),
            Err(NoMemory::NotNow(reason)) => {
                if is_new {
                    memory.count_wait();
                }
                if let Some(epochs) = &run.epochs {
                    epochs.hurry();
                }
                run.pauses.set(&node.name, Some(reason));
                self.held = Some((read, position));
                Ok(ReadStep::NotYet(Some(MEMORY_RETRY)))
            }
        }
    }

    /// Puts a batch in flight.
    fn begin(&mut self, run: &Run, read: ReadBatch, position: SourcePosition, memory: Option<Grant>) -> ReadBatch {
        let ReadBatch { mut batch, mut failed } = read;
        if let Some(time) = &mut self.time {
            batch = time.stamp(batch, &mut failed, position.partition, run.wall.now_ms());
        }
        if self.topic.is_none() {
            self.topic = batch.topic().map(Arc::from);
        }
        let first = if batch.is_empty() { position.offset } else { batch.offset(0).0 };
        let ack = self.tracker.begin(position, first, batch.len() as u32, memory);
        if run.is_at_most_once {
            self.source.finished(&[position]);
        }
        if let Some(epochs) = &run.epochs {
            let is_same = |known: &&mut SourcePosition| known.partition == position.partition;
            match self.places.iter_mut().find(is_same) {
                Some(known) => *known = position,
                None => self.places.push(position),
            }
            epochs.has_news();
        }
        ReadBatch { batch: batch.read_by(self.node).held_by(ack), failed }
    }

    /// Adds the places after all that was read to a part of an epoch. `name` is that of the node.
    pub(super) fn take_places(&mut self, name: &str, part: &mut EpochPart) {
        for place in self.places.drain(..) {
            match self.source.commit_of(&place) {
                Some(commit) => {
                    part.positions.push(commit);
                    part.read.entry(name.to_owned()).or_default().push(place);
                }
                None => drop(part.places.insert(name.to_owned(), place.offset)),
            }
        }
        if let Some(time) = &self.time {
            part.times.insert(name.to_owned(), time.latest().collect());
        }
    }

    /// The progress of event time; `None` in a job without it, and for a source that has ended.
    pub(super) fn time_mark(&mut self) -> Option<TimeMark> {
        let is_open = matches!(self.state, SourceState::Starting | SourceState::Reading);
        Some(self.time.as_mut().filter(|_| is_open)?.mark())
    }

    /// The time until the source is idle, if it has event time and nothing comes.
    pub(super) fn time_to_quiet(&self) -> Option<Duration> {
        self.time.as_ref().filter(|_| self.state == SourceState::Reading)?.time_to_quiet()
    }

    /// The time to wait for a full batch; `None` to read now.
    fn gather(&mut self, batch: BatchSettings, now: Duration) -> Option<Duration> {
        let ready = self.source.records_ready(batch.size as usize);
        if (1..batch.size as usize).contains(&ready) {
            let since = *self.gathers_since.get_or_insert(now);
            let left = (since + Duration::from_millis(batch.timeout_ms)).saturating_sub(now);
            if !left.is_zero() {
                return Some(left);
            }
        }
        self.gathers_since = None;
        None
    }

    /// The time until the oldest records are read again; the failure if they are late.
    pub(super) fn time_to_ack(&self, run: &Run, instance: u32) -> Result<Option<Duration>, Box<RunFailure>> {
        let limit_ms = run.plan.nodes[self.node.0].node.ack_timeout_ms;
        // With epochs, `checkpoint.timeout` takes its place.
        if run.is_at_most_once || run.epochs.is_some() || limit_ms == 0 {
            return Ok(None);
        }
        let Some(oldest) = self.tracker.oldest() else { return Ok(None) };
        let left = Duration::from_millis(limit_ms).saturating_sub(oldest.age);
        if left.is_zero() { Err(self.ack_failure(run, oldest, limit_ms, instance)) } else { Ok(Some(left)) }
    }

    fn ack_failure(&self, run: &Run, oldest: OldestBatch, limit_ms: u64, instance: u32) -> Box<RunFailure> {
        let OldestBatch { partition, first, .. } = oldest;
        let record = match &self.topic {
            Some(topic) => format!("{topic}/{partition} {first}"),
            None => format!("record {first}"),
        };
        let message = format!(
            "the records from {record} on are not finished, and none was written for {limit_ms} ms; they are read again; \
             see which sink waits, or raise ack_timeout"
        );
        Box::new(RunFailure {
            node: run.plan.nodes[self.node.0].node.name.clone(),
            instance,
            stage: "ack".to_owned(),
            code: "ack_timeout".to_owned(),
            message,
            record: Some(record),
            at: run.now(),
        })
    }
}

fn memory_bytes(batch: &Batch) -> u64 {
    let bytes = |row| (batch.payload(row).map_or(0, <[u8]>::len) + batch.key(row).map_or(0, <[u8]>::len)) as u64;
    (0..batch.len()).map(|row| RECORD_BYTES + bytes(row)).sum()
}
