//! Windows that lie on the clock, the calendar or event time: each record is in those of its time.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::time::Duration;

use millstream_columns::{
    AggregateState, KeyWindows, Nested, WindowExtent, WindowShape, read_key, read_values, write_tuple,
};
use millstream_types::PartitionId;
use parking_lot::Mutex;

use super::checkpoint::{AggregateCheckpoint, PlacedCheckpoint};
use super::event_clock::EventClock;
use super::moments::{AddOutcome, FinalResult, MISSED_MAX, Now, Timing};
use super::results::{MemoryUse, Precision, ResultMaker};
use super::{ResultOf, WindowMeta, WindowResult};
use crate::event_time;
use crate::rows::RowBatch;

/// Number of rows after which the size of all states is measured, or a quarter of the number of groups if that is more.
const MEASURE_AFTER_ROWS: u64 = 1024;
/// Bytes of rows after which it is measured, too: rows may be large.
const MEASURE_AFTER_BYTES: usize = 4 << 20;
/// Memory of a key and its place in the queue.
const KEY_BYTES: usize = 160;
/// The interval at which event time is looked at, as partitions become idle.
const LOOK: Duration = Duration::from_secs(1);
/// Times beyond the year 9999, either way, are none: one of them would make all others late.
const TIME_MAX_MS: i64 = 253_402_300_799_999;

/// The windows of one query.
#[derive(Debug)]
pub(crate) struct PlacedWindows {
    results: ResultMaker,
    plan: PlacedPlan,
    placed: Mutex<Placed>,
}

/// The rules for the windows of a query.
#[derive(Debug)]
pub(super) struct PlacedPlan {
    pub(super) shape: WindowShape,
    pub(super) by: PlacedBy,
    /// The number of values at the beginning of a row that have sessions of their own.
    pub(super) session_keys: usize,
    /// The length of a window for its meta; 0 if each has its own.
    pub(super) size: u64,
}

/// The time by which records are put into windows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PlacedBy {
    /// The server's clock as they are matched.
    Arrival,
    /// Their own, in windows that wait so many milliseconds for late ones.
    EventTime { delay_ms: i64 },
    /// Their number, from 0.
    Number,
}

#[derive(Debug)]
struct Placed {
    /// By the first values of a row; one without any if there are no sessions.
    keys: HashMap<Box<[u8]>, KeyPlace>,
    /// The keys by the times at which their windows close.
    queue: BinaryHeap<Reverse<(i64, Box<[u8]>)>>,
    /// Windows that close up to here were given, and records before are late. Of windows by number the number of records.
    reached_ms: i64,
    clock: EventClock,
    late: u64,
    given: u64,
    /// True if records were added since the last window was given.
    has_news: bool,
    finished: bool,
    /// When the clock is to be looked at.
    next_look: Option<Duration>,
    /// A buffer for the key of a row.
    key: Vec<u8>,
    memory: MemoryUse,
    unmeasured: u64,
    unmeasured_bytes: usize,
    /// The number of rows after which the states are measured.
    measure_after: u64,
}

#[derive(Debug, Default)]
struct KeyPlace {
    windows: KeyWindows<AggregateState>,
    /// Its time in the queue; another one there is out of date.
    queued_ms: Option<i64>,
}

impl PlacedWindows {
    pub(super) fn new(results: ResultMaker, plan: PlacedPlan, timing: Timing) -> Self {
        let delay_ms = if let PlacedBy::EventTime { delay_ms } = plan.by { delay_ms } else { 0 };
        let reached_ms = match plan.by {
            PlacedBy::Arrival => timing.started_ms,
            PlacedBy::EventTime { .. } => i64::MIN,
            PlacedBy::Number => 0,
        };
        let mut placed = Placed {
            keys: HashMap::new(),
            queue: BinaryHeap::new(),
            reached_ms,
            clock: EventClock::new(delay_ms),
            late: 0,
            given: 0,
            has_news: false,
            finished: false,
            next_look: None,
            key: Vec::new(),
            memory: MemoryUse::default(),
            unmeasured: 0,
            unmeasured_bytes: 0,
            measure_after: MEASURE_AFTER_ROWS,
        };
        let wall_ms =
            timing.started_ms.saturating_add(i64::try_from(timing.ran_before.as_millis()).unwrap_or(i64::MAX));
        placed.look_later(&plan, Now { monotonic: timing.started, wall_ms });
        Self { results, plan, placed: Mutex::new(placed) }
    }

    /// Adds rows of a partition; gives the windows that they close.
    pub(crate) fn add(
        &self,
        partition: PartitionId,
        rows: &RowBatch,
        now: Now,
        mut give: impl FnMut(WindowResult),
    ) -> AddOutcome {
        let (mut added, placed) = (AddOutcome::default(), &mut *self.placed.lock());
        if placed.finished {
            return added;
        }
        let others_ms = placed.clock.others_ms(partition, now.monotonic);
        for row in rows.rows() {
            match self.plan.by {
                PlacedBy::Arrival => {
                    let time_ms = now.wall_ms.max(placed.reached_ms);
                    self.place(placed, time_ms, row, &mut added);
                }
                PlacedBy::EventTime { .. } => {
                    let (time_ms, row) = event_time::split(row);
                    let Some(time_ms) = time_ms.filter(|time_ms| time_ms.abs() <= TIME_MAX_MS) else {
                        // One without a time was counted as it was matched.
                        added.errors += u64::from(time_ms.is_some());
                        continue;
                    };
                    self.place(placed, time_ms, row, &mut added);
                    let reached_ms = placed.clock.see(partition, time_ms, others_ms, now.monotonic);
                    self.advance(placed, reached_ms, now.wall_ms, &mut give);
                }
                PlacedBy::Number => {
                    let number = placed.reached_ms;
                    self.place(placed, number, row, &mut added);
                    self.advance(placed, number + 1, now.wall_ms, &mut give);
                }
            }
        }
        placed.unmeasured += rows.row_count() as u64;
        placed.unmeasured_bytes += rows.size_bytes();
        if placed.unmeasured >= placed.measure_after || placed.unmeasured_bytes >= MEASURE_AFTER_BYTES {
            self.measure(placed);
        }
        added.too_large = self.results.is_too_large();
        added
    }

    /// Adds one row to the windows of its time.
    fn place(&self, placed: &mut Placed, time_ms: i64, row: &[u8], added: &mut AddOutcome) {
        let shape = &self.plan.shape;
        let gone_ms = if self.plan.by == PlacedBy::Number { i64::MIN } else { placed.reached_ms };
        let mut key = std::mem::take(&mut placed.key);
        if self.write_key(row, &mut key).is_err() {
            placed.key = key;
            added.errors += 1;
            return;
        }
        let fresh = || self.results.aggregates.state();
        let (keys, queue) = (&mut placed.keys, &mut placed.queue);
        let mut add = |place: &mut KeyPlace| {
            let outcome = place.windows.state(shape, time_ms, gone_ms, fresh).map(|state| state.add_written(row));
            if let Some(next_ms) = place.windows.next_ms(shape, 0)
                && place.queued_ms.is_none_or(|queued_ms| next_ms < queued_ms)
            {
                place.queued_ms = Some(next_ms);
                queue.push(Reverse((next_ms, key.as_slice().into())));
            }
            outcome
        };
        let outcome = match keys.get_mut(&*key) {
            Some(place) => add(place),
            None => {
                let mut place = KeyPlace::default();
                let outcome = add(&mut place);
                if !place.windows.is_empty() {
                    keys.insert(key.as_slice().into(), place);
                }
                outcome
            }
        };
        match outcome {
            None => placed.late += 1,
            Some(Ok(())) => {
                added.records += 1;
                placed.has_news = true;
            }
            Some(Err(_)) => added.errors += 1,
        }
        placed.key = key;
    }

    /// Makes `key` the values of a row that have sessions of their own.
    fn write_key(&self, row: &[u8], key: &mut Vec<u8>) -> Result<(), Nested> {
        key.clear();
        if self.plan.session_keys == 0 {
            return Ok(());
        }
        let (values, _) =
            read_values(row, self.plan.session_keys).expect("what a match has written begins with its keys");
        write_tuple(key, &values)
    }

    /// Gives the windows that close up to a time, in the order of their ends.
    fn advance(&self, placed: &mut Placed, reached_ms: i64, now_ms: i64, give: &mut impl FnMut(WindowResult)) {
        placed.reached_ms = placed.reached_ms.max(reached_ms);
        let shape = &self.plan.shape;
        while let Some(Reverse((due_ms, _))) = placed.queue.peek()
            && *due_ms <= placed.reached_ms
            && let Some(Reverse((due_ms, key))) = placed.queue.pop()
        {
            let Some(place) = placed.keys.get_mut(&key).filter(|place| place.queued_ms == Some(due_ms)) else {
                continue;
            };
            let fresh = || self.results.aggregates.state();
            let (given, has_news) = (&mut placed.given, &mut placed.has_news);
            place.windows.give_due(shape, due_ms, fresh, |extent, state| {
                *has_news = false;
                self.give(given, &key, extent, state, now_ms, give);
            });
            place.windows.forget(shape, due_ms);
            place.queued_ms = place.windows.next_ms(shape, 0);
            match place.queued_ms {
                Some(next_ms) => placed.queue.push(Reverse((next_ms, key))),
                None => drop(placed.keys.remove(&key)),
            }
        }
    }

    fn give(
        &self,
        given: &mut u64,
        key: &[u8],
        extent: WindowExtent,
        state: &AggregateState,
        now_ms: i64,
        give: &mut impl FnMut(WindowResult),
    ) {
        let key = read_key(key).expect("a key was written here, or read from what was");
        let is_by_number = self.plan.by == PlacedBy::Number;
        let window = (!is_by_number).then_some(extent);
        let rows = self.results.rows_of(ResultOf { key: &key, window, now_ms }, state);
        let is_session = matches!(self.plan.shape, WindowShape::Session { .. });
        // A session that HAVING leaves out is nobody's.
        if is_session && rows.is_empty() {
            return;
        }
        *given += 1;
        let kind = match self.plan.shape {
            WindowShape::Session { .. } => "session",
            WindowShape::Calendar(_) => "calendar",
            WindowShape::Time { size_ms, slide_ms, .. } if size_ms != slide_ms => "sliding",
            WindowShape::Time { .. } | WindowShape::Global => "tumbling",
        };
        let by = match self.plan.by {
            PlacedBy::Arrival => "time",
            PlacedBy::EventTime { .. } => "event time",
            PlacedBy::Number => "records",
        };
        let is_by_arrival = self.plan.by == PlacedBy::Arrival;
        let Precision { sketches, notes } = self.results.precision(state);
        let size = if self.plan.size > 0 { self.plan.size } else { extent.end_ms.abs_diff(extent.start_ms) };
        give(WindowResult {
            rows,
            meta: WindowMeta {
                name: format!("{kind} {by}"),
                number: *given,
                size,
                emit_time_ms: now_ms,
                expected_emit_time_ms: is_by_arrival.then(|| self.plan.shape.close_ms(extent)),
                start_ms: window.map(|window| window.start_ms),
                end_ms: window.map(|window| window.end_ms),
                records: state.records(),
                sketches,
                notes,
            },
        });
    }

    /// When the clock is to be looked at.
    pub(crate) fn next_due(&self) -> Option<Duration> {
        self.placed.lock().next_look
    }

    /// Gives the windows that have closed as the clock went on; of windows on the clock or the calendar also those without records.
    pub(crate) fn tick(&self, now: Now, mut give: impl FnMut(WindowResult)) {
        let placed = &mut *self.placed.lock();
        if !placed.finished {
            self.look(placed, now, &mut give);
        }
    }

    fn look(&self, placed: &mut Placed, now: Now, give: &mut impl FnMut(WindowResult)) {
        match self.plan.by {
            PlacedBy::Arrival => {
                if let WindowShape::Time { slide_ms, .. } = self.plan.shape {
                    // Of the windows that ended while the process was down, only the last are given.
                    let earliest_ms = now.wall_ms.saturating_sub(slide_ms.saturating_mul(MISSED_MAX as i64));
                    let last_ms = self.plan.shape.next_close_ms(earliest_ms.saturating_sub(slide_ms));
                    if let Some(last_ms) = last_ms.filter(|last_ms| *last_ms > placed.reached_ms) {
                        self.advance(placed, last_ms, now.wall_ms, give);
                    }
                }
                while let Some(close_ms) = self.plan.shape.next_close_ms(placed.reached_ms)
                    && close_ms <= now.wall_ms
                {
                    self.close(placed, close_ms, now.wall_ms, give);
                }
                self.advance(placed, now.wall_ms, now.wall_ms, give);
            }
            PlacedBy::EventTime { .. } => {
                let reached_ms = placed.clock.now_ms(now.monotonic);
                self.advance(placed, reached_ms, now.wall_ms, give);
            }
            PlacedBy::Number => {}
        }
        placed.look_later(&self.plan, now);
    }

    /// Gives the window that closes at a time, even if it has no records.
    fn close(&self, placed: &mut Placed, close_ms: i64, now_ms: i64, give: &mut impl FnMut(WindowResult)) {
        let before = placed.given;
        self.advance(placed, close_ms, now_ms, give);
        if placed.given == before {
            let extent = self.plan.shape.closing_at(close_ms);
            self.give(&mut placed.given, &[], extent, &self.results.aggregates.state(), now_ms, give);
        }
    }

    /// Gives what is left once, and nothing after it. No empty window follows others.
    pub(crate) fn finish(&self, now: Now, mut give: impl FnMut(FinalResult)) {
        let placed = &mut *self.placed.lock();
        if placed.finished {
            return;
        }
        let mut give = |window| give(FinalResult::Window(Box::new(window)));
        self.look(placed, now, &mut give);
        placed.finished = true;
        let next_ms = self.plan.shape.next_close_ms(placed.reached_ms);
        match (self.plan.by, next_ms) {
            (PlacedBy::Arrival | PlacedBy::Number, Some(next_ms)) if placed.given == 0 => {
                self.close(placed, next_ms, now.wall_ms, &mut give);
            }
            // The window that has got records since the last one was given; those behind it are not complete.
            (PlacedBy::Arrival | PlacedBy::Number, Some(next_ms)) if placed.has_news => {
                self.advance(placed, next_ms, now.wall_ms, &mut give);
            }
            (PlacedBy::Arrival | PlacedBy::Number, Some(_)) => {}
            _ => self.advance(placed, i64::MAX, now.wall_ms, &mut give),
        }
    }

    /// The number of records that came after their windows were given.
    pub(crate) fn late(&self) -> u64 {
        self.placed.lock().late
    }

    pub(super) fn take_failed(&self) -> u64 {
        self.results.take_failed()
    }

    /// The number of windows that were given.
    pub(crate) fn given(&self) -> u64 {
        self.placed.lock().given
    }

    /// Lets partitions hold event time back while their past records are read.
    pub(crate) fn begin_behind(&self, partitions: impl Iterator<Item = PartitionId>) {
        let placed = &mut *self.placed.lock();
        partitions.for_each(|partition| placed.clock.is_behind(partition));
    }

    /// The past records of a partition have been read.
    pub(crate) fn has_caught_up(&self, partition: PartitionId, now: Duration) {
        self.placed.lock().clock.has_caught_up(partition, now);
    }

    /// The partition to be read next of those whose past records are read.
    pub(crate) fn furthest_behind(&self) -> Option<PartitionId> {
        self.placed.lock().clock.furthest_behind()
    }

    fn measure(&self, placed: &mut Placed) {
        let (mut size_bytes, mut groups) = (0, 0);
        for (key, place) in &placed.keys {
            size_bytes += key.len() + KEY_BYTES;
            for state in place.windows.states() {
                size_bytes += state.size_bytes() + size_of::<WindowExtent>();
                groups += 1 + state.groups();
            }
        }
        self.results.cover(&mut placed.memory, size_bytes);
        (placed.unmeasured, placed.unmeasured_bytes) = (0, 0);
        placed.measure_after = MEASURE_AFTER_ROWS.max(groups / 4);
    }

    /// The stored form.
    pub(crate) fn keep(&self) -> AggregateCheckpoint {
        let placed = self.placed.lock();
        let mut windows = Vec::with_capacity(2 * placed.keys.len());
        for (key, place) in &placed.keys {
            let mut stored = Vec::new();
            place.windows.write(&mut stored, |state, out| {
                out.extend_from_slice(&self.results.at_work(state, AggregateState::write));
            });
            windows.extend([key.to_vec(), stored]);
        }
        let (reached_ms, late, partitions) = (placed.reached_ms, placed.late, placed.clock.keep());
        let kept = PlacedCheckpoint { reached_ms, late, partitions, windows };
        AggregateCheckpoint { given: placed.given, whole: None, parts: Vec::new(), placed: Some(kept) }
    }

    /// Goes on from [`Self::keep`].
    ///
    /// # Errors
    /// Words for a stored form that is damaged or of another query.
    pub(crate) fn resume(&self, kept: &AggregateCheckpoint) -> Result<(), String> {
        let placed = &mut *self.placed.lock();
        let Some(stored) = &kept.placed else { return Err("it has no windows of this kind".to_owned()) };
        placed.given = kept.given;
        (placed.reached_ms, placed.late) = (stored.reached_ms, stored.late);
        placed.clock.resume(&stored.partitions);
        for pair in stored.windows.chunks_exact(2) {
            let windows = KeyWindows::read(&pair[1], |state| self.results.aggregates.read(state).ok());
            let Some(windows) = windows.filter(|_| read_key(&pair[0]).is_ok()) else {
                return Err("the windows of a key are damaged".to_owned());
            };
            let key: Box<[u8]> = pair[0].clone().into();
            let queued_ms = windows.next_ms(&self.plan.shape, 0);
            placed.queue.extend(queued_ms.map(|next_ms| Reverse((next_ms, key.clone()))));
            placed.keys.insert(key, KeyPlace { windows, queued_ms });
        }
        self.measure(placed);
        Ok(())
    }
}

impl Placed {
    /// Sets the moment of the next look at the clock, which is at least a millisecond away.
    fn look_later(&mut self, plan: &PlacedPlan, now: Now) {
        let wait = match plan.by {
            PlacedBy::Number => return,
            PlacedBy::EventTime { .. } => LOOK,
            PlacedBy::Arrival => {
                let next_ms = match plan.shape {
                    // No session that begins after now ends earlier.
                    WindowShape::Session { gap_ms } => {
                        let soonest_ms = now.wall_ms.saturating_add(gap_ms).saturating_add(1);
                        self.queue.peek().map_or(soonest_ms, |Reverse((due_ms, _))| soonest_ms.min(*due_ms))
                    }
                    _ => plan.shape.next_close_ms(self.reached_ms.max(now.wall_ms)).unwrap_or(i64::MAX),
                };
                Duration::from_millis(next_ms.saturating_sub(now.wall_ms).max(1).unsigned_abs())
            }
        };
        self.next_look = Some(now.monotonic.saturating_add(wait));
    }
}
