//! Reads of single records in random order, beside a loop of bare reads of as many bytes at random places of the same
//! files. Everything is in the page cache; nothing is in the log's own. One thread; no socket, no client.
//!
//! `cargo bench -p millstream-log --bench read_one`. For each size of batch: reads per second of CPU time of the thread,
//! best of three rounds, and their ratio.

#![allow(clippy::unwrap_used, reason = "a measurement that cannot go on panics")]

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use millstream_log::{AckLevel, Embedded, Log, LogConfig, Partition, SystemFiles, TopicConfig, UpTo, reply};
use millstream_testkit::sim::Rng;
use millstream_types::{Header, Offset, Record, SystemClock, TenantId, TopicName, TopicPartition};

const RECORDS: u64 = 60_000;
const READS: u32 = 200_000;
const ROUNDS: usize = 3;
const VALUE_BYTES: std::ops::RangeInclusive<u64> = 1_024..=5_120;

fn main() {
    println!(
        "{RECORDS} records of 1 to 5 KiB, {READS} random reads a round, best of {ROUNDS}, reads a second of CPU time"
    );
    println!("records a batch | read_one | bare pread | ratio | read, the whole block | bytes of a batch");
    for batch_records in [1, 4, 16] {
        measure(batch_records);
    }
}

fn measure(batch_records: u64) {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let clock = Arc::new(SystemClock::default());
    let config = LogConfig { dir: dir.path().join("log"), cache_bytes: 0, ..LogConfig::default() };
    let log = Embedded::open(config, Arc::new(SystemFiles), clock.clone(), clock).unwrap();
    let name = TopicName::user("values", &TenantId::default()).unwrap();
    let config = TopicConfig { partitions: 1, level: AckLevel::Written, retention: None, ..TopicConfig::default() };
    log.create_topic(&name, &config).unwrap();
    let partition = log.partition(&TopicPartition::new(name, 0)).unwrap();
    fill(&log, &*partition, batch_records);

    let files: Vec<_> = segments(dir.path()).iter().map(|path| fs::File::open(path).unwrap()).collect();
    let sizes: Vec<_> = files.iter().map(|file| file.metadata().unwrap().len()).collect();
    let batch_bytes = sizes.iter().sum::<u64>() / (RECORDS / batch_records);
    let (mut singly, mut bare, mut by_block) = (0.0_f64, 0.0_f64, 0.0_f64);
    // Meets every block, and brings the files into the page cache.
    (0..RECORDS).for_each(|offset| assert!(partition.read_one(Offset(offset), UpTo::Stable).unwrap().is_some()));
    for round in 0..ROUNDS as u64 {
        let (mut rng, mut read_bytes) = (Rng::new(round), 0);
        singly = singly.max(rate(READS, || {
            let record = partition.read_one(Offset(rng.below(RECORDS)), UpTo::Stable).unwrap().unwrap();
            read_bytes += record.value.unwrap().len();
        }));
        assert!(read_bytes > READS as usize * 1_024);
        let mut buffer = vec![0; *VALUE_BYTES.end() as usize + 200];
        bare = bare.max(rate(READS, || {
            let number = rng.below(files.len() as u64) as usize;
            let length = (VALUE_BYTES.start() + rng.below(VALUE_BYTES.end() - VALUE_BYTES.start())) as usize + 100;
            let at = rng.below(sizes[number] - length as u64);
            files[number].read_exact_at(&mut buffer[..length], at).unwrap();
        }));
        by_block = by_block.max(rate(READS / 20, || {
            assert!(!partition.read(Offset(rng.below(RECORDS)), 0, UpTo::Stable).unwrap().is_empty());
        }));
    }
    println!("{batch_records} | {singly:.0} | {bare:.0} | {:.2} | {by_block:.0} | {batch_bytes}", singly / bare);
    log.close().unwrap();
}

/// Appends [`RECORDS`] records in batches of `batch_records`, and brings them to segments.
fn fill(log: &Embedded, partition: &dyn Partition, batch_records: u64) {
    let (mut rng, value) = (Rng::new(1), vec![b'x'; *VALUE_BYTES.end() as usize]);
    for first in (0..RECORDS).step_by(batch_records as usize) {
        let keys: Vec<_> = (first..first + batch_records).map(|key| format!("key-{key:012}")).collect();
        let headers = [Header { key: "ms-crc", value: Some(b"1234") }];
        let record = |key| {
            let length = VALUE_BYTES.start() + rng.below(VALUE_BYTES.end() - VALUE_BYTES.start());
            let value = Some(&value[..length as usize]);
            Record { timestamp_ms: 1_700_000_000_000, key: Some(str::as_bytes(key)), value, headers: &headers }
        };
        let records: Vec<_> = keys.iter().map(String::as_str).map(record).collect();
        let (done, answer) = reply();
        partition.append(&records, AckLevel::Written, done).unwrap();
        // Waiting makes it a batch of its own.
        answer.wait().unwrap();
    }
    log.flush().unwrap();
    assert_eq!(partition.read_from_memory(Offset(RECORDS - 1), 0, UpTo::Stable).unwrap(), None);
}

fn segments(dir: &Path) -> Vec<PathBuf> {
    let (mut ahead, mut found) = (vec![dir.to_owned()], Vec::new());
    while let Some(dir) = ahead.pop() {
        for path in fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                ahead.push(path);
            } else if path.extension().is_some_and(|kind| kind == "segment")
                && fs::metadata(&path).unwrap().len() > 1 << 20
            {
                found.push(path);
            }
        }
    }
    found
}

/// Calls a second of CPU time of this thread.
fn rate(calls: u32, mut call: impl FnMut()) -> f64 {
    let before = cpu_time();
    (0..calls).for_each(|_| call());
    f64::from(calls) / (cpu_time() - before).as_secs_f64()
}

fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
