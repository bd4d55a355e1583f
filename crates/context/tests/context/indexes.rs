//! Indexes: which one a list is found by, that it is kept up to date, and that it outlives the process.

use serde_json::{Value, json};

use crate::filters::{self, encoded};
use crate::world::{Served, World, wait_for_index};

const ENTITIES: usize = 3_000;

async fn fill(served: &Served) {
    for part in 0..3 {
        let entities: Vec<Value> = (part * ENTITIES / 3..(part + 1) * ENTITIES / 3)
            .map(|n| {
                let kind = if n % 10 == 0 { "Rare" } else { "T" };
                json!({"id": format!("e{n:04}"), "type": kind, "n": n, "word": format!("w{}", n % 7), "even": n % 2 == 0})
            })
            .collect();
        let body = json!({"actionType": "append", "entities": entities}).to_string();
        assert_eq!(served.ask("POST /v2/op/update?options=keyValues", Some(&body)).await.status, 204);
    }
    let one =
        r#"{"id":"special","type":"T","special":{"value":1},"dateExpires":{"value":"2999-01-01","type":"DateTime"}}"#;
    assert_eq!(served.ask("POST /v2/entities\nfiware-servicepath: /far", Some(one)).await.status, 201);
}

/// The ids, sorted: each owner creates the entities of a batch by its own clock.
async fn listed(served: &Served, parameters: &[(&str, &str)]) -> String {
    let found = filters::listed(served, parameters).await;
    let mut ids: Vec<&str> = found.split(' ').collect();
    ids.sort_unstable();
    ids.join(" ")
}

async fn plan(served: &Served, query: &str) -> Value {
    served.get(&format!("/v2/entities?options=explain&{query}")).await.json()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_filter_is_served_by_its_index() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path());
    let served = world.serve().await;
    fill(&served).await;
    for (query, index, candidates, residual) in [
        ("", "creation", 3_001, json!([])),
        ("id=e0001,e0002", "id", 2, json!([])),
        ("type=Rare", "type", 300, json!([])),
        ("type=Rare&idPattern=9$", "type", 300, json!(["idPattern"])),
        ("q=special", "attribute special", 1, json!([])),
        ("q=special;word", "attribute special", 1, json!(["word"])),
        ("mq=special.m", "attribute special", 1, json!(["special"])),
        ("q=special.key", "attribute special", 1, json!(["special"])),
        ("q=special~=x", "attribute special", 1, json!(["special"])),
        ("q=(special|none;word)", "attribute special or attribute none", 1, json!(["special", "none", "word"])),
        ("q=(special|!word)", "creation", 3_001, json!(["special", "word"])),
        ("q=special;(word|even)", "attribute special", 1, json!(["word", "even"])),
        ("q=special;(special==1|even)", "attribute special", 1, json!(["special", "even"])),
        ("q=dateModified%3C2000-01-01", "modification", 0, json!([])),
        ("q=dateCreated%3C2000-01-01", "creation", 0, json!([])),
        ("georel=near;minDistance:0&geometry=point&coords=1,2", "location", 0, json!([])),
    ] {
        let plan = plan(&served, query).await;
        assert_eq!((&plan["index"], &plan["residual"]), (&json!(index), &residual), "{query}: {plan}");
        assert_eq!(plan["candidates"], candidates, "{query}: {plan}");
    }
    let far = served.ask("GET /v2/entities?options=explain\nfiware-servicepath: /far", None).await.json();
    assert_eq!((&far["index"], &far["candidates"]), (&json!("servicePath"), &json!(1)));

    // Values, once they have been asked for.
    assert_eq!(plan(&served, "q=n==7").await["building"], json!(["n"]));
    wait_for_index(&served, "q=n==7", "n").await;
    assert_eq!(plan(&served, "q=n==7").await["candidates"], 1);
    assert_eq!(plan(&served, "q=n==10..19;word==w1").await["index"], "value of n");
    wait_for_index(&served, "q=word==w1", "word").await;
    assert_eq!(plan(&served, "q=n==10..19;word==w1").await["index"], "value of n", "the one that leaves fewer");
    assert_eq!(listed(&served, &[("q", "n==10..19;word==w1")]).await, "e0015");
    assert_eq!(listed(&served, &[("q", "n>2997")]).await, "e2998 e2999");
    let either = plan(&served, "q=(n%3E2997|n==5;word)").await;
    assert_eq!((&either["index"], &either["candidates"]), (&json!("value of n or value of n"), &json!(4)), "{either}");
    assert_eq!(listed(&served, &[("q", "(n>2997|n>=2999|n==5;word)")]).await, "e0005 e2998 e2999");
    assert_eq!(listed(&served, &[("q", "n<2;even==false")]).await, "e0001");
    let counted = served.get(&format!("/v2/entities?limit=1&options=count&q={}", encoded("word==w1"))).await;
    assert_eq!(counted.header("fiware-total-count"), Some("429"));
    // More than a page needs: passed in the order of creation instead of sorted.
    let many = plan(&served, "q=n%3E=0&limit=5").await;
    assert_eq!((&many["index"], &many["serves"]), (&json!("creation"), &json!(null)), "{many}");
    served.stop().await;
    world.close();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_index_follows_changes_and_outlives_the_process() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path());
    let served = world.serve().await;
    fill(&served).await;
    wait_for_index(&served, "q=n==7", "n").await;
    for (head, body) in [
        ("PATCH /v2/entities/e0007/attrs?options=keyValues", Some(r#"{"n":70000}"#)),
        ("PUT /v2/entities/e0008/attrs?options=keyValues", Some(r#"{"other":1}"#)),
        ("DELETE /v2/entities/e0009", None),
        ("DELETE /v2/entities/e0010/attrs/n", None),
        ("POST /v2/entities?options=keyValues", Some(r#"{"id":"new","n":70000}"#)),
        ("PUT /v2/entities/e0011/attrs/n/value", Some("[70000,12,12]")),
    ] {
        let answer = served.ask(head, body).await;
        assert!(answer.status < 300, "{head}: {answer:?}");
    }
    let check = async |served: &Served, when: &str| {
        wait_for_index(served, "q=n==7", "n").await;
        assert_eq!(listed(served, &[("q", "n==70000")]).await, "e0007 e0011 new", "{when}");
        assert_eq!(listed(served, &[("q", "n==7..12")]).await, "e0011 e0012", "{when}");
        assert_eq!(plan(served, "q=n==7").await["candidates"], 0, "{when}");
    };
    check(&served, "before").await;
    served.stop().await;
    let checkpoints = world.close();
    for (delete, when) in [(false, "from the checkpoint"), (true, "from the log")] {
        if delete {
            std::fs::remove_dir_all(&checkpoints).unwrap();
        }
        let world = World::open(dir.path());
        let served = world.serve().await;
        let first = plan(&served, "q=n==7").await;
        assert_eq!((&first["index"], &first["building"]), (&json!("value of n"), &json!([])), "{when}: {first}");
        check(&served, when).await;
        served.stop().await;
        world.close();
    }
}
