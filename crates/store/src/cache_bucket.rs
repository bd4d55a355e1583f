//! A cache bucket: a [`Cache`] with the settings of a bucket.

use std::sync::Arc;

use arc_swap::ArcSwap;
use millstream_types::{Grant, WallClock};

use crate::cache::{DEFAULT_BYTES, MIN_BYTES};
use crate::{BucketConfig, BucketMemory, Cache, CacheConfig, Error, InvalidCacheConfig, StoreConfig};

/// Largest value of a cache whose settings name none.
const VALUE_MAX_BYTES: u64 = 16 << 20;

/// A cache bucket: its settings, and the [`Cache`] that holds its keys in memory.
pub struct CacheBucket {
    config: ArcSwap<BucketConfig>,
    cache: Cache,
    /// As many bytes as the cache may hold.
    _memory: Grant,
    wall: Arc<dyn WallClock>,
}

impl std::fmt::Debug for CacheBucket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CacheBucket({:?})", self.cache)
    }
}

impl CacheBucket {
    /// Makes an empty cache with the policy of `config` and the size of `memory`, at least the smallest there can be.
    ///
    /// # Errors
    /// [`Error::Settings`] for a setting that cannot be.
    pub fn new(
        name: &str,
        config: BucketConfig,
        store: &StoreConfig,
        memory: BucketMemory,
        wall: Arc<dyn WallClock>,
    ) -> Result<Self, Error> {
        let settings =
            CacheConfig { max_bytes: memory.values.bytes().max(MIN_BYTES), ..Self::check(name, &config, store)? };
        let cache = Cache::new(&settings, Arc::clone(&wall)).map_err(|rule| refused(name, &rule))?;
        Ok(Self { config: ArcSwap::from_pointee(config), cache, _memory: memory.values, wall })
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
