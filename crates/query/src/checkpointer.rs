//! The thread that stores checkpoints of kept queries.
//!
//! ```text
//!   threads that match ──note positions──┐
//!                                        ▼ hold
//!   checkpointer: copy each query ──► wait until its positions are stable ──► append to the state topic
//! ```
//!
//! It is the only writer of the state topic, so an old checkpoint never overwrites a deletion.

use std::collections::HashMap;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use millstream_log::Error as LogError;
use millstream_types::Offset;
use tokio::sync::oneshot;

use crate::checkpoint::Checkpoint;
use crate::checkpointer_inbox::{CheckpointRequests, FirstCheckpoint};
use crate::clocks::Clocks;
use crate::durable_state::PartitionPositions;
use crate::live::LiveQuery;
use crate::outbox::{OutboxSnapshot, ResultCounts};
use crate::query_store::{QueryStore, StoredCheckpoint};
use crate::registry::QueryRegistry;
use crate::resume_buffer::{ResultId, ResumeBuffer};
use crate::sink_progress::SinkOffset;
use crate::{Cause, Config, Error, QueryId, Trouble};

/// So many bytes of records are appended at once, or one record.
const APPEND_MAX_BYTES: usize = 8 << 20;
/// Between two looks whether records have become stable.
const STABLE_LOOK: Duration = Duration::from_millis(2);
/// Longest sleep without kept queries.
const IDLE: Duration = Duration::from_secs(60);
/// Longest that the end of the engine waits for that.
const STABLE_MAX: Duration = Duration::from_secs(5);

pub(crate) struct Checkpointer {
    pub(crate) registry: Arc<QueryRegistry>,
    pub(crate) store: QueryStore,
    pub(crate) clocks: Arc<Clocks>,
    pub(crate) every: Duration,
    pub(crate) state_max_bytes: usize,
    pub(crate) end_max: Duration,
    pub(crate) end_again: Duration,
    /// Queries that wait for their first checkpoint.
    begun: Vec<FirstCheckpoint>,
    /// The stamp of each query's last checkpoint.
    written: HashMap<QueryId, Stamp>,
    last: Duration,
    /// Some were left out of the last round, as their records were not stable in time.
    is_behind: bool,
}

/// A copy of a query, ready to be stored.
struct Look {
    query: Arc<LiveQuery>,
    stamp: Stamp,
    value: Vec<u8>,
}

impl Checkpointer {
    pub(crate) fn new(registry: Arc<QueryRegistry>, store: QueryStore, clocks: Arc<Clocks>, config: &Config) -> Self {
        Self {
            last: clocks.monotonic.now(),
            registry,
            store,
            clocks,
            every: Duration::from_millis(config.keep_every_ms.max(1)),
            state_max_bytes: config.kept_state_max_bytes,
            end_max: Duration::from_millis(config.kept_end_max_ms),
            end_again: Duration::from_millis(config.kept_end_again_ms),
            begun: Vec::new(),
            written: HashMap::new(),
            is_behind: false,
        }
    }

    /// Waits until the threads have replayed the `resumed` queries; then runs until it is told to stop.
    pub(crate) fn run(mut self, resumed: Resumed) {
        for read in resumed.read {
            // A thread that has ended reads nothing more.
            let _ = read.blocking_recv();
        }
        self.registry.resumed(&resumed.queries);
        loop {
            let CheckpointRequests { begun, forgotten, stop, .. } = self.registry.checkpointer.take();
            self.begun.extend(begun);
            let is_due = self.is_behind || self.clocks.monotonic.now().saturating_sub(self.last) >= self.every;
            if let Err(error) = self.round(forgotten, is_due || stop, if stop { STABLE_MAX } else { self.every }) {
                tracing::error!(%error, "live queries cannot be kept");
                self.begun.drain(..).for_each(|(_, answer)| drop(answer.send(Err(not_kept(&error)))));
            }
            if stop {
                return self.registry.checkpointer.close();
            }
            self.registry.checkpointer.bell.wait(self.patience());
        }
    }

    fn patience(&self) -> Duration {
        if self.is_behind || !self.begun.is_empty() {
            return STABLE_LOOK;
        }
        let since = self.clocks.monotonic.now().saturating_sub(self.last);
        if self.registry.keeps_any() { self.every.saturating_sub(since).max(STABLE_LOOK) } else { IDLE }
    }

    /// Stores the changed checkpoints: of all queries if that is due, else of new queries.
    fn round(&mut self, forgotten: Vec<QueryId>, is_due: bool, patience: Duration) -> Result<(), LogError> {
        let mut queries = if is_due {
            self.last = self.clocks.monotonic.now();
            self.registry.note_places();
            self.registry.kept()
        } else {
            self.begun.iter().map(|(query, _)| query.clone()).collect()
        };
        self.forget_the_unread(&mut queries);
        let mut looks: Vec<Look> = queries.iter().filter_map(|query| self.look(query)).collect();
        let looked_at = looks.len();
        keep_stable(&mut looks, patience);
        self.is_behind = looks.len() < looked_at;
        for id in &forgotten {
            self.written.remove(id);
        }
        let gone = forgotten.into_iter().map(|id| StoredCheckpoint { id, value: None });
        let there = looks
            .iter_mut()
            .map(|look| StoredCheckpoint { id: look.query.id, value: Some(std::mem::take(&mut look.value)) });
        self.append(there.chain(gone).collect())?;
        for Look { query, stamp, .. } in looks {
            if let Some(durable) = &query.durable {
                durable.has_been_kept();
            }
            query.outbox.has_been_kept(stamp.through, stamp.ended);
            self.written.insert(query.id, stamp);
            if !self.registry.is_kept(query.id) {
                // The query was removed since it was copied.
                self.registry.checkpointer.forget(query.id);
            }
        }
        for (query, answer) in std::mem::take(&mut self.begun) {
            match self.written.contains_key(&query.id) || query.outbox.has_ended() {
                true => drop(answer.send(Ok(()))),
                false => self.begun.push((query, answer)),
            }
        }
        Ok(())
    }

    /// Removes queries whose end nobody has read in time, and those whose client did not ask for it again.
    fn forget_the_unread(&self, queries: &mut Vec<Arc<LiveQuery>>) {
        let now_ms = self.clocks.wall.now_ms();
        let [end_max_ms, end_again_ms] =
            [self.end_max, self.end_again].map(|max| i64::try_from(max.as_millis()).unwrap_or(i64::MAX));
        queries.retain(|query| {
            let finished_ms = query.outbox.look(|contents| contents.end.and_then(|end| end.finished_ms));
            let is_older =
                |then_ms: Option<i64>, max_ms| then_ms.is_some_and(|then_ms| now_ms.saturating_sub(then_ms) > max_ms);
            let sent_ms = query.durable.as_ref().and_then(|durable| durable.end_sent_ms());
            let is_old = is_older(finished_ms, end_max_ms) || is_older(sent_ms, end_again_ms);
            if is_old {
                self.registry.forget(query);
            }
            !is_old
        });
    }

    /// Copies a query if it has changed since its last checkpoint. A query whose state is too large ends.
    fn look(&self, query: &Arc<LiveQuery>) -> Option<Look> {
        let durable = query.durable.as_ref()?;
        let (stamp, value) = {
            let places = durable.hold();
            let stamp = Stamp::of(query, &places);
            if self.written.get(&query.id) == Some(&stamp) {
                return None;
            }
            let value = Checkpoint::of(query, &durable.request, durable.addressee.as_ref(), &places).encode();
            (stamp, value)
        };
        if value.len() <= self.state_max_bytes {
            return Some(Look { query: query.clone(), stamp, value });
        }
        if query.outbox.let_go_of_sent() {
            return self.look(query);
        }
        let trouble = too_large(value.len(), self.state_max_bytes);
        tracing::warn!(query = %query.id, trouble = trouble.error, "a query cannot be kept");
        self.registry.end(query, Cause::Limit, Some(trouble));
        None
    }

    fn append(&self, records: Vec<StoredCheckpoint>) -> Result<(), LogError> {
        let size = |record: &StoredCheckpoint| record.value.as_ref().map_or(0, Vec::len);
        let mut rest = &records[..];
        let mut answers = Vec::new();
        while !rest.is_empty() {
            let mut bytes = 0;
            let fits = rest.iter().take_while(|record| {
                bytes += size(record);
                bytes <= APPEND_MAX_BYTES
            });
            let (piece, later) = rest.split_at(fits.count().max(1));
            answers.push(self.store.append(piece)?);
            rest = later;
        }
        answers.into_iter().try_for_each(|answer| answer.wait().map(drop))
    }
}

/// The resumed queries, and the signals that the threads have replayed their missed records.
#[derive(Default)]
pub(crate) struct Resumed {
    pub(crate) queries: Vec<Arc<LiveQuery>>,
    pub(crate) read: Vec<oneshot::Receiver<()>>,
}

/// A value that changes whenever the checkpoint would.
#[derive(Debug, PartialEq)]
struct Stamp {
    places: PartitionPositions,
    counts: ResultCounts,
    windows: u64,
    waiting: usize,
    ended: bool,
    /// The progress of a query whose results go into a topic: the results that have arrived there.
    gone: SinkOffset,
    through: u64,
    /// For results that are sent to clients: the last number, the last one dropped, and the number of results sent.
    resume_buffer: Option<(ResultId, ResultId, usize)>,
}

impl Stamp {
    fn of(query: &LiveQuery, places: &PartitionPositions) -> Self {
        let windows = query.running.as_ref().map_or(0, |running| running.given());
        query.outbox.look(|OutboxSnapshot { counts, waiting, end, sink_progress, resume_buffer }| Self {
            places: places.clone(),
            counts,
            windows,
            waiting: waiting.len(),
            ended: end.is_some(),
            gone: sink_progress.map_or(SinkOffset::default(), |sink_progress| sink_progress.gone),
            through: sink_progress.map_or(0, |sink_progress| sink_progress.through(waiting.len())),
            resume_buffer: resume_buffer.map(ResumeBuffer::stamp),
        })
    }

    /// True if all records in the results are stable.
    fn is_stable(&self, query: &LiveQuery) -> bool {
        query.stream.partitions.iter().all(|partition| {
            let reached = self.places.get(&partition.id().partition).filter(|reached| reached.has_begun());
            reached.is_none_or(|reached| partition.offsets().stable >= Offset(reached.counted.next))
        })
    }
}

/// Waits until all records in the results are stable. Queries with unstable records are left out of this round.
fn keep_stable(looks: &mut Vec<Look>, patience: Duration) {
    let is_stable = |look: &Look| look.stamp.is_stable(&look.query);
    let mut waited = Duration::ZERO;
    while waited < patience && !looks.iter().all(is_stable) {
        thread::sleep(STABLE_LOOK);
        waited += STABLE_LOOK;
    }
    looks.retain(is_stable);
}

fn too_large(bytes: usize, limit: usize) -> Trouble {
    Trouble {
        error: format!("the query has come to {bytes} bytes, and query.kept_state_max_bytes = {limit}"),
        resolution: "group by fewer values, read results sooner, or raise the limit".to_owned(),
    }
}

fn not_kept(error: &LogError) -> Error {
    match error {
        LogError::Stopped => Error::Stopped,
        error => Error::NotKept { why: error.to_string() },
    }
}
