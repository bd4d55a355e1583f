//! One request, from its head to the head of its answer: found, measured, judged, handed to its handler, dropped if late.
//!
//! The order matters: what needs no work is checked first (sizes, route), then who calls, then the handler runs; all of
//! it within the deadline. Nothing is looked up by name here: routes, metrics and styles were resolved at start.

use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::extract::DefaultBodyLimit;
use axum::http::header::{ACCEPT, ALLOW, ORIGIN};
use axum::http::request::Parts;
use axum::http::{HeaderValue, Method, Request, StatusCode};
use axum::response::{Html, IntoResponse, Response};
use futures_util::FutureExt;
use http_body_util::Limited;
use millstream_types::{Grant, MemoryBudget, Role, Roles};
use parking_lot::Mutex;
use tokio::time::{Instant, timeout_at};

use crate::answer::Answer;
use crate::api::{Api, Found, Group, PathEntry, RouteMetrics, Served};
use crate::arriving::Arriving;
use crate::authenticator::{Authenticator, Claim, Verdict};
use crate::connection::Pulse;
use crate::context::{Context, Deadline, Shutdown};
use crate::extract::body_too_large;
use crate::memory::{ANSWER_FREE_BYTES, Held, no_memory};
use crate::observer::{Begun, Observed, Observer};
use crate::route::PathParams;
use crate::{Access, Identity, Limits, ListenerLimits, Problem, Reach, Reason, TraceContext};

/// From here on axum's own extractors would refuse a body that the route allows.
const AXUM_BODY_LIMIT_BYTES: u64 = 2 * 1024 * 1024;

/// What all connections of a listener share.
pub(crate) struct Rim {
    pub(crate) api: Arc<Api>,
    pub(crate) authenticator: Arc<dyn Authenticator>,
    pub(crate) limits: ListenerLimits,
    pub(crate) memory: Option<MemoryBudget>,
    pub(crate) shutdown: Shutdown,
}

/// Where a request comes from.
#[derive(Clone, Copy)]
pub(crate) struct Origin {
    pub(crate) peer: SocketAddr,
    pub(crate) started: Instant,
    pub(crate) trace: TraceContext,
}

impl Rim {
    /// Answers one request of the connection that `pulse` belongs to.
    pub(crate) async fn handle(
        &self,
        peer: SocketAddr,
        pulse: &Arc<Pulse>,
        request: Request<Arriving>,
    ) -> axum::http::Response<Answer> {
        let origin = Origin { peer, started: pulse.begin_request(), trace: TraceContext::of(request.headers()) };
        match self.api.find(request.method(), request.uri().path()) {
            Found::Route(route, params) => {
                let watch = Unanswered(&route.metrics);
                let method = request.method().clone();
                let page = route.group.cors.as_ref().and_then(|_| request.headers().get(ORIGIN).cloned());
                let echo = route.group.echo(|name| request.headers().get(name).cloned(), origin.trace);
                let (response, observed) = self.answer(route, params, origin, request).await;
                std::mem::forget(watch);
                let mut response = finish(response, &route.group, &method, &route.path, origin);
                response.headers_mut().extend(echo);
                if let Some(cors) = &route.group.cors {
                    cors.write_answer(page.as_ref(), None, response.headers_mut());
                }
                count(&route.metrics, &response, origin);
                if let Some(observed) = observed {
                    observed.end(&method, &route.path, &response, origin.started);
                }
                let held = response.extensions_mut().remove::<Held>();
                response.map(|body| Answer::of_route(body, route.clone(), pulse.clone(), held))
            }
            Found::OtherMethods(path) => {
                self.unmatched(other_method(path, &request), &path.group, &request, origin, pulse)
            }
            Found::Nothing(group) => {
                let page = self.api.stray_page.filter(|_| self.api.is_rest(group) && wants_page(&request));
                let answer = match page {
                    Some(page) => (StatusCode::NOT_FOUND, Html(page)).into_response(),
                    None => unknown_route(&request).into_response(),
                };
                self.unmatched(answer, group, &request, origin, pulse)
            }
        }
    }

    /// Finishes the refusal of a request for which there is no route.
    fn unmatched(
        &self,
        refusal: Response,
        group: &Group,
        request: &Request<Arriving>,
        origin: Origin,
        pulse: &Arc<Pulse>,
    ) -> axum::http::Response<Answer> {
        let mut response = finish(refusal, group, request.method(), request.uri().path(), origin);
        response.headers_mut().extend(group.echo(|name| request.headers().get(name).cloned(), origin.trace));
        if let Some(cors) = &group.cors {
            let methods = response.headers().get(ALLOW).filter(|_| request.method() == Method::OPTIONS).cloned();
            cors.write_answer(request.headers().get(ORIGIN), methods.as_ref(), response.headers_mut());
        }
        count(&self.api.unmatched, &response, origin);
        response.map(|body| Answer::plain(body, pulse.clone()))
    }

    async fn answer(
        &self,
        route: &Arc<Served>,
        params: PathParams,
        origin: Origin,
        request: Request<Arriving>,
    ) -> (Response, Option<Observed>) {
        let (parts, body) = request.into_parts();
        let deadline = match self.check(route, &parts, &body, origin) {
            Ok(deadline) => deadline,
            Err(problem) => return (problem.into_response(), None),
        };
        let context = Arc::new(Context {
            identity: OnceLock::new(),
            observed: Mutex::default(),
            deadline,
            granted_ms: AtomicU64::new(0),
            trace: origin.trace,
            params,
            limits: route.limits,
            peer: origin.peer,
            shutdown: self.shutdown.clone(),
            memory: self.memory.clone(),
            reading_body: AtomicBool::new(false),
        });
        let mut work = pin!(AssertUnwindSafe(self.work(route, &context, parts, body)).catch_unwind());
        let response = loop {
            let due = context.due();
            break match timeout_at(due, work.as_mut()).await {
                Ok(Ok(Ok(response))) => response,
                Ok(Ok(Err(problem))) => problem.into_response(),
                Ok(Err(panic)) => Problem::internal(panic_text(&*panic)).into_response(),
                // It was put off meanwhile.
                Err(_) if context.due() > due => continue,
                Err(_) => too_late(&context, origin).into_response(),
            };
        };
        let observed = context.observed.lock().take();
        (response, observed)
    }

    /// What can be refused before anybody waits.
    fn check(&self, route: &Served, parts: &Parts, body: &Arriving, origin: Origin) -> Result<Deadline, Problem> {
        check_head(parts, &self.limits)?;
        let announced = body.size_hint().exact();
        if let Some(size) = announced.filter(|size| *size > route.limits.body_max_bytes) {
            return Err(body_too_large(Some(size), &route.limits));
        }
        route.metrics.request_bytes.inc_by(announced.unwrap_or(0));
        Deadline::new(origin.started, route.limits.timeout, &parts.headers)
    }

    async fn work(
        &self,
        route: &Served,
        context: &Arc<Context>,
        mut parts: Parts,
        body: Arriving,
    ) -> Result<Response, Problem> {
        if let Some(role) = route.access.role() {
            let identity = self.identify(route, context, &parts).await?;
            authorize(route.access, role, &identity)?;
            if let Some(observer) = &route.group.observer {
                *context.observed.lock() = Some(observed(observer, &identity, context, (&parts, &body)));
            }
            // The context is new, nobody else has set its identity.
            let _ = context.identity.set(identity);
        }
        let size = body.size_hint().exact().unwrap_or(route.limits.body_max_bytes);
        let _memory = self.memory_for(size)?;
        let is_read = parts.method.is_safe();
        parts.extensions.insert(context.clone());
        let mut request = Request::from_parts(parts, bounded(body, &route.limits));
        if route.limits.body_max_bytes > AXUM_BODY_LIMIT_BYTES {
            DefaultBodyLimit::disable().apply(&mut request);
        }
        let response = route.endpoint.call(request).await;
        self.with_memory(route, is_read, response)
    }

    /// Counts an answer until it is gone, unless its handler has. What has changed something is answered in any case.
    fn with_memory(&self, route: &Served, is_read: bool, mut response: Response) -> Result<Response, Problem> {
        let size = response.body().size_hint().exact().unwrap_or(0);
        let counts = size > ANSWER_FREE_BYTES && response.extensions().get::<Held>().is_none();
        let Some(memory) = self.memory.as_ref().filter(|_| counts) else { return Ok(response) };
        match memory.take(size) {
            Some(grant) => drop(response.extensions_mut().insert::<Held>(Arc::new(grant))),
            None if is_read && route.access != Access::Public => return Err(no_memory("an answer", size, memory)),
            None => {}
        }
        Ok(response)
    }

    /// The memory that a body of this size takes until the request is answered; none without a body.
    pub(crate) fn memory_for(&self, size: u64) -> Result<Option<Grant>, Problem> {
        let Some(memory) = self.memory.as_ref().filter(|_| size > 0) else { return Ok(None) };
        memory.take(size).map(Some).ok_or_else(|| no_memory("a body", size, memory))
    }

    async fn identify(&self, route: &Served, context: &Context, parts: &Parts) -> Result<Identity, Problem> {
        let claim = Claim {
            method: &parts.method,
            uri: &parts.uri,
            headers: &parts.headers,
            peer: context.peer,
            params: &context.params,
            tenant_param: route.tenant_param,
        };
        match self.authenticator.authenticate(claim) {
            Verdict::Now(verdict) => verdict,
            Verdict::Later(verdict) => verdict.await,
        }
    }
}

/// Tells of a request that begins.
fn observed(
    observer: &Arc<dyn Observer>,
    identity: &Identity,
    context: &Context,
    (parts, body): (&Parts, &Arriving),
) -> Observed {
    let begun = Begun {
        tenant: &identity.principal.tenant,
        method: &parts.method,
        target: parts.uri.path_and_query().map_or("", |target| target.as_str()),
        peer: context.peer,
        trace: context.trace,
        headers: &|name| parts.headers.get(name).map(HeaderValue::as_bytes),
    };
    let request_bytes = body.size_hint().exact().unwrap_or_default();
    Observed { observer: observer.clone(), mark: observer.begun(&begun), request_bytes }
}

fn check_head(parts: &Parts, limits: &ListenerLimits) -> Result<(), Problem> {
    let uri_bytes = parts.uri.path_and_query().map_or(0, |target| target.as_str().len());
    if uri_bytes > limits.uri_max_bytes {
        return Err(Problem::new(Reason::UriTooLong, format!("a request target of {uri_bytes} bytes is too long"))
            .value(uri_bytes)
            .rule(format!("http.uri_max_bytes = {}", limits.uri_max_bytes))
            .remedy("put what is long into the body, or raise the limit"));
    }
    let head_bytes: usize = parts.headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
    if head_bytes > limits.head_max_bytes {
        return Err(Problem::new(Reason::HeadTooLarge, format!("headers of {head_bytes} bytes are too large"))
            .value(head_bytes)
            .rule(format!("http.head_max_bytes = {}", limits.head_max_bytes))
            .remedy("send fewer or shorter headers, or raise the limit"));
    }
    Ok(())
}

pub(crate) fn authorize(access: Access, role: Role, identity: &Identity) -> Result<(), Problem> {
    let principal = &identity.principal;
    if !principal.roles.has(role) {
        let wanted = format!("{role:?}").to_lowercase();
        return Err(Problem::forbidden(format!("'{}' lacks a role in tenant '{}'", principal.name, principal.tenant))
            .value(role_names(principal.roles))
            .rule(format!("this route is for callers with role '{wanted}'"))
            .remedy("use credentials that have it"));
    }
    if matches!(access, Access::Operator(_)) && identity.reach == Reach::OneTenant {
        return Err(Problem::forbidden(format!("'{}' acts in tenant '{}' only", principal.name, principal.tenant))
            .value(&principal.tenant)
            .rule("this route concerns every tenant")
            .remedy("use a token that is good for tenant '*'"));
    }
    Ok(())
}

fn role_names(roles: Roles) -> String {
    let all = [Role::Reader, Role::Writer, Role::Admin, Role::Device];
    let names: Vec<String> =
        all.into_iter().filter(|role| roles.has(*role)).map(|role| format!("{role:?}").to_lowercase()).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

/// A body of announced length was already checked, and hyper reads no more than that; others are cut off at the limit.
fn bounded(body: Arriving, limits: &Limits) -> Body {
    if body.is_end_stream() {
        return Body::empty();
    }
    if body.size_hint().exact().is_some() {
        return Body::new(body);
    }
    Body::new(Limited::new(body, usize::try_from(limits.body_max_bytes).unwrap_or(usize::MAX)))
}

fn too_late(context: &Context, origin: Origin) -> Problem {
    let waited = context.due().duration_since(origin.started);
    let waited_ms = waited.as_millis();
    if context.reading_body.load(Ordering::Relaxed) {
        return Problem::new(Reason::SlowBody, format!("the body was not complete after {waited_ms} ms"))
            .value(format!("{waited_ms} ms"))
            .rule("the body arrives before the request's deadline; nothing was done")
            .remedy("send it faster, or in smaller parts");
    }
    deadline_passed(waited)
}

/// The refusal of a request whose handler has not answered in time.
pub fn deadline_passed(waited: Duration) -> Problem {
    let waited_ms = waited.as_millis();
    Problem::new(Reason::DeadlinePassed, format!("no verdict in time: {waited_ms} ms have passed"))
        .value(format!("{waited_ms} ms"))
        .rule("the request may or may not have taken effect")
        .remedy("look whether it has before sending it again, or allow more time")
}

/// `OPTIONS` is answered for every path; anything else that the path does not know is refused with what it knows.
fn other_method(path: &PathEntry, request: &Request<Arriving>) -> Response {
    if request.method() != Method::OPTIONS {
        let allow = path.allow.to_str().unwrap_or_default().to_owned();
        return Problem::new(Reason::MethodNotAllowed, "this path has no such method")
            .value(request.method())
            .rule(format!("it has {allow}"))
            .remedy("use one of those")
            .header(ALLOW, path.allow.clone())
            .into_response();
    }
    let mut response = StatusCode::NO_CONTENT.into_response();
    response.headers_mut().insert(ALLOW, path.allow.clone());
    response
}

/// Whether it is a browser that is to show a page.
fn wants_page(request: &Request<Arriving>) -> bool {
    let takes =
        |value: &HeaderValue| value.as_bytes().split(|byte| *byte == b',').any(|range| range.starts_with(b"text/html"));
    matches!(*request.method(), Method::GET | Method::HEAD) && request.headers().get(ACCEPT).is_some_and(takes)
}

fn unknown_route(request: &Request<Arriving>) -> Problem {
    Problem::new(Reason::UnknownRoute, "nothing is served under this path")
        .value(request.uri().path())
        .rule("paths distinguish capitals and trailing slashes")
        .remedy("see /openapi.json for the paths there are")
}

/// Renders a problem in the group's style, and writes the request's line to the log.
pub(crate) fn finish(mut response: Response, group: &Group, method: &Method, route: &str, origin: Origin) -> Response {
    let problem = response.extensions_mut().remove::<Problem>();
    if let (Some(style), Some(problem)) = (group.style, &problem) {
        response = style(problem.clone());
        problem.write_headers(&mut response);
    }
    let status = response.status().as_u16();
    tracing::debug!(%method, route, status, trace = %origin.trace, peer = %origin.peer, "request");
    if status >= 500 {
        let detail = || problem.as_ref().map(Problem::text).unwrap_or_default();
        let cause = problem.as_ref().and_then(Problem::cause).unwrap_or_default();
        let trace = origin.trace;
        if !matches!(status, 503 | 504) {
            tracing::error!(%method, route, status, %trace, detail = detail(), cause, "request failed");
        } else if let Some(more) = group.told.line(origin.started) {
            tracing::warn!(%method, route, status, %trace, detail = detail(), cause, more, "request not served");
        }
    }
    response
}

pub(crate) fn count(metrics: &RouteMetrics, response: &Response, origin: Origin) {
    metrics.answered(response.status().as_u16(), origin.started.elapsed().as_secs_f64());
}

pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    format!("the handler panicked: {}", text.unwrap_or("no text"))
}

/// Counts a request whose future is dropped before its answer: the client has left.
struct Unanswered<'a>(&'a RouteMetrics);

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        self.0.dropped.inc();
    }
}
