//! The head that reads requests from the connection's buffer, without hyper, header maps and copies.
//!
//! It takes a request of a route with a handler of its own ([`Endpoint::Handler`]) that arrives whole and that httparse
//! can frame. It leaves to hyper, with all later requests of the connection: a request with a header that changes its
//! framing, a body that is too large for the buffer or the route, a login that must be awaited, a long answer to a
//! read, a handler that takes or answers a stream, an unusual target, and every other route.

mod connection;
mod response;

use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::HttpBody;
use axum::http::{Method, Version};
use axum::response::{IntoResponse, Response};
use httparse::{Header, Status};
use millstream_types::Grant;
use tokio::time::Instant;

use crate::api::{MountedRoute, RouteMatch};
use crate::authenticator::Verdict;
use crate::context::{ConnectionPeer, RequestTime};
use crate::exchange::{Exchange, RequestOrigin, guarded};
use crate::head::{Headers, RequestHead};
use crate::memory::{ANSWER_FREE_BYTES, ResponseMemory};
use crate::path_params::PathParams;
use crate::pipeline::{Pipeline, authorize, log_in, observe};
use crate::request::{Answer, Body, Handler, LaterAnswer, Request, asked_twice};
use crate::route::Endpoint;
use crate::{Identity, Problem, TraceContext};

pub(crate) use connection::{AfterFastHead, serve};

/// A request with a part that is missing for longer is left to hyper, whose timeouts apply to it.
const PART_MAX: Duration = Duration::from_millis(100);
/// A request with more headers is left to hyper.
const HEADERS_MAX: usize = 48;
/// Size of the read buffer, and longest request, head and body together.
const READ_BYTES: usize = 16 << 10;

/// Headers that change the framing of a request or of its connection.
const FRAMING: [&str; 5] = ["transfer-encoding", "expect", "upgrade", "te", "trailer"];

/// The result of reading a request from some bytes.
enum ReadOutcome<'p> {
    /// The bytes begin with a request that hyper has to read.
    ForHyper,
    /// The bytes may be the beginning of a request.
    Partial,
    /// A request of this many bytes is answered; the memory is held until its answer is sent.
    Answered(usize, Option<ResponseMemory>),
    /// A request of this many bytes waits for its answer.
    Pending(usize, Box<Pending<'p>>),
}

/// A request whose answer is awaited.
struct Pending<'p> {
    later: Pin<Box<dyn LaterAnswer>>,
    time: RequestTime,
    exchange: Exchange<'p>,
    _memory: Option<Grant>,
}

/// A matched request that arrived whole.
struct Whole<'p, 'b> {
    route: &'p Arc<MountedRoute>,
    handler: &'p Handler,
    params: PathParams,
    head: RequestHead<'b>,
    body: &'b [u8],
    /// Bytes of head and body.
    size: usize,
    origin: RequestOrigin,
    client: &'p ConnectionPeer,
}

impl Pipeline {
    /// Serves the request at the beginning of `bytes` and appends its
    /// answer to `out`. `started` is the time at which the bytes arrived.
    fn serve_first<'p>(
        &'p self,
        bytes: &[u8],
        client: &'p ConnectionPeer,
        started: Instant,
        out: &mut Vec<u8>,
    ) -> ReadOutcome<'p> {
        let mut room = [const { MaybeUninit::uninit() }; HEADERS_MAX];
        let mut parsed = httparse::Request::new(&mut []);
        let head_bytes = match parsed.parse_with_uninit_headers(bytes, &mut room) {
            Ok(Status::Complete(head_bytes)) => head_bytes,
            Ok(Status::Partial) => return ReadOutcome::Partial,
            Err(_) => return ReadOutcome::ForHyper,
        };
        let method = match (parsed.method, parsed.version) {
            (Some("PUT"), Some(1)) => Method::PUT,
            (Some("POST"), Some(1)) => Method::POST,
            (Some("GET"), Some(1)) => Method::GET,
            (Some("PATCH"), Some(1)) => Method::PATCH,
            (Some("DELETE"), Some(1)) => Method::DELETE,
            _ => return ReadOutcome::ForHyper,
        };
        let target = parsed.path.unwrap_or_default();
        let path = target.split_once('?').map_or(target, |(path, _)| path);
        let Some(body_bytes) = body_length(parsed.headers).filter(|_| is_usual(target)) else {
            return ReadOutcome::ForHyper;
        };
        let size = head_bytes + body_bytes;
        let RouteMatch::Route(route, params) = self.api.find(&method, path) else { return ReadOutcome::ForHyper };
        let Endpoint::Handler(handler) = &route.endpoint else { return ReadOutcome::ForHyper };
        if route.is_audited {
            return ReadOutcome::ForHyper;
        }
        if size > READ_BYTES || body_bytes as u64 > route.limits.body_max_bytes {
            return ReadOutcome::ForHyper;
        }
        let Some(body) = bytes.get(head_bytes..size) else { return ReadOutcome::Partial };
        let headers = Headers::from(&*parsed.headers);
        let head = RequestHead { method: &method, version: Version::HTTP_11, target, path, headers };
        let origin = RequestOrigin { peer: client.peer, started, trace: TraceContext::of(headers) };
        self.serve_whole(Whole { route, handler, params, head, body, size, origin, client }, out)
    }

    fn serve_whole<'p>(&'p self, request: Whole<'p, '_>, out: &mut Vec<u8>) -> ReadOutcome<'p> {
        let Whole { route, handler, params, head, body, size, origin, client } = request;
        let mut conclude = |exchange: Exchange<'_>, response: Response| {
            let held = response::write_answer(self, exchange, response, origin.started, out);
            ReadOutcome::Answered(size, held)
        };
        let body_bytes = body.len() as u64;
        let time = match self.check(route, head, Some(body_bytes), origin.started) {
            Ok(time) => time,
            Err(problem) => return conclude(Exchange::new(route, head, origin), problem.into_response()),
        };
        // An exchange begins when it is certain that the request is not left to hyper.
        let begin = |identity: Option<&Identity>| {
            route.metrics.received(body_bytes);
            let mut exchange = Exchange::new(route, head, origin);
            exchange.caller = identity.map(|identity| Arc::clone(&identity.principal));
            exchange.observed = identity.and_then(|identity| observe(route, identity, head, origin, body_bytes));
            exchange
        };
        let identity = match self.identify_now(route, head, &params, client) {
            None => return ReadOutcome::ForHyper,
            Some(Ok(identity)) => identity,
            Some(Err(problem)) => return conclude(begin(None), problem.into_response()),
        };
        let identity = identity.as_ref();
        let memory = match self.memory_for(identity, body_bytes) {
            Ok(memory) => memory,
            Err(problem) => return conclude(begin(identity), problem.into_response()),
        };
        let request = Request {
            head,
            params: &params,
            body: Body::Borrowed(body),
            body_wait: Duration::ZERO,
            identity,
            trace: origin.trace,
            started: origin.started,
            time: &time,
            shutdown: &self.shutdown,
            memory: self.memory.as_ref(),
        };
        match guarded(|| handler(&request)) {
            // A long answer is sent in pieces and takes memory until then, which hyper's head sees to.
            Answer::Ready(response) if head.method.is_safe() && !is_short(&response) => ReadOutcome::ForHyper,
            Answer::Ready(response) => conclude(begin(identity), response),
            Answer::Later(later) => {
                let exchange = begin(identity);
                ReadOutcome::Pending(size, Box::new(Pending { later, time, exchange, _memory: memory }))
            }
            Answer::Stream(_) => ReadOutcome::ForHyper,
            Answer::AwaitBody => conclude(begin(identity), asked_twice().into_response()),
        }
    }

    /// The authorized caller, who is `None` on a route that needs none; `None` if the verdict must be awaited.
    fn identify_now(
        &self,
        route: &MountedRoute,
        head: RequestHead<'_>,
        params: &PathParams,
        client: &ConnectionPeer,
    ) -> Option<Result<Option<Identity>, Problem>> {
        if !route.access.authenticates(head.headers) {
            return Some(Ok(None));
        }
        let Verdict::Now(verdict) = self.authenticate(route, head, params, client) else { return None };
        Some(verdict.and_then(|identity| {
            authorize(route, &identity)?;
            log_in(&client.login, &identity)?;
            Ok(Some(identity))
        }))
    }
}

/// Returns `true` if the target begins with a path and contains only characters that a URI allows.
fn is_usual(target: &str) -> bool {
    let is_usual = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~:@!$&'()*+,;=%?".contains(&byte);
    target.starts_with('/') && target.bytes().all(is_usual)
}

/// Returns `true` if the memory of the connection covers an answer.
fn is_short(response: &Response) -> bool {
    response.body().size_hint().exact().is_some_and(|size| size <= ANSWER_FREE_BYTES)
}

/// The length of the body; `None` if hyper has to frame the request.
fn body_length(headers: &[Header<'_>]) -> Option<usize> {
    let mut body_bytes = None;
    for Header { name, value } in headers {
        let is = |known: &str| name.eq_ignore_ascii_case(known);
        if is("content-length") {
            if body_bytes.is_some() {
                return None;
            }
            body_bytes = Some(length(value)?);
        } else if FRAMING.into_iter().any(is) || (is("connection") && !value.eq_ignore_ascii_case(b"keep-alive")) {
            return None;
        }
    }
    Some(body_bytes.unwrap_or(0))
}

/// Parses a length of one to nine digits.
fn length(digits: &[u8]) -> Option<usize> {
    let is_number = (1..=9).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit);
    is_number.then(|| digits.iter().fold(0, |number, digit| number * 10 + usize::from(digit - b'0')))
}
