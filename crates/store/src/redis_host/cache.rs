//! A database that is a cache bucket: its commands run in the thread of the socket.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use super::durable::FULL;
use crate::resp::{self, CommandUnit, ErrorReply, Execution, KeyPage, Keyspace};
use crate::{CacheBucket, EvictionPolicy};

/// A cache bucket behind a database number.
pub(super) struct CacheDatabase {
    bucket: Arc<CacheBucket>,
}

impl CacheDatabase {
    pub(super) fn new(bucket: Arc<CacheBucket>) -> Self {
        Self { bucket }
    }
}

impl resp::Bucket for CacheDatabase {
    fn execute(&self, mut unit: CommandUnit) -> Execution {
        let cache = self.bucket.cache();
        let shards = cache.shards_of(unit.keys().map(|key| &key[..]));
        // A refusal has undone the transaction, and the unit knows of it.
        let _ = cache.transact_in(shards, |transaction| {
            if unit.pending_count() > 1 {
                transaction.touch(unit.keys().map(|key| &key[..]));
            }
            unit.run(transaction)
        });
        Execution::Done(Ok(unit))
    }

    fn value_max_bytes(&self) -> u64 {
        self.bucket.config().quotas.value_max_bytes.unwrap_or(16 << 20)
    }

    fn is_full(&self) -> Option<ErrorReply> {
        let cache = self.bucket.cache();
        let is_full = cache.policy() == EvictionPolicy::Noeviction && cache.held_bytes() > cache.max_bytes();
        is_full.then_some(FULL)
    }

    fn synced(&self) -> BoxFuture<'_, Result<u32, ErrorReply>> {
        async { Ok(0) }.boxed()
    }
}

impl Keyspace for CacheDatabase {
    fn scan(&self, after: Option<Bytes>, limit: usize) -> BoxFuture<'_, Result<KeyPage, ErrorReply>> {
        // The cursor of the cache stands for a key.
        let cursor = after.and_then(|after| Some(u64::from_be_bytes(after[..].try_into().ok()?))).unwrap_or(0);
        let (next, keys) = self.bucket.cache().scan(cursor, limit);
        let after = (next != 0).then(|| Bytes::copy_from_slice(&next.to_be_bytes()));
        async move { Ok(KeyPage { keys, after }) }.boxed()
    }

    fn count(&self) -> BoxFuture<'_, Result<u64, ErrorReply>> {
        async { Ok(self.bucket.cache().len() as u64) }.boxed()
    }

    fn random(&self) -> BoxFuture<'_, Result<Option<Bytes>, ErrorReply>> {
        async { Ok(self.bucket.cache().random_key()) }.boxed()
    }

    fn clear(&self) -> BoxFuture<'_, Result<(), ErrorReply>> {
        self.bucket.cache().clear();
        async { Ok(()) }.boxed()
    }
}
