//! Rows of one query on their way from the threads that match to the client that reads.

use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use millstream_types::MemoryBudget;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::outboxes::TenantOutboxes;
use crate::rate::RateCounter;
use crate::resume_buffer::{ResultId, ResumeBuffer, StoredResumeBuffer};
use crate::rows::RowBatch;
use crate::sink_progress::{SinkOffset, SinkPosition, SinkProgress};
use crate::{Cause, Meta, OnSlow, Trouble, WindowResult};

/// The results that a client reads.
#[derive(Debug, Clone)]
pub enum Delivery {
    /// Some rows of the result.
    Rows(RowBatch),
    /// The result of a window.
    Window(Box<WindowResult>),
    /// The query has ended; nothing follows.
    End(Box<Meta>),
}

/// The outcome of adding rows to an outbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PutOutcome {
    Taken,
    /// These rows were the last ones that the query asked for.
    Full,
    /// The client is too slow for them.
    TooSlow,
    /// They come faster than the query, or its tenant, may give them.
    TooFast,
    /// The aggregate's state exceeds its limit.
    TooLarge,
}

/// The results for a client that resumes after a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum After {
    /// All results after it are available.
    Whole,
    /// Some results after it were dropped.
    Gap,
    /// Nothing: it has the end.
    All,
}

pub(crate) struct Outbox {
    pub(crate) common: Arc<TenantOutboxes>,
    /// The number of rows at which it is full; never at the largest number.
    rows_max: u64,
    on_slow: OnSlow,
    state: Mutex<State>,
}

/// The queue of an outbox, allocated with the first write: an idle query has none.
#[derive(Debug, Default)]
struct State {
    traffic: Option<Box<QueuedResults>>,
    ended: bool,
    reader: Option<Waker>,
}

#[derive(Debug)]
struct QueuedResults {
    /// Rows and windows, each with its memory grant.
    waiting: VecDeque<Delivery>,
    waiting_bytes: usize,
    counts: ResultCounts,
    /// If there are bounds for that.
    given: Option<Box<RateCounter>>,
    /// The rate that was exceeded.
    too_fast: Option<Box<Trouble>>,
    /// Told once, after the rows.
    end: Option<Box<Meta>>,
    /// For results that are handed out once they are stored, and stay until they have arrived: their progress.
    sink_progress: Option<Box<SinkProgress>>,
    /// If results stay for a while after they were sent to a client: their numbers.
    resume_buffer: Option<Box<ResumeBuffer>>,
}

static NO_TRAFFIC: QueuedResults = QueuedResults::new();

impl QueuedResults {
    const fn new() -> Self {
        let counts = ResultCounts { matched: 0, dropped: 0, evaluation_errors: 0 };
        Self {
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            counts,
            given: None,
            too_fast: None,
            end: None,
            sink_progress: None,
            resume_buffer: None,
        }
    }
}

impl Deref for State {
    type Target = QueuedResults;

    fn deref(&self) -> &QueuedResults {
        self.traffic.as_deref().unwrap_or(&NO_TRAFFIC)
    }
}

impl DerefMut for State {
    fn deref_mut(&mut self) -> &mut QueuedResults {
        self.traffic.get_or_insert_with(|| Box::new(QueuedResults::new()))
    }
}

/// A consistent snapshot of an outbox.
pub(crate) struct OutboxSnapshot<'s> {
    pub(crate) counts: ResultCounts,
    pub(crate) waiting: &'s VecDeque<Delivery>,
    /// The final meta, if the query has ended.
    pub(crate) end: Option<&'s Meta>,
    pub(crate) sink_progress: Option<&'s SinkProgress>,
    pub(crate) resume_buffer: Option<&'s ResumeBuffer>,
}

/// The counts of a query's results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct ResultCounts {
    pub(crate) matched: u64,
    pub(crate) dropped: u64,
    pub(crate) evaluation_errors: u64,
}

impl Outbox {
    pub(crate) fn new(common: Arc<TenantOutboxes>, rows_max: Option<u64>, on_slow: OnSlow) -> Self {
        Self { common, rows_max: rows_max.unwrap_or(u64::MAX), on_slow, state: Mutex::default() }
    }

    /// Takes rows, as far as the query wants them, and counts the evaluation errors up to there. After the end nothing is taken
    /// or counted.
    pub(crate) fn put(&self, mut rows: RowBatch, now: Duration) -> PutOutcome {
        let mut state = self.state.lock();
        if state.ended {
            return PutOutcome::Taken;
        }
        let left = self.rows_max - state.counts.matched;
        let wanted = usize::try_from(left).unwrap_or(usize::MAX);
        rows.truncate(wanted);
        state.counts.evaluation_errors +=
            if rows.row_count() == wanted { rows.evaluation_errors_up_to(wanted) } else { rows.evaluation_errors() };
        if rows.is_empty() {
            return PutOutcome::Taken;
        }
        let row_count = rows.row_count() as u64;
        state.counts.matched += row_count;
        let rows = Delivery::Rows(rows);
        if self.is_too_fast(&mut state, &rows, now) {
            state.counts.dropped += row_count;
            return PutOutcome::TooFast;
        }
        if self.make_room(&mut state, &rows) {
            state.push(rows);
        } else {
            state.counts.dropped += row_count;
            if self.on_slow == OnSlow::Kill {
                return PutOutcome::TooSlow;
            }
        }
        if left == row_count { PutOutcome::Full } else { PutOutcome::Taken }
    }

    /// Takes a result, which counts for no record; at `now`, for the query's rate, unless it is the last.
    pub(crate) fn put_result(&self, result: Delivery, now: Option<Duration>) -> PutOutcome {
        let mut state = self.state.lock();
        if state.ended {
            return PutOutcome::Taken;
        }
        if now.is_some_and(|now| self.is_too_fast(&mut state, &result, now)) {
            state.counts.dropped += result.row_count();
            return PutOutcome::TooFast;
        }
        if self.make_room(&mut state, &result) {
            state.push(result);
            return PutOutcome::Taken;
        }
        state.counts.dropped += result.row_count();
        if self.on_slow == OnSlow::Kill { PutOutcome::TooSlow } else { PutOutcome::Taken }
    }

    /// Counts new rows; true if they exceed the rate of the query or of its tenant.
    fn is_too_fast(&self, state: &mut State, next: &Delivery, now: Duration) -> bool {
        if self.common.are_rates_unbounded() || state.too_fast.is_some() {
            return state.too_fast.is_some();
        }
        let (rows, bytes, rates) = (next.row_count(), next.size_bytes() as u64, self.common.rates);
        let own = match rates.are_unbounded() {
            true => Ok(()),
            false => state.given.get_or_insert_default().add(rates, rows, bytes, now),
        };
        match own.and_then(|()| self.common.add(rows, bytes, now)) {
            Ok(()) => false,
            Err(trouble) => {
                state.too_fast = Some(Box::new(trouble));
                true
            }
        }
    }

    /// The rate that was exceeded.
    pub(crate) fn too_fast(&self) -> Option<Trouble> {
        self.state.lock().too_fast.as_deref().cloned()
    }

    /// Counts records that are no rows of their own.
    pub(crate) fn count(&self, matched: u64, evaluation_errors: u64) {
        let counts = &mut self.state.lock().counts;
        counts.matched += matched;
        counts.evaluation_errors += evaluation_errors;
    }

    /// Makes room for rows and their memory, by dropping old rows if that is the policy; false if there is none. An empty
    /// queue accepts a row over its limit, because that row could never be delivered otherwise.
    fn make_room(&self, state: &mut State, next: &Delivery) -> bool {
        loop {
            let fits =
                state.waiting.is_empty() || state.waiting_bytes + next.size_bytes() <= self.common.queue_max_bytes;
            if fits && next.hold(&self.common.memory) {
                return true;
            }
            if state.let_go_of_sent() {
                continue;
            }
            if self.on_slow == OnSlow::Kill {
                return false;
            }
            let Some(oldest) = state.pop() else { return false };
            state.counts.dropped += oldest.row_count();
        }
    }

    pub(crate) fn drops_oldest(&self) -> bool {
        self.on_slow == OnSlow::DropOldest
    }

    /// True if the queue is more than half full, so that producers that can wait should.
    pub(crate) fn is_crowded(&self) -> bool {
        let state = self.state.lock();
        let sent_bytes = state.resume_buffer.as_ref().map_or(0, |resume_buffer| resume_buffer.sent_bytes());
        !state.ended && state.waiting_bytes - sent_bytes > self.common.queue_max_bytes / 2
    }

    /// Calls `look` with a consistent snapshot.
    pub(crate) fn look<R>(&self, look: impl FnOnce(OutboxSnapshot<'_>) -> R) -> R {
        let state = self.state.lock();
        let (end, sink_progress, resume_buffer) =
            (state.end.as_deref(), state.sink_progress.as_deref(), state.resume_buffer.as_deref());
        look(OutboxSnapshot { counts: state.counts, waiting: &state.waiting, end, sink_progress, resume_buffer })
    }

    /// From now on results are handed out once they are stored, and stay until they have arrived. The waiting results of a
    /// resumed query are stored already, and `gone` are delivered.
    pub(crate) fn hold_until_arrived(&self, gone: SinkOffset) {
        let mut state = self.state.lock();
        let sink_progress = SinkProgress::resume(gone, state.waiting.len(), state.ended);
        state.sink_progress = Some(Box::new(sink_progress));
    }

    /// Deliveries up to `through` are stored, and the end too if it has come.
    pub(crate) fn has_been_kept(&self, through: u64, is_end_kept: bool) {
        let mut state = self.state.lock();
        if let Some(sink_progress) = &mut state.sink_progress {
            sink_progress.keep(through, is_end_kept);
            state.wake();
        }
    }

    /// The position of a new reader of stored results, and true if the opening has arrived already.
    pub(crate) fn start(&self) -> Option<(SinkPosition, bool)> {
        self.state
            .lock()
            .sink_progress
            .as_ref()
            .map(|sink_progress| (sink_progress.start(), sink_progress.gone.opening))
    }

    /// Marks the opening and the deliveries up to `place` as arrived.
    pub(crate) fn has_arrived(&self, place: &SinkPosition) {
        let mut state = self.state.lock();
        while state.sink_progress.as_ref().is_some_and(|sink_progress| sink_progress.has_arrived(place))
            && state.pop().is_some()
        {}
        if let Some(sink_progress) = &mut state.sink_progress {
            sink_progress.gone.opening = true;
        }
    }

    /// The next stored delivery, with the number of its first record; `None` after the last one.
    pub(crate) fn poll_kept(&self, place: &mut SinkPosition, cx: &mut Context<'_>) -> Poll<Option<(u64, Delivery)>> {
        let mut state = self.state.lock();
        let Some(sink_progress) = &state.sink_progress else { return Poll::Ready(None) };
        let next = sink_progress.next(place).and_then(|next| state.waiting.get(next)).cloned();
        if let Some(delivery) = next {
            return Poll::Ready(Some((place.pass(delivery.record_count()), delivery)));
        }
        if let Some(end) = state.end.as_ref().filter(|_| sink_progress.is_at_end(place, state.waiting.len())) {
            place.is_end = true;
            let end = Delivery::End(end.clone());
            return Poll::Ready(Some((place.pass(end.record_count()), end)));
        }
        // Results that are not stored by now follow after the restart.
        if place.is_end || state.end.as_ref().is_some_and(|end| end.cause == Some(Cause::Shutdown)) {
            return Poll::Ready(None);
        }
        state.reader = Some(cx.waker().clone());
        Poll::Pending
    }

    /// From now on results have numbers, and stay for a while after they were sent. The waiting results of
    /// a resumed query keep theirs.
    pub(crate) fn number(&self, kept: Option<&StoredResumeBuffer>, life: u32) {
        let mut state = self.state.lock();
        let sizes: Vec<usize> = state.waiting.iter().map(Delivery::size_bytes).collect();
        state.resume_buffer = Some(Box::new(ResumeBuffer::resume(kept, &sizes, life)));
    }

    /// Sends the unsent results to this client from now on; returns the number of the last result before them. `None`
    /// if results have no numbers.
    pub(crate) fn go_on(&self, client: u64) -> Option<ResultId> {
        let mut state = self.state.lock();
        let resume_buffer = state.resume_buffer.as_mut()?;
        resume_buffer.go_on(client);
        Some(resume_buffer.sent_up_to())
    }

    /// Sends the results after `id` to this client from now on, in place of the current one.
    pub(crate) fn begin_after(&self, client: u64, id: ResultId) -> After {
        let mut state = self.state.lock();
        let has_ended = state.end.is_some();
        let Some(resume_buffer) = &mut state.resume_buffer else { return After::Whole };
        let is_whole = resume_buffer.begin_again(client, id);
        let has_all = has_ended && id == resume_buffer.end();
        while state.resume_buffer.as_ref().is_some_and(|resume_buffer| resume_buffer.has_arrived(id))
            && state.pop().is_some()
        {}
        state.wake();
        match is_whole {
            _ if has_all => After::All,
            true => After::Whole,
            false => After::Gap,
        }
    }

    /// The last number that a result may have by now.
    pub(crate) fn last_id(&self) -> Option<ResultId> {
        self.state.lock().resume_buffer.as_ref().map(|resume_buffer| resume_buffer.end())
    }

    /// Drops the results that were sent; true if there were any.
    pub(crate) fn let_go_of_sent(&self) -> bool {
        let mut state = self.state.lock();
        std::iter::from_fn(|| state.let_go_of_sent().then_some(())).count() > 0
    }

    /// The next delivery that has not been sent, with its number, then the end; a delivery stays. `None` if nothing follows,
    /// or another has taken the place of this client.
    pub(crate) fn poll_numbered(
        &self,
        client: u64,
        is_end_sent: &mut bool,
        cx: &mut Context<'_>,
    ) -> Poll<Option<(Option<ResultId>, Delivery)>> {
        let mut state = self.state.lock();
        if !state.resume_buffer.as_ref().is_some_and(|resume_buffer| resume_buffer.is_of(client)) {
            return Poll::Ready(None);
        }
        let next =
            state.resume_buffer.as_ref().and_then(|resume_buffer| state.waiting.get(resume_buffer.next())).cloned();
        if let Some((delivery, resume_buffer)) = next.zip(state.resume_buffer.as_mut()) {
            let id = resume_buffer.send(delivery.size_bytes());
            while state
                .resume_buffer
                .as_ref()
                .is_some_and(|resume_buffer| resume_buffer.has_too_much(self.common.sent_max_bytes))
            {
                state.pop();
            }
            return Poll::Ready(Some((Some(id), delivery)));
        }
        if *is_end_sent {
            return Poll::Ready(None);
        }
        if let Some(end) = &state.end {
            *is_end_sent = true;
            // Results that follow after a restart come before the end.
            let id = state
                .resume_buffer
                .as_ref()
                .filter(|_| end.cause != Some(Cause::Shutdown))
                .map(|resume_buffer| resume_buffer.end());
            return Poll::Ready(Some((id, Delivery::End(end.clone()))));
        }
        state.reader = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Resumes with the stored results, even beyond the limits; a lack of memory does not delay this.
    pub(crate) fn resume(&self, counts: ResultCounts, waiting: impl Iterator<Item = Delivery>, end: Option<Meta>) {
        let mut state = self.state.lock();
        state.counts = counts;
        for delivery in waiting {
            delivery.hold(&self.common.memory);
            state.push(delivery);
        }
        state.ended = end.is_some();
        state.end = end.map(Box::new);
    }

    /// The final meta, until the client has read it.
    pub(crate) fn end_meta(&self) -> Option<Meta> {
        self.look(|contents| contents.end.cloned())
    }

    pub(crate) fn counts(&self) -> ResultCounts {
        self.state.lock().counts
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.state.lock().ended
    }

    /// Ends it, once: `meta` is made of the final counts. Whether this was the first call.
    pub(crate) fn end(&self, meta: impl FnOnce(ResultCounts) -> Meta) -> bool {
        let mut state = self.state.lock();
        if state.ended {
            return false;
        }
        state.ended = true;
        state.end = Some(Box::new(meta(state.counts)));
        state.wake();
        true
    }

    /// The next delivery; `None` after the end.
    pub(crate) fn poll(&self, cx: &mut Context<'_>) -> Poll<Option<Delivery>> {
        let mut state = self.state.lock();
        if state.traffic.is_some() {
            // Results that one client was sent are not sent to another.
            while state.let_go_of_sent() {}
            if let Some(waiting) = state.pop() {
                return Poll::Ready(Some(waiting));
            }
            if let Some(meta) = state.end.take() {
                return Poll::Ready(Some(Delivery::End(meta)));
            }
        }
        if state.ended {
            return Poll::Ready(None);
        }
        state.reader = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl State {
    fn push(&mut self, delivery: Delivery) {
        self.waiting_bytes += delivery.size_bytes();
        self.waiting.push_back(delivery);
        if let Some(resume_buffer) = &mut self.resume_buffer {
            resume_buffer.push();
        }
        self.wake();
    }

    fn pop(&mut self) -> Option<Delivery> {
        let oldest = self.waiting.pop_front()?;
        self.waiting_bytes -= oldest.size_bytes();
        if let Some(sink_progress) = &mut self.sink_progress {
            sink_progress.went(oldest.record_count());
        }
        if let Some(resume_buffer) = &mut self.resume_buffer {
            resume_buffer.pop(oldest.size_bytes());
        }
        Some(oldest)
    }

    /// Lets the oldest go if it has been sent; whether it had been.
    fn let_go_of_sent(&mut self) -> bool {
        self.resume_buffer.as_ref().is_some_and(|resume_buffer| resume_buffer.next() > 0) && self.pop().is_some()
    }

    fn wake(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }
}

impl Delivery {
    fn rows(&self) -> Option<&RowBatch> {
        match self {
            Self::Rows(rows) => Some(rows),
            Self::Window(window) => Some(&window.rows),
            Self::End(_) => None,
        }
    }

    fn row_count(&self) -> u64 {
        self.rows().map_or(0, RowBatch::row_count) as u64
    }

    /// The number of records for a topic: one for each row, each window and the end.
    pub(crate) fn record_count(&self) -> u64 {
        self.row_count() + u64::from(!matches!(self, Self::Rows(_)))
    }

    /// Takes memory for its rows; false if there is none left.
    fn hold(&self, memory: &MemoryBudget) -> bool {
        self.rows().is_none_or(|rows| rows.hold(memory))
    }

    /// The size of its rows in bytes.
    pub fn size_bytes(&self) -> usize {
        match self {
            Self::Rows(rows) => rows.size_bytes(),
            Self::Window(window) => window.size_bytes(),
            Self::End(_) => 0,
        }
    }
}
