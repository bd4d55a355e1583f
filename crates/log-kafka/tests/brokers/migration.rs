//! A log of the built-in engine that is moved to Kafka.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use millstream_log::{
    AckLevel, AtomicAppend, Cleanup, ClosedLog, Embedded, Error, Log, LogConfig, PositionCommit, Storage, SystemFiles,
    TopicConfig, UpTo, Writers,
};
use millstream_log_kafka::{LogSource, Migration, MigrationStep, OnKafka};
use millstream_testkit::conformance::{ReadRecord, append_and_wait, read_all};
use millstream_testkit::{RealKafka, eventually};
use millstream_types::{Header, Offset, Position, Record, SystemClock, TopicName, TopicPartition};

use crate::faults::signal;
use crate::{answer, config, topic};

const GROUP: &str = "readers";
/// Begins the name of a group whose members speak Kafka.
const OF_KAFKA: &str = "default/";

fn embedded(dir: &Path) -> Arc<Embedded> {
    let clock = Arc::new(SystemClock::default());
    let config = LogConfig { dir: dir.to_owned(), compaction_dirty_percent: 99, ..LogConfig::default() };
    Embedded::open(config, Arc::new(SystemFiles), clock.clone(), clock).unwrap()
}

fn on(kafka: &LogConfig, prefix: &str) -> LogConfig {
    let mut config = kafka.clone();
    config.kafka.prefix = prefix.to_owned();
    config
}

fn at(topic: &TopicName, partition: u32) -> TopicPartition {
    TopicPartition::new(topic.clone(), partition)
}

fn append(log: &dyn Log, topic: &TopicName, partition: u32, key: &str, value: &str) -> Offset {
    let headers = [Header { key: "unit", value: Some(b"C") }, Header { key: "none", value: None }];
    let timestamp_ms = 1_600_000_000_000 + value.len() as i64;
    let record = Record { timestamp_ms, key: Some(key.as_bytes()), value: Some(value.as_bytes()), headers: &headers };
    let partition = log.partition(&at(topic, partition)).unwrap();
    append_and_wait(&*partition, &[record], AckLevel::Memory).unwrap().first
}

fn plain() -> TopicConfig {
    TopicConfig { partitions: 3, ..TopicConfig::default() }
}

fn compacted() -> TopicConfig {
    TopicConfig { partitions: 1, cleanup: Cleanup::Compact, segment_bytes: 4 << 10, ..TopicConfig::default() }
}

/// A log with everything that makes gaps. Returns a position of a reader.
fn fill(dir: &Path) -> Position {
    let log = embedded(dir);
    let [plain_topic, states, versions, memory] = ["plain", "states", "versions", "memory"].map(topic);
    log.create_topic(&plain_topic, &plain()).unwrap();
    log.create_topic(&states, &compacted()).unwrap();
    let of_versions =
        TopicConfig { writers: Writers::OwnersOnly, compaction_live_percent: Some(50), partitions: 2, ..compacted() };
    log.create_topic(&versions, &of_versions).unwrap();
    let in_memory = TopicConfig { storage: Storage::Memory { max_bytes: 1 << 16 }, partitions: 1, ..plain() };
    log.create_topic(&memory, &in_memory).unwrap();
    for number in 0..50 {
        for partition in 0..3 {
            append(&*log, &plain_topic, partition, "k", &format!("{number}"));
        }
        append(&*log, &versions, number % 2, &format!("{number}"), "v");
        append(&*log, &memory, 0, "k", "v");
    }
    log.flush().unwrap();
    log.partition(&at(&plain_topic, 1)).unwrap().trim(Offset(17)).unwrap();
    for number in 0..300 {
        // A few keys live on among many that are replaced.
        let key = if number % 20 == 0 { format!("kept {number}") } else { format!("{}", number % 7) };
        append(&*log, &states, 0, &key, &"x".repeat(100 + number % 3));
    }
    let partition = log.partition(&at(&states, 0)).unwrap();
    log.flush().unwrap();
    partition.compact();
    eventually("the topic is compacted", || {
        log.flush().unwrap();
        read_all(&*partition, Offset(0), UpTo::Stable).unwrap().len() < 80
    });
    let writer = log.writer("a job").unwrap();
    let record = [Record { key: Some(b"void"), value: Some(b"void"), ..Record::default() }];
    for partition in [0, 2, 0] {
        writer.append(&at(&plain_topic, partition), &record).unwrap();
    }
    writer.abort().unwrap();
    let offsets = log.partition(&at(&plain_topic, 0)).unwrap().offsets();
    let position = Position { topic: log.topic(&plain_topic).unwrap().id, epoch: offsets.epoch, offset: Offset(20) };
    let read = PositionCommit {
        group: GROUP.to_owned(),
        partition: at(&plain_topic, 0),
        position,
        metadata: "page 7".to_owned(),
    };
    let committed = [Record { key: Some(b"k"), value: Some(b"committed"), ..Record::default() }];
    let of_kafka = |topic: &TopicName, partition, offset| PositionCommit {
        group: format!("{OF_KAFKA}{}", dir.display()),
        partition: at(topic, partition),
        position: Position { topic: log.topic(topic).unwrap().id, offset: Offset(offset), ..position },
        metadata: "page 8".to_owned(),
    };
    // The first one is behind a trimmed part, the second one in front of the records that compaction has left.
    let positions = vec![read, of_kafka(&plain_topic, 1, 27), of_kafka(&states, 0, 290)];
    let append = AtomicAppend { records: vec![(at(&plain_topic, 0), committed.to_vec())], positions };
    let (done, answer) = answer();
    writer.commit(&append, AckLevel::Synced, done).unwrap();
    answer().unwrap();
    log.close().unwrap();
    position
}

/// The records and the ends of each partition that is kept.
type Contents = Vec<(TopicPartition, (Offset, Offset), Vec<ReadRecord>)>;

fn contents(log: &dyn Log, topics: &[TopicName]) -> Contents {
    let partitions =
        topics.iter().flat_map(|name| (0..log.topic(name).unwrap().config.partitions).map(|number| at(name, number)));
    let read = |id: TopicPartition| {
        let partition = log.partition(&id).unwrap();
        let ends = partition.offsets();
        let records = read_all(&*partition, ends.first, UpTo::Stable).unwrap();
        (id, (ends.first, ends.stable), records)
    };
    partitions.map(read).collect()
}

/// The findings of a server at its start.
fn contents_of(dir: &Path) -> (Contents, Vec<TopicName>) {
    let log = embedded(dir);
    let names: Vec<TopicName> = log.topics().iter().map(|topic| topic.name.clone()).collect();
    let found = contents(&*log, &names);
    log.close().unwrap();
    (found, names)
}

fn source(log: &ClosedLog) -> LogSource {
    LogSource { log: format!("{:x}", log.state().salt), epoch: log.state().epoch.0 }
}

fn migrate(dir: &Path, config: &LogConfig, told: impl Fn(MigrationStep) + Sync) -> Result<bool, Error> {
    let log = ClosedLog::open(Arc::new(SystemFiles), dir).unwrap();
    let migration = Migration::begin(config.clone(), &log, &source(&log))?;
    let is_finished = migration.is_finished();
    let refused = migration.run(&log, |group| group.strip_prefix(OF_KAFKA).map(str::to_owned), &told)?;
    assert!(refused.is_empty(), "{refused:?}");
    Ok(is_finished)
}

#[test]
fn a_log_that_is_moved_keeps_its_records_offsets_ids_and_positions() {
    let dir = tempfile::tempdir().unwrap();
    let kafka = on(&config(crate::conformance::brokers()), "moved.");
    let position = fill(dir.path());
    let (expected, names) = contents_of(dir.path());
    let ids: Vec<_> = {
        let log = ClosedLog::open(Arc::new(SystemFiles), dir.path()).unwrap();
        log.topics().map(|topic| (topic.id, topic.clone())).collect()
    };
    let records: usize = expected.iter().map(|(.., records)| records.len()).sum();
    let (copied, compared) = (AtomicU64::new(0), AtomicU64::new(0));
    let is_finished = migrate(dir.path(), &kafka, |step| match step {
        MigrationStep::Copied { records, .. } => drop(copied.fetch_add(records, Ordering::Relaxed)),
        MigrationStep::Compared { records, .. } => drop(compared.fetch_add(records, Ordering::Relaxed)),
    })
    .unwrap();
    assert!(!is_finished);
    assert_eq!((copied.into_inner(), compared.into_inner()), (records as u64, records as u64));
    assert!(migrate(dir.path(), &kafka, |_| panic!("it is done")).unwrap());

    let log = OnKafka::open(kafka.clone()).unwrap();
    for (id, topic) in &ids {
        let moved = log.topic(&topic.name).unwrap();
        assert_eq!((moved.id, moved.config.difference(&topic.config)), (*id, None), "{}", topic.name);
    }
    let found = contents(&*log, &names);
    assert_eq!(found, expected);
    // One at a time, and from each offset, gaps included.
    for (id, (first, tail), records) in &expected {
        let partition = log.partition(id).unwrap();
        for record in records {
            let found = partition.read_one(record.offset, UpTo::Stable).unwrap().unwrap();
            assert_eq!((found.offset, found.value.as_deref()), (record.offset, record.value.as_deref()));
        }
        let gaps = records.windows(2).filter(|pair| pair[0].offset.next() != pair[1].offset);
        let before_gaps = gaps.map(|pair| pair[0].offset.0 + 1).take(10);
        let near_ends = [first.0, tail.0.saturating_sub(2), tail.0.saturating_sub(1)];
        for offset in near_ends.into_iter().chain(before_gaps).filter(|offset| (first.0..tail.0).contains(offset)) {
            let next = records.iter().position(|record| record.offset.0 >= offset).unwrap_or(records.len());
            assert_eq!(read_all(&*partition, Offset(offset), UpTo::Stable).unwrap(), records[next..], "{id} {offset}");
        }
    }
    let group = log.positions(GROUP).unwrap();
    assert_eq!((group.len(), group[0].position, group[0].metadata.as_str()), (1, position, "page 7"));
    let partition = log.partition(&at(&topic("plain"), 0)).unwrap();
    assert_eq!(partition.resume(position).unwrap(), Offset(20));
    let beyond = Position { offset: Offset(u64::MAX >> 1), ..position };
    assert!(matches!(partition.resume(beyond), Err(Error::PositionLost { .. })));
    // Each partition goes on where the log has ended.
    for (id, (_, tail), records) in &expected {
        let offset = append(&*log, &id.topic, id.partition.0, "new", "new");
        assert_eq!(offset, *tail, "{id}");
        let partition = log.partition(id).unwrap();
        let last = records.last().map_or(*tail, |last| last.offset);
        let read = read_all(&*partition, last, UpTo::Stable).unwrap();
        assert_eq!(read.last().unwrap().offset, *tail);
        assert!(partition.offsets().epoch > position.epoch);
    }
    drop(log);
    // Kafka has the topics' own settings again, and compacts.
    let log = OnKafka::open(kafka).unwrap();
    assert_eq!(log.topics().iter().filter(|topic| names.contains(&topic.name)).count(), names.len());
}

#[test]
fn a_migration_that_is_cut_off_goes_on_and_doubles_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let kafka = on(&config(crate::conformance::brokers()), "cut.");
    fill(dir.path());
    let (expected, names) = contents_of(dir.path());
    let records: u64 = expected.iter().map(|(.., records)| records.len() as u64).sum();
    for cut in [0, records / 2, records + 1, 2 * records - 1] {
        let steps = AtomicU64::new(0);
        let cut_off = migrate(dir.path(), &kafka, |step| {
            let (MigrationStep::Copied { records, .. } | MigrationStep::Compared { records, .. }) = step;
            assert!(steps.fetch_add(records, Ordering::Relaxed) + records <= cut, "the run is cut off");
        });
        assert!(cut_off.is_err(), "{cut}");
        let refused = OnKafka::open(kafka.clone()).unwrap_err().to_string();
        assert!(refused.contains("unfinished") && refused.contains("millstream migrate --to kafka"), "{refused}");
    }
    migrate(dir.path(), &kafka, |_| {}).unwrap();
    let log = OnKafka::open(kafka).unwrap();
    assert_eq!(contents(&*log, &names), expected);
}

#[test]
fn a_target_that_is_not_empty_and_a_source_that_has_changed_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let base = config(crate::conformance::brokers());
    fill(dir.path());
    let taken = on(&base, "taken.");
    drop(OnKafka::open(taken.clone()).unwrap());
    let refused = migrate(dir.path(), &taken, |_| {}).unwrap_err().to_string();
    assert!(refused.contains("taken._millstream_topics") && refused.contains("log.kafka.prefix"), "{refused}");

    let kafka = on(&base, "changed.");
    assert!(migrate(dir.path(), &kafka, |_| panic!("the run is cut off")).is_err());
    // A server runs in between.
    embedded(dir.path()).close().unwrap();
    let refused = migrate(dir.path(), &kafka, |_| {}).unwrap_err().to_string();
    assert!(refused.contains("an earlier state of this log") && refused.contains("begin anew"), "{refused}");
    let other = tempfile::tempdir().unwrap();
    embedded(other.path()).close().unwrap();
    let refused = migrate(other.path(), &kafka, |_| {}).unwrap_err().to_string();
    assert!(refused.contains("of another log"), "{refused}");
}

#[test]
fn groups_of_kafka_clients_go_on_at_the_brokers_where_they_were() {
    let dir = tempfile::tempdir().unwrap();
    let brokers = crate::conformance::brokers();
    let kafka = on(&config(brokers), "groups.");
    fill(dir.path());
    let (expected, _) = contents_of(dir.path());
    migrate(dir.path(), &kafka, |_| {}).unwrap();
    let group = dir.path().display().to_string();
    let read = |name: &str, partition: u32| {
        let place = format!("groups.{name}:{partition}");
        let format = ["-f", "%k %s\n"];
        let mut kcat = Command::new("kcat");
        kcat.args(["-q", "-b", &brokers.bootstrap(), "-C", "-t", &format!("groups.{name}"), "-e"]).args(format);
        kcat.args(["-p", &partition.to_string(), "-o", "stored", "-X", &format!("group.id={group}")]);
        kcat.args(["-X", "enable.auto.commit=false"]);
        let output = kcat.output().unwrap();
        assert!(output.status.success(), "{place}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    for (name, partition, from) in [("plain", 1, 27), ("states", 0, 290)] {
        let (.., records) = expected.iter().find(|(id, ..)| *id == at(&topic(name), partition)).unwrap();
        let text = |bytes: &Option<Vec<u8>>| String::from_utf8(bytes.clone().unwrap()).unwrap();
        let left = records.iter().filter(|record| record.offset >= Offset(from));
        let left: String = left.map(|record| format!("{} {}\n", text(&record.key), text(&record.value))).collect();
        assert!(left.lines().count() > 5);
        assert_eq!(read(name, partition), left, "{name}");
    }
}

/// The broker that leads partition 0 of a topic, from 1 on.
fn leader(brokers: &RealKafka, kafka_name: &str) -> usize {
    let listed = Command::new("kcat").args(["-b", &brokers.bootstrap(), "-L", "-t", kafka_name]).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    let line = listed.lines().find_map(|line| line.trim().strip_prefix("partition 0, leader ")).unwrap();
    line.split(',').next().unwrap().parse().unwrap()
}

#[test]
#[ignore = "takes long"]
fn records_of_a_run_that_was_cut_off_are_not_copied_again_while_they_are_not_replicated_yet() {
    let (dir, brokers, name) = (tempfile::tempdir().unwrap(), RealKafka::start(3), topic("one"));
    let log = embedded(dir.path());
    log.create_topic(&name, &TopicConfig { partitions: 1, ..TopicConfig::default() }).unwrap();
    for number in 0..2_000 {
        append(&*log, &name, 0, "k", &format!("{number} {}", "x".repeat(5_000)));
    }
    log.close().unwrap();
    drop(log);
    let (expected, names) = contents_of(dir.path());
    let kafka = config(&brokers);
    let log = ClosedLog::open(Arc::new(SystemFiles), dir.path()).unwrap();
    // Both have looked at all brokers before one of them stands still.
    let [first, second] = [(); 2].map(|()| Migration::begin(kafka.clone(), &log, &source(&log)).unwrap());
    let (stopped, steps) = (Mutex::new(None), AtomicU64::new(0));
    let cut_off = first.run(&log, |_| None, &|_| match steps.fetch_add(1, Ordering::Relaxed) {
        0 => {
            // The leaders that the next run asks go on.
            let leaders = ["one", "_millstream_migration"].map(|name| leader(&brokers, name));
            let follower = (1..=3).find(|broker| !leaders.contains(broker)).unwrap();
            let pid = brokers.brokers()[follower - 1].pid;
            signal(pid, "-STOP");
            *stopped.lock().unwrap() = Some(pid);
        }
        2.. => {
            std::thread::sleep(Duration::from_secs(1));
            panic!("the run is cut off");
        }
        _ => {}
    });
    assert!(cut_off.is_err());
    let pid = stopped.lock().unwrap().unwrap();
    let goes_on = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_secs(6));
        signal(pid, "-CONT");
    });
    second.run(&log, |_| None, &|_| {}).unwrap();
    goes_on.join().unwrap();
    assert_eq!(contents(&*OnKafka::open(kafka).unwrap(), &names), expected);
}

#[test]
fn of_two_logs_that_are_moved_to_one_place_at_once_one_is_refused() {
    let base = config(crate::conformance::brokers());
    for round in 0..4 {
        let kafka = on(&base, &format!("both{round}."));
        let dirs = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let before = dirs.each_ref().map(|dir| {
            fill(dir.path());
            contents_of(dir.path())
        });
        let ended: Vec<Result<bool, Error>> = std::thread::scope(|scope| {
            let runs = dirs.each_ref().map(|dir| scope.spawn(|| migrate(dir.path(), &kafka, |_| {})));
            runs.into_iter().map(|run| run.join().unwrap()).collect()
        });
        let moved: Vec<usize> = (0..2).filter(|index| ended[*index].is_ok()).collect();
        assert_eq!(moved.len(), 1, "{ended:?}");
        let mut refused = ended[1 - moved[0]].as_ref().unwrap_err().to_string();
        // The other one may have taken its writer away in mid-commit; what has become of that is told by the next run.
        if refused.contains("is unknown") {
            refused = migrate(dirs[1 - moved[0]].path(), &kafka, |_| {}).unwrap_err().to_string();
        }
        assert!(refused.contains("of another log") && refused.contains("log.kafka.prefix"), "{refused}");
        let (expected, names) = &before[moved[0]];
        assert_eq!(&contents(&*OnKafka::open(kafka).unwrap(), names), expected);
    }
}

#[test]
fn a_record_that_differs_in_kafka_is_named_and_the_topic_is_copied_anew_once_it_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let kafka = on(&config(crate::conformance::brokers()), "differs.");
    fill(dir.path());
    let (expected, names) = contents_of(dir.path());
    let steps = AtomicU64::new(0);
    let cut_off = migrate(dir.path(), &kafka, |step| {
        let MigrationStep::Copied { .. } = step else { panic!("the run is cut off") };
        steps.fetch_add(1, Ordering::Relaxed);
    });
    assert!(cut_off.is_err());
    // Another installation writes to a topic of this one.
    let other = on(&kafka, "");
    let log = OnKafka::open(LogConfig { kafka: other.kafka, ..kafka.clone() }).unwrap();
    let name = topic("differs.plain");
    eventually("the topic is seen", || log.topic(&name).is_some());
    append(&*log, &name, 1, "k", "of another");
    let refused = migrate(dir.path(), &kafka, |_| {}).unwrap_err().to_string();
    assert!(refused.contains("plain") && refused.contains("delete the topic differs.plain"), "{refused}");
    log.delete_topic(&name).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    migrate(dir.path(), &kafka, |_| {}).unwrap();
    let moved = OnKafka::open(kafka).unwrap();
    assert_eq!(contents(&*moved, &names), expected);
}
