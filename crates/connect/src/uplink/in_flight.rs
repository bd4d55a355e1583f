//! Requests of one connection that the log has not answered for yet.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// Requests with one common answer, as an adapter keeps them to acknowledge them.
pub(crate) trait Waits {
    /// The number of messages among them.
    fn messages(&self) -> usize;

    /// True if later requests must not overtake them, which they might on another way into the log.
    fn is_first(&self) -> bool {
        false
    }
}

/// The requests without an answer, in the order in which they came, which is that of their answers.
///
/// `V` is the future of an answer. Times are of the monotonic clock.
#[derive(Debug)]
pub(crate) struct InFlight<V, W> {
    requests: VecDeque<Request<V, W>>,
    /// Messages of all requests.
    messages: usize,
    /// Requests that later ones must not overtake.
    first: usize,
    /// True if the last message was appended without an answer to come.
    is_last_unanswered: bool,
    /// True if a wait for room in the log is among the requests.
    awaits_room: bool,
    /// Longest time that an answer may take.
    limit: Duration,
}

#[derive(Debug)]
struct Request<V, W> {
    verdict: V,
    kept: Kept<W>,
    started: Duration,
}

/// The subject of an answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Kept<W> {
    Requests(W),
    /// A wait for room in the log; nothing was sent.
    Room,
}

/// Requests that have their answer, or a wait that has ended.
#[derive(Debug)]
pub(crate) struct Settled<W, A> {
    pub(crate) kept: Kept<W>,
    pub(crate) answer: A,
    /// The time at which the log got it.
    pub(crate) started: Duration,
}

impl<V, W: Waits> InFlight<V, W> {
    pub(crate) fn new(limit: Duration) -> Self {
        let requests = VecDeque::new();
        Self { requests, messages: 0, first: 0, is_last_unanswered: false, awaits_room: false, limit }
    }

    /// Keeps requests that the log got at `now` until its answer.
    pub(crate) fn push(&mut self, verdict: V, waits: W, now: Duration) {
        self.messages += waits.messages();
        self.first += usize::from(waits.is_first());
        self.requests.push_back(Request { verdict, kept: Kept::Requests(waits), started: now });
    }

    /// Notes whether the message that was appended last has an answer to come. Without one its sender cannot notice that it is
    /// too fast.
    pub(crate) fn appended(&mut self, has_answer: bool) {
        self.is_last_unanswered = !has_answer;
    }

    /// True if the connection should wait for room in the log, if there is none: messages that nobody waits for would be refused.
    pub(crate) fn looks_for_room(&self) -> bool {
        self.is_last_unanswered && !self.awaits_room
    }

    /// Stops reading until `room`.
    pub(crate) fn await_room(&mut self, room: V, now: Duration) {
        self.awaits_room = true;
        self.requests.push_back(Request { verdict: room, kept: Kept::Room, started: now });
    }

    /// True if nothing more should be read: the log has no room, or `messages_max` have no answer.
    pub(crate) fn is_full(&self, messages_max: usize) -> bool {
        self.awaits_room || self.messages >= messages_max
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Returns the number of messages without an answer.
    pub(crate) fn messages(&self) -> usize {
        self.messages
    }

    /// True if a request is waiting that later ones must not overtake.
    pub(crate) fn has_first(&self) -> bool {
        self.first > 0
    }

    /// Returns the time that the oldest request has left; `None` if nothing waits.
    pub(crate) fn patience(&self, now: Duration) -> Option<Duration> {
        let first = self.requests.front()?;
        Some(self.limit.saturating_sub(now.saturating_sub(first.started)))
    }

    /// Takes the oldest requests if their answer has taken too long; they are to be refused.
    pub(crate) fn take_overdue(&mut self, now: Duration) -> Option<Kept<W>> {
        if self.patience(now)? > Duration::ZERO {
            return None;
        }
        self.pop().map(|request| request.kept)
    }

    fn pop(&mut self) -> Option<Request<V, W>> {
        let request = self.requests.pop_front()?;
        match &request.kept {
            Kept::Requests(waits) => {
                self.messages -= waits.messages();
                self.first -= usize::from(waits.is_first());
            }
            Kept::Room => self.awaits_room = false,
        }
        Some(request)
    }
}

impl<V, W> InFlight<V, W>
where
    V: Future + Unpin,
    W: Waits,
{
    /// Polls for the answer to the oldest. Pending if there is none yet, or nothing waits.
    pub(crate) fn poll_settled(&mut self, cx: &mut Context<'_>) -> Poll<Settled<W, V::Output>> {
        let Some(first) = self.requests.front_mut() else { return Poll::Pending };
        let answer = ready!(Pin::new(&mut first.verdict).poll(cx));
        match self.pop() {
            Some(Request { kept, started, .. }) => Poll::Ready(Settled { kept, answer, started }),
            None => Poll::Pending,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::{Ready, poll_fn, ready};
    use std::task::Waker;

    use tokio::sync::oneshot;

    use super::*;

    /// So many messages; the second is that they come first.
    #[derive(Debug, PartialEq)]
    struct Batch(usize, bool);

    impl Waits for Batch {
        fn messages(&self) -> usize {
            self.0
        }

        fn is_first(&self) -> bool {
            self.1
        }
    }

    fn requests(messages: usize, is_first: bool) -> Kept<Batch> {
        Kept::Requests(Batch(messages, is_first))
    }

    fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn answers_come_in_the_order_of_the_requests() {
        let mut in_flight = InFlight::new(s(10));
        let (answers, verdicts): (Vec<_>, Vec<_>) = (0..3).map(|_| oneshot::channel::<u32>()).unzip();
        for (number, verdict) in (1..).zip(verdicts) {
            in_flight.push(verdict, Batch(number, number == 2), s(number as u64));
        }
        assert_eq!((in_flight.messages(), in_flight.has_first(), in_flight.is_empty()), (6, true, false));
        let mut cx = Context::from_waker(Waker::noop());
        let [first, second, third] = answers.try_into().unwrap();
        second.send(20).unwrap();
        assert!(in_flight.poll_settled(&mut cx).is_pending(), "the first one has no answer");
        first.send(10).unwrap();
        for expected in [(requests(1, false), 10, s(1)), (requests(2, true), 20, s(2))] {
            let Poll::Ready(settled) = in_flight.poll_settled(&mut cx) else { panic!("{expected:?}") };
            assert_eq!((settled.kept, settled.answer.unwrap(), settled.started), expected);
        }
        assert!(in_flight.poll_settled(&mut cx).is_pending());
        assert_eq!((in_flight.messages(), in_flight.has_first()), (3, false));
        drop(third);
        let Poll::Ready(settled) = in_flight.poll_settled(&mut cx) else { panic!() };
        assert!(settled.answer.is_err() && in_flight.is_empty());
        assert!(in_flight.poll_settled(&mut cx).is_pending(), "nothing waits");
    }

    #[test]
    fn what_takes_too_long_is_given_back() {
        let mut in_flight: InFlight<(), Batch> = InFlight::new(s(10));
        assert_eq!(in_flight.patience(s(0)), None);
        in_flight.push((), Batch(1, false), s(1));
        in_flight.await_room((), s(2));
        in_flight.push((), Batch(2, false), s(3));
        assert_eq!((in_flight.patience(s(4)), in_flight.take_overdue(s(10))), (Some(s(7)), None));
        assert_eq!(in_flight.take_overdue(s(11)), Some(requests(1, false)));
        assert_eq!((in_flight.take_overdue(s(11)), in_flight.is_full(9)), (None, true));
        assert_eq!((in_flight.take_overdue(s(12)), in_flight.is_full(9)), (Some(Kept::Room), false));
        assert_eq!(in_flight.take_overdue(s(20)), Some(requests(2, false)));
        assert!(in_flight.is_empty() && !in_flight.is_full(1));
    }

    #[tokio::test]
    async fn a_sender_of_what_nobody_waits_for_stops_while_there_is_no_room() {
        let mut in_flight: InFlight<Ready<Result<(), ()>>, Batch> = InFlight::new(s(10));
        assert!(!in_flight.looks_for_room(), "nothing was sent");
        in_flight.appended(true);
        assert!(!in_flight.looks_for_room(), "its sender waits for the answer");
        in_flight.appended(false);
        assert!(in_flight.looks_for_room() && !in_flight.is_full(5));
        in_flight.await_room(ready(Ok(())), s(0));
        assert!(in_flight.is_full(5) && !in_flight.looks_for_room() && in_flight.messages() == 0);
        assert_eq!(poll_fn(|cx| in_flight.poll_settled(cx)).await.kept, Kept::Room);
        assert!(!in_flight.is_full(5) && in_flight.is_empty());
        in_flight.push(ready(Ok(())), Batch(5, false), s(0));
        assert!(in_flight.is_full(5) && !in_flight.is_full(6));
    }
}
