//! The last stable offset of a partition: below it the outcome of every transaction is known and certain.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

/// A transaction without a certain outcome.
#[derive(Debug)]
struct UndecidedTransaction {
    producer: i64,
    first: u64,
    /// Offset of its marker, if it has one.
    marker: Option<u64>,
}

/// The undecided transactions. The partition changes them under its lock, before its tail moves; reads need no lock.
#[derive(Debug, Default)]
pub(crate) struct LastStableOffset {
    any: AtomicBool,
    pending: Mutex<Vec<UndecidedTransaction>>,
}

impl LastStableOffset {
    /// Notes that `producer` begins a transaction at `first`, unless it has an open one.
    pub(crate) fn begin(&self, producer: i64, first: u64) {
        let mut pending = self.pending.lock();
        if !pending.iter().any(|one| one.producer == producer && one.marker.is_none()) {
            pending.push(UndecidedTransaction { producer, first, marker: None });
            self.any.store(true, Ordering::Release);
        }
    }

    /// Notes the marker of the producer's open transaction, if it has one.
    pub(crate) fn end(&self, producer: i64, marker: u64) {
        let mut pending = self.pending.lock();
        if let Some(one) = pending.iter_mut().find(|one| one.producer == producer && one.marker.is_none()) {
            debug_assert!(one.first < marker, "a transaction ends behind its first record");
            one.marker = Some(marker);
        }
    }

    /// Forgets the decided transactions and returns the last stable offset. `high` was read
    /// before and never moves back.
    pub(crate) fn bound(&self, high: u64) -> u64 {
        if !self.any.load(Ordering::Acquire) {
            return high;
        }
        let mut pending = self.pending.lock();
        pending.retain(|one| one.marker.is_none_or(|marker| marker >= high));
        if pending.is_empty() {
            self.any.store(false, Ordering::Release);
        }
        pending.iter().map(|one| one.first).fold(high, u64::min)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transaction_is_decided_once_its_marker_is_certain() {
        let last_stable = LastStableOffset::default();
        assert_eq!(last_stable.bound(9), 9);
        last_stable.begin(1, 10);
        last_stable.begin(2, 12);
        last_stable.begin(1, 14);
        assert_eq!(last_stable.bound(20), 10);
        last_stable.end(1, 20);
        assert_eq!(last_stable.bound(20), 10, "the marker at 20 is not certain");
        last_stable.begin(1, 21);
        assert_eq!(last_stable.bound(21), 12);
        last_stable.end(2, 22);
        assert_eq!(last_stable.bound(30), 21);
        last_stable.end(1, 31);
        assert_eq!(last_stable.bound(32), 32);
        assert!(!last_stable.any.load(Ordering::Acquire));
    }
}
