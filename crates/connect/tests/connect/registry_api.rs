//! The registry's management API, call by call.

use serde_json::json;

use crate::world::{World, credentials};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenant_is_created_once_read_replaced_and_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path()).await;
    let created = world.do_registry("POST /v1/tenants/T", "", 201).await;
    assert_eq!(created.header("location"), Some("/v1/tenants/T"));
    assert_eq!(created.json(), json!({"id": "T"}));
    let first = created.etag().to_owned();
    world.registry("POST /v1/tenants/T", &[], "").await.expect_problem(409, "T", "POST creates");
    let read = world.do_registry("GET /v1/tenants/T", "", 200).await;
    assert_eq!((read.etag(), read.json()["enabled"].as_bool()), (first.as_str(), Some(true)));

    let body = json!({
        "enabled": false, "alias": "tee", "ext": {"a": 1}, "defaults": {"ttl": 5}, "minimum-message-size": 4096,
        "adapters": [{"type": "hono-http", "enabled": true, "device-authentication-required": true, "max-ttd": 5}],
        "trusted-ca": [serde_json::from_str::<serde_json::Value>(crate::world::CA).unwrap()],
        "trust-anchor-group": "g", "tracing": {"sampling-mode": "all", "sampling-mode-per-auth-id": {"d": "none"}},
        "registration-limits": {"max-devices": 3, "max-credentials-per-device": -1},
        "resource-limits": {"max-connections": 4, "max-ttl": 60, "max-ttl-telemetry-qos0": -1,
            "max-ttl-telemetry-qos1": -1, "max-ttl-command-response": -1,
            "data-volume": {"effective-since": "2026-01-01T00:00:00Z", "max-bytes": 10, "period": {"mode": "monthly"}},
            "connection-duration": {"max-minutes": 7, "period": {"mode": "days", "no-of-days": 30}}},
    });
    let replaced = world.do_registry("PUT /v1/tenants/T", &body.to_string(), 204).await;
    assert_ne!(replaced.etag(), first);
    let read = world.do_registry("GET /v1/tenants/T", "", 200).await;
    assert_eq!((read.json(), read.etag()), (body, replaced.etag()));

    let generated = world.do_registry("POST /v1/tenants", "{}", 201).await;
    let id = generated.json()["id"].as_str().unwrap().to_owned();
    assert_eq!(generated.header("location"), Some(format!("/v1/tenants/{id}").as_str()));
    world.do_registry(&format!("GET /v1/tenants/{id}"), "", 200).await;
    world.do_registry(&format!("DELETE /v1/tenants/{id}"), "", 204).await;
    world.registry(&format!("GET /v1/tenants/{id}"), &[], "").await.expect_problem(404, &id, "created before");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_is_created_once_read_replaced_and_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path()).await;
    let created = world.do_registry("POST /v1/devices/default", "", 201).await;
    let id = created.json()["id"].as_str().unwrap().to_owned();
    let path = format!("/v1/devices/default/{id}");
    assert_eq!(created.header("location"), Some(path.as_str()));
    assert_eq!(world.do_registry(&format!("GET {path}"), "", 200).await.etag(), created.etag());
    let none = world.do_registry(&format!("GET /v1/credentials/default/{id}"), "", 200).await;
    assert_eq!((none.json(), none.etag()), (json!([]), created.etag()));

    let body = json!({
        "enabled": false, "defaults": {"content-type": "text/csv"}, "via": ["g"], "viaGroups": ["gs"],
        "ext": {"roof": true}, "authorities": ["auto-provisioning-enabled"],
    });
    world.do_registry(&format!("PUT {path}"), &body.to_string(), 204).await;
    let mut read = world.do_registry(&format!("GET {path}"), "", 200).await.json();
    let status = read.as_object_mut().unwrap().remove("status").unwrap();
    assert!(status["created"].as_str().unwrap() <= status["updated"].as_str().unwrap());
    assert_eq!(read, body);
    // What was read may be sent back as it is.
    read["status"] = status;
    world.do_registry(&format!("PUT {path}"), &read.to_string(), 204).await;
    world.registry(&format!("POST {path}"), &[], "").await.expect_problem(409, &id, "POST creates");

    world.do_registry(&format!("DELETE {path}"), "", 204).await;
    world.registry(&format!("GET {path}"), &[], "").await.expect_problem(404, &id, "registered before");
    let gone = world.registry(&format!("GET /v1/credentials/default/{id}"), &[], "").await;
    gone.expect_problem(404, &id, "registered before");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn if_match_of_another_version_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path()).await;
    world.register("T", "d").await;
    let resources = [
        ("/v1/tenants/T", r#"{"ext":{"a":1}}"#),
        ("/v1/devices/T/d", r#"{"ext":{"a":1}}"#),
        ("/v1/credentials/T/d", r#"[{"type":"hashed-password","auth-id":"other"}]"#),
    ];
    for (path, body) in resources {
        let old = world.do_registry(&format!("GET {path}"), "", 200).await.etag().to_owned();
        let put = format!("PUT {path}");
        let new = world.registry(&put, &[("if-match", &old)], body).await;
        assert_eq!(new.status, 204, "{path}");
        let (new, before) = (new.etag().to_owned(), world.do_registry(&format!("GET {path}"), "", 200).await.body);
        let empty = if body.starts_with('[') { "[]" } else { "{}" };
        let refused = world.registry(&put, &[("if-match", &old)], empty).await;
        refused.expect_problem(412, &new, "If-Match names the current version");
        let after = world.do_registry(&format!("GET {path}"), "", 200).await;
        assert_eq!((after.etag(), &after.body), (new.as_str(), &before), "{path}");
        assert_eq!(world.registry(&put, &[("if-match", "*")], body).await.status, 204, "{path}");
        world.do_registry(&put, body, 204).await;
        if !path.contains("credentials") {
            let delete = format!("DELETE {path}");
            world.registry(&delete, &[("if-match", &old)], "").await.expect_problem(412, "", "If-Match");
        }
    }
    for path in ["/v1/devices/T/d", "/v1/tenants/T"] {
        let current = world.do_registry(&format!("GET {path}"), "", 200).await.etag().to_owned();
        assert_eq!(world.registry(&format!("DELETE {path}"), &[("if-match", &current)], "").await.status, 204);
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn secrets_are_kept_by_id_and_never_shown() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path()).await;
    world.register("T", "d").await;
    let read = world.do_registry("GET /v1/credentials/T/d", "", 200).await;
    let shown = read.json();
    let id = shown[0]["secrets"][0]["id"].as_str().unwrap().to_owned();
    let expected = json!([{"type": "hashed-password", "auth-id": "d", "enabled": true,
        "secrets": [{"id": id, "enabled": true}]}]);
    assert_eq!(shown, expected);
    let kept = json!([{"type": "hashed-password", "auth-id": "d", "ext": {"a": 1},
        "secrets": [{"id": id, "not-after": "2999-01-01T00:00:00Z", "comment": "the old one"}]}]);
    world.do_registry("PUT /v1/credentials/T/d", &kept.to_string(), 204).await;
    let login = crate::world::basic("d@T", "pw");
    let sent = world.device("POST /telemetry", &[("authorization", &login)], b"x").await;
    assert_eq!(sent.status, 202, "the old password still works: {sent:?}");
    let shown = world.do_registry("GET /v1/credentials/T/d", "", 200).await.json();
    assert_eq!(shown[0]["ext"], json!({"a": 1}));
    assert_eq!(shown[0]["secrets"][0]["not-after"], "2999-01-01T00:00:00Z");
    // What is left out is taken away; the password alone stays.
    for secret in [json!({"id": id, "enabled": false, "comment": "off"}), json!({"id": id})] {
        let named = json!([{"type": "hashed-password", "auth-id": "d", "secrets": [secret]}]);
        world.do_registry("PUT /v1/credentials/T/d", &named.to_string(), 204).await;
        let mut expected = secret.clone();
        expected["enabled"] = json!(secret.get("enabled").is_none());
        let shown = world.do_registry("GET /v1/credentials/T/d", "", 200).await.json();
        assert_eq!(shown[0]["secrets"], json!([expected]));
        let status = if secret.get("enabled").is_none() { 202 } else { 401 };
        let sent = world.device("POST /telemetry", &[("authorization", &login)], b"x").await;
        assert_eq!(sent.status, status, "{secret}");
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_break_a_rule_are_refused_with_value_rule_and_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path()).await;
    world.register("T", "d").await;
    world.register("T", "e").await;
    let ca = |entry: &str| format!(r#"{{"alias":"tee","trusted-ca":[{entry}]}}"#);
    world.do_registry("PUT /v1/tenants/T", &ca(crate::world::CA), 204).await;
    let limited = r#"{"registration-limits":{"max-devices":1,"max-credentials-per-device":1}}"#;
    world.do_registry("POST /v1/tenants/L", limited, 201).await;
    world.do_registry("POST /v1/devices/L/one", "", 201).await;
    let credential = |members: &str| format!(r#"[{{"type":"hashed-password","auth-id":"d",{members}}}]"#);
    let secret = |members: &str| credential(&format!(r#""secrets":[{{{members}}}]"#));
    let large = |more: &str| format!(r#"{{"ext":{{"x":"{}"}}}}{more}"#, "x".repeat(16_000));
    let costly = "$2a$11$N9qo8uLOickgx2ZMRZoMyeIjZAgcfl7p92ldGxad68LJZdL17lhWy";
    let table: Vec<(&str, String, u16, &str, &str)> = vec![
        ("POST /v1/tenants/a%20b", String::new(), 400, "a b", "use 1 to 50"),
        ("POST /v1/tenants/U", r#"{"unknown":1}"#.into(), 400, "unknown", "expected"),
        ("POST /v1/tenants/U", "{".into(), 400, "", "line 1"),
        ("POST /v1/tenants/U", "[]".into(), 400, "", "line 1"),
        ("POST /v1/tenants/U", r#"{"alias":"tee"}"#.into(), 409, "tee", "belong to one tenant"),
        ("POST /v1/tenants/U", ca(crate::world::CA).replace("tee", "own"), 409, "CN=ca", "trust-anchor-group"),
        ("PUT /v1/tenants/T", ca(r#"{"subject-dn":"CN=ca"}"#), 400, "CN=ca", "has cert, or subject-dn"),
        ("PUT /v1/tenants/T", ca("{}"), 400, "no cert", "has cert, or subject-dn"),
        ("PUT /v1/tenants/T", ca(r#"{"cert":"abc"}"#), 400, "abc", "an X.509 certificate"),
        ("PUT /v1/tenants/T", ca(r#"{"subject-dn":"CN=ca","public-key":"MAA="}"#), 400, "MAA=", "SubjectPublicKeyInfo"),
        ("PUT /v1/tenants/T", ca(r#"{"algorithm":"DSA"}"#), 400, "DSA", "RSA or EC"),
        ("PUT /v1/tenants/L", r#"{"alias":"tee"}"#.into(), 409, "tee", "belong to one tenant"),
        ("POST /v1/tenants/U", r#"{"adapters":[]}"#.into(), 400, "[]", "an entry for each adapter"),
        (
            "PUT /v1/tenants/T",
            r#"{"adapters":[{"type":"hono-mqtt"},{"type":"hono-http"},{"type":"hono-mqtt","enabled":true}]}"#.into(),
            400,
            "hono-mqtt",
            "one entry for each type",
        ),
        ("PUT /v1/tenants/U", "{}".into(), 404, "U", "created before"),
        ("DELETE /v1/tenants/U", String::new(), 404, "U", "created before"),
        ("POST /v1/devices/T/a%20b%20$", String::new(), 400, "a b $", "use 1 to 256"),
        ("POST /v1/devices/T/f", r#"{"vai":[]}"#.into(), 400, "vai", "expected"),
        ("POST /v1/devices/T/f", r#"{"via":["g"],"memberOf":["h"]}"#.into(), 400, "memberOf", "either"),
        ("POST /v1/devices/T/f", r#"{"defaults":{"ttl":-1}}"#.into(), 400, "-1", "from 0 on"),
        ("POST /v1/devices/U/f", String::new(), 404, "U", "created before"),
        ("POST /v1/devices/U", String::new(), 404, "U", "created before"),
        ("DELETE /v1/devices/U", String::new(), 404, "U", "created before"),
        ("GET /v1/devices/U/f", String::new(), 404, "U", "created before"),
        ("PUT /v1/devices/T/f", "{}".into(), 404, "f", "registered before"),
        ("DELETE /v1/devices/T/f", String::new(), 404, "f", "registered before"),
        ("POST /v1/devices/L/two", String::new(), 403, "1", "max-devices"),
        ("GET /v1/credentials/U/d", String::new(), 404, "U", "created before"),
        ("PUT /v1/credentials/T/f", "[]".into(), 404, "f", "registered before"),
        ("PUT /v1/credentials/T/d", String::new(), 400, "", "array of all credentials"),
        ("PUT /v1/credentials/T/d", r#"[{"auth-id":"d"}]"#.into(), 400, "type", "missing"),
        ("PUT /v1/credentials/T/d", r#"[{"type":"hashed-password"}]"#.into(), 400, "auth-id", "missing"),
        ("PUT /v1/credentials/T/d", r#"[{"type":"key","auth-id":"d"}]"#.into(), 400, "key", "use `hashed-password`"),
        (
            "PUT /v1/credentials/T/d",
            r#"[{"type":"hashed-password","auth-id":"a:b"}]"#.into(),
            400,
            "a:b",
            "use 1 to 256",
        ),
        ("PUT /v1/credentials/T/d", credentials("e", "x"), 409, "e", "belong to one device"),
        ("PUT /v1/credentials/T/d", secret(r#""id":"nope""#), 400, "nope", "keeps a secret that is stored"),
        ("PUT /v1/credentials/T/d", secret(r#""id":"one"},{"id":"two"},{"id":"one""#), 400, "one", "names one secret"),
        ("PUT /v1/credentials/T/d", secret(r#""comment":"x""#), 400, "", "has pwd-plain"),
        ("PUT /v1/credentials/T/d", secret(r#""pwd-plain":"x","pwd-hash":"y""#), 400, "", "either plain or hashed"),
        ("PUT /v1/credentials/T/d", secret(r#""pwd-plain":"x","key":"y""#), 400, "key", "has pwd-plain"),
        ("PUT /v1/credentials/T/d", secret(r#""pwd-hash":"y","hash-function":"md5""#), 400, "md5", "use sha-256"),
        (
            "PUT /v1/credentials/T/d",
            secret(&format!(r#""pwd-hash":"{costly}","hash-function":"bcrypt""#)),
            400,
            "11",
            "connect.bcrypt_max_cost = 10",
        ),
        ("PUT /v1/credentials/T/d", secret(r#""pwd-plain":"x","not-after":"soon""#), 400, "soon", "2026-01-31"),
        (
            "PUT /v1/credentials/T/d",
            secret(r#""pwd-plain":"x","not-before":"2026-01-02T00:00:00Z","not-after":"2026-01-01T00:00:00Z""#),
            400,
            "2026-01-01T00:00:00Z",
            "not-before",
        ),
        (
            "PUT /v1/credentials/T/d",
            secret(&format!(r#""pwd-plain":"x","comment":"{}""#, "c".repeat(257))),
            400,
            "257 bytes",
            "at most 256 bytes",
        ),
        (
            "PUT /v1/credentials/T/d",
            r#"[{"type":"hashed-password","auth-id":"x"},{"type":"hashed-password","auth-id":"x"}]"#.into(),
            400,
            "x",
            "name one credential",
        ),
        (
            "PUT /v1/credentials/L/one",
            r#"[{"type":"hashed-password","auth-id":"x"},{"type":"hashed-password","auth-id":"y"}]"#.into(),
            403,
            "2",
            "max-credentials-per-device",
        ),
        (
            "PUT /v1/credentials/T/d",
            credential(&format!(r#""secrets":[{}]"#, vec![r#"{"pwd-plain":"x"}"#; 51].join(","))),
            400,
            "51",
            "connect.secrets_max_per_device = 50",
        ),
        ("POST /v1/tenants", r#"{"alias":"tee"}"#.into(), 409, "tee", "belong to one tenant"),
        ("POST /v1/devices/L", String::new(), 403, "1", "max-devices"),
        ("POST /v1/devices/T/f", large(""), 413, "16016", "16000"),
        ("POST /v1/tenants", large(""), 413, "16016", "16000"),
        ("PUT /v1/tenants/T", large(""), 413, "16016", "16000"),
        ("PUT /v1/credentials/T/d", large(" "), 413, "16017", "16000"),
    ];
    for (line, body, status, value, rule) in table {
        world.registry(line, &[], &body).await.expect_refusal(line, &body, status, value, rule);
    }
    for (line, body) in [("POST /v1/devices/T/f", "{}"), ("PUT /v1/tenants/T", "{}"), ("PUT /v1/credentials/T/d", "[]")]
    {
        for media_type in ["text/plain", ""] {
            let answer = world.registry(line, &[("content-type", media_type)], body).await;
            answer.expect_problem(400, media_type, "application/json");
        }
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_a_tenant_go_its_devices_credentials_and_logins() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path()).await;
    for device in ["a", "b"] {
        world.register("T", device).await;
    }
    let login = crate::world::basic("a@T", "pw");
    let headers = [("authorization", login.as_str())];
    let send = || world.device("POST /event", &headers, b"x");
    assert_eq!(send().await.status, 202);
    world.do_registry("DELETE /v1/devices/T", "", 204).await;
    world.registry("GET /v1/devices/T/a", &[], "").await.expect_problem(404, "a", "registered before");
    world.registry("GET /v1/credentials/T/b", &[], "").await.expect_problem(404, "b", "registered before");
    send().await.expect_problem(401, "a@T", "enabled credential");
    world.register("T", "a").await;
    assert_eq!(send().await.status, 202);
    world.do_registry("DELETE /v1/tenants/T", "", 204).await;
    for path in ["/v1/tenants/T", "/v1/devices/T/a", "/v1/credentials/T/a"] {
        world.registry(&format!("GET {path}"), &[], "").await.expect_problem(404, "T", "created before");
    }
    send().await.expect_problem(401, "a@T", "enabled credential");
    world.do_registry("POST /v1/tenants/T", "", 201).await;
    world.registry("GET /v1/devices/T/a", &[], "").await.expect_problem(404, "a", "registered before");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exactly_one_of_many_creations_or_conditional_changes_wins() {
    let dir = tempfile::tempdir().unwrap();
    let world = std::sync::Arc::new(World::open(dir.path()).await);
    for round in 0..5 {
        let path = format!("/v1/devices/default/d{round}");
        let race = |line: String, condition: Option<String>| {
            let runs = (0..8).map(|n| {
                let (world, line, condition) = (world.clone(), line.clone(), condition.clone());
                tokio::spawn(async move {
                    let condition = condition.as_ref().map(|tag| ("if-match", tag.as_str()));
                    let body = format!(r#"{{"ext":{{"n":{n}}}}}"#);
                    world.registry(&line, condition.as_slice(), &body).await.status
                })
            });
            runs.collect::<Vec<_>>()
        };
        let mut statuses = Vec::new();
        for run in race(format!("POST {path}"), None) {
            statuses.push(run.await.unwrap());
        }
        statuses.sort_unstable();
        assert_eq!(statuses, [201, 409, 409, 409, 409, 409, 409, 409]);
        let tag = world.do_registry(&format!("GET {path}"), "", 200).await.etag().to_owned();
        statuses.clear();
        for run in race(format!("PUT {path}"), Some(tag)) {
            statuses.push(run.await.unwrap());
        }
        statuses.sort_unstable();
        assert_eq!(statuses, [204, 412, 412, 412, 412, 412, 412, 412]);
    }
    std::sync::Arc::into_inner(world).unwrap().stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenant_with_more_devices_than_one_append_holds_is_deleted_whole() {
    let dir = tempfile::tempdir().unwrap();
    let world = std::sync::Arc::new(World::open(dir.path()).await);
    world.do_registry("POST /v1/tenants/T", "", 201).await;
    let clients: Vec<_> = (0..32)
        .map(|client| {
            let world = world.clone();
            tokio::spawn(async move {
                for n in 0..130 {
                    world.do_registry(&format!("POST /v1/devices/T/d-{client}-{n}"), "", 201).await;
                }
            })
        })
        .collect();
    for client in clients {
        client.await.unwrap();
    }
    assert_eq!(world.connect.stats().devices, 32 * 130);
    world.do_registry("DELETE /v1/tenants/T", "", 204).await;
    assert_eq!((world.connect.stats().tenants, world.connect.stats().devices), (1, 0));
    world.do_registry("POST /v1/tenants/T", "", 201).await;
    world.registry("GET /v1/devices/T/d-0-0", &[], "").await.expect_problem(404, "d-0-0", "registered before");
    std::sync::Arc::into_inner(world).unwrap().stop().await;
}
