//! A request that a route serves, from its head to its answer: awaited within its deadline, then logged, counted and
//! reported, or counted as dropped if its client leaves first. Both heads end every request here.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::http::{HeaderName, HeaderValue, Method};
use axum::response::{IntoResponse, Response};
use millstream_types::Principal;
use tokio::time::{Instant, timeout_at};

use crate::api::{Group, MountedRoute};
use crate::audit::AuditedRequest;
use crate::context::RequestTime;
use crate::head::RequestHead;
use crate::observer::ObservedRequest;
use crate::request::LaterAnswer;
use crate::route_metrics::RouteMetrics;
use crate::{Problem, TraceContext};

/// The peer, start time and trace of a request.
#[derive(Clone, Copy)]
pub(crate) struct RequestOrigin {
    pub(crate) peer: SocketAddr,
    pub(crate) started: Instant,
    pub(crate) trace: TraceContext,
}

/// The parts of a request that its answer needs. Dropping it counts the request as dropped.
pub(crate) struct Exchange<'p> {
    route: &'p Arc<MountedRoute>,
    method: Method,
    origin: RequestOrigin,
    /// The header that the route's group adds to each answer.
    echo: Option<(HeaderName, HeaderValue)>,
    /// The page that sends the request, if the route's group has a rule for pages.
    page: Option<HeaderValue>,
    /// The caller, as far as the fast head needs it for the answer.
    pub(crate) caller: Option<Arc<Principal>>,
    pub(crate) observed: Option<ObservedRequest>,
    pub(crate) audited: Option<AuditedRequest>,
    is_answered: bool,
}

impl<'p> Exchange<'p> {
    pub(crate) fn new(route: &'p Arc<MountedRoute>, head: RequestHead<'_>, origin: RequestOrigin) -> Self {
        let echo = route.group.echo(head.headers, origin.trace);
        let page = route.group.page(head.headers);
        Self {
            route,
            method: head.method.clone(),
            origin,
            echo,
            page,
            caller: None,
            observed: None,
            audited: None,
            is_answered: false,
        }
    }

    pub(crate) fn route(&self) -> &'p Arc<MountedRoute> {
        self.route
    }

    /// Returns `true` if the request changes nothing.
    pub(crate) fn is_read(&self) -> bool {
        self.method.is_safe()
    }

    /// Completes the answer, and logs, counts and reports it.
    pub(crate) fn conclude(mut self, response: Response) -> Response {
        self.is_answered = true;
        let MountedRoute { group, path, metrics, .. } = &**self.route;
        let response = documented(self.route, response);
        let mut response = finish(response, group, &self.method, path, self.origin);
        response.headers_mut().extend(self.echo.take());
        if let Some(cors) = &group.cors {
            cors.write_answer(self.page.as_ref(), None, response.headers_mut());
        }
        count(metrics, &response, self.origin);
        if let Some(audited) = self.audited.take() {
            audited.end(&mut response);
        }
        if let Some(observed) = self.observed.take() {
            observed.end(&self.method, path, &response, self.origin.started);
        }
        response
    }
}

impl Drop for Exchange<'_> {
    /// Counts a request whose client has left before its answer.
    fn drop(&mut self) {
        if !self.is_answered {
            self.route.metrics.dropped();
        }
    }
}

/// Replaces an answer whose status the route does not document by a fault, if the API checks statuses.
fn documented(route: &MountedRoute, response: Response) -> Response {
    let status = response.status().as_u16();
    let Some(known) = route.statuses.as_ref().filter(|known| !known.contains(&status)) else { return response };
    Problem::internal(format!("the route answers {status} and documents {known:?}; add it where the route is declared"))
        .into_response()
}

/// Renders a problem in the group's style and logs the request.
pub(crate) fn finish(
    mut response: Response,
    group: &Group,
    method: &Method,
    route: &str,
    origin: RequestOrigin,
) -> Response {
    let problem = response.extensions_mut().remove::<Problem>();
    if let (Some(style), Some(problem)) = (group.style, &problem) {
        response = (style.render)(problem.clone());
        problem.write_headers(&mut response);
    }
    let status = response.status().as_u16();
    tracing::debug!(%method, route, status, trace = %origin.trace, peer = %origin.peer, "request");
    // A feature that is not there is no failure, and clients must not fill the log with it.
    if status >= 500 && status != 501 {
        let detail = || problem.as_ref().map(Problem::text).unwrap_or_default();
        let cause = problem.as_ref().and_then(Problem::cause).unwrap_or_default();
        let trace = origin.trace;
        if !matches!(status, 503 | 504) {
            tracing::error!(%method, route, status, %trace, detail = detail(), cause, "request failed");
        } else if let Some(more) = group.log_limit.admit(origin.started) {
            tracing::warn!(%method, route, status, %trace, detail = detail(), cause, more, "request not served");
        }
    }
    response
}

pub(crate) fn count(metrics: &RouteMetrics, response: &Response, origin: RequestOrigin) {
    metrics.answered(response.status().as_u16(), origin.started.elapsed().as_secs_f64());
}

/// Runs a handler; its panic becomes an answer.
pub(crate) fn guarded<T: From<Problem>>(run: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
        Problem::internal(format!("the handler panicked: {}", text.unwrap_or("no text"))).into()
    })
}

/// An awaited answer as of now.
struct Polled(Poll<Response>);

impl From<Problem> for Polled {
    fn from(problem: Problem) -> Self {
        Self(Poll::Ready(problem.into_response()))
    }
}

/// Polls for an answer; a panic in the handler becomes a problem.
pub(crate) fn poll(later: Pin<&mut (dyn LaterAnswer + '_)>, cx: &mut Context<'_>) -> Poll<Response> {
    guarded(|| Polled(later.poll(cx))).0
}

/// The end of the wait for an answer.
pub(crate) fn due(later: &dyn LaterAnswer, time: &RequestTime) -> Instant {
    later.due().map_or_else(|| time.due(), |own| own.min(time.due()))
}

/// The answer when the wait is over at `now` without one; `None` if it goes on, as the handler may have extended it.
pub(crate) fn give_up(later: &dyn LaterAnswer, time: &RequestTime, now: Instant) -> Option<Response> {
    let deadline = time.due();
    if later.due().is_some_and(|own| own <= now && own < deadline) {
        return Some(later.give_up());
    }
    (deadline <= now).then(|| time.too_late().into_response())
}

/// Waits for an answer, with a timer.
pub(crate) async fn wait(mut later: Pin<&mut (dyn LaterAnswer + '_)>, time: &RequestTime) -> Response {
    loop {
        let end = due(&*later, time);
        if let Ok(response) = timeout_at(end, poll_fn(|cx| poll(later.as_mut(), cx))).await {
            return response;
        }
        if let Some(response) = give_up(&*later, time, Instant::now().max(end)) {
            return response;
        }
    }
}
