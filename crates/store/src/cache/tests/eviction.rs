//! Each policy evicts the keys that it should.

use super::*;

/// Values of this size take 2 KiB with their key, so that some 240 fit.
const VALUE_BYTES: usize = 1_900;

fn key(n: usize) -> String {
    format!("key-{n:05}")
}

fn value(n: usize) -> Vec<u8> {
    vec![n as u8; VALUE_BYTES]
}

/// A cache of one shard, full with keys from 0 on, each a second after the one before. Returns how many. `ttl_ms` is
/// their time to live from the same moment on.
fn full(policy: EvictionPolicy, ttl_ms: impl Fn(usize) -> Option<i64>) -> (Fixture, usize) {
    let cache = Fixture::new(policy, ONE_SHARD_BYTES);
    for n in 0.. {
        let before = cache.held_bytes();
        let expires_ms = ttl_ms(n).map(|ttl| START_MS + ttl);
        cache.put_value(key(n), Value { expires_ms, ..Value::of(value(n)) }).unwrap();
        cache.advance(1_000);
        if cache.held_bytes() + 2 * (cache.held_bytes() - before) > cache.max_bytes() {
            assert_eq!(cache.total().evictions, 0);
            return (cache, n + 1);
        }
    }
    unreachable!("a cache is full at some time")
}

fn present(cache: &Fixture, keys: impl Iterator<Item = usize>) -> usize {
    keys.filter(|n| cache.transact(&[key(*n).as_bytes()], |keys| keys.entry(key(*n).as_bytes())).is_some()).count()
}

fn is_volatile(n: usize) -> Option<i64> {
    n.is_multiple_of(2).then_some(86_400_000)
}

#[test]
fn a_full_cache_takes_what_its_policy_makes_room_for_and_refuses_the_remainder() {
    use EvictionPolicy as Policy;
    for (policy, evicts_volatile, evicts_others) in [
        (Policy::Noeviction, false, false),
        (Policy::AllkeysLru, true, true),
        (Policy::AllkeysLfu, true, true),
        (Policy::AllkeysRandom, true, true),
        (Policy::VolatileLru, true, false),
        (Policy::VolatileLfu, true, false),
        (Policy::VolatileRandom, true, false),
        (Policy::VolatileTtl, true, false),
        (Policy::Slru, true, true),
    ] {
        let (cache, count) = full(policy, is_volatile);
        let before = cache.len();
        let accepted = (count..3 * count).take_while(|n| cache.put(key(*n), value(*n)).is_ok()).count();
        let (volatile, others) = (present(&cache, (0..count).step_by(2)), present(&cache, (1..count).step_by(2)));
        assert_eq!((volatile < count / 4, others < count / 2), (evicts_volatile, evicts_others), "{policy:?}");
        assert_eq!(cache.total().evictions > 0, evicts_volatile, "{policy:?}");
        assert_eq!(accepted == 2 * count, evicts_others, "{policy:?}: {accepted}");
        assert!(cache.len() + 10 > before, "{policy:?}: one key goes for one that comes");
        cache.check();
        if !evicts_others {
            let max_bytes = cache.max_bytes();
            let refused = cache.put("more", value(0));
            assert_eq!(refused, Err(WriteRefusal::CacheFull { max_bytes }.into()), "{policy:?}");
            // A value of the same size in place of another one still fits, and room is room.
            assert_eq!(cache.put(key(1), value(7)), Ok(()), "{policy:?}");
            assert_eq!(cache.put(key(1), Bytes::new()), Ok(()), "{policy:?}");
            assert!(cache.delete(key(3)) && cache.put("more", value(0)).is_ok(), "{policy:?}");
        }
    }
}

#[test]
fn keys_that_have_expired_go_before_all_others() {
    for policy in EvictionPolicy::ALL {
        let (cache, count) =
            full(policy, |n| if n.is_multiple_of(4) { Some(86_400_000) } else { is_volatile(n).map(|_| 90_000_000) });
        cache.advance(87_000_000);
        let expired = count.div_ceil(4);
        (count..count + expired - 1).for_each(|n| cache.put(key(n), value(n)).unwrap());
        let stats = cache.total();
        assert_eq!(stats.evictions, 0, "{policy:?}");
        assert!(stats.expiries as usize >= expired - 3, "{policy:?}: {}", stats.expiries);
        assert_eq!(present(&cache, (0..count).filter(|n| !n.is_multiple_of(4))), count - expired, "{policy:?}");
        cache.check();
    }
}

#[test]
fn lru_evicts_the_keys_that_were_unused_for_longest() {
    for (policy, ttl_ms) in [(EvictionPolicy::AllkeysLru, None), (EvictionPolicy::VolatileLru, Some(86_400_000))] {
        let (cache, count) = full(policy, |_| ttl_ms);
        let used = 0..count / 4;
        used.clone().for_each(|n| drop(cache.read(key(n)).unwrap()));
        cache.advance(1_000);
        (count..count + count / 4).for_each(|n| cache.put_for(key(n), value(n), 86_400_000).unwrap());
        // The worst of five at random is among the quarter that was used once in a thousand.
        assert!(present(&cache, used.clone()) + 4 > used.len(), "{policy:?}");
        let oldest = present(&cache, count / 4..count / 2);
        let newest = present(&cache, 3 * count / 4..count);
        assert!(oldest + count / 16 < newest, "{policy:?}: {oldest} of the oldest, {newest} of the newest");
    }
}

#[test]
fn lfu_evicts_the_keys_that_are_used_least() {
    for (policy, ttl_ms) in [(EvictionPolicy::AllkeysLfu, None), (EvictionPolicy::VolatileLfu, Some(86_400_000))] {
        let (cache, count) = full(policy, |_| ttl_ms);
        let used = 0..count / 4;
        used.clone().for_each(|n| (0..500).for_each(|_| drop(cache.read(key(n)).unwrap())));
        cache.advance(1_000);
        // More recent, but only once.
        (count / 4..count).for_each(|n| drop(cache.read(key(n)).unwrap()));
        (count..count + count / 2).for_each(|n| cache.put_for(key(n), value(n), 86_400_000).unwrap());
        assert!(present(&cache, used.clone()) + 4 > used.len(), "{policy:?}");
    }
}

#[test]
fn volatile_ttl_evicts_in_the_order_of_the_expiries() {
    // The later a key was written, the sooner it expires.
    let (cache, count) = full(EvictionPolicy::VolatileTtl, |n| Some(86_400_000 - n as i64));
    let evicted = |cache: &Fixture| cache.total().evictions as usize;
    for n in count..count + 20 {
        cache.put(key(n), value(n)).unwrap();
        let gone = evicted(&cache);
        assert_eq!(present(&cache, 0..count - gone), count - gone);
    }
    assert!(evicted(&cache) >= 18);
}

#[test]
fn keys_at_random_are_from_everywhere() {
    for (policy, ttl_ms) in [(EvictionPolicy::AllkeysRandom, None), (EvictionPolicy::VolatileRandom, Some(86_400_000))]
    {
        let (cache, count) = full(policy, |_| ttl_ms);
        (count..count + count / 2).for_each(|n| cache.put_for(key(n), value(n), 86_400_000).unwrap());
        for quarter in 0..4 {
            let left = present(&cache, quarter * count / 4..(quarter + 1) * count / 4);
            assert!((1..count / 4).contains(&left), "{policy:?}: {left} are left in quarter {quarter}");
        }
    }
}

#[test]
fn slru_keeps_keys_that_were_hit_when_many_new_ones_pass_by() {
    let (cache, count) = full(EvictionPolicy::Slru, |_| None);
    // With proportions of 1, 2, 4 the two hotter pages hold three sevenths.
    let hit = 0..count / 4;
    hit.clone().for_each(|n| drop(cache.read(key(n)).unwrap()));
    (count..10 * count).for_each(|n| cache.put(key(n), value(n)).unwrap());
    assert_eq!(present(&cache, hit.clone()), hit.len());
    let pages = &cache.stats()[0].pages;
    assert_eq!(pages.iter().map(|page| page.keys > 0).collect::<Vec<_>>(), [false, true, true]);
    assert!(pages[1].bytes <= pages[1].max_bytes);
    // The others went in the order in which they came.
    let kept = present(&cache, count..10 * count);
    assert_eq!(present(&cache, 10 * count - kept..10 * count), kept);
    cache.check();
}

#[test]
fn slru_with_one_page_is_lru() {
    let config = CacheConfig {
        policy: EvictionPolicy::Slru,
        max_bytes: ONE_SHARD_BYTES,
        pages_proportions: vec![7],
        ..CacheConfig::default()
    };
    let cache = Fixture::with(config);
    (0..100).for_each(|n| cache.put(key(n), value(n)).unwrap());
    (0..100).rev().for_each(|n| drop(cache.read(key(n)).unwrap()));
    for n in 100..400 {
        cache.put(key(n), value(n)).unwrap();
        let gone = (cache.total().evictions as usize).min(100);
        assert_eq!(present(&cache, 0..100 - gone), 100 - gone);
    }
    assert_eq!(present(&cache, 0..100), 0);
}

#[test]
fn keys_that_are_read_all_the_time_are_hits_under_every_policy_that_looks_at_reads() {
    use EvictionPolicy as Policy;
    for policy in [Policy::AllkeysLru, Policy::AllkeysLfu, Policy::Slru] {
        let cache = Fixture::new(policy, 4 << 20);
        (0..500).for_each(|n| cache.put(key(n), value(n)).unwrap());
        let mut misses = 0;
        for n in 0..20_000 {
            cache.put(key(1_000 + n), value(n)).unwrap();
            cache.advance(20);
            let hot = key(n * 7 % 500);
            if cache.read(&hot).is_none() {
                misses += 1;
                cache.put(&hot, value(n)).unwrap();
            }
        }
        assert!(misses < 2_000, "{policy:?}: {misses} of 20,000 reads of the hot keys are misses");
        cache.check();
    }
}

#[test]
fn a_large_value_makes_room_in_all_shards() {
    for policy in [EvictionPolicy::AllkeysLru, EvictionPolicy::Slru] {
        let cache = Fixture::new(policy, 8 << 20);
        (0..100_000).for_each(|n| cache.put(key(n), vec![0; 64]).unwrap());
        cache.put("large", vec![1; 4_000_000]).unwrap();
        assert_eq!(cache.read("large").unwrap().len(), 4_000_000);
        cache.check();
        (0..100).for_each(|n| cache.put(key(n), vec![0; 64]).unwrap());
        cache.check();
    }
}

#[test]
fn nearly_all_of_the_budget_is_used() {
    for policy in [EvictionPolicy::AllkeysLru, EvictionPolicy::Slru, EvictionPolicy::Noeviction] {
        let cache = Fixture::new(policy, 8 << 20);
        let _ = (0..100_000).try_for_each(|n| cache.put_for(key(n), vec![0; 64], 1_000));
        let used = cache.held_bytes() as f64 / cache.max_bytes() as f64;
        assert!(used > 0.95, "{policy:?}: {used}");
        cache.check();
    }
}
