//! A cache bucket: keys and values in memory, in a table that forgets when it is full.
//!
//! It never touches the log and is empty after a start. The table is cut into shards, each under a lock that is held
//! for the time of a lookup; a transaction locks the shards of its keys in the order of their numbers and takes effect
//! while it has them. So it is served by the thread of the socket.
//!
//! Invariants
//! - The bytes held, which are what has been allocated for keys, values and tables, exceed the budget by at most one
//!   value a shard, and only while others hold the shards in which there would be something to evict. Where nothing may
//!   be evicted, they also do by what a transaction takes back after others have written into its room. Values that
//!   readers still hold count no more once they have been replaced.
//! - A key that has expired is gone for every read.

mod block;
mod config;
mod eviction;
mod expiry;
mod index;
mod item;
mod listing;
mod loss;
mod pages;
mod settings;
mod shard;
mod stats;
#[cfg(test)]
mod tests;
mod time;
mod transaction;

use std::fmt;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};

use bytes::Bytes;
use foldhash::quality::RandomState;
use millstream_types::WallClock;
use parking_lot::{Mutex, MutexGuard};

pub use config::{CacheConfig, EvictionPolicy, InvalidCacheConfig, UnknownPolicy};
pub(crate) use config::{DEFAULT_BYTES, MIN_BYTES};
pub(crate) use listing::CachedKey;
pub use loss::{KeyLoss, LossListener};
pub use stats::{Keyspace, PageStats, ShardStats};
pub use transaction::CacheTransaction;

use crate::{Transaction, Value, WriteRefusal};
use eviction::Eviction;
use item::CachedItem;
use loss::Losses;
use shard::CacheShard;
use time::{Clock, Tick, TransactionTime};
use transaction::Locked;

/// Expired keys that a sweep removes before it lets others have the shard.
const SWEPT_AT_ONCE: usize = 64;

/// A value of its own in memory: threads that write to neighbours don't slow each other down.
#[repr(align(128))]
struct Apart<T>(T);

impl<T> std::ops::Deref for Apart<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

/// Some shards of a cache: bit `n` stands for shard `n`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShardSet(u64);

/// A cache bucket; see the head of this file. It is shared by reference, and locks inside.
///
/// ```
/// use std::sync::Arc;
/// use millstream_store::{Cache, CacheConfig, Transaction, Value};
/// use millstream_types::SystemClock;
///
/// let cache = Cache::new(&CacheConfig::default(), Arc::new(SystemClock::default()))?;
/// cache.transact(&[b"a", b"b"], |keys| {
///     keys.put(b"a", Value::of("1"))?;
///     keys.put(b"b", Value::of("2"))
/// }).expect("there is room for both");
/// assert_eq!(cache.get(b"b").map(|value| value.bytes), Some("2".into()));
/// # Ok::<(), millstream_store::InvalidCacheConfig>(())
/// ```
pub struct Cache {
    shards: Box<[Apart<Mutex<CacheShard>>]>,
    hash: RandomState,
    clock: Clock,
    /// The policy, by its place in [`EvictionPolicy::ALL`]. Each shard has it, too, with what it needs.
    policy: AtomicU8,
    max_bytes: AtomicU64,
    key_max_bytes: usize,
    value_max_bytes: AtomicU64,
    losses: Losses,
    /// The shard where the next sweep begins.
    next_swept: AtomicUsize,
    /// The held bytes of all shards.
    total_bytes: Apart<AtomicU64>,
    /// Versions up to this one are given to shards.
    versions: Apart<AtomicU64>,
}

/// Versions for each millisecond: more than a cache can give away, so that one that is made later begins above them.
const VERSIONS_PER_MS: u64 = 1 << 10;

impl Cache {
    /// An empty cache. `clock` says when keys expire.
    ///
    /// # Errors
    /// A setting that cannot be.
    pub fn new(config: &CacheConfig, clock: Arc<dyn WallClock>) -> Result<Self, InvalidCacheConfig> {
        config.validate()?;
        let shards = config.shards();
        let first_version = u64::try_from(clock.now_ms()).unwrap_or(0) * VERSIONS_PER_MS + 1;
        let shard = || CacheShard::new(Eviction::new(config), config.pages(shards));
        Ok(Self {
            shards: (0..shards).map(|_| Apart(Mutex::new(shard()))).collect(),
            hash: RandomState::default(),
            clock: Clock::new(clock),
            policy: AtomicU8::new(config.policy as u8),
            max_bytes: AtomicU64::new(config.max_bytes),
            key_max_bytes: config.key_max_bytes,
            value_max_bytes: AtomicU64::new(config.value_max_bytes.min(config.max_bytes / 2)),
            losses: Losses::default(),
            next_swept: AtomicUsize::new(0),
            total_bytes: Apart(AtomicU64::new(0)),
            versions: Apart(AtomicU64::new(first_version)),
        })
    }

    /// The value of `key`: the short way for a transaction that only reads this key.
    pub fn get(&self, key: &[u8]) -> Option<Value> {
        let (number, tag) = self.place(key);
        let moment = self.clock.moment();
        let mut shard = self.shards[number].lock();
        let value = self.get_in(&mut shard, tag, key, &moment);
        let lost = shard.take_lost();
        drop(shard);
        self.tell(lost);
        value
    }

    /// Runs `f` over `keys`. It reads and writes them, and no others, as if nobody else did meanwhile. If a write is
    /// refused, or if `f` panics, nothing that it wrote takes effect.
    ///
    /// # Panics
    /// If `f` uses a key that is not among `keys`.
    pub fn transact<R>(&self, keys: &[&[u8]], f: impl FnOnce(&mut dyn Transaction) -> R) -> R {
        self.transact_in(self.shards_of(keys.iter().copied()), |transaction| f(transaction))
    }

    /// The shards of some keys, for [`Self::transact_in`].
    pub fn shards_of<'k>(&self, keys: impl Iterator<Item = &'k [u8]>) -> ShardSet {
        match self.shards.len() {
            1 => ShardSet(1),
            _ => ShardSet(keys.fold(0, |set, key| set | 1 << self.place(key).0)),
        }
    }

    /// As [`Self::transact`], over any keys of these shards.
    ///
    /// # Panics
    /// If `f` uses a key of another shard.
    pub fn transact_in<R>(&self, shards: ShardSet, f: impl FnOnce(&mut CacheTransaction<'_>) -> R) -> R {
        f(&mut CacheTransaction::new(self, self.lock(shards)))
    }

    /// Runs `f` over all keys, as [`transact`](Self::transact) does over some. All others wait meanwhile.
    pub fn transact_all<R>(&self, f: impl FnOnce(&mut CacheTransaction<'_>) -> R) -> R {
        let all = ShardSet(u64::MAX >> (u64::BITS as usize - self.shards.len()));
        f(&mut CacheTransaction::new(self, self.lock(all)))
    }

    /// Locks shards in the order of their numbers.
    fn lock(&self, ShardSet(set): ShardSet) -> Locked<'_> {
        if set.is_power_of_two() {
            let number = set.trailing_zeros() as usize;
            return Locked::One(number, self.shards[number].lock());
        }
        let shards = self.shards.iter().enumerate().filter(|(number, _)| set >> number & 1 == 1);
        Locked::Many(set, shards.map(|(_, shard)| shard.lock()).collect())
    }

    /// Deletes all keys at one moment. The counters of the shards go on.
    pub fn clear(&self) {
        let mut guards: Vec<MutexGuard<'_, CacheShard>> = self.shards.iter().map(|shard| shard.lock()).collect();
        let clear = |shard: &mut MutexGuard<'_, CacheShard>| {
            let cleared = shard.clear();
            shard.settle(&self.total_bytes);
            cleared
        };
        let cleared: Vec<_> = guards.iter_mut().map(clear).collect();
        // Frees the keys when nobody waits for them any more.
        drop(guards);
        drop(cleared);
    }

    /// Removes up to `max_keys` keys that have expired. Returns how many: if as many, there may be more.
    ///
    /// The owner's background thread calls it at least some times a second, since it also keeps the time that
    /// is noted of each use.
    pub fn sweep(&self, max_keys: usize) -> usize {
        let moment = self.clock.moment();
        moment.ms();
        let (mut swept, mut items) = (0, Vec::new());
        for _ in 0..self.shards.len() {
            let number = self.next_swept.load(Ordering::Relaxed) % self.shards.len();
            loop {
                let at_once = SWEPT_AT_ONCE.min(max_keys - swept);
                let mut shard = self.shards[number].lock();
                items.extend(std::iter::from_fn(|| shard.remove_expired(&moment)).take(at_once));
                shard.settle(&self.total_bytes);
                let lost = shard.take_lost();
                drop(shard);
                self.tell(lost);
                let removed = items.drain(..).count();
                swept += removed;
                if swept == max_keys {
                    return swept;
                }
                if removed < at_once {
                    break;
                }
            }
            self.next_swept.store(number + 1, Ordering::Relaxed);
        }
        swept
    }

    /// Some keys from `cursor` on, about `count` of them, and the cursor of the next call; 0 begins, and
    /// 0 ends. A key that is there from the first call to the last is returned at least once, one that
    /// comes or goes meanwhile perhaps.
    pub fn scan(&self, cursor: u64, count: usize) -> (u64, Vec<Bytes>) {
        let moment = self.clock.moment();
        listing::scan(self.shards.len(), cursor, count, |number, from, left, keys| {
            listing::page(&self.shards[number].lock(), listing::ShardScan { from, left }, &moment, keys)
        })
    }

    /// A key at random; `None` if there is none.
    pub fn random_key(&self) -> Option<Bytes> {
        self.transact_all(|all| all.random_key())
    }

    /// The keys there are; some may have expired.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().slots.len()).sum()
    }

    /// True if there are no keys.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes that keys, values and tables have allocated.
    pub fn held_bytes(&self) -> u64 {
        self.total_bytes.load(Ordering::Relaxed)
    }

    /// The budget of [`held_bytes`](Self::held_bytes), as the configuration set it.
    #[inline]
    pub fn max_bytes(&self) -> u64 {
        self.max_bytes.load(Ordering::Relaxed)
    }

    /// The policy by which keys are evicted.
    #[inline]
    pub fn policy(&self) -> EvictionPolicy {
        EvictionPolicy::ALL[usize::from(self.policy.load(Ordering::Relaxed))]
    }

    /// The statistics of each shard.
    pub fn stats(&self) -> Vec<ShardStats> {
        self.shards.iter().map(|shard| ShardStats::of(&shard.lock())).collect()
    }

    /// Counts the keys of all shards, and those that expire.
    pub fn keyspace(&self) -> Keyspace {
        let (mut keyspace, mut sum_ms) = (Keyspace::default(), 0_i128);
        for shard in &self.shards {
            let shard = shard.lock();
            keyspace.keys += shard.slots.len() as u64;
            keyspace.expiring_keys += shard.expiries.len() as u64;
            sum_ms += shard.expiries.sum_ms();
        }
        if let Some(mean_ms) = sum_ms.checked_div(i128::from(keyspace.expiring_keys)) {
            let ttl_ms = mean_ms - i128::from(self.clock.moment().ms());
            keyspace.average_ttl_ms = u64::try_from(ttl_ms).unwrap_or(0);
        }
        keyspace
    }

    /// Milliseconds since `key` was last used, to the interval of the sweep; `None` if there is no such key, or if the
    /// [policy counts accesses](EvictionPolicy::counts_accesses). Does not count as a use.
    pub fn idle_ms(&self, key: &[u8]) -> Option<u64> {
        self.access(key, |eviction, access, now| eviction.idle_ms(access, now))
    }

    /// The logarithmic access counter of `key`; `None` if there is no such key, or if the policy does not
    /// [count accesses](EvictionPolicy::counts_accesses). Does not count as a use.
    pub fn frequency(&self, key: &[u8]) -> Option<u8> {
        self.access(key, |eviction, access, now| eviction.frequency(access, now))
    }

    fn access<T>(&self, key: &[u8], of: impl FnOnce(&Eviction, u32, Tick) -> Option<T>) -> Option<T> {
        let (number, tag) = self.place(key);
        let moment = self.clock.moment();
        moment.ms();
        let shard = self.shards[number].lock();
        let slot = shard.find(tag, key).filter(|slot| !moment.has_passed(shard.expires_ms(*slot)))?;
        of(&shard.eviction, shard.slots[slot as usize].access, moment.tick())
    }

    /// The shard of a key, and the part of its hash that the shard's index knows it by.
    #[inline]
    fn place(&self, key: &[u8]) -> (usize, u32) {
        let hash = self.hash.hash_one(key);
        (hash as usize & (self.shards.len() - 1), (hash >> 32) as u32)
    }

    #[inline]
    fn get_in(&self, shard: &mut CacheShard, tag: u32, key: &[u8], moment: &TransactionTime<'_>) -> Option<Value> {
        let expiries = shard.counters.expiries;
        let value = shard.get(tag, key, moment);
        if shard.counters.expiries != expiries {
            shard.settle(&self.total_bytes);
        }
        value
    }

    /// Checks a write against the limits.
    fn check(&self, key: &[u8], value: &Value) -> Result<(), WriteRefusal> {
        if key.is_empty() || key.len() > self.key_max_bytes || key[0] == 0 {
            return Err(WriteRefusal::Key { length: key.len(), max_bytes: self.key_max_bytes });
        }
        // Rounded up, a value of half the budget still fits; what does not is the fault of its attributes.
        let allocated = CachedItem::allocated_bytes(key, value);
        let fits = allocated <= self.max_bytes() / 4 * 3;
        let length = if fits { value.bytes.len() as u64 } else { allocated };
        let max_bytes = self.value_max_bytes.load(Ordering::Relaxed);
        if length > max_bytes {
            return Err(WriteRefusal::ValueTooLarge { length, max_bytes });
        }
        Ok(())
    }
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (shards, max_bytes) = (self.shards.len(), self.max_bytes());
        f.debug_struct("Cache").field("shards", &shards).field("max_bytes", &max_bytes).finish_non_exhaustive()
    }
}
