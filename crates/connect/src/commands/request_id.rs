//! The id by which a device names the command that it answers. It fits a segment of a URL and a level of an MQTT topic.
//!
//! `2`, then in URL-safe base64 a checksum (4 bytes) and the correlation id of the command. The checksum covers tenant,
//! device and correlation id and is keyed by the data directory, so an answer to a command that this server never
//! delivered to the device is recognised without remembering commands, also after a restart.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use millstream_log::Log;
use millstream_types::{StateTopic, TenantId, TopicName};
use sha2::{Digest, Sha256};

use super::command::{CORRELATION_ID_MAX_BYTES, is_correlation_id};

/// First character of ids of this form.
const VERSION: char = '2';
const CHECKSUM_BYTES: usize = 4;
/// Longest id of this form.
const MAX_BYTES: usize = 1 + (CHECKSUM_BYTES + CORRELATION_ID_MAX_BYTES).div_ceil(3) * 4;

/// A request id as a device sends it back. The device may have invented it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RequestId {
    checksum: [u8; CHECKSUM_BYTES],
    pub(crate) correlation_id: String,
}

impl RequestId {
    /// Reads the text of an id; `None` if it is not of this form.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let encoded = text.strip_prefix(VERSION).filter(|_| text.len() <= MAX_BYTES)?;
        let decoded = URL_SAFE_NO_PAD.decode(encoded).ok()?;
        let (checksum, correlation_id) = decoded.split_first_chunk()?;
        let correlation_id = std::str::from_utf8(correlation_id).ok().filter(|text| is_correlation_id(text))?;
        Some(Self { checksum: *checksum, correlation_id: correlation_id.to_owned() })
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let decoded = [&self.checksum, self.correlation_id.as_bytes()].concat();
        write!(f, "{VERSION}{}", URL_SAFE_NO_PAD.encode(decoded))
    }
}

/// Makes request ids and recognises them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestIds {
    key: [u8; 16],
}

impl RequestIds {
    /// The request ids of the data directory of `log`. Their key is the random id of the registry's topic. Devices do
    /// not see it, and it lasts as long as the registry. `None` if the registry was never opened.
    pub(crate) fn of(log: &dyn Log) -> Option<Self> {
        let topic = log.topic(&TopicName::internal(StateTopic::Registry))?;
        Some(Self::keyed(topic.id.0))
    }

    pub(super) fn keyed(key: u128) -> Self {
        Self { key: key.to_be_bytes() }
    }

    /// The id under which `device` answers the command.
    pub(super) fn issue(&self, tenant: &TenantId, device: &str, correlation_id: &str) -> RequestId {
        let checksum = self.checksum(tenant, device, correlation_id);
        RequestId { checksum, correlation_id: correlation_id.to_owned() }
    }

    /// True if [`RequestIds::issue`] made `id` for this device.
    pub(super) fn is_of(&self, tenant: &TenantId, device: &str, id: &RequestId) -> bool {
        self.checksum(tenant, device, &id.correlation_id) == id.checksum
    }

    fn checksum(&self, tenant: &TenantId, device: &str, correlation_id: &str) -> [u8; CHECKSUM_BYTES] {
        let mut hash = Sha256::new_with_prefix(self.key);
        // Neither tenant nor device has a character 0.
        for part in [tenant.as_str(), "\0", device, "\0", correlation_id] {
            hash.update(part);
        }
        let hash: [u8; 32] = hash.finalize().into();
        std::array::from_fn(|at| hash[at])
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_text_that_is_no_request_id_is_not_read() {
        let long = format!("2{}", "A".repeat(MAX_BYTES));
        for wrong in ["", "2", "1Yw", "2AAAAAA", "AAAAAYQ", "2AAAAAG", "2AAAAAGE=", "2+/AAAAAA", "2AAAAAP8", &long] {
            assert_eq!(RequestId::parse(wrong), None, "{wrong}");
        }
        assert_eq!(RequestId::parse("2AAAAAGE").unwrap().correlation_id, "a");
    }

    #[test]
    fn a_request_id_is_of_its_tenant_device_command_and_data_directory_only() {
        let tenant = |name| TenantId::new(name).unwrap();
        let ids = RequestIds::keyed(7);
        let id = ids.issue(&tenant("T"), "d", "c");
        assert!(RequestIds::keyed(7).is_of(&tenant("T"), "d", &id), "after a restart");
        assert!(!ids.is_of(&tenant("U"), "d", &id), "another tenant");
        assert!(!ids.is_of(&tenant("T"), "e", &id), "another device");
        assert!(!RequestIds::keyed(8).is_of(&tenant("T"), "d", &id), "another data directory");
        let another = RequestId { correlation_id: "e".to_owned(), ..id };
        assert!(!ids.is_of(&tenant("T"), "d", &another), "another command");
    }

    proptest! {
        #[test]
        fn an_id_leads_back_and_fits_a_url_and_a_topic(correlation_id in "\\PC{1,64}", key: u128) {
            let (ids, tenant) = (RequestIds::keyed(key), TenantId::default());
            let id = ids.issue(&tenant, "d", &correlation_id);
            let text = id.to_string();
            prop_assert!(text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_')));
            let read = RequestId::parse(&text).unwrap();
            prop_assert!(ids.is_of(&tenant, "d", &read));
            prop_assert_eq!(read, id);
        }
    }
}
