//! From a device's message to its record. Nothing of it is copied before it reaches its batch.

use millstream_http::Problem;
use millstream_types::{Header, Record, header};
use smallvec::SmallVec;

use crate::meter::Delivery;
use crate::sender::Sender;

const DEFAULT_TYPE: &[u8] = b"application/octet-stream";
/// The type of a message that says "I am here" and nothing else.
pub(crate) const EMPTY_NOTIFICATION: &[u8] = b"application/vnd.eclipse-hono-empty-notification";
/// Says that an MQTT client asked for the message to be retained.
pub(crate) const OPT_RETAIN: &str = "x-opt-retain";

/// The headers of a record; most have no more than these.
pub(crate) type Headers<'a> = SmallVec<[Header<'a>; 8]>;

/// A message, as an adapter has read it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Outgoing<'a> {
    /// The adapter's type.
    pub(crate) adapter: &'static str,
    pub(crate) delivery: Delivery,
    /// The path or topic that it was sent to.
    pub(crate) address: &'a str,
    pub(crate) content_type: Option<&'a [u8]>,
    /// How the payload is packed, as its sender says it; it is handed on as it came.
    pub(crate) content_encoding: Option<&'a [u8]>,
    pub(crate) traceparent: Option<&'a [u8]>,
    pub(crate) is_retained: bool,
    pub(crate) payload: &'a [u8],
    /// What it answers, if it answers a command.
    pub(crate) reply: Option<Reply<'a>>,
}

/// What a device says of a command that it answers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reply<'a> {
    pub(crate) tenant: &'a str,
    pub(crate) correlation_id: &'a str,
    /// The status, as it was sent.
    pub(crate) status: &'a str,
}

/// The status of an answer to a command: of success, or of an error.
pub(crate) fn status_of_reply(text: &str) -> Option<u16> {
    let is_plain = text.len() == 3 && text.bytes().all(|byte| byte.is_ascii_digit());
    let status: u16 = text.parse().ok().filter(|_| is_plain)?;
    matches!(status, 200..=299 | 400..=599).then_some(status)
}

/// The numbers of a message, as its headers write them.
#[derive(Debug, Clone)]
pub(crate) struct Numbers {
    now_ms: i64,
    created: Digits,
    ttd: Option<Digits>,
    ttl: Option<Digits>,
}

impl Numbers {
    /// `now_ms` is when it was taken.
    pub(crate) fn at(now_ms: i64) -> Self {
        Self { now_ms, created: Digits::of(now_ms.unsigned_abs()), ttd: None, ttl: None }
    }

    /// With the time for which the device waits for a command, and with that after which the message is void.
    pub(crate) fn with_times(mut self, ttd_s: Option<u32>, ttl_s: Option<u64>) -> Self {
        self.ttd = ttd_s.map(|seconds| Digits::of(seconds.into()));
        self.ttl = ttl_s.map(|seconds| Digits::of(seconds.saturating_mul(1_000)));
        self
    }
}

impl<'a> Outgoing<'a> {
    /// The record's headers.
    pub(crate) fn headers(&self, sender: &Sender<'a>, numbers: &'a Numbers) -> Headers<'a> {
        let mut headers = Headers::new();
        let content_type = self.content_type.or_else(|| sender.default_type()).unwrap_or(DEFAULT_TYPE);
        let mut add = |key, value| headers.push(Header { key, value: Some(value) });
        add(header::DEVICE_ID, sender.id.as_bytes());
        add(header::ORIG_ADAPTER, self.adapter.as_bytes());
        add(header::ORIG_ADDRESS, self.address.as_bytes());
        add(header::QOS, self.delivery.qos().as_bytes());
        add(header::CREATION_TIME, numbers.created.as_bytes());
        add(header::CONTENT_TYPE, content_type);
        if let Some(encoding) = self.content_encoding {
            add(header::CONTENT_ENCODING, encoding);
        }
        if let Some(trace) = self.traceparent {
            add(header::TRACEPARENT, trace);
        }
        if let Some(ttd) = &numbers.ttd {
            add(header::TTD, ttd.as_bytes());
        }
        if let Some(ttl) = &numbers.ttl {
            add(header::TTL, ttl.as_bytes());
        }
        if self.is_retained {
            add(OPT_RETAIN, b"true");
        }
        if let Some(reply) = &self.reply {
            add(header::TENANT_ID, reply.tenant.as_bytes());
            add(header::CORRELATION_ID, reply.correlation_id.as_bytes());
            add(header::STATUS, reply.status.as_bytes());
        }
        headers.extend(sender.default_headers());
        headers
    }

    /// The record, with the headers that [`Outgoing::headers`] has written.
    pub(crate) fn record(&self, sender: &Sender<'a>, numbers: &Numbers, headers: &'a [Header<'a>]) -> Record<'a> {
        let (key, value) = (Some(sender.id.as_bytes()), Some(self.payload));
        Record { timestamp_ms: numbers.now_ms, key, value, headers }
    }
}

/// Whether type and payload fit. `remedy` names the way in which the adapter's devices say a type.
pub(crate) fn check_type(content_type: Option<&[u8]>, payload: &[u8], rule: &'static str) -> Result<(), Problem> {
    let Some(content_type) = content_type else {
        if payload.is_empty() {
            return Err(Problem::invalid("the message has neither payload nor type")
                .value("no Content-Type")
                .rule(rule)
                .remedy("send a body, or the type application/vnd.eclipse-hono-empty-notification"));
        }
        return Ok(());
    };
    let essence = content_type.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    if !payload.is_empty() && essence.eq_ignore_ascii_case(EMPTY_NOTIFICATION) {
        return Err(Problem::invalid("type and payload do not fit")
            .value(format!("{} bytes", payload.len()))
            .rule("an empty notification has an empty body")
            .remedy("leave the body out, or send its own type"));
    }
    Ok(())
}

/// A number as text, on the stack.
#[derive(Debug, Clone, Copy)]
struct Digits {
    text: [u8; 20],
    length: u8,
}

impl Digits {
    fn of(number: u64) -> Self {
        let (mut written, mut text) = (itoa::Buffer::new(), [0; 20]);
        let digits = written.format(number).as_bytes();
        // Twenty digits hold every number of 64 bits.
        text[..digits.len()].copy_from_slice(digits);
        Self { text, length: digits.len() as u8 }
    }

    fn as_bytes(&self) -> &[u8] {
        &self.text[..usize::from(self.length)]
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Map, Value};

    use super::*;
    use crate::registry::{Defaults, Device, Stored, Tenant};

    #[test]
    fn no_header_that_an_adapter_writes_can_be_a_default() {
        let (device, tenant) = (Device::default(), Stored::new(Arc::new(Tenant::default()), 0));
        let sender = Sender::of("d", &device, &tenant);
        let numbers = Numbers::at(0).with_times(Some(1), Some(1));
        let whole = Outgoing {
            adapter: "hono-mqtt",
            delivery: Delivery::Response,
            address: "c///s/R/200",
            content_type: Some(b"text/plain"),
            content_encoding: Some(b"gzip"),
            traceparent: Some(b"00"),
            is_retained: true,
            payload: b"",
            reply: Some(Reply { tenant: "T", correlation_id: "C", status: "200" }),
        };
        let headers = whole.headers(&sender, &numbers);
        let given = headers.iter().map(|header| (header.key.to_owned(), Value::from(1)));
        let given = given.filter(|(key, _)| key != header::CONTENT_TYPE);
        let defaults = Defaults::try_from(given.collect::<Map<_, _>>()).unwrap();
        assert_eq!((headers.len(), defaults.headers()), (14, &[][..]));
    }
}
