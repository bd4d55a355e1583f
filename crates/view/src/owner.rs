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

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::Weak;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use millstream_log::{AckLevel, Appended, AtomicAppend, Bell, Done, Log, Partition};
use millstream_types::{ErrorCode, Header, Record, TopicId, TopicPartition, WallClock};
use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

use crate::checkpoint::{Checkpoint, NOT_WRITTEN};
use crate::dirty::Dirty;
use crate::failure::{FailedPart, Failure, Failures, panic_text};
use crate::gathered::{Gathered, Limits};
use crate::load::Loading;
use crate::shard::{ShardQueue, Task, Turn};
use crate::state_record::StateRecord;
use crate::view::{Publish, Snapshot, View};
use crate::{Error, Sources, ViewsConfig};

/// How an owner's caller hears of his command.
pub(crate) type Reply<V> = oneshot::Sender<Result<<V as View>::Answer, Error>>;

struct Envelope<V: View> {
    command: V::Command,
    reply: Reply<V>,
    size_bytes: usize,
}

struct Inbox<V: View> {
    commands: VecDeque<Envelope<V>>,
    /// What `commands` take.
    waiting_bytes: usize,
    landed: Vec<(u64, Result<Vec<Appended>, millstream_log::Error>)>,
    /// Commands taken and not answered yet, waiting ones included.
    open: usize,
    /// Why the log takes nothing before an operator has done something; none while it does.
    stalled: Option<Arc<millstream_log::Error>>,
    stopping: bool,
}

/// Changes on their way to the log, and who waits for them.
struct Flight<V: View> {
    id: u64,
    landed: bool,
    last: Option<Appended>,
    /// Bytes of its changes and of what they tell.
    size_bytes: usize,
    after: V::State,
    sources: Sources,
    records: Vec<StateRecord>,
    answers: Vec<(V::Answer, Reply<V>)>,
}

/// An encoded batch; kept while the log has no room for it.
struct Batch {
    records: Vec<StateRecord>,
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

pub(crate) struct Owner<V: View> {
    me: Weak<Self>,
    id: TopicPartition,
    topic: TopicId,
    level: AckLevel,
    partition: Arc<dyn Partition>,
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
    failures: Arc<Failures>,
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
    pub(crate) failures: Arc<Failures>,
}

impl<V: View> Owner<V> {
    /// Rebuilds the state from the checkpoint and the tail of the state topic.
    pub(crate) fn load(parts: Parts<V>, checkpoint: &Checkpoint) -> Result<Arc<Self>, Error> {
        let topic = parts.partition.topic();
        let (id, topic, level) = (parts.partition.id().clone(), topic.id, topic.config.level);
        let dirty_max_bytes = parts.config.dirty_max_bytes;
        let loading = Loading { id: &id, topic, partition: &*parts.partition, checkpoint, dirty_max_bytes };
        let (loaded, dirty) = loading.run::<V>()?;
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
            partition: parts.partition,
            view: parts.view,
            log: parts.log,
            wall: parts.wall,
            config: parts.config,
            queue: parts.queue,
            scheduled: AtomicBool::new(false),
            inbox: Mutex::new(Inbox {
                commands: VecDeque::new(),
                waiting_bytes: 0,
                landed: Vec::new(),
                open: 0,
                stalled: None,
                stopping: false,
            }),
            idle: Condvar::new(),
            core: Mutex::new(core),
            snapshot: ArcSwap::from_pointee(loaded),
            dirty: Mutex::new(dirty),
            checkpoint_due: parts.checkpoint_due,
            failures: parts.failures,
        }))
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
            if let Some(full) = &inbox.stalled {
                return Err((Error::Log(Arc::clone(full)), command));
            }
            let (waiting, limit) = (inbox.commands.len(), self.config.inbox_max_commands);
            if waiting >= limit {
                return Err((Error::Overloaded { partition: self.id.clone(), waiting, limit }, command));
            }
            let (waiting_bytes, limit_bytes) = (inbox.waiting_bytes, self.config.inbox_max_bytes);
            let size_bytes = size_of::<Envelope<V>>() + V::owned_bytes(&command);
            if waiting > 0 && waiting_bytes + size_bytes > limit_bytes {
                let (partition, setting) = (self.id.clone(), self.config.inbox_setting);
                let full = Error::InboxFull { partition, waiting_bytes, limit_bytes, setting };
                return Err((full, command));
            }
            inbox.waiting_bytes += size_bytes;
            inbox.commands.push_back(Envelope { command, reply, size_bytes });
            inbox.open += 1;
        }
        self.schedule();
        Ok(())
    }

    /// Takes no more commands.
    pub(crate) fn begin_stop(&self) {
        self.inbox.lock().stopping = true;
    }

    /// Waits until all taken commands are answered.
    pub(crate) fn wait_idle(&self) {
        let mut inbox = self.inbox.lock();
        while inbox.open > 0 {
            self.idle.wait(&mut inbox);
        }
    }

    /// Writes what has changed since the last time to the checkpoint.
    pub(crate) fn write_checkpoint(&self, checkpoint: &Checkpoint) {
        // A store that a write has failed in takes no more before a restart.
        if self.log.check_disk().is_err() {
            return;
        }
        let dirty = self.dirty.lock().drain();
        if let Err(e) = checkpoint.write_dirty(self.id.partition, self.topic, &dirty) {
            tracing::error!(partition = %self.id, error = &e as &dyn std::error::Error, "{NOT_WRITTEN}");
            self.dirty.lock().abandon();
        }
        let held_bytes = dirty.held_bytes();
        drop(dirty);
        self.dirty.lock().written();
        if held_bytes > 0 {
            self.schedule();
        }
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
                        flight.last = appended.first().copied().filter(|_| !flight.records.is_empty());
                    }
                }
                Err(failure) => self.end(core, failure),
            }
        }
        while core.flights.front().is_some_and(|flight| flight.landed) {
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
            if dirty.held_bytes() > self.config.dirty_max_bytes {
                self.checkpoint_due.ring();
            }
        }
        let count = flight.answers.len();
        for (answer, reply) in flight.answers {
            self.view.landed(&answer);
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

    /// An append has failed: nothing is decided any more.
    fn end(&self, core: &mut Core<V>, failure: millstream_log::Error) {
        self.fail(format!("a state change cannot be appended: {failure}"));
        core.ended = core.ended.take().or(Some(Arc::new(failure)));
    }

    /// Lets be seen that not all is well here.
    fn fail(&self, reason: String) {
        let (partition, offset) = (self.id.clone(), self.snapshot.load().next);
        self.failures.add(Failure { view: V::NAME, part: FailedPart::Owner, partition, offset, reason });
    }

    fn ended(&self, failure: &Arc<millstream_log::Error>) -> Error {
        Error::OwnerEnded { partition: self.id.clone(), source: Arc::clone(failure) }
    }

    /// The commands of one batch; none while too much is in flight or the checkpoint has fallen behind.
    fn take_commands(&self, core: &Core<V>) -> VecDeque<Envelope<V>> {
        let in_flight_bytes: usize = core.flights.iter().map(|flight| flight.size_bytes).sum();
        let held_bytes = in_flight_bytes + self.dirty.lock().held_bytes();
        if core.flights.len() >= self.config.flights_max || held_bytes > self.config.dirty_max_bytes {
            return VecDeque::new();
        }
        let mut inbox = self.inbox.lock();
        let count = inbox.commands.len().min(self.config.batch_max_commands);
        let taken: VecDeque<_> = inbox.commands.drain(..count).collect();
        inbox.waiting_bytes -= taken.iter().map(|envelope| envelope.size_bytes).sum::<usize>();
        taken
    }

    /// Puts commands back to where they were taken from.
    fn return_commands(&self, mut commands: VecDeque<Envelope<V>>) {
        let mut inbox = self.inbox.lock();
        inbox.waiting_bytes += commands.iter().map(|envelope| envelope.size_bytes).sum::<usize>();
        commands.append(&mut inbox.commands);
        inbox.commands = commands;
    }

    /// Decides commands, in order, until an append is full, and puts their changes on the way.
    fn decide(&self, core: &mut Core<V>, mut commands: VecDeque<Envelope<V>>) -> Turn {
        let now_ms = self.wall.now_ms();
        let limits = Limits {
            partition: &self.id,
            record_max_bytes: self.partition.topic().config.record_max_bytes,
            append_max_bytes: self.config.append_max_bytes,
            log: &*self.log,
        };
        let mut gathered = Gathered::<V>::new();
        let mut answers = Vec::with_capacity(commands.len());
        let mut closed = 0;
        while gathered.size_bytes() < self.config.append_max_bytes
            && let Some(Envelope { command, reply, .. }) = commands.pop_front()
        {
            if reply.is_closed() {
                closed += 1;
                continue;
            }
            let mark = gathered.mark();
            // Whatever a command that panics leaves behind is undone like one that is refused.
            let decided = catch_unwind(AssertUnwindSafe(|| {
                let draft = &mut gathered.draft(&mut core.ahead, &mut core.sources, now_ms);
                let answer = self.view.decide(draft, command);
                gathered.take_in(mark, &limits).map(|()| answer)
            }));
            match decided.unwrap_or_else(|panic| Err(self.panicked(panic_text(&*panic)))) {
                Ok(answer) => answers.push((answer, reply)),
                Err(refusal) => {
                    self.rewind(core);
                    gathered.undo(mark, &mut core.ahead, &mut core.sources);
                    let _ = reply.send(Err(refusal));
                    closed += 1;
                }
            }
        }
        self.return_commands(commands);
        self.close(closed);
        self.depart(core, gathered, answers, now_ms)
    }

    /// Deciding a command panicked, a mistake in the program: its sender hears so, and whoever asks how the view is.
    fn panicked(&self, what: &str) -> Error {
        let error = Error::Panicked { partition: self.id.clone(), what: what.to_owned() };
        self.fail(error.to_string());
        error
    }

    /// Begins a flight with what was gathered.
    fn depart(
        &self,
        core: &mut Core<V>,
        gathered: Gathered<V>,
        answers: Vec<(V::Answer, Reply<V>)>,
        now_ms: i64,
    ) -> Turn {
        let size_bytes = gathered.size_bytes();
        let (records, published) = gathered.finish();
        let id = core.next_flight;
        core.next_flight += 1;
        let unchanged = records.is_empty() && published.is_empty();
        core.flights.push_back(Flight {
            id,
            landed: unchanged,
            last: None,
            size_bytes,
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

    /// Sets `ahead` back to where the last flight leaves it.
    fn rewind(&self, core: &mut Core<V>) {
        (core.ahead, core.sources) = match core.flights.back() {
            Some(last) => (last.after.clone(), last.sources.clone()),
            None => {
                let landed = self.snapshot.load();
                (landed.state.clone(), landed.sources.clone())
            }
        };
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
        let outcome = self.append(&batch, done);
        let is_stopping = self.stalled(outcome.as_ref().err());
        let Err(refusal) = outcome else { return Turn::Rest };
        match refusal.code() {
            ErrorCode::Overloaded if !is_stopping || !matches!(refusal, millstream_log::Error::DiskFull { .. }) => {
                core.unsent = Some(batch);
                return Turn::Retry;
            }
            // What is wrong is wrong with this batch only, and nothing was taken.
            ErrorCode::TooLarge | ErrorCode::Invalid | ErrorCode::NotFound | ErrorCode::Conflict => {
                self.refuse_last(core, refusal);
            }
            _ => {
                self.end(core, refusal);
                self.settle(core);
            }
        }
        Turn::Rest
    }

    /// Lets commands be refused while the disk is full: those who send them may wait, or go elsewhere. Whether no more come
    /// anyway, so that nobody is there who waits for room.
    fn stalled(&self, outcome: Option<&millstream_log::Error>) -> bool {
        let full = outcome.filter(|refusal| matches!(refusal, millstream_log::Error::DiskFull { .. }));
        let mut inbox = self.inbox.lock();
        if full.is_some() || inbox.stalled.is_some() {
            inbox.stalled = full.cloned().map(Arc::new);
        }
        inbox.stopping
    }

    /// Undoes the last flight, which the log has refused.
    fn refuse_last(&self, core: &mut Core<V>, refusal: millstream_log::Error) {
        tracing::warn!(partition = %self.id, error = %refusal, "the log refused a batch of changes; its commands are refused");
        let Some(flight) = core.flights.pop_back() else { return };
        self.rewind(core);
        let refusal = Error::from(refusal);
        let count = flight.answers.len();
        for (_, reply) in flight.answers {
            let _ = reply.send(Err(refusal.clone()));
        }
        self.close(count);
    }

    fn append(&self, batch: &Batch, done: Done<Vec<Appended>>) -> Result<(), millstream_log::Error> {
        let state = batch.records.iter().map(|(key, value)| Record {
            timestamp_ms: batch.now_ms,
            key: Some(key),
            value: value.as_deref(),
            headers: &[],
        });
        let mut append = AtomicAppend::default();
        if !batch.records.is_empty() {
            append.records.push((self.id.clone(), state.collect()));
        }
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
        let waiting = {
            let mut inbox = self.inbox.lock();
            inbox.waiting_bytes = 0;
            std::mem::take(&mut inbox.commands)
        };
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

fn headers(record: &Publish) -> Vec<Header<'_>> {
    record.headers.iter().map(|(key, value)| Header { key, value: Some(value) }).collect()
}
