//! Devices that their gateway registers by its first message for them.

use millstream_testkit::mqtt::Mqtt;
use millstream_types::TopicKind;
use serde_json::json;

use crate::world::{World, basic};

/// A gateway that may register devices, and one that may not.
pub(crate) async fn world(dir: &std::path::Path) -> World {
    let world = World::open(dir).await;
    for gateway in ["g", "h"] {
        world.register("T", gateway).await;
    }
    let authority = json!({"authorities": ["auto-provisioning-enabled"]});
    world.do_registry("PUT /v1/devices/T/g", &authority.to_string(), 204).await;
    world
}

/// Checks the registration of `device`, and that one event tells of it.
pub(crate) async fn expect_registered(world: &World, device: &str) {
    let read = world.do_registry(&format!("GET /v1/devices/T/{device}"), "", 200).await.json();
    assert_eq!(read["via"], json!(["g"]));
    let status = &read["status"];
    assert_eq!(
        (&status["auto-provisioned"], &status["auto-provisioning-notification-sent"]),
        (&json!(true), &json!(true))
    );
    let events = world.records(TopicKind::Event, "T");
    let of_device: Vec<_> = events.iter().filter(|event| event.key == device).collect();
    assert_eq!(of_device.len(), 1, "{events:?}");
    for (name, value) in [
        ("device_id", device),
        ("tenant_id", "T"),
        ("gateway_id", "g"),
        ("hono_registration_status", "NEW"),
        ("content-type", "application/vnd.eclipse-hono-device-provisioning-notification"),
        ("qos", "1"),
    ] {
        assert_eq!(of_device[0].header(name), Some(value), "{name}");
    }
}

/// §10 c, an edge device through a gateway with the authority, over HTTP and MQTT.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_a_gateway_with_the_authority_registers_a_device_by_its_first_message() {
    let dir = tempfile::tempdir().unwrap();
    let world = world(dir.path()).await;
    let (may, may_not) = (basic("g@T", "pw"), basic("h@T", "pw"));
    for qos in ["0", "1"] {
        let line = format!("PUT /telemetry/T/http-{qos}");
        let stranger = [("authorization", may_not.as_str()), ("qos-level", qos)];
        world.device(&line, &stranger, b"x").await.expect_problem(404, &format!("http-{qos}"), "regist");
        let gateway = [("authorization", may.as_str()), ("qos-level", qos)];
        for _ in 0..2 {
            assert_eq!(world.device(&line, &gateway, b"x").await.status, 202);
        }
        expect_registered(&world, &format!("http-{qos}")).await;
    }
    let wrong = [("authorization", may.as_str()), ("content-type", "text/plain")];
    world.device("PUT /telemetry//a%20b", &wrong, b"x").await.expect_problem(403, "a b", "its id is legal");
    world.device("PUT /telemetry/U/d", &wrong, b"x").await.expect_problem(403, "U", "tenant");
    for level in [4, 5] {
        let device = format!("mqtt-{level}");
        let mut client = Mqtt::log_in(world.mqtt(), level, "g@T").await;
        for id in 1..=3 {
            client.publish(1, id, &format!("telemetry//{device}"), b"x").await;
        }
        for _ in 1..=3 {
            assert_eq!(client.next().await.0, 0x40);
        }
        expect_registered(&world, &device).await;
        let telemetry = world.records(TopicKind::Telemetry, "T");
        assert_eq!(telemetry.iter().filter(|record| record.key == device).count(), 3);
        // A name that no device may have is refused as any unknown device, and the connection goes on or ends as ever.
        client.publish(1, 4, "telemetry//a b/?on-error=ignore", b"x").await;
        assert_eq!(client.next().await.0, 0x40);
    }
    let limited = json!({"registration-limits": {"max-devices": 6}});
    world.do_registry("PUT /v1/tenants/T", &limited.to_string(), 204).await;
    world.device("PUT /telemetry//more", &wrong, b"x").await.expect_problem(403, "more", "limits allow");
    world.stop().await;
    let world = World::open(dir.path()).await;
    for device in ["http-0", "mqtt-5"] {
        expect_registered(&world, device).await;
    }
    // Replacing it keeps the mark.
    world.do_registry("PUT /v1/devices/T/http-0", r#"{"via":["g"],"ext":{"a":1}}"#, 204).await;
    expect_registered(&world, "http-0").await;
    world.stop().await;
}
