//! A message, as its request describes it.

use std::borrow::Cow;

use axum::extract::{FromRequest, Request};
use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue, Uri};
use bytes::Bytes;
use millstream_http::{Payload, PlainRequest, Problem, TraceContext};

use crate::commands::{Response, correlation_of};
use crate::meter::Delivery;
use crate::outgoing::{check_type, status_of_reply};
use crate::refusal::{bad_reply_status, bad_request_id};
use crate::streams::Stream;

pub(super) const QOS_LEVEL: &str = "qos-level";
const TTD: &str = "hono-ttd";
const TTL: &str = "hono-ttl";
const STATUS: &str = "hono-cmd-status";
const NO_TYPE: &str = "an empty body needs a Content-Type";

/// What a request brings.
#[derive(Debug, Clone, Copy)]
pub(super) enum What<'a> {
    /// Telemetry or an event.
    Message(Stream),
    /// The answer to the command that was delivered under this request id.
    Reply(&'a str),
}

/// What the request says, as it is handed on. Nothing of it is copied.
#[derive(Debug, Clone, Copy)]
pub(super) struct Said<'a> {
    pub(super) delivery: Delivery,
    pub(super) content_type: Option<&'a [u8]>,
    pub(super) content_encoding: Option<&'a [u8]>,
    /// How long the device waits for a command, seconds.
    pub(super) ttd_s: Option<u32>,
    /// When an event is void, seconds.
    pub(super) ttl_s: Option<u64>,
    /// The path that it was sent to.
    pub(super) address: &'a str,
    pub(super) payload: &'a [u8],
    pub(super) trace: TraceContext,
    /// Correlation id and status of an answer to a command.
    pub(super) reply: Option<(&'a str, u16)>,
}

impl<'a> Said<'a> {
    /// What a plain request says.
    pub(super) fn plainly(stream: Stream, request: &PlainRequest<'a>) -> Result<Self, Problem> {
        let delivery = delivery(stream, request.header(QOS_LEVEL))?;
        let content_type = request.header(CONTENT_TYPE.as_str()).filter(|value| !value.is_empty());
        check_text(content_type)?;
        check_type(content_type, request.payload, NO_TYPE)?;
        Ok(Self {
            delivery,
            content_type,
            content_encoding: request.header(CONTENT_ENCODING.as_str()).filter(|value| !value.is_empty()),
            ttd_s: None,
            ttl_s: None,
            address: request.path(),
            payload: request.payload,
            trace: request.trace,
            reply: None,
        })
    }
}

/// What the request says, checked on its own.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) delivery: Delivery,
    pub(super) content_type: Option<HeaderValue>,
    pub(super) content_encoding: Option<HeaderValue>,
    /// How long the device waits for a command, seconds.
    pub(super) ttd_s: Option<u32>,
    /// When an event is void, seconds.
    pub(super) ttl_s: Option<u64>,
    pub(super) address: Uri,
    pub(super) payload: Bytes,
    pub(super) trace: TraceContext,
    /// Correlation id and status of an answer to a command.
    pub(super) reply: Option<(String, u16)>,
}

impl Message {
    pub(super) async fn read(what: What<'_>, trace: TraceContext, request: Request) -> Result<Self, Problem> {
        match what {
            What::Message(stream) => Self::read_message(stream, trace, request).await,
            What::Reply(request_id) => Self::read_reply(request_id, trace, request).await,
        }
    }

    async fn read_reply(request_id: &str, trace: TraceContext, request: Request) -> Result<Self, Problem> {
        let (headers, address) = (request.headers(), request.uri().clone());
        let correlation_id = correlation_of(request_id).ok_or_else(|| bad_request_id(request_id))?;
        let given = given(STATUS, headers, &address).unwrap_or_default();
        let status = status_of_reply(given.trim()).ok_or_else(|| bad_reply_status(STATUS, &given))?;
        let [content_type, content_encoding] = content(headers)?;
        let Payload(payload) = Payload::from_request(request, &()).await?;
        let (delivery, reply) = (Delivery::Response, Some((correlation_id, status)));
        let (ttd_s, ttl_s) = (None, None);
        Ok(Self { delivery, content_type, content_encoding, ttd_s, ttl_s, address, payload, trace, reply })
    }

    /// As it is handed on.
    pub(super) fn said(&self) -> Said<'_> {
        Said {
            delivery: self.delivery,
            content_type: self.content_type.as_ref().map(HeaderValue::as_bytes),
            content_encoding: self.content_encoding.as_ref().map(HeaderValue::as_bytes),
            ttd_s: self.ttd_s,
            ttl_s: self.ttl_s,
            address: self.address.path(),
            payload: &self.payload,
            trace: self.trace,
            reply: self.reply.as_ref().map(|(correlation_id, status)| (correlation_id.as_str(), *status)),
        }
    }

    /// As whoever waits for it gets it.
    pub(super) fn response(&self, device: &str, status: u16) -> Response {
        let content_type = self.content_type.as_ref().and_then(|value| value.to_str().ok()).map(Into::into);
        Response { device: device.into(), status, content_type, payload: self.payload.clone() }
    }

    async fn read_message(stream: Stream, trace: TraceContext, request: Request) -> Result<Self, Problem> {
        let (headers, address) = (request.headers(), request.uri().clone());
        let delivery = delivery(stream, headers.get(QOS_LEVEL).map(HeaderValue::as_bytes))?;
        let ttd_s = number(TTD, headers, &address)?.filter(|seconds| *seconds > 0);
        let ttl_s = match stream {
            Stream::Telemetry | Stream::CommandResponse => None,
            Stream::Event => number(TTL, headers, &address)?.map(ttl).transpose()?,
        };
        let [content_type, content_encoding] = content(headers)?;
        let Payload(payload) = Payload::from_request(request, &()).await?;
        check_type(content_type.as_ref().map(HeaderValue::as_bytes), &payload, NO_TYPE)?;
        let ttd_s = ttd_s.map(|seconds| u32::try_from(seconds).unwrap_or(u32::MAX));
        let reply = None;
        Ok(Self { delivery, content_type, content_encoding, ttd_s, ttl_s, address, payload, trace, reply })
    }
}

/// What the body is, and how it is packed.
fn content(headers: &HeaderMap) -> Result<[Option<HeaderValue>; 2], Problem> {
    let of = |name| headers.get(name).filter(|value| !value.is_empty()).cloned();
    let content_type = of(CONTENT_TYPE);
    check_text(content_type.as_ref().map(HeaderValue::as_bytes))?;
    Ok([content_type, of(CONTENT_ENCODING)])
}

/// Refuses a type that readers of the record cannot take for one.
fn check_text(content_type: Option<&[u8]>) -> Result<(), Problem> {
    match content_type.filter(|value| !value.is_ascii()) {
        Some(wrong) => Err(Problem::invalid("the Content-Type is no text")
            .value(String::from_utf8_lossy(wrong))
            .rule("a media type in ASCII, such as text/plain")
            .remedy("send one, or leave it out: then it is the default")),
        None => Ok(()),
    }
}

fn delivery(stream: Stream, qos_level: Option<&[u8]>) -> Result<Delivery, Problem> {
    match (stream, qos_level) {
        (Stream::Telemetry, None | Some(b"0")) => Ok(Delivery::AtMostOnce),
        (Stream::Telemetry, Some(b"1")) => Ok(Delivery::AtLeastOnce),
        (Stream::Event, None | Some(b"1")) => Ok(Delivery::Event),
        (stream, given) => {
            let rule = match stream {
                Stream::Telemetry => "telemetry is sent with qos-level 0 (at most once) or 1 (at least once)",
                _ => "events are sent with qos-level 1 only",
            };
            Err(Problem::invalid("there is no such quality of service here")
                .value(String::from_utf8_lossy(given.unwrap_or_default()))
                .rule(rule)
                .remedy("send one of these, or leave the header out"))
        }
    }
}

/// A header, or a parameter of the query.
fn given<'a>(name: &'static str, headers: &'a HeaderMap, address: &'a Uri) -> Option<Cow<'a, str>> {
    let in_header = headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()));
    let in_query = || {
        let pairs = address.query()?.split('&').filter_map(|pair| pair.split_once('='));
        pairs.filter(|(key, _)| *key == name).map(|(_, value)| value.into()).next()
    };
    in_header.or_else(in_query)
}

/// A whole number that is a header or a parameter of the query.
fn number(name: &'static str, headers: &HeaderMap, address: &Uri) -> Result<Option<i64>, Problem> {
    let Some(given) = given(name, headers, address) else { return Ok(None) };
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
