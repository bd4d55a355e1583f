//! Keys in the order of their hashes, a few at a time, and the first keys in the order of their bytes.
//!
//! A cursor is the number of a shard (upper 32 bits) and the hash to go on from (lower 32 bits); see `index`.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use super::Cache;
use super::shard::CacheShard;
use super::time::TransactionTime;
use crate::{Attributes, KeyEntry, Value};

/// Buckets of the index that are visited for each key that is asked for, as in Redis.
const BUCKETS_A_KEY: usize = 10;
/// Buckets of the index that an ordered listing visits before it lets others have the shard.
const BUCKETS_AT_ONCE: usize = 512;
/// Bytes of a listed key beside the key.
const LISTED_BYTES: usize = 128;

/// A scan of one shard: the hash to begin at, and the keys still asked for.
pub(super) struct ShardScan {
    pub(super) from: u64,
    /// Keys that are asked for.
    pub(super) left: usize,
}

/// Collects about `count` keys. `page` adds those of one shard from a hash on, and returns the next hash.
pub(super) fn scan(
    shards: usize,
    cursor: u64,
    count: usize,
    mut page: impl FnMut(usize, u64, usize, &mut Vec<Bytes>) -> u64,
) -> (u64, Vec<Bytes>) {
    let (mut number, mut from) = ((cursor >> 32) as usize, cursor & u64::from(u32::MAX));
    let (count, mut keys) = (count.max(1), Vec::new());
    while number < shards {
        from = page(number, from, count - keys.len(), &mut keys);
        if from > u64::from(u32::MAX) {
            (number, from) = (number + 1, 0);
        }
        if keys.len() >= count {
            break;
        }
    }
    // Behind the last shard is the beginning.
    let cursor = if number < shards { ((number as u64) << 32) | from } else { 0 };
    (cursor, keys)
}

/// Adds keys of a shard that have not expired. Returns the hash to go on from.
pub(super) fn page(shard: &CacheShard, page: ShardScan, moment: &TransactionTime<'_>, keys: &mut Vec<Bytes>) -> u64 {
    let (mut from, wanted) = (page.from, keys.len() + page.left);
    for _ in 0..BUCKETS_A_KEY {
        from = shard.walk(from, page.left, |number, slot| {
            if !moment.has_passed(shard.expires_ms(number)) {
                keys.push(slot.key());
            }
        });
        if keys.len() >= wanted || from > u64::from(u32::MAX) {
            break;
        }
    }
    from
}

/// The key in a slot; one that has expired is removed.
pub(super) fn nth_live(shard: &mut CacheShard, slot: usize, moment: &TransactionTime<'_>) -> Option<Bytes> {
    if moment.has_passed(shard.expires_ms(slot as u32)) {
        shard.remove_expired(moment);
        return None;
    }
    Some(shard.slots[slot].key())
}

/// A key of an ordered listing, without its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CachedKey {
    pub(crate) entry: KeyEntry,
    pub(crate) attributes: Option<Arc<Attributes>>,
}

/// Keys of a cache in order.
#[derive(Debug, Default)]
pub(crate) struct FirstKeys {
    pub(crate) keys: BTreeMap<Vec<u8>, CachedKey>,
    /// `true` if there are more behind them.
    pub(crate) is_cut: bool,
}

impl Cache {
    /// The first keys from `start` on that begin with `prefix`: at most `keys_max` of them, and about `max_bytes`. It looks
    /// at all keys, a few under one lock, and counts as no use of them. A key that is there all the time is found; one that
    /// comes or goes meanwhile perhaps.
    pub(crate) fn first_keys(&self, start: &[u8], prefix: &[u8], keys_max: usize, max_bytes: usize) -> FirstKeys {
        let moment = self.clock.moment();
        let (mut first, mut bytes) = (FirstKeys::default(), 0);
        for shard in &self.shards {
            let mut from = 0;
            while from <= u64::from(u32::MAX) {
                let shard = shard.lock();
                from = shard.walk(from, BUCKETS_AT_ONCE, |slot, at| {
                    let (key, expires_ms) = (at.key_slice(), shard.expires_ms(slot));
                    let is_behind =
                        first.is_cut && first.keys.last_key_value().is_none_or(|(last, _)| key > last.as_slice());
                    if key < start || is_behind || !key.starts_with(prefix) || moment.has_passed(expires_ms) {
                        return;
                    }
                    let found = CachedKey { entry: shard.entry(slot), attributes: at.attributes() };
                    if first.keys.insert(key.to_vec(), found).is_none() {
                        bytes += LISTED_BYTES + key.len();
                    }
                    while first.keys.len() > keys_max || bytes > max_bytes && first.keys.len() > 1 {
                        first.is_cut = true;
                        bytes -= first.keys.pop_last().map_or(0, |(key, _)| LISTED_BYTES + key.len());
                    }
                });
            }
        }
        first
    }

    /// The value of a key and its version. Counts as no use.
    pub(crate) fn peek(&self, key: &[u8]) -> Option<(Value, u64)> {
        let (number, tag) = self.place(key);
        let moment = self.clock.moment();
        let shard = self.shards[number].lock();
        let slot = shard.find(tag, key).filter(|slot| !moment.has_passed(shard.expires_ms(*slot)))?;
        let at = &shard.slots[slot as usize];
        Some((at.value(shard.expires_ms(slot)), at.version))
    }
}
