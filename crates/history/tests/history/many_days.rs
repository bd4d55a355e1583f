//! Long histories: many days, many types, and reads of them.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use millstream_history::{HistoryConfig, HistoryRule};
use millstream_log::{File, Files, Lock, SystemFiles};
use millstream_testkit::eventually;
use serde_json::json;

use crate::world::{NEW_YEAR_MS, World, quiet};

const DAY_MS: i64 = 86_400_000;

/// A disk that counts the files that are opened to be read.
#[derive(Default)]
struct Counting(AtomicUsize);

impl Files for Counting {
    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        SystemFiles.create_dir_all(dir)
    }
    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        SystemFiles.list(dir)
    }
    fn open(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        self.0.fetch_add(1, Ordering::Relaxed);
        SystemFiles.open(path)
    }
    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        SystemFiles.create(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        SystemFiles.rename(from, to)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        SystemFiles.remove(path)
    }
    fn remove_dir_all(&self, dir: &Path) -> io::Result<()> {
        SystemFiles.remove_dir_all(dir)
    }
    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        SystemFiles.sync_dir(dir)
    }
    fn lock(&self, path: &Path) -> io::Result<Lock> {
        SystemFiles.lock(path)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn points_beyond_files_max_are_kept_and_a_warning_says_that_there_are_too_many_files() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path(), &HistoryConfig { files_max: 5, ..quiet() });
    world.measure("room1", "t", "1", NEW_YEAR_MS);
    world.flush();
    assert_eq!(world.history.warnings(), Vec::<String>::new());
    for kind in 0..8 {
        world.change(("default", &format!("Type{kind}"), "x"), "t", "1", NEW_YEAR_MS);
    }
    world.measure("room1", "t", "2", NEW_YEAR_MS + DAY_MS);
    world.flush();
    let stats = world.history.stats();
    assert_eq!((stats.file_points, stats.passed_over), (10, 0), "{stats:?}");
    let served = world.serve().await;
    assert_eq!(served.get("/room1?lastN=1&options=temporalValues").await.json()["t"]["values"][0][0], json!(2));
    served.stop().await;
    world.clock.advance(Duration::from_secs(60));
    eventually("the warning", || !world.history.warnings().is_empty());
    let warnings = world.history.warnings();
    assert!(warnings.len() == 1 && warnings[0].contains("history.files_max = 5"), "{warnings:?}");
    assert_eq!(world.history.failures(), Vec::<String>::new());
    world.close();

    // A start says so without a further check, for which the clock would have to advance.
    let world = World::open(dir.path(), &HistoryConfig { files_max: 5, ..quiet() });
    eventually("the warning after a start", || !world.history.warnings().is_empty());
    world.close();
}

/// Points of two years that come in over time, a few days at a time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn past_days_become_months_and_years_and_all_reads_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path(), &quiet());
    let first_ms = NEW_YEAR_MS - 730 * DAY_MS;
    world.clock.advance(Duration::from_millis(first_ms.unsigned_abs()));
    for day in 0..730 {
        world.measure("room1", "t", &day.to_string(), first_ms + day * DAY_MS);
        if day % 100 == 50 {
            world.measure("seldom", "t", &day.to_string(), first_ms + day * DAY_MS);
        }
        if day % 6 == 5 {
            // Advances the clock by a day.
            world.flush();
            world.clock.advance(Duration::from_millis(5 * DAY_MS.unsigned_abs()));
        }
    }
    world.flush();
    world.clock.advance(Duration::from_millis(70 * DAY_MS.unsigned_abs()));
    eventually("there are few files", || {
        world.clock.advance(Duration::from_secs(11));
        world.history.stats().files <= 2 + 7
    });
    let names: Vec<String> = world.files().iter().map(|path| path.display().to_string()).collect();
    assert!(names.iter().any(|name| name.contains("/day=2024/")), "{names:?}");
    assert_eq!(world.history.stats().file_points, 730 + 7);
    world.close();
    let world = World::open(dir.path(), &quiet());
    let served = world.serve().await;
    let counted = served.get("?options=aggregatedValues&aggrMethods=totalCount,sum").await.json();
    assert_eq!((&counted[0]["t"]["totalCount"], &counted[1]["t"]["totalCount"]), (&json!([[730]]), &json!([[7]])));
    let last = served.get("/room1?lastN=2&options=temporalValues").await.json();
    assert_eq!((&last["t"]["values"][0][0], &last["t"]["values"][1][0]), (&json!(728), &json!(729)));
    for (day, entities) in [(50, 2), (51, 1), (650, 2), (649, 1)] {
        let at = |ms: i64| millstream_types::iso_time(first_ms + day * DAY_MS + ms);
        let query = format!("?type=Room&timerel=between&timeAt={}&endTimeAt={}", at(1_000), at(2_000));
        let listed = served.get(&query).await.json();
        assert_eq!(listed.as_array().unwrap().len(), entities, "day {day}: {listed}");
    }
    served.stop().await;
    assert_eq!(world.history.failures(), Vec::<String>::new());
    world.close();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_point_is_read_from_the_newest_file_alone_and_no_range_needs_too_many_files() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Arc::new(Counting::default());
    // Files of a type with a short retention stay those of days.
    let rules = vec![HistoryRule { retention_ms: Some(200 * DAY_MS.unsigned_abs()), ..HistoryRule::default() }];
    let config = HistoryConfig { read_max_files: 3, rules, ..quiet() };
    let world = World::open_on(dir.path(), &config, disk.clone());
    for day in 0..64 {
        for room in ["room1", "room2"] {
            world.measure(room, "t", &day.to_string(), NEW_YEAR_MS + day * DAY_MS);
        }
        if day % 8 == 7 {
            world.flush();
        }
    }
    assert_eq!(world.history.stats().files, 64);
    let served = world.serve().await;
    for query in ["/room1?lastN=1&options=temporalValues", "/room2?lastN=1&attrs=t&options=temporalValues"] {
        let before = disk.0.load(Ordering::Relaxed);
        let last = served.get(query).await;
        assert_eq!((last.status, &last.json()["t"]["values"][0][0]), (200, &json!(63)), "{last:?}");
        assert!(disk.0.load(Ordering::Relaxed) - before <= 1, "{query} opened more than the newest file");
    }
    let all = served.get("/room1?options=temporalValues").await.json();
    assert_eq!(all["t"]["values"].as_array().map(Vec::len), Some(64));
    let listed = served.get("?count=true&lastN=1&options=temporalValues").await;
    assert_eq!((listed.status, listed.header("ngsild-results-count")), (200, Some("2")));
    assert_eq!(listed.json()[1]["t"]["values"][0][0], json!(63));
    served.stop().await;
    world.close();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_import_of_many_days_is_written_in_few_files_and_a_deletion_need_not_wait_long() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path(), &quiet());
    let first_ms = NEW_YEAR_MS - 700 * DAY_MS;
    for n in 0..6_000_i64 {
        let kind = format!("Type{}", n % 6);
        world.change(("default", &kind, "x"), "t", &n.to_string(), first_ms + (n * 7 / 60) * DAY_MS);
    }
    world.measure("room1", "t", "1", NEW_YEAR_MS);
    let served = world.serve().await;
    let deleted = served.ask("DELETE /ngsi-ld/v1/temporal/entities/room1").await;
    assert_eq!(deleted.status, 204, "{deleted:?}");
    let stats = world.history.stats();
    // The deleted point's file is rewritten without it in the background.
    assert!(stats.recent_points == 0 && (6_000..=6_001).contains(&stats.file_points), "{stats:?}");
    assert!(stats.files <= 6 * 20 + 1, "{stats:?}");
    let counted = served.get("/x?type=Type3&options=aggregatedValues&aggrMethods=totalCount").await.json();
    assert_eq!(counted["t"]["totalCount"], json!([[1_000]]));
    assert_eq!(served.get("/room1").await.status, 404);
    served.stop().await;
    world.close();
}
