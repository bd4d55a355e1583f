//! The live queries of one stream, and which records of a batch match which of them.
//!
//! ```text
//!   query ──► entry ──► output ──► filter ──► places in the index
//!             one each   rows are    equal ones
//!                        encoded     are one
//!                        once
//! ```
//!
//! For each record the names of the fields in which filters hang are looked for in the payload, and the values found
//! there in the index (`index.rs`). Only for the filters that this gives, and those that hang nowhere, the record is
//! read and evaluated. So what a record costs depends on what it matches, hardly on how many queries there are. Owner:
//! one thread; nothing is shared.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::sync::Arc;

use millstream_columns::Value;
use millstream_types::{BatchError, Offset, PartitionId, RecordBatch, RecordView};

use crate::compiled::Compiled;
use crate::cover::{Cover, Place, cover};
use crate::eval::Verdict;
use crate::fields::FieldTable;
use crate::hash::Identity;
use crate::index::FilterId;
use crate::record::{LazyRecord, Scratch};
use crate::rows::{RowBatch, Rows};
use crate::seeker::{Candidate, Seeker};
use crate::slab::Slab;

/// The number of a query within its stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EntryId(u32);

/// Records whose candidates are collected before the first is evaluated.
const CHUNK: usize = 256;
/// So many of the latest outputs of a filter are compared with a new one.
const OUTPUTS_COMPARED: usize = 16;

/// The queries of one stream, each with a tag of the owner's choice.
#[derive(Debug)]
pub struct Matcher<T> {
    entries: Slab<Entry<T>>,
    outputs: Slab<Output>,
    filters: Slab<Filter>,
    /// Filters by their hash; of several with one hash the first.
    by_filter: HashMap<u64, FilterId, BuildHasherDefault<Identity>>,
    fields: FieldTable,
    seeker: Seeker,
    /// Filters that hang nowhere.
    everywhere: Vec<FilterId>,
    /// Outputs that have something to hand over.
    touched: Vec<u32>,
    /// Records so far.
    record: u64,
    /// The candidates of a chunk while it is matched.
    found: Vec<Candidate>,
}

#[derive(Debug)]
struct Entry<T> {
    tag: T,
    output: u32,
    /// Its place among the entries of the output.
    position: u32,
}

/// What queries with equal filter and equal rows share.
#[derive(Debug)]
struct Output {
    filter: FilterId,
    query: Arc<Compiled>,
    /// The stream's number of each field of the query.
    slots: Box<[u32]>,
    entries: Vec<EntryId>,
    rows: Rows,
    evaluation_errors: u64,
    touched: bool,
}

/// What queries with equal filter share.
#[derive(Debug)]
struct Filter {
    query: Arc<Compiled>,
    hash: u64,
    slots: Box<[u32]>,
    /// Where it hangs; `None` is nowhere.
    places: Option<Box<[Place]>>,
    outputs: Vec<u32>,
    /// The last record it was shown.
    record: u64,
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
            entries: Slab::default(),
            outputs: Slab::default(),
            filters: Slab::default(),
            by_filter: HashMap::default(),
            fields: FieldTable::default(),
            seeker: Seeker::default(),
            everywhere: Vec::new(),
            touched: Vec::new(),
            record: 0,
            found: Vec::new(),
        }
    }
}

impl<T> Matcher<T> {
    /// Adds a query.
    pub fn insert(&mut self, query: Arc<Compiled>, tag: T) -> EntryId {
        let filter = self.filter(&query);
        let output = self.output(filter, query);
        let position = self.outputs.get(output).map_or(0, |output| output.entries.len()) as u32;
        let entry = EntryId(self.entries.insert(Entry { tag, output, position }));
        if let Some(output) = self.outputs.get_mut(output) {
            output.entries.push(entry);
        }
        entry
    }

    /// Takes a query out.
    pub fn remove(&mut self, id: EntryId) -> Option<T> {
        let Entry { tag, output: number, position } = self.entries.remove(id.0)?;
        let output = self.outputs.get_mut(number)?;
        output.entries.swap_remove(position as usize);
        match output.entries.get(position as usize) {
            Some(moved) => {
                if let Some(moved) = self.entries.get_mut(moved.0) {
                    moved.position = position;
                }
            }
            None if output.entries.is_empty() => self.remove_output(number),
            None => {}
        }
        Some(tag)
    }

    /// How many queries there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The tags of all queries.
    pub fn tags(&self) -> impl Iterator<Item = &T> {
        self.entries.iter().map(|entry| &entry.tag)
    }

    /// The filter of the query, made if there is none like it.
    fn filter(&mut self, query: &Arc<Compiled>) -> FilterId {
        let hash = query.filter_hash();
        let known = self.by_filter.get(&hash).copied();
        if let Some(known) = known
            && self.filters.get(known.0).is_some_and(|filter| filter.query.has_filter_of(query))
        {
            return known;
        }
        let slots: Box<[u32]> = query.filter_fields().iter().map(|field| self.fields.acquire(field)).collect();
        let places = match cover(&query.conjuncts, &|place| self.seeker.cost(slots[place.field], &place.hold)) {
            Cover::Places(places) => Some(places.into_boxed_slice()),
            Cover::Anything => None,
        };
        let outputs = Vec::with_capacity(1);
        let filter = Filter { query: query.clone(), hash, slots, places, outputs, record: 0 };
        let id = FilterId(self.filters.insert(filter));
        if known.is_none() {
            self.by_filter.insert(hash, id);
        }
        match self.filters.get(id.0) {
            Some(Filter { places: Some(places), slots, query, .. }) => {
                for Place { field, hold } in places {
                    self.seeker.insert(slots[*field], &query.fields[*field], hold, id);
                }
            }
            _ => self.everywhere.push(id),
        }
        id
    }

    /// The output of the query, made if there is none like it.
    fn output(&mut self, id: FilterId, query: Arc<Compiled>) -> u32 {
        let known = self.filters.get(id.0).and_then(|filter| {
            let latest = filter.outputs.iter().rev().take(OUTPUTS_COMPARED);
            let mut same = latest
                .filter(|output| self.outputs.get(**output).is_some_and(|output| output.query.has_rows_of(&query)));
            same.next().copied()
        });
        if let Some(known) = known {
            return known;
        }
        let slots = query.fields.iter().map(|field| self.fields.acquire(field)).collect();
        let entries = Vec::with_capacity(1);
        let (rows, evaluation_errors, touched) = (Rows::default(), 0, false);
        let output = Output { filter: id, query, slots, entries, rows, evaluation_errors, touched };
        let number = self.outputs.insert(output);
        if let Some(filter) = self.filters.get_mut(id.0) {
            filter.outputs.push(number);
        }
        number
    }

    fn remove_output(&mut self, number: u32) {
        let Some(output) = self.outputs.remove(number) else { return };
        output.slots.iter().for_each(|slot| self.fields.release(*slot));
        if output.touched {
            self.touched.retain(|touched| *touched != number);
        }
        let Some(filter) = self.filters.get_mut(output.filter.0) else { return };
        filter.outputs.retain(|known| *known != number);
        if filter.outputs.is_empty() {
            self.remove_filter(output.filter);
        }
    }

    fn remove_filter(&mut self, id: FilterId) {
        let Some(filter) = self.filters.remove(id.0) else { return };
        if self.by_filter.get(&filter.hash) == Some(&id) {
            self.by_filter.remove(&filter.hash);
        }
        match &filter.places {
            Some(places) => {
                for Place { field, hold } in places {
                    self.seeker.remove(filter.slots[*field], hold, id);
                }
            }
            None => self.everywhere.retain(|known| *known != id),
        }
        filter.slots.iter().for_each(|slot| self.fields.release(*slot));
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
        self.seeker.refresh();
        let mut tally = Tally::default();
        let mut chunk = Vec::with_capacity(CHUNK.min(batch.record_count() as usize));
        for view in batch.records() {
            match view {
                Ok(view) if view.offset < from => continue,
                Ok(view) => chunk.push(view),
                Err(error) => {
                    self.run_chunk(&chunk, partition, now_ms, &mut tally);
                    return Err(error);
                }
            }
            if chunk.len() == CHUNK {
                self.run_chunk(&chunk, partition, now_ms, &mut tally);
                chunk.clear();
            }
        }
        self.run_chunk(&chunk, partition, now_ms, &mut tally);
        Ok(tally)
    }

    fn run_chunk(&mut self, chunk: &[RecordView<'_>], partition: PartitionId, now_ms: i64, tally: &mut Tally) {
        tally.records += chunk.len() as u64;
        let mut found = std::mem::take(&mut self.found);
        self.seeker.seek(chunk, partition, &mut found);
        self.evaluate(chunk, &found, partition, now_ms, tally);
        found.clear();
        self.found = found;
    }

    /// Shows each record to its candidates.
    fn evaluate(
        &mut self,
        chunk: &[RecordView<'_>],
        found: &[Candidate],
        partition: PartitionId,
        now_ms: i64,
        tally: &mut Tally,
    ) {
        let mut scratch = Scratch::default();
        let mut candidates = found.iter().peekable();
        let reads_all = !self.everywhere.is_empty() || self.seeker.asks_for_null();
        for (number, view) in chunk.iter().enumerate() {
            let is_mine = |candidate: &&Candidate| candidate.record as usize == number;
            if !reads_all && !candidates.peek().is_some_and(&is_mine) {
                continue;
            }
            self.record += 1;
            let mut record = LazyRecord::new(*view, partition, now_ms, &self.fields, &mut scratch);
            let (filters, outputs) = (&mut self.filters, &mut self.outputs);
            let mut meeting = Meeting { filters, outputs, touched: &mut self.touched, number: self.record };
            while let Some(Candidate { filter, .. }) = candidates.next_if(|next| is_mine(next)) {
                match filter {
                    Some(filter) => meeting.meet(*filter, &mut record),
                    None => record.check_whole(),
                }
            }
            for (slot, index) in self.seeker.null_slots() {
                record.check_whole();
                if record.value(slot) == Ok(Value::Null) {
                    index.null().iter().for_each(|filter| meeting.meet(*filter, &mut record));
                }
            }
            self.everywhere.iter().for_each(|filter| meeting.meet(*filter, &mut record));
            tally.not_json += u64::from(record.is_damaged());
        }
    }

    /// Hands out what the batches since the last call gave, query by query.
    pub fn drain(&mut self, mut take: impl FnMut(EntryId, &T, Yield)) {
        for number in self.touched.drain(..) {
            let Some(output) = self.outputs.get_mut(number) else { continue };
            output.touched = false;
            let rows = RowBatch::from(std::mem::take(&mut output.rows));
            let evaluation_errors = std::mem::take(&mut output.evaluation_errors);
            for id in &output.entries {
                if let Some(entry) = self.entries.get(id.0) {
                    take(*id, &entry.tag, Yield { rows: rows.clone(), evaluation_errors });
                }
            }
        }
    }
}

/// A record and the filters that are shown it.
struct Meeting<'m> {
    filters: &'m mut Slab<Filter>,
    outputs: &'m mut Slab<Output>,
    touched: &'m mut Vec<u32>,
    number: u64,
}

impl Meeting<'_> {
    /// Shows the record to a filter, once.
    fn meet(&mut self, id: FilterId, record: &mut LazyRecord<'_, '_>) {
        let Some(filter) = self.filters.get_mut(id.0) else { return };
        if std::mem::replace(&mut filter.record, self.number) == self.number {
            return;
        }
        let verdict = filter.query.verdict(&filter.slots, record);
        if verdict == Verdict::NoMatch {
            return;
        }
        for number in &filter.outputs {
            let Some(output) = self.outputs.get_mut(*number) else { continue };
            if !std::mem::replace(&mut output.touched, true) {
                self.touched.push(*number);
            }
            let Output { query, slots, rows, .. } = output;
            let written = verdict == Verdict::Match && rows.try_push(|out| query.write_row(slots, record, out)).is_ok();
            output.evaluation_errors += u64::from(!written);
        }
    }
}
