//! Time of one `synced` append while 2,000 partitions get one each, every second.
//!
//! Open loop: append number n is due n/2,000 s after the start, and its latency counts from then on, whenever it was
//! really sent. Beside it stands what the file system asks for one sync of a file that is overwritten, alone.
#![allow(clippy::unwrap_used, reason = "a measurement fails by panicking")]

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use millstream_log::{AckLevel, Done, Embedded, Log, LogConfig, LogFigures, Partition, SystemFiles, TopicConfig};
use millstream_types::{Record, SystemClock, TenantId, TopicName, TopicPartition};

const TOPICS: usize = 20;
const PARTITIONS: u32 = 100;
const PER_SECOND: usize = TOPICS * PARTITIONS as usize;
const RECORD_BYTES: usize = 100;
const SECONDS: usize = 30;
/// Before it is measured: every partition has its segment, the journal its files.
const WARM_UP_SECONDS: usize = 5;

fn main() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    report("one sync, alone", &mut bare_syncs(dir.path()));
    let clock = Arc::new(SystemClock::default());
    let config = LogConfig { dir: dir.path().join("log"), ..LogConfig::default() };
    let log = Embedded::open(config, Arc::new(SystemFiles), clock.clone(), clock).unwrap();
    let partitions = partitions(&*log);

    let latencies = trickle(&partitions);
    let (warm_up, measured) = latencies.split_at(WARM_UP_SECONDS * PER_SECOND);
    report("warm-up", &mut warm_up.to_vec());
    report("synced appends", &mut measured.to_vec());
    let p99 = |second: &[u64]| {
        let mut second = second.to_vec();
        second.sort_unstable();
        format!("{:.1}", second[second.len() * 99 / 100] as f64 / 1_000.0)
    };
    let by_second: Vec<_> = measured.chunks(PER_SECOND).map(p99).collect();
    println!("p99 of each second, ms: {}", by_second.join(" "));
    let stats = log.stats();
    println!(
        "{} syncs of the journal, {:.2} ms each",
        stats.syncs,
        stats.sync_us as f64 / stats.syncs as f64 / 1_000.0
    );
    let started = Instant::now();
    log.close().unwrap();
    println!("closed in {:.2} s", started.elapsed().as_secs_f64());
}

/// Measures the time to overwrite 4 KiB of a file and sync it, in microseconds.
fn bare_syncs(dir: &Path) -> Vec<u64> {
    let file = std::fs::File::options().create_new(true).write(true).open(dir.join("bare")).unwrap();
    file.write_all_at(&vec![0; 1 << 20], 0).unwrap();
    file.sync_all().unwrap();
    let sync = |n: u64| {
        let started = Instant::now();
        file.write_all_at(&[1; 4 << 10], n % 256 * (4 << 10)).unwrap();
        file.sync_data().unwrap();
        started.elapsed().as_micros() as u64
    };
    (0..2_000).map(sync).collect()
}

fn partitions(log: &dyn Log) -> Vec<Arc<dyn Partition>> {
    let config = TopicConfig { partitions: PARTITIONS, level: AckLevel::Synced, ..TopicConfig::default() };
    let topics = (0..TOPICS).map(|n| TopicName::user(&format!("topic-{n}"), &TenantId::default()).unwrap());
    let topics: Vec<_> = topics.inspect(|name| drop(log.create_topic(name, &config).unwrap())).collect();
    let all = topics.iter().flat_map(|name| (0..PARTITIONS).map(|n| TopicPartition::new(name.clone(), n)));
    all.map(|partition| log.partition(&partition).unwrap()).collect()
}

/// Latencies in the order of the appends, in microseconds.
fn trickle(partitions: &[Arc<dyn Partition>]) -> Vec<u64> {
    let count = (WARM_UP_SECONDS + SECONDS) * PER_SECOND;
    let latencies: Arc<[AtomicU64]> = (0..count).map(|_| AtomicU64::new(0)).collect();
    let answered = Arc::new(AtomicU64::new(0));
    let value = [b'x'; RECORD_BYTES];
    let started = Instant::now();
    for n in 0..count {
        let due = Duration::from_secs(1) * n as u32 / PER_SECOND as u32;
        std::thread::sleep(due.saturating_sub(started.elapsed()));
        let (latencies, answered) = (latencies.clone(), answered.clone());
        let done = Done::call(move |result| {
            result.unwrap();
            latencies[n].store((started.elapsed() - due).as_micros() as u64, Ordering::Relaxed);
            answered.fetch_add(1, Ordering::Release);
        });
        let record = Record { value: Some(&value), ..Record::default() };
        partitions[n % partitions.len()].append(&[record], AckLevel::Synced, done).unwrap();
    }
    while answered.load(Ordering::Acquire) < count as u64 {
        std::thread::sleep(Duration::from_millis(1));
    }
    latencies.iter().map(|latency| latency.load(Ordering::Relaxed)).collect()
}

fn report(what: &str, latencies: &mut [u64]) {
    latencies.sort_unstable();
    let at = |quantile: f64| latencies[((latencies.len() - 1) as f64 * quantile) as usize] as f64 / 1_000.0;
    println!(
        "{what:>16}: {} in all, p50 {:.2} ms, p90 {:.2} ms, p99 {:.2} ms, p99.9 {:.2} ms, max {:.2} ms",
        latencies.len(),
        at(0.5),
        at(0.9),
        at(0.99),
        at(0.999),
        at(1.0)
    );
}
