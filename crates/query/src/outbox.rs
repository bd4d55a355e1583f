//! Rows of one query on their way from the threads that match to the client that reads.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

use crate::rows::RowBatch;
use crate::{Meta, OnSlow};

/// What a client reads.
#[derive(Debug)]
pub enum Delivery {
    /// Some rows.
    Rows(RowBatch),
    /// The query has ended; nothing follows.
    End(Box<Meta>),
}

/// What waits for all clients together, against its bound.
#[derive(Debug)]
pub(crate) struct Budget {
    used_bytes: AtomicUsize,
    max_bytes: usize,
}

impl Budget {
    pub(crate) fn new(max_bytes: usize) -> Arc<Self> {
        Arc::new(Self { used_bytes: AtomicUsize::new(0), max_bytes })
    }

    fn take(&self, size_bytes: usize) {
        self.used_bytes.fetch_add(size_bytes, Ordering::Relaxed);
    }

    fn give_back(&self, size_bytes: usize) {
        self.used_bytes.fetch_sub(size_bytes, Ordering::Relaxed);
    }

    fn has_room(&self, size_bytes: usize) -> bool {
        self.used_bytes.load(Ordering::Relaxed) + size_bytes <= self.max_bytes
    }
}

/// How many bytes and rows an outbox takes, and what happens then.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) queue_max_bytes: usize,
    pub(crate) rows_max: Option<u64>,
    pub(crate) on_slow: OnSlow,
}

/// What became of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Put {
    Taken,
    /// These were the last ones that the query asked for.
    Full,
    /// The client is too slow for them.
    TooSlow,
}

#[derive(Debug)]
pub(crate) struct Outbox {
    bounds: Bounds,
    budget: Arc<Budget>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<RowBatch>,
    waiting_bytes: usize,
    counts: Counts,
    ended: bool,
    /// Told once, after the rows.
    end: Option<Box<Meta>>,
    reader: Option<Waker>,
}

/// What has gone through.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counts {
    pub(crate) matched: u64,
    pub(crate) dropped: u64,
    pub(crate) evaluation_errors: u64,
}

impl Outbox {
    pub(crate) fn new(bounds: Bounds, budget: Arc<Budget>) -> Self {
        Self { bounds, budget, state: Mutex::default() }
    }

    /// Takes rows, as far as the query wants them. After the end nothing is taken or counted.
    pub(crate) fn put(&self, mut rows: RowBatch, evaluation_errors: u64) -> Put {
        let mut state = self.state.lock();
        if state.ended {
            return Put::Taken;
        }
        state.counts.evaluation_errors += evaluation_errors;
        let left = self.bounds.rows_max.map(|rows_max| rows_max - state.counts.matched);
        if let Some(left) = left {
            rows.truncate(usize::try_from(left).unwrap_or(usize::MAX));
        }
        if rows.is_empty() {
            return Put::Taken;
        }
        let row_count = rows.row_count() as u64;
        let size_bytes = rows.size_bytes();
        state.counts.matched += row_count;
        if !self.make_room(&mut state, size_bytes) {
            state.counts.dropped += row_count;
            return Put::TooSlow;
        }
        self.budget.take(size_bytes);
        state.waiting_bytes += size_bytes;
        state.waiting.push_back(rows);
        if let Some(reader) = state.reader.take() {
            reader.wake();
        }
        if left == Some(row_count) { Put::Full } else { Put::Taken }
    }

    /// Whether there is room for so much, after old rows have been dropped if that is the policy. An empty queue takes
    /// whatever comes: a row that exceeds the bound by itself could never be delivered otherwise.
    fn make_room(&self, state: &mut State, size_bytes: usize) -> bool {
        let fits = |state: &State| {
            state.waiting.is_empty()
                || (state.waiting_bytes + size_bytes <= self.bounds.queue_max_bytes && self.budget.has_room(size_bytes))
        };
        while !fits(state) {
            if self.bounds.on_slow == OnSlow::Kill {
                return false;
            }
            if let Some(oldest) = state.waiting.pop_front() {
                state.counts.dropped += oldest.row_count() as u64;
                state.waiting_bytes -= oldest.size_bytes();
                self.budget.give_back(oldest.size_bytes());
            }
        }
        true
    }

    pub(crate) fn counts(&self) -> Counts {
        self.state.lock().counts
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.state.lock().ended
    }

    /// Ends it, once: `meta` is made of the final counts. Whether this was the first call.
    pub(crate) fn end(&self, meta: impl FnOnce(Counts) -> Meta) -> bool {
        let mut state = self.state.lock();
        if state.ended {
            return false;
        }
        state.ended = true;
        state.end = Some(Box::new(meta(state.counts)));
        if let Some(reader) = state.reader.take() {
            reader.wake();
        }
        true
    }

    /// The next delivery; `None` after the end.
    pub(crate) fn poll(&self, cx: &mut Context<'_>) -> Poll<Option<Delivery>> {
        let mut state = self.state.lock();
        if let Some(rows) = state.waiting.pop_front() {
            state.waiting_bytes -= rows.size_bytes();
            self.budget.give_back(rows.size_bytes());
            return Poll::Ready(Some(Delivery::Rows(rows)));
        }
        if let Some(meta) = state.end.take() {
            return Poll::Ready(Some(Delivery::End(meta)));
        }
        if state.ended {
            return Poll::Ready(None);
        }
        state.reader = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for Outbox {
    fn drop(&mut self) {
        self.budget.give_back(self.state.get_mut().waiting_bytes);
    }
}
