//! A process with one durable bucket, under a wall clock that is set by hand.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use millstream_http::{Share, Workers};
use millstream_log::{LogConfig, SystemFiles};
use millstream_store::{Bucket, BucketConfig, StoreConfig, StoreMemory};
use millstream_testkit::TestLog;
use millstream_types::{ManualClock, MemoryBudget, SteadyClock, TenantId, TopicName, WallClock};
use millstream_view::{Checkpoints, Shards, ViewRuntime};

/// Milliseconds since 1970-01-01T00:00:00Z.
#[derive(Debug)]
pub(super) struct SetByHand(pub(super) AtomicI64);

impl WallClock for SetByHand {
    fn now_ms(&self) -> i64 {
        self.0.load(Ordering::SeqCst)
    }
}

pub(super) struct BucketProcess {
    log: TestLog,
    ground: ViewRuntime,
    readers: Arc<Workers>,
    pub(super) bucket: Arc<Bucket>,
}

impl BucketProcess {
    pub(super) fn open(dir: &Path, wall: &Arc<SetByHand>, settings: BucketConfig, store: &StoreConfig) -> Self {
        let config = LogConfig { dir: dir.join("log"), ..LogConfig::default() };
        let log = TestLog::open(config, Arc::new(SystemFiles)).unwrap();
        let ground = ViewRuntime {
            log: log.log(),
            checkpoints: Checkpoints::open(&dir.join("views")).unwrap(),
            shards: Shards::start(1).unwrap(),
            wall: Arc::new(SteadyClock::new(wall.clone(), Arc::new(ManualClock::at(0)))),
        };
        let readers = Arc::new(Workers::start("read", 1, 1_024, Share::Equal).unwrap());
        let topic = TopicName::bucket("things", &TenantId::default()).unwrap();
        let budget = MemoryBudget::new("memory.budget_bytes", 1 << 30);
        let memory = StoreMemory::new(store, &budget).of_new("things", &settings).unwrap();
        let bucket = Bucket::open(topic, settings, store, &ground, &readers, memory).unwrap();
        Self { log, ground, readers, bucket: Arc::new(bucket) }
    }

    pub(super) fn close(self) {
        self.bucket.stop();
        self.readers.stop();
        drop(self.bucket);
        self.log.close().unwrap();
        self.ground.shards.join();
    }
}
