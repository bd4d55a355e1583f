//! A durable bucket: its parts, its settings, and reads beside the owners.
//!
//! A read looks a key up in the table and takes the value from the cache, or from the log at the key's offset. What it
//! finds there must have that key; otherwise a newer write has landed meanwhile, and the key is looked up again.

mod disk_read;
mod expiry;
mod garbage;
mod newer;
mod scan;
mod snapshot;
mod topic;
mod transactions;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use millstream_http::Workers;
use millstream_log::Partition;
use millstream_types::{Grant, PartitionId, TopicName, TopicPartition, WallClock, partition_of_key};
use millstream_view::{Failure, ViewRuntime, Views, ViewsConfig};
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use self::disk_read::{DiskRead, read_record, read_record_in_memory};
pub(crate) use self::expiry::EXPIRED_MAX;
use self::expiry::LastSearch;
use self::garbage::KnownGarbage;
pub use self::snapshot::{Needed, Snapshot};
use self::topic::{RECORD_MAX_BYTES, ensure_topic};
pub use self::transactions::Done;
use crate::counters::BucketCounts;
use crate::keys::Keys;
use crate::part_holds::PartHolds;
use crate::rate::WriteRate;
use crate::read_cache::{CacheFigures, ReadCache};
use crate::record::{Listed, StoredValue};
use crate::table::{Place, Table, Totals};
use crate::{BucketConfig, BucketMemory, Error, StoreConfig};

/// Times that a read looks a key up again because a newer write has landed meanwhile.
pub(crate) const LOOKUPS_MAX: usize = 200;

/// A durable bucket: a compacted topic, and a table of its keys for each partition.
pub struct Bucket {
    topic: TopicName,
    partition_count: u32,
    config: ArcSwap<BucketConfig>,
    views: Arc<Views<Keys>>,
    keys: Arc<Keys>,
    tables: Box<[Arc<Table>]>,
    partitions: Box<[Arc<dyn Partition>]>,
    readers: Arc<Workers>,
    wall: Arc<dyn WallClock>,
    rate: WriteRate,
    last_search: LastSearch,
    /// Room for chunks of large values on their way to the owners of all buckets.
    pub(crate) chunks: Arc<Semaphore>,
    /// Keys of the store's own whose writers have given up: open uploads, and beginnings of chunks.
    pub(crate) abandoned: Mutex<Vec<(PartitionId, Bytes)>>,
    pub(crate) part_holds: Arc<PartHolds>,
    /// Time for which parts wait for their readers.
    pub(crate) part_hold_max: Duration,
    counts: Arc<BucketCounts>,
    known_garbage: KnownGarbage,
}

impl std::fmt::Debug for Bucket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Bucket({})", self.topic)
    }
}

/// A value with its version, as a read finds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundValue {
    /// The value as its record holds it.
    pub stored: StoredValue,
    /// Its version, the offset of the record.
    pub version: u64,
}

/// The result of a look at a key without the disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Look {
    /// There is no such key, or it has expired.
    Missing,
    /// The key is there, and its value was in memory.
    Found(FoundValue),
    /// The value must be read by [`Bucket::read`].
    OnDisk {
        /// The version that the key has now.
        version: u64,
    },
}

impl Bucket {
    /// Opens the bucket over its topic, which is created if it does not exist.
    ///
    /// # Errors
    /// [`Error::Log`], [`Error::View`] if the topic or its state cannot be used.
    pub fn open(
        topic: TopicName,
        config: BucketConfig,
        store: &StoreConfig,
        ground: &ViewRuntime,
        readers: &Arc<Workers>,
        memory: BucketMemory,
    ) -> Result<Self, Error> {
        ensure_topic(&topic, &config, ground)?;
        let keys = Arc::new(Keys {
            name: topic.to_string(),
            quotas: ArcSwap::from_pointee(config.quotas),
            key_max_bytes: store.key_max_bytes,
            cache: Arc::new(ReadCache::new(memory.values)),
            tables: std::sync::OnceLock::new(),
        });
        let views_config = ViewsConfig {
            partitions: config.partitions,
            inbox_max_bytes: store.inbox_max_bytes,
            inbox_setting: "store.inbox_max_bytes",
            inbox_memory: memory.queues.inboxes,
            dirty_max_bytes: store.dirty_max_bytes,
            dirty_memory: memory.queues.changes,
            append_max_bytes: RECORD_MAX_BYTES,
            ..ViewsConfig::default()
        };
        let views = Views::open_shared(Arc::clone(&keys), &topic, &views_config, ground)?;
        let tables: Box<[Arc<Table>]> =
            views.snapshots().iter().map(|snapshot| Arc::clone(&snapshot.state.table)).collect();
        // Nobody else sets it: it was made above.
        let _ = keys.tables.set(tables.clone());
        let numbers = 0..config.partitions;
        let partition = |number| ground.log.partition(&TopicPartition::new(topic.clone(), number));
        let partitions = numbers.map(partition).collect::<Result<_, _>>()?;
        let (readers, wall) = (Arc::clone(readers), Arc::clone(&ground.wall));
        let (partition_count, config) = (config.partitions, ArcSwap::from_pointee(config));
        let (rate, last_search) = (WriteRate::default(), LastSearch::default());
        let counts = Arc::new(BucketCounts::new(store.stats.top_events_bytes));
        Ok(Self {
            topic,
            partition_count,
            config,
            views,
            keys,
            tables,
            partitions,
            readers,
            wall,
            rate,
            last_search,
            chunks: memory.queues.chunks,
            abandoned: Mutex::default(),
            part_holds: Arc::default(),
            part_hold_max: Duration::from_millis(store.part_hold_max_ms),
            counts,
            known_garbage: KnownGarbage::of(partition_count),
        })
    }

    /// The topic of the bucket.
    pub fn topic(&self) -> &TopicName {
        &self.topic
    }

    /// The settings of the bucket.
    pub fn config(&self) -> Arc<BucketConfig> {
        self.config.load_full()
    }

    /// Puts changed settings into force, with `more` memory if the values in memory may take more. Kind and partitions stay
    /// as they are.
    ///
    /// # Errors
    /// [`Error::Log`] if the topic cannot take the ack level.
    pub fn configure(&self, config: BucketConfig, more: Grant, ground: &ViewRuntime) -> Result<(), Error> {
        ensure_topic(&self.topic, &config, ground)?;
        self.keys.quotas.store(Arc::new(config.quotas));
        self.keys.cache.resize(config.cache_bytes, more);
        self.config.store(Arc::new(config));
        Ok(())
    }

    /// Changes settings until the next start, or until [`Bucket::configure`]. Kind and partitions stay as they are.
    pub fn adjust(&self, change: impl FnOnce(&mut BucketConfig)) {
        let mut config = BucketConfig::clone(&self.config.load());
        change(&mut config);
        self.keys.quotas.store(Arc::new(config.quotas));
        self.config.store(Arc::new(config));
    }

    /// The partition that owns `key`.
    pub fn partition_of(&self, key: &[u8]) -> PartitionId {
        partition_of_key(key, self.partition_count)
    }

    /// Keys and bytes of the bucket.
    pub fn totals(&self) -> Totals {
        self.keys.totals()
    }

    /// Uploads that are neither committed nor given up.
    pub(crate) fn open_uploads(&self) -> u64 {
        self.tables.iter().map(|table| table.open_uploads()).sum()
    }

    /// Figures of the values in memory.
    pub fn cache_figures(&self) -> CacheFigures {
        self.keys.cache.figures()
    }

    pub(crate) fn counts(&self) -> &BucketCounts {
        &self.counts
    }

    /// Failures of the owners that last until a restart.
    pub fn failures(&self) -> Vec<Failure> {
        self.views.failures()
    }

    /// Checks a key of a client.
    ///
    /// # Errors
    /// [`Error::Refused`] for a key that is empty, too long or the store's own.
    pub fn check_key(&self, key: &[u8]) -> Result<(), Error> {
        Ok(self.keys.check_key(key)?)
    }

    /// The place of `key`, if it has not expired.
    pub(crate) fn place(&self, key: &[u8]) -> Option<Place> {
        let table = &self.tables[self.partition_of(key).0 as usize];
        table.get(table.fingerprint(key)).filter(|place| !place.has_expired(self.wall.now_ms()))
    }

    /// The version of `key`; `None` if there is no such key.
    pub fn version(&self, key: &[u8]) -> Option<u64> {
        self.place(key).map(|place| place.offset)
    }

    /// `true` if the value of `key` lies in parts.
    pub(crate) fn is_large(&self, key: &[u8]) -> bool {
        self.place(key).is_some_and(|place| place.is_large)
    }

    /// The bucket's wall time, milliseconds since 1970-01-01T00:00:00Z.
    pub fn now_ms(&self) -> i64 {
        self.wall.now_ms()
    }

    /// The latest time at which a value was written; `i64::MIN` if there is none.
    pub(crate) fn newest_ms(&self) -> i64 {
        self.tables.iter().map(|table| table.newest_ms()).max().unwrap_or(i64::MIN)
    }

    /// Looks for the value of `key` in memory.
    ///
    /// # Errors
    /// [`Error::Damaged`], [`Error::Log`] if the record cannot be read.
    pub fn look(&self, key: &[u8]) -> Result<Look, Error> {
        let begun = BucketCounts::sample();
        let looked = self.look_uncounted(key);
        match &looked {
            Ok(Look::Found(found)) => self.counts.found_in_memory(key, found.stored.value.bytes.len() as u64, begun),
            Ok(Look::Missing) => {
                self.counts.missing.fetch_add(1, Ordering::Relaxed);
            }
            // The read that follows is counted.
            Ok(Look::OnDisk { .. }) => {}
            Err(_) => self.counts.read_memory.failed(),
        }
        looked
    }

    fn look_uncounted(&self, key: &[u8]) -> Result<Look, Error> {
        let partition = self.partition_of(key);
        let mut version = 0;
        for _ in 0..LOOKUPS_MAX {
            let Some(Place { offset, .. }) = self.place(key) else { return Ok(Look::Missing) };
            version = offset;
            if let Some(stored) = self.keys.cache.get(partition, version, key) {
                return Ok(Look::Found(FoundValue { stored, version }));
            }
            let log = &self.partitions[partition.0 as usize];
            match read_record_in_memory(&**log, version, key)? {
                None => break,
                Some(Some(stored)) => return Ok(Look::Found(FoundValue { stored, version })),
                // A newer one takes its place.
                Some(None) => {}
            }
        }
        Ok(Look::OnDisk { version })
    }

    /// Reads the value of `key`; `None` if there is none, or if it has expired.
    ///
    /// # Errors
    /// [`Error::Damaged`], [`Error::Log`] if the record cannot be read; [`Error::ReadsWaiting`].
    pub async fn read(&self, key: &[u8]) -> Result<Option<FoundValue>, Error> {
        let partition = self.partition_of(key);
        for _ in 0..LOOKUPS_MAX {
            let version = match self.look(key)? {
                Look::Missing => return Ok(None),
                Look::Found(found) => return Ok(Some(found)),
                Look::OnDisk { version } => version,
            };
            if let Some(stored) = self.read_at(partition, version, key).await? {
                return Ok(Some(FoundValue { stored, version }));
            }
            self.wait_for_newer(partition, version, || self.place(key)).await?;
        }
        Err(Error::ReadsWaiting { waiting: LOOKUPS_MAX })
    }

    /// Reads the record of `key` at `offset`: at once where the page cache has it, otherwise on one of the threads for that.
    /// `None` if the record has gone or has another key.
    pub(crate) async fn read_at(
        &self,
        partition: PartitionId,
        offset: u64,
        key: &[u8],
    ) -> Result<Option<StoredValue>, Error> {
        let (log, read) =
            (&self.partitions[partition.0 as usize], DiskRead { partition, offset, begun: BucketCounts::sample() });
        if let Some(stored) = read.cached(&**log, key, &self.keys.cache, &self.counts)? {
            return Ok(stored);
        }
        let (log, key) = (Arc::clone(log), Bytes::copy_from_slice(key));
        let (cache, counts) = (Arc::clone(&self.keys.cache), Arc::clone(&self.counts));
        let work = move || read.blocking(&*log, &key, &cache, &counts);
        let pending = self
            .readers
            .submit(Some(self.topic.tenant()), work)
            .map_err(|full| Error::ReadsWaiting { waiting: full.waiting })?;
        pending.await.map_err(|_| Error::Stopped)?
    }

    /// The place of a key of the store's own, which lies in the partition of the value that it belongs to.
    pub(crate) fn own_place(&self, partition: PartitionId, key: &[u8]) -> Option<Place> {
        let table = &self.tables[partition.0 as usize];
        table.get(table.fingerprint(key))
    }

    /// Reads the record of a key of the store's own.
    pub(crate) async fn read_own(&self, partition: PartitionId, key: &[u8]) -> Result<Option<StoredValue>, Error> {
        for _ in 0..LOOKUPS_MAX {
            let Some(Place { offset, .. }) = self.own_place(partition, key) else { return Ok(None) };
            if let Some(stored) = self.read_at(partition, offset, key).await? {
                return Ok(Some(stored));
            }
            self.wait_for_newer(partition, offset, || self.own_place(partition, key)).await?;
        }
        Err(Error::ReadsWaiting { waiting: LOOKUPS_MAX })
    }

    /// Calls `visit` with the keys of `partition` from `start` on, in order, until it breaks. Every answered write is
    /// among them, and keys that have expired are too. Blocks on the disk: call it from a plain thread.
    ///
    /// # Errors
    /// [`Error::View`] if the checkpoint cannot be read.
    pub fn list(
        &self,
        partition: PartitionId,
        start: &[u8],
        mut visit: impl FnMut(&[u8], Listed) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        let mut damage = None;
        self.views.list(partition, start, |key, entry| match Listed::decode(entry) {
            Ok(listed) => visit(key, listed),
            Err(fault) => {
                damage = Some(fault.what);
                ControlFlow::Break(())
            }
        })?;
        damage.map_or(Ok(()), |what| Err(self.damaged(partition, 0, &what)))
    }

    /// Answers the accepted writes, refuses further ones, and writes the checkpoint.
    pub fn stop(&self) {
        self.views.stop();
    }

    pub(crate) fn damaged(&self, partition: PartitionId, offset: u64, what: &str) -> Error {
        let partition = TopicPartition::new(self.topic.clone(), partition.0);
        Error::Damaged { partition, offset, what: what.to_owned() }
    }
}
