//! `orderBy`, forms of entities, and which attributes and metadata are shown.

use serde_json::json;

use crate::filters::listed;
use crate::refusals::{ask, check};
use crate::world::{World, next_millisecond};

#[tokio::test(flavor = "multi_thread")]
async fn mixed_types_and_ties_have_one_order() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path());
    let served = world.serve().await;
    for (id, value) in [
        ("bool2", "true"),
        ("array", "[1]"),
        ("text2", "\"b\""),
        ("num2", "10"),
        ("null", "null"),
        ("num1", "9"),
        ("tie", "9"),
        ("text1", "\"a\""),
        ("object", "{}"),
        ("bool1", "false"),
    ] {
        let body = format!(r#"{{"id":"{id}","type":"T","v":{value},"w":1}}"#);
        assert_eq!(served.ask("POST /v2/entities?options=keyValues", Some(&body)).await.status, 201);
        next_millisecond();
    }
    for (order, expected) in [
        ("v", "null num1 tie num2 text1 text2 object array bool1 bool2"),
        ("!v", "bool2 bool1 array object text2 text1 num2 num1 tie null"),
        ("w,!id", "tie text2 text1 object num2 num1 null bool2 bool1 array"),
        ("type,w", "bool2 array text2 num2 null num1 tie text1 object bool1"),
        ("!dateCreated,nothing", "bool1 object text1 tie num1 null num2 text2 array bool2"),
        ("id", "array bool1 bool2 null num1 num2 object text1 text2 tie"),
    ] {
        let found = listed(&served, &[("orderBy", order)]).await;
        assert_eq!(found, expected, "{order}");
        // Pages join without gap or overlap.
        let mut pages = Vec::new();
        for offset in ["0", "3", "6", "9"] {
            pages.push(listed(&served, &[("orderBy", order), ("limit", "3"), ("offset", offset)]).await);
        }
        assert_eq!(pages.join(" "), found, "{order}");
    }
    for (query, why) in [
        ("orderBy=v,!v", "twice"),
        ("orderBy=v,,w", "1 to 256"),
        ("orderBy=a%3Cb", "a<b"),
        ("orderBy=geo:distance", "near"),
    ] {
        let head = format!("GET /v2/entities?{query}");
        check(&ask(&served, &head, None).await, 400, "BadRequest", why, &head);
    }
    served.stop().await;
    world.close();
}

#[tokio::test(flavor = "multi_thread")]
async fn each_representation_and_selection_follows_the_reference() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path());
    let served = world.serve().await;
    let body = r#"{"id":"e","type":"T","a":{"value":1,"metadata":{"m":{"value":"x"},"n":{"value":2}}},
        "b":{"value":[1]},"c":{"value":1}}"#;
    assert_eq!(served.ask("POST /v2/entities", Some(body)).await.status, 201);
    for (query, expected) in [
        ("options=values", json!([[1, [1], 1]])),
        ("options=unique", json!([[1, [1]]])),
        ("options=values&attrs=c,b", json!([[1, [1]]])),
        ("options=keyValues&attrs=b", json!([{"id": "e", "type": "T", "b": [1]}])),
        ("options=keyValues&attrs=servicePath", json!([{"id": "e", "type": "T", "servicePath": "/"}])),
        ("attrs=c", json!([{"id": "e", "type": "T", "c": {"type": "Number", "value": 1, "metadata": {}}}])),
    ] {
        assert_eq!(served.get(&format!("/v2/entities?{query}")).await.json(), expected, "{query}");
        if !query.starts_with("attrs") {
            assert_eq!(served.get(&format!("/v2/entities/e?{query}")).await.json(), expected[0], "{query}");
        }
    }
    let metadata = async |query: &str| {
        let shown = served.get(&format!("/v2/entities/e?{query}")).await.json();
        let mut names: Vec<String> = shown["a"]["metadata"].as_object().unwrap().keys().cloned().collect();
        names.sort_unstable();
        names.join(" ")
    };
    for (query, expected) in [
        ("", "m n"),
        ("metadata=m", "m"),
        ("metadata=dateCreated", "dateCreated"),
        ("metadata=dateModified,*", "dateModified m n"),
        ("metadata=none", ""),
    ] {
        assert_eq!(metadata(query).await, expected, "{query}");
    }
    let one = served.get("/v2/entities/e/attrs/a?metadata=dateModified").await.json();
    assert!(one["metadata"]["dateModified"]["value"].as_str().unwrap().ends_with('Z'), "{one}");
    let all = served.get("/v2/entities/e?options=dateCreated,dateModified,keyValues").await.json();
    assert_eq!(all.as_object().unwrap().len(), 7, "{all}");
    served.stop().await;
    world.close();
}
