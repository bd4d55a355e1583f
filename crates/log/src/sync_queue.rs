//! Rounds that are written to the journal and not yet synced.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::group_commit::JournalRound;
use crate::journal::JournalFile;
use crate::meta::JournalPlace;

/// The queue of the sync thread.
pub(crate) struct SyncQueue {
    state: Mutex<State>,
    arrived: Condvar,
    place: Mutex<JournalPlace>,
}

#[derive(Default)]
struct State {
    rounds: Vec<JournalRound>,
    demand: bool,
    stop: bool,
    /// The sync thread is syncing the rounds before `rounds`.
    is_syncing: bool,
    /// Journal files of rounds that the writeback thread has taken over and that `meta` does not cover yet.
    taken_over: Vec<Arc<JournalFile>>,
}

impl State {
    /// Begins the sync of all rounds.
    fn begin(&mut self) -> SyncBatch {
        self.demand = false;
        self.is_syncing = true;
        let rounds = std::mem::take(&mut self.rounds);
        let mut files = self.taken_over.clone();
        files.extend(rounds.iter().flat_map(|round| &round.touched).cloned());
        files.dedup_by_key(|file| file.slot);
        SyncBatch { rounds, files }
    }
}

/// Rounds, and the files to sync to make them and all earlier rounds durable.
pub(crate) struct SyncBatch {
    pub(crate) rounds: Vec<JournalRound>,
    pub(crate) files: Vec<Arc<JournalFile>>,
}

impl Default for SyncQueue {
    fn default() -> Self {
        let place = JournalPlace { sequence: 0, slot: 0, at: 0 };
        Self { state: Mutex::default(), arrived: Condvar::new(), place: Mutex::new(place) }
    }
}

impl SyncQueue {
    /// Adds a written round; `demand` requests a sync now.
    pub(crate) fn push(&self, round: JournalRound, demand: bool) {
        let mut state = self.state.lock();
        let sequence = |round: &JournalRound| round.place.map(|place| place.sequence);
        debug_assert!(
            sequence(&round).is_none_or(|this| state.rounds.iter().filter_map(sequence).all(|earlier| earlier < this)),
            "rounds are synced in the order in which they were written"
        );
        state.rounds.push(round);
        state.demand |= demand;
        if state.demand || state.rounds.len() == 1 {
            self.arrived.notify_one();
        }
    }

    /// Requests a sync of all written rounds now.
    pub(crate) fn demand(&self) {
        self.state.lock().demand = true;
        self.arrived.notify_one();
    }

    /// Makes the sync thread end after the rounds that are queued.
    pub(crate) fn stop(&self) {
        self.state.lock().stop = true;
        self.arrived.notify_one();
    }

    /// The journal position up to which everything is durable.
    pub(crate) fn place(&self) -> JournalPlace {
        *self.place.lock()
    }

    /// Moves the durable position forward to `place`.
    pub(crate) fn set_place(&self, place: JournalPlace) {
        let mut durable = self.place.lock();
        if place.sequence >= durable.sequence {
            *durable = place;
        }
    }

    /// Takes the rounds of the next sync: at once on demand, otherwise after `interval`. If there are many bytes by
    /// then, `are_left` may leave them to the writeback thread. `None` once the queue is stopped and empty.
    pub(crate) fn take(&self, interval: Duration, are_left: impl Fn(u64) -> bool) -> Option<SyncBatch> {
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
        Some(state.begin())
    }

    /// Like [`SyncQueue::take`], for a caller that does not wait: `None` if no sync is due. `is_late` says that the interval
    /// has passed.
    pub(crate) fn take_now(&self, is_late: bool, are_left: impl Fn(u64) -> bool) -> Option<SyncBatch> {
        let mut state = self.state.lock();
        let bytes = state.rounds.iter().map(|round| round.bytes).sum();
        let is_due = !state.rounds.is_empty() && (state.demand || state.stop || (is_late && !are_left(bytes)));
        is_due.then(|| state.begin())
    }

    /// Ends the sync of the rounds that were taken.
    pub(crate) fn done(&self) {
        self.state.lock().is_syncing = false;
    }

    /// Hands all unsynced rounds to the writeback thread, which makes them durable. Returns nothing if somebody waits
    /// for one of them, or if a sync is running.
    pub(crate) fn take_over(&self) -> Vec<JournalRound> {
        let mut state = self.state.lock();
        if state.demand || state.is_syncing {
            return Vec::new();
        }
        let rounds = std::mem::take(&mut state.rounds);
        state.taken_over = rounds.iter().flat_map(|round| &round.touched).cloned().collect();
        state.taken_over.dedup_by_key(|file| file.slot);
        rounds
    }

    /// Notes that `meta` covers the rounds that were taken over.
    pub(crate) fn vouched(&self) {
        self.state.lock().taken_over.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::thread;

    use super::*;

    fn round(bytes: u64) -> JournalRound {
        JournalRound { bytes, ..JournalRound::default() }
    }

    #[test]
    fn many_unawaited_bytes_are_left_to_the_writeback_thread_and_few_are_not() {
        let queue = SyncQueue::default();
        let left = AtomicU64::new(0);
        thread::scope(|threads| {
            let taken = threads.spawn(|| {
                let are_left = |bytes| bytes >= 10 && left.fetch_max(bytes, Ordering::AcqRel) <= bytes;
                queue.take(Duration::from_millis(1), are_left)
            });
            queue.push(round(4), false);
            queue.push(round(6), false);
            // Either the thread's millisecond or the second round comes first.
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
    fn rounds_with_a_waiter_or_behind_a_running_sync_are_not_taken_over() {
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
