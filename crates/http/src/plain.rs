//! Plain requests: head and body have come together, and nothing in them needs more than a look.
//!
//! A route may take them by a function of its own ([`Route::plain`](crate::Route::plain)), beside its handler: they are
//! worked off where they lie, in the buffer of their thread, without header maps and futures. Whatever is not plain in the
//! narrowest sense (another header, a login that has to be waited for, a part that is late) is left to hyper and the
//! route's handler, with all that follows on its connection. Both ways end in the same answers: what refuses a request
//! before anything was done is never said here.

mod answer;
mod line;

use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::HttpBody;
use axum::http::{HeaderName, HeaderValue, Method};
use axum::response::{IntoResponse, Response};
use httparse::{Header, Status};
use millstream_types::{Grant, Principal, TenantId};
use tokio::time::Instant;

use crate::api::{Found, Served};
use crate::authenticator::tenant_of;
use crate::memory::ANSWER_FREE_BYTES;
use crate::observer::{Begun, Observed};
use crate::rim::{Origin, Rim, authorize, deadline_passed, panic_text};
use crate::route::PathParams;
use crate::{Problem, TraceContext};

pub(crate) use line::{Onward, serve};

/// A request of which a part is missing for longer is not plain: whoever is slow gets what is due to him elsewhere.
const PART_MAX: Duration = Duration::from_millis(100);
/// A request with more headers is not plain.
const HEADERS_MAX: usize = 24;

/// Headers that a plain request may have beside those that its route reads. What they say is read here, or changes
/// nothing.
const KNOWN: [&str; 11] = [
    "authorization",
    "content-length",
    "traceparent",
    "connection",
    "host",
    "content-type",
    "user-agent",
    "accept",
    "accept-encoding",
    "accept-language",
    "cache-control",
];
const CONTENT_LENGTH: usize = 1;
const TRACEPARENT: usize = 2;
const CONNECTION: usize = 3;

/// A verdict that is waited for; any future of an answer is one. Dropped before it is there, its client has left.
pub trait PlainVerdict: Send {
    /// The answer, if it is there.
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Response>;

    /// How long it is waited for, if less than the route allows.
    fn patience(&self) -> Option<Duration> {
        None
    }

    /// The answer when so much time has passed without one.
    fn give_up(&self, waited: Duration) -> Response {
        deadline_passed(waited).into_response()
    }
}

impl<F: Future<Output = Response> + Send> PlainVerdict for F {
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Response> {
        Future::poll(self, cx)
    }
}

/// What a route makes of a plain request.
pub enum PlainAnswer {
    /// It needs the route's handler; nothing has been done or counted.
    Pass,
    /// Its answer, with a body that is there as a whole. What has changed something has a short one.
    Now(Response),
    /// The same, to be waited for, without a timer of its own.
    Later(Pin<Box<dyn PlainVerdict>>),
}

/// Takes a route's plain requests.
pub(crate) struct PlainRoute {
    /// Headers that it reads, in small letters.
    pub(crate) headers: &'static [&'static str],
    pub(crate) take: Box<dyn Fn(&PlainRequest<'_>) -> PlainAnswer + Send + Sync>,
}

/// What a plain request says of its caller.
#[derive(Clone, Copy)]
pub struct PlainClaim<'a>(&'a [Header<'a>]);

impl<'a> PlainClaim<'a> {
    /// The value of a header; its name is given in small letters.
    pub fn header(self, name: &str) -> Option<&'a [u8]> {
        self.0.iter().find(|header| header.name.eq_ignore_ascii_case(name)).map(|header| header.value)
    }

    /// The tenant that its headers name.
    pub(crate) fn tenant(self) -> Result<Option<TenantId>, Problem> {
        tenant_of(|name| self.header(name))
    }
}

/// A request whose caller is known and whose body is there.
pub struct PlainRequest<'a> {
    target: &'a str,
    path: &'a str,
    params: &'a PathParams,
    headers: &'a [Header<'a>],
    /// The body.
    pub payload: &'a [u8],
    /// Who sends it.
    pub principal: &'a Arc<Principal>,
    /// The trace that it belongs to.
    pub trace: TraceContext,
}

impl<'a> PlainRequest<'a> {
    /// The request target: the path, and the query if there is one.
    pub fn target(&self) -> &'a str {
        self.target
    }

    /// The path.
    pub fn path(&self) -> &'a str {
        self.path
    }

    /// Whether the target has a query.
    pub fn has_query(&self) -> bool {
        self.path.len() < self.target.len()
    }

    /// The query, if the target has one.
    pub fn query(&self) -> Option<&'a str> {
        self.target.get(self.path.len() + 1..)
    }

    /// All headers, each once.
    pub fn headers(&self) -> impl Iterator<Item = (&'a str, &'a [u8])> {
        self.headers.iter().map(|header| (header.name, header.value))
    }

    /// The parameter of the path at `index`. Nothing in it is to be decoded.
    pub fn param(&self, index: usize) -> &'a str {
        self.params.raw(self.path, index)
    }

    /// The value of a header; its name is given in small letters.
    pub fn header(&self, name: &str) -> Option<&'a [u8]> {
        PlainClaim(self.headers).header(name)
    }
}

/// How far a look at some bytes has come.
enum Looked {
    /// They do not begin with a plain request.
    NotPlain,
    /// They may be the beginning of one.
    Partial,
    /// A request of so many bytes is answered.
    Answered(usize),
    /// A request of so many bytes is taken.
    Taken(usize, Box<Pending>),
}

/// A request that waits for its verdict.
struct Pending {
    verdict: Pin<Box<dyn PlainVerdict>>,
    /// How long it is waited for.
    patience: Duration,
    route: Arc<Served>,
    method: Method,
    origin: Origin,
    echo: Echo,
    observed: Option<Observed>,
    _memory: Option<Grant>,
}

impl Pending {
    /// When it is no longer waited for.
    fn due(&self) -> Instant {
        self.origin.started + self.patience
    }

    /// The answer when it is due.
    fn give_up(&self) -> Response {
        let longest = self.route.limits.timeout;
        if self.patience < longest {
            self.verdict.give_up(self.patience)
        } else {
            deadline_passed(longest).into_response()
        }
    }
}

/// The header that every answer of the route's group carries.
type Echo = Option<(HeaderName, HeaderValue)>;

/// What the headers of a plain request say.
#[derive(Default)]
struct Said<'a> {
    traceparent: Option<&'a [u8]>,
    body_bytes: usize,
}

impl Rim {
    /// Works off the request that `bytes` begin with, if it is plain, and adds its answer to `out`. `started`: when the
    /// bytes came.
    fn look(&self, bytes: &[u8], peer: SocketAddr, started: Instant, out: &mut Vec<u8>) -> Looked {
        let mut room = [const { MaybeUninit::uninit() }; HEADERS_MAX];
        let mut head = httparse::Request::new(&mut []);
        let head_bytes = match head.parse_with_uninit_headers(bytes, &mut room) {
            Ok(Status::Complete(head_bytes)) => head_bytes,
            Ok(Status::Partial) => return Looked::Partial,
            Err(_) => return Looked::NotPlain,
        };
        let method = match (head.method, head.version) {
            (Some("PUT"), Some(1)) => Method::PUT,
            (Some("POST"), Some(1)) => Method::POST,
            (Some("GET"), Some(1)) => Method::GET,
            (Some("PATCH"), Some(1)) => Method::PATCH,
            _ => return Looked::NotPlain,
        };
        let target = head.path.unwrap_or_default();
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        if !is_plain(path, query) || target.len() > self.limits.uri_max_bytes || head_bytes > self.limits.head_max_bytes
        {
            return Looked::NotPlain;
        }
        let Found::Route(route, params) = self.api.find(&method, path) else { return Looked::NotPlain };
        let Some((plain, role)) = route.plain.as_ref().zip(route.access.role()) else { return Looked::NotPlain };
        let Some(said) = said(head.headers, plain.headers) else { return Looked::NotPlain };
        if said.body_bytes as u64 > route.limits.body_max_bytes {
            return Looked::NotPlain;
        }
        if bytes.len() - head_bytes < said.body_bytes {
            return Looked::Partial;
        }
        let identity = self.authenticator.authenticate_plain(PlainClaim(head.headers));
        let Some(identity) = identity.filter(|identity| authorize(route.access, role, identity).is_ok()) else {
            return Looked::NotPlain;
        };
        let Ok(memory) = self.memory_for(said.body_bytes as u64) else { return Looked::NotPlain };
        let origin = Origin { peer, started, trace: TraceContext::from_header(said.traceparent) };
        let size = head_bytes + said.body_bytes;
        let payload = &bytes[head_bytes..size];
        let principal = &identity.principal;
        let request = PlainRequest {
            target,
            path,
            params: &params,
            headers: head.headers,
            payload,
            principal,
            trace: origin.trace,
        };
        let taken = catch_unwind(AssertUnwindSafe(|| (plain.take)(&request)));
        let answer =
            taken.unwrap_or_else(|panic| PlainAnswer::Now(Problem::internal(panic_text(&*panic)).into_response()));
        let echoed =
            |name: &HeaderName| request.header(name.as_str()).and_then(|value| HeaderValue::from_bytes(value).ok());
        if said.body_bytes > 0 && !matches!(answer, PlainAnswer::Pass) {
            route.metrics.request_bytes.inc_by(said.body_bytes as u64);
        }
        let begun = || {
            let observer = route.group.observer.as_ref()?;
            let headers = &|name: &str| request.header(name);
            let tenant = &principal.tenant;
            let begun = Begun { tenant, method: &method, target, peer, trace: origin.trace, headers };
            let request_bytes = said.body_bytes as u64;
            Some(Observed { observer: observer.clone(), mark: observer.begun(&begun), request_bytes })
        };
        match answer {
            PlainAnswer::Pass => Looked::NotPlain,
            // It takes memory until its client has it, which is counted elsewhere.
            PlainAnswer::Now(response) if method.is_safe() && !is_short(&response) => Looked::NotPlain,
            PlainAnswer::Now(response) => {
                let echo = route.group.echo(echoed, origin.trace);
                let observed = begun();
                answer::answer(response, route, &method, (origin, echo, observed), out);
                Looked::Answered(size)
            }
            PlainAnswer::Later(verdict) => {
                let echo = route.group.echo(echoed, origin.trace);
                let observed = begun();
                let longest = route.limits.timeout;
                let patience = verdict.patience().map_or(longest, |own| own.min(longest));
                let route = route.clone();
                let pending = Pending { verdict, patience, route, method, origin, echo, observed, _memory: memory };
                Looked::Taken(size, Box::new(pending))
            }
        }
    }
}

/// Whether a path needs no decoding, and neither it nor the query has a character that a URI may not have.
fn is_plain(path: &str, query: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~:@!$&'()*+,;=".contains(&byte);
    path.starts_with('/') && path.bytes().all(is_plain) && query.bytes().all(|byte| is_plain(byte) || byte == b'%')
}

/// Whether an answer fits into what its connection counts as.
fn is_short(response: &Response) -> bool {
    response.body().size_hint().exact().is_some_and(|size| size <= ANSWER_FREE_BYTES)
}

/// What the headers say; `None` if one is not known, stands twice, or asks for more than a plain answer.
fn said<'a>(headers: &[Header<'a>], of_route: &[&str]) -> Option<Said<'a>> {
    let mut said = Said::default();
    let mut seen = 0_u64;
    for header in headers {
        let is_it = |name: &&str| name.eq_ignore_ascii_case(header.name);
        let at = KNOWN.iter().chain(of_route).position(is_it)?;
        let bit = 1_u64.checked_shl(at as u32)?;
        if seen & bit != 0 {
            return None;
        }
        seen |= bit;
        match at {
            CONTENT_LENGTH => said.body_bytes = length(header.value)?,
            TRACEPARENT => said.traceparent = Some(header.value),
            CONNECTION if !header.value.eq_ignore_ascii_case(b"keep-alive") => return None,
            _ => {}
        }
    }
    Some(said)
}

/// A length of few digits, as one writes it.
fn length(digits: &[u8]) -> Option<usize> {
    let is_number = (1..=9).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit);
    is_number.then(|| digits.iter().fold(0, |number, digit| number * 10 + usize::from(digit - b'0')))
}
