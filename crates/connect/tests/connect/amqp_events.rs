//! Applications that receive events over AMQP 1.0: each is kept until it is settled (connect-adapters.md, part A, 6).

use std::time::Duration;

use millstream_amqp::{Attach, DeliveryState, Detach, Flow, Modified, Performative, Source, Value, condition};
use millstream_testkit::eventually;
use millstream_types::{StateTopic, TopicName};

use crate::amqp::{listen, numbers, stop, texts, world};
use crate::amqp_client::{Amqp, Received, Users, flow_of};
use crate::world::{World, basic};

const ADDRESS: &str = "event/T";

/// Sends events of the device, one after the other.
async fn send(world: &World, payloads: impl IntoIterator<Item = String>) {
    send_lasting(world, payloads, None).await;
}

/// Sends events with a time to live in seconds.
async fn send_lasting(world: &World, payloads: impl IntoIterator<Item = String>, ttl_s: Option<&str>) {
    let login = basic("d@T", "pw");
    for payload in payloads {
        let mut headers = vec![("authorization", login.as_str()), ("content-type", "text/plain")];
        headers.extend(ttl_s.map(|ttl_s| ("hono-ttl", ttl_s)));
        let answer = world.device("POST /event", &headers, payload.as_bytes()).await;
        assert_eq!(answer.status, 202, "{answer:?}");
    }
}

fn counted(received: &[Received]) -> Vec<(String, u32)> {
    texts(received).into_iter().zip(received.iter().map(|message| message.failed_deliveries)).collect()
}

fn expected(events: &[(&str, u32)]) -> Vec<(String, u32)> {
    events.iter().map(|(text, failed)| ((*text).to_owned(), *failed)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_wait_for_a_receiver_and_for_its_outcome_over_restarts() {
    let (dir, world, amqp) = world(Users::default()).await;
    send(&world, numbers(0..8)).await;
    let mut client = Amqp::open(amqp.address(), 16 << 10).await;
    client.receive(ADDRESS, 6).await;
    let first = client.messages(6).await;
    assert_eq!(texts(&first), numbers(0..6).collect::<Vec<_>>(), "those from before, too");
    let ids: Vec<u32> = first.iter().map(|message| message.id).collect();
    let failed = Modified { delivery_failed: true, undeliverable_here: false, message_annotations: None };
    client.settle(ids[0], ids[0], DeliveryState::Accepted);
    client.settle(ids[2], ids[2], DeliveryState::Rejected(None));
    client.settle(ids[3], ids[3], DeliveryState::Modified(failed));
    client.settle(ids[4], ids[4], DeliveryState::Accepted).send().await;
    assert_eq!(client.messages_so_far().await, [], "the credit is used up");
    client.write(0, &Performative::Detach(Detach { handle: 0, closed: true, error: None })).send().await;
    client.expect(|body| matches!(body, Performative::Detach(_)).then_some(())).await;
    drop(client);
    stop(world, amqp).await;

    let world = World::open(dir.path()).await;
    let amqp = listen(&world, Users::default());
    send(&world, numbers(8..9)).await;
    let mut client = Amqp::open(amqp.address(), 16 << 10).await;
    client.receive(ADDRESS, 100).await;
    let again = client.messages(6).await;
    // Those of a link that was detached had been delivered and not accepted.
    let all = expected(&[("1", 1), ("3", 1), ("5", 1), ("6", 0), ("7", 0), ("8", 0)]);
    assert_eq!(counted(&again), all);
    client.settle(again[0].id, again[5].id, DeliveryState::Accepted).send().await;
    assert_eq!(client.messages_so_far().await, []);
    drop(client);
    stop(world, amqp).await;

    let world = World::open(dir.path()).await;
    let amqp = listen(&world, Users::default());
    let mut client = Amqp::open(amqp.address(), 16 << 10).await;
    client.receive(ADDRESS, 100).await;
    assert_eq!(client.messages_so_far().await, [], "all are settled");
    send(&world, numbers(9..10)).await;
    assert_eq!(texts(&client.messages(1).await), ["9"]);
    stop(world, amqp).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_with_one_credit_gets_one_event_at_a_time_and_one_that_settles_nothing_no_more_than_the_limit() {
    let (_dir, world, amqp) = world(Users::default()).await;
    let mut slow = Amqp::open(amqp.address(), 16 << 10).await;
    slow.receive(ADDRESS, 1).await;
    send(&world, numbers(0..20)).await;
    for number in 0..5 {
        let one = slow.messages(1).await;
        assert_eq!(texts(&one), [number.to_string()]);
        assert_eq!(slow.messages_so_far().await, []);
        slow.settle(one[0].id, one[0].id, DeliveryState::Accepted).credit(0, Some(number + 1), 1).send().await;
    }
    let kept = slow.messages(1).await;
    // Another receiver gets the others, and what this one leaves.
    let mut other = Amqp::open(amqp.address(), 16 << 10).await;
    other.receive(ADDRESS, 100).await;
    assert_eq!(texts(&other.messages(14).await), numbers(6..20).collect::<Vec<_>>());
    drop(slow);
    let left = other.messages(1).await;
    assert_eq!((texts(&left), left[0].failed_deliveries), (texts(&kept), 1));
    assert_eq!(other.messages_so_far().await, []);
    stop(world, amqp).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_detachment_in_the_middle_of_a_large_event_gives_it_back() {
    let (_dir, world, amqp) = world(Users::default()).await;
    let large = "x".repeat(2_000);
    send(&world, [large.clone(), "small".to_owned()]).await;
    let mut client = Amqp::open(amqp.address(), 512).await;
    let narrow = Flow { incoming_window: 3, link_credit: Some(10), ..flow_of(0) };
    client.begin(0, 3).attach(0, 0, ADDRESS, None).write(0, &Performative::Flow(narrow)).send().await;
    let parts = client.transfers(3).await;
    assert!(parts.iter().all(|(more, _)| *more), "the window has no room for the rest");
    client.write(0, &Performative::Detach(Detach { handle: 0, closed: true, error: None })).send().await;
    client.expect(|body| matches!(body, Performative::Detach(_)).then_some(())).await;
    let mut other = Amqp::open(amqp.address(), 16 << 10).await;
    other.receive(ADDRESS, 10).await;
    assert_eq!(counted(&other.messages(2).await), expected(&[(&large, 1), ("small", 0)]));
    stop(world, amqp).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_end_with_their_time_to_live_and_with_a_link_that_settles_at_once() {
    let (_dir, world, amqp) = world(Users::default()).await;
    send_lasting(&world, ["short".to_owned()], Some("1")).await;
    send_lasting(&world, ["long".to_owned()], Some("600")).await;
    let mut holder = Amqp::open(amqp.address(), 16 << 10).await;
    holder.receive(ADDRESS, 10).await;
    assert_eq!(texts(&holder.messages(2).await), ["short", "long"]);
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    drop(holder);
    // What is given back has expired meanwhile.
    let mut client = Amqp::open(amqp.address(), 16 << 10).await;
    let source = Some(Source { address: Some(Value::String(ADDRESS)), ..Source::default() });
    let attach = Attach { name: "l", handle: 0, role: true, snd_settle_mode: 1, source, ..Attach::default() };
    client.begin(0, 100).write(0, &Performative::Attach(attach)).credit(0, None, 10).send().await;
    let one = client.messages(1).await;
    assert_eq!((texts(&one), one[0].is_settled), (vec!["long".to_owned()], true));
    drop(client);
    let mut client = Amqp::open(amqp.address(), 16 << 10).await;
    client.receive(ADDRESS, 10).await;
    assert_eq!(client.messages_so_far().await, []);
    stop(world, amqp).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_named_queue_begins_with_its_first_receiver_and_keeps_what_comes_without_one() {
    let (dir, world, amqp) = world(Users::default()).await;
    send(&world, numbers(0..2)).await;
    let named = |address: std::net::SocketAddr, name: &'static str| async move {
        let mut client = Amqp::open(address, 16 << 10).await;
        client.begin(0, 100).attach(0, 0, ADDRESS, Some(name)).credit(0, None, 10).send().await;
        client.expect(|body| matches!(body, Performative::Attach(_)).then_some(())).await;
        client
    };
    let client = named(amqp.address(), "archive").await;
    // The name is kept although nobody has got anything under it.
    drop(client);
    send(&world, numbers(2..3)).await;
    stop(world, amqp).await;
    let world = World::open(dir.path()).await;
    let amqp = listen(&world, Users::default());
    send(&world, numbers(3..4)).await;
    let mut client = named(amqp.address(), "archive").await;
    assert_eq!(texts(&client.messages(2).await), ["2", "3"]);
    let mut unnamed = Amqp::open(amqp.address(), 16 << 10).await;
    unnamed.receive(ADDRESS, 10).await;
    assert_eq!(texts(&unnamed.messages(4).await), ["0", "1", "2", "3"]);
    // A name is one of few, and has a bound.
    let mut clients = Vec::new();
    for number in 0..15 {
        let mut client = Amqp::open(amqp.address(), 16 << 10).await;
        client.begin(0, 100).attach(0, 0, ADDRESS, Some(&format!("n-{number}"))).send().await;
        let refusal = client.expect(|body| match body {
            Performative::Attach(attach) if attach.source.is_some() => Some(None),
            Performative::Detach(detach) => Some(Some(detach.error.unwrap().condition.0.to_owned())),
            _ => None,
        });
        let refusal = refusal.await;
        assert_eq!(refusal.is_some(), number == 14, "{number} {refusal:?}");
        assert!(refusal.is_none_or(|refusal| refusal == condition::RESOURCE_LIMIT_EXCEEDED));
        clients.push(client);
    }
    let mut client = Amqp::open(amqp.address(), 16 << 10).await;
    client.begin(0, 100).attach(0, 0, ADDRESS, Some(&"n".repeat(257))).send().await;
    let refusal = client.expect(|body| match body {
        Performative::Detach(detach) => Some(detach.error.unwrap().condition.0.to_owned()),
        _ => None,
    });
    assert_eq!(refusal.await, condition::INVALID_FIELD);
    stop(world, amqp).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_positions_of_a_deleted_tenant_are_forgotten() {
    let (dir, world, amqp) = world(Users::default()).await;
    send(&world, numbers(0..2)).await;
    let mut client = Amqp::open(amqp.address(), 16 << 10).await;
    client.receive(ADDRESS, 10).await;
    let received = client.messages(2).await;
    client.settle(received[0].id, received[1].id, DeliveryState::Accepted).send().await;
    let topic = TopicName::internal(StateTopic::EventQueues);
    eventually("the positions are stored", || world.records_in(&topic).len() == 4);
    world.do_registry("DELETE /v1/tenants/T", "", 204).await;
    drop(client);
    stop(world, amqp).await;
    let world = World::open(dir.path()).await;
    eventually("they are removed", || {
        world.records_in(&topic).iter().filter(|kept| kept.value.is_empty()).count() == 4
    });
    world.stop().await;
}
