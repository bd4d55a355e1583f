//! Measurements become entities: each record once, whatever restarts and whatever becomes of the checkpoint.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use millstream_context::ContextConfig;
use millstream_testkit::eventually;
use millstream_types::TenantId;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::world::{Registry, Told, World};

async fn entity(world: &World, id: &str) -> Value {
    let served = world.serve().await;
    let answer = served.get(&format!("/v2/entities/{id}")).await;
    served.stop().await;
    answer.json()
}

fn number(value: Value, at: &str) -> Value {
    let kind = match &value {
        Value::Null => "None",
        Value::Bool(_) => "Boolean",
        Value::Number(_) => "Number",
        Value::String(_) => "Text",
        _ => "StructuredValue",
    };
    json!({"type": kind, "value": value, "metadata": {"TimeInstant": {"type": "DateTime", "value": at}}})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_device_becomes_an_entity_with_an_attribute_for_each_member() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path());
    let topic = world.make_telemetry("default");
    let payload = r#"{"t": 20.0, "name": "x", "on": true, "pos": {"a": [1.5]}, "gone": null}"#;
    world.measure(&topic, "4711", 1_357_020_000_123, payload);
    eventually("the measurement", || world.context.stats().entities == 1);
    let at = "2013-01-01T06:00:00.123Z";
    let expected = json!({
        "id": "urn:ngsi-ld:Device:4711", "type": "Device",
        "t": number(json!(20), at), "name": number(json!("x"), at), "on": number(json!(true), at),
        "pos": number(json!({"a": [1.5]}), at), "gone": number(json!(null), at),
    });
    assert_eq!(entity(&world, "urn:ngsi-ld:Device:4711").await, expected);
    let told = world.told("default");
    assert_eq!(told.len(), 1);
    assert_eq!((&*told[0].alteration, &*told[0].changed), ("entityCreate", "t,name,on,pos,gone"));
    assert_eq!((told[0].timestamp_ms, &told[0].entity), (1_357_020_000_123, &expected));
    world.close();
}

#[tokio::test(flavor = "multi_thread")]
async fn values_that_ngsi_forbids_are_left_out_and_counted() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path());
    let topic = world.make_telemetry("default");
    for payload in ["not json", "[1]", "7", ""] {
        world.measure(&topic, "d", 0, payload);
    }
    world.measure(&topic, "no id", 0, "{}");
    world.measure(&topic, "broken", 0, "{}");
    let deep = format!("{}{}", "[".repeat(50), "]".repeat(50));
    let payload = format!(
        r#"{{"id": "x", "type": "y", "a b": 1, "bad": "a<b", "worse": {{"x(": 1}}, "deep": {deep}, "good": 1}}"#
    );
    world.measure(&topic, "d", 0, &payload);
    eventually("the last measurement", || world.context.stats().entities == 1);
    let stats = world.context.stats();
    assert_eq!((stats.unmapped_measurements, stats.skipped_attributes, stats.entities), (6, 6, 1));
    let trouble = world.context.mapping_error(&TenantId::default()).unwrap();
    assert_eq!(trouble.count, 12, "{trouble:?}");
    let at = "1970-01-01T00:00:00.000Z";
    let expected = json!({"id": "urn:ngsi-ld:Device:d", "type": "Device", "good": number(json!(1), at)});
    assert_eq!(entity(&world, "urn:ngsi-ld:Device:d").await, expected);
    world.close();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_registry_can_map_otherwise() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path());
    let topic = world.make_telemetry("default");
    let location = json!({"type": "geo:json", "value": {"type": "Point", "coordinates": [-73.77, 40.63]}});
    world.registry.set(
        "jfk",
        json!({"context": {"id": "station:JFK", "type": "WeatherObserved",
            "static": {"name": "JFK", "location": location}, "skip": ["x"], "attributes": {"temperature": "temp"}}}),
    );
    world.measure(&topic, "jfk", 0, r#"{"temp": 1, "x": 2, "wind": 3}"#);
    eventually("the measurement", || world.context.stats().entities == 1);
    let at = "1970-01-01T00:00:00.000Z";
    let expected = json!({
        "id": "station:JFK", "type": "WeatherObserved",
        "name": {"type": "Text", "value": "JFK", "metadata": {}},
        "location": {"type": "geo:json", "value": location["value"], "metadata": {}},
        "temperature": number(json!(1), at), "wind": number(json!(3), at),
    });
    assert_eq!(entity(&world, "station:JFK").await, expected);
    world.close();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_location_is_left_out_and_the_first_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path());
    let topic = world.make_telemetry("default");
    let point = json!({"point": ["x", "y"]});
    let of = |attributes: Value| json!({"context": {"id": "e", "attributes": attributes}});
    world.registry.set("first", of(json!({"a": point})));
    world.registry.set("renamed", of(json!({"b": point, "c": "x"})));
    world.measure(&topic, "first", 0, r#"{"x": 1, "y": 2}"#);
    eventually("the first", || world.context.stats().measurements == 1);
    world.measure(&topic, "renamed", 0, r#"{"x": 3, "y": 4}"#);
    eventually("the second", || world.context.stats().measurements == 2);
    world.measure(&topic, "first", 0, r#"{"x": 5, "y": 6}"#);
    eventually("the third", || world.context.stats().measurements == 3);
    assert_eq!(world.context.stats().skipped_attributes, 1);
    let trouble = world.context.mapping_error(&TenantId::default()).unwrap();
    assert!(trouble.what.contains("'b' would be a second location of entity 'e' beside 'a'"), "{trouble:?}");
    let served = world.serve().await;
    let at = json!({"type": "Point", "coordinates": [5, 6]});
    let expected = json!({"id": "e", "type": "Device", "a": at, "c": 3});
    // What is decided is seen once it is stored.
    let patience = std::time::Instant::now();
    loop {
        let shown = served.get("/v2/entities/e?options=keyValues").await.json();
        if shown == expected {
            break;
        }
        assert!(patience.elapsed() < std::time::Duration::from_secs(60), "{shown}");
        tokio::task::yield_now().await;
    }
    let changed: Vec<String> = world.told("default").into_iter().map(|told| told.changed).collect();
    assert_eq!(changed, ["a", "c", "a"]);
    let near = "/v2/entities?georel=near;maxDistance:1&geometry=point&coords=6,5&options=count";
    assert_eq!(served.get(near).await.header("fiware-total-count"), Some("1"), "where it was seen last");
    let written = served.ask("POST /v2/entities/e/attrs?options=keyValues", Some(r#"{"n":1}"#)).await;
    assert_eq!(written.status, 204, "{written:?}");
    served.stop().await;
    world.close();
}

#[test]
fn a_measurement_that_would_make_its_entity_too_large_is_counted_and_left_out() {
    let dir = tempfile::tempdir().unwrap();
    let config = ContextConfig { measured_entity_max_bytes: 2_048, ..ContextConfig::default() };
    let world = World::open_with(dir.path(), Arc::new(Registry::default()), config);
    let topic = world.make_telemetry("default");
    world.measure(&topic, "d", 0, r#"{"a": 1}"#);
    world.measure(&topic, "d", 0, &json!({"b": "x".repeat(2_048)}).to_string());
    world.measure(&topic, "d", 0, r#"{"c": 1}"#);
    eventually("the last measurement", || world.told("default").len() == 2);
    assert_eq!(world.context.stats().too_large_measurements, 1);
    let changed: Vec<String> = world.told("default").into_iter().map(|told| told.changed).collect();
    assert_eq!(changed, ["a", "c"]);
    world.close();
}

#[test]
fn each_tenant_has_its_own_entities_and_changes() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path());
    let topics = ["a", "b"].map(|tenant| world.make_telemetry(tenant));
    for topic in &topics {
        world.measure(topic, "same", 0, r#"{"a": 1}"#);
    }
    eventually("both entities", || world.context.stats().entities == 2);
    assert_eq!((world.told("a").len(), world.told("b").len(), world.told("default").len()), (1, 1, 0));
    world.close();
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_and_measurements_may_change_one_entity_at_once() {
    const EACH: usize = 300;
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path());
    let topic = world.make_telemetry("default");
    let served = world.serve().await;
    let target = "/v2/entities/urn:ngsi-ld:Device:d";
    world.measure(&topic, "d", 0, r#"{"n": 0}"#);
    eventually("the entity", || world.context.stats().entities == 1);
    for n in 1..=EACH {
        world.measure(&topic, "d", n as i64, &format!(r#"{{"n": {n}, "measured": {n}}}"#));
        let body = format!(r#"{{"n":{{"value":{n}}},"set":{{"value":{n}}}}}"#);
        assert_eq!(served.ask(&format!("POST {target}/attrs"), Some(&body)).await.status, 204);
    }
    eventually("every change", || world.told("default").len() == 1 + 2 * EACH);
    world.context.stop(Duration::ZERO);
    let told = world.told("default");
    assert_eq!(served.get(target).await.json(), told[2 * EACH].entity, "the last change in the owner's order wins");
    for member in ["measured", "set"] {
        let seen: Vec<u64> = told.iter().filter_map(|told| told.entity[member]["value"].as_u64()).collect();
        assert!(seen.is_sorted() && seen.last() == Some(&(EACH as u64)), "no change is taken back");
    }
    served.stop().await;
    world.close();
}

/// The checkpoint that the next life of the process finds.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Checkpoint {
    Kept,
    Older,
    Deleted,
}

#[derive(Debug, Clone)]
enum Step {
    /// Device, members that it sends.
    Measure(u8, Vec<u8>),
    Restart(Checkpoint),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let members = prop::collection::vec(0..5_u8, 0..4);
    let checkpoint = prop_oneof![Just(Checkpoint::Kept), Just(Checkpoint::Older), Just(Checkpoint::Deleted)];
    let step = prop_oneof![
        30 => (0..12_u8, members).prop_map(|(device, members)| Step::Measure(device, members)),
        1 => checkpoint.prop_map(Step::Restart),
    ];
    prop::collection::vec(step, 20..120)
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let (entry, target) = (entry.as_ref().unwrap().path(), to.join(entry.unwrap().file_name()));
        if entry.is_dir() {
            copy(&entry, &target);
        } else {
            std::fs::copy(&entry, &target).unwrap();
        }
    }
}

pub(crate) fn restart(dir: &Path, world: World, checkpoint: Checkpoint) -> World {
    let (checkpoints, older) = (world.close(), dir.join("older"));
    match checkpoint {
        Checkpoint::Kept => {}
        Checkpoint::Deleted => std::fs::remove_dir_all(&checkpoints).unwrap(),
        Checkpoint::Older if older.exists() => {
            std::fs::remove_dir_all(&checkpoints).unwrap();
            std::fs::rename(&older, &checkpoints).unwrap();
        }
        Checkpoint::Older => copy(&checkpoints, &older),
    }
    World::open(dir)
}

fn run(steps: Vec<Step>) {
    let dir = tempfile::tempdir().unwrap();
    let mut world = World::open(dir.path());
    let topic = world.make_telemetry("default");
    let mut model: BTreeMap<String, BTreeMap<String, usize>> = BTreeMap::new();
    let mut sent = 0;
    for step in steps {
        match step {
            Step::Restart(checkpoint) => world = restart(dir.path(), world, checkpoint),
            Step::Measure(device, members) => {
                sent += 1;
                let payload: BTreeMap<String, usize> =
                    members.iter().map(|member| (format!("m{member}"), sent)).chain([("n".to_owned(), sent)]).collect();
                let device = format!("d{device}");
                world.measure(&topic, &device, sent as i64, &serde_json::to_string(&payload).unwrap());
                model.entry(format!("urn:ngsi-ld:Device:{device}")).or_default().extend(payload);
            }
        }
    }
    eventually("every change told", || world.told("default").len() >= sent);
    world = restart(dir.path(), world, Checkpoint::Kept);
    check(&world.told("default"), &model, sent);
    assert_eq!(world.context.stats().entities, model.len() as u64);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let listed = runtime.block_on(async {
        let served = world.serve().await;
        let answer = served.get("/v2/entities?options=keyValues&limit=1000").await;
        served.stop().await;
        answer.json()
    });
    let shown: BTreeMap<String, BTreeMap<String, usize>> = listed
        .as_array()
        .unwrap()
        .iter()
        .map(|entity| (entity["id"].as_str().unwrap().to_owned(), numbers(entity)))
        .collect();
    assert_eq!(shown, model);
    world.close();
}

fn numbers(entity: &Value) -> BTreeMap<String, usize> {
    let members = entity.as_object().unwrap().iter();
    members.filter_map(|(name, value)| Some((name.clone(), value.as_u64()? as usize))).collect()
}

/// Each measurement is told once, and those of one device in order.
fn check(told: &[Told], model: &BTreeMap<String, BTreeMap<String, usize>>, sent: usize) {
    let mut times: Vec<i64> = told.iter().map(|told| told.timestamp_ms).collect();
    for id in model.keys() {
        let of_device: Vec<i64> = told.iter().filter(|told| told.id == *id).map(|told| told.timestamp_ms).collect();
        assert!(of_device.is_sorted(), "{id}: {of_device:?}");
    }
    times.sort_unstable();
    assert_eq!(times, (1..=sent as i64).collect::<Vec<_>>());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, max_shrink_iters: 20, ..ProptestConfig::default() })]

    #[test]
    fn each_measurement_is_applied_and_published_once_across_restarts(steps in steps()) {
        run(steps);
    }
}
