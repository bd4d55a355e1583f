//! What the rim knows of a request, and the extractors by which a handler asks for it.

use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::extract::FromRequestParts;
use axum::http::HeaderMap;
use axum::http::request::Parts;
use millstream_types::{MemoryBudget, Principal};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::observer::Observed;
use crate::route::PathParams;
use crate::{Identity, Limits, Problem, Reach, Reason, TraceContext};

/// The header by which a client shortens the time that it will wait: milliseconds, or a number with `ms`, `s` or `m`.
pub const REQUEST_TIMEOUT_HEADER: &str = "request-timeout";

/// One for each request; shared by the rim and the handler's extractors.
pub(crate) struct Context {
    pub(crate) identity: OnceLock<Identity>,
    /// Of whom an observer was told.
    pub(crate) observed: Mutex<Option<Observed>>,
    pub(crate) deadline: Deadline,
    /// How much later the answer is due since the client has asked to wait, ms.
    pub(crate) granted_ms: AtomicU64,
    pub(crate) trace: TraceContext,
    pub(crate) params: PathParams,
    pub(crate) limits: Limits,
    pub(crate) peer: SocketAddr,
    pub(crate) shutdown: Shutdown,
    pub(crate) memory: Option<MemoryBudget>,
    pub(crate) reading_body: AtomicBool,
}

impl Context {
    /// Notes for the verdict at the deadline whether the client or the handler is the one that is waited for.
    pub(crate) fn set_reading_body(&self, reading: bool) {
        self.reading_body.store(reading, Ordering::Relaxed);
    }

    /// When the answer is due as things stand.
    pub(crate) fn due(&self) -> Instant {
        let first = self.deadline.instant();
        first.checked_add(Duration::from_millis(self.granted_ms.load(Ordering::Relaxed))).unwrap_or(first)
    }
}

pub(crate) fn context(parts: &Parts) -> Result<&Arc<Context>, Problem> {
    parts.extensions.get().ok_or_else(|| Problem::internal("the handler is not served through Api"))
}

/// The caller. An extractor; refuses on public routes, where nobody was asked.
#[derive(Debug, Clone)]
pub struct Caller(Identity);

impl Caller {
    /// The principal, to be kept or handed on.
    pub fn principal(&self) -> &Arc<Principal> {
        &self.0.principal
    }

    /// In how many tenants it has its roles.
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

/// When the answer is due. The rim drops the handler then; whoever works elsewhere for the request looks here first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deadline(Instant);

impl Deadline {
    /// `route` after `started`, or what the client asks for if that is less.
    pub(crate) fn new(started: Instant, route: Duration, headers: &HeaderMap) -> Result<Self, Problem> {
        let wanted = match headers.get(REQUEST_TIMEOUT_HEADER) {
            None => return Ok(Self(started + route)),
            Some(value) => value,
        };
        let timeout = wanted.to_str().ok().and_then(parse_timeout).ok_or_else(|| {
            Problem::new(Reason::MalformedParameter, "header Request-Timeout is no duration")
                .value(String::from_utf8_lossy(wanted.as_bytes()))
                .rule("milliseconds, or a number with ms, s or m")
                .remedy("send for example 500 or 2s, or leave it out")
        })?;
        Ok(Self(started + timeout.min(route)))
    }

    /// The moment.
    pub fn instant(self) -> Instant {
        self.0
    }

    /// Time left; zero once it has passed.
    pub fn remaining(self) -> Duration {
        self.0.saturating_duration_since(Instant::now())
    }

    /// Whether nobody waits any longer.
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

/// More time for a request whose client has asked to wait for something. An extractor.
#[derive(Clone)]
pub struct MoreTime(Arc<Context>);

impl std::fmt::Debug for MoreTime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "MoreTime({:?})", self.0.due())
    }
}

impl MoreTime {
    /// Puts the deadline off by `time`, and resolves when that has passed or the listener begins to stop. [`Deadline`]
    /// goes on to tell the first one.
    pub async fn wait(&self, time: Duration) {
        let time_ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        self.0.granted_ms.fetch_add(time_ms, Ordering::Relaxed);
        tokio::select! {
            () = tokio::time::sleep(time) => {}
            () = self.0.shutdown.clone().begun() => {}
        }
    }
}

/// How far a listener is with its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    Serving,
    Draining,
    Closing,
}

/// Tells a long answer that the listener is stopping. An extractor.
#[derive(Debug, Clone)]
pub struct Shutdown(pub(crate) watch::Receiver<Stage>);

impl Shutdown {
    /// Resolves when the listener has begun to stop.
    pub async fn begun(mut self) {
        // An error means that the listener is gone altogether.
        let _ = self.0.wait_for(|stage| *stage > Stage::Serving).await;
    }

    /// Whether the listener has begun to stop.
    pub fn has_begun(&self) -> bool {
        *self.0.borrow() > Stage::Serving
    }
}

/// The other end of the connection. An extractor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer(pub SocketAddr);

impl<S: Sync> FromRequestParts<S> for Deadline {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        Ok(context(parts)?.deadline)
    }
}

impl<S: Sync> FromRequestParts<S> for MoreTime {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        Ok(Self(context(parts)?.clone()))
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
        Ok(context(parts)?.shutdown.clone())
    }
}

impl<S: Sync> FromRequestParts<S> for Peer {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        Ok(Self(context(parts)?.peer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
