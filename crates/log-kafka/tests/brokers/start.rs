//! Starts that cannot go on: each is told at once, with the broker, the rule and the remedy.

use millstream_log::{Error, Log as _, LogConfig, TopicConfig};
use millstream_log_kafka::OnKafka;
use millstream_testkit::RealKafka;

use crate::{commit, config, topic, values};

#[test]
fn a_cluster_that_nobody_reaches_is_named() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let nobody = listener.local_addr().unwrap().to_string();
    drop(listener);
    let mut config = LogConfig::default();
    config.kafka.brokers = vec![nobody.clone()];
    let refused = OnKafka::open(config).unwrap_err();
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
    let mut wanted = config(&kafka);
    (wanted.kafka.replication_factor, wanted.kafka.min_insync_replicas) = (3, 2);
    let refused = OnKafka::open(wanted.clone()).unwrap_err().to_string();
    assert!(refused.contains(&wanted.kafka.brokers[0]) && refused.contains("too few brokers"), "{refused}");
}

#[test]
fn a_log_of_transactions_that_survives_less_than_topics_is_refused() {
    let mut wanted = config(crate::conformance::broker());
    (wanted.kafka.replication_factor, wanted.kafka.min_insync_replicas) = (2, 2);
    let refused = OnKafka::open(wanted.clone()).unwrap_err().to_string();
    assert!(
        refused.contains("transaction.state.log.replication.factor = 1") && refused.contains(&wanted.kafka.brokers[0]),
        "{refused}"
    );
}

#[test]
fn installations_with_prefixes_of_their_own_do_not_see_each_other() {
    let with = |prefix: &str| {
        let mut config = config(crate::conformance::broker());
        config.kafka.prefix = prefix.to_owned();
        OnKafka::open(config).unwrap()
    };
    let (one, other) = (with("one."), with("two."));
    let (name, settings) = (topic("shared"), TopicConfig { partitions: 1, ..TopicConfig::default() });
    for (log, value) in [(&one, "of one"), (&other, "of two")] {
        log.create_topic(&name, &settings).unwrap();
        let writer = log.writer("the same").unwrap();
        commit(&*writer, &name, &[0], value).unwrap();
    }
    let writer = one.writer("another").unwrap();
    commit(&*writer, &name, &[0], "again").unwrap();
    assert_eq!(values(&one, &name, 0), ["of one", "again"]);
    assert_eq!(values(&other, &name, 0), ["of two"]);
    one.delete_topic(&name).unwrap();
    assert_eq!(values(&other, &name, 0), ["of two"]);
}
