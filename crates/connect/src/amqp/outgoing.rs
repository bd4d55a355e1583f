//! The message of a record, as applications of Eclipse Hono know it.

use millstream_amqp::{Header, MapBuilder, MessageDraft, Properties, Symbol, Timestamp, Value};
use millstream_types::{RecordView, TopicKind, header};

use super::address::StreamAddress;
use super::reply_address::Reply;
use crate::adapter::OPT_RETAIN;

/// Headers whose value is a number in a message.
const NUMBERS: [&str; 3] = [header::QOS, header::TTD, header::STATUS];

/// Writes messages into memory that is used again.
#[derive(Debug, Default)]
pub(super) struct MessageWriter {
    application_properties: MapBuilder,
    annotations: MapBuilder,
}

impl MessageWriter {
    /// Appends the message of `record`, a record of `address`. Headers that are no UTF-8 are left out.
    pub(super) fn write(
        &mut self,
        address: &StreamAddress,
        address_text: &str,
        record: &RecordView<'_>,
        failed_deliveries: u32,
        out: &mut Vec<u8>,
    ) {
        self.application_properties.clear();
        self.annotations.clear();
        let mut properties = Properties { to: Some(Value::String(address_text)), ..Properties::default() };
        let mut ttl = None;
        let reply;
        let mut correlation_id = None;
        for given in record.headers() {
            let Some(text) = given.value.and_then(|value| std::str::from_utf8(value).ok()) else { continue };
            match given.key {
                header::CONTENT_TYPE if text.is_ascii() => properties.content_type = Some(Symbol(text)),
                header::CONTENT_ENCODING if text.is_ascii() => properties.content_encoding = Some(Symbol(text)),
                header::CREATION_TIME => properties.creation_time = text.parse().ok().map(Timestamp),
                header::CORRELATION_ID => correlation_id = Some(text),
                header::TTL => ttl = text.parse().ok(),
                OPT_RETAIN => self.annotations.symbol(OPT_RETAIN, Value::Bool(text == "true")),
                header::TENANT_ID => {}
                key if NUMBERS.contains(&key) => {
                    let value = text.parse().map_or(Value::String(text), Value::Int);
                    self.application_properties.string(key, value);
                }
                key => self.application_properties.string(key, Value::String(text)),
            }
        }
        if let Some(text) = correlation_id {
            reply = Reply::parse(text).filter(|_| address.kind == TopicKind::CommandResponse);
            properties.correlation_id = reply.as_ref().and_then(Reply::id).or(Some(Value::String(text)));
        }
        self.application_properties.string(header::TENANT_ID, Value::String(address.tenant.as_str()));
        let draft = MessageDraft {
            header: Header {
                durable: address.kind == TopicKind::Event,
                ttl,
                delivery_count: failed_deliveries,
                ..Header::default()
            },
            annotations: self.annotations.as_map(),
            properties,
            application_properties: self.application_properties.as_map(),
            data: record.value.unwrap_or_default(),
        };
        draft.write(out);
    }
}

#[cfg(test)]
mod tests {
    use millstream_amqp::Message;
    use millstream_types::{BatchBuilder, Compression, Epoch, Offset, Record, TenantId};

    use super::*;

    /// The message of a record with these headers, and the fields of the message.
    fn written(kind: TopicKind, headers: &[(&str, &[u8])]) -> Vec<u8> {
        let headers: Vec<_> =
            headers.iter().map(|(key, value)| millstream_types::Header { key, value: Some(value) }).collect();
        let mut builder = BatchBuilder::default();
        builder.push(&Record { timestamp_ms: 1, key: Some(b"d"), value: Some(b"21.5"), headers: &headers });
        let batch = builder.seal(Offset(7), Epoch(0), Compression::None);
        let address = StreamAddress { tenant: TenantId::new("acme").unwrap(), kind, reply: "".into() };
        let mut out = Vec::new();
        let record = batch.records().next().unwrap().unwrap();
        MessageWriter::default().write(&address, "telemetry/acme", &record, 2, &mut out);
        out
    }

    #[test]
    fn a_record_becomes_the_message_that_applications_of_hono_read() {
        let bytes = written(
            TopicKind::Telemetry,
            &[
                ("device_id", b"d-1"),
                ("orig_adapter", b"hono-mqtt"),
                ("orig_address", b"telemetry"),
                ("qos", b"1"),
                ("creation-time", b"1700000000000"),
                ("content-type", b"application/json"),
                ("content-encoding", b"gzip"),
                ("ttd", b"-1"),
                ("x-opt-retain", b"true"),
                ("site", "Süd".as_bytes()),
                ("broken", b"\xff"),
            ],
        );
        let message = Message::read(&bytes).unwrap();
        assert_eq!(message.content.bytes(), Some(&b"21.5"[..]));
        assert_eq!((message.header.durable, message.header.delivery_count, message.header.ttl), (false, 2, None));
        let properties = message.properties;
        assert_eq!(properties.to, Some(Value::String("telemetry/acme")));
        assert_eq!(properties.content_type, Some(Symbol("application/json")));
        assert_eq!(properties.content_encoding, Some(Symbol("gzip")));
        assert_eq!(properties.creation_time, Some(Timestamp(1_700_000_000_000)));
        assert_eq!(message.annotations.get("x-opt-retain"), Some(Value::Bool(true)));
        for (name, expected) in [
            ("device_id", Some(Value::String("d-1"))),
            ("tenant_id", Some(Value::String("acme"))),
            ("orig_adapter", Some(Value::String("hono-mqtt"))),
            ("orig_address", Some(Value::String("telemetry"))),
            ("qos", Some(Value::Int(1))),
            ("ttd", Some(Value::Int(-1))),
            ("site", Some(Value::String("Süd"))),
            ("broken", None),
            ("content-type", None),
        ] {
            assert_eq!(message.application_properties.get(name), expected, "{name}");
        }
    }

    #[test]
    fn an_event_is_durable_and_has_its_time_to_live() {
        let bytes = written(TopicKind::Event, &[("ttl", b"5000"), ("qos", b"x")]);
        let message = Message::read(&bytes).unwrap();
        assert_eq!((message.header.durable, message.header.ttl), (true, Some(5_000)));
        assert_eq!(message.application_properties.get("qos"), Some(Value::String("x")));
    }
}
