//! Starts that cannot go on: each is told at once, with the broker, the rule and the remedy.

use std::process::Command;
use std::thread;

use millstream_log::{AckLevel, Cleanup, Error, Log as _, LogConfig, TopicConfig};
use millstream_log_kafka::{ClusterHealth, OnKafka, TroubleKind};
use millstream_testkit::{RealKafka, eventually, xtask};
use millstream_types::{Record, SystemClock, TopicPartition, WallClock as _};
use tokio::sync::watch;

use crate::{answer, commit, config, topic, values};

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
    let mut wanted = config(crate::conformance::brokers());
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
        let mut config = config(crate::conformance::brokers());
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

#[test]
fn a_topic_of_keys_with_more_partitions_than_its_description_says_is_refused() {
    let kafka = crate::conformance::brokers();
    let mut settings = config(kafka);
    settings.kafka.prefix = "grown.".to_owned();
    let log = OnKafka::open(settings.clone()).unwrap();
    for (name, cleanup) in [("keys", Cleanup::Compact), ("records", Cleanup::Delete)] {
        let config = TopicConfig { partitions: 2, cleanup, ..TopicConfig::default() };
        log.create_topic(&topic(name), &config).unwrap();
    }
    drop(log);
    let grow = |name: &str| {
        let grown = Command::new(xtask())
            .args(["kafka-tools", "org.apache.kafka.tools.TopicCommand", "--bootstrap-server", &kafka.bootstrap()])
            .args(["--alter", "--topic", name, "--partitions", "3"])
            .status();
        assert!(grown.unwrap().success());
    };
    grow("grown.records");
    let log = OnKafka::open(settings.clone()).unwrap();
    assert_eq!(log.topic(&topic("records")).unwrap().config.partitions, 3, "records may be spread over more");
    drop(log);
    grow("grown.keys");
    let refused = OnKafka::open(settings.clone()).unwrap_err();
    assert!(matches!(refused, Error::Unfit { .. }), "{refused}");
    let told = refused.to_string();
    for part in [&settings.kafka.brokers[0], "the partitions of topic grown.keys = 3", "says 2", "restore it"] {
        assert!(told.contains(part), "{part} in {told}");
    }
}

#[test]
fn a_clock_that_is_an_hour_off_is_told() {
    let kafka = RealKafka::with_clocks_ahead(1, 3_600);
    let log = OnKafka::open(config(&kafka)).unwrap();
    log.take_over(millstream_log_kafka::ActiveProcess::new("n".to_owned(), "h".to_owned())).unwrap();
    eventually("the first beat shows the clock", || !log.health().warnings.is_empty());
    let warnings = log.health().warnings;
    let broker = format!("the clock of broker 1 at {} is", kafka.brokers()[0].address);
    assert!(warnings.len() == 1 && warnings[0].starts_with(&broker), "{warnings:?}");
    assert!(warnings[0].contains("min ahead of") && warnings[0].contains("NTP"), "{warnings:?}");
}

#[test]
fn a_broker_that_refuses_the_time_of_a_record_is_named_with_the_remedy() {
    let kafka = RealKafka::with_clocks_ahead(1, -2 * 3_600);
    let log = OnKafka::open(config(&kafka)).unwrap();
    let config = TopicConfig { partitions: 1, cleanup: Cleanup::Compact, ..TopicConfig::default() };
    log.create_topic(&topic("keys"), &config).unwrap();
    let partition = log.partition(&TopicPartition::new(topic("keys"), 0)).unwrap();
    let now_ms = SystemClock::default().now_ms();
    let record = Record { timestamp_ms: now_ms, key: Some(b"k"), value: Some(b"v"), ..Record::default() };
    let (done, answer) = answer();
    partition.append(&[record], AckLevel::Synced, done).unwrap();
    let told = answer().unwrap_err().to_string();
    assert!(told.contains(&format!("broker 1 at {}", kafka.brokers()[0].address)), "{told}");
    assert!(told.contains("message.timestamp.after.max.ms") && told.contains("NTP"), "{told}");
}

#[test]
fn the_health_of_a_cluster_that_is_well_has_no_findings() {
    let kafka = crate::conformance::brokers();
    let mut settings = config(kafka);
    settings.kafka.prefix = "well.".to_owned();
    let log = OnKafka::open(settings).unwrap();
    log.take_over(millstream_log_kafka::ActiveProcess::new("n".to_owned(), "h".to_owned())).unwrap();
    log.create_topic(&topic("t"), &TopicConfig { partitions: 1, ..TopicConfig::default() }).unwrap();
    commit(&*log.writer("w").unwrap(), &topic("t"), &[0], "v").unwrap();
    let ClusterHealth { brokers, troubles, warnings } = log.health();
    assert_eq!((troubles, warnings), (Vec::new(), Vec::new()));
    let address = kafka.brokers()[0].address.clone();
    assert!(brokers.len() == 1 && brokers[0].address == Some(address) && brokers[0].silence.is_none(), "{brokers:?}");
}

#[test]
#[ignore = "takes long"]
fn a_start_waits_for_in_sync_replicas_and_tells_which_broker_is_missing() {
    let settings = "transaction.state.log.min.isr=3\nmin.insync.replicas=3\nbroker.session.timeout.ms=4000\n\
                    broker.heartbeat.interval.ms=1000\n";
    let mut kafka = RealKafka::with_settings(3, settings);
    let mut wanted = config(&kafka);
    wanted.kafka.min_insync_replicas = 3;
    let log = OnKafka::open(wanted.clone()).unwrap();
    log.create_topic(&topic("t"), &TopicConfig { partitions: 1, ..TopicConfig::default() }).unwrap();
    commit(&*log.writer("w").unwrap(), &topic("t"), &[0], "before").unwrap();
    kafka.kill(2);
    let missing = format!("broker 3 at {}", kafka.brokers()[2].address);
    eventually("the running one tells of it", || {
        let ClusterHealth { brokers, troubles, .. } = log.health();
        let names_it = |why: &str| why.contains("2 of 3 replicas in sync") && why.contains(&missing);
        brokers.len() == 3
            && brokers[2].silence.is_some()
            && troubles.iter().any(|trouble| trouble.kind == TroubleKind::TooFewInSync && names_it(&trouble.why))
    });
    assert!(log.health().brokers[..2].iter().all(|broker| broker.silence.is_none()), "{:?}", log.health().brokers);
    drop(log);

    wanted.kafka.delivery_timeout_ms = wanted.kafka.request_timeout_ms;
    let refused = OnKafka::open(wanted.clone()).unwrap_err();
    // A process that has never seen the broker does not know its address.
    let missing = "missing: broker 3";
    assert!(matches!(refused, Error::Unfit { .. }) && refused.to_string().contains(missing), "{refused}");

    wanted.kafka.delivery_timeout_ms = 120_000;
    let (waits, why) = watch::channel(None);
    let next = thread::spawn(move || OnKafka::open_telling(wanted, None, waits));
    eventually("the start tells why it waits", || {
        why.borrow().as_ref().is_some_and(|why: &String| why.starts_with("waits for Kafka: ") && why.contains(missing))
    });
    assert!(!next.is_finished());
    kafka.start_again(2);
    let log = next.join().unwrap().unwrap();
    assert_eq!(*why.borrow(), None);
    commit(&*log.writer("w").unwrap(), &topic("t"), &[0], "after").unwrap();
    assert_eq!(values(&log, &topic("t"), 0), ["before", "after"]);
    eventually("all is well again", || {
        let ClusterHealth { brokers, troubles, .. } = log.health();
        troubles.is_empty() && brokers.iter().all(|broker| broker.silence.is_none())
    });
}
