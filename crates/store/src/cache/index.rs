//! Finds the slot of a key by the key's hash: a table of words that is probed one word after the other.
//!
//! A word holds 32 bits of the hash (the *tag*) and the number of the slot. Its *home* is the bucket that the
//! tag's upper bits name, so that the buckets stand in the order of the tags whatever the table's size; a walk
//! over the tags therefore goes on where it was after the table has grown or shrunk. Invariant: no bucket between
//! a word and its home is empty.

const EMPTY: u64 = u64::MAX;
const MIN_BUCKETS: usize = 16;

/// The table; see the head of this file.
#[derive(Debug, Default)]
pub(super) struct SlotIndex {
    /// A power of two of them, or none.
    words: Box<[u64]>,
    len: usize,
}

fn word(tag: u32, slot: u32) -> u64 {
    (u64::from(tag) << 32) | u64::from(slot)
}

fn tag(word: u64) -> u32 {
    (word >> 32) as u32
}

impl SlotIndex {
    /// The bytes that the table has allocated.
    pub(super) fn allocated_bytes(&self) -> u64 {
        (self.words.len() * size_of::<u64>()) as u64
    }

    /// The bytes that the next [`insert`](Self::insert) will allocate.
    pub(super) fn growth_bytes(&self) -> u64 {
        if self.is_full() { (self.grown() - self.words.len()) as u64 * 8 } else { 0 }
    }

    /// A quarter of the buckets stays empty, so that probes are short.
    #[inline]
    fn is_full(&self) -> bool {
        (self.len + 1) * 4 > self.words.len() * 3
    }

    fn grown(&self) -> usize {
        (self.words.len() * 2).max(MIN_BUCKETS)
    }

    #[inline]
    fn home(&self, tag: u32) -> usize {
        ((u64::from(tag) * self.words.len() as u64) >> 32) as usize
    }

    /// The slot with this tag that `matches` accepts.
    #[inline]
    pub(super) fn find(&self, tag: u32, mut matches: impl FnMut(u32) -> bool) -> Option<u32> {
        let mask = self.words.len().checked_sub(1)?;
        let mut bucket = self.home(tag);
        loop {
            let word = self.words[bucket & mask];
            if word == EMPTY {
                return None;
            }
            if self::tag(word) == tag && matches(word as u32) {
                return Some(word as u32);
            }
            bucket += 1;
        }
    }

    /// The slot in the home of this tag, if it has the tag: of most keys that are there it is the right one.
    #[inline]
    pub(super) fn guess(&self, tag: u32) -> Option<u32> {
        let word = *self.words.get(self.home(tag))?;
        (word != EMPTY && self::tag(word) == tag).then_some(word as u32)
    }

    /// Adds a slot, which is not in the table.
    pub(super) fn insert(&mut self, tag: u32, slot: u32) {
        if self.is_full() {
            self.rebuild(self.grown());
        }
        self.place(word(tag, slot));
        self.len += 1;
    }

    fn place(&mut self, word: u64) {
        let mask = self.words.len() - 1;
        let mut bucket = self.home(tag(word));
        while self.words[bucket & mask] != EMPTY {
            bucket += 1;
        }
        self.words[bucket & mask] = word;
    }

    fn rebuild(&mut self, buckets: usize) {
        let words = std::mem::replace(&mut self.words, vec![EMPTY; buckets].into_boxed_slice());
        words.iter().filter(|word| **word != EMPTY).for_each(|word| self.place(*word));
    }

    /// Gives up all buckets that it can do without.
    pub(super) fn shrink(&mut self) {
        if self.len == 0 {
            return *self = Self::default();
        }
        let mut buckets = self.words.len();
        while buckets > MIN_BUCKETS && self.len * 4 <= buckets / 2 * 3 {
            buckets /= 2;
        }
        if buckets < self.words.len() {
            self.rebuild(buckets);
        }
    }

    /// The bucket of a slot that is in the table.
    fn bucket(&self, tag: u32, slot: u32) -> usize {
        let (mask, wanted) = (self.words.len() - 1, word(tag, slot));
        let mut bucket = self.home(tag) & mask;
        while self.words[bucket] != wanted {
            assert!(self.words[bucket] != EMPTY, "every slot is in the index");
            bucket = (bucket + 1) & mask;
        }
        bucket
    }

    /// Changes the number of a slot.
    pub(super) fn renumber(&mut self, tag: u32, from: u32, to: u32) {
        let bucket = self.bucket(tag, from);
        self.words[bucket] = word(tag, to);
    }

    /// Removes a slot, and moves the words behind it towards their homes.
    pub(super) fn remove(&mut self, tag: u32, slot: u32) {
        let mask = self.words.len() - 1;
        let mut hole = self.bucket(tag, slot);
        let mut bucket = hole;
        loop {
            bucket = (bucket + 1) & mask;
            let word = self.words[bucket];
            if word == EMPTY {
                break;
            }
            // A word may move back to the hole unless its home lies behind it.
            if bucket.wrapping_sub(self.home(self::tag(word))) & mask >= bucket.wrapping_sub(hole) & mask {
                self.words[hole] = word;
                hole = bucket;
            }
        }
        self.words[hole] = EMPTY;
        self.len -= 1;
        if self.len * 8 < self.words.len() && self.words.len() > MIN_BUCKETS {
            self.rebuild(self.words.len() / 2);
        }
    }

    /// Visits all slots with a tag from `from` on whose home is among the next `buckets` buckets. Returns the tag to go
    /// on from; beyond the largest tag, the walk is over.
    pub(super) fn walk(&self, from: u64, buckets: usize, mut visit: impl FnMut(u32)) -> u64 {
        const END: u64 = 1 << 32;
        let Some(mask) = self.words.len().checked_sub(1).filter(|_| from < END) else { return END };
        let first = self.home(from as u32);
        let end = (first + buckets).min(self.words.len());
        for step in 0..self.words.len() {
            let word = self.words[(first + step) & mask];
            if word == EMPTY && first + step >= end {
                break;
            }
            let is_here = word != EMPTY && (first..end).contains(&self.home(tag(word)));
            if is_here && u64::from(tag(word)) >= from {
                visit(word as u32);
            }
        }
        (end as u64) * (END / self.words.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;

    /// Few tags, so that words collide, at both ends, so that probes wrap around.
    fn tags() -> impl Strategy<Value = u32> {
        prop_oneof![any::<u32>(), (0_u32..3), (0_u32..3).prop_map(|low| u32::MAX - low)]
    }

    proptest! {
        #[test]
        fn it_finds_what_a_map_finds(steps in prop::collection::vec((tags(), any::<bool>()), 0..400)) {
            let (mut index, mut model) = (SlotIndex::default(), BTreeMap::<u32, u32>::new());
            for (number, (tag, insert)) in steps.into_iter().enumerate() {
                let slot = number as u32;
                match (model.get(&slot_of(&model, tag)).copied(), insert) {
                    (None, true) => {
                        let growth = index.growth_bytes() + index.allocated_bytes();
                        index.insert(tag, slot);
                        prop_assert_eq!(index.allocated_bytes(), growth);
                        model.insert(slot, tag);
                    }
                    (Some(_), true) => {
                        let old = slot_of(&model, tag);
                        index.renumber(tag, old, slot);
                        model.remove(&old);
                        model.insert(slot, tag);
                    }
                    (Some(_), false) => {
                        let old = slot_of(&model, tag);
                        index.remove(tag, old);
                        model.remove(&old);
                    }
                    (None, false) => prop_assert_eq!(index.find(tag, |_| true), None),
                }
                if number % 16 == 15 {
                    index.shrink();
                    prop_assert!(index.words.len() < 2 * MIN_BUCKETS || index.len * 8 > index.words.len() * 3);
                }
                prop_assert_eq!(index.len, model.len());
                for (slot, tag) in &model {
                    prop_assert_eq!(index.find(*tag, |found| found == *slot), Some(*slot));
                }
            }
        }

        #[test]
        fn a_walk_meets_each_slot_once_and_all_that_stay_while_the_table_changes(
            stay in prop::collection::btree_set(tags(), 0..60),
            come in prop::collection::btree_set(tags(), 0..200),
            at_once in 1_usize..9,
        ) {
            let mut index = SlotIndex::default();
            let come: Vec<_> = come.difference(&stay).copied().collect();
            let stay: Vec<_> = stay.into_iter().collect();
            stay.iter().enumerate().for_each(|(slot, tag)| index.insert(*tag, slot as u32));
            let (mut met, mut from, mut next) = (Vec::new(), 0, 0);
            while from < 1 << 32 {
                from = index.walk(from, at_once, |slot| met.push(slot));
                for _ in 0..3 {
                    if let Some(tag) = come.get(next) {
                        index.insert(*tag, (stay.len() + next) as u32);
                    } else if let Some(tag) = come.get(next.wrapping_sub(come.len())) {
                        index.remove(*tag, (stay.len() + next - come.len()) as u32);
                    }
                    next += 1;
                }
            }
            let unique: BTreeSet<_> = met.iter().copied().collect();
            prop_assert_eq!(unique.len(), met.len());
            prop_assert!((0..stay.len() as u32).all(|slot| unique.contains(&slot)));
        }
    }

    /// The slot of a tag, or one that is not there.
    fn slot_of(model: &BTreeMap<u32, u32>, tag: u32) -> u32 {
        model.iter().find(|(_, other)| **other == tag).map_or(u32::MAX, |(slot, _)| *slot)
    }
}
