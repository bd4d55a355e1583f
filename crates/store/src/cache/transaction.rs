//! A transaction over keys of a cache: it holds the locks of their shards, and can take back what it did.

use std::sync::atomic::Ordering;
use std::thread;

use bytes::Bytes;
use parking_lot::MutexGuard;

use super::eviction::Eviction;
use super::item::CachedItem;
use super::listing::{self, ShardScan};
use super::loss::ToldAfterwards;
use super::shard::CacheShard;
use super::time::{Tick, TransactionTime};
use super::{Cache, EvictionPolicy};
use crate::{Interrupted, KeyEntry, Transaction, Value, WriteRefusal};

/// Shards that are tried for a fuller one, before a shard that holds little evicts its own keys.
const FULLER_SHARD_TRIES: usize = 4;
/// Keys whose reads from memory are under way together.
const TOUCHED_AT_ONCE: usize = 16;
/// Times that a write looks for keys to evict while others hold the shards that may have some.
const BUSY_TRIES: usize = 64;

/// The locks of a transaction, taken in the order of the shards.
pub(super) enum Locked<'a> {
    One(usize, MutexGuard<'a, CacheShard>),
    /// The set of their numbers, and the shards.
    Many(u64, Vec<MutexGuard<'a, CacheShard>>),
}

impl Locked<'_> {
    #[inline]
    fn each(&mut self, mut visit: impl FnMut(&mut CacheShard)) {
        match self {
            Self::One(_, shard) => visit(shard),
            Self::Many(_, shards) => shards.iter_mut().for_each(|shard| visit(shard)),
        }
    }

    #[inline]
    fn get(&mut self, number: usize) -> Option<&mut CacheShard> {
        match self {
            Self::One(own, shard) => (*own == number).then_some(&mut **shard),
            Self::Many(set, shards) => {
                let before = (*set & ((1 << number) - 1)).count_ones() as usize;
                (*set >> number & 1 == 1).then(|| &mut *shards[before])
            }
        }
    }
}

/// The state of one key before a change, by which the change is taken back.
struct UndoRecord {
    shard: usize,
    tag: u32,
    /// The version that the change stored, if it stored one.
    stored: Option<u64>,
    /// The item that the change replaced or removed.
    old: Option<CachedItem>,
}

/// The changes of a transaction. The first one needs no allocation.
#[derive(Default)]
struct UndoLog {
    first: Option<UndoRecord>,
    others: Vec<UndoRecord>,
}

impl UndoLog {
    fn push(&mut self, change: UndoRecord) {
        match self.first {
            None => self.first = Some(change),
            Some(_) => self.others.push(change),
        }
    }

    fn pop(&mut self) -> Option<UndoRecord> {
        self.others.pop().or_else(|| self.first.take())
    }
}

/// The outcome of the search for room.
enum Evicted {
    Some,
    /// Nothing was found, but not all shards could be searched, since other transactions hold them.
    Busy,
    None,
}

/// Reads and writes of the keys of a cache that take effect together; see [`Cache::transact_all`].
pub struct CacheTransaction<'a> {
    cache: &'a Cache,
    moment: TransactionTime<'a>,
    // Declared before the changes: old values are freed, and losses told, when the locks are gone.
    locked: Locked<'a>,
    changes: UndoLog,
    lost: ToldAfterwards<'a>,
    refusal: Option<WriteRefusal>,
}

impl<'a> CacheTransaction<'a> {
    #[inline]
    pub(super) fn new(cache: &'a Cache, locked: Locked<'a>) -> Self {
        let lost = ToldAfterwards { cache, lost: Vec::new() };
        Self { cache, moment: cache.clock.moment(), locked, changes: UndoLog::default(), lost, refusal: None }
    }

    /// Reads from memory what finding these keys will read. Memory answers for several keys in the time that it takes
    /// for one, so a transaction over many keys then waits less than if it found one after the other.
    ///
    /// # Panics
    /// As [`Cache::transact`], if a key is in none of the transaction's shards.
    #[inline]
    pub fn touch<'k>(&mut self, mut keys: impl Iterator<Item = &'k [u8]>) {
        loop {
            let mut slots = [(0, None); TOUCHED_AT_ONCE];
            let mut count = 0;
            for key in keys.by_ref().take(TOUCHED_AT_ONCE) {
                let (number, tag) = self.cache.place(key);
                slots[count] = (number, self.shard(number).guess(tag));
                count += 1;
            }
            let mut read = 0;
            for (number, slot) in &slots[..count] {
                read |= slot.map_or(0, |slot| self.shard(*number).slots[slot as usize].first_byte());
            }
            // Otherwise the compiler would leave the reads out.
            std::hint::black_box(read);
            if count < TOUCHED_AT_ONCE {
                return;
            }
        }
    }

    /// The keys there are; some may have expired.
    pub fn len(&mut self) -> usize {
        (0..self.cache.shards.len()).map(|number| self.shard(number).slots.len()).sum()
    }

    /// True if there are no keys.
    pub fn is_empty(&mut self) -> bool {
        self.len() == 0
    }

    /// Deletes all keys of the cache as part of the transaction.
    pub fn clear(&mut self) {
        for number in 0..self.cache.shards.len() {
            while let Some(last) = self.shard(number).slots.len().checked_sub(1) {
                self.remove(number, last as u32);
            }
        }
    }

    /// Lists some keys from a cursor on; see [`Cache::scan`].
    pub fn scan(&mut self, cursor: u64, count: usize) -> (u64, Vec<Bytes>) {
        let shards = self.cache.shards.len();
        listing::scan(shards, cursor, count, |number, from, left, keys| {
            let shard = self.locked.get(number).expect(LOCKED);
            listing::page(shard, ShardScan { from, left }, &self.moment, keys)
        })
    }

    /// A random key that has not expired; `None` if there is none.
    pub fn random_key(&mut self) -> Option<Bytes> {
        let (cache, mut keys) = (self.cache, self.len());
        while keys > 0 {
            let mut nth = fastrand::usize(..keys);
            let mut number = 0;
            while nth >= self.shard(number).slots.len() {
                nth -= self.shard(number).slots.len();
                number += 1;
            }
            let shard = self.locked.get(number).expect(LOCKED);
            if let Some(key) = listing::nth_live(shard, nth, &self.moment) {
                return Some(key);
            }
            shard.settle(&cache.total_bytes);
            keys -= 1;
        }
        None
    }

    /// # Panics
    /// If the transaction was not begun with a key of this shard.
    fn shard(&mut self, number: usize) -> &mut CacheShard {
        self.locked.get(number).expect(LOCKED)
    }

    /// The shard, the tag and the slot of a key, if it is there.
    fn find(&mut self, key: &[u8]) -> (usize, u32, Option<u32>) {
        let (number, tag) = self.cache.place(key);
        let shard = self.locked.get(number).expect(LOCKED);
        let expiries = shard.counters.expiries;
        let slot = shard.find_live(tag, key, &self.moment);
        if shard.counters.expiries != expiries {
            shard.settle(&self.cache.total_bytes);
        }
        (number, tag, slot)
    }

    /// The note of a key's uses, and the time now. Does not count as a use.
    fn access(&mut self, key: &[u8]) -> Option<(Eviction, u32, Tick)> {
        let (number, _, slot) = self.find(key);
        let shard = self.shard(number);
        let (eviction, access) = (shard.eviction, shard.slots[slot? as usize].access);
        Some((eviction, access, self.moment.tick()))
    }

    fn remove(&mut self, number: usize, slot: u32) {
        let cache = self.cache;
        let shard = self.shard(number);
        let tag = shard.slots[slot as usize].tag;
        let old = Some(shard.remove(slot));
        shard.settle(&cache.total_bytes);
        self.changes.push(UndoRecord { shard: number, tag, stored: None, old });
    }

    fn try_put(&mut self, key: &[u8], value: Value) -> Result<(), WriteRefusal> {
        self.cache.check(key, &value)?;
        let (number, tag, slot) = self.find(key);
        if self.moment.has_passed(value.expires_ms) {
            if let Some(slot) = slot {
                self.remove(number, slot);
            }
            return Ok(());
        }
        let (slot, spare_bytes) = self.make_room(number, tag, slot, key, &value)?;
        let Self { cache, moment, locked, changes, .. } = self;
        let shard = locked.get(number).expect(LOCKED);
        let version = shard.next_version(&cache.versions);
        let item = CachedItem::new(key, value, version);
        let old = match slot {
            Some(slot) => {
                let old = shard.replace(slot, item);
                shard.used(slot, moment);
                Some(old)
            }
            None => {
                shard.insert(tag, item, moment, spare_bytes);
                None
            }
        };
        shard.settle(&cache.total_bytes);
        changes.push(UndoRecord { shard: number, tag, stored: Some(version), old });
        Ok(())
    }

    /// Evicts until the value fits. Returns the slot of the key, if it is still there, and the bytes that are left.
    fn make_room(
        &mut self,
        number: usize,
        tag: u32,
        mut slot: Option<u32>,
        key: &[u8],
        value: &Value,
    ) -> Result<(Option<u32>, u64), WriteRefusal> {
        let (bytes, expires) = (CachedItem::allocated_bytes(key, value), value.expires_ms.is_some());
        let (max_bytes, mut tries) = (self.cache.max_bytes(), 0);
        loop {
            let shard = self.locked.get(number).expect(LOCKED);
            let cost = match slot {
                Some(slot) => shard.replace_cost(slot, bytes, expires),
                None => shard.insert_cost(bytes, expires) as i64,
            };
            let held = self.cache.total_bytes.load(Ordering::Relaxed);
            let total = held.saturating_add_signed(cost);
            if total <= max_bytes {
                return Ok((slot, max_bytes - total));
            }
            match self.evict(number) {
                Evicted::Some => slot = slot.and_then(|_| self.shard(number).find(tag, key)),
                // Rather one value too many for a moment than a refusal by chance; but no second one.
                Evicted::Busy if held <= max_bytes => return Ok((slot, 0)),
                Evicted::Busy if tries < BUSY_TRIES => {
                    tries += 1;
                    thread::yield_now();
                }
                Evicted::Busy | Evicted::None if cost <= 0 => return Ok((slot, 0)),
                Evicted::Busy | Evicted::None => return Err(WriteRefusal::CacheFull { max_bytes }),
            }
        }
    }

    /// Evicts one key: of the shard `number`, or of a fuller one if it holds less than half of its share.
    fn evict(&mut self, number: usize) -> Evicted {
        let shards = self.cache.shards.len();
        let half_share = self.cache.max_bytes() / shards as u64 / 2;
        if self.shard(number).held_bytes() < half_share {
            let first = fastrand::usize(..shards);
            for other in (first..first + FULLER_SHARD_TRIES.min(shards)).map(|other| other % shards) {
                if self.evict_in(other, half_share) == Some(true) {
                    return Evicted::Some;
                }
            }
        }
        let mut is_busy = false;
        for other in (number..number + shards).map(|other| other % shards) {
            match self.evict_in(other, 0) {
                Some(true) => return Evicted::Some,
                Some(false) => {}
                None => is_busy = true,
            }
        }
        if is_busy && self.cache.policy() != EvictionPolicy::Noeviction { Evicted::Busy } else { Evicted::None }
    }

    /// Evicts one key of a shard that holds at least so much; `None` if another transaction has it. Never waits, so
    /// that the order of locks does not matter.
    fn evict_in(&mut self, number: usize, least_bytes: u64) -> Option<bool> {
        let Self { cache, moment, locked, lost, .. } = self;
        let mut guard = None;
        let shard = match locked.get(number) {
            Some(shard) => shard,
            None => &mut **guard.insert(cache.shards[number].try_lock()?),
        };
        let evicted = shard.held_bytes() >= least_bytes && shard.evict(moment);
        shard.settle(&cache.total_bytes);
        lost.lost.append(&mut shard.take_lost());
        Some(evicted)
    }

    /// Takes back all changes. Evictions and expiries stay.
    fn undo(&mut self) {
        let Self { cache, moment, locked, changes, .. } = self;
        let mut changed = None;
        while let Some(UndoRecord { shard, tag, stored, old }) = changes.pop() {
            changed = Some(shard);
            let shard = locked.get(shard).expect(LOCKED);
            let slot = stored.and_then(|version| shard.find_version(tag, version));
            match (slot, old) {
                (Some(slot), Some(old)) => drop(shard.replace(slot, old)),
                (Some(slot), None) => drop(shard.remove(slot)),
                (None, Some(old)) => shard.insert(tag, old, moment, 0),
                (None, None) => {}
            }
            shard.settle(&cache.total_bytes);
        }
        if let Some(number) = changed {
            self.recover_room(number);
        }
    }

    /// Makes room after changes of the shard `number` were taken back: meanwhile the tables may have grown, and others may
    /// have written, into what was free then.
    fn recover_room(&mut self, number: usize) {
        let cache = self.cache;
        let is_over = || cache.total_bytes.load(Ordering::Relaxed) > cache.max_bytes();
        if is_over() {
            self.locked.each(|shard| {
                shard.shrink();
                shard.settle(&cache.total_bytes);
            });
        }
        while is_over() && matches!(self.evict(number), Evicted::Some) {}
    }
}

const LOCKED: &str = "a transaction uses only the keys that it was begun with";

impl Transaction for CacheTransaction<'_> {
    fn now_ms(&self) -> i64 {
        self.moment.ms()
    }

    fn entry(&mut self, key: &[u8]) -> Option<KeyEntry> {
        let (number, _, slot) = self.find(key);
        slot.map(|slot| self.shard(number).entry(slot))
    }

    fn get(&mut self, key: &[u8]) -> Result<Option<Value>, Interrupted> {
        let (number, tag) = self.cache.place(key);
        let Self { cache, moment, locked, .. } = self;
        Ok(cache.get_in(locked.get(number).expect(LOCKED), tag, key, moment))
    }

    fn put(&mut self, key: &[u8], value: Value) -> Result<(), Interrupted> {
        if self.refusal.is_none() {
            self.refusal = self.try_put(key, value).err();
        }
        self.refusal.clone().map_or(Ok(()), |refusal| Err(refusal.into()))
    }

    fn delete(&mut self, key: &[u8]) -> bool {
        let (number, _, slot) = self.find(key);
        if let Some(slot) = slot {
            self.remove(number, slot);
        }
        slot.is_some()
    }

    fn idle_ms(&mut self, key: &[u8]) -> Option<u64> {
        let (eviction, access, now) = self.access(key)?;
        eviction.idle_ms(access, now)
    }

    fn frequency(&mut self, key: &[u8]) -> Option<u8> {
        let (eviction, access, now) = self.access(key)?;
        eviction.frequency(access, now)
    }
}

impl Drop for CacheTransaction<'_> {
    fn drop(&mut self) {
        if self.refusal.is_some() || thread::panicking() {
            self.undo();
        }
        let Self { locked, lost, .. } = self;
        locked.each(|shard| lost.lost.append(&mut shard.take_lost()));
    }
}
