//! A login is hashed once and remembered until the credentials change.

use serde_json::json;

use crate::world::{World, basic, credentials, quick};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_of_credentials_acts_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path()).await;
    world.register("T", "d").await;
    for round in 0..20 {
        let (old, new) = (format!("pw{}", round - 1), format!("pw{round}"));
        world.do_registry("PUT /v1/credentials/T/d", &credentials("d", &new), 204).await;
        for (password, status) in [(&old, 401), (&new, 202), (&old, 401), (&new, 202)] {
            let login = basic("d@T", password);
            let answer = world.device("POST /telemetry", &[("authorization", &login)], b"x").await;
            assert_eq!(answer.status, status, "round {round}, {password}");
        }
    }
    world.do_registry("PUT /v1/credentials/T/d", "[]", 204).await;
    let login = basic("d@T", "pw19");
    world.device("POST /event", &[("authorization", &login)], b"x").await.expect_problem(401, "d@T", "credential");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_auth_id_can_move_to_another_device() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path()).await;
    world.register("T", "a").await;
    world.do_registry("POST /v1/devices/T/b", "", 201).await;
    let login = basic("a@T", "pw");
    let headers = [("authorization", login.as_str())];
    assert_eq!(world.device("PUT /telemetry//a", &headers, b"x").await.status, 202);
    world.do_registry("PUT /v1/credentials/T/a", "[]", 204).await;
    world.do_registry("PUT /v1/credentials/T/b", &credentials("a", "pw"), 204).await;
    assert_eq!(world.device("PUT /telemetry//b", &headers, b"x").await.status, 202);
    world.device("PUT /telemetry//a", &headers, b"x").await.expect_problem(403, "a", "via of the device names 'b'");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_moves_from_one_secret_to_the_next() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path()).await;
    world.register("default", "d").await;
    let id = world.do_registry("GET /v1/credentials/default/d", "", 200).await.json()[0]["secrets"][0]["id"].clone();
    let both = json!([{"type": "hashed-password", "auth-id": "d", "secrets": [{"id": id}, {"pwd-plain": "next"}]}]);
    world.do_registry("PUT /v1/credentials/default/d", &both.to_string(), 204).await;
    // The second is for the tenant `default`, which needs no name.
    for login in [basic("d@default", "pw"), basic("d", "next")] {
        assert_eq!(world.device("POST /telemetry", &[("authorization", &login)], b"x").await.status, 202);
    }
    let ended = json!([{"type": "hashed-password", "auth-id": "d", "secrets": [
        {"id": id, "not-after": "2020-01-01T00:00:00Z"}, {"pwd-plain": "next"}]}]);
    world.do_registry("PUT /v1/credentials/default/d", &ended.to_string(), 204).await;
    for (password, status) in [("pw", 401), ("next", 202)] {
        let login = basic("d", password);
        assert_eq!(world.device("POST /telemetry", &[("authorization", &login)], b"x").await.status, status);
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_queue_of_logins_stops_nobody_who_is_logged_in() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = quick();
    config.logins_max_waiting = 0;
    let world = World::open_with(dir.path(), config).await;
    world.register("T", "slow").await;
    world.do_registry("POST /v1/devices/T/fast", "", 201).await;
    // SHA-512 of "secret" after the salt 1, 2, 3, 4.
    let hash = "+FMfYvkcZgHUtY6uf5im+5CZU5coaqCy6IlEhlMgtGgS9uVImj9YCzKbchlN+5ohorkpHajkrAV9O/oqzF8wgQ==";
    let secret = json!({"hash-function": "sha-512", "salt": "AQIDBA==", "pwd-hash": hash});
    let body = json!([{"type": "hashed-password", "auth-id": "fast", "secrets": [secret]}]);
    world.do_registry("PUT /v1/credentials/T/fast", &body.to_string(), 204).await;
    let (slow, fast) = (basic("slow@T", "pw"), basic("fast@T", "secret"));
    for _ in 0..3 {
        let refused = world.device("POST /telemetry", &[("authorization", &slow)], b"x").await;
        refused.expect_problem(503, "0", "connect.logins_max_waiting = 0");
        assert!(refused.body.contains("overloaded"));
        assert_eq!(world.device("POST /telemetry", &[("authorization", &fast)], b"x").await.status, 202);
    }
    assert_eq!(world.connect.stats().logins_cached, 1);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_more_logins_are_remembered_than_the_limit() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = quick();
    config.logins_cached_max = 32;
    let world = World::open_with(dir.path(), config).await;
    for n in 0..60 {
        let device = format!("d{n}");
        world.register("T", &device).await;
        let login = basic(&format!("{device}@T"), "pw");
        for _ in 0..2 {
            assert_eq!(world.device("POST /telemetry", &[("authorization", &login)], b"x").await.status, 202);
        }
    }
    let stats = world.connect.stats();
    assert!((1..=32).contains(&stats.logins_cached), "{stats:?}");
    assert_eq!((stats.tenants, stats.devices, stats.logins_waiting), (2, 60, 0));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_registered_device_can_be_looked_up() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path()).await;
    world.do_registry("POST /v1/devices/default/d", r#"{"ext":{"entity":{"type":"Pump"}}}"#, 201).await;
    let registry = world.connect.registry().clone();
    let device = registry.device(&Default::default(), "d").unwrap();
    assert_eq!(device.ext["entity"]["type"], "Pump");
    assert!(registry.device(&Default::default(), "e").is_none());
    assert!(registry.device(&millstream_types::TenantId::new("T").unwrap(), "d").is_none());
    drop(registry);
    world.stop().await;
}
