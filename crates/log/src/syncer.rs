//! The sync thread: makes written rounds durable, many with one sync.
//!
//! Rounds that are written while a sync runs are the next group. A failed sync is never tried again: the kernel may
//! have dropped the pages, and a second one could succeed without them.
//!
//! Rounds that nobody waits for are the writeback thread's if there is much of them: it brings them to their segments,
//! syncs these, and has `meta` vouch for them, so that their bytes reach the disk once. Whoever comes to wait meanwhile
//! does not wait for that: the next sync covers the files of what was taken over, too.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::catalog::Catalog;
use crate::journal::JournalFile;
use crate::meta::JournalPlace;
use crate::round::{Round, fail};
use crate::shared::Shared;
use crate::{AckLevel, Error};

/// What is written and not yet synced.
pub(crate) struct SyncQueue {
    state: Mutex<State>,
    arrived: Condvar,
    place: Mutex<JournalPlace>,
}

#[derive(Default)]
struct State {
    rounds: Vec<Round>,
    demand: bool,
    stop: bool,
    /// The sync thread is at work on the rounds before these.
    is_syncing: bool,
    /// The files of rounds that the writeback thread has taken over and not vouched for yet.
    taken_over: Vec<Arc<JournalFile>>,
}

/// Rounds, and the files that make them and all before them durable.
struct Group {
    rounds: Vec<Round>,
    files: Vec<Arc<JournalFile>>,
}

impl Default for SyncQueue {
    fn default() -> Self {
        let place = JournalPlace { sequence: 0, slot: 0, at: 0 };
        Self { state: Mutex::default(), arrived: Condvar::new(), place: Mutex::new(place) }
    }
}

impl SyncQueue {
    /// `round` is written; with `demand` somebody wants it durable now.
    pub(crate) fn push(&self, round: Round, demand: bool) {
        let mut state = self.state.lock();
        state.rounds.push(round);
        state.demand |= demand;
        if state.demand || state.rounds.len() == 1 {
            self.arrived.notify_one();
        }
    }

    /// Somebody cannot go on before what is written is durable.
    pub(crate) fn demand(&self) {
        self.state.lock().demand = true;
        self.arrived.notify_one();
    }

    /// The sync thread syncs what is there and ends.
    pub(crate) fn stop(&self) {
        self.state.lock().stop = true;
        self.arrived.notify_one();
    }

    /// How far the journal is durable.
    pub(crate) fn place(&self) -> JournalPlace {
        *self.place.lock()
    }

    /// It is durable as far as `place`, at least.
    pub(crate) fn set_place(&self, place: JournalPlace) {
        let mut durable = self.place.lock();
        if place.sequence >= durable.sequence {
            *durable = place;
        }
    }

    /// The rounds of the next sync: at once if somebody wants it, else after `interval`, unless by then there are so many
    /// bytes that they `are_left` to the writeback thread. `None` when all is done.
    fn take(&self, interval: Duration, are_left: impl Fn(u64) -> bool) -> Option<Group> {
        let mut state = self.state.lock();
        loop {
            if state.rounds.is_empty() {
                if state.stop {
                    return None;
                }
                self.arrived.wait(&mut state);
            } else if state.demand || state.stop {
                break;
            } else if self.arrived.wait_for(&mut state, interval).timed_out() {
                let bytes = state.rounds.iter().map(|round| round.bytes).sum();
                if !state.rounds.is_empty() && !are_left(bytes) {
                    break;
                }
            }
        }
        state.demand = false;
        state.is_syncing = true;
        let rounds = std::mem::take(&mut state.rounds);
        let mut files = state.taken_over.clone();
        files.extend(rounds.iter().flat_map(|round| &round.touched).cloned());
        files.dedup_by_key(|file| file.slot);
        Some(Group { rounds, files })
    }

    /// What was taken is durable, or never will be.
    fn done(&self) {
        self.state.lock().is_syncing = false;
    }

    /// For the writeback thread: all that is written and not synced, which is its to make durable, if nobody waits for any
    /// of it; else nothing. All before it is synced.
    pub(crate) fn take_over(&self) -> Vec<Round> {
        let mut state = self.state.lock();
        if state.demand || state.is_syncing {
            return Vec::new();
        }
        let rounds = std::mem::take(&mut state.rounds);
        state.taken_over = rounds.iter().flat_map(|round| &round.touched).cloned().collect();
        state.taken_over.dedup_by_key(|file| file.slot);
        rounds
    }

    /// `meta` vouches for what was taken over.
    pub(crate) fn vouched(&self) {
        self.state.lock().taken_over.clear();
    }
}

/// Runs until the queue is stopped and empty.
pub(crate) fn run(shared: &Arc<Shared>, catalog: &Catalog) {
    let interval = Duration::from_millis(shared.config.sync_interval_ms);
    let are_left = |bytes| !shared.space.is_waited_for() && shared.flush.is_worth(bytes);
    while let Some(Group { rounds, files }) = shared.sync.take(interval, are_left) {
        let synced = match shared.ended() {
            Some(error) => Err(error),
            None => sync(shared, &files),
        };
        if let Err(cause) = synced {
            let error = shared.end(&cause);
            rounds.into_iter().for_each(|round| fail(round.waiters, &error));
            shared.sync.done();
            continue;
        }
        let bytes = rounds.iter().map(|round| round.bytes).sum();
        settle(shared, catalog, rounds);
        shared.sync.done();
        shared.flush.behind(bytes);
        if shared.journal.has_full() {
            shared.flush.wake();
        }
    }
}

fn sync(shared: &Shared, files: &[Arc<JournalFile>]) -> Result<(), Error> {
    for file in files {
        let start = shared.monotonic.now();
        file.file.sync().map_err(|e| Error::io("sync", &file.path, e))?;
        shared.counters.synced(shared.monotonic.now().saturating_sub(start));
    }
    Ok(())
}

/// Makes true what is durable now: first for those who look, then for those who wait.
pub(crate) fn settle(shared: &Shared, catalog: &Catalog, mut rounds: Vec<Round>) {
    for round in &mut rounds {
        for (partition, end) in &round.ends {
            partition.set_synced(*end);
        }
        for effect in round.effects.drain(..) {
            catalog.apply(shared, effect);
        }
    }
    // Only now: whoever writes `meta` for this place finds everything below it applied.
    if let Some(place) = rounds.iter().rev().find_map(|round| round.place) {
        shared.sync.set_place(place);
    }
    for mut round in rounds {
        round.answer(AckLevel::Synced);
        for (partition, _) in &round.ends {
            partition.watchers.ring();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::thread;

    use super::*;

    fn round(bytes: u64) -> Round {
        Round { bytes, ..Round::default() }
    }

    #[test]
    fn much_that_nobody_waits_for_is_left_to_the_writeback_thread_and_little_is_not() {
        let queue = SyncQueue::default();
        let left = AtomicU64::new(0);
        thread::scope(|threads| {
            let taken = threads.spawn(|| {
                let are_left = |bytes| bytes >= 10 && left.fetch_max(bytes, Ordering::AcqRel) <= bytes;
                queue.take(Duration::from_millis(1), are_left)
            });
            queue.push(round(4), false);
            queue.push(round(6), false);
            // Whichever comes first, the thread's millisecond or the second round.
            while left.load(Ordering::Acquire) == 0 && !taken.is_finished() {
                thread::yield_now();
            }
            if left.load(Ordering::Acquire) == 10 {
                assert_eq!(queue.take_over().len(), 2);
                queue.push(round(3), false);
            }
            let group = taken.join().unwrap().unwrap();
            assert!(group.rounds.iter().map(|round| round.bytes).sum::<u64>() < 10);
        });
    }

    #[test]
    fn nothing_is_taken_over_that_somebody_waits_for_or_that_comes_after_what_is_being_synced() {
        let queue = SyncQueue::default();
        queue.push(round(1), false);
        queue.push(round(2), true);
        queue.push(round(3), false);
        assert!(queue.take_over().is_empty());
        let group = queue.take(Duration::MAX, |_| true).unwrap();
        assert_eq!(group.rounds.len(), 3);
        queue.push(round(4), false);
        assert!(queue.take_over().is_empty());
        queue.done();
        assert_eq!(queue.take_over().len(), 1);
    }
}
