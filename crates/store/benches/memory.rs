//! Memory of a durable bucket for each key, and the rate at which a start fills its table, beside a loop that only scans
//! the same ordered store. A million keys with values of 100 bytes that stay on disk, or as many as the argument says:
//! `cargo bench -p millstream-store --bench memory -- 10000000`
#![allow(clippy::unwrap_used, reason = "a bench fails by panicking")]

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use millstream_http::{Share, Workers};
use millstream_log::{AckLevel, Embedded, Log, LogConfig, SystemFiles};
use millstream_store::{Bucket, BucketConfig, OwnerTransaction, StoreConfig, StoreMemory, Transaction, Value};
use millstream_types::{ErrorCode, MemoryBudget, PartitionId, SystemClock, TenantId, TopicName};
use millstream_view::{Checkpoints, Shards, ViewRuntime};

const PARTITIONS: u32 = 4;
const VALUE_BYTES: usize = 100;
const KEYS_PER_WRITE: usize = 500;
const ROUNDS: usize = 3;

struct World {
    log: Arc<Embedded>,
    ground: ViewRuntime,
    readers: Arc<Workers>,
    bucket: Bucket,
}

fn topic() -> TopicName {
    TopicName::bucket("things", &TenantId::default()).unwrap()
}

impl World {
    /// Opens the bucket; the time that its own opening took.
    fn open(dir: &Path) -> (Self, Duration) {
        let clock = Arc::new(SystemClock::default());
        let config = LogConfig { dir: dir.join("log"), ..LogConfig::default() };
        let log = Embedded::open(config, Arc::new(SystemFiles), clock.clone(), clock.clone()).unwrap();
        let ground = ViewRuntime {
            log: log.clone() as Arc<dyn Log>,
            checkpoints: Checkpoints::open(&dir.join("views")).unwrap(),
            shards: Shards::start(2).unwrap(),
            wall: clock,
        };
        let readers = Arc::new(Workers::start("read", 2, 1_024, Share::Equal).unwrap());
        let settings = BucketConfig { partitions: PARTITIONS, cache_bytes: 0, ..BucketConfig::default() };
        let budget = MemoryBudget::new("memory.budget_bytes", 1 << 30);
        let memory = StoreMemory::new(&StoreConfig::default(), &budget).of_new("things", &settings).unwrap();
        let started = Instant::now();
        let bucket = Bucket::open(topic(), settings, &StoreConfig::default(), &ground, &readers, memory).unwrap();
        let took = started.elapsed();
        (Self { log, ground, readers, bucket }, took)
    }

    fn close(self) {
        self.bucket.stop();
        self.readers.stop();
        drop(self.bucket);
        self.log.close().unwrap();
        self.ground.shards.join();
    }

    /// Stores `keys` keys, each partition by a thread of its own.
    fn fill(&self, keys: u64) {
        std::thread::scope(|threads| {
            for number in 0..PARTITIONS {
                threads.spawn(move || {
                    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
                    let partition = PartitionId(number);
                    let own = (0..keys).map(key).filter(|key| self.bucket.partition_of(key) == partition);
                    let mut own = own.peekable();
                    while own.peek().is_some() {
                        let keys: Arc<[Bytes]> = own.by_ref().take(KEYS_PER_WRITE).collect();
                        runtime.block_on(self.write(partition, &keys));
                    }
                });
            }
        });
    }

    /// Stores keys together, and again if the log has no room yet.
    async fn write(&self, partition: PartitionId, keys: &Arc<[Bytes]>) {
        loop {
            let keys = Arc::clone(keys);
            let work = move |transaction: &mut OwnerTransaction<'_, '_>| {
                keys.iter().try_for_each(|key| transaction.put(key, Value::of(vec![b'v'; VALUE_BYTES])))
            };
            let size_bytes = KEYS_PER_WRITE * VALUE_BYTES;
            match self.bucket.transact(partition, Some(AckLevel::Memory), size_bytes, work).await {
                Ok(_) => return,
                Err(full) if full.code() == ErrorCode::Overloaded => std::thread::yield_now(),
                Err(failure) => panic!("{failure}"),
            }
        }
    }
}

fn key(number: u64) -> Bytes {
    Bytes::from(format!("device/{number:012}"))
}

/// Resident memory of this process, without pages of files.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

/// Reads every key and entry of the bucket's checkpoint, and does nothing with them.
fn scan(dir: &Path) -> (u64, Duration) {
    let database = fjall::Database::builder(dir.join("views")).worker_threads(1).open().unwrap();
    let keyspace = database.keyspace(&topic().to_string(), fjall::KeyspaceCreateOptions::default).unwrap();
    let started = Instant::now();
    let (mut keys, mut bytes) = (0, 0);
    for entry in keyspace.iter() {
        let (key, value) = entry.into_inner().unwrap();
        (keys, bytes) = (keys + 1, bytes + key.len() + value.len());
    }
    assert!(bytes > 0);
    (keys, started.elapsed())
}

/// In a process of its own, as memory that was once used does not come back.
fn start(dir: &Path, keys: u64) {
    let before = resident_bytes();
    let (world, took) = World::open(dir);
    let grown = resident_bytes() - before;
    assert_eq!(world.bucket.totals().keys, keys);
    let (per_key, rate) = (grown as f64 / keys as f64, keys as f64 / took.as_secs_f64());
    println!("start: {} MB, {per_key:.0} bytes/key, {rate:.0} keys/s, {} threads", grown >> 20, PARTITIONS);
    world.close();
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    if let [start_in, dir, keys] = &arguments[..]
        && start_in == "start"
    {
        return start(Path::new(dir), keys.parse().unwrap());
    }
    let keys: u64 = arguments.first().map_or(1_000_000, |count| count.parse().unwrap());
    let dir = tempfile::tempdir().unwrap();
    let (world, _) = World::open(dir.path());
    let (before, started) = (resident_bytes(), Instant::now());
    world.fill(keys);
    let rate = keys as f64 / started.elapsed().as_secs_f64();
    let grown = resident_bytes().saturating_sub(before);
    println!("{keys} keys, values of {VALUE_BYTES} bytes, ack memory: {rate:.0} keys/s");
    println!("written: {} MB, {:.0} bytes/key, buffers of the log included", grown >> 20, grown as f64 / keys as f64);
    world.close();
    for _ in 0..ROUNDS {
        let exe = std::env::current_exe().unwrap();
        let told = Command::new(exe).arg("start").arg(dir.path()).arg(keys.to_string()).status().unwrap();
        assert!(told.success());
        let (scanned, took) = scan(dir.path());
        println!("scan:  {scanned} entries, {:.0}/s, 1 thread", scanned as f64 / took.as_secs_f64());
    }
}
