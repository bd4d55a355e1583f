//! Followers: they turn records of other topics into commands of a view.
//!
//! A follower reads its sources up to their *stable* offset, turns records into commands and passes these to the
//! owners. It stores no position: every command names the records of its source that it covers, and the owner ignores
//! records that it has applied and keeps the position in its state. A restart continues from the lowest position of
//! all owners. So owners without records in a source are told of its progress now and then, and a hold keeps the
//! records after the lowest position.
//!
//! Owners elsewhere are left to the follower of their process. Once a partition has come, its sources are read again from
//! the position that its state has.

mod collect;
mod cursor;
mod interface;

use std::collections::{HashMap, HashSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use millstream_log::{Bell, Board, Log, Topic, UpTo, run_as_batch};
use millstream_types::{Offset, PartitionId, TopicId, TopicPartition};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use self::collect::collect;
use self::cursor::SourceCursor;
pub use self::interface::{Follow, FollowerConfig, SourceRecord};
use crate::failure::{FailedPart, Failure, panic_text};
use crate::owner::Owner;
use crate::{Error, Slots, SourcePartition, View, Views};

/// Pause of a follower while an owner's inbox is full.
const OVERLOADED_PAUSE: Duration = Duration::from_millis(1);

/// Pause to collect records of sources that were of no interest lately: reading a few at a time
/// costs more than processing them.
const GATHER: Duration = Duration::from_millis(1);

/// The running threads of a follower; dropping it stops them.
pub struct Follower {
    bells: Vec<Arc<Bell>>,
    stopped: Arc<AtomicBool>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl std::fmt::Debug for Follower {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Follower({} threads)", self.bells.len())
    }
}

impl Follower {
    /// Starts to follow the topics that `follow` selects, including topics that are created later.
    ///
    /// # Errors
    /// [`Error::Stopped`] if the system cannot start a thread.
    pub fn start<V: View, F: Follow<V>>(
        follow: Arc<F>,
        views: &Views<V>,
        log: &Arc<dyn Log>,
        config: &FollowerConfig,
    ) -> Result<Self, Error> {
        Self::of_slots(follow, views.slots(), log, config)
    }

    /// As [`Follower::start`], for the owners that are here at any moment.
    ///
    /// # Errors
    /// [`Error::Stopped`] if the system cannot start a thread.
    pub fn of_slots<V: View, F: Follow<V>>(
        follow: Arc<F>,
        slots: &Arc<Slots<V>>,
        log: &Arc<dyn Log>,
        config: &FollowerConfig,
    ) -> Result<Self, Error> {
        let stopped = Arc::new(AtomicBool::new(false));
        let mut follower = Self { bells: Vec::new(), stopped: Arc::clone(&stopped), threads: Mutex::new(Vec::new()) };
        for number in 0..config.threads.max(1) {
            let bell = Arc::new(Bell::default());
            let board = Board::new(Arc::clone(&bell));
            let of_topics = board.hang(FollowEvent::Topics);
            log.watch_topics(&of_topics);
            let of_slots = board.hang(FollowEvent::Come);
            slots.watch(&of_slots);
            follower.bells.push(Arc::clone(&bell));
            let thread = FollowThread {
                number: number as u128,
                follow: Arc::clone(&follow),
                slots: Arc::clone(slots),
                owners: vec![None; slots.partitions() as usize],
                log: Arc::clone(log),
                config: config.clone(),
                bell,
                board,
                _bells: [of_topics, of_slots],
                stopped: Arc::clone(&stopped),
                cursors: HashMap::new(),
                due: HashSet::new(),
                flights: VecDeque::new(),
                has_found: false,
                told_at: Instant::now(),
            };
            let spawned = std::thread::Builder::new()
                .name(format!("follow-{}-{number}", V::NAME))
                .spawn(move || {
                    run_as_batch();
                    thread.run();
                })
                .map_err(|_| Error::Stopped)?;
            follower.threads.lock().push(spawned);
        }
        Ok(follower)
    }

    /// Stops reading and waits until all commands are answered.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        for bell in &self.bells {
            bell.ring();
        }
        for thread in self.threads.lock().drain(..) {
            if thread.join().is_err() {
                tracing::error!("a follower thread panicked");
            }
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The reason for a ring of the bell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum FollowEvent {
    /// Topics were created, altered or deleted.
    Topics,
    /// A partition of the view has come.
    Come,
    /// The source has new records.
    SourcePartition(SourcePartition),
}

/// A command that its owner has not answered.
struct InFlightCommand<V: View> {
    source: SourcePartition,
    owner: PartitionId,
    to: Arc<Owner<V>>,
    next: Offset,
    records: u64,
    answer: crate::Answer<V>,
}

struct FollowThread<V: View, F: Follow<V>> {
    number: u128,
    follow: Arc<F>,
    slots: Arc<Slots<V>>,
    /// The owners that are told of the sources; `None` of those that are not here. Each has been told all that the cursors
    /// have passed since it came.
    owners: Vec<Option<Arc<Owner<V>>>>,
    log: Arc<dyn Log>,
    config: FollowerConfig,
    bell: Arc<Bell>,
    board: Arc<Board<FollowEvent>>,
    /// Kept alive so that they ring.
    _bells: [Arc<Bell>; 2],
    stopped: Arc<AtomicBool>,
    cursors: HashMap<SourcePartition, SourceCursor>,
    /// Sources that may have new records.
    due: HashSet<SourcePartition>,
    flights: VecDeque<InFlightCommand<V>>,
    /// A record was of interest since the last wait for the bell.
    has_found: bool,
    /// The last time at which owners were told of progress.
    told_at: Instant,
}

impl<V: View, F: Follow<V>> FollowThread<V, F> {
    fn run(mut self) {
        // A panic is a mistake in the program: it must not end the process, and must be reported.
        let ended = catch_unwind(AssertUnwindSafe(|| self.follow_until_stopped()));
        let ended = ended.unwrap_or_else(|panic| {
            self.fail_all(&format!("following panicked: {}", panic_text(&*panic)));
            Ok(())
        });
        let landed = std::iter::from_fn(|| (!self.flights.is_empty()).then(|| self.land_oldest()));
        let landed = landed.fold(Ok(()), Result::and);
        match ended.and(landed) {
            Ok(()) => {}
            Err(Error::Stopped) if self.stopped.load(Ordering::Acquire) => {}
            Err(why) => self.fail_all(&why.to_string()),
        }
    }

    fn follow_until_stopped(&mut self) -> Result<(), Error> {
        self.meet_owners();
        self.discover();
        while !self.stopped.load(Ordering::Acquire) {
            self.hear();
            let mut moved = false;
            for source in Vec::from_iter(self.due.iter().copied()) {
                if self.advance(source)? {
                    moved = true;
                } else {
                    self.due.remove(&source);
                }
            }
            if moved {
                if self.told_at.elapsed() >= self.config.progress_interval {
                    self.tell_those_behind_by(self.config.progress_records)?;
                }
                continue;
            }
            let has_found = std::mem::take(&mut self.has_found);
            if !self.bell.wait(self.config.quiet) {
                self.tell_those_behind_by(1)?;
                self.due.extend(self.cursors.keys());
            } else if !has_found {
                std::thread::sleep(GATHER);
            }
        }
        Ok(())
    }

    /// Notes the sources with new records. There may be thousands of sources and one with news;
    /// the others are not checked.
    fn hear(&mut self) {
        for news in self.board.take() {
            match news {
                FollowEvent::Topics => self.discover(),
                FollowEvent::Come => self.meet_owners(),
                FollowEvent::SourcePartition(source) => {
                    self.due.insert(source);
                }
            }
        }
    }

    /// Adds new sources and removes deleted ones.
    fn discover(&mut self) {
        let topics = self.log.topics();
        let known: HashSet<TopicId> = topics.iter().map(|topic| topic.id).collect();
        let failures = self.slots.failed();
        self.cursors.retain(|source, cursor| {
            let is_there = known.contains(&source.topic);
            if !is_there {
                failures.forget(cursor.partition.id());
            }
            is_there
        });
        let follow = Arc::clone(&self.follow);
        for topic in topics.iter().filter(|topic| follow.follows(topic)) {
            for number in 0..topic.config.partitions {
                let source = SourcePartition { topic: topic.id, partition: PartitionId(number) };
                let mine = (topic.id.0 + u128::from(number)) % self.config.threads.max(1) as u128 == self.number;
                if mine && !self.cursors.contains_key(&source) {
                    self.take_up(source, topic);
                }
            }
        }
    }

    fn take_up(&mut self, source: SourcePartition, topic: &Arc<Topic>) {
        let Ok(partition) = self.log.partition(&TopicPartition::new(topic.name.clone(), source.partition.0)) else {
            return;
        };
        let bell = self.board.hang(FollowEvent::SourcePartition(source));
        self.due.insert(source);
        partition.watch(&bell);
        let told: Vec<_> = self.owners.iter().map(|owner| applied(owner.as_ref(), source)).collect();
        let here = self.owners.iter().zip(&told).filter(|(owner, _)| owner.is_some());
        let least = here.map(|(_, told)| *told).min().unwrap_or_default();
        let hold = self.log.capabilities().holds.then(|| partition.hold(V::NAME, least));
        let next = least.max(partition.offsets().first);
        if least > Offset::ZERO && next > least {
            self.pass_over_trimmed(partition.id(), least, next);
        }
        let topic = Arc::clone(topic);
        self.cursors.insert(source, SourceCursor { topic, partition, next, told, hold, _bell: bell, failed: false });
    }

    /// Takes up the owners that have come, and reads each source again from the positions that they have.
    fn meet_owners(&mut self) {
        for index in 0..self.owners.len() {
            let owner = self.slots.owner(PartitionId(index as u32)).ok();
            if owner.as_ref().map(Arc::as_ptr) == self.owners[index].as_ref().map(Arc::as_ptr) {
                continue;
            }
            for source in Vec::from_iter(self.cursors.keys().copied()) {
                self.go_back(source, index, applied(owner.as_ref(), source));
            }
            self.owners[index] = owner;
        }
    }

    /// Reads a source again from the position of an owner.
    fn go_back(&mut self, source: SourcePartition, owner: usize, applied: Offset) {
        let Some(cursor) = self.cursors.get_mut(&source) else { return };
        self.due.insert(source);
        cursor.told[owner] = applied;
        if applied >= cursor.next {
            return;
        }
        cursor.next = applied.max(cursor.partition.offsets().first);
        let (partition, next) = (cursor.partition.id().clone(), cursor.next);
        if applied > Offset::ZERO && next > applied {
            self.pass_over_trimmed(&partition, applied, next);
        }
    }

    /// Reports records that retention removed before they were applied.
    fn pass_over_trimmed(&self, partition: &TopicPartition, from: Offset, to: Offset) {
        tracing::warn!(%partition, %from, %to, "records were trimmed before they were applied");
        self.slots.failed().pass_over(to.0 - from.0);
    }

    /// Releases the records that every owner has applied.
    fn let_go(&self, source: SourcePartition) {
        if let Some(hold) = self.cursors.get(&source).and_then(|cursor| cursor.hold.as_ref())
            && let Some(least) = self.least_applied(source)
        {
            hold.advance(least);
        }
    }

    /// The lowest position of `source` among the owners that are here, those included that have ended.
    fn least_applied(&self, source: SourcePartition) -> Option<Offset> {
        let here = (0..self.slots.partitions()).filter_map(|number| self.slots.owner(PartitionId(number)).ok());
        here.map(|owner| applied(Some(&owner), source)).min()
    }

    /// Reads one source further. `true` if there were records.
    fn advance(&mut self, source: SourcePartition) -> Result<bool, Error> {
        // Without an owner nobody needs it, and one that comes begins where its state says.
        let is_needed = self.owners.iter().any(Option::is_some);
        let cursor = self.cursors.get_mut(&source).filter(|cursor| !cursor.failed && is_needed);
        let Some(cursor) = cursor else { return Ok(false) };
        let batches = match cursor.partition.read(cursor.next, self.config.read_max_bytes, UpTo::Stable) {
            Ok(batches) => batches,
            Err(millstream_log::Error::Trimmed { oldest, .. }) => {
                let (partition, from) = (cursor.partition.id().clone(), std::mem::replace(&mut cursor.next, oldest));
                self.pass_over_trimmed(&partition, from, oldest);
                return Ok(true);
            }
            Err(millstream_log::Error::UnknownTopic { .. }) => {
                self.slots.failed().forget(cursor.partition.id());
                self.cursors.remove(&source);
                return Ok(false);
            }
            // It is read again after a while.
            Err(error) if error.is_retryable() => {
                tracing::warn!(%error, view = V::NAME, partition = %cursor.partition.id(), "a source cannot be read now");
                return Ok(false);
            }
            Err(damage) => {
                let from = cursor.next;
                let offset = if let millstream_log::Error::Corrupt { offset, .. } = &damage { *offset } else { from };
                self.fail(source, offset, damage.to_string());
                return Ok(false);
            }
        };
        if batches.is_empty() {
            return Ok(false);
        }
        let (items, next, unreadable) = collect(&*self.follow, cursor, &batches, self.config.command_max_bytes);
        cursor.next = next;
        self.has_found |= !items.is_empty();
        for (owner, items) in items {
            self.hand_over_all(source, owner, next, items)?;
        }
        if let Some(error) = unreadable {
            self.fail(source, next, error.to_string());
        }
        self.let_go(source);
        Ok(true)
    }

    /// Stops following a source that cannot be read from `offset` on, and reports the failure.
    fn fail(&mut self, source: SourcePartition, offset: Offset, reason: String) {
        let Some(cursor) = self.cursors.get_mut(&source) else { return };
        cursor.failed = true;
        let partition = cursor.partition.id().clone();
        self.slots.failed().add(Failure {
            view: V::NAME,
            part: FailedPart::SourcePartition,
            partition,
            offset,
            reason,
        });
    }

    /// Stops following all sources of this thread, and reports the failure.
    fn fail_all(&mut self, reason: &str) {
        let left: Vec<_> = self.cursors.iter().map(|(source, cursor)| (*source, cursor.next)).collect();
        left.into_iter().for_each(|(source, next)| self.fail(source, next, reason.to_owned()));
    }

    /// Passes `items` on in commands that fit into an append.
    fn hand_over_all(
        &mut self,
        source: SourcePartition,
        owner: PartitionId,
        next: Offset,
        items: Vec<(Offset, F::Item)>,
    ) -> Result<(), Error> {
        let (mut command, mut command_bytes) = (Vec::new(), 0);
        for (offset, item) in items {
            let item_bytes = F::item_bytes(&item);
            let is_full = command.len() >= self.config.command_max_records
                || command_bytes + item_bytes > self.config.command_max_bytes;
            // The items of one record stay together: a command ends between two positions.
            if is_full && command.last().is_some_and(|(last, _)| *last < offset) {
                self.hand_over(source, owner, offset, std::mem::take(&mut command))?;
                command_bytes = 0;
            }
            command_bytes += item_bytes;
            command.push((offset, item));
        }
        self.hand_over(source, owner, next, command)
    }

    fn hand_over(
        &mut self,
        source: SourcePartition,
        owner: PartitionId,
        next: Offset,
        items: Vec<(Offset, F::Item)>,
    ) -> Result<(), Error> {
        // Not one that has just come: it has not been told what stands before these items.
        let Some(to) = self.owners[owner.0 as usize].clone() else { return Ok(()) };
        let records = items.len() as u64;
        let mut command = self.follow.command(source, next, items);
        while self.flights.len() >= self.config.flights_max {
            self.land_oldest()?;
        }
        let answer = loop {
            let (reply, answer) = oneshot::channel();
            match to.offer(command, reply) {
                Ok(()) => break answer,
                Err((full, _)) if full.is_full() && self.stopped.load(Ordering::Acquire) => {
                    return Err(Error::Stopped);
                }
                Err((full, returned)) if full.is_full() => {
                    command = returned;
                    if self.flights.is_empty() {
                        std::thread::sleep(OVERLOADED_PAUSE);
                    } else {
                        self.land_oldest()?;
                    }
                }
                Err((refusal, _)) => return self.part_with(&to, owner, refusal),
            }
        };
        self.flights.push_back(InFlightCommand { source, owner, to, next, records, answer });
        if let Some(cursor) = self.cursors.get_mut(&source) {
            cursor.told[owner.0 as usize] = next;
        }
        Ok(())
    }

    /// Leaves an owner that takes no more commands: its partition has gone, or it has ended and may be taken again.
    ///
    /// # Errors
    /// `refusal`, if neither is so.
    fn part_with(&mut self, from: &Arc<Owner<V>>, owner: PartitionId, refusal: Error) -> Result<(), Error> {
        if !from.has_ended() && self.slots.owner(owner).is_ok_and(|now| Arc::ptr_eq(&now, from)) {
            return Err(refusal);
        }
        if self.owners[owner.0 as usize].as_ref().is_some_and(|mine| Arc::ptr_eq(mine, from)) {
            self.owners[owner.0 as usize] = None;
        }
        Ok(())
    }

    /// Waits for the oldest command. A refused command is skipped: its owner would always refuse it.
    fn land_oldest(&mut self) -> Result<(), Error> {
        let Some(flight) = self.flights.pop_front() else { return Ok(()) };
        match flight.answer.blocking_recv().unwrap_or(Err(Error::Stopped)) {
            Err(end @ (Error::OwnerEnded { .. } | Error::Stopped)) => self.part_with(&flight.to, flight.owner, end),
            Err(refusal) => {
                self.pass_over_refused(flight.source, flight.next, flight.records, &refusal);
                Ok(())
            }
            Ok(_) => Ok(()),
        }
    }

    fn pass_over_refused(&self, source: SourcePartition, next: Offset, records: u64, refusal: &Error) {
        let Some(cursor) = self.cursors.get(&source) else { return };
        let (partition, reason) = (cursor.partition.id().clone(), refusal.to_string());
        let failed = self.slots.failed();
        failed.pass_over(records);
        failed.add(Failure { view: V::NAME, part: FailedPart::Records, partition, offset: next, reason });
    }

    /// Tells every owner the position of each source if it is `records` or more ahead of the owner's.
    fn tell_those_behind_by(&mut self, records: u64) -> Result<(), Error> {
        let sources: Vec<(SourcePartition, Offset)> =
            self.cursors.iter().map(|(source, cursor)| (*source, cursor.next)).collect();
        for (source, next) in sources {
            let told = self.cursors.get(&source).map(|cursor| cursor.told.clone()).unwrap_or_default();
            let behind = (0..).zip(told).filter(|(_, told)| next.0.saturating_sub(told.0) >= records);
            for (owner, _) in behind {
                self.hand_over(source, PartitionId(owner), next, Vec::new())?;
            }
            self.let_go(source);
        }
        self.told_at = Instant::now();
        Ok(())
    }
}

/// The position of `source` that an owner has applied durably.
fn applied<V: View>(owner: Option<&Arc<Owner<V>>>, source: SourcePartition) -> Offset {
    owner.and_then(|owner| owner.snapshot().sources.get(&source).copied()).unwrap_or_default()
}
