//! Network servers: the devices that they send for, requests that come again, and tenants beside each other.

use std::time::Duration;

use millstream_connect::{ConnectConfig, HttpAdapterConfig};
use millstream_log::LogConfig;
use millstream_types::TopicKind;
use serde_json::json;

use crate::gate::{GatedFiles, log_has_no_files};
use crate::lora_bodies::{DEV_EUI, chirpstack_v4, the_things_stack};
use crate::lora_rows::{post, world};
use crate::provisioning::{expect_registered, world as provisioning_world};
use crate::world::{World, quick};

const UP: &str = "/chirpstackV4?event=up";

fn telemetry(world: &World, tenant: &str) -> usize {
    world.records(TopicKind::Telemetry, tenant).len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_of_the_devices_that_a_network_server_may_send_for() {
    let dir = tempfile::tempdir().unwrap();
    let world = world(dir.path()).await;
    let body = |dev_eui: &str| {
        let mut body = chirpstack_v4(1);
        body["deviceInfo"]["devEui"] = json!(dev_eui);
        body
    };
    for (device, registered) in [
        ("00000000000000aa", json!({"via": ["ns"]})),
        ("00000000000000bb", json!({})),
        ("00000000000000CC", json!({"via": ["ns"], "enabled": false})),
        ("00000000000000dd", json!({"via": ["ns"]})),
        ("00000000000000DD", json!({"via": ["ns"]})),
    ] {
        world.do_registry(&format!("POST /v1/devices/T/{device}"), &registered.to_string(), 201).await;
    }
    for (dev_eui, status, value, rule) in [
        ("00000000000000BB", 403, "00000000000000bb", "via of the device names 'ns'"),
        ("00000000000000cc", 404, "00000000000000CC", "only an enabled device"),
        ("00000000000000ee", 404, "00000000000000EE", "only an enabled device"),
    ] {
        post(&world, "ns@T", UP, &body(dev_eui)).await.expect_problem(status, value, rule);
    }
    assert_eq!(telemetry(&world, "T"), 0);
    // Registered in lower case; registered in both, of which the one in upper case goes first.
    for (dev_eui, device) in [("00000000000000AA", "00000000000000aa"), ("00000000000000dd", "00000000000000DD")] {
        assert_eq!(post(&world, "ns@T", UP, &body(dev_eui)).await.status, 202);
        let records = world.records(TopicKind::Telemetry, "T");
        assert!(records.iter().any(|record| record.key == device), "{device}: {records:?}");
    }
    let adapters = |enabled: bool| {
        json!({"adapters": [{"type": "hono-lora", "enabled": enabled,
        "ext": {"max-payload-bytes": 3}}]})
    };
    world.do_registry("PUT /v1/tenants/T", &adapters(true).to_string(), 204).await;
    let answer = post(&world, "ns@T", UP, &chirpstack_v4(1)).await;
    answer.expect_problem(413, "4 bytes", "ext.max-payload-bytes of the tenant's entry for hono-lora = 3");
    world.do_registry("PUT /v1/tenants/T", &adapters(false).to_string(), 204).await;
    post(&world, "ns@T", UP, &chirpstack_v4(1)).await.expect_problem(403, "T", "hono-lora");
    let limited = json!({"resource-limits": {"max-messages-per-second": 1}});
    world.do_registry("PUT /v1/tenants/T", &limited.to_string(), 204).await;
    let mut statuses = Vec::new();
    for gateways in 2..12 {
        let answer = post(&world, "ns@T", UP, &chirpstack_v4(gateways)).await;
        assert_eq!(answer.header("retry-after").is_some(), answer.status == 429, "{answer:?}");
        statuses.push(answer.status);
    }
    assert!(statuses.contains(&202) && statuses.contains(&429), "{statuses:?}");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_a_network_server_with_the_authority_registers_a_device_by_its_first_uplink() {
    let dir = tempfile::tempdir().unwrap();
    let world = provisioning_world(dir.path()).await;
    post(&world, "h@T", UP, &chirpstack_v4(1)).await.expect_problem(404, DEV_EUI, "only an enabled device");
    for gateways in [1, 3] {
        assert_eq!(post(&world, "g@T", UP, &chirpstack_v4(gateways)).await.status, 202);
    }
    expect_registered(&world, DEV_EUI).await;
    assert_eq!(telemetry(&world, "T"), 2);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_network_servers_of_one_device_and_another_tenant_do_not_disturb_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let world = world(dir.path()).await;
    for (tenant, gateway) in [("T", "ns2"), ("U", "ns")] {
        world.register(tenant, gateway).await;
    }
    world.do_registry(&format!("POST /v1/devices/U/{DEV_EUI}"), r#"{"via": ["ns"]}"#, 201).await;
    let posts = (1..=8).map(|gateways| {
        let world = &world;
        async move {
            let body = chirpstack_v4(gateways);
            let things = the_things_stack(gateways);
            let (first, second, other) = tokio::join!(
                post(world, "ns@T", UP, &body),
                post(world, "ns2@T", "/thethingsstack", &things),
                post(world, "ns@U", UP, &body),
            );
            assert_eq!([first.status, second.status, other.status], [202; 3]);
        }
    });
    for post in posts {
        post.await;
    }
    // The same id at two network servers is not the same uplink.
    assert_eq!(post(&world, "ns2@T", UP, &chirpstack_v4(1)).await.status, 202);
    let records = world.records(TopicKind::Telemetry, "T");
    let of = |provider: &str| records.iter().filter(|it| it.header("orig_lora_provider") == Some(provider)).count();
    assert_eq!((of("chirpStackV4"), of("theThingsStack"), telemetry(&world, "U")), (9, 8, 8));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_of_uplinks_that_come_again_are_stored_once() {
    let dir = tempfile::tempdir().unwrap();
    let world = world(dir.path()).await;
    let mut other_connection = the_things_stack(1);
    other_connection["correlation_ids"] = json!(["gs:conn:02", "as:up:77"]);
    let mut next_frame = other_connection.clone();
    next_frame["uplink_message"]["f_cnt"] = json!(43);
    let mut without_id = chirpstack_v4(1);
    without_id.as_object_mut().unwrap().remove("deduplicationId");
    for (row, target, body, expected) in [
        ("the first", UP, chirpstack_v4(1), 1),
        ("again", UP, chirpstack_v4(1), 1),
        ("another id", UP, chirpstack_v4(3), 2),
        ("another network server's", "/thethingsstack", the_things_stack(1), 3),
        ("again", "/thethingsstack", the_things_stack(1), 3),
        ("with another id of the same connection", "/thethingsstack", the_things_stack(2), 4),
        ("of another connection", "/thethingsstack", other_connection.clone(), 5),
        ("of another frame", "/thethingsstack", next_frame, 6),
        ("without id", UP, without_id.clone(), 7),
        ("without id, again", UP, without_id, 8),
    ] {
        assert_eq!(post(&world, "ns@T", target, &body).await.status, 202, "{row}");
        assert_eq!(telemetry(&world, "T"), expected, "{row}");
    }
    let counted = "millstream_connect_lora_requests_total{case=\"repeated\",tenant=\"T\"} 2";
    assert!(world.metrics_text().contains(counted), "{counted}");
    world.stop().await;
}

/// A network server repeats a request that is not answered in time, while the first one is still on its way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_uplink_that_comes_again_while_it_is_on_its_way_shares_the_outcome() {
    if log_has_no_files() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let files = GatedFiles::default();
    let http = HttpAdapterConfig { send_timeout_ms: 200, ..quick().http };
    let config = ConnectConfig { http, ..quick() };
    let world = World::open_on(dir.path(), config, LogConfig::default(), files.clone()).await;
    world.register("T", "ns").await;
    world.do_registry(&format!("POST /v1/devices/T/{DEV_EUI}"), r#"{"via": ["ns"]}"#, 201).await;
    // The tenant's topics are there before the disk stands still.
    while post(&world, "ns@T", UP, &chirpstack_v4(9)).await.status != 202 {}
    let before = telemetry(&world, "T");
    files.shut();
    for _ in 0..2 {
        let answer = post(&world, "ns@T", UP, &chirpstack_v4(1)).await;
        assert_eq!(answer.status, 503, "{answer:?}");
        assert!(answer.header("retry-after").is_some() && answer.body.contains("not accepted in time"), "{answer:?}");
    }
    files.open_again();
    let mut status = 503;
    for _ in 0..600 {
        status = post(&world, "ns@T", UP, &chirpstack_v4(1)).await.status;
        if status == 202 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!((status, telemetry(&world, "T")), (202, before + 1));
    world.stop().await;
}
