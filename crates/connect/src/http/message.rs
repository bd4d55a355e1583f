//! A message, as its request describes it.

use axum::extract::{FromRequest, Request};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderValue, Uri};
use bytes::Bytes;
use millstream_http::{Payload, Problem, TraceContext};

use crate::meter::Delivery;
use crate::streams::Stream;

/// The type of a message that says "I am here" and nothing else.
const EMPTY_NOTIFICATION: &[u8] = b"application/vnd.eclipse-hono-empty-notification";

const QOS_LEVEL: &str = "qos-level";
const TTD: &str = "hono-ttd";
const TTL: &str = "hono-ttl";

/// Which device a message is from.
#[derive(Debug, Clone, Copy)]
pub(super) enum Target<'a> {
    /// The one that logged in.
    Caller,
    /// The one that the path names; without tenant it is one of the caller's.
    Named { tenant: Option<&'a str>, device: &'a str },
}

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
        check_type(content_type.as_ref(), &payload)?;
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

fn check_type(content_type: Option<&HeaderValue>, payload: &Bytes) -> Result<(), Problem> {
    let Some(content_type) = content_type else {
        if payload.is_empty() {
            return Err(Problem::invalid("the message has neither payload nor type")
                .value("no Content-Type header")
                .rule("an empty body needs a Content-Type")
                .remedy("send a body, or the type application/vnd.eclipse-hono-empty-notification"));
        }
        return Ok(());
    };
    let essence = content_type.as_bytes().split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    if !payload.is_empty() && essence.eq_ignore_ascii_case(EMPTY_NOTIFICATION) {
        return Err(Problem::invalid("type and payload do not fit")
            .value(format!("{} bytes", payload.len()))
            .rule("an empty notification has an empty body")
            .remedy("leave the body out, or send its own type"));
    }
    Ok(())
}
