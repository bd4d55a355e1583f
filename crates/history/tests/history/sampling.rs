//! Sampling of old files, as readers see it.

use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use millstream_history::{HistoryConfig, HistoryRule, Sample};
use millstream_log::{File, Files, Lock, SystemFiles};
use millstream_testkit::eventually;
use serde_json::{Value, json};

use crate::world::{HOUR_MS, NEW_YEAR_MS, World, files_have_no_copies, quiet};

const DAY_MS: i64 = 24 * HOUR_MS;
const MINUTE_MS: i64 = 60_000;

/// Keeps one point per hour from the age of two days.
fn hourly(kind: &str, sample: Option<Sample>) -> HistoryRule {
    HistoryRule {
        kind: kind.into(),
        sample_after_ms: Some(2 * DAY_MS as u64),
        sample_period_ms: Some(HOUR_MS as u64),
        sample,
        ..HistoryRule::default()
    }
}

fn sampled(rules: &[HistoryRule]) -> HistoryConfig {
    HistoryConfig { rules: rules.to_vec(), ..quiet() }
}

fn at(ms: i64) -> String {
    millstream_types::iso_time(NEW_YEAR_MS + ms)
}

/// Adds a value every ten minutes for six hours; the value is the number of minutes.
fn measure_six_hours(world: &World, kind: &str, id: &str) {
    for minute in (0..360).step_by(10) {
        world.change(("default", kind, id), "t", &minute.to_string(), NEW_YEAR_MS + minute * MINUTE_MS);
    }
}

/// Advances the clock and waits until sampling has dropped `left_out` points.
fn grow_old(world: &World, left_out: u64) {
    world.clock.advance(Duration::from_millis(2 * DAY_MS as u64 + 1));
    eventually("old files are sampled", || world.history.stats().sampled_out == left_out);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_old_point_of_each_period_stays_and_all_reads_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path(), &sampled(&[hourly("Room", None)]));
    for id in ["room1", "room2"] {
        measure_six_hours(&world, "Room", id);
    }
    measure_six_hours(&world, "Car", "car1");
    world.flush();
    let served = world.serve().await;
    let get = async |query: &str| served.get(query).await.json();
    let last = get("/room1?lastN=1").await;
    assert_eq!(world.history.stats().file_points, 3 * 36);
    grow_old(&world, 2 * 30);

    let point = |minute: i64| json!({"type": "Property", "value": minute, "observedAt": at(minute * MINUTE_MS)});
    let hours: Vec<Value> = (0..6).map(|hour| point(hour * 60 + 50)).collect();
    for id in ["room1", "room2"] {
        assert_eq!(get(&format!("/{id}")).await["t"], json!(hours));
    }
    assert_eq!(get("/car1").await["t"].as_array().unwrap().len(), 36, "another type");
    assert_eq!(get("/room1?lastN=1").await, last, "the last of all is the last of its period");
    assert_eq!(get("/room1?lastN=2").await["t"], json!(hours[4..]));
    let between = format!("/room1?timerel=between&timeAt={}&endTimeAt={}", at(HOUR_MS), at(3 * HOUR_MS));
    assert_eq!(get(&between).await["t"], json!(hours[1..3]));
    let counted = get("/room1?options=aggregatedValues&aggrMethods=totalCount,sum,max").await;
    assert_eq!(counted["t"], json!({"type": "Property", "totalCount": [[6]], "sum": [[1200]], "max": [[350]]}));
    let csv = served.ask("GET /ngsi-ld/v1/temporal/entities?id=room1\naccept: text/csv").await;
    let lines: Vec<&str> = csv.body.lines().collect();
    assert_eq!(lines.len(), 7);
    assert_eq!(lines[1], format!("room1,Room,/,t,Number,50,{},{}", at(50 * MINUTE_MS), at(50 * MINUTE_MS + 5)));

    // A late point is visible at once, and is sampled once it is old.
    world.measure("room1", "t", "55", NEW_YEAR_MS + 55 * MINUTE_MS);
    world.measure("room1", "t", "1", NEW_YEAR_MS + MINUTE_MS);
    world.flush();
    assert_eq!(get("/room1").await["t"].as_array().unwrap().len(), 8);
    grow_old(&world, 2 * 30 + 2);
    let with_late: Vec<Value> = [point(55)].into_iter().chain(hours[1..].iter().cloned()).collect();
    assert_eq!(get("/room1").await["t"], json!(with_late));
    eventually("replaced files are removed", || world.files().len() == 2);
    assert_eq!(world.history.failures(), Vec::<String>::new());
    served.stop().await;
    world.close();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deletions_and_the_points_before_them_stay() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path(), &sampled(&[hourly("*", None)]));
    for (minute, is_deletion) in [(1, false), (2, false), (3, true), (4, false), (5, false), (59, true)] {
        let ms = NEW_YEAR_MS + minute * MINUTE_MS;
        match is_deletion {
            // The record contains only `t`, so `u` counts as deleted.
            true => world.alter("room1", "entityChange", "u", ms),
            false => world.measure("room1", "u", &minute.to_string(), ms),
        }
    }
    world.flush();
    grow_old(&world, 2);
    let served = world.serve().await;
    let brief = served.get("/room1?attrs=u&options=temporalValues").await.json();
    let time = |minute| at(minute * MINUTE_MS);
    let gone = "urn:ngsi-ld:null";
    assert_eq!(brief["u"]["values"], json!([[2, time(2)], [gone, time(3)], [5, time(5)], [gone, time(59)]]), "{brief}");
    served.stop().await;
    world.close();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mean_names_the_number_of_its_points_and_a_rule_can_exclude_an_attribute() {
    let dir = tempfile::tempdir().unwrap();
    let all = HistoryRule { attribute: "alarm".into(), sample: Some(Sample::All), ..HistoryRule::default() };
    let world = World::open(dir.path(), &sampled(&[all.clone(), hourly("*", Some(Sample::Average))]));
    for minute in 0..120 {
        let ms = NEW_YEAR_MS + minute * MINUTE_MS;
        world.measure("room1", "t", &minute.to_string(), ms);
        world.measure("room1", "state", &format!("\"s{minute}\""), ms);
        world.measure("room1", "alarm", "1", ms);
    }
    world.flush();
    grow_old(&world, 2 * 118);
    let served = world.serve().await;
    let room = served.get("/room1").await.json();
    let mean = |minute: i64, value: f64| {
        let of = json!({"type": "Property", "value": 60});
        json!({"type": "Property", "value": value, "observedAt": at(minute * MINUTE_MS), "averagedFrom": of})
    };
    assert_eq!(room["t"], json!([mean(59, 29.5), mean(119, 89.5)]));
    let states: Vec<&Value> = room["state"].as_array().unwrap().iter().map(|point| &point["value"]).collect();
    assert_eq!(states, ["s59", "s119"]);
    assert_eq!(room["alarm"].as_array().unwrap().len(), 120);
    served.stop().await;
    world.close();

    // With longer periods the mean is still that of all points, because each mean has a weight.
    let daily = HistoryRule { sample_period_ms: Some(DAY_MS as u64), ..hourly("*", Some(Sample::Average)) };
    let world = World::open(dir.path(), &sampled(&[all, daily]));
    world.clock.advance(Duration::from_millis(10 * DAY_MS as u64));
    eventually("they are sampled again", || world.history.stats().sampled_out == 2);
    let served = world.serve().await;
    let room = served.get("/room1?attrs=t").await.json();
    assert_eq!((&room["t"][0]["value"], &room["t"][0]["averagedFrom"]["value"]), (&json!(59.5), &json!(120)));
    assert_eq!(room["t"].as_array().unwrap().len(), 1);
    served.stop().await;
    world.close();
}

/// A disk that counts opened files; while it is shut, threads that read for clients wait.
#[derive(Default)]
struct Watched {
    opened: AtomicU64,
    is_shut: Arc<AtomicBool>,
    waiting: Arc<AtomicU64>,
}

impl Files for Watched {
    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        SystemFiles.create_dir_all(dir)
    }
    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        SystemFiles.list(dir)
    }
    fn open(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        self.opened.fetch_add(1, Ordering::AcqRel);
        let file = SystemFiles.open(path)?;
        Ok(Arc::new(WatchedFile { file, is_shut: self.is_shut.clone(), waiting: self.waiting.clone() }))
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

struct WatchedFile {
    file: Arc<dyn File>,
    is_shut: Arc<AtomicBool>,
    waiting: Arc<AtomicU64>,
}

impl File for WatchedFile {
    fn read_at(&self, buf: &mut [u8], at: u64) -> io::Result<usize> {
        let is_for_client = std::thread::current().name().is_some_and(|name| name.starts_with("history-list"));
        if is_for_client && self.is_shut.load(Ordering::Acquire) {
            self.waiting.fetch_add(1, Ordering::AcqRel);
            while self.is_shut.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
        }
        self.file.read_at(buf, at)
    }
    fn write_at(&self, parts: &[IoSlice<'_>], at: u64) -> io::Result<()> {
        self.file.write_at(parts, at)
    }
    fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }
    fn size(&self) -> io::Result<u64> {
        self.file.size()
    }
    fn set_size(&self, bytes: u64) -> io::Result<()> {
        self.file.set_size(bytes)
    }
}

/// A read that started before a rewrite sees every point once, and its files stay on disk until it ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_that_has_begun_ends_with_the_files_that_it_began_with() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Arc::new(Watched::default());
    let world = World::open_on(dir.path(), &sampled(&[hourly("*", None)]), disk.clone());
    measure_six_hours(&world, "Room", "room1");
    world.flush();
    measure_six_hours(&world, "Room", "room2");
    world.flush();
    let served = world.serve().await;
    disk.is_shut.store(true, Ordering::Release);
    let read = served.get("?options=aggregatedValues&aggrMethods=totalCount");
    let meanwhile = async {
        while disk.waiting.load(Ordering::Acquire) == 0 {
            // The request runs on this task meanwhile.
            tokio::task::yield_now().await;
        }
        grow_old(&world, 60);
        assert_eq!(world.history.stats().files, 1);
        assert_eq!(world.files().len(), 3, "what is read stays");
        disk.is_shut.store(false, Ordering::Release);
    };
    let (answer, ()) = tokio::join!(read, meanwhile);
    let counts = |answer: &Value| [0, 1].map(|room| answer[room]["t"]["totalCount"][0][0].as_i64());
    assert_eq!(counts(&answer.json()), [Some(36), Some(36)]);
    let after = served.get("?options=aggregatedValues&aggrMethods=totalCount").await.json();
    assert_eq!(counts(&after), [Some(6), Some(6)]);
    served.stop().await;
    eventually("replaced files are removed", || world.files().len() == 1);
    world.close();
}

#[test]
fn sampled_files_are_read_again_only_if_a_rule_keeps_less() {
    if !files_have_no_copies() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    // Types are sampled in order, so rooms have been checked once a later type is sampled.
    let rules = |period_ms: i64| {
        let of_rooms = HistoryRule { sample_period_ms: Some(period_ms as u64), ..hourly("Room", None) };
        sampled(&[hourly("Zebra*", None), of_rooms])
    };
    let world = World::open(dir.path(), &rules(HOUR_MS));
    measure_six_hours(&world, "Room", "room1");
    world.flush();
    grow_old(&world, 30);
    world.close();
    let lives = [(HOUR_MS, 0, 0), (30 * MINUTE_MS, 0, 0), (3 * HOUR_MS, 1, 4), (HOUR_MS, 0, 0)];
    for (number, (period_ms, rooms_opened, left_out)) in lives.into_iter().enumerate() {
        let disk = Arc::new(Watched::default());
        let world = World::open_on(dir.path(), &rules(period_ms), disk.clone());
        for minute in 0..2 {
            let zebra = ("default", &*format!("Zebra{number}"), "z");
            world.change(zebra, "t", "1", NEW_YEAR_MS + minute * MINUTE_MS);
        }
        world.flush();
        grow_old(&world, left_out + 1);
        assert_eq!(disk.opened.load(Ordering::Acquire), rooms_opened + 1, "{period_ms}");
        world.close();
    }
}
