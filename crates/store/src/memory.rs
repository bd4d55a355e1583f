//! The memory of buckets, which they draw from the budget of the process.
//!
//! | memory | bound | taken |
//! | --- | --- | --- |
//! | values of a bucket | its `cache_bytes`; `max_bytes` of a cache | from when it is opened until it is deleted |
//! | writes that wait for owners | `store.inbox_max_bytes` for all buckets together | set aside at start |
//! | changes in flight or missing from the checkpoint | `store.dirty_max_bytes` for all buckets together | set aside at start |
//!
//! Not here: the tables of keys. Like other data they grow beside the budget.

use std::sync::Arc;

use millstream_types::{Grant, MemoryBudget};
use tokio::sync::Semaphore;

use crate::cache::DEFAULT_BYTES;
use crate::{BucketConfig, BucketKind, Error, StoreConfig};

/// Memory of a chunk of a large value on its way to the owner.
const CHUNK_IN_FLIGHT_BYTES: usize = 512 << 10;
/// Part of the budget that values of buckets leave to connections and requests: a quarter.
const LEFT_TO_OTHERS: u64 = 4;

/// The memory of all buckets.
#[derive(Debug, Clone)]
pub struct StoreMemory {
    budget: MemoryBudget,
    values: MemoryBudget,
    queues: QueueMemory,
}

/// The memory that all buckets share for what is on its way.
#[derive(Debug, Clone)]
pub(crate) struct QueueMemory {
    pub(crate) inboxes: MemoryBudget,
    pub(crate) changes: MemoryBudget,
    /// Room for chunks of large values on their way to the owners: half of the inboxes.
    pub(crate) chunks: Arc<Semaphore>,
}

/// The memory of a bucket.
#[derive(Debug)]
pub struct BucketMemory {
    pub(crate) values: Grant,
    pub(crate) queues: QueueMemory,
}

impl StoreMemory {
    /// The memory of buckets with these settings. What is set aside at start is taken from `budget` already.
    pub fn new(config: &StoreConfig, budget: &MemoryBudget) -> Self {
        let left_bytes = budget.left_bytes();
        let chunks = Semaphore::new((config.inbox_max_bytes / 2 / CHUNK_IN_FLIGHT_BYTES).max(1));
        let queues = QueueMemory {
            inboxes: MemoryBudget::new("store.inbox_max_bytes", config.inbox_max_bytes as u64),
            changes: MemoryBudget::new("store.dirty_max_bytes", config.dirty_max_bytes as u64),
            chunks: Arc::new(chunks),
        };
        let values = budget.share(budget.setting(), left_bytes - left_bytes / LEFT_TO_OTHERS);
        Self { budget: budget.clone(), values, queues }
    }

    /// Bytes that buckets may still take for their values.
    pub(crate) fn left_bytes(&self) -> u64 {
        self.values.left_bytes()
    }

    /// Takes the memory of a new bucket.
    ///
    /// # Errors
    /// [`Error::NoMemory`] if there is too little.
    pub fn of_new(&self, name: &str, config: &BucketConfig) -> Result<BucketMemory, Error> {
        Ok(self.of_bucket(self.grow(name, config, 0)?))
    }

    /// The memory of a bucket whose values may take `values`.
    pub(crate) fn of_bucket(&self, values: Grant) -> BucketMemory {
        BucketMemory { values, queues: self.queues.clone() }
    }

    /// Takes what the values of a bucket need beyond the `held_bytes` that it has.
    ///
    /// # Errors
    /// [`Error::NoMemory`] if there is too little.
    pub(crate) fn grow(&self, name: &str, config: &BucketConfig, held_bytes: u64) -> Result<Grant, Error> {
        let size_bytes = values_bytes(config);
        let more_bytes = size_bytes.saturating_sub(held_bytes);
        self.values.take(more_bytes).ok_or_else(|| Error::NoMemory {
            bucket: name.to_owned(),
            setting: if config.kind == BucketKind::Cache { "max_bytes" } else { "cache_bytes" },
            size_bytes,
            more_bytes,
            left_bytes: self.left_bytes(),
            budget: self.budget.setting(),
            budget_bytes: self.budget.limit_bytes(),
        })
    }

    /// Takes memory for the buckets that a start finds. If there is too little, each gets the same part of what it asks for.
    pub(crate) fn at_start(&self, all: &[&BucketConfig]) -> Vec<BucketMemory> {
        let left_bytes = u128::from(self.left_bytes());
        let asked_bytes: u128 = all.iter().map(|config| u128::from(values_bytes(config))).sum();
        if asked_bytes > left_bytes {
            let (setting, budget_bytes) = (self.budget.setting(), self.budget.limit_bytes());
            tracing::warn!(
                asked_bytes,
                left_bytes,
                "{setting} = {budget_bytes} is too little for the cache_bytes and max_bytes of all buckets; each gets \
                 its part of what is left. Raise the budget, or lower those of some buckets"
            );
        }
        let part = |bytes: u64| match asked_bytes {
            asked if asked <= left_bytes => bytes,
            asked => (u128::from(bytes) * left_bytes / asked) as u64,
        };
        let take = |config| self.values.take(part(values_bytes(config))).unwrap_or_else(|| self.values.empty_grant());
        all.iter().map(|config| self.of_bucket(take(config))).collect()
    }
}

/// The memory that the values of a bucket may take.
fn values_bytes(config: &BucketConfig) -> u64 {
    match config.kind {
        BucketKind::Cache => config.quotas.max_bytes.unwrap_or(DEFAULT_BYTES),
        BucketKind::Durable => config.cache_bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn durable(cache_bytes: u64) -> BucketConfig {
        BucketConfig { cache_bytes, ..BucketConfig::default() }
    }

    #[test]
    fn buckets_leave_a_quarter_of_the_budget_and_a_refusal_names_what_is_left() {
        let budget = MemoryBudget::new("memory.budget_bytes", 1_000);
        let _set_aside = budget.take(200).unwrap();
        let memory = StoreMemory::new(&StoreConfig::default(), &budget);
        let first = memory.of_new("first", &durable(500)).unwrap();
        let refused = memory.of_new("second", &durable(200)).unwrap_err().to_string();
        let expected = "cache_bytes = 200 of bucket 'second' needs 200 bytes more of memory, of which 100 are left to \
                        buckets (memory.budget_bytes = 1000)";
        assert_eq!(refused, expected);
        assert_eq!(budget.used_bytes(), 700);
        let _others = budget.take(250).unwrap();
        assert_eq!(memory.left_bytes(), 50, "others have taken of the rest");
        drop(first);
        assert_eq!(budget.used_bytes(), 450);
    }

    #[test]
    fn a_start_with_too_little_gives_every_bucket_the_same_part() {
        let budget = MemoryBudget::new("memory.budget_bytes", 400);
        let memory = StoreMemory::new(&StoreConfig::default(), &budget);
        let bytes = |sizes: &[u64]| -> Vec<u64> {
            let all: Vec<_> = sizes.iter().copied().map(durable).collect();
            memory.at_start(&all.iter().collect::<Vec<_>>()).iter().map(|memory| memory.values.bytes()).collect()
        };
        assert_eq!(bytes(&[100, 200]), [100, 200]);
        assert_eq!(bytes(&[100, 500, 0, 300]), [33, 166, 0, 100]);
        assert_eq!(bytes(&[u64::MAX, u64::MAX]), [150, 150]);
        assert_eq!(bytes(&[]), [0; 0]);
    }
}
