//! Lists: their order, their pages, and updates beside them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use millstream_testkit::eventually;
use serde_json::{Value, json};

use crate::world::{Served, World};

async fn ids(served: &Served, query: &str) -> (Vec<String>, Option<usize>) {
    let answer = served.get(&format!("/v2/entities?{query}")).await;
    assert_eq!(answer.status, 200, "{query}: {answer:?}");
    let ids =
        answer.json().as_array().unwrap().iter().map(|entity| entity["id"].as_str().unwrap().to_owned()).collect();
    (ids, answer.header("fiware-total-count").map(|total| total.parse().unwrap()))
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_follow_creation_and_never_overlap() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path());
    let served = world.serve().await;
    for n in 0..50 {
        let kind = ["A", "B"][n % 2];
        let body = format!(r#"{{"id":"e{n:02}","type":"{kind}","n":{n}}}"#);
        assert_eq!(served.ask("POST /v2/entities?options=keyValues", Some(&body)).await.status, 201);
    }
    let named = |numbers: Vec<usize>| numbers.into_iter().map(|n| format!("e{n:02}")).collect::<Vec<_>>();
    for (query, expected, total) in [
        ("", named((0..20).collect()), None),
        ("limit=7&offset=20", named((20..27).collect()), None),
        ("limit=1000&options=count", named((0..50).collect()), Some(50)),
        ("limit=0&options=count", vec![], Some(50)),
        ("offset=50", vec![], None),
        ("offset=18446744073709551615", vec![], None),
        ("type=B&limit=3&offset=1&options=count", named(vec![3, 5, 7]), Some(25)),
        ("type=B,A,C&limit=3&options=count,keyValues", named(vec![0, 1, 2]), Some(50)),
        ("type=C&options=count", vec![], Some(0)),
        ("id=e31,e03,none,e31&options=count", named(vec![3, 31]), Some(2)),
        ("id=e03,e04&type=B&options=count", named(vec![3]), Some(1)),
        ("id=e03,e04,e05&limit=1&offset=1&options=count", named(vec![4]), Some(3)),
    ] {
        assert_eq!(ids(&served, query).await, (expected, total), "{query}");
    }
    let shown = served.get("/v2/entities?attrs=n&limit=1&offset=9").await.json();
    assert_eq!(shown[0]["n"]["value"], 9);
    served.stop().await;
    world.close();
}

/// Within one millisecond, over all owners, after a restart as well.
#[tokio::test(flavor = "multi_thread")]
async fn entities_of_a_batch_are_listed_as_they_stand_in_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut expected: Vec<String> = (0..200).rev().map(|n| format!("e{:03}", n * 77 % 200)).collect();
    let world = World::open(dir.path());
    let served = world.serve().await;
    let entities: Vec<Value> = expected.iter().map(|id| json!({"id": id, "type": "T"})).collect();
    for some in entities.chunks(90) {
        let batch = json!({"actionType": "append", "entities": some}).to_string();
        assert_eq!(served.ask("POST /v2/op/update", Some(&batch)).await.status, 204);
    }
    assert_eq!(ids(&served, "limit=1000").await.0, expected);
    served.stop().await;
    world.close();

    let world = World::open(dir.path());
    let served = world.serve().await;
    // One that goes and comes again stands at the end.
    let again = expected.remove(7);
    assert_eq!(served.ask(&format!("DELETE /v2/entities/{again}"), None).await.status, 204);
    let body = json!({"id": again, "type": "T"}).to_string();
    assert_eq!(served.ask("POST /v2/entities", Some(&body)).await.status, 201);
    expected.push(again);
    assert_eq!(ids(&served, "limit=1000").await.0, expected);
    assert_eq!(ids(&served, "limit=5&offset=88").await.0, expected[88..93]);
    served.stop().await;
    world.close();
}

/// All of 100,000 entities are listed over and over while telemetry and clients change them: every list is whole,
/// every update is there.
#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_thousand_entities_are_listed_while_they_change() {
    const DEVICES: usize = 100_000;
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path());
    let topic = world.make_telemetry("default");
    for n in 0..DEVICES {
        world.measure(&topic, &format!("{n:06}"), n as i64, r#"{"round":0}"#);
    }
    eventually("all entities", || world.context.stats().entities == DEVICES as u64);
    let served = Arc::new(world.serve().await);
    let done = Arc::new(AtomicBool::new(false));
    let lister = tokio::spawn({
        let (served, done) = (served.clone(), done.clone());
        async move {
            let mut lists = 0;
            while lists == 0 || !done.load(Ordering::Acquire) {
                let mut seen = Vec::with_capacity(DEVICES);
                for offset in (0..DEVICES).step_by(1_000) {
                    let page = format!("limit=1000&options=keyValues&attrs=none&offset={offset}");
                    seen.extend(ids(&served, &page).await.0);
                }
                seen.sort_unstable();
                seen.dedup();
                assert_eq!(seen.len(), DEVICES, "each entity once in each list");
                lists += 1;
            }
            lists
        }
    });
    for n in 0..200 {
        let target = format!("/v2/entities/urn:ngsi-ld:Device:{:06}", n * 499);
        let body = format!(r#"{{"round":{n}}}"#);
        let answer = served.ask(&format!("PATCH {target}/attrs?options=keyValues"), Some(&body)).await;
        assert_eq!(answer.status, 204, "{answer:?}");
        let read: Value = served.get(&format!("{target}?options=keyValues")).await.json();
        assert_eq!(read["round"], n);
    }
    done.store(true, Ordering::Release);
    assert!(lister.await.unwrap() > 0);
    let told = world.told("default").len();
    assert_eq!(told, DEVICES + 200);
    Arc::into_inner(served).unwrap().stop().await;
    world.close();
}
