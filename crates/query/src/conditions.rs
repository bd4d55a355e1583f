//! The conditions of a stream's queries that no index answers. Each is stored once, whatever the number of its filters.
//!
//! A filter is a list of conditions joined by AND. A condition of several filters is evaluated for a record when the first
//! of them needs it; the others reuse the result. A condition is independent of its query: its fields are numbered from 0,
//! and it contains the list of the stream's numbers for them.

use std::fmt::Write as _;

use hashbrown::HashTable;
use millstream_columns::{Chunk, ConditionId, Field, FieldTable, HashWriter, Predicate, Selection, Slab, Truth};

/// All conditions of a stream.
#[derive(Debug, Default)]
pub(crate) struct StreamConditions {
    all: Slab<SharedCondition>,
    by_hash: HashTable<Hashed>,
}

#[derive(Debug)]
struct SharedCondition {
    test: Predicate,
    /// The list of the stream's numbers of its fields.
    slots: u32,
    /// The number of filters that have it.
    uses: u32,
}

#[derive(Debug)]
struct Hashed {
    hash: u64,
    id: ConditionId,
}

impl StreamConditions {
    /// The condition that is `test` with these fields, for one more filter.
    pub(crate) fn acquire(&mut self, test: &Predicate, fields: &[Field], table: &mut FieldTable) -> ConditionId {
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
        let id = ConditionId(all.insert(SharedCondition { test, slots, uses: 1 }));
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

    /// The truth of a condition for these records.
    pub(crate) fn truth(&self, id: ConditionId, chunk: &mut Chunk<'_, '_>, records: Selection) -> Truth {
        let Some(SharedCondition { test, slots, uses }) = self.all.get(id.0) else { return Truth::default() };
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

/// The condition with its own field numbers, and the fields that they stand for.
fn by_itself(test: &Predicate, fields: &[Field]) -> (Predicate, Vec<Field>) {
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

fn hash(test: &Predicate, slots: u32) -> u64 {
    let mut writer = HashWriter::default();
    // Writing to a hasher cannot fail.
    let _ = write!(writer, "{slots}{test:?}");
    writer.finish()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use super::*;
    use crate::{Compiled, ParserLimits, parse};

    #[test]
    fn a_condition_is_one_wherever_it_stands_as_long_as_a_filter_has_it() {
        let (mut conditions, mut table) = (StreamConditions::default(), FieldTable::default());
        let mut ids = |filter: &str| -> Vec<ConditionId> {
            let query = Compiled::new(
                &parse(&format!("SELECT * FROM STREAM() WHERE {filter}"), &ParserLimits::default()).unwrap(),
            );
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
        assert!(conditions.all.is_empty() && conditions.by_hash.is_empty() && table.is_empty());
    }
}
