//! Time that is shared equally among those that have work.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;
use std::time::Duration;

/// The time that several parties have used, and the order in which those that have work are next.
pub(super) struct TimeShares<K> {
    used: HashMap<K, Duration>,
    /// The parties that have work, by the time that they have used.
    order: BTreeSet<(Duration, K)>,
    /// The time that the party that was chosen last had used.
    floor: Duration,
}

impl<K> Default for TimeShares<K> {
    fn default() -> Self {
        Self { used: HashMap::new(), order: BTreeSet::new(), floor: Duration::ZERO }
    }
}

impl<K: Ord + Hash + Clone> TimeShares<K> {
    /// `true` if no party has work.
    pub(super) fn is_idle(&self) -> bool {
        self.order.is_empty()
    }

    /// The party that is next.
    pub(super) fn first(&mut self) -> Option<K> {
        let (used, party) = self.order.first()?;
        self.floor = *used;
        Some(party.clone())
    }

    /// Adds a party that had no work until now.
    pub(super) fn enter(&mut self, party: &K) {
        let used = self.used.entry(party.clone()).or_default();
        *used = (*used).max(self.floor);
        self.order.insert((*used, party.clone()));
    }

    /// Takes out a party that has no more work.
    pub(super) fn leave(&mut self, party: &K) {
        if let Some(used) = self.used.get(party) {
            self.order.remove(&(*used, party.clone()));
        }
    }

    /// Counts time that a party has used.
    pub(super) fn charge(&mut self, party: &K, time: Duration) {
        let Some(used) = self.used.get_mut(party) else { return };
        let had_work = self.order.remove(&(*used, party.clone()));
        *used += time;
        if had_work {
            self.order.insert((*used, party.clone()));
        }
    }

    /// `true` if it knows no party.
    pub(super) fn is_empty(&self) -> bool {
        self.used.is_empty()
    }

    /// Forgets a party.
    pub(super) fn forget(&mut self, party: &K) {
        self.leave(party);
        self.used.remove(party);
    }
}
