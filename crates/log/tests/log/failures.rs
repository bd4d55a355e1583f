//! The engine reports failures of the disk, and goes on after them.

use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};

use millstream_log::{
    AckLevel, AtomicAppend, Done, Embedded, Error, Log, LogConfig, Partition, Storage, TopicConfig, UpTo, reply,
};
use millstream_testkit::conformance::read_all;
use millstream_testkit::sim::{PowerLoss, SimFiles};
use millstream_types::{ErrorCode, Offset, Position, Record};

use crate::support::{self, append, append_atomic, clock, create, name, new_disk, open, partitions};

fn values(partition: &dyn Partition) -> Vec<String> {
    let first = partition.offsets().first;
    let stored = read_all(partition, first, UpTo::Stable).unwrap();
    stored.into_iter().map(|record| String::from_utf8(record.value.unwrap()).unwrap()).collect()
}

fn assert_writing_has_ended(log: &Arc<Embedded>, partition: &dyn Partition) {
    let ended = |result: Result<(), Error>| match result {
        Err(e @ Error::WritingEnded { .. }) => assert!(e.may_have_applied() && !e.is_retryable()),
        other => panic!("writing has not ended: {other:?}"),
    };
    ended(append(partition, b"later", AckLevel::Memory).map(drop));
    let entry = (partition.id().clone(), vec![millstream_types::Record::default()]);
    let atomic = AtomicAppend { records: vec![entry], positions: Vec::new() };
    ended(append_atomic(&**log, &atomic, AckLevel::Memory, Done::ignore()));
    ended(log.create_topic(&name("later"), &TopicConfig::default()).map(drop));
    ended(log.delete_topic(&partition.id().topic));
}

#[test]
fn a_failed_sync_ends_writing_until_a_restart_and_readers_go_on() {
    let (files, clock) = (new_disk(), clock());
    let log = open(&files, &clock).unwrap();
    let partition = &create(&log, "t", &TopicConfig::default())[0];
    append(&**partition, b"before", AckLevel::Synced).unwrap();

    files.fail_next_sync();
    match append(&**partition, b"failed", AckLevel::Synced) {
        Err(Error::WritingEnded { .. }) => {}
        other => panic!("the failed sync is not reported: {other:?}"),
    }
    assert_writing_has_ended(&log, &**partition);
    assert_eq!(values(&**partition), ["before"]);
    assert!(log.close().is_err());

    // Later syncs succeed without the data, so only what was durable before may be relied on.
    let files = files.crash(1, PowerLoss::DropAll);
    let log = open(&files, &clock).unwrap();
    let partition = &partitions(&log, "t")[0];
    assert_eq!(values(&**partition), ["before"]);
    append(&**partition, b"after", AckLevel::Synced).unwrap();
    assert_eq!(values(&**partition), ["before", "after"]);
    log.close().unwrap();
}

fn assert_full<T: std::fmt::Debug>(result: Result<T, Error>) {
    match result {
        Err(e @ Error::DiskFull { .. }) => assert!(e.is_retryable() && !e.may_have_applied()),
        other => panic!("not refused as the disk is full: {other:?}"),
    }
}

#[test]
fn without_a_floor_appends_are_refused_while_the_segments_wait_for_room() {
    let (files, clock) = (new_disk(), clock());
    let config = LogConfig { disk_free_min_bytes: 0, ..support::small_config() };
    let log = Embedded::open(config, Arc::new(files.clone()), clock.clone(), clock.clone()).unwrap();
    let topic = create(&log, "t", &TopicConfig::default());
    append(&*topic[0], b"before", AckLevel::Synced).unwrap();
    files.tell_free(100);
    assert_full(log.flush());
    assert_full(append(&*topic[0], b"refused", AckLevel::Written));
    assert_full(log.check_writing());
    files.tell_free(u64::MAX);
    log.flush().unwrap();
    append(&*topic[0], b"after", AckLevel::Synced).unwrap();
    assert_eq!(values(&*topic[0]), ["before", "after"]);
    log.close().unwrap();
}

#[test]
fn a_disk_that_gets_full_refuses_appends_and_takes_them_again_once_there_is_room() {
    let (files, clock) = (new_disk(), clock());
    let log = open(&files, &clock).unwrap();
    let topic = create(&log, "t", &TopicConfig::default());
    create(&log, "other", &TopicConfig::default());
    append(&*topic[0], b"before", AckLevel::Synced).unwrap();

    let min_bytes = support::small_config().disk_free_min_bytes;
    files.tell_free(min_bytes - 1);
    assert_full(log.check_disk());
    assert_full(append(&*topic[0], b"refused", AckLevel::Memory));
    let entry = (topic[0].id().clone(), vec![Record::default()]);
    let atomic = AtomicAppend { records: vec![entry], positions: Vec::new() };
    assert_full(append_atomic(&*log, &atomic, AckLevel::Memory, Done::ignore()));
    assert_full(log.create_topic(&name("more"), &TopicConfig::default()));
    // Accepted records reach the segments, and deletions that make room still work.
    log.flush().unwrap();
    log.delete_topic(&name("other")).unwrap();
    assert_full(log.check_writing());

    files.tell_free(min_bytes + min_bytes / 16 - 1);
    assert_full(log.check_disk());
    files.tell_free(min_bytes + min_bytes / 16);
    log.check_disk().unwrap();
    files.tell_free(min_bytes);
    log.check_disk().unwrap();
    log.check_writing().unwrap();
    append(&*topic[0], b"after", AckLevel::Synced).unwrap();
    files.tell_free(100);
    assert_full(log.flush());
    assert_eq!(values(&*topic[0]), ["before", "after"]);
    assert_full(log.close());

    // What waits for room survives that, and a start that has none.
    for is_crash in [false, true] {
        let files = if is_crash { files.crash(1, PowerLoss::DropAll) } else { files.clone() };
        files.tell_free(100);
        assert_full(open(&files, &clock).map(drop));
        files.tell_free(u64::MAX);
        let log = open(&files, &clock).unwrap();
        assert_eq!(values(&*partitions(&log, "t")[0]), ["before", "after"]);
        log.close().unwrap();
    }
}

/// The floor is a reserve for what makes room; records that only the journal has must not eat it up later.
#[test]
fn records_that_segments_are_yet_to_take_count_as_taken_from_the_disk() {
    let (files, clock) = (new_disk(), clock());
    // Segments get nothing by themselves.
    let config = LogConfig { flush_interval_ms: 3_600_000, journal_max_bytes: 64 << 20, ..support::small_config() };
    let (min_bytes, pending_max_bytes) = (config.disk_free_min_bytes, 8 << 20);
    let config = LogConfig { journal_file_bytes: 8 << 20, pending_max_bytes, ..config };
    let log = Embedded::open(config, Arc::new(files.clone()), clock.clone(), clock.clone()).unwrap();
    let topic = create(&log, "t", &TopicConfig::default());
    log.flush().unwrap();
    const ROOM_BYTES: usize = 200 << 10;
    files.tell_free(min_bytes + ROOM_BYTES as u64);
    log.check_disk().unwrap();
    let value = vec![7; 10 << 10];
    let taken = (0..100).take_while(|_| append(&*topic[0], &value, AckLevel::Written).is_ok()).count();
    assert!((15..=20).contains(&taken), "{taken} of some twenty that there is room for");
    assert_full(append(&*topic[0], &value, AckLevel::Written));
    assert_full(log.check_disk());
    log.flush().unwrap();
    files.tell_free(min_bytes + min_bytes / 16);
    log.check_disk().unwrap();
    append(&*topic[0], &value, AckLevel::Written).unwrap();
    log.close().unwrap();
}

#[test]
fn segments_wait_for_room_while_the_journal_still_takes_records() {
    for level in [AckLevel::Memory, AckLevel::Written, AckLevel::Synced] {
        let (files, clock) = (new_disk(), clock());
        let log = open(&files, &clock).unwrap();
        let topic = create(&log, "t", &TopicConfig { level, ..TopicConfig::default() });
        files.tell_free(0);
        let mut taken: Vec<String> = Vec::new();
        let mut replies = Vec::new();
        // The shortage is not known yet. Appends that are accepted meanwhile may wait for room in the journal.
        let refused = loop {
            let value = format!("{} {}", taken.len(), "x".repeat(700));
            let (done, answer) = reply();
            let record = Record { value: Some(value.as_bytes()), ..Record::default() };
            match topic[0].append(&[record], level, done) {
                Ok(_) => {
                    taken.push(value);
                    replies.push(answer);
                }
                Err(Error::Overloaded { .. } | Error::TooManyUnsynced { .. }) => std::thread::yield_now(),
                Err(refused) => break refused,
            }
        };
        assert_full(Err::<(), _>(refused));
        files.tell_free(u64::MAX);
        log.check_disk().unwrap();
        for answer in replies {
            answer.wait().unwrap();
        }
        let value = "after".to_owned();
        append(&*topic[0], value.as_bytes(), level).unwrap();
        taken.push(value);
        log.flush().unwrap();
        assert_eq!(values(&*topic[0]), taken, "{level:?}");
        log.close().unwrap();
    }
}

#[test]
fn an_accepted_append_that_waits_for_a_full_disk_fails_if_its_caller_asks_for_that_and_is_stored_later() {
    for level in [AckLevel::Written, AckLevel::Synced] {
        let (files, clock) = (new_disk(), clock());
        let config = LogConfig { disk_free_min_bytes: 0, pending_max_bytes: 2 << 20, ..support::small_config() };
        let log = Embedded::open(config, Arc::new(files.clone()), clock.clone(), clock.clone()).unwrap();
        let topic = create(&log, "t", &TopicConfig { level, ..TopicConfig::default() });
        let let_go = stall_appender(&*topic[1]);
        // More than the journal holds.
        let value = |number: usize| format!("{number} {}", "x".repeat(700));
        let (mut failing, mut patient) = (Vec::new(), Vec::new());
        for number in 0..1_000 {
            let value = value(number);
            let record = Record { value: Some(value.as_bytes()), ..Record::default() };
            let (done, answer) = reply();
            if number % 2 == 0 {
                topic[0].append(&[record], level, done.failing_on_full_disk()).unwrap();
                failing.push(answer);
            } else {
                topic[0].append(&[record], level, done).unwrap();
                patient.push(answer);
            }
        }
        files.tell_free(0);
        let_go.send(()).unwrap();

        for answer in failing {
            let error = answer.wait().unwrap_err();
            assert!(matches!(error, Error::WaitsForDisk { .. }), "{error}");
            assert!(error.is_retryable() && error.may_have_applied() && error.code() == ErrorCode::Overloaded);
            assert!(error.to_string().contains("the disk of /data/log is full: 0 bytes are free"), "{error}");
        }
        assert_full(append(&*topic[0], b"refused", level));

        files.tell_free(u64::MAX);
        for answer in patient {
            answer.wait().unwrap();
        }
        log.flush().unwrap();
        append(&*topic[0], b"after", level).unwrap();
        let stored = values(&*topic[0]);
        assert_eq!(stored.len(), 1_001);
        assert!(stored.iter().take(1_000).enumerate().all(|(number, stored)| *stored == value(number)));
        log.close().unwrap();
    }
}

#[test]
fn a_suddenly_full_disk_ends_writing_and_keeps_acknowledged_records() {
    for free_bytes in [0, 1, 100, 1000, 5000, 20_000, 100_000] {
        let (files, clock) = (new_disk(), clock());
        let log = open(&files, &clock).unwrap();
        let topic = create(&log, "t", &TopicConfig { segment_bytes: 8 << 10, ..TopicConfig::default() });
        files.disk_full_after(free_bytes);
        let mut acknowledged = Vec::new();
        let refusal = (0..2000).find_map(|number| {
            let value = format!("{number} {}", "x".repeat(700));
            match append(&*topic[0], value.as_bytes(), AckLevel::Synced) {
                Ok(_) => acknowledged.push(value),
                Err(e) => return Some(e),
            }
            None
        });
        match refusal {
            Some(Error::WritingEnded { source, .. }) => assert_eq!(source.kind(), std::io::ErrorKind::StorageFull),
            other => panic!("{free_bytes} free bytes end in {other:?}"),
        }
        assert!(values(&*topic[0]).starts_with(&acknowledged));
        assert!(log.close().is_err());

        let files = files.crash(free_bytes, PowerLoss::DropAll);
        let log = open(&files, &clock).unwrap();
        assert_eq!(values(&*partitions(&log, "t")[0]), acknowledged);
        log.close().unwrap();
    }
}

#[test]
fn a_directory_has_one_owner_at_a_time() {
    let (files, clock) = (new_disk(), clock());
    let log = open(&files, &clock).unwrap();
    match open(&files, &clock) {
        Err(Error::InUse { path, .. }) => assert_eq!(path, support::small_config().dir),
        other => panic!("not refused as in use: {:?}", other.map(drop)),
    }
    log.close().unwrap();
    drop(log);
    open(&files, &clock).unwrap().close().unwrap();
}

/// A log whose partition 0 of "t" holds the synced records `kept` and had one more that the power has taken.
fn after_a_loss(kept: &[&str]) -> (SimFiles, Arc<Embedded>, Position) {
    let (files, clock) = (new_disk(), clock());
    let log = open(&files, &clock).unwrap();
    let partition = &create(&log, "t", &TopicConfig::default())[0];
    for value in kept {
        append(&**partition, value.as_bytes(), AckLevel::Synced).unwrap();
    }
    files.crash_after(1);
    let lost = append(&**partition, b"lost", AckLevel::Memory).unwrap();
    let seen = Position { topic: partition.topic().id, epoch: lost.epoch, offset: lost.last.next() };
    let files = files.crash(1, PowerLoss::DropAll);
    drop(log.close());
    let log = open(&files, &clock).unwrap();
    (files, log, seen)
}

#[test]
fn a_lost_offset_is_not_given_again_and_a_reader_passes_the_gap() {
    let (_files, log, seen) = after_a_loss(&["a", "b", "c"]);
    let partition = &partitions(&log, "t")[0];
    let appended = append(&**partition, b"d", AckLevel::Synced).unwrap();
    assert!(appended.first >= seen.offset && appended.epoch > seen.epoch);
    for from in [3, 4, appended.first.0 - 1, appended.first.0] {
        let batches = partition.read(Offset(from), 1, UpTo::Stable).unwrap();
        assert_eq!(batches[0].base_offset(), appended.first, "from {from}");
    }
    assert_eq!(values(&**partition), ["a", "b", "c", "d"]);
    log.close().unwrap();
}

#[test]
fn a_reader_that_has_seen_a_lost_record_is_told_where_to_go_on() {
    let check = |log: &Embedded, seen, end| {
        let partition = &partitions(log, "t")[0];
        match partition.resume(seen) {
            Err(Error::PositionLost { position, restart, .. }) => assert_eq!((position, restart), (seen, end)),
            other => panic!("behind {end} the position {seen:?} is not refused as lost: {other:?}"),
        }
        assert_eq!(partition.resume(Position { offset: end, ..seen }).unwrap(), end, "behind what is left");
    };
    for kept in [&["a", "b", "c"][..], &[]] {
        let end = Offset(kept.len() as u64);
        let (files, log, seen) = after_a_loss(kept);
        check(&log, seen, end);
        // Nor is it forgotten that what was kept is trimmed, nor by the next start.
        partitions(&log, "t")[0].trim(end).unwrap();
        check(&log, seen, end);
        log.close().unwrap();
        drop(log);
        let log = open(&files, &clock()).unwrap();
        check(&log, seen, end);
        log.close().unwrap();
    }
}

#[test]
fn every_start_begins_a_new_epoch() {
    let (mut files, clock) = (new_disk(), clock());
    let mut epochs = Vec::new();
    for crash in 0..6 {
        let log = open(&files, &clock).unwrap();
        let topic = create(&log, "t", &TopicConfig::default());
        epochs.push(topic[0].offsets().epoch);
        if crash % 2 == 0 {
            log.close().unwrap();
        }
        files = files.crash(crash, PowerLoss::DropAll);
        drop(log.close());
    }
    assert!(epochs.is_sorted_by(|before, after| before < after), "{epochs:?}");
}

#[test]
fn more_than_the_journal_holds_may_wait_to_be_written() {
    let (files, clock) = (new_disk(), clock());
    let config = LogConfig { pending_max_bytes: 8 << 20, ..support::small_config() };
    assert!(config.journal_max_bytes < 1 << 20);
    let log = Embedded::open(config, Arc::new(files), clock.clone(), clock).unwrap();
    let topic = create(&log, "t", &TopicConfig { retention: None, ..TopicConfig::default() });
    let value = [b'x'; 30_000];
    for number in 0..100 {
        let record = Record { value: Some(&value), ..Record::default() };
        topic[number % topic.len()].append(&[record], AckLevel::Memory, Done::ignore()).unwrap();
    }
    for partition in &topic {
        append(&**partition, b"last", AckLevel::Synced).unwrap();
        assert_eq!(values(&**partition).len(), 26);
    }
    log.close().unwrap();
}

/// Makes the thread that writes call back, so that it writes nothing until it is let go.
fn stall_appender(partition: &dyn Partition) -> Sender<()> {
    let (is_stalled, stalled) = channel();
    let (let_go, told) = channel();
    let stall = Done::call(move |_| {
        is_stalled.send(()).unwrap();
        let _ = told.recv();
    });
    partition.append(&[Record::default()], AckLevel::Written, stall).unwrap();
    stalled.recv().unwrap();
    let_go
}

#[test]
fn a_writer_that_is_dropped_while_the_log_takes_no_more_leaves_nothing_open() {
    let (files, clock) = (new_disk(), clock());
    let log = open(&files, &clock).unwrap();
    let topic = create(&log, "t", &TopicConfig::default());
    let writer = log.writer("owner").unwrap();
    let value = [b'x'; 1_000];
    let record = Record { value: Some(&value), ..Record::default() };
    writer.append(topic[1].id(), &[record]).unwrap();
    let let_go = stall_appender(&*topic[0]);
    // To the last bytes, so that no marker fits either.
    for record in [record, Record::default()] {
        let refusal = (0..1_000).find_map(|_| topic[2].append(&[record], AckLevel::Synced, Done::call(drop)).err());
        assert!(matches!(refusal, Some(Error::Overloaded { .. })), "{refusal:?}");
    }
    drop(writer);
    let_go.send(()).unwrap();
    log.flush().unwrap();
    append(&*topic[1], b"after", AckLevel::Synced).unwrap();
    assert_eq!(values(&*topic[1]), ["after"]);
    log.close().unwrap();
}

#[test]
fn unawaited_appends_are_refused_while_there_is_still_room_for_awaited_ones() {
    let (files, clock) = (new_disk(), clock());
    let log = open(&files, &clock).unwrap();
    let topic = create(&log, "t", &TopicConfig::default());
    let let_go = stall_appender(&*topic[0]);

    assert!(log.backpressure().is_none(), "there is nothing to wait for");
    let value = [b'x'; 1_000];
    let record = Record { value: Some(&value), ..Record::default() };
    let refusal = (0..1_000).find_map(|_| topic[1].append(&[record], AckLevel::Memory, Done::ignore()).err());
    let half = support::small_config().pending_max_bytes / 2;
    let refusal = refusal.expect("nothing is written, so the share is used up some time");
    assert!(matches!(refusal, Error::Overloaded { limit_bytes, .. } if limit_bytes == half), "{refusal}");
    let text = refusal.to_string();
    assert!(text.contains("log.pending_unwaited_percent of log.pending_max_bytes = 131072"), "{text}");

    let answers: Vec<_> = [AckLevel::Written, AckLevel::Synced]
        .map(|level| {
            let (done, answer) = millstream_log::reply();
            topic[2].append(&[record], level, done).unwrap();
            answer
        })
        .into();
    topic[1].append(&[record], AckLevel::Memory, Done::ignore()).unwrap_err();
    let room = log.backpressure().expect("what nobody waits for is refused");
    let_go.send(()).unwrap();
    room.wait().unwrap();
    answers.into_iter().for_each(|answer| assert!(answer.wait().is_ok()));
    append(&*topic[1], &value, AckLevel::Memory).unwrap();
    log.close().unwrap();
}

#[test]
fn topics_in_memory_share_a_limit_and_a_topic_without_room_is_refused_by_name() {
    let (files, clock) = (new_disk(), clock());
    let open = |memory_topics_max_bytes: usize| {
        let config = LogConfig { memory_topics_max_bytes, ..support::small_config() };
        Embedded::open(config, Arc::new(files.clone()), clock.clone(), clock.clone())
    };
    let ring = |partitions: u32| TopicConfig {
        partitions,
        storage: Storage::Memory { max_bytes: 10_000 },
        ..TopicConfig::default()
    };
    let log = open(40_000).unwrap();
    create(&log, "three", &ring(3));
    create(&log, "disk", &TopicConfig::default());
    let refused = log.create_topic(&name("two"), &ring(2)).unwrap_err();
    assert_eq!(refused.code(), ErrorCode::Overloaded);
    let text = refused.to_string();
    assert!(text.contains("'two' would take 20000 bytes, and other memory topics take 30000"), "{text}");
    assert!(text.contains("log.memory_topics_max_bytes = 40000; make it smaller"), "{text}");
    create(&log, "one", &ring(1));
    log.delete_topic(&name("three")).unwrap();
    create(&log, "two", &ring(2));

    let refused = log.add_partitions(&name("two"), 4).unwrap_err();
    assert_eq!(refused.code(), ErrorCode::Overloaded);
    let text = refused.to_string();
    assert!(text.contains("'two' would take 40000 bytes, and other memory topics take 10000"), "{text}");
    assert_eq!(log.topic(&name("two")).unwrap().config.partitions, 2, "nothing was added");
    assert_eq!(log.add_partitions(&name("two"), 3).unwrap().config.partitions, 3);
    assert_eq!(log.add_partitions(&name("disk"), 9).unwrap().config.partitions, 9, "on disk there is room");
    log.close().unwrap();

    let refused = open(39_999).unwrap_err().to_string();
    assert!(refused.contains("log.memory_topics_max_bytes = 39999"), "{refused}");
    open(40_000).unwrap().close().unwrap();
}
