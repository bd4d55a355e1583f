//! Keys that a cache removes by itself, and those who hear of it.
//!
//! Shards note a loss under their lock, and only if somebody wants to know; it is told once the lock is gone.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use super::Cache;

/// The reason why a bucket has removed a key by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyLoss {
    /// The key's time to live has passed.
    Expired,
    /// The key made room for others.
    Evicted,
}

/// Hears of the keys that a cache loses.
pub trait LossListener: Send + Sync {
    /// `true` if somebody wants to know of such losses. It is asked at each one, under a lock.
    fn wants(&self, loss: KeyLoss) -> bool;

    /// Tells of keys that are gone, when no lock is held.
    fn lost(&self, loss: KeyLoss, keys: &[Bytes]);
}

/// The listener of a cache, if it has one.
#[derive(Clone, Default)]
pub(super) struct Losses(Option<Arc<dyn LossListener>>);

impl fmt::Debug for Losses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Losses({})", self.0.is_some())
    }
}

impl Losses {
    pub(super) fn to(listener: Arc<dyn LossListener>) -> Self {
        Self(Some(listener))
    }

    #[inline]
    pub(super) fn are_wanted(&self, loss: KeyLoss) -> bool {
        self.0.as_ref().is_some_and(|listener| listener.wants(loss))
    }
}

/// Losses that a shard has noted, in their order.
pub(super) type LostKeys = Vec<(KeyLoss, Bytes)>;

impl Cache {
    /// Tells of losses. No shard may be locked by the caller.
    pub(super) fn tell(&self, lost: LostKeys) {
        let Some(listener) = self.losses.0.as_ref().filter(|_| !lost.is_empty()) else { return };
        for same in lost.chunk_by(|(one, _), (other, _)| one == other) {
            let keys: Vec<Bytes> = same.iter().map(|(_, key)| key.clone()).collect();
            listener.lost(same[0].0, &keys);
        }
    }
}

/// Losses of a transaction, which are told when this is dropped: after the locks, which are declared before it.
pub(super) struct ToldAfterwards<'a> {
    pub(super) cache: &'a Cache,
    pub(super) lost: LostKeys,
}

impl Drop for ToldAfterwards<'_> {
    fn drop(&mut self) {
        self.cache.tell(std::mem::take(&mut self.lost));
    }
}
