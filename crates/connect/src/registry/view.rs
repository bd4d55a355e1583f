//! The registry as a view of its state topic, `_registry`, whose partitions go by tenant.
//!
//! | key | value |
//! | --- | --- |
//! | 1, tenant | version byte, JSON of the tenant with its version and times |
//! | 2, tenant, 0, device | version byte, JSON of the device likewise |
//! | 3, tenant, 0, device | version byte, JSON of the device's credentials likewise |

use std::sync::Arc;

use millstream_types::{StateTopic, TenantId};
use millstream_view::{DecodeError, Draft, Encoded, InState, View};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::DeviceId;
pub(crate) use super::command::RegistryView;
use super::command::{RegistryCommand, RegistryResult, decide};
use super::state::{RegistryChange, State};

/// Version of the value format; later versions are refused.
const VERSION: u8 = StateTopic::Registry.version();
const TENANT: u8 = 1;
const DEVICE: u8 = 2;
const CREDENTIALS: u8 = 3;

impl View for RegistryView {
    type State = State;
    type Storage = InState;
    type Change = RegistryChange;
    type Command = RegistryCommand;
    type Answer = RegistryResult;
    const NAME: &'static str = "registry";

    fn decide(&self, draft: &mut Draft<'_, Self>, command: RegistryCommand) -> RegistryResult {
        decide(draft, command)
    }

    fn owned_bytes(command: &RegistryCommand) -> usize {
        command.owned_bytes()
    }

    fn apply(state: &mut State, change: &RegistryChange) {
        state.apply(change);
    }

    fn encode(change: &RegistryChange, key: &mut Vec<u8>, value: &mut Vec<u8>) -> Encoded {
        match change {
            RegistryChange::Tenant(tenant, stored) => {
                key.push(TENANT);
                key.extend_from_slice(tenant.as_str().as_bytes());
                encode_value(stored.as_deref(), value)
            }
            RegistryChange::Device(tenant, device, stored) => {
                encode_device_key(DEVICE, tenant, device, key);
                encode_value(stored.as_deref(), value)
            }
            RegistryChange::Credentials(tenant, device, stored) => {
                encode_device_key(CREDENTIALS, tenant, device, key);
                encode_value(stored.as_deref(), value)
            }
        }
    }

    fn decode(key: &[u8], value: Option<&[u8]>) -> Result<RegistryChange, DecodeError> {
        let (kind, name) = key.split_first().ok_or_else(|| DecodeError::new("an empty key"))?;
        let name = std::str::from_utf8(name).map_err(|_| DecodeError::new("a key that is not UTF-8"))?;
        match *kind {
            TENANT => Ok(RegistryChange::Tenant(tenant(name)?, decode_value(value)?)),
            DEVICE => decode_device_key(name).and_then(|(t, d)| Ok(RegistryChange::Device(t, d, decode_value(value)?))),
            CREDENTIALS => {
                decode_device_key(name).and_then(|(t, d)| Ok(RegistryChange::Credentials(t, d, decode_value(value)?)))
            }
            other => Err(DecodeError::new(format!("registry record of kind {other}"))),
        }
    }
}

fn encode_device_key(kind: u8, tenant: &TenantId, device: &DeviceId, key: &mut Vec<u8>) {
    key.push(kind);
    key.extend_from_slice(tenant.as_str().as_bytes());
    key.push(0);
    key.extend_from_slice(device.as_str().as_bytes());
}

fn decode_device_key(name: &str) -> Result<(TenantId, DeviceId), DecodeError> {
    let (of, device) = name.split_once('\0').ok_or_else(|| DecodeError::new("a device's key without tenant"))?;
    Ok((tenant(of)?, device.parse().map_err(|error| DecodeError::new(format!("{error}")))?))
}

fn tenant(name: &str) -> Result<TenantId, DecodeError> {
    TenantId::new(name).map_err(|error| DecodeError::new(error.to_string()))
}

fn encode_value<T: Serialize>(stored: Option<&T>, value: &mut Vec<u8>) -> Encoded {
    let Some(stored) = stored else { return Encoded::Tombstone };
    value.push(VERSION);
    serde_json::to_writer(value, stored).expect("a resource that was read from JSON is written as JSON");
    Encoded::Value
}

fn decode_value<T: DeserializeOwned>(value: Option<&[u8]>) -> Result<Option<Arc<T>>, DecodeError> {
    match value.map(<[u8]>::split_first) {
        None => Ok(None),
        Some(Some((&VERSION, json))) => serde_json::from_slice(json)
            .map(|stored| Some(Arc::new(stored)))
            .map_err(|error| DecodeError::new(format!("a registry record that cannot be read: {error}"))),
        Some(other) => {
            let version = other.map_or(0, |(version, _)| *version);
            Err(DecodeError::new(format!("registry record version {version}, known is {VERSION}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// State records as version 1 has written them; they must be read for ever.
    const VERSION_1: [(&[u8], &str); 5] = [
        (
            b"\x01acme",
            r#"{"version":1,"born":1,"created_ms":5,"updated_ms":6,"value":{"enabled":true,"ext":{"a":1},"adapters":[{"type":"hono-http","enabled":true,"device-authentication-required":true}],"resource-limits":{"max-connections":-1,"max-ttl":60,"max-ttl-telemetry-qos0":-1,"max-ttl-telemetry-qos1":-1,"max-ttl-command-response":-1}}}"#,
        ),
        (
            b"\x02acme\0d:1",
            r#"{"version":18446744073709551615,"born":2,"created_ms":5,"updated_ms":6,"value":{"enabled":false,"defaults":{"ttl":5},"via":["g"],"viaGroups":["gs"],"ext":{"a":[1,2.5]}}}"#,
        ),
        (
            b"\x03acme\0d:1",
            r#"{"version":3,"born":3,"created_ms":5,"updated_ms":6,"value":[{"type":"hashed-password","auth_id":"a=1","enabled":true,"secrets":[{"id":"00ff","enabled":true,"not_before":"2026-01-01T00:00:00Z","comment":"c","password":{"function":"sha-512","hash":"AQ==","salt":"Ag=="}},{"id":"01ff","enabled":false,"password":{"function":"argon2id","hash":"$argon2id$"}}]}]}"#,
        ),
        (
            b"\x02acme\0d:2",
            r#"{"version":4,"born":4,"created_ms":5,"updated_ms":6,"provisioned":{"is_told":false},"value":{"enabled":true,"via":["g"],"authorities":["auto-provisioning-enabled"]}}"#,
        ),
        (
            b"\x03acme\0d:2",
            r#"{"version":5,"born":5,"created_ms":5,"updated_ms":6,"value":[{"type":"x509-cert","auth_id":"CN=a,O=b","enabled":true,"secrets":[{"id":"02ff","enabled":true,"certificate":{}}]},{"type":"rpk","auth_id":"k","enabled":true,"secrets":[{"id":"03ff","enabled":true,"public_key":"MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE8Vr5GXurDac9lbm/g8ufnw0e4RoxF3oCvZJAVgFUE6g8JUsJ5p2wsK4eH8ZGOIvnhXLjfCNxRgeW15oiB3StOg=="}]},{"type":"psk","auth_id":"p","enabled":true,"secrets":[{"id":"04ff","enabled":true,"shared_key":"c2VjcmV0"}]}]}"#,
        ),
    ];

    #[test]
    fn records_of_version_1_are_read_and_written_as_they_lie() {
        for (key, json) in VERSION_1 {
            let stored = [&[1], json.as_bytes()].concat();
            let change = RegistryView::decode(key, Some(&stored)).unwrap();
            let (mut key_again, mut value_again) = (Vec::new(), Vec::new());
            assert_eq!(RegistryView::encode(&change, &mut key_again, &mut value_again), Encoded::Value);
            assert_eq!(key_again, key);
            let again: serde_json::Value = serde_json::from_slice(&value_again[1..]).unwrap();
            assert_eq!(again, serde_json::from_str::<serde_json::Value>(json).unwrap());
            let gone = RegistryView::decode(key, None).unwrap();
            key_again.clear();
            assert_eq!(RegistryView::encode(&gone, &mut key_again, &mut value_again), Encoded::Tombstone);
            assert_eq!(key_again, key);
        }
    }

    #[test]
    fn records_of_a_later_version_or_of_no_kind_are_refused() {
        let (key, json) = VERSION_1[0];
        for (key, value, told) in [
            (key, [&[2], json.as_bytes()].concat(), "record version 2, known is 1"),
            (key, vec![], "record version 0"),
            (key, b"\x01{".to_vec(), "cannot be read"),
            (b"\x09acme", vec![1], "of kind 9"),
            (b"\x02acme", vec![1], "without tenant"),
            (b"\x01a b", vec![1], "not a tenant id"),
            (b"", vec![1], "empty key"),
        ] {
            let refusal = RegistryView::decode(key, Some(&value)).unwrap_err().to_string();
            assert!(refusal.contains(told), "{refusal}");
        }
    }
}
