//! Reads: a value or a part of it, where it lies, and all keys.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::body::Body;
use axum::http::header::{CONTENT_RANGE, LAST_MODIFIED};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use millstream_http::{Answer, AnswerMemory, Problem, Reason, Request};
use millstream_types::{ErrorCode, PartitionId};
use serde_json::{Value, json};

use super::reply::{DigestedValue, id, json_answer, placed, time};
use super::{RiftTarget, bytes_answer, number};
use crate::http::{STREAM_BYTES, Segment, ValueBody, check_key_scope, problem};
use crate::{Bucket, FoundValue, Look, OpenedValue, Store};

/// Most keys of a listing, which has no paging.
const LISTED_MAX: usize = 100_000;

/// The part of a value that a request wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RiftRange {
    All,
    /// From an offset on; size 0 is all to the end.
    Slice {
        offset: u64,
        size: u64,
    },
    /// From one byte to another, or to the end.
    Range {
        first: u64,
        last: Option<u64>,
    },
    /// So many bytes at the end of the value.
    Last(u64),
}

impl RiftRange {
    fn of(request: &Request<'_>) -> Result<Self, Problem> {
        let (offset, size) = (number(request, "offset")?, number(request, "size")?);
        if offset > 0 || size > 0 {
            return Ok(Self::Slice { offset, size });
        }
        let header = request.header("range").and_then(|value| std::str::from_utf8(value).ok());
        Ok(header.and_then(Self::range).unwrap_or(Self::All))
    }

    /// Reads the header `Range`. `None`, which is the whole value, for several ranges, and for what
    /// is none (RFC 9110, 14.2).
    fn range(header: &str) -> Option<Self> {
        let (first, last) = header.trim().strip_prefix("bytes=")?.trim().split_once('-')?;
        if first.is_empty() {
            return last.parse().ok().map(Self::Last);
        }
        let first = first.parse().ok()?;
        let last = if last.is_empty() { None } else { Some(last.parse().ok()?) };
        last.is_none_or(|last| first <= last).then_some(Self::Range { first, last })
    }

    /// The bytes of a value of `length`; `None` if it has none of these.
    fn within(self, length: u64) -> Option<Range<u64>> {
        let range = match self {
            Self::All => return Some(0..length),
            Self::Slice { offset: 0, .. } if length == 0 => return Some(0..0),
            Self::Slice { offset, size: 0 } => offset..length,
            Self::Slice { offset, size } => offset..offset.saturating_add(size).min(length),
            Self::Range { first, last } => first..last.map_or(length, |last| last.saturating_add(1).min(length)),
            Self::Last(count) => length.saturating_sub(count)..length,
        };
        (range.start < range.end).then_some(range)
    }

    fn is_range(self) -> bool {
        matches!(self, Self::Range { .. } | Self::Last(_))
    }
}

/// A read of a value.
#[derive(Clone, Copy)]
struct ReadRequest {
    wanted: RiftRange,
    since: Option<SystemTime>,
}

/// `GET /get/{bucket}/{key}`
pub(super) fn get(store: &Arc<Store>, request: &Request<'_>) -> Result<Answer, Problem> {
    let target = RiftTarget::of(store, request)?;
    let since = request.header("if-modified-since").and_then(|value| std::str::from_utf8(value).ok());
    let since = since.and_then(|value| httpdate::parse_http_date(value.trim()).ok());
    let asked = ReadRequest { wanted: RiftRange::of(request)?, since };
    match target.bucket.look(&target.key).map_err(|error| problem(&error))? {
        Look::Missing => return Err(target.no_such_key()),
        Look::Found(found) if found.stored.large.is_none() => return answer_small(&found, asked).map(Answer::Ready),
        Look::Found(_) | Look::OnDisk { .. } => {}
    }
    let memory = request.answer_memory();
    Ok(Answer::stream(async move |_| {
        answer_opened(&target, asked, memory).await.unwrap_or_else(IntoResponse::into_response)
    }))
}

/// Answers with a value that is read from the disk, if it is large while it is sent.
async fn answer_opened(target: &RiftTarget, asked: ReadRequest, mut memory: AnswerMemory) -> Result<Response, Problem> {
    let opened = target.bucket.open_value(&target.key).await.map_err(|error| problem(&error))?;
    let (found, reader) = match opened.ok_or_else(|| target.no_such_key())? {
        OpenedValue::Small(found) => return answer_small(&found, asked),
        OpenedValue::Large(found, reader) => (found, reader),
    };
    let (mut response, range) = head(&found, asked)?;
    if let Some(range) = range {
        memory.cover(STREAM_BYTES)?;
        ValueBody { reader, segments: vec![Segment::Value(range)] }.send(&mut response);
        memory.hold_for(&mut response);
    }
    Ok(response)
}

/// Answers with a value that is at hand.
fn answer_small(found: &FoundValue, asked: ReadRequest) -> Result<Response, Problem> {
    let (mut response, range) = head(found, asked)?;
    if let Some(range) = range {
        *response.body_mut() = Body::from(found.stored.value.bytes.slice(range.start as usize..range.end as usize));
    }
    Ok(response)
}

/// The answer without its body, and the bytes of the value that the body has; `None` if there is no body.
fn head(found: &FoundValue, asked: ReadRequest) -> Result<(Response, Option<Range<u64>>), Problem> {
    let (length, written_ms) = (found.stored.length(), found.stored.written_ms);
    let written = SystemTime::UNIX_EPOCH + Duration::from_secs(written_ms.max(0) as u64 / 1_000);
    let (mut response, range) = if asked.since.is_some_and(|since| written <= since) {
        (StatusCode::NOT_MODIFIED.into_response(), None)
    } else {
        let range = asked.wanted.within(length).ok_or_else(|| out_of_range(length))?;
        let mut response = bytes_answer(Bytes::new());
        if asked.wanted.is_range() {
            *response.status_mut() = StatusCode::PARTIAL_CONTENT;
            let text = format!("bytes {}-{}/{length}", range.start, range.end - 1);
            response.headers_mut().extend(HeaderValue::try_from(text).ok().map(|value| (CONTENT_RANGE, value)));
        }
        (response, Some(range))
    };
    let date = HeaderValue::try_from(httpdate::fmt_http_date(written)).ok();
    response.headers_mut().extend(date.map(|date| (LAST_MODIFIED, date)));
    Ok((response, range))
}

/// `GET /download-info/{bucket}/{key}`
pub(super) fn info(store: &Arc<Store>, request: &Request<'_>) -> Result<Answer, Problem> {
    let target = RiftTarget::of(store, request)?;
    Ok(Answer::stream(async move |_| {
        let value = DigestedValue::of(&target).await.map_err(|error| problem(&error));
        let value = value.and_then(|value| value.ok_or_else(|| target.no_such_key()));
        value.map(|value| json_answer(&placed(&target, Some(&value)))).unwrap_or_else(IntoResponse::into_response)
    }))
}

fn out_of_range(length: u64) -> Problem {
    let problem = Problem::new(Reason::MalformedParameter, "the value has no such bytes")
        .with_status(StatusCode::RANGE_NOT_SATISFIABLE)
        .value(length)
        .rule("offset and range begin before the end of the value, whose length is told here")
        .remedy("ask for less, or for the whole value");
    match HeaderValue::try_from(format!("bytes */{length}")) {
        Ok(value) => problem.header(CONTENT_RANGE, value),
        Err(_) => problem,
    }
}

/// `GET /list/{bucket}`
pub(super) fn list(store: &Arc<Store>, request: &Request<'_>) -> Result<Answer, Problem> {
    let (name, caller) = (request.param(0)?.into_owned(), request.caller()?);
    check_key_scope(caller, &name, b"")?;
    let bucket = store.bucket(&caller.tenant, &name).map_err(|error| problem(&error))?;
    Ok(Answer::later(async move {
        // It reads the checkpoint, which is on the disk.
        let listed = tokio::task::spawn_blocking(move || listed(&bucket, &name)).await;
        let listed = listed.unwrap_or_else(|_| Err(Problem::internal("a listing failed")));
        listed.map_or_else(IntoResponse::into_response, |tree| json_answer(&tree))
    }))
}

fn listed(bucket: &Bucket, name: &str) -> Result<Value, Problem> {
    let now_ms = bucket.now_ms();
    let mut keys: Vec<(Vec<u8>, i64)> = Vec::new();
    for partition in 0..bucket.config().partitions {
        let visit = |key: &[u8], entry: crate::Listed| {
            // Keys that begin with a zero byte are the store's own.
            if key.first() != Some(&0) && entry.expires_ms.is_none_or(|expires_ms| expires_ms > now_ms) {
                keys.push((key.to_vec(), entry.written_ms));
            }
            if keys.len() > LISTED_MAX { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        bucket.list(PartitionId(partition), &[], visit).map_err(|error| problem(&error))?;
    }
    if keys.len() > LISTED_MAX {
        return Err(Problem::new(Reason::Code(ErrorCode::TooLarge), "the bucket has too many keys for one answer")
            .value(bucket.totals().keys)
            .rule(format!("a listing has at most {LISTED_MAX} keys, as this route has no paging"))
            .remedy(format!("list by pages: 'GET /kv/{name}'")));
    }
    keys.sort();
    let indexes = keys.iter().map(|(key, written_ms)| {
        json!({"id": id(name, key), "key": String::from_utf8_lossy(key), "timestamp": time(*written_ms)})
    });
    Ok(json!({"indexes": indexes.collect::<Vec<_>>()}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offset_and_size_choose_bytes() {
        for (offset, size, length, expected) in [
            (0, 0, 10, Some(0..10)),
            (3, 0, 10, Some(3..10)),
            (3, 4, 10, Some(3..7)),
            (3, 400, 10, Some(3..10)),
            (0, 4, 10, Some(0..4)),
            (10, 0, 10, None),
            (11, 1, 10, None),
            (u64::MAX, u64::MAX, 10, None),
            (0, 5, 0, Some(0..0)),
            (1, 5, 0, None),
        ] {
            let within = RiftRange::Slice { offset, size }.within(length);
            assert_eq!(within, expected, "offset {offset}, size {size} of {length}");
        }
    }

    #[test]
    fn a_range_chooses_bytes() {
        for (header, expected) in [
            ("bytes=0-3", Some(0..4)),
            ("bytes=3-", Some(3..10)),
            ("bytes=3-400", Some(3..10)),
            ("bytes=9-9", Some(9..10)),
            ("bytes=-4", Some(6..10)),
            ("bytes=-400", Some(0..10)),
            ("bytes=10-", None),
            ("bytes=-0", None),
            // These are none of ours, so the whole value is served.
            ("bytes=0-1,3-4", Some(0..10)),
            ("bytes=5-3", Some(0..10)),
            ("bytes=a-b", Some(0..10)),
            ("lines=0-3", Some(0..10)),
        ] {
            let wanted = RiftRange::range(header).unwrap_or(RiftRange::All);
            assert_eq!(wanted.within(10), expected, "{header}");
        }
    }
}
