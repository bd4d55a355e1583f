//! The reference's tables of the HTTP adapter, row by row. Those of commands are in `command_http.rs`.

use std::collections::BTreeSet;

use millstream_connect::{ConnectConfig, HttpAdapterConfig};
use millstream_types::{TopicKind, header};
use serde_json::json;

use crate::world::Answer;
use crate::world::{Kept, World, basic, credentials, quick};

const PRESENCE: (&str, &str) = ("content-type", "application/vnd.eclipse-hono-empty-notification");

/// A row: its text, sender (none: without login), request, headers, body and status.
type Row<'a> = (&'a str, Option<&'a str>, &'a str, &'a [(&'a str, &'a str)], &'a [u8], u16);

/// A row about records: its text, sender, request and headers; names and values of the record's headers.
type Carried<'a> = (&'a str, Option<&'a str>, &'a str, &'a [(&'a str, &'a str)], &'a [(&'a str, Option<&'a str>)]);

/// Tenant `T` with device `d`, gateway `g` and the devices behind it; tenant `open` without login.
async fn world(dir: &std::path::Path) -> World {
    // Whoever waits for a command is answered when the time is over.
    let http = HttpAdapterConfig { ttd_max_s: 2, ..quick().http };
    let world = World::open_with(dir, ConnectConfig { http, ..quick() }).await;
    let adapter = json!({"type": "hono-http", "enabled": true, "device-authentication-required": false,
        "max-ttd": 1, "ext": {"max-payload-bytes": 100}});
    for (line, body) in [
        ("POST /v1/tenants/T", json!({"resource-limits": {"max-ttl": 60}})),
        ("POST /v1/tenants/open", json!({"adapters": [adapter]})),
        ("POST /v1/tenants/shut", json!({"adapters": [{"type": "hono-http"}]})),
        ("POST /v1/devices/T/d", json!({})),
        ("POST /v1/devices/T/g", json!({})),
        ("POST /v1/devices/T/off", json!({"enabled": false, "via": ["g"]})),
        ("POST /v1/devices/T/behind", json!({"via": ["g"], "defaults": {"content-type": "text/d"}})),
        ("POST /v1/devices/T/dead-gateway", json!({"enabled": false})),
        ("POST /v1/devices/open/d", json!({})),
        ("POST /v1/devices/shut/d", json!({})),
    ] {
        world.do_registry(line, &body.to_string(), 201).await;
    }
    for (tenant, device) in [("T", "d"), ("T", "g"), ("T", "dead-gateway"), ("shut", "d")] {
        let line = format!("PUT /v1/credentials/{tenant}/{device}");
        world.do_registry(&line, &credentials(device, "pw"), 204).await;
    }
    world
}

async fn sent(world: &World, who: Option<&str>, line: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
    let login = who.map(|user| basic(user, "pw"));
    let mut headers = headers.to_vec();
    headers.extend(login.as_deref().map(|login| ("authorization", login)));
    world.device(line, &headers, body).await
}

/// Names and values of the headers that do not depend on the time or the page that asks.
fn lasting(answer: &Answer) -> BTreeSet<&(String, String)> {
    // A refusal of a request whose client asks whether to send the body closes the connection.
    let depends = |name: &str| ["date", "connection"].contains(&name) || name.starts_with("access-control-");
    answer.headers.iter().filter(|(name, _)| !depends(name)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_of_routes_request_parts_and_status_codes() {
    let dir = tempfile::tempdir().unwrap();
    let world = world(dir.path()).await;
    let (d, g) = (Some("d@T"), Some("g@T"));
    let table: [Row<'_>; 42] = [
        // 3.1 Routes
        ("POST, telemetry, the device itself", d, "POST /telemetry", &[], b"x", 202),
        ("POST, event, the device itself", d, "POST /event", &[], b"x", 202),
        ("POST needs a login", None, "POST /telemetry", &[], b"x", 401),
        ("PUT, a gateway", g, "PUT /telemetry/T/behind", &[], b"x", 202),
        ("PUT, event, a gateway", g, "PUT /event/T/behind", &[], b"x", 202),
        ("PUT, a device for itself", d, "PUT /telemetry/T/d", &[], b"x", 202),
        ("PUT without login where the adapter entry allows it", None, "PUT /event/open/d", &[], b"x", 202),
        ("PUT without login elsewhere", None, "PUT /event/T/d", &[], b"x", 401),
        ("the tenant must be that of the credentials", d, "PUT /telemetry/open/d", &[], b"x", 403),
        ("an empty tenant segment is the own tenant", g, "PUT /telemetry//behind", &[], b"x", 202),
        ("an empty tenant segment, event", g, "PUT /event//behind", &[], b"x", 202),
        // 3.2 Request parts
        ("content-type is optional with a body", d, "POST /telemetry", &[("content-type", "a/b")], b"x", 202),
        ("content-type is required without a body", d, "POST /telemetry", &[], b"", 400),
        ("content-type is text", d, "POST /telemetry", &[("content-type", "a/\u{fc}")], b"x", 400),
        ("content-type without a body", d, "POST /event", &[("content-type", "a/b")], b"", 202),
        ("qos-level 0", d, "POST /telemetry", &[("qos-level", "0")], b"x", 202),
        ("qos-level 1", d, "POST /telemetry", &[("qos-level", "1")], b"x", 202),
        ("qos-level 2", d, "POST /telemetry", &[("qos-level", "2")], b"x", 400),
        ("qos-level, no number", d, "POST /telemetry", &[("qos-level", "high")], b"x", 400),
        ("qos-level 0 on an event", d, "POST /event", &[("qos-level", "0")], b"x", 400),
        ("qos-level 1 on an event", d, "POST /event", &[("qos-level", "1")], b"x", 202),
        ("hono-ttd header", d, "POST /telemetry", &[("hono-ttd", "1")], b"x", 202),
        ("hono-ttd query", d, "POST /telemetry?hono-ttd=1", &[], b"x", 202),
        ("hono-ttd, 0 is none", d, "POST /telemetry?hono-ttd=0", &[], b"x", 202),
        ("hono-ttd, no number", d, "POST /telemetry?hono-ttd=x", &[], b"x", 400),
        ("hono-ttl header", d, "POST /event", &[("hono-ttl", "3")], b"x", 202),
        ("hono-ttl query", d, "POST /event?hono-ttl=3", &[], b"x", 202),
        ("hono-ttl, less than nothing", d, "POST /event?hono-ttl=-3", &[], b"x", 400),
        ("empty notification", d, "POST /event", &[PRESENCE], b"", 202),
        ("empty notification, telemetry", d, "POST /telemetry", &[PRESENCE], b"", 202),
        ("empty notification with a body", d, "POST /event", &[PRESENCE], b"x", 400),
        ("body, as large as it may be", d, "POST /telemetry", &[], &[b'x'; 2_048], 202),
        ("body, of the tenant's limit", None, "PUT /telemetry/open/d", &[], &[b'x'; 100], 202),
        // 3.4 Status codes
        ("401 wrong password", Some("x@T"), "POST /telemetry", &[], b"x", 401),
        ("401 unknown tenant", Some("d@U"), "POST /telemetry", &[], b"x", 401),
        ("403 adapter disabled", Some("d@shut"), "POST /telemetry", &[], b"x", 403),
        ("403 not in via", g, "PUT /telemetry//d", &[], b"x", 403),
        ("403 gateway disabled", Some("dead-gateway@T"), "PUT /telemetry//d", &[], b"x", 403),
        ("404 unknown", g, "PUT /telemetry//nobody", &[], b"x", 404),
        ("404 disabled", g, "PUT /telemetry//off", &[], b"x", 404),
        ("413 over the adapter's limit", d, "POST /event", &[], &[b'x'; 2_049], 413),
        ("413 over the tenant's limit", None, "PUT /telemetry/open/d", &[], &[b'x'; 101], 413),
    ];
    for (row, who, line, headers, body, status) in table {
        let answer = sent(&world, who, line, headers, body).await;
        assert_eq!(answer.status, status, "{row}: {answer:?}");
        match status {
            202 => assert_eq!(answer.body, "", "{row}"),
            _ => assert!(answer.json()["error"].is_string(), "{row}: {answer:?}"),
        }
        // hyper reads a request whose client asks whether to send the body; the fast head reads the others.
        for further in [("expect", "100-continue"), ("x-forwarded-for", "1.2.3.4"), ("origin", "http://page")] {
            let headers = [headers, &[further]].concat();
            let other = sent(&world, who, line, &headers, body).await;
            assert_eq!((other.status, &other.body), (answer.status, &answer.body), "{row} {further:?}");
            assert_eq!(lasting(&other), lasting(&answer), "{row} {further:?}");
        }
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_of_preflights_name_their_methods_and_headers() {
    let dir = tempfile::tempdir().unwrap();
    let world = world(dir.path()).await;
    for (path, method, headers) in [
        ("/telemetry", "POST", ["authorization", "content-type", "hono-ttd", "qos-level"]),
        ("/telemetry/T/d", "PUT", ["authorization", "content-type", "hono-ttd", "qos-level"]),
        ("/telemetry//d", "PUT", ["authorization", "content-type", "hono-ttd", "qos-level"]),
        ("/event", "POST", ["authorization", "content-type", "hono-ttd", "hono-ttl"]),
        ("/event/T/d", "PUT", ["authorization", "content-type", "hono-ttd", "hono-ttl"]),
        ("/event//d", "PUT", ["authorization", "content-type", "hono-ttd", "hono-ttl"]),
    ] {
        let asked = [("origin", "http://page"), ("access-control-request-method", method)];
        let answer = world.device(&format!("OPTIONS {path}"), &asked, b"").await;
        let methods = answer.header("access-control-allow-methods").unwrap();
        assert!(answer.status == 204 && methods.contains(method), "{path}: {answer:?}");
        let allowed: Vec<_> = answer.header("access-control-allow-headers").unwrap().split(", ").collect();
        assert_eq!(allowed, headers, "{path}");
        assert_eq!(answer.header("access-control-allow-origin"), Some("*"), "{path}");
    }
    let answer = sent(&world, None, "POST /telemetry", &[("origin", "http://page")], b"x").await;
    assert_eq!((answer.status, answer.header("access-control-allow-origin")), (401, Some("*")), "refusals, too");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_of_the_headers_that_a_record_carries() {
    let dir = tempfile::tempdir().unwrap();
    let world = world(dir.path()).await;
    let rows: [Carried<'_>; 8] = [
        (
            "device and address",
            Some("g@T"),
            "PUT /telemetry//behind?x=1",
            &[],
            &[
                (header::DEVICE_ID, Some("behind")),
                (header::ORIG_ADAPTER, Some("hono-http")),
                (header::ORIG_ADDRESS, Some("/telemetry//behind")),
                (header::QOS, Some("0")),
                (header::CONTENT_TYPE, Some("text/d")),
                (header::TTD, None),
                (header::TTL, None),
            ],
        ),
        (
            "the message goes before the device",
            Some("g@T"),
            "PUT /telemetry/T/behind",
            &[("content-type", "text/m")],
            &[(header::CONTENT_TYPE, Some("text/m"))],
        ),
        (
            "neither device nor tenant says a type",
            Some("d@T"),
            "POST /telemetry",
            &[("qos-level", "1")],
            &[(header::CONTENT_TYPE, Some("application/octet-stream")), (header::QOS, Some("1"))],
        ),
        (
            "§6 content-encoding is handed on",
            Some("d@T"),
            "POST /telemetry",
            &[("content-type", "text/m"), ("content-encoding", "gzip")],
            &[(header::CONTENT_ENCODING, Some("gzip")), (header::CONTENT_TYPE, Some("text/m"))],
        ),
        (
            "§6 without content-encoding there is none",
            Some("d@T"),
            "POST /event",
            &[("content-encoding", "")],
            &[(header::CONTENT_ENCODING, None)],
        ),
        ("ttl is capped by max-ttl", Some("d@T"), "POST /event?hono-ttl=100", &[], &[(header::TTL, Some("60000"))]),
        ("ttd is capped by the adapter", Some("d@T"), "POST /event?hono-ttd=100", &[], &[(header::TTD, Some("2"))]),
        ("ttd is capped by max-ttd", None, "PUT /event/open/d?hono-ttd=20", &[], &[(header::TTD, Some("1"))]),
    ];
    for (row, who, line, headers, expected) in rows {
        let (kind, tenant) =
            if line.contains("telemetry") { (TopicKind::Telemetry, "T") } else { (TopicKind::Event, "T") };
        let tenant = if line.contains("/open/") { "open" } else { tenant };
        let before = world.records(kind, tenant);
        assert_eq!(sent(&world, who, line, headers, b"x").await.status, 202, "{row}");
        let records = world.records(kind, tenant);
        let record: &Kept = records.iter().find(|record| !before.contains(record)).unwrap();
        for (name, value) in expected {
            assert_eq!(record.header(name), *value, "{row}: {name}");
        }
        assert!(record.header(header::CREATION_TIME).is_some(), "{row}");
    }
    world.stop().await;
}
