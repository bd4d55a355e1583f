//! A device's message and the parsing of its request.

use std::borrow::Cow;

use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use bytes::Bytes;
use millstream_http::{Problem, Request, TraceContext, Unread};
use millstream_types::Principal;

use crate::commands::{RequestId, Response};
use crate::content_type::check_type;
use crate::ingest::{self, Envelope};
use crate::outgoing::status_of_reply;
use crate::refusal::{bad_reply_status, bad_request_id};
use crate::sender::DeviceAddress;
use crate::stream::{Delivery, Stream};

const QOS_LEVEL: &str = "qos-level";
const TTD: &str = "hono-ttd";
const TTL: &str = "hono-ttl";
const STATUS: &str = "hono-cmd-status";
const NO_TYPE: &str = "an empty body needs a Content-Type";

/// The checked parameters of a request. `B` are bytes and `S` is text, borrowed from the request or owned.
#[derive(Debug)]
pub(super) struct HttpMessage<B, S> {
    pub(super) delivery: Delivery,
    content_type: Option<B>,
    content_encoding: Option<B>,
    /// Time that the device waits for a command, seconds.
    ttd_s: Option<u32>,
    /// Time to live of an event, seconds.
    ttl_s: Option<u64>,
    /// The path of the request, as the record's address.
    path: S,
    pub(super) payload: B,
    trace: TraceContext,
    /// Request id and status of an answer to a command.
    pub(super) reply: Option<(RequestId, u16)>,
}

impl<'a> HttpMessage<&'a [u8], &'a str> {
    /// Reads the message of a request; `request_id` names the command that it answers.
    pub(super) fn read(stream: Stream, request_id: Option<&str>, request: &Request<'a>) -> Result<Self, Unread> {
        let (delivery, ttd_s, ttl_s, reply) = match request_id {
            Some(request_id) => (Delivery::Response, None, None, Some(read_reply(request_id, request)?)),
            None => {
                let delivery = delivery(stream, request.header(QOS_LEVEL))?;
                let ttd_s = number(TTD, request)?.filter(|seconds| *seconds > 0);
                let ttl_s = match stream {
                    Stream::Telemetry | Stream::CommandResponse => None,
                    Stream::Event => number(TTL, request)?.map(ttl).transpose()?,
                };
                (delivery, ttd_s.map(|seconds| u32::try_from(seconds).unwrap_or(u32::MAX)), ttl_s, None)
            }
        };
        let given = |name| request.header(name).filter(|value| !value.is_empty());
        let content_type = given(CONTENT_TYPE.as_str());
        check_text(content_type)?;
        let content_encoding = given(CONTENT_ENCODING.as_str());
        let payload = request.body()?;
        if reply.is_none() {
            check_type(content_type, payload, NO_TYPE)?;
        }
        let (path, trace) = (request.path(), request.trace());
        Ok(Self { delivery, content_type, content_encoding, ttd_s, ttl_s, path, payload, trace, reply })
    }

    /// The message with `payload`, which holds the same bytes, to keep.
    pub(super) fn to_owned(&self, payload: Bytes) -> HttpMessage<Bytes, String> {
        let owned = |value: Option<&[u8]>| value.map(Bytes::copy_from_slice);
        HttpMessage {
            delivery: self.delivery,
            content_type: owned(self.content_type),
            content_encoding: owned(self.content_encoding),
            ttd_s: self.ttd_s,
            ttl_s: self.ttl_s,
            path: self.path.to_owned(),
            payload,
            trace: self.trace,
            reply: self.reply.clone(),
        }
    }
}

impl<B: AsRef<[u8]>, S: AsRef<str>> HttpMessage<B, S> {
    /// The envelope of the message; `reply` has the status of an answer as text.
    pub(super) fn envelope<'e>(
        &'e self,
        caller: &'e Principal,
        target: DeviceAddress<'e>,
        reply: Option<(&'e RequestId, &'e str)>,
    ) -> Envelope<'e> {
        Envelope {
            caller,
            target,
            delivery: self.delivery,
            address: self.path.as_ref(),
            content_type: None,
            ttd_s: self.ttd_s,
            ttl_s: self.ttl_s,
            trace: Some(self.trace),
            reply,
            is_will: false,
        }
    }

    /// The response for the HTTP request that waits for it. `payload` holds the message's bytes.
    pub(super) fn response(&self, device: &str, status: u16, payload: Bytes) -> Response {
        let content_type = self.content_type.as_ref().and_then(|value| std::str::from_utf8(value.as_ref()).ok());
        Response { device: device.into(), status, content_type: content_type.map(Into::into), payload }
    }
}

impl<B: AsRef<[u8]>, S> ingest::Message for HttpMessage<B, S> {
    fn payload(&self) -> &[u8] {
        self.payload.as_ref()
    }

    fn content_type(&self) -> Option<&[u8]> {
        self.content_type.as_ref().map(AsRef::as_ref)
    }

    fn content_encoding(&self) -> Option<&[u8]> {
        self.content_encoding.as_ref().map(AsRef::as_ref)
    }
}

/// Reads request id and status of an answer to a command.
fn read_reply(request_id: &str, request: &Request<'_>) -> Result<(RequestId, u16), Problem> {
    let id = RequestId::parse(request_id).ok_or_else(|| bad_request_id(request_id))?;
    let given = given(STATUS, request).unwrap_or_default();
    let status = status_of_reply(given.trim()).ok_or_else(|| bad_reply_status(STATUS, &given))?;
    Ok((id, status))
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

/// A header or query parameter.
fn given<'a>(name: &'static str, request: &Request<'a>) -> Option<Cow<'a, str>> {
    let in_header = request.header(name).map(String::from_utf8_lossy);
    let in_query = || {
        let pairs = request.query()?.split('&').filter_map(|pair| pair.split_once('='));
        pairs.filter(|(key, _)| *key == name).map(|(_, value)| value.into()).next()
    };
    in_header.or_else(in_query)
}

/// An integer header or query parameter.
fn number(name: &'static str, request: &Request<'_>) -> Result<Option<i64>, Problem> {
    let Some(given) = given(name, request) else { return Ok(None) };
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
