//! The memory that several views share: who finds none is refused or waits, and all of it is returned.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use millstream_log::{Files, LogConfig};
use millstream_testkit::eventually;
use millstream_testkit::sim::SimFiles;
use millstream_types::{ErrorCode, MemoryBudget};
use millstream_view::{Error, ViewsConfig};

use crate::common::{Answer, Command, World, add, ask, submit, whole};
use crate::gate::{Gate, Shut};

const APPEND_MAX_BYTES: usize = 16 << 10;

fn with(inbox_memory: &MemoryBudget, dirty_memory: &MemoryBudget) -> ViewsConfig {
    ViewsConfig {
        append_max_bytes: APPEND_MAX_BYTES,
        inbox_memory: inbox_memory.clone(),
        dirty_memory: dirty_memory.clone(),
        ..ViewsConfig::default()
    }
}

fn plenty() -> MemoryBudget {
    MemoryBudget::new("plenty", u64::MAX)
}

fn add_one(name: &str) -> Command {
    Command::Add { name: name.into(), pieces: 1 }
}

/// Waits until all of the memory is returned.
fn until_returned(memory: &MemoryBudget) {
    eventually("the memory to be returned", || memory.used_bytes() == 0);
}

#[test]
fn commands_of_two_views_share_their_memory_and_those_without_are_refused_by_name() {
    let inboxes = MemoryBudget::new("shelves.inbox_max_bytes", 20_000);
    let files = SimFiles::new();
    files.create_dir_all(Path::new("/data")).unwrap();
    files.sync_dir(Path::new("/")).unwrap();
    let (gate, dirs) = (Gate::around(files), [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()]);
    let log = LogConfig {
        dir: PathBuf::from("/data/log"),
        pending_max_bytes: 64 << 10,
        append_max_bytes: 64 << 10,
        batch_max_bytes: 64 << 10,
        ..LogConfig::default()
    };
    let held_up = World::on(Arc::new(gate.clone()), log, &dirs[0].path().join("views")).unwrap();
    let other = World::in_memory(dirs[1].path());
    let config = with(&inboxes, &plenty());
    let slow = held_up.shelf_with(None, &config).unwrap();
    let quick = other.shelf_with(None, &config).unwrap();

    let opened_at_end = gate.opened_at_end();
    gate.set(Shut::Writes);
    let mut waiting = Vec::new();
    // The owner has taken all that the log takes once one is refused again and again.
    let (mut refusals, mut last) = (0, None);
    while refusals < 50 {
        match submit(&slow, add_one("bolt")) {
            Ok(answer) => {
                waiting.push(answer);
                refusals = 0;
            }
            Err(refusal) => {
                (refusals, last) = (refusals + 1, Some(refusal));
                std::thread::sleep(Duration::from_millis(2));
            }
        }
    }
    let refusal = last.unwrap();
    assert!(matches!(refusal, Error::NoMemory { limit_bytes: 20_000, .. }), "{refusal}");
    assert_eq!((refusal.code(), refusal.is_full(), refusal.may_have_applied()), (ErrorCode::Overloaded, true, false));
    let refusal = ask(&quick, add_one("bolt")).unwrap_err().to_string();
    assert!(refusal.contains("shelves.inbox_max_bytes is 20000; slow down"), "{refusal}");
    assert_eq!(whole(&quick), []);

    drop(opened_at_end);
    for (answer, expected) in waiting.into_iter().zip(1..) {
        assert_eq!(answer.blocking_recv().unwrap().unwrap(), Answer::Now(expected));
    }
    until_returned(&inboxes);
    assert_eq!(add(&quick, "bolt", 1), Answer::Now(1));
    // A command that is larger than all of it is accepted while nobody else has any; its change is too large.
    let refusal = ask(&quick, add_one(&"b".repeat(30_000))).unwrap_err();
    assert!(!matches!(refusal, Error::NoMemory { .. }), "{refusal}");
    held_up.close(slow);
    other.close(quick);
    until_returned(&inboxes);
}

#[test]
fn a_command_waits_for_memory_that_others_have_but_an_end_does_not() {
    let changes = MemoryBudget::new("shelves.dirty_max_bytes", 2 * APPEND_MAX_BYTES as u64);
    let dir = tempfile::tempdir().unwrap();
    let world = World::in_memory(dir.path());
    let views = world.shelf_with(None, &with(&plenty(), &changes)).unwrap();
    let others = changes.take(1).unwrap();
    let mut answer = submit(&views, add_one("bolt")).unwrap();
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(100) {
        assert!(answer.try_recv().is_err(), "it has found memory");
    }
    drop(others);
    assert_eq!(answer.blocking_recv().unwrap().unwrap(), Answer::Now(1));

    until_returned(&changes);
    let _others = changes.take(1).unwrap();
    let answer = submit(&views, add_one("bolt")).unwrap();
    views.stop();
    assert_eq!(answer.blocking_recv().unwrap().unwrap(), Answer::Now(2));
    world.close(views);
    assert_eq!(changes.used_bytes(), 1);
}

#[test]
fn writers_of_two_views_go_on_with_memory_for_little_more_than_a_batch_and_return_it() {
    const WRITERS: usize = 4;
    const NAMES: usize = 150;
    let changes = MemoryBudget::new("shelves.dirty_max_bytes", 2 * APPEND_MAX_BYTES as u64 + 8_000);
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let worlds = dirs.each_ref().map(|dir| World::in_memory(dir.path()));
    let config = ViewsConfig { checkpoint_interval: Duration::from_millis(20), ..with(&plenty(), &changes) };
    let views = worlds.each_ref().map(|world| world.shelf_with(None, &config).unwrap());
    std::thread::scope(|threads| {
        for writer in 0..WRITERS {
            let (views, changes) = (&views[writer % 2], &changes);
            threads.spawn(move || {
                let name = |number: usize| format!("{writer}-{number}-{}", "n".repeat(400));
                let answers: Vec<_> = (0..NAMES).map(|number| submit(views, add_one(&name(number))).unwrap()).collect();
                for answer in answers {
                    assert_eq!(answer.blocking_recv().unwrap().unwrap(), Answer::Now(1));
                    assert!(changes.used_bytes() <= changes.limit_bytes());
                }
            });
        }
    });
    for (world, views) in worlds.into_iter().zip(views) {
        assert_eq!(whole(&views).len(), WRITERS / 2 * NAMES);
        world.close(views);
    }
    assert_eq!(changes.used_bytes(), 0);
}

#[test]
fn a_start_that_finds_no_memory_writes_the_checkpoint_as_it_reads_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path());
    let views = world.shelf();
    for number in 0..50 {
        add(&views, &format!("part-{number}"), 1);
    }
    let expected = whole(&views);
    world.close(views);
    std::fs::remove_dir_all(dir.path().join("views")).unwrap();

    let changes = MemoryBudget::new("shelves.dirty_max_bytes", 10);
    let world = World::open(dir.path());
    let views = world.shelf_with(None, &with(&plenty(), &changes)).unwrap();
    assert_eq!(whole(&views), expected);
    let mut listed = 0;
    for partition in 0..views.partitions() {
        let partition = millstream_types::PartitionId(partition);
        let count = |_: &[u8], _: &[u8]| {
            listed += 1;
            std::ops::ControlFlow::Continue(())
        };
        views.list(partition, b"", count).unwrap();
    }
    assert_eq!((listed, changes.used_bytes()), (expected.len(), 0));
    assert_eq!(add(&views, "part-0", 1), Answer::Now(2));
    world.close(views);
}
