//! Rows of sections 7, 14, 15 and 18 of the reference about queues and what is too large or too slow for them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use millstream_context::{ContextConfig, NotificationsConfig};
use millstream_testkit::eventually;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::notifications::{change, to};
use crate::receiver::Receiver;
use crate::reference_subscriptions::of;
use crate::subscriptions::{patch, subscribe, until_notification};
use crate::world::{Registry, World};

fn open(dir: &std::path::Path, notifications: NotificationsConfig) -> World {
    let config = ContextConfig { notifications, ..ContextConfig::default() };
    World::open_with(dir, Arc::new(Registry::default()), config)
}

/// §15.3: a failure counts at its first attempt and once, a success resets; §15.4: of a full queue the oldest go.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_queue_loses_its_oldest_and_a_failure_counts_once() {
    const CHANGES: usize = 10;
    let dir = tempfile::tempdir().unwrap();
    let quick =
        NotificationsConfig { queue_max: 3, retry_first_ms: 1, retry_longest_ms: 2, ..NotificationsConfig::default() };
    let world = open(dir.path(), quick);
    let served = world.serve().await;
    let is_open = Arc::new(AtomicBool::new(false));
    let opened = is_open.clone();
    let receiver = Receiver::answering("127.0.0.1:0".parse().unwrap(), move |_, _| {
        Some(if opened.load(Ordering::Acquire) { 200 } else { 503 })
    })
    .await;
    let id =
        subscribe(&served, "", &to(&receiver, "/n", "e", Value::Null, &json!({"attrsFormat": "simplifiedKeyValues"})))
            .await;
    for t in 0..CHANGES {
        change(&served, "POST /v2/entities?options=upsert,keyValues", &json!({"id": "e", "t": t}).to_string()).await;
    }
    // The first is on its way: it stays, with the two latest.
    let waiting = until_notification(&served, &id, |shown| shown["queue"]["dropped"] == CHANGES - 3).await;
    assert_eq!(waiting["queue"]["length"], 3, "{waiting}");
    receiver.under("/n", 5).await;
    let failing = until_notification(&served, &id, |shown| shown.get("failsCounter").is_some()).await;
    assert_eq!((&failing["failsCounter"], failing.get("lastSuccess")), (&json!(1), None), "{failing}");
    is_open.store(true, Ordering::Release);
    let done =
        until_notification(&served, &id, |shown| shown["queue"]["length"] == 0 && shown["lastSuccessCode"] == 200)
            .await;
    assert_eq!((done.get("failsCounter"), &done["timesSent"]), (None, &json!(CHANGES)), "{done}");
    let all: Vec<u64> = receiver.received().iter().map(|one| one.json()["t"].as_u64().unwrap()).collect();
    let mut told = all.clone();
    told.dedup();
    assert_eq!(told, [0, 8, 9], "{all:?}");
    let metrics = world.metrics.text();
    let of_it = |name: &str| {
        let begin = format!("millstream_subscription_{name}{{subscription=\"{id}\",tenant=\"default\"}} ");
        metrics.lines().find_map(|line| line.strip_prefix(&begin)?.parse::<usize>().ok())
    };
    assert_eq!((of_it("waiting"), of_it("dropped")), (None, Some(CHANGES - 3)), "{metrics}");
    // The first is on its way until the receiver is there; what is refused is an attempt before another.
    assert_eq!(of_it("retried"), Some(all.len() - told.len()), "{metrics}");
    let looked_at = metrics.lines().find_map(|line| line.strip_prefix("millstream_subscription_match_seconds_count "));
    assert_eq!(looked_at, Some("10"), "one for each change");
    served.stop().await;
    world.close();
    receiver.stop();
}

/// §18.2: of a subscription that is gone nothing is shown; of one that is only inactive what was counted.
#[tokio::test(flavor = "multi_thread")]
async fn the_counters_of_a_queue_go_with_its_subscription() {
    let dir = tempfile::tempdir().unwrap();
    let quick =
        NotificationsConfig { queue_max: 1, retry_first_ms: 1, retry_longest_ms: 2, ..NotificationsConfig::default() };
    let world = open(dir.path(), quick);
    let served = world.serve().await;
    let receiver = Receiver::answering("127.0.0.1:0".parse().unwrap(), |_, _| Some(503)).await;
    let body = to(&receiver, "/n", "e", Value::Null, &json!({}));
    let (gone, stays) = (subscribe(&served, "", &body).await, subscribe(&served, "", &body).await);
    for t in 0..5 {
        change(&served, "POST /v2/entities?options=upsert,keyValues", &json!({"id": "e", "t": t}).to_string()).await;
    }
    let counted = |id: &str, name: &str| {
        let begin = format!("millstream_subscription_{name}{{subscription=\"{id}\"");
        world.metrics.text().lines().any(|line| line.starts_with(&begin))
    };
    let all = ["dropped", "retried"];
    eventually("drops and retries of both", || all.iter().all(|name| counted(&gone, name) && counted(&stays, name)));
    assert_eq!(patch(&served, &stays, &json!({"status": "inactive"})).await.status, 204);
    assert_eq!(served.ask(&format!("DELETE /v2/subscriptions/{gone}"), None).await.status, 204);
    eventually("the end of the queue", || !all.iter().any(|name| counted(&gone, name)));
    assert!(all.iter().all(|name| counted(&stays, name)), "{}", world.metrics.text());
    served.stop().await;
    world.close();
    receiver.stop();
}

/// Counts of notifications that a full queue dropped, or the end of a subscription, continue after a restart.
#[tokio::test(flavor = "multi_thread")]
async fn counts_of_dropped_notifications_continue_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let quick =
        NotificationsConfig { queue_max: 3, retry_first_ms: 1, retry_longest_ms: 2, ..NotificationsConfig::default() };
    let receiver = Receiver::answering("127.0.0.1:0".parse().unwrap(), |_, _| Some(503)).await;
    let mut ids = Vec::new();
    for (life, expected) in [7, 17, 20, 20].into_iter().enumerate() {
        let world = open(dir.path(), quick.clone());
        let served = world.serve().await;
        if life == 0 {
            for queue in ["durable", "memory"] {
                let delivery = json!({"delivery": {"queue": queue}});
                ids.push(subscribe(&served, "", &to(&receiver, "/n", "e", Value::Null, &delivery)).await);
            }
        }
        if life < 2 {
            for t in 0..10 {
                let entity = json!({"id": "e", "t": t}).to_string();
                change(&served, "POST /v2/entities?options=upsert,keyValues", &entity).await;
            }
        }
        if life == 2 {
            assert_eq!(patch(&served, &ids[0], &json!({"status": "inactive"})).await.status, 204);
        }
        until_notification(&served, &ids[0], |shown| shown["queue"]["dropped"] == expected).await;
        // What waited in memory when the server ended is lost, and was not dropped by the queue.
        let in_memory = if life == 0 { 7 } else { 14 };
        until_notification(&served, &ids[1], |shown| shown["queue"]["dropped"] == in_memory).await;
        served.stop().await;
        world.close();
    }
    receiver.stop();
}

/// §7: a broker that takes a connection and says nothing is a failed notification after the timeout.
#[tokio::test(flavor = "multi_thread")]
async fn a_silent_broker_is_a_failure() {
    let dir = tempfile::tempdir().unwrap();
    let world = open(dir.path(), NotificationsConfig { timeout_ms: 500, ..NotificationsConfig::default() });
    let served = world.serve().await;
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = json!({"url": format!("mqtt://{}", silent.local_addr().unwrap()), "topic": "t"});
    let id = subscribe(&served, "", &of(json!({"mqtt": target, "delivery": {"retry": "never"}}), json!({}))).await;
    change(&served, "POST /v2/entities", r#"{"id":"e"}"#).await;
    let failed = until_notification(&served, &id, |shown| shown.get("lastFailure").is_some()).await;
    for absent in ["lastFailureReason", "lastSuccessCode", "lastSuccess"] {
        assert_eq!(failed.get(absent), None, "§14.1: {failed}");
    }
    assert_eq!((&failed["failsCounter"], &failed["timesSent"]), (&json!(1), &json!(1)), "{failed}");
    served.stop().await;
    world.close();
}

/// §14.2: MQTT has topics of at most 65,535 bytes. A longer one would be published under another name.
#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_macros_make_too_long_is_a_failure_and_nothing_is_published() {
    let dir = tempfile::tempdir().unwrap();
    let world = open(dir.path(), NotificationsConfig::default());
    let served = world.serve().await;
    let broker = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = json!({"url": format!("mqtt://{}", broker.local_addr().unwrap()), "topic": "t/${long}"});
    let id = subscribe(&served, "", &of(json!({"mqttCustom": target}), json!({}))).await;
    let entity = json!({"id": "e", "long": "x".repeat(65_534)});
    change(&served, "POST /v2/entities?options=keyValues", &entity.to_string()).await;
    let failed = until_notification(&served, &id, |shown| shown.get("failsCounter").is_some()).await;
    assert_eq!((&failed["failsCounter"], failed.get("lastSuccess")), (&json!(1), None), "{failed}");
    until_notification(&served, &id, |shown| shown.get("queue").is_none()).await;
    let connected = tokio::time::timeout(std::time::Duration::ZERO, broker.accept()).await;
    assert!(connected.is_err(), "nobody has connected");
    served.stop().await;
    world.close();
}

/// §7: an outgoing message has at most 8 MiB; where it is stored, as much as a record holds.
#[tokio::test(flavor = "multi_thread")]
async fn large_messages_are_sent_and_where_they_are_stored_smaller_ones_as_many_as_there_are() {
    const ENTITIES: usize = 4;
    let dir = tempfile::tempdir().unwrap();
    let world = open(dir.path(), NotificationsConfig { queue_max_bytes: 64 << 20, ..NotificationsConfig::default() });
    let (served, receiver) = (world.serve().await, Receiver::start().await);
    let mut ids = Vec::new();
    for (path, copies, delivery) in [
        ("/large", 80, json!({"queue": "memory"})),
        ("/too-large", 84, json!({"queue": "memory"})),
        ("/stored", 14, json!({"queue": "durable"})),
        ("/too-large-stored", 16, json!({"queue": "durable"})),
    ] {
        let target = json!({"url": receiver.url(path), "payload": "${long}".repeat(copies)});
        let mut body = of(json!({"httpCustom": target, "delivery": delivery}), json!({}));
        body["subject"]["entities"] = json!([{"idPattern": ".*"}]);
        ids.push(subscribe(&served, "", &body).await);
    }
    let entity = |n: usize| json!({"id": format!("e{n}"), "long": "x".repeat(100_000)});
    let all = json!({"actionType": "append", "entities": (0..ENTITIES).map(entity).collect::<Vec<_>>()});
    change(&served, "POST /v2/op/update?options=keyValues", &all.to_string()).await;
    for (path, bytes) in [("/large", 8_000_000), ("/stored", 1_400_000)] {
        let received = receiver.under(path, ENTITIES).await;
        let lengths: Vec<usize> = received.iter().map(|one| one.body.len()).collect();
        assert_eq!(lengths, [bytes; ENTITIES], "{path}");
    }
    for (id, limit) in [(&ids[1], "8388608 bytes"), (&ids[3], "1572864 bytes")] {
        let failed = until_notification(&served, id, |shown| shown["failsCounter"] == ENTITIES).await;
        assert!(failed["lastFailureReason"].as_str().unwrap().contains(limit), "{failed}");
    }
    assert_eq!(world.context.records_passed_over(), 0);
    served.stop().await;
    world.close();
    receiver.stop();
}
