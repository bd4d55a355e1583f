//! The message that an uplink becomes.

use millstream_types::Principal;
use serde_json::{Map, Value};

use super::json_body::take;
use super::provider::Provider;
use super::uplink_message::UplinkMessage;
use crate::content_type::EMPTY_NOTIFICATION;
use crate::ingest::{self, Envelope};
use crate::sender::DeviceAddress;
use crate::stream::Delivery;

const PROVIDER: &str = "orig_lora_provider";
const FUNCTION_PORT: &str = "function_port";
const METADATA: &str = "meta_data";
const ADDITIONAL: &str = "additional_data";
/// Longest text of `meta_data`, and of `additional_data`, in bytes.
const HEADER_MAX_BYTES: usize = 16 << 10;

/// A message with its payload and headers.
#[derive(Debug)]
pub(super) struct LoraMessage {
    payload: Vec<u8>,
    content_type: &'static str,
    /// Names and values of the headers that tell of the uplink.
    headers: Vec<(&'static str, String)>,
}

/// The parts of an uplink that its record does not have, because they are too large.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct LeftOut {
    /// Some gateways, or all metadata.
    pub(super) metadata: bool,
    /// The additional data.
    pub(super) additional: bool,
}

impl LoraMessage {
    /// Makes the message of an uplink, with the payload that the network server has decoded if `takes_decoded`.
    pub(super) fn of(provider: Provider, uplink: UplinkMessage, takes_decoded: bool) -> (Self, LeftOut) {
        let UplinkMessage { payload, function_port, metadata, gateways, decoded, mut rest, .. } = uplink;
        let (payload, content_type) = match decoded.filter(|_| takes_decoded && !payload.is_empty()) {
            Some(decoded) => {
                take(&mut rest, uplink.decoded_at);
                (decoded.to_string().into_bytes(), "application/json")
            }
            None => {
                take(&mut rest, uplink.payload_at);
                (payload, provider.content_type())
            }
        };
        let (metadata, is_shortened) = metadata_text(metadata, gateways);
        let additional = Some(Value::Object(rest).to_string());
        let (additional, too_long) = match additional {
            Some(text) if text.len() > HEADER_MAX_BYTES => (None, true),
            text => (text, false),
        };
        let headers = [
            (PROVIDER, Some(provider.name().to_owned())),
            (FUNCTION_PORT, function_port.map(|port| port.to_string())),
            (METADATA, metadata),
            (ADDITIONAL, additional),
        ];
        let headers = headers.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
        (Self { payload, content_type, headers }, LeftOut { metadata: is_shortened, additional: too_long })
    }

    /// The envelope of the message, which the network server `caller` has posted to the path `address`.
    pub(super) fn envelope<'e>(
        caller: &'e Principal,
        target: DeviceAddress<'e>,
        address: &'e str,
        trace: millstream_http::TraceContext,
    ) -> Envelope<'e> {
        Envelope {
            caller,
            target,
            delivery: Delivery::AtLeastOnce,
            address,
            content_type: None,
            ttd_s: None,
            ttl_s: None,
            trace: Some(trace),
            reply: None,
            is_will: false,
        }
    }
}

impl ingest::Message for LoraMessage {
    fn payload(&self) -> &[u8] {
        &self.payload
    }

    fn content_type(&self) -> Option<&[u8]> {
        Some(if self.payload.is_empty() { EMPTY_NOTIFICATION } else { self.content_type.as_bytes() })
    }

    fn user_properties(&self) -> impl Iterator<Item = (&str, &str)> + Clone {
        self.headers.iter().map(|(name, value)| (*name, &**value))
    }
}

/// The radio metadata as JSON, with as many gateways as fit; true if something is left out.
fn metadata_text(mut metadata: Map<String, Value>, mut gateways: Vec<Value>) -> (Option<String>, bool) {
    let all = gateways.len();
    loop {
        if !gateways.is_empty() {
            metadata.insert("gateways".to_owned(), gateways.clone().into());
        }
        if metadata.is_empty() {
            return (None, all > 0);
        }
        let text = serde_json::to_string(&metadata).unwrap_or_default();
        if text.len() <= HEADER_MAX_BYTES {
            return (Some(text), gateways.len() < all);
        }
        if gateways.is_empty() {
            return (None, true);
        }
        gateways.truncate(gateways.len() * 3 / 4);
        metadata.remove("gateways");
    }
}
