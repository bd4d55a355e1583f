//! Alarms of section 18.3 that are of no notification: the log takes nothing, a client sends what cannot be taken.

use std::sync::Arc;

use millstream_context::ContextConfig;
use serde_json::{Value, json};

use crate::disk::Full;
use crate::world::{Served, World, log_has_no_disk};

/// Those that are raised, asked for by somebody with whom nothing goes wrong.
async fn alarms(served: &Served) -> Value {
    served.ask("GET /statistics\nx-real-ip: 1.1.1.1", None).await.json()["millstream"]["alarms"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_is_an_alarm_until_writing_begins_anew() {
    if log_has_no_disk() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let disk = Full::default();
    let open = || World::open_on(dir.path(), Arc::new(disk.clone()), Arc::default(), ContextConfig::default());
    let world = open();
    let served = world.serve().await;
    let create = async |served: &Served, id: &str| {
        let body = json!({"id": id}).to_string();
        served.ask("POST /v2/entities", Some(&body)).await.status
    };
    assert_eq!(create(&served, "a").await, 201);
    assert_eq!(alarms(&served).await, Value::Null);
    disk.refuse(true);
    for id in ["b", "c"] {
        assert_eq!(create(&served, id).await, 503);
        assert_eq!(alarms(&served).await, json!(["DatabaseError"]));
    }
    assert_eq!(served.get("/v2/entities/a").await.status, 200);
    assert_eq!(alarms(&served).await, json!(["DatabaseError"]), "a read stores nothing");
    served.stop().await;
    world.abandon();
    disk.refuse(false);
    let world = open();
    let served = world.serve().await;
    assert_eq!(create(&served, "b").await, 201);
    assert_eq!(alarms(&served).await, Value::Null);
    served.stop().await;
    world.close();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_whose_requests_cannot_be_taken_is_an_alarm_until_one_can() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path());
    let served = world.serve().await;
    let as_client = |head: &str| format!("{head}\nx-real-ip: 9.9.9.9");
    for (head, body) in [
        ("POST /v2/entities", Some("{")),
        ("POST /v2/entities", None),
        ("POST /v2/entities\ncontent-type: text/plain", Some("x")),
        ("GET /v2/entities?options=fast", None),
    ] {
        assert!(served.ask(&as_client(head), body).await.status >= 400, "{head}");
        assert_eq!(alarms(&served).await, json!(["BadInput 9.9.9.9"]), "{head}");
        assert_eq!(served.ask(&as_client("GET /v2/entities/none"), None).await.status, 404);
        assert_eq!(alarms(&served).await, json!(["BadInput 9.9.9.9"]), "what is not there is neither");
        assert_eq!(served.ask(&as_client("GET /v2/entities"), None).await.status, 200);
        assert_eq!(alarms(&served).await, Value::Null, "{head}");
    }
    // Read by the fast head; the client is the other end of the connection.
    assert_eq!(served.ask_kept("POST /v2/entities/e/attrs", Some("{")).await.status, 400);
    assert_eq!(alarms(&served).await, json!(["BadInput 127.0.0.1"]));
    assert_eq!(served.ask_kept("POST /v2/entities?options=keyValues", Some(r#"{"id":"e"}"#)).await.status, 201);
    assert_eq!(alarms(&served).await, Value::Null);
    served.stop().await;
    world.close();
}
