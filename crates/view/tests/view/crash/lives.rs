//! One disk through several lives: open, check, work, crash, and again with another checkpoint.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use millstream_log::{AckLevel, Log, TopicConfig};
use millstream_testkit::sim::{PowerLoss, Rng, SimFiles};
use millstream_testkit::small_log::new_disk;
use millstream_testkit::{CheckpointState, CheckpointStores};
use millstream_types::{PartitionId, TopicPartition};
use millstream_view::{Follower, FollowerConfig, SourcePartition, Views, ViewsConfig};
use parking_lot::Mutex;

use super::oracle::{Oracle, Sent};
use super::small;
use super::workload::{self, BINS, moves};
use crate::common::{Deliveries, Shelf, World, telemetry};

pub(crate) const LIVES: u64 = 5;
/// A life ends at one of this many changes to the disk, if it does not end before.
const CHANGES_PER_LIFE: u64 = 600;
/// A start is cut short at one of this many changes.
const CHANGES_PER_START: u64 = 60;

/// The cases that the lives met, to see that the test tests.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) stores: BTreeMap<CheckpointState, u64>,
    pub(crate) starts_cut_short: u64,
    pub(crate) records: usize,
    pub(crate) answers: usize,
    /// Records that the log lost before, and after, they were applied.
    pub(crate) lost_unapplied: usize,
    pub(crate) lost_applied: usize,
}

struct Lives<'a> {
    rng: Rng,
    files: SimFiles,
    stores: CheckpointStores,
    oracle: Mutex<Oracle>,
    seen: &'a mut Seen,
}

pub(crate) fn run(seed: u64, seen: &mut Seen) {
    let oracle = Mutex::new(Oracle::default());
    let mut lives = Lives { rng: Rng::new(seed), files: new_disk(), stores: CheckpointStores::empty(), oracle, seen };
    for _ in 0..LIVES {
        lives.live();
    }
    let oracle = lives.oracle.into_inner();
    seen.records += oracle.sent.len();
    seen.answers += oracle.answers.values().map(Vec::len).sum::<usize>();
}

impl Lives<'_> {
    fn live(&mut self) {
        let (world, views) = self.start();
        let log: Arc<dyn Log> = world.log.clone();
        let lost = self.oracle.lock().check_recovered(&views, &*log);
        self.seen.lost_applied += lost.applied;
        self.seen.lost_unapplied += lost.unapplied;
        let follower = follow(&views, &log);
        wait_until_caught_up(&views, &*log);
        self.oracle.lock().check_caught_up(&views);

        self.files.crash_after(1 + self.rng.below(CHANGES_PER_LIFE));
        let known = self.oracle.lock().sent.len();
        workload::run(&views, &*log, &self.oracle, &mut self.stores, &mut self.rng);
        if self.rng.chance(50) {
            // Unless the power goes before all that was sent is in the log, nothing is missing.
            let all =
                wait_until_stable(&self.oracle.lock().sent[known..], &*log) && wait_until_caught_up(&views, &*log);
            if all {
                self.oracle.lock().check_caught_up(&views);
            }
        }
        let loss = if self.rng.chance(40) { PowerLoss::DropAll } else { PowerLoss::Torn };
        let after = if self.rng.chance(20) { self.files.kill() } else { self.files.crash(self.rng.bits(), loss) };
        drop(follower);
        drop(world.end(views));
        self.stores.keep_copy();
        self.files = after;
    }

    /// Opens log and views; sometimes the power goes meanwhile, and again.
    fn start(&mut self) -> (World, Arc<Views<Shelf>>) {
        loop {
            let found = self.stores.replace(&mut self.rng);
            println!("starts with checkpoint store: {found:?}");
            *self.seen.stores.entry(found).or_default() += 1;
            if self.rng.chance(30) {
                self.files.crash_after(1 + self.rng.below(CHANGES_PER_START));
            }
            match self.open() {
                Some(opened) if !self.files.is_off() => {
                    self.files.crash_after(u64::MAX >> 1);
                    return opened;
                }
                opened => {
                    assert!(self.files.is_off(), "does not start with {found:?}");
                    self.seen.starts_cut_short += 1;
                    self.files = self.files.crash(self.rng.bits(), PowerLoss::Torn);
                    if let Some((world, views)) = opened {
                        drop(world.end(views));
                    }
                }
            }
        }
    }

    fn open(&self) -> Option<(World, Arc<Views<Shelf>>)> {
        let world = match World::on(Arc::new(self.files.clone()), small(), &self.stores.path()) {
            Ok(world) => world,
            Err(e) if self.files.is_off() => return self.cut_short(&e),
            Err(e) => panic!("the log does not start: {e}"),
        };
        let level = AckLevel::Written;
        let config = TopicConfig { partitions: BINS, level, segment_bytes: 4 << 10, ..TopicConfig::default() };
        let topics = world
            .log
            .create_topic(&telemetry(), &config)
            .and_then(|_| world.log.create_topic(&moves(), &TopicConfig { partitions: 1, ..TopicConfig::default() }));
        if let Err(e) = topics {
            assert!(self.files.is_off(), "{e}");
            drop(world.close_log());
            return self.cut_short(&e);
        }
        let config = ViewsConfig {
            partitions: 4,
            checkpoint_interval: Duration::from_millis(3),
            append_max_bytes: 16 << 10,
            ..ViewsConfig::default()
        };
        match world.shelf_with(Some(moves()), &config) {
            Ok(views) => Some((world, views)),
            Err(e) => {
                assert!(self.files.is_off(), "{e}");
                drop(world.close_log());
                self.cut_short(&e)
            }
        }
    }

    fn cut_short(&self, why: &dyn std::error::Error) -> Option<(World, Arc<Views<Shelf>>)> {
        assert!(self.files.is_off(), "{why}");
        None
    }
}

fn follow(views: &Arc<Views<Shelf>>, log: &Arc<dyn Log>) -> Follower {
    let config =
        FollowerConfig { quiet: Duration::from_millis(2), command_max_records: 50, ..FollowerConfig::default() };
    Follower::start(Arc::new(Deliveries { views: Arc::clone(views) }), views, log, &config).unwrap()
}

/// Waits until followers see all that was sent; `false` if the log ended before.
fn wait_until_stable(sent: &[Sent], log: &dyn Log) -> bool {
    let patience = Instant::now();
    sent.iter().all(|sent| {
        let partition = log.partition(&TopicPartition::new(telemetry(), sent.partition)).unwrap();
        while partition.offsets().stable <= sent.offset {
            if has_ended(log) {
                return false;
            }
            assert!(patience.elapsed() < Duration::from_secs(60), "{sent:?} does not become stable");
            std::thread::yield_now();
        }
        true
    })
}

fn has_ended(log: &dyn Log) -> bool {
    log.create_topic(&moves(), &TopicConfig { partitions: 1, ..TopicConfig::default() }).is_err()
}

/// Waits until every owner knows that it has applied all that is stable; `false` if the log ended before.
fn wait_until_caught_up(views: &Views<Shelf>, log: &dyn Log) -> bool {
    let topic = log.topic(&telemetry()).unwrap().id;
    let patience = Instant::now();
    for number in 0..BINS {
        let source = SourcePartition { topic, partition: PartitionId(number) };
        let partition = log.partition(&TopicPartition::new(telemetry(), number)).unwrap();
        loop {
            let last = last_record(&*partition);
            let knows = |snapshot: &millstream_view::Snapshot<Shelf>| {
                snapshot.sources.get(&source).copied().unwrap_or_default() >= last
            };
            if views.snapshots().iter().all(|snapshot| knows(snapshot)) {
                break;
            }
            if has_ended(log) {
                return false;
            }
            assert!(patience.elapsed() < Duration::from_secs(60), "{source:?} is not followed to its end, {last}");
            std::thread::yield_now();
        }
    }
    true
}

/// The offset behind the last record; the tail may lie beyond a gap.
fn last_record(partition: &dyn millstream_log::Partition) -> millstream_types::Offset {
    let mut next = partition.offsets().first;
    loop {
        match partition.read(next, 1 << 20, millstream_log::UpTo::Stable).unwrap().last() {
            Some(last) => next = last.next_offset(),
            None => return next,
        }
    }
}
