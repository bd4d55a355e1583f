//! The user properties of messages from MQTT 5 clients.

use millstream_testkit::found_async;
use millstream_testkit::mqtt::{Hello, Mqtt, Will, publish, text};
use millstream_types::TopicKind;

use crate::world::World;

fn property(name: &str, value: &str) -> Vec<u8> {
    [&[0x26][..], &text(name), &text(value)].concat()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn user_properties_of_messages_become_headers_of_their_records() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path()).await;
    world.register("T", "d").await;
    let rules =
        r#"{"defaults":{"site":"plant","room":"r"},"ext":{"mqtt-mapping":[{"topic":"tele/#","to":"telemetry"}]}}"#;
    world.do_registry("PUT /v1/tenants/T", rules, 204).await;
    let named = [property("site", "roof"), property("tag", "1"), property("tag", "2")].concat();
    let false_names = [property("device_id", "other"), property("qos", "9"), property("", "x")].concat();
    let mut device = Mqtt::log_in(world.mqtt(), 5, "d@T").await;
    // In one write.
    let run = [(1, &[][..]), (2, &named), (3, &false_names), (4, &named)];
    let run = run.map(|(id, properties)| publish(5, 1, id, "t", properties, id.to_string().as_bytes()));
    device.send(&run.concat()).await;
    for _ in 1..=4 {
        assert_eq!(device.next().await.0, 0x40);
    }
    device.send(&publish(5, 1, 5, "tele/x", &named, b"5")).await;
    assert_eq!(device.next().await.0, 0x40);
    let records = world.records(TopicKind::Telemetry, "T");
    let own = |at: usize| {
        let named = records[at].headers.iter().filter(|(name, _)| ["site", "room", "tag", ""].contains(&&**name));
        named.map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>()
    };
    let (plain, with_names) = (["site=plant", "room=r"], ["room=r", "site=roof", "tag=1", "tag=2"]);
    let sorted = |at: usize| {
        let mut own = own(at);
        own.sort();
        own
    };
    for (at, expected) in [(0, &plain[..]), (1, &with_names), (2, &plain), (3, &with_names), (4, &with_names)] {
        let mut expected = expected.to_vec();
        expected.sort_unstable();
        assert_eq!(sorted(at), expected, "record {at}");
        let of_the_adapter = ["device_id", "qos"].map(|name| records[at].header(name));
        assert_eq!(of_the_adapter, [Some("d"), Some("1")], "record {at}");
        assert_eq!(records[at].headers.iter().filter(|(name, _)| name == "qos").count(), 1, "record {at}");
    }
    // They count for the limit of the payload.
    let large = [property("a", &"x".repeat(60)), property("b", &"x".repeat(50))].concat();
    device.send(&publish(5, 1, 6, "t", &large, &[b'x'; 2_048 - 112])).await;
    assert_eq!(device.next().await.0, 0x40);
    device.send(&publish(5, 1, 7, "t", &large, &[b'x'; 2_048 - 111])).await;
    assert_eq!(device.expect_end().await, Some(0x95));

    let tag = property("tag", "will");
    let will = Will { topic: "t", payload: b"gone", qos: 1, retain: false, properties: &tag };
    let hello = Hello {
        level: 5,
        keep_alive_s: 60,
        client: "c",
        clean: true,
        login: Some(("d@T", "pw")),
        properties: &[],
        will: Some(will),
    };
    let (mut client, _) = Mqtt::connect(world.mqtt(), &hello).await;
    client.send(&[0xE0, 2, 4, 0]).await;
    client.expect_end().await;
    let will = found_async("the will", || {
        let records = world.records(TopicKind::Telemetry, "T");
        records.into_iter().find(|record| record.value == b"gone")
    });
    assert_eq!(will.await.header("tag"), Some("will"));
    world.stop().await;
}
