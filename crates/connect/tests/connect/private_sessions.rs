//! Sessions of a tenant's private space: who has one, what it keeps for a client that is away, its will, and groups of
//! sessions that share a subscription.

use millstream_connect::BrokerConfig;
use millstream_testkit::mqtt::{Hello, Message, Mqtt, Will, packet, publish, text};

use crate::private::{BOTH, hello, puback, told, with, world};
use crate::world::World;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_takeover_ends_the_older_connection_and_the_client_id_of_another_device_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let world = world(dir.path()).await;
    for level in BOTH {
        let (mut first, _) = Mqtt::connect(world.mqtt(), &hello(level, "c")).await;
        let (mut second, answer) = Mqtt::connect(world.mqtt(), &hello(level, "c")).await;
        assert_eq!(answer[..2], [0, 0]);
        assert_eq!(first.expect_end().await, (level == 5).then_some(0x8E));
        let other = Hello { login: Some(("e@T", "pw")), ..hello(level, "c") };
        let (_, answer) = Mqtt::connect(world.mqtt(), &other).await;
        assert_eq!(answer[1], if level == 5 { 0x85 } else { 0x02 });
        second.send(&[0xC0, 0]).await;
        assert_eq!(second.next().await.0, 0xD0, "undisturbed");
        second.send(&[0xE0, 0]).await;
        second.expect_end().await;
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_a_will_is_published_after_its_delay_unless_the_client_returns() {
    let dir = tempfile::tempdir().unwrap();
    let world = world(dir.path()).await;
    let mut watcher = Mqtt::log_in(world.mqtt(), 5, "e@T").await;
    assert_eq!(watcher.subscribe("will/#", 1).await, 1);
    let will =
        |topic: &'static str, properties| Some(Will { topic, payload: b"gone", qos: 1, retain: true, properties });
    for level in BOTH {
        // A client that says good-bye leaves none.
        let (mut orderly, _) =
            Mqtt::connect(world.mqtt(), &Hello { will: will("will/no", &[]), ..hello(level, "o") }).await;
        orderly.send(&[0xE0, 0]).await;
        orderly.expect_end().await;
        let (abrupt, _) =
            Mqtt::connect(world.mqtt(), &Hello { will: will("will/now", &[]), ..hello(level, "a") }).await;
        drop(abrupt);
        let message = watcher.message().await;
        assert_eq!((message.text(), message.qos, message.retain), (("will/now", "gone"), 1, false));
        puback(&mut watcher, &message).await;
    }
    // A delay of an hour within a session of two: a client that comes back in time has never been gone.
    let hour = [0x18, 0, 0, 0x0E, 0x10];
    let kept = [0x11, 0, 0, 0x1C, 0x20];
    let late = Hello { will: will("will/late", &hour), properties: &kept, clean: false, ..hello(5, "l") };
    for is_connected in [true, false] {
        drop(Mqtt::connect(world.mqtt(), &late).await);
        let (back, answer) = Mqtt::connect(world.mqtt(), &late).await;
        assert_eq!(answer[..2], [1, 0], "session present");
        let back = is_connected.then_some(back);
        // A new session ends the old one, and its will goes out at once.
        let (_new, answer) = Mqtt::connect(world.mqtt(), &Hello { clean: true, will: None, ..late }).await;
        assert_eq!(answer[..2], [0, 0]);
        let message = watcher.message().await;
        assert_eq!(message.text().0, "will/late");
        puback(&mut watcher, &message).await;
        drop(back);
    }
    // A delay of a second passes.
    let second = [0x18, 0, 0, 0, 1];
    drop(Mqtt::connect(world.mqtt(), &Hello { will: will("will/soon", &second), ..late }).await);
    assert_eq!(watcher.message().await.text().0, "will/soon");
    let mut later = Mqtt::log_in(world.mqtt(), 5, "e@T").await;
    assert_eq!(later.subscribe("will/now", 0).await, 0);
    assert!(later.message().await.retain, "it was to be retained");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_sessions_are_kept_with_a_bounded_queue_until_they_expire_or_are_ended() {
    let dir = tempfile::tempdir().unwrap();
    let broker = BrokerConfig { queue_max_messages: 3, session_expiry_max_s: 3_600, ..BrokerConfig::default() };
    let world = World::open_with(dir.path(), with(broker)).await;
    for device in ["d", "e"] {
        world.register("T", device).await;
    }
    for level in BOTH {
        let client = format!("kept-{level}");
        let hour = [0x11, 0, 0, 0x0E, 0x10];
        let kept = Hello { clean: false, properties: &hour, ..hello(level, &client) };
        let (mut first, answer) = Mqtt::connect(world.mqtt(), &kept).await;
        assert_eq!(answer[..2], [0, 0]);
        assert_eq!(first.subscribe("q/#", 2).await, 2);
        first.send(&[0xE0, 0]).await;
        first.expect_end().await;
        let mut sender = Mqtt::log_in(world.mqtt(), level, "e@T").await;
        for n in 1..=5_u16 {
            sender.publish(0, 0, "q/0", b"at most once is not for later").await;
            assert_eq!(told(&mut sender, &publish(level, 1, n, "q/1", &[], n.to_string().as_bytes())).await, 0);
        }
        let (mut second, answer) = Mqtt::connect(world.mqtt(), &kept).await;
        assert_eq!(answer[..2], [1, 0]);
        let mut got = Vec::new();
        for expected in ["3", "4", "5"] {
            let message = second.message().await;
            assert_eq!((message.text().1, message.dup, message.qos), (expected, false, 1));
            got.push(message);
        }
        puback(&mut second, &got[1]).await;
        second.send(&[0xC0, 0]).await;
        assert_eq!(second.next().await.0, 0xD0);
        drop(second);
        // A message that was not acknowledged comes again, with its id and its mark.
        let (mut third, answer) = Mqtt::connect(world.mqtt(), &kept).await;
        assert_eq!(answer[..2], [1, 0]);
        for known in [&got[0], &got[2]] {
            let message = third.message().await;
            assert_eq!((&message.payload, message.dup, message.id), (&known.payload, true, known.id));
            puback(&mut third, &message).await;
        }
        // It is ended: in version 5 by its last word.
        third.send(if level == 5 { &[0xE0, 7, 0, 5, 0x11, 0, 0, 0, 0] } else { &[0xE0, 0] }).await;
        third.expect_end().await;
        let again = Hello { clean: level == 4, ..kept };
        let (mut fourth, answer) = Mqtt::connect(world.mqtt(), &again).await;
        assert_eq!(answer[..2], [0, 0]);
        fourth.send(&[0xE0, 0]).await;
        fourth.expect_end().await;
    }
    // One of a second is gone after it, as its will tells, and a longer one than may be is told how long it is.
    let mut watcher = Mqtt::log_in(world.mqtt(), 5, "e@T").await;
    assert_eq!(watcher.subscribe("over", 0).await, 0);
    let after_a_minute = [0x18, 0, 0, 0, 60];
    let will = Will { topic: "over", payload: b"s", qos: 0, retain: false, properties: &after_a_minute };
    let short = Hello { properties: &[0x11, 0, 0, 0, 1], clean: false, will: Some(will), ..hello(5, "s") };
    let (mut first, _) = Mqtt::connect(world.mqtt(), &Hello { clean: true, ..short }).await;
    assert_eq!(first.subscribe("q/#", 1).await, 1);
    drop(first);
    let long = Hello { properties: &[0x11, 0xFF, 0xFF, 0xFF, 0xFF], clean: false, ..hello(5, "s") };
    loop {
        assert_eq!(watcher.message().await.text(), ("over", "s"));
        let (client, answer) = Mqtt::connect(world.mqtt(), &long).await;
        assert_eq!(answer[3..8], [0x11, 0, 0, 0x0E, 0x10], "{answer:?}");
        drop(client);
        if answer[0] == 0 {
            break;
        }
        // The will came a moment before the end; another second.
        drop(Mqtt::connect(world.mqtt(), &short).await);
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_a_shared_message_goes_to_one_member_and_to_another_if_it_leaves_unacknowledged() {
    let dir = tempfile::tempdir().unwrap();
    // Messages come from the log, not from memory.
    let broker = BrokerConfig { live_max_messages: 1, ..BrokerConfig::default() };
    let world = World::open_with(dir.path(), with(broker)).await;
    world.register("T", "d").await;
    let two_at_a_time = [0x21, 0, 2];
    let member = |client| Hello { properties: &two_at_a_time, ..hello(5, client) };
    let (mut first, _) = Mqtt::connect(world.mqtt(), &member("m1")).await;
    let (mut second, _) = Mqtt::connect(world.mqtt(), &member("m2")).await;
    for client in [&mut first, &mut second] {
        assert_eq!(client.subscribe("$share/g/s/#", 2).await, 1, "at least once");
    }
    let mut all = Mqtt::log_in(world.mqtt(), 4, "d@T").await;
    assert_eq!(all.subscribe("s/#", 1).await, 1);
    let mut sender = Mqtt::log_in(world.mqtt(), 5, "d@T").await;
    for n in 1..=6_u16 {
        assert_eq!(told(&mut sender, &publish(5, 1, n, "s/x", &[], n.to_string().as_bytes())).await, 0);
        let message = all.message().await;
        assert_eq!(message.text().1, n.to_string(), "everybody else gets all");
        puback(&mut all, &message).await;
    }
    let of_first = [first.message().await, first.message().await];
    let of_second = [second.message().await, second.message().await];
    let texts = |messages: &[Message]| -> Vec<String> {
        let mut texts: Vec<_> = messages.iter().map(|message| message.text().1.to_owned()).collect();
        texts.sort_unstable();
        texts
    };
    let mut both = [texts(&of_first), texts(&of_second)].concat();
    both.sort_unstable();
    assert_eq!(both, ["1", "2", "3", "4"]);
    first.send(&[0xE0, 0]).await;
    first.expect_end().await;
    let mut rest = Vec::new();
    for message in &of_second {
        puback(&mut second, message).await;
    }
    for _ in 0..4 {
        let message = second.message().await;
        assert!(!message.dup, "to this member it is sent for the first time: {message:?}");
        puback(&mut second, &message).await;
        rest.push(message);
    }
    let mut expected = [texts(&of_first), vec!["5".to_owned(), "6".to_owned()]].concat();
    expected.sort_unstable();
    assert_eq!(texts(&rest), expected);
    // No-local makes no sense here.
    second.send(&packet(0x82, &[&[0, 1, 0][..], &text("$share/h/s/#"), &[0b101]].concat())).await;
    assert_eq!(second.expect_end().await, Some(0x82));
    world.stop().await;
}
