//! The operations on entities and attributes, as the reference lists them.

use serde_json::{Value, json};

use crate::world::{Served, World};

async fn expect(served: &Served, head: &str, body: Option<&str>, status: u16) {
    let answer = served.ask(head, body).await;
    assert_eq!(answer.status, status, "{head} {body:?}: {answer:?}");
    assert!(answer.header("fiware-correlator").is_some_and(|id| id.len() == 36), "{head}: {answer:?}");
    assert!(status != 204 || answer.body.is_empty());
}

async fn shown(served: &Served, target: &str) -> Value {
    let answer = served.get(target).await;
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("application/json")), "{target}: {answer:?}");
    answer.json()
}

fn plain(kind: &str, value: Value) -> Value {
    json!({"type": kind, "value": value, "metadata": {}})
}

const ROOM: &str = r#"{"id":"r1","type":"Room","t":{"value":21.0,"type":"Celsius"},"p":{"value":720}}"#;

#[tokio::test(flavor = "multi_thread")]
async fn an_entity_is_created_read_updated_and_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path());
    let served = world.serve().await;

    let answer = served.ask("POST /v2/entities", Some(ROOM)).await;
    assert_eq!((answer.status, answer.header("location")), (201, Some("/v2/entities/r1?type=Room")), "{answer:?}");
    let (t, p) = (plain("Celsius", json!(21)), plain("Number", json!(720)));
    assert_eq!(shown(&served, "/v2/entities/r1").await, json!({"id": "r1", "type": "Room", "t": t, "p": p}));
    assert!(served.get("/v2/entities/r1").await.body.contains(r#""value":21,"#), "no decimals");
    assert_eq!(shown(&served, "/v2/entities/r1/attrs").await, json!({"t": t, "p": p}));
    assert_eq!(shown(&served, "/v2/entities/r1/attrs/t").await, t);
    assert_eq!(shown(&served, "/v2/entities/r1/attrs?options=keyValues").await, json!({"t": 21, "p": 720}));

    // Update or append.
    expect(&served, "POST /v2/entities/r1/attrs", Some(r#"{"t":{"value":22},"h":{"value":"dry"}}"#), 204).await;
    let all = json!({"t": plain("Number", json!(22)), "p": p, "h": plain("Text", json!("dry"))});
    assert_eq!(shown(&served, "/v2/entities/r1/attrs").await, all);
    // Strict append: a part is applied.
    let both = Some(r#"{"t":{"value":1},"n":{"value":null}}"#);
    expect(&served, "POST /v2/entities/r1/attrs?options=append", both, 422).await;
    assert_eq!(
        shown(&served, "/v2/entities/r1/attrs?options=keyValues").await,
        json!({"t": 22, "p": 720, "h": "dry", "n": null})
    );
    // Update of what exists.
    expect(&served, "PATCH /v2/entities/r1/attrs?options=keyValues", Some(r#"{"n":[1,2.50],"p":1e3}"#), 204).await;
    assert_eq!(shown(&served, "/v2/entities/r1/attrs/n").await, plain("StructuredValue", json!([1, 2.5])));
    assert_eq!(shown(&served, "/v2/entities/r1/attrs/p").await, plain("Number", json!(1000)));
    // Replace all.
    expect(&served, "PUT /v2/entities/r1/attrs", Some(r#"{"x":{"value":true}}"#), 204).await;
    assert_eq!(shown(&served, "/v2/entities/r1/attrs").await, json!({"x": plain("Boolean", json!(true))}));
    // One attribute.
    let body = r#"{"value":"2017-06-17T07:21:24+02:00","type":"DateTime","metadata":{"m":{"value":1}}}"#;
    expect(&served, "PUT /v2/entities/r1/attrs/x", Some(body), 204).await;
    let x = json!({"type": "DateTime", "value": "2017-06-17T05:21:24.000Z", "metadata": {"m": plain_item(1)}});
    assert_eq!(shown(&served, "/v2/entities/r1/attrs/x").await, x);
    expect(&served, "PUT /v2/entities/r1/attrs/x?options=overrideMetadata", Some(r#"{"value":1}"#), 204).await;
    assert_eq!(shown(&served, "/v2/entities/r1/attrs/x").await, plain("Number", json!(1)));
    expect(&served, "DELETE /v2/entities/r1/attrs/x", None, 204).await;
    assert_eq!(shown(&served, "/v2/entities/r1").await, json!({"id": "r1", "type": "Room"}));

    expect(&served, "DELETE /v2/entities/r1", None, 204).await;
    expect(&served, "GET /v2/entities/r1", None, 404).await;
    let told: Vec<(String, String)> = world.told("default").into_iter().map(|t| (t.alteration, t.changed)).collect();
    let expected = ["t,p", "t,h", "n", "p,n", "x,t,p,h,n", "x", "x", "x", ""];
    assert_eq!(told.iter().map(|(_, changed)| changed.as_str()).collect::<Vec<_>>(), expected);
    assert_eq!((&*told[0].0, &*told[1].0, &*told[8].0), ("entityCreate", "entityChange", "entityDelete"));
    assert_eq!((world.context.stats().updates, world.context.stats().entities), (8, 0));
    served.stop().await;
    world.close();
}

fn plain_item(value: i64) -> Value {
    json!({"type": "Number", "value": value})
}

#[tokio::test(flavor = "multi_thread")]
async fn upsert_creates_or_merges() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path());
    let served = world.serve().await;
    for body in [r#"{"id":"a","x":1}"#, r#"{"id":"a","y":2}"#] {
        let answer = served.ask("POST /v2/entities?options=upsert,keyValues", Some(body)).await;
        assert_eq!((answer.status, answer.header("location")), (204, Some("/v2/entities/a?type=Thing")));
    }
    let expected = json!({"id": "a", "type": "Thing", "x": 1, "y": 2});
    assert_eq!(shown(&served, "/v2/entities/a?options=keyValues").await, expected);
    served.stop().await;
    world.close();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_update_without_a_difference_is_published_as_such() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path());
    let served = world.serve().await;
    expect(&served, "POST /v2/entities", Some(ROOM), 201).await;
    expect(&served, "PATCH /v2/entities/r1/attrs?options=keyValues", Some(r#"{"p":720}"#), 204).await;
    let told = world.told("default");
    assert_eq!((&*told[1].alteration, &*told[1].changed), ("entityUpdate", ""));
    served.stop().await;
    world.close();
}

#[tokio::test(flavor = "multi_thread")]
async fn tenants_and_service_paths_keep_entities_apart() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path());
    let served = world.serve().await;
    let create = |headers: &str| format!("POST /v2/entities?options=keyValues\n{headers}");
    for (headers, mark) in [
        ("", 0),
        ("fiware-service: ACME", 1),
        ("fiware-servicepath: /a", 2),
        ("fiware-servicepath: /a/b", 3),
        ("fiware-servicepath: /ab/", 4),
    ] {
        expect(&served, &create(headers), Some(&format!(r#"{{"id":"e","type":"T","mark":{mark}}}"#)), 201).await;
    }
    let marks = async |headers: &str| {
        let head = format!("GET /v2/entities?attrs=mark&options=keyValues,count\n{headers}");
        let answer = served.ask(&head, None).await;
        let list = answer.json();
        assert_eq!(answer.header("fiware-total-count"), Some(list.as_array().unwrap().len().to_string().as_str()));
        let mut marks: Vec<i64> = list.as_array().unwrap().iter().map(|e| e["mark"].as_i64().unwrap()).collect();
        marks.sort_unstable();
        marks
    };
    for (headers, expected) in [
        ("", &[0, 2, 3, 4][..]),
        ("fiware-service: acme", &[1]),
        ("fiware-service: Acme", &[1]),
        ("fiware-service: other", &[]),
        ("fiware-servicepath: /", &[0]),
        ("fiware-servicepath: /a", &[2]),
        ("fiware-servicepath: /a/#", &[2, 3]),
        ("fiware-servicepath: /#", &[0, 2, 3, 4]),
        ("fiware-servicepath: /a/b, /ab", &[3, 4]),
    ] {
        assert_eq!(marks(headers).await, expected, "{headers}");
    }
    // Without a path a read finds several, a write the one at the root.
    expect(&served, "GET /v2/entities/e", None, 409).await;
    expect(&served, "GET /v2/entities/e\nfiware-servicepath: /a", None, 200).await;
    expect(&served, "DELETE /v2/entities/e", None, 204).await;
    expect(&served, "DELETE /v2/entities/e", None, 404).await;
    expect(&served, "PATCH /v2/entities/e/attrs\nfiware-servicepath: /a/b", Some(r#"{"mark":{"value":9}}"#), 204).await;
    assert_eq!(marks("").await, [2, 4, 9]);
    served.stop().await;
    world.close();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_after_the_answer_sees_the_write_of_any_client() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path());
    let served = std::sync::Arc::new(world.serve().await);
    let writers: Vec<_> = (0..8)
        .map(|writer| {
            let served = served.clone();
            tokio::spawn(async move {
                for n in 0..25 {
                    let body = format!(r#"{{"id":"e{writer}","n":{n}}}"#);
                    let answer = served.ask("POST /v2/entities?options=upsert,keyValues", Some(&body)).await;
                    assert!(answer.status < 300, "{answer:?}");
                    let read = served.get(&format!("/v2/entities/e{writer}?options=keyValues")).await;
                    assert_eq!(read.json()["n"], n);
                    let list = served.get(&format!("/v2/entities?id=e{writer}&options=keyValues")).await;
                    assert_eq!(list.json()[0]["n"], n);
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    std::sync::Arc::into_inner(served).unwrap().stop().await;
    world.close();
}

#[tokio::test(flavor = "multi_thread")]
async fn entities_outlive_the_process_with_and_without_a_checkpoint() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path());
    let served = world.serve().await;
    expect(&served, "POST /v2/entities", Some(ROOM), 201).await;
    expect(&served, "POST /v2/entities", Some(r#"{"id":"gone"}"#), 201).await;
    expect(&served, "DELETE /v2/entities/gone", None, 204).await;
    let before = shown(&served, "/v2/entities?attrs=*,dateCreated,dateModified,servicePath").await;
    served.stop().await;
    let mut checkpoints = world.close();
    for delete in [false, true] {
        if delete {
            std::fs::remove_dir_all(&checkpoints).unwrap();
        }
        let world = World::open(dir.path());
        let served = world.serve().await;
        assert_eq!(shown(&served, "/v2/entities?attrs=*,dateCreated,dateModified,servicePath").await, before);
        expect(&served, "GET /v2/entities/gone", None, 404).await;
        served.stop().await;
        checkpoints = world.close();
    }
}
