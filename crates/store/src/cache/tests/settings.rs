//! Settings that change while the cache is in use.

use super::*;

const VALUE_BYTES: usize = 500;

/// A cache into which so many keys were put, one after the other. Those that `expires` chooses expire much later.
fn filled(config: &CacheConfig, keys: u32, expires: fn(u32) -> bool) -> Fixture {
    let cache = Fixture::with(config.clone());
    for number in 0..keys {
        cache.advance(16);
        let (key, value) = (format!("key-{number}"), vec![number as u8; VALUE_BYTES]);
        // A cache that evicts nothing refuses what does not fit.
        let _ = if expires(number) { cache.put_for(key, value, 86_400_000) } else { cache.put(key, value) };
    }
    cache
}

fn is_odd(number: u32) -> bool {
    number % 2 == 1
}

#[test]
fn a_smaller_cache_evicts_until_it_fits_and_a_larger_one_holds_more() {
    for policy in EvictionPolicy::ALL {
        let config = CacheConfig { policy, max_bytes: 4 << 20, ..CacheConfig::default() };
        let cache = filled(&config, 20_000, |_| true);
        let (before, held) = (cache.len(), cache.held_bytes());
        assert!(held > 3 << 20, "{policy:?}: {held}");
        cache.configure(&CacheConfig { max_bytes: 1 << 20, ..config.clone() }).unwrap();
        assert_eq!(cache.max_bytes(), 1 << 20);
        match policy {
            EvictionPolicy::Noeviction => {
                // Nothing goes by itself: writes are refused, reads and deletes are not.
                assert_eq!((cache.len(), cache.fit()), (before, false));
                cache.check_within(4 << 20);
                assert!(cache.put("new", "value").is_err());
                assert!(cache.read("key-0").is_some() && cache.delete("key-0"));
                for number in 0..20_000 {
                    cache.delete(format!("key-{number}"));
                }
                cache.put("new", "value").unwrap();
                assert!(cache.fit());
            }
            _ => cache.check(),
        }
        cache.put("after", vec![1; VALUE_BYTES]).unwrap();
        cache.configure(&CacheConfig { max_bytes: 8 << 20, ..config }).unwrap();
        for number in 0..20_000 {
            cache.put(format!("key-{number}"), vec![number as u8; VALUE_BYTES]).ok();
        }
        assert!(cache.held_bytes() > 6 << 20, "{policy:?}: {}", cache.held_bytes());
        cache.check();
    }
}

#[test]
fn any_policy_follows_any_other_and_evicts_by_its_own_rule() {
    for before in EvictionPolicy::ALL {
        for after in EvictionPolicy::ALL {
            let config = CacheConfig { policy: before, max_bytes: 256 << 10, ..CacheConfig::default() };
            let cache = filled(&config, 200, is_odd);
            assert_eq!(cache.len(), 200);
            cache.configure(&CacheConfig { policy: after, ..config.clone() }).unwrap();
            assert_eq!((cache.policy(), cache.len()), (after, 200), "{before:?} {after:?}");
            cache.check();
            assert_eq!(cache.frequency(b"key-3").is_some(), after.counts_accesses());
            assert_eq!(cache.idle_ms(b"key-3").is_some(), !after.counts_accesses());
            // All but a few keys must go.
            cache.advance(1_000);
            for _ in 0..50 {
                assert!(cache.read("key-199").is_some());
            }
            let fits = CacheConfig { policy: after, max_bytes: 64 << 10, ..config };
            cache.configure(&fits).unwrap();
            let left = |remainder: u32| {
                (0..200).filter(|n| n % 2 == remainder && cache.peek(format!("key-{n}").as_bytes()).is_some()).count()
            };
            match after {
                EvictionPolicy::Noeviction => assert_eq!(cache.len(), 200),
                EvictionPolicy::VolatileLru
                | EvictionPolicy::VolatileLfu
                | EvictionPolicy::VolatileRandom
                | EvictionPolicy::VolatileTtl => {
                    assert_eq!(left(0), 100, "{before:?} {after:?}: only keys that expire go")
                }
                _ => cache.check(),
            }
            if matches!(after, EvictionPolicy::Slru | EvictionPolicy::AllkeysLru | EvictionPolicy::AllkeysLfu) {
                assert!(cache.peek(b"key-199").is_some(), "{before:?} {after:?}: the key that is used stays");
            }
        }
    }
}

#[test]
fn pages_of_slru_keep_their_order_when_sizes_and_numbers_change() {
    let config = CacheConfig { policy: EvictionPolicy::Slru, max_bytes: 256 << 10, ..CacheConfig::default() };
    let cache = filled(&config, 200, is_odd);
    for number in 0..20 {
        cache.read(format!("key-{number}"));
    }
    cache.configure(&CacheConfig { pages_proportions: vec![1, 1], ..config.clone() }).unwrap();
    cache.check();
    cache.configure(&CacheConfig { pages_proportions: vec![3, 1], max_bytes: 64 << 10, ..config }).unwrap();
    cache.check();
    // Those that were hit were hotter, and are behind all others in the order of eviction.
    assert!((0..20).all(|number| cache.peek(format!("key-{number}").as_bytes()).is_some()));
    assert!(cache.peek(b"key-20").is_none());
}

#[test]
fn sizes_that_cannot_be_are_refused_and_change_nothing() {
    let config = CacheConfig { max_bytes: 64 << 20, ..CacheConfig::default() };
    let cache = Fixture::with(config.clone());
    cache.put("key", "value").unwrap();
    for (max_bytes, rule) in [(1_000, "below the least, 65536"), (512 << 10, "below 1048576, the least of a cache")] {
        let refused = cache.configure(&CacheConfig { max_bytes, ..config.clone() }).unwrap_err().to_string();
        assert!(refused.contains(rule), "{refused}");
    }
    assert_eq!((cache.max_bytes(), cache.read("key")), (64 << 20, Some("value".into())));
}

#[test]
fn the_largest_value_follows_the_settings() {
    let config = CacheConfig { max_bytes: 1 << 20, ..CacheConfig::default() };
    let cache = Fixture::with(config.clone());
    let put = |length: usize| cache.put("key", vec![0; length]).is_ok();
    assert_eq!([put(512 << 10), put((512 << 10) + 1)], [true, false]);
    cache.configure(&CacheConfig { max_bytes: 4 << 20, ..config.clone() }).unwrap();
    assert_eq!([put(2 << 20), put((2 << 20) + 1)], [true, false]);
    cache.configure(&CacheConfig { max_bytes: 4 << 20, value_max_bytes: 10, ..config }).unwrap();
    assert_eq!([put(10), put(11)], [true, false]);
}

#[test]
fn writers_beside_changes_of_size_and_policy_see_whole_values_and_the_budget_is_kept() {
    const THREADS: u32 = 3;
    let config = CacheConfig { max_bytes: 2 << 20, ..CacheConfig::default() };
    let cache = Fixture::with(config.clone());
    std::thread::scope(|threads| {
        for thread in 0..THREADS {
            let cache = &cache.cache;
            threads.spawn(move || {
                for number in 0..20_000_u32 {
                    let key = format!("{thread}-{}", number % 3_000);
                    let value = Value::of(key.repeat(1 + number as usize % 60));
                    let _ = cache.transact(&[key.as_bytes()], |keys| keys.put(key.as_bytes(), value));
                    if let Some(found) = cache.get(key.as_bytes()) {
                        assert!(found.bytes.starts_with(key.as_bytes()), "{key}");
                    }
                }
            });
        }
        for turn in 0..40 {
            let policy = EvictionPolicy::ALL[1 + turn % 8];
            let max_bytes = [1 << 20, 4 << 20, 2 << 20][turn % 3];
            cache.configure(&CacheConfig { policy, max_bytes, ..config.clone() }).unwrap();
        }
    });
    cache.configure(&CacheConfig { policy: EvictionPolicy::AllkeysLru, max_bytes: 1 << 20, ..config }).unwrap();
    cache.check();
}
