//! Listings and keys at random.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_scan_returns_all_that_stay_while_the_table_grows_and_shrinks(
        stay in 0_usize..300,
        come in 0_usize..3_000,
        at_once in 1_usize..100,
        count in 1_usize..50,
        max_bytes in prop::sample::select(vec![ONE_SHARD_BYTES, 16 << 20]),
    ) {
        let cache = Fixture::new(EvictionPolicy::Noeviction, max_bytes);
        (0..stay).for_each(|n| cache.put(format!("stay-{n}"), "v").unwrap());
        let (mut seen, mut cursor, mut steps) = (BTreeSet::new(), 0, 0);
        loop {
            let (next, keys) = cache.scan(cursor, count);
            seen.extend(keys);
            for n in steps * at_once..(steps + 1) * at_once {
                if n < come {
                    // A full cache without eviction refuses some, which does not matter here.
                    let _ = cache.put(format!("come-{n}"), "v");
                } else {
                    cache.delete(format!("come-{}", n - come));
                }
            }
            (cursor, steps) = (next, steps + 1);
            if cursor == 0 {
                break;
            }
        }
        let missing = (0..stay).map(|n| format!("stay-{n}")).find(|key| !seen.contains(key.as_bytes()));
        prop_assert_eq!(missing, None);
        prop_assert!(seen.iter().all(|key| key.starts_with(b"stay-") || key.starts_with(b"come-")));
    }
}

#[test]
fn a_scan_at_rest_returns_each_key_once_in_portions_of_about_the_count() {
    let cache = Fixture::new(EvictionPolicy::AllkeysLru, 16 << 20);
    (0..10_000).for_each(|n| cache.put(format!("key-{n}"), "v").unwrap());
    let (mut seen, mut cursor) = (Vec::new(), 0);
    loop {
        let (next, keys) = cache.scan(cursor, 10);
        assert!((1..=40).contains(&keys.len()) || next == 0, "{}", keys.len());
        seen.extend(keys);
        cursor = next;
        if cursor == 0 {
            break;
        }
    }
    let unique: BTreeSet<_> = seen.iter().collect();
    assert_eq!((seen.len(), unique.len()), (10_000, 10_000));
}

#[test]
fn a_cursor_that_nobody_gave_out_ends_the_scan() {
    let cache = Fixture::new(EvictionPolicy::AllkeysLru, 16 << 20);
    cache.put("key", "v").unwrap();
    assert_eq!(cache.scan(u64::MAX, 10), (0, vec![]));
    assert_eq!(cache.scan(0, 0), cache.scan(0, 1));
}

#[test]
fn every_key_may_be_the_one_at_random_and_none_that_has_expired() {
    let cache = Fixture::new(EvictionPolicy::AllkeysLru, 16 << 20);
    assert_eq!(cache.random_key(), None);
    (0..20).for_each(|n| cache.put(format!("key-{n}"), "v").unwrap());
    (0..500).for_each(|n| cache.put_for(format!("expires-{n}"), "v", 10).unwrap());
    cache.advance(10);
    let mut counts = BTreeMap::new();
    (0..2_000).for_each(|_| *counts.entry(cache.random_key().unwrap()).or_insert(0) += 1);
    assert_eq!(counts.len(), 20);
    assert!(counts.values().all(|count| (40..200).contains(count)), "{counts:?}");
    cache.check();
}

proptest! {
    #[test]
    fn the_first_keys_are_those_of_a_plain_map(
        keys in prop::collection::btree_set("[ab/]{1,4}", 0..120),
        start in "[ab/]{0,3}",
        prefix in "[ab]{0,2}",
        keys_max in 1_usize..40,
    ) {
        let cache = Fixture::new(EvictionPolicy::AllkeysLru, 4 << 20);
        for (number, key) in keys.iter().enumerate() {
            match number % 5 {
                0 => cache.put_for(key, "gone", 5).unwrap(),
                _ => cache.put(key, key.clone()).unwrap(),
            }
        }
        cache.advance(5);
        let live = keys.iter().enumerate().filter(|(number, _)| number % 5 != 0).map(|(_, key)| key);
        let mut expected: Vec<&String> = live.filter(|key| **key >= start && key.starts_with(&prefix)).collect();
        let is_cut = expected.len() > keys_max;
        expected.truncate(keys_max);
        let first = cache.first_keys(start.as_bytes(), prefix.as_bytes(), keys_max, usize::MAX);
        prop_assert_eq!(first.is_cut, is_cut);
        let found: Vec<(&[u8], u64)> = first.keys.iter().map(|(key, found)| (&key[..], found.entry.length)).collect();
        let expected: Vec<(&[u8], u64)> = expected.iter().map(|key| (key.as_bytes(), key.len() as u64)).collect();
        prop_assert_eq!(found, expected);
        // Nothing of it was a use.
        prop_assert_eq!(cache.total().hits, 0);
    }
}

#[test]
fn a_listing_takes_a_bounded_number_of_bytes_at_a_time() {
    let cache = Fixture::new(EvictionPolicy::AllkeysLru, 4 << 20);
    for number in 0..1_000 {
        cache.put(format!("key-{number:04}"), "x").unwrap();
    }
    let first = cache.first_keys(b"", b"", 1_000, 10 * (128 + 8));
    assert!(first.is_cut);
    assert!(
        first.keys.keys().map(|key| &key[..]).eq((0..10)
            .map(|n| format!("key-{n:04}").into_bytes())
            .collect::<Vec<_>>()
            .iter()
            .map(|key| &key[..]))
    );
}
