//! Transactions take effect as a whole, or not at all.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::*;
use crate::KeyEntry;

const KEYS: [&[u8]; 4] = [b"replaced", b"deleted", b"new", b"twice"];

fn filled() -> Fixture {
    let config = CacheConfig { value_max_bytes: 1_000, policy: EvictionPolicy::Slru, ..CacheConfig::default() };
    let cache = Fixture::with(config);
    let attributes = Some(Arc::new(Attributes { tags: vec!["tag".into()], ..Attributes::default() }));
    let expires_ms = Some(START_MS + 1_000);
    cache.put_value("replaced", Value { bytes: "one".into(), expires_ms, attributes }).unwrap();
    cache.put_for("deleted", "two", 500).unwrap();
    cache.put("twice", "three").unwrap();
    cache
}

/// Values and versions of all keys.
fn state(cache: &Fixture) -> Vec<Option<(Value, KeyEntry)>> {
    let of = |keys: &mut dyn Transaction, key: &[u8]| keys.get(key).unwrap().zip(keys.entry(key));
    cache.transact(&KEYS, |keys| KEYS.iter().map(|key| of(keys, key)).collect())
}

fn change(keys: &mut dyn Transaction) {
    keys.put(b"replaced", Value::of("longer than it was before, and without an expiry")).unwrap();
    assert!(keys.delete(b"deleted") && !keys.delete(b"deleted"));
    keys.put(b"deleted", Value::of("again")).unwrap();
    assert!(keys.delete(b"deleted"));
    keys.put(b"new", Value::of("new")).unwrap();
    keys.put(b"twice", Value { expires_ms: Some(START_MS + 5), ..Value::of("1") }).unwrap();
    keys.put(b"twice", Value::of("2")).unwrap();
}

#[test]
fn a_transaction_sees_its_own_writes() {
    let cache = filled();
    cache.transact(&KEYS, |keys| {
        change(keys);
        let read = |keys: &mut dyn Transaction, key| keys.get(key).unwrap().map(|value| value.bytes);
        assert_eq!(read(keys, b"twice"), Some("2".into()));
        assert_eq!((read(keys, b"new"), read(keys, b"deleted")), (Some("new".into()), None));
        let entry = keys.entry(b"new").unwrap();
        assert_eq!((entry.length, entry.expires_ms, entry.version.is_some()), (3, None, true));
    });
    assert_eq!(cache.read("new"), Some("new".into()));
    assert_eq!(cache.keyspace(), Keyspace { keys: 3, ..Keyspace::default() });
    cache.check();
}

#[test]
fn a_refused_write_takes_back_all_others() {
    let cache = filled();
    let before = state(&cache);
    let large = WriteRefusal::ValueTooLarge { length: 1_001, max_bytes: 1_000 };
    let result = cache.transact(&KEYS, |keys| {
        change(keys);
        assert_eq!(keys.put(b"new", Value::of(vec![0; 1_001])), Err(large.clone().into()));
        // Nothing after it is accepted.
        keys.put(b"new", Value::of("small"))
    });
    assert_eq!(result, Err(large.into()));
    assert_eq!(state(&cache), before);
    assert_eq!(cache.keyspace(), Keyspace { keys: 3, expiring_keys: 2, average_ttl_ms: 750 });
    cache.check();
    assert_eq!(cache.put("new", "small"), Ok(()), "the refusal ends with its transaction");
}

#[test]
fn a_panic_takes_back_all_writes_and_leaves_the_cache_usable() {
    let cache = filled();
    let before = state(&cache);
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        cache.transact(&KEYS, |keys| {
            change(keys);
            panic!("of the test");
        })
    }));
    assert!(outcome.is_err());
    assert_eq!(state(&cache), before);
    cache.check();
}

#[test]
fn a_full_cache_without_eviction_takes_back_what_it_cannot_finish() {
    let cache = Fixture::new(EvictionPolicy::Noeviction, 8 << 20);
    let count = (0..).take_while(|n: &usize| cache.put(format!("key-{n}"), vec![1; 1_000]).is_ok()).count();
    // One value shrinks and so makes room, another grows into it, and the third one finds none.
    let keys = ["key-1", "key-2", "key-3"];
    let grow = |keys: &mut dyn Transaction, key: &str, bytes| keys.put(key.as_bytes(), Value::of(vec![2; bytes]));
    let result = cache.transact(&keys.map(str::as_bytes), |all| {
        grow(all, "key-1", 10)?;
        grow(all, "key-2", 1_700)?;
        grow(all, "key-3", 100_000)
    });
    assert_eq!(result, Err(WriteRefusal::CacheFull { max_bytes: 8 << 20 }.into()));
    assert_eq!(keys.map(|key| cache.read(key).unwrap()), [const { Bytes::from_static(&[1; 1_000]) }; 3]);
    assert_eq!((cache.len(), cache.total().evictions), (count, 0));
    cache.check();
}

#[test]
fn what_is_taken_back_leaves_no_more_than_may_be_held() {
    for policy in [EvictionPolicy::Noeviction, EvictionPolicy::AllkeysLru, EvictionPolicy::Slru] {
        let cache = loop {
            let cache = Fixture::new(policy, MIN_BYTES);
            cache.put("large", vec![0; 30_000]).unwrap();
            while cache.total().evictions == 0 && cache.put(format!("key-{}", cache.len()), "value").is_ok() {
                cache.get(b"large");
            }
            // An eviction takes the oldest of some keys that chance chooses: now and then the large one.
            if cache.get(b"large").is_some() {
                break cache;
            }
        };
        let names: Vec<_> = (0..400).map(|n| format!("new-{n}")).collect();
        let result = cache.transact_all(|keys| {
            assert!(keys.delete(b"large"));
            // The tables grow in the room that the large value leaves.
            for name in &names {
                let value = Value { expires_ms: Some(START_MS + 1_000), ..Value::of("v") };
                keys.put(name.as_bytes(), value)?;
            }
            keys.put(b"large", Value::of(vec![0; 1 << 20]))
        });
        assert!(result.is_err());
        assert_eq!((cache.read("new-1"), cache.get(b"large").is_some()), (None, true), "{policy:?}");
        cache.check();
    }
}

#[test]
fn what_others_wrote_meanwhile_makes_room_for_what_is_taken_back() {
    let cache = Fixture::new(EvictionPolicy::AllkeysLru, 2 << 20);
    cache.put("large", vec![0; 200_000]).unwrap();
    (0..2_000).for_each(|n| cache.put(format!("key-{n}"), vec![0; 1_000]).unwrap());
    cache.put("large", vec![0; 200_000]).unwrap();
    let elsewhere = |n: &usize| cache.place(format!("key-{n}").as_bytes()).0 != cache.place(b"large").0;
    let result = cache.transact(&[b"large"], |keys| {
        assert!(keys.delete(b"large"));
        (2_000..4_000).filter(elsewhere).take(150).for_each(|n| cache.put(format!("key-{n}"), vec![0; 1_000]).unwrap());
        keys.put(b"large", Value::of(vec![0; 2 << 20]))
    });
    assert!(matches!(result, Err(Interrupted::Refused(WriteRefusal::ValueTooLarge { .. }))), "{result:?}");
    cache.check();
}

#[test]
fn a_transaction_over_all_keys_takes_any_and_can_delete_all() {
    let cache = Fixture::new(EvictionPolicy::AllkeysLru, 64 << 20);
    (0..1_000).for_each(|n| cache.put(format!("key-{n}"), "v").unwrap());
    let refused = cache.transact_all(|all| {
        all.clear();
        assert!(all.is_empty() && all.random_key().is_none() && all.scan(0, 10) == (0, vec![]));
        all.put(b"", Value::of("refused"))
    });
    assert!(refused.is_err());
    assert_eq!(cache.len(), 1_000);
    cache.check();
    cache.transact_all(|all| {
        all.clear();
        all.put(b"one", Value::of("1")).unwrap();
        assert_eq!((all.len(), all.random_key()), (1, Some("one".into())));
        assert_eq!(all.scan(0, 10), (0, vec!["one".into()]));
    });
    assert_eq!((cache.len(), cache.read("one")), (1, Some("1".into())));
    cache.check();
}

#[test]
#[should_panic(expected = "only the keys that it was begun with")]
fn a_transaction_refuses_keys_that_it_was_not_begun_with() {
    let cache = Fixture::new(EvictionPolicy::AllkeysLru, 64 << 20);
    cache.transact(&[b"key"], |keys| (0..100).any(|n| keys.entry(format!("key-{n}").as_bytes()).is_some()));
}

#[test]
fn the_time_of_a_transaction_stands_still() {
    let cache = Fixture::new(EvictionPolicy::AllkeysLru, 64 << 20);
    cache.put_for("key", "v", 10).unwrap();
    cache.transact(&[b"key"], |keys| {
        assert_eq!(keys.now_ms(), START_MS);
        cache.clock.advance(Duration::from_millis(10));
        assert_eq!((keys.now_ms(), keys.get(b"key").unwrap().is_some()), (START_MS, true));
    });
    assert_eq!(cache.read("key"), None);
}

#[test]
fn touching_keys_changes_nothing() {
    let cache = filled();
    let before = (state(&cache), cache.stats());
    // An empty cache has neither tables nor slots.
    for cache in [&cache, &Fixture::new(EvictionPolicy::AllkeysLru, ONE_SHARD_BYTES)] {
        for count in [0, 1, 15, 16, 17, 100] {
            let keys: Vec<Vec<u8>> = KEYS.iter().map(|key| key.to_vec()).chain((0..100).map(|n| vec![n])).collect();
            let keys = keys.iter().take(count).map(|key| &key[..]);
            cache.transact_in(cache.shards_of(keys.clone()), |transaction| transaction.touch(keys));
        }
    }
    assert_eq!(cache.stats(), before.1);
    assert_eq!(state(&cache), before.0);
    cache.check();
}
