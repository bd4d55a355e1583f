//! Changes and deletions of all entities that match.

use serde_json::{Value, json};

use crate::world::{Served, World};

/// Six entities in two paths; `n` is the number in the id.
async fn fill(served: &Served) {
    for (path, kinds) in [("/", ["Room", "Room", "Lamp"]), ("/b", ["Room", "Lamp", "Lamp"])] {
        for (number, kind) in kinds.into_iter().enumerate() {
            let body = json!({"id": format!("e{number}"), "type": kind, "n": number, "state": "old"});
            let head = format!("POST /v2/entities?options=keyValues\nfiware-servicepath: {path}");
            assert_eq!(served.ask(&head, Some(&body.to_string())).await.status, 201);
        }
    }
}

/// All entities as `path id type n state`, or what of these they have.
async fn all(served: &Served) -> Vec<String> {
    let listed = served.get("/v2/entities?options=keyValues&attrs=servicePath,n,state&limit=1000").await.json();
    let line = |entity: &Value| {
        let texts = ["servicePath", "id", "type", "n", "state"].map(|name| match &entity[name] {
            Value::Null => String::new(),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        });
        texts.join(" ").trim_end().to_owned()
    };
    listed.as_array().unwrap().iter().map(line).collect()
}

const ALL: [&str; 6] = [
    "/ e0 Room 0 old",
    "/ e1 Room 1 old",
    "/ e2 Lamp 2 old",
    "/b e0 Room 0 old",
    "/b e1 Lamp 1 old",
    "/b e2 Lamp 2 old",
];

#[tokio::test(flavor = "multi_thread")]
async fn entities_that_match_are_deleted_and_no_others() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path());
    let served = world.serve().await;
    fill(&served).await;
    let of_another = "POST /v2/entities?options=keyValues\nfiware-service: other";
    assert_eq!(served.ask(of_another, Some(r#"{"id":"e0","type":"Room","n":0}"#)).await.status, 201);
    for head in [
        "DELETE /v2/entities",
        "DELETE /v2/entities?id=",
        "DELETE /v2/entities?type=Room&qq=n>5",
        "DELETE /v2/entities?type=Room&limit=1",
        "DELETE /v2/entities?type=Room&options=count",
        "DELETE /v2/entities?type=Room&typePattern=R",
        "DELETE /v2/entities?q=n==",
        "DELETE /v2/entities?idPattern=(",
        "DELETE /v2/entities?type=Room\nif-match: \"1\"",
    ] {
        let refused = served.ask(head, None).await;
        assert_eq!((refused.status, &refused.json()["error"]), (400, &json!("BadRequest")), "{head}: {refused:?}");
    }
    assert_eq!(all(&served).await, ALL);
    for (head, count, left) in [
        ("DELETE /v2/entities?type=Door", 0, &ALL[..]),
        ("DELETE /v2/entities?type=Lamp\nfiware-servicepath: /c", 0, &ALL[..]),
        (
            "DELETE /v2/entities?idPattern=^e[01]$&q=n==0;state\nfiware-servicepath: /b",
            1,
            &[ALL[0], ALL[1], ALL[2], ALL[4], ALL[5]],
        ),
        ("DELETE /v2/entities?type=Room,Lamp&q=(n==0|n==2)", 3, &[ALL[1], ALL[4]]),
        ("DELETE /v2/entities?idPattern=.*\nfiware-servicepath: /,/c", 1, &[ALL[4]]),
        ("DELETE /v2/entities?typePattern=.", 1, &[]),
    ] {
        let done = served.ask(head, None).await;
        assert_eq!(
            (done.status, done.header("fiware-total-count")),
            (204, Some(&*count.to_string())),
            "{head}: {done:?}"
        );
        assert_eq!(all(&served).await, left, "{head}");
    }
    let other = served.ask("GET /v2/entities\nfiware-service: other", None).await.json();
    assert_eq!(other.as_array().unwrap().len(), 1);
    served.stop().await;
    world.close();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_changes_all_entities_that_match() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path());
    let served = world.serve().await;
    fill(&served).await;
    let update = async |path: &str, body: &Value| {
        let path = if path.is_empty() { String::new() } else { format!("\nfiware-servicepath: {path}") };
        served.ask(&format!("POST /v2/op/update?options=keyValues{path}"), Some(&body.to_string())).await
    };
    let of = |action: &str, entity: Value| json!({"actionType": action, "entities": [entity]});
    let with = |mut body: Value, expression: Value| {
        body["expression"] = expression;
        body
    };
    for (body, named) in [
        (json!({"actionType": "delete", "entities": [{"idPattern": "e"}, {"id": "e1"}]}), "two requests"),
        (of("delete", json!({"typePattern": "R"})), "neither id nor idPattern"),
        (of("delete", json!({"id": "e1", "idPattern": "e"})), "excludes"),
        (of("delete", json!({"idPattern": "("})), "idPattern"),
        (with(of("delete", json!({"idPattern": "e"})), json!("q")), "expression"),
        (with(of("delete", json!({"idPattern": "e"})), json!({"q": "n=="})), "n=="),
        (with(of("delete", json!({"type": "Room"})), json!({"q": "n"})), "neither id nor idPattern"),
        (with(of("delete", json!({"idPattern": "e"})), json!({"qq": "n"})), "qq"),
        (of("clear", json!({"idPattern": "e"})), "clear"),
    ] {
        let refused = update("", &body).await;
        assert_eq!(refused.status, 400, "{body}: {refused:?}");
        assert!(refused.json()["description"].as_str().unwrap().contains(named), "{body}: {refused:?}");
    }
    assert_eq!(all(&served).await, ALL);
    for (path, body, count, left) in [
        (
            "/b",
            of("update", json!({"idPattern": ".*", "type": "Lamp", "state": "new"})),
            2,
            [
                "/ e0 Room 0 old",
                "/ e1 Room 1 old",
                "/ e2 Lamp 2 old",
                "/b e0 Room 0 old",
                "/b e1 Lamp 1 new",
                "/b e2 Lamp 2 new",
            ],
        ),
        (
            "",
            with(of("append", json!({"idPattern": ".*", "n": 9})), json!({"q": "state==old;n>0"})),
            2,
            [
                "/ e0 Room 0 old",
                "/ e1 Room 9 old",
                "/ e2 Lamp 9 old",
                "/b e0 Room 0 old",
                "/b e1 Lamp 1 new",
                "/b e2 Lamp 2 new",
            ],
        ),
        (
            "",
            with(of("replace", json!({"id": "e0", "n": 7})), json!({"q": "state==old"})),
            2,
            [
                "/ e0 Room 7",
                "/ e1 Room 9 old",
                "/ e2 Lamp 9 old",
                "/b e0 Room 7",
                "/b e1 Lamp 1 new",
                "/b e2 Lamp 2 new",
            ],
        ),
        (
            "/b",
            of("delete", json!({"idPattern": "[12]", "typePattern": "^L", "n": null})),
            2,
            ["/ e0 Room 7", "/ e1 Room 9 old", "/ e2 Lamp 9 old", "/b e0 Room 7", "/b e1 Lamp  new", "/b e2 Lamp  new"],
        ),
    ] {
        let done = update(path, &body).await;
        assert_eq!(
            (done.status, done.header("fiware-total-count")),
            (204, Some(&*count.to_string())),
            "{body}: {done:?}"
        );
        assert_eq!(all(&served).await, left, "{body}");
    }
    // Some have no such attribute: the others are changed.
    let partly = update("", &of("update", json!({"idPattern": ".*", "state": "last"}))).await;
    assert_eq!((partly.status, &partly.json()["error"]), (422, &json!("PartialUpdate")), "{partly:?}");
    let told = partly.json()["description"].as_str().unwrap().to_owned();
    assert!(told.starts_with("2 of 6 entities") && told.contains("e0/Room of /b"), "{told}");
    let states = all(&served).await.into_iter().filter(|line| line.ends_with(" last")).count();
    assert_eq!(states, 4);
    let done =
        update("", &json!({"actionType": "delete", "entities": [{"idPattern": "e0"}, {"idPattern": "."}]})).await;
    assert_eq!((done.status, done.header("fiware-total-count")), (204, Some("6")), "{done:?}");
    assert_eq!(all(&served).await, [""; 0]);
    served.stop().await;
    world.close();
}

/// An entity that another client has changed, so that it does not match any more, stays.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_another_client_changes_meanwhile_is_looked_at_again() {
    const ENTITIES: usize = 300;
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path());
    let served = world.serve().await;
    let entities: Vec<Value> =
        (0..ENTITIES).map(|number| json!({"id": format!("e{number}"), "n": 0, "m": 0})).collect();
    let body = json!({"actionType": "append", "entities": entities});
    assert_eq!(served.ask("POST /v2/op/update?options=keyValues", Some(&body.to_string())).await.status, 204);
    let writer = async {
        let mut written = Vec::new();
        for number in (0..ENTITIES).rev() {
            // Some of the writes leave an entity as one that matches.
            let name = if number % 3 == 0 { "m" } else { "n" };
            let head = format!("PUT /v2/entities/e{number}/attrs/{name}/value\ncontent-type: text/plain");
            written.push((number, served.ask(&head, Some("1")).await.status));
        }
        written
    };
    let (written, deleted) = tokio::join!(writer, served.ask("DELETE /v2/entities?q=n==0", None));
    assert_eq!(deleted.status, 204, "{deleted:?}");
    let left = served.get("/v2/entities?options=keyValues&limit=1000").await.json();
    let is_left = |number: usize| left.as_array().unwrap().iter().any(|entity| entity["id"] == format!("e{number}"));
    for (number, status) in written {
        assert!([204, 404].contains(&status), "{number}: {status}");
        if number % 3 == 0 {
            assert!(!is_left(number), "{number} matches: {status}");
        } else {
            assert_eq!(is_left(number), status == 204, "{number}");
        }
    }
    served.stop().await;
    world.close();
}
