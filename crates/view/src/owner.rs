//! The owner of one partition: the only writer of its state.
//!
//! Runs on its shard's thread, one turn at a time. A turn settles the appends that have been answered, then decides
//! all waiting commands on `ahead` (the state with everything in flight) and appends their changes as one batch.
//!
//! Always true
//! - `ahead` = published state + changes of the flights, in order; a flight lands only after all before it.
//! - An answer goes out after every change it may rest on, its own or another's, has the topic's level; so a refusal
//!   that is due to a change in flight waits for that change too.
//! - After a failed append nothing is decided any more: what was in flight is of unknown fate, `ahead` is void.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::sync::Weak;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use bytes::Bytes;
use millstream_log::{AckLevel, Appended, AtomicAppend, Bell, Done, Log, Partition, UpTo};
use millstream_types::{
    BatchLimits, Epoch, Header, Offset, Position, Record, RecordView, TopicId, TopicPartition, WallClock,
};
use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

use crate::checkpoint::{Checkpoint, Reflected};
use crate::shard::{ShardQueue, Task, Turn};
use crate::source::{decode_offset, encode_offset};
use crate::view::{Draft, Encoded, Publish, Snapshot, View};
use crate::{DecodeError, Error, Source, Sources, ViewsConfig};

/// First byte of a state record's key: what the record is about.
const KIND_SOURCE: u8 = 0;
const KIND_VIEW: u8 = 1;

/// How many bytes one read of the state topic takes while a state is rebuilt.
const REPLAY_READ_BYTES: usize = 1 << 20;

/// How an owner's caller hears of his command.
pub(crate) type Reply<V> = oneshot::Sender<Result<<V as View>::Answer, Error>>;

struct Envelope<V: View> {
    command: V::Command,
    reply: Reply<V>,
}

struct Inbox<V: View> {
    commands: VecDeque<Envelope<V>>,
    landed: Vec<(u64, Result<Vec<Appended>, millstream_log::Error>)>,
    /// Commands taken and not answered yet, waiting ones included.
    open: usize,
    stopping: bool,
}

/// Changes on their way to the log, and who waits for them.
struct Flight<V: View> {
    id: u64,
    landed: bool,
    last: Option<Appended>,
    after: V::State,
    sources: Sources,
    records: Vec<(Bytes, Option<Bytes>)>,
    answers: Vec<(V::Answer, Reply<V>)>,
}

/// An encoded batch; kept while the log has no room for it.
struct Batch {
    records: Vec<(Bytes, Option<Bytes>)>,
    published: Vec<(TopicPartition, Publish)>,
    flight: u64,
    now_ms: i64,
}

struct Core<V: View> {
    ahead: V::State,
    sources: Sources,
    flights: VecDeque<Flight<V>>,
    unsent: Option<Batch>,
    next_flight: u64,
    ended: Option<Arc<millstream_log::Error>>,
}

/// Changes that the checkpoint does not have yet.
#[derive(Default)]
struct Dirty {
    records: HashMap<Bytes, Option<Bytes>>,
    bytes: usize,
    reflected: Option<(Epoch, Offset)>,
}

pub(crate) struct Owner<V: View> {
    me: Weak<Self>,
    id: TopicPartition,
    topic: TopicId,
    level: AckLevel,
    view: Arc<V>,
    log: Arc<dyn Log>,
    wall: Arc<dyn WallClock>,
    config: ViewsConfig,
    queue: ShardQueue,
    scheduled: AtomicBool,
    inbox: Mutex<Inbox<V>>,
    idle: Condvar,
    core: Mutex<Core<V>>,
    snapshot: ArcSwap<Snapshot<V>>,
    dirty: Mutex<Dirty>,
    checkpoint_due: Arc<Bell>,
}

/// What an owner works with.
pub(crate) struct Parts<V: View> {
    pub(crate) view: Arc<V>,
    pub(crate) log: Arc<dyn Log>,
    pub(crate) partition: Arc<dyn Partition>,
    pub(crate) wall: Arc<dyn WallClock>,
    pub(crate) config: ViewsConfig,
    pub(crate) queue: ShardQueue,
    pub(crate) checkpoint_due: Arc<Bell>,
}

impl<V: View> Owner<V> {
    /// Rebuilds the state from the checkpoint and the tail of the state topic.
    pub(crate) fn load(parts: Parts<V>, checkpoint: &Checkpoint) -> Result<Arc<Self>, Error> {
        let topic = parts.partition.topic();
        let (id, topic, level) = (parts.partition.id().clone(), topic.id, topic.config.level);
        let mut dirty = Dirty::default();
        let loaded = Loading { id: &id, topic, partition: &*parts.partition, checkpoint }.run::<V>(&mut dirty)?;
        let core = Core {
            ahead: loaded.state.clone(),
            sources: loaded.sources.clone(),
            flights: VecDeque::new(),
            unsent: None,
            next_flight: 0,
            ended: None,
        };
        Ok(Arc::new_cyclic(|me| Self {
            me: me.clone(),
            id,
            topic,
            level,
            view: parts.view,
            log: parts.log,
            wall: parts.wall,
            config: parts.config,
            queue: parts.queue,
            scheduled: AtomicBool::new(false),
            inbox: Mutex::new(Inbox { commands: VecDeque::new(), landed: Vec::new(), open: 0, stopping: false }),
            idle: Condvar::new(),
            core: Mutex::new(core),
            snapshot: ArcSwap::from_pointee(loaded),
            dirty: Mutex::new(dirty),
            checkpoint_due: parts.checkpoint_due,
        }))
    }

    /// The partition of the state topic.
    pub(crate) fn id(&self) -> &TopicPartition {
        &self.id
    }

    pub(crate) fn snapshot(&self) -> Arc<Snapshot<V>> {
        self.snapshot.load_full()
    }

    /// Takes a command, or hands it back without any effect.
    pub(crate) fn offer(&self, command: V::Command, reply: Reply<V>) -> Result<(), (Error, V::Command)> {
        {
            let mut inbox = self.inbox.lock();
            if inbox.stopping {
                return Err((Error::Stopped, command));
            }
            let (waiting, limit) = (inbox.commands.len(), self.config.inbox_max_commands);
            if waiting >= limit {
                return Err((Error::Overloaded { partition: self.id.clone(), waiting, limit }, command));
            }
            inbox.commands.push_back(Envelope { command, reply });
            inbox.open += 1;
        }
        self.schedule();
        Ok(())
    }

    /// Takes no more commands and waits until all taken ones are answered.
    pub(crate) fn stop(&self) {
        let mut inbox = self.inbox.lock();
        inbox.stopping = true;
        while inbox.open > 0 {
            self.idle.wait(&mut inbox);
        }
    }

    /// Writes what has changed since the last time to the checkpoint.
    pub(crate) fn write_checkpoint(&self, checkpoint: &Checkpoint) -> Result<(), Error> {
        let dirty = std::mem::take(&mut *self.dirty.lock());
        let Some((epoch, next)) = dirty.reflected else { return Ok(()) };
        let reflected = Reflected { topic: self.topic, epoch, next };
        checkpoint.write(self.id.partition, dirty.records.iter(), reflected)?;
        if dirty.bytes > self.config.dirty_max_bytes {
            self.schedule();
        }
        Ok(())
    }

    fn schedule(&self) {
        if !self.scheduled.swap(true, Ordering::AcqRel)
            && let Some(me) = self.me.upgrade()
            && self.queue.send(me).is_err()
        {
            tracing::error!(partition = %self.id, "the shard of an owner has ended");
        }
    }

    /// Lands flights that have been answered; from the front, so that answers keep their order.
    fn settle(&self, core: &mut Core<V>) {
        for (id, outcome) in std::mem::take(&mut self.inbox.lock().landed) {
            match outcome {
                Ok(appended) => {
                    if let Some(flight) = core.flights.iter_mut().find(|flight| flight.id == id) {
                        flight.landed = true;
                        flight.last = appended.first().copied();
                    }
                }
                Err(failure) => core.ended = core.ended.take().or(Some(Arc::new(failure))),
            }
        }
        while core.ended.is_none() && core.flights.front().is_some_and(|flight| flight.landed) {
            if let Some(flight) = core.flights.pop_front() {
                self.land(flight);
            }
        }
        if let Some(failure) = core.ended.clone() {
            core.unsent = None;
            let failed: Vec<_> = core.flights.drain(..).flat_map(|flight| flight.answers).collect();
            let count = failed.len();
            for (_, reply) in failed {
                let _ = reply.send(Err(self.ended(&failure)));
            }
            self.close(count);
        }
    }

    fn land(&self, flight: Flight<V>) {
        let before = self.snapshot.load();
        let next = flight.last.map_or(before.next, |appended| appended.last.next());
        self.snapshot.store(Arc::new(Snapshot { state: flight.after, sources: flight.sources, next }));
        if let Some(appended) = flight.last {
            let mut dirty = self.dirty.lock();
            dirty.take(flight.records, appended.epoch, next);
            if dirty.bytes > self.config.dirty_max_bytes {
                self.checkpoint_due.ring();
            }
        }
        let count = flight.answers.len();
        for (answer, reply) in flight.answers {
            let _ = reply.send(Ok(answer));
        }
        self.close(count);
    }

    fn close(&self, answered: usize) {
        let mut inbox = self.inbox.lock();
        inbox.open -= answered;
        if inbox.open == 0 {
            self.idle.notify_all();
        }
    }

    fn ended(&self, failure: &Arc<millstream_log::Error>) -> Error {
        Error::OwnerEnded { partition: self.id.clone(), source: Arc::clone(failure) }
    }

    /// The commands of one batch; none while too much is in flight or the checkpoint has fallen behind.
    fn take_commands(&self, core: &Core<V>) -> Vec<Envelope<V>> {
        if core.flights.len() >= self.config.flights_max || self.dirty.lock().bytes > self.config.dirty_max_bytes {
            return Vec::new();
        }
        let mut inbox = self.inbox.lock();
        let count = inbox.commands.len().min(self.config.batch_max_commands);
        inbox.commands.drain(..count).collect()
    }

    /// Decides commands, in order, and puts their changes on the way.
    fn decide(&self, core: &mut Core<V>, commands: Vec<Envelope<V>>) -> Turn {
        let now_ms = self.wall.now_ms();
        let (mut changes, mut advanced, mut published) = (Vec::new(), Vec::new(), Vec::new());
        let mut answers = Vec::with_capacity(commands.len());
        let mut gone = 0;
        for Envelope { command, reply } in commands {
            if reply.is_closed() {
                gone += 1;
                continue;
            }
            let mut draft = Draft {
                state: &mut core.ahead,
                sources: &mut core.sources,
                changes: &mut changes,
                advanced: &mut advanced,
                published: &mut published,
                now_ms,
            };
            answers.push((self.view.decide(&mut draft, command), reply));
        }
        self.close(gone);
        let records = encode::<V>(&changes, &advanced, &core.sources);
        let id = core.next_flight;
        core.next_flight += 1;
        let unchanged = records.is_empty() && published.is_empty();
        core.flights.push_back(Flight {
            id,
            landed: unchanged,
            last: None,
            after: core.ahead.clone(),
            sources: core.sources.clone(),
            records: records.clone(),
            answers,
        });
        if unchanged {
            self.settle(core);
            return Turn::Rest;
        }
        self.send(core, Batch { records, published, flight: id, now_ms })
    }

    fn send(&self, core: &mut Core<V>, batch: Batch) -> Turn {
        let me = self.me.clone();
        let id = batch.flight;
        let done = Done::call(move |outcome| {
            if let Some(owner) = me.upgrade() {
                owner.inbox.lock().landed.push((id, outcome));
                owner.schedule();
            }
        });
        match self.append(&batch, done) {
            Ok(()) => Turn::Rest,
            Err(refused) if refused.is_retryable() => {
                core.unsent = Some(batch);
                Turn::Retry
            }
            Err(failure) => {
                tracing::error!(partition = %self.id, error = %failure, "a state change cannot be appended; the owner ends");
                core.ended = Some(Arc::new(failure));
                self.settle(core);
                Turn::Rest
            }
        }
    }

    fn append(&self, batch: &Batch, done: Done<Vec<Appended>>) -> Result<(), millstream_log::Error> {
        let state = batch.records.iter().map(|(key, value)| Record {
            timestamp_ms: batch.now_ms,
            key: Some(key),
            value: value.as_deref(),
            headers: &[],
        });
        let mut append = AtomicAppend { records: vec![(self.id.clone(), state.collect())], positions: Vec::new() };
        let headers: Vec<Vec<Header<'_>>> = batch.published.iter().map(|(_, record)| headers(record)).collect();
        for ((to, record), headers) in batch.published.iter().zip(&headers) {
            let record = Record {
                timestamp_ms: record.timestamp_ms,
                key: record.key.as_deref(),
                value: record.value.as_deref(),
                headers,
            };
            match append.records.iter_mut().find(|(partition, _)| partition == to) {
                Some((_, records)) => records.push(record),
                None => append.records.push((to.clone(), vec![record])),
            }
        }
        self.log.append_atomic(&append, self.level, done)
    }

    /// Answers what waits although nothing can be decided any more.
    fn refuse_waiting(&self, failure: &Arc<millstream_log::Error>) {
        let waiting: Vec<_> = self.inbox.lock().commands.drain(..).collect();
        let count = waiting.len();
        for envelope in waiting {
            let _ = envelope.reply.send(Err(self.ended(failure)));
        }
        self.close(count);
    }
}

impl<V: View> Task for Owner<V> {
    fn run(&self) -> Turn {
        self.scheduled.store(false, Ordering::Release);
        let mut core = self.core.lock();
        self.settle(&mut core);
        if let Some(batch) = core.unsent.take()
            && self.send(&mut core, batch) == Turn::Retry
        {
            return Turn::Retry;
        }
        loop {
            if let Some(failure) = core.ended.clone() {
                self.refuse_waiting(&failure);
                return Turn::Rest;
            }
            let commands = self.take_commands(&core);
            if commands.is_empty() {
                return Turn::Rest;
            }
            if self.decide(&mut core, commands) == Turn::Retry {
                return Turn::Retry;
            }
            self.settle(&mut core);
        }
    }
}

impl Dirty {
    fn take(&mut self, records: Vec<(Bytes, Option<Bytes>)>, epoch: Epoch, next: Offset) {
        for (key, value) in records {
            self.bytes += key.len() + value.as_ref().map_or(0, Bytes::len);
            self.records.insert(key, value);
        }
        self.reflected = Some((epoch, next));
    }
}

fn headers(record: &Publish) -> Vec<Header<'_>> {
    record.headers.iter().map(|(key, value)| Header { key, value: Some(value) }).collect()
}

/// Writes changes and source positions as state records, all slices of one buffer.
fn encode<V: View>(changes: &[V::Change], advanced: &[Source], sources: &Sources) -> Vec<(Bytes, Option<Bytes>)> {
    let (mut buffer, mut key, mut value) = (Vec::new(), Vec::new(), Vec::new());
    let mut spans: Vec<(Range<usize>, Option<Range<usize>>)> = Vec::with_capacity(changes.len() + advanced.len());
    let mut store = |key: &[u8], value: Option<&[u8]>| {
        let start = buffer.len();
        buffer.extend_from_slice(key);
        let middle = buffer.len();
        buffer.extend_from_slice(value.unwrap_or_default());
        spans.push((start..middle, value.map(|_| middle..buffer.len())));
    };
    for change in changes {
        key.clear();
        value.clear();
        key.push(KIND_VIEW);
        let stored = V::encode(change, &mut key, &mut value) == Encoded::Value;
        store(&key, stored.then_some(value.as_slice()));
    }
    for (i, source) in advanced.iter().enumerate() {
        let is_latest = !advanced[i + 1..].contains(source);
        if let (true, Some(next)) = (is_latest, sources.get(source)) {
            key.clear();
            value.clear();
            key.push(KIND_SOURCE);
            source.encode_key(&mut key);
            encode_offset(*next, &mut value);
            store(&key, Some(&value));
        }
    }
    let buffer = Bytes::from(buffer);
    spans.into_iter().map(|(key, value)| (buffer.slice(key), value.map(|span| buffer.slice(span)))).collect()
}

/// A state on its way from checkpoint and log into memory.
struct Loading<'a> {
    id: &'a TopicPartition,
    topic: TopicId,
    partition: &'a dyn Partition,
    checkpoint: &'a Checkpoint,
}

impl Loading<'_> {
    fn run<V: View>(&self, dirty: &mut Dirty) -> Result<Snapshot<V>, Error> {
        let mut snapshot = Snapshot { state: V::State::default(), sources: Sources::new(), next: Offset::ZERO };
        match self.resume() {
            Some(next) => {
                self.checkpoint.load(self.id.partition, |key, value| {
                    apply::<V>(&mut snapshot, key, Some(value)).map_err(|e| self.state_record(next, e))
                })?;
                snapshot.next = next;
            }
            None => {
                self.checkpoint.clear(self.id.partition)?;
                snapshot.next = self.partition.offsets().first;
            }
        }
        self.replay(&mut snapshot, dirty)?;
        Ok(snapshot)
    }

    /// Where the log goes on after the checkpoint; `None` if there is none that can be used.
    fn resume(&self) -> Option<Offset> {
        let reflected = match self.checkpoint.reflected(self.id.partition) {
            Ok(reflected) => reflected?,
            Err(damage) => {
                tracing::warn!(partition = %self.id, error = %damage, "checkpoint is unreadable; rebuilding from the log");
                return None;
            }
        };
        let position = Position { topic: reflected.topic, epoch: reflected.epoch, offset: reflected.next };
        match self.partition.resume(position) {
            Ok(next) if reflected.topic == self.topic => Some(next),
            Ok(_) => None,
            Err(why) => {
                tracing::warn!(partition = %self.id, error = %why, "checkpoint does not fit the log; rebuilding from the log");
                None
            }
        }
    }

    fn replay<V: View>(&self, snapshot: &mut Snapshot<V>, dirty: &mut Dirty) -> Result<(), Error> {
        loop {
            let batches = self.partition.read(snapshot.next, REPLAY_READ_BYTES, UpTo::Stable)?;
            if batches.is_empty() {
                return Ok(());
            }
            for batch in batches {
                let batch = batch
                    .inflated(&BatchLimits::default())
                    .map_err(|source| millstream_log::Error::Batch { partition: self.id.clone(), source })?;
                let mut records = Vec::new();
                for record in batch.records() {
                    let record: RecordView<'_> = record.map_err(|source| {
                        Error::from(millstream_log::Error::Batch { partition: self.id.clone(), source })
                    })?;
                    if record.offset < snapshot.next {
                        continue;
                    }
                    let key = record.key.unwrap_or_default();
                    apply::<V>(snapshot, key, record.value).map_err(|e| self.state_record(record.offset, e))?;
                    records.push((Bytes::copy_from_slice(key), record.value.map(Bytes::copy_from_slice)));
                }
                snapshot.next = snapshot.next.max(batch.last_offset().next());
                dirty.take(records, batch.epoch(), snapshot.next);
            }
        }
    }

    fn state_record(&self, offset: Offset, source: DecodeError) -> Error {
        Error::StateRecord { partition: self.id.clone(), offset, source }
    }
}

fn apply<V: View>(snapshot: &mut Snapshot<V>, key: &[u8], value: Option<&[u8]>) -> Result<(), DecodeError> {
    match key.split_first() {
        Some((&KIND_VIEW, key)) => {
            V::apply(&mut snapshot.state, &V::decode(key, value)?);
            Ok(())
        }
        Some((&KIND_SOURCE, key)) => {
            let source = Source::decode_key(key)?;
            match value {
                Some(value) => drop(snapshot.sources.insert(source, decode_offset(value)?)),
                None => drop(snapshot.sources.remove(&source)),
            }
            Ok(())
        }
        Some((kind, _)) => Err(DecodeError::new(format!("state record of kind {kind}"))),
        None => Err(DecodeError::new("a state record without a key")),
    }
}
