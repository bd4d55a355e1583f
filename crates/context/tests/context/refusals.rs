//! Every refusal of the reference for these routes: code, name, and a text with value, rule and remedy.

use std::sync::Arc;

use millstream_context::ContextConfig;
use millstream_types::{TenantId, TopicKind, TopicName};

use crate::world::{Answer, Registry, Served, World};

pub(crate) fn check(answer: &Answer, status: u16, name: &str, named: &str, what: &str) {
    assert_eq!(
        (answer.status, answer.header("content-type")),
        (status, Some("application/json")),
        "{what}: {answer:?}"
    );
    let body = answer.json();
    assert_eq!(body["error"], name, "{what}: {body}");
    let text = body["description"].as_str().unwrap();
    assert!(text.contains(named), "{what}: '{named}' in '{text}'");
    assert!(text.contains(';') || text.contains(':'), "{what}: a rule and a remedy in '{text}'");
    assert_eq!(body.as_object().unwrap().len(), 2, "{what}: nothing but error and description");
    assert_eq!(answer.header("fiware-correlator"), Some("from-the-test"), "{what}");
}

pub(crate) async fn ask(served: &Served, head: &str, body: Option<&str>) -> Answer {
    served.ask(&format!("{head}\nfiware-correlator: from-the-test"), body).await
}

async fn world_with_rooms(dir: &std::path::Path) -> (World, Served) {
    let config = ContextConfig {
        entity_max_bytes: 4_096,
        body_max_bytes: 8_192,
        page_max_bytes: 120,
        ..ContextConfig::default()
    };
    let world = World::open_with(dir, Arc::new(Registry::default()), config);
    let served = world.serve().await;
    for body in [
        r#"{"id":"one","type":"Room","t":1}"#,
        r#"{"id":"two","type":"Room","t":1}"#,
        r#"{"id":"two","type":"Car","t":1}"#,
    ] {
        assert_eq!(served.ask("POST /v2/entities?options=keyValues", Some(body)).await.status, 201);
    }
    (world, served)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_request_is_400() {
    let dir = tempfile::tempdir().unwrap();
    let (world, served) = world_with_rooms(dir.path()).await;
    for (head, named) in [
        ("GET /v2/entitys", "/v2/entitys"),
        ("GET /v2/entities?options=fast", "fast"),
        ("GET /v2/entities?limit=1001", "1001"),
        ("GET /v2/entities?limit=-1", "-1"),
        ("GET /v2/entities?limit=x", "'x'"),
        ("GET /v2/entities?offset=-1", "-1"),
        ("GET /v2/entities?offset=1.5", "1.5"),
        ("GET /v2/entities?id=", "id"),
        ("GET /v2/entities?id=a%3Cb", "a<b"),
        ("GET /v2/entities?id=a&id=b", "id"),
        ("GET /v2/entities?type=a%28", "a("),
        ("GET /v2/entities?attrs=a%22b", "a\"b"),
        ("GET /v2/entities/a%3Bb", "a;b"),
        ("GET /v2/entities/one/attrs/a%3Db", "a=b"),
        ("DELETE /v2/entities/one/attrs/type", "type"),
        ("GET /v2/entities\nfiware-service: a-b", "a-b"),
        ("GET /v2/entities\nfiware-service: a.b", "a.b"),
        ("GET /v2/entities\nfiware-servicepath: nowhere", "nowhere"),
        ("GET /v2/entities\nfiware-servicepath: /a,/b,/c,/d,/e,/f,/g,/h,/i,/j,/k", "11 paths"),
        ("DELETE /v2/entities/one\nfiware-servicepath: /a/#", "/a/#"),
        ("DELETE /v2/entities/one\nfiware-servicepath: /a,/b", "/a,/b"),
    ] {
        check(&ask(&served, head, None).await, 400, "BadRequest", named, head);
    }
    let too_long = format!("GET /v2/entities\nfiware-service: {}", "a".repeat(51));
    check(&ask(&served, &too_long, None).await, 400, "BadRequest", "aaa", "a long tenant");
    served.stop().await;
    world.close();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_body_is_400() {
    let dir = tempfile::tempdir().unwrap();
    let (world, served) = world_with_rooms(dir.path()).await;
    let long = format!(r#"{{"id":"{}"}}"#, "x".repeat(257));
    for (body, named) in [
        ("[]", "StructuredValue"),
        ("7", "Number"),
        (r#"{"type":"T"}"#, "'id'"),
        (r#"{"id":7}"#, "7"),
        (r#"{"id":""}"#, "1 to 256"),
        (r#"{"id":"a b"}"#, "a b"),
        (long.as_str(), "1 to 256"),
        (r#"{"id":"n","type":"a/b"}"#, "a/b"),
        (r#"{"id":"n","type":""}"#, "entity type"),
        (r#"{"id":"n","geo:distance":{"value":1}}"#, "geo:distance"),
        (r#"{"id":"n","*":{"value":1}}"#, "'*'"),
        (r#"{"id":"n","a b":{"value":1}}"#, "a b"),
        (r#"{"id":"n","a":1}"#, "keyValues"),
        (r#"{"id":"n","a":{"value":1,"extra":2}}"#, "extra"),
        (r#"{"id":"n","a":{"value":1,"type":7}}"#, "7"),
        (r#"{"id":"n","a":{"value":1,"type":"x y"}}"#, "x y"),
        (r#"{"id":"n","a":{"value":"<script>"}}"#, "<script>"),
        (r#"{"id":"n","a":{"value":{"deep":["a;b"]}}}"#, "a;b"),
        (r#"{"id":"n","a":{"value":{"k(":1}}}"#, "k("),
        (r#"{"id":"n","a":{"value":1,"metadata":[]}}"#, "metadata"),
        (r#"{"id":"n","a":{"value":1,"metadata":{"m":1}}}"#, "'m'"),
        (r#"{"id":"n","a":{"value":1,"metadata":{"m n":{"value":1}}}}"#, "m n"),
        (r#"{"id":"n","a":{"value":1,"metadata":{"m":{"value":1,"metadata":{}}}}}"#, "metadata"),
        (r#"{"id":"n","a":{"value":1,"metadata":{"m":{"value":"x=y"}}}}"#, "x=y"),
        (r#"{"id":"n","a":{"value":"tomorrow","type":"DateTime"}}"#, "tomorrow"),
        (r#"{"id":"n","a":{"value":7,"type":"ISO8601"}}"#, "ISO8601"),
    ] {
        check(&ask(&served, "POST /v2/entities", Some(body)).await, 400, "BadRequest", named, body);
    }
    for (head, body, named) in [
        ("POST /v2/entities/one/attrs", "{}", "{}"),
        ("PATCH /v2/entities/one/attrs", "{}", "{}"),
        ("PUT /v2/entities/one/attrs", "{}", "{}"),
        ("POST /v2/entities/one/attrs", r#"{"id":{"value":1}}"#, "'id'"),
        ("PUT /v2/entities/one/attrs", r#"{"type":{"value":1}}"#, "'type'"),
        ("PUT /v2/entities/one/attrs/t", r#"{"value":"a'b"}"#, "a'b"),
        ("PUT /v2/entities/one/attrs/id", r#"{"value":1}"#, "'id'"),
    ] {
        check(&ask(&served, head, Some(body)).await, 400, "BadRequest", named, head);
    }
    let too_deep = format!(r#"{{"id":"n","a":{}{}}}"#, "[".repeat(50), "]".repeat(50));
    for (body, named) in [("{\"id\"", "line 1"), ("no json", "JSON"), (&too_deep, "50")] {
        check(&ask(&served, "POST /v2/entities?options=keyValues", Some(body)).await, 400, "ParseError", named, body);
    }
    // What is exempt, and what fits exactly.
    let deepest = format!(r#"{{"id":"deepest","a":{}{}}}"#, "[".repeat(49), "]".repeat(49));
    for (target, body) in [
        ("/v2/entities?options=keyValues", deepest.as_str()),
        ("/v2/entities", r#"{"id":"u1","a":{"value":"f(x) = <y>","type":"TextUnrestricted"}}"#),
        ("/v2/entities", r#"{"id":"u2","a":{"value":"f(x)","metadata":{"TextUnrestricted":{"value":true}}}}"#),
        ("/v2/entities", r#"{"id":"u3","a":{"value":null,"type":"DateTime"}}"#),
    ] {
        assert_eq!(ask(&served, &format!("POST {target}"), Some(body)).await.status, 201, "{body}");
    }
    assert_eq!(world.context.stats().entities, 7, "nothing that was refused is stored");
    served.stop().await;
    world.close();
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_the_state_forbids_have_their_own_codes() {
    let dir = tempfile::tempdir().unwrap();
    let (world, served) = world_with_rooms(dir.path()).await;
    let (t, u) = (Some(r#"{"t":{"value":2}}"#), Some(r#"{"u":{"value":2}}"#));
    let both = Some(r#"{"t":{"value":3},"u":{"value":3}}"#);
    let one = Some(r#"{"value":1}"#);
    for (head, body, status, name, named) in [
        ("GET /v2/entities/none", None, 404, "NotFound", "none"),
        ("GET /v2/entities/one?type=Car", None, 404, "NotFound", "Car"),
        ("GET /v2/entities/none/attrs", None, 404, "NotFound", "none"),
        ("GET /v2/entities/none/attrs/t", None, 404, "NotFound", "entity 'none'"),
        ("GET /v2/entities/one/attrs/u", None, 404, "NotFound", "attribute 'u'"),
        ("POST /v2/entities/none/attrs", t, 404, "NotFound", "none"),
        ("PATCH /v2/entities/none/attrs", t, 404, "NotFound", "none"),
        ("PUT /v2/entities/none/attrs", t, 404, "NotFound", "none"),
        ("PUT /v2/entities/none/attrs/t", one, 404, "NotFound", "entity 'none'"),
        ("PUT /v2/entities/one/attrs/u", one, 404, "NotFound", "attribute 'u'"),
        ("DELETE /v2/entities/none", None, 404, "NotFound", "none"),
        ("DELETE /v2/entities/none/attrs/t", None, 404, "NotFound", "entity 'none'"),
        ("DELETE /v2/entities/one/attrs/u", None, 404, "NotFound", "attribute 'u'"),
        ("GET /v2/entities/two", None, 409, "TooManyResults", "two"),
        ("GET /v2/entities/two/attrs", None, 409, "TooManyResults", "two"),
        ("GET /v2/entities/two/attrs/t", None, 409, "TooManyResults", "two"),
        ("POST /v2/entities/two/attrs", t, 409, "TooManyResults", "two"),
        ("PATCH /v2/entities/two/attrs", t, 409, "TooManyResults", "two"),
        ("PUT /v2/entities/two/attrs", t, 409, "TooManyResults", "two"),
        ("PUT /v2/entities/two/attrs/t", one, 409, "TooManyResults", "two"),
        ("DELETE /v2/entities/two", None, 409, "TooManyResults", "two"),
        ("DELETE /v2/entities/two/attrs/t", None, 409, "TooManyResults", "two"),
        ("POST /v2/entities", Some(r#"{"id":"one","type":"Room"}"#), 422, "Unprocessable", "one"),
        ("POST /v2/entities/one/attrs?options=append", t, 422, "Unprocessable", "attributes t"),
        ("PATCH /v2/entities/one/attrs", u, 422, "Unprocessable", "attributes u"),
        ("PATCH /v2/entities/one/attrs", both, 422, "PartialUpdate", "attributes u"),
        ("POST /v2/entities/one/attrs?options=append", both, 422, "PartialUpdate", "attributes t"),
    ] {
        check(&ask(&served, head, body).await, status, name, named, head);
    }
    let after = served.get("/v2/entities/one?options=keyValues").await.json();
    assert_eq!(after, serde_json::json!({"id": "one", "type": "Room", "t": 3, "u": 3}), "parts are applied");
    assert_eq!(served.ask("DELETE /v2/entities/two?type=Car", None).await.status, 204, "a type makes it unambiguous");
    served.stop().await;
    world.close();
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_methods_media_types_and_lengths_have_their_own_codes() {
    let dir = tempfile::tempdir().unwrap();
    let (world, served) = world_with_rooms(dir.path()).await;
    let large = format!(r#"{{"id":"n","a":"{}"}}"#, "x".repeat(5_000));
    let larger = "x".repeat(8_193);
    let text = "POST /v2/entities\ncontent-type: text/plain";
    let create = "POST /v2/entities?options=keyValues";
    for (head, body, status, name, named) in [
        ("PUT /v2/entities", Some("{}"), 405, "MethodNotAllowed", "PUT"),
        ("PUT /v2/entities/one", Some("{}"), 405, "MethodNotAllowed", "PUT"),
        ("PATCH /v2/registrations/x", Some("{}"), 405, "MethodNotAllowed", "PATCH"),
        ("GET /v2/entities\naccept: text/html", None, 406, "NotAcceptable", "text/html"),
        ("GET /v2/entities/one\naccept: text/plain", None, 406, "NotAcceptable", "text/plain"),
        ("POST /v2/entities", None, 411, "ContentLengthRequired", "none"),
        ("POST /v2/entities", Some(""), 411, "ContentLengthRequired", "0"),
        ("PATCH /v2/entities/one/attrs", None, 411, "ContentLengthRequired", "none"),
        ("PUT /v2/entities/one/attrs/t", None, 411, "ContentLengthRequired", "none"),
        (create, Some(&larger), 413, "RequestEntityTooLarge", "context.body_max_bytes = 8192"),
        (create, Some(&large), 413, "RequestEntityTooLarge", "context.entity_max_bytes = 4096"),
        ("GET /v2/entities", None, 413, "NoResourcesAvailable", "context.page_max_bytes = 120"),
        (text, Some("{}"), 415, "UnsupportedMediaType", "text/plain"),
    ] {
        check(&ask(&served, head, body).await, status, name, named, head);
    }
    let refused = ask(&served, "PUT /v2/entities", Some("{}")).await;
    assert_eq!(refused.header("allow"), Some("DELETE, GET, HEAD, OPTIONS, POST"));
    served.stop().await;
    world.close();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_too_many_is_refused_and_one_whose_topic_was_deleted_begins_anew() {
    let dir = tempfile::tempdir().unwrap();
    let config = ContextConfig { tenants_max: 2, ..ContextConfig::default() };
    let world = World::open_with(dir.path(), Arc::new(Registry::default()), config);
    let served = world.serve().await;
    let create = |tenant: &str, id: &str| {
        let head = format!("POST /v2/entities?options=keyValues\nfiware-service: {tenant}");
        let body = format!(r#"{{"id":"{id}","type":"Room"}}"#);
        let served = &served;
        async move { ask(served, &head, Some(&body)).await }
    };
    for tenant in ["one", "two"] {
        assert_eq!(create(tenant, "r1").await.status, 201);
    }
    let refused = create("three", "r1").await;
    check(&refused, 413, "NoResourcesAvailable", "context.tenants_max = 2", "tenant three");
    assert!(refused.body.contains("'three'") && refused.body.contains("delete a topic"), "{refused:?}");
    assert_eq!(ask(&served, "GET /v2/entities\nfiware-service: three", None).await.body, "[]");

    world.log.delete_topic(&TopicName::reserved(TopicKind::Context, &TenantId::new("one").unwrap())).unwrap();
    assert_eq!(create("three", "r1").await.status, 201, "there is room for another");
    assert_eq!(create("one", "r2").await.status, 413, "and then for none");
    world.log.delete_topic(&TopicName::reserved(TopicKind::Context, &TenantId::new("two").unwrap())).unwrap();
    assert_eq!(create("two", "r2").await.status, 201, "its topic is made anew");
    assert_eq!(world.told("two").len(), 1);
    served.stop().await;
    world.close();
}
