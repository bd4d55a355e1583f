//! One part of a cache's keys, under one lock: the slots of the keys, dense in one array, and
//! the tables that find them.
//!
//! Invariants
//! - Each slot is in the index; in the heap of expiries if it expires; in one page if the policy is `slru`.
//! - A slot that goes is replaced by the last one, so that a slot at random is a key at random.
//! - [`held_bytes`](Shard::held_bytes) is what all of this has allocated.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use fastrand::Rng;

use super::eviction::Eviction;
use super::expiry::Expiries;
use super::index::SlotIndex;
use super::item::{CacheSlot, CachedItem, NEVER};
use super::loss::{KeyLoss, Losses, LostKeys};
use super::pages::Pages;
use super::time::TransactionTime;
use crate::{KeyEntry, Value};

const SLOT_BYTES: u64 = size_of::<CacheSlot>() as u64;
/// The clock is read once in so many uses of a shard's keys.
const USES_A_TICK: u64 = 64;
/// Versions that a shard takes from the cache's counter at once, so that shards don't compete for it.
const VERSIONS_AT_ONCE: u64 = 1_024;
/// Slots that an array has at least.
const MIN_SLOTS: usize = 8;

/// The counters of a shard since it was made.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Counters {
    pub(super) hits: u64,
    pub(super) misses: u64,
    pub(super) evictions: u64,
    pub(super) expiries: u64,
}

/// The part of the keys; see the head of this file.
#[derive(Debug)]
pub(super) struct CacheShard {
    index: SlotIndex,
    pub(super) slots: Vec<CacheSlot>,
    pub(super) expiries: Expiries,
    pub(super) pages: Option<Pages>,
    pub(super) eviction: Eviction,
    pub(super) rng: Rng,
    pub(super) counters: Counters,
    pub(super) losses: Losses,
    /// Losses that are still to be told.
    lost: LostKeys,
    item_bytes: u64,
    /// The held bytes as they are part of the cache's total.
    settled_bytes: u64,
    versions: Range<u64>,
    uses: u64,
}

impl CacheShard {
    pub(super) fn new(eviction: Eviction, pages: Option<Pages>) -> Self {
        Self {
            index: SlotIndex::default(),
            slots: Vec::new(),
            expiries: Expiries::default(),
            pages,
            eviction,
            rng: Rng::new(),
            counters: Counters::default(),
            losses: Losses::default(),
            lost: LostKeys::new(),
            item_bytes: 0,
            settled_bytes: 0,
            versions: 0..0,
            uses: 0,
        }
    }

    #[inline]
    pub(super) fn find(&self, tag: u32, key: &[u8]) -> Option<u32> {
        self.index.find(tag, |slot| self.slots[slot as usize].is_of(key))
    }

    /// The slot that a key of this tag is in, perhaps.
    #[inline]
    pub(super) fn guess(&self, tag: u32) -> Option<u32> {
        self.index.guess(tag)
    }

    /// The slot that holds this version of a key.
    pub(super) fn find_version(&self, tag: u32, version: u64) -> Option<u32> {
        self.index.find(tag, |slot| self.slots[slot as usize].version == version)
    }

    /// The slot of a key; one that has expired is removed.
    #[inline]
    pub(super) fn find_live(&mut self, tag: u32, key: &[u8], moment: &TransactionTime<'_>) -> Option<u32> {
        let slot = self.find(tag, key)?;
        if self.slots[slot as usize].expiry == NEVER || !moment.has_passed(self.expires_ms(slot)) {
            return Some(slot);
        }
        self.note_loss(KeyLoss::Expired, slot);
        self.remove(slot);
        None
    }

    #[inline]
    pub(super) fn expires_ms(&self, slot: u32) -> Option<i64> {
        self.expiries.of(&self.slots[slot as usize])
    }

    /// Reads a key: a hit, or a miss.
    #[inline]
    pub(super) fn get(&mut self, tag: u32, key: &[u8], moment: &TransactionTime<'_>) -> Option<Value> {
        let Some(slot) = self.find_live(tag, key, moment) else {
            self.counters.misses += 1;
            return None;
        };
        self.counters.hits += 1;
        self.used(slot, moment);
        Some(self.slots[slot as usize].value(self.expires_ms(slot)))
    }

    pub(super) fn entry(&self, slot: u32) -> KeyEntry {
        self.slots[slot as usize].entry(self.expires_ms(slot))
    }

    /// Notes that a key was used.
    #[inline]
    pub(super) fn used(&mut self, slot: u32, moment: &TransactionTime<'_>) {
        self.uses += 1;
        if self.uses.is_multiple_of(USES_A_TICK) {
            moment.ms();
        }
        let at = &mut self.slots[slot as usize];
        at.access = self.eviction.next_access(at.access, moment.tick(), &mut self.rng);
        if let Some(pages) = &mut self.pages {
            pages.hit(&self.slots, slot);
        }
    }

    /// The next version; `counter` is the cache's.
    #[inline]
    pub(super) fn next_version(&mut self, counter: &AtomicU64) -> u64 {
        self.versions.next().unwrap_or_else(|| {
            let first = counter.fetch_add(VERSIONS_AT_ONCE, Ordering::Relaxed);
            self.versions = first + 1..first + VERSIONS_AT_ONCE;
            first
        })
    }

    /// Bytes that inserting an item of `bytes` takes at least.
    pub(super) fn insert_cost(&self, bytes: u64, expires: bool) -> u64 {
        let expiry = if expires { self.expiries.growth_bytes() } else { 0 };
        let slots = if self.slots.len() < self.slots.capacity() { 0 } else { self.least_growth() as u64 };
        bytes + expiry + self.index.growth_bytes() + slots * self.slot_bytes()
    }

    /// Bytes that giving a slot an item of `bytes` takes; negative if it frees some.
    #[inline]
    pub(super) fn replace_cost(&self, slot: u32, bytes: u64, expires: bool) -> i64 {
        let slot = &self.slots[slot as usize];
        let expiry = if expires && slot.expiry == NEVER { self.expiries.growth_bytes() } else { 0 };
        (bytes + expiry) as i64 - slot.allocated_bytes() as i64
    }

    fn slot_bytes(&self) -> u64 {
        SLOT_BYTES + if self.pages.is_some() { Pages::LINK_BYTES } else { 0 }
    }

    fn least_growth(&self) -> usize {
        (self.slots.capacity() / 8).max(MIN_SLOTS)
    }

    /// Adds an item whose key is not there. If the array of slots must grow, it may take
    /// `spare_bytes` more than it must.
    pub(super) fn insert(&mut self, tag: u32, item: CachedItem, moment: &TransactionTime<'_>, spare_bytes: u64) {
        if self.slots.len() == self.slots.capacity() {
            let (least, half) = (self.least_growth(), self.slots.capacity() / 2);
            let extra = half.saturating_sub(least) as u64 * self.slot_bytes();
            let growth = if extra <= spare_bytes { half.max(least) } else { least };
            self.slots.reserve_exact(growth);
            if let Some(pages) = &mut self.pages {
                pages.set_capacity(self.slots.capacity());
            }
        }
        let slot = self.slots.len() as u32;
        assert!(slot < NEVER, "a shard holds fewer than 2^32 - 1 keys");
        let expires_ms = item.expires_ms;
        self.slots.push(CacheSlot::new(tag, item));
        self.item_bytes += self.slots[slot as usize].allocated_bytes();
        self.index.insert(tag, slot);
        self.expiries.set(&mut self.slots, slot, expires_ms);
        if let Some(pages) = &mut self.pages {
            pages.enter(&self.slots);
        }
        self.slots[slot as usize].access = self.eviction.first_access(moment.tick());
    }

    /// Gives a slot another item of the same key. Returns the old one.
    #[inline]
    pub(super) fn replace(&mut self, slot: u32, item: CachedItem) -> CachedItem {
        let old_expires_ms = self.expires_ms(slot);
        let expires_ms = item.expires_ms;
        let at = &mut self.slots[slot as usize];
        let mut new = CacheSlot::new(at.tag, item);
        (new.access, new.expiry) = (at.access, at.expiry);
        let new_bytes = new.allocated_bytes();
        let old = std::mem::replace(at, new);
        let old_bytes = old.allocated_bytes();
        self.item_bytes = self.item_bytes - old_bytes + new_bytes;
        self.expiries.set(&mut self.slots, slot, expires_ms);
        if let Some(pages) = &mut self.pages {
            pages.resized(&self.slots, slot, old_bytes);
        }
        old.into_item(old_expires_ms)
    }

    /// Removes the key in a slot; the last slot gets its number.
    pub(super) fn remove(&mut self, slot: u32) -> CachedItem {
        let expires_ms = self.expires_ms(slot);
        self.expiries.set(&mut self.slots, slot, None);
        if let Some(pages) = &mut self.pages {
            pages.swap_remove(&self.slots, slot);
        }
        let removed = self.slots.swap_remove(slot as usize);
        self.index.remove(removed.tag, slot);
        if let Some(moved) = self.slots.get(slot as usize) {
            self.index.renumber(moved.tag, self.slots.len() as u32, slot);
            self.expiries.renumber(moved.expiry, slot);
        }
        self.item_bytes -= removed.allocated_bytes();
        if self.slots.len() * 4 < self.slots.capacity() && self.slots.capacity() > 2 * MIN_SLOTS {
            let capacity = (self.slots.len() * 2).max(MIN_SLOTS);
            self.slots.shrink_to(capacity);
            if let Some(pages) = &mut self.pages {
                pages.set_capacity(capacity);
            }
        }
        removed.into_item(expires_ms)
    }

    /// Gives up all room that the tables can do without.
    pub(super) fn shrink(&mut self) {
        self.slots.shrink_to_fit();
        self.index.shrink();
        self.expiries.shrink();
        if let Some(pages) = &mut self.pages {
            pages.set_capacity(self.slots.capacity());
        }
    }

    /// Removes the key that has expired before all others.
    pub(super) fn remove_expired(&mut self, moment: &TransactionTime<'_>) -> Option<CachedItem> {
        let (slot, at_ms) = self.expiries.first()?;
        if !moment.has_passed(Some(at_ms)) {
            return None;
        }
        self.note_loss(KeyLoss::Expired, slot);
        Some(self.remove(slot))
    }

    /// Counts a key that goes by itself, and notes it if somebody wants to know.
    pub(super) fn note_loss(&mut self, loss: KeyLoss, slot: u32) {
        match loss {
            KeyLoss::Expired => self.counters.expiries += 1,
            KeyLoss::Evicted => self.counters.evictions += 1,
        }
        if self.losses.are_wanted(loss) {
            // A slice of the slot would keep the value, too.
            self.lost.push((loss, Bytes::copy_from_slice(self.slots[slot as usize].key_slice())));
        }
    }

    /// The losses that were noted since the last call.
    #[inline]
    pub(super) fn take_lost(&mut self) -> LostKeys {
        std::mem::take(&mut self.lost)
    }

    /// Removes all keys; the counters stay. What is returned frees them when it is dropped.
    pub(super) fn clear(&mut self) -> impl Sized + use<> {
        self.item_bytes = 0;
        let pages = self.pages.as_ref().map(Pages::emptied);
        let pages = std::mem::replace(&mut self.pages, pages);
        let tables = (std::mem::take(&mut self.index), std::mem::take(&mut self.expiries));
        (std::mem::take(&mut self.slots), tables, pages)
    }

    /// Visits the keys of some of the index's buckets; see [`SlotIndex::walk`].
    pub(super) fn walk(&self, from: u64, buckets: usize, mut visit: impl FnMut(u32, &CacheSlot)) -> u64 {
        self.index.walk(from, buckets, |slot| visit(slot, &self.slots[slot as usize]))
    }

    /// The bytes that the shard has allocated.
    #[inline]
    pub(super) fn held_bytes(&self) -> u64 {
        let links = self.pages.as_ref().map_or(0, Pages::allocated_bytes);
        let slots = self.slots.capacity() as u64 * SLOT_BYTES;
        self.item_bytes + slots + links + self.index.allocated_bytes() + self.expiries.allocated_bytes()
    }

    /// Brings the cache's total up to date. Called at the end of all that changes the shard.
    #[inline]
    pub(super) fn settle(&mut self, total: &AtomicU64) {
        let held = self.held_bytes();
        // Most writes in a full cache change nothing, and the total is shared by all threads.
        if held != self.settled_bytes {
            total.fetch_add(held.wrapping_sub(self.settled_bytes), Ordering::Relaxed);
            self.settled_bytes = held;
        }
    }

    /// Checks the invariants, and that the held bytes are the sum of the allocations.
    #[cfg(test)]
    pub(super) fn check(&self) {
        let items: u64 = self.slots.iter().map(CacheSlot::allocated_bytes).sum();
        assert_eq!(self.item_bytes, items);
        assert_eq!(self.settled_bytes, self.held_bytes());
        for (number, slot) in self.slots.iter().enumerate() {
            assert_eq!(self.find(slot.tag, &slot.key()), Some(number as u32));
            assert!(slot.expiry == NEVER || self.expiries.slot(slot.expiry as usize) == number as u32);
        }
        assert_eq!(self.expiries.len(), self.slots.iter().filter(|slot| slot.expiry != NEVER).count());
        if let Some(pages) = &self.pages {
            let (keys, bytes) = pages.pages().iter().fold((0, 0), |sum, page| (sum.0 + page.keys, sum.1 + page.bytes));
            assert_eq!((keys, bytes), (self.slots.len() as u64, items + keys * SLOT_BYTES));
        }
    }
}
