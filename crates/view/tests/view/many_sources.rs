//! A follower looks at the sources that have something new, however many there are.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use millstream_log::{AckLevel, Log, Topic, TopicConfig, reply};
use millstream_testkit::eventually;
use millstream_types::{Offset, PartitionId, Record, TenantId, TopicKind, TopicName, TopicPartition};
use millstream_view::{Follow, Follower, FollowerConfig, SourcePartition, SourceRecord, View};

use crate::common::{Deliveries, Shelf, World, pieces};

const TENANTS: usize = 60;

/// Deliveries that count how often topics are looked through.
struct Counting {
    deliveries: Deliveries,
    looked: Arc<AtomicUsize>,
}

impl Follow<Shelf> for Counting {
    type Item = <Deliveries as Follow<Shelf>>::Item;

    fn follows(&self, topic: &Topic) -> bool {
        self.looked.fetch_add(1, Ordering::Relaxed);
        self.deliveries.follows(topic)
    }

    fn items(&self, source: SourceRecord<'_>, found: &mut Vec<(PartitionId, Self::Item)>) {
        self.deliveries.items(source, found);
    }

    fn command(
        &self,
        source: SourcePartition,
        next: Offset,
        items: Vec<(Offset, Self::Item)>,
    ) -> <Shelf as View>::Command {
        self.deliveries.command(source, next, items)
    }
}

fn topic_of(tenant: usize) -> TopicName {
    TopicName::reserved(TopicKind::Telemetry, &TenantId::new(&format!("t{tenant}")).unwrap())
}

#[test]
fn only_partitions_with_new_records_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::in_memory(dir.path());
    let views = world.shelf();
    let create = |tenant| world.log.create_topic(&topic_of(tenant), &TopicConfig::default()).unwrap();
    let deliver = |tenant, item: &str| {
        let partition = world.log.partition(&TopicPartition::new(topic_of(tenant), 0)).unwrap();
        let (done, delivered) = reply();
        let record = Record { key: Some(item.as_bytes()), value: Some(b"x"), ..Record::default() };
        partition.append(&[record], AckLevel::Synced, done).unwrap();
        delivered.wait().unwrap();
    };
    let until = |what: &str, item: &str, count| {
        eventually(what, || pieces(&views, item) == Some(count));
    };
    (0..TENANTS).for_each(|tenant| drop(create(tenant)));
    deliver(0, "nut");
    let looked = Arc::new(AtomicUsize::new(0));
    let counting = Counting { deliveries: Deliveries { views: Arc::clone(&views) }, looked: looked.clone() };
    let log: Arc<dyn Log> = world.log.clone();
    // Never quiet for so long that everything is looked at.
    let config = FollowerConfig { quiet: Duration::from_secs(3_600), ..FollowerConfig::default() };
    let follower = Follower::start(Arc::new(counting), &views, &log, &config).unwrap();
    until("what was there before", "nut", 1);

    for count in 1..=3 {
        (0..TENANTS).for_each(|tenant| deliver(tenant, "bolt"));
        until("each is heard of", "bolt", count * TENANTS as i64);
    }
    let before = looked.load(Ordering::Relaxed);
    for count in 1..=50 {
        deliver(7, "washer");
        until("one of many", "washer", count);
    }
    assert_eq!(looked.load(Ordering::Relaxed), before, "topics are looked through when there are others than before");

    create(TENANTS);
    deliver(TENANTS, "screw");
    until("a later one", "screw", 1);
    log.delete_topic(&topic_of(3)).unwrap();
    create(3);
    deliver(3, "screw");
    until("one that took another's name", "screw", 2);
    assert!(looked.load(Ordering::Relaxed) > before);
    follower.stop();
    drop((follower, log));
    world.close(views);
}
