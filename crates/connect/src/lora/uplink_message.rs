//! An uplink of a LoRaWAN device, in the same form for all network servers.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use millstream_http::Problem;
use serde_json::{Map, Value};

use super::json_body::{Path, member, number, take, text};

/// Characters of a wrong value that its refusal repeats.
const SHOWN_MAX_CHARS: usize = 64;
const REMEDY: &str = "have the network server post its own JSON, unchanged, to the path of its provider";

/// The globally unique id of a device (LoRaWAN 1.0.4, section 6.1.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DevEui([u8; 8]);

/// An uplink, as a network server describes it.
#[derive(Debug)]
pub(super) struct UplinkMessage {
    pub(super) dev_eui: DevEui,
    pub(super) payload: Vec<u8>,
    /// The function port (FPort), a number.
    pub(super) function_port: Option<Value>,
    /// Radio metadata without the gateways.
    pub(super) metadata: Map<String, Value>,
    /// The gateways that received it, each with its id, signal and place as far as they are known.
    pub(super) gateways: Vec<Value>,
    /// The id that tells a repetition of the request from another uplink.
    pub(super) repeat_id: Option<String>,
    /// The payload as the network server has decoded it.
    pub(super) decoded: Option<Value>,
    /// The body, without the members that the fields above were read from, but with both forms of the payload.
    pub(super) rest: Map<String, Value>,
    pub(super) payload_at: Path,
    pub(super) decoded_at: Path,
}

impl DevEui {
    /// Reads 16 hexadecimal digits. `name` is the member of the body.
    pub(super) fn of_hex(given: Option<&Value>, name: &'static str) -> Result<Self, Problem> {
        let refuse = || no_dev_eui(given, name, "16 hexadecimal digits");
        Self::from_hex(given.and_then(Value::as_str).ok_or_else(refuse)?).ok_or_else(refuse)
    }

    /// Reads 8 bytes in base64, or 16 hexadecimal digits.
    pub(super) fn of_base64(given: Option<&Value>, name: &'static str) -> Result<Self, Problem> {
        let refuse = || no_dev_eui(given, name, "base64 or 16 hexadecimal digits");
        let text = given.and_then(Value::as_str).ok_or_else(refuse)?;
        let of_base64 = || Some(Self(STANDARD.decode(text).ok()?.try_into().ok()?));
        Self::from_hex(text).or_else(of_base64).ok_or_else(refuse)
    }

    fn from_hex(text: &str) -> Option<Self> {
        hex(text)?.try_into().ok().map(Self)
    }
}

/// Shows the id as 16 hexadecimal digits in upper case.
impl fmt::Display for DevEui {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02X}"))
    }
}

/// Reads a payload in base64; a missing one is empty.
pub(super) fn base64_payload(given: Option<&Value>, name: &'static str) -> Result<Vec<u8>, Problem> {
    let Some(given) = given else { return Ok(Vec::new()) };
    let decoded = given.as_str().and_then(|text| STANDARD.decode(text).ok());
    decoded.ok_or_else(|| no_payload(given, name, "base64 with padding"))
}

/// Reads a payload in hexadecimal digits; a missing one is empty.
pub(super) fn hex_payload(given: Option<&Value>, name: &'static str) -> Result<Vec<u8>, Problem> {
    let Some(given) = given else { return Ok(Vec::new()) };
    given.as_str().and_then(hex).ok_or_else(|| no_payload(given, name, "pairs of hexadecimal digits"))
}

fn hex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let (pairs, odd) = text.as_bytes().as_chunks::<2>();
    let bytes = pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?));
    if odd.is_empty() { bytes.collect() } else { None }
}

fn no_dev_eui(given: Option<&Value>, name: &'static str, form: &str) -> Problem {
    let given = given.map_or_else(|| "none".to_owned(), shown);
    Problem::invalid("the body names no LoRaWAN device")
        .value(given)
        .rule(format!("{name} is the DevEUI, 8 bytes as {form}"))
        .remedy(REMEDY)
}

fn no_payload(given: &Value, name: &'static str, form: &str) -> Problem {
    Problem::invalid("the payload cannot be decoded")
        .value(shown(given))
        .rule(format!("{name} is {form}"))
        .remedy(REMEDY)
}

/// The beginning of a wrong value.
fn shown(value: &Value) -> String {
    text(value).unwrap_or_else(|| value.to_string()).chars().take(SHOWN_MAX_CHARS).collect()
}

/// The coding rate in the form `4/5`.
pub(super) fn coding_rate(value: &Value) -> Option<Value> {
    let text = value.as_str()?;
    Some(text.strip_prefix("CR_").map_or_else(|| text.to_owned(), |rate| rate.replace('_', "/")).into())
}

/// The names of a provider for the properties of a receiving gateway.
pub(super) struct GatewayMembers {
    pub(super) id: Path,
    pub(super) rssi: Path,
    pub(super) snr: Path,
    pub(super) channel: Path,
    pub(super) latitude: Path,
    pub(super) longitude: Path,
    pub(super) altitude: Path,
}

impl GatewayMembers {
    /// Reads the gateways in the list `at`. Further properties stay in the body, beside the gateway's id.
    pub(super) fn read(&self, body: &mut Map<String, Value>, at: Path) -> Vec<Value> {
        let Some(list) = take(body, at) else { return Vec::new() };
        // Formats that come from XML have an object for a list of one.
        let mut list = if let Value::Array(list) = list { list } else { vec![list] };
        let gateways = list.iter_mut().filter_map(Value::as_object_mut).map(|found| self.gateway(found)).collect();
        let has_more = |found: &Value| found.as_object().is_none_or(|found| found.len() > 1);
        if list.iter().any(has_more) {
            put_back(body, at, Value::Array(list));
        }
        gateways
    }

    fn gateway(&self, found: &mut Map<String, Value>) -> Value {
        let mut gateway = Map::new();
        put(&mut gateway, "gateway_id", member(found, self.id).and_then(text).map(Value::from));
        for (name, at) in [("rss", self.rssi), ("snr", self.snr), ("channel", self.channel)] {
            put(&mut gateway, name, take(found, at).as_ref().and_then(number));
        }
        let mut location = Map::new();
        for (name, at) in [("latitude", self.latitude), ("longitude", self.longitude), ("altitude", self.altitude)] {
            put(&mut location, name, take(found, at).as_ref().and_then(number));
        }
        put(&mut gateway, "location", (!location.is_empty()).then_some(Value::Object(location)));
        Value::Object(gateway)
    }
}

/// Adds a member that is known.
pub(super) fn put(object: &mut Map<String, Value>, name: &str, value: Option<Value>) {
    if let Some(value) = value {
        object.insert(name.to_owned(), value);
    }
}

fn put_back(body: &mut Map<String, Value>, at: Path, value: Value) {
    let Some((first, rest)) = at.split_first() else { return };
    if rest.is_empty() {
        body.insert((*first).to_owned(), value);
        return;
    }
    let inner = body.entry(*first).or_insert_with(|| Value::Object(Map::new()));
    if let Some(inner) = inner.as_object_mut() {
        put_back(inner, rest, value);
    }
}
