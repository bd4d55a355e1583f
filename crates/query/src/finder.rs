//! Which records of a batch match which queries of a stream, as one thread finds out.
//!
//! For each record the names of the fields in which filters hang are looked for in the payload, and the values found
//! there in the index (`index.rs`). Only for the filters that this gives, and those that hang nowhere, the record is
//! read and evaluated. So what a record costs depends on what it matches, hardly on how many queries there are.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::ops::Range;

use millstream_columns::Value;
use millstream_types::{BatchError, Offset, PartitionId, RecordBatch, RecordView};

use crate::catalogue::{Catalogue, EntryId};
use crate::eval::Verdict;
use crate::hash::Identity;
use crate::index::FilterId;
use crate::record::{LazyRecord, Scratch};
use crate::rows::{RowBatch, Rows};
use crate::seeker::{Candidate, Seen};

/// Records whose candidates are collected before the first is evaluated.
const CHUNK: usize = 256;

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

/// What has been found and not been handed out yet.
#[derive(Debug, Default)]
pub(crate) struct Finder {
    pending: Vec<Pending>,
    /// Where in `pending` an output has something.
    by_output: HashMap<u64, usize, BuildHasherDefault<Identity>>,
    seen: Seen,
    /// The candidates of a chunk while it is matched.
    found: Vec<Candidate>,
    /// The filters that a record is shown to: one that hangs in several places may be found at some of them.
    shown: Once,
}

/// What batches gave an output.
#[derive(Debug)]
struct Pending {
    /// `None` if it has gone since.
    output: Option<u32>,
    rows: Rows,
    evaluation_errors: u64,
}

/// Filters, each once.
#[derive(Debug, Default)]
struct Once {
    filters: Vec<FilterId>,
    /// A bit for each filter: whether it is there.
    is_there: Vec<u64>,
}

impl Once {
    fn add(&mut self, filter: FilterId) {
        let (word, bit) = (filter.0 as usize / 64, 1 << (filter.0 % 64));
        if word >= self.is_there.len() {
            self.is_there.resize(word + 1, 0);
        }
        if self.is_there[word] & bit == 0 {
            self.is_there[word] |= bit;
            self.filters.push(filter);
        }
    }

    fn drain(&mut self, mut take: impl FnMut(FilterId)) {
        for filter in self.filters.drain(..) {
            self.is_there[filter.0 as usize / 64] = 0;
            take(filter);
        }
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
        let mut chunk = Vec::with_capacity(CHUNK.min(batch.record_count() as usize));
        for view in batch.records() {
            match view {
                Ok(view) if !offsets.contains(&view.offset) => continue,
                Ok(view) => chunk.push(view),
                Err(error) => {
                    self.run_chunk(catalogue, &chunk, partition, now_ms, &mut tally);
                    return Err(error);
                }
            }
            if chunk.len() == CHUNK {
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
        self.evaluate(catalogue, chunk, &found, partition, now_ms, tally);
        found.clear();
        self.found = found;
    }

    /// Shows each record to its candidates.
    fn evaluate<T>(
        &mut self,
        catalogue: &Catalogue<T>,
        chunk: &[RecordView<'_>],
        found: &[Candidate],
        partition: PartitionId,
        now_ms: i64,
        tally: &mut Tally,
    ) {
        let mut scratch = Scratch::default();
        let mut candidates = found.iter().peekable();
        let reads_all = !catalogue.everywhere().is_empty() || catalogue.seeker.asks_for_null();
        let mut shown = std::mem::take(&mut self.shown);
        for (number, view) in chunk.iter().enumerate() {
            let is_mine = |candidate: &&Candidate| candidate.record as usize == number;
            if !reads_all && !candidates.peek().is_some_and(&is_mine) {
                continue;
            }
            let mut record = LazyRecord::new(*view, partition, now_ms, &catalogue.fields, &mut scratch);
            while let Some(Candidate { filter, .. }) = candidates.next_if(|next| is_mine(next)) {
                match filter {
                    Some(filter) => shown.add(*filter),
                    None => record.check_whole(),
                }
            }
            for (slot, index) in catalogue.seeker.null_slots() {
                record.check_whole();
                if record.value(slot) == Ok(Value::Null) {
                    index.null().iter().for_each(|filter| shown.add(*filter));
                }
            }
            shown.drain(|filter| self.meet(catalogue, filter, &mut record));
            catalogue.everywhere().iter().for_each(|filter| self.meet(catalogue, *filter, &mut record));
            tally.not_json += u64::from(record.is_damaged());
        }
        self.shown = shown;
    }

    /// Shows the record to a filter.
    fn meet<T>(&mut self, catalogue: &Catalogue<T>, id: FilterId, record: &mut LazyRecord<'_, '_>) {
        let Some(filter) = catalogue.filter(id) else { return };
        let verdict = filter.query.verdict(catalogue.fields.list(filter.slots), record);
        if verdict == Verdict::NoMatch {
            return;
        }
        for number in catalogue.outputs_of(filter) {
            let Some(output) = catalogue.output(*number) else { continue };
            let slots = catalogue.fields.list(output.slots);
            let Pending { rows, evaluation_errors, .. } = self.pending_of(*number);
            let written =
                verdict == Verdict::Match && rows.try_push(|out| output.query.write_row(slots, record, out)).is_ok();
            *evaluation_errors += u64::from(!written);
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
