//! The future that resolves when a change is durable or refused.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use millstream_http::Problem;
use millstream_log::{Appended, Reply};

use super::{SessionView, StoreAnswer};
use crate::refusal::not_taken;

/// The answer of the log, or of a tenant's owner.
pub(crate) enum StoreReply {
    Log(Reply<Appended>),
    /// The same, for messages that it got twice; the first is taken out when it has come.
    Both(Option<Reply<Appended>>, Reply<Appended>),
    /// There is room in the log.
    Room(Reply<()>),
    Owner(millstream_view::Answer<SessionView>),
    /// It was refused at once.
    Refused(Option<millstream_view::Error>),
}

impl StoreReply {
    pub(crate) fn of(answer: Result<millstream_view::Answer<SessionView>, millstream_view::Error>) -> Self {
        answer.map_or_else(|error| Self::Refused(Some(error)), Self::Owner)
    }
}

impl Future for StoreReply {
    type Output = Result<StoreAnswer, Problem>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let stopped = || millstream_view::Error::Stopped;
        let problem = |error: millstream_view::Error| Problem::from_error(error.code(), &error);
        if let Self::Both(first, _) = &mut *self
            && let Some(reply) = first
        {
            match Pin::new(reply).poll(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(not_taken(&error))),
                Poll::Ready(Ok(_)) => *first = None,
            }
        }
        match &mut *self {
            Self::Log(reply) | Self::Both(_, reply) => Pin::new(reply)
                .poll(cx)
                .map(|answer| answer.map(|_| StoreAnswer::Done).map_err(|error| not_taken(&error))),
            Self::Room(reply) => Pin::new(reply)
                .poll(cx)
                .map(|answer| answer.map(|()| StoreAnswer::Done).map_err(|error| not_taken(&error))),
            Self::Owner(answer) => {
                Pin::new(answer).poll(cx).map(|answer| answer.unwrap_or_else(|_| Err(stopped())).map_err(problem))
            }
            Self::Refused(error) => Poll::Ready(Err(problem(error.take().unwrap_or_else(stopped)))),
        }
    }
}

#[cfg(test)]
mod tests {
    use millstream_log::{Error, reply};
    use millstream_types::{Epoch, Offset};
    use std::task::Waker;

    use super::*;

    #[test]
    fn a_message_in_two_appends_is_accepted_only_if_both_are_stored() {
        let appended = || Ok(Appended { first: Offset(0), last: Offset(0), epoch: Epoch(0) });
        let stopped = || Err(Error::Stopped);
        let mut cx = Context::from_waker(Waker::noop());
        for is_first_late in [true, false] {
            let ((one, first), (other, second)) = (reply(), reply());
            let mut both = StoreReply::Both(Some(first), second);
            let (early, late) = if is_first_late { (other, one) } else { (one, other) };
            assert!(Pin::new(&mut both).poll(&mut cx).is_pending());
            early.finish(appended());
            assert!(Pin::new(&mut both).poll(&mut cx).is_pending());
            late.finish(appended());
            assert!(matches!(Pin::new(&mut both).poll(&mut cx), Poll::Ready(Ok(StoreAnswer::Done))));
        }
        for (of_first, of_second) in [(stopped(), appended()), (appended(), stopped())] {
            let ((one, first), (other, second)) = (reply(), reply());
            let mut both = StoreReply::Both(Some(first), second);
            one.finish(of_first);
            other.finish(of_second);
            assert!(matches!(Pin::new(&mut both).poll(&mut cx), Poll::Ready(Err(_))));
        }
    }
}
