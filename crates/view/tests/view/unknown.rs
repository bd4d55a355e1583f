//! Appends whose outcome the log does not tell: each command is applied once, and its caller is told the truth.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use millstream_log::{AckLevel, Done, Error as LogError, Log, TopicConfig, UpTo};
use millstream_testkit::conformance::read_all;
use millstream_testkit::{MemoryLog, eventually};
use millstream_types::{Record, SystemClock, TenantId, TopicName, TopicPartition};
use millstream_view::{Error, FailedPart, Follower, FollowerConfig, Views, ViewsConfig};

use crate::common::{
    Answer, Command, Deliveries, Shelf, World, add, ask, pieces, shelf_topic, submit, telemetry, whole,
};

fn memory() -> Arc<MemoryLog> {
    MemoryLog::open(Arc::new(SystemClock::default()))
}

fn moves() -> TopicName {
    TopicName::user("moves", &TenantId::default()).unwrap()
}

/// A world whose shelves tell `moves` of each change; each command is an append of its own.
fn open(log: &Arc<MemoryLog>, dir: &Path) -> (World, Arc<Views<Shelf>>) {
    log.create_topic(&moves(), &TopicConfig { partitions: 1, ..TopicConfig::default() }).unwrap();
    let world = World::over(Arc::clone(log), dir);
    let config = ViewsConfig { partitions: 4, batch_max_commands: 1, ..ViewsConfig::default() };
    let views = world.shelf_with(Some(moves()), &config).unwrap();
    (world, views)
}

/// The partition of the state that has "bolt".
fn of_bolt(views: &Views<Shelf>) -> TopicPartition {
    TopicPartition { topic: shelf_topic(), partition: views.partition_of(b"bolt") }
}

fn lose_next(log: &MemoryLog, views: &Views<Shelf>, stored: bool) {
    log.lose_next_answer(&format!("view/{}", of_bolt(views)), stored);
}

/// The values of the records in `moves`.
fn told(log: &MemoryLog) -> Vec<String> {
    let moves = log.partition(&TopicPartition::new(moves(), 0)).unwrap();
    let records = read_all(&*moves, moves.offsets().first, UpTo::Stable).unwrap().into_iter();
    records.map(|record| String::from_utf8(record.value.unwrap()).unwrap()).collect()
}

fn add_bolt(views: &Views<Shelf>) -> millstream_view::Answer<Shelf> {
    submit(views, Command::Add { name: "bolt".into(), pieces: 1 }).unwrap()
}

#[test]
fn a_command_of_unknown_outcome_is_applied_once_and_answered() {
    for stored in [true, false] {
        let (dir, log) = (tempfile::tempdir().unwrap(), memory());
        let (world, views) = open(&log, dir.path());
        for round in 0..3 {
            assert_eq!(add(&views, "bolt", 1), Answer::Now(2 * round + 1));
            lose_next(&log, &views, stored);
            assert_eq!(add(&views, "bolt", 1), Answer::Now(2 * round + 2), "{stored}");
        }
        assert_eq!(told(&log), ["1", "2", "3", "4", "5", "6"], "{stored}");
        assert_eq!((whole(&views), views.failures()), (vec![("bolt".to_owned(), 6)], Vec::new()));
        world.close(views);

        // From the log alone, as a start without a checkpoint sees it.
        let (log, dir) = (log.reopened(), tempfile::tempdir().unwrap());
        let (world, views) = open(&log, dir.path());
        assert_eq!(whole(&views), [("bolt".to_owned(), 6)]);
        world.close(views);
    }
}

#[test]
fn appends_in_flight_around_a_lost_answer_are_applied_once_and_in_order() {
    for stored in [true, false] {
        let (dir, log) = (tempfile::tempdir().unwrap(), memory());
        let (world, views) = open(&log, dir.path());
        let held = log.hold_answers();
        let first = add_bolt(&views);
        eventually("the first append is stored", || told(&log).len() == 1);
        lose_next(&log, &views, stored);
        // The answer of the second is lost, and the writer refuses those behind it.
        let behind: Vec<_> = (0..3).map(|_| add_bolt(&views)).collect();
        eventually("the owner has gone on with another writer", || told(&log).len() == 4);
        // Only now come the answers of the first writer.
        drop(held);
        for (answer, expected) in [first].into_iter().chain(behind).zip(1..) {
            assert_eq!(answer.blocking_recv().unwrap().unwrap(), Answer::Now(expected), "{stored}");
        }
        assert_eq!(add(&views, "bolt", 1), Answer::Now(5));
        assert_eq!(told(&log), ["1", "2", "3", "4", "5"], "{stored}");
        assert_eq!((whole(&views), views.failures()), (vec![("bolt".to_owned(), 5)], Vec::new()));
        world.close(views);
    }
}

#[test]
fn answers_that_come_while_the_owner_looks_for_what_is_stored_change_nothing() {
    const ROUNDS: i64 = 200;
    let (dir, log) = (tempfile::tempdir().unwrap(), memory());
    let (world, views) = open(&log, dir.path());
    for round in 0..ROUNDS {
        let held = log.hold_answers();
        let first = add_bolt(&views);
        eventually("the first append is stored", || told(&log).len() as i64 == 3 * round + 1);
        lose_next(&log, &views, round % 2 == 0);
        let behind = [add_bolt(&views), add_bolt(&views)];
        // Sometimes before, sometimes while and sometimes after it looks.
        (0..round % 20).for_each(|_| std::thread::yield_now());
        drop(held);
        for (answer, expected) in [first].into_iter().chain(behind).zip(3 * round + 1..) {
            assert_eq!(answer.blocking_recv().unwrap().unwrap(), Answer::Now(expected), "round {round}");
        }
    }
    assert_eq!(told(&log), (1..=3 * ROUNDS).map(|n| n.to_string()).collect::<Vec<_>>());
    assert_eq!((whole(&views), views.failures()), (vec![("bolt".to_owned(), 3 * ROUNDS)], Vec::new()));
    world.close(views);
}

#[test]
fn an_owner_that_comes_into_doubt_again_decides_nothing_meanwhile() {
    for stored in [true, false] {
        let (dir, log) = (tempfile::tempdir().unwrap(), memory());
        let (world, views) = open(&log, dir.path());
        let held = log.hold_answers();
        // The next writer has the same fate.
        lose_next(&log, &views, stored);
        lose_next(&log, &views, stored);
        let all: Vec<_> = (0..10).map(|_| add_bolt(&views)).collect();
        eventually("the owner has gone on with a third writer", || told(&log).len() >= 3);
        drop(held);
        for (answer, expected) in all.into_iter().zip(1..) {
            assert_eq!(answer.blocking_recv().unwrap().unwrap(), Answer::Now(expected), "{stored}");
        }
        assert_eq!(told(&log), (1..=10).map(|n| n.to_string()).collect::<Vec<_>>(), "{stored}");
        assert_eq!((whole(&views), views.failures()), (vec![("bolt".to_owned(), 10)], Vec::new()));
        world.close(views);
    }
}

#[test]
fn an_owner_goes_on_after_an_append_that_no_broker_took() {
    let (dir, log) = (tempfile::tempdir().unwrap(), memory());
    let (world, views) = open(&log, dir.path());
    let held = log.hold_answers();
    let first = add_bolt(&views);
    eventually("the first append is stored", || told(&log).len() == 1);
    let unreachable = LogError::Unreachable { brokers: "kafka-1:9092".to_owned(), why: "no answer".to_owned() };
    log.fail_next_commit(&format!("view/{}", of_bolt(&views)), unreachable);
    let behind: Vec<_> = (0..3).map(|_| add_bolt(&views)).collect();
    eventually("the owner has gone on with another writer", || told(&log).len() == 4);
    drop(held);
    for (answer, expected) in [first].into_iter().chain(behind).zip(1..) {
        assert_eq!(answer.blocking_recv().unwrap().unwrap(), Answer::Now(expected));
    }
    assert_eq!(told(&log), ["1", "2", "3", "4"]);
    assert_eq!((whole(&views), views.failures()), (vec![("bolt".to_owned(), 4)], Vec::new()));
    world.close(views);
}

#[test]
fn an_append_that_brokers_refuse_for_good_is_undone_with_those_behind_it() {
    let (dir, log) = (tempfile::tempdir().unwrap(), memory());
    let (world, views) = open(&log, dir.path());
    let held = log.hold_answers();
    let first = add_bolt(&views);
    eventually("the first append is stored", || told(&log).len() == 1);
    log.fail_next_commit(
        &format!("view/{}", of_bolt(&views)),
        LogError::Refused { request: "an append", why: "MessageTooLarge".to_owned() },
    );
    let behind: Vec<_> = (0..3).map(|_| add_bolt(&views)).collect();
    drop(held);
    assert_eq!(first.blocking_recv().unwrap().unwrap(), Answer::Now(1));
    let outcomes: Vec<_> = behind.into_iter().map(|answer| answer.blocking_recv().unwrap()).collect();
    let refused = |outcome: &Result<Answer, Error>| matches!(outcome, Err(Error::Log(e)) if matches!(**e, LogError::Refused { .. }));
    assert!(refused(&outcomes[0]), "{outcomes:?}");
    // Those that were decided before the refusal was known are refused, too, and the others apply.
    let applied = outcomes.iter().filter(|outcome| !refused(outcome)).count() as i64;
    let counted: Vec<_> = outcomes.into_iter().filter_map(Result::ok).collect();
    assert_eq!(counted, (2..2 + applied).map(Answer::Now).collect::<Vec<_>>());
    assert_eq!(add(&views, "bolt", 1), Answer::Now(2 + applied));
    assert_eq!((whole(&views), views.failures()), (vec![("bolt".to_owned(), 2 + applied)], Vec::new()));
    assert_eq!(told(&log).len() as i64, 2 + applied);
    world.close(views);
}

#[test]
fn a_view_that_stops_in_doubt_answers_first() {
    for stored in [true, false] {
        let (dir, log) = (tempfile::tempdir().unwrap(), memory());
        let (world, views) = open(&log, dir.path());
        lose_next(&log, &views, stored);
        let answers: Vec<_> = (0..3).map(|_| add_bolt(&views)).collect();
        views.stop();
        for (answer, expected) in answers.into_iter().zip(1..) {
            assert_eq!(answer.blocking_recv().unwrap().unwrap(), Answer::Now(expected), "{stored}");
        }
        world.close(views);
    }
}

#[test]
fn a_command_that_changes_nothing_is_told_that_its_outcome_is_unknown() {
    let (dir, log) = (tempfile::tempdir().unwrap(), memory());
    let (world, views) = open(&log, dir.path());
    for stored in [true, false] {
        let before = told(&log).len();
        lose_next(&log, &views, stored);
        let unknown = ask(&views, Command::Tell { name: "bolt".into() }).unwrap_err();
        assert!(matches!(&unknown, Error::Log(e) if matches!(**e, LogError::OutcomeUnknown { .. })), "{unknown}");
        assert!(unknown.may_have_applied() && !unknown.is_retryable());
        assert_eq!(told(&log).len() - before, usize::from(stored));
        assert!(matches!(add(&views, "bolt", 1), Answer::Now(_)), "the owner goes on");
    }
    world.close(views);
}

#[test]
fn a_command_that_changes_nothing_is_sent_again_behind_one_that_is_not_stored() {
    for stored in [true, false] {
        let (dir, log) = (tempfile::tempdir().unwrap(), memory());
        let (world, views) = open(&log, dir.path());
        let held = log.hold_answers();
        lose_next(&log, &views, stored);
        let changes = add_bolt(&views);
        let tells = submit(&views, Command::Tell { name: "bolt".into() }).unwrap();
        eventually("both are stored", || told(&log).len() == 2);
        drop(held);
        assert_eq!(changes.blocking_recv().unwrap().unwrap(), Answer::Now(1));
        assert_eq!(tells.blocking_recv().unwrap().unwrap(), Answer::Gone);
        assert_eq!(told(&log), ["1", "0"], "{stored}");
        world.close(views);
    }
}

#[test]
fn a_followed_record_of_unknown_outcome_is_applied_once() {
    let (dir, log) = (tempfile::tempdir().unwrap(), memory());
    log.create_topic(&telemetry(), &TopicConfig { partitions: 1, ..TopicConfig::default() }).unwrap();
    let (world, views) = open(&log, dir.path());
    let shared: Arc<dyn Log> = log.clone();
    let config = FollowerConfig { quiet: Duration::from_millis(20), ..FollowerConfig::default() };
    let deliveries = Arc::new(Deliveries { views: Arc::clone(&views) });
    let follower = Follower::start(deliveries, &views, &shared, &config).unwrap();
    let source = log.partition(&TopicPartition::new(telemetry(), 0)).unwrap();
    for delivered in 1..=20 {
        lose_next(&log, &views, delivered % 2 == 0);
        let record = Record { key: Some(b"bolt"), value: Some(b"x"), ..Record::default() };
        source.append(&[record], AckLevel::Synced, Done::ignore()).unwrap();
        eventually("the record has arrived", || pieces(&views, "bolt") == Some(delivered));
    }
    follower.stop();
    assert_eq!((pieces(&views, "bolt"), views.records_passed_over()), (Some(20), 0));
    drop((follower, shared));
    world.close(views);
}

#[test]
fn an_owner_that_finds_records_of_others_ends_and_keeps_nobody_waiting() {
    let (dir, log) = (tempfile::tempdir().unwrap(), memory());
    let (world, views) = open(&log, dir.path());
    assert_eq!(add(&views, "bolt", 1), Answer::Now(1));
    let state = log.partition(&of_bolt(&views)).unwrap();
    let foreign = Record { key: Some(b"\x01nut"), value: Some(&[0; 8]), ..Record::default() };
    state.append(&[foreign, foreign], AckLevel::Synced, Done::ignore()).unwrap();
    lose_next(&log, &views, true);
    let ended = ask(&views, Command::Add { name: "bolt".into(), pieces: 1 }).unwrap_err();
    assert!(matches!(ended, Error::OwnerEnded { .. }) && ended.may_have_applied(), "{ended}");
    assert_eq!(views.failures().iter().map(|failure| failure.part).collect::<Vec<_>>(), [FailedPart::Owner]);
    let refused = ask(&views, Command::Add { name: "bolt".into(), pieces: 1 }).unwrap_err();
    assert!(matches!(refused, Error::OwnerEnded { .. }), "{refused}");
    assert_eq!(pieces(&views, "bolt"), Some(1), "readers keep the acknowledged state");
    world.close(views);
}
