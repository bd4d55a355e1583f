//! What a change that has to be durable is answered with: a future.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use millstream_http::Problem;
use millstream_log::{Appended, Reply};

use super::{Answer, KeptView};
use crate::refusal::not_taken;

/// The answer of the log, or of a tenant's owner.
pub(crate) enum Verdict {
    Log(Reply<Appended>),
    /// There is room in the log.
    Room(Reply<()>),
    Owner(millstream_view::Answer<KeptView>),
    /// It was refused at once.
    Refused(Option<millstream_view::Error>),
}

impl Verdict {
    pub(crate) fn of(answer: Result<millstream_view::Answer<KeptView>, millstream_view::Error>) -> Self {
        answer.map_or_else(|error| Self::Refused(Some(error)), Self::Owner)
    }
}

impl Future for Verdict {
    type Output = Result<Answer, Problem>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let stopped = || millstream_view::Error::Stopped;
        let problem = |error: millstream_view::Error| Problem::from_error(error.code(), &error);
        match &mut *self {
            Self::Log(reply) => {
                Pin::new(reply).poll(cx).map(|answer| answer.map(|_| Answer::Done).map_err(|error| not_taken(&error)))
            }
            Self::Room(reply) => {
                Pin::new(reply).poll(cx).map(|answer| answer.map(|()| Answer::Done).map_err(|error| not_taken(&error)))
            }
            Self::Owner(answer) => {
                Pin::new(answer).poll(cx).map(|answer| answer.unwrap_or_else(|_| Err(stopped())).map_err(problem))
            }
            Self::Refused(error) => Poll::Ready(Err(problem(error.take().unwrap_or_else(stopped)))),
        }
    }
}
