//! Starts that cannot go on: each is told at once, with the broker, the rule and the remedy.

use millstream_log::Error;
use millstream_log_kafka::{KafkaConfig, OnKafka};
use millstream_testkit::RealKafka;

use crate::config;

#[test]
fn a_cluster_that_nobody_reaches_is_named() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let nobody = listener.local_addr().unwrap().to_string();
    drop(listener);
    let refused = OnKafka::open(KafkaConfig { brokers: vec![nobody.clone()], ..KafkaConfig::default() }).unwrap_err();
    assert!(matches!(refused, Error::Unreachable { .. }), "{refused}");
    assert!(
        refused.to_string().contains(&nobody) && !refused.may_have_applied() && refused.is_retryable(),
        "{refused}"
    );
}

#[test]
fn a_cluster_with_too_few_brokers_is_refused() {
    let settings = "transaction.state.log.replication.factor=3\ntransaction.state.log.min.isr=2\n";
    let kafka = RealKafka::with_settings(1, settings);
    let one = config(&kafka);
    let refused = OnKafka::open(KafkaConfig { replication_factor: 3, min_insync_replicas: 2, ..one.clone() });
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains(&one.brokers[0]) && refused.contains("too few brokers"), "{refused}");
}

#[test]
fn a_log_of_transactions_that_survives_less_than_topics_is_refused() {
    let one = config(crate::conformance::broker());
    let refused = OnKafka::open(KafkaConfig { min_insync_replicas: 2, ..one.clone() }).unwrap_err().to_string();
    assert!(refused.contains("transaction.state.log.min.isr = 1") && refused.contains(&one.brokers[0]), "{refused}");
}
