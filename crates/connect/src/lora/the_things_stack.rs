//! Uplinks of The Things Stack 3, which The Things Network runs.

use millstream_http::Problem;
use serde_json::{Map, Value};

use super::json_body::{Path, member, number, scaled, take, text};
use super::uplink_message::{DevEui, GatewayMembers, UplinkMessage, base64_payload, coding_rate, put};

const PAYLOAD: Path = &["uplink_message", "frm_payload"];
const DECODED: Path = &["uplink_message", "decoded_payload"];
/// The beginnings of the correlation ids that belong to one uplink; others name a connection or a call of the server.
const OF_THE_UPLINK: [&str; 3] = ["as:up:", "ns:uplink:", "gs:uplink:"];

const GATEWAY: GatewayMembers = GatewayMembers {
    id: &["gateway_ids", "gateway_id"],
    rssi: &["rssi"],
    snr: &["snr"],
    channel: &["channel_index"],
    latitude: &["location", "latitude"],
    longitude: &["location", "longitude"],
    altitude: &["location", "altitude"],
};

/// Reads an uplink message; `None` for the other messages of a webhook.
pub(super) fn read(mut body: Map<String, Value>) -> Result<Option<UplinkMessage>, Problem> {
    if member(&body, &["uplink_message"]).is_none() {
        return Ok(None);
    }
    let dev_eui = DevEui::of_hex(take(&mut body, &["end_device_ids", "dev_eui"]).as_ref(), "end_device_ids.dev_eui")?;
    let payload = base64_payload(member(&body, PAYLOAD), "uplink_message.frm_payload")?;
    let repeat_id = repeat_id(&body);
    let mut metadata = Map::new();
    let mut read = |name, at, of: fn(&Value) -> Option<Value>| {
        put(&mut metadata, name, take(&mut body, at).as_ref().and_then(of));
    };
    read("bandwidth", &["uplink_message", "settings", "data_rate", "lora", "bandwidth"], |hertz| scaled(hertz, 1_000));
    read("spreading_factor", &["uplink_message", "settings", "data_rate", "lora", "spreading_factor"], number);
    // Version 3.20 moved it.
    read("coding_rate", &["uplink_message", "settings", "coding_rate"], coding_rate);
    read("coding_rate", &["uplink_message", "settings", "data_rate", "lora", "coding_rate"], coding_rate);
    read("frequency", &["uplink_message", "settings", "frequency"], |hertz| scaled(hertz, 1_000_000));
    read("frame_count", &["uplink_message", "f_cnt"], number);
    read("adr_enabled", &["uplink_message", "adr"], super::json_body::boolean);
    let function_port = take(&mut body, &["uplink_message", "f_port"]).as_ref().and_then(number);
    Ok(Some(UplinkMessage {
        dev_eui,
        payload,
        function_port,
        metadata,
        gateways: GATEWAY.read(&mut body, &["uplink_message", "rx_metadata"]),
        repeat_id,
        decoded: member(&body, DECODED).cloned(),
        rest: body,
        payload_at: PAYLOAD,
        decoded_at: DECODED,
    }))
}

/// The correlation id of the uplink, else the first one, with the frame counter.
fn repeat_id(body: &Map<String, Value>) -> Option<String> {
    let ids = member(body, &["correlation_ids"])?.as_array()?;
    let ids = || ids.iter().filter_map(Value::as_str);
    let of_uplink = ids().find(|id| OF_THE_UPLINK.iter().any(|start| id.starts_with(start)));
    let frame_count = member(body, &["uplink_message", "f_cnt"]).and_then(text).unwrap_or_default();
    Some(format!("{} {frame_count}", of_uplink.or_else(|| ids().next())?))
}
