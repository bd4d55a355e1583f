//! The sync thread: makes written rounds durable, many with one sync.
//!
//! Rounds that are written while a sync runs are the next group. A failed sync is never tried again: the kernel may
//! have dropped the pages, and a second one could succeed without them.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::catalog::Catalog;
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

    pub(crate) fn set_place(&self, place: JournalPlace) {
        *self.place.lock() = place;
    }

    /// The rounds of the next sync: at once if somebody wants it, else after `interval`. `None` when all is done.
    fn take(&self, interval: Duration) -> Option<Vec<Round>> {
        let mut state = self.state.lock();
        while state.rounds.is_empty() {
            if state.stop {
                return None;
            }
            self.arrived.wait(&mut state);
        }
        while !state.demand && !state.stop {
            if self.arrived.wait_for(&mut state, interval).timed_out() {
                break;
            }
        }
        state.demand = false;
        Some(std::mem::take(&mut state.rounds))
    }
}

/// Runs until the queue is stopped and empty.
pub(crate) fn run(shared: &Arc<Shared>, catalog: &Catalog) {
    let interval = Duration::from_millis(shared.config.sync_interval_ms);
    while let Some(rounds) = shared.sync.take(interval) {
        let synced = match shared.ended() {
            Some(error) => Err(error),
            None => sync(shared, &rounds),
        };
        if let Err(cause) = synced {
            let error = shared.end(&cause);
            rounds.into_iter().for_each(|round| fail(round.waiters, &error));
            continue;
        }
        let bytes = rounds.iter().map(|round| round.bytes).sum();
        settle(shared, catalog, rounds);
        shared.flush.behind(bytes);
        if shared.journal.has_full() {
            shared.flush.wake();
        }
    }
}

fn sync(shared: &Shared, rounds: &[Round]) -> Result<(), Error> {
    let mut files: Vec<_> = rounds.iter().flat_map(|round| &round.touched).collect();
    files.dedup_by_key(|file| file.slot);
    for file in files {
        let start = shared.monotonic.now();
        file.file.sync().map_err(|e| Error::io("sync", &file.path, e))?;
        shared.counters.synced(shared.monotonic.now().saturating_sub(start));
    }
    Ok(())
}

/// Makes true what the sync has made durable: first for those who look, then for those who wait.
fn settle(shared: &Shared, catalog: &Catalog, mut rounds: Vec<Round>) {
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
