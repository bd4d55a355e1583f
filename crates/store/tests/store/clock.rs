//! A clock that is set back over a restart brings no expired key back.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use millstream_log::{LogConfig, SystemFiles};
use millstream_store::{BucketConfig, Store, StoreConfig, Value};
use millstream_testkit::TestLog;
use millstream_types::{ManualClock, MemoryBudget, TenantId};
use millstream_view::{Checkpoints, Shards, ViewRuntime};

/// 2026-01-01T00:00:00Z
const START_MS: i64 = 1_767_225_600_000;
const HOUR_MS: i64 = 3_600_000;

/// One life of a store whose clock begins at `wall_ms`.
fn live(dir: &Path, wall_ms: i64, work: impl AsyncFnOnce(&Arc<Store>, &ManualClock)) {
    let config = LogConfig { dir: dir.join("log"), ..LogConfig::default() };
    let log = TestLog::open(config, Arc::new(SystemFiles)).unwrap();
    let clock = Arc::new(ManualClock::at(wall_ms));
    let shards = Shards::start(1).unwrap();
    let ground = ViewRuntime {
        log: log.log(),
        checkpoints: Checkpoints::open(&dir.join("views")).unwrap(),
        shards: shards.clone(),
        wall: clock.clone(),
    };
    let budget = MemoryBudget::new("memory.budget_bytes", 1 << 30);
    let store = Store::open(ground, StoreConfig::default(), clock.clone(), &budget).unwrap();
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(work(&store, &clock));
    store.stop();
    drop(store);
    log.close().unwrap();
    shards.join();
}

#[test]
fn an_expired_key_stays_gone_when_the_clock_is_set_back_over_a_restart() {
    let (dir, tenant) = (tempfile::tempdir().unwrap(), TenantId::default());
    live(dir.path(), START_MS, async |store, clock| {
        store.put_bucket(&tenant, "things", BucketConfig::default()).await.unwrap();
        let bucket = store.bucket(&tenant, "things").unwrap();
        let short = Value { expires_ms: Some(START_MS + 1_000), ..Value::of("short") };
        bucket.put(b"short", short, None).await.unwrap();
        clock.advance(Duration::from_secs(2));
        assert_eq!(bucket.read(b"short").await.unwrap(), None);
        bucket.put(b"later", Value::of("later"), None).await.unwrap();
    });
    live(dir.path(), START_MS - HOUR_MS, async |store, clock| {
        let bucket = store.bucket(&tenant, "things").unwrap();
        assert_eq!(bucket.read(b"short").await.unwrap(), None, "it comes back");
        assert!(bucket.read(b"later").await.unwrap().is_some());
        assert_eq!(bucket.now_ms(), START_MS + 2_000);
        clock.advance(Duration::from_secs(5));
        assert_eq!(bucket.now_ms(), START_MS + 7_000, "the clock goes on from there");
    });
}

#[test]
fn a_value_from_the_far_future_does_not_set_the_clock() {
    let (dir, tenant) = (tempfile::tempdir().unwrap(), TenantId::default());
    live(dir.path(), START_MS + 1_000 * HOUR_MS, async |store, _| {
        store.put_bucket(&tenant, "things", BucketConfig::default()).await.unwrap();
        let bucket = store.bucket(&tenant, "things").unwrap();
        bucket.put(b"early", Value::of("early"), None).await.unwrap();
    });
    live(dir.path(), START_MS, async |store, _| {
        assert_eq!(store.bucket(&tenant, "things").unwrap().now_ms(), START_MS);
    });
}
