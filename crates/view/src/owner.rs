//! The owner of one partition is the only writer of its state.
//!
//! It runs on its shard's thread, one turn at a time. A turn completes the appends that have been answered, decides
//! all waiting commands on `ahead` (the state including changes in flight), and appends their changes as one batch.
//!
//! Invariants
//! - `ahead` = published state + changes of the appends in flight, in order. An append lands
//!   only after all earlier ones.
//! - An answer goes out once every change that it may depend on, of any command, has the topic's level. So a refusal
//!   that depends on a change in flight waits for that change too.
//! - After a failed append nothing is decided any more: the outcome of the appends in flight is
//!   unknown, and `ahead` is void. If the log goes on ([`millstream_log::Error::needs_writer`]), the owner finds out what is
//!   stored ([`crate::outcome`]), sends the other appends again in their order, and goes on, too.
//! - A command has memory until it is decided; its changes have memory from before their decision until the checkpoint
//!   has them.

mod doubt;

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::Weak;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use millstream_log::{AckLevel, Appended, Bell, Done, Log, Partition, Writer};
use millstream_types::{ErrorCode, Grant, TopicId, TopicPartition, WallClock};
use parking_lot::{Condvar, Mutex};

use crate::change_batch::{AppendLimits, ChangeBatch};
use crate::checkpoint::{Checkpoint, NOT_WRITTEN, has_room};
use crate::dirty::{Behind, Dirty, MergeVisit, RECORD_BYTES, memory_bytes, merge_newer};
use crate::failure::{FailedPart, Failure, Failures, panic_text};
use crate::flight::{InFlightAppend, StateRecords, count_own};
use crate::load::Loading;
use crate::outcome::DecidedOutcome;
use crate::shard::{ShardQueue, ShardTask, TurnOutcome};
use crate::view::{Snapshot, Storage, View};
use crate::waiting::{Envelope, Reply, WaitingCommands};
use crate::{Error, Sources, ViewsConfig};
use doubt::Doubt;

/// Most looks at the log at a time for what the checkpoint lacks, while changes go on.
const CATCH_UP_ROUNDS: usize = 8;

struct CommandInbox<V: View> {
    waiting: WaitingCommands<V>,
    landed: Vec<(u64, Result<Vec<Appended>, millstream_log::Error>)>,
    /// The appends in flight that are stored, found out after an outcome was unknown.
    decided: Option<Result<DecidedOutcome, millstream_log::Error>>,
    /// Accepted commands without an answer, including waiting ones.
    open: usize,
    /// The error of the log for which appends wait: of a full disk, or of brokers that do not answer.
    stalled: Option<Arc<millstream_log::Error>>,
    stopping: bool,
}

struct OwnerCore<V: View> {
    ahead: V::State,
    sources: Sources,
    flights: VecDeque<InFlightAppend<V>>,
    next_flight: u64,
    writer: Arc<dyn Writer>,
    doubt: Doubt,
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
    inbox: Mutex<CommandInbox<V>>,
    idle: Condvar,
    core: Mutex<OwnerCore<V>>,
    snapshot: ArcSwap<Snapshot<V>>,
    dirty: Mutex<Dirty>,
    /// Held while the checkpoint is written, so that writes keep their order; `true` once another owner may write it.
    checkpoint_writes_ended: Mutex<bool>,
    has_ended: AtomicBool,
    is_fenced: AtomicBool,
    checkpoint_due: Arc<Bell>,
    failures: Arc<Failures>,
}

/// The dependencies of an owner.
pub(crate) struct OwnerParts<V: View> {
    pub(crate) view: Arc<V>,
    pub(crate) log: Arc<dyn Log>,
    /// The writer of the partition; it fences the writer of a former owner.
    pub(crate) writer: Arc<dyn Writer>,
    pub(crate) partition: Arc<dyn Partition>,
    pub(crate) wall: Arc<dyn WallClock>,
    pub(crate) config: ViewsConfig,
    pub(crate) queue: ShardQueue,
    pub(crate) checkpoint_due: Arc<Bell>,
    pub(crate) failures: Arc<Failures>,
}

impl<V: View> Owner<V> {
    /// Rebuilds the state from the checkpoint and the tail of the state topic.
    pub(crate) fn load(parts: OwnerParts<V>, checkpoint: &Checkpoint) -> Result<Arc<Self>, Error> {
        let topic = parts.partition.topic();
        let (id, topic, level) = (parts.partition.id().clone(), topic.id, topic.config.level);
        let loading = Loading {
            id: &id,
            topic,
            log: &*parts.log,
            partition: &*parts.partition,
            checkpoint,
            dirty_max_bytes: parts.config.dirty_max_bytes,
            dirty_memory: &parts.config.dirty_memory,
        };
        let (loaded, dirty) = loading.run::<V>()?;
        let core = OwnerCore {
            ahead: loaded.state.clone(),
            sources: loaded.sources.clone(),
            flights: VecDeque::new(),
            next_flight: 0,
            writer: parts.writer,
            doubt: Doubt::None,
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
            queue: parts.queue,
            scheduled: AtomicBool::new(false),
            inbox: Mutex::new(CommandInbox {
                waiting: WaitingCommands::new(&parts.config),
                landed: Vec::new(),
                decided: None,
                open: 0,
                stalled: None,
                stopping: false,
            }),
            config: parts.config,
            idle: Condvar::new(),
            core: Mutex::new(core),
            snapshot: ArcSwap::from_pointee(loaded),
            dirty: Mutex::new(dirty),
            checkpoint_writes_ended: Mutex::new(false),
            has_ended: AtomicBool::new(false),
            is_fenced: AtomicBool::new(false),
            checkpoint_due: parts.checkpoint_due,
            failures: parts.failures,
        }))
    }

    pub(crate) fn snapshot(&self) -> Arc<Snapshot<V>> {
        self.snapshot.load_full()
    }

    /// Accepts a command, or returns it without any effect.
    pub(crate) fn offer(&self, command: V::Command, reply: Reply<V>) -> Result<(), (Error, V::Command)> {
        // Check before the decision: afterwards the caller can only wait.
        let check = if V::makes_room(&command) { self.log.check_making_room() } else { self.log.check_writing() };
        if let Err(never @ (millstream_log::Error::DiskFull { .. } | millstream_log::Error::Unreachable { .. })) = check
        {
            return Err((never.into(), command));
        }
        {
            let mut inbox = self.inbox.lock();
            if inbox.stopping {
                return Err((Error::Stopped, command));
            }
            if let Some(full) = &inbox.stalled {
                return Err((Error::Log(Arc::clone(full)), command));
            }
            inbox.waiting.push(command, reply, &self.config, &self.id)?;
            inbox.open += 1;
        }
        self.schedule();
        Ok(())
    }

    /// Refuses all further commands from now on.
    pub(crate) fn begin_stop(&self) {
        self.inbox.lock().stopping = true;
    }

    /// Waits until all accepted commands are answered.
    pub(crate) fn wait_idle(&self) {
        let mut inbox = self.inbox.lock();
        while inbox.open > 0 {
            self.idle.wait(&mut inbox);
        }
    }

    /// `true` after a failed append: nothing is decided any more.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Acquire)
    }

    /// `true` if it has ended because another owner has begun: its state is no longer the partition's.
    pub(crate) fn is_fenced(&self) -> bool {
        self.is_fenced.load(Ordering::Acquire)
    }

    /// Writes the changes since the last time to the checkpoint.
    pub(crate) fn write_checkpoint(&self, checkpoint: &Checkpoint) {
        let have_ended = self.checkpoint_writes_ended.lock();
        if !*have_ended {
            self.write_dirty(checkpoint);
        }
    }

    /// Writes the checkpoint for the last time, so that another owner may.
    pub(crate) fn retire(&self, checkpoint: &Checkpoint) {
        let mut have_ended = self.checkpoint_writes_ended.lock();
        if !std::mem::replace(&mut have_ended, true) {
            self.write_dirty(checkpoint);
        }
    }

    /// Writes the changes since the last time, unless the disk is full. The caller holds `checkpoint_writes_ended`.
    fn write_dirty(&self, checkpoint: &Checkpoint) {
        let (held_bytes, behind) = {
            let dirty = self.dirty.lock();
            (dirty.held_bytes(), dirty.behind())
        };
        if !has_room(&*self.log, held_bytes) {
            self.shed_changes(held_bytes);
            return;
        }
        if behind == Some(Behind::UntilRoom) {
            self.catch_up(checkpoint);
            return;
        }
        let dirty = self.dirty.lock().drain();
        if let Err(e) = checkpoint.write_dirty(self.id.partition, self.topic, &dirty) {
            tracing::error!(partition = %self.id, error = &e as &dyn std::error::Error, "{NOT_WRITTEN}");
            self.dirty.lock().fall_behind(Behind::ForGood);
        }
        drop(dirty);
        self.dirty.lock().written();
        if held_bytes > 0 {
            self.schedule();
        }
    }

    /// Drops the changes for a checkpoint whose disk is full, if they take too much memory while a log elsewhere goes on: no
    /// command is to wait for them.
    fn shed_changes(&self, held_bytes: usize) {
        if held_bytes > 0 && self.is_short_of_memory(held_bytes) && self.log.check_writing().is_ok() {
            self.dirty.lock().fall_behind(Behind::UntilRoom);
            tracing::warn!(partition = %self.id, "the disk is full: the checkpoint gets no more changes until there is room");
            self.schedule();
        }
    }

    /// `true` if commands will soon wait for the memory that changes take.
    fn is_short_of_memory(&self, held_bytes: usize) -> bool {
        let of_all = &self.config.dirty_memory;
        held_bytes > self.config.dirty_max_bytes / 2 || of_all.used_bytes() > of_all.limit_bytes() / 2
    }

    /// Writes from the log what the checkpoint lacks. What it cannot do now, the next turn does.
    fn catch_up(&self, checkpoint: &Checkpoint) {
        let loading = Loading {
            id: &self.id,
            topic: self.topic,
            log: &*self.log,
            partition: &*self.partition,
            checkpoint,
            dirty_max_bytes: self.config.dirty_max_bytes,
            dirty_memory: &self.config.dirty_memory,
        };
        for _ in 0..CATCH_UP_ROUNDS {
            let end = self.snapshot.load().next;
            match loading.catch_up::<V>(end) {
                Ok(true) => {}
                Ok(false) => return,
                // It is tried again; the log tells of its troubles by itself.
                Err(Error::Log(_)) => return,
                Err(e) => {
                    tracing::error!(partition = %self.id, error = &e as &dyn std::error::Error, "{NOT_WRITTEN}");
                    self.dirty.lock().fall_behind(Behind::ForGood);
                    return;
                }
            }
            // A state is published before its changes are taken: all that are not taken yet come from now on.
            let mut dirty = self.dirty.lock();
            if self.snapshot.load().next == end {
                dirty.catch_up();
                tracing::info!(partition = %self.id, "there is room again: the checkpoint has every change");
                return;
            }
        }
    }

    /// Calls `visit` with the keys from `start` on, in order, and their entries, until it breaks. Every answered change
    /// is among them: the checkpoint is written first, and merged with what a full disk keeps out of it.
    pub(crate) fn list(
        &self,
        checkpoint: &Checkpoint,
        start: &[u8],
        visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        let in_order = self.checkpoint_writes_ended.lock();
        if *in_order {
            return Err(Error::Stopped);
        }
        self.write_dirty(checkpoint);
        let newer = {
            let dirty = self.dirty.lock();
            match dirty.behind() {
                None => dirty.listed(start),
                Some(Behind::ForGood) => return Err(Error::CheckpointBehind { partition: self.id.clone() }),
                Some(Behind::UntilRoom) => {
                    self.log.check_disk()?;
                    return Err(Error::CheckpointBehind { partition: self.id.clone() });
                }
            }
        };
        // Changes that came since the write may be in both. On a full disk nothing may leave `dirty` while it is merged.
        let _in_order = (!newer.is_empty()).then_some(in_order);
        let older = |visit: &mut MergeVisit<'_>| checkpoint.list(self.id.partition, start, visit);
        merge_newer(newer, older, visit)
    }

    fn schedule(&self) {
        if !self.scheduled.swap(true, Ordering::AcqRel)
            && let Some(me) = self.me.upgrade()
            && self.queue.send(me).is_err()
        {
            tracing::error!(partition = %self.id, "the shard of an owner has ended");
        }
    }

    /// Completes the appends that have been answered, from the front, so that answers keep their order.
    fn settle(&self, core: &mut OwnerCore<V>) {
        let (landed, decided) = {
            let mut inbox = self.inbox.lock();
            (std::mem::take(&mut inbox.landed), inbox.decided.take())
        };
        for (id, outcome) in landed {
            // Appends that were sent again have other ids.
            let Some(flight) = core.flights.iter_mut().find(|flight| flight.id == id) else { continue };
            match outcome {
                Ok(appended) => {
                    flight.landed = true;
                    flight.last = appended.first().copied().filter(|_| flight.own_records > 0);
                }
                Err(failure) => self.failed(core, id, failure),
            }
        }
        if let Some(decided) = decided {
            self.go_on(core, decided);
        }
        // What is found out is compared with the appends that were in flight then.
        while core.doubt != Doubt::FindingOut
            && let Some(flight) = core.flights.pop_front_if(|flight| flight.landed)
        {
            self.land(core, flight);
        }
        if core.doubt == Doubt::Open {
            self.find_out(core);
        }
    }

    fn land(&self, core: &mut OwnerCore<V>, flight: InFlightAppend<V>) {
        let before = self.snapshot.load();
        debug_assert!(flight.landed && flight.unsent.is_none(), "an append lands once it is stored");
        let first = flight.last.map(|appended| appended.first);
        debug_assert!(first.is_none_or(|first| before.next <= first), "{}: appends land in order", self.id);
        debug_assert!(
            before.sources.iter().all(|(source, next)| flight.sources.get(source) >= Some(next)),
            "{}: what was applied of a source is not applied again",
            self.id
        );
        let (state, records) = V::Storage::land(flight.held, &before.state, &mut core.ahead, first);
        let next = flight.last.map_or(before.next, |appended| appended.last.next());
        self.snapshot.store(Arc::new(Snapshot { state, sources: flight.sources, next }));
        debug_assert!(
            !core.flights.is_empty() || core.ended.is_some() || core.sources == self.snapshot.load().sources,
            "{}: without appends in flight nothing is ahead of what is published",
            self.id
        );
        if let Some(appended) = flight.last {
            let mut memory = flight.memory;
            memory.resize(memory_bytes(&records).min(memory.bytes()));
            let of_all = &self.config.dirty_memory;
            let mut dirty = self.dirty.lock();
            dirty.take(records, appended.epoch, next);
            dirty.hold(memory);
            if dirty.held_bytes() > self.config.dirty_max_bytes || of_all.used_bytes() > of_all.limit_bytes() / 2 {
                self.checkpoint_due.ring();
            }
        }
        let count = flight.answers.len();
        for (mut answer, reply) in flight.answers {
            self.view.landed(&mut answer, first);
            let _ = reply.send(Ok(answer));
        }
        self.close(count);
    }

    fn close(&self, answered: usize) {
        let mut inbox = self.inbox.lock();
        debug_assert!(answered <= inbox.open, "{}: a command is answered once", self.id);
        inbox.open -= answered;
        if inbox.open == 0 {
            self.idle.notify_all();
        }
    }

    /// Ends the owner after a failed append, that of the flight at `from`. Those behind it fail, too; those before it have
    /// outcomes of their own, which come, unless an unknown one is among them.
    fn end(&self, core: &mut OwnerCore<V>, from: usize, failure: millstream_log::Error) {
        self.fail(format!("a state change cannot be appended: {failure}"));
        self.is_fenced.fetch_or(matches!(failure, millstream_log::Error::Fenced { .. }), Ordering::AcqRel);
        self.has_ended.store(true, Ordering::Release);
        let failure = Arc::new(failure);
        core.ended.get_or_insert_with(|| Arc::clone(&failure));
        let from = if std::mem::replace(&mut core.doubt, Doubt::None) == Doubt::None { from } else { 0 };
        let ended = self.ended(&failure);
        let count = core.flights.drain(from..).map(|flight| flight.refuse(&ended)).sum();
        self.close(count);
    }

    /// Reports the failure of this owner.
    fn fail(&self, reason: String) {
        let (partition, offset) = (self.id.clone(), self.snapshot.load().next);
        self.failures.add(Failure { view: V::NAME, part: FailedPart::Owner, partition, offset, reason });
    }

    fn ended(&self, failure: &Arc<millstream_log::Error>) -> Error {
        Error::OwnerEnded { partition: self.id.clone(), source: Arc::clone(failure) }
    }

    /// Takes the commands of one batch; none while too much is in flight or the checkpoint is behind.
    fn take_commands(&self, core: &OwnerCore<V>) -> VecDeque<Envelope<V>> {
        let in_flight_bytes: usize = core.flights.iter().map(|flight| flight.size_bytes).sum();
        let held_bytes = in_flight_bytes + self.dirty.lock().held_bytes();
        if core.flights.len() >= self.config.flights_max || held_bytes > self.config.dirty_max_bytes {
            return VecDeque::new();
        }
        self.inbox.lock().waiting.take(self.config.batch_max_commands)
    }

    /// Takes memory for the changes of a batch; `None` if others have it until the checkpoint has their changes. An owner
    /// that stops does not wait for it, as on a full disk no checkpoint is written.
    fn take_memory(&self) -> Option<Grant> {
        let memory = &self.config.dirty_memory;
        let batch_bytes = 2 * self.config.append_max_bytes as u64;
        let taken = memory.take(batch_bytes.min(memory.limit_bytes()));
        taken.or_else(|| self.inbox.lock().stopping.then(|| memory.empty_grant()))
    }

    /// Decides commands in order until an append is full, and sends their changes.
    fn decide(&self, core: &mut OwnerCore<V>, mut commands: VecDeque<Envelope<V>>, memory: Grant) -> TurnOutcome {
        debug_assert!(core.ended.is_none() && core.doubt == Doubt::None, "{}: nothing is decided on doubt", self.id);
        let now_ms = self.wall.now_ms();
        let limits = AppendLimits {
            partition: &self.id,
            record_max_bytes: self.partition.topic().config.record_max_bytes,
            append_max_bytes: self.config.append_max_bytes,
            log: &*self.log,
        };
        let mut changes = ChangeBatch::<V>::new();
        let mut level = None;
        let mut answers = Vec::with_capacity(commands.len());
        let (mut closed, mut decided_bytes) = (0, 0);
        while changes.size_bytes() < self.config.append_max_bytes
            && let Some(Envelope { command, reply, size_bytes }) = commands.pop_front()
        {
            decided_bytes += size_bytes;
            if reply.is_closed() {
                closed += 1;
                continue;
            }
            level = level.max(Some(V::level(&command).unwrap_or(self.level)));
            let savepoint = changes.savepoint();
            // The changes of a command that panics are undone, as those of a refused command are.
            let decided = catch_unwind(AssertUnwindSafe(|| {
                let draft = &mut changes.draft(&mut core.ahead, &mut core.sources, now_ms);
                let answer = self.view.decide(draft, command);
                changes.encode_since(savepoint, &limits).map(|()| answer)
            }));
            match decided.unwrap_or_else(|panic| Err(self.panicked(panic_text(&*panic)))) {
                Ok(answer) => answers.push((answer, reply)),
                Err(refusal) => {
                    self.rewind(core);
                    changes.undo(savepoint, &mut core.ahead, &mut core.sources);
                    let _ = reply.send(Err(refusal));
                    closed += 1;
                }
            }
        }
        self.inbox.lock().waiting.put_back(commands, decided_bytes);
        self.close(closed);
        self.depart(core, changes, memory, answers, level.unwrap_or(self.level), now_ms)
    }

    /// Reports a panic in the decision of a command, which is a mistake in the program.
    fn panicked(&self, what: &str) -> Error {
        let error = Error::Panicked { partition: self.id.clone(), what: what.to_owned() };
        self.fail(error.to_string());
        error
    }

    /// Starts the append of a batch.
    fn depart(
        &self,
        core: &mut OwnerCore<V>,
        changes: ChangeBatch<V>,
        mut memory: Grant,
        answers: Vec<(V::Answer, Reply<V>)>,
        level: AckLevel,
        now_ms: i64,
    ) -> TurnOutcome {
        let size_bytes = changes.size_bytes();
        let (changes, encoded) = changes.finish();
        // Only a batch of very many tiny records needs more than it has, and it can do without.
        memory.resize(size_bytes as u64 + (encoded.records.len() * RECORD_BYTES) as u64);
        let held = V::Storage::hold(&core.ahead, changes, &encoded.records);
        let own_records = count_own(&self.id, &encoded);
        let (records, published) = StateRecords::of(encoded);
        let mut flight = InFlightAppend {
            id: next_id(&mut core.next_flight),
            landed: false,
            last: None,
            size_bytes,
            memory,
            held,
            sources: core.sources.clone(),
            answers,
            level,
            now_ms,
            unsent: Some(records),
            published,
            refused: None,
            own_records,
        };
        if flight.is_unchanged() {
            (flight.landed, flight.unsent) = (true, None);
        }
        debug_assert!(core.flights.back().is_none_or(|last| last.id < flight.id), "appends in flight are in order");
        core.flights.push_back(flight);
        self.send(core)
    }

    /// Resets `ahead` to the state after the last append in flight.
    fn rewind(&self, core: &mut OwnerCore<V>) {
        let landed = self.snapshot.load();
        debug_assert!(
            core.doubt != Doubt::FindingOut,
            "{}: what is found out is compared with what is in flight",
            self.id
        );
        core.ahead = V::Storage::rewind(&landed.state, core.flights.iter().map(|flight| &flight.held));
        core.sources = core.flights.back().map_or(&landed.sources, |last| &last.sources).clone();
    }

    /// Sends the appends that the writer has not accepted, in order.
    fn send(&self, core: &mut OwnerCore<V>) -> TurnOutcome {
        while let Some(at) = core.flights.iter().position(|flight| flight.unsent.is_some()) {
            debug_assert!(
                core.flights.range(at..).all(|flight| flight.unsent.is_some() || flight.landed),
                "{}: no append is sent before an earlier one",
                self.id
            );
            let flight = &mut core.flights[at];
            let Some(records) = flight.unsent.take() else { break };
            let (me, id) = (self.me.clone(), flight.id);
            let done = Done::call(move |outcome| {
                if let Some(owner) = me.upgrade() {
                    owner.inbox.lock().landed.push((id, outcome));
                    owner.schedule();
                }
            });
            let outcome = flight.commit(&records, &self.id, &*core.writer, done);
            let is_stopping = self.stalled(outcome.as_ref().err());
            let Err(refusal) = outcome else { continue };
            match refusal.code() {
                ErrorCode::Overloaded if !is_stopping || !matches!(refusal, millstream_log::Error::DiskFull { .. }) => {
                    flight.unsent = Some(records);
                    return TurnOutcome::Retry;
                }
                // Only this batch is at fault, and nothing of it was appended.
                ErrorCode::TooLarge | ErrorCode::Invalid | ErrorCode::NotFound | ErrorCode::Conflict => {
                    self.refuse_from(core, at, refusal);
                }
                _ => {
                    flight.unsent = Some(records);
                    self.failed(core, id, refusal);
                    self.settle(core);
                    break;
                }
            }
        }
        TurnOutcome::Rest
    }

    /// Refuses commands while the disk is full, so that callers can wait or go elsewhere. `true` if the owner is
    /// stopping, so no caller waits for space.
    fn stalled(&self, outcome: Option<&millstream_log::Error>) -> bool {
        let full = outcome.filter(|refusal| matches!(refusal, millstream_log::Error::DiskFull { .. }));
        let mut inbox = self.inbox.lock();
        if full.is_some() || inbox.stalled.is_some() {
            inbox.stalled = full.cloned().map(Arc::new);
        }
        inbox.stopping
    }

    /// Undoes an append that the log has refused, and those behind it, which were decided on its changes.
    fn refuse_from(&self, core: &mut OwnerCore<V>, at: usize, refusal: millstream_log::Error) {
        tracing::warn!(partition = %self.id, error = %refusal, "the log refused a batch of changes; its commands are refused");
        let refused = core.flights.split_off(at);
        self.rewind(core);
        let refusal = Error::from(refusal);
        self.close(refused.into_iter().map(|flight| flight.refuse(&refusal)).sum());
    }

    /// Refuses the waiting commands of an owner that has ended.
    fn refuse_waiting(&self, failure: &Arc<millstream_log::Error>) {
        let waiting = self.inbox.lock().waiting.take_all();
        let count = waiting.len();
        for envelope in waiting {
            let _ = envelope.reply.send(Err(self.ended(failure)));
        }
        self.close(count);
    }
}

impl<V: View> ShardTask for Owner<V> {
    fn run(&self) -> TurnOutcome {
        self.scheduled.store(false, Ordering::Release);
        let mut core = self.core.lock();
        self.settle(&mut core);
        loop {
            if let Some(failure) = core.ended.clone() {
                self.refuse_waiting(&failure);
                return TurnOutcome::Rest;
            }
            if core.doubt != Doubt::None {
                return TurnOutcome::Rest;
            }
            if self.send(&mut core) == TurnOutcome::Retry {
                return TurnOutcome::Retry;
            }
            if core.ended.is_some() || core.doubt != Doubt::None {
                continue;
            }
            let commands = self.take_commands(&core);
            if commands.is_empty() {
                return TurnOutcome::Rest;
            }
            let Some(memory) = self.take_memory() else {
                self.inbox.lock().waiting.put_back(commands, 0);
                if self.dirty.lock().held_bytes() > 0 {
                    self.checkpoint_due.ring();
                }
                return TurnOutcome::Retry;
            };
            if self.decide(&mut core, commands, memory) == TurnOutcome::Retry {
                return TurnOutcome::Retry;
            }
            self.settle(&mut core);
        }
    }
}

fn next_id(last: &mut u64) -> u64 {
    *last += 1;
    *last
}
