//! Owners over a log whose tasks, and theirs, take turns in the order of a seed: one disk through several lives. Without
//! followers and without a checkpoint from an earlier life, whose store has threads of its own.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use millstream_log::{Embedded, SeededScheduler, TopicConfig};
use millstream_testkit::sim::{PowerLoss, Rng, SimFiles};
use millstream_testkit::small_log::new_disk;
use millstream_types::ManualClock;
use millstream_view::{Error, Shards, Views, ViewsConfig};
use parking_lot::Mutex;

use super::oracle::Oracle;
use super::small;
use super::workload::{PARTS, SlotChange, moves};
use crate::common::{Answer, Command, Engine, Shelf, World, submit};

pub(crate) const LIVES: u64 = 5;
/// A life ends at one of this many changes to the disk, if it does not end before.
const CHANGES_PER_LIFE: u64 = 600;
/// A start is cut short at one of this many changes.
const CHANGES_PER_START: u64 = 60;
/// Commands that each caller keeps in flight.
const IN_FLIGHT: usize = 24;
const COMMANDS: u64 = 150;

/// The cases that the lives met, to see that the test tests.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) answers: usize,
    pub(crate) cut_at_work: u64,
    pub(crate) starts_cut_short: u64,
    pub(crate) turns: u64,
}

type Ask = Box<dyn FnMut(&Views<Shelf>, &Mutex<Oracle>) -> bool + Send>;

/// Runs the lives of a seed. A number that stands for the bytes of the disk after the last one.
pub(crate) fn run(seed: u64, seen: &mut Seen) -> u64 {
    let (mut rng, mut files) = (Rng::new(seed), new_disk());
    let scheduler = Arc::new(SeededScheduler::new(seed));
    let clock = Arc::new(ManualClock::at(1_700_000_000_000));
    let oracle = Arc::new(Mutex::new(Oracle::default()));
    for _ in 0..LIVES {
        let checkpoints = tempfile::tempdir().unwrap();
        let (world, views) = loop {
            if rng.chance(30) {
                files.crash_after(1 + rng.below(CHANGES_PER_START));
            }
            let opened = open(&scheduler, &files, &clock, checkpoints.path());
            if let Some(opened) = opened {
                break opened;
            }
            seen.starts_cut_short += 1;
            files = files.crash(rng.bits(), PowerLoss::Torn);
        };
        oracle.lock().check_commands(&views, &*world.log);
        files.crash_after(1 + rng.below(CHANGES_PER_LIFE));
        work(&scheduler, &views, &oracle, &clock, &mut rng);
        seen.cut_at_work += u64::from(files.is_off());
        let loss = if rng.chance(40) { PowerLoss::DropAll } else { PowerLoss::Torn };
        let after = if rng.chance(20) { files.kill() } else { files.crash(rng.bits(), loss) };
        drop(world.end(views));
        files = after;
        clock.advance(Duration::from_secs(1));
    }
    seen.answers += oracle.lock().answers.values().map(Vec::len).sum::<usize>();
    seen.turns += scheduler.turns();
    files.fingerprint()
}

/// `None` if the power has gone meanwhile.
fn open(
    scheduler: &Arc<SeededScheduler>,
    files: &SimFiles,
    clock: &Arc<ManualClock>,
    checkpoints: &std::path::Path,
) -> Option<(World, Arc<Views<Shelf>>)> {
    let turns = Arc::clone(scheduler);
    files.pause_with(move || turns.interleave());
    let lost = |what: &dyn std::fmt::Display| assert!(files.is_off(), "{what}");
    let disk = Arc::new(files.clone());
    let log = Embedded::by_hand(small(), disk, Arc::clone(clock), Arc::clone(scheduler)).map_err(|e| lost(&e)).ok()?;
    let (shards, wall) = (Shards::by_hand(2, scheduler), Arc::clone(clock));
    let world = World::with(Engine::Embedded(log), shards, wall, checkpoints);
    let topic = world.log.create_topic(&moves(), &TopicConfig { partitions: 1, ..TopicConfig::default() });
    let config = ViewsConfig {
        partitions: 4,
        // Nothing is written before the end.
        checkpoint_interval: Duration::from_secs(3600),
        append_max_bytes: 16 << 10,
        ..ViewsConfig::default()
    };
    let views = topic.map_err(Error::from).and_then(|_| world.shelf_with(Some(moves()), &config));
    match views {
        Ok(views) if !files.is_off() => {
            files.crash_after(u64::MAX >> 1);
            Some((world, views))
        }
        Ok(views) => {
            drop(world.end(views));
            None
        }
        Err(e) => {
            lost(&e);
            drop(world.close_log());
            None
        }
    }
}

/// Runs until every caller has its answers.
fn work(
    scheduler: &Arc<SeededScheduler>,
    views: &Arc<Views<Shelf>>,
    oracle: &Arc<Mutex<Oracle>>,
    clock: &Arc<ManualClock>,
    rng: &mut Rng,
) {
    let callers: [Ask; 3] = [counts(rng.fork()), counts(rng.fork()), sets_and_removes(rng.fork())];
    let left = Arc::new(AtomicUsize::new(callers.len()));
    let ids = callers.map(|mut ask| {
        let (views, oracle, clock, left) =
            (Arc::downgrade(views), Arc::clone(oracle), Arc::clone(clock), Arc::clone(&left));
        let mut is_done = false;
        scheduler.add_caller("caller", move || {
            clock.advance(Duration::from_millis(1));
            if !is_done && views.upgrade().is_none_or(|views| !ask(&views, &oracle)) {
                is_done = true;
                left.fetch_sub(1, Ordering::AcqRel);
            }
            !is_done
        })
    });
    while left.load(Ordering::Acquire) > 0 {
        scheduler.turn();
    }
    ids.into_iter().for_each(|id| scheduler.remove(id));
}

/// Adds to parts that others add to as well. Each call sends a command or takes an answer; `false` after the last.
fn counts(mut rng: Rng) -> Ask {
    let mut flights: VecDeque<(String, millstream_view::Answer<Shelf>)> = VecDeque::new();
    let mut left = COMMANDS;
    Box::new(move |views, oracle| {
        if let Some((name, answer)) = flights.front_mut()
            && let Ok(answer) = answer.try_recv()
        {
            match answer {
                Ok(Answer::Now(count)) => oracle.lock().answers.entry(name.clone()).or_default().push(count),
                Ok(other) => panic!("{other:?}"),
                Err(failure) => {
                    assert!(failure.may_have_applied(), "{failure}");
                    left = 0;
                }
            }
            flights.pop_front();
        } else if left > 0 && flights.len() < IN_FLIGHT {
            left -= 1;
            let name = format!("part-{}", rng.below(PARTS));
            *oracle.lock().submitted.entry(name.clone()).or_default() += 1;
            match submit(views, Command::Add { name: name.clone(), pieces: 1 }) {
                Ok(answer) => flights.push_back((name, answer)),
                Err(_) => left = 0,
            }
        }
        left > 0 || !flights.is_empty()
    })
}

/// One command at a time; each leaves a value or nothing.
fn sets_and_removes(mut rng: Rng) -> Ask {
    let mut flight: Option<(SlotChange, millstream_view::Answer<Shelf>)> = None;
    let mut left = COMMANDS / 4;
    Box::new(move |views, oracle| {
        if let Some((change, mut answer)) = flight.take() {
            match answer.try_recv() {
                Ok(Ok(answer)) => change.answered(&answer, oracle),
                Ok(Err(_)) => return false,
                Err(_) => flight = Some((change, answer)),
            }
            return left > 0 || flight.is_some();
        }
        left -= 1;
        let (command, change) = SlotChange::choose(oracle, &mut rng);
        let Ok(answer) = submit(views, command) else { return false };
        flight = Some((change, answer));
        true
    })
}
