//! Keys in the order of their hashes, a few at a time.
//!
//! A cursor is the number of a shard (upper 32 bits) and the hash to go on from (lower 32 bits); see `index`.

use bytes::Bytes;

use super::shard::CacheShard;
use super::time::TransactionTime;

/// Buckets of the index that are visited for each key that is asked for, as in Redis.
const BUCKETS_A_KEY: usize = 10;

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
