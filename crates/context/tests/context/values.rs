//! Attributes' values alone, versions of entities, and types: rows of sections 3.1, 3.2 and 19.

use serde_json::json;

use crate::refusals::{ask, check};
use crate::world::World;

#[tokio::test(flavor = "multi_thread")]
async fn a_value_is_read_and_set_as_json_or_text() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path());
    let served = world.serve().await;
    let body = r#"{"id":"e","type":"T","o":{"value":{"k":1},"metadata":{"m":{"value":1}}},"l":{"value":[1]},"t":{"value":"x y"},
        "n":{"value":1.50,"type":"Celsius"},"b":{"value":true},"z":{"value":null}}"#;
    assert_eq!(served.ask("POST /v2/entities", Some(body)).await.status, 201);
    let (json_type, text_type) = ("application/json", "text/plain");
    for (name, accept, media, shown) in [
        ("o", None, json_type, r#"{"k":1}"#),
        ("o", Some("*/*"), json_type, r#"{"k":1}"#),
        ("o", Some("text/plain"), text_type, r#"{"k":1}"#),
        ("o", Some("text/plain;q=0.5, application/json"), json_type, r#"{"k":1}"#),
        ("l", Some("application/json"), json_type, "[1]"),
        ("t", None, text_type, "\"x y\""),
        ("t", Some("*/*"), text_type, "\"x y\""),
        ("n", Some("text/plain"), text_type, "1.5"),
        ("b", Some("text/*"), text_type, "true"),
        ("z", Some("application/json, text/plain"), text_type, "null"),
    ] {
        let accept = accept.map_or(String::new(), |accept| format!("\naccept: {accept}"));
        let answer = served.ask(&format!("GET /v2/entities/e/attrs/{name}/value{accept}"), None).await;
        assert_eq!((answer.status, answer.header("content-type")), (200, Some(media)), "{name}{accept}");
        assert_eq!(answer.body, shown, "{name}{accept}");
    }
    for (name, accept) in [("t", "application/json"), ("n", "text/html"), ("o", "text/html")] {
        let head = format!("GET /v2/entities/e/attrs/{name}/value\naccept: {accept}");
        check(&ask(&served, &head, None).await, 406, "NotAcceptable", accept, &head);
    }
    // Set: type and metadata stay.
    for (media, body, expected) in [
        (json_type, r#"{"a":[1]}"#, json!({"a": [1]})),
        (json_type, "[]", json!([])),
        (text_type, "\"text\"", json!("text")),
        (text_type, "\"\"", json!("")),
        (text_type, "true", json!(true)),
        (text_type, "null", json!(null)),
        (text_type, "-1.5e2", json!(-150)),
    ] {
        let head = format!("PUT /v2/entities/e/attrs/o/value\ncontent-type: {media}");
        assert_eq!(served.ask(&head, Some(body)).await.status, 204, "{media} {body}");
        let shown = served.get("/v2/entities/e/attrs/o").await.json();
        let metadata = json!({"m": {"type": "Number", "value": 1}});
        assert_eq!(
            shown,
            json!({"type": "StructuredValue", "value": expected, "metadata": metadata}),
            "{media} {body}"
        );
    }
    for (head, body, status, name, why) in [
        ("PUT /v2/entities/e/attrs/n/value\ncontent-type: text/plain", "text", 400, "BadRequest", "text"),
        ("PUT /v2/entities/e/attrs/n/value\ncontent-type: text/plain", "{}", 400, "BadRequest", "{}"),
        ("PUT /v2/entities/e/attrs/n/value\ncontent-type: text/plain", "\"a<b\"", 400, "BadRequest", "a<b"),
        ("PUT /v2/entities/e/attrs/n/value", "7", 400, "BadRequest", "Number"),
        ("PUT /v2/entities/e/attrs/n/value", "{", 400, "ParseError", "JSON"),
        ("PUT /v2/entities/e/attrs/n/value\ncontent-type: text/html", "7", 415, "UnsupportedMediaType", "text/html"),
        ("PUT /v2/entities/e/attrs/none/value", "{}", 404, "NotFound", "attribute 'none'"),
        ("PUT /v2/entities/none/attrs/n/value", "{}", 404, "NotFound", "entity 'none'"),
        ("GET /v2/entities/e/attrs/none/value", "", 404, "NotFound", "attribute 'none'"),
    ] {
        let body = Some(body).filter(|body| !body.is_empty());
        check(&ask(&served, head, body).await, status, name, why, head);
    }
    let kept = served.get("/v2/entities/e/attrs/n").await.json();
    assert_eq!(kept, json!({"type": "Celsius", "value": 1.5, "metadata": {}}), "nothing changed");
    served.stop().await;
    world.close();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_may_demand_a_version_and_a_read_is_spared_a_known_one() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path());
    let served = world.serve().await;
    assert_eq!(served.ask("POST /v2/entities", Some(r#"{"id":"e","a":{"value":1}}"#)).await.status, 201);
    let tag = async || served.get("/v2/entities/e").await.header("etag").unwrap().to_owned();
    let first = tag().await;
    for target in ["/v2/entities/e/attrs", "/v2/entities/e/attrs/a", "/v2/entities/e/attrs/a/value"] {
        assert_eq!(served.get(target).await.header("etag"), Some(first.as_str()), "{target}");
        for known in [first.as_str(), "*", "\"x\", W/\"y\""] {
            let answer = served.ask(&format!("GET {target}\nif-none-match: {known}"), None).await;
            assert_eq!(answer.status, if known.contains('x') { 200 } else { 304 }, "{target} {known}");
        }
    }
    let write = |tag: &str, body: &str| {
        let (head, body) = (format!("PATCH /v2/entities/e/attrs\nif-match: {tag}"), body.to_owned());
        let served = &served;
        async move { ask(served, &head, Some(&body)).await }
    };
    assert_eq!(write(&first, r#"{"a":{"value":2}}"#).await.status, 204);
    let second = tag().await;
    assert_ne!(first, second);
    check(&write(&first, r#"{"a":{"value":3}}"#).await, 412, "PreconditionFailed", &second, "an old version");
    assert_eq!(served.get("/v2/entities/e/attrs/a/value").await.body, "2", "nothing changed");
    assert_eq!(write("*", r#"{"a":{"value":2,"metadata":{"m":{"value":1}}}}"#).await.status, 204);
    assert_ne!(tag().await, second, "metadata alone makes another version");
    for (head, body) in [
        ("PUT /v2/entities/e/attrs", Some(r#"{"b":{"value":1}}"#)),
        ("POST /v2/entities/e/attrs", Some(r#"{"b":{"value":1}}"#)),
        ("PUT /v2/entities/e/attrs/a", Some(r#"{"value":1}"#)),
        ("PUT /v2/entities/e/attrs/a/value", Some("{}")),
        ("DELETE /v2/entities/e/attrs/a", None),
        ("DELETE /v2/entities/e", None),
    ] {
        let head = format!("{head}\nif-match: {first}");
        check(&ask(&served, &head, body).await, 412, "PreconditionFailed", "If-Match", &head);
    }
    check(&ask(&served, "DELETE /v2/entities/none\nif-match: *", None).await, 404, "NotFound", "none", "nothing there");
    // Of many who take the same version, one wins.
    let held = tag().await;
    let mut won = 0;
    for n in 0..10 {
        won += usize::from(write(&held, &format!(r#"{{"a":{{"value":{n}}}}}"#)).await.status == 204);
    }
    assert_eq!(won, 1);
    served.stop().await;
    world.close();
}

#[tokio::test(flavor = "multi_thread")]
async fn types_are_listed_with_their_attributes() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path());
    let served = world.serve().await;
    for (path, body) in [
        ("/", r#"{"id":"r1","type":"Room","t":{"value":1},"p":{"value":1}}"#),
        ("/", r#"{"id":"r2","type":"Room","t":{"value":"x"}}"#),
        ("/a", r#"{"id":"r3","type":"Room","h":{"value":1,"type":"Percent"}}"#),
        ("/", r#"{"id":"c1","type":"Car"}"#),
    ] {
        assert_eq!(served.ask(&format!("POST /v2/entities\nfiware-servicepath: {path}"), Some(body)).await.status, 201);
    }
    let room = json!({"attrs": {"h": {"types": ["Percent"]}, "p": {"types": ["Number"]},
        "t": {"types": ["Number", "Text"]}}, "count": 3});
    assert_eq!(served.get("/v2/types/Room").await.json(), room);
    let mut listed = room.clone();
    listed["type"] = json!("Room");
    let all = served.get("/v2/types?options=count").await;
    assert_eq!(all.json(), json!([{"type": "Car", "attrs": {}, "count": 1}, listed]));
    assert_eq!(all.header("fiware-total-count"), Some("2"));
    assert_eq!(served.get("/v2/types?options=values").await.json(), json!(["Car", "Room"]));
    assert_eq!(served.get("/v2/types?options=values&limit=1&offset=1").await.json(), json!(["Room"]));
    let bare = served.get("/v2/types?options=noAttrDetail&offset=1").await.json();
    assert_eq!(bare[0]["attrs"], json!({"h": {"types": []}, "p": {"types": []}, "t": {"types": []}}));
    let in_a = served.ask("GET /v2/types\nfiware-servicepath: /a", None).await.json();
    assert_eq!(in_a, json!([{"type": "Room", "attrs": {"h": {"types": ["Percent"]}}, "count": 1}]));
    // What changes is seen.
    assert_eq!(served.ask("DELETE /v2/entities/r1/attrs/p", None).await.status, 204);
    assert_eq!(served.ask("DELETE /v2/entities/r2", None).await.status, 204);
    assert_eq!(served.ask("DELETE /v2/entities/c1", None).await.status, 204);
    assert_eq!(served.get("/v2/types?options=values").await.json(), json!(["Room"]));
    let left = json!({"attrs": {"h": {"types": ["Percent"]}, "t": {"types": ["Number"]}}, "count": 2});
    assert_eq!(served.get("/v2/types/Room").await.json(), left);
    check(&ask(&served, "GET /v2/types/Car", None).await, 404, "NotFound", "Car", "a type without entities");
    served.stop().await;
    world.close();
}
