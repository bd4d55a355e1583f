//! The superseded records that a segment still has, one bit each.

/// A set of records of one segment. A record is named by its number among all records of the segment that are not
/// markers, in the order of their offsets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct DeadRecords {
    bits: Vec<u64>,
    count: u64,
}

impl DeadRecords {
    pub(crate) fn insert(&mut self, number: u64) {
        let (word, bit) = ((number / 64) as usize, 1 << (number % 64));
        if self.bits.len() <= word {
            self.bits.resize(word + 1, 0);
        }
        self.count += u64::from(self.bits[word] & bit == 0);
        self.bits[word] |= bit;
    }

    pub(crate) fn contains(&self, number: u64) -> bool {
        self.bits.get((number / 64) as usize).is_some_and(|word| word & (1 << (number % 64)) != 0)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_what_was_inserted_and_nothing_else() {
        let mut dead = DeadRecords::default();
        assert!(dead.is_empty() && !dead.contains(0) && !dead.contains(1 << 40));
        [3, 64, 3, 200].iter().for_each(|number| dead.insert(*number));
        let found: Vec<_> = (0..300).filter(|number| dead.contains(*number)).collect();
        assert_eq!((found, dead.count), (vec![3, 64, 200], 3));
    }
}
