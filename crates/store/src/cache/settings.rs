//! Settings that change while a cache runs: its size, its policy and its largest value.
//!
//! The shards stay as they are, so that nobody waits for more than one of them. A cache that grows has more keys in each
//! until the next start, and one that shrinks needs some room for the tables of all of them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::config::SHARD_LEAST_BYTES;
use super::eviction::Eviction;
use super::loss::{LossListener, Losses};
use super::{Cache, CacheConfig, InvalidCacheConfig};

/// Keys that are evicted in a shard before the next one has its turn.
const EVICTED_AT_ONCE: usize = 64;

impl Cache {
    /// The cache with a listener for the keys that it loses.
    #[must_use]
    pub fn heard_by(mut self, listener: Arc<dyn LossListener>) -> Self {
        self.losses = Losses::to(listener);
        for shard in &self.shards {
            shard.lock().losses = self.losses.clone();
        }
        self
    }

    /// Checks settings that are to be put into force while the cache runs.
    ///
    /// # Errors
    /// A setting that cannot be, or a size that is too small for the shards.
    pub fn check_change(&self, config: &CacheConfig) -> Result<(), InvalidCacheConfig> {
        config.validate()?;
        let least_bytes = SHARD_LEAST_BYTES * self.shards.len() as u64;
        if config.max_bytes < least_bytes {
            return Err(InvalidCacheConfig::Shrunk { max_bytes: config.max_bytes, least_bytes });
        }
        Ok(())
    }

    /// Puts other settings into force, and evicts what no longer fits. The limit of keys stays as it is. Two changes at a
    /// time are up to the caller to order.
    ///
    /// # Errors
    /// The same errors as [`check_change`](Self::check_change).
    pub fn configure(&self, config: &CacheConfig) -> Result<(), InvalidCacheConfig> {
        self.check_change(config)?;
        let (eviction, tick) = (Eviction::new(config), self.clock.moment().tick());
        for shard in &self.shards {
            let mut shard = shard.lock();
            shard.set_eviction(eviction, config.pages(self.shards.len()), tick);
            shard.settle(&self.total_bytes);
        }
        self.policy.store(config.policy as u8, Ordering::Relaxed);
        self.value_max_bytes.store(config.value_max_bytes.min(config.max_bytes / 2), Ordering::Relaxed);
        self.max_bytes.store(config.max_bytes, Ordering::Relaxed);
        self.fit();
        Ok(())
    }

    /// Evicts until the cache holds no more than its size, or until its policy lets nothing go; writes are refused then.
    /// Returns `true` if it fits.
    pub fn fit(&self) -> bool {
        let moment = self.clock.moment();
        moment.ms();
        let mut without = 0;
        for shard in self.shards.iter().cycle() {
            if self.held_bytes() <= self.max_bytes() {
                return true;
            }
            if without == self.shards.len() {
                return false;
            }
            let mut shard = shard.lock();
            let mut evicted = 0;
            while evicted < EVICTED_AT_ONCE && self.held_bytes() > self.max_bytes() && shard.evict(&moment) {
                evicted += 1;
                shard.settle(&self.total_bytes);
            }
            without = if evicted == 0 { without + 1 } else { 0 };
            // An empty shard gives its tables back as well.
            let emptied = (evicted > 0 && shard.slots.is_empty()).then(|| shard.clear());
            shard.settle(&self.total_bytes);
            let lost = shard.take_lost();
            drop(shard);
            drop(emptied);
            self.tell(lost);
        }
        true
    }
}
