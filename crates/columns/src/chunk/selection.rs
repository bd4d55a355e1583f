//! Some of the records of a chunk.

use std::ops::{BitAnd, BitOr, BitOrAssign, Sub, SubAssign};

const WORDS: usize = 4;
const WORD: usize = u64::BITS as usize;
/// A word with more records is iterated faster over all 64 bits than over the selected ones.
const DENSE: u32 = 12;

/// A set of records of a chunk, by their numbers there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Selection([u64; WORDS]);

impl Selection {
    /// One more than the highest number.
    pub const END: usize = WORDS * WORD;
    /// Selects no record of the chunk.
    pub const NONE: Self = Self([0; WORDS]);
    /// Selects all records of the chunk.
    pub const ALL: Self = Self([u64::MAX; WORDS]);

    /// The first `count` records of a chunk.
    pub fn first(count: usize) -> Self {
        Self(std::array::from_fn(|word| match count.saturating_sub(word * WORD) {
            0 => 0,
            WORD.. => u64::MAX,
            some => (1 << some) - 1,
        }))
    }

    /// Selects one record of the chunk.
    #[inline]
    pub fn one(record: usize) -> Self {
        let mut one = Self::NONE;
        one.insert(record);
        one
    }

    /// Adds a record to the selection.
    #[inline]
    pub fn insert(&mut self, record: usize) {
        self.0[record / WORD] |= 1 << (record % WORD);
    }

    /// True if the record is selected.
    #[inline]
    pub fn contains(self, record: usize) -> bool {
        self.0[record / WORD] & 1 << (record % WORD) != 0
    }

    /// True if no record is selected.
    #[inline]
    pub fn is_empty(self) -> bool {
        self == Self::NONE
    }

    /// The number of records that are selected.
    #[inline]
    pub fn count(self) -> u64 {
        self.0.iter().map(|word| u64::from(word.count_ones())).sum()
    }

    /// Of each 64 records a word, with a bit for each.
    pub(super) fn words_mut(&mut self) -> &mut [u64; WORDS] {
        &mut self.0
    }

    /// The numbers of the records, ascending.
    #[inline]
    pub fn records(self) -> impl Iterator<Item = usize> {
        self.0.into_iter().enumerate().flat_map(|(place, mut word)| {
            std::iter::from_fn(move || {
                let bit = word.trailing_zeros() as usize;
                // Without its lowest bit.
                word &= word.checked_sub(1)?;
                Some(place * WORD + bit)
            })
        })
    }

    /// The records for which `holds` is true.
    #[inline]
    pub fn filter(self, holds: impl Fn(usize) -> bool) -> Self {
        let mut all = self;
        for (place, word) in all.0.iter_mut().enumerate() {
            let mut rest = *word;
            while rest != 0 {
                let bit = rest.trailing_zeros() as usize;
                if !holds(place * WORD + bit) {
                    *word &= !(1 << bit);
                }
                rest &= rest - 1;
            }
        }
        all
    }

    /// As [`Self::filter`], for a cheap `holds` without branches: it may be asked about neighbours of the selected, too, up
    /// to the next multiple of 64.
    #[inline(always)]
    pub fn filter_lanes(self, holds: impl Fn(usize) -> bool) -> Self {
        let mut all = self;
        for (place, word) in all.0.iter_mut().enumerate() {
            let (start, mut kept) = (place * WORD, 0);
            if word.count_ones() > DENSE {
                for bit in 0..WORD {
                    kept |= u64::from(holds(start + bit)) << bit;
                }
            } else {
                let mut rest = *word;
                while rest != 0 {
                    let bit = rest.trailing_zeros() as usize;
                    kept |= u64::from(holds(start + bit)) << bit;
                    rest &= rest - 1;
                }
            }
            *word &= kept;
        }
        all
    }
}

impl BitAnd for Selection {
    type Output = Self;

    #[inline]
    fn bitand(self, other: Self) -> Self {
        let ([a, b, c, d], [e, f, g, h]) = (self.0, other.0);
        Self([a & e, b & f, c & g, d & h])
    }
}

impl BitOr for Selection {
    type Output = Self;

    #[inline]
    fn bitor(self, other: Self) -> Self {
        let ([a, b, c, d], [e, f, g, h]) = (self.0, other.0);
        Self([a | e, b | f, c | g, d | h])
    }
}

impl Sub for Selection {
    type Output = Self;

    /// The records that are not in `other`.
    #[inline]
    fn sub(self, other: Self) -> Self {
        let ([a, b, c, d], [e, f, g, h]) = (self.0, other.0);
        Self([a & !e, b & !f, c & !g, d & !h])
    }
}

impl BitOrAssign for Selection {
    #[inline]
    fn bitor_assign(&mut self, other: Self) {
        *self = *self | other;
    }
}

impl SubAssign for Selection {
    #[inline]
    fn sub_assign(&mut self, other: Self) {
        *self = *self - other;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selection_is_a_set_of_record_numbers() {
        let numbers = |selection: Selection| selection.records().collect::<Vec<_>>();
        for count in [0, 1, 63, 64, 65, 200, 256, 300] {
            assert_eq!(numbers(Selection::first(count)), (0..count.min(Selection::END)).collect::<Vec<_>>());
        }
        let (few, many) = (Selection::one(3) | Selection::one(130), Selection::first(131) - Selection::one(130));
        assert_eq!(numbers(few & many), [3]);
        assert_eq!((few.contains(130), many.contains(130), few.count(), many.count()), (true, false, 2, 130));
        for selection in [few, many, Selection::NONE, Selection::ALL] {
            let odd: Vec<usize> = selection.records().filter(|number| number % 2 == 1).collect();
            assert_eq!(numbers(selection.filter(|number| number % 2 == 1)), odd);
            assert_eq!(numbers(selection.filter_lanes(|number| number % 2 == 1)), odd);
        }
    }
}
