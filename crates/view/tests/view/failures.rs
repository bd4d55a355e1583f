//! The errors that callers get when the log refuses, waits or ends, and the state that remains.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use millstream_log::{AckLevel, Done, Error as LogError, Files, Log, LogConfig, TopicConfig};
use millstream_testkit::MemoryLog;
use millstream_testkit::sim::{PowerLoss, SimFiles};
use millstream_types::{ErrorCode, PartitionId, Record, SystemClock, TenantId, TopicName, TopicPartition};
use millstream_view::{Checkpoints, Error, FailedPart, Views, ViewsConfig};
use tempfile::TempDir;

use crate::common::{Answer, Command, Shelf, World, add, ask, pieces, shelf_topic, submit, whole};
use crate::gate::{Gate, Shut};

/// A log that is easily full.
fn small() -> LogConfig {
    LogConfig {
        dir: PathBuf::from("/data/log"),
        journal_file_bytes: 128 << 10,
        journal_max_bytes: 512 << 10,
        pending_max_bytes: 64 << 10,
        append_max_bytes: 64 << 10,
        batch_max_bytes: 64 << 10,
        ..LogConfig::default()
    }
}

fn disk() -> SimFiles {
    let files = SimFiles::new();
    files.create_dir_all(Path::new("/data")).unwrap();
    files.sync_dir(Path::new("/")).unwrap();
    files
}

fn world(files: impl Files, dir: &TempDir) -> World {
    World::on(Arc::new(files), small(), &dir.path().join("views")).unwrap()
}

fn four() -> ViewsConfig {
    ViewsConfig { partitions: 4, append_max_bytes: 16 << 10, ..ViewsConfig::default() }
}

fn name(name: &str) -> TopicName {
    TopicName::user(name, &TenantId::default()).unwrap()
}

/// Appends to a topic of its own until the log takes no more, not even the smallest record.
fn fill(log: &dyn Log) {
    let filler = log.partition(&TopicPartition::new(name("filler"), 0)).unwrap();
    let mut value = vec![b'x'; 1 << 10];
    loop {
        let records = [Record { value: Some(&value), ..Record::default() }];
        match filler.append(&records, AckLevel::Memory, Done::ignore()) {
            Ok(()) => {}
            Err(LogError::Overloaded { .. }) if value.is_empty() => return,
            Err(LogError::Overloaded { .. }) => value.truncate(value.len() / 2),
            Err(e) => panic!("{e}"),
        }
    }
}

fn one() -> TopicConfig {
    TopicConfig { partitions: 1, ..TopicConfig::default() }
}

#[test]
fn a_failed_sync_leaves_commands_in_flight_unknown_and_readers_with_acknowledged_state() {
    let (dir, files) = (tempfile::tempdir().unwrap(), disk());
    let gate = Gate::around(files.clone());
    let world = world(gate.clone(), &dir);
    let views = world.shelf_with(None, &four()).unwrap();
    let names: Vec<String> = (0..12).map(|n| format!("part-{n}")).collect();
    names.iter().for_each(|name| assert_eq!(add(&views, name, 1), Answer::Now(1)));
    let acknowledged = whole(&views);

    let _opened_at_end = gate.opened_at_end();
    gate.set(Shut::Syncs);
    let add_one = |name: &String| submit(&views, Command::Add { name: name.clone(), pieces: 1 }).unwrap();
    let in_flight: Vec<_> = (0..20).flat_map(|_| names.iter().map(add_one)).collect();
    files.fail_next_sync();
    gate.set(Shut::Nothing);
    for answer in in_flight {
        let unknown = answer.blocking_recv().unwrap().unwrap_err();
        assert!(matches!(unknown, Error::OwnerEnded { .. }), "{unknown}");
        assert!(unknown.may_have_applied() && !unknown.is_retryable());
    }
    assert_eq!(whole(&views), acknowledged);
    for name in &names {
        let refused = ask(&views, Command::Add { name: name.clone(), pieces: 1 }).unwrap_err();
        assert!(matches!(refused, Error::OwnerEnded { .. }), "{refused}");
    }
    assert_eq!(whole(&views), acknowledged);
    world.end(views).unwrap_err();

    let world = self::world(files.crash(1, PowerLoss::DropAll), &dir);
    let views = world.shelf_with(None, &four()).unwrap();
    let lost = whole(&views).into_iter().find(|(_, pieces)| *pieces < 1);
    assert_eq!((whole(&views).len(), lost), (names.len(), None));
    names.iter().for_each(|name| assert!(matches!(add(&views, name, 1), Answer::Now(2..))));
    world.close(views);
}

#[test]
fn commands_wait_while_the_log_is_full_and_are_carried_out_in_order() {
    let (dir, gate) = (tempfile::tempdir().unwrap(), Gate::around(disk()));
    let world = world(gate.clone(), &dir);
    world.log.create_topic(&name("filler"), &one()).unwrap();
    let config = ViewsConfig { inbox_max_commands: 8, batch_max_commands: 4, ..four() };
    let views = world.shelf_with(None, &config).unwrap();
    let _opened_at_end = gate.opened_at_end();
    gate.set(Shut::Writes);
    fill(&*world.log);
    let mut waiting = Vec::new();
    let refusal = loop {
        match submit(&views, Command::Add { name: "bolt".into(), pieces: 1 }) {
            Ok(answer) => waiting.push(answer),
            Err(refusal) => break refusal,
        }
    };
    assert!(matches!(refusal, Error::Overloaded { limit: 8, .. }), "{refusal}");
    assert_eq!(refusal.code(), ErrorCode::Overloaded);
    assert!(waiting.len() >= 8);
    gate.set(Shut::Nothing);
    for (answer, expected) in waiting.into_iter().zip(1..) {
        assert_eq!(answer.blocking_recv().unwrap().unwrap(), Answer::Now(expected));
    }
    world.close(views);
}

#[test]
fn a_full_disk_refuses_new_commands_and_accepted_ones_run_once_there_is_room() {
    let (dir, files) = (tempfile::tempdir().unwrap(), disk());
    let world = world(files.clone(), &dir);
    let views = world.shelf_with(None, &ViewsConfig { partitions: 1, ..four() }).unwrap();
    assert_eq!(add(&views, "bolt", 1), Answer::Now(1));
    files.tell_free(1);
    world.log.check_disk().unwrap_err();
    let mut waiting = Vec::new();
    let refusal = loop {
        match submit(&views, Command::Add { name: "bolt".into(), pieces: 1 }) {
            Ok(answer) => waiting.push(answer),
            Err(refusal) => break refusal,
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    assert!(matches!(&refusal, Error::Log(full) if matches!(**full, LogError::DiskFull { .. })), "{refusal}");
    assert!(refusal.is_full() && refusal.is_retryable() && !refusal.may_have_applied());
    assert_eq!(whole(&views), [("bolt".to_owned(), 1)]);
    files.tell_free(u64::MAX);
    world.log.check_disk().unwrap();
    for (answer, expected) in waiting.into_iter().zip(2..) {
        assert_eq!(answer.blocking_recv().unwrap().unwrap(), Answer::Now(expected));
    }
    assert!(matches!(add(&views, "bolt", 1), Answer::Now(2..)));
    world.close(views);
}

/// The names of partition 0 from `start` on with their entries, at most `most`.
fn listed(views: &Views<Shelf>, start: &str, most: usize) -> Vec<(String, i64)> {
    let mut listed = Vec::new();
    let visit = |key: &[u8], entry: &[u8]| {
        let pieces = i64::from_be_bytes(entry.try_into().unwrap());
        listed.push((String::from_utf8(key[1..].to_vec()).unwrap(), pieces));
        if listed.len() < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    };
    // A state record's key begins with its kind.
    views.list(PartitionId(0), &[b"\x01", start.as_bytes()].concat(), visit).unwrap();
    listed
}

/// A full disk keeps changes out of the checkpoint.
#[test]
fn a_list_has_every_answered_change_while_the_disk_is_full() {
    let (dir, files) = (tempfile::tempdir().unwrap(), disk());
    let world = world(files.clone(), &dir);
    let config = ViewsConfig { partitions: 1, checkpoint_interval: Duration::MAX, ..four() };
    let views = world.shelf_with(None, &config).unwrap();
    for name in ["bolt", "nut", "rivet", "screw"] {
        add(&views, name, 1);
    }
    assert_eq!(listed(&views, "", 9), whole(&views), "all are in the checkpoint");
    for name in ["anvil", "nut", "peg", "washer"] {
        add(&views, name, 1);
    }
    for name in ["rivet", "peg"] {
        ask(&views, Command::Remove { name: name.into() }).unwrap();
    }
    files.tell_free(1);
    world.log.check_disk().unwrap_err();
    let all =
        [("anvil", 1), ("bolt", 1), ("nut", 2), ("screw", 1), ("washer", 1)].map(|(name, n)| (name.to_owned(), n));
    assert_eq!(listed(&views, "", 9), all);
    assert_eq!(listed(&views, "b", 2), all[1..3]);
    assert_eq!(listed(&views, "o", 1), all[3..4]);
    assert_eq!(listed(&views, "", 1), all[..1]);
    assert_eq!(listed(&views, "t", 1), all[4..]);
    assert_eq!(listed(&views, "x", 1), []);
    files.tell_free(u64::MAX);
    world.log.check_disk().unwrap();
    assert_eq!(listed(&views, "", 9), all);
    world.close(views);
}

/// A log elsewhere goes on when the disk of the checkpoint is full.
#[test]
fn a_full_disk_beside_the_log_holds_nobody_up_and_the_checkpoint_catches_up_once_there_is_room() {
    let dir = tempfile::tempdir().unwrap();
    let log = MemoryLog::open(Arc::new(SystemClock::default()));
    let world = World::over(log.clone(), dir.path());
    // The changes of a few commands are all that may wait for the checkpoint.
    let config = ViewsConfig { partitions: 1, dirty_max_bytes: 512, checkpoint_interval: Duration::MAX, ..four() };
    let views = world.shelf_with(None, &config).unwrap();
    for name in ["bolt", "nut", "rivet"] {
        add(&views, name, 1);
    }
    assert_eq!(listed(&views, "", 9), whole(&views), "all are in the checkpoint");
    log.tell_free(1);
    for n in 0..100 {
        add(&views, &format!("screw {n:02}"), 1);
    }
    add(&views, "nut", 4);
    ask(&views, Command::Remove { name: "rivet".into() }).unwrap();
    let refusal = views.list(PartitionId(0), b"", |_, _| ControlFlow::Continue(())).unwrap_err();
    assert!(matches!(&refusal, Error::Log(full) if matches!(**full, LogError::DiskFull { .. })), "{refusal}");
    assert_eq!(whole(&views).len(), 102, "the state has every change");
    log.tell_free(u64::MAX);
    assert_eq!(listed(&views, "", 200), whole(&views));
    // And so do those after it.
    add(&views, "washer", 1);
    assert_eq!(listed(&views, "", 200), whole(&views));
    // A start on a full disk that reads more than may wait for the checkpoint.
    let next = log.reopened();
    world.end(views).unwrap();
    std::fs::remove_dir_all(dir.path().join("views")).unwrap();
    next.tell_free(1);
    let world = World::over(next.clone(), dir.path());
    let views = world.shelf_with(None, &config).unwrap();
    assert_eq!(whole(&views).len(), 103);
    views.list(PartitionId(0), b"", |_, _| ControlFlow::Continue(())).unwrap_err();
    next.tell_free(u64::MAX);
    assert_eq!(listed(&views, "", 200), whole(&views));
    world.close(views);
}

/// All files below a directory, with what is in them.
fn contents(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let below = |path: PathBuf| {
        if path.is_dir() { contents(&path) } else { [(path.clone(), std::fs::read(&path).unwrap())].into() }
    };
    entries.flat_map(below).collect()
}

#[test]
fn stopping_on_a_full_disk_keeps_nobody_waiting_and_leaves_the_checkpoint_alone() {
    for is_full in [true, false] {
        let (dir, files) = (tempfile::tempdir().unwrap(), disk());
        let world = world(files.clone(), &dir);
        let views = world.shelf_with(None, &ViewsConfig { checkpoint_interval: Duration::MAX, ..four() }).unwrap();
        assert_eq!(add(&views, "bolt", 1), Answer::Now(1));
        let before = contents(&dir.path().join("views"));
        files.tell_free(if is_full { 1 } else { u64::MAX });
        assert_eq!(world.log.check_disk().is_err(), is_full);
        let taken = submit(&views, Command::Add { name: "bolt".into(), pieces: 1 });
        views.stop();
        let answer = taken.and_then(|taken| taken.blocking_recv().unwrap());
        assert_eq!(contents(&dir.path().join("views")) == before, is_full);
        assert_eq!(world.end(views).is_err(), is_full);
        match answer {
            Err(ended) => assert!(is_full && !ended.may_have_applied(), "{ended}"),
            Ok(answer) => assert!(!is_full && answer == Answer::Now(2)),
        }
        files.tell_free(u64::MAX);
        let world = self::world(files, &dir);
        let views = world.shelf_with(None, &four()).unwrap();
        assert_eq!(whole(&views), [("bolt".to_owned(), if is_full { 1 } else { 2 })]);
        world.close(views);
    }
}

#[test]
fn commands_over_the_inbox_limit_are_refused_and_a_single_one_is_always_accepted() {
    let (dir, gate) = (tempfile::tempdir().unwrap(), Gate::around(disk()));
    let world = world(gate.clone(), &dir);
    world.log.create_topic(&name("filler"), &one()).unwrap();
    let inbox_max_bytes = 4 * 20_000;
    let config =
        ViewsConfig { inbox_max_bytes, inbox_setting: "shelf.inbox_max_bytes", batch_max_commands: 1, ..four() };
    let views = world.shelf_with(None, &config).unwrap();
    let add_one = |length: usize| submit(&views, Command::Add { name: "b".repeat(length), pieces: 1 });
    let _opened_at_end = gate.opened_at_end();
    gate.set(Shut::Writes);
    fill(&*world.log);
    let mut waiting = Vec::new();
    let refusal = loop {
        match add_one(7) {
            Ok(answer) => waiting.push(answer),
            Err(refusal) => break refusal,
        }
    };
    assert!(
        matches!(refusal, Error::InboxFull { limit_bytes: 20_000, setting: "shelf.inbox_max_bytes", .. }),
        "{refusal}"
    );
    assert_eq!((refusal.code(), refusal.may_have_applied()), (ErrorCode::Overloaded, false));
    let text = refusal.to_string();
    assert!(text.contains("at most 20000 bytes wait, its part of shelf.inbox_max_bytes"), "{text}");
    assert!(waiting.len() < 1_000, "bytes were counted, not commands: {}", waiting.len());
    gate.set(Shut::Nothing);
    for (answer, expected) in waiting.into_iter().zip(1..) {
        assert_eq!(answer.blocking_recv().unwrap().unwrap(), Answer::Now(expected));
    }
    // Larger than the limit, but nothing waits; what its change is too large for is another matter.
    let refusal = add_one(30_000).unwrap().blocking_recv().unwrap().unwrap_err();
    assert!(!matches!(refusal, Error::InboxFull { .. }), "{refusal}");
    assert!(matches!(add_one(7).unwrap().blocking_recv().unwrap().unwrap(), Answer::Now(_)));
    world.close(views);
}

#[test]
fn a_command_whose_caller_has_gone_before_it_is_decided_has_no_effect() {
    let (dir, gate) = (tempfile::tempdir().unwrap(), Gate::around(disk()));
    let world = world(gate.clone(), &dir);
    world.log.create_topic(&name("filler"), &one()).unwrap();
    let views = world.shelf_with(None, &ViewsConfig { batch_max_commands: 1, ..four() }).unwrap();
    let _opened_at_end = gate.opened_at_end();
    gate.set(Shut::Writes);
    fill(&*world.log);
    let add_one = || submit(&views, Command::Add { name: "bolt".into(), pieces: 1 }).unwrap();
    let first = add_one();
    (0..100).for_each(|_| drop(add_one()));
    let last = add_one();
    gate.set(Shut::Nothing);
    assert_eq!(first.blocking_recv().unwrap().unwrap(), Answer::Now(1));
    assert_eq!(last.blocking_recv().unwrap().unwrap(), Answer::Now(2));
    world.close(views);
}

#[test]
fn stopping_answers_thousands_in_flight_and_takes_no_more() {
    let (dir, gate) = (tempfile::tempdir().unwrap(), Gate::around(disk()));
    let world = world(gate.clone(), &dir);
    let views = world.shelf_with(None, &four()).unwrap();
    let _opened_at_end = gate.opened_at_end();
    gate.set(Shut::Syncs);
    let names: Vec<String> = (0..50).map(|n| format!("part-{n}")).collect();
    let add_one = |name: &String| submit(&views, Command::Add { name: name.clone(), pieces: 1 }).unwrap();
    let in_flight: Vec<_> = (0..100).flat_map(|_| names.iter().map(add_one)).collect();
    std::thread::scope(|threads| {
        threads.spawn(|| views.stop());
        let probe = || submit(&views, Command::Tell { name: names[0].clone() });
        while !matches!(probe(), Err(Error::Stopped)) {
            std::thread::yield_now();
        }
        gate.set(Shut::Nothing);
    });
    for answer in in_flight {
        assert!(matches!(answer.blocking_recv().unwrap(), Ok(Answer::Now(_))));
    }
    names.iter().for_each(|name| assert_eq!(pieces(&views, name), Some(100)));
    world.close(views);
}

#[test]
fn a_log_that_was_closed_first_ends_the_owner_and_keeps_nobody_waiting() {
    let dir = tempfile::tempdir().unwrap();
    let world = world(disk(), &dir);
    let views = world.shelf_with(None, &four()).unwrap();
    add(&views, "bolt", 1);
    world.close_log().unwrap();
    let ended = ask(&views, Command::Add { name: "bolt".into(), pieces: 1 }).unwrap_err();
    assert!(matches!(ended, Error::OwnerEnded { .. }), "{ended}");
    assert_eq!(pieces(&views, "bolt"), Some(1));
    world.close(views);
}

#[test]
fn a_command_that_is_too_large_is_refused_alone_and_leaves_no_trace() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path());
    let views = world.shelf();
    let partition = views.partition_of(b"bolt");
    let long = "x".repeat(2 << 20);
    let many: Vec<String> = (0..40).map(|n| format!("{n}-{}", "y".repeat(100 << 10))).collect();
    for round in 0..20 {
        let send = |command| views.submit(partition, command).unwrap();
        let bolt = || Command::Add { name: "bolt".into(), pieces: 1 };
        let first = send(bolt());
        let too_long = send(Command::Add { name: long.clone(), pieces: 1 });
        let second = send(bolt());
        let too_many = send(Command::Stock { names: many.clone() });
        let third = send(bolt());
        let refusal = too_long.blocking_recv().unwrap().unwrap_err();
        assert!(matches!(&refusal, Error::Log(e) if matches!(**e, LogError::RecordTooLarge { .. })), "{refusal}");
        assert!(refusal.code() == ErrorCode::TooLarge && !refusal.may_have_applied());
        let refusal = too_many.blocking_recv().unwrap().unwrap_err();
        assert!(matches!(refusal, Error::ChangesTooLarge { limit_bytes: 0x20_0000, .. }), "{refusal}");
        assert!(refusal.code() == ErrorCode::TooLarge && !refusal.may_have_applied());
        for (answer, n) in [first, second, third].into_iter().zip(1..) {
            assert_eq!(answer.blocking_recv().unwrap().unwrap(), Answer::Now(round * 3 + n));
        }
    }
    assert_eq!(whole(&views), [("bolt".to_owned(), 60)]);
    world.close(views);
    let world = World::open(dir.path());
    let views = world.shelf();
    assert_eq!(whole(&views), [("bolt".to_owned(), 60)]);
    world.close(views);
}

#[test]
fn many_large_commands_at_once_become_several_appends() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::in_memory(dir.path());
    let views = world.shelf();
    let name = |n: usize| format!("{n}-{}", "z".repeat(30 << 10));
    let answers: Vec<_> =
        (0..1_000).map(|n| submit(&views, Command::Add { name: name(n), pieces: 1 }).unwrap()).collect();
    for answer in answers {
        assert_eq!(answer.blocking_recv().unwrap().unwrap(), Answer::Now(1));
    }
    world.close(views);
}

#[test]
fn a_command_with_an_event_but_no_change_is_answered() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::in_memory(dir.path());
    world.log.create_topic(&name("moves"), &one()).unwrap();
    let views =
        world.shelf_with(Some(name("moves")), &ViewsConfig { partitions: 4, ..ViewsConfig::default() }).unwrap();
    for _ in 0..3 {
        assert_eq!(ask(&views, Command::Tell { name: "bolt".into() }).unwrap(), Answer::Gone);
        assert!(matches!(add(&views, "bolt", 1), Answer::Now(_)));
    }
    let moves = world.log.partition(&TopicPartition::new(name("moves"), 0)).unwrap();
    assert_eq!(moves.offsets().stable.0, 6);
    world.close(views);
}

#[test]
fn a_command_with_an_event_for_a_missing_topic_is_refused_and_the_owner_lives() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::in_memory(dir.path());
    let views =
        world.shelf_with(Some(name("moves")), &ViewsConfig { partitions: 4, ..ViewsConfig::default() }).unwrap();
    let refusal = ask(&views, Command::Add { name: "bolt".into(), pieces: 1 }).unwrap_err();
    assert!(matches!(&refusal, Error::Log(e) if matches!(**e, LogError::UnknownTopic { .. })), "{refusal}");
    assert_eq!(pieces(&views, "bolt"), None);
    world.log.create_topic(&name("moves"), &one()).unwrap();
    assert_eq!(add(&views, "bolt", 1), Answer::Now(1));
    world.close(views);
}

#[test]
fn a_batch_that_the_log_finds_too_large_is_refused_whole_and_the_owner_lives() {
    let dir = tempfile::tempdir().unwrap();
    let world = world(disk(), &dir);
    let views = world.shelf_with(None, &ViewsConfig { append_max_bytes: 1 << 20, ..four() }).unwrap();
    add(&views, "bolt", 1);
    let many: Vec<String> = (0..40).map(|n| format!("{n}-{}", "y".repeat(10 << 10))).collect();
    let refusal = ask(&views, Command::Stock { names: many }).unwrap_err();
    assert!(matches!(&refusal, Error::Log(e) if matches!(**e, LogError::AppendTooLarge { .. })), "{refusal}");
    assert_eq!(add(&views, "bolt", 1), Answer::Now(2));
    assert_eq!(whole(&views), [("bolt".to_owned(), 2)]);
    world.close(views);
}

#[test]
fn another_number_of_partitions_is_refused_with_both_numbers() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::in_memory(dir.path());
    world.log.create_topic(&shelf_topic(), &TopicConfig { partitions: 6, ..TopicConfig::default() }).unwrap();
    let refusal =
        world.shelf_with(None, &ViewsConfig { partitions: 4, ..ViewsConfig::default() }).map(drop).unwrap_err();
    assert!(matches!(refusal, Error::Partitions { found: 6, wanted: 4, .. }), "{refusal}");
    assert!(refusal.to_string().contains("has 6 partitions and not 4"), "{refusal}");
    let views = world.shelf_with(None, &ViewsConfig { partitions: 6, ..ViewsConfig::default() }).unwrap();
    world.close(views);
}

#[test]
fn a_state_record_of_a_later_version_is_named_by_its_offset() {
    let source_key = [0; 21];
    let cases: [(&[u8], &[u8], &str); 4] = [
        (b"\x01bolt", b"later", "5 bytes"),
        (&source_key, b"\x02\0\0\0\0\0\0\0\0", "source record of version 2"),
        (&source_key[..9], b"\x01\0\0\0\0\0\0\0\0", "a source's key has 20 bytes and not 8"),
        (b"\x07bolt", b"", "state record of kind 7"),
    ];
    for (key, value, expected) in cases {
        let dir = tempfile::tempdir().unwrap();
        let world = World::open(dir.path());
        let views = world.shelf();
        (1..=5).for_each(|n| assert_eq!(add(&views, "bolt", 1), Answer::Now(n)));
        let partition = TopicPartition { topic: shelf_topic(), partition: views.partition_of(b"bolt") };
        let state = world.log.partition(&partition).unwrap();
        let (done, answer) = millstream_log::reply();
        let later = Record { key: Some(key), value: Some(value), ..Record::default() };
        state.append(&[later], AckLevel::Synced, done).unwrap();
        let at = answer.wait().unwrap().first;
        world.close(views);

        let world = World::open(dir.path());
        let refusal = world.shelf_with(None, &ViewsConfig { partitions: 4, ..ViewsConfig::default() });
        let refusal = refusal.map(drop).unwrap_err();
        assert!(
            matches!(&refusal, Error::StateRecord { offset, source, .. } if *offset == at && source.what == expected),
            "{refusal:?}"
        );
        assert_eq!(refusal.code(), ErrorCode::Corrupt);
        assert!(refusal.to_string().contains(&format!("offset {at} of {partition}")), "{refusal}");
        world.close_log().unwrap();
    }
}

#[test]
fn a_checkpoint_store_that_somebody_uses_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let first = Checkpoints::open(dir.path()).unwrap();
    let refusal = Checkpoints::open(dir.path()).unwrap_err();
    assert!(matches!(refusal, Error::Checkpoint { .. }), "{refusal}");
    first.sync().unwrap();
}

#[test]
fn a_command_that_panics_is_answered_and_seen_and_all_others_go_on() {
    let (dir, gate) = (tempfile::tempdir().unwrap(), Gate::around(disk()));
    let world = world(gate.clone(), &dir);
    let views = world.shelf_with(None, &four()).unwrap();
    assert_eq!(add(&views, "bolt", 1), Answer::Now(1));
    assert_eq!(views.failures(), []);

    // Between two others in one batch, and behind a flight: what these change is kept, what it changed is not.
    let _opened_at_end = gate.opened_at_end();
    gate.set(Shut::Syncs);
    let bolt = || Command::Add { name: "bolt".into(), pieces: 1 };
    let before: Vec<_> = (0..3).map(|_| submit(&views, bolt()).unwrap()).collect();
    let broken = submit(&views, Command::Break { name: "bolt".into() }).unwrap();
    let after = submit(&views, bolt()).unwrap();
    gate.set(Shut::Nothing);
    for (answer, expected) in before.into_iter().chain([after]).zip(2..) {
        assert_eq!(answer.blocking_recv().unwrap().unwrap(), Answer::Now(expected));
    }
    let refusal = broken.blocking_recv().unwrap().unwrap_err();
    assert!(matches!(&refusal, Error::Panicked { what, .. } if what == "broken on purpose"), "{refusal}");
    assert!(!refusal.may_have_applied() && !refusal.is_retryable());

    let failures = views.failures();
    let [failure] = &failures[..] else { panic!("{failures:?}") };
    assert_eq!((failure.view, failure.part), ("shelf", FailedPart::Owner));
    assert_eq!(failure.partition.topic, shelf_topic());
    let text = failure.to_string();
    assert!(text.contains("'shelf'") && text.contains("broken on purpose"), "{text}");
    for name in 0..8 {
        assert_eq!(add(&views, &format!("part-{name}"), 1), Answer::Now(1));
    }
    world.close(views);
}
