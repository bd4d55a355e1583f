//! The running aggregate of a query, and its due results.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use millstream_columns::{AggregateState, SketchMeta};
use millstream_types::{Grant, MemoryBudget};
use parking_lot::Mutex;

use super::checkpoint::AggregateCheckpoint;
use super::{AggregatePlan, WindowMeta, WindowResult};
use crate::plan::{Extent, Window};
use crate::rows::RowBatch;

/// Number of rows after which the size of a state is measured. States with many groups are measured later,
/// because their sketches grow slowly.
const MEASURE_AFTER_ROWS: u64 = 1024;

/// Bytes of rows after which it is measured, too: rows may be large.
const MEASURE_AFTER_BYTES: usize = 4 << 20;

/// Most results that are emitted for windows by time that ended while the process was down.
const MISSED_MAX: u64 = 1000;

/// The states of one query.
#[derive(Debug)]
pub(crate) struct RunningWindow {
    aggregates: Arc<AggregatePlan>,
    window: Option<Window>,
    timing: Timing,
    memory: MemoryBudget,
    /// True if a state exceeds its memory.
    too_large: AtomicBool,
    /// The number of result rows with a value that could not be computed, since the last report.
    failed: AtomicU64,
    /// The precision of the last rows of a query without window.
    last_precision: Mutex<Precision>,
    /// One for each thread; of a window by records only the first is used.
    parts: Vec<Mutex<ThreadState>>,
    book: Mutex<WindowHistory>,
}

/// When it began, by both clocks.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Timing {
    pub(crate) started: Duration,
    /// The time that it had run in former processes.
    pub(crate) ran_before: Duration,
    pub(crate) started_ms: i64,
}

/// The precision of a result.
#[derive(Debug, Clone, Default)]
pub(crate) struct Precision {
    /// The meta of the sketches behind the rows.
    pub(crate) sketches: Vec<SketchMeta>,
    /// In words, whatever the rows leave out or estimate.
    pub(crate) notes: Vec<String>,
}

/// The state that one thread has added since the last result.
#[derive(Debug)]
struct ThreadState {
    state: AggregateState,
    /// Rows and their bytes since the state was measured.
    unmeasured: u64,
    unmeasured_bytes: usize,
    memory: MemoryUse,
}

/// The memory that a state takes, as far as has been seen.
#[derive(Debug, Default)]
struct MemoryUse {
    size_bytes: usize,
    grant: Option<Grant>,
}

/// The number of emitted windows, and the state that outlives a result.
#[derive(Debug)]
struct WindowHistory {
    /// The number of windows that were emitted.
    given: u64,
    /// For an additive window, a query without window, and a resumed query: the merged state of the parts taken so far.
    whole: Option<AggregateState>,
    memory: MemoryUse,
    finished: bool,
}

/// The outcome of adding rows.
#[derive(Debug, Default)]
pub(crate) struct AddOutcome {
    /// Records that are in the result.
    pub(crate) records: u64,
    /// Records that could not be added.
    pub(crate) errors: u64,
    /// The state has become larger than it may.
    pub(crate) too_large: bool,
    /// The one result has all its rows.
    pub(crate) full: bool,
}

/// The last result of a query.
#[derive(Debug)]
pub(crate) enum FinalResult {
    /// The rows of a query without window.
    Rows(RowBatch),
    /// The result of the window that was running.
    Window(Box<WindowResult>),
}

impl RunningWindow {
    pub(crate) fn new(
        aggregates: Arc<AggregatePlan>,
        window: Option<Window>,
        timing: Timing,
        threads: usize,
        memory: MemoryBudget,
    ) -> Self {
        let part = || {
            let state = aggregates.state();
            let memory = MemoryUse::default();
            Mutex::new(ThreadState { state, unmeasured: MEASURE_AFTER_ROWS, unmeasured_bytes: 0, memory })
        };
        let parts = (0..threads).map(|_| part()).collect();
        let book = Mutex::new(WindowHistory { given: 0, whole: None, memory: MemoryUse::default(), finished: false });
        let (too_large, failed, last_precision) = (AtomicBool::new(false), AtomicU64::new(0), Mutex::default());
        Self { aggregates, window, timing, memory, too_large, failed, last_precision, parts, book }
    }

    /// Adds rows as `thread` has matched them; gives the windows that they fill.
    pub(crate) fn add(
        &self,
        thread: usize,
        rows: &RowBatch,
        now_ms: i64,
        mut give: impl FnMut(WindowResult),
    ) -> AddOutcome {
        let mut added = AddOutcome::default();
        if let Some(rows_max) = self.aggregates.rows_until_full() {
            return self.add_until(rows_max, rows);
        }
        let Some(size) = self.records_of_window() else {
            let part = &mut *self.parts[thread].lock();
            for row in rows.rows() {
                self.add_row(part, row, &mut added);
            }
            added.too_large = self.measure(part, rows);
            return added;
        };
        // All threads fill the same window, so the history stays locked meanwhile.
        let book = &mut *self.book.lock();
        let part = &mut *self.parts[0].lock();
        for row in rows.rows() {
            if book.finished {
                break;
            }
            self.add_row(part, row, &mut added);
            if part.state.records() == size {
                let state = std::mem::replace(&mut part.state, self.aggregates.state());
                give(self.window_result(book, state, now_ms));
            }
        }
        added.too_large = self.measure(part, rows);
        added
    }

    /// Adds rows to the one result until it has `rows_max` of them.
    fn add_until(&self, rows_max: u64, rows: &RowBatch) -> AddOutcome {
        let mut added = AddOutcome::default();
        let part = &mut *self.parts[0].lock();
        let room = usize::try_from(rows_max.saturating_sub(part.state.records())).unwrap_or(usize::MAX);
        rows.rows().take(room).for_each(|row| self.add_row(part, row, &mut added));
        added.full = added.records > 0 && part.state.records() >= rows_max;
        added.too_large = self.measure(part, rows);
        added
    }

    /// True if the states exceed their memory; they are measured from time to time.
    fn measure(&self, part: &mut ThreadState, rows: &RowBatch) -> bool {
        part.unmeasured += rows.row_count() as u64;
        part.unmeasured_bytes += rows.size_bytes();
        // Looking at each group takes time, and a row adds at most one.
        let is_due = part.unmeasured >= MEASURE_AFTER_ROWS.max(part.state.groups() / 4);
        if is_due || part.unmeasured_bytes >= MEASURE_AFTER_BYTES {
            (part.unmeasured, part.unmeasured_bytes) = (0, 0);
            if !part.memory.cover(&part.state, &self.memory) {
                self.too_large.store(true, Ordering::Relaxed);
            }
        }
        self.too_large.load(Ordering::Relaxed)
    }

    fn add_row(&self, part: &mut ThreadState, row: &[u8], added: &mut AddOutcome) {
        match part.state.add_written(row) {
            Ok(()) => added.records += 1,
            Err(_) => added.errors += 1,
        }
    }

    /// The number of records in a window by records.
    fn records_of_window(&self) -> Option<u64> {
        match self.window?.emit() {
            Extent::Records(records) => Some(records),
            Extent::TimeMs(_) => None,
        }
    }

    fn window_ms(&self) -> Option<u64> {
        match self.window?.emit() {
            Extent::TimeMs(ms) => Some(ms),
            Extent::Records(_) => None,
        }
    }

    /// When the next window by time is due.
    pub(crate) fn next_due(&self) -> Option<Duration> {
        let ms = self.window_ms()?;
        Some(self.due(self.book.lock().given + 1, ms))
    }

    fn due(&self, number: u64, window_ms: u64) -> Duration {
        let after = Duration::from_millis(window_ms.saturating_mul(number));
        self.timing.started.saturating_add(after).saturating_sub(self.timing.ran_before)
    }

    /// Emits all windows that are due by `now`, including windows that ended while no record arrived.
    pub(crate) fn tick(&self, now: Duration, now_ms: i64, mut give: impl FnMut(WindowResult)) {
        let Some(ms) = self.window_ms() else { return };
        let book = &mut *self.book.lock();
        while !book.finished && self.due(book.given + 1, ms) <= now {
            let (state, _memory) = self.take();
            give(self.window_result(book, state, now_ms));
        }
    }

    /// Emits the remaining result once, and nothing after it. No empty window follows one that has just ended.
    pub(crate) fn finish(&self, now: Duration, now_ms: i64, mut give: impl FnMut(FinalResult)) {
        self.tick(now, now_ms, |window| give(FinalResult::Window(Box::new(window))));
        let book = &mut *self.book.lock();
        if std::mem::replace(&mut book.finished, true) {
            return;
        }
        let (state, _memory) = self.take();
        if self.window.is_none() {
            let whole = self.accumulate(book, state);
            *self.last_precision.lock() = self.precision(whole);
            return give(FinalResult::Rows(self.rows_of(whole, now_ms)));
        }
        let is_over = match self.window_ms() {
            Some(ms) => book.given > 0 && self.due(book.given, ms) == now,
            None => book.given > 0,
        };
        if state.records() > 0 || !is_over {
            give(FinalResult::Window(Box::new(self.window_result(book, state, now_ms))));
        }
    }

    /// The precision of the last rows of a query without window.
    pub(crate) fn last_precision(&self) -> Precision {
        self.last_precision.lock().clone()
    }

    fn precision(&self, state: &AggregateState) -> Precision {
        let sketches = self.at_work(state, AggregateState::sketches);
        Precision { notes: self.aggregates.notes(state, &sketches), sketches }
    }

    /// The number of windows that were emitted.
    pub(crate) fn given(&self) -> u64 {
        self.book.lock().given
    }

    /// The checkpoint of the aggregate.
    pub(crate) fn keep(&self) -> AggregateCheckpoint {
        let book = self.book.lock();
        let mut kept = AggregateCheckpoint {
            given: book.given,
            whole: book.whole.as_ref().map(|whole| self.at_work(whole, AggregateState::write)),
            parts: Vec::new(),
        };
        for part in &self.parts {
            let part = part.lock();
            kept.parts.extend((part.state.records() > 0).then(|| self.at_work(&part.state, AggregateState::write)));
        }
        kept
    }

    /// Resumes from a checkpoint. The last windows that ended meanwhile are emitted late.
    ///
    /// # Errors
    /// An error if the checkpoint is damaged or of another query.
    pub(crate) fn resume(&self, kept: &AggregateCheckpoint) -> Result<(), datasketches::error::Error> {
        let book = &mut *self.book.lock();
        let ended = self.window_ms().map_or(0, |ms| self.timing.ran_before.as_millis() as u64 / ms);
        book.given = kept.given.max(ended.saturating_sub(MISSED_MAX));
        book.whole = kept.whole.as_deref().map(|whole| self.aggregates.read(whole)).transpose()?;
        let part = &mut *self.parts[0].lock();
        for kept in &kept.parts {
            part.state.merge(&self.aggregates.read(kept)?);
        }
        Ok(())
    }

    /// Takes the state that the threads have added since the last call, and the memory that it is counted with.
    fn take(&self) -> (AggregateState, Vec<MemoryUse>) {
        let (mut taken, mut memory): (Option<AggregateState>, _) = (None, Vec::new());
        for part in &self.parts {
            let part = &mut *part.lock();
            if part.state.records() == 0 {
                continue;
            }
            let state = std::mem::replace(&mut part.state, self.aggregates.state());
            part.unmeasured = MEASURE_AFTER_ROWS;
            memory.push(std::mem::take(&mut part.memory));
            match &mut taken {
                Some(taken) => self.merge(taken, &state),
                None => taken = Some(state),
            }
        }
        (taken.unwrap_or_else(|| self.aggregates.state()), memory)
    }

    fn accumulate<'b>(&self, book: &'b mut WindowHistory, state: AggregateState) -> &'b AggregateState {
        match &mut book.whole {
            Some(whole) => self.merge(whole, &state),
            None => book.whole = Some(state),
        }
        let whole = book.whole.as_ref().expect("it has just been put there");
        if !book.memory.cover(whole, &self.memory) {
            self.too_large.store(true, Ordering::Relaxed);
        }
        whole
    }

    fn merge(&self, whole: &mut AggregateState, other: &AggregateState) {
        let _working = self.working(whole.working_bytes() + other.working_bytes());
        whole.merge(other);
    }

    /// Makes something of a state, with the memory that this takes for so long.
    fn at_work<T>(&self, state: &AggregateState, make: impl FnOnce(&AggregateState) -> T) -> T {
        let _working = self.working(state.working_bytes());
        make(state)
    }

    /// Takes memory for work that comes to an end at once. Where there is too little, the query ends after it.
    fn working(&self, bytes: usize) -> Option<Grant> {
        let working = self.memory.take(bytes as u64);
        if working.is_none() {
            self.too_large.store(true, Ordering::Relaxed);
        }
        working
    }

    fn rows_of(&self, state: &AggregateState, now_ms: i64) -> RowBatch {
        let (rows, failed) = self.at_work(state, |state| self.aggregates.rows(state, now_ms));
        self.failed.fetch_add(failed, Ordering::Relaxed);
        rows
    }

    /// The number of result rows, since the last call, with a value that could not be computed.
    pub(crate) fn take_failed(&self) -> u64 {
        self.failed.swap(0, Ordering::Relaxed)
    }

    fn window_result(&self, book: &mut WindowHistory, state: AggregateState, now_ms: i64) -> WindowResult {
        book.given += 1;
        let window = self.window.expect("a query with results by window has one");
        let (name, size) = match (window, window.emit()) {
            (Window::Tumbling(_), Extent::TimeMs(ms)) => ("tumbling time", ms),
            (Window::Tumbling(_), Extent::Records(records)) => ("tumbling records", records),
            (Window::Additive(_), Extent::TimeMs(ms)) => ("additive time", ms),
            (Window::Additive(_), Extent::Records(records)) => ("additive records", records),
        };
        let number = book.given;
        let state = match window {
            Window::Additive(_) => self.accumulate(book, state),
            Window::Tumbling(_) => &state,
        };
        let expected = self.window_ms().map(|ms| {
            let after = i64::try_from(ms.saturating_mul(number)).unwrap_or(i64::MAX);
            self.timing.started_ms.saturating_add(after)
        });
        let Precision { sketches, notes } = self.precision(state);
        WindowResult {
            rows: self.rows_of(state, now_ms),
            meta: WindowMeta {
                name: name.to_owned(),
                number,
                size,
                emit_time_ms: now_ms,
                expected_emit_time_ms: expected,
                records: state.records(),
                notes,
                sketches,
            },
        }
    }
}

impl MemoryUse {
    /// Takes memory for the growth of `state`; false if there is none left.
    fn cover(&mut self, state: &AggregateState, memory: &MemoryBudget) -> bool {
        let size_bytes = state.size_bytes();
        let grown = size_bytes.saturating_sub(self.size_bytes) as u64;
        self.size_bytes = self.size_bytes.max(size_bytes);
        match &mut self.grant {
            Some(grant) => grant.grow(grown),
            None => {
                self.grant = memory.take(grown);
                self.grant.is_some()
            }
        }
    }
}
