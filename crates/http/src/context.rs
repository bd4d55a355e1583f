//! The state of one request, and the extractors that give handlers access to it.

use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::extract::{FromRequestParts, OptionalFromRequestParts};
use axum::http::request::Parts;
use millstream_net::{PendingLogin, Revocation, TlsSession};
use millstream_types::{MemoryBudget, Principal};
use tokio::time::Instant;

use crate::path_params::PathParams;
use crate::problem::deadline_passed;
use crate::{AnswerMemory, Identity, Limits, Problem, Reach, Reason, TraceContext};

/// The header with which a client shortens the deadline: milliseconds, or a number with `ms`, `s` or `m`.
pub const REQUEST_TIMEOUT_HEADER: &str = "request-timeout";

/// The other end of a connection.
#[derive(Debug, Clone)]
pub(crate) struct ConnectionPeer {
    pub(crate) peer: SocketAddr,
    pub(crate) tls: TlsSession,
    pub(crate) login: PendingLogin,
}

/// The state of one request, shared by the pipeline and the handler's extractors.
pub(crate) struct RequestContext {
    pub(crate) identity: OnceLock<Identity>,
    pub(crate) time: RequestTime,
    pub(crate) trace: TraceContext,
    pub(crate) params: PathParams,
    pub(crate) limits: Limits,
    pub(crate) client: ConnectionPeer,
    pub(crate) shutdown: Shutdown,
    pub(crate) memory: Option<MemoryBudget>,
}

/// The time that a request may take.
#[derive(Debug)]
pub(crate) struct RequestTime {
    started: Instant,
    deadline: Deadline,
    /// Set if the handler asks for more time.
    extension: OnceLock<MoreTime>,
    reading_body: AtomicBool,
}

impl RequestTime {
    /// The route's timeout after `started`, or the client's if that is shorter; `wanted` is its header.
    pub(crate) fn new(started: Instant, route: Duration, wanted: Option<&[u8]>) -> Result<Self, Problem> {
        let deadline = Deadline::new(started, route, wanted)?;
        Ok(Self { started, deadline, extension: OnceLock::new(), reading_body: AtomicBool::new(false) })
    }

    /// The arrival of the request.
    pub(crate) fn started(&self) -> Instant {
        self.started
    }

    /// Records whether the body is awaited, so that a refusal at the deadline can say so.
    pub(crate) fn set_reading_body(&self, reading: bool) {
        self.reading_body.store(reading, Ordering::Relaxed);
    }

    /// The current deadline, with all extensions.
    pub(crate) fn due(&self) -> Instant {
        let first = self.deadline.instant();
        let granted = self.extension.get().map_or(Duration::ZERO, MoreTime::granted);
        first.checked_add(granted).unwrap_or(first)
    }

    /// The extension of the deadline, which the first call makes.
    pub(crate) fn extension(&self, shutdown: &Shutdown) -> MoreTime {
        let new = || {
            MoreTime(Arc::new(Extension {
                first: self.deadline.instant(),
                granted_ms: AtomicU64::new(0),
                shutdown: shutdown.clone(),
            }))
        };
        self.extension.get_or_init(new).clone()
    }

    /// The refusal of a request that has reached its deadline.
    pub(crate) fn too_late(&self) -> Problem {
        let waited = self.due().duration_since(self.started);
        if self.reading_body.load(Ordering::Relaxed) {
            let waited_ms = waited.as_millis();
            return Problem::new(Reason::SlowBody, format!("the body was not complete after {waited_ms} ms"))
                .value(format!("{waited_ms} ms"))
                .rule("the body arrives before the request's deadline; nothing was done")
                .remedy("send it faster, or in smaller parts");
        }
        deadline_passed(waited)
    }
}

pub(crate) fn context(parts: &Parts) -> Result<&Arc<RequestContext>, Problem> {
    parts.extensions.get().ok_or_else(|| Problem::internal("the handler is not served through Api"))
}

/// Extractor for the authenticated caller; public routes have none and refuse it. Routes with
/// [`Access::OptionalLogin`](crate::Access::OptionalLogin) take it as an `Option`.
#[derive(Debug, Clone)]
pub struct Caller(Identity);

impl Caller {
    /// The principal as a shared value.
    pub fn principal(&self) -> &Arc<Principal> {
        &self.0.principal
    }

    /// The tenants in which the caller has its roles.
    pub fn reach(&self) -> Reach {
        self.0.reach
    }
}

impl Deref for Caller {
    type Target = Principal;

    fn deref(&self) -> &Principal {
        &self.0.principal
    }
}

impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let identity = context(parts)?.identity.get();
        identity.cloned().map(Self).ok_or_else(|| Problem::internal("a public route asks for its caller"))
    }
}

impl<S: Sync> OptionalFromRequestParts<S> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, Problem> {
        Ok(context(parts)?.identity.get().cloned().map(Self))
    }
}

/// Extractor for the time at which the pipeline drops the handler. Work that goes on elsewhere
/// checks it before it starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deadline(Instant);

impl Deadline {
    fn new(started: Instant, route: Duration, wanted: Option<&[u8]>) -> Result<Self, Problem> {
        let Some(wanted) = wanted else { return Ok(Self(started + route)) };
        let timeout = std::str::from_utf8(wanted).ok().and_then(parse_timeout).ok_or_else(|| {
            Problem::new(Reason::MalformedParameter, "header Request-Timeout is no duration")
                .value(String::from_utf8_lossy(wanted))
                .rule("milliseconds, or a number with ms, s or m")
                .remedy("send for example 500 or 2s, or leave it out")
        })?;
        Ok(Self(started + timeout.min(route)))
    }

    /// The deadline as an instant.
    pub fn instant(self) -> Instant {
        self.0
    }

    /// Time left; zero once it has passed.
    pub fn remaining(self) -> Duration {
        self.0.saturating_duration_since(Instant::now())
    }

    /// Returns `true` if the deadline has passed.
    pub fn has_passed(self) -> bool {
        self.remaining().is_zero()
    }
}

fn parse_timeout(text: &str) -> Option<Duration> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let count: u64 = digits.trim_end().parse().ok()?;
    let unit_ms = match &text[digits.len()..] {
        "" | "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        _ => return None,
    };
    count.checked_mul(unit_ms).map(Duration::from_millis)
}

/// Extractor that extends the deadline of a request whose client has asked to wait, or that makes progress.
#[derive(Clone)]
pub struct MoreTime(Arc<Extension>);

struct Extension {
    /// The deadline without any extension.
    first: Instant,
    /// Time by which the handler has extended the deadline, ms.
    granted_ms: AtomicU64,
    shutdown: Shutdown,
}

impl std::fmt::Debug for MoreTime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "MoreTime({:?})", self.granted())
    }
}

impl MoreTime {
    fn granted(&self) -> Duration {
        Duration::from_millis(self.0.granted_ms.load(Ordering::Relaxed))
    }

    /// Moves the deadline to `time` from now, unless it is later already. For work that makes progress.
    pub fn at_least(&self, time: Duration) {
        let until = Instant::now() + time;
        let lacking = until.saturating_duration_since(self.0.first);
        self.0.granted_ms.fetch_max(u64::try_from(lacking.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Extends the deadline by `time`, and resolves when `time` has passed or the listener begins to stop.
    /// [`Deadline`] keeps the original deadline.
    pub async fn wait(&self, time: Duration) {
        let time_ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        self.0.granted_ms.fetch_add(time_ms, Ordering::Relaxed);
        tokio::select! {
            () = tokio::time::sleep(time) => {}
            () = self.0.shutdown.clone().begun() => {}
        }
    }
}

/// Extractor that tells a long answer when to end: the listener stops, or the caller's login has ended.
#[derive(Debug, Clone)]
pub struct Shutdown {
    listener: millstream_net::Shutdown,
    login: Option<Revocation>,
}

impl Shutdown {
    pub(crate) fn of_listener(listener: millstream_net::Shutdown) -> Self {
        Self { listener, login: None }
    }

    /// The signal for a request of this caller.
    fn of_caller(&self, caller: Option<&Identity>) -> Self {
        let login = caller.and_then(|identity| identity.revocation.clone());
        Self { listener: self.listener.clone(), login }
    }

    /// Resolves when the listener has begun to stop or the login has ended.
    pub async fn begun(self) {
        match self.login {
            None => self.listener.begun().await,
            Some(login) => tokio::select! {
                () = self.listener.begun() => {}
                () = login.revoked() => {}
            },
        }
    }

    /// Returns `true` if the listener has begun to stop or the login has ended.
    pub fn has_begun(&self) -> bool {
        self.listener.has_begun() || self.login.as_ref().is_some_and(Revocation::is_revoked)
    }
}

/// Extractor for the client's socket address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer(pub SocketAddr);

/// Extractor for the TLS of the client's connection.
#[derive(Debug, Clone)]
pub struct Tls(pub TlsSession);

impl<S: Sync> FromRequestParts<S> for Deadline {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        Ok(context(parts)?.time.deadline)
    }
}

impl<S: Sync> FromRequestParts<S> for MoreTime {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let context = context(parts)?;
        Ok(context.time.extension(&context.shutdown.of_caller(context.identity.get())))
    }
}

impl<S: Sync> FromRequestParts<S> for TraceContext {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        Ok(context(parts)?.trace)
    }
}

impl<S: Sync> FromRequestParts<S> for Shutdown {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let context = context(parts)?;
        Ok(context.shutdown.of_caller(context.identity.get()))
    }
}

impl<S: Sync> FromRequestParts<S> for Peer {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        Ok(Self(context(parts)?.client.peer))
    }
}

impl<S: Sync> FromRequestParts<S> for Tls {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        Ok(Self(context(parts)?.client.tls.clone()))
    }
}

impl<S: Sync> FromRequestParts<S> for AnswerMemory {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let context = context(parts)?;
        Ok(Self::new(context.memory.as_ref(), context.identity.get()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_moves_the_deadline_and_never_back() {
        let started = Instant::now();
        let time = RequestTime::new(started, Duration::from_secs(2), None).unwrap();
        let (first, second) = (Duration::from_secs(100), Duration::from_secs(50));
        let more = time.extension(&Shutdown::of_listener(millstream_net::Shutdown::never()));
        more.at_least(first);
        let due = time.due();
        assert!(due + Duration::from_millis(1) >= started + first && due <= Instant::now() + first);
        more.at_least(second);
        assert_eq!(time.due(), due);
    }

    #[test]
    fn a_timeout_is_milliseconds_or_has_a_unit() {
        for (text, expected) in [
            ("250", Some(250)),
            ("250ms", Some(250)),
            ("2s", Some(2_000)),
            ("1m", Some(60_000)),
            ("", None),
            ("s", None),
            ("-1", None),
            ("1h", None),
            ("1.5", None),
            ("18446744073709551615m", None),
        ] {
            assert_eq!(parse_timeout(text), expected.map(Duration::from_millis), "{text}");
        }
    }
}
