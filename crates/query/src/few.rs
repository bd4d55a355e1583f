//! Lists of numbers that mostly have one element, which then is all they take.

use millstream_columns::Slab;

/// A small list. A list of more than one element is stored in [`Lists`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Few(u32);

/// No element is so high.
const SEVERAL: u32 = 1 << 31;
const EMPTY: Few = Few(u32::MAX);

impl Default for Few {
    fn default() -> Self {
        EMPTY
    }
}

/// The storage of lists with several elements.
#[derive(Debug, Default)]
pub(crate) struct Lists(Slab<Vec<u32>>);

impl Few {
    pub(crate) fn is_empty(self) -> bool {
        self == EMPTY
    }

    /// The number of the list that has the elements.
    fn list(self) -> Option<u32> {
        (self.0 & SEVERAL != 0 && !self.is_empty()).then_some(self.0 & !SEVERAL)
    }
}

impl Lists {
    pub(crate) fn of<'l>(&'l self, few: &'l Few) -> &'l [u32] {
        match few.list() {
            Some(list) => self.0.get(list).map_or(&[], Vec::as_slice),
            None if few.is_empty() => &[],
            None => std::slice::from_ref(&few.0),
        }
    }

    pub(crate) fn push(&mut self, few: &mut Few, element: u32) {
        match few.list() {
            Some(list) => self.0.get_mut(list).into_iter().for_each(|elements| elements.push(element)),
            None if few.is_empty() => *few = Few(element),
            None => *few = Few(self.0.insert(vec![few.0, element]) | SEVERAL),
        }
    }

    /// Takes out the element at `position`; the last one takes its place.
    pub(crate) fn swap_remove(&mut self, few: &mut Few, position: usize) {
        let Some(list) = few.list() else {
            *few = EMPTY;
            return;
        };
        let Some(elements) = self.0.get_mut(list) else { return };
        elements.swap_remove(position);
        if elements.is_empty() {
            self.0.remove(list);
            *few = EMPTY;
        }
    }

    /// Takes out an element, if it is there.
    pub(crate) fn remove(&mut self, few: &mut Few, element: u32) {
        if let Some(position) = self.of(few).iter().position(|known| *known == element) {
            self.swap_remove(few, position);
        }
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_works_alike_with_few_and_many_items() {
        let (mut lists, mut few) = (Lists::default(), Few::default());
        for n in 0..4 {
            assert_eq!((few.is_empty(), lists.of(&few).len()), (n == 0, n as usize));
            lists.push(&mut few, n);
        }
        lists.swap_remove(&mut few, 0);
        assert_eq!(lists.of(&few), [3, 1, 2]);
        for (gone, rest) in [(1, &[3, 2][..]), (7, &[3, 2]), (3, &[2]), (2, &[])] {
            lists.remove(&mut few, gone);
            assert_eq!(lists.of(&few), rest);
        }
        assert!(lists.is_empty());
        lists.push(&mut few, 5);
        lists.remove(&mut few, 6);
        assert_eq!(lists.of(&few), [5]);
        lists.remove(&mut few, 5);
        assert!(few.is_empty());
    }
}
