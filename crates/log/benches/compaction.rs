//! A kernel, not a system: passes of compaction over one partition on the system's disk, and what they cost those who
//! append meanwhile. Keys of 12 bytes, values of 100; no socket, no client.
//!
//! `cargo bench -p millstream-log --bench compaction`. Figures depend on the disk below the build directory.

#![allow(clippy::unwrap_used, reason = "a measurement that cannot go on panics")]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use millstream_log::{
    AckLevel, Cleanup, Done, Embedded, Error, Hold, Log, LogConfig, LogFigures, Partition, SystemFiles, TopicConfig,
    reply,
};
use millstream_types::{Offset, Record, SystemClock, TenantId, TopicName, TopicPartition};

const APPEND_RECORDS: u64 = 1_000;
const VALUE: [u8; 100] = [b'x'; 100];
/// Nothing has changed for so long after a pass: all are over.
const REST: Duration = Duration::from_secs(4);
/// The first pass, which reads all there is at its pace, is over by then.
const PATIENCE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(10);

struct Bench {
    log: Arc<Embedded>,
    state: Arc<dyn Partition>,
    events: Arc<dyn Partition>,
    hold: Option<Box<dyn Hold>>,
    _dir: tempfile::TempDir,
}

/// The figures of a measured pass, or of several.
struct Passes {
    took: Duration,
    count: u32,
    bytes_before: u64,
    bytes_after: u64,
    memory_bytes: u64,
}

impl Bench {
    /// A compacted partition with every key written so often, held until somebody lets compaction go.
    fn filled(keys: u64, updates: u64, bytes_per_second: u64) -> Self {
        let dir = tempfile::tempdir_in(Path::new(env!("CARGO_TARGET_TMPDIR"))).unwrap();
        let clock = Arc::new(SystemClock::default());
        let config = LogConfig {
            dir: dir.path().join("log"),
            compaction_bytes_per_second: bytes_per_second,
            ..LogConfig::default()
        };
        let log = Embedded::open(config, Arc::new(SystemFiles), clock.clone(), clock).unwrap();
        let one = TopicConfig { partitions: 1, retention: None, ..TopicConfig::default() };
        let compacted = TopicConfig { cleanup: Cleanup::Compact, segment_bytes: 8 << 20, ..one.clone() };
        let (state, events) = (create(&log, "state", &compacted), create(&log, "events", &one));
        let hold = Some(state.hold("bench", Offset::ZERO));
        for update in 0..updates {
            for first in (0..keys).step_by(APPEND_RECORDS as usize) {
                fill(&*state, first..keys.min(first + APPEND_RECORDS), update);
            }
        }
        log.flush().unwrap();
        Self { log, state, events, hold, _dir: dir }
    }

    fn segment_bytes(&self) -> u64 {
        self.log.stats().partitions.iter().find(|at| at.partition == *self.state.id()).unwrap().segment_bytes
    }

    /// Lets compaction go, and waits until it rests.
    fn compact(&mut self) -> Passes {
        let (bytes_before, resident_before) = (self.segment_bytes(), resident_bytes());
        let mut passes =
            Passes { took: Duration::ZERO, count: 0, bytes_before, bytes_after: bytes_before, memory_bytes: 0 };
        drop(self.hold.take());
        let start = Instant::now();
        self.log.flush().unwrap();
        while passes.count == 0 || start.elapsed() - passes.took < REST {
            assert!(start.elapsed() < PATIENCE || passes.count > 0, "nothing was compacted for {PATIENCE:?}");
            thread::sleep(POLL);
            passes.memory_bytes = passes.memory_bytes.max(resident_bytes().saturating_sub(resident_before));
            let now = self.segment_bytes();
            if now != passes.bytes_after {
                passes.count += 1;
                passes.took = start.elapsed();
                passes.bytes_after = now;
            }
        }
        passes
    }

    /// Latencies of `synced` appends of one record, one after the other, until it is told to end.
    fn append_until(&self, over: &AtomicBool) -> Vec<Duration> {
        let mut latencies = Vec::new();
        while !over.load(Ordering::Acquire) {
            let start = Instant::now();
            let (done, answer) = reply();
            let record = Record { value: Some(&VALUE), ..Record::default() };
            self.events.append(&[record], AckLevel::Synced, done).unwrap();
            answer.wait().unwrap();
            latencies.push(start.elapsed());
        }
        latencies
    }
}

fn create(log: &Embedded, topic: &str, config: &TopicConfig) -> Arc<dyn Partition> {
    let name = TopicName::user(topic, &TenantId::default()).unwrap();
    log.create_topic(&name, config).unwrap();
    log.partition(&TopicPartition::new(name, 0)).unwrap()
}

fn fill(partition: &dyn Partition, keys: std::ops::Range<u64>, update: u64) {
    let keys: Vec<String> = keys.map(|key| format!("key-{key:08}")).collect();
    let timestamp_ms = update as i64;
    let keyed = keys.iter().map(|key| Some(key.as_bytes()));
    let records: Vec<_> =
        keyed.map(|key| Record { timestamp_ms, key, value: Some(&VALUE), ..Record::default() }).collect();
    while let Err(error) = partition.append(&records, AckLevel::Memory, Done::ignore()) {
        assert!(matches!(error, Error::Overloaded { .. } | Error::TooManyUnsynced { .. }), "{error}");
        thread::sleep(POLL);
    }
}

/// Returns the resident memory of the process, in bytes.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

fn report(what: &str, passes: &Passes) {
    println!(
        "{what:<40} {:>2} passes in {:>6.2} s: {:>6.1} -> {:>6.1} MiB, {:>6.1} MiB/s, memory + {:.1} MiB",
        passes.count,
        passes.took.as_secs_f64(),
        mib(passes.bytes_before),
        mib(passes.bytes_after),
        mib(passes.bytes_before) / passes.took.as_secs_f64(),
        mib(passes.memory_bytes),
    );
}

fn report_latencies(what: &str, mut latencies: Vec<Duration>) {
    latencies.sort_unstable();
    let at = |percent: usize| latencies[(latencies.len() - 1) * percent / 100].as_secs_f64() * 1e3;
    println!("{what:<40} {:>6} appends, p50 {:.2} ms, p99 {:.2} ms", latencies.len(), at(50), at(99));
}

fn main() {
    let (paced, unpaced) = (LogConfig::default().compaction_bytes_per_second, 1 << 40);
    report("100,000 keys x 10, at full speed", &Bench::filled(100_000, 10, unpaced).compact());
    report("100,000 keys x 10", &Bench::filled(100_000, 10, paced).compact());
    report("1,000,000 keys x 2, at full speed", &Bench::filled(1_000_000, 2, unpaced).compact());
    for _ in 0..3 {
        let mut bench = Bench::filled(1_000_000, 2, paced);
        let over = AtomicBool::new(false);
        let quiet = thread::scope(|threads| {
            let appends = threads.spawn(|| bench.append_until(&over));
            thread::sleep(2 * REST);
            over.store(true, Ordering::Release);
            appends.join().unwrap()
        });
        report_latencies("synced appends of 100 bytes, no pass", quiet);
        let beside = beside_passes(&mut bench);
        report_latencies("the same beside passes", beside);
    }
}

/// Latencies while passes run over what the bench holds.
fn beside_passes(bench: &mut Bench) -> Vec<Duration> {
    let hold = bench.hold.take();
    let over = AtomicBool::new(false);
    let before = bench.segment_bytes();
    thread::scope(|threads| {
        let appends = threads.spawn(|| bench.append_until(&over));
        drop(hold);
        let (start, mut last, mut changed) = (Instant::now(), before, Duration::ZERO);
        while changed.is_zero() || start.elapsed() - changed < REST {
            thread::sleep(POLL);
            let now = bench.segment_bytes();
            if now != last {
                (last, changed) = (now, start.elapsed());
            }
        }
        over.store(true, Ordering::Release);
        let mut latencies = appends.join().unwrap();
        // Those of the rest at the end do not count.
        let mut sum = Duration::ZERO;
        let within = latencies.iter().take_while(|latency| {
            sum += **latency;
            sum < changed
        });
        let within = within.count();
        latencies.truncate(within);
        println!("{:<40} passes took {:.1} s", "", changed.as_secs_f64());
        latencies
    })
}
