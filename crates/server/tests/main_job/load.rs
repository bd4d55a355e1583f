//! The generators through Kafka's protocol that `millstream bench` measures with, against a real process.

use std::time::Duration;

use millstream_load::kafka::{Acks, KafkaClient, KafkaError, ProduceLoad, ReadLoad};
use millstream_testkit::{Process, has_kafka_listener};

const PARTITIONS: u32 = 4;

#[test]
fn records_that_the_generator_counts_as_acknowledged_can_be_read() {
    if !has_kafka_listener() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let server = Process::start(dir.path());
    let mut client = KafkaClient::connect(server.kafka).unwrap();
    client.create_topic("load", PARTITIONS).unwrap();
    let again = client.create_topic("load", PARTITIONS).unwrap_err();
    assert!(matches!(again, KafkaError::Refused { request: "CreateTopics", code: 36, .. }), "{again}");
    let mut acknowledged = 0;
    for (acks, records_per_s) in [(Acks::Leader, None), (Acks::All, Some(20_000.0))] {
        let load = ProduceLoad {
            acks,
            records_per_s,
            warm_up: Duration::ZERO,
            duration: Duration::from_secs(1),
            ..ProduceLoad::to(server.kafka, "load", PARTITIONS)
        };
        let produced = load.run().unwrap();
        assert_eq!((produced.errors, produced.first_error), (0, None));
        assert_eq!(produced.latencies.count() * load.batch_records as u64, produced.records);
        acknowledged += produced.records;
    }
    assert!(acknowledged > 0);
    let topic = "load".to_owned();
    let read = ReadLoad { address: server.kafka, topic, partitions: PARTITIONS, bytes_per_s: 1e12, duration: None };
    let read = read.run().unwrap();
    assert_eq!((read.records, read.rounds), (acknowledged, 1));
}
