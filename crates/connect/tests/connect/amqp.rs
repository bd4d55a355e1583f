//! Applications that receive telemetry over AMQP 1.0 (connect-adapters.md, part A).

use std::sync::Arc;
use std::time::Duration;

use millstream_amqp::{
    Attach, DeliveryState, Detach, End, Flow, Message, Modified, Performative, ProtocolHeader, Source, Value, condition,
};
use millstream_net::Serving;
use millstream_testkit::eventually;
use millstream_types::{MemoryBudget, Role, Roles};

use crate::amqp_client::{Amqp, Received, SECRET, Users, flow_of};
use crate::world::{World, basic, quick};

const ADDRESS: &str = "telemetry/T";

pub(crate) async fn world(users: Users) -> (tempfile::TempDir, World, Serving) {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path()).await;
    world.register("T", "d").await;
    let amqp = listen(&world, users);
    (dir, world, amqp)
}

pub(crate) fn listen(world: &World, users: Users) -> Serving {
    let memory = MemoryBudget::new("memory.budget_bytes", 1 << 30);
    let any = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
    world.connect.listen_amqp(any.into(), Arc::new(users), &memory, &world.metrics).unwrap()
}

pub(crate) async fn stop(world: World, amqp: Serving) {
    assert_eq!(amqp.shut_down(Duration::from_secs(60)).await, 0, "nothing had to be cut off");
    world.stop().await;
}

/// Sends telemetry of the device, one message after the other.
async fn send(world: &World, payloads: impl IntoIterator<Item = String>) {
    let login = basic("d@T", "pw");
    for payload in payloads {
        let headers = [("authorization", login.as_str()), ("content-type", "text/plain"), ("qos-level", "1")];
        let answer = world.device("POST /telemetry", &headers, payload.as_bytes()).await;
        assert_eq!(answer.status, 202, "{answer:?}");
    }
}

pub(crate) fn numbers(range: std::ops::Range<usize>) -> impl Iterator<Item = String> {
    range.map(|number| number.to_string())
}

pub(crate) fn texts(received: &[Received]) -> Vec<String> {
    received.iter().map(|message| String::from_utf8(message.payload.clone()).unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_gets_what_comes_from_then_on_as_far_as_it_has_credit() {
    let (_dir, world, amqp) = world(Users::default()).await;
    send(&world, ["before".to_owned()]).await;
    let mut client = Amqp::open(amqp.address(), 16 << 10).await;
    client.receive(ADDRESS, 2).await;
    send(&world, numbers(0..5)).await;
    let first = client.messages(2).await;
    assert_eq!(texts(&first), ["0", "1"]);
    assert!(first.iter().all(|message| !message.is_settled && message.device == "d" && message.frames == 1));
    assert_eq!(client.messages_so_far().await, [], "the credit is used up");
    client.credit(0, Some(2), 10).send().await;
    assert_eq!(texts(&client.messages(3).await), ["2", "3", "4"]);
    // An unused rest of credit is given up and told (AMQP 1.0, section 2.6.7).
    client.write(
        0,
        &Performative::Flow(Flow { delivery_count: Some(5), link_credit: Some(7), drain: true, ..flow_of(0) }),
    );
    client.send().await;
    let drained = |body: &Performative<'_>| match body {
        Performative::Flow(flow) if flow.handle == Some(0) => Some((flow.delivery_count, flow.link_credit)),
        _ => None,
    };
    assert_eq!(client.expect(drained).await, (Some(12), Some(0)));
    stop(world, amqp).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn receivers_of_one_address_compete_and_those_of_another_subscription_get_all() {
    let (_dir, world, amqp) = world(Users::default()).await;
    let mut clients = Vec::new();
    for subscription in [None, None, Some("s"), Some("s"), Some("t")] {
        let mut client = Amqp::open(amqp.address(), 16 << 10).await;
        client.begin(0, 5_000).attach(0, 0, ADDRESS, subscription).credit(0, None, 1_000).send().await;
        client.expect(|body| matches!(body, Performative::Attach(_)).then_some(())).await;
        clients.push(client);
    }
    send(&world, numbers(0..60)).await;
    let mut all = Vec::new();
    for client in &mut clients {
        all.push(texts(&client.messages_so_far().await));
    }
    let expected: Vec<String> = numbers(0..60).collect();
    for shared in [0..2, 2..4, 4..5] {
        let mut together: Vec<String> = all[shared.clone()].concat();
        together.sort_by_key(|text| text.parse::<usize>().unwrap());
        assert_eq!(together, expected, "{shared:?}");
    }
    stop(world, amqp).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_accepted_comes_again_before_what_is_newer() {
    let (_dir, world, amqp) = world(Users::default()).await;
    let mut client = Amqp::open(amqp.address(), 16 << 10).await;
    client.receive(ADDRESS, 6).await;
    send(&world, numbers(0..8)).await;
    let first = client.messages(6).await;
    assert_eq!(texts(&first), ["0", "1", "2", "3", "4", "5"]);
    let ids: Vec<u32> = first.iter().map(|message| message.id).collect();
    let failed = Modified { delivery_failed: true, undeliverable_here: false, message_annotations: None };
    // Out of order, and over ranges that hold what is settled already.
    client.settle(ids[4], ids[4], DeliveryState::Modified(failed));
    client.settle(ids[0], ids[1], DeliveryState::Released);
    client.settle(ids[3], ids[5], DeliveryState::Accepted);
    client.settle(ids[2], ids[2], DeliveryState::Rejected(None));
    client.credit(0, Some(6), 5).send().await;
    let again = client.messages(5).await;
    let seen: Vec<(String, u32)> =
        texts(&again).into_iter().zip(again.iter().map(|message| message.failed_deliveries)).collect();
    assert_eq!(seen[..3], [("0".to_owned(), 0), ("1".to_owned(), 0), ("4".to_owned(), 1)]);
    assert_eq!(texts(&again[3..]), ["6", "7"]);
    // Another receiver gets what this one leaves behind, as attempts that failed.
    let mut other = Amqp::open(amqp.address(), 16 << 10).await;
    other.receive(ADDRESS, 100).await;
    client.write(0, &Performative::Detach(Detach { handle: 0, closed: true, error: None })).send().await;
    client.expect(|body| matches!(body, Performative::Detach(_)).then_some(())).await;
    let left = other.messages(5).await;
    let counts: Vec<u32> = left.iter().map(|message| message.failed_deliveries).collect();
    assert_eq!((texts(&left), counts), (["0", "1", "4", "6", "7"].map(str::to_owned).to_vec(), vec![1, 1, 2, 1, 1]));
    // So does the end of a session, and of a connection.
    other.write(0, &Performative::End(End::default())).send().await;
    other.expect(|body| matches!(body, Performative::End(_)).then_some(())).await;
    drop(other);
    stop(world, amqp).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_messages_come_in_several_frames_and_settled_ones_are_not_kept() {
    let (_dir, world, amqp) = world(Users::default()).await;
    let mut client = Amqp::open(amqp.address(), 512).await;
    client.begin(0, 3);
    let source = Some(Source { address: Some(Value::String(ADDRESS)), ..Source::default() });
    let attach = Attach { name: "l", role: true, snd_settle_mode: 1, source, ..Attach::default() };
    let credit = Flow { link_credit: Some(10), incoming_window: 3, ..flow_of(0) };
    client.write(0, &Performative::Attach(attach)).write(0, &Performative::Flow(credit)).send().await;
    client
        .expect(|body| matches!(body, Performative::Attach(attach) if attach.snd_settle_mode == 1).then_some(()))
        .await;
    send(&world, ["x".repeat(2_000), "small".to_owned()]).await;
    // Three frames are in the window, and no more before the client has taken them.
    let narrow = Flow { handle: None, incoming_window: 3, echo: true, ..flow_of(0) };
    let first = client.transfers(3).await;
    client.write(0, &Performative::Flow(narrow)).send().await;
    assert_eq!(client.message().await, None);
    client.write(0, &Performative::Flow(Flow { handle: None, incoming_window: 5, ..flow_of(0) })).send().await;
    let rest = client.transfers(2).await;
    let mores: Vec<bool> = first.iter().chain(&rest).map(|(more, _)| *more).collect();
    assert_eq!(mores, [true, true, true, true, false]);
    let whole: Vec<u8> = first.into_iter().chain(rest).flat_map(|(_, part)| part).collect();
    let message = Message::read(&whole).unwrap();
    assert_eq!(message.content.bytes().unwrap().len(), 2_000);
    client
        .write(0, &Performative::Flow(Flow { handle: None, incoming_window: 0, echo: true, ..flow_of(0) }))
        .send()
        .await;
    assert_eq!(client.message().await, None);
    client.write(0, &Performative::Flow(Flow { handle: None, ..flow_of(0) })).send().await;
    assert_eq!(texts(&client.messages(1).await), ["small"]);
    stop(world, amqp).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_link_that_may_not_be_is_attached_and_detached_with_the_reason() {
    let users = Users::default()
        .with("reader", "T", Roles::NONE.with(Role::Reader))
        .with("writer", "T", Roles::NONE.with(Role::Writer))
        .with("other", "U", Roles::NONE.with(Role::Reader));
    let (_dir, world, amqp) = world(users).await;
    for (user, address, condition, told) in [
        ("reader", "telemetry/T", "", ""),
        ("writer", "telemetry/T", condition::UNAUTHORIZED_ACCESS, "'writer' may not receive"),
        ("other", "telemetry/T", condition::UNAUTHORIZED_ACCESS, "'other' may not receive"),
        ("other", "telemetry/U", condition::NOT_FOUND, "'U' is not registered"),
        ("reader", "nonsense", condition::NOT_FOUND, "no address of a stream"),
        ("reader", "telemetry/", condition::NOT_FOUND, "no address of a stream"),
    ] {
        let mut client = Amqp::connect(amqp.address()).await;
        let plain = format!("\0{user}\0{SECRET}");
        assert_eq!(client.log_in("PLAIN", Some(plain.as_bytes()), |_| Vec::new()).await, 0);
        client.open_logged_in().await;
        client.begin(0, 10).attach(0, 5, address, None).send().await;
        let is_attached = |body: &Performative<'_>| match body {
            Performative::Attach(attach) => Some(attach.source.is_some()),
            _ => None,
        };
        assert_eq!(client.expect(is_attached).await, condition.is_empty(), "{user} {address}");
        if condition.is_empty() {
            continue;
        }
        let (given, why) = client
            .expect(|body| match body {
                Performative::Detach(Detach { handle: 5, closed: true, error: Some(error) }) => {
                    Some((error.condition.0.to_owned(), error.description.unwrap_or_default().to_owned()))
                }
                _ => None,
            })
            .await;
        assert_eq!(given, condition, "{user} {address}");
        assert!(why.contains(told), "{user} {address}: {why}");
    }
    stop(world, amqp).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_login_takes_a_mechanism_that_is_offered_and_the_right_secret() {
    let (_dir, world, amqp) = world(Users::default().with("app", "T", Roles::APPLICATION)).await;
    let right = format!("\0app\0{SECRET}");
    let bearer = format!("n,,\x01auth=Bearer {SECRET}\x01\x01");
    for (mechanism, first, code) in [
        ("PLAIN", Some(right.as_bytes()), 0),
        ("OAUTHBEARER", Some(bearer.as_bytes()), 0),
        ("OAUTHBEARER", Some(b"n,,\x01auth=Bearer wrong\x01\x01"), 1),
        ("OAUTHBEARER", Some(b"nonsense"), 1),
        ("PLAIN", Some(&b"\0app\0wrong"[..]), 1),
        ("PLAIN", Some(b"app"), 1),
        ("ANONYMOUS", None, 1),
        ("EXTERNAL", Some(b""), 1),
        ("SCRAM-SHA-256", Some(b"n,,n=nobody,r=abc"), 1),
        ("SCRAM-SHA-256", Some(b"nonsense"), 1),
    ] {
        let mut client = Amqp::connect(amqp.address()).await;
        assert_eq!(client.log_in(mechanism, first, |_| Vec::new()).await, code, "{mechanism} {first:?}");
        if code == 0 {
            client.open_logged_in().await;
        } else {
            assert!(client.frame().await.is_none(), "the connection ends");
        }
    }
    // The first message may come by itself.
    let mut client = Amqp::connect(amqp.address()).await;
    assert_eq!(client.log_in("PLAIN", None, |_| right.clone().into_bytes()).await, 0);
    // Without a login, and with another protocol, a client is shown the header that is taken here.
    for header in [ProtocolHeader::Amqp.bytes(), ProtocolHeader::Tls.bytes(), *b"AMQP\x00\x00\x09\x01"] {
        let mut client = Amqp::connect(amqp.address()).await;
        client.raw(&header).send().await;
        assert_eq!(client.bytes(8).await, ProtocolHeader::Sasl.bytes(), "{header:?}");
        assert!(client.frame().await.is_none(), "the connection ends");
    }
    stop(world, amqp).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_ends_when_its_token_expires() {
    let users = Users::default().with("app", "T", Roles::APPLICATION).expiring(1_000);
    let (_dir, world, amqp) = world(users).await;
    let mut client = Amqp::connect(amqp.address()).await;
    let plain = format!("\0app\0{SECRET}");
    assert_eq!(client.log_in("PLAIN", Some(plain.as_bytes()), |_| Vec::new()).await, 0);
    client.open_logged_in().await;
    let (given, why) = client.closed().await;
    assert_eq!((given.as_str(), why.as_str()), (condition::UNAUTHORIZED_ACCESS, "the token of the login has expired"));
    stop(world, amqp).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frames_that_break_a_rule_close_the_connection_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = quick();
    (config.amqp.sessions_max, config.amqp.links_max, config.amqp.frame_max_bytes) = (2, 2, 1_024);
    let world = World::open_with(dir.path(), config).await;
    world.register("T", "d").await;
    let amqp = listen(&world, Users::default());
    type Frames = fn(&mut Amqp);
    let rows: [(Frames, &str, &str); 9] = [
        (|client| _ = client.begin(2, 1), condition::FRAMING_ERROR, "connect.amqp.sessions_max = 2"),
        (|client| _ = client.begin(0, 1).begin(0, 1), condition::NOT_ALLOWED, "a second session on channel 0"),
        (|client| _ = client.attach(1, 0, ADDRESS, None), condition::NOT_ALLOWED, "channel 1, which has no session"),
        (
            |client| _ = client.begin(0, 1).attach(0, 2, ADDRESS, None),
            condition::FRAMING_ERROR,
            "connect.amqp.links_max = 2",
        ),
        (
            |client| _ = client.begin(0, 1).attach(0, 1, ADDRESS, None).attach(0, 1, ADDRESS, None),
            condition::HANDLE_IN_USE,
            "handle 1 has a link",
        ),
        (
            |client| _ = client.begin(0, 1).write(0, &Performative::Transfer(Default::default())),
            condition::UNATTACHED_HANDLE,
            "handle 0, which has no link",
        ),
        (|client| _ = client.raw(&[0, 0, 4, 1]), condition::FRAMING_ERROR, "connect.amqp.frame_max_bytes = 1024"),
        (
            |client| _ = client.raw(&[0, 0, 0, 9, 2, 0, 0, 0, 0x40]),
            condition::DECODE_ERROR,
            "begin with a performative",
        ),
        (|client| _ = client.write(0, &Performative::Open(Default::default())), condition::NOT_ALLOWED, "second open"),
    ];
    for (frames, condition, told) in rows {
        let mut client = Amqp::open(amqp.address(), 16 << 10).await;
        frames(&mut client);
        client.send().await;
        let (given, why) = client.closed().await;
        assert_eq!(given, condition, "{why}");
        assert!(why.contains(told), "{why}");
    }
    // The next client is served.
    let mut client = Amqp::open(amqp.address(), 16 << 10).await;
    client.receive(ADDRESS, 1).await;
    send(&world, ["after".to_owned()]).await;
    assert_eq!(texts(&client.messages(1).await), ["after"]);
    stop(world, amqp).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_that_settles_nothing_gets_no_more_than_the_limit() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = quick();
    config.amqp.unsettled_max = 3;
    let world = World::open_with(dir.path(), config).await;
    world.register("T", "d").await;
    let amqp = listen(&world, Users::default());
    let mut client = Amqp::open(amqp.address(), 16 << 10).await;
    client.receive(ADDRESS, 100).await;
    send(&world, numbers(0..5)).await;
    let first = client.messages(3).await;
    assert_eq!(client.messages_so_far().await, []);
    client.settle(first[0].id, first[1].id, DeliveryState::Accepted).send().await;
    assert_eq!(texts(&client.messages(2).await), ["3", "4"]);
    stop(world, amqp).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_clients_are_closed_and_others_get_empty_frames() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = quick();
    config.amqp.idle_timeout_ms = 2_000;
    let world = World::open_with(dir.path(), config).await;
    let amqp = listen(&world, Users::default());
    let mut client = Amqp::open_with_idle(amqp.address(), 500).await;
    let empty = client.frame().await.unwrap();
    assert_eq!(empty.len(), 8, "an empty frame");
    let mut silent = Amqp::open(amqp.address(), 16 << 10).await;
    let (given, why) = silent.closed().await;
    assert_eq!(given, condition::RESOURCE_LIMIT_EXCEEDED);
    assert!(why.contains("connect.amqp.idle_timeout_ms = 2000"), "{why}");
    drop(client);
    eventually("all connections are gone", || {
        let text = world.metrics.text();
        !text.lines().any(|line| line.starts_with("millstream_connections{listener=\"amqp\"") && !line.ends_with(" 0"))
    });
    stop(world, amqp).await;
}
