//! Rows of one query on their way from the threads that match to the client that reads.

use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use millstream_types::{Epoch, MemoryBudget};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::outboxes::Common;
use crate::passage::{Gone, Passage, Place};
use crate::rate::Given;
use crate::rows::RowBatch;
use crate::trail::{KeptTrail, ResultId, Trail};
use crate::{Cause, Meta, OnSlow, Trouble, WindowResult};

/// What a client reads.
#[derive(Debug, Clone)]
pub enum Delivery {
    /// Some rows.
    Rows(RowBatch),
    /// The result of a window.
    Window(Box<WindowResult>),
    /// The query has ended; nothing follows.
    End(Box<Meta>),
}

/// What became of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Put {
    Taken,
    /// These were the last ones that the query asked for.
    Full,
    /// The client is too slow for them.
    TooSlow,
    /// They come faster than the query, or its tenant, may give them.
    TooFast,
    /// What its records have come to takes more than it may.
    TooLarge,
}

/// What a client gets that has something already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum After {
    /// All that follows.
    Whole,
    /// Some that followed has gone.
    Gap,
    /// Nothing: it has the end.
    All,
}

pub(crate) struct Outbox {
    pub(crate) common: Arc<Common>,
    /// After how many rows it is full; never at the largest number.
    rows_max: u64,
    on_slow: OnSlow,
    state: Mutex<State>,
}

/// Stands for its traffic, which is there once something is written to it: an idle query has none.
#[derive(Debug, Default)]
struct State {
    traffic: Option<Box<Traffic>>,
    ended: bool,
    reader: Option<Waker>,
}

#[derive(Debug)]
struct Traffic {
    /// Rows and windows, each with the memory that it takes until it is gone.
    waiting: VecDeque<Delivery>,
    waiting_bytes: usize,
    counts: Counts,
    /// If there are bounds for that.
    given: Option<Box<Given>>,
    /// The rate that was exceeded.
    too_fast: Option<Box<Trouble>>,
    /// Told once, after the rows.
    end: Option<Box<Meta>>,
    /// If results are handed out only once they are kept, and stay until they have arrived: how far they have come.
    passage: Option<Box<Passage>>,
    /// If results stay for a while after they were sent to a client: their numbers.
    trail: Option<Box<Trail>>,
}

static NO_TRAFFIC: Traffic = Traffic::new();

impl Traffic {
    const fn new() -> Self {
        let counts = Counts { matched: 0, dropped: 0, evaluation_errors: 0 };
        Self {
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            counts,
            given: None,
            too_fast: None,
            end: None,
            passage: None,
            trail: None,
        }
    }
}

impl Deref for State {
    type Target = Traffic;

    fn deref(&self) -> &Traffic {
        self.traffic.as_deref().unwrap_or(&NO_TRAFFIC)
    }
}

impl DerefMut for State {
    fn deref_mut(&mut self) -> &mut Traffic {
        self.traffic.get_or_insert_with(|| Box::new(Traffic::new()))
    }
}

/// What there is at one moment.
pub(crate) struct Contents<'s> {
    pub(crate) counts: Counts,
    pub(crate) waiting: &'s VecDeque<Delivery>,
    /// What is told at the end if that has come.
    pub(crate) end: Option<&'s Meta>,
    pub(crate) passage: Option<&'s Passage>,
    pub(crate) trail: Option<&'s Trail>,
}

/// What has gone through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Counts {
    pub(crate) matched: u64,
    pub(crate) dropped: u64,
    pub(crate) evaluation_errors: u64,
}

impl Outbox {
    pub(crate) fn new(common: Arc<Common>, rows_max: Option<u64>, on_slow: OnSlow) -> Self {
        Self { common, rows_max: rows_max.unwrap_or(u64::MAX), on_slow, state: Mutex::default() }
    }

    /// Takes rows, as far as the query wants them. After the end nothing is taken or counted.
    pub(crate) fn put(&self, mut rows: RowBatch, evaluation_errors: u64, now: Duration) -> Put {
        let mut state = self.state.lock();
        if state.ended {
            return Put::Taken;
        }
        state.counts.evaluation_errors += evaluation_errors;
        let left = self.rows_max - state.counts.matched;
        rows.truncate(usize::try_from(left).unwrap_or(usize::MAX));
        if rows.is_empty() {
            return Put::Taken;
        }
        let row_count = rows.row_count() as u64;
        state.counts.matched += row_count;
        let rows = Delivery::Rows(rows);
        if self.is_too_fast(&mut state, &rows, now) {
            state.counts.dropped += row_count;
            return Put::TooFast;
        }
        if self.make_room(&mut state, &rows) {
            state.push(rows);
        } else {
            state.counts.dropped += row_count;
            if self.on_slow == OnSlow::Kill {
                return Put::TooSlow;
            }
        }
        if left == row_count { Put::Full } else { Put::Taken }
    }

    /// Takes a result, which counts for no record; at `now`, for the query's rate, unless it is the last.
    pub(crate) fn put_result(&self, result: Delivery, now: Option<Duration>) -> Put {
        let mut state = self.state.lock();
        if state.ended {
            return Put::Taken;
        }
        if now.is_some_and(|now| self.is_too_fast(&mut state, &result, now)) {
            state.counts.dropped += result.row_count();
            return Put::TooFast;
        }
        if self.make_room(&mut state, &result) {
            state.push(result);
            return Put::Taken;
        }
        state.counts.dropped += result.row_count();
        if self.on_slow == OnSlow::Kill { Put::TooSlow } else { Put::Taken }
    }

    /// Counts what is given; whether that is more than the query, or all of its tenant, may give in a second.
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

    /// Whether there is room for rows and memory that they hold, after old ones have been dropped if that is the policy.
    /// An empty queue takes more than its own bound: a row that exceeds it by itself could never be delivered otherwise.
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

    /// Whether more than half of what may wait does, so that whoever can wait with more should.
    pub(crate) fn is_crowded(&self) -> bool {
        let state = self.state.lock();
        let sent_bytes = state.trail.as_ref().map_or(0, |trail| trail.sent_bytes());
        !state.ended && state.waiting_bytes - sent_bytes > self.common.queue_max_bytes / 2
    }

    /// What has gone through, what waits, and what is told at the end if that has come.
    pub(crate) fn look<R>(&self, look: impl FnOnce(Contents<'_>) -> R) -> R {
        let state = self.state.lock();
        let (end, passage, trail) = (state.end.as_deref(), state.passage.as_deref(), state.trail.as_deref());
        look(Contents { counts: state.counts, waiting: &state.waiting, end, passage, trail })
    }

    /// From now on results are handed out only once they are kept, and stay until they have arrived. Of one that a former
    /// process has kept what waits is kept, and so much has gone.
    pub(crate) fn hold_until_arrived(&self, gone: Gone) {
        let mut state = self.state.lock();
        let passage = Passage::resume(gone, state.waiting.len(), state.ended);
        state.passage = Some(Box::new(passage));
    }

    /// Deliveries up to `through` are kept, and the end if that has come.
    pub(crate) fn has_been_kept(&self, through: u64, is_end_kept: bool) {
        let mut state = self.state.lock();
        if let Some(passage) = &mut state.passage {
            passage.keep(through, is_end_kept);
            state.wake();
        }
    }

    /// Where a reader of what is kept begins, and whether the opening has arrived already.
    pub(crate) fn start(&self) -> Option<(Place, bool)> {
        self.state.lock().passage.as_ref().map(|passage| (passage.start(), passage.gone.opening))
    }

    /// What was handed out up to `place` has arrived, the opening, too.
    pub(crate) fn has_arrived(&self, place: &Place) {
        let mut state = self.state.lock();
        while state.passage.as_ref().is_some_and(|passage| passage.has_arrived(place)) && state.pop().is_some() {}
        if let Some(passage) = &mut state.passage {
            passage.gone.opening = true;
        }
    }

    /// The next delivery that is kept, with the number of its first record; `None` if no more will be.
    pub(crate) fn poll_kept(&self, place: &mut Place, cx: &mut Context<'_>) -> Poll<Option<(u64, Delivery)>> {
        let mut state = self.state.lock();
        let Some(passage) = &state.passage else { return Poll::Ready(None) };
        let next = passage.next(place).and_then(|next| state.waiting.get(next)).cloned();
        if let Some(delivery) = next {
            return Poll::Ready(Some((place.pass(delivery.record_count()), delivery)));
        }
        if let Some(end) = state.end.as_ref().filter(|_| passage.is_at_end(place, state.waiting.len())) {
            place.is_end = true;
            let end = Delivery::End(end.clone());
            return Poll::Ready(Some((place.pass(end.record_count()), end)));
        }
        // What is not kept by now comes after the restart.
        if place.is_end || state.end.as_ref().is_some_and(|end| end.cause == Some(Cause::Shutdown)) {
            return Poll::Ready(None);
        }
        state.reader = Some(cx.waker().clone());
        Poll::Pending
    }

    /// From now on results have numbers, and stay for a while after they were sent. Of one that a former process has kept
    /// what waits has these.
    pub(crate) fn number(&self, kept: Option<&KeptTrail>, epoch: Epoch) {
        let mut state = self.state.lock();
        let sizes: Vec<usize> = state.waiting.iter().map(Delivery::size_bytes).collect();
        state.trail = Some(Box::new(Trail::resume(kept, &sizes, epoch)));
    }

    /// Has this client be sent what nobody has been sent; the number of the last result before that. `None` if results have
    /// no numbers.
    pub(crate) fn go_on(&self, client: u64) -> Option<ResultId> {
        let mut state = self.state.lock();
        let trail = state.trail.as_mut()?;
        trail.go_on(client);
        Some(trail.sent_up_to())
    }

    /// Has this client be sent what follows the result `id`, in place of whoever reads now.
    pub(crate) fn begin_after(&self, client: u64, id: ResultId) -> After {
        let mut state = self.state.lock();
        let has_ended = state.end.is_some();
        let Some(trail) = &mut state.trail else { return After::Whole };
        let is_whole = trail.begin_again(client, id);
        let has_all = has_ended && id == trail.end();
        while state.trail.as_ref().is_some_and(|trail| trail.has_arrived(id)) && state.pop().is_some() {}
        state.wake();
        match is_whole {
            _ if has_all => After::All,
            true => After::Whole,
            false => After::Gap,
        }
    }

    /// The last number that a result may have by now.
    pub(crate) fn last_id(&self) -> Option<ResultId> {
        self.state.lock().trail.as_ref().map(|trail| trail.end())
    }

    /// What has been sent stays no longer. Whether there was anything.
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
        if !state.trail.as_ref().is_some_and(|trail| trail.is_of(client)) {
            return Poll::Ready(None);
        }
        let next = state.trail.as_ref().and_then(|trail| state.waiting.get(trail.next())).cloned();
        if let Some((delivery, trail)) = next.zip(state.trail.as_mut()) {
            let id = trail.send(delivery.size_bytes());
            while state.trail.as_ref().is_some_and(|trail| trail.has_too_much(self.common.sent_max_bytes)) {
                state.pop();
            }
            return Poll::Ready(Some((Some(id), delivery)));
        }
        if *is_end_sent {
            return Poll::Ready(None);
        }
        if let Some(end) = &state.end {
            *is_end_sent = true;
            // What follows after a restart comes before the end.
            let id = state.trail.as_ref().filter(|_| end.cause != Some(Cause::Shutdown)).map(|trail| trail.end());
            return Poll::Ready(Some((id, Delivery::End(end.clone()))));
        }
        state.reader = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Goes on with what was kept of one, whatever its bounds; memory that is not to be had is not waited for.
    pub(crate) fn resume(&self, counts: Counts, waiting: impl Iterator<Item = Delivery>, end: Option<Meta>) {
        let mut state = self.state.lock();
        state.counts = counts;
        for delivery in waiting {
            delivery.hold(&self.common.memory);
            state.push(delivery);
        }
        state.ended = end.is_some();
        state.end = end.map(Box::new);
    }

    /// What is told at the end, until the client has got it.
    pub(crate) fn end_meta(&self) -> Option<Meta> {
        self.look(|contents| contents.end.cloned())
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
        state.wake();
        true
    }

    /// The next delivery; `None` after the end.
    pub(crate) fn poll(&self, cx: &mut Context<'_>) -> Poll<Option<Delivery>> {
        let mut state = self.state.lock();
        if state.traffic.is_some() {
            // What somebody has been sent is for nobody else.
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
        if let Some(trail) = &mut self.trail {
            trail.push();
        }
        self.wake();
    }

    fn pop(&mut self) -> Option<Delivery> {
        let oldest = self.waiting.pop_front()?;
        self.waiting_bytes -= oldest.size_bytes();
        if let Some(passage) = &mut self.passage {
            passage.went(oldest.record_count());
        }
        if let Some(trail) = &mut self.trail {
            trail.pop(oldest.size_bytes());
        }
        Some(oldest)
    }

    /// Lets the oldest go if it has been sent; whether it had been.
    fn let_go_of_sent(&mut self) -> bool {
        self.trail.as_ref().is_some_and(|trail| trail.next() > 0) && self.pop().is_some()
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

    /// How many records it is where results are records: each row, and what is told of a window or at the end.
    pub(crate) fn record_count(&self) -> u64 {
        self.row_count() + u64::from(!matches!(self, Self::Rows(_)))
    }

    /// Takes from `memory` what its rows need. Whether it was to be had.
    fn hold(&self, memory: &MemoryBudget) -> bool {
        self.rows().is_none_or(|rows| rows.hold(memory))
    }

    fn size_bytes(&self) -> usize {
        match self {
            Self::Rows(rows) => rows.size_bytes(),
            Self::Window(window) => window.size_bytes(),
            Self::End(_) => 0,
        }
    }
}
