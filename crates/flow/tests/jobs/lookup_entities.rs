//! Records that are joined with entities by id.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use millstream_flow::{EntityMatch, EntityQuery, EntityReader, Error, StopMode};
use millstream_testkit::eventually;
use millstream_types::{Role, Roles, TenantId, TopicName};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::node::{Node, Setup};

/// Entities in a list, read as the context plane reads its own.
#[derive(Default)]
struct Entities {
    all: Mutex<Vec<(TenantId, Value)>>,
    are_away: AtomicBool,
}

impl Entities {
    fn put(&self, tenant: &str, entity: Value) {
        let tenant = TenantId::new(tenant).unwrap();
        let mut all = self.all.lock();
        all.retain(|(of, known)| *of != tenant || known["id"] != entity["id"] || known["type"] != entity["type"]);
        all.push((tenant, entity));
    }
}

impl EntityReader for Entities {
    fn read(&self, query: &EntityQuery<'_>, out: &mut String) -> Result<EntityMatch, String> {
        if self.are_away.load(Ordering::Relaxed) {
            return Err("partition 3 of _context is loading".to_owned());
        }
        assert_eq!(query.service_path, "/plant");
        let all = self.all.lock();
        let fits = |(tenant, entity): &&(TenantId, Value)| {
            tenant == query.tenant && entity["id"] == query.id && query.kind.is_none_or(|kind| entity["type"] == kind)
        };
        let mut found = all.iter().filter(fits);
        let Some((_, entity)) = found.next() else { return Ok(EntityMatch::None) };
        if found.next().is_some() {
            return Ok(EntityMatch::Several);
        }
        let mut entity = entity.clone();
        if !query.attributes.is_empty() {
            entity.as_object_mut().unwrap().retain(|name, _| query.attributes.contains(name));
        }
        out.push_str(&entity.to_string());
        Ok(EntityMatch::One)
    }
}

fn open(dir: &tempfile::TempDir, entities: &Arc<Entities>) -> Node {
    let node = Node::open_as(dir.path(), Setup { entities: Some(Arc::clone(entities) as _), ..Setup::default() });
    for topic in ["readings", "placed", "dead"] {
        if node.log.topic(&TopicName::user(topic, &node.tenant).unwrap()).is_none() {
            node.create(topic, 2);
        }
    }
    node
}

/// A job that adds its station to each reading.
fn placed(entities: &Value, missing: &str) -> Value {
    let mut entities = entities.clone();
    entities["service_path"] = json!("/plant");
    json!({
        "version": 1, "kind": "Job", "name": "placed", "restart": {"max_attempts": 1_000, "backoff": "10ms..20ms"},
        "sources": {"readings": {"type": "stream", "config": {"topic": "readings"}}},
        "transforms": {"placed": {
            "type": "lookup", "inputs": ["readings"], "parallelism": 2,
            "config": {"entities": entities, "as": "station", "missing": missing},
        }},
        "sinks": {
            "out": {"type": "stream", "inputs": ["placed"], "config": {"topic": "placed"}},
            "dead": {"type": "stream", "inputs": ["placed"], "config": {"topic": "dead"}},
        },
        "routes": [
            {"from": "placed", "on_error": true, "to": ["dead"], "select": "input.n AS n, error.code AS code, error.message AS message", "stop": true},
            {"from": "placed", "to": ["out"]},
        ],
    })
}

fn send(node: &Node, n: u64, station: &Value) {
    node.append("readings", &[(format!("r{n}"), json!({"n": n, "station": station}).to_string())]);
}

/// The result for the reading `n`, once it is there.
fn result(node: &Node, topic: &str, n: u64) -> Value {
    let find = || node.read(topic).into_iter().find(|(_, record)| record["n"] == n);
    eventually(&format!("reading {n} is in {topic}"), || find().is_some());
    find().unwrap().1
}

#[test]
fn a_record_gets_the_entity_of_its_id_as_it_is_then() {
    let dir = tempfile::tempdir().unwrap();
    let entities = Arc::new(Entities::default());
    let rome = |limit: u64| json!({"id": "urn:Station:7", "type": "Station", "name": "Rome", "limit": limit});
    entities.put("default", rome(1));
    entities.put("other", json!({"id": "urn:Station:8", "type": "Station"}));
    let node = open(&dir, &entities);
    node.run(&placed(&json!({"id": "urn:Station:{station}"}), "null"));
    send(&node, 1, &json!(7));
    assert_eq!(result(&node, "placed", 1)["station"], rome(1));
    entities.put("default", rome(2));
    send(&node, 2, &json!("7"));
    assert_eq!(result(&node, "placed", 2)["station"], rome(2));
    // The entity of another tenant is none, and neither is that of a record without an id.
    send(&node, 3, &json!("8"));
    send(&node, 4, &Value::Null);
    assert_eq!(result(&node, "placed", 3)["station"], Value::Null);
    assert_eq!(result(&node, "placed", 4)["station"], Value::Null);
    node.close();
}

#[test]
fn chosen_attributes_of_a_type_are_given_and_what_is_missing_or_ambiguous_takes_the_error_route() {
    let dir = tempfile::tempdir().unwrap();
    let entities = Arc::new(Entities::default());
    entities.put("default", json!({"id": "7", "type": "Station", "name": "Rome", "limit": 5}));
    entities.put("default", json!({"id": "7", "type": "Car", "name": "Fiat"}));
    let node = open(&dir, &entities);
    let id =
        node.run(&placed(&json!({"id": "{station}", "type": "Station", "attrs": ["name", "limit", "name"]}), "error"));
    send(&node, 1, &json!("7"));
    assert_eq!(result(&node, "placed", 1)["station"], json!({"name": "Rome", "limit": 5}));
    send(&node, 2, &json!("9"));
    let dead = result(&node, "dead", 2);
    assert_eq!((&dead["code"], &dead["message"]), (&json!("lookup_missing"), &json!("there is no entity '9'")));
    send(&node, 20, &Value::Null);
    assert_eq!(result(&node, "dead", 20)["message"], "the record lacks a field of the entity's id '{station}'");
    node.stop(&id, StopMode::Graceful);
    node.ended(&id);
    // Without a type the id does not tell which one is meant, whatever becomes of missing ones.
    node.run(&placed(&json!({"id": "{station}"}), "null"));
    send(&node, 3, &json!("7"));
    let dead = result(&node, "dead", 3);
    assert_eq!(dead["code"], "lookup_ambiguous");
    assert_eq!(dead["message"], "entities of several types have the id '7'; name the one that is meant by 'type'");
    node.close();
}

#[test]
fn entities_that_cannot_be_read_stop_the_job_with_the_reason_and_lose_no_record() {
    let dir = tempfile::tempdir().unwrap();
    let entities = Arc::new(Entities::default());
    entities.put("default", json!({"id": "7", "type": "Station"}));
    let node = open(&dir, &entities);
    entities.are_away.store(true, Ordering::Relaxed);
    let id = node.run(&placed(&json!({"id": "{station}"}), "null"));
    (1..=100).for_each(|n| send(&node, n, &json!("7")));
    let expected = "entities cannot be read: partition 3 of _context is loading";
    eventually("the job tells why", || node.job(&id).to_string().contains(expected));
    assert!(node.read("placed").is_empty() && node.read("dead").is_empty());
    entities.are_away.store(false, Ordering::Relaxed);
    (1..=100).for_each(|n| assert_eq!(result(&node, "placed", n)["station"]["id"], "7"));
    assert!(node.read("dead").is_empty());
    node.close();
}

#[test]
fn entities_and_buckets_are_read_for_callers_who_may_read() {
    let dir = tempfile::tempdir().unwrap();
    let node = open(&dir, &Arc::default());
    let document = |table: Value| {
        let mut document = placed(&json!({"id": "{station}"}), "null");
        document["sources"] = json!({"readings": {"type": "list", "config": {"records": []}}});
        document["transforms"]["placed"]["config"] = table;
        document
    };
    for (key, table) in [
        ("entities", json!({"entities": {"id": "{station}"}, "as": "station"})),
        ("bucket", json!({"bucket": "stations", "key": "station", "as": "station"})),
    ] {
        let Err(Error::Invalid { findings }) = node.submit_as(Roles::NONE.with(Role::Writer), &document(table)) else {
            panic!("{key} are given to a writer");
        };
        let [finding] = &findings[..] else { panic!("{findings:?}") };
        assert_eq!(
            (finding.rule, finding.path.as_str()),
            ("topic_access", format!("transforms.placed.config.{key}").as_str())
        );
        assert!(finding.message.contains("role reader"), "{finding:?}");
    }
    node.close();
}

#[test]
fn a_process_without_entities_fails_the_job_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::open(dir.path());
    for topic in ["readings", "placed", "dead"] {
        node.create(topic, 1);
    }
    let mut document = placed(&json!({"id": "{station}"}), "null");
    document["restart"] = json!({"policy": "never"});
    let job = node.ended(&node.run(&document));
    assert_eq!(job["state"], "failed", "{job:#}");
    assert!(job["reason"].as_str().unwrap().contains("this process has no entities"), "{job:#}");
    node.close();
}
