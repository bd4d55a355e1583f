//! Matches the records of a batch with the queries of a stream, on one thread.
//!
//! For each record, the payload is searched for the names of indexed fields, and the values found are looked up in the index
//! (`index.rs`). The record is read and evaluated only for the filters that the index returns, and for filters without an
//! access path. So the cost of a record depends on its matches, and hardly on the number of queries.
//!
//! A filter is evaluated for all its candidates in a chunk at once (`chunk.rs`).

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::ops::Range;

use millstream_columns::{Chunk, ConditionResults, IdentityHasher, Selection, spread};
use millstream_types::{BatchError, Offset, PartitionId, RecordBatch, RecordView};

use crate::candidates::{Candidates, PayloadCount};
use crate::catalogue::{Catalogue, EntryId, FilterVerdict};
use crate::filter_id::FilterId;
use crate::rows::{RowBatch, Rows};

/// The matches of one query in some batches.
#[derive(Debug, Default)]
pub struct Matches {
    /// The rows of the matching records.
    pub rows: RowBatch,
    /// Records for which some expression failed: no matches if it was the condition, otherwise rows with NULL there.
    pub evaluation_errors: u64,
}

/// The counts of what was read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// The number of records read.
    pub records: u64,
    /// The number of payloads that are not JSON; payloads with an error in the middle count only if a
    /// query had to read them.
    pub not_json: u64,
    /// The number of evaluations of conditions that no index answers, one for each record.
    pub evaluations: u64,
}

/// The matches that were not handed out yet.
#[derive(Debug, Default)]
pub(crate) struct BatchMatcher {
    pending: Vec<PendingOutput>,
    /// The index in `pending` of each output with matches.
    by_output: HashMap<u64, usize, BuildHasherDefault<IdentityHasher>>,
    seen: PayloadCount,
    /// The candidates of the index for a chunk.
    found: Candidates,
    shown: ShownRecords,
    /// The results of shared conditions for a chunk.
    known: ConditionResults,
}

/// The matches of one output.
#[derive(Debug)]
struct PendingOutput {
    /// `None` if the output was removed meanwhile.
    output: Option<u32>,
    rows: Rows,
}

/// The candidate filters of a chunk, each once, even if several probes found it.
#[derive(Debug, Default)]
struct ShownRecords {
    filters: Vec<(FilterId, Selection)>,
    places: HashMap<u64, usize, BuildHasherDefault<IdentityHasher>>,
}

impl ShownRecords {
    #[inline]
    fn to(&mut self, filter: FilterId, records: Selection) {
        let place = *self.places.entry(spread(filter.0)).or_insert_with(|| {
            self.filters.push((filter, Selection::NONE));
            self.filters.len() - 1
        });
        self.filters[place].1 |= records;
    }

    fn drain(&mut self, mut take: impl FnMut(FilterId, Selection)) {
        self.places.clear();
        self.filters.drain(..).for_each(|(filter, records)| take(filter, records));
    }
}

impl BatchMatcher {
    /// Matches those records of `batch` (which is not compressed) that lie within `offsets`; [`Self::drain`] hands out the
    /// results. `now_ms` is what NOW means.
    ///
    /// # Errors
    /// A record that cannot be read; those before it have been matched.
    pub(crate) fn run<T>(
        &mut self,
        catalogue: &Catalogue<T>,
        batch: &RecordBatch,
        partition: PartitionId,
        offsets: Range<Offset>,
        now_ms: i64,
    ) -> Result<Tally, BatchError> {
        let mut tally = Tally::default();
        let size = Chunk::size(catalogue.fields.end());
        let mut chunk = Vec::with_capacity(size.min(batch.record_count() as usize));
        for view in batch.records() {
            match view {
                Ok(view) if !offsets.contains(&view.offset) => continue,
                Ok(view) => chunk.push(view),
                Err(error) => {
                    self.run_chunk(catalogue, &chunk, partition, now_ms, &mut tally);
                    return Err(error);
                }
            }
            if chunk.len() == size {
                self.run_chunk(catalogue, &chunk, partition, now_ms, &mut tally);
                chunk.clear();
            }
        }
        self.run_chunk(catalogue, &chunk, partition, now_ms, &mut tally);
        Ok(tally)
    }

    fn run_chunk<T>(
        &mut self,
        catalogue: &Catalogue<T>,
        chunk: &[RecordView<'_>],
        partition: PartitionId,
        now_ms: i64,
        tally: &mut Tally,
    ) {
        tally.records += chunk.len() as u64;
        let mut found = std::mem::take(&mut self.found);
        catalogue.candidate_finder.seek(chunk, partition, &mut self.seen, &mut found);
        let mut known = std::mem::take(&mut self.known);
        let mut chunk = Chunk::new(chunk, partition, now_ms, &catalogue.fields, &mut known);
        self.evaluate(catalogue, &mut chunk, &found);
        chunk.check_ends();
        tally.not_json += chunk.damaged().count();
        tally.evaluations += std::mem::take(&mut known.evaluations);
        (self.found, self.known) = (found, known);
    }

    /// Shows the filters the records that each may match.
    fn evaluate<T>(&mut self, catalogue: &Catalogue<T>, chunk: &mut Chunk<'_, '_>, found: &Candidates) {
        let mut shown = std::mem::take(&mut self.shown);
        chunk.check_whole(found.damaged);
        for (record, filter) in &found.candidates {
            shown.to(*filter, Selection::one(*record as usize));
        }
        for (filters, records) in catalogue.candidate_finder.present(found).filter(|(_, records)| !records.is_empty()) {
            filters.iter().for_each(|filter| shown.to(*filter, records));
        }
        for (slot, index) in catalogue.candidate_finder.null_slots() {
            chunk.check_whole(chunk.all());
            let records = chunk.nulls(slot, chunk.all());
            index.null().iter().for_each(|filter| shown.to(*filter, records));
        }
        shown.drain(|filter, records| self.meet(catalogue, filter, chunk, records));
        catalogue.everywhere().iter().for_each(|filter| self.meet(catalogue, *filter, chunk, chunk.all()));
        self.shown = shown;
    }

    /// Shows the records to a filter.
    fn meet<T>(&mut self, catalogue: &Catalogue<T>, id: FilterId, chunk: &mut Chunk<'_, '_>, records: Selection) {
        let Some(filter) = catalogue.filter(id) else { return };
        let FilterVerdict { matched, failed } = catalogue.verdict(filter, chunk, records);
        if matched.is_empty() && failed.is_empty() {
            return;
        }
        for number in catalogue.outputs_of(filter) {
            let Some(output) = catalogue.output(*number) else { continue };
            let slots = catalogue.fields.list(output.slots);
            let PendingOutput { rows, .. } = self.pending_of(*number);
            let mut failed = failed.records().peekable();
            for record in matched.records() {
                rows.count_errors(std::iter::from_fn(|| failed.next_if(|failed| *failed < record)).count() as u64);
                rows.push_evaluated(|out| output.query.write_row(slots, chunk, record, out));
            }
            rows.count_errors(failed.count() as u64);
        }
    }

    fn pending_of(&mut self, output: u32) -> &mut PendingOutput {
        let place = *self.by_output.entry(u64::from(output)).or_insert_with(|| {
            self.pending.push(PendingOutput { output: Some(output), rows: Rows::default() });
            self.pending.len() - 1
        });
        &mut self.pending[place]
    }

    /// Drops the matches of an output that was removed.
    pub(crate) fn forget(&mut self, output: u32) {
        if let Some(place) = self.by_output.remove(&u64::from(output)) {
            self.pending[place].output = None;
        }
    }

    /// Hands out the matches since the last call, query by query. Queries that were removed from the catalogue since
    /// then were reported to [`Self::forget`].
    pub(crate) fn drain<T>(&mut self, catalogue: &Catalogue<T>, mut take: impl FnMut(EntryId, &T, Matches)) {
        self.by_output.clear();
        for PendingOutput { output, rows } in self.pending.drain(..) {
            let Some(output) = output.and_then(|output| catalogue.output(output)) else { continue };
            let rows = RowBatch::from(rows);
            for (id, tag) in catalogue.entries_of(output) {
                take(id, tag, Matches { evaluation_errors: rows.evaluation_errors(), rows: rows.clone() });
            }
        }
    }
}
