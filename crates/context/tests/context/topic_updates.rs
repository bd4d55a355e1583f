//! Records of `context_update.<tenant>` update entities: each once, whatever restarts, and those of an entity in order.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use millstream_testkit::eventually;
use millstream_types::{TenantId, TopicName};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::telemetry::{Checkpoint, restart};
use crate::world::{Served, World};

/// Names and values of a record's headers.
type Headers<'a> = &'a [(&'a str, &'a str)];

/// Waits until so many updates have taken effect or were refused.
fn settle(world: &World, updates: u64) {
    eventually("the updates", || {
        let stats = world.context.stats();
        stats.topic_updates + stats.refused_topic_updates >= updates
    });
    assert_eq!(world.context.stats().topic_updates + world.context.stats().refused_topic_updates, updates);
}

async fn shown(served: &Served, target: &str, path: &str) -> Value {
    served.ask(&format!("GET {target}\nfiware-servicepath: {path}"), None).await.json()
}

/// Waits for an answer: what is decided is seen once it is stored. `null` stands for an entity that is not there.
async fn shown_soon(served: &Served, target: &str, path: &str, expected: &Value) {
    let patience = Instant::now();
    loop {
        let found = shown(served, target, path).await;
        if found == *expected || (expected.is_null() && found["error"] == "NotFound") {
            return;
        }
        assert!(patience.elapsed() < Duration::from_secs(60), "{target}: {found} and not {expected}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_is_a_batch_or_an_entity_in_either_representation() {
    let normalized = |kind: &str, value: Value| json!({"type": kind, "value": value, "metadata": {}});
    let batch = |action: &str, entities: Value| json!({"actionType": action, "entities": entities});
    let set = json!({"id": "e", "type": "T", "a": 1, "b": "x"});
    let e = |attributes: Value| {
        let mut entity = json!({"id": "e", "type": "T"});
        entity.as_object_mut().unwrap().extend(attributes.as_object().unwrap().clone());
        entity
    };
    let a = || normalized("Number", json!(1));
    let b = || normalized("Text", json!("x"));
    // What stands before the record, its headers, the record, and what stands after it.
    let rows: Vec<(Option<&Value>, Headers<'_>, Value, Value)> = vec![
        (None, &[], set.clone(), e(json!({"a": a(), "b": b()}))),
        (None, &[], json!({"id": "e"}), json!({"id": "e", "type": "Thing"})),
        (
            None,
            &[],
            json!({"id": "e", "type": "T", "a": {"value": 1, "type": "Level", "metadata": {"m": {"value": 2}}}, "b": {"c": 1}}),
            e(json!({
                "a": {"type": "Level", "value": 1, "metadata": {"m": {"type": "Number", "value": 2}}},
                "b": normalized("StructuredValue", json!({"c": 1})),
            })),
        ),
        (
            None,
            &[("format", "keyValues")],
            json!({"id": "e", "type": "T", "a": {"value": 1}}),
            e(json!({"a": normalized("StructuredValue", json!({"value": 1}))})),
        ),
        (
            None,
            &[("format", "normalized")],
            json!({"id": "e", "type": "T", "a": {"type": "None"}}),
            e(json!({"a": normalized("None", json!(null))})),
        ),
        (
            Some(&set),
            &[],
            json!({"id": "e", "a": {"$inc": 4}}),
            e(json!({"a": normalized("Number", json!(5)), "b": b()})),
        ),
        (
            Some(&set),
            &[],
            batch("append", json!([{"id": "e", "c": true}])),
            e(json!({"a": a(), "b": b(), "c": normalized("Boolean", json!(true))})),
        ),
        (
            Some(&set),
            &[],
            batch("appendStrict", json!([{"id": "e", "c": null}])),
            e(json!({"a": a(), "b": b(), "c": normalized("None", json!(null))})),
        ),
        (
            Some(&set),
            &[],
            batch("update", json!([{"id": "e", "type": "T", "a": 2}])),
            e(json!({"a": normalized("Number", json!(2)), "b": b()})),
        ),
        (
            Some(&set),
            &[],
            batch("replace", json!([{"id": "e", "c": 3}])),
            e(json!({"c": normalized("Number", json!(3))})),
        ),
        (Some(&set), &[], batch("delete", json!([{"id": "e", "a": 1}])), e(json!({"b": b()}))),
        (Some(&set), &[], batch("delete", json!([{"id": "e"}])), json!(null)),
        (
            None,
            &[("fiware-servicepath", "/a/b")],
            batch("append", json!([{"id": "f", "x": 1}, {"id": "e", "type": "T"}, {"id": "f", "x": {"$inc": 1}}])),
            e(json!({})),
        ),
    ];
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path());
    let served = world.serve().await;
    let mut count = 0;
    for (number, (before, headers, record, after)) in rows.into_iter().enumerate() {
        let topic = world.make_updates(&format!("t{number}"));
        for (headers, record) in before.map(|before| (&[][..], before)).into_iter().chain([(headers, &record)]) {
            world.update(&topic, "e", headers, Some(&record.to_string()));
            count += if record.to_string().contains("$inc\":1") { 3 } else { 1 };
        }
        settle(&world, count);
        let path = headers.iter().find(|(name, _)| *name == "fiware-servicepath").map_or("/", |(_, path)| *path);
        let target = format!("/v2/entities/e\nfiware-service: t{number}");
        shown_soon(&served, &target, path, &after).await;
    }
    assert_eq!(world.context.stats().refused_topic_updates, 0);
    // Updates of one entity in a record apply in their order.
    shown_soon(&served, "/v2/entities/f/attrs/x/value\nfiware-service: t12", "/a/b", &json!(2)).await;
    served.stop().await;
    world.close();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_is_refused_is_told_with_its_place_and_affects_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path());
    let served = world.serve().await;
    let deep = format!(r#"{{"id":"e","a":{}{}}}"#, "[".repeat(60), "]".repeat(60));
    let large = json!({"id": "e", "a": "x".repeat(1 << 20)}).to_string();
    let large = &large[..(1 << 20) - 200];
    let rows: Vec<(Headers<'_>, Option<&str>, &str)> = vec![
        (&[], None, "no value"),
        (&[], Some(""), "is not JSON"),
        (&[], Some("{"), "value '{': the body is not JSON"),
        (&[], Some(large), "is not JSON"),
        (&[], Some("[1]"), "must be an object"),
        (&[], Some(r#"{"a":1}"#), "neither 'id' nor 'actionType'"),
        (&[], Some(r#"{"actionType":"grow","entities":[{"id":"e"}]}"#), "actionType 'grow': use append"),
        (&[], Some(r#"{"actionType":7,"entities":[{"id":"e"}]}"#), "actionType 7"),
        (&[], Some(r#"{"entities":[{"id":"e"}]}"#), "no member 'actionType'"),
        (&[], Some(r#"{"actionType":"append"}"#), "no member 'entities'"),
        (&[], Some(r#"{"actionType":"append","entities":[]}"#), "entities is empty"),
        (&[], Some(r#"{"actionType":"append","entities":[1]}"#), "1 in entities"),
        (&[], Some(r#"{"actionType":"append","entities":[{"id":"e"}],"x":1}"#), "member 'x'"),
        (&[], Some(r#"{"actionType":"append","entities":[{"id":"ok"},{"id":"a b"}]}"#), "entity id 'a b'"),
        (&[], Some(r#"{"id":"e","a":1,"a":2}"#), "give each member once"),
        (&[], Some(r#"{"id":"e","a":"<"}"#), "attribute 'a'"),
        (&[], Some(r#"{"id":"e","a":{"value":1,"unit":"C"}}"#), "member 'unit'"),
        (&[], Some(r#"{"id":"e","a":{"$grow":1}}"#), "$grow"),
        (&[], Some(&deep), "nest"),
        (&[("format", "keyvalues")], Some(r#"{"id":"e"}"#), "header format 'keyvalues'"),
        (&[("format", "normalized")], Some(r#"{"id":"e","a":1}"#), "attribute 'a' is a Number"),
        (&[("fiware-servicepath", "a b")], Some(r#"{"id":"e"}"#), "Fiware-ServicePath 'a b'"),
        (
            &[],
            Some(r#"{"actionType":"update","entities":[{"id":"none","a":1}]}"#),
            "entity 'none': there is no entity 'none'",
        ),
        (&[], Some(r#"{"actionType":"delete","entities":[{"id":"none"}]}"#), "there is no entity 'none'"),
        (&[], Some(r#"{"actionType":"appendStrict","entities":[{"id":"there","a":1}]}"#), "exist already"),
        (&[], Some(r#"{"id":"there","place":{"type":"geo:json","value":"here"}}"#), "attribute 'place'"),
        (&[], Some(r#"{"id":"there","a":{"$inc":"x"}}"#), "$inc"),
    ];
    let topic = world.make_updates("default");
    world.update(&topic, "there", &[], Some(r#"{"id":"there","a":"text"}"#));
    settle(&world, 1);
    let mut refused = 0;
    for (number, (headers, value, says)) in rows.iter().enumerate() {
        // The text of a refusal is kept ten times a second.
        eventually("the text", || {
            let (partition, offset) = world.update(&topic, &format!("k{number}"), headers, *value);
            refused += 1;
            let error = || world.context.update_error(&TenantId::default());
            eventually("the refusal", || error().is_some_and(|told| told.count == refused));
            assert_eq!(world.context.stats().refused_topic_updates, refused);
            let told = error().unwrap();
            let is_told = told
                .what
                .starts_with(&format!("topic context_update.default, partition {partition}, offset {offset}, "));
            assert!(!is_told || told.what.contains(says), "{value:?}: {told:?}");
            is_told
        });
    }
    world.update(&topic, "e", &[], Some(r#"{"id":"e","a":1}"#));
    eventually("the last record", || world.context.stats().entities == 2);
    assert_eq!(world.context.stats().topic_updates, 2);
    let entities = served.get("/v2/entities?options=keyValues").await.json();
    let expected = json!([{"id": "there", "type": "Thing", "a": "text"}, {"id": "e", "type": "Thing", "a": 1}]);
    assert_eq!(entities, expected, "nothing of a refused record is applied");
    let statistics = served.get("/statistics").await.json();
    let updates = &statistics["millstream"]["updates"];
    assert!(
        updates["what"].as_str().unwrap().contains("offset") && updates["count"].as_u64() > Some(0),
        "{statistics}"
    );
    assert!(statistics["millstream"]["mapping"].is_null(), "{statistics}");
    served.stop().await;
    world.close();
}

#[tokio::test(flavor = "multi_thread")]
async fn entities_of_a_record_that_grow_beyond_an_append_are_refused_by_themselves() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path());
    let topic = world.make_updates("default");
    let large = "x".repeat(900 << 10);
    // All with one id have one owner.
    for kind in 0..4 {
        let entity = json!({"id": "e", "type": format!("T{kind}"), "large": large, "n": 0});
        world.update(&topic, "e", &[], Some(&entity.to_string()));
    }
    settle(&world, 4);
    let adds = |range: std::ops::Range<usize>| -> Vec<Value> {
        range.map(|kind| json!({"id": "e", "type": format!("T{kind}"), "n": {"$inc": 1}})).collect()
    };
    let record = json!({"actionType": "append", "entities": adds(0..4)});
    world.update(&topic, "e", &[], Some(&record.to_string()));
    settle(&world, 8);
    let stats = world.context.stats();
    assert_eq!((stats.topic_updates, stats.refused_topic_updates), (6, 2));
    let told = world.context.update_error(&TenantId::default()).unwrap().what;
    assert!(told.contains("entity 'e/T2'") && told.contains("send its entities in several records"), "{told}");
    world.update(&topic, "e", &[], Some(&json!({"actionType": "append", "entities": adds(2..4)}).to_string()));
    settle(&world, 10);
    eventually("every change", || world.told("default").len() == 8);
    let changed: Vec<(String, Value)> = world.told("default")[4..]
        .iter()
        .map(|told| (told.entity["type"].as_str().unwrap().to_owned(), told.entity["n"]["value"].clone()))
        .collect();
    let expected: Vec<(String, Value)> = (0..4).map(|kind| (format!("T{kind}"), json!(1))).collect();
    assert_eq!(changed, expected);
    world.close();
}

#[derive(Debug, Clone)]
enum Step {
    /// A record under the key of the first counter, which adds to these counters.
    Add(Vec<u8>),
    Restart(Checkpoint),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let counters = prop::collection::vec(0..12_u8, 1..6);
    let checkpoint = prop_oneof![Just(Checkpoint::Kept), Just(Checkpoint::Older), Just(Checkpoint::Deleted)];
    let step = prop_oneof![30 => counters.prop_map(Step::Add), 1 => checkpoint.prop_map(Step::Restart)];
    prop::collection::vec(step, 20..120)
}

/// A record that adds 1 to each of these counters and says in each which record was its last of a key.
fn addition(counters: &[u8], number: usize) -> String {
    let last = format!("last{}", counters[0]);
    let add = |counter: &u8| json!({"id": format!("c{counter}"), "type": "Counter", "n": {"$inc": 1}, (last.clone()): number});
    json!({"actionType": "append", "entities": counters.iter().map(add).collect::<Vec<_>>()}).to_string()
}

fn add(world: &World, topic: &TopicName, counters: &[u8], number: usize) {
    world.update(topic, &format!("c{}", counters[0]), &[], Some(&addition(counters, number)));
}

fn run(dir: &Path, steps: Vec<Step>) {
    let mut world = World::open(dir);
    let topic = world.make_updates("default");
    let mut model: BTreeMap<String, BTreeMap<String, usize>> = BTreeMap::new();
    let (mut records, mut updates) = (0, 0);
    for step in steps {
        match step {
            Step::Restart(checkpoint) => world = restart(dir, world, checkpoint),
            Step::Add(counters) => {
                records += 1;
                updates += counters.len();
                add(&world, &topic, &counters, records);
                for counter in &counters {
                    let members = model.entry(format!("c{counter}")).or_default();
                    *members.entry("n".to_owned()).or_default() += 1;
                    members.insert(format!("last{}", counters[0]), records);
                }
            }
        }
    }
    eventually("every change", || world.told("default").len() >= updates);
    world = restart(dir, world, Checkpoint::Kept);
    let told = world.told("default");
    assert_eq!(told.len(), updates, "each update is told once");
    let mut last: BTreeMap<(String, String), u64> = BTreeMap::new();
    for told in &told {
        for (name, value) in told.entity.as_object().unwrap().iter().filter(|(name, _)| name.starts_with("last")) {
            let (now, before) =
                (value["value"].as_u64().unwrap(), last.entry((told.id.clone(), name.clone())).or_default());
            assert!(now >= *before, "records of one key reach an entity in order");
            *before = now;
        }
    }
    let now: BTreeMap<String, BTreeMap<String, usize>> =
        told.iter().map(|told| (told.id.clone(), numbers(&told.entity))).collect();
    assert_eq!(now, model);
    world.close();
}

fn numbers(entity: &Value) -> BTreeMap<String, usize> {
    let members = entity.as_object().unwrap().iter();
    members.filter_map(|(name, member)| Some((name.clone(), member["value"].as_u64()? as usize))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, max_shrink_iters: 20, ..ProptestConfig::default() })]

    #[test]
    fn each_record_counts_once_with_each_of_its_entities_whatever_restarts(steps in steps()) {
        let dir = tempfile::tempdir().unwrap();
        run(dir.path(), steps);
    }
}
