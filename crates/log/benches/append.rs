//! Records a second into the embedded engine, beside a bare loop that writes as many bytes with as many syncs to files
//! written before: `cargo bench -p millstream-log --bench append`.
//!
//! One thread appends, round robin over the partitions of one topic, and keeps a bounded number of appends unanswered.
//! The bare loop writes groups of the size that the engine synced; the last column also writes to as many files as there
//! are partitions what the engine had brought to segments by then. One thread, no queue, no checksum, nobody to answer.
//!
//! One run on a shared 2-core machine with a cloud disk (other programs kept about one core busy), default configuration,
//! 8 partitions; 256 MiB of 100-byte values, 512 MiB of 1 KiB values, 16 MiB of single records, 1 GiB into memory:
//!
//! | topic | level | record | append of | in flight | records/s | MiB/s | syncs | of the bare journal | and segments |
//! | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |
//! | memory | Memory | 100 B | 1000 | 1 | 14323177 | 1503 | 0 | – | – |
//! | memory | Memory | 100 B | 1 | 1 | 7011274 | 731 | 0 | – | – |
//! | memory | Memory | 1024 B | 100 | 1 | 1969818 | 1936 | 0 | – | – |
//! | disk | Memory | 100 B | 1000 | 64 | 2275664 | 237 | 15 | – | – |
//! | disk | Memory | 1024 B | 100 | 64 | 394039 | 386 | 31 | – | – |
//! | disk | Memory | 100 B | 1 | 1000 | 7296797 | 704 | 0 | – | – |
//! | disk | Written | 100 B | 1000 | 64 | 6131362 | 643 | 19 | – | – |
//! | disk | Written | 1024 B | 100 | 64 | 520504 | 513 | 38 | – | – |
//! | disk | Written | 100 B | 1 | 1000 | 1323140 | 149 | 2 | – | – |
//! | disk | Synced | 100 B | 1000 | 64 | 5977114 | 627 | 168 | 0.39 | 1.34 |
//! | disk | Synced | 1024 B | 100 | 64 | 679581 | 670 | 242 | 0.38 | 1.98 |
//! | disk | Synced | 100 B | 1 | 1000 | 1272792 | 134 | 555 | 0.63 | 0.64 |
//! | disk | Synced | 100 B | 1 | 1 | 4835 | 1 | 1000 | 0.57 | 0.59 |

#![allow(clippy::unwrap_used, reason = "a measurement that cannot go on ends")]

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use millstream_log::{AckLevel, Done, Embedded, Error, Log, LogConfig, Partition, Storage, SystemFiles, TopicConfig};
use millstream_types::{Record, SystemClock, TenantId, TopicName, TopicPartition};

const PARTITIONS: u32 = 8;
const BARE_FILE_BYTES: usize = 16 << 20;
/// The engine brings records to segments when half of its journal, 64 MiB, is used.
const BARE_FLUSH_BYTES: u64 = 64 << 20;

/// What is appended, and how.
struct Case {
    storage: Storage,
    level: AckLevel,
    value_bytes: usize,
    /// Records in one append.
    records: usize,
    /// Appends that may be unanswered.
    in_flight: usize,
    /// Bytes of values to append in all.
    total_bytes: usize,
}

/// What came of it.
struct Outcome {
    took: Duration,
    records: usize,
    bytes: u64,
    syncs: u64,
    segment_bytes: u64,
}

impl Case {
    fn run(&self, dir: &Path) -> Outcome {
        let clock = Arc::new(SystemClock::default());
        let config = LogConfig { dir: dir.join("log"), ..LogConfig::default() };
        let log = Embedded::open(config, Arc::new(SystemFiles), clock.clone(), clock).unwrap();
        let partitions = self.create_topic(&log);
        let before = log.stats();
        let start = Instant::now();
        let records = self.append(&partitions);
        let took = start.elapsed();
        let after = log.stats();
        log.close().unwrap();
        let segment_bytes = after.partitions.iter().map(|partition| partition.segment_bytes).sum();
        Outcome { took, records, bytes: after.bytes - before.bytes, syncs: after.syncs - before.syncs, segment_bytes }
    }

    fn create_topic(&self, log: &Embedded) -> Vec<Arc<dyn Partition>> {
        let name = TopicName::user("bench", &TenantId::default()).unwrap();
        let config =
            TopicConfig { partitions: PARTITIONS, storage: self.storage, level: self.level, ..TopicConfig::default() };
        log.create_topic(&name, &config).unwrap();
        let partition = |number| log.partition(&TopicPartition::new(name.clone(), number)).unwrap();
        (0..PARTITIONS).map(partition).collect()
    }

    /// Appends everything and waits until it is answered; how many records that were.
    fn append(&self, partitions: &[Arc<dyn Partition>]) -> usize {
        let value = vec![b'v'; self.value_bytes];
        let record = Record { timestamp_ms: 1_700_000_000_000, key: None, value: Some(&value), headers: &[] };
        let records = vec![record; self.records];
        let appends = self.total_bytes / (self.value_bytes * self.records);
        let (answered, answers) = sync_channel(self.in_flight);
        let mut unanswered = 0;
        for number in 0..appends {
            if unanswered == self.in_flight {
                answers.recv().unwrap();
                unanswered -= 1;
            }
            let partition = &*partitions[number % partitions.len()];
            unanswered = self.append_one(partition, &records, unanswered, (&answered, &answers));
        }
        (0..unanswered).for_each(|_| answers.recv().unwrap());
        appends * self.records
    }

    /// Appends once; how many appends are unanswered now, of which there were `unanswered` before.
    fn append_one(
        &self,
        partition: &dyn Partition,
        records: &[Record<'_>],
        mut unanswered: usize,
        (answered, answers): (&SyncSender<()>, &Receiver<()>),
    ) -> usize {
        loop {
            let (done, waits) = if self.level == AckLevel::Memory {
                (Done::ignore(), 0)
            } else {
                let answered = answered.clone();
                let done = Done::call(move |result: Result<_, Error>| {
                    result.unwrap();
                    answered.send(()).unwrap();
                });
                (done, 1)
            };
            match partition.append(records, self.level, done) {
                Ok(()) => return unanswered + waits,
                Err(error) if error.is_retryable() => {
                    // The engine is behind: as a client would, wait for an answer, or a moment.
                    if answers.recv_timeout(Duration::from_micros(100)).is_ok() {
                        unanswered -= 1;
                    }
                }
                Err(error) => panic!("{error}"),
            }
        }
    }
}

/// Writes what the engine wrote, in as many equal parts as it synced, each followed by a sync, over files written before;
/// then, if asked, what the engine brought to segments.
fn bare(dir: &Path, outcome: &Outcome, with_segments: bool) -> Duration {
    let journal = [bare_file(dir, "journal-0", BARE_FILE_BYTES), bare_file(dir, "journal-1", BARE_FILE_BYTES)];
    let segments: Vec<File> = (0..PARTITIONS).map(|number| bare_file(dir, &format!("segment-{number}"), 0)).collect();
    let group_bytes = usize::try_from(outcome.bytes / outcome.syncs).unwrap().clamp(1, BARE_FILE_BYTES);
    let group = vec![b'v'; group_bytes];
    let (mut file, mut at) = (0, 0);
    let start = Instant::now();
    for _ in 0..outcome.syncs {
        if at + group.len() > BARE_FILE_BYTES {
            (file, at) = (1 - file, 0);
        }
        journal[file].write_all_at(&group, at as u64).unwrap();
        journal[file].sync_data().unwrap();
        at += group.len();
    }
    if with_segments {
        write_segments(&segments, outcome.segment_bytes);
    }
    start.elapsed()
}

fn write_segments(segments: &[File], bytes: u64) {
    let block = vec![b'v'; 256 << 10];
    let rounds = bytes.div_ceil(BARE_FLUSH_BYTES);
    let blocks = bytes.checked_div(rounds * block.len() as u64).unwrap_or(0);
    for _ in 0..rounds {
        for block_number in 0..blocks {
            (&segments[block_number as usize % segments.len()]).write_all(&block).unwrap();
        }
        segments.iter().for_each(|segment| segment.sync_data().unwrap());
    }
}

fn bare_file(dir: &Path, name: &str, size_bytes: usize) -> File {
    let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(dir.join(name)).unwrap();
    file.write_all(&vec![0; size_bytes]).unwrap();
    file.sync_all().unwrap();
    file
}

fn main() {
    let disk = |level, value_bytes, records, in_flight, total_bytes| Case {
        storage: Storage::Disk,
        level,
        value_bytes,
        records,
        in_flight,
        total_bytes,
    };
    let ring = |value_bytes, records| Case {
        storage: Storage::Memory { max_bytes: 16 << 20 },
        ..disk(AckLevel::Memory, value_bytes, records, 1, 1 << 30)
    };
    let mut cases = vec![ring(100, 1000), ring(100, 1), ring(1024, 100)];
    for level in [AckLevel::Memory, AckLevel::Written, AckLevel::Synced] {
        cases.push(disk(level, 100, 1000, 64, 256 << 20));
        cases.push(disk(level, 1024, 100, 64, 512 << 20));
        cases.push(disk(level, 100, 1, 1000, 16 << 20));
    }
    cases.push(disk(AckLevel::Synced, 100, 1, 1, 100_000));
    println!(
        "| topic | level | record | append of | in flight | records/s | MiB/s | syncs | of the bare journal | and segments |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    for case in &cases {
        report(case);
    }
}

fn report(case: &Case) {
    let dir = tempfile::tempdir().unwrap();
    let outcome = case.run(dir.path());
    let took_s = outcome.took.as_secs_f64();
    let ratio = |with_segments| match case.level {
        AckLevel::Synced => format!("{:.2}", bare(dir.path(), &outcome, with_segments).as_secs_f64() / took_s),
        AckLevel::Memory | AckLevel::Written => "–".to_owned(),
    };
    println!(
        "| {} | {:?} | {} B | {} | {} | {:.0} | {:.0} | {} | {} | {} |",
        if matches!(case.storage, Storage::Disk) { "disk" } else { "memory" },
        case.level,
        case.value_bytes,
        case.records,
        case.in_flight,
        outcome.records as f64 / took_s,
        outcome.bytes as f64 / took_s / f64::from(1 << 20),
        outcome.syncs,
        ratio(false),
        ratio(true),
    );
}
