//! Delivery of notifications: counters, throttling, retries, isolation, and state that outlives the process.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use millstream_context::{ContextConfig, NotificationsConfig};
use millstream_testkit::eventually_async;
use serde_json::{Value, json};

use crate::disk::Full;
use crate::notifications::{change, to};
use crate::receiver::{Received, Receiver};
use crate::subscriptions::{patch, shown, subscribe, until_shown};
use crate::world::{Registry, Served, World, log_has_no_disk};

async fn set_t(served: &Served, id: &str, t: usize) {
    change(
        served,
        &format!("POST /v2/entities?options=upsert,keyValues\nfiware-correlator: c{t}"),
        &json!({"id": id, "t": t}).to_string(),
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn counters_status_and_throttling_are_kept_by_the_subscription() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path());
    let (served, receiver) = (world.serve().await, Receiver::start().await);
    let plain = |path: &str| to(&receiver, path, "e", Value::Null, &json!({"attrsFormat": "simplifiedKeyValues"}));
    let all = subscribe(&served, "", &plain("/all")).await;
    let fresh = shown(&served, &all).await["notification"].clone();
    let absent = ["timesSent", "ended", "queue"].map(|name| fresh.get(name));
    assert_eq!(absent, [None; 3], "absent until there is something to tell: {fresh}");
    let mut body = plain("/once");
    body["status"] = json!("oneshot");
    let once = subscribe(&served, "", &body).await;
    body["status"] = json!("inactive");
    body["notification"]["http"]["url"] = json!(receiver.url("/asleep"));
    let asleep = subscribe(&served, "", &body).await;
    let mut body = plain("/expired");
    body["expires"] = json!("2000-01-01");
    subscribe(&served, "", &body).await;
    let mut body = plain("/throttled");
    body["throttling"] = json!(3_600);
    let throttled = subscribe(&served, "", &body).await;
    let mut body = plain("/latest");
    body["throttling"] = json!(1);
    body["notification"]["delivery"] = json!({"throttled": "latest"});
    subscribe(&served, "", &body).await;
    for t in 1..=5 {
        set_t(&served, "e", t).await;
    }
    let ts = |received: Vec<Received>| received.iter().map(|one| one.json()["t"].as_u64().unwrap()).collect::<Vec<_>>();
    assert_eq!(ts(receiver.under("/all", 5).await), [1, 2, 3, 4, 5]);
    let latest = || ts(receiver.received().into_iter().filter(|one| one.path() == "/latest").collect());
    eventually_async("the latest is sent when the time is up", || latest().last() == Some(&5)).await;
    assert_eq!(latest()[0], 1);
    let ended = json!({"delivered": 5, "givenUp": 0});
    let found = until_shown(&served, &all, |shown| shown["notification"]["ended"] == ended).await;
    assert_eq!(
        (&found["notification"]["timesSent"], &found["notification"]["lastSuccessCode"]),
        (&json!(5), &json!(200))
    );
    assert!(found["notification"]["lastNotification"].is_string() && found["notification"]["lastSuccess"].is_string());
    assert_eq!((found["notification"].get("failsCounter"), found["notification"].get("queue")), (None, None));
    assert_eq!(
        until_shown(&served, &once, |shown| shown["status"] == "inactive").await["notification"]["timesSent"],
        1
    );
    assert_eq!(shown(&served, &throttled).await["notification"]["timesSent"], 1);
    for (id, change) in [(&once, json!({"status": "oneshot"})), (&asleep, json!({"status": "active"}))] {
        assert_eq!(patch(&served, id, &change).await.status, 204);
    }
    set_t(&served, "e", 6).await;
    set_t(&served, "e", 7).await;
    assert_eq!(ts(receiver.under("/once", 2).await), [1, 6], "it is armed again");
    assert_eq!(ts(receiver.under("/asleep", 2).await), [6, 7], "nothing of what happened while it slept");
    assert_eq!(ts(receiver.under("/throttled", 1).await), [1]);
    assert!(receiver.under("/expired", 0).await.is_empty());
    served.stop().await;
    world.close();
    // Counters survive.
    let world = World::open(dir.path());
    let served = world.serve().await;
    assert_eq!(shown(&served, &all).await["notification"]["timesSent"], 7);
    served.stop().await;
    world.close();
    receiver.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn throttling_counts_as_it_is_now_and_from_the_last_notification_before_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let receiver = Receiver::start().await;
    let mut throttled = String::new();
    for (life, first) in [1, 5].into_iter().enumerate() {
        let world = World::open(dir.path());
        let served = world.serve().await;
        if life == 0 {
            let of = |path: &str| to(&receiver, path, "e", Value::Null, &json!({"attrsFormat": "simplifiedKeyValues"}));
            subscribe(&served, "", &of("/all")).await;
            let mut body = of("/throttled");
            body["throttling"] = json!(3_600);
            throttled = subscribe(&served, "", &body).await;
        }
        for (t, throttling) in [(first, 3_600), (first + 1, 0), (first + 2, 3_600), (first + 3, 3_600)] {
            set_t(&served, "e", t).await;
            // Whoever hears of all changes is told by the same decision.
            receiver.under("/all", t).await;
            assert_eq!(patch(&served, &throttled, &json!({ "throttling": throttling })).await.status, 204);
        }
        served.stop().await;
        world.close();
    }
    let ts: Vec<u64> =
        receiver.under("/throttled", 3).await.iter().map(|one| one.json()["t"].as_u64().unwrap()).collect();
    assert_eq!(ts, [1, 3, 7], "each that was not throttled");
    receiver.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_notifications_are_retried_in_order_and_delivered_once() {
    const CHANGES: usize = 40;
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path());
    let served = world.serve().await;
    // Every third attempt is refused for now.
    let receiver =
        Receiver::answering("127.0.0.1:0".parse().unwrap(), |number, _| Some(if number % 3 == 0 { 503 } else { 200 }))
            .await;
    let mut body = to(&receiver, "/n", "x", Value::Null, &json!({"attrsFormat": "simplifiedKeyValues"}));
    body["subject"]["entities"] = json!([{"idPattern": ".*"}]);
    let id = subscribe(&served, "", &body).await;
    for t in 0..CHANGES {
        set_t(&served, &format!("e{}", t % 4), t).await;
    }
    let found = until_shown(&served, &id, |shown| {
        let delivered = &shown["notification"]["ended"]["delivered"];
        *delivered == CHANGES && shown["notification"].get("queue").is_none()
    })
    .await;
    assert_eq!(found["notification"]["timesSent"], CHANGES, "attempts are no notifications");
    let received = receiver.received();
    let taken: Vec<&Received> =
        received.iter().enumerate().filter(|(number, _)| number % 3 != 0).map(|(_, one)| one).collect();
    assert_eq!(taken.len(), CHANGES, "each is taken once");
    for entity in 0..4 {
        let of: Vec<usize> = (taken.iter().map(|one| one.json()))
            .filter(|body| body["id"] == format!("e{entity}"))
            .map(|body| body["t"].as_u64().unwrap() as usize)
            .collect();
        assert_eq!(of, (0..CHANGES).filter(|t| t % 4 == entity).collect::<Vec<_>>(), "in order");
    }
    for (number, one) in received.iter().enumerate().filter(|(number, _)| number % 3 == 0) {
        let correlator = one.header("fiware-correlator");
        let again = received[number + 1..].iter().find(|other| other.body == one.body).unwrap();
        assert_eq!(again.header("fiware-correlator"), correlator, "the same in every attempt");
    }
    assert!(receiver.connections() <= 16, "connections are kept: {}", receiver.connections());
    served.stop().await;
    world.close();
    receiver.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn any_answer_is_a_success_and_too_many_failures_end_a_subscription() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path());
    let served = world.serve().await;
    let receiver = Receiver::answering("127.0.0.1:0".parse().unwrap(), |_, one| match one.path() {
        "/404" => Some(404),
        "/silent" => None,
        _ => Some(500),
    })
    .await;
    let plain = |path: &str| to(&receiver, path, "e", Value::Null, &json!({}));
    let unknown = subscribe(&served, "", &plain("/404")).await;
    let failing = subscribe(&served, "", &plain("/500")).await;
    let mut body = plain("/silent");
    body["notification"]["http"]["timeout"] = json!(1_000);
    body["notification"]["maxFailsLimit"] = json!(2);
    let silent = subscribe(&served, "", &body).await;
    for t in 0..3 {
        set_t(&served, "e", t).await;
    }
    for (id, code) in [(&unknown, 404), (&failing, 500)] {
        let found = until_shown(&served, id, |shown| shown["notification"]["lastSuccessCode"] == code).await;
        assert_eq!(found["notification"].get("lastFailure"), None);
    }
    let found = until_shown(&served, &silent, |shown| shown["status"] == "inactive").await;
    assert_eq!(found["notification"]["failsCounter"], 3, "more than the limit");
    assert!(found["notification"]["lastFailureReason"].as_str().unwrap().contains("timeout"), "{found}");
    assert_eq!(receiver.under("/silent", 3).await.len(), 3, "after a timeout nothing is sent again");
    assert_eq!(patch(&served, &silent, &json!({"status": "active"})).await.status, 204);
    assert_eq!(shown(&served, &silent).await["notification"].get("failsCounter"), None);
    set_t(&served, "e", 9).await;
    receiver.under("/silent", 4).await;
    served.stop().await;
    world.close();
    receiver.stop();
}

/// §14.1: what is given up behind the first of its entity counts as failed as well. Each notification has one end.
#[tokio::test(flavor = "multi_thread")]
async fn notifications_that_expire_behind_a_failing_one_end_their_subscription() {
    const CHANGES: usize = 6;
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path());
    let served = world.serve().await;
    let busy = Receiver::answering("127.0.0.1:0".parse().unwrap(), |_, _| Some(503)).await;
    let mut ids = Vec::new();
    for queue in ["memory", "durable"] {
        let delivery = json!({"maxFailsLimit": 2, "delivery": {"queue": queue, "maxAge": 1}});
        ids.push(subscribe(&served, "", &to(&busy, &format!("/{queue}"), "e", Value::Null, &delivery)).await);
    }
    for t in 0..CHANGES {
        set_t(&served, "e", t).await;
    }
    for id in ids {
        until_shown(&served, &id, |shown| shown["status"] == "inactive").await;
        // One that is dropped between two attempts has failed before: the counter of failures counts no ends. Changes that come
        // after the subscription has ended are not sent.
        let has_ended = |shown: &Value| {
            let notification = &shown["notification"];
            let given_up = notification["ended"]["givenUp"].as_u64().unwrap_or(0);
            let dropped = notification["queue"]["dropped"].as_u64().unwrap_or(0);
            Some(given_up + dropped) == notification["timesSent"].as_u64()
        };
        let found = until_shown(&served, &id, has_ended).await;
        let notification = &found["notification"];
        assert!((3..=CHANGES as u64).contains(&notification["timesSent"].as_u64().unwrap()), "{found}");
        assert_eq!(notification["ended"]["delivered"], 0, "{found}");
        assert!(notification["ended"]["givenUp"].as_u64().unwrap() > 0, "{found}");
        assert!((3..=CHANGES as u64).contains(&notification["failsCounter"].as_u64().unwrap()), "{found}");
        let reason = notification["lastFailureReason"].as_str().unwrap();
        assert!(reason.contains("maxAge = 1 s") || reason.contains("503"), "{found}");
    }
    served.stop().await;
    world.close();
    busy.stop();
}

/// §15.3: while a receiver is down each new notification is tried at once and counts, whatever the pause before the next
/// retry. Those that failed stay in the queue, in order, and the first attempt that succeeds lets all of them through.
#[tokio::test(flavor = "multi_thread")]
async fn a_new_notification_is_tried_at_once_while_its_receiver_is_down() {
    let dir = tempfile::tempdir().unwrap();
    let pauses = NotificationsConfig { retry_first_ms: 600_000, retry_longest_ms: 600_000, ..Default::default() };
    let config = ContextConfig { notifications: pauses, ..ContextConfig::default() };
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut rows = Vec::new();
    for life in 0..2 {
        let world = World::open_with(dir.path(), Arc::new(Registry::default()), config.clone());
        let served = world.serve().await;
        if life == 0 {
            let http = |path: &str| ("http", json!({"url": format!("http://{address}{path}")}));
            for (path, (name, target), limit, queue) in [
                ("/durable", http("/durable"), 100, "durable"),
                ("/limited", http("/limited"), 2, "memory"),
                ("/limited-durable", http("/limited-durable"), 2, "durable"),
                ("mqtt", ("mqtt", json!({"url": format!("mqtt://{address}"), "topic": "t"})), 2, "memory"),
            ] {
                let notification = json!({name: target, "maxFailsLimit": limit, "delivery": {"queue": queue},
                    "attrsFormat": "simplifiedKeyValues"});
                let body = json!({"subject": {"entities": [{"id": "e"}]}, "notification": notification});
                rows.push((path, subscribe(&served, "", &body).await));
            }
            for t in 1..=3 {
                set_t(&served, "e", t).await;
                for (path, id) in &rows {
                    let has_failed = |shown: &Value| shown["notification"]["failsCounter"] == t;
                    let found = until_shown(&served, id, has_failed).await;
                    let is_over = *path != "/durable" && t == 3;
                    assert_eq!(found["status"], if is_over { "inactive" } else { "active" }, "{path}: {found}");
                    if !is_over {
                        assert_eq!(found["notification"]["queue"]["length"], t, "{path}: {found}");
                    }
                }
            }
            for (path, id) in &rows[1..] {
                let is_dropped = |shown: &Value| shown["notification"]["queue"]["dropped"] == 3;
                until_shown(&served, id, is_dropped).await;
                assert_eq!(patch(&served, id, &json!({"status": "inactive"})).await.status, 204, "{path}");
            }
        } else {
            set_t(&served, "e", 4).await;
            let failed = |shown: &Value| shown["notification"]["failsCounter"].as_u64() >= Some(4);
            let found = until_shown(&served, &rows[0].1, failed).await;
            assert_eq!(found["notification"]["failsCounter"], 4, "none counts again after a restart: {found}");
            let receiver = Receiver::answering(address, |_, _| Some(200)).await;
            set_t(&served, "e", 5).await;
            let received = receiver.under("/durable", 5).await;
            let ts: Vec<u64> = received.iter().map(|one| one.json()["t"].as_u64().unwrap()).collect();
            assert_eq!(ts, [1, 2, 3, 4, 5]);
            // What is taken from the queue counts a moment later.
            let has_recovered =
                |shown: &Value| ["queue", "failsCounter"].iter().all(|name| shown["notification"].get(*name).is_none());
            until_shown(&served, &rows[0].1, has_recovered).await;
            receiver.stop();
        }
        served.stop().await;
        world.close();
    }
}

/// §15.4: what waits goes to the URL that a PATCH has given, at once and as if nothing had been tried before.
#[tokio::test(flavor = "multi_thread")]
async fn waiting_notifications_go_to_the_new_url() {
    const CHANGES: usize = 6;
    let dir = tempfile::tempdir().unwrap();
    let pauses = NotificationsConfig { retry_first_ms: 600_000, retry_longest_ms: 600_000, ..Default::default() };
    let config = ContextConfig { notifications: pauses, ..ContextConfig::default() };
    let world = World::open_with(dir.path(), Arc::new(Registry::default()), config);
    let (served, living) = (world.serve().await, Receiver::start().await);
    // It takes everything and answers nothing: what is sent there may have been taken.
    let silent = Receiver::answering("127.0.0.1:0".parse().unwrap(), |_, _| None).await;
    let dead = "http://127.0.0.1:1/".to_owned();
    let mut rows = Vec::new();
    for (path, old, delivery) in [
        ("/waiting", dead.clone(), json!({"retry": "safe"})),
        ("/durable", dead.clone(), json!({"queue": "durable"})),
        ("/custom", dead.clone(), json!({"retry": "safe"})),
        ("/macros/e", dead + "macros/${id}", json!({"retry": "safe"})),
        ("/under-way", silent.url("/n"), json!({"retry": "never"})),
    ] {
        let name = if ["/custom", "/macros/e"].contains(&path) { "httpCustom" } else { "http" };
        let to = |url: &str, timeout_ms: u32| {
            let mut target = json!({"url": url, "timeout": timeout_ms});
            if name == "httpCustom" {
                target["headers"] = json!({"x": "${t}"});
                target["method"] = json!("PUT");
            }
            json!({"attrsFormat": "simplifiedKeyValues", "maxFailsLimit": CHANGES, "delivery": delivery, name: target})
        };
        let body = json!({"subject": {"entities": [{"id": "e"}]}, "notification": to(&old, 3_000)});
        let new = living.url(path).replace("macros/e", "macros/${id}");
        rows.push((path, subscribe(&served, "", &body).await, to(&new, 60_000)));
    }
    for t in 0..CHANGES {
        set_t(&served, "e", t).await;
    }
    silent.under("/n", 1).await;
    let (_, id, notification) = &rows[4];
    assert_eq!(patch(&served, id, &json!({"notification": notification})).await.status, 204);
    for (path, id, notification) in &rows[..4] {
        let has_failed = |shown: &Value| shown["notification"]["failsCounter"] == CHANGES;
        until_shown(&served, id, has_failed).await;
        assert_eq!(patch(&served, id, &json!({"notification": notification})).await.status, 204, "{path}");
    }
    for (path, id, _) in &rows {
        let received = living.under(path, CHANGES).await;
        let ts: Vec<u64> = received.iter().map(|one| one.json()["t"].as_u64().unwrap()).collect();
        assert_eq!(ts, (0..CHANGES as u64).collect::<Vec<_>>(), "{path}: all of them, in order");
        if *path == "/custom" {
            let first = &received[0];
            assert_eq!((first.line.as_str(), first.header("x")), ("PUT /custom HTTP/1.1", Some("0")));
        }
        let found = until_shown(&served, id, |shown| shown["notification"]["lastSuccessCode"] == 200).await;
        let notification = &found["notification"];
        assert_eq!((&found["status"], notification.get("failsCounter")), (&json!("active"), None), "{path}");
        assert_eq!(notification["queue"].get("dropped").unwrap_or(&json!(0)), 0, "{path}");
    }
    assert_eq!(silent.received().len(), 1, "the one that was under way");
    served.stop().await;
    world.close();
    living.stop();
    silent.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_that_never_answers_delays_nobody_else() {
    const CHANGES: usize = 300;
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path());
    let (served, healthy) = (world.serve().await, Receiver::start().await);
    let dead = Receiver::answering("127.0.0.1:0".parse().unwrap(), |_, _| None).await;
    // Far more subscriptions than the dead receiver may have connections.
    let body = |receiver: &Receiver| {
        let mut body = to(receiver, "/n", "x", Value::Null, &json!({"attrsFormat": "simplifiedKeyValues"}));
        body["subject"]["entities"] = json!([{"idPattern": ".*"}]);
        body["notification"]["http"]["timeout"] = json!(1_800_000);
        body
    };
    let mut stuck = String::new();
    for _ in 0..40 {
        stuck = subscribe(&served, "", &body(&dead)).await;
    }
    subscribe(&served, "", &body(&healthy)).await;
    for t in 0..CHANGES {
        set_t(&served, &format!("e{}", t % 8), t).await;
    }
    healthy.under("/n", CHANGES).await;
    eventually_async("the dead receiver's connections", || dead.connections() == 16).await;
    assert!(dead.received().len() <= 16, "one attempt on each connection, and none has ended");
    let queue = &shown(&served, &stuck).await["notification"]["queue"];
    assert_eq!(queue["length"], CHANGES, "what waits can be seen");
    served.stop().await;
    dead.stop();
    world.close();
    healthy.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_reaches_each_of_very_many_subscriptions() {
    const SUBSCRIPTIONS: usize = 150;
    const CHANGES: usize = 20;
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path());
    let (served, receiver) = (world.serve().await, Receiver::start().await);
    for number in 0..SUBSCRIPTIONS {
        let path = format!("/{number}");
        let body = to(&receiver, &path, "e", Value::Null, &json!({"attrsFormat": "simplifiedKeyValues"}));
        subscribe(&served, "", &body).await;
    }
    for t in 0..CHANGES {
        set_t(&served, "e", t).await;
    }
    for number in 0..SUBSCRIPTIONS {
        let received = receiver.under(&format!("/{number}"), CHANGES).await;
        let ts: Vec<u64> = received.iter().map(|one| one.json()["t"].as_u64().unwrap()).collect();
        assert_eq!(ts, (0..CHANGES as u64).collect::<Vec<_>>(), "of subscription {number}, in order");
    }
    served.stop().await;
    world.close();
    receiver.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_durable_queue_outlives_the_process() {
    const CHANGES: usize = 50;
    let dir = tempfile::tempdir().unwrap();
    let is_open = Arc::new(AtomicBool::new(false));
    let opened = is_open.clone();
    let receiver = Receiver::answering("127.0.0.1:0".parse().unwrap(), move |_, _| {
        Some(if opened.load(Ordering::Acquire) { 200 } else { 503 })
    })
    .await;
    let world = World::open(dir.path());
    let served = world.serve().await;
    let durable = |path: &str, queue: &str| {
        let notification = json!({"attrsFormat": "simplifiedKeyValues", "delivery": {"queue": queue}});
        let mut body = to(&receiver, path, "x", Value::Null, &notification);
        body["subject"]["entities"] = json!([{"idPattern": ".*"}]);
        body
    };
    let id = subscribe(&served, "", &durable("/durable", "durable")).await;
    subscribe(&served, "", &durable("/memory", "memory")).await;
    for t in 0..CHANGES {
        set_t(&served, &format!("e{}", t % 4), t).await;
    }
    until_shown(&served, &id, |shown| shown["notification"]["queue"]["length"] == CHANGES).await;
    served.stop().await;
    world.close();
    is_open.store(true, Ordering::Release);
    let before = receiver.received().len();
    let world = World::open(dir.path());
    let served = world.serve().await;
    let shown = until_shown(&served, &id, |shown| shown["notification"].get("queue").is_none()).await;
    assert_eq!(shown["notification"]["timesSent"], CHANGES);
    let received: Vec<Received> = receiver.received().split_off(before);
    assert!(received.iter().all(|one| one.path() == "/durable"), "what waits in memory is gone with the process");
    for entity in 0..4 {
        let of: Vec<usize> = (received.iter().map(Received::json))
            .filter(|body| body["id"] == format!("e{entity}"))
            .map(|body| body["t"].as_u64().unwrap() as usize)
            .collect();
        assert_eq!(of, (0..CHANGES).filter(|t| t % 4 == entity).collect::<Vec<_>>(), "each once, in order");
    }
    // A queue that is dropped does not come back.
    is_open.store(false, Ordering::Release);
    set_t(&served, "e0", 99).await;
    until_shown(&served, &id, |shown| shown["notification"]["queue"]["length"] == 1).await;
    assert_eq!(patch(&served, &id, &json!({"status": "inactive"})).await.status, 204);
    served.stop().await;
    world.close();
    is_open.store(true, Ordering::Release);
    let before = receiver.under("/durable", 0).await.len();
    let world = World::open(dir.path());
    let served = world.serve().await;
    assert_eq!(patch(&served, &id, &json!({"status": "active"})).await.status, 204);
    set_t(&served, "e0", 100).await;
    let after = receiver.under("/durable", before + 1).await;
    assert_eq!(after[before].json()["t"], 100);
    served.stop().await;
    world.close();
    receiver.stop();
}

/// Outcomes of notifications that come while the log has no room are stored once it has: they count, and nothing is sent again.
#[tokio::test(flavor = "multi_thread")]
async fn outcomes_on_a_full_disk_are_stored_later() {
    const CHANGES: usize = 20;
    if log_has_no_disk() {
        return;
    }
    let (dir, disk, is_open) = (tempfile::tempdir().unwrap(), Full::default(), Arc::new(AtomicBool::new(false)));
    let opened = is_open.clone();
    let receiver = Receiver::answering("127.0.0.1:0".parse().unwrap(), move |_, _| {
        Some(if opened.load(Ordering::Acquire) { 200 } else { 503 })
    })
    .await;
    let open = || World::open_on(dir.path(), Arc::new(disk.clone()), Arc::default(), ContextConfig::default());
    let world = open();
    let served = world.serve().await;
    let mut ids = Vec::new();
    for queue in ["durable", "memory"] {
        let delivery = json!({"queue": queue, "retry": "always", "maxAge": 600});
        let mut body = to(&receiver, &format!("/{queue}"), "e", Value::Null, &json!({"delivery": delivery}));
        body["subject"]["entities"] = json!([{"idPattern": "^e"}]);
        ids.push(subscribe(&served, "", &body).await);
    }
    for t in 0..CHANGES {
        set_t(&served, &format!("e{t}"), t).await;
    }
    for id in &ids {
        until_shown(&served, id, |shown| shown["notification"]["failsCounter"].as_u64() > Some(0)).await;
    }
    disk.fill(true);
    while served.ask("POST /v2/entities?options=upsert", Some(r#"{"id": "nobody"}"#)).await.status != 503 {}
    is_open.store(true, Ordering::Release);
    for path in ["/durable", "/memory"] {
        eventually_async("all are sent", || {
            let all = receiver.received();
            let received = all.iter().filter(|one| one.path() == path);
            received.map(|one| one.json()["data"][0]["id"].clone().to_string()).collect::<BTreeSet<_>>().len()
                == CHANGES
        })
        .await;
    }
    disk.fill(false);
    for id in &ids {
        until_shown(&served, id, |shown| shown["notification"]["ended"]["delivered"] == CHANGES).await;
        until_shown(&served, id, |shown| shown["notification"].get("queue").is_none()).await;
    }
    served.stop().await;
    world.close();
    let before = receiver.received().len();
    let world = open();
    let served = world.serve().await;
    set_t(&served, "e", 1).await;
    for id in &ids {
        until_shown(&served, id, |shown| shown["notification"]["ended"]["delivered"] == CHANGES + 1).await;
    }
    let ids_after: Vec<Value> =
        receiver.received()[before..].iter().map(|one| one.json()["data"][0]["id"].clone()).collect();
    assert_eq!(ids_after, ["e"; 2]);
    served.stop().await;
    world.close();
    receiver.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_counts_once_across_restarts() {
    let dir = tempfile::tempdir().unwrap();
    let is_open = Arc::new(AtomicBool::new(false));
    let opened = is_open.clone();
    let receiver = Receiver::answering("127.0.0.1:0".parse().unwrap(), move |_, _| {
        Some(if opened.load(Ordering::Acquire) { 200 } else { 503 })
    })
    .await;
    let durable = json!({"attrsFormat": "simplifiedKeyValues", "maxFailsLimit": 2, "delivery": {"queue": "durable"}});
    let mut ids = Vec::new();
    for life in 0..4 {
        let world = World::open(dir.path());
        let served = world.serve().await;
        if life == 0 {
            for (path, status) in [("/active", "active"), ("/once", "oneshot")] {
                let mut body = to(&receiver, path, "e", Value::Null, &durable);
                body["status"] = json!(status);
                ids.push(subscribe(&served, "", &body).await);
            }
            set_t(&served, "e", 0).await;
        }
        for (id, path) in ids.iter().zip(["/active", "/once"]) {
            receiver.under(path, life + 1).await;
            let found = until_shown(&served, id, |shown| shown["notification"].get("failsCounter").is_some()).await;
            assert_eq!(found["notification"]["failsCounter"], 1, "in life {life}: {found}");
        }
        // Ends with the reports of what was tried.
        served.stop().await;
        world.close();
    }
    let world = World::open(dir.path());
    let served = world.serve().await;
    let active = shown(&served, &ids[0]).await;
    assert_eq!((&active["status"], &active["notification"]["failsCounter"]), (&json!("active"), &json!(1)), "{active}");
    set_t(&served, "e", 1).await;
    is_open.store(true, Ordering::Release);
    let is_told = |shown: &Value| {
        let shown = &shown["notification"];
        shown["timesSent"] == 2 && shown.get("queue").is_none() && shown.get("failsCounter").is_none()
    };
    until_shown(&served, &ids[0], is_told).await;
    is_open.store(false, Ordering::Release);
    set_t(&served, "e", 2).await;
    let found = until_shown(&served, &ids[0], |shown| shown["notification"].get("failsCounter").is_some()).await;
    assert_eq!(found["notification"]["failsCounter"], 1, "{found}");
    served.stop().await;
    world.close();
    receiver.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_notification_is_not_sent_and_throttling_does_not_age_it() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path());
    let (served, receiver) = (world.serve().await, Receiver::start().await);
    let silent = Receiver::answering("127.0.0.1:0".parse().unwrap(), |_, _| None).await;
    let body = |receiver: &Receiver, path: &str, throttled: &str| {
        let delivery = json!({"retry": "never", "maxAge": 5, "throttled": throttled});
        to(receiver, path, "e", Value::Null, &json!({"attrsFormat": "simplifiedKeyValues", "delivery": delivery}))
    };
    let mut slow = body(&silent, "/slow", "drop");
    slow["notification"]["http"]["timeout"] = json!(6_000);
    let slow = subscribe(&served, "", &slow).await;
    let mut held = body(&receiver, "/held", "latest");
    held["throttling"] = json!(6);
    subscribe(&served, "", &held).await;
    set_t(&served, "e", 0).await;
    silent.under("/slow", 1).await;
    set_t(&served, "e", 1).await;
    // The first attempt takes longer than the second notification may wait.
    let has_ended = |shown: &Value| {
        let shown = &shown["notification"];
        shown["timesSent"] == 2 && shown.get("queue").is_none() && shown["failsCounter"] == 2
    };
    let ended = until_shown(&served, &slow, has_ended).await;
    let reason = ended["notification"]["lastFailureReason"].as_str().unwrap();
    assert!(reason.contains("maxAge = 5 s"), "what was never sent counts as well: {reason}");
    assert_eq!(silent.received().len(), 1);
    assert_eq!(receiver.under("/held", 2).await[1].json()["t"], 1, "after longer than it is tried");
    served.stop().await;
    world.close();
    silent.stop();
    receiver.stop();
}
