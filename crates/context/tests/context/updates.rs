//! Batches, update operators, transient entities, and updates that are told although nothing differs.

use std::sync::Arc;

use millstream_context::ContextConfig;
use millstream_testkit::eventually;
use serde_json::{Value, json};

use crate::refusals::{ask, check};
use crate::world::{Registry, Served, World};

async fn filled(dir: &std::path::Path) -> (World, Served) {
    let world = World::open(dir);
    let served = world.serve().await;
    for body in [r#"{"id":"e1","type":"T","a":1,"b":2}"#, r#"{"id":"e2","type":"T","a":1}"#] {
        assert_eq!(served.ask("POST /v2/entities?options=keyValues", Some(body)).await.status, 201);
    }
    (world, served)
}

async fn shown(served: &Served, id: &str) -> Value {
    let mut shown = served.get(&format!("/v2/entities/{id}?options=keyValues")).await.json();
    for member in ["id", "type"] {
        shown.as_object_mut().unwrap().shift_remove(member);
    }
    shown
}

/// Row of the reference's table of action types: entities sent, code and name, what e1 and e2 are then.
#[tokio::test(flavor = "multi_thread")]
async fn each_action_type_gives_the_result_of_its_row() {
    let (ok, unprocessable, partial, missing) =
        ((204, ""), (422, "Unprocessable"), (422, "PartialUpdate"), (404, "NotFound"));
    let start = json!({"a": 1, "b": 2});
    for (action, entities, (status, name), e1) in [
        ("append", json!([{"id": "e1", "type": "T", "a": 5, "c": 6}]), ok, json!({"a": 5, "b": 2, "c": 6})),
        ("append", json!([{"id": "e1", "a": 5}]), ok, json!({"a": 5, "b": 2})),
        ("append", json!([{"id": "new", "type": "T", "a": 5}]), ok, start.clone()),
        ("APPEND", json!([{"id": "e1", "type": "T", "c": 6}]), ok, json!({"a": 1, "b": 2, "c": 6})),
        ("appendStrict", json!([{"id": "e1", "type": "T", "c": 6}]), ok, json!({"a": 1, "b": 2, "c": 6})),
        ("appendStrict", json!([{"id": "e1", "type": "T", "a": 6}]), unprocessable, start.clone()),
        ("appendStrict", json!([{"id": "e1", "type": "T", "a": 6, "c": 7}]), partial, json!({"a": 1, "b": 2, "c": 7})),
        ("update", json!([{"id": "e1", "type": "T", "a": 5}]), ok, json!({"a": 5, "b": 2})),
        ("update", json!([{"id": "e1", "type": "T", "c": 5}]), unprocessable, start.clone()),
        ("update", json!([{"id": "e1", "type": "T", "a": 5, "c": 5}]), partial, json!({"a": 5, "b": 2})),
        ("update", json!([{"id": "none", "a": 5}]), missing, start.clone()),
        ("update", json!([{"id": "none", "a": 5}, {"id": "e1", "a": 5}]), partial, json!({"a": 5, "b": 2})),
        ("update", json!([{"id": "none", "a": 5}, {"id": "nobody", "a": 5}]), missing, start.clone()),
        ("update", json!([{"id": "none", "a": 5}, {"id": "e1", "c": 5}]), unprocessable, start.clone()),
        ("delete", json!([{"id": "e1", "type": "T", "a": 0}]), ok, json!({"b": 2})),
        ("delete", json!([{"id": "e1", "type": "T", "a": 0, "c": 0}]), partial, json!({"b": 2})),
        ("delete", json!([{"id": "e1", "type": "T", "c": 0}]), unprocessable, start.clone()),
        ("delete", json!([{"id": "none"}]), missing, start.clone()),
        ("delete", json!([{"id": "e2"}]), ok, start.clone()),
        ("replace", json!([{"id": "e1", "type": "T", "c": 9}]), ok, json!({"c": 9})),
        ("replace", json!([{"id": "none", "c": 9}]), missing, start.clone()),
        ("replace", json!([{"id": "none", "c": 9}, {"id": "e1", "c": 9}]), partial, json!({"c": 9})),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let (world, served) = filled(dir.path()).await;
        let body = json!({"actionType": action, "entities": entities}).to_string();
        let answer = ask(&served, "POST /v2/op/update?options=keyValues", Some(&body)).await;
        if status == 204 {
            assert_eq!(answer.status, 204, "{body}: {answer:?}");
        } else {
            let id = entities[0]["id"].as_str().unwrap();
            check(&answer, status, name, id, &body);
        }
        assert_eq!(shown(&served, "e1").await, e1, "{body}");
        served.stop().await;
        world.close();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_that_is_wrong_stores_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (world, served) = filled(dir.path()).await;
    for (body, why) in [
        (r#"{"entities":[{"id":"new"}]}"#, "actionType"),
        (r#"{"actionType":"upsert","entities":[{"id":"new"}]}"#, "upsert"),
        (r#"{"actionType":1,"entities":[{"id":"new"}]}"#, "no string"),
        (r#"{"actionType":"append"}"#, "entities"),
        (r#"{"actionType":"append","entities":[]}"#, "empty"),
        (r#"{"actionType":"append","entities":{}}"#, "no array"),
        (r#"{"actionType":"append","entities":[7]}"#, "no object"),
        (r#"{"actionType":"append","entities":[{"type":"T"}]}"#, "'id'"),
        (r#"{"actionType":"append","entities":[{"id":"new"},{"id":"a b"}]}"#, "a b"),
        (r#"{"actionType":"append","entities":[{"id":"new"},{"id":"x","a":{"value":"<"}}]}"#, "'<'"),
        (r#"{"actionType":"append","entities":[{"id":"new"}],"more":1}"#, "more"),
    ] {
        check(&ask(&served, "POST /v2/op/update", Some(body)).await, 400, "BadRequest", why, body);
    }
    assert_eq!(served.get("/v2/entities/new").await.status, 404);
    // Entities of one id, in their order; and many at once.
    let steps: Vec<Value> = (0..50).map(|n| json!({"id": "e1", "type": "T", "a": n})).collect();
    let many: Vec<Value> = (0..400).map(|n| json!({"id": format!("m{n}"), "type": "M", "n": n})).collect();
    let all = [steps, many].concat();
    let body = json!({"actionType": "append", "entities": all}).to_string();
    assert_eq!(served.ask("POST /v2/op/update?options=keyValues", Some(&body)).await.status, 204);
    assert_eq!(shown(&served, "e1").await["a"], 49);
    let counted = served.get("/v2/entities?type=M&limit=0&options=count").await;
    assert_eq!(counted.header("fiware-total-count"), Some("400"));
    served.stop().await;
    world.close();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_notification_is_taken_as_an_append() {
    let dir = tempfile::tempdir().unwrap();
    let (world, served) = filled(dir.path()).await;
    let body = r#"{"subscriptionId":"5aeb0ee97d4ef10a12a0262f","data":[{"id":"e1","type":"T","c":{"value":3}},
        {"id":"new","type":"T","a":{"value":1}}]}"#;
    assert_eq!(served.ask("POST /v2/op/notify", Some(body)).await.status, 200);
    assert_eq!(shown(&served, "e1").await, json!({"a": 1, "b": 2, "c": 3}));
    assert_eq!(shown(&served, "new").await, json!({"a": 1}));
    let head = "POST /v2/op/notify\nngsiv2-attrsformat: keyValues";
    check(&ask(&served, head, Some(body)).await, 400, "BadRequest", "keyValues", head);
    for (body, why) in [(r#"{"data":[{"id":"x"}]}"#, "subscriptionId"), (r#"{"subscriptionId":"x"}"#, "data")] {
        check(&ask(&served, "POST /v2/op/notify", Some(body)).await, 400, "BadRequest", why, body);
    }
    served.stop().await;
    world.close();
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_update_the_current_value_or_their_base() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path());
    let served = world.serve().await;
    let body = r#"{"id":"e","type":"T","n":{"value":1,"type":"Celsius"},"l":{"value":[1]},"o":{"value":{"k":1}},"t":{"value":"x"},
        "d":{"value":"2020-01-01","type":"DateTime"},"new":{"value":{"$inc":3}},"none":{"value":{"$pull":3}}}"#;
    assert_eq!(served.ask("POST /v2/entities", Some(body)).await.status, 201);
    let patch = r#"{"n":{"value":{"$inc":2}},"l":{"value":{"$push":2}},"o":{"value":{"$set":{"m":2},"$unset":{"k":1}}},
        "d":{"value":{"$max":"2021-01-01T00:00:00+01:00"}},"t":{"value":{"$min":"a"}}}"#;
    assert_eq!(served.ask("PATCH /v2/entities/e/attrs", Some(patch)).await.status, 204);
    let expected = json!({"n": 3, "l": [1, 2], "o": {"m": 2}, "t": "a", "d": "2020-12-31T23:00:00.000Z", "new": 3});
    assert_eq!(shown(&served, "e").await, expected);
    assert_eq!(served.get("/v2/entities/e/attrs/n").await.json()["type"], "Celsius", "the type stays");
    // Told is the result.
    let told = world.told("default").pop().unwrap().entity;
    assert_eq!(told["l"]["value"], json!([1, 2]));
    assert_eq!(served.ask("PUT /v2/entities/e/attrs/n", Some(r#"{"value":{"$mul":4}}"#)).await.status, 204);
    assert_eq!(served.ask("PUT /v2/entities/e/attrs/n/value", Some(r#"{"$inc":1}"#)).await.status, 204);
    let batch = r#"{"actionType":"append","entities":[{"id":"e","type":"T","n":{"$inc":1},"l":{"$addToSet":2}}]}"#;
    assert_eq!(served.ask("POST /v2/op/update?options=keyValues", Some(batch)).await.status, 204);
    assert_eq!((&shown(&served, "e").await["n"], &shown(&served, "e").await["l"]), (&json!(14), &json!([1, 2])));
    // What does not fit the state is 422, what is wrong by itself 400; nothing is applied.
    let before = shown(&served, "e").await;
    for (body, status, name, why) in [
        (r#"{"n":{"value":5},"t":{"value":{"$inc":1}}}"#, 422, "Unprocessable", "$inc"),
        (r#"{"n":{"value":5},"t":{"value":{"$set":{"a":1}}}}"#, 422, "Unprocessable", "$set"),
        (r#"{"n":{"value":{"$inc":"1"}}}"#, 400, "BadRequest", "takes a number"),
        (r#"{"n":{"value":{"$inc":1,"$mul":2}}}"#, 400, "BadRequest", "one operator"),
        (r#"{"o":{"value":{"$set":{"a":1},"$unset":{"a":1}}}}"#, 400, "BadRequest", "both set and unset"),
        (r#"{"n":{"value":{"$pop":1}}}"#, 400, "BadRequest", "$pop"),
    ] {
        check(&ask(&served, "PATCH /v2/entities/e/attrs", Some(body)).await, status, name, why, body);
    }
    assert_eq!(shown(&served, "e").await, before);
    // Of two who add at once, neither is lost.
    let served = std::sync::Arc::new(served);
    let adders: Vec<_> = (0..8)
        .map(|_| {
            let served = served.clone();
            tokio::spawn(async move {
                for _ in 0..5 {
                    let body = Some(r#"{"new":{"$inc":1}}"#);
                    assert_eq!(served.ask("PATCH /v2/entities/e/attrs?options=keyValues", body).await.status, 204);
                }
            })
        })
        .collect();
    for adder in adders {
        adder.await.unwrap();
    }
    assert_eq!(shown(&served, "e").await["new"], 43);
    std::sync::Arc::into_inner(served).unwrap().stop().await;
    world.close();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transient_entity_is_gone_at_its_time() {
    let dir = tempfile::tempdir().unwrap();
    let (world, served) = filled(dir.path()).await;
    let set = |id: &str, value: &str| {
        let head = format!("POST /v2/entities/{id}/attrs");
        let body = format!(r#"{{"dateExpires":{{"type":"DateTime","value":"{value}"}}}}"#);
        let served = &served;
        async move { ask(served, &head, Some(&body)).await }
    };
    assert_eq!(set("e1", "2999-01-01").await.status, 204);
    assert_eq!(shown(&served, "e1").await, json!({"a": 1, "b": 2}), "not shown unless named");
    let named = served.get("/v2/entities/e1?attrs=dateExpires&options=keyValues").await.json();
    assert_eq!(named["dateExpires"], "2999-01-01T00:00:00.000Z");
    assert_eq!(served.get("/v2/entities?q=dateExpires%3E2998-01-01").await.json().as_array().unwrap().len(), 1);
    check(&set("e1", "tomorrow").await, 400, "BadRequest", "tomorrow", "no date");
    assert_eq!(served.ask("DELETE /v2/entities/e1/attrs/dateExpires", None).await.status, 204);
    // A date in the past ends it at once.
    assert_eq!(set("e2", "2020-01-01").await.status, 204);
    assert_eq!(served.get("/v2/entities/e2").await.status, 404);
    let listed = served.get("/v2/entities?options=count").await;
    assert_eq!((listed.header("fiware-total-count"), listed.json().as_array().unwrap().len()), (Some("1"), 1));
    assert_eq!(served.get("/v2/types/T").await.json()["count"], 1);
    // Its owner lets go of it, and tells so, but to nobody as a deletion.
    eventually("the end of the entity", || world.context.stats().entities == 1);
    let told: Vec<String> = world.told("default").into_iter().map(|told| told.alteration).collect();
    assert!(told.contains(&"entityExpire".to_owned()) && !told.contains(&"entityDelete".to_owned()), "{told:?}");
    assert_eq!(served.ask("POST /v2/entities", Some(r#"{"id":"e2","type":"T"}"#)).await.status, 201, "born again");
    served.stop().await;
    world.close();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_tells_where_a_value_has_the_observation_time_of_the_one_before() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path());
    let served = world.serve().await;
    let with_time = |value: i32, time: &str| {
        format!(r#"{{"value":{value},"metadata":{{"{time}":{{"type":"DateTime","value":"2026-01-01T00:00:00Z"}}}}}}"#)
    };
    let entity = format!(
        r#"{{"id":"e","t":{},"a,b":{},"u":{{"value":1}}}}"#,
        with_time(1, "TimeInstant"),
        with_time(1, "observedAt")
    );
    let same_time = format!(r#"{{"t":{}}}"#, with_time(5, "TimeInstant"));
    for (head, body, kept) in [
        ("POST /v2/entities", &*entity, ""),
        ("PATCH /v2/entities/e/attrs", r#"{"t":{"value":2},"u":{"value":2}}"#, "t"),
        ("PATCH /v2/entities/e/attrs", r#"{"t":{"value":2}}"#, ""),
        (
            "PATCH /v2/entities/e/attrs",
            r#"{"t":{"value":3},"a,b":{"value":3,"metadata":{"m":{"value":1}}}}"#,
            "t,a%2Cb",
        ),
        ("PUT /v2/entities/e/attrs/t", r#"{"value":{"$inc":1}}"#, "t"),
        ("PUT /v2/entities/e/attrs/t/value", "[4]", "t"),
        ("POST /v2/entities/e/attrs", &*same_time, ""),
        ("PATCH /v2/entities/e/attrs?options=overrideMetadata", r#"{"t":{"value":6}}"#, ""),
        ("POST /v2/op/update", r#"{"actionType":"append","entities":[{"id":"e","a,b":{"value":7}}]}"#, "a%2Cb"),
    ] {
        assert!(served.ask(head, Some(body)).await.status < 300, "{head} {body}");
        let told = world.told("default").pop().unwrap();
        assert_eq!(told.kept_times, kept, "{head} {body}");
    }
    served.stop().await;
    world.close();
}

#[tokio::test(flavor = "multi_thread")]
async fn metadata_is_overridden_and_updates_are_told_where_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let (world, served) = filled(dir.path()).await;
    let with = |metadata: &str| format!(r#"{{"a":{{"value":1{metadata}}}}}"#);
    let m = with(r#","metadata":{"m":{"value":1}}"#);
    let n = with(r#","metadata":{"n":{"value":1}}"#);
    let names = async || {
        let shown = served.get("/v2/entities/e1/attrs/a").await.json();
        shown["metadata"].as_object().unwrap().keys().cloned().collect::<Vec<_>>().join(" ")
    };
    for (head, body, expected) in [
        ("PATCH /v2/entities/e1/attrs", &m, "m"),
        ("POST /v2/entities/e1/attrs", &n, "m n"),
        ("PATCH /v2/entities/e1/attrs?options=overrideMetadata", &m, "m"),
        ("POST /v2/entities/e1/attrs?options=overrideMetadata", &with(""), ""),
    ] {
        assert_eq!(served.ask(head, Some(body)).await.status, 204, "{head}");
        assert_eq!(names().await, expected, "{head}");
    }
    for (head, alteration) in [
        ("PATCH /v2/entities/e1/attrs", "entityUpdate"),
        ("PATCH /v2/entities/e1/attrs?options=forcedUpdate", "entityChange"),
    ] {
        assert_eq!(served.ask(head, Some(&with(""))).await.status, 204);
        assert_eq!(world.told("default").into_iter().rfind(|told| told.id == "e1").unwrap().alteration, alteration);
    }
    served.stop().await;
    world.close();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_that_has_begun_waits_for_room_with_the_owners() {
    let dir = tempfile::tempdir().unwrap();
    // Room for one command at a time.
    let config = ContextConfig { inbox_max_bytes: 1, ..ContextConfig::default() };
    let world = World::open_with(dir.path(), Arc::new(Registry::default()), config);
    let served = world.serve().await;
    let entities: Vec<Value> = (0..100).map(|n| json!({"id": n.to_string(), "type": "T", "a": n})).collect();
    let body = json!({"actionType": "append", "entities": entities}).to_string();
    let answer = served.ask("POST /v2/op/update?options=keyValues", Some(&body)).await;
    assert_eq!(answer.status, 204, "{answer:?}");
    let listed = served.get("/v2/entities?limit=1&options=count").await;
    assert_eq!(listed.header("fiware-total-count"), Some("100"));
    served.stop().await;
    world.close();
}
