//! The sink `entities`: records of the topic of entity updates.

use millstream_log::UpTo;
use millstream_types::{TopicKind, TopicName, TopicPartition};
use serde_json::{Value, json};

use crate::node::Node;

fn job(config: &Value, records: &Value) -> Value {
    json!({
        "version": 1, "kind": "Job", "name": "stations", "mode": "batch", "restart": {"policy": "never"},
        "sources": {"in": {"type": "list", "config": {"records": records}}},
        "sinks": {"out": {"type": "entities", "inputs": ["in"], "config": config}},
    })
}

/// Key, value, format and service path of every update, by partition.
fn updates(node: &Node) -> Vec<[String; 4]> {
    let name = TopicName::reserved(TopicKind::ContextUpdate, &node.tenant);
    let text = |bytes: Option<&[u8]>| String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned();
    let mut found = Vec::new();
    for number in 0..node.log.topic(&name).unwrap().config.partitions {
        let partition = node.log.partition(&TopicPartition::new(name.clone(), number)).unwrap();
        for batch in partition.read(partition.offsets().first, 1 << 20, UpTo::Stable).unwrap() {
            found.extend(batch.records().map(|record| {
                let record = record.unwrap();
                let header = |name| text(record.header(name));
                [text(record.key), text(record.value), header("format"), header("fiware-servicepath")]
            }));
        }
    }
    found
}

#[test]
fn each_record_updates_an_entity_in_the_order_of_its_key() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::open(dir.path());
    let config = json!({"id": "urn:{station}", "type": "Station", "attrs": ["temp"], "service_path": "/sea"});
    let records =
        json!([{"station": "a", "temp": 1, "x": 0}, {"station": "b", "temp": 2}, {"station": "a", "temp": 3}]);
    assert_eq!(node.ended(&node.run(&job(&config, &records)))["state"], "completed");
    let mut found = updates(&node);
    found.sort_by(|a, b| a[0].cmp(&b[0]));
    let update = |id: &str, temp: u32| {
        let value = format!(r#"{{"id":"{id}","type":"Station","temp":{temp}}}"#);
        [id.to_owned(), value, "keyValues".to_owned(), "/sea".to_owned()]
    };
    assert_eq!(found, [update("urn:a", 1), update("urn:a", 3), update("urn:b", 2)]);
    node.close();
}

#[test]
fn a_record_without_the_field_of_the_id_fails_with_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::open(dir.path());
    let id = node.run(&job(&json!({"id": "urn:{station}", "type": "Station"}), &json!([{"temp": 1}])));
    let job = node.ended(&id);
    assert_eq!(job["state"], "failed");
    assert_eq!(
        (&job["error"]["code"], &job["error"]["record"]),
        (&json!("missing_field"), &json!("record 0")),
        "{job}"
    );
    assert!(job["reason"].as_str().unwrap().contains("station"), "{job}");
    node.close();
}

#[test]
fn a_document_whose_entities_have_no_service_path_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::open(dir.path());
    for config in [
        json!({"id": "{a}", "type": "T", "service_path": "sea"}),
        json!({"id": "{a}", "type": "T", "format": "xml"}),
        json!({"id": "{a", "type": "T"}),
        json!({"id": "{a}"}),
    ] {
        let error = node.submit(&job(&config, &json!([]))).unwrap_err();
        assert!(error.to_string().contains("config"), "{error}");
    }
    node.close();
}
