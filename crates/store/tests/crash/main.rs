//! A bucket keeps what it acknowledged through power loss and `kill -9`, whatever becomes of its checkpoint.
//!
//! Each seed is one disk through several lives: writes at all ack levels, conditions, appends, deletes, expiry under a
//! clock that jumps, listings (which write the checkpoint), and compaction of tiny segments, all at once. At each crash
//! the checkpoint store is replaced: by its newest copy, an older one, a torn one, a mixture, garbage, or none. What
//! must hold is said in `oracle.rs`.
//!
//! A seed decides what is sent and when the power goes, not how threads interleave: a seed that fails may pass when it
//! is run again. Each run takes fresh seeds and prints them. `MILLSTREAM_CRASH_POINTS=1000` runs a thousand lives,
//! `MILLSTREAM_CRASH_SEED=7` only those of seed 7.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod ahead;
mod damage;
mod lives;
mod oracle;
mod workload;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};

use millstream_testkit::sim::{crash_seeds, is_one_seed};

use crate::lives::{Medium, Seen};

/// Lives that end by a crash in an ordinary run.
const CRASH_POINTS: u64 = 40;

#[test]
fn nothing_acknowledged_is_lost_and_nothing_gone_comes_back_at_any_crash_point() {
    let seeds = crash_seeds(CRASH_POINTS, lives::LIVES);
    let mut seen = Seen::default();
    for seed in seeds {
        println!("MILLSTREAM_CRASH_SEED={seed}");
        lives::run(seed, Medium::Honest, &mut seen);
    }
    println!("{seen:?}");
    assert!(
        is_one_seed() || (seen.cut_at_work > 0 && seen.acknowledged > 0 && seen.compacted > 0),
        "{seen:?} tries too little"
    );
}

#[test]
fn a_medium_that_loses_synced_writes_is_noticed() {
    let is_noticed = |seed| {
        let life = || lives::run(seed, Medium::Forgetful, &mut Seen::default());
        catch_unwind(AssertUnwindSafe(life)).is_err()
    };
    assert!((0..10).any(is_noticed), "no seed notices that synced writes are lost");
}
