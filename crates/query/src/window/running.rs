//! What a query's records have come to so far, and the results that are due.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use millstream_types::{Grant, MemoryBudget};
use parking_lot::Mutex;

use super::{Summing, WindowMeta, WindowResult};
use crate::aggregate::{SketchMeta, State};
use crate::kept::KeptStates;
use crate::plan::{Extent, Window};
use crate::rows::RowBatch;

/// After so many rows it is looked how much a state has grown; its sketches grow by little in that time.
const MEASURE_AFTER_ROWS: u64 = 1024;

/// Of the windows by time that ended while the process was down so many are given.
const MISSED_MAX: u64 = 1000;

/// The states of one query.
#[derive(Debug)]
pub(crate) struct Running {
    summing: Arc<Summing>,
    window: Option<Window>,
    timing: Timing,
    memory: MemoryBudget,
    /// Whether some state is larger than there is memory for.
    too_large: AtomicBool,
    /// What is told about the sketches behind the last rows.
    last_sketches: Mutex<Vec<SketchMeta>>,
    /// One for each thread; of a window by records only the first is used.
    parts: Vec<Mutex<Part>>,
    book: Mutex<Book>,
}

/// When it began, by both clocks.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Timing {
    pub(crate) started: Duration,
    /// How long it had run before that, in another process.
    pub(crate) ran_before: Duration,
    pub(crate) started_ms: i64,
}

/// What one thread has added since the last result.
#[derive(Debug)]
struct Part {
    state: State,
    unmeasured: u64,
    memory: Held,
}

/// The memory that a state takes, as far as has been seen.
#[derive(Debug, Default)]
struct Held {
    size_bytes: usize,
    grant: Option<Grant>,
}

/// What has been given, and what goes on beyond a result.
#[derive(Debug)]
struct Book {
    /// How many windows have been given.
    given: u64,
    /// Of an additive window, of a query without one, and of one that was resumed: all that was taken out of the parts.
    whole: Option<State>,
    memory: Held,
    finished: bool,
}

/// What came of adding rows.
#[derive(Debug, Default)]
pub(crate) struct Added {
    /// Records that are in the result.
    pub(crate) records: u64,
    /// Records that could not be added.
    pub(crate) errors: u64,
    /// The state has become larger than it may.
    pub(crate) too_large: bool,
}

/// The last result.
#[derive(Debug)]
pub(crate) enum Final {
    /// Of a query without window.
    Rows(RowBatch),
    /// Of a window that was running.
    Window(Box<WindowResult>),
}

impl Running {
    pub(crate) fn new(
        summing: Arc<Summing>,
        window: Option<Window>,
        timing: Timing,
        threads: usize,
        memory: MemoryBudget,
    ) -> Self {
        let part = || {
            let state = summing.state();
            Mutex::new(Part { state, unmeasured: MEASURE_AFTER_ROWS, memory: Held::default() })
        };
        let parts = (0..threads).map(|_| part()).collect();
        let book = Mutex::new(Book { given: 0, whole: None, memory: Held::default(), finished: false });
        let (too_large, last_sketches) = (AtomicBool::new(false), Mutex::default());
        Self { summing, window, timing, memory, too_large, last_sketches, parts, book }
    }

    /// Adds rows as `thread` has matched them; gives the windows that they fill.
    pub(crate) fn add(&self, thread: usize, rows: &RowBatch, now_ms: i64, mut give: impl FnMut(WindowResult)) -> Added {
        let mut added = Added::default();
        let Some(size) = self.records_of_window() else {
            let part = &mut *self.parts[thread].lock();
            for row in rows.rows() {
                self.add_row(part, row, &mut added);
            }
            added.too_large = self.measure(part, rows.row_count() as u64);
            return added;
        };
        // All threads fill the same window, so its book is kept shut meanwhile.
        let book = &mut *self.book.lock();
        let part = &mut *self.parts[0].lock();
        for row in rows.rows() {
            if book.finished {
                break;
            }
            self.add_row(part, row, &mut added);
            if part.state.records() == size {
                let state = std::mem::replace(&mut part.state, self.summing.state());
                give(self.window_result(book, state, now_ms));
            }
        }
        added.too_large = self.measure(part, rows.row_count() as u64);
        added
    }

    /// Whether what has been seen of the states is too large; from time to time it is looked.
    fn measure(&self, part: &mut Part, rows: u64) -> bool {
        part.unmeasured += rows;
        if part.unmeasured >= MEASURE_AFTER_ROWS {
            part.unmeasured = 0;
            if !part.memory.cover(&part.state, &self.memory) {
                self.too_large.store(true, Ordering::Relaxed);
            }
        }
        self.too_large.load(Ordering::Relaxed)
    }

    fn add_row(&self, part: &mut Part, row: &[u8], added: &mut Added) {
        match part.state.add_written(row) {
            Ok(()) => added.records += 1,
            Err(_) => added.errors += 1,
        }
    }

    /// How many records fill a window, if that is what ends it.
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

    /// Gives all windows that are due by `now`; each is given, even those that came too late to hold anything.
    pub(crate) fn tick(&self, now: Duration, now_ms: i64, mut give: impl FnMut(WindowResult)) {
        let Some(ms) = self.window_ms() else { return };
        let book = &mut *self.book.lock();
        while !book.finished && self.due(book.given + 1, ms) <= now {
            let state = self.take();
            give(self.window_result(book, state, now_ms));
        }
    }

    /// Gives what is left, once, and nothing after it. A window that has just ended is not followed by an empty one.
    pub(crate) fn finish(&self, now: Duration, now_ms: i64, mut give: impl FnMut(Final)) {
        self.tick(now, now_ms, |window| give(Final::Window(Box::new(window))));
        let book = &mut *self.book.lock();
        if std::mem::replace(&mut book.finished, true) {
            return;
        }
        let state = self.take();
        if self.window.is_none() {
            let whole = self.accumulate(book, state);
            *self.last_sketches.lock() = whole.sketches();
            return give(Final::Rows(self.summing.rows(whole, now_ms)));
        }
        let is_over = match self.window_ms() {
            Some(ms) => book.given > 0 && self.due(book.given, ms) == now,
            None => book.given > 0,
        };
        if state.records() > 0 || !is_over {
            give(Final::Window(Box::new(self.window_result(book, state, now_ms))));
        }
    }

    /// What is told about the sketches behind the last rows of a query without window.
    pub(crate) fn last_sketches(&self) -> Vec<SketchMeta> {
        self.last_sketches.lock().clone()
    }

    /// How many windows have been given.
    pub(crate) fn given(&self) -> u64 {
        self.book.lock().given
    }

    /// What is to be kept of it.
    pub(crate) fn keep(&self) -> KeptStates {
        let book = self.book.lock();
        let mut kept =
            KeptStates { given: book.given, whole: book.whole.as_ref().map(State::write), parts: Vec::new() };
        for part in &self.parts {
            let part = part.lock();
            kept.parts.extend((part.state.records() > 0).then(|| part.state.write()));
        }
        kept
    }

    /// Goes on with what was kept. Of the windows that ended meanwhile the last ones are given yet.
    ///
    /// # Errors
    /// It is that of another query, or damaged.
    pub(crate) fn resume(&self, kept: &KeptStates) -> Result<(), datasketches::error::Error> {
        let book = &mut *self.book.lock();
        let ended = self.window_ms().map_or(0, |ms| self.timing.ran_before.as_millis() as u64 / ms);
        book.given = kept.given.max(ended.saturating_sub(MISSED_MAX));
        book.whole = kept.whole.as_deref().map(|whole| self.summing.read(whole)).transpose()?;
        let part = &mut *self.parts[0].lock();
        for kept in &kept.parts {
            part.state.merge(&self.summing.read(kept)?);
        }
        Ok(())
    }

    /// What the threads have added since the last time.
    fn take(&self) -> State {
        let mut taken: Option<State> = None;
        for part in &self.parts {
            let part = &mut *part.lock();
            if part.state.records() == 0 {
                continue;
            }
            let state = std::mem::replace(&mut part.state, self.summing.state());
            (part.memory, part.unmeasured) = (Held::default(), MEASURE_AFTER_ROWS);
            match &mut taken {
                Some(taken) => taken.merge(&state),
                None => taken = Some(state),
            }
        }
        taken.unwrap_or_else(|| self.summing.state())
    }

    fn accumulate<'b>(&self, book: &'b mut Book, state: State) -> &'b State {
        match &mut book.whole {
            Some(whole) => whole.merge(&state),
            None => book.whole = Some(state),
        }
        let whole = book.whole.as_ref().expect("it has just been put there");
        if !book.memory.cover(whole, &self.memory) {
            self.too_large.store(true, Ordering::Relaxed);
        }
        whole
    }

    fn window_result(&self, book: &mut Book, state: State, now_ms: i64) -> WindowResult {
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
        WindowResult {
            rows: self.summing.rows(state, now_ms),
            meta: WindowMeta {
                name: name.to_owned(),
                number,
                size,
                emit_time_ms: now_ms,
                expected_emit_time_ms: expected,
                records: state.records(),
                sketches: state.sketches(),
            },
        }
    }
}

impl Held {
    /// Takes what `state` has grown by since it was looked last; whether it was to be had.
    fn cover(&mut self, state: &State, memory: &MemoryBudget) -> bool {
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
