//! The head that reads requests with hyper: it takes every request, also those that no route matches.
//!
//! A handler of extractors gets the request as axum knows it. Any other handler is called with the head alone, and again
//! with the body if it asks for that, whole or as a stream.

use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::extract::DefaultBodyLimit;
use axum::http::header::{ACCEPT, ALLOW};
use axum::http::request::Parts;
use axum::http::{HeaderValue, Method, Request as HyperRequest, StatusCode};
use axum::response::{IntoResponse, Response};
use http_body_util::Limited;
use tokio::time::Instant;

use crate::activity::ConnectionActivity;
use crate::api::{Group, PathEntry, RouteMatch};
use crate::authenticator::Verdict;
use crate::context::{ConnectionPeer, RequestContext};
use crate::exchange::{Exchange, RequestOrigin, count, finish, wait};
use crate::extract;
use crate::head::RequestHead;
use crate::memory::ResponseMemory;
use crate::path_params::PathParams;
use crate::pipeline::{Pipeline, authorize, log_in, observe};
use crate::request::{self, Answer, Handler, Request};
use crate::request_body::RequestBody;
use crate::response_body::ResponseBody;
use crate::route::Endpoint;
use crate::sse::StallMax;
use crate::{BodyStream, Limits, Problem, Reason, TraceContext};

/// Above this limit axum's own extractors would refuse a body that the route allows.
const AXUM_BODY_LIMIT_BYTES: u64 = 2 * 1024 * 1024;

impl Pipeline {
    /// Answers one request of the connection that `activity` tracks.
    pub(crate) async fn handle(
        &self,
        client: &ConnectionPeer,
        activity: &Arc<ConnectionActivity>,
        request: HyperRequest<RequestBody>,
    ) -> axum::http::Response<ResponseBody> {
        let (parts, body) = request.into_parts();
        let origin = RequestOrigin {
            peer: client.peer,
            started: activity.begin_request(),
            trace: TraceContext::of(&parts.headers),
        };
        match self.api.find(&parts.method, parts.uri.path()) {
            RouteMatch::Route(route, params) => {
                let mut exchange = Exchange::new(route, RequestHead::of(&parts), origin);
                let response = self.answer(&mut exchange, params, origin, client, parts, body).await;
                let mut response = exchange.conclude(response);
                let held = response.extensions_mut().remove::<ResponseMemory>();
                if let Some(StallMax(time)) = response.extensions_mut().remove() {
                    activity.allow_stall(time);
                }
                response.map(|body| ResponseBody::of_route(body, route.clone(), activity.clone(), held))
            }
            RouteMatch::MethodNotAllowed(path) => {
                self.unmatched(other_method(path, &parts), &path.group, &parts, origin, activity)
            }
            RouteMatch::NotFound(group) => {
                let page = self.api.stray_page.as_ref().filter(|_| self.api.is_rest(group) && wants_page(&parts));
                let answer = match page {
                    Some(page) => page.answer(parts.uri.path()),
                    None => unknown_route(&parts).into_response(),
                };
                self.unmatched(answer, group, &parts, origin, activity)
            }
        }
    }

    /// Finishes the refusal of a request that matches no route.
    fn unmatched(
        &self,
        refusal: Response,
        group: &Group,
        parts: &Parts,
        origin: RequestOrigin,
        activity: &Arc<ConnectionActivity>,
    ) -> axum::http::Response<ResponseBody> {
        let head = RequestHead::of(parts);
        let mut response = finish(refusal, group, head.method, head.path, origin);
        response.headers_mut().extend(group.echo(head.headers, origin.trace));
        if let Some(cors) = &group.cors {
            let methods = response.headers().get(ALLOW).filter(|_| head.method == Method::OPTIONS).cloned();
            cors.write_answer(group.page(head.headers).as_ref(), methods.as_ref(), response.headers_mut());
        }
        count(&self.api.unmatched, &response, origin);
        response.map(|body| ResponseBody::without_route(body, activity.clone()))
    }

    async fn answer(
        &self,
        exchange: &mut Exchange<'_>,
        params: PathParams,
        origin: RequestOrigin,
        client: &ConnectionPeer,
        parts: Parts,
        body: RequestBody,
    ) -> Response {
        let route = exchange.route();
        let announced = body.size_hint().exact();
        let time = match self.check(route, RequestHead::of(&parts), announced, origin.started) {
            Ok(time) => time,
            Err(problem) => return problem.into_response(),
        };
        route.metrics.received(announced.unwrap_or(0));
        let context = Arc::new(RequestContext {
            identity: OnceLock::new(),
            time,
            trace: origin.trace,
            params,
            limits: route.limits,
            client: client.clone(),
            shutdown: self.shutdown.clone(),
            memory: self.memory.clone(),
        });
        let work = async {
            let worked = self.work(exchange, &context, origin, parts, body).await;
            worked.unwrap_or_else(IntoResponse::into_response)
        };
        wait(pin!(work), &context.time).await
    }

    async fn work(
        &self,
        exchange: &mut Exchange<'_>,
        context: &Arc<RequestContext>,
        origin: RequestOrigin,
        mut parts: Parts,
        body: RequestBody,
    ) -> Result<Response, Problem> {
        let route = exchange.route();
        let announced = body.size_hint().exact();
        if route.access.authenticates(RequestHead::of(&parts).headers) {
            let verdict = match self.authenticate(route, RequestHead::of(&parts), &context.params, &context.client) {
                Verdict::Now(verdict) => verdict,
                Verdict::Later(verdict) => verdict.await,
            };
            let identity = verdict?;
            let audit = self.audit.as_ref();
            exchange.audited =
                audit.and_then(|audit| audit.begin(route, &identity, RequestHead::of(&parts), origin.peer));
            authorize(route, &identity)?;
            exchange.observed =
                observe(route, &identity, RequestHead::of(&parts), origin, announced.unwrap_or_default());
            log_in(&context.client.login, &identity)?;
            // The context is new, so its identity is still unset.
            let _ = context.identity.set(identity);
        }
        let body_bytes = announced.unwrap_or(route.limits.body_max_bytes);
        let held_bytes = route.stream_memory_bytes.map_or(body_bytes, |held| held.min(body_bytes));
        let _memory = self.memory_for(context.identity.get(), held_bytes)?;
        let is_read = parts.method.is_safe();
        let body = bounded(body, &route.limits);
        let response = match &route.endpoint {
            Endpoint::Handler(handler) => call(handler, context, origin, &parts, body).await,
            Endpoint::Extractors(handler) => {
                parts.extensions.insert(context.clone());
                let mut request = HyperRequest::from_parts(parts, body);
                if route.limits.body_max_bytes > AXUM_BODY_LIMIT_BYTES {
                    DefaultBodyLimit::disable().apply(&mut request);
                }
                handler.call(request).await
            }
        };
        let caller = context.identity.get().map(|identity| &*identity.principal);
        self.with_memory(route, caller, is_read, response)
    }
}

/// Calls the handler with the head, and again with the body if it asks for that, and waits for its answer.
async fn call(
    handler: &Handler,
    context: &Arc<RequestContext>,
    origin: RequestOrigin,
    parts: &Parts,
    body: Body,
) -> Response {
    let request = |body, body_wait| Request {
        head: RequestHead::of(parts),
        params: &context.params,
        body,
        body_wait,
        identity: context.identity.get(),
        trace: origin.trace,
        started: origin.started,
        time: &context.time,
        shutdown: &context.shutdown,
        memory: context.memory.as_ref(),
    };
    let at_hand = if body.is_end_stream() { request::Body::Borrowed(&[]) } else { request::Body::Awaited };
    let mut answer = handler(&request(at_hand, Duration::ZERO));
    if let Answer::Stream(stream) = answer {
        let mut later = stream(BodyStream::new(body, context));
        return wait(later.as_mut(), &context.time).await;
    }
    if let Answer::AwaitBody = answer {
        let asked = Instant::now();
        let read = extract::read(body, &context.time, &context.limits).await;
        let body = match &read {
            Ok(bytes) => request::Body::Owned(bytes),
            Err(problem) => request::Body::Unreadable(problem),
        };
        answer = handler(&request(body, asked.elapsed()));
    }
    match answer {
        Answer::Ready(response) => response,
        Answer::Later(mut later) => wait(later.as_mut(), &context.time).await,
        Answer::AwaitBody | Answer::Stream(_) => request::asked_twice().into_response(),
    }
}

/// Bounds a body of unknown length. An announced length was checked already, and hyper reads no more than that.
fn bounded(body: RequestBody, limits: &Limits) -> Body {
    if body.is_end_stream() {
        return Body::empty();
    }
    if body.size_hint().exact().is_some() {
        return Body::new(body);
    }
    Body::new(Limited::new(body, usize::try_from(limits.body_max_bytes).unwrap_or(usize::MAX)))
}

/// Answers `OPTIONS`; refuses any other method with the list of the path's methods.
fn other_method(path: &PathEntry, parts: &Parts) -> Response {
    if parts.method != Method::OPTIONS {
        let allow = path.allow.to_str().unwrap_or_default().to_owned();
        return Problem::new(Reason::MethodNotAllowed, "this path has no such method")
            .value(&parts.method)
            .rule(format!("it has {allow}"))
            .remedy("use one of those")
            .header(ALLOW, path.allow.clone())
            .into_response();
    }
    let mut response = StatusCode::NO_CONTENT.into_response();
    response.headers_mut().insert(ALLOW, path.allow.clone());
    response
}

/// Returns `true` if a browser asks for a page.
fn wants_page(parts: &Parts) -> bool {
    let takes =
        |value: &HeaderValue| value.as_bytes().split(|byte| *byte == b',').any(|range| range.starts_with(b"text/html"));
    matches!(parts.method, Method::GET | Method::HEAD) && parts.headers.get(ACCEPT).is_some_and(takes)
}

fn unknown_route(parts: &Parts) -> Problem {
    Problem::new(Reason::UnknownRoute, "nothing is served under this path")
        .value(parts.uri.path())
        .rule("paths distinguish capitals and trailing slashes")
        .remedy("see /openapi.json for the paths there are")
}
