//! Whatever is acknowledged outlives what its level says: power loss, `kill -9`, and a crash while recovering from one.
//!
//! Each seed is one data directory through several lives. A seed decides what is sent, when the power goes, and whose turn
//! it is at each step: a seed that fails does so again, at the same byte. A tenth of the lives run with the engine's
//! threads, where it does not decide how these interleave.
//! Each run takes fresh seeds and prints the first; a failure names its own. `MILLSTREAM_CRASH_POINTS=1000` runs a thousand
//! lives, `MILLSTREAM_CRASH_SEED=7` only those of seed 7.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod clients;
mod crew;
mod lives;
mod oracle;
mod passes;
mod record;
mod state;
mod transactions;
mod verdict;
mod workload;

use std::ops::Range;

use millstream_testkit::sim::crash_seeds;

use crate::crew::Drive;
use crate::lives::Medium;
use crate::passes::Cuts;
use crate::workload::World;

/// Lives that end by a crash in an ordinary run of each test.
const CRASH_POINTS: u64 = 100;
/// Seeds that have once found a fault, and which.
const REGRESSIONS: [(u64, &str); 1] = [(0, "the log's own directory was not durable in its parent")];

fn check(seeds: impl Iterator<Item = u64>, world: World, drive: fn(u64) -> Drive) {
    let (mut lives, mut cut_at_work, mut cut_starts, mut cut_passes) = (0, 0, 0, Cuts::default());
    for seed in seeds {
        let outcome = lives::run(seed, Medium::Honest, world, drive(seed));
        assert!(outcome.violations.is_empty(), "{world:?}, seed {seed}:\n{}", outcome.violations.join("\n"));
        lives += outcome.lives;
        cut_at_work += outcome.cut_at_work;
        cut_starts += outcome.cut_starts;
        cut_passes.add(outcome.cut_passes);
    }
    let Cuts { before_meta, after_meta } = cut_passes;
    eprintln!("{world:?}: {lives} lives, {cut_at_work} of them cut while at work; {cut_starts} starts cut on top");
    eprintln!("  ended within a pass of compaction: {before_meta} before meta named its output, {after_meta} after");
}

fn check_all(world: World) {
    let seeds = crash_seeds(CRASH_POINTS, lives::LIVES);
    check(seeds.clone(), world, Drive::by_hand);
    check(with_threads(seeds), world, |_| Drive::Threads);
}

/// Of the seeds of a run those that also run with threads.
fn with_threads(seeds: Range<u64>) -> Range<u64> {
    seeds.start..seeds.start + (seeds.end - seeds.start).div_ceil(10)
}

#[test]
fn nothing_acknowledged_is_lost_torn_or_given_twice_at_any_crash_point() {
    check_all(World::Mixed);
}

#[test]
fn the_last_record_of_each_key_survives_a_crash_during_compaction() {
    check_all(World::States);
}

#[test]
fn acknowledged_records_survive_if_segments_get_them_before_the_journals_sync() {
    check_all(World::Unwaited);
}

#[test]
fn a_transaction_is_whole_or_absent_after_any_crash() {
    let mut all = transactions::Outcome::default();
    let seeds = crash_seeds(CRASH_POINTS, transactions::LIVES);
    let by_hand = seeds.clone().map(|seed| (seed, Drive::by_hand(seed)));
    for (seed, drive) in by_hand.chain(with_threads(seeds).map(|seed| (seed, Drive::Threads))) {
        let outcome = transactions::run(seed, &drive);
        assert!(outcome.violations.is_empty(), "seed {seed}:\n{}", outcome.violations.join("\n"));
        all.add(&outcome);
    }
    eprintln!("{all:?}");
    assert!(all.committed > 0 && all.aborted > 0 && all.cut_at_work > 0, "{all:?} tries too little");
}

#[test]
fn seeds_that_once_failed_pass() {
    for (seed, fault) in REGRESSIONS {
        println!("once: {fault}");
        check(seed..=seed, World::Mixed, Drive::by_hand);
        check(seed..=seed, World::Mixed, |_| Drive::Threads);
    }
}

/// Returns `true` if three seeds of at most sixty notice what the medium does.
fn is_noticed(medium: Medium, world: World) -> bool {
    (0..60)
        .filter(|seed| !lives::run(*seed, medium, world, Drive::by_hand(*seed)).violations.is_empty())
        .take(3)
        .count()
        == 3
}

#[test]
fn a_medium_that_loses_synced_writes_is_noticed() {
    assert!(is_noticed(Medium::Forgetful, World::Mixed), "hardly a seed notices that synced records are lost");
}

#[test]
fn a_medium_that_loses_synced_compacted_segments_is_noticed() {
    let is_noticed = is_noticed(Medium::ForgetfulOfPasses, World::States);
    assert!(is_noticed, "hardly a seed notices that compacted segments are lost");
}

#[test]
fn a_seed_that_fails_fails_again_at_the_same_byte() {
    let run = |seed| {
        let outcome = lives::run(seed, Medium::Forgetful, World::Mixed, Drive::by_hand(seed));
        (outcome.violations, outcome.fingerprint)
    };
    let failing = (0..).find(|seed| !run(*seed).0.is_empty()).unwrap();
    let (violations, fingerprint) = run(failing);
    assert!(!violations.is_empty(), "seed {failing} passes when it is run again");
    for _ in 0..3 {
        assert_eq!(run(failing), (violations.clone(), fingerprint), "seed {failing}");
    }
}

#[test]
fn a_seed_decides_every_byte_of_all_its_lives() {
    for (seed, world) in (0..4).zip([World::Mixed, World::States, World::Unwaited, World::Mixed]) {
        let runs = [(), ()].map(|()| lives::run(seed, Medium::Honest, world, Drive::by_hand(seed)).fingerprint);
        assert_eq!(runs[0], runs[1], "seed {seed}, {world:?}");
    }
}
