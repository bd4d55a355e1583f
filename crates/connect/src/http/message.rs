//! A message, as its request describes it.

use axum::extract::{FromRequest, Request};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderValue, Uri};
use bytes::Bytes;
use millstream_http::{Payload, Problem, TraceContext};

use crate::meter::Delivery;
use crate::outgoing::check_type;
use crate::streams::Stream;

const QOS_LEVEL: &str = "qos-level";
const TTD: &str = "hono-ttd";
const TTL: &str = "hono-ttl";

/// What the request says, checked on its own.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) delivery: Delivery,
    pub(super) content_type: Option<HeaderValue>,
    /// How long the device waits for a command, seconds.
    pub(super) ttd_s: Option<u32>,
    /// When an event is void, seconds.
    pub(super) ttl_s: Option<u64>,
    pub(super) address: Uri,
    pub(super) payload: Bytes,
    pub(super) trace: TraceContext,
}

impl Message {
    pub(super) async fn read(stream: Stream, trace: TraceContext, request: Request) -> Result<Self, Problem> {
        let (headers, address) = (request.headers(), request.uri().clone());
        let delivery = delivery(stream, headers)?;
        let ttd_s = number(TTD, headers, &address)?.filter(|seconds| *seconds > 0);
        let ttl_s = match stream {
            Stream::Telemetry => None,
            Stream::Event => number(TTL, headers, &address)?.map(ttl).transpose()?,
        };
        let content_type = headers.get(CONTENT_TYPE).filter(|value| !value.is_empty()).cloned();
        let Payload(payload) = Payload::from_request(request, &()).await?;
        check_type(content_type.as_ref().map(HeaderValue::as_bytes), &payload, "an empty body needs a Content-Type")?;
        let ttd_s = ttd_s.map(|seconds| u32::try_from(seconds).unwrap_or(u32::MAX));
        Ok(Self { delivery, content_type, ttd_s, ttl_s, address, payload, trace })
    }
}

fn delivery(stream: Stream, headers: &HeaderMap) -> Result<Delivery, Problem> {
    let given = headers.get(QOS_LEVEL);
    match (stream, given.map(HeaderValue::as_bytes)) {
        (Stream::Telemetry, None | Some(b"0")) => Ok(Delivery::AtMostOnce),
        (Stream::Telemetry, Some(b"1")) => Ok(Delivery::AtLeastOnce),
        (Stream::Event, None | Some(b"1")) => Ok(Delivery::Event),
        (stream, given) => {
            let rule = match stream {
                Stream::Telemetry => "telemetry is sent with qos-level 0 (at most once) or 1 (at least once)",
                Stream::Event => "events are sent with qos-level 1 only",
            };
            Err(Problem::invalid("there is no such quality of service here")
                .value(String::from_utf8_lossy(given.unwrap_or_default()))
                .rule(rule)
                .remedy("send one of these, or leave the header out"))
        }
    }
}

/// A whole number that is a header or a parameter of the query.
fn number(name: &'static str, headers: &HeaderMap, address: &Uri) -> Result<Option<i64>, Problem> {
    let in_header = headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()));
    let in_query = || {
        let pairs = address.query()?.split('&').filter_map(|pair| pair.split_once('='));
        pairs.filter(|(key, _)| *key == name).map(|(_, value)| value.into()).next()
    };
    let Some(given) = in_header.or_else(in_query) else { return Ok(None) };
    given.trim().parse().map(Some).map_err(|_| {
        Problem::invalid(format!("{name} is no number"))
            .value(given)
            .rule("a whole number of seconds")
            .remedy("send for example 60, or leave it out")
    })
}

fn ttl(seconds: i64) -> Result<u64, Problem> {
    u64::try_from(seconds).map_err(|_| {
        Problem::invalid("an event cannot be void before it is sent")
            .value(seconds)
            .rule("hono-ttl is 0 or more seconds")
            .remedy("send for example 60, or leave it out")
    })
}
