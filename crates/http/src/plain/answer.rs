//! The answer to a plain request, as it goes over the wire.

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::body::{Body, HttpBody};
use axum::http::{Method, StatusCode};
use axum::response::Response;
use bytes::Bytes;
use futures_util::FutureExt;
use http_body_util::BodyExt;
use millstream_types::{SystemClock, WallClock};
use tokio::time::Instant;

use super::Echo;
use crate::api::Served;
use crate::observer::Observed;
use crate::rim::{Origin, count, finish};

/// Bytes of a date as HTTP writes it.
const DATE_BYTES: usize = 29;
const SECOND: Duration = Duration::from_secs(1);

/// Logs and counts the answer to a request of `route`, and adds it to `out`.
pub(super) fn answer(
    response: Response,
    route: &Arc<Served>,
    method: &Method,
    (origin, echo, observed): (Origin, Echo, Option<Observed>),
    out: &mut Vec<u8>,
) {
    let mut response = finish(response, &route.group, method, &route.path, origin);
    response.headers_mut().extend(echo);
    count(&route.metrics, &response, origin);
    if let Some(observed) = observed {
        observed.end(method, &route.path, &response, origin.started);
    }
    let body_bytes = write(response, origin.started, out);
    if body_bytes > 0 {
        route.metrics.response_bytes.inc_by(body_bytes as u64);
    }
}

/// Adds the whole answer to `out`; how many bytes of it are its body.
fn write(response: Response, now: Instant, out: &mut Vec<u8>) -> usize {
    let (parts, body) = response.into_parts();
    let body = whole(body);
    let text = |out: &mut Vec<u8>, text: &str| out.extend_from_slice(text.as_bytes());
    text(out, "HTTP/1.1 ");
    text(out, parts.status.as_str());
    text(out, " ");
    text(out, parts.status.canonical_reason().unwrap_or_default());
    for (name, value) in &parts.headers {
        text(out, "\r\n");
        text(out, name.as_str());
        text(out, ": ");
        out.extend_from_slice(value.as_bytes());
    }
    match body.len() {
        0 if matches!(parts.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED) => {}
        0 => text(out, "\r\ncontent-length: 0"),
        length => {
            text(out, "\r\ncontent-length: ");
            text(out, &length.to_string());
        }
    }
    text(out, "\r\ndate: ");
    out.extend_from_slice(&date(now));
    text(out, "\r\n\r\n");
    out.extend_from_slice(&body);
    body.len()
}

/// The body of an answer that is there: a status has none, and that of a refusal is one piece.
fn whole(body: Body) -> Bytes {
    if body.is_end_stream() {
        return Bytes::new();
    }
    body.collect().now_or_never().and_then(Result::ok).map(|body| body.to_bytes()).unwrap_or_default()
}

/// The date, rendered once a second.
fn date(now: Instant) -> [u8; DATE_BYTES] {
    thread_local!(static RENDERED: Cell<Option<(Instant, [u8; DATE_BYTES])>> = const { Cell::new(None) });
    RENDERED.with(|rendered| match rendered.get() {
        Some((until, text)) if now < until => text,
        _ => {
            // That of the system, as hyper's own answers have it.
            let wall_ms = u64::try_from(SystemClock::default().now_ms()).unwrap_or_default();
            let wall = SystemTime::UNIX_EPOCH + Duration::from_millis(wall_ms);
            let mut text = [b' '; DATE_BYTES];
            let date = httpdate::fmt_http_date(wall);
            // Dates of this form have this length until the year 9999.
            text.iter_mut().zip(date.bytes()).for_each(|(place, byte)| *place = byte);
            rendered.set(Some((now + SECOND.saturating_sub(Duration::from_millis(wall_ms % 1_000)), text)));
            text
        }
    })
}

#[cfg(test)]
mod tests {
    use axum::response::IntoResponse;

    use super::*;
    use crate::Problem;

    #[test]
    fn a_refusal_is_written_whole() {
        let mut out = Vec::new();
        let problem = Problem::invalid("no").value(7);
        let size = write(problem.clone().into_response(), Instant::now(), &mut out);
        let text = String::from_utf8(out).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{head}");
        assert!(head.contains("\r\ncontent-type: application/problem+json\r\n"), "{head}");
        assert!(head.contains(&format!("\r\ncontent-length: {size}\r\ndate: ")), "{head}");
        assert!(head.ends_with(" GMT"), "{head}");
        assert_eq!((body, body.len()), (problem.json().as_str(), size));
    }
}
