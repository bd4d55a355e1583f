//! The keys of a bucket with the most traffic, in bounded memory (space-saving counters, Metwally et al. 2005).
//!
//! When there is no room for a new key, the key with the least traffic leaves, and the new one inherits its counts. So
//! eviction never makes a key's figures too low, and a key with much traffic is always among them.

use std::collections::{BTreeSet, HashMap};

use bytes::Bytes;
use parking_lot::Mutex;

/// Bytes of a counter beside its key, which is held once: in the map, with its place in the order.
const COUNTER_BYTES: usize = 160;

/// A key with its traffic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HotKey {
    pub(crate) key: Bytes,
    /// Bytes of the values that were read.
    pub(crate) bytes: u64,
    /// Number of reads of the key in the period.
    pub(crate) frequency: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Traffic {
    bytes: u64,
    frequency: u64,
}

#[derive(Debug, Default)]
struct Period {
    keys: HashMap<Bytes, Traffic, foldhash::fast::RandomState>,
    /// The same, the least traffic first.
    by_traffic: BTreeSet<(Traffic, Bytes)>,
    held_bytes: usize,
}

impl Period {
    fn used(&mut self, key: &[u8], bytes: u64, weight: u64, max_bytes: usize) {
        let cost = COUNTER_BYTES + key.len();
        if cost > max_bytes {
            return;
        }
        let mut counted = match self.keys.get_key_value(key) {
            Some((key, traffic)) => {
                let before = (*traffic, key.clone());
                self.by_traffic.remove(&before);
                before
            }
            None => (self.make_room(cost, max_bytes), Bytes::copy_from_slice(key)),
        };
        counted.0.bytes += bytes * weight;
        counted.0.frequency += weight;
        self.keys.insert(counted.1.clone(), counted.0);
        self.by_traffic.insert(counted);
    }

    /// Takes `cost` bytes for a new key and returns the traffic that it inherits.
    fn make_room(&mut self, cost: usize, max_bytes: usize) -> Traffic {
        let mut inherited = Traffic::default();
        while self.held_bytes + cost > max_bytes
            && let Some((traffic, least)) = self.by_traffic.pop_first()
        {
            self.keys.remove(&least);
            self.held_bytes -= COUNTER_BYTES + least.len();
            inherited = traffic;
        }
        self.held_bytes += cost;
        inherited
    }
}

/// The hottest keys of this period and of the one before.
#[derive(Debug)]
pub(crate) struct TopKeys {
    periods: Mutex<[Period; 2]>,
    max_bytes: usize,
}

impl TopKeys {
    /// Counters that take at most `max_bytes` in each period; 0 counts nothing.
    pub(crate) fn new(max_bytes: usize) -> Self {
        Self { periods: Mutex::default(), max_bytes }
    }

    /// Counts `weight` reads of a value of `bytes`. While another thread counts, this does nothing.
    pub(crate) fn used(&self, key: &[u8], bytes: u64, weight: u64) {
        if let Some(mut periods) = self.periods.try_lock() {
            periods[0].used(key, bytes, weight, self.max_bytes);
        }
    }

    pub(crate) fn next_period(&self) {
        let mut periods = self.periods.lock();
        periods.swap(0, 1);
        periods[0] = Period::default();
    }

    /// The `limit` keys with the most traffic in this period and the one before, by bytes.
    pub(crate) fn top(&self, limit: usize) -> Vec<HotKey> {
        let mut sums: HashMap<Bytes, Traffic> = HashMap::new();
        for period in &*self.periods.lock() {
            for (key, traffic) in &period.keys {
                let sum = sums.entry(key.clone()).or_default();
                sum.bytes += traffic.bytes;
                sum.frequency += traffic.frequency;
            }
        }
        let keys = sums.into_iter().map(|(key, Traffic { bytes, frequency })| HotKey { key, bytes, frequency });
        let mut keys: Vec<HotKey> = keys.collect();
        keys.sort_by(|one, other| other.bytes.cmp(&one.bytes).then_with(|| one.key.cmp(&other.key)));
        keys.truncate(limit);
        keys
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(top: &TopKeys, limit: usize) -> Vec<(String, u64, u64)> {
        let text = |key: &Bytes| String::from_utf8_lossy(key).into_owned();
        top.top(limit).iter().map(|hot| (text(&hot.key), hot.bytes, hot.frequency)).collect()
    }

    #[test]
    fn the_hottest_keys_are_told_by_their_bytes() {
        let top = TopKeys::new(10_000);
        top.used(b"small", 1, 16);
        top.used(b"large", 100, 1);
        top.used(b"large", 100, 1);
        top.used(b"middle", 50, 1);
        let expected = [("large".to_owned(), 200, 2), ("middle".to_owned(), 50, 1), ("small".to_owned(), 16, 16)];
        assert_eq!(keys(&top, 9), expected);
        assert_eq!(keys(&top, 1), expected[..1]);
    }

    #[test]
    fn a_hot_key_stays_beside_a_scan_and_memory_is_bounded() {
        let max_bytes = 20 * (COUNTER_BYTES + 8);
        let top = TopKeys::new(max_bytes);
        for number in 0..5_000_u64 {
            top.used(&number.to_be_bytes(), 10, 1);
            top.used(b"the hot!", 10, 1);
        }
        let held = top.periods.lock()[0].held_bytes;
        assert!(held <= max_bytes, "{held}");
        let found = top.top(1);
        assert_eq!(found[0].key, b"the hot!"[..]);
        assert!((5_000..5_600).contains(&found[0].frequency), "{found:?}");
    }

    #[test]
    fn a_key_is_forgotten_after_two_periods() {
        let top = TopKeys::new(10_000);
        top.used(b"a", 1, 1);
        top.next_period();
        top.used(b"a", 1, 1);
        assert_eq!(keys(&top, 9), [("a".to_owned(), 2, 2)]);
        top.next_period();
        assert_eq!(keys(&top, 9), [("a".to_owned(), 1, 1)]);
        top.next_period();
        assert!(keys(&top, 9).is_empty());
    }

    #[test]
    fn without_memory_nothing_is_counted() {
        let top = TopKeys::new(0);
        top.used(b"a", 1, 1);
        assert!(top.top(9).is_empty());
    }
}
