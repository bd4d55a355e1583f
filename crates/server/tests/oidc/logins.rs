//! Tokens that are right: what they let in, how far, and how long.

use std::process::Command;

use millstream_load::websocket;
use millstream_testkit::{Events, Raw, ask, eventually, has_kafka_listener, installed, open};
use serde_json::{Value, json};

use crate::provider::beside;
use crate::world::start;

const ONE_PARTITION: &str = r#"{"partitions": 1}"#;

fn body(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn the_login_route_names_the_provider_and_who_a_token_is() {
    let (provider, world) = start();
    let login = || ask(world.process.applications, "GET", "/api/login", &[], b"").json();
    eventually("the provider is known", || login()["oidc"]["token_endpoint"].is_string());
    let issuer = &provider.issuer;
    let expected = json!({
        "issuer": issuer,
        "authorization_endpoint": format!("{issuer}/auth"),
        "token_endpoint": format!("{issuer}/token"),
        "end_session_endpoint": format!("{issuer}/session/end"),
        "client_id": "millstream-console",
        "scope": "openid offline_access",
    });
    assert_eq!(login(), json!({"required": true, "oidc": expected, "caller": null}));
    for (client, tenant, roles) in [
        ("reader", "acme", json!(["reader"])),
        ("writer", "acme", json!(["writer"])),
        ("root", "*", json!(["reader", "writer", "admin"])),
    ] {
        let answer = world.call(&provider.token(client), "GET", "/api/login", &Value::Null);
        assert_eq!(answer.json()["caller"], json!({"name": client, "tenant": tenant, "roles": roles, "limits": null}));
    }
    world.process.stop();
}

#[test]
fn roles_and_tenant_of_the_claims_limit_what_a_token_may_do() {
    let (provider, world) = start();
    let [reader, writer, admin, acme, root] =
        ["reader", "writer", "admin", "acme", "root"].map(|client| provider.token(client));
    let records = json!([{"value": 1}]);
    for (token, in_tenant, method, path, sent, expected) in [
        (&reader, None, "PUT", "/api/streams/orders", body(ONE_PARTITION), 403),
        (&writer, None, "PUT", "/api/streams/orders", body(ONE_PARTITION), 403),
        (&admin, None, "PUT", "/api/streams/orders", body(ONE_PARTITION), 201),
        (&reader, None, "POST", "/api/streams/orders/records", records.clone(), 403),
        (&writer, None, "POST", "/api/streams/orders/records", records.clone(), 200),
        (&writer, None, "GET", "/api/streams/orders?from=earliest&until=latest", Value::Null, 403),
        (&reader, None, "GET", "/api/streams/orders?from=earliest&until=latest", Value::Null, 200),
        (&reader, Some("acme"), "GET", "/api/streams/orders", Value::Null, 200),
        (&acme, Some("other"), "GET", "/api/streams", Value::Null, 403),
        (&acme, Some("other"), "PUT", "/api/streams/orders", body(ONE_PARTITION), 403),
        (&root, Some("other"), "PUT", "/api/streams/orders", body(ONE_PARTITION), 201),
        (&root, Some("acme"), "GET", "/api/streams/orders", Value::Null, 200),
        (&acme, None, "GET", "/metrics", Value::Null, 403),
        (&root, None, "GET", "/metrics", Value::Null, 200),
    ] {
        let answer = world.call_in(token, in_tenant, method, path, &sent);
        assert_eq!(answer.status, expected, "{method} {path} in {in_tenant:?}: {}", answer.text());
    }
    // An admin of the tenant makes tokens that last; the audit trail says who did.
    let made = world.call(&acme, "POST", "/api/tokens", &json!({"name": "job", "roles": ["reader"]}));
    assert_eq!(made.status, 201, "{}", made.text());
    assert_eq!(world.reads(made.json()["token"].as_str().unwrap()), 200);
    let is_that = |event: &Value| event["object"] == "/api/tokens/job" && event["caller"] == "acme (127.0.0.1)";
    eventually("the event", || world.audit(&acme).iter().any(is_that));
    let trail = Value::from(world.audit(&root)).to_string();
    assert!(!trail.contains(&acme) && !trail.contains("eyJ"), "no tokens: {trail}");
    world.process.stop();
}

#[test]
fn kcat_and_redis_cli_log_in_with_a_token_as_their_password() {
    let (provider, world) = start();
    let (acme, reader) = (provider.token("acme"), provider.token("reader"));
    assert_eq!(world.call(&acme, "PUT", "/api/streams/orders", &body(ONE_PARTITION)).status, 201);
    assert_eq!(world.call(&acme, "POST", "/api/streams/orders/records", &json!([{"value": 1}])).status, 200);
    let kcat = |mechanism: &[&str], arguments: &[&str]| {
        let broker = world.process.kafka.to_string();
        let mut command = Command::new("timeout");
        command.args(["60", "kcat", "-b", &broker, "-X", "security.protocol=sasl_plaintext", "-m", "20"]);
        command.args(mechanism.iter().flat_map(|setting| ["-X", setting]));
        command.args(arguments).output().unwrap()
    };
    let plain = |user: &str, token: &str, arguments: &[&str]| {
        let (user, password) = (format!("sasl.username={user}"), format!("sasl.password={token}"));
        kcat(&["sasl.mechanism=PLAIN", &user, &password], arguments)
    };
    if has_kafka_listener() {
        let read = plain("anyone", &reader, &["-C", "-t", "orders", "-p", "0", "-o", "beginning", "-e", "-q"]);
        assert_eq!(String::from_utf8_lossy(&read.stdout), "1\n", "{}", String::from_utf8_lossy(&read.stderr));
        let tampered = reader.replacen("eyJ", "eyK", 1);
        let refused = plain("anyone", &tampered, &["-L"]);
        assert!(!refused.status.success());
    }

    let redis = |token: &str, arguments: &[&str]| {
        let (host, port) = (world.process.redis.ip().to_string(), world.process.redis.port().to_string());
        let mut command = Command::new("redis-cli");
        command.args(["-h", &host, "-p", &port, "--no-auth-warning", "-a", token]).args(arguments);
        let output = command.output().unwrap();
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
    };
    assert_eq!(redis(&acme, &["SET", "a", "1"]), "OK\n");
    assert_eq!(redis(&reader, &["GET", "a"]), "1\n");
    assert!(redis(&reader, &["SET", "a", "2"]).contains("NOPERM"));
    assert_eq!(Raw::connect(world.process.redis).redis(&["AUTH", "anyone", &acme]), "+OK");
    let told = Raw::connect(world.process.redis).redis(&["AUTH", &provider.token_for("acme", "urn:other")]);
    assert!(told.starts_with("-WRONGPASS the token is refused: it is meant for others"), "{told}");
    world.process.stop();
}

#[test]
fn librdkafka_gets_its_tokens_from_the_provider_and_logs_in_by_oauthbearer() {
    if !has_kafka_listener() {
        return;
    }
    let (provider, world) = start();
    let acme = provider.token("acme");
    assert_eq!(world.call(&acme, "PUT", "/api/streams/orders", &body(ONE_PARTITION)).status, 201);
    let mut client = Command::new(installed("kafka/venv/bin/python"));
    let endpoint = format!("{}/token", provider.issuer);
    client.env("PYTHONDONTWRITEBYTECODE", "1").arg(beside("librdkafka.py"));
    let output = client.args([world.process.kafka.to_string(), endpoint]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    world.process.stop();
}

#[test]
fn what_a_token_has_begun_ends_when_it_expires() {
    let (provider, world) = start();
    let root = provider.token("root");
    assert_eq!(world.call_in(&root, Some("acme"), "PUT", "/api/streams/orders", &body(ONE_PARTITION)).status, 201);
    let brief = provider.token("brief");
    let bearer = format!("Bearer {brief}");
    let headers = [("Accept", "text/event-stream"), ("Authorization", &*bearer)];
    let mut tail = Events::get(&world.process, "/api/streams/orders", &headers);
    let mut kafka = has_kafka_listener().then(|| Raw::connect(world.process.kafka));
    let mut redis = Raw::connect(world.process.redis);
    if let Some(kafka) = &mut kafka {
        assert_eq!(kafka.kafka_login("anyone", &brief), 0);
        assert!(kafka.kafka_serves());
    }
    assert_eq!(redis.redis(&["AUTH", &brief]), "+OK");
    assert_eq!(redis.redis(&["PING"]), "+PONG");
    assert!(tail.next().is_none(), "the tail ends with the token");
    assert!(kafka.is_none_or(|mut kafka| kafka.is_closed()));
    assert_eq!(redis.redis(&["PING"]), "");
    let refused = world.call(&brief, "GET", "/api/streams", &Value::Null);
    assert!(refused.status == 401 && refused.text().contains("it has expired at"), "{}", refused.text());
    assert_eq!(world.call_in(&root, Some("acme"), "GET", "/api/streams", &Value::Null).status, 200);
    world.process.stop();
}

#[test]
fn a_websocket_takes_a_token_in_its_header_and_the_server_wants_one_on_loopback_too() {
    let (provider, world) = start();
    assert_eq!(ask(world.process.applications, "GET", "/api/streams", &[], b"").status, 401);
    assert!(websocket::open(world.process.applications, "/api/queries/ws").is_err());
    let bearer = format!("Bearer {}", provider.token("reader"));
    let headers = [
        ("Authorization", &*bearer),
        ("Connection", "Upgrade"),
        ("Upgrade", "websocket"),
        ("Sec-WebSocket-Version", "13"),
        ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ];
    let (status, ..) = open(world.process.applications, "GET", "/api/queries/ws", &headers, b"");
    assert_eq!(status, 101);
    assert!(Raw::connect(world.process.redis).redis(&["PING"]).starts_with("-NOAUTH"));
    world.process.stop();
}
