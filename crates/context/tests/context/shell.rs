//! Routes around the operations: pages of other origins, and the version.

use std::sync::Arc;

use millstream_context::ContextConfig;
use millstream_testkit::eventually;
use serde_json::json;

use crate::refusals::{ask, check};
use crate::world::{BUILD, Registry, World};

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_a_named_origin_may_call_and_read() {
    let allowed = "Authorization, Content-Type, Fiware-Service, Fiware-Servicepath, Ngsiv2-AttrsFormat, \
        Fiware-Correlator, X-Forwarded-For, X-Real-IP, X-Auth-Token, If-Match, If-None-Match";
    for (setting, origin, shown) in [
        ("", "https://a.example", None),
        ("__ALL", "https://a.example", Some("*")),
        ("https://a.example", "https://a.example", Some("https://a.example")),
        ("https://a.example", "https://b.example", None),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let config = ContextConfig { cors_origin: setting.to_owned(), ..ContextConfig::default() };
        let world = World::open_with(dir.path(), Arc::new(Registry::default()), config);
        let served = world.serve().await;
        let read = served.ask(&format!("GET /v2/entities\norigin: {origin}"), None).await;
        assert_eq!(read.header("access-control-allow-origin"), shown, "{setting} {origin}");
        let exposed = shown.map(|_| "Fiware-Correlator, Fiware-Total-Count, Location, ETag");
        assert_eq!(read.header("access-control-expose-headers"), exposed, "{setting} {origin}");
        let head = format!("OPTIONS /v2/entities\norigin: {origin}\naccess-control-request-method: POST");
        let preflight = served.ask(&head, None).await;
        assert_eq!(preflight.header("access-control-allow-headers"), shown.map(|_| allowed), "{setting} {origin}");
        assert_eq!(preflight.header("access-control-max-age"), shown.map(|_| "86400"), "{setting} {origin}");
        let methods = preflight.header("access-control-allow-methods");
        assert_eq!(methods.is_some_and(|methods| methods.contains("POST")), shown.is_some(), "{setting} {origin}");
        let plain = served.ask("GET /v2/entities", None).await;
        assert_eq!(plain.header("access-control-allow-origin"), None, "without an origin");
        served.stop().await;
        world.close();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_version_stands_under_orions_key() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path());
    let served = world.serve().await;
    let version = served.get("/version").await.json();
    assert_eq!(version["orion"]["version"], env!("CARGO_PKG_VERSION"), "{version}");
    assert!(version["orion"]["uptime"].as_str().unwrap().starts_with("0 d, 0 h, "), "{version}");
    for (key, expected) in [
        ("git_hash", json!(BUILD.git_hash)),
        ("compile_time", json!("2014-05-13T16:53:20.000Z")),
        ("compiled_by", json!("unknown")),
        ("compiled_in", json!("unknown")),
        ("release_date", json!("2014-05-13T16:53:20.000Z")),
        ("doc", json!(env!("CARGO_PKG_REPOSITORY"))),
        ("machine", json!(std::env::consts::ARCH)),
        ("libversions", json!({"tokio": "1.2.3", "zstd": "unknown", "rustc": "rustc 1.95.0"})),
    ] {
        assert_eq!(version["orion"][key], expected, "{version}");
    }
    check(&ask(&served, "POST /version", Some("{}")).await, 405, "MethodNotAllowed", "POST", "POST /version");
    served.stop().await;
    world.close();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_path_may_end_in_a_slash_and_normalized_is_the_default() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path());
    let served = world.serve().await;
    let made = served.ask("POST /v2/entities/?options=normalized", Some(r#"{"id":"a","n":{"value":1}}"#)).await;
    assert_eq!(made.status, 201);
    let plain = served.get("/v2/entities").await.json();
    for target in ["/v2/entities/", "/v2/entities?options=normalized", "/v2/entities/?options=count,normalized"] {
        let answer = served.get(target).await;
        assert_eq!((answer.status, answer.json()), (200, plain.clone()), "{target}");
    }
    for target in ["/v2/subscriptions/", "/v2/types/", "/v2/entities/a/attrs/", "/v2/entities/a/"] {
        assert_eq!(served.get(target).await.status, 200, "{target}");
    }
    for target in ["/v2/entities//", "/v2/nothing/"] {
        let answer = served.get(target).await;
        assert_eq!((answer.status, answer.json()["error"].as_str().unwrap()), (400, "BadRequest"), "{target}");
    }
    assert_eq!(served.ask("PUT /v2/entities/", Some("{}")).await.status, 405);
    served.stop().await;
    world.close();
}

#[tokio::test(flavor = "multi_thread")]
async fn statistics_show_uptime_mapping_errors_and_subscription_counters() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path());
    let served = world.serve().await;
    let statistics = served.get("/statistics").await.json();
    assert!(statistics["uptime_in_secs"].is_u64() && statistics["measuring_interval_in_secs"].is_u64(), "{statistics}");
    assert_eq!(statistics.as_object().unwrap().len(), 2, "no block is switched on");
    let topic = world.make_telemetry("default");
    world.measure(&topic, "d", 0, "no JSON");
    eventually("the trouble", || world.context.stats().unmapped_measurements == 1);
    let trouble = served.get("/statistics").await.json()["millstream"]["mapping"].clone();
    assert_eq!((&trouble["device"], &trouble["count"]), (&serde_json::json!("d"), &serde_json::json!(1)));
    let foreign = served.ask("GET /statistics\nfiware-service: other", None).await.json();
    assert_eq!(foreign["millstream"], serde_json::Value::Null, "troubles are the tenant's own");

    let body = r#"{"subject":{"entities":[{"id":"a"}]},"notification":{"http":{"url":"http://127.0.0.1:1/"}}}"#;
    let mut ids = Vec::new();
    for _ in 0..2 {
        let made = served.ask("POST /v2/subscriptions", Some(body)).await;
        ids.push(made.header("location").unwrap().rsplit('/').next().unwrap().to_owned());
    }
    let path = format!("/v2/subscriptions/{}", ids[0]);
    assert_eq!(served.ask(&format!("PATCH {path}"), Some(r#"{"throttling":1}"#)).await.status, 204);
    assert_eq!(served.ask(&format!("DELETE {path}"), None).await.status, 204);
    let shown = |inserts: u64, updates: u64, removes: u64| {
        serde_json::json!({
            "ids": ids[1], "refreshs": 0, "inserts": inserts, "updates": updates, "removes": removes, "items": 1,
        })
    };
    assert_eq!(served.get("/cache/statistics").await.json(), shown(2, 1, 1));
    for target in ["/cache/statistics", "/statistics"] {
        let reset = served.ask(&format!("DELETE {target}"), None).await;
        assert!(reset.status == 200 && reset.json()["message"].is_string(), "{target}");
    }
    assert_eq!(served.get("/cache/statistics").await.json(), shown(0, 0, 0));
    served.stop().await;
    world.close();
}
