//! A process with a bucket of tiny segments on a simulated disk.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use millstream_http::{Share, Workers};
use millstream_log::{AckLevel, Cleanup, Embedded, Files, Log, LogConfig, TopicConfig, UpTo, Writers};
use millstream_store::{Bucket, BucketConfig, Listed, StoreConfig, StoreMemory, Totals};
use millstream_testkit::sim::SimFiles;
use millstream_types::{
    ManualClock, MemoryBudget, Offset, PartitionId, SteadyClock, SystemClock, TenantId, TopicName, TopicPartition,
    WallClock,
};
use millstream_view::{Checkpoints, Shards, ViewRuntime};

pub(crate) const PARTITIONS: u32 = 2;
/// 2026-01-01T00:00:00Z
const START_MS: i64 = 1_767_225_600_000;

/// A wall clock that jumps, and the latest time that it ever told.
#[derive(Debug)]
pub(crate) struct Wall {
    now_ms: AtomicI64,
    latest_ms: AtomicI64,
}

impl Default for Wall {
    fn default() -> Self {
        Self { now_ms: AtomicI64::new(START_MS), latest_ms: AtomicI64::new(START_MS) }
    }
}

impl Wall {
    pub(crate) fn jump(&self, by_ms: i64) {
        let now_ms = self.now_ms() + by_ms;
        self.latest_ms.fetch_max(now_ms, Ordering::SeqCst);
        self.now_ms.store(now_ms, Ordering::SeqCst);
    }

    pub(crate) fn latest_ms(&self) -> i64 {
        self.latest_ms.load(Ordering::SeqCst)
    }
}

impl WallClock for Wall {
    fn now_ms(&self) -> i64 {
        self.now_ms.load(Ordering::SeqCst)
    }
}

/// Limits so small that journal files are recycled and segments written and compacted all the time.
fn small() -> LogConfig {
    LogConfig {
        dir: PathBuf::from("/data/log"),
        journal_file_bytes: 128 << 10,
        journal_max_bytes: 512 << 10,
        pending_max_bytes: 256 << 10,
        pending_unwaited_percent: 50,
        append_max_bytes: 96 << 10,
        batch_max_bytes: 4 << 10,
        cache_bytes: 16 << 10,
        sync_interval_ms: 5,
        flush_interval_ms: 5,
        compaction_dirty_percent: 20,
        compaction_bytes_per_second: 1 << 30,
        ..LogConfig::default()
    }
}

fn topic() -> TopicName {
    TopicName::bucket("things", &TenantId::default()).unwrap()
}

pub(crate) struct World {
    log: Arc<Embedded>,
    ground: ViewRuntime,
    readers: Arc<Workers>,
    pub(crate) bucket: Bucket,
}

impl World {
    /// Opens everything; an error is the log's or the bucket's.
    pub(crate) fn open(files: &SimFiles, checkpoints: &Path, wall: &Arc<Wall>) -> Result<Self, String> {
        let clock = Arc::new(SystemClock::default());
        let files: Arc<dyn Files> = Arc::new(files.clone());
        let log = Embedded::open(small(), files, clock.clone(), clock).map_err(|error| error.to_string())?;
        let ground = ViewRuntime {
            log: log.clone() as Arc<dyn Log>,
            checkpoints: Checkpoints::open(checkpoints).unwrap(),
            shards: Shards::start(2).unwrap(),
            wall: Arc::new(SteadyClock::new(wall.clone(), Arc::new(ManualClock::at(0)))),
        };
        let readers = Arc::new(Workers::start("read", 2, 1_024, Share::Equal).unwrap());
        let opened = open_bucket(&ground, &readers);
        match opened {
            Ok(bucket) => Ok(Self { log, ground, readers, bucket }),
            Err(why) => {
                readers.stop();
                drop(log.close());
                ground.shards.join();
                Err(why)
            }
        }
    }

    /// Ends every thread, whatever has become of the log.
    pub(crate) fn end(self) {
        self.bucket.stop();
        self.readers.stop();
        drop(self.bucket);
        drop(self.log.close());
        self.ground.shards.join();
    }

    /// Segments of the bucket that compaction has replaced.
    pub(crate) fn compacted(files: &SimFiles) -> u64 {
        let is_replaced = |path: &Path| {
            let stem = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_suffix(".segment"));
            stem.is_some_and(|stem| stem.contains('-'))
        };
        files.files().iter().filter(|(path, _)| is_replaced(path)).count() as u64
    }

    /// `true` if the log still has the record at `offset`.
    pub(crate) fn has_record(&self, partition: PartitionId, offset: u64) -> bool {
        let log = self.log.partition(&TopicPartition::new(topic(), partition.0)).unwrap();
        log.read_one(Offset(offset), UpTo::Tail).unwrap().is_some()
    }

    /// Every key that the listing has, with what the listing and a read tell of it.
    pub(crate) fn all(&self, runtime: &tokio::runtime::Runtime) -> BTreeMap<Vec<u8>, Kept> {
        let mut all = BTreeMap::new();
        let mut sum = Totals::default();
        for number in 0..PARTITIONS {
            let mut listed = Vec::new();
            let take = |key: &[u8], entry| {
                listed.push((key.to_vec(), entry));
                ControlFlow::Continue(())
            };
            self.bucket.list(PartitionId(number), b"", take).unwrap();
            for (key, entry) in listed {
                let found = runtime.block_on(self.bucket.read(&key));
                let found =
                    found.unwrap_or_else(|failure| panic!("{} at {}: {failure}", key.escape_ascii(), entry.version));
                let Listed { version, length, expires_ms, .. } = entry;
                let has_expired = expires_ms.is_some_and(|expires_ms| expires_ms <= self.bucket.now_ms());
                assert_eq!(found.is_none(), has_expired, "{key:?}: listing and read differ");
                sum = Totals { keys: sum.keys + 1, bytes: sum.bytes + key.len() as u64 + length };
                if let Some(found) = &found {
                    let of_read = (found.version, found.stored.length(), found.stored.value.expires_ms);
                    assert_eq!(of_read, (version, length, expires_ms), "{key:?}: listing and read differ");
                }
                let bytes = found.map(|found| found.stored.value.bytes.to_vec());
                all.insert(key, Kept { version, length, expires_ms, bytes });
            }
        }
        assert_eq!(self.bucket.totals(), sum, "totals and listing differ");
        all
    }
}

/// A key that the listing has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) version: u64,
    pub(crate) length: u64,
    pub(crate) expires_ms: Option<i64>,
    /// The value; `None` if the key has expired.
    pub(crate) bytes: Option<Vec<u8>>,
}

fn open_bucket(ground: &ViewRuntime, readers: &Arc<Workers>) -> Result<Bucket, String> {
    // As a bucket makes it, but for the segments.
    let config = TopicConfig {
        partitions: PARTITIONS,
        level: AckLevel::Synced,
        cleanup: Cleanup::Compact,
        writers: Writers::OwnersOnly,
        retention: None,
        compaction_live_percent: Some(50),
        segment_bytes: 4 << 10,
        delete_retention: std::time::Duration::from_millis(1),
        ..TopicConfig::default()
    };
    ground.log.create_topic(&topic(), &config).map_err(|error| error.to_string())?;
    let settings = BucketConfig { partitions: PARTITIONS, cache_bytes: 4_000, ..BucketConfig::default() };
    let budget = MemoryBudget::new("memory.budget_bytes", 1 << 30);
    let memory = StoreMemory::new(&StoreConfig::default(), &budget).of_new("things", &settings).unwrap();
    Bucket::open(topic(), settings, &StoreConfig::default(), ground, readers, memory).map_err(|error| error.to_string())
}
