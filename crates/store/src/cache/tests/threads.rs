//! Several threads at once.

use std::thread;

use super::*;

const THREADS: u64 = 4;

#[test]
fn transactions_over_several_keys_are_atomic() {
    let cache = Fixture::new(EvictionPolicy::Noeviction, 64 << 20);
    let accounts: Vec<_> = (0..16).map(|n| format!("account-{n}")).collect();
    accounts.iter().for_each(|account| cache.put(account, 1_000_u64.to_be_bytes().to_vec()).unwrap());
    let balance = |keys: &mut dyn Transaction, account: &String| {
        u64::from_be_bytes(keys.get(account.as_bytes()).unwrap().unwrap().bytes[..].try_into().unwrap())
    };
    let all: Vec<_> = accounts.iter().map(String::as_bytes).collect();
    thread::scope(|scope| {
        for seed in 0..THREADS {
            let (cache, accounts, all) = (&cache, &accounts, &all);
            scope.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(seed);
                for step in 0..5_000 {
                    let (from, to) = (rng.choice(accounts).unwrap(), rng.choice(accounts).unwrap());
                    // The order of the names is not that of the locks.
                    cache.transact(&[from.as_bytes(), to.as_bytes()], |keys| {
                        let amount = balance(keys, from).min(rng.u64(..100));
                        let less = balance(keys, from) - amount;
                        keys.put(from.as_bytes(), Value::of(less.to_be_bytes().to_vec())).unwrap();
                        let more = balance(keys, to) + amount;
                        keys.put(to.as_bytes(), Value::of(more.to_be_bytes().to_vec())).unwrap();
                        if step % 7 == 0 {
                            // Takes the transfer back.
                            assert!(keys.put(from.as_bytes(), Value::of(vec![0; 20 << 20])).is_err());
                        }
                    });
                    if step % 16 == 0 {
                        let sum = |keys: &mut dyn Transaction| accounts.iter().map(|at| balance(keys, at)).sum::<u64>();
                        assert_eq!(cache.transact(all, sum), 16_000);
                        assert_eq!(cache.transact_all(|keys| sum(keys)), 16_000);
                    }
                }
            });
        }
    });
    cache.check();
}

#[test]
fn threads_that_read_write_expire_sweep_and_list_see_only_whole_values_within_the_budget() {
    for policy in EvictionPolicy::ALL {
        let cache = Fixture::new(policy, 2 << 20);
        let largest = 9_000;
        let most = cache.max_bytes() + cache.stats().len() as u64 * largest;
        thread::scope(|scope| {
            for seed in 0..THREADS {
                let cache = &cache;
                scope.spawn(move || {
                    let mut rng = fastrand::Rng::with_seed(seed);
                    (0..6_000).for_each(|_| step(cache, &mut rng));
                    assert!(cache.held_bytes() <= most, "{policy:?}: {} of {most}", cache.held_bytes());
                });
            }
        });
        cache.check_within(most);
        // What was too much goes with the next writes.
        if policy != EvictionPolicy::Noeviction {
            (0..100).for_each(|n| cache.put_for(format!("after-{n}"), vec![0; 2_000], 1_000).unwrap());
            cache.check();
        }
    }
}

fn step(cache: &Fixture, rng: &mut fastrand::Rng) {
    let key = format!("key-{}", rng.u32(..4_000));
    match rng.u32(..100) {
        0 => drop(cache.sweep(10)),
        1 => cache.advance(1),
        2 => drop(cache.scan(u64::from(rng.u32(..8)) << 32, 10)),
        3..10 => drop(cache.delete(&key)),
        10..50 => {
            let expires_ms = rng.bool().then(|| cache.now_ms() + rng.i64(0..50));
            let most = if rng.u32(..50) == 0 { 800 } else { 100 };
            let value = key.repeat(rng.usize(1..most)).into_bytes();
            // A policy that finds nothing to evict refuses some.
            let _ = cache.put_value(&key, Value { expires_ms, ..Value::of(value) });
        }
        _ => {
            if let Some(value) = cache.read(&key) {
                assert!(value.chunks(key.len()).all(|part| part == key.as_bytes()));
            }
        }
    }
    assert!(cache.held_bytes() <= cache.max_bytes() + cache.stats().len() as u64 * 9_000);
}

#[test]
fn writers_that_find_nothing_to_evict_are_refused_also_while_others_hold_shards() {
    let cache = Fixture::new(EvictionPolicy::VolatileLru, 2 << 20);
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let cache = &cache;
            scope.spawn(move || {
                let write = |n: &u64| cache.put(format!("key-{thread}-{n}"), vec![0; 1_000]).is_ok();
                assert!((0..5_000).filter(write).count() < 2_000);
            });
        }
    });
    cache.check_within(cache.max_bytes() + THREADS * 2_000);
}

#[test]
fn versions_are_unique_over_threads() {
    let cache = Fixture::new(EvictionPolicy::Noeviction, 64 << 20);
    let versions = thread::scope(|scope| {
        let write = |seed: u64| {
            let cache = &cache;
            move || -> Vec<_> {
                let version = |n: u64| {
                    let key = format!("key-{}", (n * 31 + seed) % 100);
                    let key = key.as_bytes();
                    cache.transact(&[key], |keys| {
                        keys.put(key, Value::of("v")).unwrap();
                        keys.entry(key).unwrap().version.unwrap()
                    })
                };
                (0..3_000).map(version).collect()
            }
        };
        let threads: Vec<_> = (0..THREADS).map(|seed| scope.spawn(write(seed))).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    let unique: std::collections::HashSet<_> = versions.iter().collect();
    assert_eq!(unique.len(), versions.len());
}
