//! Targets in Kafka: what is stored, shown and kept by changes, and brokers that misbehave. Real clients read the records in
//! `server/tests/kafka_clients`.

use std::net::SocketAddr;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::receiver::Receiver;
use crate::subscriptions::{patch, shown, subscribe, until_notification};
use crate::world::{Served, World};

fn subscription(kind: &str, target: Value) -> Value {
    json!({"subject": {"entities": [{"idPattern": ".*"}]}, "notification": {kind: target}})
}

/// How the notification of a subscription is shown.
async fn notification(served: &Served, id: &str) -> Value {
    shown(served, id).await["notification"].clone()
}

/// C1.
#[tokio::test(flavor = "multi_thread")]
async fn a_target_is_shown_as_it_was_sent_without_its_password() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path());
    let served = world.serve().await;
    let plain = json!({"url": "kafka://a:9092,b:9093", "topic": "t.x"});
    let with = |name: &str, value: Value| {
        let mut target = plain.clone();
        target[name] = value;
        target
    };
    let mut login = plain.clone();
    for (name, value) in [("user", "u"), ("passwd", "secret"), ("saslMechanism", "SCRAM-SHA-256")] {
        login[name] = json!(value);
    }
    let mut shown_login = login.clone();
    (shown_login["passwd"], shown_login["securityProtocol"]) = (json!("*****"), json!("SASL_SSL"));
    let mut open_login = login.clone();
    open_login["securityProtocol"] = json!("SASL_PLAINTEXT");
    let mut shown_open = shown_login.clone();
    shown_open["securityProtocol"] = json!("SASL_PLAINTEXT");
    let custom = json!({"url": "kafka://a:1", "topic": "t-${type}", "key": "${id}", "headers": {"x-${id}": "%22${t}%22"},
        "json": {"v": "${t}"}});
    let rows = [
        ("kafka", plain.clone(), plain.clone()),
        ("kafka", with("key", Value::Null), with("key", Value::Null)),
        ("kafka", with("key", json!("")), with("key", json!(""))),
        ("kafka", with("key", json!("k")), with("key", json!("k"))),
        ("kafka", with("securityProtocol", json!("SSL")), with("securityProtocol", json!("SSL"))),
        ("kafka", login, shown_login),
        ("kafka", open_login, shown_open),
        ("kafkaCustom", with("payload", Value::Null), with("payload", Value::Null)),
        ("kafkaCustom", with("payload", json!("")), plain.clone()),
        ("kafkaCustom", custom.clone(), custom),
    ];
    for (kind, sent, expected) in rows {
        let id = subscribe(&served, "", &subscription(kind, sent)).await;
        assert_eq!(notification(&served, &id).await[kind], expected);
    }
    served.stop().await;
    world.close();
}

/// C3: a change replaces the target; a target of the same kind keeps a key and headers that are left out.
#[tokio::test(flavor = "multi_thread")]
async fn a_changed_target_of_the_same_kind_keeps_key_and_headers() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path());
    let served = world.serve().await;
    let url = "kafka://h:1";
    let login = json!({"url": url, "topic": "t", "key": "k", "user": "u", "passwd": "p", "saslMechanism": "PLAIN"});
    let id = subscribe(&served, "", &subscription("kafka", login)).await;
    let custom = json!({"url": url, "topic": "c", "key": "${id}", "headers": {"a": "b"}, "payload": "x"});
    let rows = [
        ("kafka", json!({"url": url, "topic": "u"}), json!({"url": url, "topic": "u", "key": "k"})),
        ("kafka", json!({"url": url, "topic": "u", "key": null}), json!({"url": url, "topic": "u", "key": null})),
        ("http", json!({"url": "http://h/"}), json!({"url": "http://h/"})),
        ("kafka", json!({"url": url, "topic": "u"}), json!({"url": url, "topic": "u"})),
        ("kafkaCustom", custom.clone(), custom),
        (
            "kafkaCustom",
            json!({"url": url, "topic": "d"}),
            json!({"url": url, "topic": "d", "key": "${id}", "headers": {"a": "b"}}),
        ),
        ("kafka", json!({"url": url, "topic": "t"}), json!({"url": url, "topic": "t"})),
    ];
    for (kind, sent, expected) in rows {
        let change = json!({"notification": {kind: sent}});
        let answer = patch(&served, &id, &change).await;
        assert_eq!(answer.status, 204, "{change}: {answer:?}");
        let shown = notification(&served, &id).await;
        assert_eq!(shown[kind], expected, "{change}");
        let kinds = ["http", "kafka", "kafkaCustom"].into_iter().filter(|kind| shown.get(kind).is_some());
        assert_eq!(kinds.collect::<Vec<_>>(), [kind]);
    }
    served.stop().await;
    world.close();
}

/// Takes connections and answers each request with these bytes; nothing if there are none.
async fn broker(answer: &'static [u8]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut socket, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let mut heard = [0; 4_096];
                while socket.read(&mut heard).await.is_ok_and(|count| count > 0) {
                    if !answer.is_empty() && socket.write_all(answer).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

#[tokio::test(flavor = "multi_thread")]
async fn brokers_that_hang_or_answer_rubbish_delay_nobody_else() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path());
    let served = world.serve().await;
    let receiver = Receiver::start().await;
    let brokers = [
        broker(b"").await,
        broker(b"HTTP/1.1 400 Bad Request\r\n\r\n").await,
        broker(b"\x7f\xff\xff\xff").await,
        broker(b"\x00\x00\x00\x0a\x00\x00\x00\x01\x00\x00\x7f\xff\xff\xff").await,
    ];
    let mut ids = Vec::new();
    for broker in brokers {
        let target = json!({"url": format!("kafka://{broker}"), "topic": "t"});
        ids.push(subscribe(&served, "", &subscription("kafka", target)).await);
    }
    subscribe(&served, "", &subscription("http", json!({"url": receiver.url("/n")}))).await;
    let entity = json!({"id": "e", "type": "T", "t": {"value": 1}});
    assert_eq!(served.ask("POST /v2/entities", Some(&entity.to_string())).await.status, 201);
    receiver.under("/n", 1).await;
    for id in ids {
        let shown = until_notification(&served, &id, |shown| shown["failsCounter"] == 1).await;
        assert_eq!((&shown["timesSent"], shown.get("lastSuccess")), (&json!(1), None), "{shown}");
    }
    served.stop().await;
    world.close();
}
