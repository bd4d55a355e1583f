//! Sessions of MQTT clients, packet by packet; each test ends its server with `kill -9`.

use std::collections::HashSet;

use millstream_testkit::mqtt::{Hello, Mqtt, packet, publish};
use tokio::runtime::Runtime;

use crate::World;

/// Number of times that the server is killed; `MILLSTREAM_KILLS` sets another number.
const KILLS: u16 = 20;

/// A session of an hour.
fn kept<'a>(level: u8, client: &'a str) -> Hello<'a> {
    let properties = &[0x11, 0, 0, 0x0E, 0x10];
    let login = Some(("gateway@default", "pw"));
    Hello { level, keep_alive_s: 60, client, clean: false, login, properties, will: None }
}

async fn puback(client: &mut Mqtt, id: u16) {
    client.send(&packet(0x40, &id.to_be_bytes())).await;
}

#[test]
fn sessions_queues_and_retained_messages_survive_kill_9_and_redelivery_keeps_its_id() {
    let (mut world, runtime) = (World::start(), Runtime::new().unwrap());
    for level in [4, 5] {
        let client = format!("kept-{level}");
        let ids = runtime.block_on(async {
            let (mut reader, answer) = Mqtt::connect(world.process.mqtt, &kept(level, &client)).await;
            assert_eq!(answer[..2], [0, 0]);
            let topic = format!("k/{level}");
            assert_eq!(reader.subscribe(&topic, 1).await, 1);
            let mut sender = Mqtt::log_in(world.process.mqtt, level, "gateway@default").await;
            for n in 1..=4_u16 {
                let mut bytes = publish(level, 1, n, &topic, &[], n.to_string().as_bytes());
                bytes[0] |= 1;
                sender.send(&bytes).await;
                assert_eq!(sender.next().await.0, 0x40);
            }
            let mut ids = Vec::new();
            for _ in 1..=4 {
                ids.push(reader.message().await.id);
            }
            // The first is done, and that is known before the end of the process, as the session ends in order.
            puback(&mut reader, ids[0]).await;
            reader.send(&[0xE0, 0]).await;
            reader.expect_end().await;
            let (reader, answer) = Mqtt::connect(world.process.mqtt, &kept(level, &client)).await;
            assert_eq!(answer[..2], [1, 0]);
            drop(reader);
            ids
        });
        world = world.kill_and_start();
        runtime.block_on(async {
            let mut sender = Mqtt::log_in(world.process.mqtt, level, "gateway@default").await;
            sender.publish(1, 1, &format!("k/{level}"), b"5").await;
            assert_eq!(sender.next().await.0, 0x40);
            let (mut reader, answer) = Mqtt::connect(world.process.mqtt, &kept(level, &client)).await;
            assert_eq!(answer[..2], [1, 0], "the session is there");
            for n in 2..=5 {
                let message = reader.message().await;
                assert_eq!((message.text().1, message.dup), (&*n.to_string(), n < 5));
                assert!(n == 5 || message.id == ids[n - 1], "under the id of before");
                puback(&mut reader, message.id).await;
            }
            assert_eq!(reader.subscribe(&format!("k/{level}"), 0).await, 0);
            let message = reader.message().await;
            assert_eq!((message.text().1, message.retain), ("4", true));
        });
    }
    world.kill();
}

#[test]
fn exactly_once_goes_on_where_it_was_after_kill_9_in_both_directions() {
    let (mut world, runtime) = (World::start(), Runtime::new().unwrap());
    // Some are telemetry or events as well: there, too, they are once.
    world.map_topics();
    for (level, space) in [(4, "x"), (5, "x"), (4, "tele"), (5, "alarm")] {
        let topic = format!("{space}/{level}");
        let (reader_id, sender_id) = (format!("reader-{topic}"), format!("sender-{topic}"));
        let mut bytes = publish(level, 2, 7, &topic, &[], b"once");
        let id = runtime.block_on(async {
            let (mut reader, _) = Mqtt::connect(world.process.mqtt, &kept(level, &reader_id)).await;
            assert_eq!(reader.subscribe(&topic, 2).await, 2);
            let (mut sender, _) = Mqtt::connect(world.process.mqtt, &kept(level, &sender_id)).await;
            sender.send(&bytes).await;
            assert_eq!(sender.next().await, (0x50, vec![0, 7]), "it is taken, and never again under this id");
            let message = reader.message().await;
            assert_eq!(message.text().1, "once");
            reader.send(&packet(0x50, &message.id.to_be_bytes())).await;
            assert_eq!(reader.next().await, (0x62, message.id.to_be_bytes().to_vec()));
            message.id
        });
        world = world.kill_and_start();
        bytes[0] |= 8;
        runtime.block_on(async {
            let (mut sender, answer) = Mqtt::connect(world.process.mqtt, &kept(level, &sender_id)).await;
            assert_eq!(answer[..2], [1, 0]);
            sender.send(&bytes).await;
            assert_eq!(sender.next().await, (0x50, vec![0, 7]));
            sender.send(&[0x62, 2, 0, 7]).await;
            assert_eq!(sender.next().await, (0x70, vec![0, 7]));
            let (mut reader, answer) = Mqtt::connect(world.process.mqtt, &kept(level, &reader_id)).await;
            assert_eq!(answer[..2], [1, 0]);
            assert_eq!(reader.next().await, (0x62, id.to_be_bytes().to_vec()), "not the message again");
            reader.send(&packet(0x70, &id.to_be_bytes())).await;
            sender.send(&publish(level, 2, 7, &topic, &[], b"next")).await;
            assert_eq!(sender.next().await, (0x50, vec![0, 7]));
            assert_eq!(reader.message().await.text().1, "next");
        });
    }
    for (stream, each) in [("telemetry.default", 1), ("event.default", 1), ("mqtt.default", 4)] {
        for text in ["next", "once"] {
            assert_eq!(world.values(stream, text).len(), each, "{text} in {stream}");
        }
    }
    world.kill();
}

#[test]
fn a_shared_queue_survives_kill_9_without_a_loss() {
    let (mut world, runtime) = (World::start(), Runtime::new().unwrap());
    let done = runtime.block_on(async {
        let (mut member, _) = Mqtt::connect(world.process.mqtt, &kept(5, "member")).await;
        assert_eq!(member.subscribe("$share/g/w", 1).await, 1);
        let mut sender = Mqtt::log_in(world.process.mqtt, 5, "gateway@default").await;
        for n in 1..=3_u16 {
            sender.publish(1, n, "w", n.to_string().as_bytes()).await;
            assert_eq!(sender.next().await.0, 0x40);
        }
        let message = member.message().await;
        puback(&mut member, message.id).await;
        for _ in 2..=3 {
            member.message().await;
        }
        message.text().1.to_owned()
    });
    assert_eq!(done, "1");
    // How far it has come is written in passing: what was done just before the end may come again, but nothing is lost.
    world = world.kill_and_start();
    runtime.block_on(async {
        let (mut member, answer) = Mqtt::connect(world.process.mqtt, &kept(5, "member")).await;
        assert_eq!(answer[..2], [1, 0]);
        let mut got = Vec::new();
        while got.last().is_none_or(|last| last != "3") {
            let message = member.message().await;
            puback(&mut member, message.id).await;
            got.push(message.text().1.to_owned());
        }
        assert!(got == ["1", "2", "3"] || got == ["2", "3"], "{got:?}");
    });
    world.kill();
}

#[test]
fn nothing_acknowledged_is_lost_to_a_kept_session_however_often_the_server_is_killed() {
    let (mut world, runtime) = (World::start(), Runtime::new().unwrap());
    runtime.block_on(async {
        let (mut reader, _) = Mqtt::connect(world.process.mqtt, &kept(5, "reader")).await;
        assert_eq!(reader.subscribe("n", 1).await, 1);
    });
    let kills = std::env::var("MILLSTREAM_KILLS").map_or(KILLS, |kills| kills.parse().unwrap());
    let mut acknowledged = Vec::new();
    for round in 0..kills {
        runtime.block_on(async {
            let mut sender = Mqtt::log_in(world.process.mqtt, 5, "gateway@default").await;
            // The kill comes while the last ones are on their way.
            let (sent, awaited) = (60, 1 + round % 50 * 29 % 50);
            for n in 1..=sent {
                sender.publish(1, n, "n", format!("{round}-{n}").as_bytes()).await;
            }
            for n in 1..=awaited {
                assert_eq!(sender.next().await, (0x40, n.to_be_bytes().to_vec()));
                acknowledged.push(format!("{round}-{n}"));
            }
        });
        world = world.kill_and_start();
    }
    let got: HashSet<String> = runtime.block_on(async {
        let mut sender = Mqtt::log_in(world.process.mqtt, 5, "gateway@default").await;
        sender.publish(1, 1, "n", b"end").await;
        assert_eq!(sender.next().await.0, 0x40);
        let (mut reader, answer) = Mqtt::connect(world.process.mqtt, &kept(5, "reader")).await;
        assert_eq!(answer[..2], [1, 0]);
        let mut got = HashSet::new();
        while !got.contains("end") {
            let message = reader.message().await;
            puback(&mut reader, message.id).await;
            got.insert(message.text().1.to_owned());
        }
        got
    });
    let lost: Vec<_> = acknowledged.iter().filter(|text| !got.contains(*text)).collect();
    assert!(lost.is_empty(), "of {} acknowledged: {lost:?}", acknowledged.len());
    world.kill();
}
