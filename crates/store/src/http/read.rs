//! Reads of a value: whole, or ranges of it.

use std::ops::Range;
use std::sync::Arc;
use std::time::SystemTime;

use axum::body::Body;
use axum::http::header::{
    ACCEPT_RANGES, AGE, CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_RANGE,
    CONTENT_TYPE, ETAG, LAST_MODIFIED,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use millstream_http::{Answer, AnswerMemory, Problem, Reason, Request, sandbox};
use millstream_types::{ErrorCode, iso_time};

use super::body::{Segment, ValueBody, segments};
use super::conditions::{Preconditions, etag, written_at};
use super::multipart;
use super::parameters::text;
use super::problems::{no_such_key, problem};
use super::ranges::RangeRequest;
use super::target::KeyTarget;
use crate::{Bucket, CHUNK_BYTES, FoundValue, Look, OpenedValue, Store, StoredValue};

/// Memory of an answer that is sent while it is read: chunks that are read ahead or being sent.
pub(crate) const STREAM_BYTES: usize = 3 * CHUNK_BYTES;

/// The conditions and ranges that a read asks for, from its headers.
struct ReadRequest {
    conditions: Preconditions,
    modified_since: Option<SystemTime>,
    range: Option<String>,
    if_range: Option<String>,
}

impl ReadRequest {
    fn of(request: &Request<'_>) -> Result<Self, Problem> {
        let headers = request.headers();
        let time = |name| text(headers, name).and_then(|value| httpdate::parse_http_date(value).ok());
        let owned = |name| text(headers, name).map(ToOwned::to_owned);
        Ok(Self {
            conditions: Preconditions::of(headers)?,
            modified_since: time("if-modified-since"),
            // Ranges are a matter of GET alone (RFC 9110, section 14.2).
            range: owned("range").filter(|_| *request.method() == Method::GET),
            if_range: owned("if-range"),
        })
    }
}

/// `GET /kv/{bucket}/{key}`
pub(super) fn get(store: &Arc<Store>, request: &Request<'_>) -> Answer {
    start(store, request).unwrap_or_else(Answer::from)
}

fn start(store: &Arc<Store>, request: &Request<'_>) -> Result<Answer, Problem> {
    let target = KeyTarget::of(store, request)?;
    match request.query() {
        Some("uploads") => return Ok(multipart::list(target)),
        Some(query) => {
            if let Some(id) = query.strip_prefix("upload=") {
                return multipart::list_parts(&target, id);
            }
        }
        None => {}
    }
    let KeyTarget { bucket, key } = target;
    let asked = ReadRequest::of(request)?;
    let (is_large, found) = match bucket.look(&key).map_err(|error| problem(&error))? {
        Look::Missing => return Err(no_such_key(&key)),
        Look::Found(found) => (found.stored.large.is_some(), Some(found)),
        Look::OnDisk { .. } => (bucket.is_large(&key), None),
    };
    match (is_large, found) {
        (false, Some(found)) => Ok(Answer::Ready(answer_small(found, &asked, bucket.now_ms()))),
        (false, None) => Ok(Answer::later(async move {
            let read = read(&bucket, &key).await;
            read.map(|found| answer_small(found, &asked, bucket.now_ms())).unwrap_or_else(IntoResponse::into_response)
        })),
        (true, _) => {
            let memory = request.answer_memory();
            Ok(Answer::stream(async move |_| {
                answer_large(&bucket, &key, &asked, memory).await.unwrap_or_else(IntoResponse::into_response)
            }))
        }
    }
}

async fn read(bucket: &Bucket, key: &[u8]) -> Result<FoundValue, Problem> {
    bucket.read(key).await.map_err(|error| problem(&error))?.ok_or_else(|| no_such_key(key))
}

/// Answers with a value that is at hand.
fn answer_small(found: FoundValue, asked: &ReadRequest, now_ms: i64) -> Response {
    let FoundValue { stored, version } = found;
    if stored.large.is_some() {
        return Problem::new(Reason::Code(ErrorCode::Overloaded), "the value was replaced while it was read")
            .rule("a read shows one version of a value")
            .remedy("read it again")
            .into_response();
    }
    let (mut response, segments) = head(&stored, version, asked, now_ms);
    let bytes = &stored.value.bytes;
    let part = |range: &Range<u64>| bytes.slice(range.start as usize..range.end as usize);
    match &segments[..] {
        [] => {}
        [Segment::Value(range)] => *response.body_mut() = Body::from(part(range)),
        several => {
            let pieces = several.iter().map(|segment| match segment {
                Segment::Text(text) => text.clone(),
                Segment::Value(range) => part(range),
            });
            *response.body_mut() = Body::from(pieces.collect::<Vec<Bytes>>().concat());
        }
    }
    response
}

/// Answers with a value that is read while it is sent.
async fn answer_large(
    bucket: &Arc<Bucket>,
    key: &Bytes,
    asked: &ReadRequest,
    mut memory: AnswerMemory,
) -> Result<Response, Problem> {
    let opened = bucket.open_value(key).await.map_err(|error| problem(&error))?;
    let (FoundValue { stored, version }, reader) = match opened.ok_or_else(|| no_such_key(key))? {
        OpenedValue::Small(found) => return Ok(answer_small(found, asked, bucket.now_ms())),
        OpenedValue::Large(found, reader) => (found, reader),
    };
    let (mut response, segments) = head(&stored, version, asked, bucket.now_ms());
    if !segments.is_empty() {
        memory.cover(STREAM_BYTES)?;
        ValueBody { reader, segments }.send(&mut response);
        memory.hold_for(&mut response);
    }
    Ok(response)
}

/// The answer without its body, and the segments of that; there are none if the answer is complete as it is.
fn head(stored: &StoredValue, version: u64, asked: &ReadRequest, now_ms: i64) -> (Response, Vec<Segment>) {
    let written_at = written_at(stored.written_ms);
    if let Some(unmet) = asked.conditions.unmet_by_read(version) {
        return (unmet.problem(Some(version)).into_response(), Vec::new());
    }
    if let Some(since) = asked.conditions.unmodified_since.filter(|since| written_at > *since) {
        let refusal = Problem::new(Reason::Code(ErrorCode::PreconditionFailed), "If-Unmodified-Since does not hold")
            .with_status(StatusCode::PRECONDITION_FAILED)
            .value(httpdate::fmt_http_date(since))
            .rule(format!("the value was written at {}", httpdate::fmt_http_date(written_at)))
            .remedy("read the value without this header");
        return (refusal.into_response(), Vec::new());
    }
    let mut headers = headers(stored, version, now_ms);
    if is_current(asked, written_at, version) {
        // They describe a body, which does not come.
        for name in [CONTENT_TYPE, CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_DISPOSITION] {
            headers.remove(name);
        }
        return ((StatusCode::NOT_MODIFIED, headers).into_response(), Vec::new());
    }
    let size = stored.length();
    let range = asked.range.as_deref().filter(|_| is_same(asked.if_range.as_deref(), written_at, version));
    let wanted = range.map_or(RangeRequest::Whole, |range| RangeRequest::parse(range, size));
    match wanted {
        RangeRequest::Unsatisfiable => {
            let value = asked.range.as_deref().unwrap_or_default();
            let mut response = Problem::invalid("the value has no byte of this range")
                .with_status(StatusCode::RANGE_NOT_SATISFIABLE)
                .value(value)
                .rule(format!("the value has {size} bytes"))
                .remedy("ask for bytes that it has, or for the whole value")
                .into_response();
            response.headers_mut().extend(content_range(format!("bytes */{size}")));
            response.headers_mut().insert(ETAG, etag(version));
            (response, Vec::new())
        }
        RangeRequest::Whole => ((StatusCode::OK, headers).into_response(), vec![Segment::Value(0..size)]),
        RangeRequest::Ranges(ranges) => {
            let content = match &ranges[..] {
                [only] => {
                    headers.extend(content_range(format!("bytes {}-{}/{size}", only.start, only.end - 1)));
                    vec![Segment::Value(only.clone())]
                }
                several => segments(several, size, &mut headers),
            };
            ((StatusCode::PARTIAL_CONTENT, headers).into_response(), content)
        }
    }
}

fn content_range(text: String) -> Option<(HeaderName, HeaderValue)> {
    HeaderValue::try_from(text).ok().map(|value| (CONTENT_RANGE, value))
}

/// `true` if the client has the value (RFC 9110, sections 13.1.2 and 13.1.3).
fn is_current(asked: &ReadRequest, written_at: SystemTime, version: u64) -> bool {
    match (&asked.conditions.if_none_match, asked.modified_since) {
        (Some(versions), _) => versions.have(Some(version)),
        (None, Some(since)) => written_at <= since,
        (None, None) => false,
    }
}

/// `true` unless `If-Range` names another version (RFC 9110, section 13.1.5). A weak tag is never the same.
fn is_same(if_range: Option<&str>, written_at: SystemTime, version: u64) -> bool {
    let Some(validator) = if_range else { return true };
    validator.as_bytes() == etag(version).as_bytes()
        || httpdate::parse_http_date(validator).is_ok_and(|date| date == written_at)
}

fn headers(stored: &StoredValue, version: u64, now_ms: i64) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let attributes = stored.value.attributes.as_deref();
    let content_type = attributes.and_then(|attributes| attributes.content_type.as_deref());
    let of_text = |text: &str| HeaderValue::try_from(text).ok();
    let content_type = content_type.and_then(of_text);
    if content_type.is_some() {
        sandbox(&mut headers);
    }
    headers.insert(CONTENT_TYPE, content_type.unwrap_or(HeaderValue::from_static("application/octet-stream")));
    headers.insert(ETAG, etag(version));
    headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    if let Some(date) = of_text(&httpdate::fmt_http_date(written_at(stored.written_ms))) {
        headers.insert(LAST_MODIFIED, date);
    }
    if let Some(expires_ms) = stored.value.expires_ms {
        let whole_s = (expires_ms - stored.written_ms).max(0) / 1_000;
        headers.insert(AGE, HeaderValue::from((now_ms - stored.written_ms).max(0) / 1_000));
        headers.extend(of_text(&format!("max-age={whole_s}")).map(|value| (CACHE_CONTROL, value)));
        let expires = of_text(&iso_time(expires_ms));
        headers.extend(expires.map(|value| (HeaderName::from_static("x-expires"), value)));
    }
    let Some(attributes) = attributes else { return headers };
    for (name, value) in &attributes.headers {
        let name = HeaderName::try_from(name).ok();
        // The client's own `Cache-Control` takes the place of what follows from the expiry.
        if let Some((name, value)) = name.zip(HeaderValue::from_bytes(value.as_bytes()).ok()) {
            headers.insert(name, value);
        }
    }
    if let Some(time_ms) = attributes.time_ms {
        headers.extend(of_text(&iso_time(time_ms)).map(|value| (HeaderName::from_static("x-timestamp"), value)));
    }
    if !attributes.tags.is_empty() {
        headers.extend(of_text(&attributes.tags.join(",")).map(|value| (HeaderName::from_static("x-tags"), value)));
    }
    for (name, value) in &attributes.metadata {
        let name = HeaderName::try_from(format!("x-meta-{name}")).ok();
        headers.extend(name.zip(HeaderValue::from_bytes(value.as_bytes()).ok()));
    }
    headers
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: usize = 100;

    fn found() -> FoundValue {
        let bytes: Vec<u8> = (0..SIZE as u8).collect();
        // 2020-09-13T12:26:40Z
        let stored = StoredValue { value: crate::Value::of(bytes), large: None, written_ms: 1_600_000_000_999 };
        FoundValue { stored, version: 17 }
    }

    fn asked(headers: &[(&str, &str)]) -> ReadRequest {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(HeaderName::try_from(*name).unwrap(), HeaderValue::try_from(*value).unwrap());
        }
        let owned = |name: &str| map.get(name).map(|value| value.to_str().unwrap().to_owned());
        let time = |name: &str| owned(name).map(|text| httpdate::parse_http_date(&text).unwrap());
        ReadRequest {
            conditions: Preconditions::of((&map).into()).unwrap(),
            modified_since: time("if-modified-since"),
            range: owned("range"),
            if_range: owned("if-range"),
        }
    }

    #[tokio::test]
    async fn conditions_and_ranges_decide_the_answer() {
        let (same, before, after) =
            ("Sun, 13 Sep 2020 12:26:40 GMT", "Sun, 13 Sep 2020 12:26:39 GMT", "Sun, 13 Sep 2020 12:26:41 GMT");
        let range = ("range", "bytes=10-19");
        for (headers, status, content_range, length) in [
            (&[][..], 200, None, SIZE),
            (&[range], 206, Some("bytes 10-19/100"), 10),
            (&[("range", "bytes=-1")], 206, Some("bytes 99-99/100"), 1),
            (&[("range", "bytes=0-9,5-14")], 206, Some("bytes 0-14/100"), 15),
            (&[("range", "bytes=100-")], 416, Some("bytes */100"), 0),
            (&[("range", "lines=1-2")], 200, None, SIZE),
            (&[range, ("if-range", "\"17\"")], 206, Some("bytes 10-19/100"), 10),
            (&[range, ("if-range", "\"18\"")], 200, None, SIZE),
            (&[range, ("if-range", "W/\"17\"")], 200, None, SIZE),
            (&[range, ("if-range", same)], 206, Some("bytes 10-19/100"), 10),
            (&[range, ("if-range", after)], 200, None, SIZE),
            (&[range, ("if-range", before)], 200, None, SIZE),
            (&[("range", "bytes=100-"), ("if-range", "\"18\"")], 200, None, SIZE),
            (&[range, ("if-match", "\"17\"")], 206, Some("bytes 10-19/100"), 10),
            (&[range, ("if-match", "\"18\"")], 412, None, 0),
            (&[("if-match", "*")], 200, None, SIZE),
            (&[("if-unmodified-since", same)], 200, None, SIZE),
            (&[("if-unmodified-since", before)], 412, None, 0),
            (&[("if-unmodified-since", before), ("if-match", "\"17\"")], 200, None, SIZE),
            (&[range, ("if-none-match", "\"17\"")], 304, None, 0),
            (&[("if-none-match", "\"18\"")], 200, None, SIZE),
            (&[("if-modified-since", same)], 304, None, 0),
            (&[("if-modified-since", before)], 200, None, SIZE),
            (&[("if-modified-since", same), ("if-none-match", "\"18\"")], 200, None, SIZE),
        ] {
            let response = answer_small(found(), &asked(headers), 1_600_000_001_000);
            assert_eq!(response.status(), status, "{headers:?}");
            let given = response.headers().get(CONTENT_RANGE).map(|value| value.to_str().unwrap().to_owned());
            assert_eq!(given.as_deref(), content_range, "{headers:?}");
            if status < 300 {
                assert_eq!(response.headers()[ACCEPT_RANGES], "bytes", "{headers:?}");
                let body = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
                assert_eq!(body.len(), length, "{headers:?}");
            }
        }
    }

    #[tokio::test]
    async fn several_ranges_come_as_one_body_of_parts() {
        let response = answer_small(found(), &asked(&[("range", "bytes=97-98,0-1")]), 1_600_000_001_000);
        assert_eq!(response.status(), 206);
        assert!(response.headers().get(CONTENT_RANGE).is_none());
        let content_type = response.headers()[CONTENT_TYPE].to_str().unwrap().to_owned();
        let boundary = content_type.strip_prefix("multipart/byteranges; boundary=").unwrap();
        let body = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
        let part = |range: &str, bytes: &str| {
            format!(
                "\r\n--{boundary}\r\ncontent-type: application/octet-stream\r\ncontent-range: bytes {range}/100\r\n\r\n{bytes}"
            )
        };
        let expected = part("97-98", "ab") + &part("0-1", "\0\u{1}") + &format!("\r\n--{boundary}--\r\n");
        assert_eq!(String::from_utf8(body.to_vec()).unwrap(), expected);
    }
}
