//! Statistics of a cache.

use serde::Serialize;

use super::shard::CacheShard;

/// Statistics of one shard. Counters run from the start of the cache.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ShardStats {
    /// Reads that found their key.
    pub hits: u64,
    /// Reads that found no key, or an expired one.
    pub misses: u64,
    /// Keys removed to make room, those that had expired not among them.
    pub evictions: u64,
    /// Keys removed since they had expired.
    pub expiries: u64,
    /// Keys that it holds; some may have expired.
    pub keys: u64,
    /// Keys among them that expire.
    pub expiring_keys: u64,
    /// Bytes that its keys, values and tables have allocated.
    pub bytes: u64,
    /// The pages of the policy `slru`, from the hottest to the coldest; empty with all others.
    pub pages: Vec<PageStats>,
}

/// Statistics of one page of a shard.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct PageStats {
    /// Number of keys in the page.
    pub keys: u64,
    /// Bytes of their items and slots.
    pub bytes: u64,
    /// Bytes at which the page pushes its oldest keys to the next colder one; the coldest page
    /// has what the others leave.
    pub max_bytes: u64,
}

/// The keys of a cache in total, as in `INFO keyspace`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Keyspace {
    /// Keys; some may have expired.
    pub keys: u64,
    /// Keys among them that expire.
    pub expiring_keys: u64,
    /// Milliseconds until they expire, in the mean; 0 if none does.
    pub average_ttl_ms: u64,
}

impl ShardStats {
    pub(super) fn of(shard: &CacheShard) -> Self {
        let counters = shard.counters;
        let pages = shard.pages.iter().flat_map(|pages| pages.pages());
        Self {
            hits: counters.hits,
            misses: counters.misses,
            evictions: counters.evictions,
            expiries: counters.expiries,
            keys: shard.slots.len() as u64,
            expiring_keys: shard.expiries.len() as u64,
            bytes: shard.held_bytes(),
            pages: pages.map(|at| PageStats { keys: at.keys, bytes: at.bytes, max_bytes: at.max_bytes }).collect(),
        }
    }
}
