//! The values of a bucket that were read or written lately. It resists scans: a value that is read once leaves before
//! those that are read again.
//!
//! A value is found by the offset of its record, which never holds another one. So nothing here is ever out of date.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use millstream_types::{Grant, PartitionId};
use parking_lot::Mutex;
use quick_cache::Weighter;
use quick_cache::sync::Cache;

use crate::Value;
use crate::record::StoredValue;

/// Largest value that is kept when it is written. Larger ones are kept once they are read.
const WRITTEN_MAX_BYTES: usize = 4 << 10;
/// Largest share of the cache that one value may take.
const SHARE_MAX: u64 = 8;
/// Bytes of an entry beside key and value.
const ENTRY_BYTES: u64 = 120;

#[derive(Debug, Clone)]
struct Cached {
    key: Bytes,
    stored: StoredValue,
}

#[derive(Debug, Clone)]
struct Weight;

impl Weighter<(u32, u64), Arc<Cached>> for Weight {
    fn weight(&self, _: &(u32, u64), cached: &Arc<Cached>) -> u64 {
        ENTRY_BYTES + (cached.key.len() + cached.stored.value.bytes.len()) as u64
    }
}

/// A cache of one bucket.
#[derive(Debug)]
pub(crate) struct ReadCache {
    cache: Cache<(u32, u64), Arc<Cached>, Weight>,
    /// As many bytes as the cache may hold.
    memory: Mutex<Grant>,
    hits: AtomicU64,
    misses: AtomicU64,
}

/// Hits, misses and size of a bucket's read cache.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CacheFigures {
    /// Reads that the cache answered.
    pub hits: u64,
    /// Reads that it did not.
    pub misses: u64,
    /// Number of values in the cache.
    pub values: u64,
    /// Bytes that the cached values take.
    pub bytes: u64,
    /// Most bytes that they may take.
    pub max_bytes: u64,
}

impl ReadCache {
    /// A cache that fills `memory`; without any it keeps nothing.
    pub(crate) fn new(memory: Grant) -> Self {
        let max_bytes = memory.bytes();
        let values = (max_bytes / 1_024).clamp(16, 1 << 24) as usize;
        let cache = Cache::with_weighter(values, max_bytes, Weight);
        Self { cache, memory: Mutex::new(memory), hits: AtomicU64::new(0), misses: AtomicU64::new(0) }
    }

    /// Changes the size of the cache to `max_bytes`, with `more` memory if it grows.
    pub(crate) fn resize(&self, max_bytes: u64, more: Grant) {
        let mut memory = self.memory.lock();
        memory.merge(more);
        let max_bytes = max_bytes.min(memory.bytes());
        self.cache.set_capacity(max_bytes);
        memory.resize(max_bytes);
    }

    /// The value of the record of `key` at `offset`.
    pub(crate) fn get(&self, partition: PartitionId, offset: u64, key: &[u8]) -> Option<StoredValue> {
        let cached = self.cache.get(&(partition.0, offset)).filter(|cached| cached.key == key);
        let count = if cached.is_some() { &self.hits } else { &self.misses };
        count.fetch_add(1, Ordering::Relaxed);
        cached.map(|cached| cached.stored.clone())
    }

    /// Keeps a value that was read or written. Copies it, as it may be a part of something larger.
    pub(crate) fn insert(&self, partition: PartitionId, offset: u64, key: &[u8], stored: &StoredValue) {
        let bytes = &stored.value.bytes;
        if bytes.len() as u64 > self.cache.capacity() / SHARE_MAX {
            return;
        }
        let value = Value { bytes: Bytes::copy_from_slice(bytes), ..stored.value.clone() };
        let stored = StoredValue { value, ..*stored };
        self.cache.insert((partition.0, offset), Arc::new(Cached { key: Bytes::copy_from_slice(key), stored }));
    }

    /// `true` if a write of this value is to be inserted.
    pub(crate) fn takes_writes_of(&self, stored: Option<&StoredValue>) -> bool {
        self.cache.capacity() > 0 && stored.is_some_and(|stored| stored.value.bytes.len() <= WRITTEN_MAX_BYTES)
    }

    pub(crate) fn figures(&self) -> CacheFigures {
        CacheFigures {
            hits: self.hits.load(Ordering::Relaxed),
            misses: self.misses.load(Ordering::Relaxed),
            values: self.cache.len() as u64,
            bytes: self.cache.weight(),
            max_bytes: self.memory.lock().bytes(),
        }
    }
}
