//! The records of uplinks, by network server and number of gateways, and the requests that are none.

use millstream_types::TopicKind;
use serde_json::{Value, json};

use crate::lora_bodies::{DEV_EUI, PAYLOAD, actility, chirpstack_v3, chirpstack_v4, decoded, loriot, the_things_stack};
use crate::world::{Answer, Kept, World, basic};

const JSON: (&str, &str) = ("content-type", "application/json");
const EMPTY: &str = "application/vnd.eclipse-hono-empty-notification";
const ADDITIONAL_MAX_BYTES: usize = 16 << 10;

/// Tenant `T` with the network server `ns` and the device of the bodies behind it.
pub(crate) async fn world(dir: &std::path::Path) -> World {
    let world = World::open(dir).await;
    world.register("T", "ns").await;
    let line = format!("POST /v1/devices/T/{DEV_EUI}");
    world.do_registry(&line, &json!({"via": ["ns", "ns2"]}).to_string(), 201).await;
    world
}

/// Posts a body as the network server `user`.
pub(crate) async fn post(world: &World, user: &str, target: &str, body: &Value) -> Answer {
    let login = basic(user, "pw");
    world.device(&format!("POST {target}"), &[("authorization", &login), JSON], body.to_string().as_bytes()).await
}

/// The new record that a body makes.
pub(crate) async fn record(world: &World, target: &str, body: &Value) -> Kept {
    let before = world.records(TopicKind::Telemetry, "T").len();
    let answer = post(world, "ns@T", target, body).await;
    assert_eq!((answer.status, &*answer.body), (202, ""), "{target}: {answer:?}");
    let records = world.records(TopicKind::Telemetry, "T");
    assert_eq!(records.len(), before + 1, "{target}");
    // All are of one device, and so in one partition.
    records.last().unwrap().clone()
}

fn json_of(record: &Kept, name: &str) -> Value {
    record.header(name).map_or(Value::Null, |text| serde_json::from_str(text).unwrap())
}

/// Target, provider, body by number of gateways; function port, metadata without gateways, a gateway by its number, and the
/// additional data without gateways.
type Golden = (&'static str, &'static str, fn(u32) -> Value, Value, Value, fn(u32) -> Value, Value);

fn goldens() -> [Golden; 5] {
    [
        (
            "/chirpstackV4?event=up",
            "chirpStackV4",
            chirpstack_v4,
            json!(7),
            json!({"bandwidth": 125, "spreading_factor": 11, "coding_rate": "4/5", "frequency": 867.1, "frame_count": 4,
                "adr_enabled": true}),
            |number| {
                let (id, rssi) = (format!("0016c001f15300{number:02x}"), -36 - i64::from(number));
                match number % 2 {
                    0 => json!({"gateway_id": id, "rss": rssi, "snr": 10.5, "channel": number + 2,
                        "location": {"latitude": 52.5, "longitude": -13.25, "altitude": 34}}),
                    _ => json!({"gateway_id": id, "rss": rssi, "snr": 10.5}),
                }
            },
            json!({"time": "2026-03-01T09:34:15.775023242+00:00",
                "deviceInfo": {"tenantId": "52f1", "applicationName": "climate", "deviceName": "hall"},
                "devAddr": "00189440", "dr": 1, "confirmed": false, "object": {"temperature": 21.5, "humidity": 48}}),
        ),
        (
            "/chirpstack?event=up",
            "chirpStack",
            chirpstack_v3,
            json!(5),
            json!({"bandwidth": 125, "spreading_factor": 7, "coding_rate": "4/5", "frequency": 868.1, "frame_count": 10,
                "adr_enabled": false}),
            |number| {
                let id = ["030405060708090a", "030405060708090b", "030405060708090c"][number as usize % 3];
                json!({"gateway_id": id, "rss": -48, "snr": 9, "channel": 5,
                    "location": {"latitude": 52.375, "longitude": 4.5, "altitude": 10.5}})
            },
            json!({"applicationID": "123", "deviceName": "hall", "txInfo": {"modulation": "LORA"}, "dr": 5,
                "objectJSON": r#"{"temperature":21.5,"humidity":48}"#}),
        ),
        (
            "/thethingsstack",
            "theThingsStack",
            the_things_stack,
            json!(15),
            json!({"bandwidth": 125, "spreading_factor": 7, "coding_rate": "4/6", "frequency": 868.3, "frame_count": 42}),
            |number| {
                json!({"gateway_id": format!("roof-{number}"), "rss": -35, "snr": 5.25, "channel": 2,
                    "location": {"latitude": 52.5, "longitude": 4.5, "altitude": -2}})
            },
            json!({"end_device_ids": {"device_id": "hall", "application_ids": {"application_id": "climate"},
                    "join_eui": "800000000000000C", "dev_addr": "00BCB929"},
                "received_at": "2026-03-01T15:15:45.787Z",
                "uplink_message": {"session_key_id": "AXA50", "decoded_payload": {"temperature": 21.5, "humidity": 48},
                    "settings": {"timestamp": 2_463_457_000_u32}, "consumed_airtime": "0.061696s"}}),
        ),
        (
            "/loriot",
            "loriot",
            loriot,
            json!(3),
            json!({"bandwidth": 125, "spreading_factor": 12, "coding_rate": "4/5", "frequency": 868.5, "frame_count": 16}),
            |number| {
                json!({"gateway_id": format!("AA555A000000000{number:X}"), "rss": -97, "snr": 7.2,
                    "location": {"latitude": 47.25, "longitude": 8.5}})
            },
            json!({"cmd": "gw", "ts": 1_490_281_111_177_u64, "ack": false}),
        ),
        (
            "/actility",
            "actility",
            actility,
            json!(1),
            json!({"spreading_factor": 7, "frame_count": 7_011, "adr_enabled": true}),
            |number| {
                let mut gateway = json!({"gateway_id": format!("080400{number:02}"), "rss": -60.5, "snr": 9.75});
                if number == 0 {
                    gateway["location"] = json!({"latitude": 48.875, "longitude": 2.333673});
                }
                gateway
            },
            json!({"DevEUI_uplink": {"Time": "2026-03-01T16:06:38.49+02:00", "Lrcid": "00000065", "Channel": "LC2",
                "Lrrid": "08040000", "CustomerID": "100000507"}}),
        ),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_of_the_record_of_an_uplink_by_network_server_and_number_of_gateways() {
    let dir = tempfile::tempdir().unwrap();
    let world = world(dir.path()).await;
    for (target, provider, body, port, metadata, gateway, additional) in goldens() {
        for gateways in [1, 3, 20] {
            let row = format!("{target} {gateways}");
            let record = record(&world, target, &body(gateways)).await;
            assert_eq!((&*record.key, &*record.value), (DEV_EUI, &PAYLOAD[..]), "{row}");
            let path = target.split('?').next().unwrap();
            let content_type = format!("application/vnd.eclipse-hono.lora.{provider}");
            for (name, value) in [
                ("device_id", DEV_EUI),
                ("orig_adapter", "hono-lora"),
                ("orig_address", path),
                ("qos", "1"),
                ("content-type", &content_type),
                ("orig_lora_provider", provider),
                ("function_port", &port.to_string()),
            ] {
                assert_eq!(record.header(name), Some(value), "{row}: {name}");
            }
            let mut expected = metadata.clone();
            expected["gateways"] = (0..gateways).map(gateway).collect();
            assert_eq!(json_of(&record, "meta_data"), expected, "{row}");
            let mut rest = json_of(&record, "additional_data");
            // The members that name the uplink, and what the gateways have beside the metadata.
            for name in ["deduplicationId", "correlation_ids", "seqno"] {
                rest.as_object_mut().unwrap().remove(name);
            }
            for (list, named) in [
                ("/rxInfo", "/rxInfo/0"),
                ("/uplink_message/rx_metadata", "/uplink_message/rx_metadata/0"),
                ("/gws", "/gws/0"),
            ] {
                if let Some(found) = rest.pointer(list) {
                    assert_eq!(found.as_array().unwrap().len(), gateways as usize, "{row}");
                    assert!(rest.pointer(named).unwrap().get("rssi").is_none(), "{row}: {rest}");
                }
            }
            for (of, list) in
                [("", "rxInfo"), ("/uplink_message", "rx_metadata"), ("", "gws"), ("/DevEUI_uplink", "Lrrs")]
            {
                rest.pointer_mut(of).and_then(Value::as_object_mut).map(|object| object.remove(list));
            }
            assert_eq!(rest, additional, "{row}");
        }
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_of_uplinks_of_which_members_are_missing() {
    let dir = tempfile::tempdir().unwrap();
    let world = world(dir.path()).await;
    for (target, body) in [
        ("/chirpstackV4?event=up", json!({"deviceInfo": {"devEui": "70b3d57ed0000a1f"}})),
        ("/chirpstackV4?event=up", json!({"deviceInfo": {"devEui": "70b3d57ed0000a1f"}, "data": null})),
        ("/chirpstackV4?a=b&event=up", json!({"deviceInfo": {"devEui": "70B3d57ed0000a1f"}, "data": "", "object": {}})),
        ("/chirpstackV4", json!({"deviceInfo": {"devEui": "70b3d57ed0000a1f"}, "data": ""})),
        ("/chirpstack?event=up", json!({"devEUI": "70b3d57ed0000a1f"})),
        ("/ttn", json!({"end_device_ids": {"dev_eui": DEV_EUI}, "uplink_message": {}})),
        ("/loriot", json!({"EUI": DEV_EUI, "data": ""})),
        ("/loriot", json!({"cmd": "rx", "EUI": DEV_EUI})),
        ("/actilityWireless", json!({"DevEUI_uplink": {"DevEUI": DEV_EUI}})),
        ("/actilityEnterprise", json!({"DevEUI_uplink": {"DevEUI": DEV_EUI, "payload_hex": ""}})),
    ] {
        let record = record(&world, target, &body).await;
        assert_eq!((&*record.value, record.header("content-type")), (&b""[..], Some(EMPTY)), "{target} {body}");
        assert_eq!((record.header("function_port"), record.header("meta_data")), (None, None), "{target} {body}");
    }
    // Members of types that nobody expects are left out.
    let strange = json!({"deviceInfo": {"devEui": "70b3d57ed0000a1f"}, "data": "AA==", "fPort": [1], "fCnt": "many",
        "adr": {}, "rxInfo": ["roof", {"gatewayId": 7, "rssi": true}], "txInfo": 5});
    let record = record(&world, "/chirpstackV4?event=up", &strange).await;
    assert_eq!((record.header("function_port"), &*record.value), (None, &[0][..]));
    assert_eq!(json_of(&record, "meta_data"), json!({"gateways": [{"gateway_id": "7"}]}));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_of_requests_that_are_no_uplinks_are_accepted_counted_and_not_stored() {
    let dir = tempfile::tempdir().unwrap();
    let world = world(dir.path()).await;
    let login = basic("ns@T", "pw");
    let events = ["join", "ack", "txack", "log", "status", "location", "integration", "unheard-of"];
    let mut count = 0;
    for event in events {
        for path in ["/chirpstackV4", "/chirpstack"] {
            for (content_type, body) in [("application/json", &b"{\"data\": \"AA==\"}"[..]), ("text/plain", b"no JSON")]
            {
                let line = format!("POST {path}?event={event}");
                let headers = [("authorization", &*login), ("content-type", content_type)];
                let answer = world.device(&line, &headers, body).await;
                assert_eq!((answer.status, &*answer.body), (202, ""), "{line}: {answer:?}");
                count += 1;
            }
        }
    }
    for (target, body) in [
        ("/chirpstackV4", json!({"deviceInfo": {"devEui": "no hex"}})),
        ("/thethingsstack", json!({"end_device_ids": {"dev_eui": DEV_EUI}, "join_accept": {}})),
        ("/thethingsstack", json!({"end_device_ids": {"dev_eui": DEV_EUI}, "uplink_normalized": {"f_port": 1}})),
        ("/loriot", json!({"cmd": "txd", "EUI": DEV_EUI, "seqdn": 3})),
        ("/actility", json!({"DevEUI_downlink_Sent": {"DevEUI": DEV_EUI}})),
    ] {
        assert_eq!(post(&world, "ns@T", target, &body).await.status, 202, "{target} {body}");
        count += 1;
    }
    assert_eq!(world.records(TopicKind::Telemetry, "T"), []);
    let counted = format!("millstream_connect_lora_requests_total{{case=\"no-uplink\",tenant=\"T\"}} {count}");
    let text = world.metrics_text();
    assert!(text.contains(&counted), "{counted}");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_of_wrong_requests_are_refused_with_value_rule_and_remedy_and_nothing_is_stored() {
    let dir = tempfile::tempdir().unwrap();
    let world = world(dir.path()).await;
    let with = |mut body: Value, at: &str, value: Value| {
        *body.pointer_mut(at).unwrap() = value;
        body.to_string()
    };
    let up = "/chirpstackV4?event=up";
    let json = "application/json";
    let large = "A".repeat(2_732 + 4);
    let table = [
        (
            up,
            json,
            with(chirpstack_v4(1), "/deviceInfo/devEui", json!("70b3d57ed0000a")),
            400,
            "70b3d57ed0000a",
            "DevEUI, 8 bytes",
        ),
        (
            up,
            json,
            with(chirpstack_v4(1), "/deviceInfo/devEui", json!("70b3d57ed0000a1g")),
            400,
            "0a1g",
            "16 hexadecimal digits",
        ),
        (
            up,
            json,
            with(chirpstack_v4(1), "/deviceInfo/devEui", json!("ä0b3d57ed0000a1")),
            400,
            "ä0b3",
            "16 hexadecimal digits",
        ),
        (up, json, with(chirpstack_v4(1), "/deviceInfo/devEui", json!(7)), 400, "7", "deviceInfo.devEui is"),
        (up, json, with(chirpstack_v4(1), "/deviceInfo", json!({})), 400, "none", "deviceInfo.devEui is"),
        (up, json, with(chirpstack_v4(1), "/data", json!("A")), 400, "A", "data is base64"),
        (up, json, with(chirpstack_v4(1), "/data", json!(5)), 400, "5", "data is base64"),
        (
            up,
            json,
            with(chirpstack_v4(1), "/data", json!(large)),
            413,
            "2052 bytes",
            "connect.lora.payload_max_bytes = 2048",
        ),
        (
            "/chirpstack?event=up",
            json,
            with(chirpstack_v3(1), "/devEUI", json!("cLPVftAACg==")),
            400,
            "cLPVftAACg==",
            "base64 or 16",
        ),
        ("/chirpstack?event=up", json, with(chirpstack_v3(1), "/data", json!("??")), 400, "??", "data is base64"),
        (
            "/ttn",
            json,
            with(the_things_stack(1), "/end_device_ids/dev_eui", json!("hall")),
            400,
            "hall",
            "end_device_ids.dev_eui is",
        ),
        (
            "/ttn",
            json,
            with(the_things_stack(1), "/uplink_message/frm_payload", json!("#")),
            400,
            "#",
            "frm_payload is base64",
        ),
        ("/loriot", json, with(loriot(1), "/EUI", json!("70-B3-D5")), 400, "70-B3-D5", "EUI is the DevEUI"),
        ("/loriot", json, with(loriot(1), "/data", json!("0")), 400, "0", "data is pairs of hexadecimal digits"),
        ("/loriot", json, with(loriot(1), "/data", json!("ANcAMA==")), 400, "ANcAMA==", "data is pairs"),
        (
            "/actility",
            json,
            with(actility(1), "/DevEUI_uplink/DevEUI", json!(null)),
            400,
            "none",
            "DevEUI_uplink.DevEUI is",
        ),
        (
            "/actility",
            json,
            with(actility(1), "/DevEUI_uplink/payload_hex", json!("xy")),
            400,
            "xy",
            "payload_hex is pairs",
        ),
        (
            up,
            "application/octet-stream",
            String::new(),
            415,
            "application/octet-stream",
            "Content-Type: application/json",
        ),
        (up, "application/x-protobuf", "x".to_owned(), 415, "application/x-protobuf", "Content-Type: application/json"),
        (up, "text/plain", chirpstack_v4(1).to_string(), 400, "text/plain", "Content-Type: application/json"),
    ];
    let login = basic("ns@T", "pw");
    for (target, content_type, body, status, value, rule) in &table {
        let headers = [("authorization", &*login), ("content-type", content_type)];
        let answer = world.device(&format!("POST {target}"), &headers, body.as_bytes()).await;
        answer.expect_problem(*status, value, rule);
        if *status == 415 {
            assert!(answer.json()["remedy"].as_str().unwrap().contains("to JSON"), "{answer:?}");
        }
    }
    for body in ["", "[]", "{", "7"] {
        let answer = world.device(&format!("POST {up}"), &[("authorization", &login), JSON], body.as_bytes()).await;
        assert_eq!(answer.status, 400, "{body}: {answer:?}");
    }
    let long = with(chirpstack_v4(1), "/object", json!("x".repeat(70_000)));
    let answer = world.device(&format!("POST {up}"), &[("authorization", &login), JSON], long.as_bytes()).await;
    assert!(answer.status == 413 && answer.body.contains("connect.lora.body_max_bytes"), "{answer:?}");
    let answer = world.device(&format!("POST {up}"), &[JSON], chirpstack_v4(1).to_string().as_bytes()).await;
    assert_eq!(answer.status, 401, "a network server logs in");
    assert_eq!(world.records(TopicKind::Telemetry, "T"), []);
    world.stop().await;
}

/// The record's headers stay small, whatever the network server has to say.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_of_too_much_to_tell_are_left_out_and_counted() {
    let dir = tempfile::tempdir().unwrap();
    let world = world(dir.path()).await;
    let mut talkative = chirpstack_v4(1);
    talkative["object"] = json!({"text": "x".repeat(ADDITIONAL_MAX_BYTES)});
    let record_of = record(&world, "/chirpstackV4?event=up", &talkative).await;
    assert_eq!((record_of.header("additional_data"), &*record_of.value), (None, &PAYLOAD[..]));
    assert!(record_of.header("meta_data").is_some());
    let record_of = record(
        &world,
        "/loriot",
        &json!({"EUI": DEV_EUI, "data": "00", "gws":
        (0..600).map(|number| json!({"gweui": format!("{number:016}"), "rssi": -7.5})).collect::<Vec<_>>()}),
    )
    .await;
    let metadata = record_of.header("meta_data").unwrap();
    let gateways = json_of(&record_of, "meta_data")["gateways"].as_array().unwrap().len();
    assert!(metadata.len() <= ADDITIONAL_MAX_BYTES && gateways > 200, "{gateways}");
    let mut endless = chirpstack_v4(0);
    endless["txInfo"]["modulation"]["lora"]["codeRate"] = json!("4".repeat(ADDITIONAL_MAX_BYTES));
    let record_of = record(&world, "/chirpstackV4?event=up", &endless).await;
    assert_eq!((record_of.header("meta_data"), &*record_of.value), (None, &PAYLOAD[..]));
    let text = world.metrics_text();
    for (case, count) in [("additional-data-left-out", 1), ("metadata-left-out", 2)] {
        let counted = format!("millstream_connect_lora_requests_total{{case=\"{case}\",tenant=\"T\"}} {count}");
        assert!(text.contains(&counted), "{counted}");
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_of_a_tenant_that_takes_decoded_payloads() {
    let dir = tempfile::tempdir().unwrap();
    let world = world(dir.path()).await;
    let wrong = json!({"ext": {"lora-payload": "json"}}).to_string();
    world.registry("PUT /v1/tenants/T", &[], &wrong).await.expect_problem(400, "json", "ext.lora-payload is");
    world.do_registry("PUT /v1/tenants/T", &json!({"ext": {"lora-payload": "decoded"}}).to_string(), 204).await;
    for (target, body, payload) in [
        ("/chirpstackV4?event=up", chirpstack_v4(1), "/data"),
        ("/chirpstack?event=up", chirpstack_v3(1), "/data"),
        ("/thethingsstack", the_things_stack(1), "/uplink_message/frm_payload"),
    ] {
        let record = record(&world, target, &body).await;
        assert_eq!(serde_json::from_slice::<Value>(&record.value).unwrap(), decoded(), "{target}");
        assert_eq!(record.header("content-type"), Some("application/json"), "{target}");
        let additional = json_of(&record, "additional_data");
        assert_eq!(additional.pointer(payload), Some(&json!("ANcAMA==")), "the bytes are kept: {target}");
    }
    // Without a codec in the network server there are only the bytes.
    let record_of = record(&world, "/loriot", &loriot(1)).await;
    assert_eq!(
        (&*record_of.value, record_of.header("content-type")),
        (&PAYLOAD[..], Some("application/vnd.eclipse-hono.lora.loriot"))
    );
    let mut empty = chirpstack_v4(2);
    empty["data"] = json!("");
    let record_of = record(&world, "/chirpstackV4?event=up", &empty).await;
    assert_eq!((&*record_of.value, record_of.header("content-type")), (&b""[..], Some(EMPTY)));
    world.stop().await;
}
