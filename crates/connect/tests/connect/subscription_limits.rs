//! Limits of subscriptions over MQTT.

use millstream_connect::{BrokerConfig, ConnectConfig, MqttConfig};
use millstream_testkit::mqtt::{Hello, Mqtt, packet, text};

use crate::world::{World, quick};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_has_limits_of_subscriptions_and_memory_and_refusals_name_the_limit() {
    let hundred = |from: usize| (from..from + 100).map(|n| [text(&format!("home/{n}/#")), vec![1]].concat());
    let ask = |from: usize| packet(0x82, &[[0, 1, 0].to_vec(), hundred(from).collect::<Vec<_>>().concat()].concat());
    let unsubscribe = packet(0xA2, &[[0, 2, 0].to_vec(), text("home/0/#")].concat());
    let again = packet(0x82, &[[0, 3, 0].to_vec(), text("home/0/#"), vec![1]].concat());

    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path()).await;
    world.register("T", "d").await;
    let kept = [0x11, 0, 0, 0x0E, 0x10];
    let hello = Hello {
        level: 5,
        keep_alive_s: 60,
        client: "c",
        clean: true,
        login: Some(("d@T", "pw")),
        properties: &kept,
        will: None,
    };
    let (mut client, _) = Mqtt::connect(world.mqtt(), &hello).await;
    for from in (0..1_100).step_by(100) {
        client.send(&ask(from)).await;
        let code = if from < 1_000 { 1 } else { 0x97 };
        assert_eq!(client.next().await.1[3..], [code; 100], "from {from} on");
    }
    let refused = |limit: &str, count: u32| {
        format!("connect_mqtt_subscriptions_refused_total{{limit=\"{limit}\",tenant=\"T\"}} {count}\n")
    };
    let metrics = world.metrics_text();
    assert!(metrics.contains(&refused("connect.mqtt.broker.subscriptions_max", 100)), "{metrics}");
    world.stop().await;

    let dir = tempfile::tempdir().unwrap();
    // What 'home/0/#' takes, thrice, and as much again, which a tenant leaves free.
    let room = 6 * (256 + 2 * 8 + 3 * 64);
    let broker = BrokerConfig { subscriptions_max_bytes: room, ..BrokerConfig::default() };
    let world =
        World::open_with(dir.path(), ConnectConfig { mqtt: MqttConfig { broker, ..quick().mqtt }, ..quick() }).await;
    world.register("T", "d").await;
    world.register("U", "d").await;
    let mut client = Mqtt::log_in(world.mqtt(), 5, "d@T").await;
    client.send(&ask(0)).await;
    assert_eq!(client.next().await.1[3..8], [1, 1, 1, 0x97, 0x97]);
    let mut other = Mqtt::log_in(world.mqtt(), 5, "d@U").await;
    other.send(&ask(0)).await;
    assert_eq!(other.next().await.1[3..5], [1, 0x97], "another tenant has its own");
    other.send(&[0xE0, 0]).await;
    other.expect_end().await;
    let metrics = world.metrics_text();
    assert!(metrics.contains(&refused("connect.mqtt.broker.subscriptions_max_bytes", 97)), "{metrics}");
    // An unsubscription gives its memory back, and so does the end of a session.
    client.send(&unsubscribe).await;
    assert_eq!(client.next().await.1, [0, 2, 0, 0]);
    loop {
        client.send(&again).await;
        let answer = client.next().await.1;
        if answer == [0, 3, 0, 1] {
            break;
        }
        // The session of the other tenant may still be on its way out, and has its memory so long.
        assert_eq!(answer, [0, 3, 0, 0x97]);
    }
    loop {
        client.send(&[0xE0, 0]).await;
        client.expect_end().await;
        client = Mqtt::log_in(world.mqtt(), 5, "d@T").await;
        client.send(&ask(0)).await;
        let codes = client.next().await.1;
        // The session that has just ended may still be on its way out.
        if codes[3..8] == [1, 1, 1, 0x97, 0x97] {
            break;
        }
        assert_eq!(codes[3..8], [0x97; 5]);
    }
    world.stop().await;
}
