//! Uplinks of Loriot.

use millstream_http::Problem;
use serde_json::{Map, Value};

use super::json_body::{Path, member, number, scaled, take, text};
use super::uplink_message::{DevEui, GatewayMembers, UplinkMessage, hex_payload, put};

const PAYLOAD: Path = &["data"];
const DECODED: Path = &["decoded"];

const GATEWAY: GatewayMembers = GatewayMembers {
    id: &["gweui"],
    rssi: &["rssi"],
    snr: &["snr"],
    channel: &[],
    latitude: &["lat"],
    longitude: &["lon"],
    altitude: &["alt"],
};

/// Reads an uplink; `None` for other messages. The server sends one as `rx` at once, and as `gw` with the list of its
/// gateways later; an application may have both, which then have the same sequence number.
pub(super) fn read(mut body: Map<String, Value>) -> Result<Option<UplinkMessage>, Problem> {
    let is_uplink = match member(&body, &["cmd"]).and_then(Value::as_str) {
        Some(command) => command == "rx" || command == "gw",
        None => body.contains_key("data"),
    };
    if !is_uplink {
        return Ok(None);
    }
    let dev_eui = DevEui::of_hex(take(&mut body, &["EUI"]).as_ref(), "EUI")?;
    let payload = hex_payload(member(&body, PAYLOAD), "data")?;
    let sequence = member(&body, &["seqno"]).and_then(text);
    let frame_count = member(&body, &["fcnt"]).and_then(text).unwrap_or_default();
    let rate = take(&mut body, &["dr"]).as_ref().and_then(text).unwrap_or_default();
    let mut metadata = data_rate(&rate);
    let frequency = take(&mut body, &["freq"]);
    put(&mut metadata, "frequency", frequency.as_ref().and_then(|hertz| scaled(hertz, 1_000_000)));
    put(&mut metadata, "frame_count", take(&mut body, &["fcnt"]).as_ref().and_then(number));
    let function_port = take(&mut body, &["port"]).as_ref().and_then(number);
    Ok(Some(UplinkMessage {
        dev_eui,
        payload,
        function_port,
        metadata,
        gateways: GATEWAY.read(&mut body, &["gws"]),
        repeat_id: sequence.map(|sequence| format!("{sequence} {frame_count}")),
        decoded: member(&body, DECODED).cloned(),
        rest: body,
        payload_at: PAYLOAD,
        decoded_at: DECODED,
    }))
}

/// Reads a data rate such as `SF7 BW125 4/5`.
fn data_rate(text: &str) -> Map<String, Value> {
    let mut metadata = Map::new();
    for part in text.split_ascii_whitespace() {
        let (name, value) = match (part.strip_prefix("SF"), part.strip_prefix("BW")) {
            (Some(factor), _) => ("spreading_factor", number(&factor.into())),
            (_, Some(bandwidth)) => ("bandwidth", number(&bandwidth.into())),
            _ if part.contains('/') => ("coding_rate", Some(part.into())),
            _ => continue,
        };
        put(&mut metadata, name, value);
    }
    metadata
}
