//! Views stay right through power loss, whatever becomes of their checkpoints.
//!
//! Each seed is one disk through several lives: views over four partitions, commands from several threads, a follower
//! of a topic that is only `written`. At each crash the checkpoint store is replaced: by its newest copy, an older one,
//! a torn one, a mixture of two, one with garbage in it, or none. What must hold is said in `oracle.rs`.
//!
//! A seed decides what is sent and when the power goes, not how threads interleave: a seed that fails may pass when it
//! is run again. Each run takes fresh seeds and prints them. `MILLSTREAM_CRASH_POINTS=1000` runs a thousand lives, `MILLSTREAM_CRASH_SEED=7` only those of seed 7.

mod by_hand;
mod lives;
mod oracle;
mod workload;

use std::path::PathBuf;

use millstream_log::LogConfig;
use millstream_testkit::sim::{PowerLoss, SimFiles, crash_seeds};
use millstream_testkit::small_log::new_disk;

use crate::common::{Answer, World, add, whole};

/// Lives that end by a crash in an ordinary run.
const CRASH_POINTS: u64 = 40;

/// Limits so small that journal files are recycled and segments written all the time.
fn small() -> LogConfig {
    LogConfig {
        dir: PathBuf::from("/data/log"),
        journal_file_bytes: 128 << 10,
        journal_max_bytes: 512 << 10,
        pending_max_bytes: 256 << 10,
        pending_unwaited_percent: 50,
        append_max_bytes: 96 << 10,
        batch_max_bytes: 4 << 10,
        cache_bytes: 16 << 10,
        sync_interval_ms: 5,
        flush_interval_ms: 20,
        compaction_dirty_percent: 30,
        compaction_bytes_per_second: 1 << 30,
        ..LogConfig::default()
    }
}

#[test]
fn views_are_right_after_any_crash_with_any_checkpoint() {
    let seeds = crash_seeds(CRASH_POINTS, lives::LIVES);
    let mut seen = lives::Seen::default();
    for seed in seeds {
        println!("MILLSTREAM_CRASH_SEED={seed}");
        lives::run(seed, &mut seen);
    }
    println!("{seen:?}");
}

#[test]
fn owners_are_right_after_any_crash_of_a_log_whose_turns_a_seed_decides() {
    let seeds = crash_seeds(CRASH_POINTS, by_hand::LIVES);
    let mut seen = by_hand::Seen::default();
    for seed in seeds {
        println!("MILLSTREAM_CRASH_SEED={seed}");
        by_hand::run(seed, &mut seen);
    }
    println!("{seen:?}");
    assert!(seen.answers > 0 && seen.cut_at_work > 0, "{seen:?} tries too little");
}

#[test]
fn a_seed_decides_every_byte_that_owners_write() {
    for seed in 0..3 {
        let runs = [(), ()].map(|()| by_hand::run(seed, &mut by_hand::Seen::default()));
        assert_eq!(runs[0], runs[1], "seed {seed}");
    }
}

#[test]
fn a_checkpoint_beyond_the_end_of_the_log_is_not_believed() {
    let (dir, files) = (tempfile::tempdir().unwrap(), new_disk());
    // The journal alone is written while the disk lies.
    let config = || LogConfig { flush_interval_ms: 3_600_000, ..small() };
    let open = |files: &SimFiles| World::on(std::sync::Arc::new(files.clone()), config(), dir.path()).unwrap();
    let world = open(&files);
    let views = world.shelf();
    let names: Vec<String> = (0..20).map(|n| format!("part-{n}")).collect();
    names.iter().for_each(|name| assert_ne!(add(&views, name, 1), Answer::Gone));
    let durable = whole(&views);
    // From here on the disk lies: what it reports as synced is lost with the power.
    files.forget_syncs(1, 100);
    names.iter().for_each(|name| assert_ne!(add(&views, name, 1), Answer::Gone));
    names.iter().for_each(|name| assert_ne!(add(&views, &format!("new-{name}"), 1), Answer::Gone));
    views.stop();
    let after = files.crash(1, PowerLoss::DropAll);
    drop(world.end(views));
    for _ in 0..2 {
        let world = open(&after);
        let views = world.shelf();
        assert_eq!(whole(&views), durable);
        world.close(views);
    }
}
