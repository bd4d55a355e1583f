//! Observers of requests: called when a request's caller is known, and with its answer.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::body::HttpBody;
use axum::http::Method;
use axum::response::Response;
use millstream_types::TenantId;
use tokio::time::Instant;

use crate::TraceContext;
use crate::head::Headers;

/// Observes the requests of a group of routes. Many threads call it for every request,
/// so it must not block.
pub trait Observer: Send + Sync {
    /// Reports an authorized request. The returned mark is passed back with the answer.
    fn begun(&self, request: &Begun<'_>) -> Mark;

    /// Reports the answer. Not called if the client leaves first.
    fn ended(&self, mark: Mark, answer: &Ended<'_>);
}

/// The observer's note of a request until its answer.
#[derive(Debug, Clone, Copy)]
pub struct Mark {
    /// The index of the observer's counter.
    pub number: u32,
    /// The client: the peer, or the client that a proxy names.
    pub client: IpAddr,
}

/// A request whose handling begins.
pub struct Begun<'a> {
    /// The tenant of the request.
    pub tenant: &'a TenantId,
    /// The HTTP method of the request.
    pub method: &'a Method,
    /// The request target: the path, and the query if there is one.
    pub target: &'a str,
    /// The other end of the connection.
    pub peer: SocketAddr,
    /// The trace context of the request.
    pub trace: TraceContext,
    pub(crate) headers: Headers<'a>,
}

impl<'a> Begun<'a> {
    /// The value of the header `name`, which is in lower case.
    pub fn header(&self, name: &str) -> Option<&'a [u8]> {
        self.headers.get(name)
    }
}

/// The answer to a request.
#[derive(Debug, Clone, Copy)]
pub struct Ended<'a> {
    /// The HTTP method of the request.
    pub method: &'a Method,
    /// The path of its route as it was declared, with the names of its parameters.
    pub route: &'a str,
    /// The status code of the answer.
    pub status: u16,
    /// Bytes of the request's body, as announced.
    pub request_bytes: u64,
    /// Bytes of the answer's body; 0 if unknown.
    pub answer_bytes: u64,
    /// Time from the request's head to the answer's head.
    pub took: Duration,
}

/// A request that was reported to an observer.
pub(crate) struct ObservedRequest {
    pub(crate) observer: Arc<dyn Observer>,
    pub(crate) mark: Mark,
    pub(crate) request_bytes: u64,
}

impl ObservedRequest {
    /// Reports the answer to the observer.
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
