//! A cache bucket: a [`Cache`] with the settings of a bucket, and the memory that it may take.
//!
//! Invariant: the memory covers the size of the cache, and what it holds beyond that: a cache that was made smaller gives
//! back what it no longer holds, a cache that evicts nothing only once its keys are deleted.

use std::sync::Arc;

use arc_swap::ArcSwap;
use millstream_types::{Grant, WallClock};
use parking_lot::Mutex;

use crate::cache::{DEFAULT_BYTES, MIN_BYTES};
use crate::{
    BucketConfig, BucketMemory, Cache, CacheConfig, Error, InvalidCacheConfig, LossListener, StoreConfig, StoreMemory,
};

/// Largest value of a cache whose settings name none.
const VALUE_MAX_BYTES: u64 = 16 << 20;

/// A cache bucket: its settings, and the [`Cache`] that holds its keys in memory.
pub struct CacheBucket {
    config: ArcSwap<BucketConfig>,
    cache: Cache,
    /// As many bytes as the cache may hold. Held while settings are changed.
    memory: Mutex<Grant>,
    wall: Arc<dyn WallClock>,
}

impl std::fmt::Debug for CacheBucket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CacheBucket({:?})", self.cache)
    }
}

impl CacheBucket {
    /// Makes an empty cache with the policy of `config` and the size of `memory`, at least the smallest there can be.
    /// `losses` hears of keys that expire or are evicted.
    ///
    /// # Errors
    /// [`Error::Settings`] for a setting that cannot be.
    pub fn new(
        name: &str,
        config: BucketConfig,
        store: &StoreConfig,
        memory: BucketMemory,
        wall: Arc<dyn WallClock>,
        losses: Arc<dyn LossListener>,
    ) -> Result<Self, Error> {
        let settings =
            CacheConfig { max_bytes: memory.values.bytes().max(MIN_BYTES), ..Self::check(name, &config, store)? };
        let cache = Cache::new(&settings, Arc::clone(&wall)).map_err(|rule| refused(name, &rule))?;
        let (config, cache) = (ArcSwap::from_pointee(config), cache.heard_by(losses));
        Ok(Self { config, cache, memory: Mutex::new(memory.values), wall })
    }

    /// Checks settings that are to be put into force while the bucket is in use.
    ///
    /// # Errors
    /// [`Error::Settings`] for a setting that cannot be.
    pub(crate) fn check_change(&self, name: &str, config: &BucketConfig, store: &StoreConfig) -> Result<(), Error> {
        let settings = Self::check(name, config, store)?;
        self.cache.check_change(&settings).map_err(|rule| refused(name, &rule))
    }

    /// Changes settings, and evicts what no longer fits. `more` is memory that was taken for it before; what is then
    /// missing is taken of `budget`, and what the cache needs no more is given back.
    ///
    /// # Errors
    /// [`Error::Settings`] for a setting that cannot be; [`Error::NoMemory`].
    pub(crate) fn change(
        &self,
        name: &str,
        store: &StoreConfig,
        budget: &StoreMemory,
        more: Option<Grant>,
        change: impl FnOnce(&mut BucketConfig),
    ) -> Result<(), Error> {
        let mut memory = self.memory.lock();
        let mut config = BucketConfig::clone(&self.config.load());
        change(&mut config);
        config.check().map_err(|rule| Error::Settings { bucket: name.to_owned(), rule })?;
        self.check_change(name, &config, store)?;
        let settings = Self::check(name, &config, store)?;
        if let Some(more) = more {
            memory.merge(more);
        }
        let missing = budget.grow(name, &config, memory.bytes())?;
        memory.merge(missing);
        self.cache.configure(&settings).map_err(|rule| refused(name, &rule))?;
        self.config.store(Arc::new(config));
        self.give_back(&mut memory);
        Ok(())
    }

    fn give_back(&self, memory: &mut Grant) {
        let needed_bytes = self.cache.max_bytes().max(self.cache.held_bytes());
        if memory.bytes() > needed_bytes {
            memory.resize(needed_bytes);
        }
    }

    /// Removes up to `max_keys` keys that have expired, and returns how many. A cache that holds more than its size evicts
    /// what it can, and gives back memory that it no longer needs.
    pub(crate) fn sweep(&self, max_keys: usize) -> usize {
        let swept = self.cache.sweep(max_keys);
        if self.cache.held_bytes() > self.cache.max_bytes() {
            self.cache.fit();
        }
        if let Some(mut memory) = self.memory.try_lock() {
            self.give_back(&mut memory);
        }
        swept
    }

    /// Bytes of the memory budget that the bucket has.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.memory.lock().bytes()
    }

    /// The settings of the cache, checked.
    ///
    /// # Errors
    /// [`Error::Settings`] for a setting that cannot be.
    pub(crate) fn check(name: &str, config: &BucketConfig, store: &StoreConfig) -> Result<CacheConfig, Error> {
        let defaults = CacheConfig::default();
        let settings = CacheConfig {
            max_bytes: config.quotas.max_bytes.unwrap_or(DEFAULT_BYTES),
            policy: config.policy,
            pages_proportions: config.pages_proportions.clone().unwrap_or(defaults.pages_proportions),
            key_max_bytes: store.key_max_bytes,
            value_max_bytes: config.quotas.value_max_bytes.unwrap_or(VALUE_MAX_BYTES),
            ..CacheConfig::default()
        };
        settings.validate().map_err(|rule| refused(name, &rule))?;
        Ok(settings)
    }

    /// The settings of the bucket.
    pub fn config(&self) -> Arc<BucketConfig> {
        self.config.load_full()
    }

    /// The cache that holds the bucket's keys and values.
    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    /// The bucket's wall time, milliseconds since 1970-01-01T00:00:00Z.
    pub fn now_ms(&self) -> i64 {
        self.wall.now_ms()
    }
}

fn refused(name: &str, rule: &InvalidCacheConfig) -> Error {
    Error::Settings { bucket: name.to_owned(), rule: rule.to_string() }
}
