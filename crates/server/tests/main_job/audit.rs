//! The audit trail: changes by administrators and refused logins, in the topic `_audit`.

use millstream_testkit::{Process, ask, eventually};
use serde_json::{Value, json};

use crate::tokens::{call, every_role, make};

/// The events that a caller reads.
fn events(process: &Process, token: &str) -> Vec<Value> {
    let path = "/api/streams/_audit?from=earliest&until=latest&limit=1000";
    let page = call(process.applications, token, "GET", path, &Value::Null);
    assert_eq!(page.status, 200, "{}", page.text());
    page.json()["records"].as_array().unwrap().iter().map(|record| record["value"].clone()).collect()
}

/// True if an event has these members.
fn has(events: &[Value], members: &Value) -> bool {
    let fits = |event: &Value| {
        members.as_object().unwrap().iter().all(|(name, part)| match part {
            Value::String(part) => event[name].as_str().is_some_and(|text| text.contains(&**part)),
            other => event[name] == *other,
        })
    };
    events.iter().any(fits)
}

#[test]
fn changes_and_refusals_are_kept_without_secrets_and_each_tenants_admins_read_their_own() {
    let dir = tempfile::tempdir().unwrap();
    let process = Process::start(dir.path());
    let root = make(&process, "", &every_role("root", "*"));
    let acme = make(&process, &root, &every_role("boss", "acme"));
    let reader = make(&process, &acme, &json!({"name": "guest", "roles": ["reader"]}));
    let status = |token: &str, method: &str, path: &str, body: &Value| {
        call(process.applications, token, method, path, body).status
    };
    let password = json!([{"type": "hashed-password", "auth-id": "d", "secrets": [{"pwd-plain": "hush-hush-123"}]}]);
    for (token, method, path, body, expected) in [
        (&acme, "PUT", "/api/streams/orders", &json!({}), 201),
        (&acme, "DELETE", "/api/streams/orders", &Value::Null, 204),
        (&root, "POST", "/v1/tenants/acme", &json!({}), 201),
        (&acme, "POST", "/v1/devices/acme/d", &json!({}), 201),
        (&acme, "PUT", "/v1/credentials/acme/d", &password, 204),
        (&acme, "PUT", "/buckets/photos", &json!({}), 201),
        (&reader, "PUT", "/api/streams/mine", &json!({}), 403),
        (&acme, "POST", "/api/jobs", &json!({"name": "no job"}), 422),
        (&acme, "DELETE", "/api/tokens/guest", &Value::Null, 204),
        (&acme, "PUT", "/api/streams/caf%C3%A9%2Fbar", &json!({}), 400),
        (&root, "POST", "/api/tokens", &every_role("helper", "acme"), 201),
        (&root, "DELETE", "/api/tokens/helper", &Value::Null, 204),
    ] {
        assert_eq!(status(token, method, path, body), expected, "{method} {path}");
    }
    let wrong = [("Authorization", "Bearer mst_this-is-not-a-token")];
    assert_eq!(ask(process.applications, "GET", "/api/streams", &wrong, b"").status, 401);
    let of_acme = [
        json!({"caller": "boss (127.0.0.1)", "action": "PUT /api/streams/{stream}", "object": "/api/streams/orders", "outcome": "done (201)"}),
        json!({"action": "DELETE /api/streams/{stream}", "object": "/api/streams/orders", "outcome": "done (204)"}),
        json!({"caller": "root", "action": "POST /v1/tenants/{", "object": "/v1/tenants/acme"}),
        json!({"action": "POST /v1/devices/", "object": "/v1/devices/acme/d", "outcome": "done"}),
        json!({"action": "PUT /v1/credentials/", "object": "/v1/credentials/acme/d", "outcome": "done"}),
        json!({"action": "PUT /buckets/", "object": "/buckets/photos"}),
        json!({"caller": "guest", "object": "/api/streams/mine", "outcome": "refused (403)"}),
        json!({"action": "POST /api/jobs", "outcome": "refused (422)"}),
        json!({"action": "POST /api/tokens", "object": "/api/tokens/guest", "outcome": "done (201)", "listener": "applications"}),
        json!({"action": "DELETE /api/tokens/{name}", "object": "/api/tokens/guest", "tenant": "acme"}),
        json!({"object": "/api/streams/café/bar", "outcome": "refused (400)"}),
        json!({"caller": "root", "action": "POST /api/tokens", "object": "/api/tokens/helper", "tenant": "acme"}),
        json!({"caller": "root", "action": "DELETE /api/tokens/{name}", "object": "/api/tokens/helper", "tenant": "acme"}),
    ];
    eventually("the events of acme", || of_acme.iter().all(|event| has(&events(&process, &acme), event)));
    assert!(events(&process, &acme).iter().all(|event| event["tenant"] == "acme"));
    let of_others = [
        json!({"caller": "anonymous", "object": "/api/tokens/root", "tenant": "default"}),
        json!({"caller": "anonymous (127.0.0.1)", "outcome": "done (201)"}),
        json!({"action": "login", "listener": "http", "caller": "127.0.0.1", "outcome": "refused (1 wrong", "tenant": null}),
    ];
    eventually("all events", || of_acme.iter().chain(&of_others).all(|event| has(&events(&process, &root), event)));
    let all = Value::from(events(&process, &root)).to_string();
    for secret in [&root, &acme, &reader, "hush-hush", "this-is-not-a-token"] {
        assert!(!all.contains(secret), "{all}");
    }
    let viewer = make(&process, &acme, &json!({"name": "viewer", "roles": ["reader", "writer"]}));
    assert_eq!(status(&viewer, "GET", "/api/streams/_audit", &Value::Null), 403);
    for limit in ["topics", "types"] {
        for prefixes in [json!(["ord"]), json!(["_"])] {
            let mut new = every_role(&format!("{limit}-{}", prefixes[0].as_str().unwrap()), "acme");
            new[limit] = prefixes;
            let limited = make(&process, &acme, &new);
            for path in ["/api/streams/_audit", "/api/streams/_audit/info"] {
                assert_eq!(status(&limited, "GET", path, &Value::Null), 403, "{new} {path}");
            }
        }
    }
    for (method, path) in
        [("POST", "/api/streams/_audit/records"), ("PATCH", "/api/streams/_audit"), ("DELETE", "/api/streams/_audit")]
    {
        let body = match method {
            "POST" => json!([{"value": 1}]),
            "PATCH" => json!({}),
            _ => Value::Null,
        };
        assert_eq!(status(&root, method, path, &body), 403, "{method}");
    }
    let before = events(&process, &root).len();
    process.stop();
    let process = Process::start(dir.path());
    assert!(events(&process, &root).len() >= before, "they survive a restart");
    process.stop();
}
