//! Devices that log in with JSON Web Tokens, over HTTP and MQTT.

use millstream_testkit::mqtt::{Hello, Mqtt};
use serde_json::{Value, json};

use crate::signer::{Signer, now_s};
use crate::world::World;

const HONO: &str = "hono-adapter";

fn hello<'a>(level: u8, client: &'a str, token: &'a str) -> Hello<'a> {
    Hello { level, keep_alive_s: 60, client, clean: true, login: Some(("ignored", token)), properties: &[], will: None }
}

/// Claims that name the device, or none, with `change` over them.
pub(crate) fn claims(change: &Value) -> Value {
    let mut claims = json!({"tid": "T", "sub": "d", "aud": HONO, "iat": now_s(), "exp": now_s() + 3_600});
    for (name, value) in change.as_object().unwrap() {
        claims[name] = value.clone();
    }
    claims
}

/// §7, `rpk`: tenant and auth-id from the claims, the URI or the client id; times, algorithms and keys.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_rpk_a_token_logs_its_device_in_over_http_and_mqtt_or_is_refused_with_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path()).await;
    world.register("T", "d").await;
    let (signer, other) = (Signer::new(), Signer::new());
    world.do_registry("PUT /v1/credentials/T/d", &signer.credential("d"), 204).await;
    let (now, day) = (now_s(), 24 * 3_600);
    let none = json!({});
    let unnamed = json!({"tid": null, "sub": null, "aud": null});
    let own = "c";
    let named = "tenants/T/devices/d";
    // Claims, who signs, the request, the client id, and why it is refused.
    let rows: Vec<(&Value, &Signer, &str, &str, &str)> = vec![
        (&none, &signer, "POST /telemetry", own, ""),
        (&unnamed, &signer, "PUT /telemetry/T/d", named, ""),
        (&unnamed, &signer, "POST /telemetry", own, "names no device"),
        (&none, &other, "POST /telemetry", own, "not signed by the device"),
    ];
    let more = [
        (json!({"aud": ["x", HONO]}), ""),
        (json!({"iat": now + 500}), ""),
        (json!({"iat": now - 3_600, "exp": now - 500}), ""),
        (json!({"exp": now + day}), ""),
        (json!({"iat": now - 3_600, "exp": now - 700}), "has expired at"),
        (json!({"exp": now + day + 1_200}), "24 hours at most"),
        (json!({"iat": now + 900, "exp": now + 1_000}), "set the clock"),
        (json!({"iat": null}), "lacks the claim iat"),
        (json!({"exp": null}), "lacks the claim exp"),
        (json!({"sub": "e"}), "no device logs in"),
        (json!({"tid": "U"}), "no device logs in"),
        (json!({"tid": "a b"}), "no device logs in"),
    ];
    let more: Vec<_> = more.iter().map(|(change, told)| (change, &signer, "POST /telemetry", own, *told)).collect();
    for (change, by, line, client, told) in rows.into_iter().chain(more) {
        let token = by.token(&claims(change));
        let bearer = format!("Bearer {token}");
        let answer = world.device(line, &[("authorization", &bearer), ("content-type", "text/plain")], b"x").await;
        let (_, connack) = Mqtt::connect(world.mqtt(), &hello(5, client, &token)).await;
        let (_, old) = Mqtt::connect(world.mqtt(), &hello(4, client, &token)).await;
        if told.is_empty() {
            assert_eq!((answer.status, connack[1], old[1]), (202, 0, 0), "{change}: {answer:?} {connack:?}");
        } else {
            answer.expect_problem(401, "", told);
            assert_eq!((connack[1], old[1]), (0x86, 4), "{change}");
            assert!(String::from_utf8_lossy(&connack).contains(told), "{change}: {connack:?}");
        }
        // A second time it is remembered, or refused all the same.
        let again = world.device(line, &[("authorization", &bearer), ("content-type", "text/plain")], b"x").await;
        assert_eq!(again.status, answer.status, "{change}");
    }
    let metrics = world.metrics_text();
    for reason in
        ["token-expired", "token-life", "token-early", "token-malformed", "token-no-device", "token-signature"]
    {
        assert!(metrics.contains(&format!("reason=\"{reason}\"")), "{reason} in {metrics}");
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_live_connection_ends_with_its_token_and_with_its_key() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path()).await;
    world.register("T", "d").await;
    let signer = Signer::new();
    world.do_registry("PUT /v1/credentials/T/d", &signer.credential("d"), 204).await;
    // The clocks may differ by ten minutes: it ends in a second or two.
    let token = signer.token(&claims(&json!({"iat": now_s() - 3_600, "exp": now_s() - 599})));
    let (mut client, connack) = Mqtt::connect(world.mqtt(), &hello(5, "c", &token)).await;
    assert_eq!(connack[1], 0, "{connack:?}");
    assert_eq!(client.expect_end().await, Some(0x87));
    let token = signer.token(&claims(&json!({})));
    let (mut client, connack) = Mqtt::connect(world.mqtt(), &hello(5, "c", &token)).await;
    assert_eq!(connack[1], 0, "{connack:?}");
    // A new key beside the old one changes nothing; without the old one the connection ends.
    let read = world.do_registry("GET /v1/credentials/T/d", "", 200).await.json();
    let new = Signer::new().public_key();
    let both = json!([{"type": "rpk", "auth-id": "d", "secrets": [{"id": read[0]["secrets"][0]["id"]}, {"key": new}]}]);
    world.do_registry("PUT /v1/credentials/T/d", &both.to_string(), 204).await;
    client.publish(1, 1, "telemetry", b"x").await;
    assert_eq!(client.next().await.0, 0x40);
    let one = json!([{"type": "rpk", "auth-id": "d", "secrets": [{"key": new}]}]);
    world.do_registry("PUT /v1/credentials/T/d", &one.to_string(), 204).await;
    assert_eq!(client.expect_end().await, Some(0x87));
    world.stop().await;
}

/// §7, `psk`: stored for CoAP, and no login over HTTP and MQTT.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_psk_is_no_login_over_http_and_mqtt() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path()).await;
    world.register("T", "d").await;
    let key = json!([{"type": "psk", "auth-id": "d", "secrets": [{"key": "cHc="}]}]);
    world.do_registry("PUT /v1/credentials/T/d", &key.to_string(), 204).await;
    let login = crate::world::basic("d@T", "pw");
    world.device("POST /telemetry", &[("authorization", &login)], b"x").await.expect_problem(401, "d@T", "credential");
    let hello = Hello { login: Some(("d@T", "pw")), ..hello(5, "c", "") };
    assert_eq!(Mqtt::connect(world.mqtt(), &hello).await.1[1], 0x86);
    world.stop().await;
}
