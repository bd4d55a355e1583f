//! A request as the handler of a route sees it ([`Route`](crate::Route)'s `answered_by`), and the handler's answers.

use std::borrow::Cow;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::http::Method;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use millstream_types::{MemoryBudget, Principal};
use tokio::time::Instant;

use crate::context::{MoreTime, RequestTime, Shutdown};
use crate::extract::{FromPath, Params};
use crate::head::{Headers, RequestHead};
use crate::path_params::PathParams;
use crate::{AnswerMemory, BodyStream, Identity, Problem, TraceContext};

/// An answer that is awaited; every future of a response is one. It is dropped early if its client leaves.
pub trait LaterAnswer: Send {
    /// Polls for the answer to the request.
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Response>;

    /// The end of the wait, if it has one of its own beside the request's deadline. It needs no timer of its own.
    fn due(&self) -> Option<Instant> {
        None
    }

    /// The answer if there is none when the wait ends at [`LaterAnswer::due`].
    fn give_up(&self) -> Response {
        Problem::internal("a wait without an end of its own has ended").into_response()
    }
}

impl<F: Future<Output = Response> + Send> LaterAnswer for F {
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Response> {
        Future::poll(self, cx)
    }
}

/// The answer of a handler.
pub enum Answer {
    /// The answer, with its whole body.
    Ready(Response),
    /// An answer that is awaited, and then has its whole body.
    Later(Pin<Box<dyn LaterAnswer>>),
    /// The handler is to be called again with the body. It has neither changed nor counted anything.
    AwaitBody,
    /// The function is to be called with the body as it arrives; its answer may have a body that is produced while it is
    /// sent. The handler has neither changed nor counted anything. Only hyper's head serves this.
    Stream(StreamHandler),
}

/// The end of a handler that takes or answers a body as a stream ([`Answer::Stream`]).
pub type StreamHandler = Box<dyn FnOnce(BodyStream) -> Pin<Box<dyn LaterAnswer>> + Send>;

impl Answer {
    /// The answer that the future of `handler` resolves to; it is given the body as it arrives.
    pub fn stream<F>(handler: impl FnOnce(BodyStream) -> F + Send + 'static) -> Self
    where
        F: Future<Output = Response> + Send + 'static,
    {
        Self::Stream(Box::new(move |body| Box::pin(handler(body))))
    }

    /// The answer that `future` resolves to.
    pub fn later(future: impl Future<Output = Response> + Send + 'static) -> Self {
        Self::Later(Box::pin(future))
    }
}

impl From<Problem> for Answer {
    fn from(problem: Problem) -> Self {
        Self::Ready(problem.into_response())
    }
}

impl From<Response> for Answer {
    fn from(response: Response) -> Self {
        Self::Ready(response)
    }
}

/// The reason why a request's body is not at hand.
#[derive(Debug)]
pub enum Unread {
    /// The body has not been read; the handler answers [`Answer::AwaitBody`].
    Awaited,
    /// The body cannot be read, or what was read is refused.
    Refused(Problem),
}

impl From<Problem> for Unread {
    fn from(problem: Problem) -> Self {
        Self::Refused(problem)
    }
}

impl From<Unread> for Answer {
    fn from(unread: Unread) -> Self {
        match unread {
            Unread::Awaited => Self::AwaitBody,
            Unread::Refused(problem) => problem.into(),
        }
    }
}

/// A body as far as it is at hand.
#[derive(Clone, Copy)]
pub(crate) enum Body<'a> {
    /// Bytes in the connection's buffer.
    Borrowed(&'a [u8]),
    /// Bytes that may be kept.
    Owned(&'a Bytes),
    Awaited,
    Unreadable(&'a Problem),
}

/// A handler of requests, whichever way they were read.
pub(crate) type Handler = Box<dyn Fn(&Request<'_>) -> Answer + Send + Sync>;

/// A request whose caller is authenticated, unless its route is public.
pub struct Request<'a> {
    pub(crate) head: RequestHead<'a>,
    pub(crate) params: &'a PathParams,
    pub(crate) body: Body<'a>,
    /// Time for which the handler has waited for the body.
    pub(crate) body_wait: Duration,
    /// `None` on a public route.
    pub(crate) identity: Option<&'a Identity>,
    pub(crate) trace: TraceContext,
    pub(crate) started: Instant,
    pub(crate) time: &'a RequestTime,
    pub(crate) shutdown: &'a Shutdown,
    /// The budget for answers, if the listener has one.
    pub(crate) memory: Option<&'a MemoryBudget>,
}

impl<'a> Request<'a> {
    /// The method; a route for GET is asked by HEAD, too.
    pub fn method(&self) -> &'a Method {
        self.head.method
    }

    /// The path of the target, without the query.
    pub fn path(&self) -> &'a str {
        self.head.path
    }

    /// The query, if the target has one.
    pub fn query(&self) -> Option<&'a str> {
        self.head.target.get(self.head.path.len() + 1..)
    }

    /// The headers of the request.
    pub fn headers(&self) -> Headers<'a> {
        self.head.headers
    }

    /// The first value of the header `name`, which is in lower case.
    pub fn header(&self, name: &str) -> Option<&'a [u8]> {
        self.head.headers.get(name)
    }

    /// The decoded path parameter at `index`.
    ///
    /// # Errors
    /// A [`Problem`] if it is not UTF-8 once decoded, or if the path has fewer parameters.
    pub fn param(&self, index: usize) -> Result<Cow<'a, str>, Problem> {
        self.params.at(self.head.path, index).map(|(_, value)| value)
    }

    /// The decoded parameters of the path, in order.
    ///
    /// # Errors
    /// A [`Problem`] that names the parameter and its value.
    pub fn params<T: FromPath>(&self) -> Result<T, Problem> {
        T::from_path(&Params { params: self.params, path: self.head.path })
    }

    /// The whole body, borrowed for the time of the request.
    ///
    /// # Errors
    /// [`Unread`] if it is still to be read, or if it cannot be read.
    pub fn body(&self) -> Result<&'a [u8], Unread> {
        match self.body {
            Body::Borrowed(bytes) => Ok(bytes),
            Body::Owned(bytes) => Ok(bytes),
            Body::Awaited => Err(Unread::Awaited),
            Body::Unreadable(problem) => Err(Unread::Refused(problem.clone())),
        }
    }

    /// The whole body, to keep. Bytes in the connection's buffer are copied.
    ///
    /// # Errors
    /// [`Unread`] if it is still to be read, or if it cannot be read.
    pub fn body_to_keep(&self) -> Result<Bytes, Unread> {
        match self.body {
            Body::Owned(bytes) => Ok(bytes.clone()),
            _ => self.body().map(Bytes::copy_from_slice),
        }
    }

    /// Time from the handler's first call, which asked for the body, to this one.
    pub fn body_wait(&self) -> Duration {
        self.body_wait
    }

    /// The authenticated caller of a route that is not public.
    ///
    /// # Errors
    /// A [`Problem`] on a public route, which has none.
    pub fn caller(&self) -> Result<&'a Arc<Principal>, Problem> {
        let identity = self.identity.ok_or_else(|| Problem::internal("a public route asks for its caller"))?;
        Ok(&identity.principal)
    }

    /// The trace context of the request.
    pub fn trace(&self) -> TraceContext {
        self.trace
    }

    /// The arrival of the request.
    pub fn started(&self) -> Instant {
        self.started
    }

    /// Takes memory for an answer that is produced while it is sent; any other answer takes it by itself.
    pub fn answer_memory(&self) -> AnswerMemory {
        AnswerMemory::new(self.memory, self.identity)
    }

    /// Extends the deadline of a request whose client has asked to wait, or that makes progress.
    pub fn more_time(&self) -> MoreTime {
        self.time.extension(self.shutdown)
    }
}

/// The fault of a handler that asks for the body although it has it.
pub(crate) fn asked_twice() -> Problem {
    Problem::internal("the handler asks for the body again")
}
