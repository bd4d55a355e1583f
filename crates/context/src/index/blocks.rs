//! A persistent sorted set in blocks: versions share their equal blocks.
//!
//! A random change in a very large set copies one block and the few nodes above it. Larger blocks mean more bytes to
//! copy and fewer nodes, which are scattered in memory.
//!
//! Always true: blocks and their items ascend; no block is empty; a block holds nothing below its key.

use std::ops::Bound;
use std::sync::Arc;

use imbl::OrdMap;

/// A block larger than `MAX` is split. A block smaller than a quarter of `MAX` is joined with a neighbour if the result
/// is at most half full.
#[derive(Debug, Clone)]
pub(crate) struct Blocks<T: Ord, const MAX: usize> {
    /// Keyed by lower bound; the first block has none.
    blocks: OrdMap<Option<T>, Arc<Vec<T>>>,
    count: usize,
}

impl<T: Ord + Clone, const MAX: usize> Default for Blocks<T, MAX> {
    fn default() -> Self {
        Self { blocks: OrdMap::new(), count: 0 }
    }
}

impl<T: Ord + Clone, const MAX: usize> Blocks<T, MAX> {
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Both sets are the same memory, so their content is equal.
    pub(crate) fn is_one_with(&self, other: &Self) -> bool {
        self.blocks.ptr_eq(&other.blocks)
    }

    /// Items from `first` on; all items if it is `None`.
    pub(crate) fn from(&self, first: Option<T>) -> impl Iterator<Item = &T> {
        let bound = first.as_ref().and_then(|first| self.bound_of(first));
        let items = self.blocks.range::<_, Option<T>>(bound..).flat_map(|(_, block)| block.iter());
        items.skip_while(move |item| first.as_ref().is_some_and(|first| *item < first))
    }

    /// All items, one block at a time.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = &[T]> + Send
    where
        T: Send + Sync,
    {
        self.blocks.values().map(|block| block.as_slice())
    }

    pub(crate) fn insert(&mut self, item: T) {
        let bound = self.bound_of(&item);
        let block = Arc::make_mut(self.blocks.entry(bound).or_default());
        let Err(at) = block.binary_search(&item) else { return };
        block.insert(at, item);
        self.count += 1;
        if block.len() > MAX {
            // An item at the end starts a new block: most items arrive in order.
            let split_at = if at == MAX { MAX } else { MAX / 2 };
            let upper = block.split_off(split_at);
            block.shrink_to_fit();
            self.blocks.insert(upper.first().cloned(), Arc::new(upper));
        }
    }

    pub(crate) fn remove(&mut self, item: &T) {
        let bound = self.bound_of(item);
        let Some(block) = self.blocks.get_mut(&bound) else { return };
        let Ok(at) = block.binary_search(item) else { return };
        let block = Arc::make_mut(block);
        block.remove(at);
        self.count -= 1;
        let left = block.len();
        if left == 0 {
            self.blocks.remove(&bound);
        } else if left < MAX / 4 {
            self.join(&bound);
        }
    }

    /// Joins the block with this bound and a neighbour if both are small enough.
    fn join(&mut self, bound: &Option<T>) {
        let next = self.blocks.range::<_, Option<T>>((Bound::Excluded(bound), Bound::Unbounded)).next();
        let before = self.blocks.range::<_, Option<T>>((Bound::Unbounded, Bound::Excluded(bound))).next_back();
        let (next, before) = (next.map(|(next, _)| next.clone()), before.map(|(before, _)| before.clone()));
        for (lower, upper) in [(Some(bound.clone()), next), (before, Some(bound.clone()))] {
            let (Some(lower), Some(upper)) = (lower, upper) else { continue };
            let count = |bound| self.blocks.get(bound).map_or(0, |block| block.len());
            if count(&lower) + count(&upper) > MAX / 2 {
                continue;
            }
            if let (Some(joined), Some(block)) = (self.blocks.remove(&upper), self.blocks.get_mut(&lower)) {
                Arc::make_mut(block).extend(joined.iter().cloned());
            }
            return;
        }
    }

    /// The bound of the block for `item`.
    fn bound_of(&self, item: &T) -> Option<T> {
        let item = Some(item.clone());
        // Ascending items go to the last block, which is found without a cursor.
        let last = self.blocks.get_max().map(|(bound, _)| bound).filter(|bound| **bound <= item);
        last.or_else(|| self.blocks.get_prev(&item).map(|(bound, _)| bound)).cloned().flatten()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    const MAX: usize = 64;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        /// Ascending items first, then random ones with more removals than insertions.
        #[test]
        fn blocks_are_a_sorted_set_and_a_version_never_changes(
            steps in prop::collection::vec((0..3_u8, 0..3_000_u16), 0..6_000),
            first in 0..3_000_u16,
        ) {
            let (mut blocks, mut model) = (Blocks::<u16, MAX>::default(), BTreeSet::new());
            let mut held: Vec<(Blocks<u16, MAX>, BTreeSet<u16>)> = Vec::new();
            let ascending = (0..2_000).map(|n| (0, n));
            for (step, (kind, n)) in ascending.chain(steps).enumerate() {
                if kind == 0 {
                    blocks.insert(n);
                    model.insert(n);
                } else {
                    blocks.remove(&n);
                    model.remove(&n);
                }
                prop_assert_eq!(blocks.len(), model.len());
                if step % 512 == 0 {
                    held.push((blocks.clone(), model.clone()));
                }
            }
            prop_assert!(blocks.from(Some(first)).eq(model.range(first..)) && blocks.from(None).eq(&model));
            held.push((blocks, model));
            for (blocks, model) in held {
                prop_assert!(blocks.blocks().flatten().eq(&model));
                prop_assert!(blocks.blocks().all(|block| (1..=MAX).contains(&block.len())));
            }
        }
    }

    #[test]
    fn removals_leave_few_blocks() {
        let mut blocks = Blocks::<u32, MAX>::default();
        let numbers = 0..10_000;
        numbers.clone().for_each(|n| blocks.insert(n));
        numbers.filter(|n| n % 16 != 0).for_each(|n| blocks.remove(&n));
        assert_eq!(blocks.len(), 625);
        assert!(blocks.blocks().count() <= 625 / (MAX / 4) + 1, "{}", blocks.blocks().count());
    }
}
