//! Commands to LoRaWAN devices, which their network server takes over HTTP.

use std::time::{Duration, Instant};

use millstream_connect::{ConnectConfig, LoraConfig};
use millstream_testkit::eventually_async;
use serde_json::{Value, json};

use crate::lora_bodies::{DEV_EUI, chirpstack_v4, the_things_stack};
use crate::lora_rows::post;
use crate::network_server::NetworkServer;
use crate::world::{Answer, World, quick};

const UP: &str = "/chirpstackV4?event=up";
/// Longer than any test takes.
const LONG_MS: u64 = 60_000;

fn config(downlink_timeout_ms: u64) -> ConnectConfig {
    let lora = LoraConfig { downlink_timeout_ms, ..LoraConfig::default() };
    ConnectConfig { lora, ..quick() }
}

/// A tenant with the network server `ns`, and the device of the bodies behind it.
async fn register(world: &World, tenant: &str, endpoint: Value) {
    world.register(tenant, "ns").await;
    set(world, tenant, json!({"command-endpoint": endpoint})).await;
    world.do_registry(&format!("POST /v1/devices/{tenant}/{DEV_EUI}"), r#"{"via": ["ns"]}"#, 201).await;
}

/// Replaces the network server's registration.
async fn set(world: &World, tenant: &str, device: Value) {
    world.do_registry(&format!("PUT /v1/devices/{tenant}/ns"), &device.to_string(), 204).await;
}

fn endpoint(server: &NetworkServer) -> Value {
    json!({"uri": format!("http://{}/api/devices/{{{{deviceId}}}}/queue", server.address)})
}

async fn uplink(world: &World, tenant: &str, gateways: u32) {
    let answer = post(world, &format!("ns@{tenant}"), UP, &chirpstack_v4(gateways)).await;
    assert_eq!(answer.status, 202, "{answer:?}");
}

/// Sends a one-way command, and returns the answer to its sender.
async fn send(world: &World, tenant: &str, name: &str, more: &str, payload: &str) -> Answer {
    let line = format!("POST /api/commands/{tenant}/{DEV_EUI}?command={name}&one-way=true&timeout-ms=30000{more}");
    let headers = [("content-type", "application/octet-stream")];
    world.registry(&line, &headers, payload).await
}

#[track_caller]
fn expect_accepted(answer: &Answer) {
    assert_eq!((answer.status, &answer.json()["outcome"]), (202, &json!("accepted")), "{answer:?}");
}

#[track_caller]
fn expect_outcome(answer: &Answer, status: u16, outcome: &str, why: &str) {
    let body = answer.json();
    assert_eq!((answer.status, &body["outcome"]), (status, &json!(outcome)), "{answer:?}");
    assert!(body["error"].as_str().unwrap().contains(why), "{why:?} in {body}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_is_posted_to_the_endpoint_in_the_form_of_the_network_server() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open_with(dir.path(), config(LONG_MS)).await;
    let server = NetworkServer::start().await;
    let mut given = endpoint(&server);
    given["headers"] = json!({"Grpc-Metadata-Authorization": "Bearer key", "Accept": "text/plain"});
    given["payload-properties"] = json!({"confirmed": true});
    register(&world, "T", given).await;
    uplink(&world, "T", 1).await;
    expect_accepted(&send(&world, "T", "7", "", "\u{1}\u{2}").await);
    let request = server.requests().pop().unwrap();
    assert_eq!(request.line, format!("POST /api/devices/{DEV_EUI}/queue"));
    assert_eq!(request.body, json!({"queueItem": {"confirmed": true, "data": "AQI=", "fPort": 7}}));
    let host = server.address.to_string();
    for (name, value) in [
        ("host", host.as_str()),
        ("grpc-metadata-authorization", "Bearer key"),
        ("accept", "text/plain"),
        ("content-type", "application/json"),
    ] {
        assert_eq!(request.header(name), Some(value), "{request:?}");
    }
    // The kind of network server is that of the last uplink; the template of the endpoint goes before it.
    assert_eq!(post(&world, "ns@T", "/thethingsstack", &the_things_stack(1)).await.status, 202);
    expect_accepted(&send(&world, "T", "on", "", "\u{1}\u{2}").await);
    let pushed = json!({"downlinks": [{"frm_payload": "AQI=", "f_port": 2, "priority": "NORMAL", "confirmed": true}]});
    assert_eq!(server.requests().pop().unwrap().body, pushed);
    let template = json!({"uri": format!("http://{}/x?p={{{{port}}}}&hex={{{{payloadHex}}}}", server.address),
        "payload-properties": {"for": "{{deviceIdLowerCase}}", "in": [{"bytes": "{{payload}}", "port": "{{port}}"}]}});
    set(&world, "T", json!({"command-endpoint": template})).await;
    expect_accepted(&send(&world, "T", "9", "", "\u{1}\u{2}").await);
    let request = server.requests().pop().unwrap();
    assert_eq!(request.line, "POST /x?p=9&hex=0102");
    let lower = DEV_EUI.to_ascii_lowercase();
    assert_eq!(request.body, json!({"for": lower, "in": [{"bytes": "AQI=", "port": 9}]}));
    let metrics = world.metrics_text();
    let counted = metrics.lines().find(|line| {
        line.starts_with("hono_command_payload_bytes_count")
            && line.contains("\"hono-lora\"")
            && line.contains("forwarded")
    });
    assert!(counted.is_some_and(|line| line.ends_with(" 3")), "{counted:?}");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_of_answers_and_the_outcomes_of_their_commands() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open_with(dir.path(), config(LONG_MS)).await;
    let server = NetworkServer::start().await;
    register(&world, "T", endpoint(&server)).await;
    uplink(&world, "T", 1).await;
    for status in [200, 202, 204] {
        server.answers([Some(status)]);
        expect_accepted(&send(&world, "T", "1", "", "x").await);
    }
    for status in [500, 502, 503, 429, 408] {
        server.answers([Some(status)]);
        let why = format!("the network server has answered {status}");
        expect_outcome(&send(&world, "T", "1", "", "x").await, 503, "released", &why);
    }
    for status in [400, 401, 403, 404, 302] {
        server.answers([Some(status)]);
        let why = format!("the network server has answered {status}");
        expect_outcome(&send(&world, "T", "1", "", "x").await, 400, "rejected", &why);
    }
    let posted = server.requests().len();
    assert_eq!(posted, 13, "each command is posted once, and no redirect is followed");
    expect_outcome(&send(&world, "T", "224", "", "x").await, 400, "rejected", "1 to 223");
    let large = "x".repeat(2_049);
    expect_outcome(&send(&world, "T", "1", "", &large).await, 413, "rejected", "connect.lora.payload_max_bytes");
    assert_eq!(server.requests().len(), posted);
    // An application that reads `command_response`; the device cannot answer.
    server.answers([Some(503), Some(404)]);
    for (id, expected) in [("a", ("503", "released")), ("b", ("400", "rejected"))] {
        world.ask_device("T", DEV_EUI, id, b"x").await;
        let (status, outcome) = world.notice("T", id).await;
        assert_eq!((status.as_str(), outcome.as_str()), expected);
    }
    let line = format!("POST /api/commands/T/{DEV_EUI}?command=1&timeout-ms=300");
    expect_outcome(&world.registry(&line, &[], "").await, 504, "accepted", "has not answered in time");
    let address = server.address;
    drop(server);
    eventually_async("the port is closed", || std::net::TcpStream::connect(address).is_err()).await;
    // A kept connection may still be open; a new one is refused.
    set(&world, "T", json!({"command-endpoint": {"uri": format!("http://localhost:{}/", address.port())}})).await;
    expect_outcome(&send(&world, "T", "1", "", "x").await, 503, "released", "no connection");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_network_server_that_gives_no_answer_in_time_releases_the_command() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open_with(dir.path(), config(300)).await;
    let server = NetworkServer::start().await;
    register(&world, "T", endpoint(&server)).await;
    uplink(&world, "T", 1).await;
    server.answers([None]);
    expect_outcome(&send(&world, "T", "1", "", "x").await, 503, "released", "timeout");
    expect_accepted(&send(&world, "T", "1", "", "x").await);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_target_that_is_not_allowed_is_not_reached() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(LONG_MS);
    config.lora.allowed_targets = vec!["10.0.0.0/8".to_owned()];
    let world = World::open_with(dir.path(), config).await;
    let server = NetworkServer::start().await;
    register(&world, "T", endpoint(&server)).await;
    uplink(&world, "T", 1).await;
    let why = "connect.lora.allowed_targets";
    expect_outcome(&send(&world, "T", "1", "", "x").await, 400, "rejected", why);
    assert_eq!(server.requests(), []);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_network_server_that_hangs_holds_up_no_other_tenant() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(LONG_MS);
    config.lora.downlinks_max_per_tenant = 2;
    let world = World::open_with(dir.path(), config).await;
    let (hangs, works) = (NetworkServer::start().await, NetworkServer::start().await);
    register(&world, "T", endpoint(&hangs)).await;
    register(&world, "U", endpoint(&works)).await;
    hangs.answers([None; 9]);
    // Devices beside the one of the uplink: a device has one command at a time.
    for number in 0..9 {
        world.do_registry(&format!("POST /v1/devices/T/d{number}"), r#"{"via": ["ns"]}"#, 201).await;
    }
    uplink(&world, "T", 1).await;
    uplink(&world, "U", 1).await;
    for number in 0..9 {
        world.command("T", &format!("d{number}"), &[("subject", "1"), ("correlation-id", "c")], b"x").await;
    }
    eventually_async("a request hangs", || hangs.requests().len() == 1).await;
    let began = Instant::now();
    for _ in 0..20 {
        expect_accepted(&send(&world, "U", "1", "", "x").await);
    }
    assert!(began.elapsed() < Duration::from_millis(LONG_MS / 2), "{:?}", began.elapsed());
    // Another network server of the tenant has the other half of its places.
    world.register("T", "ns2").await;
    let other = json!({"command-endpoint": endpoint(&works)}).to_string();
    world.do_registry("PUT /v1/devices/T/ns2", &other, 204).await;
    world.do_registry(&format!("PUT /v1/devices/T/{DEV_EUI}"), r#"{"via": ["ns2"]}"#, 204).await;
    assert_eq!(post(&world, "ns2@T", UP, &chirpstack_v4(2)).await.status, 202);
    expect_accepted(&send(&world, "T", "1", "", "x").await);
    assert_eq!(hangs.requests().len(), 1, "one network server takes half of its tenant's places");
    // What finds neither a place nor room in the queue is not kept waiting.
    let (status, outcome) = world.notice("T", "c").await;
    assert_eq!((status.as_str(), outcome.as_str()), ("503", "released"));
    // The plane does not wait for the request that hangs.
    world.stop().await;
    assert!(began.elapsed() < Duration::from_millis(LONG_MS / 2), "{:?}", began.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_of_network_servers_that_get_no_commands() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open_with(dir.path(), config(LONG_MS)).await;
    let server = NetworkServer::start().await;
    register(&world, "T", endpoint(&server)).await;
    let given = json!({"command-endpoint": endpoint(&server)});
    let nobody = "nobody listens";
    expect_outcome(&send(&world, "T", "1", "", "x").await, 503, "released", nobody);
    uplink(&world, "T", 1).await;
    expect_accepted(&send(&world, "T", "1", "", "x").await);
    let posted = server.requests().len();
    // Without endpoint; with one again.
    set(&world, "T", json!({})).await;
    expect_outcome(&send(&world, "T", "1", "", "x").await, 503, "released", "no longer");
    uplink(&world, "T", 2).await;
    expect_outcome(&send(&world, "T", "1", "", "x").await, 503, "released", nobody);
    set(&world, "T", given.clone()).await;
    uplink(&world, "T", 3).await;
    expect_accepted(&send(&world, "T", "1", "", "x").await);
    // Disabled; behind another; deleted; adapter disabled.
    let mut disabled = given.clone();
    disabled["enabled"] = json!(false);
    set(&world, "T", disabled).await;
    expect_outcome(&send(&world, "T", "1", "", "x").await, 503, "released", nobody);
    set(&world, "T", given).await;
    expect_accepted(&send(&world, "T", "1", "", "x").await);
    let device = format!("PUT /v1/devices/T/{DEV_EUI}");
    world.do_registry(&device, r#"{"via": ["other"]}"#, 204).await;
    expect_outcome(&send(&world, "T", "1", "", "x").await, 503, "released", nobody);
    world.do_registry(&device, r#"{"via": ["ns"], "enabled": false}"#, 204).await;
    assert_eq!(send(&world, "T", "1", "", "x").await.status, 404);
    world.do_registry(&device, r#"{"via": ["ns"]}"#, 204).await;
    let adapters = json!({"adapters": [{"type": "hono-lora", "enabled": false}]});
    world.do_registry("PUT /v1/tenants/T", &adapters.to_string(), 204).await;
    expect_outcome(&send(&world, "T", "1", "", "x").await, 503, "released", "no longer");
    world.do_registry("PUT /v1/tenants/T", "{}", 204).await;
    expect_accepted(&send(&world, "T", "1", "", "x").await);
    world.do_registry("DELETE /v1/devices/T/ns", "", 204).await;
    expect_outcome(&send(&world, "T", "1", "", "x").await, 503, "released", nobody);
    assert_eq!(server.requests().len(), posted + 3);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_with_a_time_to_live_waits_for_an_uplink_and_after_a_release_for_the_next_one() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open_with(dir.path(), config(LONG_MS)).await;
    let server = NetworkServer::start().await;
    register(&world, "T", endpoint(&server)).await;
    let answer = send(&world, "T", "1", "&ttl-s=600", "x").await;
    assert_eq!((answer.status, &answer.json()["outcome"]), (202, &json!("waiting")), "{answer:?}");
    assert_eq!(server.requests().len(), 0);
    server.answers([Some(503)]);
    uplink(&world, "T", 1).await;
    eventually_async("the command is posted", || server.requests().len() == 1).await;
    // A later uplink offers it again.
    let (began, mut frame) = (Instant::now(), 0);
    while server.requests().len() < 2 {
        assert!(
            began.elapsed() < Duration::from_millis(LONG_MS),
            "an uplink gives the command to the network server again"
        );
        frame += 1;
        let mut body = chirpstack_v4(1);
        body["deduplicationId"] = json!(format!("frame-{frame}"));
        assert_eq!(post(&world, "ns@T", UP, &body).await.status, 202);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let counted = "millstream_connect_commands_total{outcome=\"accepted\",tenant=\"T\"} 1";
    eventually_async("it is accepted", || world.metrics_text().contains(counted)).await;
    assert_eq!(server.requests().len(), 2);
    world.stop().await;
}
