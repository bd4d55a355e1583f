//! What the stable offset of a partition waits for: transactions that are open, and those whose end a crash could undo.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

/// A transaction of which it is not certain how it ends.
#[derive(Debug)]
struct Pending {
    producer: i64,
    /// Its first record.
    first: u64,
    /// Where its marker stands, once it has one.
    marker: Option<u64>,
}

/// See the module. Changed under the partition's lock, before its tail moves; read without.
#[derive(Debug, Default)]
pub(crate) struct Undecided {
    any: AtomicBool,
    pending: Mutex<Vec<Pending>>,
}

impl Undecided {
    /// `producer` has begun a transaction at `first`, unless it has one.
    pub(crate) fn begin(&self, producer: i64, first: u64) {
        let mut pending = self.pending.lock();
        if !pending.iter().any(|one| one.producer == producer && one.marker.is_none()) {
            pending.push(Pending { producer, first, marker: None });
            self.any.store(true, Ordering::Release);
        }
    }

    /// Its transaction, if it has one, ends with the marker at `marker`.
    pub(crate) fn end(&self, producer: i64, marker: u64) {
        let mut pending = self.pending.lock();
        if let Some(one) = pending.iter_mut().find(|one| one.producer == producer && one.marker.is_none()) {
            one.marker = Some(marker);
        }
    }

    /// How far everything below `high` is decided; forgets what is. `high` was read before, and never moves back.
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
        let undecided = Undecided::default();
        assert_eq!(undecided.bound(9), 9);
        undecided.begin(1, 10);
        undecided.begin(2, 12);
        undecided.begin(1, 14);
        assert_eq!(undecided.bound(20), 10);
        undecided.end(1, 20);
        assert_eq!(undecided.bound(20), 10, "the marker at 20 is not certain");
        undecided.begin(1, 21);
        assert_eq!(undecided.bound(21), 12);
        undecided.end(2, 22);
        assert_eq!(undecided.bound(30), 21);
        undecided.end(1, 31);
        assert_eq!(undecided.bound(32), 32);
        assert!(!undecided.any.load(Ordering::Acquire));
    }
}
