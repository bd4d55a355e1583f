//! Retention leaves what a follower's owners have not applied.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use millstream_log::{AckLevel, Log, Topic, TopicConfig, reply};
use millstream_types::{Offset, PartitionId, Record, TopicPartition};
use millstream_view::{Follow, Follower, FollowerConfig, SourcePartition, SourceRecord};

use crate::common::{Command, Deliveries, Engine, Shelf, World, pieces, telemetry};

/// Follows like [`Deliveries`], but says when it has a record and goes on only when it is told to, or left alone.
struct Held {
    deliveries: Deliveries,
    has_record: Sender<()>,
    go_on: Mutex<Receiver<()>>,
}

impl Follow<Shelf> for Held {
    type Item = (String, i64);

    fn follows(&self, topic: &Topic) -> bool {
        self.deliveries.follows(topic)
    }

    fn items(&self, source: SourceRecord<'_>, found: &mut Vec<(PartitionId, Self::Item)>) {
        let _ = self.has_record.send(());
        let _ = self.go_on.lock().unwrap().recv();
        self.deliveries.items(source, found);
    }

    fn command(&self, source: SourcePartition, next: Offset, items: Vec<(Offset, Self::Item)>) -> Command {
        self.deliveries.command(source, next, items)
    }
}

#[test]
fn records_that_no_owner_has_applied_outlast_retention_and_go_once_they_are_applied() {
    const DELIVERIES: i64 = 200;
    let dir = tempfile::tempdir().unwrap();
    let world = World::embedded(dir.path());
    let Engine::Embedded(engine) = &world.engine else { panic!("it has files") };
    let engine = Arc::clone(engine);
    let views = world.shelf();
    let config =
        TopicConfig { partitions: 1, retention_bytes: Some(1), segment_bytes: 1 << 10, ..TopicConfig::default() };
    world.log.create_topic(&telemetry(), &config).unwrap();
    let source = world.log.partition(&TopicPartition::new(telemetry(), 0)).unwrap();
    let deliver = || {
        let record = Record { timestamp_ms: 0, key: Some(b"bolt"), value: Some(&[0; 100]), headers: &[] };
        let (done, delivered) = reply();
        source.append(&[record], AckLevel::Synced, done).unwrap();
        delivered.wait().unwrap();
    };

    let (has_record, records) = channel();
    let (go_on, told) = channel();
    let deliveries = Deliveries { views: Arc::clone(&views) };
    let held = Arc::new(Held { deliveries, has_record, go_on: Mutex::new(told) });
    let log: Arc<dyn Log> = world.log.clone();
    let quick = FollowerConfig { quiet: Duration::from_millis(5), ..FollowerConfig::default() };
    let follower = Follower::start(held, &views, &log, &quick).unwrap();
    deliver();
    records.recv().unwrap();
    (1..DELIVERIES).for_each(|_| deliver());
    engine.flush().unwrap();
    engine.flush().unwrap();
    let while_unapplied = source.offsets().first;
    drop(go_on);

    let applied = || pieces(&views, "bolt") == Some(100 * DELIVERIES);
    let patience = Instant::now();
    while !(applied() && source.offsets().first > Offset(0)) && patience.elapsed() < Duration::from_secs(60) {
        engine.flush().unwrap();
    }
    assert_eq!(while_unapplied, Offset(0), "nothing was applied, so nothing was trimmed");
    assert_eq!(pieces(&views, "bolt"), Some(100 * DELIVERIES));
    assert!(source.offsets().first > Offset(0), "what is applied is trimmed");
    follower.stop();
    drop(follower);
    drop(log);
    world.close(views);
}
