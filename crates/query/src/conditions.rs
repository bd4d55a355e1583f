//! The conditions of a stream's queries that no index answers, each once, however many filters have it.
//!
//! A filter is a list of conditions joined by AND. Where several filters have one, it is evaluated for a record when the
//! first of them asks, and the others are told. A condition is what it is whatever else is asked with it: its fields are
//! numbered from 0, and the list of the stream's numbers of these is a part of it.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::hash::BuildHasherDefault;

use hashbrown::HashTable;
use millstream_columns::{Field, Test};

use crate::chunk::{Chunk, Selection, Truth};
use crate::fields::FieldTable;
use crate::hash::{HashWriter, Identity};
use crate::slab::Slab;

/// The number of a condition within its stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ConditionId(u32);

/// All conditions.
#[derive(Debug, Default)]
pub(crate) struct Conditions {
    all: Slab<Condition>,
    by_hash: HashTable<Hashed>,
}

#[derive(Debug)]
struct Condition {
    test: Test,
    /// The list of the stream's numbers of its fields.
    slots: u32,
    /// How many filters have it.
    uses: u32,
}

#[derive(Debug)]
struct Hashed {
    hash: u64,
    id: ConditionId,
}

/// What is known of conditions for the records of a chunk.
#[derive(Debug, Default)]
pub(crate) struct Known {
    places: HashMap<u64, usize, BuildHasherDefault<Identity>>,
    truths: Vec<(Selection, Truth)>,
    /// How often a condition has been evaluated for a record.
    pub(crate) evaluations: u64,
}

impl Known {
    /// Begins with other records.
    pub(crate) fn clear(&mut self) {
        self.places.clear();
        self.truths.clear();
    }

    /// Forgets what is known for these records.
    pub(crate) fn forget(&mut self, records: Selection) {
        self.truths.iter_mut().for_each(|(known, _)| *known -= records);
    }

    fn of(&mut self, ConditionId(id): ConditionId) -> &mut (Selection, Truth) {
        let place = *self.places.entry(u64::from(id)).or_insert_with(|| {
            self.truths.push(Default::default());
            self.truths.len() - 1
        });
        &mut self.truths[place]
    }
}

impl Conditions {
    /// The condition that is `test` with these fields, for one more filter.
    pub(crate) fn acquire(&mut self, test: &Test, fields: &[Field], table: &mut FieldTable) -> ConditionId {
        let (test, fields) = by_itself(test, fields);
        let slots = table.acquire_all(&fields);
        let hash = hash(&test, slots);
        let all = &mut self.all;
        let known = self.by_hash.find(hash, |known| {
            let condition = all.get(known.id.0);
            known.hash == hash && condition.is_some_and(|known| known.slots == slots && known.test == test)
        });
        if let Some(Hashed { id, .. }) = known
            && let Some(condition) = all.get_mut(id.0)
        {
            condition.uses += 1;
            table.release_all(slots);
            return *id;
        }
        let id = ConditionId(all.insert(Condition { test, slots, uses: 1 }));
        self.by_hash.insert_unique(hash, Hashed { hash, id }, |known| known.hash);
        id
    }

    /// One filter less has it.
    pub(crate) fn release(&mut self, id: ConditionId, table: &mut FieldTable) {
        let Some(condition) = self.all.get_mut(id.0) else { return };
        condition.uses -= 1;
        if condition.uses > 0 {
            return;
        }
        let hash = hash(&condition.test, condition.slots);
        if let Ok(known) = self.by_hash.find_entry(hash, |known| known.id == id) {
            known.remove();
        }
        if let Some(condition) = self.all.remove(id.0) {
            table.release_all(condition.slots);
        }
    }

    /// What a condition is in these records.
    pub(crate) fn truth(&self, id: ConditionId, chunk: &mut Chunk<'_, '_>, records: Selection) -> Truth {
        let Some(Condition { test, slots, uses }) = self.all.get(id.0) else { return Truth::default() };
        let slots = chunk.table.list(*slots);
        if *uses == 1 {
            chunk.known.evaluations += records.count();
            return chunk.truth(test, slots, records);
        }
        let new = records - chunk.known.of(id).0;
        if !new.is_empty() {
            chunk.known.evaluations += new.count();
            let truth = chunk.truth(test, slots, new);
            let (known, before) = chunk.known.of(id);
            *before = before.within(*known).joined(truth);
            *known |= new;
        }
        chunk.known.of(id).1.within(records)
    }
}

/// The test with fields of its own, numbered as it names them.
fn by_itself(test: &Test, fields: &[Field]) -> (Test, Vec<Field>) {
    let (mut test, mut own) = (test.clone(), Vec::new());
    test.each_field(&mut |number| {
        let place = own.iter().position(|known| known == number);
        *number = place.unwrap_or_else(|| {
            own.push(*number);
            own.len() - 1
        });
    });
    (test, own.into_iter().map(|number| fields[number].clone()).collect())
}

fn hash(test: &Test, slots: u32) -> u64 {
    let mut writer = HashWriter::default();
    // Writing to a hasher cannot fail.
    let _ = write!(writer, "{slots}{test:?}");
    writer.finish()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use super::*;
    use crate::{Compiled, Limits, parse};

    #[test]
    fn a_condition_is_one_wherever_it_stands_as_long_as_a_filter_has_it() {
        let (mut conditions, mut table) = (Conditions::default(), FieldTable::default());
        let mut ids = |filter: &str| -> Vec<ConditionId> {
            let query =
                Compiled::new(&parse(&format!("SELECT * FROM STREAM() WHERE {filter}"), &Limits::default()).unwrap());
            query.conjuncts.iter().map(|test| conditions.acquire(test, &query.fields, &mut table)).collect()
        };
        let first = ids("a != 1 AND (b = a) IS NULL AND a % -0.0 = 0.0");
        let second = ids("c > b AND (b = a) IS NULL AND a % 0.0 = 0.0 AND (a = b) IS NULL AND a != 1.0");
        assert_eq!(first[1], second[1], "whatever numbers its fields have in a filter");
        let different: std::collections::HashSet<u32> = first.iter().chain(&second).map(|id| id.0).collect();
        assert_eq!(different.len(), 7, "another field, order or number is another condition");
        for id in first {
            conditions.release(id, &mut table);
        }
        assert_eq!(conditions.all.len(), 5);
        for id in second {
            conditions.release(id, &mut table);
        }
        assert!(conditions.all.len() == 0 && conditions.by_hash.is_empty() && table.is_empty());
    }
}
