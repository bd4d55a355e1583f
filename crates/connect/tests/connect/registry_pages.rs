//! Pages of other origins that call the registry.

use millstream_connect::ConnectConfig;

use crate::world::{World, quick};

const PAGE: (&str, &str) = ("origin", "http://page");

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_of_the_origin_that_is_set_may_call_the_registry_and_no_others() {
    for (setting, allowed) in [("", None), ("http://page", Some("http://page")), ("*", Some("*"))] {
        let dir = tempfile::tempdir().unwrap();
        let config = ConnectConfig { registry_cors_origin: setting.to_owned(), ..quick() };
        let world = World::open_with(dir.path(), config).await;
        for (path, method) in [("/v1/tenants/T", "POST"), ("/v1/devices/T/d", "PUT"), ("/v1/credentials/T/d", "PUT")] {
            let asked = [PAGE, ("access-control-request-method", method)];
            let answer = world.registry(&format!("OPTIONS {path}"), &asked, "").await;
            assert_eq!(answer.header("access-control-allow-origin"), allowed, "{setting} {path}");
            let headers = answer.header("access-control-allow-headers");
            assert_eq!(headers, allowed.map(|_| "authorization, content-type, if-match"), "{setting} {path}");
            let methods = answer.header("access-control-allow-methods");
            assert_eq!(methods.is_some_and(|methods| methods.contains(method)), allowed.is_some(), "{setting} {path}");
        }
        let answer = world.registry("POST /v1/tenants/T", &[PAGE], "{}").await;
        assert_eq!(answer.status, if allowed.is_some() { 201 } else { 403 }, "{setting}");
        assert_eq!(answer.header("access-control-expose-headers"), allowed.map(|_| "etag, location"), "{setting}");
        let other = [("origin", "http://other")];
        let answer = world.registry("POST /v1/tenants/U", &other, "{}").await;
        assert_eq!(answer.status, if setting == "*" { 201 } else { 403 }, "{setting}");
        world.stop().await;
    }
    let refusal = ConnectConfig { registry_cors_origin: "a\nb".to_owned(), ..quick() }.validate().unwrap_err();
    assert!(refusal.to_string().contains("connect.registry_cors_origin = a"), "{refusal}");
}
