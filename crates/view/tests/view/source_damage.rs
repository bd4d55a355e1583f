//! A source that cannot be read any further: what comes before is applied, nothing after it is, and everybody can see it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use millstream_log::{AckLevel, Files, Log, LogConfig, Partition, TopicConfig, reply};
use millstream_testkit::eventually;
use millstream_testkit::sim::SimFiles;
use millstream_types::{Record, TopicPartition};
use millstream_view::{FailedPart, Failure, Follower, FollowerConfig, Views};

use crate::common::{Deliveries, Shelf, World, pieces, telemetry};

const GOOD: i64 = 5;

fn world(files: &SimFiles, dir: &Path) -> World {
    let config = LogConfig { dir: PathBuf::from("/data/log"), ..LogConfig::default() };
    World::on(Arc::new(files.clone()), config, &dir.join("views")).unwrap()
}

fn disk() -> SimFiles {
    let files = SimFiles::new();
    files.create_dir_all(Path::new("/data")).unwrap();
    files.sync_dir(Path::new("/")).unwrap();
    files
}

fn source(world: &World) -> Arc<dyn Partition> {
    let config = TopicConfig { partitions: 2, ..TopicConfig::default() };
    world.log.create_topic(&telemetry(), &config).unwrap();
    partition(world, 0)
}

fn partition(world: &World, number: u32) -> Arc<dyn Partition> {
    world.log.partition(&TopicPartition::new(telemetry(), number)).unwrap()
}

/// One delivery of one piece of `name`, in a batch of its own.
fn deliver(partition: &dyn Partition, name: &str) {
    let record = Record { key: Some(name.as_bytes()), value: Some(b"x"), ..Record::default() };
    let (done, delivered) = reply();
    partition.append(&[record], AckLevel::Synced, done).unwrap();
    delivered.wait().unwrap();
}

fn follow(world: &World, views: &Arc<Views<Shelf>>) -> Follower {
    let log: Arc<dyn Log> = world.log.clone();
    let deliveries = Arc::new(Deliveries { views: Arc::clone(views) });
    Follower::start(deliveries, views, &log, &FollowerConfig::default()).unwrap()
}

/// Follows until the failure is seen and the other partition is applied.
fn follow_into_failure(world: &World, views: &Arc<Views<Shelf>>) -> (Follower, Failure) {
    let follower = follow(world, views);
    eventually("the failure", || !views.failures().is_empty());
    eventually("the other partition", || pieces(views, "nut") == Some(1));
    let failures = views.failures();
    assert_eq!(failures.len(), 1, "{failures:?}");
    (follower, failures[0].clone())
}

#[test]
fn a_damaged_segment_of_a_source_stops_its_partition_and_is_reported() {
    let (dir, files) = (tempfile::tempdir().unwrap(), disk());
    let before = world(&files, dir.path());
    let bad = source(&before);
    (0..GOOD).for_each(|_| deliver(&*bad, "bolt"));
    before.close_log().unwrap();
    let is_segment = |path: &Path| path.extension().is_some_and(|extension| extension == "segment");
    let segments: Vec<_> = files.files().into_iter().filter(|(path, _)| is_segment(path)).collect();
    let (damaged, size) = segments.iter().max_by_key(|(_, size)| *size).unwrap();
    drop(before);

    let files = files.kill();
    files.flip_bit(damaged, (size - 2) * 8).unwrap();
    let world = world(&files, dir.path());
    deliver(&*partition(&world, 1), "nut");
    let views = world.shelf();
    let (follower, failure) = follow_into_failure(&world, &views);
    assert_eq!((failure.view, failure.part), ("shelf", FailedPart::SourcePartition));
    assert_eq!(failure.partition, TopicPartition::new(telemetry(), 0));
    let text = failure.to_string();
    for part in ["view 'shelf'", "topic 'telemetry.default', partition 0, offset", "damaged"] {
        assert!(text.contains(part), "{text} does not say {part}");
    }
    assert!(pieces(&views, "bolt").unwrap_or(0) < GOOD);

    world.log.delete_topic(&telemetry()).unwrap();
    eventually("the end of what concerned a topic that is gone", || views.failures().is_empty());
    follower.stop();
    drop(follower);
    world.end(views).unwrap();
}
