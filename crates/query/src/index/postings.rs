//! From a hash to the filters that hang under it.

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use crate::hash::spread;
use crate::index::FilterId;
use crate::slab::Slab;

/// An open-addressing table with one-byte tags: a hash that nobody asks for is turned away by one cache line. Half of each
/// hash is kept; what shares it is one more candidate.
#[derive(Debug, Default)]
pub(crate) struct Postings {
    table: HashTable<Posting>,
    /// Where several hang under one hash.
    several: Slab<Vec<FilterId>>,
}

/// Most hashes have one filter.
#[derive(Debug)]
struct Posting {
    hash: u32,
    /// The only one; with [`SEVERAL`] the number of a list of them.
    filter: FilterId,
}

/// No number of a filter is so high.
const SEVERAL: u32 = 1 << 31;

impl Posting {
    fn list(&self) -> Option<u32> {
        (self.filter.0 & SEVERAL != 0).then_some(self.filter.0 & !SEVERAL)
    }
}

impl Postings {
    pub(crate) fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    pub(crate) fn of(&self, hash: u64) -> &[FilterId] {
        let hash = half(hash);
        match self.table.find(spread(hash), |posting| posting.hash == hash) {
            None => &[],
            Some(posting) => match posting.list() {
                None => std::slice::from_ref(&posting.filter),
                Some(list) => self.several.get(list).map_or(&[], Vec::as_slice),
            },
        }
    }

    pub(crate) fn len_of(&self, hash: u64) -> usize {
        self.of(hash).len()
    }

    pub(crate) fn insert(&mut self, hash: u64, filter: FilterId) {
        let hash = half(hash);
        match self.table.entry(spread(hash), |posting| posting.hash == hash, |posting| spread(posting.hash)) {
            Entry::Vacant(vacant) => drop(vacant.insert(Posting { hash, filter })),
            Entry::Occupied(mut occupied) => {
                let posting = occupied.get_mut();
                match posting.list() {
                    Some(list) => self.several.get_mut(list).into_iter().for_each(|filters| filters.push(filter)),
                    None => {
                        let list = self.several.insert(vec![posting.filter, filter]);
                        posting.filter = FilterId(list | SEVERAL);
                    }
                }
            }
        }
    }

    pub(crate) fn remove(&mut self, hash: u64, filter: FilterId) {
        let hash = half(hash);
        let Ok(occupied) = self.table.find_entry(spread(hash), |posting| posting.hash == hash) else {
            return;
        };
        let Some(list) = occupied.get().list() else {
            if occupied.get().filter == filter {
                occupied.remove();
            }
            return;
        };
        let Some(filters) = self.several.get_mut(list) else { return };
        super::remove(filters, filter);
        if filters.is_empty() {
            self.several.remove(list);
            occupied.remove();
        }
    }
}

fn half(hash: u64) -> u32 {
    (hash >> 32) as u32
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn each_hash_has_its_filters_and_those_that_share_half_of_it() {
        let mut random = fastrand::Rng::with_seed(3);
        let mut postings = Postings::default();
        let mut model: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
        for filter in 0..20_000 {
            let (hash, low) = (random.u64(..500) << 32, random.u64(..2));
            let filters = model.entry(hash).or_default();
            if random.u8(..5) < 3 || filters.is_empty() {
                filters.push(filter);
                postings.insert(hash | low, FilterId(filter));
            } else {
                let gone = filters.swap_remove(random.usize(..filters.len()));
                postings.remove(hash | low, FilterId(gone));
            }
            let mut found: Vec<u32> = postings.of(hash | low).iter().map(|filter| filter.0).collect();
            let mut expected = filters.clone();
            found.sort_unstable();
            expected.sort_unstable();
            assert_eq!(found, expected);
        }
        for (hash, filters) in model {
            filters.into_iter().for_each(|filter| postings.remove(hash, FilterId(filter)));
        }
        assert!(postings.is_empty() && postings.several.len() == 0);
    }
}
