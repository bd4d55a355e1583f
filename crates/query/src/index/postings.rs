//! A table from hashes to the filters stored under them.

use hashbrown::HashTable;
use millstream_columns::spread;

use crate::few::{Few, Lists};
use crate::filter_id::FilterId;

/// An open-addressing table with one-byte tags: a hash without filters is rejected with one cache line. Half of each hash is
/// stored; hashes that share it add candidates.
#[derive(Debug, Default)]
pub(crate) struct Postings {
    table: HashTable<Posting>,
    lists: Lists,
}

#[derive(Debug)]
struct Posting {
    hash: u32,
    /// The numbers of the filters.
    filters: Few,
}

impl Postings {
    pub(crate) fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    pub(crate) fn of(&self, hash: u64) -> impl ExactSizeIterator<Item = FilterId> {
        let hash = half(hash);
        let posting = self.table.find(spread(hash), |posting| posting.hash == hash);
        posting.map_or(&[][..], |posting| self.lists.of(&posting.filters)).iter().map(|number| FilterId(*number))
    }

    pub(crate) fn insert(&mut self, hash: u64, filter: FilterId) {
        let hash = half(hash);
        let posting = self.table.entry(spread(hash), |posting| posting.hash == hash, |posting| spread(posting.hash));
        let mut posting = posting.or_insert(Posting { hash, filters: Few::default() });
        self.lists.push(&mut posting.get_mut().filters, filter.0);
    }

    pub(crate) fn remove(&mut self, hash: u64, filter: FilterId) {
        let hash = half(hash);
        let Ok(mut occupied) = self.table.find_entry(spread(hash), |posting| posting.hash == hash) else {
            return;
        };
        let filters = &mut occupied.get_mut().filters;
        self.lists.remove(filters, filter.0);
        if filters.is_empty() {
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
            let mut found: Vec<u32> = postings.of(hash | low).map(|filter| filter.0).collect();
            let mut expected = filters.clone();
            found.sort_unstable();
            expected.sort_unstable();
            assert_eq!(found, expected);
        }
        for (hash, filters) in model {
            filters.into_iter().for_each(|filter| postings.remove(hash, FilterId(filter)));
        }
        assert!(postings.is_empty() && postings.lists.is_empty());
    }
}
