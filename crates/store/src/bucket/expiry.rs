//! Keys of a bucket that have expired: they are gone for readers, and are removed here, some at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use bytes::Bytes;
use millstream_log::UpTo;
use millstream_types::{ErrorCode, Offset, PartitionId};

use super::Bucket;
use super::transactions::done;
use crate::Error;
use crate::keys::{OwnerTransaction, TransactionCommand};

/// Expired keys that are removed together.
pub(crate) const EXPIRED_MAX: usize = 1_000;
/// Time between two searches for expired keys because a quota is used up.
const EXPIRY_PAUSE_MS: i64 = 1_000;

/// The time of the last search for expired keys because a quota was used up.
#[derive(Debug)]
pub(super) struct LastSearch(AtomicI64);

impl Default for LastSearch {
    fn default() -> Self {
        Self(AtomicI64::new(i64::MIN))
    }
}

impl LastSearch {
    /// `true` if another search is due, which then counts as begun.
    fn begins_another(&self, now_ms: i64) -> bool {
        let is_due = |last_ms: i64| (now_ms.saturating_sub(last_ms) >= EXPIRY_PAUSE_MS).then_some(now_ms);
        self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, is_due).is_ok()
    }
}

impl Bucket {
    /// Number of keys that have an expiry.
    pub(crate) fn expiring_keys(&self) -> u64 {
        self.tables.iter().map(|table| table.expiring_keys()).sum()
    }

    /// Removes all expired keys, unless that was done less than a second ago. Returns `true` if it removed some.
    pub(super) async fn remove_all_expired(&self) -> bool {
        if !self.last_search.begins_another(self.wall.now_ms()) {
            return false;
        }
        let mut removed = 0;
        for turn in 0..self.expiry_turns() {
            while let Ok(of_turn @ 1..) = self.remove_expired(turn, EXPIRED_MAX).await {
                removed += of_turn;
            }
            tokio::task::yield_now().await;
        }
        removed > 0
    }

    /// Removes keys that have expired from one part of one partition's table; `turn` counts the parts of all
    /// partitions. Returns the number of keys that it removed.
    ///
    /// # Errors
    /// The same errors as [`Bucket::transact`].
    pub async fn remove_expired(&self, turn: usize, limit: usize) -> Result<usize, Error> {
        Ok(self.take_expired(turn, limit).await?.len())
    }

    /// As [`Bucket::remove_expired`]; returns the keys.
    ///
    /// # Errors
    /// The same errors as [`Bucket::transact`].
    pub(crate) async fn take_expired(&self, turn: usize, limit: usize) -> Result<Vec<Bytes>, Error> {
        let parts = self.tables[0].parts();
        let number = turn / parts % self.tables.len();
        let (partition, table) = (PartitionId(number as u32), &self.tables[number]);
        let offsets = table.expired(turn % parts, self.wall.now_ms(), limit);
        if offsets.is_empty() {
            return Ok(Vec::new());
        }
        let log = Arc::clone(&self.partitions[number]);
        let keys = move || -> Result<Vec<Bytes>, Error> {
            let mut keys = Vec::with_capacity(offsets.len());
            for offset in offsets {
                match log.read_one(Offset(offset), UpTo::Tail) {
                    Ok(record) => keys.extend(record.and_then(|record| record.key)),
                    // Its key is gone for readers. The others are not to wait for it.
                    Err(damage) if damage.code() == ErrorCode::Corrupt => {
                        tracing::warn!(error = %damage, "the record of an expired key cannot be read; it is not removed");
                    }
                    Err(failure) => return Err(failure.into()),
                }
            }
            Ok(keys)
        };
        let pending = self
            .readers
            .submit(Some(self.topic.tenant()), keys)
            .map_err(|full| Error::ReadsWaiting { waiting: full.waiting })?;
        let keys = pending.await.map_err(|_| Error::Stopped)??;
        let size_bytes = keys.iter().map(Bytes::len).sum();
        let work = move |transaction: &mut OwnerTransaction<'_, '_>| {
            Ok(keys.iter().filter(|key| transaction.remove_if_expired(key)).cloned().collect::<Vec<Bytes>>())
        };
        let command = TransactionCommand { makes_room: true, ..self.command(partition, None, size_bytes, work) };
        let keys: Vec<Bytes> = done(self.ask(command).await?)?.output;
        self.counts.expired.fetch_add(keys.len() as u64, Ordering::Relaxed);
        Ok(keys)
    }

    /// Number of keys, after those that have expired are removed.
    ///
    /// # Errors
    /// The same errors as [`Bucket::transact`].
    pub async fn count(&self) -> Result<u64, Error> {
        for turn in 0..self.expiry_turns() {
            while self.take_expired(turn, EXPIRED_MAX).await?.len() == EXPIRED_MAX {}
        }
        Ok(self.totals().keys)
    }

    /// Number of turns of [`Bucket::remove_expired`] that look at every key once.
    pub fn expiry_turns(&self) -> usize {
        self.tables.len() * self.tables[0].parts()
    }
}
