//! A live query, as the engine, its threads and its client share it.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use millstream_log::{Partition, Topic};
use millstream_types::{MonotonicClock, TenantId, WallClock};
use parking_lot::Mutex;

use crate::compiled::Compiled;
use crate::outbox::{Counts, Delivery, Outbox, Put};
use crate::price::Price;
use crate::progress::Share;
use crate::window::{Final, Running};
use crate::{Cause, Clamped, Meta, QueryId, SketchMeta, Trouble, Yield};

/// Both clocks.
#[derive(Clone)]
pub(crate) struct Clocks {
    pub(crate) monotonic: Arc<dyn MonotonicClock>,
    pub(crate) wall: Arc<dyn WallClock>,
}

/// The stream that a query reads, by its partitions.
#[derive(Clone)]
pub(crate) struct Stream {
    pub(crate) topic: Arc<Topic>,
    pub(crate) partitions: Vec<Arc<dyn Partition>>,
}

pub(crate) struct Live {
    pub(crate) id: QueryId,
    pub(crate) tenant: TenantId,
    pub(crate) text: String,
    pub(crate) columns: Vec<String>,
    pub(crate) compiled: Arc<Compiled>,
    pub(crate) price: Price,
    pub(crate) stream: Stream,
    pub(crate) received_ms: i64,
    pub(crate) received: Duration,
    /// When it ends, by the monotonic clock.
    pub(crate) deadline: Option<Duration>,
    pub(crate) clamped: Vec<Clamped>,
    pub(crate) outbox: Outbox,
    /// What its records have come to, unless each of them is a row at once.
    pub(crate) running: Option<Running>,
    /// What is told about the sketches behind its last rows.
    pub(crate) sketches: Mutex<Vec<SketchMeta>>,
    /// What it sees of each partition, added by the threads that read them.
    pub(crate) shares: Mutex<Vec<Share>>,
    /// Whether all threads match for it.
    pub(crate) matched: AtomicBool,
    pub(crate) clocks: Clocks,
}

impl Live {
    /// What can be told now.
    pub(crate) fn meta(&self) -> Meta {
        self.meta_of(self.outbox.counts())
    }

    fn meta_of(&self, counts: Counts) -> Meta {
        let mut meta = Meta {
            id: self.id,
            text: self.text.clone(),
            stream: self.stream.topic.name.to_string(),
            received_ms: self.received_ms,
            finished_ms: None,
            elapsed_us: self.clocks.monotonic.now().saturating_sub(self.received).as_micros() as u64,
            cause: None,
            records_seen: 0,
            matched: counts.matched,
            dropped: counts.dropped,
            evaluation_errors: counts.evaluation_errors,
            not_json: 0,
            skipped: 0,
            clamped: self.clamped.clone(),
            positions: Vec::new(),
            sketches: self.sketches.lock().clone(),
            errors: Vec::new(),
        };
        for share in self.shares.lock().iter() {
            let (counted, covered) = share.since_begin();
            meta.records_seen += counted.records;
            meta.not_json += counted.not_json;
            meta.skipped += counted.skipped;
            meta.positions.push(covered);
        }
        meta.positions.sort_by_key(|covered| covered.partition);
        meta
    }

    /// Takes what a thread has matched.
    pub(crate) fn take(&self, thread: usize, yielded: Yield, now_ms: i64) -> Put {
        let Yield { rows, evaluation_errors } = yielded;
        let Some(running) = &self.running else {
            return self.outbox.put(rows, evaluation_errors, self.clocks.monotonic.now());
        };
        let (mut given, now) = (Put::Taken, self.clocks.monotonic.now());
        let added = running.add(thread, &rows, now_ms, |window| {
            given = given.max(self.outbox.put_result(Delivery::Window(Box::new(window)), Some(now)));
        });
        self.outbox.count(added.records, evaluation_errors + added.errors);
        if added.too_large { Put::TooLarge } else { given }
    }

    /// When something is due: the next window, or its end.
    pub(crate) fn next_due(&self) -> Option<Duration> {
        let window = self.running.as_ref().and_then(Running::next_due);
        self.deadline.into_iter().chain(window).min()
    }

    /// Gives the windows that are due.
    pub(crate) fn tick(&self, now: Duration) -> Put {
        let mut given = Put::Taken;
        if let Some(running) = &self.running {
            running.tick(now, self.clocks.wall.now_ms(), |window| {
                given = given.max(self.outbox.put_result(Delivery::Window(Box::new(window)), Some(now)));
            });
        }
        given
    }

    /// Gives what is left of its results.
    fn finish(&self) {
        let Some(running) = &self.running else { return };
        let now = self.clocks.monotonic.now();
        // Nothing past its deadline is owed, however late this is.
        let until = self.deadline.map_or(now, |deadline| deadline.min(now));
        running.finish(until, self.clocks.wall.now_ms(), |last| {
            let last = match last {
                Final::Window(window) => Delivery::Window(window),
                Final::Rows(rows, sketches) => {
                    *self.sketches.lock() = sketches;
                    Delivery::Rows(rows)
                }
            };
            // What it has come to is given however soon it follows.
            self.outbox.put_result(last, None);
        });
    }

    /// Ends it, once, with what is left of its results unless nobody is there to read them. Whether this was the first
    /// call.
    pub(crate) fn end(&self, cause: Cause, trouble: Option<Trouble>) -> bool {
        if cause != Cause::Disconnected {
            self.finish();
        }
        self.outbox.end(|counts| {
            let mut meta = self.meta_of(counts);
            meta.finished_ms = Some(self.clocks.wall.now_ms());
            meta.cause = Some(cause);
            meta.errors.extend(trouble);
            meta
        })
    }
}
