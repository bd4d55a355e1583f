//! Rows of one query on their way from the threads that match to the client that reads.

use std::collections::VecDeque;
use std::task::{Context, Poll, Waker};

use millstream_types::MemoryBudget;
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
    memory: MemoryBudget,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Each with the memory that it takes until it is gone.
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
    pub(crate) fn new(bounds: Bounds, memory: MemoryBudget) -> Self {
        Self { bounds, memory, state: Mutex::default() }
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
        if self.make_room(&mut state, &rows) {
            state.waiting_bytes += size_bytes;
            state.waiting.push_back(rows);
            if let Some(reader) = state.reader.take() {
                reader.wake();
            }
        } else {
            state.counts.dropped += row_count;
            if self.bounds.on_slow == OnSlow::Kill {
                return Put::TooSlow;
            }
        }
        if left == Some(row_count) { Put::Full } else { Put::Taken }
    }

    /// Whether there is room for `rows` and memory that they hold, after old rows have been dropped if that is the policy.
    /// An empty queue takes more than its own bound: a row that exceeds it by itself could never be delivered otherwise.
    fn make_room(&self, state: &mut State, rows: &RowBatch) -> bool {
        loop {
            let fits =
                state.waiting.is_empty() || state.waiting_bytes + rows.size_bytes() <= self.bounds.queue_max_bytes;
            if fits && rows.hold(&self.memory) {
                return true;
            }
            if self.bounds.on_slow == OnSlow::Kill {
                return false;
            }
            let Some(oldest) = state.waiting.pop_front() else { return false };
            state.counts.dropped += oldest.row_count() as u64;
            state.waiting_bytes -= oldest.size_bytes();
        }
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
