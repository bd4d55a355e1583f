//! One disk through several lives: open, check, work, crash, and again with another checkpoint.

use std::collections::BTreeMap;
use std::sync::Arc;

use millstream_log::AckLevel;
use millstream_testkit::sim::{PowerLoss, Rng, SimFiles};
use millstream_testkit::small_log::new_disk;
use millstream_testkit::{CheckpointState, CheckpointStores};
use parking_lot::Mutex;

use crate::oracle::Oracle;
use crate::workload;
use crate::world::{Wall, World};

pub(crate) const LIVES: u64 = 5;
/// A life ends at one of this many changes to the disk, if it does not end before.
const CHANGES_PER_LIFE: u64 = 1_200;
/// A start is cut short at one of this many changes.
const CHANGES_PER_START: u64 = 60;

/// The cases that the lives met, to see that the test tests.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) stores: BTreeMap<CheckpointState, u64>,
    pub(crate) starts_cut_short: u64,
    pub(crate) cut_at_work: u64,
    pub(crate) kills: u64,
    pub(crate) acknowledged: usize,
    /// Segments that compaction had written when a life ended.
    pub(crate) compacted: u64,
}

struct Lives<'a> {
    rng: Rng,
    files: SimFiles,
    stores: CheckpointStores,
    wall: Arc<Wall>,
    oracle: Mutex<Oracle>,
    seen: &'a mut Seen,
    /// The ack level of the writes that the last crash has left.
    level: AckLevel,
    medium: Medium,
}

/// The way in which the disk treats a sync.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Medium {
    Honest,
    /// It says that it is done, and has done nothing.
    Forgetful,
}

pub(crate) fn run(seed: u64, medium: Medium, seen: &mut Seen) {
    let (wall, oracle) = (Arc::new(Wall::default()), Mutex::new(Oracle::default()));
    let (rng, stores, level) = (Rng::new(seed), CheckpointStores::empty(), AckLevel::Synced);
    let mut lives = Lives { rng, files: new_disk(), stores, wall, oracle, seen, level, medium };
    for _ in 0..LIVES {
        lives.live();
    }
    seen.acknowledged += lives.oracle.into_inner().acknowledged;
}

impl Lives<'_> {
    fn live(&mut self) {
        let world = self.start();
        let runtime = workload::runtime();
        let all = world.all(&runtime);
        let latest_ms = self.wall.latest_ms();
        self.oracle.lock().check_recovered(&world.bucket, &all, self.level, latest_ms);

        if self.medium == Medium::Forgetful {
            self.files.forget_syncs(self.rng.bits(), 100);
        }
        self.files.crash_after(1 + self.rng.below(CHANGES_PER_LIFE));
        let complete = workload::run(&world.bucket, &self.wall, &self.oracle, &mut self.stores, &mut self.rng);
        if complete {
            self.files.crash_after(u64::MAX >> 1);
            if !self.files.is_off() {
                println!("all writes are answered");
                self.oracle.lock().check_now(&world.bucket, &world.all(&runtime));
            }
        }
        self.seen.cut_at_work += u64::from(self.files.is_off());
        self.seen.compacted += World::compacted(&self.files);
        let after = if self.rng.chance(30) {
            self.seen.kills += 1;
            self.level = AckLevel::Written;
            self.files.kill()
        } else {
            self.level = AckLevel::Synced;
            let loss = if self.rng.chance(40) { PowerLoss::DropAll } else { PowerLoss::Torn };
            self.files.crash(self.rng.bits(), loss)
        };
        world.end();
        self.stores.keep_copy();
        self.files = after;
    }

    /// Opens the bucket; sometimes the power goes meanwhile, and again.
    fn start(&mut self) -> World {
        loop {
            let found = self.stores.replace(&mut self.rng);
            println!("start: checkpoint {found:?}, what has {:?} is left", self.level);
            *self.seen.stores.entry(found).or_default() += 1;
            if self.rng.chance(30) {
                self.files.crash_after(1 + self.rng.below(CHANGES_PER_START));
            }
            match World::open(&self.files, &self.stores.path(), &self.wall) {
                Ok(world) if !self.files.is_off() => {
                    self.files.crash_after(u64::MAX >> 1);
                    return world;
                }
                opened => {
                    assert!(self.files.is_off(), "does not start with {found:?}: {:?}", opened.err());
                    self.seen.starts_cut_short += 1;
                    // What a killed process wrote and did not sync goes with the power.
                    self.level = AckLevel::Synced;
                    self.files = self.files.crash(self.rng.bits(), PowerLoss::Torn);
                    if let Ok(world) = opened {
                        world.end();
                    }
                }
            }
        }
    }
}
