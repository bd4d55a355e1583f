//! The order of entities in lists: sorted places in blocks, so that what a page skips is passed a block at a time.
//!
//! Always true: blocks and what they hold ascend; no block is empty; a block holds nothing below its key.

use std::sync::Arc;

use imbl::OrdMap;

use crate::entity::Place;

/// A block that grows beyond this is split.
const BLOCK_MAX: usize = 512;

/// A sorted set of places that shares its structure with earlier versions of itself.
#[derive(Debug, Clone, Default)]
pub(crate) struct Places {
    /// By a lower bound; the first block has none.
    blocks: OrdMap<Option<Place>, Arc<Vec<Place>>>,
    count: usize,
}

impl Places {
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether both are known to hold the same, because they lie in the same memory.
    pub(crate) fn is_one_with(&self, other: &Self) -> bool {
        self.blocks.ptr_eq(&other.blocks)
    }

    /// Places behind `last`; all of them if there is none.
    pub(crate) fn after<'a>(&'a self, last: Option<&'a Place>) -> impl Iterator<Item = &'a Place> {
        let bound = last.and_then(|last| self.bound_of(last));
        let places = self.blocks.range::<_, Option<Place>>(bound..).flat_map(|(_, block)| block.iter());
        places.skip_while(move |place| last.is_some_and(|last| *place <= last))
    }

    /// Places of what was created at `at_ms` or later.
    pub(crate) fn since(&self, at_ms: i64) -> impl Iterator<Item = &Place> {
        let bound = self.bound_of(&Place::first_at(at_ms));
        let places = self.blocks.range::<_, Option<Place>>(bound..).flat_map(|(_, block)| block.iter());
        places.skip_while(move |place| place.created_ms < at_ms)
    }

    /// All places, a block at a time.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = &[Place]> + Send {
        self.blocks.values().map(|block| block.as_slice())
    }

    pub(crate) fn insert(&mut self, place: Place) {
        let bound = self.bound_of(&place);
        let block = Arc::make_mut(self.blocks.entry(bound).or_default());
        let Err(at) = block.binary_search(&place) else { return };
        block.insert(at, place);
        self.count += 1;
        if block.len() > BLOCK_MAX {
            // What comes last begins a block: entities are mostly created one after the other.
            let split_at = if at == BLOCK_MAX { BLOCK_MAX } else { BLOCK_MAX / 2 };
            let upper = block.split_off(split_at);
            block.shrink_to_fit();
            self.blocks.insert(upper.first().cloned(), Arc::new(upper));
        }
    }

    pub(crate) fn remove(&mut self, place: &Place) {
        let bound = self.bound_of(place);
        let Some(block) = self.blocks.get_mut(&bound) else { return };
        let Ok(at) = block.binary_search(place) else { return };
        let block = Arc::make_mut(block);
        block.remove(at);
        self.count -= 1;
        if block.is_empty() {
            self.blocks.remove(&bound);
        }
    }

    /// The bound of the block that holds `place`, or would.
    fn bound_of(&self, place: &Place) -> Option<Place> {
        self.blocks.get_prev(&Some(place.clone())).and_then(|(bound, _)| bound.clone())
    }
}

/// Places of one index within one partition, on their way into a list.
pub(crate) struct Run<'a, T> {
    now: &'a [Place],
    later: Box<dyn Iterator<Item = &'a [Place]> + Send + 'a>,
    /// Where the places come from.
    pub(crate) of: T,
}

impl<'a, T> Run<'a, T> {
    pub(crate) fn new(mut blocks: impl Iterator<Item = &'a [Place]> + Send + 'a, of: T) -> Self {
        Self { now: blocks.next().unwrap_or_default(), later: Box::new(blocks), of }
    }

    pub(crate) fn next(&mut self) -> Option<&'a Place> {
        let (first, rest) = self.now.split_first()?;
        self.now = if rest.is_empty() { self.later.next().unwrap_or_default() } else { rest };
        Some(first)
    }
}

/// Passes whole blocks while all of what they hold is among the first `count` of the merged runs; returns how many
/// were passed.
pub(crate) fn skip_blocks<T>(runs: &mut [Run<'_, T>], count: usize) -> usize {
    let mut passed = 0;
    loop {
        // The block that ends first ends before every other run's next block begins.
        let ahead: usize = runs.iter().map(|run| run.now.len()).sum();
        let first = runs.iter_mut().filter(|run| !run.now.is_empty()).min_by_key(|run| run.now.last());
        match first {
            Some(run) if passed + ahead <= count => {
                passed += run.now.len();
                run.now = run.later.next().unwrap_or_default();
            }
            _ => return passed,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::entity::Key;

    fn place(n: u16) -> Place {
        let key = Key { id: format!("{n:05}").into(), kind: "T".into(), path: "/".into() };
        Place { created_ms: i64::from(n / 7), key: Arc::new(key) }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

        #[test]
        fn places_are_a_sorted_set(steps in prop::collection::vec((any::<bool>(), 0..3_000_u16), 0..6_000)) {
            let (mut places, mut model) = (Places::default(), BTreeSet::new());
            let ascending = (0..2_000).map(|n| (true, n));
            for (insert, n) in ascending.chain(steps) {
                if insert {
                    places.insert(place(n));
                    model.insert(place(n));
                } else {
                    places.remove(&place(n));
                    model.remove(&place(n));
                }
                prop_assert_eq!(places.len(), model.len());
            }
            let shown: Vec<&Place> = places.blocks().flatten().collect();
            prop_assert!(shown.into_iter().eq(&model));
            prop_assert!(places.blocks().all(|block| (1..=BLOCK_MAX).contains(&block.len())));
        }

        #[test]
        fn what_is_skipped_is_among_the_first_of_all_runs(
            owners in prop::collection::vec(0..4_usize, 0..5_000),
            count in 0..6_000_usize,
        ) {
            let mut runs = [const { Vec::new() }; 4];
            for (n, owner) in owners.iter().enumerate() {
                runs[*owner].push(place(n as u16));
            }
            let mut places = [(); 4].map(|()| Places::default());
            for (places, run) in places.iter_mut().zip(&runs) {
                run.iter().cloned().for_each(|place| places.insert(place));
            }
            let mut runs: Vec<Run<'_, ()>> = places.iter().map(|places| Run::new(places.blocks(), ())).collect();
            let passed = skip_blocks(&mut runs, count);
            prop_assert!(passed <= count);
            prop_assert!(passed + 4 * BLOCK_MAX >= count.min(owners.len()), "few are left to be passed one by one");
            let mut rest: Vec<Place> = Vec::new();
            for run in &mut runs {
                while let Some(place) = run.next() {
                    rest.push(place.clone());
                }
            }
            rest.sort_unstable();
            let page: Vec<&Place> = rest.iter().skip(count - passed).collect();
            let expected: Vec<Place> = (count..owners.len().max(count)).map(|n| place(n as u16)).collect();
            prop_assert!(page.into_iter().eq(&expected), "what follows the first {count} is the same");
        }
    }
}
