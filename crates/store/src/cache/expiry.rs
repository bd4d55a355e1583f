//! The keys of a shard that expire: a heap with four children a node, in one allocation.
//!
//! The first is the one that expires next. Since all are in one array, one of them at random is found at once as well.
//! Each slot knows its place in the heap, so that a key whose expiry changes or goes is found without a search.

use super::item::{CacheSlot, NEVER};

const CHILDREN: usize = 4;

#[derive(Debug, Clone, Copy)]
struct Expiry {
    at_ms: i64,
    slot: u32,
}

/// The heap; see the head of this file.
#[derive(Debug, Default)]
pub(super) struct Expiries {
    heap: Vec<Expiry>,
    sum_ms: i128,
}

impl Expiries {
    pub(super) fn len(&self) -> usize {
        self.heap.len()
    }

    /// The sum of all times of expiry.
    pub(super) fn sum_ms(&self) -> i128 {
        self.sum_ms
    }

    /// When the slot's key expires.
    #[inline]
    pub(super) fn of(&self, slot: &CacheSlot) -> Option<i64> {
        if slot.expiry == NEVER { None } else { Some(self.heap[slot.expiry as usize].at_ms) }
    }

    /// The slot that expires next, and when.
    pub(super) fn first(&self) -> Option<(u32, i64)> {
        self.heap.first().map(|first| (first.slot, first.at_ms))
    }

    /// The slot in the place `place`.
    pub(super) fn slot(&self, place: usize) -> u32 {
        self.heap[place].slot
    }

    /// Sets or removes the expiry of a slot.
    pub(super) fn set(&mut self, slots: &mut [CacheSlot], slot: u32, at_ms: Option<i64>) {
        match (slots[slot as usize].expiry, at_ms) {
            (NEVER, None) => {}
            (NEVER, Some(at_ms)) => {
                if self.heap.len() == self.heap.capacity() {
                    self.heap.reserve_exact(self.growth());
                }
                self.sum_ms += i128::from(at_ms);
                self.heap.push(Expiry { at_ms, slot });
                self.rise(slots, self.heap.len() - 1);
            }
            (place, None) => {
                let place = place as usize;
                slots[slot as usize].expiry = NEVER;
                self.sum_ms -= i128::from(self.heap[place].at_ms);
                self.heap.swap_remove(place);
                if place < self.heap.len() {
                    self.restore(slots, place);
                }
                if self.heap.len() * 4 < self.heap.capacity() {
                    self.heap.shrink_to(self.heap.len() * 2);
                }
            }
            (place, Some(at_ms)) => {
                let place = place as usize;
                self.sum_ms += i128::from(at_ms) - i128::from(self.heap[place].at_ms);
                self.heap[place].at_ms = at_ms;
                self.restore(slots, place);
            }
        }
    }

    /// Changes the number of the slot in a place.
    pub(super) fn renumber(&mut self, place: u32, slot: u32) {
        if place != NEVER {
            self.heap[place as usize].slot = slot;
        }
    }

    /// Gives up all room that it can do without.
    pub(super) fn shrink(&mut self) {
        self.heap.shrink_to_fit();
    }

    fn growth(&self) -> usize {
        (self.heap.capacity() / 2).max(8)
    }

    /// The bytes that the heap has allocated.
    #[inline]
    pub(super) fn allocated_bytes(&self) -> u64 {
        (self.heap.capacity() * size_of::<Expiry>()) as u64
    }

    /// The bytes that one more expiry will allocate.
    #[inline]
    pub(super) fn growth_bytes(&self) -> u64 {
        if self.heap.len() < self.heap.capacity() { 0 } else { (self.growth() * size_of::<Expiry>()) as u64 }
    }

    /// Moves what is in `place` to where it belongs.
    fn restore(&mut self, slots: &mut [CacheSlot], place: usize) {
        let place = self.rise(slots, place);
        self.sink(slots, place);
    }

    fn rise(&mut self, slots: &mut [CacheSlot], mut place: usize) -> usize {
        let moving = self.heap[place];
        while place > 0 {
            let parent = (place - 1) / CHILDREN;
            if self.heap[parent].at_ms <= moving.at_ms {
                break;
            }
            self.put(slots, place, self.heap[parent]);
            place = parent;
        }
        self.put(slots, place, moving);
        place
    }

    fn sink(&mut self, slots: &mut [CacheSlot], mut place: usize) {
        let moving = self.heap[place];
        loop {
            let first = place * CHILDREN + 1;
            let children = first..(first + CHILDREN).min(self.heap.len());
            let Some(least) = children.min_by_key(|child| self.heap[*child].at_ms) else { break };
            if self.heap[least].at_ms >= moving.at_ms {
                break;
            }
            self.put(slots, place, self.heap[least]);
            place = least;
        }
        self.put(slots, place, moving);
    }

    fn put(&mut self, slots: &mut [CacheSlot], place: usize, expiry: Expiry) {
        self.heap[place] = expiry;
        slots[expiry.slot as usize].expiry = place as u32;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::item::CachedItem;
    use super::*;
    use crate::Value;

    proptest! {
        #[test]
        fn the_first_is_the_next_to_expire_and_each_slot_knows_its_own(
            steps in prop::collection::vec((0_u32..40, prop::option::of(0_i64..100)), 1..300),
        ) {
            let mut slots: Vec<_> = (0..40).map(|tag| CacheSlot::new(tag, CachedItem::new(b"k", Value::of("v"), 1))).collect();
            let (mut expiries, mut model) = (Expiries::default(), vec![None; slots.len()]);
            for (slot, at_ms) in steps {
                let adds = model[slot as usize].is_none() && at_ms.is_some();
                let after = expiries.allocated_bytes() + if adds { expiries.growth_bytes() } else { 0 };
                expiries.set(&mut slots, slot, at_ms);
                model[slot as usize] = at_ms;
                prop_assert!(expiries.allocated_bytes() <= after);
                prop_assert_eq!(expiries.first().map(|first| first.1), model.iter().flatten().min().copied());
                prop_assert_eq!(expiries.len(), model.iter().flatten().count());
                prop_assert_eq!(expiries.sum_ms(), model.iter().flatten().map(|at| i128::from(*at)).sum::<i128>());
                for (number, slot) in slots.iter().enumerate() {
                    prop_assert_eq!(expiries.of(slot), model[number]);
                    prop_assert!(slot.expiry == NEVER || expiries.slot(slot.expiry as usize) == number as u32);
                }
            }
        }
    }
}
