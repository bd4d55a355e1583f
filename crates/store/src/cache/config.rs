//! The settings of a cache bucket.

use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::pages::Pages;

/// Smallest budget of a cache, in bytes.
pub(crate) const MIN_BYTES: u64 = 64 << 10;
/// Budget of a cache whose settings name none, in bytes.
pub(crate) const DEFAULT_BYTES: u64 = 64 << 20;
/// A shard is worth its lock and its rounding from this size on.
const SHARD_MIN_BYTES: u64 = 256 << 10;
/// A shard of a cache that shrinks keeps this much, for its tables and a few keys.
pub(super) const SHARD_LEAST_BYTES: u64 = 16 << 10;
/// Sets of shards are words of 64 bits.
const MAX_SHARDS: u64 = 64;
const MAX_PAGES: usize = 16;

/// The budget, the limits and the eviction policy of a cache bucket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CacheConfig {
    /// Bytes that the bucket may hold: keys, values and the tables around them. At least 64 KiB. Default 64 MiB.
    pub max_bytes: u64,
    /// The keys that make room for new ones. Default `allkeys-lru`.
    pub policy: EvictionPolicy,
    /// Sizes of the pages of `slru` from the hottest to the coldest, relative to each other: 1 to 16 numbers from 1
    /// on. One page is LRU. Default 1, 2, 4.
    pub pages_proportions: Vec<u32>,
    /// Most bytes of a key. Default 1,024.
    pub key_max_bytes: usize,
    /// Most bytes of a value. No value is larger than half of `max_bytes`. Default 16 MiB.
    pub value_max_bytes: u64,
    /// The slowness of the access counter of the LFU policies: with 10, a million hits saturate it. Default 10.
    pub lfu_log_factor: u32,
    /// Minutes without a hit after which the access counter of the LFU policies falls by one; 0 means that
    /// it never falls. Default 1.
    pub lfu_decay_minutes: u32,
}

impl Default for CacheConfig {
    fn default() -> Self {
        Self {
            max_bytes: DEFAULT_BYTES,
            policy: EvictionPolicy::default(),
            pages_proportions: vec![1, 2, 4],
            key_max_bytes: 1_024,
            value_max_bytes: 16 << 20,
            lfu_log_factor: 10,
            lfu_decay_minutes: 1,
        }
    }
}

/// A setting of a cache that cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidCacheConfig {
    /// The budget is too small for the tables alone.
    #[error("max_bytes = {max_bytes} of a cache is below the least, {MIN_BYTES}; raise it")]
    MaxBytes {
        /// The budget of the rejected configuration, in bytes.
        max_bytes: u64,
    },
    /// The budget is too small for the tables of a cache that was larger.
    #[error(
        "max_bytes = {max_bytes} is below {least_bytes}, the least of a cache that was made so much larger; delete the bucket and make it again"
    )]
    Shrunk {
        /// The budget of the rejected configuration, in bytes.
        max_bytes: u64,
        /// The least that it may be, in bytes.
        least_bytes: u64,
    },
    /// The pages of `slru` have no sizes.
    #[error("pages_proportions = {proportions:?} of a cache is not 1 to {MAX_PAGES} numbers from 1 on; try [1, 2, 4]")]
    Pages {
        /// The proportions of the rejected configuration, hottest page first.
        proportions: Vec<u32>,
    },
    /// A limit of zero, or a key that is longer than any.
    #[error("{setting} = {value} of a cache is not between 1 and {max}; change it")]
    Limit {
        /// The name of the setting.
        setting: &'static str,
        /// The value of the rejected configuration.
        value: u64,
        /// The largest value that the setting takes.
        max: u64,
    },
}

impl CacheConfig {
    /// Checks the settings against each other.
    ///
    /// # Errors
    /// The first setting that cannot be.
    pub fn validate(&self) -> Result<(), InvalidCacheConfig> {
        if self.max_bytes < MIN_BYTES {
            return Err(InvalidCacheConfig::MaxBytes { max_bytes: self.max_bytes });
        }
        let pages = &self.pages_proportions;
        if pages.is_empty() || pages.len() > MAX_PAGES || pages.contains(&0) {
            return Err(InvalidCacheConfig::Pages { proportions: pages.clone() });
        }
        let limit = |setting, value, max| match value {
            1.. if value <= max => Ok(()),
            _ => Err(InvalidCacheConfig::Limit { setting, value, max }),
        };
        limit("key_max_bytes", self.key_max_bytes as u64, u64::from(u16::MAX))?;
        limit("value_max_bytes", self.value_max_bytes, u64::from(u32::MAX))
    }

    /// Empty pages for one of so many shards, if the policy has any.
    pub(super) fn pages(&self, shards: usize) -> Option<Pages> {
        let pages = || Pages::new(&self.pages_proportions, self.max_bytes / shards as u64);
        (self.policy == EvictionPolicy::Slru).then(pages)
    }

    /// The number of shards, a power of two.
    pub(super) fn shards(&self) -> usize {
        let shards = (self.max_bytes / SHARD_MIN_BYTES).clamp(1, MAX_SHARDS);
        1 << shards.ilog2()
    }
}

/// The keys that a full cache evicts. The names are those of Redis's `maxmemory-policy`; `slru` is Elliptics' own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum EvictionPolicy {
    /// None: writes that do not fit are refused.
    Noeviction,
    /// The key that was unused for longest, among five at random.
    #[default]
    AllkeysLru,
    /// The key that is used least often, among five at random.
    AllkeysLfu,
    /// A random key, whether it expires or not.
    AllkeysRandom,
    /// As `allkeys-lru`, among the keys that expire.
    VolatileLru,
    /// As `allkeys-lfu`, among the keys that expire.
    VolatileLfu,
    /// A key at random among those that expire.
    VolatileRandom,
    /// The key that expires first.
    VolatileTtl,
    /// Segmented LRU: a new key enters the coldest page, a hit moves it one page hotter, the oldest key of a page that
    /// overflows moves one page colder, and off the coldest page it is evicted.
    Slru,
}

impl EvictionPolicy {
    /// All policies, in the order of their declaration.
    pub const ALL: [Self; 9] = [
        Self::Noeviction,
        Self::AllkeysLru,
        Self::AllkeysLfu,
        Self::AllkeysRandom,
        Self::VolatileLru,
        Self::VolatileLfu,
        Self::VolatileRandom,
        Self::VolatileTtl,
        Self::Slru,
    ];

    /// The name, as in `maxmemory-policy`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Noeviction => "noeviction",
            Self::AllkeysLru => "allkeys-lru",
            Self::AllkeysLfu => "allkeys-lfu",
            Self::AllkeysRandom => "allkeys-random",
            Self::VolatileLru => "volatile-lru",
            Self::VolatileLfu => "volatile-lfu",
            Self::VolatileRandom => "volatile-random",
            Self::VolatileTtl => "volatile-ttl",
            Self::Slru => "slru",
        }
    }

    /// True if the policy counts accesses (`OBJECT FREQ`); it then knows no idle times (`OBJECT IDLETIME`).
    pub fn counts_accesses(self) -> bool {
        matches!(self, Self::AllkeysLfu | Self::VolatileLfu)
    }
}

/// A name that is no eviction policy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is no eviction policy; use one of {names}", names = EvictionPolicy::ALL.map(EvictionPolicy::as_str).join(", "))]
pub struct UnknownPolicy(String);

impl FromStr for EvictionPolicy {
    type Err = UnknownPolicy;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let mut all = Self::ALL.into_iter();
        all.find(|policy| policy.as_str().eq_ignore_ascii_case(name)).ok_or_else(|| UnknownPolicy(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_that_cannot_be_is_refused_by_name() {
        let check = |change: fn(&mut CacheConfig), expected: &str| {
            let mut config = CacheConfig::default();
            change(&mut config);
            assert_eq!(config.validate().map_err(|error| error.to_string()), Err(expected.to_owned()));
        };
        assert_eq!(CacheConfig::default().validate(), Ok(()));
        check(|c| c.max_bytes = 1_000, "max_bytes = 1000 of a cache is below the least, 65536; raise it");
        let pages = "of a cache is not 1 to 16 numbers from 1 on; try [1, 2, 4]";
        check(|c| c.pages_proportions.clear(), &format!("pages_proportions = [] {pages}"));
        check(|c| c.pages_proportions = vec![1, 0], &format!("pages_proportions = [1, 0] {pages}"));
        check(|c| c.key_max_bytes = 0, "key_max_bytes = 0 of a cache is not between 1 and 65535; change it");
        check(|c| c.value_max_bytes = 0, "value_max_bytes = 0 of a cache is not between 1 and 4294967295; change it");
    }

    #[test]
    fn the_name_of_a_policy_is_the_same_in_configuration_and_command() {
        for policy in EvictionPolicy::ALL {
            assert_eq!(policy.as_str().parse(), Ok(policy));
            assert_eq!(serde_json::to_value(policy).unwrap(), policy.as_str());
        }
        let unknown = "lru".parse::<EvictionPolicy>().unwrap_err().to_string();
        assert!(
            unknown.starts_with("\"lru\" is no eviction policy; use one of noeviction, allkeys-lru, "),
            "{unknown}"
        );
    }

    #[test]
    fn shards_are_a_power_of_two_that_grows_with_the_budget() {
        let shards = |max_bytes| CacheConfig { max_bytes, ..CacheConfig::default() }.shards();
        assert_eq!([64 << 10, 512 << 10, 1 << 20, 7 << 20, 1 << 40].map(shards), [1, 2, 4, 16, 64]);
    }
}
