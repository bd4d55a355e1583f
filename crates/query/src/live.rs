//! A live query, as the engine, its threads and its client share it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use millstream_types::{Offset, PartitionId, TenantId};
use parking_lot::{Mutex, MutexGuard};

use crate::catalogue::EntryId;
use crate::clocks::Clocks;
use crate::compiled::Compiled;
use crate::cost::QueryCost;
use crate::durable_state::{DurableState, PartitionPositions, note, share};
use crate::moment::ClockTime;
use crate::outbox::{Delivery, Outbox, PutOutcome, ResultCounts};
use crate::progress::{PartitionShare, ReadProgress};
use crate::stream::Stream;
use crate::window::{AddOutcome, FinalResult, Now, RunningAggregate};
use crate::{Cause, Clamped, Matches, Meta, QueryId, Trouble};

/// A stream with its live queries.
pub(crate) type LiveStream = Stream<Arc<LiveQuery>>;

pub(crate) struct LiveQuery {
    pub(crate) id: QueryId,
    pub(crate) text: Box<str>,
    pub(crate) columns: Arc<[String]>,
    pub(crate) compiled: Arc<Compiled>,
    /// The cost for each record, if it has one.
    pub(crate) price: Option<Box<QueryCost>>,
    pub(crate) stream: Arc<LiveStream>,
    /// The number under which its stream has it; 0 for none.
    pub(crate) entry: AtomicU32,
    pub(crate) received_ms: i64,
    pub(crate) received: ClockTime,
    /// When it ends, by the monotonic clock.
    pub(crate) deadline: Option<ClockTime>,
    pub(crate) clamped: Box<[Clamped]>,
    pub(crate) outbox: Outbox,
    /// The running aggregate; `None` for queries that emit raw rows.
    pub(crate) running: Option<Box<RunningAggregate>>,
    /// The additional state of a query that survives a restart.
    pub(crate) durable: Option<Box<DurableState>>,
    /// The share of each partition that it sees, added by the threads that read them.
    pub(crate) shares: Mutex<Vec<PartitionShare>>,
    /// True once all threads match for it.
    pub(crate) matched: AtomicBool,
}

impl LiveQuery {
    /// Adds the query to its stream, unless a thread has added it before or the query has ended.
    pub(crate) fn enter_stream(self: &Arc<Self>) {
        if self.entry.load(Ordering::Acquire) != 0 {
            return;
        }
        let mut catalogue = self.stream.catalogue_mut();
        // A query is removed only after its end.
        if self.entry.load(Ordering::Relaxed) == 0 && !self.outbox.has_ended() {
            let entry = catalogue.insert(self.compiled.clone(), self.clone());
            self.entry.store(entry.to_number(), Ordering::Release);
        }
    }

    /// Removes the query, which has ended, from its stream.
    pub(crate) fn leave_stream(&self) {
        if self.entry.load(Ordering::Acquire) == 0 {
            return;
        }
        let mut catalogue = self.stream.catalogue_mut();
        if let Some(entry) = EntryId::of_number(self.entry.swap(0, Ordering::Relaxed)) {
            catalogue.remove(entry);
        }
    }

    /// The tenant of its stream, which is its own.
    pub(crate) fn tenant(&self) -> &TenantId {
        self.stream.topic.name.tenant()
    }

    fn clocks(&self) -> &Clocks {
        &self.outbox.common.clocks
    }

    /// The current meta, or the final one once it has ended.
    pub(crate) fn meta(&self) -> Meta {
        self.outbox.end_meta().unwrap_or_else(|| self.meta_of(self.outbox.counts()))
    }

    fn meta_of(&self, counts: ResultCounts) -> Meta {
        let precision = self.running.as_ref().map(|running| running.last_precision()).unwrap_or_default();
        let mut meta = Meta {
            id: self.id,
            text: self.text.to_string(),
            stream: self.stream.topic.name.to_string(),
            submitted_by: self.durable.as_ref().and_then(|durable| durable.request.submitted_by.clone()),
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
            late: self.running.as_ref().and_then(|running| running.placed()).map_or(0, |placed| placed.late()),
            clamped: self.clamped.to_vec(),
            positions: Vec::new(),
            notes: precision.notes,
            sketches: precision.sketches,
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

    /// The wall clock in milliseconds since 1970-01-01T00:00:00Z.
    pub(crate) fn now_ms(&self) -> i64 {
        self.clocks().wall.now_ms()
    }

    /// When it ends, milliseconds since 1970-01-01T00:00:00Z.
    pub(crate) fn deadline_ms(&self) -> Option<i64> {
        let lives_for = self.deadline()?.saturating_sub(self.received.into()) + self.ran_before();
        Some(self.received_ms.saturating_add(i64::try_from(lives_for.as_millis()).unwrap_or(i64::MAX)))
    }

    /// The time that it had run in former processes.
    fn ran_before(&self) -> Duration {
        self.durable.as_ref().map_or(Duration::ZERO, |durable| durable.ran_before)
    }

    /// Adds a partition whose counters it sees from now on, in addition to its earlier share.
    pub(crate) fn see(&self, progress: &Arc<ReadProgress>) {
        let mut held = self.hold();
        let mut shares = self.shares.lock();
        match shares.iter_mut().find(|share| share.partition() == progress.partition()) {
            Some(share) => {
                let (counted, covered) = share.since_begin();
                *share = PartitionShare::go_on(progress, covered.first, counted);
            }
            None => {
                let share = PartitionShare::begin(progress);
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
    pub(crate) fn begin_at(&mut self, places: &PartitionPositions) {
        if let Some(placed) = self.running.as_ref().and_then(|running| running.placed()) {
            placed.begin_behind(places.keys().copied());
        }
        *self.shares.get_mut() = places.iter().map(|(partition, reached)| share(*partition, reached)).collect();
        if let Some(durable) = &self.durable {
            places.clone_into(&mut durable.hold());
        }
    }

    /// Notes that its past records of a partition have been read.
    pub(crate) fn has_caught_up(&self, partition: PartitionId) {
        if let Some(placed) = self.running.as_ref().and_then(|running| running.placed()) {
            placed.has_caught_up(partition, self.clocks().monotonic.now());
        }
    }

    /// The partition to be read next of those whose past records are read, if it makes a difference.
    pub(crate) fn furthest_behind(&self) -> Option<PartitionId> {
        self.running.as_ref()?.placed()?.furthest_behind()
    }

    /// True if it sees the records of this partition.
    pub(crate) fn sees(&self, progress: &Arc<ReadProgress>) -> bool {
        self.shares.lock().iter().any(|share| share.is_of(progress))
    }

    /// Notes for a kept query that its results contain all records counted so far.
    pub(crate) fn note(&self, partition: PartitionId) {
        if let Some(mut places) = self.hold() {
            self.note_in(&mut places, partition);
        }
    }

    fn note_in(&self, places: &mut PartitionPositions, partition: PartitionId) {
        if let Some(share) = self.shares.lock().iter().find(|share| share.partition() == partition) {
            note(places, share);
        }
    }

    /// Locks the results of a kept query.
    fn hold(&self) -> Option<MutexGuard<'_, PartitionPositions>> {
        self.durable.as_ref().map(|durable| durable.hold())
    }

    /// Takes the matches of a thread in one partition.
    pub(crate) fn take(&self, thread: usize, partition: PartitionId, yielded: Matches, now_ms: i64) -> PutOutcome {
        let mut held = self.hold();
        let put = self.take_held(thread, partition, yielded, now_ms);
        if let Some(places) = &mut held {
            self.note_in(places, partition);
        }
        put
    }

    fn take_held(&self, thread: usize, partition: PartitionId, yielded: Matches, now_ms: i64) -> PutOutcome {
        let Matches { rows, .. } = yielded;
        let Some(running) = &self.running else {
            return self.outbox.put(rows, self.clocks().monotonic.now());
        };
        let (mut given, now) = (PutOutcome::Taken, self.clocks().monotonic.now());
        let at = Now { monotonic: now, wall_ms: now_ms };
        let added = running.add(thread, partition, &rows, at, |window| {
            given = given.max(self.outbox.put_result(Delivery::Window(Box::new(window)), Some(now)));
        });
        let evaluation_errors = match added.full {
            true => rows.evaluation_errors_up_to((added.records + added.errors) as usize),
            false => rows.evaluation_errors(),
        };
        self.outbox.count(added.records, evaluation_errors + added.errors + running.take_failed());
        match added {
            AddOutcome { too_large: true, .. } => PutOutcome::TooLarge,
            AddOutcome { full: true, .. } => PutOutcome::Full,
            _ => given,
        }
    }

    /// When something is due: the next window, or its end.
    pub(crate) fn next_due(&self) -> Option<Duration> {
        let window = self.running.as_ref().and_then(|running| running.next_due());
        self.deadline().into_iter().chain(window).min()
    }

    /// Gives the windows that are due.
    pub(crate) fn tick(&self, now: Duration) -> PutOutcome {
        let mut given = PutOutcome::Taken;
        let _held = self.hold();
        if let Some(running) = &self.running {
            let at = Now { monotonic: now, wall_ms: self.clocks().wall.now_ms() };
            running.tick(at, |window| {
                given = given.max(self.outbox.put_result(Delivery::Window(Box::new(window)), Some(now)));
            });
            self.outbox.count(0, running.take_failed());
        }
        given
    }

    fn finish(&self) {
        let Some(running) = &self.running else { return };
        let now = self.clocks().monotonic.now();
        // Results after its deadline are not emitted, however late this runs.
        let until = self.deadline().map_or(now, |deadline| deadline.min(now));
        running.finish(Now { monotonic: until, wall_ms: self.clocks().wall.now_ms() }, |last| {
            let last = match last {
                FinalResult::Window(window) => Delivery::Window(window),
                FinalResult::Rows(rows) => Delivery::Rows(rows),
            };
            // The last result is emitted without a rate limit.
            self.outbox.put_result(last, None);
        });
        self.outbox.count(0, running.take_failed());
    }

    /// Ends the query once, with its remaining results unless nobody reads them or they follow after a restart.
    /// True for the first call.
    pub(crate) fn end(&self, cause: Cause, trouble: Option<Trouble>) -> bool {
        match cause {
            // Nobody reads the results, so nothing waits for them.
            Cause::Disconnected => self.end_now(cause, trouble),
            _ => self.between_pieces(|| self.end_now(cause, trouble)),
        }
    }

    /// Runs `work` while all records that the query has counted are in its results.
    fn between_pieces<T>(&self, work: impl FnOnce() -> T) -> T {
        loop {
            let mut read: Vec<Arc<ReadProgress>> =
                self.shares.lock().iter().map(|share| share.progress().clone()).collect();
            // In one order, so that two queries that end never wait for each other.
            read.sort_by_key(|progress| (progress.partition(), Arc::as_ptr(progress) as usize));
            let _whole: Vec<MutexGuard<'_, ()>> = read.iter().map(|progress| progress.piece()).collect();
            // A thread may have gone over to other counters meanwhile.
            let is_same = {
                let shares = self.shares.lock();
                shares.len() == read.len() && shares.iter().all(|share| read.iter().any(|known| share.is_of(known)))
            };
            if is_same {
                return work();
            }
        }
    }

    fn end_now(&self, cause: Cause, trouble: Option<Trouble>) -> bool {
        let _held = self.hold();
        let goes_on = cause == Cause::Shutdown && self.durable.is_some();
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
