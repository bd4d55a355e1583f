//! Clients and damaged records: what lies before them is read, and they are told.

use std::path::Path;

use millstream_testkit::Process;

use crate::broker::Broker;

/// Reads as a client with default settings does, up to the first error.
const READ: &str = "
import confluent_kafka as kafka
consumer = kafka.Consumer({'bootstrap.servers': '@ADDRESS@', 'group.id': 'g', 'enable.auto.commit': False})
consumer.assign([kafka.TopicPartition('orders', 0, 0)])
while True:
    message = consumer.poll(1)
    if message is None:
        continue
    if message.error():
        print(message.error().code() == kafka.KafkaError.INVALID_MSG)
        break
    print(message.offset(), message.value()[:8].decode())
consumer.assign([kafka.TopicPartition('orders', 0, 3)])
while True:
    message = consumer.poll(1)
    if message is not None and not message.error():
        print(message.offset(), message.value()[:8].decode())
        break
consumer.close()
";

/// Flips a bit of the record with that value, in the segment that holds it.
fn damage(dir: &Path, value: &[u8]) -> bool {
    std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).any(|path| {
        if path.is_dir() {
            return damage(&path, value);
        }
        if path.extension().is_none_or(|kind| kind != "segment") {
            return false;
        }
        let mut bytes = std::fs::read(&path).unwrap();
        let Some(at) = bytes.windows(value.len()).position(|window| window == value) else { return false };
        bytes[at] ^= 1;
        std::fs::write(&path, bytes).is_ok()
    })
}

#[test]
fn librdkafka_reads_the_records_before_a_damaged_one_and_is_told_of_the_damage() {
    if Broker::is_another() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let process = Process::start(dir.path());
    let broker = Broker::at(&process.kafka);
    for number in 0..4 {
        // Each takes a block of its own.
        let record = format!("record {number}{}", "x".repeat(200_000));
        broker.kcat(&["-P", "-t", "orders", "-p", "0"], &record);
    }
    process.stop();
    assert!(damage(dir.path(), b"record 2"));
    let process = Process::start(dir.path());
    let broker = Broker::at(&process.kafka);
    let said = broker.python(&READ.replace("@ADDRESS@", &broker.address));
    assert_eq!(said, "0 record 0\n1 record 1\nTrue\n3 record 3\n");
    let counted = r#"millstream_topic_damaged_reads_total{tenant="default",topic="orders"} "#;
    let metrics = process.get("/metrics").text();
    assert!(metrics.lines().any(|line| line.starts_with(counted)), "{metrics}");
    process.stop();
}
