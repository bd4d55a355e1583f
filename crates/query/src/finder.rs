//! Which records of a batch match which queries of a stream, as one thread finds out.
//!
//! For each record the names of the fields in which filters hang are looked for in the payload, and the values found
//! there in the index (`index.rs`). Only for the filters that this gives, and those that hang nowhere, the record is
//! read and evaluated. So what a record costs depends on what it matches, hardly on how many queries there are.
//!
//! A filter is shown all records of a chunk that it may match, at once (`chunk.rs`).

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::ops::Range;

use millstream_types::{BatchError, Offset, PartitionId, RecordBatch, RecordView};

use crate::catalogue::{Catalogue, EntryId, Verdict};
use crate::chunk::{Chunk, Selection};
use crate::conditions::Known;
use crate::hash::{Identity, spread};
use crate::index::FilterId;
use crate::rows::{RowBatch, Rows};
use crate::seeker::{Found, Seen};

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
    /// How often a condition that no index answers was evaluated for a record.
    pub evaluations: u64,
}

/// What has been found and not been handed out yet.
#[derive(Debug, Default)]
pub(crate) struct Finder {
    pending: Vec<Pending>,
    /// Where in `pending` an output has something.
    by_output: HashMap<u64, usize, BuildHasherDefault<Identity>>,
    seen: Seen,
    /// What the index gave for a chunk.
    found: Found,
    shown: Shown,
    /// What is known of the conditions that filters share, for a chunk.
    known: Known,
}

/// What batches gave an output.
#[derive(Debug)]
struct Pending {
    /// `None` if it has gone since.
    output: Option<u32>,
    rows: Rows,
    evaluation_errors: u64,
}

/// The filters that may match records of a chunk, each once: one that hangs in several places may be found at some of them.
#[derive(Debug, Default)]
struct Shown {
    filters: Vec<(FilterId, Selection)>,
    places: HashMap<u64, usize, BuildHasherDefault<Identity>>,
}

impl Shown {
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

impl Finder {
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
        catalogue.seeker.seek(chunk, partition, &mut self.seen, &mut found);
        let mut known = std::mem::take(&mut self.known);
        let mut chunk = Chunk::new(chunk, partition, now_ms, &catalogue.fields, &mut known);
        self.evaluate(catalogue, &mut chunk, &found);
        tally.not_json += chunk.damaged().count();
        tally.evaluations += std::mem::take(&mut known.evaluations);
        (self.found, self.known) = (found, known);
    }

    /// Shows the filters the records that each may match.
    fn evaluate<T>(&mut self, catalogue: &Catalogue<T>, chunk: &mut Chunk<'_, '_>, found: &Found) {
        let mut shown = std::mem::take(&mut self.shown);
        chunk.check_whole(found.damaged);
        for (record, filter) in &found.candidates {
            shown.to(*filter, Selection::one(*record as usize));
        }
        for (filters, records) in catalogue.seeker.present(found).filter(|(_, records)| !records.is_empty()) {
            filters.iter().for_each(|filter| shown.to(*filter, records));
        }
        for (slot, index) in catalogue.seeker.null_slots() {
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
        let Verdict { matched, failed } = catalogue.verdict(filter, chunk, records);
        if matched.is_empty() && failed.is_empty() {
            return;
        }
        for number in catalogue.outputs_of(filter) {
            let Some(output) = catalogue.output(*number) else { continue };
            let slots = catalogue.fields.list(output.slots);
            let Pending { rows, evaluation_errors, .. } = self.pending_of(*number);
            *evaluation_errors += failed.count();
            for record in matched.records() {
                let written = rows.try_push(|out| output.query.write_row(slots, chunk, record, out));
                *evaluation_errors += u64::from(written.is_err());
            }
        }
    }

    fn pending_of(&mut self, output: u32) -> &mut Pending {
        let place = *self.by_output.entry(u64::from(output)).or_insert_with(|| {
            self.pending.push(Pending { output: Some(output), rows: Rows::default(), evaluation_errors: 0 });
            self.pending.len() - 1
        });
        &mut self.pending[place]
    }

    /// Lets go of what was found for an output that is gone.
    pub(crate) fn forget(&mut self, output: u32) {
        if let Some(place) = self.by_output.remove(&u64::from(output)) {
            self.pending[place].output = None;
        }
    }

    /// Hands out what the batches since the last call gave, query by query. Of those that have been taken out of the
    /// catalogue since then it has been told.
    pub(crate) fn drain<T>(&mut self, catalogue: &Catalogue<T>, mut take: impl FnMut(EntryId, &T, Yield)) {
        self.by_output.clear();
        for Pending { output, rows, evaluation_errors } in self.pending.drain(..) {
            let Some(output) = output.and_then(|output| catalogue.output(output)) else { continue };
            let rows = RowBatch::from(rows);
            for (id, tag) in catalogue.entries_of(output) {
                take(id, tag, Yield { rows: rows.clone(), evaluation_errors });
            }
        }
    }
}
