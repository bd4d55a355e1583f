//! The results of the conditions that several filters share, for the records of one chunk.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use super::selection::Selection;
use super::truth::Truth;
use crate::hash::IdentityHasher;

/// The number of a condition within its stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConditionId(pub u32);

/// The results of conditions for the records of a chunk.
#[derive(Debug, Default)]
pub struct ConditionResults {
    places: HashMap<u64, usize, BuildHasherDefault<IdentityHasher>>,
    truths: Vec<(Selection, Truth)>,
    /// The number of evaluations, one for each record.
    pub evaluations: u64,
}

impl ConditionResults {
    /// Starts with a new chunk of records.
    pub fn clear(&mut self) {
        self.places.clear();
        self.truths.clear();
    }

    /// Forgets the results for these records.
    pub fn forget(&mut self, records: Selection) {
        self.truths.iter_mut().for_each(|(known, _)| *known -= records);
    }

    /// The records for which the result of a condition is known, and the result.
    pub fn of(&mut self, ConditionId(id): ConditionId) -> &mut (Selection, Truth) {
        let place = *self.places.entry(u64::from(id)).or_insert_with(|| {
            self.truths.push(Default::default());
            self.truths.len() - 1
        });
        &mut self.truths[place]
    }
}
