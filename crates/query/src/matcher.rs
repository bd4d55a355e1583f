//! The live queries of one stream, and which records of a batch match which of them.
//!
//! A query with a top-level equality (or IN) on a field hangs in an index under its values; only the records that
//! carry one of them are shown to it. The others are evaluated for every record. What is left of a filter is evaluated
//! record by record. Owner: one thread; nothing is shared.

use std::sync::Arc;

use millstream_types::{BatchError, Offset, PartitionId, RecordBatch};

use crate::compiled::Compiled;
use crate::eval::Verdict;
use crate::fields::{FieldTable, Use};
use crate::index::{EntryId, EqualityIndex, Key};
use crate::record::{LazyRecord, Scratch};
use crate::rows::RowBatch;

/// The queries of one stream, each with a tag of the owner's choice.
#[derive(Debug)]
pub struct Matcher<T> {
    entries: Vec<Option<Entry<T>>>,
    free: Vec<EntryId>,
    fields: FieldTable,
    index: EqualityIndex,
    /// Queries that no index can find, in the order of their entries.
    unindexed: Vec<EntryId>,
    /// Entries that have something to hand over.
    touched: Vec<EntryId>,
}

#[derive(Debug)]
struct Entry<T> {
    tag: T,
    query: Arc<Compiled>,
    /// The stream's number of each field of the query.
    slots: Vec<usize>,
    access: Option<Access>,
    yielded: Yield,
}

/// How the index finds a query.
#[derive(Debug)]
struct Access {
    /// The conjunct that the index answers.
    conjunct: usize,
    field: usize,
    keys: Vec<Key>,
}

/// What some batches gave one query.
#[derive(Debug, Default)]
pub struct Yield {
    /// The matches.
    pub rows: RowBatch,
    /// Records whose evaluation failed; they are no matches.
    pub evaluation_errors: u64,
}

/// What was read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Records.
    pub records: u64,
    /// Of these, payloads that were found not to be JSON, as far as somebody had to look.
    pub not_json: u64,
}

impl<T> Default for Matcher<T> {
    fn default() -> Self {
        Self {
            entries: Vec::new(),
            free: Vec::new(),
            fields: FieldTable::default(),
            index: EqualityIndex::default(),
            unindexed: Vec::new(),
            touched: Vec::new(),
        }
    }
}

impl<T> Matcher<T> {
    /// Adds a query.
    pub fn insert(&mut self, query: Arc<Compiled>, tag: T) -> EntryId {
        let id = self.free.pop().unwrap_or_else(|| {
            self.entries.push(None);
            EntryId(self.entries.len() - 1)
        });
        let access = self.best_access(&query);
        let slots: Vec<usize> = query
            .fields
            .iter()
            .enumerate()
            .map(|(field, name)| self.fields.acquire(name, usage(&query, access.as_ref(), field)))
            .collect();
        match &access {
            Some(access) => self.index.insert(slots[access.field], &access.keys, id),
            None => self.unindexed.push(id),
        }
        self.entries[id.0] = Some(Entry { tag, query, slots, access, yielded: Yield::default() });
        id
    }

    /// Takes a query out.
    pub fn remove(&mut self, id: EntryId) -> Option<T> {
        let Entry { tag, query, slots, access, .. } = self.entries.get_mut(id.0)?.take()?;
        match &access {
            Some(access) => self.index.remove(slots[access.field], &access.keys, id),
            None => self.unindexed.retain(|known| *known != id),
        }
        for (field, slot) in slots.iter().enumerate() {
            self.fields.release(*slot, usage(&query, access.as_ref(), field));
        }
        self.touched.retain(|known| *known != id);
        self.free.push(id);
        Some(tag)
    }

    /// How many queries there are.
    pub fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The tags of all queries.
    pub fn tags(&self) -> impl Iterator<Item = &T> {
        self.entries.iter().flatten().map(|entry| &entry.tag)
    }

    /// The conjunct whose values are shared with the fewest queries.
    fn best_access(&self, query: &Compiled) -> Option<Access> {
        let indexable = query.conjuncts.iter().enumerate().filter_map(|(conjunct, test)| {
            test.required_values().map(|(field, keys)| Access { conjunct, field, keys })
        });
        indexable.min_by_key(|access| {
            let slot = self.fields.slot(&query.fields[access.field]);
            slot.map_or(0, |slot| self.index.crowd(slot, &access.keys))
        })
    }

    /// Matches the records of `batch` (which is not compressed) from offset `from` on; [`Self::drain`] hands out the
    /// results. `now_ms` is what NOW means.
    ///
    /// # Errors
    /// A record that cannot be read; those before it have been matched.
    pub fn run(
        &mut self,
        batch: &RecordBatch,
        partition: PartitionId,
        from: Offset,
        now_ms: i64,
    ) -> Result<Tally, BatchError> {
        self.fields.refresh();
        let mut tally = Tally::default();
        let mut scratch = Scratch::default();
        for view in batch.records() {
            let view = view?;
            if view.offset < from {
                continue;
            }
            tally.records += 1;
            let record = &mut LazyRecord::new(view, partition, now_ms, &self.fields, &mut scratch);
            for slot in self.index.slots() {
                // A value that cannot be read equals nothing.
                let Ok(value) = record.value(slot) else { continue };
                for id in self.index.candidates(slot, &value) {
                    meet(&mut self.entries, &mut self.touched, *id, record);
                }
            }
            for id in &self.unindexed {
                meet(&mut self.entries, &mut self.touched, *id, record);
            }
            tally.not_json += u64::from(record.is_damaged());
        }
        Ok(tally)
    }

    /// Hands out what the batches since the last call gave, query by query.
    pub fn drain(&mut self, mut take: impl FnMut(EntryId, &T, Yield)) {
        for id in self.touched.drain(..) {
            if let Some(entry) = &mut self.entries[id.0] {
                take(id, &entry.tag, std::mem::take(&mut entry.yielded));
            }
        }
    }
}

/// Shows a record to a query.
fn meet<T>(entries: &mut [Option<Entry<T>>], touched: &mut Vec<EntryId>, id: EntryId, record: &mut LazyRecord<'_, '_>) {
    let Some(entry) = &mut entries[id.0] else { return };
    let skip = entry.access.as_ref().map(|access| access.conjunct);
    let verdict = entry.query.verdict(&entry.slots, skip, record);
    if verdict == Verdict::NoMatch {
        return;
    }
    let Yield { rows, evaluation_errors } = &mut entry.yielded;
    if rows.is_empty() && *evaluation_errors == 0 {
        touched.push(id);
    }
    let written =
        verdict == Verdict::Match && rows.try_push(|out| entry.query.write_row(&entry.slots, record, out)).is_ok();
    *evaluation_errors += u64::from(!written);
}

/// Fields that decide whether a query is concerned are needed for every record, others only for candidates.
fn usage(query: &Compiled, access: Option<&Access>, field: usize) -> Use {
    let hot = match access {
        Some(access) => access.field == field,
        None => field < query.filter_fields(),
    };
    if hot { Use::Hot } else { Use::Cold }
}
