//! A message of the private space in three forms: the draft of its publisher, the record in `mqtt.<tenant>`, and the
//! copy that waits for its receivers.
//!
//! | part of the record | what it is |
//! | --- | --- |
//! | key | the topic |
//! | value | the payload |
//! | `device_id`, `mqtt_client`, `orig_adapter`, `qos` | who has published it, and how |
//! | `content-type` | the property of that name |
//! | `mqtt_retain` | `1` if it is retained |
//! | `mqtt_expires` | when it is void, milliseconds since 1970-01-01T00:00:00Z |
//! | `mqtt_mapped` | `1` if it is in telemetry or events as well, and counts there for the tenant's volume |
//! | `mqtt_properties` | its other properties, as MQTT 5 writes them |

use std::sync::Arc;

use millstream_mqtt::Qos;
use millstream_types::{Grant, Header, MemoryBudget, Record, RecordView, header};
use millstream_view::Publish;

use crate::adapter::MAPPED;

const CLIENT: &str = "mqtt_client";
const RETAIN: &str = "mqtt_retain";
const EXPIRES: &str = "mqtt_expires";
const PROPERTIES: &str = "mqtt_properties";
/// Approximate memory of a message beside its parts.
const OVERHEAD_BYTES: usize = 160;

/// A tenant's retained messages, by topic.
pub(crate) type RetainedMap = imbl::OrdMap<Arc<str>, Arc<Message>>;

/// A message that is to be published. Borrows everything.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MessageDraft<'a> {
    pub(crate) topic: &'a str,
    pub(crate) payload: &'a [u8],
    pub(crate) qos: Qos,
    pub(crate) retain: bool,
    /// True if the message goes to telemetry or events as well.
    pub(crate) is_routed: bool,
    /// The adapter that has taken it from its device; empty for what the server publishes on a device's behalf.
    pub(crate) adapter: &'static str,
    /// The client id of the publisher.
    pub(crate) client: &'a str,
    pub(crate) device: &'a str,
    pub(crate) content_type: Option<&'a str>,
    /// Without those that the server says itself.
    pub(crate) properties: &'a [u8],
    /// When it is void, as its header says it; empty if never.
    pub(crate) expires: &'a str,
}

/// The expiry header of a message that is published now; empty if it does not expire.
pub(crate) fn expires(expiry_s: Option<u32>, now_ms: i64) -> String {
    let end = expiry_s.map(|seconds| now_ms.saturating_add(i64::from(seconds) * 1_000));
    end.map(|end| end.to_string()).unwrap_or_default()
}

impl<'a> MessageDraft<'a> {
    /// The record, as a view appends it.
    pub(crate) fn to_publish(self, now_ms: i64) -> Publish {
        Publish {
            timestamp_ms: now_ms,
            key: Some(self.topic.into()),
            value: Some(self.payload.to_vec()),
            headers: self.parts().into_iter().map(|(name, value)| (name.into(), value.to_vec())).collect(),
        }
    }

    /// The message that its topic retains.
    pub(crate) fn to_message(self) -> Message {
        Message {
            topic: self.topic.into(),
            payload: self.payload.into(),
            qos: self.qos,
            properties: self.properties.into(),
            expires_ms: self.expires.parse().ok(),
            _room: None,
        }
    }

    pub(crate) fn headers(&self) -> Vec<Header<'a>> {
        self.parts().into_iter().map(|(key, value)| Header { key, value: Some(value) }).collect()
    }

    fn parts(&self) -> Vec<(&'static str, &'a [u8])> {
        let qos = match self.qos {
            Qos::AtMostOnce => "0",
            Qos::AtLeastOnce => "1",
            Qos::ExactlyOnce => "2",
        };
        let mut parts = Vec::with_capacity(9);
        let mut add = |key, value: &'a [u8]| parts.push((key, value));
        add(header::DEVICE_ID, self.device.as_bytes());
        if !self.adapter.is_empty() {
            add(header::ORIG_ADAPTER, self.adapter.as_bytes());
        }
        add(CLIENT, self.client.as_bytes());
        add(header::QOS, qos.as_bytes());
        if let Some(content_type) = self.content_type {
            add(header::CONTENT_TYPE, content_type.as_bytes());
        }
        if self.retain {
            add(RETAIN, b"1");
        }
        if self.is_routed {
            add(MAPPED, b"1");
        }
        if !self.expires.is_empty() {
            add(EXPIRES, self.expires.as_bytes());
        }
        if !self.properties.is_empty() {
            add(PROPERTIES, self.properties);
        }
        parts
    }

    /// The size of the record, as the log limits it.
    pub(crate) fn size_bytes(&self) -> usize {
        let headers = self.parts().iter().map(|(name, value)| name.len() + value.len()).sum::<usize>();
        self.topic.len() + self.payload.len() + headers
    }

    /// The record; `headers` are those of [`MessageDraft::headers`].
    pub(crate) fn record<'b>(&self, now_ms: i64, headers: &'b [Header<'b>]) -> Record<'b>
    where
        'a: 'b,
    {
        Record { timestamp_ms: now_ms, key: Some(self.topic.as_bytes()), value: Some(self.payload), headers }
    }
}

/// A message as it lies in a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MessageView<'a> {
    pub(crate) topic: &'a str,
    pub(crate) payload: &'a [u8],
    pub(crate) qos: Qos,
    pub(crate) retain: bool,
    pub(crate) client: &'a str,
    pub(crate) properties: &'a [u8],
    pub(crate) expires_ms: Option<i64>,
}

impl<'a> MessageView<'a> {
    /// `None` if the record is no message.
    pub(crate) fn read(record: &RecordView<'a>) -> Option<Self> {
        let topic = std::str::from_utf8(record.key?).ok()?;
        let mut message = Self {
            topic,
            payload: record.value.unwrap_or_default(),
            qos: Qos::AtMostOnce,
            retain: false,
            client: "",
            properties: &[],
            expires_ms: None,
        };
        for header in record.headers() {
            let Some(value) = header.value else { continue };
            let text = || std::str::from_utf8(value).ok();
            match header.key {
                header::QOS => message.qos = Qos::of(value.first()?.wrapping_sub(b'0')).ok()?,
                RETAIN => message.retain = true,
                CLIENT => message.client = text()?,
                PROPERTIES => message.properties = value,
                EXPIRES => message.expires_ms = Some(text()?.parse().ok()?),
                _ => {}
            }
        }
        Some(message)
    }

    /// Bytes that it takes in memory, about.
    pub(crate) fn size_bytes(&self) -> usize {
        self.topic.len() + self.payload.len() + self.properties.len() + OVERHEAD_BYTES
    }

    /// A copy that may be kept; `None` if `room` has none for it.
    pub(crate) fn keep(&self, room: &MemoryBudget) -> Option<Arc<Message>> {
        let grant = room.take(self.size_bytes() as u64)?;
        Some(Arc::new(Message {
            topic: self.topic.into(),
            payload: self.payload.into(),
            qos: self.qos,
            properties: self.properties.into(),
            expires_ms: self.expires_ms,
            _room: Some(grant),
        }))
    }
}

/// A message that waits for those who want it; they share it.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) topic: Box<str>,
    pub(crate) payload: Box<[u8]>,
    /// The QoS that its publisher chose.
    pub(crate) qos: Qos,
    pub(crate) properties: Box<[u8]>,
    pub(crate) expires_ms: Option<i64>,
    /// Its room in the memory budget, while it is not counted elsewhere.
    pub(crate) _room: Option<Grant>,
}

impl Message {
    /// Bytes that it takes in memory, about.
    pub(crate) fn size_bytes(&self) -> usize {
        self.topic.len() + self.payload.len() + self.properties.len() + OVERHEAD_BYTES
    }

    /// Whole seconds that are left to it; `None` if it is void. `Some(None)` if it lasts.
    pub(crate) fn lasts_s(&self, now_ms: i64) -> Option<Option<u32>> {
        let Some(end) = self.expires_ms else { return Some(None) };
        let left_ms = u64::try_from(end.saturating_sub(now_ms)).ok().filter(|left| *left > 0)?;
        Some(Some(u32::try_from(left_ms.div_ceil(1_000)).unwrap_or(u32::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use millstream_types::{BatchBuilder, Compression, Epoch, Offset};

    use super::*;

    #[test]
    fn a_message_is_read_from_its_record_as_it_was_published() {
        for (qos, retain, expires) in [(Qos::AtMostOnce, false, ""), (Qos::ExactlyOnce, true, "1700000000000")] {
            let draft = MessageDraft {
                topic: "a/b",
                payload: b"x",
                qos,
                retain,
                is_routed: retain,
                adapter: "hono-mqtt",
                client: "c",
                device: "d",
                content_type: Some("text/plain"),
                properties: &[1, 1],
                expires,
            };
            let headers = draft.headers();
            let mut builder = BatchBuilder::default();
            builder.push(&draft.record(5, &headers));
            let batch = builder.seal(Offset(7), Epoch(0), Compression::None);
            let record = batch.records().next().unwrap().unwrap();
            assert_eq!(record.header(header::CONTENT_TYPE), Some(&b"text/plain"[..]));
            assert_eq!(record.header(header::DEVICE_ID), Some(&b"d"[..]));
            assert_eq!(record.header(MAPPED), retain.then_some(&b"1"[..]));
            let expected = MessageView {
                topic: "a/b",
                payload: b"x",
                qos,
                retain,
                client: "c",
                properties: &[1, 1],
                expires_ms: expires.parse().ok(),
            };
            assert_eq!(MessageView::read(&record), Some(expected));
        }
    }

    #[test]
    fn the_remaining_time_is_in_whole_seconds_and_an_expired_message_has_none() {
        let room = MemoryBudget::new("room", 1_000);
        let lying = MessageView {
            topic: "a",
            payload: b"",
            qos: Qos::AtMostOnce,
            retain: false,
            client: "",
            properties: &[],
            expires_ms: Some(10_000),
        };
        let message = lying.keep(&room).unwrap();
        for (now_ms, left) in [(0, Some(Some(10))), (9_001, Some(Some(1))), (9_999, Some(Some(1))), (10_000, None)] {
            assert_eq!(message.lasts_s(now_ms), left, "{now_ms}");
        }
        let lasting = MessageView { expires_ms: None, ..lying }.keep(&room).unwrap();
        assert_eq!(lasting.lasts_s(i64::MAX), Some(None));
        assert!(room.used_bytes() >= 2);
        drop((message, lasting));
        assert_eq!(room.used_bytes(), 0);
    }
}
