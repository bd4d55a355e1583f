//! The engine in this process, with one bucket.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use millstream_log::{Embedded, LogConfig, SystemFiles};
use millstream_store::{Bucket, BucketConfig, Store, StoreConfig};
use millstream_types::{MemoryBudget, SystemClock, TenantId};
use millstream_view::{Checkpoints, Shards, ViewRuntime};
use tokio::runtime::Runtime;

/// Partitions of a bucket by default.
pub(super) const PARTITIONS: u32 = 4;
const BUCKET: &str = "bench";

/// The log and the store of one process; the bucket keeps no values in memory.
pub(super) struct StoreEngine {
    pub(super) log: Arc<Embedded>,
    store: Arc<Store>,
    pub(super) bucket: Arc<Bucket>,
    pub(super) runtime: Runtime,
}

impl StoreEngine {
    /// Opens the engine on the data in `dir`.
    pub(super) fn open(dir: &Path) -> anyhow::Result<Self> {
        let clock = Arc::new(SystemClock::default());
        let config = LogConfig { dir: dir.join("log"), ..LogConfig::default() };
        let log = Embedded::open(config, Arc::new(SystemFiles), clock.clone(), clock.clone())?;
        let ground = ViewRuntime {
            log: log.clone(),
            checkpoints: Checkpoints::open(&dir.join("views"))?,
            shards: Shards::start(1)?,
            wall: clock.clone(),
        };
        let budget = MemoryBudget::new("memory.budget_bytes", 2 << 30);
        let store = Store::open(ground, StoreConfig::default(), clock, &budget)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let tenant = TenantId::default();
        let config = BucketConfig { cache_bytes: 0, partitions: PARTITIONS, ..BucketConfig::default() };
        runtime.block_on(store.put_bucket(&tenant, BUCKET, config))?;
        let bucket = store.bucket(&tenant, BUCKET)?;
        Ok(Self { log, store, bucket, runtime })
    }

    pub(super) fn close(self) -> anyhow::Result<()> {
        self.log.flush()?;
        self.store.stop();
        self.log.close().context("the log was not closed cleanly")
    }
}
