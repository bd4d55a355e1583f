//! The pages of the policy `slru`: the slots of a shard in lists from hot to cold, each from its newest to its oldest.
//!
//! A new key enters the coldest page; a hit moves a key one page hotter; the oldest keys of a page that overflows move
//! one page colder. The coldest page has what the hotter ones leave of the budget, and gives up its oldest when the
//! cache is full.

use super::item::CacheSlot;

const NONE: u32 = u32::MAX;

#[derive(Debug, Clone, Copy)]
struct SlotLink {
    newer: u32,
    older: u32,
    page: u8,
}

/// One list of slots, linked from its newest to its oldest.
#[derive(Debug, Clone)]
pub(super) struct SlruPage {
    newest: u32,
    oldest: u32,
    pub(super) keys: u64,
    /// Bytes of the slots and what they have allocated.
    pub(super) bytes: u64,
    /// Bytes at which it overflows.
    pub(super) max_bytes: u64,
}

/// The lists; see the head of this file.
#[derive(Debug)]
pub(super) struct Pages {
    /// One link for each slot, at the slot's index.
    links: Vec<SlotLink>,
    /// From the hottest to the coldest.
    pages: Vec<SlruPage>,
}

impl Pages {
    /// Empty pages whose sizes are in these proportions and add up to `max_bytes`.
    pub(super) fn new(proportions: &[u32], max_bytes: u64) -> Self {
        let total: u64 = proportions.iter().map(|proportion| u64::from(*proportion)).sum();
        let page = |proportion: &u32| {
            let share = u128::from(max_bytes) * u128::from(*proportion) / u128::from(total);
            SlruPage { newest: NONE, oldest: NONE, keys: 0, bytes: 0, max_bytes: share as u64 }
        };
        Self { links: Vec::new(), pages: proportions.iter().map(page).collect() }
    }

    /// Empty pages of the same sizes.
    pub(super) fn emptied(&self) -> Self {
        let empty =
            |page: &SlruPage| SlruPage { newest: NONE, oldest: NONE, keys: 0, bytes: 0, max_bytes: page.max_bytes };
        Self { links: Vec::new(), pages: self.pages.iter().map(empty).collect() }
    }

    /// These pages, which are empty, with all slots in the coldest one, the oldest first.
    pub(super) fn filled(mut self, slots: &[CacheSlot], capacity: usize, oldest_first: Vec<u32>) -> Self {
        self.links.reserve_exact(capacity);
        self.links.resize(slots.len(), SlotLink { newer: NONE, older: NONE, page: 0 });
        let coldest = self.pages.len() - 1;
        oldest_first.into_iter().for_each(|slot| self.attach(slots, slot, coldest));
        self
    }

    /// These pages with the sizes of `new`, which are empty. If there are as many, each slot stays in its page unless that
    /// overflows; otherwise all go to the coldest one in their order.
    pub(super) fn resized_as(mut self, slots: &[CacheSlot], new: Self) -> Self {
        if new.pages.len() == self.pages.len() {
            for (page, new) in self.pages.iter_mut().zip(&new.pages) {
                page.max_bytes = new.max_bytes;
            }
            self.overflow(slots, 0);
            return self;
        }
        let mut coldest_first = Vec::with_capacity(slots.len());
        for page in self.pages.iter().rev() {
            let mut at = page.oldest;
            while at != NONE {
                coldest_first.push(at);
                at = self.links[at as usize].newer;
            }
        }
        new.filled(slots, self.links.capacity(), coldest_first)
    }

    /// From the hottest to the coldest.
    pub(super) fn pages(&self) -> &[SlruPage] {
        &self.pages
    }

    pub(super) const LINK_BYTES: u64 = size_of::<SlotLink>() as u64;

    /// The bytes that the links have allocated.
    pub(super) fn allocated_bytes(&self) -> u64 {
        self.links.capacity() as u64 * Self::LINK_BYTES
    }

    /// Makes as much room as the slots have.
    pub(super) fn set_capacity(&mut self, slots: usize) {
        if slots > self.links.capacity() {
            self.links.reserve_exact(slots - self.links.len());
        } else {
            self.links.shrink_to(slots);
        }
    }

    /// A new slot, the last one, enters the coldest page.
    pub(super) fn enter(&mut self, slots: &[CacheSlot]) {
        self.links.push(SlotLink { newer: NONE, older: NONE, page: 0 });
        self.attach(slots, slots.len() as u32 - 1, self.pages.len() - 1);
    }

    /// A hit moves the slot one page hotter.
    pub(super) fn hit(&mut self, slots: &[CacheSlot], slot: u32) {
        let page = usize::from(self.links[slot as usize].page);
        if page == 0 && self.pages[0].newest == slot {
            return;
        }
        self.detach(slots, slot);
        self.attach(slots, slot, page.saturating_sub(1));
        self.overflow(slots, page.saturating_sub(1));
    }

    /// A slot has got another value. `old_bytes` is what it had allocated before.
    pub(super) fn resized(&mut self, slots: &[CacheSlot], slot: u32, old_bytes: u64) {
        let page = usize::from(self.links[slot as usize].page);
        let bytes = &mut self.pages[page].bytes;
        *bytes = *bytes - old_bytes + slots[slot as usize].allocated_bytes();
        self.overflow(slots, page);
    }

    /// The oldest slot of the coldest page.
    pub(super) fn victim(&self) -> Option<u32> {
        self.pages.iter().rev().find(|page| page.keys > 0).map(|page| page.oldest)
    }

    /// Takes `slot` out of the lists. The last slot will get its number.
    pub(super) fn swap_remove(&mut self, slots: &[CacheSlot], slot: u32) {
        self.detach(slots, slot);
        let last = self.links.len() as u32 - 1;
        if slot != last {
            let SlotLink { newer, older, page } = self.links[last as usize];
            let page = &mut self.pages[usize::from(page)];
            *if newer == NONE { &mut page.newest } else { &mut self.links[newer as usize].older } = slot;
            *if older == NONE { &mut page.oldest } else { &mut self.links[older as usize].newer } = slot;
        }
        self.links.swap_remove(slot as usize);
    }

    /// The oldest slots of each page that overflows, from `page` on, move one page colder.
    fn overflow(&mut self, slots: &[CacheSlot], page: usize) {
        for page in page..self.pages.len() - 1 {
            while self.pages[page].bytes > self.pages[page].max_bytes {
                let oldest = self.pages[page].oldest;
                self.detach(slots, oldest);
                self.attach(slots, oldest, page + 1);
            }
        }
    }

    fn attach(&mut self, slots: &[CacheSlot], slot: u32, page: usize) {
        let list = &mut self.pages[page];
        let older = std::mem::replace(&mut list.newest, slot);
        list.keys += 1;
        list.bytes += bytes(slots, slot);
        *if older == NONE { &mut list.oldest } else { &mut self.links[older as usize].newer } = slot;
        self.links[slot as usize] = SlotLink { newer: NONE, older, page: page as u8 };
    }

    fn detach(&mut self, slots: &[CacheSlot], slot: u32) {
        let SlotLink { newer, older, page } = self.links[slot as usize];
        let list = &mut self.pages[usize::from(page)];
        list.keys -= 1;
        list.bytes -= bytes(slots, slot);
        *if newer == NONE { &mut list.newest } else { &mut self.links[newer as usize].older } = older;
        *if older == NONE { &mut list.oldest } else { &mut self.links[older as usize].newer } = newer;
    }
}

fn bytes(slots: &[CacheSlot], slot: u32) -> u64 {
    size_of::<CacheSlot>() as u64 + slots[slot as usize].allocated_bytes()
}

#[cfg(test)]
mod tests {
    use super::super::item::CachedItem;
    use super::*;
    use crate::Value;

    /// Slots of equal size, and pages that hold so many of them.
    fn pages(capacities: &[u32]) -> (Vec<CacheSlot>, Pages) {
        let bytes = size_of::<CacheSlot>() as u64 + slot(0).allocated_bytes();
        let all: u32 = capacities.iter().sum();
        (Vec::new(), Pages::new(capacities, bytes * u64::from(all)))
    }

    fn slot(tag: u32) -> CacheSlot {
        CacheSlot::new(tag, CachedItem::new(b"k", Value::of("v"), 1))
    }

    fn enter(slots: &mut Vec<CacheSlot>, pages: &mut Pages, count: u32) {
        for _ in 0..count {
            slots.push(slot(slots.len() as u32));
            pages.enter(slots);
        }
    }

    /// The tags in each page, from the newest to the oldest, and in reverse from the oldest to the newest.
    fn lists(slots: &[CacheSlot], pages: &Pages) -> Vec<Vec<u32>> {
        let list = |page: &SlruPage| {
            let (mut found, mut at) = (Vec::new(), page.newest);
            while at != NONE {
                found.push(at);
                at = pages.links[at as usize].older;
            }
            let (mut back, mut at) = (Vec::new(), page.oldest);
            while at != NONE {
                back.insert(0, at);
                at = pages.links[at as usize].newer;
            }
            assert_eq!(found, back);
            assert_eq!((page.keys, page.bytes), (found.len() as u64, found.iter().map(|at| bytes(slots, *at)).sum()));
            found.iter().map(|slot| slots[*slot as usize].tag).collect()
        };
        pages.pages.iter().map(list).collect()
    }

    #[test]
    fn a_hit_moves_a_key_one_page_hotter_and_overflow_pushes_the_oldest_colder() {
        let (mut slots, mut pages) = pages(&[1, 2, 3]);
        enter(&mut slots, &mut pages, 4);
        assert_eq!(lists(&slots, &pages), [vec![], vec![], vec![3, 2, 1, 0]]);
        pages.hit(&slots, 1);
        pages.hit(&slots, 1);
        assert_eq!(lists(&slots, &pages), [vec![1], vec![], vec![3, 2, 0]]);
        for slot in [0, 2, 3] {
            pages.hit(&slots, slot);
        }
        assert_eq!(lists(&slots, &pages), [vec![1], vec![3, 2], vec![0]]);
        pages.hit(&slots, 2);
        assert_eq!(lists(&slots, &pages), [vec![2], vec![1, 3], vec![0]]);
        pages.hit(&slots, 2);
        assert_eq!(pages.victim(), Some(0));
        pages.hit(&slots, 0);
        pages.hit(&slots, 3);
        assert_eq!(lists(&slots, &pages), [vec![2], vec![3, 0], vec![1]]);
    }

    #[test]
    fn the_last_slot_takes_the_number_of_a_removed_one() {
        let (mut slots, mut pages) = pages(&[2, 4]);
        enter(&mut slots, &mut pages, 4);
        pages.hit(&slots, 3);
        for (slot, expected) in [(1, [vec![3], vec![2, 0]]), (1, [vec![], vec![2, 0]]), (1, [vec![], vec![0]])] {
            pages.swap_remove(&slots, slot);
            slots.swap_remove(slot as usize);
            assert_eq!(lists(&slots, &pages), expected);
        }
        pages.swap_remove(&slots, 0);
        assert_eq!(pages.victim(), None);
    }

    #[test]
    fn a_value_that_grows_or_is_larger_than_its_page_sinks() {
        let (mut slots, mut pages) = pages(&[1, 1, 1]);
        enter(&mut slots, &mut pages, 2);
        pages.hit(&slots, 0);
        let old = slots[0].allocated_bytes();
        slots[0] = CacheSlot::new(0, CachedItem::new(b"k", Value::of(vec![0; 500]), 1));
        pages.resized(&slots, 0, old);
        assert_eq!(lists(&slots, &pages), [vec![], vec![], vec![0, 1]]);
        pages.hit(&slots, 0);
        assert_eq!(lists(&slots, &pages), [vec![], vec![], vec![0, 1]]);
    }
}
