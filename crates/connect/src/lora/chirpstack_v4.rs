//! Uplinks of ChirpStack 4, in its JSON encoding.

use millstream_http::Problem;
use serde_json::{Map, Value};

use super::json_body::{Path, boolean, member, number, scaled, take, text};
use super::uplink_message::{DevEui, GatewayMembers, UplinkMessage, base64_payload, coding_rate, put};

const PAYLOAD: Path = &["data"];
const DECODED: Path = &["object"];

const GATEWAY: GatewayMembers = GatewayMembers {
    id: &["gatewayId"],
    rssi: &["rssi"],
    snr: &["snr"],
    channel: &["channel"],
    latitude: &["location", "latitude"],
    longitude: &["location", "longitude"],
    altitude: &["location", "altitude"],
};

/// Reads an `up` event.
pub(super) fn read(mut body: Map<String, Value>) -> Result<UplinkMessage, Problem> {
    let dev_eui = DevEui::of_hex(take(&mut body, &["deviceInfo", "devEui"]).as_ref(), "deviceInfo.devEui")?;
    let payload = base64_payload(member(&body, PAYLOAD), "data")?;
    let mut metadata = Map::new();
    let mut read = |name, at, of: fn(&Value) -> Option<Value>| {
        put(&mut metadata, name, take(&mut body, at).as_ref().and_then(of));
    };
    read("bandwidth", &["txInfo", "modulation", "lora", "bandwidth"], |hertz| scaled(hertz, 1_000));
    read("spreading_factor", &["txInfo", "modulation", "lora", "spreadingFactor"], number);
    read("coding_rate", &["txInfo", "modulation", "lora", "codeRate"], coding_rate);
    read("frequency", &["txInfo", "frequency"], |hertz| scaled(hertz, 1_000_000));
    read("frame_count", &["fCnt"], number);
    read("adr_enabled", &["adr"], boolean);
    let function_port = take(&mut body, &["fPort"]).as_ref().and_then(number);
    Ok(UplinkMessage {
        dev_eui,
        payload,
        function_port,
        metadata,
        gateways: GATEWAY.read(&mut body, &["rxInfo"]),
        repeat_id: member(&body, &["deduplicationId"]).and_then(text),
        decoded: member(&body, DECODED).cloned(),
        rest: body,
        payload_at: PAYLOAD,
        decoded_at: DECODED,
    })
}
