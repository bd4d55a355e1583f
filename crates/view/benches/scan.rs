//! Costs of a scan of all keys for clients that update single ones, gains of many updates at once, and the time of a
//! restart. The library alone, on a real disk: no sockets. `--quick` for a look; `scan`, `many` or `restart` for a
//! part.
#![allow(clippy::unwrap_used, reason = "a bench fails by panicking")]

#[path = "../tests/view/common/mod.rs"]
#[allow(dead_code, reason = "the tests use more of it")]
mod common;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::{Answer, Command, Shelf, World, add, submit};
use millstream_view::Views;

const SLICE: Duration = Duration::from_millis(250);

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
fn fill(views: &Views<Shelf>, keys: u64, commands: u64, in_flight: usize) {
    let mut flights = VecDeque::with_capacity(in_flight);
    for number in 0..commands {
        if flights.len() == in_flight {
            let oldest: millstream_view::Answer<Shelf> = flights.pop_front().unwrap();
            oldest.blocking_recv().unwrap().unwrap();
        }
        let name = key(number.wrapping_mul(2_654_435_761) % keys);
        flights.push_back(submit(views, Command::Add { name, pieces: 1 }).unwrap());
    }
    flights.into_iter().for_each(|flight| assert_ne!(flight.blocking_recv().unwrap().unwrap(), Answer::Gone));
}

/// Single updates, each waiting for its answer.
fn update(views: &Views<Shelf>, keys: u64, length: Duration) -> Vec<Duration> {
    let started = Instant::now();
    let mut times = Vec::new();
    while started.elapsed() < length {
        let name = key((times.len() as u64).wrapping_mul(2_654_435_761) % keys);
        let asked = Instant::now();
        add(views, &name, 1);
        times.push(asked.elapsed());
    }
    times
}

fn scan(views: &Views<Shelf>) -> (usize, i64) {
    let snapshots = views.snapshots();
    let all = snapshots.iter().flat_map(|snapshot| snapshot.state.iter());
    all.fold((0, 0), |(count, sum), (name, pieces)| (count + usize::from(!name.is_empty()), sum + pieces))
}

/// Updates for a slice, while another thread does `work` again and again.
fn beside(views: &Views<Shelf>, keys: u64, work: impl Fn() + Sync) -> Vec<Duration> {
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
fn scans_beside_updates(views: &Views<Shelf>, keys: u64, rounds: u64, slices: u64) {
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

fn many_at_once(views: &Views<Shelf>, keys: u64, commands: u64) {
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

fn restarts(dir: &std::path::Path, keys: u64) {
    println!("\nOpening the view over {keys} keys");
    for (from, checkpoint) in [("its checkpoint", true), ("the log alone", false)] {
        if !checkpoint {
            std::fs::remove_dir_all(dir.join("views")).unwrap();
        }
        let started = Instant::now();
        let world = World::open(dir);
        let opened = started.elapsed();
        let views = world.shelf();
        println!("from {from}: {:.2} s (log and store {:.2} s)", started.elapsed().as_secs_f64(), opened.as_secs_f64());
        assert_eq!(scan(&views).0 as u64, keys);
        let asked = Instant::now();
        add(&views, &key(0), 1);
        println!("  its first update: {:.1} ms", asked.elapsed().as_secs_f64() * 1e3);
        world.close(views);
    }
}

/// Adds to each key once.
fn make(views: &Views<Shelf>, keys: u64) {
    let started = Instant::now();
    for numbers in (0..keys).collect::<Vec<_>>().chunks(4_096) {
        let asked: Vec<_> =
            numbers.iter().map(|n| submit(views, Command::Add { name: key(*n), pieces: 1 }).unwrap()).collect();
        asked.into_iter().for_each(|answer| assert_ne!(answer.blocking_recv().unwrap().unwrap(), Answer::Gone));
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
        let views = world.shelf();
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
        let views = world.shelf();
        make(&views, keys);
        world.close(views);
        restarts(dir.path(), keys);
    }
}
