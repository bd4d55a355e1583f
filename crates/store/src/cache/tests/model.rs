//! The cache beside a plain map.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone)]
enum ModelStep {
    Put {
        key: u8,
        bytes: usize,
        ttl_ms: Option<i64>,
    },
    Get {
        key: u8,
    },
    Entry {
        key: u8,
    },
    Delete {
        key: u8,
    },
    /// Writes to all of them, and perhaps one that is refused.
    Many {
        keys: Vec<u8>,
        bytes: usize,
        is_refused: bool,
    },
    Advance {
        ms: u64,
    },
    Sweep {
        max_keys: usize,
    },
    Clear,
}

fn steps() -> impl Strategy<Value = Vec<ModelStep>> {
    let bytes = || prop_oneof![4 => 0_usize..200, 1 => 200_usize..6_000];
    let ttl_ms = prop_oneof![2 => Just(None), 1 => (-1_i64..100).prop_map(Some)];
    let step = prop_oneof![
        12 => (any::<u8>(), bytes(), ttl_ms).prop_map(|(key, bytes, ttl_ms)| ModelStep::Put { key, bytes, ttl_ms }),
        6 => any::<u8>().prop_map(|key| ModelStep::Get { key }),
        2 => any::<u8>().prop_map(|key| ModelStep::Entry { key }),
        4 => any::<u8>().prop_map(|key| ModelStep::Delete { key }),
        2 => (prop::collection::vec(any::<u8>(), 0..8), bytes(), any::<bool>())
            .prop_map(|(keys, bytes, is_refused)| ModelStep::Many { keys, bytes, is_refused }),
        2 => (0_u64..60).prop_map(|ms| ModelStep::Advance { ms }),
        1 => (0_usize..100).prop_map(|max_keys| ModelStep::Sweep { max_keys }),
    ];
    let steps = prop_oneof![60 => step, 1 => Just(ModelStep::Clear)];
    prop::collection::vec(steps, 1..400)
}

#[derive(Default)]
struct Model {
    values: BTreeMap<u8, Value>,
    /// Every value is another one.
    written: u64,
}

impl Model {
    fn value(&mut self, bytes: usize, expires_ms: Option<i64>) -> Value {
        self.written += 1;
        let mut value = self.written.to_be_bytes().to_vec();
        value.resize(8 + bytes, 0);
        Value { expires_ms, ..Value::of(value) }
    }

    fn get(&self, key: u8, now_ms: i64) -> Option<&Value> {
        self.values.get(&key).filter(|value| value.expires_ms.is_none_or(|at| at > now_ms))
    }

    fn delete(&mut self, key: u8, now_ms: i64) -> bool {
        let is_there = self.get(key, now_ms).is_some();
        self.values.remove(&key);
        is_there
    }
}

/// Runs the steps on the cache and the model. If the cache may evict, a key may be gone, but never have another value.
fn run(cache: &Fixture, steps: Vec<ModelStep>, may_evict: bool) {
    let mut model = Model::default();
    let agrees = |found: Option<&Value>, expected: Option<&Value>| {
        assert!(found == expected || may_evict && found.is_none(), "{found:?} instead of {expected:?}");
    };
    for step in steps {
        let now_ms = cache.now_ms();
        match step {
            ModelStep::Put { key, bytes, ttl_ms } => {
                let value = model.value(bytes, ttl_ms.map(|ttl| now_ms + ttl));
                match cache.put_value([b'k', key], value.clone()) {
                    Ok(()) => drop(model.values.insert(key, value)),
                    Err(error) => assert!(may_evict, "{error:?}"),
                }
            }
            ModelStep::Get { key } => agrees(cache.get(&[b'k', key]).as_ref(), model.get(key, now_ms)),
            ModelStep::Entry { key } => {
                let entry = cache.transact(&[&[b'k', key]], |keys| keys.entry(&[b'k', key]));
                let (found, expected) = (entry.map(|at| (at.length, at.expires_ms)), model.get(key, now_ms));
                let expected = expected.map(|value| (value.bytes.len() as u64, value.expires_ms));
                assert!(found == expected || may_evict && found.is_none(), "{found:?} instead of {expected:?}");
            }
            ModelStep::Delete { key } => {
                let (found, expected) = (cache.delete([b'k', key]), model.delete(key, now_ms));
                assert!(found == expected || may_evict && !found);
            }
            ModelStep::Many { keys, bytes, is_refused } => many(cache, &mut model, &keys, bytes, is_refused),
            ModelStep::Advance { ms } => cache.advance(ms),
            ModelStep::Sweep { max_keys } => assert!(cache.sweep(max_keys) <= max_keys),
            ModelStep::Clear => {
                cache.clear();
                model.values.clear();
            }
        }
        cache.check();
    }
    let now_ms = cache.now_ms();
    (0..=u8::MAX).for_each(|key| agrees(cache.get(&[b'k', key]).as_ref(), model.get(key, now_ms)));
    let kept = model.values.keys().filter(|key| model.get(**key, now_ms).is_some()).count();
    assert!(if may_evict { cache.len() <= kept } else { cache.len() == kept });
}

fn many(cache: &Fixture, model: &mut Model, keys: &[u8], bytes: usize, is_refused: bool) {
    let names: Vec<_> = keys.iter().map(|key| [b'k', *key]).collect();
    let names: Vec<&[u8]> = names.iter().map(<[u8; 2]>::as_slice).collect();
    let values: Vec<_> = keys.iter().map(|_| model.value(bytes, None)).collect();
    let result = cache.transact(&names, |all| {
        names.iter().zip(&values).try_for_each(|(name, value)| {
            // A delete in between, which must be taken back as well.
            all.delete(name);
            all.put(name, value.clone())
        })?;
        if is_refused && let Some(name) = names.first() { all.put(name, Value::of(vec![0; 20_000])) } else { Ok(()) }
    });
    if result.is_ok() {
        model.values.extend(keys.iter().copied().zip(values));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn a_cache_with_room_for_all_is_a_map(
        steps in steps(),
        policy in prop::sample::select(EvictionPolicy::ALL.to_vec()),
        max_bytes in prop::sample::select(vec![16 << 20, 64 << 20]),
    ) {
        let config = CacheConfig { policy, max_bytes, value_max_bytes: 10_000, ..CacheConfig::default() };
        run(&Fixture::with(config), steps, false);
    }

    #[test]
    fn a_cache_that_evicts_never_has_a_wrong_value_or_too_many_bytes(
        steps in steps(),
        policy in prop::sample::select(EvictionPolicy::ALL.to_vec()),
        max_bytes in prop::sample::select(vec![64 << 10, 513 << 10]),
    ) {
        let config = CacheConfig { policy, max_bytes, value_max_bytes: 10_000, ..CacheConfig::default() };
        run(&Fixture::with(config), steps, true);
    }
}
