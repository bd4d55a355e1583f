//! The record format of the state topic.
//!
//! | key | value |
//! | --- | --- |
//! | 1, tenant, 0, topic | version, quality, end (8 bytes, ms, 0: none), length of properties (4 bytes), properties, payload |
//! | 2, tenant, 0, client id | version, JSON of the session |
//! | 3, tenant, 0, client id | version, JSON of how far it has come |
//! | 4, tenant, 0, client id, 0, packet id (2 bytes) | version |
//! | 5, tenant, 0, shared filter | version, JSON of how far its group has come |
//! | 6, tenant, 0 | version, JSON: the version with which the tenant was created that all of it is of |
//!
//! All numbers are big endian. Names have no character 0.

use std::sync::Arc;

use millstream_mqtt::Qos;
use millstream_types::{StateTopic, TenantId};
use millstream_view::{DecodeError, Encoded};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::state::SessionChange;
use crate::mqtt::broker::message::Message;

/// Version of the value format; a later one is refused.
const VERSION: u8 = StateTopic::Mqtt.version();
const RETAINED: u8 = 1;
const SESSION: u8 = 2;
const PROGRESS: u8 = 3;
const ARRIVED: u8 = 4;
const GROUP: u8 = 5;
const BORN: u8 = 6;

pub(super) fn encode(change: &SessionChange, key: &mut Vec<u8>, value: &mut Vec<u8>) -> Encoded {
    let mut name = |kind, tenant: &TenantId, name: &str| {
        key.push(kind);
        key.extend_from_slice(tenant.as_str().as_bytes());
        key.push(0);
        key.extend_from_slice(name.as_bytes());
    };
    match change {
        SessionChange::Retained(tenant, topic, message) => {
            name(RETAINED, tenant, topic);
            let Some(message) = message else { return Encoded::Tombstone };
            value.extend_from_slice(&[VERSION, message.qos as u8]);
            value.extend_from_slice(&message.expires_ms.unwrap_or(0).to_be_bytes());
            value.extend_from_slice(&(message.properties.len() as u32).to_be_bytes());
            value.extend_from_slice(&message.properties);
            value.extend_from_slice(&message.payload);
            Encoded::Value
        }
        SessionChange::Session(tenant, client, session) => {
            name(SESSION, tenant, client);
            encode_json(session.as_deref(), value)
        }
        SessionChange::Progress(tenant, client, progress) => {
            name(PROGRESS, tenant, client);
            encode_json(progress.as_deref(), value)
        }
        SessionChange::Group(tenant, filter, progress) => {
            name(GROUP, tenant, filter);
            encode_json(progress.as_deref(), value)
        }
        SessionChange::Born(tenant, born) => {
            name(BORN, tenant, "");
            encode_json(born.as_ref(), value)
        }
        SessionChange::Arrived(tenant, client, id, is_there) => {
            name(ARRIVED, tenant, client);
            key.push(0);
            key.extend_from_slice(&id.to_be_bytes());
            if !is_there {
                return Encoded::Tombstone;
            }
            value.push(VERSION);
            Encoded::Value
        }
    }
}

fn encode_json<T: Serialize>(stored: Option<&T>, value: &mut Vec<u8>) -> Encoded {
    let Some(stored) = stored else { return Encoded::Tombstone };
    value.push(VERSION);
    serde_json::to_writer(value, stored).expect("numbers and texts are written as JSON");
    Encoded::Value
}

pub(super) fn decode(key: &[u8], value: Option<&[u8]>) -> Result<SessionChange, DecodeError> {
    let (kind, name) = key.split_first().ok_or_else(|| DecodeError::new("an empty key"))?;
    let (tenant, name) = cut(name)?;
    let tenant = TenantId::new(text(tenant)?).map_err(|error| DecodeError::new(error.to_string()))?;
    let value = value.map(body).transpose()?;
    match *kind {
        RETAINED => {
            let topic: Arc<str> = text(name)?.into();
            let message = value.map(|value| decode_message(&topic, value)).transpose()?;
            Ok(SessionChange::Retained(tenant, topic, message.map(Arc::new)))
        }
        SESSION => Ok(SessionChange::Session(tenant, text(name)?.into(), decode_json(value)?)),
        PROGRESS => Ok(SessionChange::Progress(tenant, text(name)?.into(), decode_json(value)?)),
        ARRIVED => {
            let (client, id) =
                name.split_last_chunk::<2>().ok_or_else(|| DecodeError::new("a key without packet id"))?;
            let client = client.strip_suffix(&[0]).ok_or_else(|| DecodeError::new("a key without packet id"))?;
            Ok(SessionChange::Arrived(tenant, text(client)?.into(), u16::from_be_bytes(*id), value.is_some()))
        }
        GROUP => Ok(SessionChange::Group(tenant, text(name)?.into(), decode_json(value)?)),
        BORN => Ok(SessionChange::Born(tenant, decode_json(value)?.map(|born| *born))),
        other => Err(DecodeError::new(format!("record of kind {other} of private spaces"))),
    }
}

fn cut(key: &[u8]) -> Result<(&[u8], &[u8]), DecodeError> {
    let at = key.iter().position(|byte| *byte == 0).ok_or_else(|| DecodeError::new("a key without tenant"))?;
    Ok((&key[..at], &key[at + 1..]))
}

fn text(bytes: &[u8]) -> Result<&str, DecodeError> {
    std::str::from_utf8(bytes).map_err(|_| DecodeError::new("a key that is not UTF-8"))
}

fn body(value: &[u8]) -> Result<&[u8], DecodeError> {
    match value.split_first() {
        Some((&VERSION, body)) => Ok(body),
        other => {
            let version = other.map_or(0, |(version, _)| *version);
            Err(DecodeError::new(format!("record version {version} of private spaces, known is {VERSION}")))
        }
    }
}

fn decode_json<T: DeserializeOwned>(value: Option<&[u8]>) -> Result<Option<Arc<T>>, DecodeError> {
    let Some(json) = value else { return Ok(None) };
    let read = serde_json::from_slice(json);
    read.map(|stored| Some(Arc::new(stored))).map_err(|error| DecodeError::new(format!("a session: {error}")))
}

fn decode_message(topic: &str, value: &[u8]) -> Result<Message, DecodeError> {
    let short = || DecodeError::new("a retained message that ends too early");
    let (qos, rest) = value.split_first().ok_or_else(short)?;
    let (end, rest) = rest.split_first_chunk::<8>().ok_or_else(short)?;
    let (length, rest) = rest.split_first_chunk::<4>().ok_or_else(short)?;
    let (properties, payload) = rest.split_at_checked(u32::from_be_bytes(*length) as usize).ok_or_else(short)?;
    Ok(Message {
        topic: topic.into(),
        payload: payload.into(),
        qos: Qos::of(*qos).map_err(|_| DecodeError::new("a quality of service that does not exist"))?,
        properties: properties.into(),
        expires_ms: Some(i64::from_be_bytes(*end)).filter(|end| *end != 0),
        _room: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// State records as version 1 has written them; they must be read for ever.
    const VERSION_1: [(&[u8], &[u8]); 8] = [
        (b"\x01acme\0a/b", b"\x01\x01\0\0\0\0\0\0\0\0\0\0\0\x02\x01\x01payload"),
        (b"\x01acme\0/", b"\x01\x02\0\0\x01\x8b\xcf\xe5\x68\0\0\0\0\0x"),
        (
            b"\x02acme\0c",
            br#"{"device":"d","expiry_s":60,"ended_ms":5,"filters":[{"filter":"a/#","qos":1,"no_local":true,"retain_as_published":false,"id":7,"began":3}]}"#,
        ),
        (
            b"\x02acme\0listens",
            br#"{"device":"d","expiry_s":60,"filters":[],"reserved":[{"filter":"c///q/#","qos":1}]}"#,
        ),
        (b"\x03acme\0c", br#"{"from":9,"done":[11],"released":[10]}"#),
        (b"\x04acme\0c\0\x01\x02", b"\x01"),
        (b"\x05acme\0$share/g/a", br#"{"from":9,"done":[11],"released":[]}"#),
        (b"\x06acme\0", b"\x0118446744073709551615"),
    ];

    #[test]
    fn records_of_version_1_are_read_and_written_as_they_lie() {
        for (key, value) in VERSION_1 {
            let value = if value[0] == b'{' { [&[1], value].concat() } else { value.to_vec() };
            let change = decode(key, Some(&value)).unwrap();
            let (mut key_again, mut value_again) = (Vec::new(), Vec::new());
            assert_eq!(encode(&change, &mut key_again, &mut value_again), Encoded::Value);
            assert_eq!((&key_again[..], &value_again), (key, &value));
            let gone = decode(key, None).unwrap();
            key_again.clear();
            assert_eq!(encode(&gone, &mut key_again, &mut value_again), Encoded::Tombstone);
            assert_eq!(key_again, key);
        }
    }

    #[test]
    fn records_of_a_later_version_or_of_no_kind_are_refused() {
        for (key, value, told) in [
            (&b"\x01acme\0a"[..], &b"\x02"[..], "version 2"),
            (b"\x01acme\0a", b"", "version 0"),
            (b"\x01acme\0a", b"\x01\x01", "too early"),
            (b"\x02acme\0c", b"\x01{", "a session"),
            (b"\x09acme\0c", b"\x01", "of kind 9"),
            (b"\x01acme", b"\x01", "without tenant"),
            (b"\x04acme\0c", b"\x01", "without packet id"),
            (b"", b"\x01", "empty key"),
        ] {
            let refusal = decode(key, Some(value)).unwrap_err().to_string();
            assert!(refusal.contains(told), "{refusal}");
        }
    }
}
