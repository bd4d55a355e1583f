//! A live query, as the engine, its threads and its client share it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::time::Duration;

use millstream_types::{MonotonicClock, Offset, PartitionId, TenantId, WallClock};
use parking_lot::{Mutex, MutexGuard};

use crate::compiled::Compiled;
use crate::keeping::{Keeping, Places, note, share};
use crate::moment::Moment;
use crate::outbox::{Counts, Delivery, Outbox, Put};
use crate::price::Price;
use crate::progress::{Progress, Share};
use crate::stream::Stream;
use crate::window::{Final, Running};
use crate::{Cause, Clamped, Meta, QueryId, Trouble, Yield};

/// Both clocks.
pub(crate) struct Clocks {
    pub(crate) monotonic: Arc<dyn MonotonicClock>,
    pub(crate) wall: Arc<dyn WallClock>,
}

pub(crate) struct Live {
    pub(crate) id: QueryId,
    pub(crate) text: Box<str>,
    pub(crate) columns: Arc<[String]>,
    pub(crate) compiled: Arc<Compiled>,
    /// What it costs each record, if anything.
    pub(crate) price: Option<Box<Price>>,
    pub(crate) stream: Arc<Stream>,
    /// The number under which its stream has it; 0 for none.
    pub(crate) entry: AtomicU32,
    pub(crate) received_ms: i64,
    pub(crate) received: Moment,
    /// When it ends, by the monotonic clock.
    pub(crate) deadline: Option<Moment>,
    pub(crate) clamped: Box<[Clamped]>,
    pub(crate) outbox: Outbox,
    /// What its records have come to, unless each of them is a row at once.
    pub(crate) running: Option<Box<Running>>,
    /// If it is to outlive the process: what that needs.
    pub(crate) keeping: Option<Box<Keeping>>,
    /// What it sees of each partition, added by the threads that read them.
    pub(crate) shares: Mutex<Vec<Share>>,
    /// Whether all threads match for it.
    pub(crate) matched: AtomicBool,
}

impl Live {
    /// Whose it is: a stream is seen by its own tenant only.
    pub(crate) fn tenant(&self) -> &TenantId {
        self.stream.topic.name.tenant()
    }

    fn clocks(&self) -> &Clocks {
        &self.outbox.common.clocks
    }

    /// What can be told now; once it has ended, what was told then.
    pub(crate) fn meta(&self) -> Meta {
        self.outbox.end_meta().unwrap_or_else(|| self.meta_of(self.outbox.counts()))
    }

    fn meta_of(&self, counts: Counts) -> Meta {
        let mut meta = Meta {
            id: self.id,
            text: self.text.to_string(),
            stream: self.stream.topic.name.to_string(),
            received_ms: self.received_ms,
            finished_ms: None,
            elapsed_us: (self.clocks().monotonic.now().saturating_sub(self.received.into()) + self.ran_before())
                .as_micros() as u64,
            cause: None,
            records_seen: 0,
            matched: counts.matched,
            dropped: counts.dropped,
            evaluation_errors: counts.evaluation_errors,
            not_json: 0,
            skipped: 0,
            clamped: self.clamped.to_vec(),
            positions: Vec::new(),
            sketches: self.running.as_ref().map(|running| running.last_sketches()).unwrap_or_default(),
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

    /// When it ends, by the monotonic clock.
    pub(crate) fn deadline(&self) -> Option<Duration> {
        self.deadline.map(Duration::from)
    }

    /// Milliseconds since 1970-01-01T00:00:00Z.
    pub(crate) fn now_ms(&self) -> i64 {
        self.clocks().wall.now_ms()
    }

    /// When it ends, milliseconds since 1970-01-01T00:00:00Z.
    pub(crate) fn deadline_ms(&self) -> Option<i64> {
        let lives_for = self.deadline()?.saturating_sub(self.received.into()) + self.ran_before();
        Some(self.received_ms.saturating_add(i64::try_from(lives_for.as_millis()).unwrap_or(i64::MAX)))
    }

    /// How long it had run in other processes.
    fn ran_before(&self) -> Duration {
        self.keeping.as_ref().map_or(Duration::ZERO, |keeping| keeping.ran_before)
    }

    /// Has it see what is counted of a partition from now on, beyond what it has seen before.
    pub(crate) fn see(&self, progress: &Arc<Progress>) {
        let mut held = self.hold();
        let mut shares = self.shares.lock();
        match shares.iter_mut().find(|share| share.partition() == progress.partition()) {
            Some(share) => {
                let (counted, covered) = share.since_begin();
                *share = Share::go_on(progress, covered.first, counted);
            }
            None => {
                let share = Share::begin(progress);
                if let Some(places) = &mut held {
                    note(places, &share);
                }
                shares.push(share);
            }
        }
    }

    /// Up to where it has seen a partition.
    pub(crate) fn stands(&self, partition: PartitionId) -> Option<Offset> {
        let shares = self.shares.lock();
        let share = shares.iter().find(|share| share.partition() == partition)?;
        Some(Offset(share.since_begin().0.next))
    }

    /// Has it begin at these places.
    pub(crate) fn begin_at(&mut self, places: &Places) {
        *self.shares.get_mut() = places.iter().map(|(partition, reached)| share(*partition, reached)).collect();
        if let Some(keeping) = &self.keeping {
            places.clone_into(&mut keeping.hold());
        }
    }

    /// Whether it sees what is counted there.
    pub(crate) fn sees(&self, progress: &Arc<Progress>) -> bool {
        self.shares.lock().iter().any(|share| share.is_of(progress))
    }

    /// If it is kept: notes that its results have whatever has been counted of the partition.
    pub(crate) fn note(&self, partition: PartitionId) {
        if let Some(mut places) = self.hold() {
            self.note_in(&mut places, partition);
        }
    }

    fn note_in(&self, places: &mut Places, partition: PartitionId) {
        if let Some(share) = self.shares.lock().iter().find(|share| share.partition() == partition) {
            note(places, share);
        }
    }

    /// If it is kept: holds its results as they are.
    fn hold(&self) -> Option<MutexGuard<'_, Places>> {
        self.keeping.as_ref().map(|keeping| keeping.hold())
    }

    /// Takes what a thread has matched of a partition.
    pub(crate) fn take(&self, thread: usize, partition: PartitionId, yielded: Yield, now_ms: i64) -> Put {
        let mut held = self.hold();
        let put = self.take_held(thread, yielded, now_ms);
        if let Some(places) = &mut held {
            self.note_in(places, partition);
        }
        put
    }

    fn take_held(&self, thread: usize, yielded: Yield, now_ms: i64) -> Put {
        let Yield { rows, evaluation_errors } = yielded;
        let Some(running) = &self.running else {
            return self.outbox.put(rows, evaluation_errors, self.clocks().monotonic.now());
        };
        let (mut given, now) = (Put::Taken, self.clocks().monotonic.now());
        let added = running.add(thread, &rows, now_ms, |window| {
            given = given.max(self.outbox.put_result(Delivery::Window(Box::new(window)), Some(now)));
        });
        self.outbox.count(added.records, evaluation_errors + added.errors);
        if added.too_large { Put::TooLarge } else { given }
    }

    /// When something is due: the next window, or its end.
    pub(crate) fn next_due(&self) -> Option<Duration> {
        let window = self.running.as_ref().and_then(|running| running.next_due());
        self.deadline().into_iter().chain(window).min()
    }

    /// Gives the windows that are due.
    pub(crate) fn tick(&self, now: Duration) -> Put {
        let mut given = Put::Taken;
        let _held = self.hold();
        if let Some(running) = &self.running {
            running.tick(now, self.clocks().wall.now_ms(), |window| {
                given = given.max(self.outbox.put_result(Delivery::Window(Box::new(window)), Some(now)));
            });
        }
        given
    }

    /// Gives what is left of its results.
    fn finish(&self) {
        let Some(running) = &self.running else { return };
        let now = self.clocks().monotonic.now();
        // Nothing past its deadline is owed, however late this is.
        let until = self.deadline().map_or(now, |deadline| deadline.min(now));
        running.finish(until, self.clocks().wall.now_ms(), |last| {
            let last = match last {
                Final::Window(window) => Delivery::Window(window),
                Final::Rows(rows) => Delivery::Rows(rows),
            };
            // What it has come to is given however soon it follows.
            self.outbox.put_result(last, None);
        });
    }

    /// Ends it, once, with what is left of its results unless nobody is there to read them or they come after a restart.
    /// Whether this was the first call.
    pub(crate) fn end(&self, cause: Cause, trouble: Option<Trouble>) -> bool {
        let _held = self.hold();
        let goes_on = cause == Cause::Shutdown && self.keeping.is_some();
        if cause != Cause::Disconnected && !goes_on {
            self.finish();
        }
        self.outbox.end(|counts| {
            let mut meta = self.meta_of(counts);
            meta.finished_ms = Some(self.clocks().wall.now_ms());
            meta.cause = Some(cause);
            meta.errors.extend(trouble);
            meta
        })
    }
}
