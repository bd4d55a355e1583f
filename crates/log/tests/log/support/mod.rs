//! Shared parts of the suites of the embedded engine.

pub(crate) mod compaction;

use std::sync::Arc;

use millstream_log::{
    AckLevel, Appended, Embedded, Error, KafkaLog, KafkaPartition, Log, Partition, TopicConfig, reply,
};
use millstream_testkit::sim::SimFiles;
pub(crate) use millstream_testkit::small_log::{append_atomic, clock, name, new_disk, small_config};
use millstream_types::{ManualClock, Record, TopicPartition};

pub(crate) fn open(files: &SimFiles, clock: &Arc<ManualClock>) -> Result<Arc<Embedded>, Error> {
    Embedded::open(small_config(), Arc::new(files.clone()), clock.clone(), clock.clone())
}

/// Creates `topic` and returns the handles of its partitions.
pub(crate) fn create(log: &Embedded, topic: &str, config: &TopicConfig) -> Vec<Arc<dyn KafkaPartition>> {
    log.create_topic(&name(topic), config).unwrap();
    partitions(log, topic)
}

/// The handles of the partitions of a topic that exists.
pub(crate) fn partitions(log: &Embedded, topic: &str) -> Vec<Arc<dyn KafkaPartition>> {
    let count = log.topic(&name(topic)).unwrap().config.partitions;
    (0..count).map(|partition| log.kafka_partition(&TopicPartition::new(name(topic), partition)).unwrap()).collect()
}

/// Appends one record and waits for the answer.
pub(crate) fn append(partition: &dyn Partition, value: &[u8], level: AckLevel) -> Result<Appended, Error> {
    let (done, answer) = reply();
    partition.append(&[Record { value: Some(value), ..Record::default() }], level, done)?;
    answer.wait()
}
