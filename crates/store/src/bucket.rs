//! A durable bucket: transactions at the owners, and reads beside them.
//!
//! A read looks a key up in the table and takes the value from the cache, or from the log at the key's offset. What it
//! finds there must have that key; otherwise a newer write has landed meanwhile, and the key is looked up again.

mod disk_read;
mod newer;
mod scan;
mod snapshot;

use std::any::Any;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Instant;

use arc_swap::ArcSwap;
use bytes::Bytes;
use millstream_http::Workers;
use millstream_log::{AckLevel, Cleanup, Partition, TopicConfig, UpTo, Writers};
use millstream_types::{ErrorCode, Grant, Offset, PartitionId, TopicName, TopicPartition, WallClock, partition_of_key};
use millstream_view::{Failure, ViewRuntime, Views, ViewsConfig};
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use self::disk_read::{DiskRead, read_record};
pub use self::snapshot::{Needed, Snapshot};
use crate::counters::BucketCounts;
use crate::keys::{Keys, Loaded, OwnerTransaction, TransactionAnswer, TransactionCommand};
use crate::rate::WriteRate;
use crate::read_cache::{CacheFigures, ReadCache};
use crate::record::{Listed, StoredValue};
use crate::table::{Place, Table, Totals};
use crate::{BucketConfig, BucketMemory, Error, Interrupted, StoreConfig, Value, WriteRefusal};

/// Largest record of a bucket, which is as much as one append of an owner takes.
const RECORD_MAX_BYTES: usize = 4 << 20;
/// Share of live bytes below which compaction rewrites a segment.
const LIVE_PERCENT: u8 = 50;
/// Times that a read looks a key up again because a newer write has landed meanwhile.
const LOOKUPS_MAX: usize = 200;
/// Expired keys that are removed together.
pub(crate) const EXPIRED_MAX: usize = 1_000;
/// Time between two searches for expired keys because a quota is used up.
const EXPIRY_PAUSE_MS: i64 = 1_000;
/// Bytes of a command beside what its work holds.
const COMMAND_BYTES: usize = 256;

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
    /// When expired keys were last looked for because a quota was used up.
    expiry_ms: AtomicI64,
    /// Room for chunks of large values on their way to the owners of all buckets.
    pub(crate) chunks: Arc<Semaphore>,
    /// Keys of the store's own whose writers have given up: open uploads, and beginnings of chunks.
    pub(crate) abandoned: Mutex<Vec<(PartitionId, Bytes)>>,
    counts: Arc<BucketCounts>,
}

impl std::fmt::Debug for Bucket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Bucket({})", self.topic)
    }
}

/// The outcome of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Done<T> {
    /// The value that the transaction's closure returned.
    pub output: T,
    /// The version of the first key that was written; each further key has the next version.
    pub first: u64,
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
        let (rate, expiry_ms) = (WriteRate::default(), AtomicI64::new(i64::MIN));
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
            expiry_ms,
            chunks: memory.queues.chunks,
            abandoned: Mutex::default(),
            counts,
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

    /// Figures of the values in memory.
    pub fn cache_figures(&self) -> CacheFigures {
        self.keys.cache.figures()
    }

    /// Number of keys that have an expiry.
    pub(crate) fn expiring_keys(&self) -> u64 {
        self.tables.iter().map(|table| table.expiring_keys()).sum()
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

    /// Admits `writes` together by the bucket's rate.
    ///
    /// # Errors
    /// [`Error::Refused`] if the rate is used up.
    pub fn admit_writes(&self, writes: u32) -> Result<(), Error> {
        let Some(per_second) = self.keys.quotas.load().writes_per_second else { return Ok(()) };
        self.rate.admit(per_second, writes, self.wall.now_ms()).map_err(|wait| {
            let wait_ms = wait.as_nanos().div_ceil(1_000_000) as u64;
            WriteRefusal::TooManyWrites { per_second, wait_ms }.into()
        })
    }

    /// Runs `work` at the owner of `partition`, as one write by the bucket's rate. It may run several times, each time
    /// from its beginning, and only its last run takes effect. `size_bytes` is what it holds. The answer comes at
    /// `level`, or at the bucket's own.
    ///
    /// # Errors
    /// [`Error::Refused`] by a limit; [`Error::View`], [`Error::Log`] if the owner refuses or fails.
    pub async fn transact<T, W>(
        &self,
        partition: PartitionId,
        level: Option<AckLevel>,
        size_bytes: usize,
        work: W,
    ) -> Result<Done<T>, Error>
    where
        T: Send + 'static,
        W: FnMut(&mut OwnerTransaction<'_, '_>) -> Result<T, Interrupted> + Send + 'static,
    {
        self.admit_writes(1)?;
        let begun = Instant::now();
        let done = self.transact_admitted(partition, level, size_bytes, work).await;
        match &done {
            Ok(_) => self.counts.write.succeeded(begun.elapsed(), size_bytes as u64),
            Err(_) => self.counts.write.failed(),
        }
        done
    }

    /// As [`Bucket::transact`], for a transaction that only reads, or
    /// whose writes [`Bucket::admit_writes`] has admitted.
    ///
    /// # Errors
    /// Those of [`Bucket::transact`], but for the rate.
    pub async fn transact_admitted<T, W>(
        &self,
        partition: PartitionId,
        level: Option<AckLevel>,
        size_bytes: usize,
        work: W,
    ) -> Result<Done<T>, Error>
    where
        T: Send + 'static,
        W: FnMut(&mut OwnerTransaction<'_, '_>) -> Result<T, Interrupted> + Send + 'static,
    {
        let command = self.command(partition, level, size_bytes, work);
        let answer = self.ask(command).await?;
        let is_full = matches!(&answer, TransactionAnswer::Refused { refusal, .. } if refusal.is_of_quota());
        // Keys that have expired take room until they are removed.
        if !is_full || !self.remove_all_expired().await {
            return done(answer);
        }
        match answer {
            TransactionAnswer::Refused { command, .. } => done(self.ask(command).await?),
            answer => done(answer),
        }
    }

    fn command<T, W>(
        &self,
        partition: PartitionId,
        level: Option<AckLevel>,
        size_bytes: usize,
        mut work: W,
    ) -> TransactionCommand
    where
        T: Send + 'static,
        W: FnMut(&mut OwnerTransaction<'_, '_>) -> Result<T, Interrupted> + Send + 'static,
    {
        TransactionCommand {
            partition,
            work: Box::new(move |transaction| Ok(Box::new(work(transaction)?) as Box<dyn Any + Send>)),
            loaded: Vec::new(),
            level: Some(level.unwrap_or_else(|| self.config.load().ack.into())),
            size_bytes: COMMAND_BYTES + size_bytes,
        }
    }

    /// Asks the owner until all values that the work wants are loaded.
    async fn ask(&self, mut command: TransactionCommand) -> Result<TransactionAnswer, Error> {
        let partition = command.partition;
        loop {
            match self.views.ask(partition, command).await? {
                TransactionAnswer::NotLoaded { command: again, missing } => {
                    command = again;
                    // Those of other keys stay, as its next run asks for them again.
                    command.loaded.retain(|loaded| missing.iter().all(|(key, _)| *key != loaded.key));
                    for (key, offset) in missing {
                        if let Some(stored) = self.read_at(partition, offset, &key).await? {
                            command.loaded.push(Loaded { key, offset, stored });
                        }
                    }
                }
                answer => {
                    if let TransactionAnswer::Done { written, .. } = &answer {
                        self.counts.changes.fetch_add(written.len() as u64, Ordering::Relaxed);
                    }
                    return Ok(answer);
                }
            }
        }
    }

    /// Removes all expired keys, unless that was done less than a second ago. Returns `true` if it removed some.
    async fn remove_all_expired(&self) -> bool {
        let now_ms = self.wall.now_ms();
        let is_due = |last_ms: i64| (now_ms.saturating_sub(last_ms) >= EXPIRY_PAUSE_MS).then_some(now_ms);
        if self.expiry_ms.fetch_update(Ordering::AcqRel, Ordering::Acquire, is_due).is_err() {
            return false;
        }
        let mut removed = 0;
        for turn in 0..self.expiry_turns() {
            while let Ok(of_turn @ 1..) = self.remove_expired(turn, EXPIRED_MAX).await {
                removed += of_turn;
            }
            tokio::task::yield_now().await;
        }
        removed > 0
    }

    /// Stores `value` under `key` and returns its version.
    ///
    /// # Errors
    /// The same errors as [`Bucket::transact`].
    pub async fn put(&self, key: &[u8], value: Value, level: Option<AckLevel>) -> Result<u64, Error> {
        let (partition, size_bytes) = (self.partition_of(key), key.len() + value.bytes.len());
        let key = Bytes::copy_from_slice(key);
        let work =
            move |transaction: &mut OwnerTransaction<'_, '_>| crate::Transaction::put(transaction, &key, value.clone());
        Ok(self.transact(partition, level, size_bytes, work).await?.first)
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
            if !log.reads_from_memory(Offset(version)) {
                break;
            }
            if let Some(stored) = read_record(&**log, version, key)? {
                return Ok(Look::Found(FoundValue { stored, version }));
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
        let pending = self.readers.submit(work).map_err(|full| Error::ReadsWaiting { waiting: full.waiting })?;
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

    /// Removes keys that have expired from one part of one partition's table; `turn` counts the parts of all
    /// partitions. Returns the number of keys that it removed.
    ///
    /// # Errors
    /// The same errors as [`Bucket::transact`].
    pub async fn remove_expired(&self, turn: usize, limit: usize) -> Result<usize, Error> {
        Ok(self.take_expired(turn, limit).await?.len())
    }

    /// As [`Bucket::remove_expired`]; returns the keys.
    ///
    /// # Errors
    /// The same errors as [`Bucket::transact`].
    pub(crate) async fn take_expired(&self, turn: usize, limit: usize) -> Result<Vec<Bytes>, Error> {
        let parts = self.tables[0].parts();
        let number = turn / parts % self.tables.len();
        let (partition, table) = (PartitionId(number as u32), &self.tables[number]);
        let offsets = table.expired(turn % parts, self.wall.now_ms(), limit);
        if offsets.is_empty() {
            return Ok(Vec::new());
        }
        let log = Arc::clone(&self.partitions[number]);
        let keys = move || -> Result<Vec<Bytes>, Error> {
            let mut keys = Vec::with_capacity(offsets.len());
            for offset in offsets {
                match log.read_one(Offset(offset), UpTo::Tail) {
                    Ok(record) => keys.extend(record.and_then(|record| record.key)),
                    // Its key is gone for readers. The others are not to wait for it.
                    Err(damage) if damage.code() == ErrorCode::Corrupt => {
                        tracing::warn!(error = %damage, "the record of an expired key cannot be read; it is not removed");
                    }
                    Err(failure) => return Err(failure.into()),
                }
            }
            Ok(keys)
        };
        let pending = self.readers.submit(keys).map_err(|full| Error::ReadsWaiting { waiting: full.waiting })?;
        let keys = pending.await.map_err(|_| Error::Stopped)??;
        let size_bytes = keys.iter().map(Bytes::len).sum();
        let work = move |transaction: &mut OwnerTransaction<'_, '_>| {
            Ok(keys.iter().filter(|key| transaction.remove_if_expired(key)).cloned().collect::<Vec<Bytes>>())
        };
        let keys: Vec<Bytes> = done(self.ask(self.command(partition, None, size_bytes, work)).await?)?.output;
        self.counts.expired.fetch_add(keys.len() as u64, Ordering::Relaxed);
        Ok(keys)
    }

    /// Number of keys, after those that have expired are removed.
    ///
    /// # Errors
    /// The same errors as [`Bucket::transact`].
    pub async fn count(&self) -> Result<u64, Error> {
        for turn in 0..self.expiry_turns() {
            while self.take_expired(turn, EXPIRED_MAX).await?.len() == EXPIRED_MAX {}
        }
        Ok(self.totals().keys)
    }

    /// Resolves once everything that was written to `partition` before is synced to disk.
    ///
    /// # Errors
    /// The same errors as [`Bucket::transact`].
    pub async fn sync(&self, partition: PartitionId) -> Result<(), Error> {
        // An answer at a level covers everything before it, so a record that says nothing is enough.
        let work = |transaction: &mut OwnerTransaction<'_, '_>| {
            transaction.touch();
            Ok(())
        };
        self.transact(partition, Some(AckLevel::Synced), 0, work).await.map(|_| ())
    }

    /// Any key; `None` if there is none.
    ///
    /// # Errors
    /// [`Error::Log`] if a record cannot be read; [`Error::ReadsWaiting`].
    pub async fn random_key(&self) -> Result<Option<Bytes>, Error> {
        let first = fastrand::usize(..self.tables.len());
        let now_ms = self.wall.now_ms();
        for step in 0..self.tables.len() {
            let number = (first + step) % self.tables.len();
            let Some(offset) = self.tables[number].random(now_ms) else { continue };
            let log = Arc::clone(&self.partitions[number]);
            let read = move || log.read_one(Offset(offset), UpTo::Tail);
            let pending = self.readers.submit(read).map_err(|full| Error::ReadsWaiting { waiting: full.waiting })?;
            if let Some(record) = pending.await.map_err(|_| Error::Stopped)?? {
                return Ok(record.key);
            }
        }
        Ok(None)
    }

    /// Number of turns of [`Bucket::remove_expired`] that look at every key once.
    pub fn expiry_turns(&self) -> usize {
        self.tables.len() * self.tables[0].parts()
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

/// The outcome of a transaction whose work returns a `T`.
fn done<T: 'static>(answer: TransactionAnswer) -> Result<Done<T>, Error> {
    match answer {
        TransactionAnswer::Done { output, first, .. } => {
            // The work returns nothing else.
            let output = *output.downcast::<T>().map_err(|_| Error::Stopped)?;
            Ok(Done { output, first })
        }
        TransactionAnswer::Refused { refusal, .. } => Err(refusal.into()),
        // It is asked until everything is loaded.
        TransactionAnswer::NotLoaded { .. } => Err(Error::Stopped),
    }
}

fn ensure_topic(topic: &TopicName, config: &BucketConfig, ground: &ViewRuntime) -> Result<(), Error> {
    let wanted = TopicConfig {
        partitions: config.partitions,
        level: config.ack.into(),
        cleanup: Cleanup::Compact,
        writers: Writers::OwnersOnly,
        retention: None,
        record_max_bytes: RECORD_MAX_BYTES,
        compaction_live_percent: Some(LIVE_PERCENT),
        ..TopicConfig::default()
    };
    match ground.log.topic(topic) {
        None => drop(ground.log.create_topic(topic, &wanted)?),
        Some(existing) if existing.config.level != wanted.level => {
            let config = TopicConfig { level: wanted.level, ..existing.config.clone() };
            drop(ground.log.alter_topic(topic, &config)?);
        }
        Some(_) => {}
    }
    Ok(())
}
