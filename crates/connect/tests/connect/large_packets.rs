//! Large packets: what fits, what is told of what does not, and the memory that packets in the making take.

use millstream_connect::{ConnectConfig, MqttConfig};
use millstream_testkit::mqtt::{Hello, Message, Mqtt, connect, publish, text};
use millstream_types::TopicKind;
use serde_json::{Value, json};

use crate::mapping::{ping, retained, rules, send};
use crate::world::{World, quick};
use millstream_testkit::{LogLines, found_async};

const BOTH: [u8; 2] = [4, 5];
/// The default of `connect.mqtt.packet_max_bytes`, and the largest record of the log.
const MEBIBYTE: usize = 1 << 20;

/// The message that Zigbee2MQTT retains on `bridge/devices` for this number of devices: some 2.8 KB for each.
fn bridge_devices(count: usize) -> String {
    let feature = |name: &str| {
        json!({
            "access": 7, "label": name, "name": name, "property": name, "type": "numeric", "unit": "%", "value_max": 254,
            "value_min": 0, "description": format!("The {name} of this device, as its converter tells it"),
        })
    };
    let names = ["brightness", "color_temp", "linkquality", "power", "energy", "voltage", "current", "battery"];
    let device = |number: usize| {
        json!({
            "ieee_address": format!("0x{number:016x}"), "friendly_name": format!("Room {number} lamp"), "type": "Router",
            "network_address": number, "supported": true, "disabled": false, "interview_completed": true,
            "definition": {
                "model": "LED1836G9", "vendor": "IKEA", "supports_ota": true, "exposes": names.map(feature),
                "options": [feature("transition"), feature("measurement_poll_interval")],
            },
            "endpoints": {"1": {"clusters": {"input": names, "output": ["genOta"]}, "bindings": [], "scenes": []}},
        })
    };
    Value::from_iter((0..count).map(device)).to_string()
}

/// Waits for a message, and does not print it if it is another.
async fn expect(client: &mut Mqtt, topic: &str, payload: &str) -> Message {
    let message = client.message().await;
    assert!(message.text() == (topic, payload), "{} bytes on {}", message.payload.len(), message.topic);
    message
}

/// A tenant whose gateway `d` publishes as Zigbee2MQTT does, and whose device `e` listens.
async fn world(dir: &std::path::Path) -> World {
    let world = World::open(dir).await;
    world.register("T", "d").await;
    world.register("T", "e").await;
    let zigbee = json!([{"topic": "zigbee2mqtt/#", "to": "telemetry", "device-level": 2, "unknown": "publish"}]);
    rules(&world, zigbee, json!({})).await;
    world
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_list_of_120_devices_that_zigbee2mqtt_retains_reaches_subscribers_of_then_and_later_whole() {
    let dir = tempfile::tempdir().unwrap();
    let mut world = world(dir.path()).await;
    let list = bridge_devices(120);
    assert!((300_000..400_000).contains(&list.len()), "{}", list.len());
    let topic = "zigbee2mqtt/bridge/devices";
    let hour = [0x11, 0, 0, 0x0E, 0x10];
    let away = Hello {
        level: 5,
        keep_alive_s: 60,
        client: "away",
        clean: false,
        login: Some(("e@T", "pw")),
        properties: &hour,
        will: None,
    };
    let (mut kept, _) = Mqtt::connect(world.mqtt(), &away).await;
    assert_eq!(kept.subscribe("zigbee2mqtt/#", 1).await, 1);
    drop(kept);
    let mut count = 0;
    for level in BOTH {
        let mut watcher = Mqtt::log_in(world.mqtt(), level, "e@T").await;
        assert_eq!(watcher.subscribe("zigbee2mqtt/#", 0).await, 0);
        if level == 5 {
            expect(&mut watcher, topic, &list).await;
        }
        let mut bridge = Mqtt::log_in(world.mqtt(), level, "d@T").await;
        for qos in [0, 1, 2] {
            let packet = publish(level, qos, 1, topic, &[], list.as_bytes());
            assert_eq!(send(&mut bridge, &retained(true, packet)).await, 0);
            expect(&mut watcher, topic, &list).await;
            count += usize::from(qos > 0);
        }
        // Two in one piece, with a small one between them.
        let large = retained(true, publish(level, 1, 1, topic, &[], list.as_bytes()));
        bridge.send(&[&large[..], &publish(level, 1, 2, "zigbee2mqtt/x y", &[], b"{}"), &large].concat()).await;
        for (topic, payload) in [(topic, &*list), ("zigbee2mqtt/x y", "{}"), (topic, &list)] {
            assert_eq!(bridge.next().await.0, 0x40);
            expect(&mut watcher, topic, payload).await;
        }
        let mut later = Mqtt::log_in(world.mqtt(), level, "e@T").await;
        assert_eq!(later.subscribe("#", 0).await, 0);
        assert!(expect(&mut later, topic, &list).await.retain);
        count += 3;
    }
    world.stop().await;
    world = World::open(dir.path()).await;
    let mut later = Mqtt::log_in(world.mqtt(), 4, "e@T").await;
    assert_eq!(later.subscribe(topic, 0).await, 0);
    expect(&mut later, topic, &list).await;
    let (mut back, answer) = Mqtt::connect(world.mqtt(), &away).await;
    assert_eq!(answer[..2], [1, 0]);
    for _ in 0..count {
        let message = back.message().await;
        assert!(["{}", &list].contains(&message.text().1), "{} bytes", message.payload.len());
        back.send(&[0x40, 2, (message.id >> 8) as u8, message.id as u8]).await;
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_fits_into_no_record_of_the_log_is_told_at_any_quality_and_in_the_log() {
    let lines = LogLines::of_this_process();
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path()).await;
    world.register("T", "large-sender").await;
    for level in BOTH {
        for (qos, is_retained) in [(0, false), (1, false), (2, false), (0, true), (1, true)] {
            let mut client = Mqtt::log_in(world.mqtt(), level, "large-sender@T").await;
            let message = async |client: &mut Mqtt, bytes: usize| {
                let packet = retained(is_retained, publish(level, qos, 1, "large", &[], &vec![b'x'; bytes]));
                assert!(packet.len() <= MEBIBYTE, "it is the record that it does not fit into");
                client.send(&packet).await;
            };
            message(&mut client, MEBIBYTE - 400).await;
            if qos > 0 {
                let (first_byte, body) = client.next().await;
                assert_eq!((first_byte, body.get(2).copied().unwrap_or(0)), (if qos == 1 { 0x40 } else { 0x50 }, 0));
            }
            ping(&mut client).await;
            let before = lines.all_with("exceeds record_max_bytes = 1048576").len();
            message(&mut client, MEBIBYTE - 30).await;
            assert_eq!(client.expect_end().await, (level == 5).then_some(0x95), "{level} {qos} {is_retained}");
            let is_told = || (lines.all_with("exceeds record_max_bytes = 1048576").len() > before).then_some(());
            found_async("the line in the log", is_told).await;
            let last = lines.all_with("exceeds record_max_bytes = 1048576").pop().unwrap();
            assert!(last.contains("large-sender"), "{last}");
        }
    }
    let stored = world.records(TopicKind::Mqtt, "T");
    assert_eq!(stored.len(), 10);
    assert!(stored.iter().all(|record| record.value.len() == MEBIBYTE - 400));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn telemetry_and_events_in_the_largest_packet_fit_into_a_record_with_their_headers() {
    let dir = tempfile::tempdir().unwrap();
    let mqtt = MqttConfig { payload_max_bytes: MEBIBYTE, ..quick().mqtt };
    let world = World::open_with(dir.path(), ConnectConfig { mqtt, ..quick() }).await;
    world.register("T", "d").await;
    let mut payloads = Vec::new();
    for level in BOTH {
        let mut client = Mqtt::log_in(world.mqtt(), level, "d@T").await;
        for topic in ["telemetry", "event"] {
            let largest = |bytes: usize| publish(level, 1, 1, topic, &[], &vec![b'x'; bytes]);
            let beside_bytes = largest(MEBIBYTE - 100).len() - (MEBIBYTE - 100);
            let packet = largest(MEBIBYTE - beside_bytes);
            assert_eq!(packet.len(), MEBIBYTE);
            assert_eq!(send(&mut client, &packet).await, 0, "{level} {topic}");
            payloads.push(MEBIBYTE - beside_bytes);
        }
    }
    let kinds = [TopicKind::Telemetry, TopicKind::Event];
    let stored = kinds.map(|kind| world.records(kind, "T").iter().map(|record| record.value.len()).collect::<Vec<_>>());
    assert_eq!(stored, [vec![payloads[0], payloads[2]], vec![payloads[1], payloads[3]]]);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn packets_in_the_making_draw_on_the_budget_and_leave_room_for_other_tenants() {
    let dir = tempfile::tempdir().unwrap();
    let mqtt = MqttConfig { buffers_max_bytes: 8 << 20, packet_timeout_ms: 600_000, ..quick().mqtt };
    let world = World::open_with(dir.path(), ConnectConfig { mqtt, ..quick() }).await;
    for tenant in ["greedy", "other"] {
        world.register(tenant, "d").await;
    }
    let whole = publish(5, 1, 1, "large", &[], &vec![b'x'; MEBIBYTE - 400]);
    let mut standing = Vec::new();
    for _ in 0..40 {
        let mut client = Mqtt::log_in(world.mqtt(), 5, "d@greedy").await;
        client.send(&[&[0xC0, 0], &whole[..100_000]].concat()).await;
        assert_eq!(client.next().await.0, 0xD0, "the beginning of the packet has been read as well");
        standing.push(client);
    }
    // A tenant takes no more than it leaves free.
    let mut finished = 0;
    for mut client in standing {
        // A refused client may have lost the connection already.
        client.send_if_open(&whole[100_000..]).await;
        match client.next_or_end().await {
            Some((0x40, _)) => finished += 1,
            Some((0xE0, body)) => assert_eq!(body[0], 0x89),
            None => {}
            other => panic!("{other:?}"),
        }
        let mut other = Mqtt::log_in(world.mqtt(), 5, "d@other").await;
        assert_eq!(send(&mut other, &whole).await, 0, "another tenant's packets are taken all the time");
    }
    assert_eq!(finished, 4);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_packets_are_for_clients_that_have_logged_in() {
    let dir = tempfile::tempdir().unwrap();
    let mqtt = MqttConfig { authentication_required: false, payload_max_bytes: 10_000, ..quick().mqtt };
    let world = World::open_with(dir.path(), ConnectConfig { mqtt, ..quick() }).await;
    world.register("T", "d").await;
    let open = json!({"adapters": [{"type": "hono-mqtt", "enabled": true, "device-authentication-required": false}]});
    world.do_registry("PUT /v1/tenants/T", &open.to_string(), 204).await;
    // Before the login: more than any CONNECT may have.
    let mut unknown = Mqtt::open(world.mqtt(), 5).await;
    unknown.send(&[0x10, 0x80, 0x80, 0x40]).await;
    assert_eq!(unknown.expect_end().await, None);
    let limit = 10_000 + 65_536;
    for level in BOTH {
        let mut stranger = Mqtt::open(world.mqtt(), level).await;
        stranger.send(&connect(level, 60, None)).await;
        let (_, answer) = stranger.next().await;
        if level == 5 {
            let told = [&[0x27][..], &(limit as u32).to_be_bytes()].concat();
            assert!(answer.windows(5).any(|part| part == told), "{answer:?}");
        }
        stranger.send(&publish(level, 1, 1, "t/T/d", &[], &[b'x'; 10_000])).await;
        assert_eq!(stranger.next().await, (0x40, vec![0, 1]));
        let length = limit as u32 + 1;
        stranger.send(&[0x30, length as u8 | 0x80, (length >> 7) as u8 | 0x80, (length >> 14) as u8]).await;
        assert_eq!(stranger.expect_end().await, (level == 5).then_some(0x95));
    }
    let mut known = Mqtt::log_in(world.mqtt(), 5, "d@T").await;
    let type_of_text = [&[0x03][..], &text("text/plain")].concat();
    assert_eq!(send(&mut known, &publish(5, 1, 1, "large", &type_of_text, &vec![b'x'; MEBIBYTE - 400])).await, 0);
    world.stop().await;
}
