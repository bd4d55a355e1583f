//! Answers that get lost: what a caller finds who takes a new writer of the name and reads up to the stable offset.

use std::sync::Arc;

use millstream_log::{
    AckLevel, Appended, AtomicAppend, Error, Log, Partition, RenewedWriter, TopicConfig, UpTo, Writer, reply,
};
use millstream_testkit::MemoryLog;
use millstream_testkit::conformance::read_all;
use millstream_types::{ErrorCode, Offset, Record, SystemClock, TenantId, TopicName, TopicPartition};

const WRITER: &str = "owner";

fn open() -> (Arc<MemoryLog>, Arc<dyn Partition>) {
    let log = MemoryLog::open(Arc::new(SystemClock::default()));
    let name = TopicName::user("state", &TenantId::default()).unwrap();
    log.create_topic(&name, &TopicConfig::default()).unwrap();
    let partition = log.partition(&TopicPartition::new(name, 0)).unwrap();
    (log, partition)
}

fn record(value: &str) -> Record<'_> {
    Record { value: Some(value.as_bytes()), ..Record::default() }
}

fn commit(writer: &dyn Writer, partition: &dyn Partition, value: &str) -> Result<Vec<Appended>, Error> {
    let (done, answer) = reply();
    let records = vec![(partition.id().clone(), vec![record(value)])];
    writer.commit(&AtomicAppend { records, positions: Vec::new() }, AckLevel::Synced, done)?;
    answer.wait()
}

fn seen(partition: &dyn Partition) -> Vec<String> {
    let records = read_all(partition, Offset::ZERO, UpTo::Stable).unwrap();
    records.into_iter().map(|record| String::from_utf8(record.value.unwrap()).unwrap()).collect()
}

fn assert_unknown<T: std::fmt::Debug>(outcome: Result<T, Error>) {
    let error = outcome.unwrap_err();
    assert!(matches!(&error, Error::OutcomeUnknown { writer } if writer == WRITER), "{error}");
    assert!(error.may_have_applied() && !error.is_retryable() && error.code() == ErrorCode::Unavailable);
    let text = error.to_string();
    assert!(text.contains("writer 'owner'") && text.contains("take a new writer of that name"), "{text}");
}

#[test]
fn a_lost_answer_is_found_by_the_next_writer_of_the_name() {
    for stored in [true, false] {
        let (log, partition) = open();
        let writer = log.writer(WRITER).unwrap();
        writer.append(partition.id(), &[record("transaction")]).unwrap();
        log.lose_next_answer(WRITER, stored);
        assert_unknown(commit(&*writer, &*partition, "last"));
        assert_unknown(commit(&*writer, &*partition, "later"));
        assert_unknown(writer.append(partition.id(), &[record("later")]));
        assert_unknown(writer.abort());

        let next = log.writer(WRITER).unwrap();
        let expected: &[&str] = if stored { &["transaction", "last"] } else { &[] };
        assert_eq!(seen(&*partition), expected);
        assert!(matches!(commit(&*writer, &*partition, "later"), Err(Error::Fenced { .. })));
        drop(writer);
        commit(&*next, &*partition, "next").unwrap();
        assert_eq!(seen(&*partition), [expected, &["next"]].concat());
    }
}

#[test]
fn only_the_next_commit_of_that_writer_loses_its_answer() {
    let (log, partition) = open();
    let (writer, other) = (log.writer(WRITER).unwrap(), log.writer("other").unwrap());
    log.lose_next_answer(WRITER, false);
    commit(&*other, &*partition, "other").unwrap();
    assert_unknown(commit(&*writer, &*partition, "lost"));
    commit(&*log.writer(WRITER).unwrap(), &*partition, "next").unwrap();
    assert_eq!(seen(&*partition), ["other", "next"]);
}

#[test]
fn a_writer_that_is_renewed_goes_on_after_a_commit_that_failed() {
    let unreachable = Error::Unreachable { brokers: "kafka-1:9092".to_owned(), why: "no answer".to_owned() };
    for (failure, stored) in [(unreachable, false), (Error::OutcomeUnknown { writer: WRITER.to_owned() }, true)] {
        let (log, partition) = open();
        let writer = RenewedWriter::begin(log.clone(), WRITER).unwrap();
        let commit = |value: &str| {
            let (done, answer) = reply();
            let records = vec![(partition.id().clone(), vec![record(value)])];
            writer.commit(&AtomicAppend { records, positions: Vec::new() }, AckLevel::Synced, done)?;
            answer.wait()
        };
        commit("first").unwrap();
        if stored {
            log.lose_next_answer(WRITER, true);
        } else {
            log.fail_next_commit(WRITER, failure.clone());
        }
        assert_eq!(commit("failed").unwrap_err().to_string(), failure.to_string());
        let mut refusals = 0;
        millstream_testkit::eventually("the writer has begun anew", || match commit("next") {
            Ok(_) => true,
            Err(error) => {
                assert!(matches!(&error, Error::WriterBegins { writer } if writer == WRITER), "{error}");
                assert!(error.is_retryable() && !error.may_have_applied());
                refusals += 1;
                false
            }
        });
        assert!(refusals > 0);
        let expected: &[&str] = if stored { &["first", "failed", "next"] } else { &["first", "next"] };
        assert_eq!(seen(&*partition), expected);
    }
}

#[test]
fn a_writer_that_is_renewed_takes_no_name_from_a_later_one() {
    let (log, partition) = open();
    let writer = RenewedWriter::begin(log.clone(), WRITER).unwrap();
    let later = log.writer(WRITER).unwrap();
    let (done, _answer) = reply();
    let append = AtomicAppend { records: vec![(partition.id().clone(), vec![record("void")])], positions: Vec::new() };
    assert!(matches!(writer.commit(&append, AckLevel::Synced, done), Err(Error::Fenced { .. })));
    commit(&*later, &*partition, "later").unwrap();
    assert_eq!(seen(&*partition), ["later"]);
}

#[test]
fn held_answers_come_in_the_order_of_the_calls_once_they_are_released() {
    let (log, partition) = open();
    let writer = log.writer(WRITER).unwrap();
    let held = log.hold_answers();
    let (sender, heard) = std::sync::mpsc::channel();
    for value in ["first", "second", "third"] {
        let sender = sender.clone();
        let done =
            millstream_log::Done::call(move |outcome: Result<_, Error>| sender.send((value, outcome.is_ok())).unwrap());
        let records = vec![(partition.id().clone(), vec![record(value)])];
        writer.commit(&AtomicAppend { records, positions: Vec::new() }, AckLevel::Synced, done).unwrap();
    }
    assert_eq!(seen(&*partition), ["first", "second", "third"]);
    assert!(heard.try_recv().is_err(), "an answer was not held");
    drop(held);
    assert_eq!(heard.try_iter().collect::<Vec<_>>(), [("first", true), ("second", true), ("third", true)]);
    commit(&*writer, &*partition, "at once").unwrap();
}
