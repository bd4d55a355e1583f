//! Encodes the answer to a request that the fast head has read.

use axum::body::{Body, HttpBody};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::FutureExt;
use http_body_util::BodyExt;
use tokio::time::Instant;

use crate::date::date;
use crate::exchange::Exchange;
use crate::memory::ResponseMemory;
use crate::pipeline::Pipeline;

/// Concludes the exchange and appends its answer to `out`. Returns the memory to hold until the answer is sent.
pub(super) fn write_answer(
    pipeline: &Pipeline,
    exchange: Exchange<'_>,
    response: Response,
    started: Instant,
    out: &mut Vec<u8>,
) -> Option<ResponseMemory> {
    let route = exchange.route();
    let charged = pipeline.with_memory(route, exchange.caller.as_deref(), exchange.is_read(), response);
    let mut response = exchange.conclude(charged.unwrap_or_else(IntoResponse::into_response));
    let held = response.extensions_mut().remove::<ResponseMemory>();
    let body_bytes = encode(response, started, out);
    route.metrics.sent(body_bytes as u64);
    held
}

/// Appends the whole answer to `out` and returns the size of its body.
fn encode(response: Response, now: Instant, out: &mut Vec<u8>) -> usize {
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

/// The whole body of an answer: empty, or one piece that is ready.
fn whole(body: Body) -> Bytes {
    if body.is_end_stream() {
        return Bytes::new();
    }
    body.collect().now_or_never().and_then(Result::ok).map(|body| body.to_bytes()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Problem;

    #[test]
    fn a_refusal_is_written_whole() {
        let mut out = Vec::new();
        let problem = Problem::invalid("no").value(7);
        let size = encode(problem.clone().into_response(), Instant::now(), &mut out);
        let text = String::from_utf8(out).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{head}");
        assert!(head.contains("\r\ncontent-type: application/problem+json\r\n"), "{head}");
        assert!(head.contains(&format!("\r\ncontent-length: {size}\r\ndate: ")), "{head}");
        assert!(head.ends_with(" GMT"), "{head}");
        assert_eq!((body, body.len()), (problem.json().as_str(), size));
    }
}
