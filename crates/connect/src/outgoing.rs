//! Builds the record of a device's message. The message is not copied before it reaches its batch.

use millstream_types::{Header, Record, header};
use smallvec::SmallVec;

use crate::adapter::{OPT_RETAIN, is_of_the_adapter};
use crate::sender::Sender;
use crate::stream::Delivery;

const DEFAULT_TYPE: &[u8] = b"application/octet-stream";

/// The headers of a record; most have no more than these.
pub(crate) type Headers<'a> = SmallVec<[Header<'a>; 8]>;

/// A message, as an adapter has read it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AdapterMessage<'a> {
    /// The type of the adapter, as in `orig_adapter`.
    pub(crate) adapter: &'static str,
    pub(crate) delivery: Delivery,
    /// The path or topic that it was sent to.
    pub(crate) address: &'a str,
    pub(crate) content_type: Option<&'a [u8]>,
    /// The sender's content encoding; the payload is passed on unchanged.
    pub(crate) content_encoding: Option<&'a [u8]>,
    pub(crate) traceparent: Option<&'a [u8]>,
    pub(crate) is_retained: bool,
    pub(crate) payload: &'a [u8],
    /// The command that it responds to.
    pub(crate) reply: Option<DeviceReply<'a>>,
}

/// A device's response to a command.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DeviceReply<'a> {
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
    /// `now_ms` is the time of receipt.
    pub(crate) fn at(now_ms: i64) -> Self {
        Self { now_ms, created: Digits::of(now_ms.unsigned_abs()), ttd: None, ttl: None }
    }

    /// Adds the time that the device waits for a command, and the message's time to live.
    pub(crate) fn with_times(mut self, ttd_s: Option<u32>, ttl_s: Option<u64>) -> Self {
        self.ttd = ttd_s.map(|seconds| Digits::of(seconds.into()));
        self.ttl = ttl_s.map(|seconds| Digits::of(seconds.saturating_mul(1_000)));
        self
    }
}

impl<'a> AdapterMessage<'a> {
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

    /// Adds the sender's user properties. They replace defaults of the same name, but not the adapter's headers.
    pub(crate) fn add_user_properties<'b>(
        headers: &mut Headers<'b>,
        properties: impl Iterator<Item = (&'b str, &'b str)> + Clone,
    ) {
        headers.retain(|header| is_of_the_adapter(header.key) || !properties.clone().any(|(key, _)| key == header.key));
        let own = properties.filter(|(key, _)| !key.is_empty() && !is_of_the_adapter(key));
        headers.extend(own.map(|(key, value)| Header { key, value: Some(value.as_bytes()) }));
    }

    /// The record, with the headers that [`AdapterMessage::headers`] has written.
    pub(crate) fn record(&self, sender: &Sender<'a>, numbers: &Numbers, headers: &'a [Header<'a>]) -> Record<'a> {
        let (key, value) = (Some(sender.id.as_bytes()), Some(self.payload));
        Record { timestamp_ms: numbers.now_ms, key, value, headers }
    }
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
        let whole = AdapterMessage {
            adapter: "hono-mqtt",
            delivery: Delivery::Response,
            address: "c///s/R/200",
            content_type: Some(b"text/plain"),
            content_encoding: Some(b"gzip"),
            traceparent: Some(b"00"),
            is_retained: true,
            payload: b"",
            reply: Some(DeviceReply { tenant: "T", correlation_id: "C", status: "200" }),
        };
        let headers = whole.headers(&sender, &numbers);
        let given = headers.iter().map(|header| (header.key.to_owned(), Value::from(1)));
        let given = given.filter(|(key, _)| key != header::CONTENT_TYPE);
        let defaults = Defaults::try_from(given.collect::<Map<_, _>>()).unwrap();
        assert_eq!((headers.len(), defaults.headers()), (14, &[][..]));
    }
}
