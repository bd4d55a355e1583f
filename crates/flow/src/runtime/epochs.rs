//! The epochs of a run that keeps state: the barriers between them, and the one commit that ends each.
//!
//! ```text
//!  Epochs (a task) ── wanted epoch ──► sources ── barriers behind their batches ──► all other instances
//!     ▲                                                                                    │
//!     └── EpochPart of each instance: places of sources, changes of state, records of sinks ◄──┘
//!     │
//!     └── all parts are there: one commit of the job's writer (EpochKeeper)
//! ```
//!
//! Always true
//! - One epoch is on its way at a time, and an instance adds one part to it.
//! - Nothing of a part can be read before the commit, and all of it afterwards.
//! - After a failed commit the run ends. The next run goes on from the last epoch that is committed.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use millstream_types::{MonotonicClock, iso_time};
use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value, json};

use super::epoch_keeper::{Commit, CommitStep, EpochKeeper};
use super::epoch_part::EpochPart;
use super::event_time::PartitionTimes;
use super::restored_state::{RestoredState, Values};
use super::workers::TurnOutcome;
use crate::Error;
use crate::batch::NO_TIME;
use crate::connector::{Places, Waker};
use crate::document::{Checkpoint, NodeId};
use crate::state::{EpochRecord, TopicPositions};

/// Pause before an append that the log had no room for is tried again.
const RETRY: Duration = Duration::from_millis(20);

/// Epochs that a run remembers with their figures.
const RECENT_MAX: usize = 100;

/// The state with which an instance begins.
pub(super) struct InstanceState {
    /// The epoch at the end of which it was so; 0 for a job that begins.
    pub(super) epoch: u64,
    pub(super) values: Vec<(NodeId, Values)>,
    /// The time of the epoch's commit, and the latest event times of all partitions by then, by source.
    pub(super) at_ms: i64,
    pub(super) times: BTreeMap<String, PartitionTimes>,
    /// The watermark to which its nodes had come by then; [`NO_TIME`] for none.
    pub(super) watermark_ms: i64,
}

/// The number of an instance among all of the run, from 0.
pub(super) type InstanceNumber = usize;

pub(super) struct Epochs {
    /// Set once the run is restored; never in a test, which keeps nothing.
    keeper: OnceLock<EpochKeeper>,
    restored: Mutex<Restoring>,
    setting: Checkpoint,
    clock: Arc<dyn MonotonicClock>,
    /// The epoch whose barriers are to be sent; 0 before the first.
    wanted: AtomicU64,
    /// Something was read since the barrier before.
    news: AtomicBool,
    state: Mutex<EpochState>,
}

/// The state from which the run goes on.
enum Restoring {
    NotYet,
    Failed(String),
    /// The state that instances have not taken yet.
    Done(RestoredState),
}

#[derive(Default)]
struct EpochState {
    instances: Vec<InstanceEpochs>,
    phase: Phase,
    /// The parts of the epoch that is on its way, and of instances that have ended since.
    parts: Vec<EpochPart>,
    /// The last parts of instances that have ended behind the barrier of the epoch that is on its way: they are of the next one.
    ends_behind: Vec<(InstanceNumber, EpochPart)>,
    /// By node and instance.
    places: BTreeMap<String, Vec<u64>>,
    /// By source.
    positions: BTreeMap<String, TopicPositions>,
    times: BTreeMap<String, PartitionTimes>,
    /// The latest of a node's instances, by node.
    watermarks: BTreeMap<String, i64>,
    keys: BTreeMap<String, Vec<u64>>,
    /// The digests of the state of each instance, by node.
    digests: BTreeMap<String, Vec<u64>>,
    /// The last epochs that are committed, oldest first; at the beginning of a run the one with which it begins.
    recent: VecDeque<Committed>,
    /// When the last epoch began.
    begun: Duration,
    /// The next epoch begins at once.
    is_hurried: bool,
    /// The reason why the commit is not accepted yet.
    waits: Option<String>,
    failure: Option<String>,
    wakers: Vec<Waker>,
}

/// An instance, and how far it is.
struct InstanceEpochs {
    number_in_chain: u32,
    of_chain: u32,
    /// The instance has added its part to the epoch that is on its way.
    has_added: bool,
    has_ended: bool,
}

#[derive(Default)]
enum Phase {
    #[default]
    Idle,
    /// Barriers are on their way.
    Gathering,
    /// The parts are being appended.
    Appending(Box<Commit>),
    /// The commit waits for the log.
    Storing,
}

/// An epoch that is committed.
#[derive(Debug, Clone, Copy)]
struct Committed {
    epoch: u64,
    at_ms: i64,
    /// From its beginning to its commit; zero for the one with which the run began.
    took: Duration,
    size_bytes: u64,
}

impl Committed {
    fn describe(&self) -> Value {
        let mut told = json!({"epoch": self.epoch, "at": iso_time(self.at_ms), "bytes": self.size_bytes});
        if !self.took.is_zero() {
            told["took_ms"] = (self.took.as_secs_f64() * 1e3).into();
        }
        told
    }
}

/// The result of a turn.
pub(super) enum EpochOutcome {
    Turn(TurnOutcome),
    /// All instances have ended, and everything that they have added is committed.
    Ended,
    Failed(String),
}

impl Epochs {
    /// The epochs of a run that [`Epochs::restore`] or [`Epochs::begin_empty`] lets begin.
    pub(super) fn new(setting: Checkpoint, clock: Arc<dyn MonotonicClock>) -> Arc<Self> {
        let state = EpochState { begun: clock.now(), ..EpochState::default() };
        Arc::new(Self {
            keeper: OnceLock::new(),
            restored: Mutex::new(Restoring::NotYet),
            setting,
            clock,
            wanted: AtomicU64::new(0),
            news: AtomicBool::new(false),
            state: Mutex::new(state),
        })
    }

    /// Begins without state, and keeps none.
    pub(super) fn begin_empty(&self) {
        *self.restored.lock() = Restoring::Done(RestoredState::default());
    }

    /// Begins with the state that `open` finds, and keeps it from then on. Blocks on the disk.
    pub(super) fn restore(&self, open: impl FnOnce() -> Result<(EpochKeeper, RestoredState), Error>) {
        let restored = match open() {
            Ok((keeper, restored)) => {
                if let Some(record) = &restored.epoch {
                    let mut state = self.state.lock();
                    state.places.clone_from(&record.places);
                    state.positions.clone_from(&record.positions);
                    state.times.clone_from(&record.times);
                    state.watermarks.clone_from(&record.watermarks);
                    self.wanted.store(record.epoch, Ordering::Release);
                    let (epoch, at_ms) = (record.epoch, record.at_ms);
                    state.keep(Committed { epoch, at_ms, took: Duration::ZERO, size_bytes: 0 });
                }
                // A run is restored once.
                let _ = self.keeper.set(keeper);
                Restoring::Done(restored)
            }
            Err(error) => Restoring::Failed(error.to_string()),
        };
        *self.restored.lock() = restored;
        self.wake_all();
    }

    /// The state with which an instance of these nodes begins, once; `None` while it is being read.
    ///
    /// # Errors
    /// It cannot be read.
    pub(super) fn take_restored(
        &self,
        nodes: &[(NodeId, &str)],
        instance: u32,
    ) -> Result<Option<InstanceState>, Error> {
        match &mut *self.restored.lock() {
            Restoring::NotYet => Ok(None),
            Restoring::Failed(reason) => Err(Error::connector("", format!("cannot restore the job's state: {reason}"))),
            Restoring::Done(restored) => {
                let values = nodes.iter().map(|(node, _)| (*node, restored.take(*node, instance))).collect();
                let (epoch, at_ms, times) = match &restored.epoch {
                    Some(record) => (record.epoch, record.at_ms, record.times.clone()),
                    None => (0, 0, BTreeMap::new()),
                };
                let watermarks = restored.epoch.as_ref().map(|record| &record.watermarks);
                let reached = nodes.iter().filter_map(|(_, name)| watermarks?.get(*name).copied());
                let watermark_ms = reached.max().unwrap_or(NO_TIME);
                Ok(Some(InstanceState { epoch, values, at_ms, times, watermark_ms }))
            }
        }
    }

    /// Counts the keys with which an instance of a node begins.
    pub(super) fn begin_keys(&self, node: &str, instance: u32, keys: u64) {
        let mut state = self.state.lock();
        let known = state.keys.entry(node.to_owned()).or_default();
        let number = instance as usize;
        known.resize(known.len().max(number + 1), 0);
        known[number] = keys;
    }

    /// Tells the instances of the run, by chain, and the wakers of the coordinator and of all of them.
    pub(super) fn begin(&self, instances_by_chain: impl Iterator<Item = u32>, wakers: Vec<Waker>) {
        let mut state = self.state.lock();
        let of_chain = |count: u32| {
            (0..count).map(move |number| InstanceEpochs {
                number_in_chain: number,
                of_chain: count,
                has_added: false,
                has_ended: false,
            })
        };
        state.instances = instances_by_chain.flat_map(of_chain).collect();
        state.wakers = wakers;
    }

    /// The epoch whose barriers are to be sent.
    pub(super) fn wanted(&self) -> u64 {
        self.wanted.load(Ordering::Acquire)
    }

    /// Something was read, or state has changed by time alone: there will be a next epoch.
    pub(super) fn has_news(&self) {
        if self.keeper.get().is_some() && !self.news.swap(true, Ordering::AcqRel) {
            self.wake_coordinator();
        }
    }

    /// Begins the next epoch at once, if anything was read: somebody waits for the end of this one.
    pub(super) fn hurry(&self) {
        let mut state = self.state.lock();
        if self.keeper.get().is_some() && !state.is_hurried {
            state.is_hurried = true;
            drop(state);
            self.wake_coordinator();
        }
    }

    /// Adds the part of an instance to the epoch that is on its way.
    pub(super) fn add(&self, instance: InstanceNumber, part: EpochPart) {
        self.take_part(instance, part, false);
    }

    /// Adds the last part of an instance, which has ended.
    pub(super) fn end(&self, instance: InstanceNumber, part: EpochPart) {
        self.take_part(instance, part, true);
    }

    fn take_part(&self, instance: InstanceNumber, part: EpochPart, is_end: bool) {
        self.state.lock().take(instance, part, is_end);
        self.wake_coordinator();
    }

    /// The first waker is that of the coordinator.
    fn wake_coordinator(&self) {
        let waker = self.state.lock().wakers.first().cloned();
        if let Some(wake) = waker {
            wake();
        }
    }

    fn wake_all(&self) {
        let wakers = self.state.lock().wakers.clone();
        wakers.iter().for_each(|wake| wake());
    }

    /// A turn of the coordinator.
    pub(super) fn turn(self: &Arc<Self>, now_ms: i64) -> EpochOutcome {
        let mut state = self.state.lock();
        if let Some(failure) = state.failure.take() {
            return EpochOutcome::Failed(failure);
        }
        let now = self.clock.now();
        match std::mem::replace(&mut state.phase, Phase::Idle) {
            Phase::Idle if state.instances.iter().all(|instance| instance.has_ended) => {
                // The next run of the job begins after this one has its writer, and not before.
                if matches!(*self.restored.lock(), Restoring::NotYet) {
                    return EpochOutcome::Turn(TurnOutcome::Wait(None));
                }
                // A job that has read nothing has one epoch in the end, too, from which another can go on.
                let has_epoch = !state.recent.is_empty();
                if self.keeper.get().is_none() || (has_epoch && state.parts.iter().all(EpochPart::is_empty)) {
                    return EpochOutcome::Ended;
                }
                state.begun = now;
                state.phase = Phase::Gathering;
                EpochOutcome::Turn(TurnOutcome::Again)
            }
            Phase::Idle => self.begin_epoch(state, now),
            Phase::Gathering => {
                let missing = state.instances.iter().filter(|instance| !instance.has_added).count();
                if missing > 0 {
                    state.phase = Phase::Gathering;
                    let left = state.begun.saturating_add(self.setting.timeout).saturating_sub(now);
                    return match left.is_zero() {
                        true => EpochOutcome::Failed(self.too_late(missing, state.instances.len())),
                        false => EpochOutcome::Turn(TurnOutcome::Wait(Some(left))),
                    };
                }
                let commit = state.gathered(self.wanted(), now_ms);
                self.append(state, commit)
            }
            Phase::Appending(commit) => self.append(state, *commit),
            Phase::Storing => {
                state.phase = Phase::Storing;
                EpochOutcome::Turn(TurnOutcome::Wait(None))
            }
        }
    }

    /// Begins the next epoch if it is due, and something was read.
    fn begin_epoch(&self, mut state: MutexGuard<'_, EpochState>, now: Duration) -> EpochOutcome {
        let is_hurried = std::mem::take(&mut state.is_hurried);
        if self.keeper.get().is_none() || !self.news.load(Ordering::Acquire) {
            return EpochOutcome::Turn(TurnOutcome::Wait(None));
        }
        let left = state.begun.saturating_add(self.setting.interval).saturating_sub(now);
        if !left.is_zero() && !is_hurried {
            return EpochOutcome::Turn(TurnOutcome::Wait(Some(left)));
        }
        self.news.store(false, Ordering::Release);
        state.begun = now;
        state.instances.iter_mut().for_each(|instance| instance.has_added = instance.has_ended);
        state.phase = Phase::Gathering;
        self.wanted.fetch_add(1, Ordering::AcqRel);
        drop(state);
        self.wake_all();
        EpochOutcome::Turn(TurnOutcome::Wait(Some(self.setting.timeout)))
    }

    fn append(self: &Arc<Self>, mut state: MutexGuard<'_, EpochState>, commit: Commit) -> EpochOutcome {
        let Some(keeper) = self.keeper.get() else { return EpochOutcome::Ended };
        // The answer may come before the call returns.
        state.phase = Phase::Storing;
        drop(state);
        let (epochs, size_bytes) = (Arc::clone(self), commit.size_bytes());
        let (epoch, at_ms) = (commit.record.epoch, commit.record.at_ms);
        match keeper.go_on(commit, move |result| epochs.stored(epoch, at_ms, size_bytes, result)) {
            CommitStep::Accepted => EpochOutcome::Turn(TurnOutcome::Wait(None)),
            CommitStep::Unfinished(commit) => {
                self.state.lock().phase = Phase::Appending(Box::new(commit));
                EpochOutcome::Turn(TurnOutcome::Again)
            }
            CommitStep::NotYet(commit, reason) => {
                let mut state = self.state.lock();
                state.phase = Phase::Appending(Box::new(commit));
                state.waits = Some(reason);
                EpochOutcome::Turn(TurnOutcome::Wait(Some(RETRY)))
            }
            CommitStep::Failed(reason) => EpochOutcome::Failed(reason),
        }
    }

    fn stored(&self, epoch: u64, at_ms: i64, size_bytes: u64, result: Result<(), String>) {
        let mut state = self.state.lock();
        state.phase = Phase::Idle;
        state.waits = None;
        match result {
            Ok(()) => {
                let took = self.clock.now().saturating_sub(state.begun);
                self.wanted.fetch_max(epoch, Ordering::AcqRel);
                state.keep(Committed { epoch, at_ms, took, size_bytes });
            }
            Err(failure) => state.failure = Some(failure),
        }
        drop(state);
        self.wake_coordinator();
    }

    fn too_late(&self, missing: usize, count: usize) -> String {
        let (epoch, timeout) = (self.wanted(), self.setting.timeout);
        format!(
            "{missing} of {count} instances have not come to the end of epoch {epoch} within checkpoint.timeout = {timeout:?}; \
             see which sink waits, or raise it"
        )
    }

    /// The reason why the epoch that is on its way is not committed, if there is one.
    pub(super) fn waits_for(&self) -> Option<String> {
        let state = self.state.lock();
        state.waits.as_ref().map(|reason| format!("waits to commit epoch {}: {reason}", self.wanted()))
    }

    /// The last epoch that is committed, as the API shows it; `None` before the first.
    pub(super) fn describe(&self) -> Option<Value> {
        self.state.lock().recent.back().map(Committed::describe)
    }

    /// The last epochs that are committed, newest first.
    pub(super) fn describe_recent(&self) -> Vec<Value> {
        self.state.lock().recent.iter().rev().map(Committed::describe).collect()
    }

    /// The keys of a node that had state at the end of the last epoch, or when the run began; `None` for a node that keeps none, and
    /// until the state is restored.
    pub(super) fn keys_of(&self, node: &str) -> Option<u64> {
        self.state.lock().keys.get(node).map(|keys| keys.iter().sum())
    }
}

impl EpochState {
    /// Takes the part of an instance. If the instance has ended behind the barrier of the epoch that is on its way, its last part is
    /// of the next epoch: others have yet to come to that barrier, and have not seen what lies between.
    fn take(&mut self, instance: InstanceNumber, part: EpochPart, is_end: bool) {
        if is_end && matches!(self.phase, Phase::Gathering) && self.instances[instance].has_added {
            self.ends_behind.push((instance, part));
        } else {
            self.add(instance, part, is_end);
        }
    }

    /// The commit of an epoch to which all instances have added their parts.
    fn gathered(&mut self, wanted: u64, at_ms: i64) -> Commit {
        let last = self.recent.back().map_or(0, |committed| committed.epoch);
        let whole = |(node, parts): (&String, &Vec<u64>)| {
            (node.clone(), parts.iter().fold(0, |sum: u64, part| sum.wrapping_add(*part)))
        };
        let record = EpochRecord {
            epoch: wanted.max(last + 1),
            at_ms,
            places: self.places.clone(),
            positions: self.positions.clone(),
            times: self.times.clone(),
            watermarks: self.watermarks.clone(),
            digests: self.digests.iter().map(whole).collect(),
        };
        let commit = Commit::new(record, std::mem::take(&mut self.parts));
        for (instance, part) in std::mem::take(&mut self.ends_behind) {
            self.add(instance, part, true);
        }
        commit
    }

    /// Adds the part of an instance to the epoch that is on its way, or to the next one.
    fn add(&mut self, instance: InstanceNumber, mut part: EpochPart, is_end: bool) {
        let known = &mut self.instances[instance];
        known.has_added = true;
        known.has_ended |= is_end;
        let (number, count) = (known.number_in_chain as usize, known.of_chain as usize);
        let set = |known: &mut BTreeMap<String, Vec<u64>>, news: BTreeMap<String, u64>| {
            for (node, value) in news {
                let values = known.entry(node).or_default();
                values.resize(count, 0);
                values[number] = value;
            }
        };
        set(&mut self.places, part.places.clone());
        set(&mut self.keys, std::mem::take(&mut part.keys));
        set(&mut self.digests, std::mem::take(&mut part.digests));
        for (node, read) in std::mem::take(&mut part.read) {
            let known = self.positions.entry(node).or_default();
            read.iter().for_each(|at| known.set(at));
        }
        for (node, times) in std::mem::take(&mut part.times) {
            self.times.entry(node).or_default().extend(times);
        }
        for (node, watermark_ms) in std::mem::take(&mut part.watermarks) {
            let known = self.watermarks.entry(node).or_insert(NO_TIME);
            *known = watermark_ms.max(*known);
        }
        self.parts.push(part);
    }

    /// Keeps an epoch that is committed.
    fn keep(&mut self, committed: Committed) {
        if self.recent.len() >= RECENT_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back(committed);
    }
}

impl Places for Epochs {
    fn records_read(&self, node: &str) -> u64 {
        self.state.lock().places.get(node).and_then(|places| places.first().copied()).unwrap_or_default()
    }

    /// The epoch stores it.
    fn store(&self, _node: &str, _records_read: u64) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(read: u64) -> EpochPart {
        EpochPart { places: BTreeMap::from([("in".to_owned(), read)]), ..EpochPart::default() }
    }

    #[test]
    fn the_last_part_of_an_instance_that_ends_behind_the_barrier_is_of_the_next_epoch() {
        let instance =
            |number_in_chain| InstanceEpochs { number_in_chain, of_chain: 1, has_added: false, has_ended: false };
        let mut state =
            EpochState { phase: Phase::Gathering, instances: vec![instance(0), instance(0)], ..EpochState::default() };
        state.take(0, part(100), false);
        // The source has read on, and was stopped, before the other one has come to the barrier.
        state.take(0, part(120), true);
        state.take(1, EpochPart::default(), false);
        let places = |commit: &Commit| commit.record.places["in"].clone();
        assert_eq!(places(&state.gathered(1, 0)), [100]);
        assert!(state.instances[0].has_ended && !state.instances[1].has_ended);
        state.phase = Phase::Idle;
        state.take(1, EpochPart::default(), true);
        assert_eq!(places(&state.gathered(2, 0)), [120]);
    }

    #[test]
    fn an_instance_that_ends_in_place_of_the_barrier_is_of_the_epoch_that_is_on_its_way() {
        let instance = InstanceEpochs { number_in_chain: 0, of_chain: 1, has_added: false, has_ended: false };
        let mut state = EpochState { phase: Phase::Gathering, instances: vec![instance], ..EpochState::default() };
        state.take(0, part(7), true);
        assert_eq!(state.gathered(1, 0).record.places["in"], [7]);
    }
}
