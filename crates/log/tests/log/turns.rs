//! Tests of the thread that writes the journal: the log's own, or one that appends and was prompted to.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread;

use millstream_log::{AckLevel, Appended, Done, Embedded, Error, LogFigures, Partition, TopicConfig, UpTo, reply};
use millstream_testkit::conformance::read_all;
use millstream_types::{Offset, Record};

use crate::support::{clock, create, new_disk, open};

fn prompted() -> (Arc<Embedded>, Arc<dyn Partition>) {
    let log = open(&new_disk(), &clock()).unwrap();
    log.prompt_with(|| true);
    let written = TopicConfig { level: AckLevel::Written, ..TopicConfig::default() };
    let partition = create(&log, "t", &written).remove(0);
    (log, partition)
}

fn begin(partition: &dyn Partition, value: &[u8], done: Done<Appended>) -> Result<(), Error> {
    partition.append(&[Record { value: Some(value), ..Record::default() }], AckLevel::Written, done)
}

#[test]
fn a_prompted_thread_writes_for_all_and_answers_at_once() {
    let (log, partition) = prompted();
    let mut is_by_us = false;
    // The log's own thread may come first: it looks after a millisecond.
    for _ in 0..1_000 {
        let (sender, receiver) = channel();
        for value in [b"1", b"2"] {
            let sender = sender.clone();
            let answer = move |result: Result<Appended, Error>| {
                result.unwrap();
                sender.send(thread::current().id()).unwrap();
            };
            begin(&*partition, value, Done::call(answer)).unwrap();
        }
        log.write_accepted();
        // All answers: who gives the second must find somebody who takes it.
        let by: Vec<_> = receiver.iter().take(2).collect();
        is_by_us |= by.iter().all(|by| *by == thread::current().id());
    }
    assert!(is_by_us);
    log.close().unwrap();
    assert_eq!(log.stats().records, 2_000);
}

#[test]
fn the_log_writes_records_that_no_prompted_thread_writes() {
    let (log, partition) = prompted();
    for value in [b"1", b"2"] {
        let (done, answer) = reply();
        begin(&*partition, value, done).unwrap();
        answer.wait().unwrap();
    }
    log.close().unwrap();
}

#[test]
fn records_that_do_not_fit_the_journals_file_are_left_to_the_log_and_stay_in_order() {
    let (log, partition) = prompted();
    let (large, small) = (vec![7; 30 << 10], vec![8; 100]);
    let mut next = 0;
    // Many files of 56 KiB. What is left waits for one that is free; what is appended meanwhile goes with it.
    for _ in 0..100 {
        let mut answers = Vec::new();
        for value in [&small, &large, &small] {
            let (done, answer) = reply();
            match begin(&*partition, value, done) {
                Ok(()) => answers.push(answer),
                Err(Error::Overloaded { .. }) => {}
                Err(other) => panic!("{other}"),
            }
            log.write_accepted();
        }
        for answer in answers {
            let appended = answer.wait().unwrap();
            assert_eq!(appended.first, Offset(next));
            next += 1;
        }
    }
    log.close().unwrap();
}

#[test]
fn writes_while_the_log_closes_are_answered() {
    let (log, partition) = prompted();
    let is_begun = AtomicBool::new(false);
    let appended = thread::scope(|threads| {
        let writers: Vec<_> = (0..3)
            .map(|_| {
                threads.spawn(|| {
                    let mut answers = Vec::new();
                    for _ in 0..20_000 {
                        let (done, answer) = reply();
                        match begin(&*partition, b"value", done) {
                            Ok(()) => answers.push(answer),
                            Err(Error::Stopped) => break,
                            Err(_) => {}
                        }
                        log.write_accepted();
                        is_begun.store(true, Ordering::Release);
                    }
                    let count = answers.len();
                    for answer in answers {
                        answer.wait().unwrap();
                    }
                    count
                })
            })
            .collect();
        while !is_begun.load(Ordering::Acquire) {
            thread::yield_now();
        }
        log.close().unwrap();
        writers.into_iter().map(|writer| writer.join().unwrap()).sum::<usize>()
    });
    assert!(appended > 0);
    assert_eq!(partition.offsets().tail, Offset(appended as u64));
    assert_eq!(read_all(&*partition, Offset(0), UpTo::Stable).unwrap().len(), appended);
}
