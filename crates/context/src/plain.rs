//! Requests that come plain: the same handlers, called without anything between them and the thread's buffer.

use std::future::Future;
use std::sync::Arc;

use axum::http::header::{ACCEPT, CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::response::IntoResponse;
use bytes::Bytes;
use millstream_http::{PlainAnswer, PlainRequest, Route};

use crate::desk::{Announced, Ask, Desk};
use crate::refusal::Failure;
use crate::routes::Answered;

/// What a plain request may have beside those headers that mean nothing here.
const HEADERS: [&str; 6] =
    ["fiware-service", "fiware-servicepath", "fiware-correlator", "x-auth-token", "if-match", "if-none-match"];

/// What is read of a plain request beside its target and body.
static READ: [HeaderName; 9] = [
    ACCEPT,
    CONTENT_TYPE,
    CONTENT_LENGTH,
    HeaderName::from_static(HEADERS[0]),
    HeaderName::from_static(HEADERS[1]),
    HeaderName::from_static(HEADERS[2]),
    HeaderName::from_static(HEADERS[3]),
    HeaderName::from_static(HEADERS[4]),
    HeaderName::from_static(HEADERS[5]),
];
const JSON: &str = "application/json";

/// Lets a route take plain reads by `read`, as its handler does.
pub(crate) fn reads(
    route: Route,
    desk: &Arc<Desk>,
    read: impl Fn(&Desk, &Ask, &str) -> Answered + Send + Sync + 'static,
) -> Route {
    let desk = desk.clone();
    route.plain(&HEADERS, move |request| match ask(request) {
        None => PlainAnswer::Pass,
        Some(asked) => PlainAnswer::Now(asked.and_then(|ask| read(&desk, &ask, request.param(0))).into_response()),
    })
}

/// Lets a route take plain writes by `write`, its handler.
pub(crate) fn writes<B, F>(
    route: Route,
    desk: &Arc<Desk>,
    write: impl Fn(Arc<Desk>, Ask, [String; 2], B) -> F + Send + Sync + 'static,
) -> Route
where
    B: Announced,
    F: Future<Output = Answered> + Send + 'static,
{
    let desk = desk.clone();
    route.plain(&HEADERS, move |request| {
        let Some(asked) = ask(request) else { return PlainAnswer::Pass };
        let checked = asked.and_then(|ask| B::check(ask.headers()).map(|()| ask));
        match checked {
            Err(failure) => PlainAnswer::Now(failure.into_response()),
            Ok(ask) => {
                let params = [0, 1].map(|index| request.param(index).to_owned());
                let body = B::of(Bytes::copy_from_slice(request.payload));
                let written = write(desk.clone(), ask, params, body);
                PlainAnswer::Later(Box::pin(async move { written.await.into_response() }))
            }
        }
    })
}

/// What the request says beside its body; `None` if it cannot be told as hyper would.
fn ask(request: &PlainRequest<'_>) -> Option<Result<Ask, Failure>> {
    let mut headers = HeaderMap::with_capacity(READ.len());
    for (name, value) in request.headers() {
        match READ.iter().find(|known| known.as_str().eq_ignore_ascii_case(name)) {
            // Most say this.
            Some(known) if value == JSON.as_bytes() => headers.insert(known, HeaderValue::from_static(JSON)),
            Some(known) => headers.insert(known, HeaderValue::from_bytes(value).ok()?),
            None if value.iter().all(|byte| matches!(byte, b' '..=b'~' | b'\t')) => None,
            None => return None,
        };
    }
    let target = (request.path(), request.query());
    Some(Ask::new(request.principal.tenant.clone(), headers, target, request.trace))
}
