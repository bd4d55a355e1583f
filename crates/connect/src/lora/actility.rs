//! Uplinks of Actility ThingPark.

use millstream_http::Problem;
use serde_json::{Map, Value};

use super::json_body::{Path, boolean, member, number, take};
use super::uplink_message::{DevEui, GatewayMembers, UplinkMessage, hex_payload, put};

const PAYLOAD: Path = &["DevEUI_uplink", "payload_hex"];
const DECODED: Path = &["DevEUI_uplink", "payload"];

const GATEWAY: GatewayMembers = GatewayMembers {
    id: &["Lrrid"],
    rssi: &["LrrRSSI"],
    snr: &["LrrSNR"],
    channel: &[],
    latitude: &[],
    longitude: &[],
    altitude: &[],
};

/// Reads an uplink; `None` for other messages. Most numbers are text. Only the best gateway has a place. The server says
/// neither bandwidth nor coding rate, and gives uplinks no id of their own.
pub(super) fn read(mut body: Map<String, Value>) -> Result<Option<UplinkMessage>, Problem> {
    if member(&body, &["DevEUI_uplink"]).is_none() {
        return Ok(None);
    }
    let dev_eui = DevEui::of_hex(take(&mut body, &["DevEUI_uplink", "DevEUI"]).as_ref(), "DevEUI_uplink.DevEUI")?;
    let payload = hex_payload(member(&body, PAYLOAD), "DevEUI_uplink.payload_hex")?;
    let mut metadata = Map::new();
    let mut read = |name, at, of: fn(&Value) -> Option<Value>| {
        put(&mut metadata, name, take(&mut body, at).as_ref().and_then(of));
    };
    read("spreading_factor", &["DevEUI_uplink", "SpFact"], number);
    read("frequency", &["DevEUI_uplink", "Frequency"], number);
    read("frame_count", &["DevEUI_uplink", "FCntUp"], number);
    read("adr_enabled", &["DevEUI_uplink", "ADRbit"], boolean);
    let function_port = take(&mut body, &["DevEUI_uplink", "FPort"]).as_ref().and_then(number);
    let gateways = gateways(&mut body);
    let decoded = member(&body, DECODED).filter(|decoded| decoded.is_object()).cloned();
    Ok(Some(UplinkMessage {
        dev_eui,
        payload,
        function_port,
        metadata,
        gateways,
        repeat_id: None,
        decoded,
        rest: body,
        payload_at: PAYLOAD,
        decoded_at: DECODED,
    }))
}

/// The receiving gateways; the best one is beside the list, and usually in it.
fn gateways(body: &mut Map<String, Value>) -> Vec<Value> {
    let mut gateways = GATEWAY.read(body, &["DevEUI_uplink", "Lrrs", "Lrr"]);
    let mut best = Map::new();
    put(&mut best, "gateway_id", member(body, &["DevEUI_uplink", "Lrrid"]).cloned());
    put(&mut best, "rss", take(body, &["DevEUI_uplink", "LrrRSSI"]).as_ref().and_then(number));
    put(&mut best, "snr", take(body, &["DevEUI_uplink", "LrrSNR"]).as_ref().and_then(number));
    let mut location = Map::new();
    put(&mut location, "latitude", take(body, &["DevEUI_uplink", "LrrLAT"]).as_ref().and_then(number));
    put(&mut location, "longitude", take(body, &["DevEUI_uplink", "LrrLON"]).as_ref().and_then(number));
    let location = (!location.is_empty()).then_some(Value::Object(location));
    let is_best = |gateway: &&mut Value| gateway.get("gateway_id") == best.get("gateway_id");
    match gateways.iter_mut().find(is_best).and_then(Value::as_object_mut) {
        Some(listed) => put(listed, "location", location),
        None if best.is_empty() => {}
        None => {
            put(&mut best, "location", location);
            gateways.insert(0, Value::Object(best));
        }
    }
    gateways
}
