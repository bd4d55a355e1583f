//! Bodies of network servers, made up in the shape that each documents, for a number of receiving gateways.

use serde_json::{Value, json};

/// The device of the bodies.
pub(crate) const DEV_EUI: &str = "70B3D57ED0000A1F";

/// The payload of the bodies: a temperature of 21.5 and a humidity of 48 in four bytes.
pub(crate) const PAYLOAD: [u8; 4] = [0x00, 0xd7, 0x00, 0x30];

/// The payload as the network servers decode it.
pub(crate) fn decoded() -> Value {
    json!({"temperature": 21.5, "humidity": 48})
}

/// An `up` event of ChirpStack 4. Every second gateway has no place, and has no channel, as that is 0.
pub(crate) fn chirpstack_v4(gateways: u32) -> Value {
    let gateway = |number: u32| {
        let mut gateway = json!({"gatewayId": format!("0016c001f15300{number:02x}"), "uplinkId": 4_217_106_255_u32,
            "rssi": -36 - i64::from(number), "snr": 10.5, "context": "E3OWOQ=="});
        if number.is_multiple_of(2) {
            gateway["channel"] = json!(number + 2);
            gateway["location"] = json!({"latitude": 52.5, "longitude": -13.25, "altitude": 34});
        }
        gateway
    };
    json!({
        "deduplicationId": format!("3ac7e3c4-4401-4b8d-9386-{gateways:012}"),
        "time": "2026-03-01T09:34:15.775023242+00:00",
        "deviceInfo": {"tenantId": "52f1", "applicationName": "climate", "deviceName": "hall", "devEui": "70b3d57ed0000a1f"},
        "devAddr": "00189440", "adr": true, "dr": 1, "fCnt": 4, "fPort": 7, "confirmed": false,
        "data": "ANcAMA==", "object": decoded(),
        "rxInfo": (0..gateways).map(gateway).collect::<Vec<_>>(),
        "txInfo": {"frequency": 867_100_000,
            "modulation": {"lora": {"bandwidth": 125_000, "spreadingFactor": 11, "codeRate": "CR_4_5"}}}
    })
}

/// An `up` event of ChirpStack 3.
pub(crate) fn chirpstack_v3(gateways: u32) -> Value {
    // The bytes 3 to 10 with the last one counted up.
    let id = |number: u32| ["AwQFBgcICQo=", "AwQFBgcICQs=", "AwQFBgcICQw="][number as usize % 3];
    let gateway = |number: u32| {
        json!({"gatewayID": id(number), "rssi": -48, "loRaSNR": 9, "channel": 5, "board": 0,
            "location": {"latitude": 52.375, "longitude": 4.5, "altitude": 10.5}})
    };
    json!({
        "applicationID": "123", "deviceName": "hall", "devEUI": "cLPVftAACh8=",
        "rxInfo": (0..gateways).map(gateway).collect::<Vec<_>>(),
        "txInfo": {"frequency": 868_100_000, "modulation": "LORA",
            "loRaModulationInfo": {"bandwidth": 125, "spreadingFactor": 7, "codeRate": "4/5"}},
        "adr": false, "dr": 5, "fCnt": 10, "fPort": 5, "data": "ANcAMA==",
        "objectJSON": r#"{"temperature":21.5,"humidity":48}"#
    })
}

/// An uplink of The Things Stack.
pub(crate) fn the_things_stack(gateways: u32) -> Value {
    let gateway = |number: u32| {
        json!({"gateway_ids": {"gateway_id": format!("roof-{number}"), "eui": "9C5C8E00001A05C4"},
            "time": "2026-03-01T15:15:45.787Z", "rssi": -35, "channel_rssi": -35, "snr": 5.25, "channel_index": 2,
            "location": {"latitude": 52.5, "longitude": 4.5, "altitude": -2, "source": "SOURCE_REGISTRY"}})
    };
    json!({
        "end_device_ids": {"device_id": "hall", "application_ids": {"application_id": "climate"},
            "dev_eui": DEV_EUI, "join_eui": "800000000000000C", "dev_addr": "00BCB929"},
        "correlation_ids": ["gs:conn:01E0", format!("gs:uplink:01E1-{gateways}")],
        "received_at": "2026-03-01T15:15:45.787Z",
        "uplink_message": {
            "session_key_id": "AXA50", "f_port": 15, "f_cnt": 42, "frm_payload": "ANcAMA==", "decoded_payload": decoded(),
            "rx_metadata": (0..gateways).map(gateway).collect::<Vec<_>>(),
            "settings": {"data_rate": {"lora": {"bandwidth": 125_000, "spreading_factor": 7, "coding_rate": "4/6"}},
                "frequency": "868300000", "timestamp": 2_463_457_000_u32},
            "consumed_airtime": "0.061696s"
        }
    })
}

/// An uplink of Loriot with its gateways.
pub(crate) fn loriot(gateways: u32) -> Value {
    let gateway = |number: u32| {
        json!({"gweui": format!("AA555A000000000{number:X}"), "rssi": -97, "snr": 7.2, "ts": 1_490_281_111_115_u64,
            "lat": 47.25, "lon": 8.5})
    };
    json!({
        "cmd": "gw", "seqno": 84_125 + gateways, "EUI": DEV_EUI, "ts": 1_490_281_111_177_u64, "fcnt": 16, "port": 3,
        "freq": 868_500_000, "dr": "SF12 BW125 4/5", "ack": false, "data": "00D70030",
        "gws": (0..gateways).map(gateway).collect::<Vec<_>>()
    })
}

/// An uplink of Actility ThingPark, in which most numbers are text.
pub(crate) fn actility(gateways: u32) -> Value {
    let gateway = |number: u32| json!({"Lrrid": format!("080400{number:02}"), "Chain": "0", "LrrRSSI": "-60.500000", "LrrSNR": "9.750000"});
    json!({"DevEUI_uplink": {
        "Time": "2026-03-01T16:06:38.49+02:00", "DevEUI": DEV_EUI, "FPort": "1", "FCntUp": "7011", "ADRbit": "1",
        "payload_hex": "00d70030", "Lrcid": "00000065", "LrrRSSI": "-60.500000", "LrrSNR": "9.750000", "SpFact": "7",
        "Channel": "LC2", "Lrrid": "08040000", "LrrLAT": "48.875", "LrrLON": "2.333673",
        "Lrrs": {"Lrr": (0..gateways).map(gateway).collect::<Vec<_>>()}, "CustomerID": "100000507"
    }})
}
