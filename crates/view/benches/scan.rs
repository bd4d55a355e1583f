//! Costs of a scan of all keys for clients that update single ones, gains of many updates at once, and the time of a
//! restart. The library alone, on a real disk: no sockets. `--quick` for a look; `scan`, `many` or `restart` for a
//! part.
#![allow(clippy::unwrap_used, reason = "a bench fails by panicking")]

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use imbl::OrdMap;
use millstream_log::{Embedded, LogConfig, SystemFiles};
use millstream_types::{SystemClock, TopicName};
use millstream_view::{
    Answer, Checkpoints, DecodeError, Draft, Encoded, InState, Shards, View, ViewRuntime, Views, ViewsConfig,
};

const SLICE: Duration = Duration::from_millis(250);

/// Counts by key. A command is the key whose count goes up by one; the answer is its new count.
struct Counters;

impl View for Counters {
    type State = OrdMap<String, i64>;
    type Storage = InState;
    type Change = (String, i64);
    type Command = String;
    type Answer = i64;
    const NAME: &'static str = "counters";

    fn decide(&self, draft: &mut Draft<'_, Self>, key: String) -> i64 {
        let count = draft.state().get(&key).copied().unwrap_or_default() + 1;
        draft.change((key, count));
        count
    }

    fn owned_bytes(key: &String) -> usize {
        key.len()
    }

    fn apply(state: &mut Self::State, (key, count): &Self::Change) {
        state.insert(key.clone(), *count);
    }

    fn encode((name, count): &Self::Change, key: &mut Vec<u8>, value: &mut Vec<u8>) -> Encoded {
        key.extend_from_slice(name.as_bytes());
        value.extend_from_slice(&count.to_be_bytes());
        Encoded::Value
    }

    fn decode(key: &[u8], value: Option<&[u8]>) -> Result<Self::Change, DecodeError> {
        let count = value.and_then(|value| value.try_into().ok()).ok_or_else(|| DecodeError::new("no count"))?;
        Ok((String::from_utf8_lossy(key).into_owned(), i64::from_be_bytes(count)))
    }
}

/// The log and what views need beside it.
struct World {
    log: Arc<Embedded>,
    runtime: ViewRuntime,
}

impl World {
    fn open(dir: &Path) -> Self {
        let clock = Arc::new(SystemClock::default());
        let config = LogConfig { dir: dir.join("log"), ..LogConfig::default() };
        let log = Embedded::open(config, Arc::new(SystemFiles), clock.clone(), clock.clone()).unwrap();
        let runtime = ViewRuntime {
            log: log.clone(),
            checkpoints: Checkpoints::open(&dir.join("views")).unwrap(),
            shards: Shards::start(2).unwrap(),
            wall: clock,
        };
        Self { log, runtime }
    }

    fn counters(&self) -> Arc<Views<Counters>> {
        let config = ViewsConfig { partitions: 4, ..ViewsConfig::default() };
        Views::open(Counters, &TopicName::internal("_millstream-counters"), &config, &self.runtime).unwrap()
    }

    fn close(self, views: Arc<Views<Counters>>) {
        views.stop();
        drop(views);
        self.log.close().unwrap();
        self.runtime.shards.join();
    }
}

/// Adds one to the count of a key.
fn submit(views: &Views<Counters>, key: String) -> Answer<Counters> {
    views.submit(views.partition_of(key.as_bytes()), key).unwrap()
}

/// Adds one to the count of a key and waits for the answer.
fn add(views: &Views<Counters>, key: String) {
    submit(views, key).blocking_recv().unwrap().unwrap();
}

fn told(mut times: Vec<Duration>) -> String {
    times.sort_unstable();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e3;
    format!("p50 {:.3}  p99 {:.3}  p99.9 {:.3}  max {:.3} ms", at(0.5), at(0.99), at(0.999), at(1.0))
}

fn key(number: u64) -> String {
    format!("urn:ngsi-ld:Device:{number:08}")
}

/// CPU seconds of this process so far.
fn cpu() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |index: usize| fields.get(index).and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0);
    (ticks(11) + ticks(12)) / 100.0
}

/// Adds to keys one after another or at random, with `in_flight` answers outstanding.
fn fill(views: &Views<Counters>, keys: u64, commands: u64, in_flight: usize) {
    let mut flights = VecDeque::with_capacity(in_flight);
    for number in 0..commands {
        if flights.len() == in_flight {
            let oldest: Answer<Counters> = flights.pop_front().unwrap();
            oldest.blocking_recv().unwrap().unwrap();
        }
        flights.push_back(submit(views, key(number.wrapping_mul(2_654_435_761) % keys)));
    }
    flights.into_iter().for_each(|flight| assert!(flight.blocking_recv().unwrap().unwrap() > 0));
}

/// Single updates, each waiting for its answer.
fn update(views: &Views<Counters>, keys: u64, length: Duration) -> Vec<Duration> {
    let started = Instant::now();
    let mut times = Vec::new();
    while started.elapsed() < length {
        let key = key((times.len() as u64).wrapping_mul(2_654_435_761) % keys);
        let asked = Instant::now();
        add(views, key);
        times.push(asked.elapsed());
    }
    times
}

fn scan(views: &Views<Counters>) -> (usize, i64) {
    let snapshots = views.snapshots();
    let all = snapshots.iter().flat_map(|snapshot| snapshot.state.iter());
    all.fold((0, 0), |(keys, sum), (key, count)| (keys + usize::from(!key.is_empty()), sum + count))
}

/// Updates for a slice, while another thread does `work` again and again.
fn beside(views: &Views<Counters>, keys: u64, work: impl Fn() + Sync) -> Vec<Duration> {
    let stop = AtomicBool::new(false);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                work();
            }
        });
        let times = update(views, keys, SLICE);
        stop.store(true, Ordering::Relaxed);
        times
    })
}

/// Slices alone, beside a scan and beside a thread that only spins take turns, so that what else the machine does falls
/// on all of them. What a spinning thread costs is the processor's time; what a scan costs beyond it would be ours.
fn scans_beside_updates(views: &Views<Counters>, keys: u64, rounds: u64, slices: u64) {
    println!("\nSingle updates of {keys} keys over 4 partitions, closed loop, one thread, synced");
    for round in 1..=rounds {
        let mut times = [Vec::new(), Vec::new(), Vec::new()];
        let scans = AtomicU64::new(0);
        for _ in 0..slices {
            times[0].extend(update(views, keys, SLICE));
            times[1].extend(beside(views, keys, || {
                assert_eq!(scan(views).0 as u64, keys);
                scans.fetch_add(1, Ordering::Relaxed);
            }));
            times[2].extend(beside(views, keys, std::hint::spin_loop));
        }
        let per_s = scans.load(Ordering::Relaxed) as f64 / (SLICE * slices as u32).as_secs_f64();
        println!("round {round}, {per_s:.0} scans/s");
        for (what, times) in ["alone", "beside a scan", "beside a spinning thread"].into_iter().zip(times) {
            println!("  {what:<25} {:>6} updates  {}", times.len(), told(times));
        }
    }
}

fn many_at_once(views: &Views<Counters>, keys: u64, commands: u64) {
    println!("\nMany updates at once, one client thread, synced");
    for in_flight in [64, 256, 1_024, 4_096] {
        let (started, cpu_before) = (Instant::now(), cpu());
        fill(views, keys, commands, in_flight);
        let (wall, cpu) = (started.elapsed().as_secs_f64(), cpu() - cpu_before);
        println!(
            "{in_flight:>5} in flight: {:>8.0} updates/s, {:>8.0} per CPU second",
            commands as f64 / wall,
            commands as f64 / cpu
        );
    }
}

fn restarts(dir: &Path, keys: u64) {
    println!("\nOpening the view over {keys} keys");
    for (from, checkpoint) in [("its checkpoint", true), ("the log alone", false)] {
        if !checkpoint {
            std::fs::remove_dir_all(dir.join("views")).unwrap();
        }
        let started = Instant::now();
        let world = World::open(dir);
        let opened = started.elapsed();
        let views = world.counters();
        println!("from {from}: {:.2} s (log and store {:.2} s)", started.elapsed().as_secs_f64(), opened.as_secs_f64());
        assert_eq!(scan(&views).0 as u64, keys);
        let asked = Instant::now();
        add(&views, key(0));
        println!("  its first update: {:.1} ms", asked.elapsed().as_secs_f64() * 1e3);
        world.close(views);
    }
}

/// Adds to each key once.
fn make(views: &Views<Counters>, keys: u64) {
    let started = Instant::now();
    for numbers in (0..keys).collect::<Vec<_>>().chunks(4_096) {
        let asked: Vec<_> = numbers.iter().map(|number| submit(views, key(*number))).collect();
        asked.into_iter().for_each(|answer| assert_eq!(answer.blocking_recv().unwrap().unwrap(), 1));
    }
    println!("\n{keys} keys made in {:.2} s", started.elapsed().as_secs_f64());
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let quick = args.iter().any(|arg| arg == "--quick");
    let wants = |part: &str| args.iter().all(|arg| arg == "--quick") || args.iter().any(|arg| arg == part);
    if wants("scan") || wants("many") {
        let dir = tempfile::tempdir().unwrap();
        let (world, keys) = (World::open(dir.path()), 100_000);
        let views = world.counters();
        make(&views, keys);
        if wants("scan") {
            scans_beside_updates(&views, keys, if quick { 2 } else { 3 }, if quick { 4 } else { 20 });
        }
        if wants("many") {
            many_at_once(&views, keys, if quick { 200_000 } else { 1_000_000 });
        }
        world.close(views);
    }
    if wants("restart") {
        let dir = tempfile::tempdir().unwrap();
        let (world, keys) = (World::open(dir.path()), if quick { 100_000 } else { 1_000_000 });
        let views = world.counters();
        make(&views, keys);
        world.close(views);
        restarts(dir.path(), keys);
    }
}
