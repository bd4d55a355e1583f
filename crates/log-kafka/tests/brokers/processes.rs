//! Two processes, each with an engine, on the same names.

use std::collections::HashSet;
use std::iter;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use millstream_log::{
    AckLevel, AtomicAppend, Bell, Cleanup, Done, Error, Log as _, LogFigures as _, PositionCommit, Storage,
    TopicConfig, UpTo, Writers,
};
use millstream_log_kafka::{ActiveProcess, OnKafka};
use millstream_testkit::{RealKafka, eventually, xtask};
use millstream_types::{Offset, Position, Record, TopicPartition};

use crate::{PATIENCE, answer, commit, config, topic, values};

/// The commits of a writer that another process has fenced in mid-work: those that were answered are there, in order, before those
/// of the other one, and nothing comes later.
#[test]
fn a_writer_of_another_process_fences_the_earlier_in_mid_work() {
    let kafka = crate::conformance::brokers();
    let [earlier, later] = [(); 2].map(|()| OnKafka::open(config(kafka)).unwrap());
    let name = topic("fenced-in-mid-work");
    earlier.create_topic(&name, &TopicConfig { partitions: 2, ..TopicConfig::default() }).unwrap();
    later.create_topic(&name, &TopicConfig { partitions: 2, ..TopicConfig::default() }).unwrap();
    let writer = earlier.writer("fenced-in-mid-work").unwrap();
    let has_begun = AtomicBool::new(false);
    let (answered, error) = thread::scope(|scope| {
        let work = scope.spawn(|| {
            for number in 0.. {
                match commit(&*writer, &name, &[0, 1], &format!("earlier {number}")) {
                    Ok(_) => has_begun.store(number > 5, Ordering::Release),
                    Err(error) => return (number, error),
                }
            }
            unreachable!()
        });
        while !has_begun.load(Ordering::Acquire) {
            thread::yield_now();
        }
        let successor = later.writer("fenced-in-mid-work").unwrap();
        let before = values(&later, &name, 0);
        commit(&*successor, &name, &[0, 1], "later").unwrap();
        let (answered, error) = work.join().unwrap();
        let expected: Vec<_> = (0..before.len()).map(|number| format!("earlier {number}")).collect();
        assert_eq!(before, expected);
        assert!(before.len() >= answered, "{answered} were answered, and {} are there", before.len());
        (before.len(), error)
    });
    assert!(matches!(error, Error::Fenced { .. } | Error::OutcomeUnknown { .. }), "{error}");
    for partition in [0, 1] {
        let all = values(&later, &name, partition);
        assert_eq!((all.len(), all.last().map(String::as_str)), (answered + 1, Some("later")));
    }
    assert!(matches!(commit(&*writer, &name, &[0], "void"), Err(Error::Fenced { .. } | Error::OutcomeUnknown { .. })));
    assert!(matches!(writer.abort(), Err(Error::Fenced { .. } | Error::OutcomeUnknown { .. })));
}

/// A topic that another process has created is known after a start, with its whole configuration.
#[test]
fn a_topic_of_another_process_is_known_with_its_whole_configuration() {
    let kafka = crate::conformance::brokers();
    let (one, name) = (OnKafka::open(config(kafka)).unwrap(), topic("of-another-process"));
    let config_of_topic = TopicConfig {
        partitions: 3,
        record_max_bytes: 1_000,
        hold_max_bytes: 5,
        level: millstream_log::AckLevel::Written,
        ..TopicConfig::default()
    };
    let created = one.create_topic(&name, &config_of_topic).unwrap();
    let two = OnKafka::open(config(kafka)).unwrap();
    assert_eq!(two.topic(&name), Some(created));
}

/// The topics that another process creates, alters, grows and deletes are told to those who watch.
#[test]
fn what_another_process_does_with_topics_is_told() {
    let kafka = crate::conformance::brokers();
    let [one, two] = [(); 2].map(|()| OnKafka::open(config(kafka)).unwrap());
    let (name, bell) = (topic("told"), Arc::new(Bell::default()));
    two.watch_topics(&bell);
    let told = |what: &str, holds: &dyn Fn() -> bool| {
        let begun = Instant::now();
        while !holds() {
            bell.wait(PATIENCE);
            assert!(begun.elapsed() < PATIENCE, "{what}");
        }
    };
    let config = TopicConfig { partitions: 2, hold_max_bytes: 7, ..TopicConfig::default() };
    let created = one.create_topic(&name, &config).unwrap();
    told("it is created", &|| two.topic(&name).as_ref() == Some(&created));
    let partition = two.partition(&TopicPartition::new(name.clone(), 1)).unwrap();
    let config = TopicConfig { retention: None, ..config };
    one.alter_topic(&name, &config).unwrap();
    told("it is altered", &|| partition.topic().config == config);
    let grown = one.add_partitions(&name, 3).unwrap();
    told("it has grown", &|| two.topic(&name).as_ref() == Some(&grown));
    two.partition(&TopicPartition::new(name.clone(), 2)).unwrap();
    one.delete_topic(&name).unwrap();
    told("it is deleted", &|| two.topic(&name).is_none());
    assert!(matches!(partition.read(Offset::ZERO, 1, UpTo::Stable), Err(Error::UnknownTopic { .. })));
    let anew = one.create_topic(&name, &config).unwrap();
    told("it is created anew", &|| two.topic(&name).as_ref() == Some(&anew));
}

/// A reader that stops at an empty read has missed nothing below the tail, also while records are acknowledged.
#[test]
fn what_lies_below_the_tail_can_be_read() {
    const RECORDS: u64 = 500;
    let kafka = crate::conformance::brokers();
    let (log, name) = (OnKafka::open(config(kafka)).unwrap(), topic("below-the-tail"));
    log.create_topic(&name, &TopicConfig { partitions: 1, ..TopicConfig::default() }).unwrap();
    let partition = log.partition(&TopicPartition::new(name, 0)).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..RECORDS {
                let (done, answer) = answer();
                partition.append(&[Record::default()], AckLevel::Synced, done).unwrap();
                answer().unwrap();
            }
        });
        let mut next = Offset::ZERO;
        while next < Offset(RECORDS) {
            let tail = partition.offsets().tail;
            while next < tail {
                let batches = partition.read(next, 1 << 20, UpTo::Tail).unwrap();
                next = batches.last().unwrap_or_else(|| panic!("{next} lies below {tail}")).next_offset();
            }
            thread::yield_now();
        }
    });
}

/// The records that a log has accepted are stored once it is closed, though nobody has waited for them.
#[test]
fn a_log_that_is_closed_has_stored_what_it_accepted_and_accepts_no_more() {
    let kafka = crate::conformance::brokers();
    let (log, name) = (OnKafka::open(config(kafka)).unwrap(), topic("closed"));
    log.create_topic(&name, &TopicConfig { partitions: 2, ..TopicConfig::default() }).unwrap();
    let partitions = [0, 1].map(|number| log.partition(&TopicPartition::new(name.clone(), number)).unwrap());
    let append = |number: u32| {
        let value = number.to_string();
        let record = Record { value: Some(value.as_bytes()), ..Record::default() };
        partitions[number as usize % 2].append(&[record], AckLevel::Memory, Done::ignore())
    };
    (0..2_000).for_each(|number| append(number).unwrap());
    log.close().unwrap();
    assert!(matches!(append(2_000), Err(Error::Stopped)));
    assert!(matches!(partitions[0].read(Offset::ZERO, 1, UpTo::Stable), Err(Error::Stopped)));
    assert!(matches!(log.partition(&TopicPartition::new(name.clone(), 0)), Err(Error::Stopped)));
    let next = OnKafka::open(config(kafka)).unwrap();
    for number in 0..2 {
        let expected: Vec<String> = (0..1_000).map(|n| (2 * n + number).to_string()).collect();
        assert!(values(&next, &name, number) == expected, "partition {number}");
    }
}

/// Offsets that are versions of keys: a later topic of the name gives none of them again, and each is found where it was given.
#[test]
fn an_offset_that_is_a_version_never_comes_back() {
    let kafka = crate::conformance::brokers();
    let name = topic("versions");
    let of_bucket = TopicConfig {
        partitions: 1,
        cleanup: Cleanup::Compact,
        writers: Writers::OwnersOnly,
        compaction_live_percent: Some(50),
        ..TopicConfig::default()
    };
    let mut versions = Vec::new();
    for life in ["one", "two"] {
        let log = OnKafka::open(config(kafka)).unwrap();
        log.create_topic(&name, &of_bucket).unwrap();
        let writer = log.writer("versions").unwrap();
        for number in 0..3 {
            let appended = commit(&*writer, &name, &[0], &format!("{life} {number}")).unwrap();
            versions.push(appended[0].first);
        }
        let newest = &versions[versions.len() - 3..];
        // Another process has nothing in memory.
        for log in [&log, &OnKafka::open(config(kafka)).unwrap()] {
            let partition = log.partition(&TopicPartition::new(name.clone(), 0)).unwrap();
            for (number, version) in newest.iter().enumerate() {
                let record = partition.read_one(*version, UpTo::Stable).unwrap().unwrap();
                let value = record.view().value.map(<[u8]>::to_vec);
                assert_eq!(value, Some(format!("{life} {number}").into_bytes()));
            }
            let offsets = partition.offsets();
            assert!(offsets.first <= newest[0] && newest[2] < offsets.stable, "{offsets:?}, {newest:?}");
            assert_eq!(values(log, &name, 0).len(), 3);
        }
        log.delete_topic(&name).unwrap();
    }
    let different: HashSet<Offset> = versions.iter().copied().collect();
    assert_eq!(different.len(), 6, "{versions:?}");
}

/// A topic in memory is kept by Kafka for a short time, and stays what it is for all processes.
#[test]
fn a_topic_in_memory_is_one_for_all_processes() {
    let kafka = crate::conformance::brokers();
    let [one, two] = [(); 2].map(|()| OnKafka::open(config(kafka)).unwrap());
    let name = topic("in-memory");
    let in_memory =
        TopicConfig { partitions: 1, storage: Storage::Memory { max_bytes: 1 << 20 }, ..TopicConfig::default() };
    one.create_topic(&name, &in_memory).unwrap();
    let writer = one.writer("in-memory").unwrap();
    commit(&*writer, &name, &[0], "live").unwrap();
    let seen = two.create_topic(&name, &in_memory).unwrap();
    assert_eq!(seen.config, in_memory);
    assert_eq!(values(&two, &name, 0), ["live"]);
    let on_disk = TopicConfig { storage: Storage::Disk, ..in_memory };
    assert!(matches!(two.alter_topic(&name, &on_disk), Err(Error::InvalidConfig { .. })));
}

/// Deletes a topic by Kafka's own tool.
fn delete_outside(kafka: &RealKafka, name: &str) {
    let deleted = Command::new(xtask())
        .args(["kafka-tools", "org.apache.kafka.tools.TopicCommand", "--bootstrap-server", &kafka.bootstrap()])
        .args(["--delete", "--topic", name])
        .status();
    assert!(deleted.unwrap().success());
}

/// A topic that an outsider deletes while writers begin.
#[test]
fn a_writer_is_refused_in_time_while_a_partition_that_is_followed_has_no_leader() {
    let kafka = crate::conformance::brokers();
    let mut settings = config(kafka);
    settings.kafka.prefix = "bereft.".to_owned();
    let patient = OnKafka::open(settings.clone()).unwrap();
    let names = ["stays", "goes"].map(topic);
    for name in &names {
        patient.create_topic(name, &TopicConfig { partitions: 1, ..TopicConfig::default() }).unwrap();
    }
    drop(patient);
    // Much less than the time until a deletion is noticed.
    (settings.kafka.request_timeout_ms, settings.kafka.delivery_timeout_ms) = (1_000, 1_000);
    let log = OnKafka::open(settings).unwrap();
    let [stays, goes] = names.map(|name| log.partition(&TopicPartition::new(name, 0)).unwrap());
    let (sender, receiver) = mpsc::channel();
    let of_thread = Arc::clone(&log);
    let begin = move || of_thread.writer("bereft").map(drop);
    thread::spawn(move || sender.send(iter::repeat_with(begin).find_map(Result::err)));
    delete_outside(kafka, "bereft.goes");
    let refused = receiver.recv_timeout(PATIENCE).expect("it was never answered").unwrap();
    assert!(matches!(refused, Error::Unreachable { .. }), "{refused}");
    assert!(stays.read(Offset::ZERO, 1, UpTo::Stable).unwrap().is_empty(), "the others go on");
    let is_gone = |error: &Error| matches!(error, Error::UnknownTopic { .. });
    eventually("its deletion is noticed", || {
        goes.read(Offset::ZERO, 1, UpTo::Stable).is_err_and(|error| is_gone(&error))
    });
    eventually("the next writer begins", || log.writer("bereft").is_ok());
}

/// The topic that describes all others is made anew, with all that this process knows, if an outsider deletes it.
#[test]
fn a_catalogue_that_an_outsider_deletes_is_made_anew() {
    let kafka = crate::conformance::brokers();
    let mut settings = config(kafka);
    settings.kafka.prefix = "anew.".to_owned();
    let log = OnKafka::open(settings.clone()).unwrap();
    let of_keys = TopicConfig {
        partitions: 2,
        cleanup: Cleanup::Compact,
        writers: Writers::OwnersOnly,
        record_max_bytes: 1_000,
        ..TopicConfig::default()
    };
    let (keys, goes) = (topic("keys"), topic("goes"));
    let created = log.create_topic(&keys, &of_keys).unwrap();
    log.create_topic(&goes, &TopicConfig { partitions: 1, ..TopicConfig::default() }).unwrap();
    delete_outside(kafka, &format!("anew.{}", millstream_types::TOPICS.name));
    delete_outside(kafka, "anew.goes");
    eventually("the deletion of a topic is noticed", || log.topic(&goes).is_none());
    log.create_topic(&topic("later"), &TopicConfig { partitions: 1, ..TopicConfig::default() }).unwrap();
    let next = OnKafka::open(settings).unwrap();
    assert_eq!(next.topic(&keys), Some(created));
    assert!(next.topic(&topic("later")).is_some() && next.topic(&goes).is_none());
    commit(&*next.writer("anew").unwrap(), &keys, &[0, 1], "on").unwrap();
    assert_eq!(values(&log, &keys, 1), ["on"]);
}

/// A process that no longer reaches the leader of the claims takes no appends without a writer by the time at which another one may work.
#[test]
#[ignore = "takes long"]
fn a_process_that_is_cut_from_the_claims_alone_takes_nothing_once_another_one_works() {
    let kafka = RealKafka::behind_relays(3, "", 2);
    let open = |way: usize| {
        let mut settings = config(&kafka);
        settings.kafka.brokers = kafka.way(way).iter().map(|relay| relay.address().to_string()).collect();
        (settings.kafka.replication_factor, settings.kafka.min_insync_replicas) = (1, 1);
        (settings.kafka.request_timeout_ms, settings.kafka.session_timeout_ms) = (1_000, 4_000);
        OnKafka::open(settings).unwrap()
    };
    let process = |name: &str| ActiveProcess::new(name.to_owned(), "machine".to_owned());
    let (first, second) = (open(0), open(1));
    first.take_over(process("first")).unwrap();
    let name = topic("not-of-the-claims");
    first.create_topic(&name, &TopicConfig { partitions: 12, ..TopicConfig::default() }).unwrap();
    let claims = leaders(&kafka, "_millstream_active")[0];
    let elsewhere = leaders(&kafka, "not-of-the-claims").iter().position(|leader| *leader != claims).unwrap();
    let partition = first.partition(&TopicPartition::new(name, elsewhere as u32)).unwrap();
    let append = || {
        let (done, answer) = answer();
        partition.append(&[Record::default()], AckLevel::Synced, done).and_then(|()| answer())
    };
    append().unwrap();
    let relay = &kafka.way(0)[claims - 1];
    relay.cut();
    eventually("it takes nothing any more", || {
        append().is_err_and(|error| error.to_string().contains("another process may have taken over"))
    });
    relay.mend();
    eventually("it goes on, as nobody else works", || append().is_ok());
    thread::scope(|scope| {
        let standby = scope.spawn(|| second.take_over(process("second")));
        relay.cut();
        standby.join().unwrap().unwrap();
        let refused = append().unwrap_err();
        assert!(matches!(refused, Error::Unreachable { .. }), "{refused}");
    });
    relay.mend();
    eventually("it learns that another one works", || matches!(append(), Err(Error::Fenced { .. })));
}

/// The leader of each partition of a topic, by Kafka's own tool.
fn leaders(kafka: &RealKafka, topic: &str) -> Vec<usize> {
    let mut tool = Command::new(xtask());
    tool.args(["kafka-tools", "org.apache.kafka.tools.TopicCommand", "--bootstrap-server", &kafka.bootstrap()]);
    let told = tool.args(["--describe", "--topic", topic]).output().unwrap();
    assert!(told.status.success(), "{told:?}");
    let told = String::from_utf8(told.stdout).unwrap();
    let after = told.split("Leader: ").skip(1);
    after.map(|leader| leader.split_whitespace().next().unwrap().parse().unwrap()).collect()
}

/// A process that is told to stop while it takes over, or just has, leaves nobody waiting.
#[test]
fn a_process_that_is_closed_while_it_claims_gives_its_claim_up() {
    let kafka = crate::conformance::brokers();
    let mut settings = config(kafka);
    settings.kafka.prefix = "closed-early.".to_owned();
    (settings.kafka.request_timeout_ms, settings.kafka.session_timeout_ms) = (30_000, 600_000);
    // None is dropped before the end, as by a process that ends at once.
    let mut closed = Vec::new();
    for number in 0..15 {
        let log = OnKafka::open(settings.clone()).unwrap();
        let (sender, receiver) = mpsc::channel();
        let of_thread = Arc::clone(&log);
        let process = ActiveProcess::new(format!("node-{number}"), "machine".to_owned());
        thread::spawn(move || sender.send(of_thread.take_over(process)));
        thread::sleep(Duration::from_millis(10 * number));
        log.close().unwrap();
        closed.push(log);
        let taken_over = receiver.recv_timeout(PATIENCE).expect("it waits for one that has ended");
        assert!(matches!(taken_over, Ok(()) | Err(Error::Stopped)), "{taken_over:?}");
    }
    let next = OnKafka::open(settings).unwrap();
    let (sender, receiver) = mpsc::channel();
    let process = ActiveProcess::new("next".to_owned(), "machine".to_owned());
    thread::spawn(move || sender.send(next.take_over(process)));
    receiver.recv_timeout(PATIENCE).expect("it waits for one that has ended").unwrap();
}

/// A call that waits for brokers on a thread of a runtime leaves other tasks of that thread alone.
#[test]
fn tasks_go_on_while_a_partition_is_looked_up() {
    let kafka = RealKafka::start(1);
    let log = OnKafka::open(config(&kafka)).unwrap();
    let name = topic("looked-up");
    log.create_topic(&name, &TopicConfig { partitions: 1, ..TopicConfig::default() }).unwrap();
    let signal = |signal: &str| {
        let pid = kafka.brokers()[0].pid.to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    signal("-STOP");
    let (begun, has_begun) = mpsc::channel();
    let of_task = Arc::clone(&log);
    let look_up = runtime.spawn(async move {
        begun.send(()).unwrap();
        of_task.partition(&TopicPartition::new(name, 0)).map(drop)
    });
    has_begun.recv_timeout(PATIENCE).unwrap();
    let (sender, receiver) = mpsc::channel();
    runtime.spawn(async move { sender.send(()).unwrap() });
    let went_on = receiver.recv_timeout(Duration::from_secs(10));
    assert!(!look_up.is_finished());
    signal("-CONT");
    assert_eq!(went_on, Ok(()), "the only thread waits for a broker that stands still");
    runtime.block_on(look_up).unwrap().unwrap();
}

/// A reader of all records has no lag, though the ends of transactions and void records behind the last one have offsets.
#[test]
fn the_end_of_a_transaction_is_no_lag() {
    let kafka = crate::conformance::brokers();
    let name = topic("no-lag");
    let log = OnKafka::open(config(kafka)).unwrap();
    log.create_topic(&name, &TopicConfig { partitions: 1, ..TopicConfig::default() }).unwrap();
    let partition = log.partition(&TopicPartition::new(name.clone(), 0)).unwrap();
    let writer = log.writer("no-lag").unwrap();
    let last = commit(&*writer, &name, &[0], "one").unwrap()[0];
    let (topic_id, next) = (partition.topic().id, last.last.next());
    let position = Position { topic: topic_id, epoch: last.epoch, offset: next };
    let commit_of_group = PositionCommit {
        group: "readers".to_owned(),
        partition: partition.id().clone(),
        position,
        metadata: String::new(),
    };
    let (done, answer) = answer();
    let positions = AtomicAppend { records: Vec::new(), positions: vec![commit_of_group] };
    writer.commit(&positions, AckLevel::Synced, done).unwrap();
    answer().unwrap();
    writer.append(partition.id(), &[Record { value: Some(b"void"), ..Record::default() }; 3]).unwrap();
    eventually("they are there", || partition.offsets().high > partition.offsets().stable);
    writer.abort().unwrap();
    eventually("it is ended", || partition.offsets().stable > next.advance(4));
    eventually("its reader has no lag", || partition.lag(next) == 0);
    assert!(partition.lag(last.first) > 0);
    let lag_of_group = |log: &OnKafka| log.lags(&name).iter().map(|read| read.lag).collect::<Vec<_>>();
    assert_eq!(lag_of_group(&log), [0]);
    // Another process has seen nothing come.
    let other = OnKafka::open(config(kafka)).unwrap();
    eventually("the group has no lag", || lag_of_group(&other) == [0]);
    let another = OnKafka::open(config(kafka)).unwrap();
    let partition = another.partition(&TopicPartition::new(name.clone(), 0)).unwrap();
    let mut at = next;
    while let Some(batch) = partition.read(at, 1, UpTo::Stable).unwrap().last() {
        at = batch.next_offset();
    }
    assert_eq!(partition.lag(next), 0, "the one that has just read it");
    commit(&*writer, &name, &[0], "two").unwrap();
    eventually("there is a record to read", || partition.lag(next) > 0 && lag_of_group(&other)[0] > 0);
}
