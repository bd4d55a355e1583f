//! Uplinks of ChirpStack 3, in its JSON encodings.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use millstream_http::Problem;
use serde_json::{Map, Value};

use super::json_body::{Path, boolean, member, number, scaled, take};
use super::uplink_message::{DevEui, GatewayMembers, UplinkMessage, base64_payload, coding_rate, put};

const PAYLOAD: Path = &["data"];
const DECODED: Path = &["object"];
const DECODED_TEXT: Path = &["objectJSON"];

const GATEWAY: GatewayMembers = GatewayMembers {
    id: &["gatewayID"],
    rssi: &["rssi"],
    snr: &["loRaSNR"],
    channel: &["channel"],
    latitude: &["location", "latitude"],
    longitude: &["location", "longitude"],
    altitude: &["location", "altitude"],
};

/// Reads an `up` event. The server gives uplinks no id of their own.
pub(super) fn read(mut body: Map<String, Value>) -> Result<UplinkMessage, Problem> {
    let dev_eui = DevEui::of_base64(take(&mut body, &["devEUI"]).as_ref(), "devEUI")?;
    let payload = base64_payload(member(&body, PAYLOAD), "data")?;
    let mut metadata = Map::new();
    let mut read = |name, at, of: fn(&Value) -> Option<Value>| {
        put(&mut metadata, name, take(&mut body, at).as_ref().and_then(of));
    };
    read("bandwidth", &["txInfo", "loRaModulationInfo", "bandwidth"], number);
    read("spreading_factor", &["txInfo", "loRaModulationInfo", "spreadingFactor"], number);
    read("coding_rate", &["txInfo", "loRaModulationInfo", "codeRate"], coding_rate);
    read("frequency", &["txInfo", "frequency"], |hertz| scaled(hertz, 1_000_000));
    read("frame_count", &["fCnt"], number);
    read("adr_enabled", &["adr"], boolean);
    let function_port = take(&mut body, &["fPort"]).as_ref().and_then(number);
    let mut gateways = GATEWAY.read(&mut body, &["rxInfo"]);
    gateways.iter_mut().for_each(write_id_in_hex);
    let of_text = || serde_json::from_str(member(&body, DECODED_TEXT)?.as_str()?).ok();
    let (decoded, decoded_at) = match member(&body, DECODED) {
        Some(object) => (Some(object.clone()), DECODED),
        None => (of_text(), DECODED_TEXT),
    };
    Ok(UplinkMessage {
        dev_eui,
        payload,
        function_port,
        metadata,
        gateways,
        repeat_id: None,
        decoded,
        rest: body,
        payload_at: PAYLOAD,
        decoded_at,
    })
}

/// Writes the id of a gateway in hexadecimal digits, if the server has it in base64.
fn write_id_in_hex(gateway: &mut Value) {
    let Some(id) = gateway.get_mut("gateway_id") else { return };
    let bytes = id.as_str().and_then(|text| <[u8; 8]>::try_from(STANDARD.decode(text).ok()?).ok());
    if let Some(bytes) = bytes {
        *id = format!("{:016x}", u64::from_be_bytes(bytes)).into();
    }
}
