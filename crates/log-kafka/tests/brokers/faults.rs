//! Brokers that are killed or stopped under load: nothing that was acknowledged is lost, doubled, torn or out of order.

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use millstream_log::{AckLevel, Error, Log as _, TopicConfig};
use millstream_log_kafka::OnKafka;
use millstream_testkit::RealKafka;
use millstream_types::{Record, TopicName, TopicPartition};

use crate::{answer, commit, config, topic, values};

const PARTITIONS: u32 = 6;
const WRITERS: usize = 3;

/// The outcomes of the calls of one worker, by their number.
#[derive(Debug, Default)]
struct Ledger {
    acknowledged: Vec<u32>,
    /// Calls whose outcome is open.
    open: Vec<u32>,
}

impl Ledger {
    fn note(&mut self, number: u32, outcome: Result<(), Error>) {
        match outcome {
            Ok(()) => self.acknowledged.push(number),
            Err(error) if error.may_have_applied() => self.open.push(number),
            Err(_) => {}
        }
    }

    /// Checks what is there against what was told.
    fn check(&self, found: &[u32], place: &str) {
        assert!(found.is_sorted(), "{place}: out of order: {found:?}");
        let mut counts: BTreeMap<u32, usize> = BTreeMap::new();
        found.iter().for_each(|number| *counts.entry(*number).or_default() += 1);
        let doubled: Vec<_> = counts.iter().filter(|(_, count)| **count > 1).collect();
        assert!(doubled.is_empty(), "{place}: doubled: {doubled:?}");
        let lost: Vec<_> = self.acknowledged.iter().filter(|number| !counts.contains_key(number)).collect();
        assert!(lost.is_empty(), "{place}: lost: {lost:?}");
        let known = |number: &u32| self.acknowledged.contains(number) || self.open.contains(number);
        let refused: Vec<_> = counts.keys().filter(|number| !known(number)).collect();
        assert!(refused.is_empty(), "{place}: there, although it was refused: {refused:?}");
    }
}

/// Appends numbers to a partition, some at a time.
fn append(log: &OnKafka, name: &TopicName, partition: u32, stop: &AtomicBool) -> Ledger {
    let partition = log.partition(&TopicPartition::new(name.clone(), partition)).unwrap();
    let (mut ledger, mut number) = (Ledger::default(), 0);
    while !stop.load(Ordering::Acquire) {
        let mut waiting = Vec::new();
        for _ in 0..10 {
            let value = format!("p {number}");
            let record = Record { value: Some(value.as_bytes()), ..Record::default() };
            let (done, answer) = answer();
            match partition.append(&[record], AckLevel::Synced, done) {
                Ok(()) => waiting.push((number, answer)),
                Err(error) => ledger.note(number, Err(error)),
            }
            number += 1;
        }
        waiting.into_iter().for_each(|(number, answer)| ledger.note(number, answer().map(drop)));
    }
    ledger
}

/// Commits numbers to all partitions, and takes the name again when an outcome is unknown.
fn commit_all(log: &OnKafka, name: &TopicName, worker: usize, stop: &AtomicBool) -> Ledger {
    let all: Vec<u32> = (0..PARTITIONS).collect();
    let id = format!("faults-{worker}");
    let (mut ledger, mut writer) = (Ledger::default(), log.writer(&id).unwrap());
    for number in 0.. {
        if stop.load(Ordering::Acquire) {
            break;
        }
        let outcome = commit(&*writer, name, &all, &format!("w{worker} {number}")).map(drop);
        if outcome.as_ref().is_err_and(Error::may_have_applied) {
            writer = log.writer(&id).unwrap();
        }
        ledger.note(number, outcome);
    }
    ledger
}

pub(crate) fn signal(pid: u32, signal: &str) {
    let status = Command::new("kill").args([signal, &pid.to_string()]).status().unwrap();
    assert!(status.success(), "{signal} to {pid}");
}

/// Runs appends and commits while `fault` happens to the brokers, and checks everything afterwards.
fn under_load(brokers: &RealKafka, name: &str, fault: impl FnOnce(&RealKafka)) {
    let (log, name) = (OnKafka::open(config(brokers)).unwrap(), topic(name));
    log.create_topic(&name, &TopicConfig { partitions: PARTITIONS, ..TopicConfig::default() }).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let (appended, committed) = thread::scope(|scope| {
        let appenders: Vec<_> = (0..PARTITIONS)
            .map(|partition| {
                scope.spawn({
                    let (log, name, stop) = (&log, &name, &stop);
                    move || append(log, name, partition, stop)
                })
            })
            .collect();
        let writers: Vec<_> = (0..WRITERS)
            .map(|worker| {
                scope.spawn({
                    let (log, name, stop) = (&log, &name, &stop);
                    move || commit_all(log, name, worker, stop)
                })
            })
            .collect();
        thread::sleep(Duration::from_secs(2));
        fault(brokers);
        thread::sleep(Duration::from_secs(3));
        stop.store(true, Ordering::Release);
        let appended: Vec<Ledger> = appenders.into_iter().map(|worker| worker.join().unwrap()).collect();
        let committed: Vec<Ledger> = writers.into_iter().map(|worker| worker.join().unwrap()).collect();
        (appended, committed)
    });
    let reader = OnKafka::open(config(brokers)).unwrap();
    // What a writer has left open is decided once the next of its name begins.
    let _writers: Vec<_> = (0..WRITERS).map(|worker| reader.writer(&format!("faults-{worker}")).unwrap()).collect();
    for partition in 0..PARTITIONS {
        let mut found: BTreeMap<String, Vec<u32>> = BTreeMap::new();
        for value in values(&reader, &name, partition) {
            let (worker, number) = value.split_once(' ').unwrap();
            found.entry(worker.to_owned()).or_default().push(number.parse().unwrap());
        }
        let of = |worker: &str| found.get(worker).cloned().unwrap_or_default();
        appended[partition as usize].check(&of("p"), &format!("partition {partition}"));
        for (worker, ledger) in committed.iter().enumerate() {
            ledger.check(&of(&format!("w{worker}")), &format!("partition {partition}, writer {worker}"));
        }
        let first = &appended[partition as usize];
        println!("partition {partition}: {} acknowledged, {} open", first.acknowledged.len(), first.open.len());
    }
    for (worker, ledger) in committed.iter().enumerate() {
        let parts: Vec<Vec<String>> = (0..PARTITIONS)
            .map(|partition| {
                let all = values(&reader, &name, partition);
                all.into_iter().filter(|value| value.starts_with(&format!("w{worker} "))).collect()
            })
            .collect();
        assert!(parts.windows(2).all(|pair| pair[0] == pair[1]), "torn commits of writer {worker}");
        println!("writer {worker}: {} acknowledged, {} open", ledger.acknowledged.len(), ledger.open.len());
        assert!(!ledger.acknowledged.is_empty(), "writer {worker} has done nothing");
    }
}

#[test]
#[ignore = "takes long"]
fn a_broker_that_is_killed_under_load_loses_doubles_and_tears_nothing() {
    let kafka = RealKafka::start(3);
    under_load(&kafka, "killed", |kafka| {
        signal(kafka.brokers()[1].pid, "-KILL");
        thread::sleep(Duration::from_secs(15));
    });
}

#[test]
#[ignore = "takes long"]
fn a_broker_that_stands_still_past_its_session_loses_doubles_and_tears_nothing() {
    let kafka = RealKafka::start(3);
    under_load(&kafka, "stopped", |kafka| {
        signal(kafka.brokers()[2].pid, "-STOP");
        thread::sleep(Duration::from_secs(14));
        signal(kafka.brokers()[2].pid, "-CONT");
        thread::sleep(Duration::from_secs(5));
    });
}

#[test]
#[ignore = "takes long"]
fn brokers_that_all_stand_still_for_a_while_lose_double_and_tear_nothing() {
    let kafka = RealKafka::start(3);
    under_load(&kafka, "paused", |kafka| {
        kafka.brokers().iter().for_each(|broker| signal(broker.pid, "-STOP"));
        thread::sleep(Duration::from_secs(10));
        kafka.brokers().iter().for_each(|broker| signal(broker.pid, "-CONT"));
        thread::sleep(Duration::from_secs(5));
    });
}
