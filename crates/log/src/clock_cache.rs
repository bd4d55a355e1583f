//! A bounded map that makes room by the clock algorithm: an entry that was used since the hand last passed stays.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

/// Entries with a weight each, together at most `max_weight`.
pub(crate) struct ClockCache<K, V> {
    entries: HashMap<K, CacheEntry<V>>,
    /// The keys in the order in which the hand comes to them; each entry's key is here once.
    hand: VecDeque<K>,
    weight: usize,
    max_weight: usize,
}

struct CacheEntry<V> {
    value: V,
    weight: usize,
    used: bool,
}

impl<K: Copy + Eq + Hash, V: Clone> ClockCache<K, V> {
    pub(crate) fn new(max_weight: usize) -> Self {
        Self { entries: HashMap::new(), hand: VecDeque::new(), weight: 0, max_weight }
    }

    pub(crate) fn get(&mut self, key: &K) -> Option<V> {
        let entry = self.entries.get_mut(key)?;
        entry.used = true;
        Some(entry.value.clone())
    }

    /// Adds an entry unless its key is there, or it is too heavy by itself.
    /// Returns the entries that made room: drop them without the lock.
    pub(crate) fn insert(&mut self, key: K, value: V, weight: usize) -> Vec<V> {
        let mut removed = Vec::new();
        if weight > self.max_weight || self.entries.contains_key(&key) {
            return removed;
        }
        while self.weight + weight > self.max_weight {
            let Some(oldest) = self.hand.pop_front() else { break };
            let was_used = self.entries.get_mut(&oldest).is_some_and(|entry| std::mem::take(&mut entry.used));
            if was_used {
                self.hand.push_back(oldest);
            } else {
                removed.extend(self.take(&oldest));
            }
        }
        self.weight += weight;
        self.entries.insert(key, CacheEntry { value, weight, used: false });
        self.hand.push_back(key);
        removed
    }

    /// Removes the entries that `goes` selects and returns them: drop them without the lock.
    pub(crate) fn remove_if(&mut self, goes: impl Fn(&K, &V) -> bool) -> Vec<V> {
        let chosen: Vec<K> =
            self.entries.iter().filter(|(key, entry)| goes(key, &entry.value)).map(|(key, _)| *key).collect();
        if !chosen.is_empty() {
            self.hand.retain(|key| !chosen.contains(key));
        }
        chosen.iter().filter_map(|key| self.take(key)).collect()
    }

    fn take(&mut self, key: &K) -> Option<V> {
        let entry = self.entries.remove(key)?;
        self.weight -= entry.weight;
        Some(entry.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn used_entries_stay_and_the_weight_never_passes_its_limit() {
        let mut cache = ClockCache::new(100);
        for key in 0..10_u32 {
            assert!(cache.insert(key, key * 2, 10).is_empty());
        }
        assert!(cache.insert(3, 0, 10).is_empty(), "the first value stays");
        assert_eq!((cache.get(&0), cache.get(&3), cache.get(&42)), (Some(0), Some(6), None));
        assert_eq!(cache.insert(10, 20, 30), [2, 4, 8], "1, 2 and 4 were not used");
        assert_eq!((cache.get(&0), cache.get(&3), cache.get(&1)), (Some(0), Some(6), None));
        assert!(cache.insert(11, 22, 101).is_empty() && cache.get(&11).is_none(), "heavier than all together may be");
        assert_eq!(cache.remove_if(|key, _| *key == 10), [20]);
        assert_eq!((cache.weight, cache.entries.len(), cache.hand.len()), (70, 7, 7));
        (20..100).for_each(|key| drop(cache.insert(key, key, 7)));
        assert!(cache.weight <= 100 && cache.hand.len() == cache.entries.len());
    }
}
