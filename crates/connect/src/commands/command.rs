//! A command and the parsing of its record.

use std::sync::Arc;

use bytes::Bytes;
use millstream_types::{Offset, PartitionId, RecordView, TenantId, TopicId, header};
use millstream_view::SourcePartition;

use super::outcome::Outcome;
use crate::registry::DeviceId;

/// Longest correlation id of a command, bytes.
pub(crate) const CORRELATION_ID_MAX_BYTES: usize = 256;
/// Longest name of a command, bytes.
pub(crate) const NAME_MAX_BYTES: usize = 256;
/// Most bytes of the headers that a notice repeats, including their names.
const METADATA_MAX_BYTES: usize = 4 << 10;
/// Longest media type of a command, in bytes.
const TYPE_MAX_BYTES: usize = 256;
/// Approximate memory of a command without its parts.
const OVERHEAD_BYTES: usize = 256;

/// Header that carries the command's name.
pub(crate) const SUBJECT: &str = "subject";
/// Links the command with its response and its notice.
pub(crate) const CORRELATION_ID: &str = "correlation-id";
/// Header that requests a response.
pub(crate) const RESPONSE_REQUIRED: &str = "response-required";
/// Prefix of the headers that a notice repeats.
const METADATA: &str = "delivery-failure-notification-metadata";

/// Log position of a command's record. The commands of a device are handed over in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct RecordPosition {
    pub(crate) source: SourcePartition,
    pub(crate) offset: Offset,
}

/// An application's command to a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Command {
    pub(crate) tenant: TenantId,
    pub(crate) device: Arc<str>,
    pub(crate) position: RecordPosition,
    /// The command's name, from the header `subject`.
    pub(crate) name: Box<str>,
    pub(crate) content_type: Option<Box<str>>,
    /// Links the command with its response and its notice.
    pub(crate) correlation_id: Option<Box<str>>,
    pub(crate) wants_response: bool,
    /// Headers that its notice repeats.
    pub(crate) metadata: Vec<(Box<str>, Box<str>)>,
    pub(crate) payload: Bytes,
    /// Time of receipt, milliseconds since 1970-01-01T00:00:00Z.
    pub(crate) received_ms: i64,
    /// Time until which it may wait for its device; `None` if it may not wait.
    pub(crate) expires_ms: Option<i64>,
}

impl Command {
    /// The approximate memory that the command takes.
    pub(crate) fn size_bytes(&self) -> usize {
        let metadata: usize = self.metadata.iter().map(|(name, value)| name.len() + value.len()).sum();
        let texts = [self.content_type.as_deref(), self.correlation_id.as_deref()].map(|text| text.map_or(0, str::len));
        let names = self.device.len() + self.name.len() + texts.iter().sum::<usize>();
        OVERHEAD_BYTES + names + metadata + self.payload.len()
    }
}

/// True if `text` is a valid correlation id.
pub(crate) fn is_correlation_id(text: &str) -> bool {
    !text.is_empty() && text.len() <= CORRELATION_ID_MAX_BYTES && !text.contains(char::is_control)
}

/// True if `text` is a valid command name: it becomes the end of an MQTT topic and the value of an HTTP header.
pub(crate) fn is_name(text: &str) -> bool {
    !text.is_empty() && text.len() <= NAME_MAX_BYTES && !text.contains(|c: char| c.is_control() || "+#".contains(c))
}

/// A command record, as far as it is readable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Arrived {
    /// The command without its times. Members that a faulty record lacks are empty.
    pub(crate) command: Command,
    /// Longest wait for its device, milliseconds.
    pub(crate) ttl_ms: Option<u64>,
    /// The reason for which the record is not a valid command.
    pub(crate) fault: Option<Outcome>,
}

impl Arrived {
    /// Reads a record of `tenant` in `topic`. The caller sets the partition later.
    pub(crate) fn read(tenant: &TenantId, topic: TopicId, record: &RecordView<'_>, payload_max_bytes: usize) -> Self {
        let source = SourcePartition { topic, partition: PartitionId::default() };
        let mut arrived = Self {
            command: Command {
                tenant: tenant.clone(),
                device: "".into(),
                position: RecordPosition { source, offset: record.offset },
                name: "".into(),
                content_type: None,
                correlation_id: None,
                wants_response: record.header(RESPONSE_REQUIRED) == Some(b"true"),
                metadata: Vec::new(),
                payload: Bytes::new(),
                received_ms: 0,
                expires_ms: None,
            },
            ttl_ms: None,
            fault: None,
        };
        // The destination of the notice is read first, so that a command with another fault gets a notice.
        let faults = [
            arrived.read_correlation(record),
            arrived.read_metadata(record),
            arrived.read_device(record),
            arrived.read_rest(record),
            arrived.read_payload(record, payload_max_bytes),
        ];
        arrived.fault = faults.into_iter().find_map(Result::err);
        arrived
    }

    fn read_correlation(&mut self, record: &RecordView<'_>) -> Result<(), Outcome> {
        match text(record, CORRELATION_ID)? {
            Some(id) if is_correlation_id(id) => self.command.correlation_id = Some(id.into()),
            Some(_) => {
                let rule =
                    format!("{CORRELATION_ID} has 1 to {CORRELATION_ID_MAX_BYTES} bytes, none of them a control");
                return Err(Outcome::rejected(400, rule));
            }
            None if self.command.wants_response => {
                let rule = "a command that wants a response has the header correlation-id";
                return Err(Outcome::rejected(400, rule));
            }
            None => {}
        }
        Ok(())
    }

    fn read_metadata(&mut self, record: &RecordView<'_>) -> Result<(), Outcome> {
        let mut size_bytes = 0;
        for header in record.headers().filter(|header| header.key.starts_with(METADATA)) {
            let value = header.value.unwrap_or_default();
            size_bytes += header.key.len() + value.len();
            let value = std::str::from_utf8(value).ok().filter(|_| size_bytes <= METADATA_MAX_BYTES);
            let value = value.ok_or_else(|| {
                let rule = format!("headers {METADATA}* are UTF-8, together at most {METADATA_MAX_BYTES} bytes");
                Outcome::rejected(400, rule)
            })?;
            self.command.metadata.push((header.key.into(), value.into()));
        }
        Ok(())
    }

    fn read_device(&mut self, record: &RecordView<'_>) -> Result<(), Outcome> {
        let Some(id) = text(record, header::DEVICE_ID)? else {
            return Err(Outcome::rejected(400, "a command has the header device_id"));
        };
        if let Err(error) = id.parse::<DeviceId>() {
            return Err(Outcome::rejected(400, format!("header device_id: {error}")));
        }
        self.command.device = id.into();
        if record.key.is_some_and(|key| key != id.as_bytes()) {
            let rule = "the key of a command's record is its device_id, so that commands of a device keep their order";
            return Err(Outcome::rejected(400, rule));
        }
        Ok(())
    }

    fn read_rest(&mut self, record: &RecordView<'_>) -> Result<(), Outcome> {
        match text(record, SUBJECT)?.filter(|name| is_name(name)) {
            Some(name) => self.command.name = name.into(),
            None => {
                let rule = format!(
                    "a command has the header subject, its name: 1 to {NAME_MAX_BYTES} bytes without controls, + and #"
                );
                return Err(Outcome::rejected(400, rule));
            }
        }
        if let Some(content_type) = text(record, header::CONTENT_TYPE)? {
            if content_type.len() > TYPE_MAX_BYTES || content_type.contains(char::is_control) {
                let rule = format!("content-type has at most {TYPE_MAX_BYTES} bytes, none of them a control");
                return Err(Outcome::rejected(400, rule));
            }
            self.command.content_type = Some(content_type.into());
        }
        if let Some(ttl) = text(record, header::TTL)? {
            let ttl_ms =
                ttl.parse().map_err(|_| Outcome::rejected(400, "header ttl is a whole number of milliseconds"))?;
            self.ttl_ms = Some(ttl_ms).filter(|ttl_ms| *ttl_ms > 0);
        }
        Ok(())
    }

    fn read_payload(&mut self, record: &RecordView<'_>, max_bytes: usize) -> Result<(), Outcome> {
        let payload = record.value.unwrap_or_default();
        if payload.len() > max_bytes {
            let rule =
                format!("a payload of {} bytes; connect.commands.payload_max_bytes = {max_bytes}", payload.len());
            return Err(Outcome::rejected(413, rule));
        }
        self.command.payload = Bytes::copy_from_slice(payload);
        Ok(())
    }
}

/// A text header, if present.
fn text<'a>(record: &RecordView<'a>, name: &'static str) -> Result<Option<&'a str>, Outcome> {
    let value = record.header(name).map(std::str::from_utf8).transpose();
    value.map_err(|_| Outcome::rejected(400, format!("header {name} is UTF-8")))
}

#[cfg(test)]
mod tests {
    use millstream_types::{BatchBuilder, Compression, Epoch, Header, Record};

    use super::*;

    type Headers<'a> = Vec<(&'a str, &'a [u8])>;

    fn read(headers: &Headers<'_>, key: Option<&[u8]>, value: &[u8]) -> Arrived {
        let headers: Vec<Header<'_>> = headers.iter().map(|(key, value)| Header { key, value: Some(value) }).collect();
        let mut builder = BatchBuilder::default();
        builder.push(&Record { timestamp_ms: 1, key, value: Some(value), headers: &headers });
        let batch = builder.seal(Offset(7), Epoch(0), Compression::None);
        let record = batch.records().next().unwrap().unwrap();
        Arrived::read(&TenantId::default(), TopicId(1), &record, 8)
    }

    /// A good command with one header replaced, or left out if the value is empty.
    fn with<'a>(name: &'a str, value: &'a [u8]) -> Headers<'a> {
        let mut headers: Headers<'a> = vec![
            ("device_id", b"d"),
            ("subject", b"on"),
            ("correlation-id", b"c"),
            ("response-required", b"true"),
            ("content-type", b"text/plain"),
            ("ttl", b"90000"),
            ("delivery-failure-notification-metadata-order", b"7"),
        ];
        headers.retain(|(known, _)| *known != name);
        if !value.is_empty() {
            headers.push((name, value));
        }
        headers
    }

    #[test]
    fn a_command_is_read_as_its_record_says() {
        let arrived = read(&with("", b""), Some(b"d"), b"payload");
        let expected = Command {
            tenant: TenantId::default(),
            device: "d".into(),
            position: RecordPosition {
                source: SourcePartition { topic: TopicId(1), partition: PartitionId(0) },
                offset: Offset(7),
            },
            name: "on".into(),
            content_type: Some("text/plain".into()),
            correlation_id: Some("c".into()),
            wants_response: true,
            metadata: vec![("delivery-failure-notification-metadata-order".into(), "7".into())],
            payload: Bytes::from_static(b"payload"),
            received_ms: 0,
            expires_ms: None,
        };
        assert_eq!(arrived, Arrived { command: expected, ttl_ms: Some(90_000), fault: None });
        let least = read(&vec![("device_id", b"d"), ("subject", b"on")], None, b"");
        assert_eq!((least.fault, least.ttl_ms, least.command.wants_response), (None, None, false));
        assert_eq!(read(&with("ttl", b"0"), None, b"").ttl_ms, None, "no time to wait is none");
    }

    #[test]
    fn an_invalid_command_names_the_broken_rule_and_keeps_its_notice_address() {
        let (long, much) = (vec![b'x'; 257], vec![b'x'; 4 << 10]);
        let rows: Vec<(&str, &[u8], &str)> = vec![
            ("device_id", b"", "has the header device_id"),
            ("device_id", b"a b", "'a b'"),
            ("device_id", b"\xff", "device_id is UTF-8"),
            ("device_id", b"other", "the key of a command's record"),
            ("subject", b"", "has the header subject"),
            ("subject", &long, "1 to 256 bytes"),
            ("subject", b"a+b", "without controls, + and #"),
            ("subject", b"a\x01", "without controls"),
            ("content-type", b"text\x00", "content-type has"),
            ("ttl", b"soon", "whole number of milliseconds"),
            ("ttl", b"-1", "whole number of milliseconds"),
            ("delivery-failure-notification-metadata-x", &much, "at most 4096 bytes"),
            ("delivery-failure-notification-metadata-x", b"\xff", "are UTF-8"),
        ];
        for (name, value, rule) in rows {
            let arrived = read(&with(name, value), Some(b"d"), b"");
            let fault = arrived.fault.unwrap_or_else(|| panic!("{name} {value:?}"));
            assert_eq!(fault.status, 400, "{name}");
            assert!(fault.why.contains(rule), "{name}: {}", fault.why);
            assert_eq!(arrived.command.correlation_id.as_deref(), Some("c"), "{name}");
        }
        for (value, rule) in
            [(&b""[..], "has the header correlation-id"), (&long, "1 to 256 bytes"), (b"\x01", "a control")]
        {
            let arrived = read(&with("correlation-id", value), Some(b"d"), b"");
            assert!(arrived.fault.is_some_and(|fault| fault.status == 400 && fault.why.contains(rule)), "{rule}");
        }
        let large = read(&with("", b""), Some(b"d"), b"123456789").fault.unwrap();
        assert_eq!(large.status, 413);
        assert!(large.why.contains("9 bytes; connect.commands.payload_max_bytes = 8"), "{}", large.why);
    }
}
