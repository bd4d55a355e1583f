//! Who is told of a group's requests: of each when its caller is known, and of its answer.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::body::HttpBody;
use axum::http::Method;
use axum::response::Response;
use millstream_types::TenantId;
use tokio::time::Instant;

use crate::TraceContext;

/// Is told of the requests of a group of routes, on whichever way they come. Called for every request, by many threads at
/// once: it must not wait.
pub trait Observer: Send + Sync {
    /// A request begins whose caller is known and may make it. The mark that is returned comes back with the answer.
    fn begun(&self, request: &Begun<'_>) -> Mark;

    /// The answer to a request that has begun. Not called if its client leaves before.
    fn ended(&self, mark: Mark, answer: &Ended<'_>);
}

/// What an observer keeps of a request until its answer.
#[derive(Debug, Clone, Copy)]
pub struct Mark {
    /// Where it counts it.
    pub number: u32,
    /// Who has asked: the other end of the connection, or on whose behalf that asks.
    pub client: IpAddr,
}

/// A request that begins.
pub struct Begun<'a> {
    /// Whose it is.
    pub tenant: &'a TenantId,
    /// Its method.
    pub method: &'a Method,
    /// Its target: the path, and the query if there is one.
    pub target: &'a str,
    /// The other end of the connection.
    pub peer: SocketAddr,
    /// The trace that it belongs to.
    pub trace: TraceContext,
    pub(crate) headers: &'a dyn Fn(&str) -> Option<&'a [u8]>,
}

impl<'a> Begun<'a> {
    /// The value of a header; its name is given in small letters.
    pub fn header(&self, name: &str) -> Option<&'a [u8]> {
        (self.headers)(name)
    }
}

/// The answer to a request.
#[derive(Debug, Clone, Copy)]
pub struct Ended<'a> {
    /// The request's method.
    pub method: &'a Method,
    /// The path of its route as it was declared, with the names of its parameters.
    pub route: &'a str,
    /// The answer's status.
    pub status: u16,
    /// Bytes of the request's body, as announced.
    pub request_bytes: u64,
    /// Bytes of the answer's body, as far as they are known by now.
    pub answer_bytes: u64,
    /// Time from the head of the request to that of the answer.
    pub took: Duration,
}

/// A request of which an observer was told.
pub(crate) struct Observed {
    pub(crate) observer: Arc<dyn Observer>,
    pub(crate) mark: Mark,
    pub(crate) request_bytes: u64,
}

impl Observed {
    /// Tells of the answer as it goes out.
    pub(crate) fn end(self, method: &Method, route: &str, response: &Response, started: Instant) {
        let answer = Ended {
            method,
            route,
            status: response.status().as_u16(),
            request_bytes: self.request_bytes,
            answer_bytes: response.body().size_hint().exact().unwrap_or_default(),
            took: started.elapsed(),
        };
        self.observer.ended(self.mark, &answer);
    }
}
