//! Registrations as context providers make, read and delete them: part A of the reference on forwarding, rows A1 to A5.

use millstream_context::ContextConfig;
use serde_json::{Value, json};

use crate::world::{Registry, Served, World};

/// Creates a registration; its id.
pub(crate) async fn register(served: &Served, head: &str, body: &Value) -> String {
    let answer = served.ask(&format!("POST /v2/registrations\n{head}"), Some(&body.to_string())).await;
    assert_eq!((answer.status, answer.body.as_str()), (201, ""), "{body}");
    let id = answer.header("location").unwrap().strip_prefix("/v2/registrations/").unwrap().to_owned();
    assert!(id.len() == 24 && id.bytes().all(|c| c.is_ascii_hexdigit()), "{id}");
    id
}

/// The registration of entities and attributes at a provider.
pub(crate) fn registration(entities: Value, attrs: &[&str], url: &str) -> Value {
    json!({"dataProvided": {"entities": entities, "attrs": attrs}, "provider": {"http": {"url": url}}})
}

fn plain() -> Value {
    registration(json!([{"id": "e", "type": "T"}]), &["a"], "http://127.0.0.1:1/v2")
}

async fn ids(served: &Served, target: &str) -> Vec<String> {
    let (target, headers) = target.split_once('\n').unwrap_or((target, ""));
    let answer = served.ask(&format!("GET /v2/registrations{target}\n{headers}"), None).await;
    assert_eq!(answer.status, 200, "{target}");
    answer.json().as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registration_is_made_read_listed_and_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path());
    let served = world.serve().await;
    // A2: what is shown, with and without what may be left out.
    let full = json!({"description": "d", "expires": "2050-04-05T14:00:00.00Z",
        "dataProvided": {"entities": [{"idPattern": ".*", "type": "Room"}, {"id": "e"}], "attrs": ["t", "h"]},
        "provider": {"http": {"url": "http://127.0.0.1:1"}, "supportedForwardingMode": "query", "legacyForwarding": true},
        "status": "inactive", "unknown": 1});
    let one = register(&served, "", &full).await;
    let two = register(&served, "", &plain()).await;
    let shown = |id: &str| format!("/v2/registrations/{id}");
    let mut expected = full.clone();
    expected.as_object_mut().unwrap().shift_remove("unknown");
    expected["id"] = one.clone().into();
    expected["expires"] = "2050-04-05T14:00:00.000Z".into();
    assert_eq!(served.get(&shown(&one)).await.json(), expected);
    let mut expected = json!({"id": two, "dataProvided": {"entities": [{"id": "e", "type": "T"}], "attrs": ["a"]},
        "provider": {"http": {"url": "http://127.0.0.1:1/v2"}, "supportedForwardingMode": "all",
            "legacyForwarding": false}, "status": "active"});
    assert_eq!(served.get(&shown(&two)).await.json(), expected);
    expected["forwardingInformation"] = json!({"timesSent": 0});
    assert_eq!(served.get(&format!("{}?options=forwardingInformation", shown(&two))).await.json(), expected);
    // A1: lists, in order of creation.
    let three = register(&served, "", &plain()).await;
    let all = [one.clone(), two.clone(), three.clone()];
    assert_eq!(ids(&served, "").await, all);
    assert_eq!(ids(&served, "?limit=1&offset=1").await, all[1..2]);
    assert_eq!(ids(&served, "?limit=0").await, all[..0]);
    for (target, page) in [("?options=count&limit=2", 2), ("?options=count&offset=9", 0)] {
        let answer = served.get(&format!("/v2/registrations{target}")).await;
        assert_eq!(answer.header("fiware-total-count"), Some("3"), "{target}");
        assert_eq!(answer.json().as_array().unwrap().len(), page, "{target}");
    }
    // Another tenant sees nothing of it.
    assert_eq!(served.ask(&format!("GET {}\nfiware-service: other", shown(&one)), None).await.status, 404);
    for id in ["0123456789abcdef01234567", "testtesttesttesttesttest", "x"] {
        for method in ["GET", "DELETE"] {
            let answer = served.ask(&format!("{method} {}", shown(id)), None).await;
            assert_eq!((answer.status, answer.json()["error"].as_str()), (404, Some("NotFound")), "{method} {id}");
        }
    }
    assert_eq!(served.ask(&format!("PATCH {}", shown(&one)), Some("{}")).await.status, 405);
    assert_eq!(served.ask(&format!("DELETE {}", shown(&two)), None).await.status, 204);
    assert_eq!(ids(&served, "").await, [one.clone(), three.clone()]);
    // They outlive the process.
    served.stop().await;
    world.close();
    let world = World::open(dir.path());
    let served = world.serve().await;
    assert_eq!(ids(&served, "").await, [one, three]);
    served.stop().await;
    world.close();
}

/// A3.
#[tokio::test(flavor = "multi_thread")]
async fn a_registration_belongs_to_its_service_path() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path());
    let served = world.serve().await;
    let root = register(&served, "", &plain()).await;
    let a = register(&served, "fiware-servicepath: /a", &plain()).await;
    let ab = register(&served, "fiware-servicepath: /a/b", &plain()).await;
    for (path, expected) in [
        ("", vec![&root, &a, &ab]),
        ("/#", vec![&root, &a, &ab]),
        ("/", vec![&root]),
        ("/a", vec![&a]),
        ("/a/#", vec![]),
        ("/b", vec![]),
    ] {
        assert_eq!(ids(&served, &format!("\nfiware-servicepath: {path}")).await.iter().collect::<Vec<_>>(), expected);
    }
    for (path, status) in [("/a", 200), ("/#", 200), ("", 200), ("/", 404), ("/a/b", 404), ("/a/#", 404)] {
        let head = format!("GET /v2/registrations/{a}\nfiware-servicepath: {path}");
        assert_eq!(served.ask(&head, None).await.status, status, "{path}");
    }
    let head = format!("DELETE /v2/registrations/{a}\nfiware-servicepath: /b");
    assert_eq!(served.ask(&head, None).await.status, 404);
    for path in ["/a/#", "/a,/b", "a"] {
        let answer = served
            .ask(&format!("POST /v2/registrations\nfiware-servicepath: {path}"), Some(&plain().to_string()))
            .await;
        assert_eq!(answer.status, 400, "{path}");
    }
    served.stop().await;
    world.close();
}

/// Sets the value at a pointer, or removes it.
fn with(pointer: &str, value: Option<Value>) -> String {
    let mut body = plain();
    body["description"] = "d".into();
    body["status"] = "active".into();
    let (parent, name) = pointer.rsplit_once('/').unwrap();
    let members = body.pointer_mut(parent).unwrap().as_object_mut().unwrap();
    match value {
        Some(value) => drop(members.insert(name.to_owned(), value)),
        None => drop(members.shift_remove(name)),
    }
    body.to_string()
}

/// A4: everything is BadRequest, but for patterns.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_registration_is_refused_and_named() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path());
    let served = world.serve().await;
    let long = || Value::from("x".repeat(257));
    let entities = |item: Value| Some(json!([item]));
    let mut rows: Vec<(String, u16, &str)> =
        ["", "[]", "\"x\"", "{", "{}", "null"].iter().map(|body| ((*body).to_owned(), 400, "")).collect();
    rows.remove(0);
    for (pointer, value, named) in [
        ("/description", Some(json!(1)), "description"),
        ("/description", Some(json!("x".repeat(1_025))), "description"),
        ("/description", Some(json!("<a>")), "description"),
        ("/expires", Some(json!("tomorrow")), "expires"),
        ("/dataProvided", None, "dataProvided"),
        ("/dataProvided", Some(json!("x")), "dataProvided"),
        ("/dataProvided", Some(json!({})), "dataProvided"),
        ("/dataProvided/entities", Some(json!({})), "entities"),
        ("/dataProvided/entities", entities(json!("x")), "entities"),
        ("/dataProvided/entities", entities(json!({"type": "T"})), "idPattern"),
        ("/dataProvided/entities", entities(json!({"id": "a", "idPattern": ".*"})), "idPattern"),
        ("/dataProvided/entities", entities(json!({"id": 1})), "id"),
        ("/dataProvided/entities", entities(json!({"id": ""})), "id"),
        ("/dataProvided/entities", entities(json!({"id": "a<b"})), "id"),
        ("/dataProvided/entities", entities(json!({"id": long()})), "id"),
        ("/dataProvided/entities", entities(json!({"idPattern": 1})), "idPattern"),
        ("/dataProvided/entities", entities(json!({"idPattern": ""})), "idPattern"),
        ("/dataProvided/entities", entities(json!({"idPattern": "a(b"})), "idPattern"),
        ("/dataProvided/entities", entities(json!({"idPattern": long()})), "idPattern"),
        ("/dataProvided/entities", entities(json!({"id": "a", "type": "T", "typePattern": ".*"})), "typePattern"),
        ("/dataProvided/entities", entities(json!({"id": "a", "type": 1})), "type"),
        ("/dataProvided/entities", entities(json!({"id": "a", "type": ""})), "type"),
        ("/dataProvided/entities", entities(json!({"id": "a", "type": "a=b"})), "type"),
        ("/dataProvided/entities", entities(json!({"id": "a", "type": long()})), "type"),
        ("/dataProvided/entities", entities(json!({"id": "a", "typePattern": 1})), "typePattern"),
        ("/dataProvided/entities", entities(json!({"id": "a", "typePattern": ""})), "typePattern"),
        ("/dataProvided/entities", entities(json!({"id": "a", "typePattern": "a;b"})), "typePattern"),
        ("/dataProvided/entities", entities(json!({"id": "a", "typePattern": long()})), "typePattern"),
        ("/dataProvided/attrs", Some(json!("a")), "attrs"),
        ("/dataProvided/attrs", Some(json!([1])), "attrs"),
        ("/dataProvided/attrs", Some(json!([""])), "attrs"),
        ("/dataProvided/attrs", Some(json!(["a b"])), "attrs"),
        ("/dataProvided/attrs", Some(json!(["a<b"])), "attrs"),
        ("/provider", None, "provider"),
        ("/provider", Some(json!({})), "provider"),
        ("/provider", Some(json!([])), "provider"),
        ("/provider/http", None, "provider"),
        ("/provider/http", Some(json!("x")), "http"),
        ("/provider/http", Some(json!({"x": 1})), "url"),
        ("/provider/http/url", Some(json!(1)), "url"),
        ("/provider/http/url", Some(json!("")), "url"),
        ("/provider/http/url", Some(json!("no url")), "url"),
        ("/provider/http/url", Some(json!("mqtt://h:1")), "url"),
        ("/provider/supportedForwardingMode", Some(json!(1)), "supportedForwardingMode"),
        ("/provider/supportedForwardingMode", Some(json!("some")), "supportedForwardingMode"),
        ("/provider/legacyForwarding", Some(json!("true")), "legacyForwarding"),
        ("/status", Some(json!(1)), "status"),
        ("/status", Some(json!("expired")), "status"),
    ] {
        rows.push((with(pointer, value), 400, named));
    }
    for (item, named) in [
        (json!({"idPattern": "a.*", "type": "T"}), "idPattern"),
        (json!({"id": "a", "typePattern": ".*"}), "typePattern"),
    ] {
        rows.push((with("/dataProvided/entities", entities(item)), 501, named));
    }
    for (body, status, named) in rows {
        let answer = served.ask("POST /v2/registrations", Some(&body)).await;
        let name = if status == 400 { "BadRequest" } else { "NotImplemented" };
        assert_eq!((answer.status, answer.json()["error"].as_str()), (status, Some(name)), "{body}: {}", answer.body);
        assert!(answer.json()["description"].as_str().unwrap().contains(named), "{body}: {}", answer.body);
    }
    assert_eq!(ids(&served, "").await.len(), 0, "nothing is stored");
    // What Orion takes.
    for (pointer, value) in [
        ("/dataProvided/entities", Some(json!([]))),
        ("/dataProvided/attrs", None),
        ("/description", Some(json!("x".repeat(1_024)))),
        ("/provider/supportedForwardingMode", Some(json!("none"))),
        ("/expires", Some(json!(""))),
    ] {
        let answer = served.ask("POST /v2/registrations", Some(&with(pointer, value))).await;
        assert_eq!(answer.status, 201, "{pointer}: {}", answer.body);
    }
    served.stop().await;
    world.close();
}

/// A5.
#[tokio::test(flavor = "multi_thread")]
async fn statistics_count_the_requests_for_registrations() {
    let dir = tempfile::tempdir().unwrap();
    let config = ContextConfig { stat_counters: true, ..ContextConfig::default() };
    let world = World::open_with(dir.path(), std::sync::Arc::new(Registry::default()), config);
    let served = world.serve().await;
    let id = register(&served, "", &plain()).await;
    register(&served, "", &plain()).await;
    served.get("/v2/registrations").await;
    for (method, status) in [("GET", 200), ("DELETE", 204), ("DELETE", 404)] {
        assert_eq!(served.ask(&format!("{method} /v2/registrations/{id}"), None).await.status, status);
    }
    let counted = served.get("/statistics").await.json()["counters"]["requests"].clone();
    let expected =
        json!({"/v2/registrations": {"GET": 1, "POST": 2}, "/v2/registrations/{id}": {"GET": 1, "DELETE": 2}});
    assert_eq!(counted, expected);
    served.stop().await;
    world.close();
}
