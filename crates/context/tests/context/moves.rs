//! Partitions of entities go and come back while clients, readers and devices work on them.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use millstream_testkit::eventually;
use millstream_types::PartitionId;
use millstream_view::Place;
use parking_lot::Mutex;

use crate::world::{Served, World};

const CLIENTS: u64 = 3;
const MOVES: u64 = 40;

/// Entities of the client: each has one writer, so that it knows the value.
fn of_client(client: u64) -> impl Iterator<Item = String> {
    (0..8).map(move |number| format!("counter-{client}-{number}"))
}

/// Asks until the partition is here, and counts the refusals.
async fn insist(served: &Served, head: &str, body: &str, elsewhere: &AtomicU64) {
    loop {
        let answer = served.ask(head, Some(body)).await;
        match answer.status {
            201 | 204 => return,
            503 => {
                assert!(
                    answer.body.contains("is kept by b") || answer.body.contains("being loaded"),
                    "{}",
                    answer.body
                );
                elsewhere.fetch_add(1, Ordering::Relaxed);
            }
            other => panic!("{other}: {}", answer.body),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn entities_whose_partition_goes_and_comes_back_under_load_are_right_or_refused_and_lose_and_double_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let world = Arc::new(World::open(dir.path()));
    let topic = world.make_telemetry("default");
    let served = Arc::new(world.serve().await);
    let (ended, refused) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let known = Arc::new(Mutex::new(HashMap::<String, u64>::new()));
    for client in 0..CLIENTS {
        for id in of_client(client) {
            let body = format!(r#"{{"id": "{id}", "type": "Counter", "n": {{"value": 0}}}}"#);
            insist(&served, "POST /v2/entities", &body, &refused).await;
            known.lock().insert(id, 0);
        }
    }
    let mut work = Vec::new();
    for client in 0..CLIENTS {
        let (served, ended, refused, known) = (served.clone(), ended.clone(), refused.clone(), known.clone());
        work.push(tokio::spawn(async move {
            for id in of_client(client).collect::<Vec<_>>().iter().cycle() {
                if ended.load(Ordering::Relaxed) {
                    break;
                }
                let head = format!("PATCH /v2/entities/{id}/attrs");
                insist(&served, &head, r#"{"n": {"value": {"$inc": 1}}}"#, &refused).await;
                *known.lock().get_mut(id).unwrap() += 1;
            }
        }));
    }
    let read = {
        let (served, ended, known) = (served.clone(), ended.clone(), known.clone());
        tokio::spawn(async move {
            let (mut right, mut away) = (0, 0);
            for id in (0..CLIENTS).flat_map(of_client).collect::<Vec<_>>().iter().cycle() {
                if ended.load(Ordering::Relaxed) {
                    break;
                }
                let least = known.lock()[id];
                let answer = served.get(&format!("/v2/entities/{id}/attrs/n/value")).await;
                let whole = served.get("/v2/entities?type=Counter&limit=1000").await;
                match answer.status {
                    200 => assert!(answer.body.parse::<u64>().unwrap() >= least, "{id}: {} after {least}", answer.body),
                    status => assert_eq!(status, 503, "{}", answer.body),
                }
                match whole.status {
                    200 => assert_eq!(whole.json().as_array().unwrap().len(), known.lock().len(), "a list is whole"),
                    status => assert_eq!(status, 503, "{}", whole.body),
                }
                right += u64::from(answer.status == 200 && whole.status == 200);
                away += u64::from(answer.status == 503 || whole.status == 503);
            }
            (right, away)
        })
    };
    let measured = {
        let (world, ended) = (world.clone(), ended.clone());
        tokio::task::spawn_blocking(move || {
            let mut measured = 0;
            while !ended.load(Ordering::Relaxed) {
                world.measure(
                    &topic,
                    &format!("device-{}", measured % 16),
                    measured,
                    &format!(r#"{{"t": {measured}}}"#),
                );
                measured += 1;
                std::thread::yield_now();
            }
            measured
        })
    };
    let moving = {
        let (world, known) = (world.clone(), known.clone());
        tokio::task::spawn_blocking(move || {
            let done = || known.lock().values().sum::<u64>();
            for number in 0..MOVES {
                let partition = PartitionId(number as u32 % 4);
                world.context.give(partition, "b");
                assert_eq!(world.context.place(partition), Place::Elsewhere("b".into()));
                let before = done();
                // While it is away all clients come to wait for it, at the latest.
                eventually("clients meet it or go on elsewhere", || {
                    refused.swap(0, Ordering::Relaxed) > 0 || done() > before + 10
                });
                world.context.take(partition).unwrap();
                let before = done();
                eventually("work goes on", || done() > before + 5);
            }
        })
    };
    moving.await.unwrap();
    ended.store(true, Ordering::Relaxed);
    for client in work {
        client.await.unwrap();
    }
    let (measured, (right, away)) = (measured.await.unwrap(), read.await.unwrap());
    let known: Vec<_> = known.lock().iter().map(|(id, count)| (id.clone(), *count)).collect();
    for (id, count) in &known {
        let stored = served.get(&format!("/v2/entities/{id}/attrs/n/value")).await.body;
        assert_eq!(stored, count.to_string(), "{id}");
    }
    let told_of_devices =
        || world.told("default").into_iter().filter(|told| told.id.contains("device-")).count() as i64;
    eventually("all measurements have become changes", || told_of_devices() >= measured);
    assert_eq!(told_of_devices(), measured, "each measurement is one change");
    let updates: u64 = known.iter().map(|(_, count)| count).sum();
    println!("{MOVES} moves, {updates} updates, {measured} measurements; reads: {right} right, {away} refused");
    assert!(right > 0 && away > 0);
    Arc::into_inner(served).unwrap().stop().await;
    let Some(world) = Arc::into_inner(world) else { panic!("nobody else has the world") };
    world.close();
}
