//! Partitions move between two processes while commands, readers and followers work on them.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use millstream_log::{AckLevel, Log, TopicConfig, reply};
use millstream_testkit::{MemoryLog, eventually};
use millstream_types::{Offset, PartitionId, Record, SystemClock, TopicPartition};
use millstream_view::{
    Checkpoints, Error, Follower, FollowerConfig, Place, Shards, Slots, SourcePartition, ViewRuntime, ViewsConfig,
};
use parking_lot::Mutex;

use crate::common::{Answer, Command, Shelf, SlotDeliveries, World, shelf_topic, telemetry};

const PARTITIONS: u32 = 4;
const NAMES: u64 = 40;

/// Two processes on one log, each with its own threads and checkpoints.
struct Pair {
    world: World,
    slots: [Arc<Slots<Shelf>>; 2],
    /// Owners are fenced, so that commands on their way to them end without effect.
    by_force: bool,
}

impl Pair {
    /// All partitions are with the first.
    fn open(world: World, dir: &Path, by_force: bool) -> Self {
        let slots = ["a", "b"].map(|name| {
            let ground = ViewRuntime {
                log: world.log.clone(),
                checkpoints: Checkpoints::open(&dir.join(name)).unwrap(),
                shards: Shards::start(2).unwrap(),
                wall: Arc::clone(&world.ground.wall),
            };
            let config = ViewsConfig { partitions: PARTITIONS, ..ViewsConfig::default() };
            Slots::open(Arc::new(world.plain_shelf()), &shelf_topic(), &config, &ground, "a").unwrap()
        });
        let pair = Self { world, slots, by_force };
        all().for_each(|partition| pair.slots[0].take(partition).unwrap());
        pair
    }

    /// Adds a piece by asking the process `first`, then the other, until one of them does it. Returns the new count.
    fn add(&self, first: usize, name: &str) -> i64 {
        let partition = self.slots[0].partition_of(name.as_bytes());
        for number in (first..).map(|turn| turn % 2) {
            let command = Command::Add { name: name.to_owned(), pieces: 1 };
            match self.slots[number].offer(partition, command) {
                Ok(answer) => match answer.blocking_recv().expect("every accepted command is answered") {
                    Ok(Answer::Now(pieces)) => return pieces,
                    Ok(other) => panic!("{other:?}"),
                    // The other process has taken the partition without a word.
                    Err(Error::OwnerEnded { source, .. }) if self.by_force && !source.may_have_applied() => {}
                    Err(error) => panic!("{error}"),
                },
                Err((away, _)) if away.is_away() => std::thread::yield_now(),
                // An owner that has learned that it is fenced.
                Err((Error::OwnerEnded { .. }, _)) if self.by_force => {}
                Err((error, _)) => panic!("{error}"),
            }
        }
        unreachable!("one of them has the partition")
    }

    /// Moves a partition to the other process: in order, or by force as when the first is thought dead.
    fn move_over(&self, partition: PartitionId, holder: &mut usize) {
        let (from, to) = (&self.slots[*holder], &self.slots[1 - *holder]);
        if !self.by_force {
            from.give(partition, ["b", "a"][*holder]);
            assert!(matches!(from.place(partition), Place::Elsewhere(_)));
        }
        to.take(partition).unwrap();
        assert_eq!(to.place(partition), Place::Here);
        *holder = 1 - *holder;
    }

    /// The counts, each partition read where it is.
    fn whole(&self) -> BTreeMap<String, i64> {
        let of = |partition| {
            self.slots.iter().find_map(|slots| slots.snapshot(partition).ok()).expect("it is here or there")
        };
        all()
            .flat_map(|partition| {
                of(partition).state.iter().map(|(name, pieces)| (name.clone(), *pieces)).collect::<Vec<_>>()
            })
            .collect()
    }

    fn close(self) {
        self.slots.iter().for_each(|slots| slots.stop());
        drop(self.slots);
        self.world.close_log().unwrap();
    }
}

fn all() -> impl Iterator<Item = PartitionId> {
    (0..PARTITIONS).map(PartitionId)
}

#[test]
fn a_partition_that_is_elsewhere_or_on_its_way_says_so_and_takes_no_command() {
    let dir = tempfile::tempdir().unwrap();
    let pair = Pair::open(World::open(dir.path()), dir.path(), true);
    let [a, b] = &pair.slots;
    let partition = a.partition_of(b"bolt");
    let command = || Command::Add { name: "bolt".to_owned(), pieces: 1 };
    assert!(matches!(b.snapshot(partition), Err(Error::Elsewhere { address, .. }) if &*address == "a"));
    assert!(matches!(b.offer(partition, command()), Err((Error::Elsewhere { .. }, Command::Add { .. }))));
    assert!(b.snapshots().is_err());
    assert_eq!(pair.add(0, "bolt"), 1);
    a.give(partition, "b");
    let refused = a.submit(partition, command()).unwrap_err();
    assert_eq!(refused.to_string(), format!("the state of {}/{partition} is kept by b; ask there", shelf_topic()));
    assert!(refused.is_away() && refused.is_retryable() && !refused.may_have_applied());
    b.take(partition).unwrap();
    assert_eq!(pair.add(0, "bolt"), 2);
    assert_eq!(b.snapshot(partition).unwrap().state.get("bolt"), Some(&2));
    // By force: the former owner learns of it with its next command, and counts as elsewhere from then on.
    a.take(partition).unwrap();
    assert!(b.submit(partition, command()).unwrap().blocking_recv().unwrap().is_err());
    assert!(matches!(b.place(partition), Place::Elsewhere(_)));
    assert!(b.snapshot(partition).is_err());
    assert_eq!(a.snapshot(partition).unwrap().state.get("bolt"), Some(&2), "the refused command did nothing");
    assert_eq!(b.failures().len(), 1);
    a.give(partition, "b");
    b.take(partition).unwrap();
    assert!(b.failures().is_empty(), "an owner that was fenced is no failure once the partition is back");
    a.stop();
    assert!(matches!(a.take(partition), Err(Error::Stopped)));
    pair.close();
}

#[test]
fn a_partition_whose_state_cannot_be_read_is_not_taken_and_counts_as_elsewhere() {
    let dir = tempfile::tempdir().unwrap();
    let pair = Pair::open(World::open(dir.path()), dir.path(), true);
    let partition = pair.slots[0].partition_of(b"bolt");
    pair.slots[0].give(partition, "b");
    let at = TopicPartition::new(shelf_topic(), partition.0);
    let (done, answer) = reply();
    let alien = Record { timestamp_ms: 0, key: Some(&[1, b'x']), value: Some(b"odd"), headers: &[] };
    pair.world.log.partition(&at).unwrap().append(&[alien], AckLevel::Synced, done).unwrap();
    answer.wait().unwrap();
    assert!(matches!(pair.slots[1].take(partition), Err(Error::StateRecord { .. })));
    assert!(matches!(pair.slots[1].place(partition), Place::Elsewhere(_)));
    pair.close();
}

/// Moves partitions under load. In order, each answer of a reader is right: it has every command that was answered before.
fn moved_under_load(over: impl FnOnce(&Path) -> World, by_force: bool) {
    let dir = tempfile::tempdir().unwrap();
    let pair = Pair::open(over(dir.path()), dir.path(), by_force);
    let source =
        pair.world.log.create_topic(&telemetry(), &TopicConfig { partitions: 2, ..TopicConfig::default() }).unwrap();
    let log: Arc<dyn Log> = pair.world.log.clone();
    let quick = FollowerConfig { progress_records: 20, ..FollowerConfig::default() };
    let followers = pair.slots.each_ref().map(|slots| {
        let follow = SlotDeliveries { slots: Arc::clone(slots) };
        Follower::of_slots(Arc::new(follow), slots, &log, &quick).unwrap()
    });
    let (ended, added) = (AtomicBool::new(false), Mutex::new(HashMap::<String, i64>::new()));
    let (right, elsewhere, sent) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let moves = std::thread::scope(|threads| {
        for client in 0..3 {
            let (pair, ended, added) = (&pair, &ended, &added);
            threads.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(client);
                while !ended.load(Ordering::Relaxed) {
                    let name = format!("name-{}", rng.u64(..NAMES));
                    let pieces = pair.add(rng.usize(..2), &name);
                    let mut added = added.lock();
                    let known = added.entry(name).or_default();
                    *known = pieces.max(*known);
                }
            });
        }
        threads.spawn(|| {
            let mut rng = fastrand::Rng::with_seed(7);
            while !ended.load(Ordering::Relaxed) {
                let name = format!("name-{}", rng.u64(..NAMES));
                let known = added.lock().get(&name).copied().unwrap_or_default();
                for slots in &pair.slots {
                    match slots.snapshot(slots.partition_of(name.as_bytes())) {
                        Ok(snapshot) => {
                            let pieces = snapshot.state.get(&name).copied().unwrap_or_default();
                            assert!(by_force || pieces >= known, "{name}: {pieces} where {known} had been answered");
                            right.fetch_add(1, Ordering::Relaxed);
                        }
                        Err(away) => {
                            assert!(away.is_away(), "{away}");
                            elsewhere.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                }
            }
        });
        threads.spawn(|| {
            let mut rng = fastrand::Rng::with_seed(8);
            let topic = source.name.clone();
            while !ended.load(Ordering::Relaxed) {
                // One piece each of two derived names, which often have different owners.
                let key = format!("told-{}+told-{}", rng.u64(..NAMES), rng.u64(..NAMES));
                let record = Record { timestamp_ms: 0, key: Some(key.as_bytes()), value: Some(b"x"), headers: &[] };
                let (done, answer) = reply();
                let at = TopicPartition::new(topic.clone(), rng.u32(..2));
                pair.world.log.partition(&at).unwrap().append(&[record], AckLevel::Written, done).unwrap();
                answer.wait().unwrap();
                sent.fetch_add(1, Ordering::Relaxed);
            }
        });
        let mut rng = fastrand::Rng::with_seed(9);
        let mut holders = [0; PARTITIONS as usize];
        let mut moves = 0;
        // Each partition goes there and back many times; work gets done between the moves.
        while moves < 60 {
            let partition = rng.usize(..holders.len());
            let before = added.lock().values().sum::<i64>();
            pair.move_over(PartitionId(partition as u32), &mut holders[partition]);
            eventually("work goes on", || added.lock().values().sum::<i64>() > before + 5);
            moves += 1;
        }
        ended.store(true, Ordering::Relaxed);
        moves
    });
    // Both have heard of all records once the position of each source in each state is that of its end.
    let ends: Vec<(SourcePartition, Offset)> = (0..2)
        .map(|number| {
            let partition = pair.world.log.partition(&TopicPartition::new(source.name.clone(), number)).unwrap();
            (SourcePartition { topic: source.id, partition: PartitionId(number) }, partition.offsets().stable)
        })
        .collect();
    let told = |pair: &Pair| {
        pair.whole().into_iter().filter(|(name, _)| name.starts_with("told-")).map(|(_, it)| it).sum::<i64>()
    };
    let expected = 2 * sent.load(Ordering::Relaxed) as i64;
    let is_everywhere = || {
        all().all(|partition| {
            let here = pair.slots.iter().find_map(|slots| slots.snapshot(partition).ok());
            here.is_some_and(|it| ends.iter().all(|(source, end)| it.sources.get(source).is_some_and(|at| at >= end)))
        })
    };
    eventually("all records have been applied", is_everywhere);
    assert_eq!(told(&pair), expected, "each record counts once with each of its owners");
    drop(followers);
    // Every answered command counts once, and none that was refused.
    let whole = pair.whole();
    let added = added.into_inner();
    for (name, known) in &added {
        assert_eq!(whole.get(name), Some(known), "{name}");
    }
    let unknown: HashSet<_> =
        whole.keys().filter(|name| name.starts_with("name-") && !added.contains_key(*name)).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
    let (right, elsewhere) = (right.into_inner(), elsewhere.into_inner());
    println!(
        "{moves} moves, {} commands, {expected} items, {right} answers, {elsewhere} times elsewhere",
        added.values().sum::<i64>()
    );
    assert!(right > 0 && elsewhere > 0);
    pair.close();
}

fn in_memory(dir: &Path) -> World {
    World::over(MemoryLog::open(Arc::new(SystemClock::default())), dir)
}

#[test]
fn partitions_that_move_in_order_under_load_lose_and_double_nothing_and_never_answer_with_an_old_state() {
    moved_under_load(World::open, false);
    moved_under_load(in_memory, false);
}

#[test]
fn partitions_that_are_taken_by_force_under_load_lose_and_double_nothing() {
    moved_under_load(World::open, true);
    moved_under_load(in_memory, true);
}

#[test]
fn a_fenced_owner_answers_what_was_stored_before_and_refuses_what_was_not() {
    let (dir, log) = (tempfile::tempdir().unwrap(), MemoryLog::open(Arc::new(SystemClock::default())));
    let pair = Pair::open(World::over(Arc::clone(&log), dir.path()), dir.path(), true);
    let [a, b] = &pair.slots;
    let partition = a.partition_of(b"bolt");
    let add = || a.submit(partition, Command::Add { name: "bolt".to_owned(), pieces: 1 }).unwrap();
    let held = log.hold_answers();
    let mut before = add();
    let at = pair.world.log.partition(&TopicPartition::new(shelf_topic(), partition.0)).unwrap();
    eventually("it is stored", || at.offsets().tail > Offset::ZERO);
    b.take(partition).unwrap();
    let refused = add().blocking_recv().unwrap().unwrap_err();
    assert!(matches!(&refused, Error::OwnerEnded { .. }) && !refused.may_have_applied(), "{refused}");
    assert!(before.try_recv().is_err(), "its answer is still on its way");
    drop(held);
    assert!(matches!(before.blocking_recv().unwrap(), Ok(Answer::Now(1))));
    assert_eq!(b.snapshot(partition).unwrap().state.get("bolt"), Some(&1));
    pair.close();
}
