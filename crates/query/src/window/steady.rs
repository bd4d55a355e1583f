//! Windows that begin with their query, each with the end of the one before, and the one result of a query without windows.

use std::time::Duration;

use millstream_columns::{AggregateState, WindowExtent};
use parking_lot::Mutex;

use super::checkpoint::AggregateCheckpoint;
use super::moments::{AddOutcome, FinalResult, MISSED_MAX, Timing};
use super::results::{MemoryUse, Precision, ResultMaker};
use super::{ResultOf, WindowMeta, WindowResult};
use crate::plan::Extent;
use crate::rows::RowBatch;

/// Number of rows after which the size of a state is measured. States with many groups are measured later,
/// because their sketches grow slowly.
const MEASURE_AFTER_ROWS: u64 = 1024;

/// Bytes of rows after which it is measured, too: rows may be large.
const MEASURE_AFTER_BYTES: usize = 4 << 20;

/// The states of one query.
#[derive(Debug)]
pub(crate) struct SteadyWindows {
    results: ResultMaker,
    window: Option<SteadyWindow>,
    timing: Timing,
    /// The precision of the last rows of a query without window.
    last_precision: Mutex<Precision>,
    /// One for each thread; of a window by records only the first is used.
    parts: Vec<Mutex<ThreadState>>,
    book: Mutex<WindowHistory>,
}

/// The windows of a query that has some.
#[derive(Debug, Clone, Copy)]
pub(super) struct SteadyWindow {
    /// The distance between two results.
    pub(super) emit: Extent,
    /// True if a result is of all records since the start, and not of those since the last result.
    pub(super) keeps_all: bool,
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

impl SteadyWindows {
    pub(super) fn new(results: ResultMaker, window: Option<SteadyWindow>, timing: Timing, threads: usize) -> Self {
        let part = || {
            let state = results.aggregates.state();
            let memory = MemoryUse::default();
            Mutex::new(ThreadState { state, unmeasured: MEASURE_AFTER_ROWS, unmeasured_bytes: 0, memory })
        };
        let parts = (0..threads).map(|_| part()).collect();
        let book = Mutex::new(WindowHistory { given: 0, whole: None, memory: MemoryUse::default(), finished: false });
        Self { results, window, timing, last_precision: Mutex::default(), parts, book }
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
        if let Some(rows_max) = self.results.aggregates.rows_until_full() {
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
                let state = std::mem::replace(&mut part.state, self.results.aggregates.state());
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
            self.results.cover(&mut part.memory, part.state.size_bytes());
        }
        self.results.is_too_large()
    }

    fn add_row(&self, part: &mut ThreadState, row: &[u8], added: &mut AddOutcome) {
        match part.state.add_written(row) {
            Ok(()) => added.records += 1,
            Err(_) => added.errors += 1,
        }
    }

    /// The number of records in a window by records.
    fn records_of_window(&self) -> Option<u64> {
        match self.window?.emit {
            Extent::Records(records) => Some(records),
            Extent::TimeMs(_) => None,
        }
    }

    fn window_ms(&self) -> Option<u64> {
        match self.window?.emit {
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
            *self.last_precision.lock() = self.results.precision(whole);
            return give(FinalResult::Rows(self.results.rows_of(ResultOf { now_ms, ..ResultOf::default() }, whole)));
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

    /// The number of result rows, since the last call, with a value that could not be computed.
    pub(super) fn take_failed(&self) -> u64 {
        self.results.take_failed()
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
            whole: book.whole.as_ref().map(|whole| self.results.at_work(whole, AggregateState::write)),
            parts: Vec::new(),
            placed: None,
        };
        for part in &self.parts {
            let part = part.lock();
            kept.parts
                .extend((part.state.records() > 0).then(|| self.results.at_work(&part.state, AggregateState::write)));
        }
        kept
    }

    /// Resumes from a checkpoint. The last windows that ended meanwhile are emitted late.
    ///
    /// # Errors
    /// An error if the checkpoint is damaged or of another query.
    pub(crate) fn resume(&self, kept: &AggregateCheckpoint) -> Result<(), String> {
        let book = &mut *self.book.lock();
        let ended = self.window_ms().map_or(0, |ms| self.timing.ran_before.as_millis() as u64 / ms);
        book.given = kept.given.max(ended.saturating_sub(MISSED_MAX));
        let read = |stored: &[u8]| self.results.aggregates.read(stored).map_err(|error| error.to_string());
        book.whole = kept.whole.as_deref().map(read).transpose()?;
        let part = &mut *self.parts[0].lock();
        for kept in &kept.parts {
            part.state.merge(&read(kept)?);
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
            let state = std::mem::replace(&mut part.state, self.results.aggregates.state());
            part.unmeasured = MEASURE_AFTER_ROWS;
            memory.push(std::mem::take(&mut part.memory));
            match &mut taken {
                Some(taken) => self.results.merge(taken, &state),
                None => taken = Some(state),
            }
        }
        (taken.unwrap_or_else(|| self.results.aggregates.state()), memory)
    }

    fn accumulate<'b>(&self, book: &'b mut WindowHistory, state: AggregateState) -> &'b AggregateState {
        match &mut book.whole {
            Some(whole) => self.results.merge(whole, &state),
            None => book.whole = Some(state),
        }
        let whole = book.whole.as_ref().expect("it has just been put there");
        self.results.cover(&mut book.memory, whole.size_bytes());
        whole
    }

    fn window_result(&self, book: &mut WindowHistory, state: AggregateState, now_ms: i64) -> WindowResult {
        book.given += 1;
        let window = self.window.expect("a query with results by window has one");
        let (name, size) = match (window.keeps_all, window.emit) {
            (false, Extent::TimeMs(ms)) => ("tumbling time", ms),
            (false, Extent::Records(records)) => ("tumbling records", records),
            (true, Extent::TimeMs(ms)) => ("additive time", ms),
            (true, Extent::Records(records)) => ("additive records", records),
        };
        let number = book.given;
        let state = if window.keeps_all { self.accumulate(book, state) } else { &state };
        let expected = self.window_ms().map(|ms| {
            let after = i64::try_from(ms.saturating_mul(number)).unwrap_or(i64::MAX);
            self.timing.started_ms.saturating_add(after)
        });
        let bounds = expected.map(|end_ms| {
            let length_ms = i64::try_from(if window.keeps_all { size.saturating_mul(number) } else { size });
            WindowExtent { start_ms: end_ms.saturating_sub(length_ms.unwrap_or(i64::MAX)), end_ms }
        });
        let Precision { sketches, notes } = self.results.precision(state);
        WindowResult {
            rows: self.results.rows_of(ResultOf { window: bounds, now_ms, ..ResultOf::default() }, state),
            meta: WindowMeta {
                name: name.to_owned(),
                number,
                size,
                emit_time_ms: now_ms,
                expected_emit_time_ms: expected,
                start_ms: None,
                end_ms: None,
                records: state.records(),
                notes,
                sketches,
            },
        }
    }
}
