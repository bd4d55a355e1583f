//! The record format of a waiting command in the state topic.
//!
//! | | bytes |
//! | --- | --- |
//! | key | tenant, 0, device, 0, id of the stream (16), its partition (4), offset (8) |
//! | value | version 1; length (4) of JSON: name, types, times and so on; the JSON; the payload |
//!
//! Integers are big endian. Neither tenant nor device has a character 0.

use std::sync::Arc;

use bytes::Bytes;
use millstream_types::{Offset, PartitionId, StateTopic, TenantId, TopicId};
use millstream_view::{DecodeError, Encoded, SourcePartition};
use serde::{Deserialize, Serialize};

use super::command::{Command, RecordPosition};
use super::state::CommandChange;

/// Version of the value format; later versions are refused.
const VERSION: u8 = StateTopic::Commands.version();

/// A command without the members of its key and without its payload.
#[derive(Serialize, Deserialize)]
struct Described {
    name: Box<str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    content_type: Option<Box<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    correlation_id: Option<Box<str>>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    wants_response: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    metadata: Vec<(Box<str>, Box<str>)>,
    received_ms: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expires_ms: Option<i64>,
}

pub(super) fn encode(change: &CommandChange, key: &mut Vec<u8>, value: &mut Vec<u8>) -> Encoded {
    match change {
        CommandChange::Waits(command) => {
            encode_key(&command.tenant, &command.device, command.position, key);
            encode_value(command, value);
            Encoded::Value
        }
        CommandChange::Gone { tenant, device, position } => {
            encode_key(tenant, device, *position, key);
            Encoded::Tombstone
        }
    }
}

fn encode_key(tenant: &TenantId, device: &str, position: RecordPosition, key: &mut Vec<u8>) {
    for name in [tenant.as_str(), device] {
        key.extend_from_slice(name.as_bytes());
        key.push(0);
    }
    key.extend_from_slice(&position.source.topic.0.to_be_bytes());
    key.extend_from_slice(&position.source.partition.0.to_be_bytes());
    key.extend_from_slice(&position.offset.0.to_be_bytes());
}

fn encode_value(command: &Command, value: &mut Vec<u8>) {
    let described = Described {
        name: command.name.clone(),
        content_type: command.content_type.clone(),
        correlation_id: command.correlation_id.clone(),
        wants_response: command.wants_response,
        metadata: command.metadata.clone(),
        received_ms: command.received_ms,
        expires_ms: command.expires_ms,
    };
    let described = serde_json::to_vec(&described).expect("numbers and texts are written as JSON");
    value.push(VERSION);
    value.extend_from_slice(&(described.len() as u32).to_be_bytes());
    value.extend_from_slice(&described);
    value.extend_from_slice(&command.payload);
}

pub(super) fn decode(key: &[u8], value: Option<&[u8]>) -> Result<CommandChange, DecodeError> {
    let (tenant, device, position) = decode_key(key)?;
    match value {
        None => Ok(CommandChange::Gone { tenant, device, position }),
        Some(value) => {
            decode_value(tenant, device, position, value).map(|command| CommandChange::Waits(Arc::new(command)))
        }
    }
}

fn decode_key(key: &[u8]) -> Result<(TenantId, Arc<str>, RecordPosition), DecodeError> {
    let wrong = || DecodeError::new("a key of a command without tenant, device or position");
    let (key, offset) = key.split_last_chunk::<8>().ok_or_else(wrong)?;
    let (key, partition) = key.split_last_chunk::<4>().ok_or_else(wrong)?;
    let (key, topic) = key.split_last_chunk::<16>().ok_or_else(wrong)?;
    let names = std::str::from_utf8(key).ok().and_then(|names| names.strip_suffix('\0')).ok_or_else(wrong)?;
    let (tenant, device) = names.split_once('\0').ok_or_else(wrong)?;
    let tenant = TenantId::new(tenant).map_err(|error| DecodeError::new(error.to_string()))?;
    let topic = TopicId(u128::from_be_bytes(*topic));
    let source = SourcePartition { topic, partition: PartitionId(u32::from_be_bytes(*partition)) };
    Ok((tenant, device.into(), RecordPosition { source, offset: Offset(u64::from_be_bytes(*offset)) }))
}

fn decode_value(
    tenant: TenantId,
    device: Arc<str>,
    position: RecordPosition,
    value: &[u8],
) -> Result<Command, DecodeError> {
    let cut_short = || DecodeError::new("a record of a command ends too early");
    let (version, rest) = value.split_first().ok_or_else(cut_short)?;
    if *version != VERSION {
        return Err(DecodeError::new(format!("record of a command of version {version}")));
    }
    let (length, rest) = rest.split_first_chunk::<4>().ok_or_else(cut_short)?;
    let (described, payload) = rest.split_at_checked(u32::from_be_bytes(*length) as usize).ok_or_else(cut_short)?;
    let described: Described =
        serde_json::from_slice(described).map_err(|error| DecodeError::new(format!("a command's record: {error}")))?;
    Ok(Command {
        tenant,
        device,
        position,
        name: described.name,
        content_type: described.content_type,
        correlation_id: described.correlation_id,
        wants_response: described.wants_response,
        metadata: described.metadata,
        payload: Bytes::copy_from_slice(payload),
        received_ms: described.received_ms,
        expires_ms: described.expires_ms,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Command {
        Command {
            tenant: TenantId::new("acme").unwrap(),
            device: "d:1".into(),
            position: RecordPosition {
                source: SourcePartition { topic: TopicId(1), partition: PartitionId(2) },
                offset: Offset(3),
            },
            name: "on".into(),
            content_type: Some("text/plain".into()),
            correlation_id: Some("c".into()),
            wants_response: true,
            metadata: vec![("delivery-failure-notification-metadata".into(), "m".into())],
            payload: Bytes::from_static(b"\x00pay"),
            received_ms: 5,
            expires_ms: Some(6),
        }
    }

    /// The first released format, which must stay readable.
    const KEY_1: &[u8] = b"acme\0d:1\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\x02\0\0\0\0\0\0\0\x03";
    const VALUE_1: &[u8] = b"\x01\0\0\0\xaf{\"name\":\"on\",\"content_type\":\"text/plain\",\"correlation_id\":\"c\",\
        \"wants_response\":true,\"metadata\":[[\"delivery-failure-notification-metadata\",\"m\"]],\
        \"received_ms\":5,\"expires_ms\":6}\0pay";
    const LEAST_1: &[u8] = b"\x01\0\0\0\x1d{\"name\":\"on\",\"received_ms\":5}";

    #[test]
    fn version_1_reads_and_writes_as_ever() {
        let least = Command {
            content_type: None,
            correlation_id: None,
            wants_response: false,
            metadata: Vec::new(),
            payload: Bytes::new(),
            expires_ms: None,
            ..sample()
        };
        for (command, written) in [(sample(), VALUE_1), (least, LEAST_1)] {
            let (mut key, mut value) = (Vec::new(), Vec::new());
            assert_eq!(encode(&CommandChange::Waits(Arc::new(command.clone())), &mut key, &mut value), Encoded::Value);
            assert_eq!(key, KEY_1);
            assert_eq!(value, written, "{}", String::from_utf8_lossy(&value));
            let CommandChange::Waits(read) = decode(KEY_1, Some(written)).unwrap() else { panic!("a tombstone") };
            assert_eq!(*read, command);
        }
        let CommandChange::Gone { tenant, device, position } = decode(KEY_1, None).unwrap() else { panic!("a value") };
        assert_eq!((tenant, device, position), (sample().tenant, sample().device, sample().position));
    }

    #[test]
    fn damaged_records_are_errors() {
        let described = VALUE_1.len() - sample().payload.len();
        for length in 0..described {
            assert!(decode(KEY_1, Some(&VALUE_1[..length])).is_err(), "{length}");
        }
        for length in 0..KEY_1.len() {
            assert!(decode(&KEY_1[..length], Some(VALUE_1)).is_err(), "{length}");
        }
        let mut later = VALUE_1.to_vec();
        later[0] = 2;
        assert!(decode(KEY_1, Some(&later)).unwrap_err().what.contains("version 2"));
    }
}
