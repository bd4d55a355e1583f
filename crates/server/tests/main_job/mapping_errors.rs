//! `/api/mapping-errors` names the devices whose measurements become no entity.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use millstream_testkit::{Server, ask, eventually};
use serde_json::{Value, json};

const JSON: (&str, &str) = ("Content-Type", "application/json");

fn register(server: &impl Server, device: &str, document: &Value) {
    let credentials = json!([{"type": "hashed-password", "auth-id": device, "secrets": [{"pwd-plain": "pw"}]}]);
    for (method, kind, body) in [("POST", "devices", document), ("PUT", "credentials", &credentials)] {
        let path = format!("/v1/{kind}/{}/{device}", server.tenant());
        let answer = ask(server.applications(), method, &path, &[JSON], body.to_string().as_bytes());
        assert!(answer.status < 300, "{path}: {}", answer.text());
    }
}

fn send(server: &impl Server, device: &str, payload: &str) {
    let login = format!("Basic {}", BASE64.encode(format!("{device}@{}:pw", server.tenant())));
    let headers = [("Authorization", &*login), ("Content-Type", "text/plain"), ("qos-level", "1")];
    let answer = ask(server.devices(), "POST", "/telemetry", &headers, payload.as_bytes());
    assert_eq!(answer.status, 202, "{}", answer.text());
}

#[test]
fn each_device_whose_measurements_become_no_entity_is_named_with_the_reason() {
    let server = crate::tenant();
    let needs_a_room = json!({"ext": {"context": {"id": "urn:ngsi-ld:Room:${room}"}}});
    for (device, document) in [("plain", &json!({})), ("roomless", &needs_a_room), ("good", &json!({}))] {
        register(&server, device, document);
    }
    assert_eq!(server.get_json("/api/mapping-errors"), json!({"total": 0, "devices": []}));

    send(&server, "plain", "21.5 degrees");
    send(&server, "plain", "22 degrees");
    send(&server, "roomless", r#"{"temp": 3}"#);
    send(&server, "good", r#"{"temp": 4}"#);
    let of = |device: &str| server.get_json(&format!("/api/mapping-errors?device={device}"))["devices"][0].clone();
    eventually("both errors of the first", || of("plain")["count"] == 2);
    eventually("the error of the second", || of("roomless")["count"] == 1);
    assert!(of("plain")["what"].as_str().unwrap().starts_with("the payload is no JSON object"), "{}", of("plain"));
    assert!(
        of("roomless")["what"].as_str().unwrap().contains("a member that it reads is missing"),
        "{}",
        of("roomless")
    );
    eventually("the good measurement", || server.get("/v2/entities/urn:ngsi-ld:Device:good").status == 200);
    assert_eq!(of("good"), Value::Null);
    assert_eq!(server.get_json("/api/mapping-errors")["total"], 2);

    let other = ask(server.applications(), "GET", "/api/mapping-errors", &[("Fiware-Service", "other")], b"");
    assert_eq!(other.json(), json!({"total": 0, "devices": []}));
    let refused = ask(server.applications(), "GET", "/api/mapping-errors?tenant=x", &[], b"");
    assert!(refused.status == 400 && refused.text().contains("device"), "{}", refused.text());
}
