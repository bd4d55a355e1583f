//! The buckets of all tenants: made, changed, found and deleted.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use arc_swap::{ArcSwap, ArcSwapOption};
use bytes::Bytes;
use millstream_http::{Share, Workers};
use millstream_types::{
    MemoryBudget, MonotonicClock, PartitionId, StateTopic, SteadyClock, TenantId, TopicName, WallClock,
};
use millstream_view::{Failure, ViewRuntime, Views, ViewsConfig};
use tokio::sync::Mutex;

use crate::bucket::EXPIRED_MAX;
use crate::buckets::{BucketChange, BucketId, Buckets};
use crate::counters::DoorCounters;
use crate::{
    Bucket, BucketConfig, BucketKind, BucketMemory, CacheBucket, Error, KeyLoss, LossListener, StoreConfig, StoreMemory,
};

const PARTITION: PartitionId = PartitionId(0);
/// Time between two looks for partitions that are mostly garbage.
const GARBAGE_INTERVAL: Duration = Duration::from_secs(5);
/// Time between two looks for parts that no value needs.
const PARTS_INTERVAL: Duration = Duration::from_secs(60);
/// A value from a time further ahead does not set the clock: keys would expire early for long.
const AHEAD_MAX_MS: i64 = 24 * 3_600_000;

/// Hears of keys that buckets remove by themselves.
pub trait KeyLossListener: Send + Sync {
    /// `true` if somebody wants to know of such losses of the tenant. It is asked for each key, so it must be cheap.
    fn wants(&self, tenant: &TenantId, loss: KeyLoss) -> bool;

    /// Tells of keys of a bucket that are gone.
    fn lost(&self, tenant: &TenantId, bucket: &str, loss: KeyLoss, keys: &[Bytes]);
}

/// The listener of all buckets, once there is one.
type SharedListener = Arc<ArcSwapOption<Box<dyn KeyLossListener>>>;

/// Tells the store's listener of the keys that a cache loses.
struct CacheLosses {
    id: BucketId,
    heard: SharedListener,
}

impl LossListener for CacheLosses {
    fn wants(&self, loss: KeyLoss) -> bool {
        self.heard.load().as_ref().is_some_and(|listener| listener.wants(&self.id.0, loss))
    }

    fn lost(&self, loss: KeyLoss, keys: &[Bytes]) {
        if let Some(listener) = &*self.heard.load() {
            listener.lost(&self.id.0, &self.id.1, loss, keys);
        }
    }
}

/// A bucket of either kind.
#[derive(Debug, Clone)]
pub enum Opened {
    /// A durable bucket, whose keys are in the log.
    Durable(Arc<Bucket>),
    /// A cache bucket, whose keys are in memory only.
    Cache(Arc<CacheBucket>),
}

impl Opened {
    /// The settings of the bucket.
    pub fn config(&self) -> Arc<BucketConfig> {
        match self {
            Self::Durable(bucket) => bucket.config(),
            Self::Cache(bucket) => bucket.config(),
        }
    }
}

/// The buckets of all tenants; see [`Store::find`].
pub struct Store {
    settings: Arc<Views<Buckets>>,
    open: ArcSwap<HashMap<BucketId, Opened>>,
    /// Held while a bucket is made, changed or deleted.
    changing: Mutex<()>,
    losses: SharedListener,
    /// Buckets that are deleted and have settings yet.
    forgotten: parking_lot::Mutex<Vec<BucketId>>,
    ground: ViewRuntime,
    readers: Arc<Workers>,
    config: StoreConfig,
    memory: StoreMemory,
    doors: Arc<DoorCounters>,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Store({} buckets)", self.open.load().len())
    }
}

impl Store {
    /// Opens all buckets. Blocks while their tables are filled. Expiry goes by the wall clock of `ground`, but never
    /// back: a key that has expired stays gone when the clock is set back, also over a restart: the clock then begins
    /// at the time of the newest value, unless that lies more than a day ahead.
    ///
    /// The values of buckets in memory draw on `budget`, of which what is set aside at start has been taken. If it has too
    /// little left, each bucket opens with its part of what is left.
    ///
    /// # Errors
    /// [`Error`] if a bucket cannot be opened.
    pub fn open(
        mut ground: ViewRuntime,
        config: StoreConfig,
        monotonic: Arc<dyn MonotonicClock>,
        budget: &MemoryBudget,
    ) -> Result<Arc<Self>, Error> {
        let wall = Arc::new(NotBefore { wall: ground.wall, least_ms: AtomicI64::new(i64::MIN) });
        ground.wall = Arc::new(SteadyClock::new(wall.clone(), monotonic));
        let views_config = ViewsConfig { partitions: 1, ..ViewsConfig::default() };
        let settings = Views::open(Buckets, &TopicName::internal(StateTopic::Buckets), &views_config, &ground)?;
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let threads = if config.read_threads == 0 { 2 * cores } else { config.read_threads };
        let readers = Workers::start("store-read", threads, config.reads_waiting_max, Share::Equal);
        let readers = Arc::new(readers.map_err(|_| Error::Stopped)?);
        let memory = StoreMemory::new(&config, budget);
        let known = settings.snapshot(PARTITION);
        let (mut open, losses) = (HashMap::new(), SharedListener::default());
        let configs: Vec<_> = known.state.values().collect();
        for ((id, settings), memory) in known.state.iter().zip(memory.at_start(&configs)) {
            open.insert(id.clone(), open_bucket(id, settings.clone(), &config, &ground, &readers, memory, &losses)?);
        }
        let durable = open.values().filter_map(|opened| match opened {
            Opened::Durable(bucket) => Some(bucket.newest_ms()),
            Opened::Cache(_) => None,
        });
        wall.set_least(durable.max().unwrap_or(i64::MIN));
        let open = ArcSwap::from_pointee(open);
        Ok(Arc::new(Self {
            settings,
            open,
            changing: Mutex::new(()),
            losses,
            forgotten: parking_lot::Mutex::default(),
            ground,
            readers,
            config,
            memory,
            doors: Arc::default(),
        }))
    }

    /// The settings of the plane.
    pub fn config(&self) -> &StoreConfig {
        &self.config
    }

    /// The store's wall time, milliseconds since 1970-01-01T00:00:00Z.
    pub fn now_ms(&self) -> i64 {
        self.ground.wall.now_ms()
    }

    /// The counters of commands, for each protocol to count in.
    pub fn doors(&self) -> &Arc<DoorCounters> {
        &self.doors
    }

    /// Reads that wait for a thread.
    pub fn reads_waiting(&self) -> usize {
        self.readers.waiting()
    }

    /// The bucket of that name.
    ///
    /// # Errors
    /// [`Error::UnknownBucket`] if the tenant has no such bucket.
    pub fn find(&self, tenant: &TenantId, name: &str) -> Result<Opened, Error> {
        let open = self.open.load();
        let found = open.get(&(tenant.clone(), name.to_owned()));
        found.cloned().ok_or_else(|| Error::UnknownBucket { bucket: name.to_owned() })
    }

    /// The durable bucket of that name.
    ///
    /// # Errors
    /// [`Error::UnknownBucket`] if there is none; [`Error::IsCache`] if it is a cache.
    pub fn bucket(&self, tenant: &TenantId, name: &str) -> Result<Arc<Bucket>, Error> {
        match self.find(tenant, name)? {
            Opened::Durable(bucket) => Ok(bucket),
            Opened::Cache(_) => Err(Error::IsCache { bucket: name.to_owned() }),
        }
    }

    /// The buckets of `tenant`, or of all tenants, by tenant and name.
    pub fn all(&self, tenant: Option<&TenantId>) -> Vec<(BucketId, Opened)> {
        let open = self.open.load();
        let of_tenant = open.iter().filter(|(id, _)| tenant.is_none_or(|tenant| id.0 == *tenant));
        let mut buckets: Vec<_> = of_tenant.map(|(id, opened)| (id.clone(), opened.clone())).collect();
        buckets.sort_by(|(one, _), (other, _)| one.cmp(other));
        buckets
    }

    /// The durable buckets of `tenant`, or of all tenants, by tenant and name.
    pub fn buckets(&self, tenant: Option<&TenantId>) -> Vec<(BucketId, Arc<Bucket>)> {
        let durable = |(id, opened)| match opened {
            Opened::Durable(bucket) => Some((id, bucket)),
            Opened::Cache(_) => None,
        };
        self.all(tenant).into_iter().filter_map(durable).collect()
    }

    /// Checks that `tenant` may begin another upload. Of several that begin at once all may.
    pub(crate) fn check_uploads(&self, tenant: &TenantId) -> Result<(), Error> {
        let open: u64 = self.buckets(Some(tenant)).iter().map(|(_, bucket)| bucket.open_uploads()).sum();
        let limit = self.config.uploads_per_tenant_max;
        if open < limit as u64 {
            return Ok(());
        }
        Err(Error::TooManyUploads { tenant: tenant.clone(), open, limit })
    }

    /// Runs `work` of a tenant, which may block on the disk, on one of the threads for that.
    ///
    /// # Errors
    /// [`Error::ReadsWaiting`] if too many reads wait; [`Error::Stopped`] if the store stops.
    pub async fn on_reader<T: Send + 'static>(
        &self,
        tenant: &TenantId,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Error> {
        let pending =
            self.readers.submit(Some(tenant), work).map_err(|full| Error::ReadsWaiting { waiting: full.waiting })?;
        pending.await.map_err(|_| Error::Stopped)
    }

    /// The bucket of that name, which is made if it is not there.
    ///
    /// # Errors
    /// The same errors as [`Store::put_bucket`].
    pub async fn ensure_bucket(
        self: &Arc<Self>,
        tenant: &TenantId,
        name: &str,
        config: BucketConfig,
    ) -> Result<Opened, Error> {
        let _alone = self.changing.lock().await;
        match self.find(tenant, name) {
            Ok(opened) => Ok(opened),
            Err(_) => Ok(self.change_bucket(tenant, name, config).await?.0),
        }
    }

    /// Makes a bucket, or changes the settings of one. Returns it, and `true` if it is new.
    ///
    /// # Errors
    /// [`Error::Name`], [`Error::Settings`], [`Error::Fixed`], [`Error::TooManyBuckets`], [`Error::NoMemory`]; those of the
    /// log and the owners.
    pub async fn put_bucket(
        self: &Arc<Self>,
        tenant: &TenantId,
        name: &str,
        config: BucketConfig,
    ) -> Result<(Opened, bool), Error> {
        let _alone = self.changing.lock().await;
        self.change_bucket(tenant, name, config).await
    }

    /// Makes or changes a bucket while nobody else does.
    async fn change_bucket(
        self: &Arc<Self>,
        tenant: &TenantId,
        name: &str,
        config: BucketConfig,
    ) -> Result<(Opened, bool), Error> {
        check_name(tenant, name)?;
        let bucket = || name.to_owned();
        config.check().map_err(|rule| Error::Settings { bucket: bucket(), rule })?;
        let id = (tenant.clone(), name.to_owned());
        let known = self.open.load().get(&id).cloned();
        match &known {
            Some(known) => {
                let before = known.config();
                let fixed = |setting, found| Err(Error::Fixed { bucket: bucket(), setting, found });
                if before.kind != config.kind {
                    return fixed("kind", format!("{:?}", before.kind).to_lowercase());
                }
                if before.partitions != config.partitions {
                    return fixed("partitions", before.partitions.to_string());
                }
            }
            None if self.open.load().len() >= self.config.buckets_max => {
                return Err(Error::TooManyBuckets { limit: self.config.buckets_max });
            }
            None => {
                let most = self.config.buckets_per_tenant_max;
                if self.open.load().keys().filter(|(of, _)| of == tenant).count() >= most {
                    return Err(Error::TooManyBucketsOfTenant { tenant: tenant.clone(), limit: most });
                }
            }
        }
        let held_bytes = match &known {
            None => 0,
            Some(Opened::Durable(known)) => known.cache_figures().max_bytes,
            Some(Opened::Cache(known)) => known.memory_bytes(),
        };
        match &known {
            Some(Opened::Cache(known)) => known.check_change(name, &config, &self.config)?,
            _ if config.kind == BucketKind::Cache => drop(CacheBucket::check(name, &config, &self.config)?),
            _ => {}
        }
        let more = self.memory.grow(name, &config, held_bytes)?;
        self.settings.ask(PARTITION, BucketChange { id: id.clone(), config: Some(config.clone()) }).await?;
        let store = Arc::clone(self);
        let (is_new, of_id) = (known.is_none(), id.clone());
        let open = move || match known {
            Some(Opened::Durable(known)) => {
                known.configure(config, more, &store.ground).map(|()| Opened::Durable(known))
            }
            Some(Opened::Cache(known)) => {
                let change = |settings: &mut BucketConfig| *settings = config;
                let changed = known.change(&of_id.1, &store.config, &store.memory, Some(more), change);
                changed.map(|()| Opened::Cache(known))
            }
            None => {
                let memory = store.memory.of_bucket(more);
                open_bucket(&of_id, config, &store.config, &store.ground, &store.readers, memory, &store.losses)
            }
        };
        let bucket = match tokio::task::spawn_blocking(open).await.map_err(|_| Error::Stopped)? {
            Ok(bucket) => bucket,
            Err(refusal) => {
                if is_new {
                    self.forget(id).await;
                }
                return Err(refusal);
            }
        };
        let mut all = HashMap::clone(&self.open.load());
        all.insert(id, bucket.clone());
        self.open.store(Arc::new(all));
        Ok((bucket, is_new))
    }

    /// Deletes a bucket with all that it holds.
    ///
    /// # Errors
    /// [`Error::UnknownBucket`]; those of the log and the owners.
    pub async fn delete_bucket(self: &Arc<Self>, tenant: &TenantId, name: &str) -> Result<(), Error> {
        let _alone = self.changing.lock().await;
        let opened = self.find(tenant, name)?;
        let id = (tenant.clone(), name.to_owned());
        // Refused before anything is done, or not at all.
        self.ground.log.check_making_room()?;
        let mut all = HashMap::clone(&self.open.load());
        all.remove(&id);
        self.open.store(Arc::new(all));
        let store = Arc::clone(self);
        let end = move || -> Result<(), Error> {
            let Opened::Durable(bucket) = opened else { return Ok(()) };
            bucket.stop();
            store.ground.log.delete_topic(bucket.topic())?;
            if let Err(error) = store.ground.checkpoints.remove(&bucket.topic().to_string()) {
                tracing::warn!(bucket = %bucket.topic(), %error, "the checkpoint of a deleted bucket stays");
            }
            Ok(())
        };
        tokio::task::spawn_blocking(end).await.map_err(|_| Error::Stopped)??;
        self.forget(id).await;
        Ok(())
    }

    /// Removes the settings of a bucket that is gone; later, if they cannot be removed now.
    async fn forget(&self, id: BucketId) {
        if let Err(error) = self.settings.ask(PARTITION, BucketChange { id: id.clone(), config: None }).await {
            tracing::warn!(tenant = %id.0, bucket = id.1, %error, "the settings of a deleted bucket stay for now");
            self.forgotten.lock().push(id);
        }
    }

    /// Tries again to remove the settings of buckets that are gone, unless they are there again.
    async fn forget_again(&self) {
        let _alone = self.changing.lock().await;
        let forgotten = std::mem::take(&mut *self.forgotten.lock());
        for id in forgotten.into_iter().filter(|id| !self.open.load().contains_key(id)) {
            self.forget(id).await;
        }
    }

    /// Changes settings of a cache until the next start, or until [`Store::put_bucket`]. The kind stays as it is.
    ///
    /// # Errors
    /// [`Error::Settings`] for a setting that cannot be; [`Error::NoMemory`].
    pub(crate) fn adjust_cache(
        &self,
        name: &str,
        bucket: &CacheBucket,
        change: impl FnOnce(&mut BucketConfig),
    ) -> Result<(), Error> {
        bucket.change(name, &self.config, &self.memory, None, change)
    }

    /// Tells `listener` of keys that have expired or were evicted, once they are gone.
    pub fn on_key_loss(&self, listener: impl KeyLossListener + 'static) {
        self.losses.store(Some(Arc::new(Box::new(listener))));
    }

    /// Removes expired keys, and what else nobody needs, for as long as the store runs.
    pub async fn remove_expired(self: Arc<Self>) {
        let interval = Duration::from_millis(self.config.expiry_interval_ms.max(1));
        let (mut parts_looked_at, mut garbage_looked_at) = (Instant::now(), Instant::now());
        loop {
            for (id, opened) in self.all(None) {
                match opened {
                    Opened::Durable(bucket) => self.remove_expired_of(&id, &bucket).await,
                    Opened::Cache(bucket) => while bucket.sweep(EXPIRED_MAX) == EXPIRED_MAX {},
                }
            }
            // On a full disk, writers wait for the room.
            let parts_age = parts_looked_at.elapsed();
            if parts_age > PARTS_INTERVAL || (parts_age > GARBAGE_INTERVAL && self.ground.log.check_disk().is_err()) {
                self.remove_parts(&self.buckets(None)).await;
                parts_looked_at = Instant::now();
            }
            if garbage_looked_at.elapsed() > GARBAGE_INTERVAL {
                self.buckets(None).iter().for_each(|(_, bucket)| bucket.remove_garbage());
                self.forget_again().await;
                garbage_looked_at = Instant::now();
            }
            tokio::time::sleep(interval).await;
        }
    }

    async fn remove_expired_of(&self, id: &BucketId, bucket: &Bucket) {
        for turn in 0..bucket.expiry_turns() {
            loop {
                let keys = match bucket.take_expired(turn, EXPIRED_MAX).await {
                    Ok(keys) => keys,
                    Err(error) => {
                        tracing::warn!(bucket = id.1, %error, "expired keys are not removed; they are gone for readers");
                        return;
                    }
                };
                if let Some(listener) = &*self.losses.load()
                    && !keys.is_empty()
                {
                    listener.lost(&id.0, &id.1, KeyLoss::Expired, &keys);
                }
                if keys.len() < EXPIRED_MAX {
                    break;
                }
            }
        }
    }

    /// Removes parts that no value needs.
    async fn remove_parts(&self, buckets: &[(BucketId, Arc<Bucket>)]) {
        for (id, bucket) in buckets {
            if let Err(error) = bucket.remove_parts(self.config.upload_max_age_ms).await {
                tracing::warn!(bucket = id.1, %error, "parts that no value needs are not removed; they take space");
            }
        }
    }

    /// Failures of owners that last until a restart.
    pub fn failures(&self) -> Vec<Failure> {
        let buckets = self.buckets(None).into_iter().flat_map(|(_, bucket)| bucket.failures());
        buckets.chain(self.settings.failures()).collect()
    }

    /// Answers the accepted writes, refuses further ones, and writes the checkpoints.
    pub fn stop(&self) {
        for (_, bucket) in self.buckets(None) {
            bucket.stop();
        }
        self.settings.stop();
        self.readers.stop();
    }
}

/// A wall clock that tells at least a given time.
struct NotBefore {
    wall: Arc<dyn WallClock>,
    least_ms: AtomicI64,
}

impl NotBefore {
    /// Sets the least time, unless it is so far ahead that it must be a mistake.
    fn set_least(&self, least_ms: i64) {
        if least_ms.saturating_sub(self.wall.now_ms()) <= AHEAD_MAX_MS {
            self.least_ms.store(least_ms, Ordering::Relaxed);
        }
    }
}

impl WallClock for NotBefore {
    fn now_ms(&self) -> i64 {
        self.wall.now_ms().max(self.least_ms.load(Ordering::Relaxed))
    }
}

/// Checks the name of a bucket.
fn check_name(tenant: &TenantId, name: &str) -> Result<(), Error> {
    if name.starts_with('_') {
        let rule = "a bucket's name does not begin with '_'; choose another".to_owned();
        return Err(Error::Settings { bucket: name.to_owned(), rule });
    }
    TopicName::bucket(name, tenant)?;
    Ok(())
}

fn open_bucket(
    id: &BucketId,
    settings: BucketConfig,
    config: &StoreConfig,
    ground: &ViewRuntime,
    readers: &Arc<Workers>,
    memory: BucketMemory,
    losses: &SharedListener,
) -> Result<Opened, Error> {
    match settings.kind {
        BucketKind::Cache => {
            let losses = Arc::new(CacheLosses { id: id.clone(), heard: Arc::clone(losses) });
            let bucket = CacheBucket::new(&id.1, settings, config, memory, Arc::clone(&ground.wall), losses)?;
            Ok(Opened::Cache(Arc::new(bucket)))
        }
        BucketKind::Durable => {
            let topic = TopicName::bucket(&id.1, &id.0)?;
            Ok(Opened::Durable(Arc::new(Bucket::open(topic, settings, config, ground, readers, memory)?)))
        }
    }
}
