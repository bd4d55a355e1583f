//! Machines that share a log and nothing else: files are fetched from their copies.

use std::path::Path;
use std::sync::Arc;

use millstream_history::HistoryConfig;
use millstream_log::{Log, SystemFiles, UpTo};
use millstream_testkit::{MemoryLog, eventually};
use millstream_types::{BatchLimits, StateTopic, SystemClock, TopicName, TopicPartition};

use crate::world::{NEW_YEAR_MS, World, quiet};

const DAY_MS: i64 = 86_400_000;

fn log_elsewhere() -> Arc<MemoryLog> {
    let log = MemoryLog::open(Arc::new(SystemClock::default()));
    log.move_away();
    log
}

fn machine(log: &Arc<MemoryLog>, dir: &Path, config: &HistoryConfig) -> World {
    World::open_with(log.clone(), dir, config, Arc::new(SystemFiles))
}

/// The keys of the pieces that the topic of copies has, in order.
fn copies(log: &dyn Log) -> Vec<String> {
    let name = TopicName::internal(StateTopic::HistoryFiles);
    let partition = log.partition(&TopicPartition::new(name, 0)).unwrap();
    let mut keys = std::collections::BTreeSet::new();
    let mut next = partition.offsets().first;
    loop {
        let batches = partition.read(next, 1 << 20, UpTo::Stable).unwrap();
        let Some(last) = batches.last() else { return keys.into_iter().collect() };
        next = last.next_offset();
        for batch in batches {
            for record in batch.inflated(&BatchLimits::default()).unwrap().records() {
                let record = record.unwrap();
                let key = String::from_utf8(record.key.unwrap().to_vec()).unwrap();
                if record.value.is_some() {
                    keys.insert(key)
                } else {
                    keys.remove(&key)
                };
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn another_machine_reads_the_files_of_a_former_one_and_goes_on() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let log = log_elsewhere();
    let world = machine(&log, one.path(), &quiet());
    for n in 0..3 {
        world.measure("room1", "t", &n.to_string(), NEW_YEAR_MS + n * DAY_MS);
    }
    world.flush();
    let files = world.files().len();
    assert_eq!(files, 3);
    world.close();

    let log = log.reopened();
    let world = machine(&log, other.path(), &quiet());
    let served = world.serve().await;
    let answer = served.get("/room1?options=temporalValues").await;
    assert!(
        answer.status == 200 && ["[0,", "[1,", "[2,"].iter().all(|value| answer.body.contains(value)),
        "{answer:?}"
    );
    eventually("all files are there", || world.files().len() == files);
    assert_eq!((world.history.warnings(), world.history.failures()), (vec![], vec![]));

    world.measure("room1", "t", "3", NEW_YEAR_MS + 3 * DAY_MS);
    world.flush();
    assert_eq!(copies(&*log), ["1/0", "2/0", "3/0", "4/0"]);
    served.stop().await;
    world.close();
}

#[tokio::test(flavor = "multi_thread")]
async fn files_from_before_the_log_was_moved_get_copies() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let log = MemoryLog::open(Arc::new(SystemClock::default()));
    let world = machine(&log, one.path(), &quiet());
    for n in 0..3 {
        world.measure("room1", "t", &n.to_string(), NEW_YEAR_MS + n * DAY_MS);
    }
    world.flush();
    world.close();
    assert_eq!(log.topic(&TopicName::internal(StateTopic::HistoryFiles)).map(|topic| topic.id), None);

    log.move_away();
    let log = log.reopened();
    let world = machine(&log, one.path(), &quiet());
    eventually("all files have copies", || copies(&*log).len() == 3);
    world.close();
    let world = machine(&log.reopened(), other.path(), &quiet());
    eventually("all files are there", || world.files().len() == 3);
    assert_eq!(points(&world).await, 3);
    world.close();
}

/// The number of points of `room1`.
async fn points(world: &World) -> usize {
    let served = world.serve().await;
    let answer = served.get("/room1?options=temporalValues").await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let points = answer.json()["t"]["values"].as_array().unwrap().len();
    served.stop().await;
    points
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_damaged_here_is_fetched_again() {
    let dir = tempfile::tempdir().unwrap();
    let log = log_elsewhere();
    let world = machine(&log, dir.path(), &quiet());
    // A file of several pieces, as values that look like noise are not compressed.
    let count = 120_000;
    let mut value = 1_u64;
    for n in 0..count {
        value = value.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        world.measure("room1", "t", &value.to_string(), NEW_YEAR_MS + n);
    }
    world.flush();
    let [file] = &world.files()[..] else { panic!("{:?}", world.files()) };
    let bytes = std::fs::read(file).unwrap();
    assert!(copies(&*log).len() > 1, "one piece of {} bytes", bytes.len());
    world.close();

    // In the middle, where a read finds it late, and at the end, where an open does.
    for at in [bytes.len() / 2, bytes.len() - 100] {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0xff;
        std::fs::write(file, damaged).unwrap();
        let log = log.reopened();
        let world = machine(&log, dir.path(), &quiet());
        let served = world.serve().await;
        served.get("/room1?lastN=10000").await;
        world.clock.advance(std::time::Duration::from_secs(11));
        eventually("it is mended", || std::fs::read(file).unwrap() == bytes);
        eventually("nobody is warned any more", || world.history.warnings().is_empty());
        assert_eq!(served.get("/room1?lastN=10").await.status, 200);
        served.stop().await;
        world.close();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn merged_files_take_the_copies_of_those_that_they_replace_with_them() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let log = log_elsewhere();
    let world = machine(&log, one.path(), &quiet());
    for n in 0..8 {
        world.measure("room1", "t", &n.to_string(), NEW_YEAR_MS + n);
        world.flush();
    }
    eventually("they are merged", || world.history.stats().merges == 1);
    assert_eq!(copies(&*log), ["9/0"]);
    world.close();
    let world = machine(&log.reopened(), other.path(), &quiet());
    assert_eq!(points(&world).await, 8);
    world.close();
}

/// The commit that names files and has their copies ends without an answer; it has taken effect, or not.
#[tokio::test(flavor = "multi_thread")]
async fn a_commit_with_an_unknown_outcome_leaves_each_point_and_its_copy_once() {
    for is_stored in [true, false] {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let log = log_elsewhere();
        let world = machine(&log, one.path(), &quiet());
        log.lose_next_answer("history", is_stored);
        world.measure("room1", "t", "1", NEW_YEAR_MS);
        eventually("the change is read", || world.history.stats().points == 1);
        // The last flush; a failure leaves the point to the next start.
        world.close();
        assert_eq!(copies(&*log).len(), usize::from(is_stored));
        let log = log.reopened();
        let world = machine(&log, other.path(), &quiet());
        assert_eq!(points(&world).await, 1, "stored: {is_stored}");
        world.flush();
        assert_eq!(copies(&*log).len(), 1, "stored: {is_stored}");
        world.close();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn copies_that_the_log_has_lost_are_made_again_where_the_files_are_and_told_elsewhere() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let log = log_elsewhere();
    let world = machine(&log, one.path(), &quiet());
    world.measure("room1", "t", "1", NEW_YEAR_MS);
    world.flush();
    world.close();
    let lose = |log: &MemoryLog| log.delete_topic(&TopicName::internal(StateTopic::HistoryFiles)).unwrap();
    let log = log.reopened();
    lose(&log);
    let world = machine(&log, other.path(), &quiet());
    assert!(world.history.warnings()[0].contains("is missing"), "{:?}", world.history.warnings());
    let served = world.serve().await;
    assert_eq!(served.get("/room1").await.status, 500);
    served.stop().await;
    world.close();

    let log = log.reopened();
    lose(&log);
    let world = machine(&log, one.path(), &quiet());
    eventually("it has a copy again", || copies(&*log).len() == 1);
    assert_eq!(points(&world).await, 1);
    world.close();
    let world = machine(&log.reopened(), other.path(), &quiet());
    assert_eq!((points(&world).await, world.history.warnings()), (1, vec![]));
    world.close();
}
