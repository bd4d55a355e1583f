//! The engine on real brokers.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod conformance;
mod copies;
mod faults;
mod login;
mod migration;
mod outside;
mod processes;
mod start;

use std::sync::mpsc;
use std::time::Duration;

use millstream_log::{Appended, AtomicAppend, Done, Error, LogConfig, Writer};
use millstream_log_kafka::OnKafka;
use millstream_testkit::RealKafka;
use millstream_types::{Record, TenantId, TopicName, TopicPartition};

/// Longest wait for an answer; only an engine that never answers reaches it.
const PATIENCE: Duration = Duration::from_secs(120);

/// The settings of an engine on these brokers.
fn config(kafka: &RealKafka) -> LogConfig {
    let mut config = LogConfig::default();
    config.kafka.brokers = kafka.brokers().iter().map(|broker| broker.address.clone()).collect();
    let replicas = config.kafka.brokers.len() as u16;
    (config.kafka.replication_factor, config.kafka.min_insync_replicas) = (replicas, replicas.min(2));
    // Their directory is that of a test.
    config.kafka.copies_max_bytes = 0;
    config
}

fn topic(name: &str) -> TopicName {
    TopicName::user(name, &TenantId::default()).unwrap()
}

/// An answer, and a function that waits for it.
fn answer<T: Send + 'static>() -> (Done<T>, impl FnOnce() -> Result<T, Error>) {
    let (sender, receiver) = mpsc::channel();
    let done = Done::call(move |result| drop(sender.send(result)));
    (done, move || receiver.recv_timeout(PATIENCE).expect("it was never answered"))
}

/// Commits a value to each of these partitions of a topic.
fn commit(writer: &dyn Writer, topic: &TopicName, partitions: &[u32], value: &str) -> Result<Vec<Appended>, Error> {
    let record = Record { key: Some(b"k"), value: Some(value.as_bytes()), ..Record::default() };
    let part = |partition: &u32| (TopicPartition::new(topic.clone(), *partition), vec![record]);
    let append = AtomicAppend { records: partitions.iter().map(part).collect(), positions: Vec::new() };
    let (done, answer) = answer();
    writer.commit(&append, millstream_log::AckLevel::Synced, done)?;
    answer()
}

/// The values of a partition, up to the stable offset.
fn values(log: &OnKafka, topic: &TopicName, partition: u32) -> Vec<String> {
    let partition = millstream_log::Log::partition(log, &TopicPartition::new(topic.clone(), partition)).unwrap();
    let first = partition.offsets().first;
    let read = millstream_testkit::conformance::read_all(&*partition, first, millstream_log::UpTo::Stable);
    let text = |value: Option<Vec<u8>>| String::from_utf8(value.unwrap()).unwrap();
    read.unwrap().into_iter().map(|record| text(record.value)).collect()
}
