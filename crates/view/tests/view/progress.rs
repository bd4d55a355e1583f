//! Owners that a source does not concern are told how far it was read, and not all the time.

use std::sync::Arc;
use std::time::Duration;

use millstream_log::{AckLevel, Log, TopicConfig, reply};
use millstream_testkit::eventually;
use millstream_types::{Offset, PartitionId, Record, TopicPartition};
use millstream_view::{Follower, FollowerConfig, SourcePartition, Views};

use crate::common::{Deliveries, Shelf, World, pieces, telemetry};

const UNWANTED: u64 = 200;

/// Returns the position of the source that each owner knows.
fn known(views: &Views<Shelf>, source: SourcePartition) -> Vec<u64> {
    let snapshots = views.snapshots();
    snapshots.iter().map(|snapshot| snapshot.sources.get(&source).map_or(0, |next| next.0)).collect()
}

#[test]
fn owners_without_matching_records_learn_the_position_only_after_the_interval() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::in_memory(dir.path());
    let views = world.shelf();
    world.log.create_topic(&telemetry(), &TopicConfig { partitions: 1, ..TopicConfig::default() }).unwrap();
    let partition = world.log.partition(&TopicPartition::new(telemetry(), 0)).unwrap();
    let deliver = |key: Option<&[u8]>| {
        let (done, delivered) = reply();
        partition.append(&[Record { key, value: Some(b"x"), ..Record::default() }], AckLevel::Synced, done).unwrap();
        delivered.wait().unwrap();
    };
    let source = SourcePartition { topic: partition.topic().id, partition: PartitionId(0) };
    let log: Arc<dyn Log> = world.log.clone();
    let start = |progress_interval| {
        let deliveries = Arc::new(Deliveries { views: Arc::clone(&views) });
        let quiet = Duration::from_secs(3_600);
        let config = FollowerConfig { progress_records: 10, progress_interval, quiet, ..FollowerConfig::default() };
        Follower::start(deliveries, &views, &log, &config).unwrap()
    };

    // What has no key asks nothing of anybody.
    (0..UNWANTED).for_each(|_| deliver(None));
    deliver(Some(b"bolt"));
    let seldom = start(Duration::from_secs(3_600));
    eventually("the last record is applied", || pieces(&views, "bolt") == Some(1));
    seldom.stop();
    let told = known(&views, source).into_iter().filter(|next| *next > 0).count();
    assert_eq!(told, 1, "only its owner");

    let often = start(Duration::ZERO);
    eventually("all owners are told", || known(&views, source).iter().all(|next| *next > UNWANTED));
    often.stop();
    assert_eq!(pieces(&views, "bolt"), Some(1), "it is applied once");
    drop((seldom, often, log));
    assert!(partition.offsets().tail > Offset(UNWANTED));
    world.close(views);
}
