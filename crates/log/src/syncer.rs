//! The sync thread makes written rounds durable, many with one sync.
//!
//! Rounds that are written during a sync form the next batch. A failed sync is never retried: the kernel may have
//! dropped the pages, and the second attempt could succeed without them.
//!
//! Large rounds that nobody waits for go to the writeback thread: it writes them to their segments, syncs those, and
//! records them in `meta`, so their bytes reach the disk once. A caller that starts to wait meanwhile is served by
//! the next sync, which also covers the files of those rounds.

use std::sync::Arc;
use std::time::Duration;

use crate::ack::fail;
use crate::catalog::TopicCatalog;
use crate::group_commit::JournalRound;
use crate::journal::JournalFile;
use crate::queues::Queues;
use crate::shared::EngineShared;
use crate::sync_queue::SyncBatch;
use crate::{AckLevel, Error};

/// Runs until the queue is stopped and empty.
pub(crate) fn run(shared: &EngineShared, queues: &Queues, catalog: &TopicCatalog) {
    let interval = Duration::from_millis(shared.config.sync_interval_ms);
    let are_left = |bytes| !shared.space.is_waited_for() && queues.flush.is_worth(bytes);
    while let Some(batch) = queues.sync.take(interval, are_left) {
        turn(shared, queues, catalog, batch);
    }
}

/// Takes a turn if one is due; `is_late` says that the interval has passed. `true` if it did.
pub(crate) fn turn_if_due(shared: &EngineShared, queues: &Queues, catalog: &TopicCatalog, is_late: bool) -> bool {
    let are_left = |bytes| !shared.space.is_waited_for() && queues.flush.is_worth(bytes);
    queues.sync.take_now(is_late, are_left).map(|batch| turn(shared, queues, catalog, batch)).is_some()
}

fn turn(shared: &EngineShared, queues: &Queues, catalog: &TopicCatalog, batch: SyncBatch) {
    let SyncBatch { rounds, files } = batch;
    let synced = match shared.ended() {
        Some(error) => Err(error),
        None => sync(shared, &files),
    };
    if let Err(cause) = synced {
        let error = shared.end(&cause);
        rounds.into_iter().for_each(|round| fail(round.waiters, &error));
        queues.sync.done();
        return;
    }
    let bytes = rounds.iter().map(|round| round.bytes).sum();
    settle(shared, queues, catalog, rounds);
    queues.sync.done();
    queues.flush.behind(bytes);
    if shared.journal.has_full() {
        queues.flush.wake();
    }
}

fn sync(shared: &EngineShared, files: &[Arc<JournalFile>]) -> Result<(), Error> {
    for file in files {
        let start = shared.monotonic.now();
        file.file.sync().map_err(|e| Error::io("sync", &file.path, e))?;
        shared.counters.synced(shared.monotonic.now().saturating_sub(start));
    }
    Ok(())
}

/// Publishes that the rounds are durable: first the offsets, then the answers to waiting callers.
pub(crate) fn settle(shared: &EngineShared, queues: &Queues, catalog: &TopicCatalog, mut rounds: Vec<JournalRound>) {
    for round in &mut rounds {
        for (partition, end) in &round.ends {
            partition.set_synced(*end);
        }
        for effect in round.effects.drain(..) {
            catalog.apply(shared, effect);
        }
    }
    // Only now: a `meta` for this position must find everything below it applied.
    if let Some(place) = rounds.iter().rev().find_map(|round| round.place) {
        queues.sync.set_place(place);
    }
    for mut round in rounds {
        round.answer(AckLevel::Synced);
        for (partition, _) in &round.ends {
            partition.watchers.ring();
        }
    }
}
