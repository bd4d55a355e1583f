//! Reads and writes of 64-byte values in a cache bucket, beside `quick_cache` of the same number of bytes.
//!
//! `cargo bench -p millstream-store --bench cache`. Keys of 16 bytes, chosen at random, evenly; no socket, no client. A read
//! brings the value as shared bytes; a write copies key and value out of a buffer, as a connection must. With *all fit*
//! each write replaces a value; with *evicts* the keys are twice as many as fit, so that each second write evicts. For
//! each case: millions of operations a second of all threads together, and nanoseconds of CPU time of each; the best of
//! the rounds, in which the caches take turns.

#![allow(clippy::unwrap_used, reason = "a measurement that cannot go on panics")]

use std::hint::black_box;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use millstream_store::{Cache, CacheConfig, EvictionPolicy, Value};
use millstream_types::SystemClock;
use quick_cache::Weighter;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Few enough for the processor's caches, and too many.
const KEYS: [u64; 2] = [10_000, 200_000];
const VALUE: [u8; 64] = [b'x'; 64];
const OPERATIONS: u64 = 1_000_000;
const ROUNDS: usize = 3;
const ALL_FIT_BYTES: u64 = 128 << 20;

fn main() {
    println!("keys of 16 bytes, values of 64, {OPERATIONS} operations a thread and round, best of {ROUNDS}");
    println!("case | keys | threads | cache | M operations/s | ns of CPU each");
    for keys in KEYS {
        let half_bytes = bytes_of(keys / 2);
        for threads in [1, 2] {
            let all_fit = Case { keys, threads, max_bytes: ALL_FIT_BYTES };
            all_fit.measure("read, all fit", |cache, key| cache.read(key));
            all_fit.measure("write, all fit", |cache, key| cache.write(key));
            Case { max_bytes: half_bytes, ..all_fit }.measure("write, evicts", |cache, key| cache.write(key));
        }
    }
}

/// A budget that so many keys fill in our cache.
fn bytes_of(keys: u64) -> u64 {
    let cache = ours(EvictionPolicy::AllkeysLru, ALL_FIT_BYTES);
    (0..keys).for_each(|n| cache.write(&key(n)));
    cache.0.held_bytes()
}

trait Subject: Send + Sync {
    fn name(&self) -> &'static str;
    fn read(&self, key: &[u8]);
    fn write(&self, key: &[u8]);
}

struct Ours(Cache);

fn ours(policy: EvictionPolicy, max_bytes: u64) -> Ours {
    let config = CacheConfig { policy, max_bytes, ..CacheConfig::default() };
    Ours(Cache::new(&config, Arc::new(SystemClock::default())).unwrap())
}

impl Subject for Ours {
    fn name(&self) -> &'static str {
        self.0.policy().as_str()
    }

    fn read(&self, key: &[u8]) {
        assert!(black_box(self.0.get(key)).is_some());
    }

    fn write(&self, key: &[u8]) {
        // The buffer is the connection's: the cache copies out of it.
        let value = Value::of(&VALUE[..]);
        self.0.transact(&[key], |keys| keys.put(key, value)).unwrap();
    }
}

#[derive(Clone)]
struct Bytes;

impl Weighter<Box<[u8]>, Arc<[u8]>> for Bytes {
    fn weight(&self, key: &Box<[u8]>, value: &Arc<[u8]>) -> u64 {
        // What an item of ours takes: its block of 96 bytes, its slot of 64, and its part of the index.
        (key.len() + value.len() + 96) as u64
    }
}

struct QuickCache(quick_cache::sync::Cache<Box<[u8]>, Arc<[u8]>, Bytes>);

fn quick_cache(keys: u64, max_bytes: u64) -> QuickCache {
    QuickCache(quick_cache::sync::Cache::with_weighter(keys as usize, max_bytes, Bytes))
}

impl Subject for QuickCache {
    fn name(&self) -> &'static str {
        "quick_cache"
    }

    fn read(&self, key: &[u8]) {
        assert!(black_box(self.0.get(key)).is_some());
    }

    fn write(&self, key: &[u8]) {
        self.0.insert(key.into(), VALUE[..].into());
    }
}

fn key(n: u64) -> [u8; 16] {
    let mut key = *b"key:............";
    let mut left = n;
    for digit in key[4..].iter_mut().rev() {
        *digit = b'0' + (left % 10) as u8;
        left /= 10;
    }
    key
}

type Operation = fn(&dyn Subject, &[u8]);

#[derive(Clone, Copy)]
struct Case {
    keys: u64,
    threads: usize,
    max_bytes: u64,
}

impl Case {
    fn measure(self, name: &str, operation: Operation) {
        let Self { keys, threads, max_bytes } = self;
        let subjects: [Box<dyn Subject>; 3] = [
            Box::new(ours(EvictionPolicy::AllkeysLru, max_bytes)),
            Box::new(ours(EvictionPolicy::Slru, max_bytes)),
            Box::new(quick_cache(keys, max_bytes)),
        ];
        let mut best = [(Duration::MAX, Duration::MAX); 3];
        for subject in &subjects {
            (0..keys).for_each(|n| subject.write(&key(n)));
        }
        for round in 0..ROUNDS {
            for (subject, best) in subjects.iter().zip(&mut best) {
                let (wall, cpu) = self.run(&**subject, round as u64, operation);
                *best = (best.0.min(wall), best.1.min(cpu));
            }
        }
        for (subject, (wall, cpu)) in subjects.iter().zip(best) {
            let rate = OPERATIONS as f64 * threads as f64 / wall.as_secs_f64() / 1e6;
            let cpu = cpu.as_nanos() as f64 / OPERATIONS as f64;
            println!("{name} | {keys} | {threads} | {} | {rate:.2} | {cpu:.0}", subject.name());
        }
    }

    /// The time from the first thread's start to the last one's end, and the least CPU time of a thread.
    fn run(self, subject: &dyn Subject, seed: u64, operation: Operation) -> (Duration, Duration) {
        let barrier = Barrier::new(self.threads);
        let timed = |thread: usize| {
            let mut rng = fastrand::Rng::with_seed(seed * 10 + thread as u64);
            let keys: Vec<_> = (0..OPERATIONS).map(|_| key(rng.u64(..self.keys))).collect();
            barrier.wait();
            let (start, cpu) = (Instant::now(), cpu_time());
            keys.iter().for_each(|key| operation(subject, key));
            (start, Instant::now(), cpu_time() - cpu)
        };
        let timed = &timed;
        let times: Vec<_> = thread::scope(|scope| {
            let threads: Vec<_> = (0..self.threads).map(|thread| scope.spawn(move || timed(thread))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let start = times.iter().map(|times| times.0).min().unwrap();
        let end = times.iter().map(|times| times.1).max().unwrap();
        (end - start, times.iter().map(|times| times.2).min().unwrap())
    }
}

/// CPU time of this thread.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
