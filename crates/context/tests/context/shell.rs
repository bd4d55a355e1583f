//! What surrounds the operations: pages of other origins, and the version.

use std::sync::Arc;

use millstream_context::ContextConfig;

use crate::refusals::{ask, check};
use crate::world::{Registry, World};

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
    check(&ask(&served, "POST /version", Some("{}")).await, 405, "MethodNotAllowed", "POST", "POST /version");
    served.stop().await;
    world.close();
}
