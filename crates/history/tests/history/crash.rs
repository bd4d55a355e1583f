//! kill -9 in random moments: every change that was answered is in history once.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use millstream_history::{Base, History, HistoryConfig, NoTenantRules};
use millstream_http::Metrics;
use millstream_log::SystemFiles;
use millstream_types::SystemClock;

use crate::world::{NEW_YEAR_MS, World, change, open_log, quiet};

const CHILD: &str = "MILLSTREAM_HISTORY_CHILD";
const KILLS: u64 = 25;
const WRITERS: u64 = 4;

/// Not a test of its own: what the test below starts and kills. It changes entities, says which changes were answered, and
/// writes files all the time.
#[test]
fn child_that_is_killed() {
    let Ok(given) = std::env::var(CHILD) else { return };
    let (dir, first) = given.split_once('|').unwrap();
    let (dir, first): (&Path, u64) = (Path::new(dir), first.parse().unwrap());
    let log = open_log(dir);
    let directory = dir.join("history");
    let clock = std::sync::Arc::new(SystemClock::default());
    let base = Base {
        log: log.clone(),
        dir: &directory,
        files: std::sync::Arc::new(SystemFiles),
        own: std::sync::Arc::new(NoTenantRules),
        clock: clock.clone(),
        wall: clock,
    };
    let config = HistoryConfig { flush_interval_ms: 1, ..HistoryConfig::default() };
    let _history = History::open(&base, &config, &Metrics::default()).unwrap();
    std::thread::scope(|writers| {
        for writer in 0..WRITERS {
            let log = &log;
            writers.spawn(move || {
                // Until it is killed.
                for n in first.. {
                    // Two days and two types, so that each flush makes several files.
                    let kind = if n % 2 == 0 { "Room" } else { "Car" };
                    let observed = NEW_YEAR_MS + (n % 2) as i64 * 86_400_000 + n as i64;
                    change(&**log, ("default", kind, &format!("e{writer}")), "n", &n.to_string(), observed);
                    println!("answered {writer} {n}");
                }
            });
        }
    });
}

#[test]
fn every_answered_change_is_there_once_after_kill_9_in_random_moments() {
    let dir = tempfile::tempdir().unwrap();
    let mut answered: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    let mut next = 0;
    // A change that was not answered may be there all the same: the next life begins above it.
    const GAP: u64 = 10;
    for kill in 0..KILLS {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["crash::child_that_is_killed", "--exact", "--nocapture"])
            .env(CHILD, format!("{}|{next}", dir.path().display()))
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        // After so many answers, which differs: while it writes files, between them, while it merges.
        let answers = 5 + kill * 37 % 211;
        let mut seen = 0;
        let mut killed = false;
        while let Some(Ok(line)) = lines.next() {
            // The harness may have said something before on the same line.
            let Some((_, rest)) = line.split_once("answered ") else { continue };
            let (writer, n) = rest.split_once(' ').unwrap();
            let (writer, n): (u64, u64) = (writer.parse().unwrap(), n.parse().unwrap());
            answered.entry(writer).or_default().push(n);
            next = next.max(n + GAP);
            seen += 1;
            if seen >= answers && !killed {
                std::thread::sleep(Duration::from_micros(kill * 997 % 7_919));
                child.kill().unwrap();
                killed = true;
            }
        }
        child.wait().unwrap();
        assert!(killed, "the child ended by itself");
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(check(dir.path(), &answered));
}

async fn check(dir: &Path, answered: &BTreeMap<u64, Vec<u64>>) {
    let world = World::open(dir, &HistoryConfig { page_max_points: 1_000_000, ..quiet() });
    let served = world.serve().await;
    for (writer, expected) in answered {
        let mut found: BTreeMap<u64, usize> = BTreeMap::new();
        for kind in ["Room", "Car"] {
            let entity = served.get(&format!("/e{writer}?type={kind}&options=temporalValues")).await.json();
            for pair in entity["n"]["values"].as_array().unwrap() {
                *found.entry(pair[0].as_u64().unwrap()).or_default() += 1;
            }
        }
        let missing: Vec<&u64> = expected.iter().filter(|n| !found.contains_key(n)).collect();
        assert!(missing.is_empty(), "answered changes of {writer} are missing: {missing:?}");
        let doubled: Vec<_> = found.iter().filter(|(_, times)| **times > 1).collect();
        assert!(doubled.is_empty(), "changes of {writer} are there more than once: {doubled:?}");
    }
    assert!(answered.values().map(Vec::len).sum::<usize>() > 1_000);
    assert_eq!(world.history.failures(), Vec::<String>::new());
    served.stop().await;
    world.close();
}
