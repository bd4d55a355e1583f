//! The body of a read: ranges of the value, and the text between them if there are several (RFC 9110, section 14.6).

use std::ops::Range;

use axum::body::Body;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue};
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream::{self, StreamExt};

use crate::{Error, RangeReader};

/// A stretch of a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Segment {
    Text(Bytes),
    /// These bytes of the value.
    Value(Range<u64>),
}

/// The segments of a body of several ranges, whose media type is put into `headers`.
pub(super) fn segments(ranges: &[Range<u64>], size: u64, headers: &mut HeaderMap) -> Vec<Segment> {
    let boundary = format!("{:032x}", fastrand::u128(..));
    let media_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let media_type = media_type.unwrap_or("application/octet-stream").to_owned();
    let mut segments = Vec::with_capacity(2 * ranges.len() + 1);
    for range in ranges {
        let text = format!(
            "\r\n--{boundary}\r\ncontent-type: {media_type}\r\ncontent-range: bytes {}-{}/{size}\r\n\r\n",
            range.start,
            range.end - 1
        );
        segments.extend([Segment::Text(text.into()), Segment::Value(range.clone())]);
    }
    segments.push(Segment::Text(format!("\r\n--{boundary}--\r\n").into()));
    // Hexadecimal digits are always a legal value.
    if let Ok(media_type) = HeaderValue::try_from(format!("multipart/byteranges; boundary={boundary}")) {
        headers.insert(CONTENT_TYPE, media_type);
    }
    segments
}

/// The body of an answer with a large value.
pub(crate) struct ValueBody {
    pub(crate) reader: RangeReader,
    pub(crate) segments: Vec<Segment>,
}

impl ValueBody {
    /// Makes this the body of `response`. It is read as its client takes it.
    pub(crate) fn send(self, response: &mut Response) {
        let Self { reader, segments } = self;
        let length: u64 = segments.iter().map(Segment::length).sum();
        response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(length));
        let pieces = stream::iter(segments).flat_map(move |segment| match segment {
            Segment::Text(text) => stream::once(std::future::ready(Ok::<_, Error>(text))).left_stream(),
            Segment::Value(range) => reader.range(range).right_stream(),
        });
        *response.body_mut() = Body::from_stream(pieces);
    }
}

impl Segment {
    fn length(&self) -> u64 {
        match self {
            Self::Text(text) => text.len() as u64,
            Self::Value(range) => range.end - range.start,
        }
    }
}
