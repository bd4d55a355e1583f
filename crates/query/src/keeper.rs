//! The thread that keeps queries: from time to time it writes down what they have come to.
//!
//! ```text
//!   threads that match ──note places──┐
//!                                     ▼ hold
//!   keeper: look at each query ──► wait until its places are stable ──► append to the state topic
//! ```
//!
//! It is the only writer of the state topic, so what a query was never overwrites that it is gone.

use std::collections::HashMap;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use millstream_log::{Bell, Error as LogError};
use millstream_types::Offset;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::keeping::Places;
use crate::kept::Kept;
use crate::live::{Clocks, Live};
use crate::outbox::{Contents, Counts};
use crate::passage::Gone;
use crate::registry::Registry;
use crate::shelf::{Shelf, ShelfRecord};
use crate::trail::{ResultId, Trail};
use crate::{Cause, Config, Error, QueryId, Trouble};

/// So many bytes of records are appended at once, or one record.
const APPEND_MAX_BYTES: usize = 8 << 20;
/// Between two looks whether records have become stable.
const STABLE_LOOK: Duration = Duration::from_millis(2);
/// Longest sleep while no query is kept.
const IDLE: Duration = Duration::from_secs(60);
/// Longest that the end of the engine waits for that.
const STABLE_MAX: Duration = Duration::from_secs(5);

/// What the thread is asked for.
#[derive(Default)]
pub(crate) struct KeeperInbox {
    asked: Mutex<Asked>,
    bell: Bell,
}

#[derive(Default)]
struct Asked {
    /// To be kept now, and to be told.
    begun: Vec<Begun>,
    /// Not to be kept any more.
    forgotten: Vec<QueryId>,
    stop: bool,
    /// The thread is gone: what it is asked for is answered by nobody.
    closed: bool,
}

impl KeeperInbox {
    /// Has a query kept for the first time; durable once that is answered.
    pub(crate) async fn begin(&self, query: &Arc<Live>) -> Result<(), Error> {
        let (sender, receiver) = oneshot::channel();
        self.ask(|asked| asked.begun.push((query.clone(), sender)));
        receiver.await.unwrap_or(Err(Error::Stopped))
    }

    /// Has a query kept no longer.
    pub(crate) fn forget(&self, id: QueryId) {
        self.ask(|asked| asked.forgotten.push(id));
    }

    /// Has all queries kept once more, and the thread end.
    pub(crate) fn stop(&self) {
        self.ask(|asked| asked.stop = true);
    }

    fn take(&self) -> Asked {
        std::mem::take(&mut *self.asked.lock())
    }

    /// From now on whoever waits for an answer learns that there is none.
    fn close(&self) {
        *self.asked.lock() = Asked { closed: true, ..Asked::default() };
    }

    fn ask(&self, ask: impl FnOnce(&mut Asked)) {
        let mut asked = self.asked.lock();
        if !asked.closed {
            ask(&mut asked);
        }
        drop(asked);
        self.bell.ring();
    }
}

pub(crate) struct Keeper {
    pub(crate) registry: Arc<Registry>,
    pub(crate) shelf: Shelf,
    pub(crate) clocks: Arc<Clocks>,
    pub(crate) every: Duration,
    pub(crate) state_max_bytes: usize,
    pub(crate) end_max: Duration,
    pub(crate) end_again: Duration,
    /// Those that have to be kept for the first time.
    begun: Vec<Begun>,
    /// What each query was when it was last written.
    written: HashMap<QueryId, Stamp>,
    last: Duration,
    /// Some were left out of the last round, as their records were not stable in time.
    is_behind: bool,
}

type Begun = (Arc<Live>, oneshot::Sender<Result<(), Error>>);

/// A query as it is to be written.
struct Look {
    query: Arc<Live>,
    stamp: Stamp,
    value: Vec<u8>,
}

impl Keeper {
    pub(crate) fn new(registry: Arc<Registry>, shelf: Shelf, clocks: Arc<Clocks>, config: &Config) -> Self {
        Self {
            last: clocks.monotonic.now(),
            registry,
            shelf,
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

    /// Waits until the threads have read what `resumed` queries have not seen yet; then runs until it is told to stop.
    pub(crate) fn run(mut self, resumed: Resumed) {
        for read in resumed.read {
            // A thread that is gone reads nothing more.
            let _ = read.blocking_recv();
        }
        self.registry.resumed(&resumed.queries);
        loop {
            let Asked { begun, forgotten, stop, .. } = self.registry.keeper.take();
            self.begun.extend(begun);
            let is_due = self.is_behind || self.clocks.monotonic.now().saturating_sub(self.last) >= self.every;
            if let Err(error) = self.round(forgotten, is_due || stop, if stop { STABLE_MAX } else { self.every }) {
                tracing::error!(%error, "live queries cannot be kept");
                self.begun.drain(..).for_each(|(_, answer)| drop(answer.send(Err(not_kept(&error)))));
            }
            if stop {
                return self.registry.keeper.close();
            }
            self.registry.keeper.bell.wait(self.patience());
        }
    }

    fn patience(&self) -> Duration {
        if self.is_behind || !self.begun.is_empty() {
            return STABLE_LOOK;
        }
        let since = self.clocks.monotonic.now().saturating_sub(self.last);
        if self.registry.keeps_any() { self.every.saturating_sub(since).max(STABLE_LOOK) } else { IDLE }
    }

    /// Writes what has changed: of all queries if that is due, else of those that are new.
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
        let gone = forgotten.into_iter().map(|id| ShelfRecord { id, value: None });
        let there = looks
            .iter_mut()
            .map(|look| ShelfRecord { id: look.query.id, value: Some(std::mem::take(&mut look.value)) });
        self.append(there.chain(gone).collect())?;
        for Look { query, stamp, .. } in looks {
            if let Some(keeping) = &query.keeping {
                keeping.has_been_kept();
            }
            query.outbox.has_been_kept(stamp.through, stamp.ended);
            self.written.insert(query.id, stamp);
            if !self.registry.is_kept(query.id) {
                // It has gone since it was looked at.
                self.registry.keeper.forget(query.id);
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

    /// Lets go of queries whose end nobody has read for too long, and of those whose client has not asked for it again.
    fn forget_the_unread(&self, queries: &mut Vec<Arc<Live>>) {
        let now_ms = self.clocks.wall.now_ms();
        let [end_max_ms, end_again_ms] =
            [self.end_max, self.end_again].map(|max| i64::try_from(max.as_millis()).unwrap_or(i64::MAX));
        queries.retain(|query| {
            let finished_ms = query.outbox.look(|contents| contents.end.and_then(|end| end.finished_ms));
            let is_older =
                |then_ms: Option<i64>, max_ms| then_ms.is_some_and(|then_ms| now_ms.saturating_sub(then_ms) > max_ms);
            let sent_ms = query.keeping.as_ref().and_then(|keeping| keeping.end_sent_ms());
            let is_old = is_older(finished_ms, end_max_ms) || is_older(sent_ms, end_again_ms);
            if is_old {
                self.registry.forget(query);
            }
            !is_old
        });
    }

    /// What is to be written of a query; `None` if that has been written. One that has become too large ends.
    fn look(&self, query: &Arc<Live>) -> Option<Look> {
        let keeping = query.keeping.as_ref()?;
        let (stamp, value) = {
            let places = keeping.hold();
            let stamp = Stamp::of(query, &places);
            if self.written.get(&query.id) == Some(&stamp) {
                return None;
            }
            let value = Kept::of(query, &keeping.request, keeping.addressee.as_ref(), &places).encode();
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

    fn append(&self, records: Vec<ShelfRecord>) -> Result<(), LogError> {
        let size = |record: &ShelfRecord| record.value.as_ref().map_or(0, Vec::len);
        let mut rest = &records[..];
        let mut answers = Vec::new();
        while !rest.is_empty() {
            let mut bytes = 0;
            let fits = rest.iter().take_while(|record| {
                bytes += size(record);
                bytes <= APPEND_MAX_BYTES
            });
            let (piece, later) = rest.split_at(fits.count().max(1));
            answers.push(self.shelf.append(piece)?);
            rest = later;
        }
        answers.into_iter().try_for_each(|answer| answer.wait().map(drop))
    }
}

/// Queries of a former process, and when the threads have read what these have not seen yet.
#[derive(Default)]
pub(crate) struct Resumed {
    pub(crate) queries: Vec<Arc<Live>>,
    pub(crate) read: Vec<oneshot::Receiver<()>>,
}

/// What changes whenever a query's record would.
#[derive(Debug, PartialEq)]
struct Stamp {
    places: Places,
    counts: Counts,
    windows: u64,
    waiting: usize,
    ended: bool,
    /// Of results that have to arrive somewhere: which have, and how many there have been.
    gone: Gone,
    through: u64,
    /// Of those that are sent to clients: the last one, the last that has gone, how many have been sent.
    trail: Option<(ResultId, ResultId, usize)>,
}

impl Stamp {
    fn of(query: &Live, places: &Places) -> Self {
        let windows = query.running.as_ref().map_or(0, |running| running.given());
        query.outbox.look(|Contents { counts, waiting, end, passage, trail }| Self {
            places: places.clone(),
            counts,
            windows,
            waiting: waiting.len(),
            ended: end.is_some(),
            gone: passage.map_or(Gone::default(), |passage| passage.gone),
            through: passage.map_or(0, |passage| passage.through(waiting.len())),
            trail: trail.map(Trail::stamp),
        })
    }

    /// Whether all records that are in the results are stable.
    fn is_stable(&self, query: &Live) -> bool {
        query.stream.partitions.iter().all(|partition| {
            let reached = self.places.get(&partition.id().partition).filter(|reached| reached.has_begun());
            reached.is_none_or(|reached| partition.offsets().stable >= Offset(reached.counted.next))
        })
    }
}

/// Waits until all records are stable that are in the results, and leaves those out of which some are not by then.
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
