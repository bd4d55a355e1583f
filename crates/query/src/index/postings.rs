//! From a hash to the filters that hang under it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::BuildHasherDefault;

use crate::hash::Identity;
use crate::index::FilterId;

/// An open-addressing table with one-byte tags (the standard library's): a hash that nobody asks for is turned away by
/// one cache line.
#[derive(Debug, Default)]
pub(crate) struct Postings(HashMap<u64, Posting, BuildHasherDefault<Identity>>);

/// Most hashes have one filter.
#[derive(Debug)]
#[allow(clippy::box_collection, reason = "every entry of a large table would be half as large again")]
enum Posting {
    One(FilterId),
    Many(Box<Vec<FilterId>>),
}

impl Postings {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn of(&self, hash: u64) -> &[FilterId] {
        match self.0.get(&hash) {
            None => &[],
            Some(Posting::One(filter)) => std::slice::from_ref(filter),
            Some(Posting::Many(filters)) => filters,
        }
    }

    pub(crate) fn len_of(&self, hash: u64) -> usize {
        self.of(hash).len()
    }

    pub(crate) fn insert(&mut self, hash: u64, filter: FilterId) {
        match self.0.entry(hash) {
            Entry::Vacant(vacant) => {
                vacant.insert(Posting::One(filter));
            }
            Entry::Occupied(mut occupied) => match occupied.get_mut() {
                Posting::One(first) => {
                    let both = vec![*first, filter];
                    occupied.insert(Posting::Many(Box::new(both)));
                }
                Posting::Many(filters) => filters.push(filter),
            },
        }
    }

    pub(crate) fn remove(&mut self, hash: u64, filter: FilterId) {
        let Entry::Occupied(mut occupied) = self.0.entry(hash) else {
            return;
        };
        let rest = match occupied.get_mut() {
            Posting::One(only) => usize::from(*only != filter),
            Posting::Many(filters) => {
                super::remove(filters, filter);
                filters.len()
            }
        };
        if rest == 0 {
            occupied.remove();
        }
    }
}
