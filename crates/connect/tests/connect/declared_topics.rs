//! A tenant that has declared the topics of its private space.

use millstream_testkit::mqtt::{Hello, Mqtt, Will, publish};
use millstream_types::TopicKind;

use crate::world::World;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenant_that_declares_its_private_topics_refuses_a_misspelt_one() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path()).await;
    world.register("T", "d").await;
    world.do_registry("PUT /v1/tenants/T", r#"{"ext":{"mqtt-private-topics":["telemetry/#"]}}"#, 400).await;
    let mut all = Mqtt::log_in(world.mqtt(), 5, "d@T").await;
    all.publish(1, 1, "telemtry", b"x").await;
    assert_eq!(all.next().await, (0x40, vec![0, 1]), "without a list all topics are private");

    world.do_registry("PUT /v1/tenants/T", r#"{"ext":{"mqtt-private-topics":["house/#","a/+/b"]}}"#, 204).await;
    for level in [4, 5] {
        for qos in [0, 1, 2] {
            let mut client = Mqtt::log_in(world.mqtt(), level, "d@T").await;
            client.send(&publish(level, qos, 7, "telemtry", &[], b"x")).await;
            if level == 5 && qos > 0 {
                assert_eq!(client.next().await, (0x30 + 0x10 * qos, vec![0, 7, 0x90]), "quality {qos}");
                client.publish(1, 8, "house/1", b"x").await;
                assert_eq!(client.next().await, (0x40, vec![0, 8]));
            } else {
                assert_eq!(client.expect_end().await, (level == 5).then_some(0x90), "level {level}, quality {qos}");
            }
        }
        let mut client = Mqtt::log_in(world.mqtt(), level, "d@T").await;
        for (topic, id) in [("house", 1), ("a/x/b", 2), ("t", 3)] {
            client.publish(1, id, topic, b"x").await;
            assert_eq!(client.next().await, (0x40, id.to_be_bytes().to_vec()), "{topic}");
        }
    }
    assert_eq!(world.records(TopicKind::Telemetry, "T").len(), 2);
    let will = Will { topic: "telemtry", payload: b"x", qos: 1, retain: false, properties: &[] };
    let hello = Hello {
        level: 5,
        keep_alive_s: 60,
        client: "c",
        clean: true,
        login: Some(("d@T", "pw")),
        properties: &[],
        will: Some(will),
    };
    let (_, answer) = Mqtt::connect(world.mqtt(), &hello).await;
    assert_eq!(answer[..2], [0, 0x90], "a will on such a topic");
    world.stop().await;
}
