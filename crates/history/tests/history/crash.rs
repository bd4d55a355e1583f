//! kill -9 at random moments: every answered change is in history exactly once, or in the point that sampling kept.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use millstream_history::{Dependencies, History, HistoryConfig, HistoryRule, NoTenantRules};
use millstream_http::Metrics;
use millstream_log::SystemFiles;
use millstream_testkit::environment_of_child;
use millstream_types::{MonotonicClock, SystemClock, WallClock};

use crate::world::{NEW_YEAR_MS, World, change, open_log, quiet};

const CHILD: &str = "MILLSTREAM_HISTORY_CHILD";
/// Number of kills; `MILLSTREAM_KILLS` overrides it.
const KILLS: u64 = 5;
const WRITERS: u64 = 4;
/// The line that the child prints once it has sampled.
const SAMPLED: &str = "sampled";
/// After this many answers the child is killed even if it has sampled nothing.
const ANSWERS_MAX: u64 = 100_000;
/// Rooms stay as they are. Cars are rewritten repeatedly without loss. Buses keep one point per tenth of a second.
const KINDS: [&str; 3] = ["Room", "Car", "Bus"];
const BUS_PERIOD_MS: u64 = 100;

/// A fast clock, so that work with a ten-second interval runs all the time.
#[derive(Default)]
struct Fast(SystemClock);

impl MonotonicClock for Fast {
    fn now(&self) -> Duration {
        self.0.now() * 1_000
    }
}

impl WallClock for Fast {
    fn now_ms(&self) -> i64 {
        self.0.now_ms()
    }
}

fn sampling(kind: &str, attribute: &str, period_ms: u64) -> HistoryRule {
    HistoryRule {
        kind: kind.into(),
        attribute: attribute.into(),
        sample_after_ms: Some(period_ms),
        sample_period_ms: Some(period_ms),
        ..HistoryRule::default()
    }
}

/// Time of change `n`, on one of two days, so that each flush makes several files.
fn observed_ms(n: u64) -> i64 {
    NEW_YEAR_MS + (n / 3 % 2) as i64 * 86_400_000 + n as i64
}

/// The child process of the test below, which starts and kills it. It changes entities, prints the answered changes,
/// and flushes all the time.
#[test]
fn child_that_is_killed() {
    let Ok(given) = std::env::var(CHILD) else { return };
    let (dir, first) = given.split_once('|').unwrap();
    let (dir, first): (&Path, u64) = (Path::new(dir), first.parse().unwrap());
    let log = open_log(dir);
    let directory = dir.join("history");
    let clock = std::sync::Arc::new(Fast::default());
    let dependencies = Dependencies {
        log: log.log(),
        dir: &directory,
        files: std::sync::Arc::new(SystemFiles),
        tenant_rules: std::sync::Arc::new(NoTenantRules),
        clock: clock.clone(),
        wall: clock,
    };
    let rules = vec![sampling("Car", "nothing", 1), sampling("Bus", "*", BUS_PERIOD_MS)];
    let config = HistoryConfig { flush_interval_ms: 1_000, rules, ..HistoryConfig::default() };
    let history = History::open(&dependencies, &config, &Metrics::default()).unwrap();
    std::thread::scope(|writers| {
        writers.spawn(|| {
            while history.stats().sampled_out == 0 {
                std::thread::sleep(Duration::from_micros(200));
            }
            println!("answered {SAMPLED}");
        });
        for writer in 0..WRITERS {
            let log = &log;
            writers.spawn(move || {
                // The parent kills this process.
                for n in first.. {
                    let kind = KINDS[n as usize % KINDS.len()];
                    change(&**log, ("default", kind, &format!("e{writer}")), "n", &n.to_string(), observed_ms(n));
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
    // An unanswered change may be stored, so the next process starts at a higher number.
    const GAP: u64 = 10;
    let kills = std::env::var("MILLSTREAM_KILLS").map_or(KILLS, |kills| kills.parse().unwrap());
    for kill in 0..kills {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["crash::child_that_is_killed", "--exact", "--nocapture"])
            .env(CHILD, format!("{}|{next}", dir.path().display()))
            .envs(environment_of_child(&dir.path().join("log")))
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        // The number of answers varies, so that kills hit flushes, merges and pauses. In every other process it counts
        // from the first sampling, whose time depends on the machine.
        let answers = 5 + kill * 37 % 411;
        let mut counts = kill % 2 == 0;
        let (mut seen, mut counted) = (0, 0);
        let mut killed = false;
        while let Some(Ok(line)) = lines.next() {
            // The test harness may have printed to the same line.
            let Some((_, rest)) = line.split_once("answered ") else { continue };
            if rest == SAMPLED {
                counts = true;
                continue;
            }
            let (writer, n) = rest.split_once(' ').unwrap();
            let (writer, n): (u64, u64) = (writer.parse().unwrap(), n.parse().unwrap());
            answered.entry(writer).or_default().push(n);
            next = next.max(n + GAP);
            seen += 1;
            counted += u64::from(counts);
            if (counted >= answers || seen >= ANSWERS_MAX) && !killed {
                std::thread::sleep(Duration::from_micros(kill * 997 % 7_919));
                child.kill().unwrap();
                killed = true;
            }
        }
        child.wait().unwrap();
        assert!(killed, "the child ended by itself");
        assert!(counts, "nothing was sampled while {seen} changes were made");
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(check(dir.path(), &answered));
}

async fn check(dir: &Path, answered: &BTreeMap<u64, Vec<u64>>) {
    let world = World::open(dir, &HistoryConfig { page_max_points: 1_000_000, ..quiet() });
    let served = world.serve().await;
    let mut sampled = 0;
    for (writer, expected) in answered {
        let mut found: BTreeMap<u64, usize> = BTreeMap::new();
        for kind in KINDS {
            let entity = served.get(&format!("/e{writer}?type={kind}&options=temporalValues")).await.json();
            for pair in entity["n"]["values"].as_array().unwrap() {
                *found.entry(pair[0].as_u64().unwrap()).or_default() += 1;
            }
        }
        // For a bus, a later change of the same period may have replaced it.
        let is_there = |n: u64| {
            found.contains_key(&n) || {
                let period = |n: u64| (n % 3, observed_ms(n).div_euclid(BUS_PERIOD_MS as i64));
                n % 3 == 2 && found.keys().any(|later| *later > n && period(*later) == period(n))
            }
        };
        let missing: Vec<&u64> = expected.iter().filter(|n| !is_there(**n)).collect();
        assert!(missing.is_empty(), "answered changes of {writer} are missing: {missing:?}");
        sampled += expected.iter().filter(|n| !found.contains_key(n)).count();
        let doubled: Vec<_> = found.iter().filter(|(_, times)| **times > 1).collect();
        assert!(doubled.is_empty(), "changes of {writer} are there more than once: {doubled:?}");
    }
    // Only even processes end after a known number of answers.
    assert!(answered.values().map(Vec::len).sum::<usize>() > 200);
    assert!(sampled > 0, "later points stand for none of the changes that were answered");
    assert_eq!(world.history.failures(), Vec::<String>::new());
    served.stop().await;
    world.close();
}
