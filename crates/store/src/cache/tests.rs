//! Tests of the cache as its users see it.

mod eviction;
mod listing;
mod losses;
mod model;
mod settings;
mod threads;
mod transactions;

use std::time::Duration;

use millstream_types::ManualClock;

use super::*;
use crate::{Attributes, Interrupted};

/// Wall time at which all tests begin.
const START_MS: i64 = 1_700_000_000_000;
/// The largest budget of a cache with one shard.
const ONE_SHARD_BYTES: u64 = 511 << 10;

struct Fixture {
    cache: Cache,
    clock: Arc<ManualClock>,
}

impl std::ops::Deref for Fixture {
    type Target = Cache;

    fn deref(&self) -> &Cache {
        &self.cache
    }
}

impl Fixture {
    fn new(policy: EvictionPolicy, max_bytes: u64) -> Self {
        Self::with(CacheConfig { policy, max_bytes, ..CacheConfig::default() })
    }

    fn with(config: CacheConfig) -> Self {
        let clock = Arc::new(ManualClock::at(START_MS));
        Self { cache: Cache::new(&config, clock.clone()).unwrap(), clock }
    }

    fn now_ms(&self) -> i64 {
        self.clock.now_ms()
    }

    /// Moves the clock, as it is noted of each use.
    fn advance(&self, ms: u64) {
        self.clock.advance(Duration::from_millis(ms));
        self.cache.clock.moment().ms();
    }

    fn put(&self, key: impl AsRef<[u8]>, bytes: impl Into<Bytes>) -> Result<(), Interrupted> {
        self.put_value(key, Value::of(bytes))
    }

    fn put_for(&self, key: impl AsRef<[u8]>, bytes: impl Into<Bytes>, ttl_ms: i64) -> Result<(), Interrupted> {
        self.put_value(key, Value { expires_ms: Some(self.now_ms() + ttl_ms), ..Value::of(bytes) })
    }

    fn put_value(&self, key: impl AsRef<[u8]>, value: Value) -> Result<(), Interrupted> {
        let key = key.as_ref();
        self.transact(&[key], |keys| keys.put(key, value))
    }

    fn read(&self, key: impl AsRef<[u8]>) -> Option<Bytes> {
        self.get(key.as_ref()).map(|value| value.bytes)
    }

    fn delete(&self, key: impl AsRef<[u8]>) -> bool {
        let key = key.as_ref();
        self.transact(&[key], |keys| keys.delete(key))
    }

    /// Checks the invariants of all shards, and that no more is held than may be.
    fn check(&self) {
        self.check_within(self.max_bytes());
    }

    fn check_within(&self, max_bytes: u64) {
        let mut held = 0;
        for shard in &self.shards {
            let shard = shard.lock();
            shard.check();
            held += shard.held_bytes();
        }
        assert_eq!(self.held_bytes(), held);
        assert!(held <= max_bytes, "{held} of {max_bytes} bytes");
    }

    /// The sum of the statistics of all shards.
    fn total(&self) -> ShardStats {
        let add = |sum: ShardStats, shard: ShardStats| ShardStats {
            hits: sum.hits + shard.hits,
            misses: sum.misses + shard.misses,
            evictions: sum.evictions + shard.evictions,
            expiries: sum.expiries + shard.expiries,
            keys: sum.keys + shard.keys,
            expiring_keys: sum.expiring_keys + shard.expiring_keys,
            bytes: sum.bytes + shard.bytes,
            pages: Vec::new(),
        };
        self.stats().into_iter().fold(ShardStats::default(), add)
    }
}

#[test]
fn a_key_is_gone_to_the_millisecond_for_every_read() {
    let cache = Fixture::new(EvictionPolicy::AllkeysLru, 4 << 20);
    cache.put_for("key", "value", 200).unwrap();
    let entry = |cache: &Fixture| cache.transact(&[b"key"], |keys| keys.entry(b"key"));
    cache.advance(199);
    assert_eq!(cache.get(b"key").unwrap().expires_ms, Some(START_MS + 200));
    assert_eq!(entry(&cache).unwrap().expires_ms, Some(START_MS + 200));
    cache.advance(1);
    assert_eq!((cache.idle_ms(b"key"), cache.scan(0, 10).1.len()), (None, 0));
    assert_eq!((cache.len(), cache.read("key"), cache.len()), (1, None, 0));
    assert_eq!((entry(&cache), cache.random_key(), cache.delete("key")), (None, None, false));
    let stats = cache.total();
    assert_eq!((stats.hits, stats.misses, stats.expiries, stats.evictions), (1, 1, 1, 0));
    cache.check();
}

#[test]
fn an_expiry_that_has_passed_deletes_the_key() {
    let cache = Fixture::new(EvictionPolicy::AllkeysLru, 4 << 20);
    cache.put("key", "value").unwrap();
    cache.put_for("key", "other", 0).unwrap();
    assert_eq!((cache.read("key"), cache.len()), (None, 0));
    cache.put_for("key", "other", -1).unwrap();
    assert_eq!(cache.len(), 0);
}

#[test]
fn a_write_sets_changes_and_removes_the_expiry() {
    let cache = Fixture::new(EvictionPolicy::AllkeysLru, 4 << 20);
    for (ttl_ms, keys) in [(Some(100), 1), (Some(50), 1), (Some(500), 1), (None, 0), (Some(7), 1)] {
        cache.put_value("key", Value { expires_ms: ttl_ms.map(|ttl| START_MS + ttl), ..Value::of("v") }).unwrap();
        let expected = Keyspace { keys: 1, expiring_keys: keys, average_ttl_ms: ttl_ms.unwrap_or(0) as u64 };
        assert_eq!(cache.keyspace(), expected);
        cache.check();
    }
}

#[test]
fn the_keyspace_tells_the_mean_time_to_live() {
    let cache = Fixture::new(EvictionPolicy::AllkeysLru, 4 << 20);
    (1..=100).for_each(|n| cache.put_for(format!("key-{n}"), "v", n * 1_000).unwrap());
    cache.put("other", "v").unwrap();
    assert_eq!(cache.keyspace(), Keyspace { keys: 101, expiring_keys: 100, average_ttl_ms: 50_500 });
    cache.advance(500);
    assert_eq!(cache.keyspace().average_ttl_ms, 50_000);
}

#[test]
fn a_sweep_removes_as_many_expired_keys_as_it_may() {
    let cache = Fixture::new(EvictionPolicy::AllkeysLru, 4 << 20);
    (0..500).for_each(|n| cache.put_for(format!("key-{n}"), "v", 100).unwrap());
    (0..50).for_each(|n| cache.put_for(format!("later-{n}"), "v", 101).unwrap());
    assert_eq!(cache.sweep(1_000), 0);
    cache.advance(100);
    assert_eq!((cache.sweep(200), cache.len()), (200, 350));
    cache.check();
    assert_eq!((cache.sweep(0), cache.sweep(299), cache.sweep(1_000), cache.len()), (0, 299, 1, 50));
    assert_eq!(cache.total().expiries, 500);
    cache.check();
}

#[test]
fn an_empty_cache_holds_nothing_and_the_tables_shrink_with_it() {
    let cache = Fixture::new(EvictionPolicy::Slru, 4 << 20);
    assert_eq!(cache.held_bytes(), 0);
    (0..10_000).for_each(|n| cache.put_for(format!("key-{n}"), "v", 1_000).unwrap());
    cache.check();
    (0..10_000).for_each(|n| assert!(cache.delete(format!("key-{n}"))));
    cache.check();
    assert!(cache.held_bytes() < 64 << 10, "{}", cache.held_bytes());
    (0..10_000).for_each(|n| cache.put(format!("key-{n}"), "v").unwrap());
    cache.clear();
    assert_eq!((cache.held_bytes(), cache.len(), cache.read("key-1")), (0, 0, None));
    cache.put("key-1", "v").unwrap();
    cache.check();
}

#[test]
fn limits_are_told_with_the_value_and_the_limit() {
    let config = CacheConfig { max_bytes: 64 << 10, key_max_bytes: 10, value_max_bytes: 100, ..CacheConfig::default() };
    let cache = Fixture::with(config.clone());
    let key = |length| Err(WriteRefusal::Key { length, max_bytes: 10 }.into());
    for refused in ["", "\0key", "\0", "12345678901"] {
        assert_eq!(cache.put(refused, "v"), key(refused.len()));
    }
    assert_eq!(cache.put("1234567890", vec![0; 100]), Ok(()));
    let large = WriteRefusal::ValueTooLarge { length: 101, max_bytes: 100 };
    assert_eq!(cache.put("key", vec![0; 101]), Err(large.into()));

    let cache = Fixture::with(CacheConfig { value_max_bytes: 1 << 20, ..config });
    let large = WriteRefusal::ValueTooLarge { length: 40_000, max_bytes: 32 << 10 };
    assert_eq!(cache.put("key", vec![0; 40_000]), Err(large.into()));
    assert_eq!(cache.put("key", vec![0; 32_768]), Ok(()));
    let tags = vec!["x".repeat(60_000)];
    let attributes = Some(Arc::new(Attributes { tags, ..Attributes::default() }));
    let refused = cache.put_value("key", Value { attributes, ..Value::of("small") });
    assert!(matches!(refused, Err(Interrupted::Refused(WriteRefusal::ValueTooLarge { length: 60_000.., .. }))));
    cache.check();
}

/// The idle time and the access counter of `key`, inside a transaction.
fn uses(cache: &Fixture) -> (Option<u64>, Option<u8>) {
    cache.transact(&[b"key"], |keys| (keys.idle_ms(b"key"), keys.frequency(b"key")))
}

#[test]
fn idle_time_counts_from_the_last_read_or_write() {
    let cache = Fixture::new(EvictionPolicy::VolatileLru, 4 << 20);
    cache.put("key", "v").unwrap();
    cache.advance(1_600);
    assert_eq!((cache.idle_ms(b"key"), cache.frequency(b"key")), (Some(1_600), None));
    assert_eq!(uses(&cache), (Some(1_600), None));
    cache.read("key");
    assert_eq!(cache.idle_ms(b"key"), Some(0));
    cache.advance(3_200);
    cache.put("key", "w").unwrap();
    cache.advance(160);
    assert_eq!((cache.idle_ms(b"key"), cache.idle_ms(b"other")), (Some(160), None));
}

#[test]
fn the_access_counter_is_told_where_the_policy_has_one() {
    let cache = Fixture::new(EvictionPolicy::VolatileLfu, 4 << 20);
    cache.put("key", "v").unwrap();
    assert_eq!((cache.frequency(b"key"), cache.idle_ms(b"key")), (Some(5), None));
    assert_eq!(uses(&cache), (None, Some(5)));
    (0..1_000).for_each(|_| drop(cache.read("key")));
    let frequency = cache.frequency(b"key").unwrap();
    assert!((10..40).contains(&frequency), "{frequency}");
    cache.advance(5 * 60_000);
    assert_eq!(cache.frequency(b"key"), Some(frequency - 5));
}

#[test]
fn a_version_never_comes_again_and_those_of_a_key_ascend() {
    let cache = Fixture::new(EvictionPolicy::AllkeysLru, 64 << 20);
    let version = |key: &[u8]| cache.transact(&[key], |keys| keys.entry(key)).unwrap().version.unwrap();
    let mut seen = std::collections::HashSet::new();
    let mut last = std::collections::HashMap::new();
    for n in 0..5_000 {
        let key = format!("key-{}", n % 7);
        if n % 3 == 0 {
            cache.delete(&key);
        }
        cache.put(&key, "v").unwrap();
        let now = version(key.as_bytes());
        assert!(seen.insert(now));
        assert!(last.insert(key, now).is_none_or(|before| before < now));
    }
}
