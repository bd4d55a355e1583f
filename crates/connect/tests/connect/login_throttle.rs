//! Logins that fail too often by one name, or from one address, are refused unchecked.

use std::sync::Arc;
use std::time::Duration;

use millstream_net::{LoginProtocol, LoginThrottle};
use millstream_testkit::mqtt::{Mqtt, connect};
use millstream_types::ManualClock;
use serde_json::json;

use crate::signer::Signer;
use crate::token_logins::claims;
use crate::world::{World, basic, connect_from};

const HERE: &str = "127.0.0.1";
const ELSEWHERE: &str = "127.0.0.2";

/// A tenant with the devices `known` and `new`, whose passwords hash slowly, and `quick`, whose password hashes fast.
async fn open(dir: &std::path::Path, failures_per_minute: u32) -> (World, Arc<LoginThrottle>, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::at(0));
    let throttle = Arc::new(LoginThrottle::new(failures_per_minute, clock.clone()));
    let world = World::open_throttled(dir, throttle.clone()).await;
    for device in ["known", "new"] {
        world.register("T", device).await;
    }
    world.do_registry("POST /v1/devices/T/quick", "", 201).await;
    // SHA-512 of "secret" after the salt 1, 2, 3, 4.
    let hash = "+FMfYvkcZgHUtY6uf5im+5CZU5coaqCy6IlEhlMgtGgS9uVImj9YCzKbchlN+5ohorkpHajkrAV9O/oqzF8wgQ==";
    let secret = json!({"hash-function": "sha-512", "salt": "AQIDBA==", "pwd-hash": hash});
    let body = json!([{"type": "hashed-password", "auth-id": "quick", "secrets": [secret]}]);
    world.do_registry("PUT /v1/credentials/T/quick", &body.to_string(), 204).await;
    (world, throttle, clock)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_with_too_many_failed_http_logins_gets_429_and_its_neighbours_pass_until_far_more_fail() {
    let dir = tempfile::tempdir().unwrap();
    let (world, throttle, clock) = open(dir.path(), 4).await;
    world.register("T", "late").await;
    let signer = Signer::new();
    world.do_registry("POST /v1/devices/T/signs", "", 201).await;
    world.do_registry("PUT /v1/credentials/T/signs", &signer.credential("signs"), 204).await;
    let send = async |local: &str, login: &str| {
        world.device_from(local, "POST /telemetry", &[("authorization", login)], b"x").await
    };
    let (known, wrong) = (basic("known@T", "pw"), basic("known@T", "no"));
    assert_eq!(send(HERE, &known).await.status, 202);
    for _ in 0..4 {
        assert_eq!(send(HERE, &wrong).await.status, 401);
    }
    let refused = send(HERE, &wrong).await;
    refused.expect_problem(429, HERE, "listen.login_failures_per_minute = 4; the next is checked in 15 s");
    assert_eq!(refused.header("retry-after"), Some("15"));
    assert_eq!(send(HERE, &known).await.status, 202, "a device that is known");
    for neighbour in [basic("new@T", "pw"), basic("quick@T", "secret")] {
        assert_eq!(send(HERE, &neighbour).await.status, 202, "{neighbour}");
    }
    assert_eq!(send(HERE, "Bearer no").await.status, 401);
    for number in 0..26 {
        let guess = send(HERE, &basic(&format!("guess-{number}@T"), "no")).await;
        assert_eq!(guess.status, 401, "{number}");
    }
    // As many names have failed as an address may have: right or wrong, none is checked.
    for unchecked in [basic("nobody@T", "no"), basic("late@T", "pw"), "Bearer no".to_owned()] {
        send(HERE, &unchecked).await.expect_problem(429, HERE, "listen.login_failures_per_minute = 4");
    }
    assert_eq!(send(HERE, &known).await.status, 202, "a device that is known");
    let signed = format!("Bearer {}", signer.token(&claims(&json!({"sub": "signs"}))));
    assert_eq!(send(HERE, &signed).await.status, 202, "a right token");
    assert_eq!(send(ELSEWHERE, &wrong).await.status, 401);
    clock.advance(Duration::from_secs(15));
    assert_eq!(send(HERE, &basic("late@T", "pw")).await.status, 202, "a success uses up nothing");
    assert_eq!(send(HERE, &wrong).await.status, 401);
    assert_eq!(send(HERE, &wrong).await.status, 429);
    assert_eq!((throttle.failed(LoginProtocol::Http), throttle.throttled(LoginProtocol::Http)), (33, 5));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_with_too_many_failed_mqtt_logins_is_refused_and_its_neighbours_pass() {
    // Of MQTT 3.1.1 bad user name or password and server unavailable; of MQTT 5 connection rate exceeded.
    for (level, wrong, throttled) in [(4, 0x04, 0x03), (5, 0x86, 0x9F)] {
        let dir = tempfile::tempdir().unwrap();
        let (world, throttle, clock) = open(dir.path(), 2).await;
        let log_in = async |local: &str, user: &str, password: &str| {
            let mut client = Mqtt::over(connect_from(local, world.mqtt()).await, level);
            client.send(&connect(level, 60, Some((user, password)))).await;
            let (first_byte, body) = client.next().await;
            assert_eq!(first_byte, 0x20);
            client.finish().await;
            body
        };
        assert_eq!(log_in(HERE, "known@T", "pw").await[1], 0);
        for _ in 0..2 {
            assert_eq!(log_in(HERE, "known@T", "no").await[1], wrong);
        }
        let answer = log_in(HERE, "known@T", "no").await;
        assert_eq!(answer[1], throttled);
        let told = String::from_utf8_lossy(&answer);
        assert!(level == 4 || told.contains("listen.login_failures_per_minute = 2"), "{told}");
        for (user, password) in [("known@T", "pw"), ("new@T", "pw"), ("quick@T", "secret")] {
            assert_eq!(log_in(HERE, user, password).await[1], 0, "{user}");
        }
        assert_eq!(log_in(ELSEWHERE, "known@T", "no").await[1], wrong);
        clock.advance(Duration::from_secs(30));
        assert_eq!(log_in(HERE, "known@T", "no").await[1], wrong);
        assert_eq!((throttle.failed(LoginProtocol::Mqtt), throttle.throttled(LoginProtocol::Mqtt)), (4, 1));
        world.stop().await;
    }
}
