//! The registry shows a device's connections and the time of its last message.

use millstream_testkit::mqtt::Mqtt;
use millstream_types::{TopicKind, header, iso_time};
use serde_json::json;

use crate::world::{World, basic};

async fn shown(world: &World) -> [serde_json::Value; 2] {
    let read = world.do_registry("GET /v1/devices/T/d", "", 200).await.json();
    let found = world.do_registry("GET /v1/devices/T", "", 200).await.json();
    [read["status"]["connected"].clone(), found["result"][0]["status"]["connected"].clone()]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_is_shown_as_connected_while_it_has_an_mqtt_connection() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path()).await;
    world.register("T", "d").await;
    world.register("U", "d").await;
    assert_eq!(shown(&world).await, [json!(false), json!(false)]);
    let other = Mqtt::log_in(world.mqtt(), 5, "d@U").await;
    assert_eq!(shown(&world).await, [json!(false), json!(false)]);
    let mut clients = [Mqtt::log_in(world.mqtt(), 5, "d@T").await, Mqtt::log_in(world.mqtt(), 4, "d@T").await];
    for client in &mut clients {
        assert_eq!(shown(&world).await, [json!(true), json!(true)]);
        client.send(&[0xE0, 0]).await;
        client.expect_end().await;
    }
    let patience = std::time::Duration::from_secs(60);
    let gone = async { while shown(&world).await != [json!(false), json!(false)] {} };
    tokio::time::timeout(patience, gone).await.unwrap();
    drop(other);
    world.stop().await;
}

/// The time of the last message of devices `d`, `g` and `behind` of tenant `T`, as search and GET show it.
async fn last_seen(world: &World) -> Vec<Option<String>> {
    let found = world.do_registry("GET /v1/devices/T", "", 200).await.json();
    let mut all = Vec::new();
    for device in ["d", "g", "behind"] {
        let item = found["result"].as_array().unwrap().iter().find(|item| item["id"] == device).unwrap();
        let read = world.do_registry(&format!("GET /v1/devices/T/{device}"), "", 200).await.json();
        assert_eq!(item["status"], read["status"]);
        all.push(read["status"].get("last-seen").map(|at| at.as_str().unwrap().to_owned()));
    }
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_is_shown_with_the_time_of_its_last_message_also_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path()).await;
    for device in ["d", "g", "behind"] {
        world.register("T", device).await;
        world.register("U", device).await;
    }
    world.do_registry("PUT /v1/devices/T/behind", r#"{"via":["g"]}"#, 204).await;
    assert_eq!(last_seen(&world).await, [None, None, None]);

    let gateway = basic("g@T", "pw");
    let headers = [("authorization", gateway.as_str()), ("qos-level", "1")];
    assert_eq!(world.device("PUT /telemetry//behind", &headers, b"x").await.status, 202);
    assert_eq!(world.device("PUT /telemetry//d", &headers, b"x").await.status, 403);
    let sent = world.records(TopicKind::Telemetry, "T");
    let sent_ms = sent.last().unwrap().header(header::CREATION_TIME).unwrap().parse().unwrap();
    let behind = Some(iso_time(sent_ms));
    assert_eq!(
        last_seen(&world).await,
        [None, None, behind.clone()],
        "the message is of the device behind the gateway"
    );

    let mut client = Mqtt::log_in(world.mqtt(), 5, "d@T").await;
    let mut before = None;
    for topic in ["event", "house/lamp"] {
        client.publish(1, 7, topic, b"x").await;
        assert_eq!(client.next().await.1[..2], [0, 7]);
        let [now, None, same] = &last_seen(&world).await[..] else { panic!("{topic}: the gateway has sent nothing") };
        assert!(*now >= before && now.is_some() && *same == behind, "{topic}");
        before = now.clone();
    }
    drop(client);
    world.stop().await;

    let world = World::open(dir.path()).await;
    assert_eq!(last_seen(&world).await, [before, None, behind]);
    world.do_registry("DELETE /v1/devices/T/behind", "", 204).await;
    world.register("T", "behind").await;
    assert_eq!(last_seen(&world).await[2], None, "another device of the same name");
    world.stop().await;
}
