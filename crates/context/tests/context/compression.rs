//! Space that the topics of entities and of their changes take on disk.

use std::sync::Arc;

use millstream_context::ContextConfig;
use millstream_log::UpTo;
use millstream_types::{BatchLimits, Compression, StateTopic, TenantId, TopicKind, TopicName, TopicPartition};
use serde_json::{Map, Value, json};

use crate::world::{Registry, World};

const UPDATES: usize = 100;
const READ_BYTES: usize = 16 << 20;

/// A weather station as mappings make it: ten numbers, each with the time at which it was observed.
fn station(number: usize) -> String {
    let observed =
        json!({"TimeInstant": {"type": "DateTime", "value": format!("2013-03-29T11:{:02}:00.000Z", number % 60)}});
    let mut body: Map<String, Value> = (0..10)
        .map(|n| {
            let value = (number * 7_919 + n * 104_729) % 100_003;
            (format!("measured{n}"), json!({"type": "Number", "value": value as f64 / 100.0, "metadata": observed}))
        })
        .collect();
    body.insert("id".to_owned(), json!("urn:ngsi-ld:Device:JFK"));
    body.insert("type".to_owned(), json!("Device"));
    Value::Object(body).to_string()
}

async fn update(world: &World, numbers: std::ops::Range<usize>) {
    let served = world.serve().await;
    for number in numbers {
        let answer = served.ask("POST /v2/entities?options=upsert", Some(&station(number))).await;
        assert!([201, 204].contains(&answer.status), "{answer:?}");
    }
    served.stop().await;
}

fn opened(dir: &std::path::Path, compression: &str) -> World {
    let config = ContextConfig { change_compression: compression.to_owned(), ..ContextConfig::default() };
    World::open_with(dir, Arc::new(Registry::default()), config)
}

/// Bytes of the topic's batches as they lie, and as its readers see them.
fn taken(world: &World, name: &TopicName) -> (usize, usize) {
    let topic = world.log.topic(name).unwrap();
    let (mut stored_bytes, mut read_bytes) = (0, 0);
    for number in 0..topic.config.partitions {
        let partition = world.log.partition(&TopicPartition::new(name.clone(), number)).unwrap();
        let first = partition.offsets().first;
        for batch in partition.read(first, READ_BYTES, UpTo::Stable).unwrap() {
            stored_bytes += batch.size_bytes();
            read_bytes += batch.inflated(&BatchLimits::default()).unwrap().size_bytes();
        }
    }
    (stored_bytes, read_bytes)
}

fn changes() -> TopicName {
    TopicName::reserved(TopicKind::Context, &TenantId::default())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stored_change_takes_less_than_half_of_its_uncompressed_size() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path());
    update(&world, 0..UPDATES).await;
    for (name, part) in [(changes(), 2), (TopicName::internal(StateTopic::Context), 1)] {
        let (stored_bytes, read_bytes) = taken(&world, &name);
        assert!(read_bytes > UPDATES * 500, "{name}: {read_bytes} bytes");
        assert!(stored_bytes * part < read_bytes, "{name}: {stored_bytes} of {read_bytes} bytes");
    }
    world.close();
}

#[tokio::test(flavor = "multi_thread")]
async fn change_topics_follow_the_compression_setting_and_older_records_stay_readable() {
    let dir = tempfile::tempdir().unwrap();
    let codecs = [("none", Compression::None), ("gzip", Compression::Gzip), ("zstd", Compression::Zstd)];
    for (life, (name, codec)) in codecs.into_iter().enumerate() {
        let world = opened(dir.path(), name);
        update(&world, life * 10..(life + 1) * 10).await;
        assert_eq!(world.log.topic(&changes()).unwrap().config.compression, codec);
        let told = world.told("default");
        assert_eq!(told.len(), (life + 1) * 10, "{name}");
        let expected: Value = serde_json::from_str(&station(told.len() - 1)).unwrap();
        assert_eq!(told.last().unwrap().entity["measured9"]["value"], expected["measured9"]["value"], "{name}");
        world.close();
    }
}

#[test]
fn a_compression_that_kafka_does_not_have_is_refused() {
    let config = ContextConfig { change_compression: "brotli".to_owned(), ..ContextConfig::default() };
    let refusal = config.validate().unwrap_err().to_string();
    for part in ["context.change_compression", "brotli", "use none, gzip, snappy, lz4 or zstd"] {
        assert!(refusal.contains(part), "{refusal}");
    }
}
