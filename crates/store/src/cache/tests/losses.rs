//! Keys that a cache removes by itself are told, each once, when no lock is held.

use std::collections::BTreeSet;

use parking_lot::Mutex;

use super::*;

/// Notes what it hears, and uses the cache meanwhile.
#[derive(Default)]
struct Noted {
    wants: Mutex<Vec<KeyLoss>>,
    lost: Mutex<Vec<(KeyLoss, Bytes)>>,
    cache: Mutex<Option<std::sync::Weak<Cache>>>,
}

impl LossListener for Noted {
    fn wants(&self, loss: KeyLoss) -> bool {
        self.wants.lock().contains(&loss)
    }

    fn lost(&self, loss: KeyLoss, keys: &[Bytes]) {
        // It would wait for ever if a shard were locked.
        let cache = self.cache.lock().as_ref().and_then(std::sync::Weak::upgrade);
        cache.iter().for_each(|cache| keys.iter().for_each(|key| drop(cache.get(key))));
        self.lost.lock().extend(keys.iter().map(|key| (loss, key.clone())));
    }
}

impl Noted {
    fn take(&self, loss: KeyLoss) -> Vec<Bytes> {
        let lost = std::mem::take(&mut *self.lost.lock());
        assert!(lost.iter().all(|(found, _)| *found == loss), "{lost:?}");
        lost.into_iter().map(|(_, key)| key).collect()
    }
}

fn heard(config: &CacheConfig, wants: &[KeyLoss]) -> (Arc<Cache>, Arc<ManualClock>, Arc<Noted>) {
    let (clock, noted) = (Arc::new(ManualClock::at(START_MS)), Arc::new(Noted::default()));
    *noted.wants.lock() = wants.to_vec();
    let cache = Arc::new(Cache::new(config, clock.clone()).unwrap().heard_by(noted.clone()));
    *noted.cache.lock() = Some(Arc::downgrade(&cache));
    (cache, clock, noted)
}

fn put(cache: &Cache, key: &str, value: Value) {
    cache.transact(&[key.as_bytes()], |keys| keys.put(key.as_bytes(), value)).unwrap();
}

#[test]
fn expired_keys_are_told_however_they_are_found() {
    let (cache, clock, noted) = heard(&CacheConfig::default(), &[KeyLoss::Expired]);
    let short = || Value { expires_ms: Some(clock.now_ms() + 10), ..Value::of("x") };
    for how in ["get", "entry", "put", "random", "sweep"] {
        put(&cache, "key", short());
        clock.advance(Duration::from_millis(10));
        match how {
            "get" => assert_eq!(cache.get(b"key"), None),
            "entry" => assert_eq!(cache.transact(&[b"key"], |keys| keys.entry(b"key")), None),
            "put" => put(&cache, "key", Value::of("again")),
            "random" => assert_eq!(cache.random_key(), None),
            _ => assert_eq!(cache.sweep(10), 1),
        }
        assert_eq!(noted.take(KeyLoss::Expired), ["key"], "{how}");
        cache.transact(&[b"key"], |keys| keys.delete(b"key"));
        assert_eq!(noted.take(KeyLoss::Expired), [""; 0], "a delete is no expiry");
    }
}

#[test]
fn evicted_keys_are_told_and_no_others() {
    let config = CacheConfig { max_bytes: 1 << 20, ..CacheConfig::default() };
    let (cache, _, noted) = heard(&config, &[KeyLoss::Evicted]);
    let keys: Vec<String> = (0..4_000).map(|number| format!("key-{number}")).collect();
    for key in &keys {
        put(&cache, key, Value::of(vec![1; 400]));
    }
    cache.configure(&CacheConfig { max_bytes: 256 << 10, ..config }).unwrap();
    let told = noted.take(KeyLoss::Evicted);
    let evicted: u64 = cache.stats().iter().map(|shard| shard.evictions).sum();
    assert_eq!(told.len() as u64, evicted);
    let told: BTreeSet<&[u8]> = told.iter().map(|key| &key[..]).collect();
    for key in &keys {
        assert_eq!(told.contains(key.as_bytes()), cache.peek(key.as_bytes()).is_none(), "{key}");
    }
}

#[test]
fn what_nobody_wants_to_know_is_not_kept() {
    let config = CacheConfig { max_bytes: 256 << 10, ..CacheConfig::default() };
    let (cache, _, noted) = heard(&config, &[]);
    for number in 0..4_000 {
        put(&cache, &format!("key-{number}"), Value::of(vec![1; 400]));
    }
    *noted.wants.lock() = vec![KeyLoss::Evicted, KeyLoss::Expired];
    assert_eq!(cache.get(b"none"), None);
    assert!(noted.lost.lock().is_empty());
}
